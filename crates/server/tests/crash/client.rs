//! A client: sends requests, starts turns, and reads streams event by event as their bytes come.

use std::time::Duration;

use anyhow::Context as _;
use domain::time::{Clock as _, SystemClock};
use jiff::Timestamp;
use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::{Value, json};
use testkit::server::Answer;

/// Longer than anything here may take.
const PATIENCE: Duration = Duration::from_secs(45);

/// An event exactly as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub seq: i64,
    pub kind: String,
    pub data: String,
}

impl Event {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or_else(|error| panic!("{error}: {}", self.data))
    }
}

/// The ids in the head of an accepted turn's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    pub conversation: String,
    pub run: String,
    pub message: String,
}

impl Accepted {
    fn of(response: &Response) -> anyhow::Result<Self> {
        let id = |name: &str| -> anyhow::Result<String> {
            Ok(response.headers().get(name).context("an id")?.to_str()?.to_owned())
        };
        Ok(Self {
            conversation: id("threadkeep-conversation")?,
            run: id("threadkeep-run")?,
            message: id("threadkeep-message")?,
        })
    }
}

#[derive(Clone)]
pub struct Caller {
    client: Client,
    url: String,
    bearer: String,
}

impl Caller {
    pub fn new(url: &str, bearer: &str) -> Self {
        let client = Client::builder().no_proxy().timeout(PATIENCE).build().expect("a client");
        Self { client, url: url.to_owned(), bearer: bearer.to_owned() }
    }

    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url)).bearer_auth(&self.bearer)
    }

    pub async fn get(&self, path: &str) -> Answer {
        let response = self.request(Method::GET, path).send().await.expect("an answer");
        Answer::read(response).await.expect("a whole answer")
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        let request = self.request(Method::POST, path).header("content-type", "application/json");
        let response = request.body(body.to_string()).send().await.expect("an answer");
        Answer::read(response).await.expect("a whole answer")
    }

    fn turn(&self, key: &str, body: &Value) -> RequestBuilder {
        self.request(Method::POST, "/v1/turns")
            .header("content-type", "application/json")
            .header("idempotency-key", key)
            .body(body.to_string())
    }

    /// Starts a turn and stays to read it. An error is a request that got no 2xx.
    pub async fn start(&self, key: &str, body: &Value) -> anyhow::Result<(Accepted, Stream)> {
        let response = self.turn(key, body).send().await?;
        anyhow::ensure!(response.status() == 200, "{}: {}", response.status(), response.text().await?);
        Ok((Accepted::of(&response)?, Stream::new(response)))
    }

    /// Starts a turn and goes.
    pub async fn start_async(&self, key: &str, body: &Value) -> anyhow::Result<Accepted> {
        let response = self.turn(key, body).header("prefer", "respond-async").send().await?;
        anyhow::ensure!(response.status() == 202, "{}: {}", response.status(), response.text().await?);
        Accepted::of(&response)
    }

    /// As `start_async`, for a turn that must be taken.
    pub async fn say(&self, conversation: Option<&str>, text: &str) -> Accepted {
        let body = turn(conversation, text);
        self.start_async(&new_id(), &body).await.expect("an accepted turn")
    }

    /// The run's events after a number, as they come.
    pub async fn follow(&self, run: &str, after: i64) -> Stream {
        let request = self.request(Method::GET, &format!("/v1/runs/{run}/events"));
        let response = request.header("last-event-id", after).send().await.expect("an answer");
        assert_eq!(response.status(), 200, "events of {run} after {after}");
        Stream::new(response)
    }

    /// All events after a number; waits for the run's end.
    pub async fn events(&self, run: &str, after: i64) -> Vec<Event> {
        let events = self.follow(run, after).await.rest().await.expect("a whole stream");
        if let Some(last) = events.last() {
            assert_eq!(last.kind, "done", "the stream of {run} ended before its run");
        }
        events
    }

    pub async fn run(&self, run: &str) -> Value {
        let answer = self.get(&format!("/v1/runs/{run}")).await;
        assert_eq!(answer.status, 200, "run {run}: {}", answer.text);
        answer.body
    }

    /// How long after a moment a run ended, by the clock of the node that ended it.
    pub async fn settled_after(&self, run: &str, since: Timestamp) -> Duration {
        let run = self.run(run).await;
        let ended: Timestamp = run["ended_at"].as_str().expect("an end").parse().expect("a time");
        ended.duration_since(since).try_into().unwrap_or_default()
    }

    /// Waits until a run is under way.
    pub async fn follow_to_first(&self, run: &str) {
        self.follow(run, 0).await.until(1).await;
    }

    pub async fn delete(&self, path: &str) -> u16 {
        self.request(Method::DELETE, path).send().await.expect("an answer").status().as_u16()
    }

    pub async fn cancel(&self, run: &str) -> anyhow::Result<u16> {
        let response = self.request(Method::POST, &format!("/v1/runs/{run}/cancel")).send().await?;
        Ok(response.status().as_u16())
    }

    /// The conversation's messages and how many it says there are.
    pub async fn thread(&self, conversation: &str) -> (Vec<Value>, i64) {
        let path =
            format!("/v1/chat-conversations/{conversation}?fields[chat_conversation]=messages,message_count");
        let answer = self.get(&path).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let attributes = &answer.body["data"]["attributes"];
        let messages = attributes["messages"].as_array().expect("messages").clone();
        (messages, attributes["message_count"].as_i64().expect("a number"))
    }

    /// The ids of a conversation's runs, newest first.
    pub async fn runs(&self, conversation: &str) -> Vec<String> {
        let first = format!("/v1/chat-conversations/{conversation}/runs?limit=100");
        let (mut runs, mut page) = (Vec::new(), first.clone());
        loop {
            let answer = self.get(&page).await;
            assert_eq!(answer.status, 200, "{}", answer.text);
            let rows = answer.body["data"].as_array().expect("runs").iter();
            runs.extend(rows.map(|run| run["id"].as_str().expect("an id").to_owned()));
            let Some(next) = answer.body["next"].as_str() else { return runs };
            page = format!("{first}&after={next}");
        }
    }
}

/// A turn that waits its turn and needs no reader.
pub fn turn(conversation: Option<&str>, text: &str) -> Value {
    let mut body = json!({ "message": text, "on_busy": "enqueue", "on_disconnect": "continue" });
    if let Some(conversation) = conversation {
        body["conversation"] = conversation.into();
    }
    body
}

pub fn now() -> Timestamp {
    SystemClock.now()
}

pub fn new_id() -> String {
    SystemClock.new_id().to_string()
}

/// A response body of server-sent events.
pub struct Stream {
    response: Response,
    bytes: Vec<u8>,
}

impl Stream {
    fn new(response: Response) -> Self {
        Self { response, bytes: Vec::new() }
    }

    /// The next event; `None` when the body ended as it should, an error when it broke off.
    pub async fn next(&mut self) -> anyhow::Result<Option<Event>> {
        loop {
            if let Some(end) = self.bytes.windows(2).position(|pair| pair == b"\n\n") {
                let frame: Vec<u8> = self.bytes.drain(..end + 2).collect();
                if let Some(event) = parse(std::str::from_utf8(&frame)?)? {
                    return Ok(Some(event));
                }
            } else {
                match self.response.chunk().await? {
                    Some(chunk) => self.bytes.extend_from_slice(&chunk),
                    None => return Ok(None),
                }
            }
        }
    }

    pub async fn rest(&mut self) -> anyhow::Result<Vec<Event>> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await? {
            events.push(event);
        }
        Ok(events)
    }

    /// What comes before the end, as it comes.
    pub async fn rest_of_bytes(&mut self) -> Vec<u8> {
        while let Ok(Some(chunk)) = self.response.chunk().await {
            self.bytes.extend_from_slice(&chunk);
        }
        std::mem::take(&mut self.bytes)
    }

    /// The next events up to and with this number.
    pub async fn until(&mut self, seq: i64) -> Vec<Event> {
        let mut events: Vec<Event> = Vec::new();
        while events.last().is_none_or(|event| event.seq < seq) {
            events.push(self.next().await.expect("a stream that goes on").expect("an event"));
        }
        events
    }
}

/// A frame as an event; a comment is none, and no more is when to come back.
fn parse(frame: &str) -> anyhow::Result<Option<Event>> {
    if frame.starts_with(':') || frame.starts_with("retry:") {
        return Ok(None);
    }
    let part = |name: &str| frame.lines().find_map(|line| line.strip_prefix(name)).context(frame.to_owned());
    let (kind, data) = (part("event: ")?.to_owned(), part("data: ")?.to_owned());
    Ok(Some(Event { seq: part("id: ")?.parse()?, kind, data }))
}
