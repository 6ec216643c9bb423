//! A line that fills up while work goes on, where a person looks on.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

const WIDTH: u64 = 30;
const OFTEN: Duration = Duration::from_millis(100);

pub(super) struct Bar {
    shown: bool,
    drawn: Option<(&'static str, Instant)>,
}

impl Bar {
    pub(super) fn new() -> Self {
        Self { shown: std::io::stderr().is_terminal(), drawn: None }
    }

    /// Bytes that are done of those there are.
    pub(super) fn draw(&mut self, stage: &'static str, done: u64, total: u64) {
        let due = match self.drawn {
            Some((before, at)) => before != stage || at.elapsed() >= OFTEN || done >= total,
            None => true,
        };
        if !self.shown || !due {
            return;
        }
        if self.drawn.is_some_and(|(before, _)| before != stage) {
            self.end();
        }
        self.drawn = Some((stage, Instant::now()));
        let filled = (done.min(total) * WIDTH / total.max(1)) as usize;
        let rest = WIDTH as usize - filled;
        let mib = |bytes: u64| bytes as f64 / 1_048_576.0;
        let line = format!(
            "\r{stage:<9}[{}{}] {:.1} of {:.1} MiB",
            "#".repeat(filled),
            "-".repeat(rest),
            mib(done),
            mib(total)
        );
        let _ = std::io::stderr().write_all(line.as_bytes());
    }

    pub(super) fn end(&mut self) {
        if self.drawn.take().is_some() {
            let _ = std::io::stderr().write_all(b"\n");
        }
    }
}
