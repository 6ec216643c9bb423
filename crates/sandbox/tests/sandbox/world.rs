//! The other end: a server with configuration, zip, results and a model that does what the message says, and the
//! sandbox started as a process, as root or as an ordinary user.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Multipart, Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// An ordinary user of this machine.
pub const USER: u32 = 12_345;

#[derive(Default)]
pub struct Told {
    /// Files posted back, by run, in order.
    pub results: HashMap<String, Vec<(String, Vec<u8>)>>,
    /// Requests to the model, by run.
    pub asked: HashMap<String, Vec<Value>>,
    pub zip: Option<Vec<u8>>,
    pub files: Vec<Value>,
    pub skills: Value,
    pub recipes: Value,
    /// How often results are refused with 500 first.
    pub broken_uploads: usize,
    /// Whether the bag has no room for results.
    pub full: bool,
    /// Requests that wait for ever, by what they are for: `config`, `zip`, `model`, `results`.
    pub hang: Option<&'static str>,
    pub reached: Vec<&'static str>,
}

#[derive(Clone, Default)]
pub struct Shared(Arc<Mutex<Told>>);

impl Shared {
    pub fn lock(&self) -> MutexGuard<'_, Told> {
        self.0.lock().unwrap()
    }
}

pub struct World {
    pub url: String,
    pub sandbox: Service,
    pub told: Shared,
    runs: AtomicUsize,
}

pub struct Service {
    child: Child,
    pub url: String,
    /// What it said at its start.
    pub line: String,
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Who the service is: root where the test is, and an ordinary user.
pub fn users() -> Vec<Option<u32>> {
    if is_root() { vec![None, Some(USER)] } else { vec![None] }
}

pub fn command(user: Option<u32>, env: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_threadkeep-sandbox"));
    command
        .arg("127.0.0.1:0")
        .env_clear()
        .envs(env.iter().copied())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    command
}

impl Service {
    pub fn start(user: Option<u32>, env: &[(&str, &str)]) -> Self {
        Self::by(command(user, env)).unwrap_or_else(|words| panic!("the sandbox did not start: {words}"))
    }

    /// What it says where it does not start.
    pub fn by(mut command: Command) -> Result<Self, String> {
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if line.is_empty() {
            let mut words = String::new();
            child.stderr.take().unwrap().read_to_string(&mut words).unwrap();
            assert!(!child.wait().unwrap().success());
            return Err(words);
        }
        let url = line.split(' ').next().unwrap().to_owned();
        Ok(Self { child, url, line })
    }

    /// A sandbox of somebody else's, once it listens.
    pub fn other(child: Child, port: u16) -> Self {
        for _ in 0..500 {
            if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Self { child, url: format!("http://127.0.0.1:{port}"), line: String::new() }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl World {
    pub async fn new() -> Self {
        Self::with(None, &[]).await
    }

    pub async fn with(user: Option<u32>, env: &[(&str, &str)]) -> Self {
        Self::around(Service::start(user, env)).await
    }

    /// A world around a sandbox that runs.
    pub async fn around(sandbox: Service) -> Self {
        let told = Shared::default();
        {
            let mut told = told.lock();
            (told.skills, told.recipes) = (json!([]), json!([]));
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new()
            .route("/agent/{run}/config", get(config))
            .route("/agent/{run}/results", post(results))
            .route("/assets.zip", get(zip))
            .route("/v1/chat/completions", post(completions))
            .with_state((told.clone(), url.clone()));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, sandbox, told, runs: AtomicUsize::new(0) }
    }

    pub fn envelope(&self, message: &str) -> (String, Value) {
        let number = self.runs.fetch_add(1, Ordering::Relaxed);
        let run = format!("00000000-0000-7000-8000-{number:012}");
        let envelope = json!({
            "version": 1, "session_id": run, "agent_url": format!("{}/agent/{run}", self.url),
            "config_token": format!("config-{run}"), "upload_otp": format!("otp-{run}"),
            "workspace_id": run, "chat_id": run, "execution_id": null, "workflow_id": null,
            "message": { "id": run, "content": message, "ts": 1 },
            "conversation": [{ "role": "user", "content": "before", "ts": 0 }, { "role": "assistant", "content": "yes", "ts": 0 }],
            "accepts": ["delta"],
        });
        (run, envelope)
    }

    pub async fn post(&self, envelope: &Value) -> reqwest::Response {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        client.post(format!("{}/stream", self.sandbox.url)).json(envelope).send().await.unwrap()
    }

    /// One run to its end.
    pub async fn run(&self, message: &str) -> Lines {
        let (run, envelope) = self.envelope(message);
        let response = self.post(&envelope).await;
        assert_eq!(response.status(), 200);
        let body = response.text().await.unwrap();
        Lines::read(run, &body)
    }

    /// The output of a shell command in a run of its own.
    pub async fn shell(&self, command: &str) -> String {
        self.run(&format!("run {command}")).await.output()
    }
}

/// What a run sent.
#[derive(Debug)]
pub struct Lines {
    pub run: String,
    pub all: Vec<Value>,
}

impl Lines {
    pub fn read(run: String, body: &str) -> Self {
        let lines = body.lines().filter(|line| !line.is_empty());
        let all = lines.map(|line| {
            // The strict reader of the other side takes each.
            domain::line::parse(line.as_bytes()).unwrap_or_else(|why| panic!("{why}: {line}"));
            serde_json::from_str(line).unwrap()
        });
        Self { run, all: all.collect() }
    }

    pub fn of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.all.iter().filter(move |line| line["type"] == kind)
    }

    pub fn last(&self) -> &Value {
        self.all.last().expect("a run has lines")
    }

    /// The ended steps with this name.
    pub fn ended(&self, name: &str) -> Vec<&Value> {
        self.all
            .iter()
            .filter(|line| line["type"] == "step")
            .filter(|step| step["name"] == name && step["status"] != "running")
            .collect()
    }

    pub fn step(&self, name: &str) -> &Value {
        self.ended(name).first().copied().unwrap_or_else(|| panic!("no step {name} in {:#?}", self.all))
    }

    pub fn output(&self) -> String {
        let step = self.step("shell");
        step["result"].as_str().unwrap_or_default().to_owned()
    }

    pub fn deltas(&self) -> String {
        self.of("delta").map(|line| line["text"].as_str().unwrap()).collect()
    }
}

type Here = State<(Shared, String)>;

/// Waits for ever where the test wants that, after saying that it got here.
async fn arrive(told: &Shared, place: &'static str) {
    let hang = {
        let mut told = told.lock();
        told.reached.push(place);
        told.hang == Some(place)
    };
    if hang {
        std::future::pending::<()>().await;
    }
}

async fn config(State((told, url)): Here, Path(run): Path<String>, headers: HeaderMap) -> Response {
    if headers.get("authorization").is_none_or(|token| *token != format!("Bearer config-{run}")) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    arrive(&told, "config").await;
    let told = told.lock();
    let assets = told.zip.is_some().then(|| {
        json!({ "url": format!("{url}/assets.zip"), "expires_at": 99_999_999_999_999u64, "files": told.files })
    });
    Json(json!({
        "session_id": run, "chat_id": run, "assets": assets, "skills": told.skills, "recipes": told.recipes,
        "model": { "base_url": format!("{url}/v1"), "api_key": run, "model": "demo/assistant" },
    }))
    .into_response()
}

async fn zip(State((told, _)): Here) -> Response {
    arrive(&told, "zip").await;
    let zip = told.lock().zip.clone().unwrap_or_default();
    zip.into_response()
}

async fn results(
    State((told, _)): Here,
    Path(run): Path<String>,
    headers: HeaderMap,
    mut parts: Multipart,
) -> Response {
    arrive(&told, "results").await;
    if headers.get("authorization").is_none_or(|token| *token != format!("otp-{run}")) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let mut files = Vec::new();
    while let Some(part) = parts.next_field().await.unwrap() {
        let name = part.file_name().unwrap().to_owned();
        files.push((name, part.bytes().await.unwrap().to_vec()));
    }
    let mut told = told.lock();
    if told.broken_uploads > 0 {
        told.broken_uploads -= 1;
        return StatusCode::BAD_GATEWAY.into_response();
    }
    if told.full {
        let problem = json!({ "detail": "The bag is full." });
        return (StatusCode::PAYLOAD_TOO_LARGE, Json(problem)).into_response();
    }
    if told.results.contains_key(&run) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    told.results.insert(run, files);
    StatusCode::CREATED.into_response()
}

async fn completions(State((told, _)): Here, headers: HeaderMap, Json(asked): Json<Value>) -> Response {
    let run = headers["authorization"].to_str().unwrap().trim_start_matches("Bearer ").to_owned();
    arrive(&told, "model").await;
    let reply = answer(&asked);
    let streamed = asked["stream"] == true;
    told.lock().asked.entry(run).or_default().push(asked);
    let Some((words, calls)) = reply else {
        let error = json!({ "error": { "message": "the model failed as asked" } });
        return (StatusCode::BAD_GATEWAY, Json(error)).into_response();
    };
    if !streamed {
        let message = json!({ "role": "assistant", "content": words.concat(), "tool_calls": calls });
        return Json(json!({ "choices": [{ "index": 0, "message": message }] })).into_response();
    }
    let mut frames = String::new();
    let mut send = |delta: Value, finish: Option<&str>| {
        let chunk = json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] });
        frames.push_str(&format!("data: {chunk}\n\n"));
    };
    for word in &words {
        send(json!({ "content": word }), None);
    }
    if let Some(calls) = &calls {
        send(json!({ "tool_calls": calls }), None);
    }
    send(json!({}), Some(if calls.is_some() { "tool_calls" } else { "stop" }));
    frames.push_str("data: [DONE]\n\n");
    ([("content-type", "text/event-stream")], Body::from(frames)).into_response()
}

/// The model: does what the last user message says, one order a round, then says that all is done.
fn answer(asked: &Value) -> Option<(Vec<String>, Option<Value>)> {
    let messages = asked["messages"].as_array()?;
    let last = messages.iter().rposition(|message| message["role"] == "user")?;
    let text = messages[last]["content"].as_str()?;
    let round = messages[last..].iter().filter(|message| message["role"] == "assistant").count();
    let orders: Vec<&str> = text.split("\nthen ").collect();
    let Some(order) = orders.get(round).filter(|_| text != "hello") else {
        return Some((["All ", "is ", "done."].map(str::to_owned).to_vec(), None));
    };
    let (word, rest) = order.split_once(' ').unwrap_or((order, ""));
    let (name, args) = match word {
        "run" => ("shell", json!({ "command": rest })),
        "read" => ("read_file", json!({ "path": rest })),
        "list" => ("list_files", json!({})),
        "write" => {
            let (path, content) = rest.split_once(": ").unwrap();
            ("write_file", json!({ "path": path, "content": content }))
        }
        "call" => {
            let (name, args) = rest.split_once(' ').unwrap();
            (name, serde_json::from_str(args).unwrap())
        }
        "plan" => return Some((vec!["1. Look.\n2. Do.\n3. Check.".into()], None)),
        "fail" => return None,
        _ => return Some((vec![(*order).to_owned()], None)),
    };
    let call = json!([{ "index": 0, "id": format!("call_{round}"), "type": "function",
        "function": { "name": name, "arguments": args.to_string() } }]);
    Some((vec!["I will. ".into()], Some(call)))
}

/// Until `holds`, for at most ten seconds.
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never came true: {what}");
}

/// The processes below one, by what `/proc` says.
pub fn descendants(of: u32) -> Vec<u32> {
    let mut parents = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().filter_map(Result::ok) {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        let Some((_, fields)) = stat.rsplit_once(") ") else { continue };
        let parent = fields.split(' ').nth(1).and_then(|text| text.parse::<u32>().ok()).unwrap_or(0);
        parents.push((pid, parent));
    }
    let mut ahead = vec![of];
    let mut found = Vec::new();
    while let Some(parent) = ahead.pop() {
        for (pid, _) in parents.iter().filter(|(_, above)| *above == parent) {
            found.push(*pid);
            ahead.push(*pid);
        }
    }
    found
}
