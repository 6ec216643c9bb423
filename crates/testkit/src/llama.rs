//! llama.cpp's server with a small real model, which `scripts/setup test` put into the cache folder. It runs on a free
//! port of this machine and ends with its value.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::Context as _;

/// A running server; it ends when its input closes, which is when this is dropped.
#[derive(Debug)]
pub struct Llama {
    url: String,
    child: Child,
}

impl Llama {
    /// Starts the server and waits until it answers; `None`, with a line on stderr, where it is not installed.
    ///
    /// # Panics
    /// Where it is installed and does not start.
    #[must_use]
    #[expect(clippy::panic, reason = "a test that cannot have its model has failed")]
    pub fn start() -> Option<Self> {
        let folder = folder().filter(|folder| folder.join("installed").exists());
        let Some(folder) = folder else {
            let test = std::thread::current().name().unwrap_or("a test").to_owned();
            // Straight to stderr: what `eprintln!` writes is hidden for tests that pass.
            let _ = writeln!(
                std::io::stderr(),
                "SKIPPED with a real model: {test} (llama.cpp's server is not installed; run scripts/setup test)"
            );
            return None;
        };
        match Self::serve(&folder) {
            Ok(server) => Some(server),
            Err(error) => panic!("llama.cpp's server: {error:#}"),
        }
    }

    fn serve(folder: &Path) -> anyhow::Result<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/llama/serve.py");
        let mut child = Command::new(folder.join("venv/bin/python"))
            .arg(script)
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot be started")?;
        let mut url = String::new();
        BufReader::new(child.stdout.take().context("no output")?).read_line(&mut url)?;
        anyhow::ensure!(url.starts_with("http://127.0.0.1:"), "it said no address");
        Ok(Self { url: url.trim().to_owned(), child })
    }

    /// Scheme, host and port.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Llama {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn folder() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?;
    Some(cache.join("threadkeep-test/llama"))
}
