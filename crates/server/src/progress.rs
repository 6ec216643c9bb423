//! A line on the terminal that tells how far a long piece of work is, where a person looks on.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// How often the line changes.
const EVERY: Duration = Duration::from_millis(100);
const WIDTH: u64 = 30;

pub struct Progress {
    word: &'static str,
    shown: bool,
    started: Instant,
    drawn: Option<Instant>,
}

impl Progress {
    pub fn new(word: &'static str) -> Self {
        Self { word, shown: std::io::stderr().is_terminal(), started: Instant::now(), drawn: None }
    }

    /// So many were done, of a number that is not known.
    pub fn count(&mut self, done: u64, what: &str) {
        self.draw(|word| format!("{done} {what} {word}"));
    }

    /// So many bytes of so many were read, and `done` made of them.
    pub fn bytes(&mut self, read: u64, total: u64, done: u64) {
        let spent = self.started.elapsed();
        self.draw(|word| {
            let total = total.max(1);
            let filled = (read.min(total) * WIDTH / total) as usize;
            let bar = format!("{}{}", "#".repeat(filled), "-".repeat(WIDTH as usize - filled));
            let percent = read.min(total) * 100 / total;
            format!("[{bar}] {percent}% {done} conversations {word}, {}", left(spent, read, total))
        });
    }

    fn draw(&mut self, line: impl FnOnce(&str) -> String) {
        if !self.shown || self.drawn.is_some_and(|at| at.elapsed() < EVERY) {
            return;
        }
        self.drawn = Some(Instant::now());
        let line = format!("\r{}\x1b[K", line(self.word));
        let _ = std::io::stderr().write_all(line.as_bytes());
    }

    pub fn end(&self) {
        if self.shown && self.drawn.is_some() {
            let _ = std::io::stderr().write_all(b"\r\x1b[K");
        }
    }
}

/// So many of something, as people say it.
pub fn counted(count: u64, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

/// How long it will still take, at the pace so far.
fn left(spent: Duration, read: u64, total: u64) -> String {
    if read == 0 || spent < Duration::from_secs(1) {
        return "…".into();
    }
    let seconds = spent.as_secs_f64() * total.saturating_sub(read) as f64 / read as f64;
    match seconds.round() as u64 {
        seconds @ 0..60 => format!("{seconds} s left"),
        seconds => format!("{} min {} s left", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_follows_the_pace() {
        assert_eq!(left(Duration::from_millis(100), 50, 100), "…");
        assert_eq!(left(Duration::from_secs(10), 50, 100), "10 s left");
        assert_eq!(left(Duration::from_secs(100), 50, 100), "1 min 40 s left");
        assert_eq!(left(Duration::from_secs(100), 200, 100), "0 s left");
    }
}
