//! Time and fresh ids come in through `Clock`, so that tests own both.
//! Stored times have millisecond resolution, on every backend.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use jiff::Timestamp;
use uuid::Uuid;

pub trait Clock: Send + Sync {
    /// Now, cut to the millisecond.
    fn now(&self) -> Timestamp;
    /// A fresh UUIDv7.
    fn new_id(&self) -> Uuid;
}

/// The machine's own clock and random ids.
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
    fn now(&self) -> Timestamp {
        truncate(Timestamp::now())
    }

    #[expect(clippy::disallowed_methods, reason = "the one place that makes random ids")]
    fn new_id(&self) -> Uuid {
        Uuid::now_v7()
    }
}

/// A clock that moves only when told to, with ids that repeat from run to run.
pub struct FixedClock {
    now_ms: AtomicI64,
    ids: AtomicU64,
}

impl FixedClock {
    pub fn new(now: Timestamp) -> Self {
        Self { now_ms: AtomicI64::new(now.as_millisecond()), ids: AtomicU64::new(0) }
    }

    pub fn advance_ms(&self, ms: i64) {
        self.now_ms.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        from_ms(self.now_ms.load(Ordering::SeqCst))
    }

    fn new_id(&self) -> Uuid {
        let n = self.ids.fetch_add(1, Ordering::SeqCst) + 1;
        let ms = self.now_ms.load(Ordering::SeqCst).max(0) as u64;
        let mut random = [0u8; 10];
        random[2..].copy_from_slice(&n.to_be_bytes());
        uuid::Builder::from_unix_timestamp_millis(ms, &random).into_uuid()
    }
}

/// A timestamp from epoch milliseconds; out of range becomes the nearest end.
pub fn from_ms(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(ms).unwrap_or(if ms < 0 { Timestamp::MIN } else { Timestamp::MAX })
}

/// RFC 3339 in UTC with exactly three decimals: `2026-05-14T09:12:36.000Z`.
pub fn rfc3339(at: Timestamp) -> String {
    format!("{at:.3}")
}

fn truncate(at: Timestamp) -> Timestamp {
    from_ms(at.as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_print_with_three_decimals() {
        assert_eq!(rfc3339(from_ms(1_778_749_956_000)), "2026-05-14T09:12:36.000Z");
        assert_eq!(rfc3339(from_ms(1_778_749_956_007)), "2026-05-14T09:12:36.007Z");
    }

    #[test]
    fn fixed_ids_are_distinct_version_seven() {
        let clock = FixedClock::new(from_ms(1_778_749_956_000));
        let (a, b) = (clock.new_id(), clock.new_id());
        assert!(a < b);
        assert_eq!(a.get_version_num(), 7);
    }
}
