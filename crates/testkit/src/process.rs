//! The real `threadkeep` binary as a child process, for tests of start, stop and sudden death.
//! In: the binary, its environment and a data folder. Out: its address, its output, its end.

use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

const START: Duration = Duration::from_secs(20);
const STOP: Duration = Duration::from_secs(30);
/// All that is handed on from the tests' own environment: a developer's keys and settings are not.
const KEPT: [&str; 5] = ["PATH", "HOME", "TMPDIR", "RUST_BACKTRACE", "LLVM_PROFILE_FILE"];

/// A running server; killed when dropped.
#[derive(Debug)]
pub struct ServerProcess {
    child: Child,
    address: String,
    output: Arc<Mutex<String>>,
    stdout: Arc<Mutex<String>>,
    readers: [JoinHandle<()>; 2],
}

impl ServerProcess {
    /// Runs `binary serve` in the folder `data` on a free port and waits for the line with its address.
    /// The server's own tests know the binary as `env!("CARGO_BIN_EXE_threadkeep")`.
    ///
    /// # Errors
    /// Where the server ends, or says no address, within 20 seconds; the error holds what it wrote.
    pub async fn start(binary: &Path, env: &[(&str, &str)], data: &Path) -> anyhow::Result<Self> {
        let mut command = command(binary, env, data);
        let mut child =
            command.arg("serve").spawn().with_context(|| format!("cannot start {}", binary.display()))?;

        let (output, stdout) = (Arc::new(Mutex::new(String::new())), Arc::new(Mutex::new(String::new())));
        let (lines, mut said) = unbounded_channel();
        let readers = [
            follow(
                child.stdout.take().context("no stdout")?,
                vec![output.clone(), stdout.clone()],
                lines.clone(),
            ),
            follow(child.stderr.take().context("no stderr")?, vec![output.clone()], lines),
        ];
        let found = tokio::time::timeout(START, first_address(&mut said, env)).await;
        let output_now = || text(&output);
        let address = found
            .with_context(|| format!("no address after {} s; it wrote:\n{}", START.as_secs(), output_now()))?
            .with_context(|| format!("the server ended without an address; it wrote:\n{}", output_now()))?;
        Ok(Self { child, address, output, stdout, readers })
    }

    /// Scheme, host and port, without a slash at the end.
    #[must_use]
    pub fn url(&self) -> &str {
        origin(&self.address)
    }

    /// The address exactly as printed: in local mode it logs a browser in.
    #[must_use]
    pub fn printed_address(&self) -> &str {
        &self.address
    }

    /// What the server has written so far, stdout and stderr by line as they came.
    #[must_use]
    pub fn output(&self) -> String {
        text(&self.output)
    }

    /// The part of `output` that went to stdout.
    #[must_use]
    pub fn stdout(&self) -> String {
        text(&self.stdout)
    }

    /// The process, as long as it was not waited for.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Sends a signal and does not wait.
    ///
    /// # Errors
    /// Where the operating system refuses.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        match self.child.id() {
            Some(id) => Ok(kill(Pid::from_raw(i32::try_from(id)?), signal)?),
            None => Ok(()),
        }
    }

    /// Ends the server without any warning, and waits until it is gone and its output complete.
    ///
    /// # Errors
    /// Where the operating system refuses.
    pub async fn kill9(&mut self) -> anyhow::Result<()> {
        self.child.start_kill()?;
        self.ended().await.map(|_| ())
    }

    /// Asks the server to stop, as service managers do, and waits until it is gone and its output complete.
    ///
    /// # Errors
    /// Where it is still there after 30 seconds; dropping the value kills it then.
    pub async fn terminate(&mut self) -> anyhow::Result<ExitStatus> {
        self.signal(Signal::SIGTERM)?;
        self.ended().await
    }

    /// Waits until the server is gone and its output complete.
    ///
    /// # Errors
    /// Where it is still there after 30 seconds.
    pub async fn ended(&mut self) -> anyhow::Result<ExitStatus> {
        let ending = async {
            let status = self.child.wait().await?;
            for reader in &mut self.readers {
                if !reader.is_finished() {
                    reader.await?;
                }
            }
            anyhow::Ok(status)
        };
        let ended = tokio::time::timeout(STOP, ending).await;
        ended.with_context(|| format!("not gone after {} s; it wrote:\n{}", STOP.as_secs(), self.output()))?
    }
}

/// A command line of the binary in the folder `data`, in an environment of its own; the server's settings for
/// a test, and `env` on top of them (an empty value unsets one). Killed when dropped.
#[must_use]
pub fn command(binary: &Path, env: &[(&str, &str)], data: &Path) -> Command {
    let mut command = Command::new(binary);
    command.current_dir(data).env_clear();
    command.envs(KEPT.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    command.env("THREADKEEP_LISTEN", "127.0.0.1:0").env("THREADKEEP_DATA", data);
    command.envs(env.iter().copied());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

#[expect(clippy::disallowed_methods, reason = "the task ends with its stream, which ends with the server")]
fn follow(
    stream: impl AsyncRead + Unpin + Send + 'static,
    outputs: Vec<Arc<Mutex<String>>>,
    lines: UnboundedSender<String>,
) -> JoinHandle<()> {
    let reading = async move {
        let mut stream = BufReader::new(stream).lines();
        while let Ok(Some(line)) = stream.next_line().await {
            for output in &outputs {
                let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
                output.push_str(&line);
                output.push('\n');
            }
            // Nobody listens once the address is known; the pipe is read on, or the server would block.
            let _ = lines.send(line);
        }
    };
    tokio::spawn(reading)
}

async fn first_address(said: &mut UnboundedReceiver<String>, env: &[(&str, &str)]) -> Option<String> {
    while let Some(line) = said.recv().await {
        // A log line may name an address from the settings, such as a fake's: that is not the server's own.
        let own =
            address_in(&line).filter(|found| !env.iter().any(|(_, value)| value.contains(origin(found))));
        if let Some(address) = own {
            return Some(address.to_owned());
        }
    }
    None
}

fn address_in(line: &str) -> Option<&str> {
    let address = &line[line.find("http://127.0.0.1:")?..];
    let end = address.find(|c: char| c.is_whitespace() || c.is_control() || matches!(c, '"' | '<' | '>'));
    let address = &address[..end.unwrap_or(address.len())];
    origin(address).ends_with(|c: char| c.is_ascii_digit()).then_some(address)
}

fn origin(address: &str) -> &str {
    let host = "http://".len();
    address[host..].find(['/', '?', '#']).map_or(address, |end| &address[..host + end])
}

fn text(output: &Mutex<String>) -> String {
    output.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

#[cfg(test)]
#[path = "process_tests.rs"]
mod tests;
