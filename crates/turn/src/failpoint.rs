//! Places of the walk where a test ends the process as a crash would: `FAILPOINT=settle.before=2` does so at the
//! second time that place is come by, `FAILPOINT=settle.before=2:panic` ends only the task, and `:wait` keeps it there for a second.
//! `FAILPOINT=settle.before=1-2:panic` does so each of these times.
//! Only in builds with the feature `failpoints`, which no release has.

/// Marks a place; nothing at all without the feature.
macro_rules! point {
    ($name:literal) => {
        #[cfg(feature = "failpoints")]
        $crate::failpoint::come_by($name).await;
    };
}

pub(crate) use point;

#[cfg(feature = "failpoints")]
pub(crate) async fn come_by(name: &str) {
    use std::sync::atomic::{AtomicU64, Ordering};

    static TIMES: AtomicU64 = AtomicU64::new(0);
    let Ok(wanted) = std::env::var("FAILPOINT") else { return };
    let Some((place, time)) = wanted.split_once('=') else { return };
    let (time, what) = time.split_once(':').unwrap_or((time, ""));
    let (first, last) = time.split_once('-').unwrap_or((time, time));
    let (Ok(first), Ok(last)) = (first.parse::<u64>(), last.parse()) else { return };
    if place == name && (first..=last).contains(&(TIMES.fetch_add(1, Ordering::SeqCst) + 1)) {
        if what == "wait" {
            return tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
        // Whatever was told before it was stored gets out in the meantime, and is missed afterwards.
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        tracing::warn!("failpoint {name}");
        #[expect(clippy::panic, reason = "in the place of a bug")]
        if what == "panic" {
            panic!("failpoint {name}");
        }
        std::process::abort();
    }
}
