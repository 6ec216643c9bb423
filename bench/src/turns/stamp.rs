//! Twenty characters with the microsecond in which they were written, and how to find them again in a stream that
//! may be cut anywhere.

use std::time::{SystemTime, UNIX_EPOCH};

const MARK: &[u8] = b":\"at ";
const DIGITS: usize = 16;

/// Of the day's clock: one process sends, another receives.
#[expect(clippy::disallowed_methods, reason = "the server's clock knows no microseconds")]
fn micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(0)
}

/// The text of one delta.
pub fn now() -> String {
    format!("at {:016} ", micros())
}

/// Counts the deltas of one answer: a stamp at the beginning of a JSON text.
#[derive(Debug, Default)]
pub struct Finder {
    carried: Vec<u8>,
    /// Microseconds on the way, for each.
    pub added: Vec<u32>,
}

impl Finder {
    pub fn feed(&mut self, bytes: &[u8]) {
        let now = micros();
        self.carried.extend_from_slice(bytes);
        let mut from = 0;
        while let Some(found) = find(&self.carried[from..]) {
            let start = from + found + MARK.len();
            let Some(digits) = self.carried.get(start..start + DIGITS) else { break };
            let sent =
                digits.iter().fold(0, |sum: u64, digit| sum * 10 + u64::from(digit.wrapping_sub(b'0')));
            self.added.push(u32::try_from(now.saturating_sub(sent)).unwrap_or(u32::MAX));
            from = start + DIGITS;
        }
        let keep = self.carried.len().saturating_sub(MARK.len() + DIGITS).max(from);
        self.carried.drain(..keep);
    }
}

fn find(bytes: &[u8]) -> Option<usize> {
    let mut from = 0;
    while let Some(at) = bytes[from..].iter().position(|byte| *byte == MARK[0]) {
        if bytes[from + at..].starts_with(MARK) {
            return Some(from + at);
        }
        from += at + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stamp_is_found_once_however_the_bytes_are_cut() {
        let text: String = (0..9).map(|_| format!("data: {{\"text\":\"{}\"}}\n\n", now())).collect();
        for size in [1, 2, 3, 7, 20, 64, 4096] {
            let mut finder = Finder::default();
            for piece in text.as_bytes().chunks(size) {
                finder.feed(piece);
            }
            assert_eq!(finder.added.len(), 9, "{size}");
            assert!(finder.added.iter().all(|added| *added < 60_000_000), "{:?}", finder.added);
        }
    }
}
