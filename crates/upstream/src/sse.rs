//! Server-sent events as they arrive: bytes go in, cut anywhere, and whole events come out. A line ends with LF, CR
//! or both; comments are dropped; an event that was not ended by an empty line is none.

use std::borrow::Cow;

use memchr::{memchr, memchr2};

/// A line or an event with more bytes than this is refused.
pub const MAX_EVENT_BYTES: usize = 8 * 1024 * 1024;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SseEvent {
    /// Empty where none was given.
    pub name: String,
    /// Its data lines, joined.
    pub data: String,
    /// Its own id; empty where none was given.
    pub id: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event has more than {MAX_EVENT_BYTES} bytes")]
pub struct EventTooLarge;

#[derive(Debug, Default)]
pub struct SseReader {
    line: Vec<u8>,
    event: SseEvent,
    /// The event under way has a data line.
    has_data: bool,
    /// The last byte was a CR: an LF after it is the same line end.
    after_cr: bool,
    begun: bool,
    /// An event has come out.
    has_read: bool,
}

impl SseReader {
    /// Whether an event has come out yet.
    pub fn has_read(&self) -> bool {
        self.has_read
    }

    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<SseEvent>) -> Result<(), EventTooLarge> {
        let mut rest = bytes;
        while let Some(first) = rest.first() {
            if self.after_cr && *first == b'\n' {
                rest = &rest[1..];
            }
            self.after_cr = false;
            let Some(end) = memchr2(b'\n', b'\r', rest) else {
                self.line.extend_from_slice(rest);
                break;
            };
            if self.line.is_empty() {
                self.end_line(&rest[..end], out);
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(&rest[..end]);
                self.end_line(&line, out);
            }
            self.after_cr = rest[end] == b'\r';
            rest = &rest[end + 1..];
        }
        if self.line.len() + self.event.data.len() > MAX_EVENT_BYTES { Err(EventTooLarge) } else { Ok(()) }
    }

    fn end_line(&mut self, mut line: &[u8], out: &mut Vec<SseEvent>) {
        if !self.begun {
            self.begun = true;
            line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
        }
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            if std::mem::take(&mut self.has_data) {
                self.has_read = true;
                out.push(event);
            }
            return;
        }
        let colon = memchr(b':', line).unwrap_or(line.len());
        let value = line.get(colon + 1..).unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value);
        // What is right is checked in strides, what is not is mended byte by byte.
        let value = str::from_utf8(value).map_or_else(|_| String::from_utf8_lossy(value), Cow::Borrowed);
        match &line[..colon] {
            b"event" => self.event.name = value.into_owned(),
            b"id" => self.event.id = value.into_owned(),
            b"data" => {
                if self.has_data {
                    self.event.data.push('\n');
                }
                self.has_data = true;
                self.event.data.push_str(&value);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pieces: &[&[u8]]) -> Vec<(String, String)> {
        let (mut reader, mut out) = (SseReader::default(), Vec::new());
        for piece in pieces {
            reader.push(piece, &mut out).unwrap();
        }
        out.into_iter().map(|event| (event.name, event.data)).collect()
    }

    #[test]
    fn events_are_the_same_wherever_they_are_cut() {
        let body = "\u{FEFF}: hi\r\n\r\nevent: a\rdata:1\n\ndata\ndata:  é €\r\nid: 7\r\nretry\r\n\r\nevent: lost\n\ndata: {}\n\ndata: cut";
        let whole = read(&[body.as_bytes()]);
        let named = |name: &str, data: &str| (name.to_owned(), data.to_owned());
        assert_eq!(whole, [named("a", "1"), named("", "\n é €"), named("", "{}")]);
        for at in 0..body.len() {
            let (front, back) = body.as_bytes().split_at(at);
            assert_eq!(read(&[front, back]), whole, "cut at {at}");
        }
        let single: Vec<&[u8]> = body.as_bytes().chunks(1).collect();
        assert_eq!(read(&single), whole);
    }

    #[test]
    fn an_endless_line_and_an_endless_event_are_refused() {
        let (mut reader, mut out) = (SseReader::default(), Vec::new());
        let block = vec![b'a'; 1024 * 1024];
        let refused = (0..9).any(|_| reader.push(&block, &mut out).is_err());
        assert!(refused && out.is_empty());
        let mut reader = SseReader::default();
        let line = [b"data: ".as_slice(), &block, b"\n"].concat();
        assert!((0..9).any(|_| reader.push(&line, &mut out).is_err()));
    }
}
