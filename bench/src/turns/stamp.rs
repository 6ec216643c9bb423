//! The twenty characters of a delta, and how to find them again in a stream that may be cut anywhere. They hold the
//! microsecond in which they were written, or, in a burst, their number and words that every answer has.

use std::time::{SystemTime, UNIX_EPOCH};

const MARK: &[u8] = b":\"at ";
/// What comes after the mark, but for the last space.
const REST: usize = 16;

/// Of the day's clock: one process sends, another receives.
#[expect(clippy::disallowed_methods, reason = "the server's clock knows no microseconds")]
fn micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(0)
}

/// A delta that says when it was sent.
pub fn now() -> String {
    format!("at {:016} ", micros())
}

/// A delta of a burst: no answer brings words that no other one has.
pub fn numbered(number: usize) -> String {
    format!("at {number:06} lorem ips ")
}

/// Counts the deltas of one answer: each at the beginning of a JSON text.
#[derive(Debug, Default)]
pub struct Finder {
    carried: Vec<u8>,
    /// Microseconds on the way, of each that says when it was sent.
    pub added: Vec<Option<u32>>,
}

impl Finder {
    pub fn feed(&mut self, bytes: &[u8]) {
        let now = micros();
        self.carried.extend_from_slice(bytes);
        let mut from = 0;
        while let Some(found) = find(&self.carried[from..]) {
            let start = from + found + MARK.len();
            let Some(rest) = self.carried.get(start..start + REST) else { break };
            let sent = std::str::from_utf8(rest).ok().and_then(|digits| digits.parse::<u64>().ok());
            let added = |sent| u32::try_from(now.saturating_sub(sent)).unwrap_or(u32::MAX);
            self.added.push(sent.map(added));
            from = start + REST;
        }
        let keep = self.carried.len().saturating_sub(MARK.len() + REST).max(from);
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
    fn every_delta_is_found_once_however_the_bytes_are_cut() {
        let deltas = |text: &dyn Fn(usize) -> String| -> String {
            (0..9).map(|number| format!("data: {{\"text\":\"{}\"}}\n\n", text(number))).collect()
        };
        for (text, stamped) in [(deltas(&|_| now()), true), (deltas(&numbered), false)] {
            for size in [1, 2, 3, 7, 20, 64, 4096] {
                let mut finder = Finder::default();
                for piece in text.as_bytes().chunks(size) {
                    finder.feed(piece);
                }
                assert_eq!(finder.added.len(), 9, "{size}");
                let within = |added: &Option<u32>| added.map(|added| added < 60_000_000);
                let as_sent = |added: &Option<u32>| within(added) == stamped.then_some(true);
                assert!(finder.added.iter().all(as_sent), "{:?}", finder.added);
            }
        }
    }

    #[test]
    fn both_kinds_of_deltas_are_of_twenty_characters() {
        assert_eq!([now().len(), numbered(0).len(), numbered(199).len()], [20; 3]);
    }
}
