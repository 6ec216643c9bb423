//! A server process with a scripted sandbox behind it, chats that talk to it, and a wire between the two that can be
//! cut.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use reqwest::{Client, Method};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::process::{ServerProcess, command};
use testkit::sandbox::{Action, Release, ScriptedSandbox};
use testkit::server::Answer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinSet;

pub const BINARY: &str = env!("CARGO_BIN_EXE_threadkeep");
/// Long enough for a machine that does much else.
pub const SOON: Duration = Duration::from_secs(30);

pub struct World {
    pub data: TempDir,
    pub server: ServerProcess,
    pub sandbox: ScriptedSandbox,
}

/// What a command that has ended said.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl World {
    pub async fn new() -> Self {
        let data = tempfile::tempdir().expect("a folder");
        let sandbox = ScriptedSandbox::start(lines(vec![result("Hello.")])).await.expect("a sandbox");
        let env = [("SANDBOX_URL", sandbox.url())];
        let env: Vec<(&str, &str)> = env.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let started = ServerProcess::start(Path::new(BINARY), &env, data.path()).await;
        let server = started.unwrap_or_else(|error| panic!("the server did not start: {error:#}"));
        Self { data, server, sandbox }
    }

    /// The chat in pipes, with these arguments.
    pub fn chat(&self, args: &[&str]) -> Command {
        self.chat_with(self.server.url(), args)
    }

    pub fn chat_with(&self, server: &str, args: &[&str]) -> Command {
        let mut command = command(Path::new(BINARY), &[("THREADKEEP_SERVER", server)], self.data.path());
        command.arg("chat").args(args).stdin(Stdio::piped());
        command
    }

    /// Says something and waits for the end.
    pub async fn say(&self, message: &str, args: &[&str]) -> Ran {
        ended(begin(self.chat(args), message).await).await
    }

    pub async fn get(&self, path: &str) -> Value {
        self.call(Method::GET, path, None).await.body
    }

    pub async fn call(&self, method: Method, path: &str, body: Option<Value>) -> Answer {
        let key = std::fs::read_to_string(self.data.path().join("local.key")).expect("a key");
        let client = Client::builder().no_proxy().build().expect("a client");
        let mut request =
            client.request(method, format!("{}{path}", self.server.url())).bearer_auth(key.trim());
        if let Some(body) = body {
            request = request.json(&body);
        }
        Answer::read(request.send().await.expect("an answer")).await.expect("a body")
    }

    /// The newest conversation with its messages.
    pub async fn newest(&self) -> Value {
        let list = self.get("/v1/chat-conversations?page[size]=1").await;
        let id = list["data"][0]["id"].as_str().expect("a conversation").to_owned();
        self.get(&format!("/v1/chat-conversations/{id}")).await["data"].clone()
    }
}

/// Starts a chat and gives it all of its standard input.
pub async fn begin(mut command: Command, message: &str) -> Child {
    let mut child = command.spawn().expect("the binary runs");
    let mut stdin = child.stdin.take().expect("its input");
    // A chat that has failed already reads nothing.
    let _ = stdin.write_all(message.as_bytes()).await;
    child
}

pub async fn ended(child: Child) -> Ran {
    let ended = tokio::time::timeout(SOON, child.wait_with_output()).await.expect("an end in time");
    let output = ended.expect("an end");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Ran { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Reads standard output until it holds this.
pub async fn until(child: &mut Child, wanted: &str) -> String {
    let (mut said, mut buffer) = (Vec::new(), [0; 1024]);
    let stdout = child.stdout.as_mut().expect("its output");
    let reading = async {
        while !String::from_utf8_lossy(&said).contains(wanted) {
            let read = stdout.read(&mut buffer).await.expect("a read");
            assert!(read > 0, "it ended before {wanted:?}: {}", String::from_utf8_lossy(&said));
            said.extend_from_slice(&buffer[..read]);
        }
    };
    tokio::time::timeout(SOON, reading).await.unwrap_or_else(|_| panic!("no {wanted:?} in time"));
    String::from_utf8(said).expect("UTF-8")
}

pub fn lines(lines: Vec<Value>) -> Vec<Action> {
    let open = Action::Headers("200 OK", vec![("content-type", "application/x-ndjson".to_owned())]);
    [open].into_iter().chain(lines.into_iter().map(Action::Line)).collect()
}

/// These lines, then the others once the gate is open.
pub fn gated(first: Vec<Value>, gate: &Release, then: Vec<Value>) -> Vec<Action> {
    let mut script = lines(first);
    script.push(Action::WaitFor(gate.clone()));
    script.extend(then.into_iter().map(Action::Line));
    script
}

pub fn delta(text: &str) -> Value {
    json!({ "type": "delta", "text": text })
}

pub fn result(message: &str) -> Value {
    json!({ "type": "result", "message": message })
}

pub fn step(id: &str, name: &str, status: &str) -> Value {
    json!({ "type": "step", "id": id, "name": name, "status": status })
}

/// A wire to the server that can be cut, and put together again.
pub struct Wire {
    url: String,
    cut: watch::Sender<bool>,
    _tasks: JoinSet<()>,
}

impl Wire {
    pub async fn to(server: &str) -> Self {
        let target = server.trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let (cut, is_cut) = watch::channel(false);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut near, _)) = listener.accept().await {
                let (target, mut is_cut) = (target.clone(), is_cut.clone());
                connections.spawn(async move {
                    if *is_cut.borrow() {
                        return;
                    }
                    let Ok(mut far) = TcpStream::connect(target).await else { return };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                        _ = is_cut.wait_for(|cut| *cut) => {}
                    }
                });
            }
        });
        Self { url, cut, _tasks: tasks }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Every connection breaks, and new ones too, until it is mended.
    pub fn cut(&self) {
        self.cut.send_replace(true);
    }

    pub fn mend(&self) {
        self.cut.send_replace(false);
    }
}
