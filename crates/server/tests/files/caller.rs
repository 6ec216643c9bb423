//! Somebody who talks to the server: bags, turns, executions, and answers held to their shapes.

use reqwest::header::HeaderMap;
use reqwest::{Client, Method, RequestBuilder};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use testkit::form::Form;
use testkit::server::Answer;

use crate::sse::{Stream, Told};

pub const CONVERSATIONS: &str = "/v1/chat-conversations";
const MEDIA: &str = "application/vnd.api+json";

#[derive(Debug, Clone)]
pub struct Caller {
    client: Client,
    url: String,
    bearer: String,
}

/// Bytes as an answer.
#[derive(Debug)]
pub struct Got {
    pub status: u16,
    pub headers: HeaderMap,
    pub bytes: Vec<u8>,
}

impl Got {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("a header as text"))
    }
}

impl Caller {
    pub fn new(url: &str, bearer: &str) -> Self {
        let client = Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build();
        Self { client: client.expect("a client"), url: url.to_owned(), bearer: bearer.to_owned() }
    }

    /// The same person, at another address.
    pub fn at(&self, url: &str) -> Self {
        Self { url: url.to_owned(), ..self.clone() }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn bearer(&self) -> &str {
        &self.bearer
    }

    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let url = if path.starts_with("http") { path.to_owned() } else { format!("{}{path}", self.url) };
        self.client.request(method, url).bearer_auth(&self.bearer)
    }

    /// Without a credential.
    pub fn anonymous(&self, method: Method, url: &str) -> RequestBuilder {
        self.client.request(method, url)
    }

    pub async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Answer {
        let mut request = self.request(method, path);
        if let Some(body) = body {
            let kind = if path == CONVERSATIONS { MEDIA } else { "application/json" };
            request = request.header("content-type", kind).body(body.to_string());
        }
        ask(request).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, None).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::POST, path, Some(body)).await
    }

    pub async fn delete(&self, path: &str) -> u16 {
        self.send(Method::DELETE, path, None).await.status
    }

    pub async fn conversation(&self) -> String {
        self.conversation_with(json!({})).await
    }

    pub async fn conversation_with(&self, attributes: Value) -> String {
        let document = json!({ "data": { "type": "chat_conversation", "attributes": attributes } });
        let made = self.post(CONVERSATIONS, &document).await;
        made.body["data"]["id"]
            .as_str()
            .unwrap_or_else(|| panic!("no conversation: {}", made.text))
            .to_owned()
    }

    /// A conversation's messages.
    pub async fn messages(&self, conversation: &str) -> Vec<Value> {
        let answer = self.get(&format!("{CONVERSATIONS}/{conversation}")).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.body["data"]["attributes"]["messages"].as_array().expect("messages").clone()
    }

    /// The request of an upload.
    pub fn form(&self, path: &str, form: &Form) -> RequestBuilder {
        self.request(Method::POST, path).header("content-type", Form::kind()).body(form.end())
    }

    pub async fn upload(&self, conversation: &str, form: &Form) -> Answer {
        ask(self.form(&bag(conversation), form)).await
    }

    /// One file that is taken.
    pub async fn put(&self, conversation: &str, name: &str, bytes: &[u8]) -> Value {
        let answer = self.upload(conversation, &Form::of(name, bytes)).await;
        files(&answer).remove(0)
    }

    /// The whole bag.
    pub async fn list(&self, conversation: &str) -> Vec<Value> {
        self.list_all(&bag(conversation)).await
    }

    /// All pages of a list.
    pub async fn list_all(&self, path: &str) -> Vec<Value> {
        let (mut found, mut after) = (Vec::new(), String::new());
        loop {
            let page = self.get(&format!("{path}?limit=100{after}")).await;
            assert_eq!(page.status, 200, "{}", page.text);
            found.extend(page.body["data"].as_array().expect("a list").iter().cloned());
            match page.body["next"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => return found,
            }
        }
    }

    pub async fn content(&self, file: &Value) -> Got {
        self.content_with(file, &[]).await
    }

    pub async fn content_with(&self, file: &Value, headers: &[(&str, &str)]) -> Got {
        let mut request = self.request(Method::GET, &content_path(file));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        got(request).await
    }

    /// A turn whose ids alone come back.
    pub async fn begin(&self, turn: &Value) -> Value {
        let answer = self.try_begin(turn).await;
        assert_eq!(answer.status, 202, "{}", answer.text);
        answer.body
    }

    pub async fn try_begin(&self, turn: &Value) -> Answer {
        let request = self.request(Method::POST, "/v1/turns").header("prefer", "respond-async");
        ask(request.header("content-type", "application/json").body(turn.to_string())).await
    }

    /// A whole turn.
    pub async fn turn(&self, turn: &Value) -> Told {
        let request = self.request(Method::POST, "/v1/turns").header("content-type", "application/json");
        Stream::new(request.body(turn.to_string()).send().await.expect("an answer")).rest().await
    }

    pub async fn follow(&self, run: &str) -> Stream {
        let path = format!("/v1/runs/{run}/events");
        Stream::new(self.request(Method::GET, &path).send().await.expect("an answer"))
    }

    /// All of a run's events, once it has ended.
    pub async fn log(&self, run: &Value) -> Told {
        self.follow(run.as_str().expect("a run")).await.rest().await
    }
}

pub fn bag(conversation: &str) -> String {
    format!("{CONVERSATIONS}/{conversation}/files")
}

/// Where the bytes of a file are, by its own account.
pub fn content_path(file: &Value) -> String {
    let id = file["id"].as_str().expect("an id");
    match file["chatId"].as_str() {
        Some(chat) => format!("{}/{id}/content", bag(chat)),
        None => format!("/v1/files/{id}/content"),
    }
}

pub async fn ask(request: RequestBuilder) -> Answer {
    Answer::read(request.send().await.expect("an answer")).await.expect("a whole answer")
}

pub async fn got(request: RequestBuilder) -> Got {
    let response = request.send().await.expect("an answer");
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    Got { status, headers, bytes: response.bytes().await.expect("a whole answer").to_vec() }
}

/// The files of a 201.
#[track_caller]
pub fn files(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status, 201, "{}", answer.text);
    let members: Vec<&String> = answer.body.as_object().expect("an object").keys().collect();
    assert_eq!(members, ["files"]);
    answer.body["files"].as_array().expect("files").clone()
}

pub fn names(files: &[Value]) -> Vec<&str> {
    files.iter().map(|file| file["name"].as_str().expect("a name")).collect()
}

pub fn ids(files: &[Value]) -> Vec<&str> {
    files.iter().map(id).collect()
}

pub fn id(thing: &Value) -> &str {
    thing["id"].as_str().expect("an id")
}

pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Status and code of a refusal, which is a whole problem.
#[track_caller]
pub fn refused(answer: &Answer, status: u16, code: &str) {
    assert_eq!((answer.status, answer.body["code"].as_str()), (status, Some(code)), "{}", answer.text);
    assert_eq!(answer.header("content-type"), "application/problem+json");
    for name in ["type", "title", "detail"] {
        assert!(answer.body[name].as_str().is_some_and(|text| !text.is_empty()), "{name}: {}", answer.text);
    }
    assert_eq!(answer.body["status"], status);
}

/// An attachment or a file block of a stored file, without the block's type.
pub fn attachment(file: &Value) -> Value {
    json!({ "fileId": file["id"], "name": file["name"], "mimeType": file["mimeType"], "size": file["size"],
        "sha256": file["sha256"] })
}
