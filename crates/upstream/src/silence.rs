//! How long somebody else may say nothing: in go a limit and what is waited for, out comes what it came to, or nothing
//! when the time is over.

use std::time::Duration;

use tokio::time::{Instant, timeout};

/// What is waited on after a limit: a machine that was paused wakes with the time over, and with bytes that came in time
/// and were not handed over yet.
const HANDOVER: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Silence {
    since: Instant,
    /// When it was found to have lasted too long.
    late: Option<Instant>,
}

impl Silence {
    pub(crate) fn begin() -> Self {
        Self { since: Instant::now(), late: None }
    }

    /// May be dropped before it is ready, and called again: the time runs on.
    pub(crate) async fn within<T>(
        &mut self,
        limit: Duration,
        mut work: impl Future<Output = T> + Unpin,
    ) -> Option<T> {
        let left = limit.saturating_sub(self.since.elapsed());
        if let Ok(done) = timeout(left, &mut work).await {
            return Some(done);
        }
        let late = self.late.get_or_insert_with(Instant::now);
        timeout(HANDOVER.saturating_sub(late.elapsed()), work).await.ok()
    }
}
