//! The S3 servers of the tests, real programs that `scripts/setup test` put into the cache folder. Each runs
//! once per test process, on a free port of this machine, with one bucket, and ends with the process.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use anyhow::Context as _;

pub const BUCKET: &str = "threadkeep-test";
const START: Duration = Duration::from_secs(90);
/// Runs a server in a folder of its own for as long as the input is open, which is as long as the tests run,
/// however they end.
const WATCH: &str = r#"folder=$(mktemp -d) && cd "$folder" || exit
"$@" 2>&1 </dev/null &
cat >/dev/null
kill "$!"; wait; rm -rf "$folder""#;

/// Two, because they fail in opposite places: s3rver checks credentials and signatures, moto takes any; moto
/// answers to conditions, s3rver does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    S3rver,
    Moto,
}

/// A running server.
#[derive(Debug)]
pub struct S3Server {
    endpoint: String,
    /// Its input is what keeps the server alive.
    _watch: Child,
}

/// The server of this kind; `None`, with a line on stderr, where it is not installed.
///
/// # Panics
/// Where it does not start, and in CI where it is not installed.
#[must_use]
pub fn server(kind: Kind) -> Option<&'static S3Server> {
    static S3RVER: OnceLock<Option<S3Server>> = OnceLock::new();
    static MOTO: OnceLock<Option<S3Server>> = OnceLock::new();
    let cell = match kind {
        Kind::S3rver => &S3RVER,
        Kind::Moto => &MOTO,
    };
    let server = cell.get_or_init(|| {
        let command = kind.command();
        if !command.as_ref().is_some_and(|command| command[0].exists()) {
            return None;
        }
        Some(S3Server::start(kind, &command?).unwrap_or_else(|error| stop(&format!("{kind:?}: {error:#}"))))
    });
    if server.is_none() {
        skip(kind, std::env::var_os("CI").is_some());
    }
    server.as_ref()
}

impl Kind {
    fn command(self) -> Option<Vec<PathBuf>> {
        let cache = std::env::var_os("XDG_CACHE_HOME").filter(|folder| !folder.is_empty()).map(PathBuf::from);
        let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?;
        let cache = cache.join("threadkeep-test");
        let (program, arguments): (_, &[&str]) = match self {
            Self::S3rver => (
                cache.join("s3rver/node_modules/.bin/s3rver"),
                &["-d", ".", "-a", "127.0.0.1", "-p", "0", "--configure-bucket", BUCKET],
            ),
            Self::Moto => (cache.join("moto/bin/moto_server"), &["-H", "127.0.0.1", "-p", "0"]),
        };
        Some(std::iter::once(program).chain(arguments.iter().map(PathBuf::from)).collect())
    }
}

impl S3Server {
    fn start(kind: Kind, command: &[PathBuf]) -> anyhow::Result<Self> {
        let mut shell = Command::new("sh");
        shell.args(["-c", WATCH, "sh"]).args(command).stdin(Stdio::piped()).stdout(Stdio::piped());
        if kind == Kind::S3rver {
            // An upload whose client was killed may end it, and with it every test that comes after.
            let stay = concat!("--require=", env!("CARGO_MANIFEST_DIR"), "/../../scripts/s3/stay.cjs");
            shell.env("NODE_OPTIONS", stay);
        }
        let mut watch = shell.spawn().context("cannot start a shell")?;
        let output = BufReader::new(watch.stdout.take().context("no output")?);
        let (lines, said) = channel();
        // Read to the end, or the server would block on what it writes.
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).for_each(|line| drop(lines.send(line)))
        });

        let mut heard = String::new();
        let endpoint = loop {
            let line = said.recv_timeout(START).with_context(|| format!("no address; it wrote:\n{heard}"))?;
            if let Some(port) = line.split("127.0.0.1:").nth(1) {
                let digits: String = port.chars().take_while(char::is_ascii_digit).collect();
                break format!("http://127.0.0.1:{digits}");
            }
            heard = heard + &line + "\n";
        };
        if kind == Kind::Moto {
            make_bucket(&endpoint)?;
        }
        Ok(Self { endpoint, _watch: watch })
    }

    /// Scheme, host and port.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The settings that lead to the bucket. These are s3rver's only credentials; moto takes any.
    #[must_use]
    pub fn settings(&self) -> [(&'static str, &str); 4] {
        [
            ("AWS_ACCESS_KEY_ID", "S3RVER"),
            ("AWS_SECRET_ACCESS_KEY", "S3RVER"),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ENDPOINT_URL", &self.endpoint),
        ]
    }

    /// One of `settings`.
    #[must_use]
    pub fn env(&self, name: &str) -> Option<String> {
        self.settings().into_iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_owned())
    }
}

/// A prefix in the bucket that no other test of this process has.
#[must_use]
pub fn fresh_prefix() -> String {
    static LAST: AtomicU32 = AtomicU32::new(0);
    format!("test-{}", LAST.fetch_add(1, Ordering::Relaxed))
}

/// Moto starts without buckets.
fn make_bucket(endpoint: &str) -> anyhow::Result<()> {
    let host = endpoint.trim_start_matches("http://");
    let mut stream = std::net::TcpStream::connect(host)?;
    write!(
        stream,
        "PUT /{BUCKET} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )?;
    let mut status = String::new();
    BufReader::new(stream).read_line(&mut status)?;
    anyhow::ensure!(status.contains(" 200 "), "no bucket: {status}");
    Ok(())
}

fn skip(kind: Kind, in_ci: bool) {
    if in_ci {
        stop(&format!("{kind:?} is not installed: run scripts/setup test"));
    }
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    // Straight to stderr: what `eprintln!` writes is hidden for tests that pass.
    let _ = writeln!(
        std::io::stderr(),
        "SKIPPED on S3: {test} ({kind:?} is not installed; run scripts/setup test)"
    );
}

#[expect(clippy::panic, reason = "a test that cannot have its server has failed")]
fn stop(message: &str) -> ! {
    panic!("{message}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "Moto is not installed")]
    fn a_missing_server_fails_in_ci() {
        skip(Kind::Moto, true);
    }
}
