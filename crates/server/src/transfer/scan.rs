//! A file as a sequence of JSON texts: the elements of one array, the lines of JSON Lines, or one whole document.
//! One at a time is held, and none above a limit, whatever the size of the file.

use std::io::{self, BufRead};

use memchr::{memchr_iter, memchr2};
use serde::de::IgnoredAny;

/// The largest single JSON text that is taken: a conversation, or a document that is no array.
pub const MAX_ELEMENT: usize = 64 * 1024 * 1024;

/// Where something begins in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// From 1.
    pub line: u64,
    /// From 0.
    pub byte: u64,
    /// Which one of the file's, from 1.
    pub number: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    Text(String),
    /// This one cannot be read, the next ones can.
    Bad(String),
    /// Nothing after this can be read.
    Broken(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Unknown,
    Array,
    Lines,
    Document,
    Over,
}

pub struct Scan<R> {
    from: R,
    limit: usize,
    shape: Shape,
    line: u64,
    byte: u64,
    number: u64,
    /// What was read to tell the shape.
    first: Option<(Place, Vec<u8>, bool)>,
    /// What the last line that is not empty ended with.
    line_end: Option<u8>,
}

impl<R: BufRead> Scan<R> {
    pub fn new(from: R) -> Self {
        Self::with_limit(from, MAX_ELEMENT)
    }

    pub fn with_limit(from: R, limit: usize) -> Self {
        Self { from, limit, shape: Shape::Unknown, line: 1, byte: 0, number: 0, first: None, line_end: None }
    }

    /// The next JSON text and where it begins.
    pub fn next(&mut self) -> io::Result<Option<(Place, Found)>> {
        if self.shape == Shape::Unknown {
            self.tell_shape()?;
        }
        match self.shape {
            Shape::Array => self.next_element(),
            Shape::Lines => self.next_line(),
            Shape::Document => self.document(),
            Shape::Unknown | Shape::Over => Ok(None),
        }
    }

    fn place(&mut self) -> Place {
        self.number += 1;
        Place { line: self.line, byte: self.byte, number: self.number }
    }

    fn broken(&mut self, reason: &str) -> io::Result<Option<(Place, Found)>> {
        self.shape = Shape::Over;
        Ok(Some((self.place(), Found::Broken(reason.to_owned()))))
    }

    fn peek(&mut self) -> io::Result<Option<u8>> {
        Ok(self.from.fill_buf()?.first().copied())
    }

    fn take_byte(&mut self) {
        if let Ok(&[byte, ..]) = self.from.fill_buf() {
            self.byte += 1;
            self.line += u64::from(byte == b'\n');
            self.from.consume(1);
        }
    }

    /// The next byte that is no white space, left where it is.
    fn skip_space(&mut self) -> io::Result<Option<u8>> {
        while let Some(byte) = self.peek()? {
            if !byte.is_ascii_whitespace() {
                return Ok(Some(byte));
            }
            self.take_byte();
        }
        Ok(None)
    }

    fn tell_shape(&mut self) -> io::Result<()> {
        if self.from.fill_buf()?.starts_with(b"\xef\xbb\xbf") {
            self.from.consume(3);
            self.byte += 3;
        }
        self.shape = match self.skip_space()? {
            None => Shape::Over,
            Some(b'[') => {
                self.take_byte();
                Shape::Array
            }
            Some(_) => {
                let place = self.place();
                let (text, whole) = self.read_line()?;
                let ends = self.line_end == Some(b'}');
                let is_line = serde_json::from_slice::<IgnoredAny>(&text).is_ok() || ends;
                self.first = Some((place, text, whole));
                if is_line { Shape::Lines } else { Shape::Document }
            }
        };
        Ok(())
    }

    /// The rest of the line, as much of it as is held, and whether that is all.
    fn read_line(&mut self) -> io::Result<(Vec<u8>, bool)> {
        let (mut text, mut whole) = (Vec::new(), true);
        loop {
            let buffer = self.from.fill_buf()?;
            let end = buffer.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(buffer.len(), |end| end + 1);
            if text.len() + taken <= self.limit {
                text.extend_from_slice(&buffer[..taken]);
            } else {
                whole = false;
            }
            if let Some(last) = buffer[..taken].trim_ascii_end().last() {
                self.line_end = Some(*last);
            }
            let over = end.is_some() || buffer.is_empty();
            self.from.consume(taken);
            self.byte += taken as u64;
            self.line += u64::from(end.is_some());
            if over {
                return Ok((text, whole));
            }
        }
    }

    fn next_line(&mut self) -> io::Result<Option<(Place, Found)>> {
        if let Some((place, text, whole)) = self.first.take() {
            return Ok(Some((place, self.found(text, whole))));
        }
        if self.skip_space()?.is_none() {
            self.shape = Shape::Over;
            return Ok(None);
        }
        let place = self.place();
        let (text, whole) = self.read_line()?;
        Ok(Some((place, self.found(text, whole))))
    }

    fn document(&mut self) -> io::Result<Option<(Place, Found)>> {
        self.shape = Shape::Over;
        let Some((place, mut text, mut whole)) = self.first.take() else { return Ok(None) };
        while whole {
            let (more, all) = self.read_line()?;
            if more.is_empty() {
                break;
            }
            whole = all && text.len() + more.len() <= self.limit;
            if whole {
                text.extend_from_slice(&more);
            }
        }
        let found = match self.found(text, whole) {
            Found::Bad(reason) | Found::Broken(reason) => Found::Broken(reason),
            found => found,
        };
        Ok(Some((place, found)))
    }

    fn found(&self, text: Vec<u8>, whole: bool) -> Found {
        if !whole {
            let limit = self.limit / (1024 * 1024);
            // Of a document the shape is `Over` once its first line was looked at.
            let advice = match self.shape {
                Shape::Array => ", the most that an element of the array may have",
                Shape::Lines => {
                    ", the most that a line may have: export it again where it is of an older Threadkeep, \
                    whose conversations were one line each"
                }
                _ => ": a file above that must be an array of conversations, or JSON Lines",
            };
            return Found::Bad(format!("it has more than {limit} MiB{advice}"));
        }
        match String::from_utf8(text) {
            Ok(text) => Found::Text(text),
            Err(error) => Found::Bad(format!("byte {} of it is not UTF-8", error.utf8_error().valid_up_to())),
        }
    }

    fn next_element(&mut self) -> io::Result<Option<(Place, Found)>> {
        if self.number > 0 {
            match self.skip_space()? {
                Some(b',') => self.take_byte(),
                Some(b']') => return self.end(),
                None => return self.broken("the file ends within its array: it is not whole"),
                Some(_) => return self.broken("before it stands neither a comma nor the end of the array"),
            }
        }
        match self.skip_space()? {
            None => return self.broken("the file ends within its array: it is not whole"),
            Some(b']') if self.number == 0 => return self.end(),
            Some(b',' | b']') => return self.broken("a value of the array is missing"),
            Some(_) => {}
        }
        let place = self.place();
        let (text, whole, closed) = self.read_value()?;
        if !closed {
            self.shape = Shape::Over;
            let reason = "the file ends within this one: it is not whole".to_owned();
            return Ok(Some((place, Found::Broken(reason))));
        }
        Ok(Some((place, self.found(text, whole))))
    }

    fn end(&mut self) -> io::Result<Option<(Place, Found)>> {
        self.take_byte();
        match self.skip_space()? {
            None => {
                self.shape = Shape::Over;
                Ok(None)
            }
            Some(_) => self.broken("something stands after the array"),
        }
    }

    /// One value of an array: as much of it as is held, whether that is all, and whether it came to its end. Brackets
    /// are only counted; what is in them is the parser's business.
    fn read_value(&mut self) -> io::Result<(Vec<u8>, bool, bool)> {
        let (mut text, mut whole, mut state) = (Vec::new(), true, State::default());
        loop {
            let buffer = self.from.fill_buf()?;
            if buffer.is_empty() {
                return Ok((text, whole, state.depth == 0 && !state.in_string));
            }
            let (mut taken, mut over) = (0, false);
            while !over {
                if state.in_string && !state.escaped {
                    // Most of an export is text, of which only the end matters.
                    let rest = &buffer[taken..];
                    let plain = memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
                    self.line += memchr_iter(b'\n', &rest[..plain]).count() as u64;
                    taken += plain;
                }
                let Some(byte) = buffer.get(taken) else { break };
                if state.ends_before(*byte) {
                    over = true;
                } else {
                    taken += 1;
                    self.line += u64::from(*byte == b'\n');
                    over = state.ends_with(*byte);
                }
            }
            if text.len() + taken <= self.limit {
                text.extend_from_slice(&buffer[..taken]);
            } else {
                whole = false;
            }
            self.from.consume(taken);
            self.byte += taken as u64;
            if over {
                return Ok((text, whole, true));
            }
        }
    }
}

#[derive(Default)]
struct State {
    depth: u64,
    in_string: bool,
    escaped: bool,
}

impl State {
    /// Whether a value without brackets ends where this byte stands.
    fn ends_before(&self, byte: u8) -> bool {
        self.depth == 0 && !self.in_string && matches!(byte, b',' | b']')
    }

    /// Goes on by a byte; true when the value is over with it.
    fn ends_with(&mut self, byte: u8) -> bool {
        if self.in_string {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => {
                    self.in_string = false;
                    return self.depth == 0;
                }
                _ => {}
            }
            return false;
        }
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                return self.depth == 0;
            }
            _ => {}
        }
        false
    }
}

#[cfg(test)]
#[path = "scan_tests.rs"]
mod tests;
