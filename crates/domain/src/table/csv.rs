//! CSV as RFC 4180 has it, byte by byte: bytes in as they come, records out. And the one thing that it does not say:
//! which texts a spreadsheet would run, and how they are written so that none does.

use std::borrow::Cow;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) text: Vec<u8>,
    /// A quoted nothing is a text, an unquoted one is none.
    pub(super) quoted: bool,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Before,
    Bare,
    Quoted,
    /// After a quote in a quoted field: its end, or the first half of a quote.
    Quote,
}

/// Cuts bytes into records. Both line ends are taken; a quote inside a bare field is a character like others.
#[derive(Default)]
pub(super) struct Csv {
    state: State,
    field: Field,
    fields: Vec<Field>,
    /// Of the record so far.
    bytes: usize,
    after_cr: bool,
}

impl Csv {
    pub(super) fn push(
        &mut self,
        bytes: &[u8],
        max: usize,
        each: &mut impl FnMut(Vec<Field>),
    ) -> Result<(), String> {
        for &byte in bytes {
            if std::mem::take(&mut self.after_cr) && byte == b'\n' {
                continue;
            }
            self.bytes += 1;
            if self.bytes > max {
                return Err(format!("is over {max} bytes; is a quote left open?"));
            }
            match (self.state, byte) {
                (State::Before, b'"') => (self.state, self.field.quoted) = (State::Quoted, true),
                (State::Quoted, b'"') => self.state = State::Quote,
                (State::Quote, b'"') => {
                    self.field.text.push(byte);
                    self.state = State::Quoted;
                }
                (State::Quoted, _) => self.field.text.push(byte),
                (_, b',') => self.end_field(),
                (_, b'\r' | b'\n') => {
                    self.after_cr = byte == b'\r';
                    each(self.end_record());
                }
                (State::Quote, _) => {
                    return Err(
                        "has something after a closing quote: double the quotes inside of a cell".into()
                    );
                }
                (State::Before | State::Bare, _) => {
                    self.field.text.push(byte);
                    self.state = State::Bare;
                }
            }
        }
        Ok(())
    }

    /// The last record, where no line end follows it.
    pub(super) fn finish(&mut self) -> Result<Option<Vec<Field>>, String> {
        match self.state {
            State::Quoted => Err("has a quote that is never closed".into()),
            _ if self.bytes == 0 => Ok(None),
            _ => Ok(Some(self.end_record())),
        }
    }

    fn end_field(&mut self) {
        self.state = State::Before;
        self.fields.push(std::mem::take(&mut self.field));
    }

    fn end_record(&mut self) -> Vec<Field> {
        self.end_field();
        self.bytes = 0;
        std::mem::take(&mut self.fields)
    }
}

/// Whether a spreadsheet may take a text for a formula, quotes before it aside.
fn is_formula(text: &str) -> bool {
    text.trim_start_matches('\'').starts_with(['=', '+', '-', '@', '\t', '\r', '\n', '＝', '＋', '－', '＠'])
}

/// A text as it stands in a file: what a spreadsheet would run gets a quote before it, which makes it a text there.
pub(super) fn tamed(text: &str) -> Cow<'_, str> {
    if is_formula(text) { Cow::Owned(format!("'{text}")) } else { Cow::Borrowed(text) }
}

/// The text that was `tamed`.
pub(super) fn untamed(mut text: String) -> String {
    if text.starts_with('\'') && is_formula(&text) {
        text.remove(0);
    }
    text
}

/// Writes a field, quoted where it must be.
pub(super) fn write_field(out: &mut String, text: &str, quoted: bool) {
    if quoted || text.starts_with('\u{feff}') || text.contains([',', '"', '\r', '\n']) {
        out.push('"');
        out.push_str(&text.replace('"', "\"\""));
        out.push('"');
    } else {
        out.push_str(text);
    }
}
