//! A real terminal: tmux, in a server of its own for each test, with the chat in its one window.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Instant;

use tempfile::TempDir;

use crate::world::{BINARY, SOON, World};

pub struct Tmux {
    folder: TempDir,
}

impl Tmux {
    /// The chat with these arguments in a terminal of 80 by 24; `None`, said aloud, where there is no tmux.
    pub fn chat(world: &World, server: &str, args: &[&str]) -> Option<Self> {
        Self::chat_with(world, server, "", args)
    }

    /// The same with more variables: `NAME=VALUE NAME=VALUE`.
    pub fn chat_with(world: &World, server: &str, env: &str, args: &[&str]) -> Option<Self> {
        if Command::new("tmux").arg("-V").output().is_err() {
            assert!(std::env::var_os("CI").is_none(), "tmux is missing; run scripts/setup test");
            eprintln!("SKIPPED: there is no tmux here; run scripts/setup test");
            return None;
        }
        let tmux = Self { folder: tempfile::tempdir().expect("a folder") };
        let quoted: Vec<String> = args.iter().map(|arg| format!("'{arg}'")).collect();
        let script = format!(
            "export THREADKEEP_DATA='{}' THREADKEEP_SERVER='{server}' {env}\n\
             echo before the chat\n'{BINARY}' chat {}\necho ended with $?\nexec cat\n",
            world.data.path().display(),
            quoted.join(" ")
        );
        let path = tmux.folder.path().join("run.sh");
        std::fs::write(&path, script).expect("a script");
        let script = format!("sh '{}'", path.display());
        tmux.run(&["-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", &script]);
        Some(tmux)
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("tmux")
    }

    fn run(&self, args: &[&str]) -> String {
        let Output { status, stdout, stderr } = Command::new("tmux")
            .arg("-u")
            .arg("-S")
            .arg(self.socket())
            .args(args)
            .env_remove("TMUX")
            .output()
            .expect("tmux runs");
        assert!(status.success(), "tmux {args:?}: {}", String::from_utf8_lossy(&stderr));
        String::from_utf8(stdout).expect("UTF-8")
    }

    /// What the terminal shows.
    pub fn shows(&self) -> String {
        self.run(&["capture-pane", "-p"])
    }

    /// Types text, and Enter.
    pub fn enter(&self, text: &str) {
        self.run(&["send-keys", "-l", text]);
        self.key("Enter");
    }

    /// Types text.
    pub fn type_text(&self, text: &str) {
        self.run(&["send-keys", "-l", text]);
    }

    /// A key by tmux's name: `C-c`, `Escape`, `PPage`.
    pub fn key(&self, name: &str) {
        self.run(&["send-keys", name]);
    }

    pub fn resize(&self, width: u16, height: u16) {
        self.run(&["resize-window", "-x", &width.to_string(), "-y", &height.to_string()]);
    }

    /// The process in the foreground.
    pub fn chat_pid(&self) -> i32 {
        let shell = self.run(&["display-message", "-p", "#{pane_pid}"]);
        let children = format!("/proc/{0}/task/{0}/children", shell.trim());
        let children = std::fs::read_to_string(children).expect("the shell's children");
        children.split_whitespace().next().expect("the chat runs").parse().expect("an id")
    }

    /// Waits until the screen is as wanted, and answers it.
    pub async fn until(&self, wanted: impl Fn(&str) -> bool) -> String {
        let since = Instant::now();
        loop {
            let shown = self.shows();
            if wanted(&shown) {
                return shown;
            }
            assert!(since.elapsed() < SOON, "the screen never came to be as wanted:\n{shown}");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }

    pub async fn until_shows(&self, text: &str) -> String {
        self.until(|shown| shown.contains(text)).await
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = Command::new("tmux").arg("-S").arg(self.socket()).arg("kill-server").output();
    }
}
