//! Characters that a provider cut in two: `\ud83d` at the end of one event, `\ude00` at the beginning of the next. An
//! event with such a half waits for the one after it; a half whose other half does not come is U+FFFD.

use memchr::memchr;

use crate::sse::SseEvent;

#[derive(Debug, Default)]
pub(super) struct Halves {
    /// An event whose last half is a first one.
    waiting: Option<SseEvent>,
}

/// Where a half is in an event's data, and whether it is the first of its pair.
type Half = (usize, bool);

const REPLACEMENT: &str = "\\ufffd";
/// Of one escape.
const LEN: usize = 6;

impl Halves {
    /// Leaves only events whose JSON has whole characters; the last may be kept back until the next come.
    pub(super) fn mend(&mut self, events: &mut Vec<SseEvent>) {
        if self.waiting.is_none() && events.iter().all(|event| halves(&event.data).is_empty()) {
            return;
        }
        for mut event in std::mem::take(events) {
            let mut found = halves(&event.data);
            if let Some(mut before) = self.waiting.take() {
                let first = halves(&before.data).pop().map_or(0, |(at, _)| at);
                match found.first().copied() {
                    Some((at, false)) => {
                        let half = before.data[first..first + LEN].to_owned();
                        before.data.replace_range(first..first + LEN, "");
                        event.data.insert_str(at, &half);
                        found = halves(&event.data);
                    }
                    _ => before.data.replace_range(first..first + LEN, REPLACEMENT),
                }
                events.push(before);
            }
            let kept = found.pop_if(|(_, first)| *first);
            for (at, _) in found {
                event.data.replace_range(at..at + LEN, REPLACEMENT);
            }
            match kept {
                Some(_) => self.waiting = Some(event),
                None => events.push(event),
            }
        }
    }
}

/// The halves without their other half, in order.
fn halves(json: &str) -> Vec<Half> {
    let bytes = json.as_bytes();
    let (mut at, mut found) = (0, Vec::new());
    while let Some(next) = bytes.get(at..).and_then(|rest| memchr(b'\\', rest)) {
        at += next;
        match unit(bytes, at) {
            Some(0xD800..0xDC00) if matches!(unit(bytes, at + LEN), Some(0xDC00..0xE000)) => at += 2 * LEN,
            Some(first @ 0xD800..0xE000) => {
                found.push((at, first < 0xDC00));
                at += LEN;
            }
            // Another escape, be it of a backslash.
            _ => at += 2,
        }
    }
    found
}

/// The number of the escape that begins here.
fn unit(bytes: &[u8], at: usize) -> Option<u16> {
    let digits = bytes.get(at..at + LEN)?.strip_prefix(b"\\u")?;
    let digits = std::str::from_utf8(digits).ok()?;
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_find_each_other_or_are_replaced() {
        let text = |data: &str| -> String { serde_json::from_str(data).unwrap() };
        for (pieces, whole) in [
            (vec![r#""a\ud83d""#, r#""\ude00 b""#], "a😀 b"),
            (vec![r#""\uD83D""#, r#""\uDE00\uD83D""#, r#""\uDE00""#], "😀😀"),
            (vec![r#""\ud83d""#, r#""b""#, r#""c""#], "\u{FFFD}bc"),
            (vec![r#""\ude00\ud83dx\ud83d""#, r#""""#], "\u{FFFD}\u{FFFD}x\u{FFFD}"),
            (vec![r#""\ud83d\ude00 \\ud83d \n""#, r#""é""#], "😀 \\ud83d \né"),
        ] {
            for together in [true, false] {
                let event = |data: &&str| SseEvent { data: (*data).to_owned(), ..SseEvent::default() };
                let events: Vec<SseEvent> = pieces.iter().map(event).collect();
                let batches =
                    if together { vec![events] } else { events.into_iter().map(|e| vec![e]).collect() };
                let (mut mending, mut said) = (Halves::default(), String::new());
                for mut batch in batches {
                    mending.mend(&mut batch);
                    said.extend(batch.iter().map(|event| text(&event.data)));
                }
                assert_eq!(said, whole, "{pieces:?}");
            }
        }
    }
}
