//! MCP over the standard input and output of a process of ours, one message a line. The process has a group of its
//! own and little of our environment; it ends when it is no longer used, when it hangs, and with the server.

use std::collections::{HashMap, VecDeque};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::secret::Secret;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::rpc::{Era, Fault, Incoming, notification, read, reply, request, words};
use super::{MAX_ANSWER_BYTES, redact};

/// What of our environment a process gets beside the names that the operator lists.
const INHERITED: [&str; 9] = ["PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "TERM"];
const OUTBOX: usize = 64;
/// A process that gave no answer in time is asked whether it lives at all.
const SIGN_OF_LIFE: Duration = Duration::from_secs(5);
/// After its input is closed, and after it was told to end.
const STOPPING: Duration = Duration::from_secs(2);
const TERMINATING: Duration = Duration::from_secs(1);
/// Of what a process says on standard error.
const LOGGED_LINES: usize = 200;
const LOGGED_BYTES: usize = 500;
const TAIL: usize = 5;

/// A program to run.
#[derive(Debug, Clone)]
pub struct StdioEndpoint {
    pub command: String,
    pub args: Vec<Secret>,
    /// Names of variables that it may have of our environment.
    pub env: Vec<String>,
}

pub(super) struct StdioWire {
    shared: Arc<Shared>,
    outbox: mpsc::Sender<String>,
    last: AtomicI64,
    tasks: TaskTracker,
}

type Waiting = HashMap<i64, oneshot::Sender<Result<Value, Fault>>>;

struct Shared {
    name: String,
    /// Whoever waits for an answer; none once the process is to end.
    waiting: Mutex<Option<Waiting>>,
    changed: Arc<AtomicBool>,
    /// It has answered something.
    spoke: AtomicBool,
    /// Its last words on standard error.
    tail: Mutex<VecDeque<String>>,
    end: CancellationToken,
    /// Its end was wanted.
    closing: AtomicBool,
}

impl StdioWire {
    pub(super) fn start(
        name: &str,
        endpoint: &StdioEndpoint,
        changed: Arc<AtomicBool>,
        tasks: TaskTracker,
        end: CancellationToken,
    ) -> Result<Arc<Self>, Fault> {
        let inherited = INHERITED.iter().copied().chain(endpoint.env.iter().map(String::as_str));
        let env: Vec<_> = inherited.filter_map(|name| Some((name, std::env::var_os(name)?))).collect();
        let mut child = Command::new(&endpoint.command)
            .args(endpoint.args.iter().map(Secret::expose))
            .env_clear()
            .envs(env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| {
                Fault::Unreachable(format!("{} cannot be started: {error}", endpoint.command))
            })?;
        let shared = Arc::new(Shared {
            name: name.to_owned(),
            waiting: Mutex::new(Some(HashMap::new())),
            changed,
            spoke: AtomicBool::new(false),
            tail: Mutex::default(),
            end,
            closing: AtomicBool::new(false),
        });
        let (outbox, lines) = mpsc::channel(OUTBOX);
        if let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        {
            let own = env.iter().filter(|(name, _)| !INHERITED.contains(name));
            let own = own.filter_map(|(_, value)| value.to_str().map(Secret::new));
            let secrets = endpoint.args.iter().cloned().chain(own).collect();
            tasks.spawn(write(stdin, lines, shared.end.clone()));
            tasks.spawn(listen(stdout, Arc::clone(&shared), outbox.clone()));
            tasks.spawn(log(stderr, Arc::clone(&shared), secrets));
        }
        tasks.spawn(supervise(child, Arc::clone(&shared)));
        Ok(Arc::new(Self { shared, outbox, last: AtomicI64::new(0), tasks }))
    }

    pub(super) fn is_alive(&self) -> bool {
        !self.shared.end.is_cancelled()
    }

    pub(super) async fn ask(
        self: &Arc<Self>,
        era: &Era,
        method: &str,
        params: Value,
    ) -> Result<Value, Fault> {
        let id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let mut unanswered = Unanswered { wire: self, era, id, armed: true };
        let answer = self.exchange(id, request(era, id, method, params)).await;
        unanswered.armed = false;
        answer
    }

    async fn exchange(&self, id: i64, body: Value) -> Result<Value, Fault> {
        let (answered, answer) = oneshot::channel();
        match &mut *self.shared.waiting() {
            Some(waiting) => waiting.insert(id, answered),
            None => return Err(Fault::SessionLost),
        };
        if self.outbox.send(body.to_string() + "\n").await.is_err() {
            return Err(Fault::SessionLost);
        }
        answer.await.unwrap_or_else(|_| Err(Fault::Broken("it ended before it had answered".to_owned())))
    }

    pub(super) async fn tell(&self, era: &Era, method: &str, params: Value) -> Result<(), Fault> {
        let line = notification(era, method, params).to_string() + "\n";
        self.outbox.send(line).await.map_err(|_| Fault::SessionLost)
    }

    pub(super) fn close(&self) {
        // One that has ended by itself is let go of after that; its end was not wanted.
        if !self.shared.end.is_cancelled() {
            self.shared.closing.store(true, Ordering::Relaxed);
        }
        self.shared.end.cancel();
    }

    /// Ends the process unless it shows that it lives.
    async fn probe(&self, era: &Era) {
        let id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let asked = self.exchange(id, request(era, id, "ping", json!({})));
        if tokio::time::timeout(SIGN_OF_LIFE, asked).await.is_err() {
            tracing::warn!(tool_server = %self.shared.name, "the tool server hangs; it is ended");
            self.close();
        }
    }
}

impl Drop for StdioWire {
    fn drop(&mut self) {
        self.close();
    }
}

/// A call that is given up is told to the server; a server that cannot even hear that is ended.
struct Unanswered<'w> {
    wire: &'w Arc<StdioWire>,
    era: &'w Era,
    id: i64,
    armed: bool,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        if let Some(waiting) = &mut *self.wire.shared.waiting() {
            waiting.remove(&self.id);
        }
        if *self.era == Era::Unknown {
            return self.wire.close();
        }
        let (wire, era, id) = (Arc::clone(self.wire), self.era.clone(), self.id);
        self.wire.tasks.spawn(async move {
            let told = wire.tell(&era, "notifications/cancelled", json!({ "requestId": id }));
            let _ = tokio::time::timeout(SIGN_OF_LIFE, told).await;
            wire.probe(&era).await;
        });
    }
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Option<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tail(&self) -> MutexGuard<'_, VecDeque<String>> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear(&self, line: &[u8], outbox: &mpsc::Sender<String>) {
        for message in read(line) {
            match message {
                Incoming::Answer { id, outcome } => {
                    self.spoke.store(true, Ordering::Relaxed);
                    let waiter = self.waiting().as_mut().and_then(|waiting| waiting.remove(&id));
                    if let Some(waiter) = waiter {
                        let _ = waiter.send(outcome);
                    }
                }
                // Where the queue is full it does not read: then it waits in vain, which is its own doing.
                Incoming::Request { id, method } => {
                    let _ = outbox.try_send(reply(&id, &method).to_string() + "\n");
                }
                Incoming::Notification { method } if method == super::LIST_CHANGED => {
                    self.changed.store(true, Ordering::Relaxed);
                }
                Incoming::Notification { .. } | Incoming::Garbage => {}
            }
        }
    }
}

async fn write(mut stdin: ChildStdin, mut lines: mpsc::Receiver<String>, end: CancellationToken) {
    let writing = async {
        while let Some(line) = lines.recv().await {
            if stdin.write_all(line.as_bytes()).await.is_err() || stdin.flush().await.is_err() {
                break;
            }
        }
    };
    tokio::select! { () = writing => {}, () = end.cancelled() => {} }
    end.cancel();
}

async fn listen(stdout: impl AsyncRead + Unpin, shared: Arc<Shared>, outbox: mpsc::Sender<String>) {
    let heard = lines(stdout, MAX_ANSWER_BYTES, |line| {
        shared.hear(line, &outbox);
        true
    });
    if let Err(TooLong) = heard.await {
        tracing::warn!(tool_server = %shared.name, "a line of the tool server is too long; it is ended");
    }
    shared.end.cancel();
}

/// What it says beside the protocol: for whoever looks closely, since it may be about people's messages.
async fn log(stderr: impl AsyncRead + Unpin, shared: Arc<Shared>, secrets: Vec<Secret>) {
    let mut left = LOGGED_LINES;
    let reading = lines(stderr, usize::MAX, |line| {
        let line = &line[..line.len().min(LOGGED_BYTES)];
        let text = redact(&words(String::from_utf8_lossy(line).trim()), &secrets);
        if left > 0 {
            left -= 1;
            tracing::debug!(tool_server = %shared.name, said = %text, "the tool server says");
        }
        let mut tail = shared.tail();
        if tail.len() == TAIL {
            tail.pop_front();
        }
        tail.push_back(text);
        true
    });
    let _ = reading.await;
}

struct TooLong;

/// Hands on each line without its end. Of a line that is longer than what is logged, no more is kept than `limit`.
async fn lines(
    mut from: impl AsyncRead + Unpin,
    limit: usize,
    mut each: impl FnMut(&[u8]) -> bool,
) -> Result<(), TooLong> {
    let bounded = limit != usize::MAX;
    let (mut line, mut chunk) = (Vec::new(), vec![0; 64 * 1024]);
    while let Ok(count @ 1..) = from.read(&mut chunk).await {
        for piece in chunk[..count].split_inclusive(|byte| *byte == b'\n') {
            let (text, ended) = match piece.split_last() {
                Some((b'\n', text)) => (text, true),
                _ => (piece, false),
            };
            if bounded || line.len() < LOGGED_BYTES {
                line.extend_from_slice(text);
            }
            if line.len() > limit {
                return Err(TooLong);
            }
            if ended {
                let more = each(&line);
                line.clear();
                if !more {
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}

async fn supervise(mut child: Child, shared: Arc<Shared>) {
    let group = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
    let signal = |signal| group.map(|group| killpg(group, signal));
    tokio::select! { _ = child.wait() => {}, () = shared.end.cancelled() => {} }
    // The writer lets go of its input: that is how a server is asked to end.
    shared.end.cancel();
    shared.waiting().take();
    if tokio::time::timeout(STOPPING, child.wait()).await.is_err() {
        signal(Signal::SIGTERM);
        let _ = tokio::time::timeout(TERMINATING, child.wait()).await;
    }
    // Whatever it has left behind.
    signal(Signal::SIGKILL);
    let ended = child.wait().await;
    if !shared.closing.load(Ordering::Relaxed) {
        told_of(&shared, ended.ok());
    }
}

fn told_of(shared: &Shared, status: Option<std::process::ExitStatus>) {
    let status = status.map(|status| status.to_string()).unwrap_or_default();
    // Before the first answer it has seen nothing of anybody's.
    let said = match shared.spoke.load(Ordering::Relaxed) {
        true => String::new(),
        false => shared.tail().iter().cloned().collect::<Vec<_>>().join(" | "),
    };
    tracing::warn!(tool_server = %shared.name, %status, %said, "the tool server has ended; its next use starts it again");
}
