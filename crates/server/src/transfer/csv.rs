//! Comma-separated rows with a header, as databases write tables (RFC 4180): each row as a JSON object, one at a time.

use std::io::{self, BufRead};

use domain::transfer::fields::JSON_COLUMNS;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::scan::{Found, MAX_ELEMENT, Place};

pub struct Csv<R> {
    from: R,
    header: Option<Vec<String>>,
    separator: u8,
    line: u64,
    byte: u64,
    number: u64,
    over: bool,
}

/// The cells of a row, and whether the file ended within it.
enum Row {
    Cells(Vec<String>),
    Bad(String),
    Broken(String),
    End,
}

impl<R: BufRead> Csv<R> {
    pub fn new(from: R) -> Self {
        Self { from, header: None, separator: b',', line: 1, byte: 0, number: 0, over: false }
    }

    /// The next row as JSON text, and where it begins.
    pub fn next(&mut self) -> io::Result<Option<(Place, Found)>> {
        if self.header.is_none() {
            self.skip_mark()?;
            let place = Place { line: 1, byte: 0, number: 0 };
            match self.row()? {
                Row::Cells(cells) => self.header = Some(cells),
                Row::Bad(reason) | Row::Broken(reason) => return Ok(self.stop(place, reason)),
                Row::End => return Ok(None),
            }
        }
        if self.over {
            return Ok(None);
        }
        let (line, byte) = (self.line, self.byte);
        let row = self.row()?;
        self.number += 1;
        let place = Place { line, byte, number: self.number };
        match row {
            Row::Cells(cells) => Ok(Some((place, self.object(cells)))),
            Row::Bad(reason) => Ok(Some((place, Found::Bad(reason)))),
            Row::Broken(reason) => Ok(self.stop(place, reason)),
            Row::End => Ok(None),
        }
    }

    fn stop(&mut self, place: Place, reason: String) -> Option<(Place, Found)> {
        self.over = true;
        self.header.get_or_insert_default();
        Some((place, Found::Broken(reason)))
    }

    /// Drops a byte order mark, and looks which character separates the header's cells.
    fn skip_mark(&mut self) -> io::Result<()> {
        if self.from.fill_buf()?.starts_with(b"\xef\xbb\xbf") {
            self.from.consume(3);
            self.byte += 3;
        }
        let head = self.from.fill_buf()?;
        let first = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let count = |of: u8| first.iter().filter(|byte| **byte == of).count();
        self.separator = [b',', b';', b'\t'].into_iter().rev().max_by_key(|of| count(*of)).unwrap_or(b',');
        Ok(())
    }

    fn row(&mut self) -> io::Result<Row> {
        let (mut cells, mut cell, mut size) = (Vec::new(), Vec::new(), 0);
        let (mut quoted, mut closed, mut any) = (false, false, false);
        loop {
            let Some(byte) = self.from.fill_buf()?.first().copied() else {
                if quoted && !closed {
                    return Ok(Row::Broken("the file ends within a quoted cell: it is not whole".into()));
                }
                if !any {
                    return Ok(Row::End);
                }
                cells.push(cell);
                break;
            };
            self.from.consume(1);
            self.byte += 1;
            self.line += u64::from(byte == b'\n');
            if quoted && !closed {
                match byte {
                    b'"' if self.from.fill_buf()?.first() == Some(&b'"') => {
                        self.from.consume(1);
                        self.byte += 1;
                        cell.push(b'"');
                    }
                    b'"' => closed = true,
                    other => cell.push(other),
                }
            } else if byte == b'\n' {
                if !any {
                    continue;
                }
                cells.push(cell);
                break;
            } else if byte == self.separator {
                cells.push(std::mem::take(&mut cell));
                (quoted, closed, any) = (false, false, true);
            } else if byte == b'"' && cell.is_empty() && !closed {
                (quoted, any) = (true, true);
            } else if byte != b'\r' {
                any = true;
                cell.push(byte);
            }
            size += 1;
            // What is too large is read to its end, and not kept.
            if size > MAX_ELEMENT {
                cell.clear();
                cells.clear();
            }
        }
        if size > MAX_ELEMENT {
            return Ok(Row::Bad(format!("it has more than {} MiB", MAX_ELEMENT / (1024 * 1024))));
        }
        let texts: Result<Vec<String>, _> = cells.into_iter().map(String::from_utf8).collect();
        Ok(texts.map_or_else(|_| Row::Bad("it is not UTF-8".into()), Row::Cells))
    }

    /// An empty cell is null.
    fn object(&self, cells: Vec<String>) -> Found {
        let header = self.header.as_deref().unwrap_or_default();
        if cells.len() != header.len() {
            return Found::Bad(format!("it has {} cells, the header has {}", cells.len(), header.len()));
        }
        let mut object = Map::new();
        let mut raw = Vec::new();
        for (name, cell) in header.iter().zip(cells) {
            if cell.is_empty() {
                object.insert(name.clone(), Value::Null);
            } else if JSON_COLUMNS.contains(&name.as_str())
                && serde_json::from_str::<&RawValue>(&cell).is_ok()
            {
                raw.push((name, cell));
            } else {
                object.insert(name.clone(), Value::String(cell));
            }
        }
        let mut text = Value::Object(object).to_string();
        for (name, cell) in raw {
            text.pop();
            let comma = if text.len() > 1 { "," } else { "" };
            text += &format!("{comma}{}:{cell}}}", Value::String(name.clone()));
        }
        Found::Text(text)
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    fn rows(text: &str) -> Vec<String> {
        let mut csv = Csv::new(BufReader::with_capacity(5, text.as_bytes()));
        let mut all = Vec::new();
        while let Some((place, found)) = csv.next().unwrap() {
            all.push(match found {
                Found::Text(text) => text,
                Found::Bad(reason) => format!("{}: bad: {reason}", place.line),
                Found::Broken(reason) => format!("{}: broken: {reason}", place.line),
            });
            assert!(all.len() < 100);
        }
        all
    }

    #[test]
    fn rows_become_objects() {
        for (text, expected) in [
            ("", &[][..]),
            ("a,b\n", &[]),
            ("a,b\r\n1,\r\n", &[r#"{"a":"1","b":null}"#]),
            ("\u{feff}a;b\n\"x\"\"\ny\";ü", &[r#"{"a":"x\"\ny","b":"ü"}"#]),
            ("id,messages\n1,\"[{\"\"a\"\":1.50}]\"\n", &[r#"{"id":"1","messages":[{"a":1.50}]}"#]),
            ("id,metadata\n1,{broken\n", &[r#"{"id":"1","metadata":"{broken"}"#]),
            ("a,b\n\n1,2\n\n", &[r#"{"a":"1","b":"2"}"#]),
            ("a,b\n1\n2,3\n", &["2: bad: it has 1 cells, the header has 2", r#"{"a":"2","b":"3"}"#]),
        ] {
            assert_eq!(rows(text), expected, "{text:?}");
        }
        let cut = rows("a,b\n1,2\n3,\"4\n5");
        assert!(cut.len() == 2 && cut[1].starts_with("3: broken"), "{cut:?}");
    }
}
