//! Rows from a file that comes in pieces, and from a document: the rows that fit, and what is wrong with the others.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::RawValue;

use super::csv::{Csv, Field, untamed};
use super::records::Records;
use super::{Cell, Column, ColumnType};
use crate::json;

/// Of one row in a file.
pub const MAX_RECORD_BYTES: usize = 1024 * 1024;
/// How many faults are told; the rest is counted.
pub const MAX_FAULTS: usize = 100;
/// How much of a name an error repeats.
const SHOWN_CHARS: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Csv,
    /// An array of objects.
    Json,
    /// An object on each line. Both are read alike.
    Ndjson,
}

/// What is wrong with a row. The first is 1; in a CSV file the line of names is 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RowFault {
    pub row: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
    pub message: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RowFaults {
    pub first: Vec<RowFault>,
    pub count: u64,
}

impl RowFaults {
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn add(&mut self, row: u64, column: Option<&str>, message: impl Into<String>) {
        self.count += 1;
        if self.first.len() < MAX_FAULTS {
            self.first.push(RowFault { row, column: column.map(shown), message: message.into() });
        }
    }
}

fn shown(name: &str) -> String {
    name.chars().take(SHOWN_CHARS).collect()
}

/// Rows of a document, all or none.
pub fn read_rows(columns: &[Column], rows: &[Box<RawValue>]) -> Result<Vec<Vec<Cell>>, RowFaults> {
    let mut faults = RowFaults::default();
    let read = (1..).zip(rows).filter_map(|(at, row)| from_json(columns, row.get(), at, &mut faults));
    let cells = read.collect();
    if faults.is_empty() { Ok(cells) } else { Err(faults) }
}

/// Reads a file piece by piece, within bounds: the record under way and the faults are all that it holds.
pub struct RowReader {
    columns: Vec<Column>,
    /// The first bytes, until it is known whether they are a byte order mark.
    head: Option<Vec<u8>>,
    source: Source,
    state: State,
}

enum Source {
    Csv(Csv),
    Json(Records),
}

#[derive(Default)]
struct State {
    /// The columns that the file has, by their place in the table, once its first line is read.
    header: Option<Vec<usize>>,
    /// The number of the row that comes next.
    row: u64,
    faults: RowFaults,
    /// What follows cannot be understood.
    stopped: bool,
}

const MARK: &[u8] = "\u{feff}".as_bytes();

impl RowReader {
    pub fn new(columns: &[Column], format: Format) -> Self {
        let (source, row) = match format {
            Format::Csv => (Source::Csv(Csv::default()), 0),
            Format::Json => (Source::Json(Records::new(false)), 1),
            Format::Ndjson => (Source::Json(Records::new(true)), 1),
        };
        let state = State { row, ..State::default() };
        Self { columns: columns.to_vec(), head: Some(Vec::new()), source, state }
    }

    /// The rows that end in these bytes; after the first fault there are none any more.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<Vec<Cell>>) {
        let Some(head) = &mut self.head else { return self.feed(bytes, out) };
        head.extend_from_slice(bytes);
        if head.len() >= MARK.len() || !MARK.starts_with(head) {
            self.feed_head(out);
        }
    }

    /// The last rows, and all that was wrong.
    pub fn finish(mut self, out: &mut Vec<Vec<Cell>>) -> Result<(), RowFaults> {
        self.feed_head(out);
        let Self { columns, source, state, .. } = &mut self;
        let ended = match source {
            Source::Csv(csv) => csv.finish().map(|last| {
                if let Some(fields) = last {
                    state.take_record(columns, fields, out);
                }
            }),
            Source::Json(records) => records.finish(),
        };
        if let Err(reason) = ended {
            state.stop(reason);
        }
        if matches!(source, Source::Csv(_)) && state.header.is_none() && !state.stopped {
            state.faults.add(0, None, "the file is empty: its first line must name the columns");
        }
        if self.state.faults.is_empty() { Ok(()) } else { Err(self.state.faults) }
    }

    fn feed_head(&mut self, out: &mut Vec<Vec<Cell>>) {
        if let Some(head) = self.head.take() {
            self.feed(head.strip_prefix(MARK).unwrap_or(&head), out);
        }
    }

    fn feed(&mut self, bytes: &[u8], out: &mut Vec<Vec<Cell>>) {
        let Self { columns, source, state, .. } = self;
        if state.stopped {
            return;
        }
        let fed = match source {
            Source::Csv(csv) => csv.push(bytes, MAX_RECORD_BYTES, &mut |fields| {
                state.take_record(columns, fields, out);
            }),
            Source::Json(records) => records.push(bytes, MAX_RECORD_BYTES, &mut |object| {
                let cells = checked(&object)
                    .map_err(|reason| state.faults.add(state.row, None, reason))
                    .ok()
                    .and_then(|text| from_json(columns, text, state.row, &mut state.faults));
                state.keep(cells, out);
            }),
        };
        if let Err(reason) = fed {
            state.stop(reason);
        }
    }
}

fn checked(object: &[u8]) -> Result<&str, String> {
    json::check(object).map_err(|fault| format!("is refused: {fault}"))?;
    std::str::from_utf8(object).map_err(|_| "is not UTF-8".to_owned())
}

impl State {
    fn stop(&mut self, reason: impl std::fmt::Display) {
        if !self.stopped {
            self.stopped = true;
            self.faults.add(self.row, None, format!("{reason}; nothing after it was read"));
        }
    }

    fn keep(&mut self, cells: Option<Vec<Cell>>, out: &mut Vec<Vec<Cell>>) {
        self.row += 1;
        if self.faults.is_empty() {
            out.extend(cells);
        } else {
            out.clear();
        }
    }

    fn take_record(&mut self, columns: &[Column], fields: Vec<Field>, out: &mut Vec<Vec<Cell>>) {
        if self.stopped {
            return;
        }
        let blank = matches!(&fields[..], [only] if only.text.is_empty() && !only.quoted);
        match &self.header {
            // A blank line is no row, unless a row is one cell.
            None if blank => {}
            Some(header) if blank && header.len() > 1 => {}
            None => self.take_header(columns, fields),
            Some(header) => {
                let cells = from_fields(columns, header, fields, self.row, &mut self.faults);
                self.keep(cells, out);
            }
        }
    }

    fn take_header(&mut self, columns: &[Column], fields: Vec<Field>) {
        let mut header = Vec::with_capacity(fields.len());
        for field in fields {
            let name = String::from_utf8_lossy(&field.text).trim().to_owned();
            let name = untamed(name);
            match columns.iter().position(|column| column.name == name) {
                Some(at) if header.contains(&at) => self.faults.add(0, Some(&name), "is named twice"),
                Some(at) => header.push(at),
                None => self.faults.add(0, Some(&name), no_column(columns, &name)),
            }
        }
        // Rows cannot be told by a header that is wrong.
        self.stopped = !self.faults.is_empty();
        self.header = Some(header);
        self.row = 1;
    }
}

fn no_column(columns: &[Column], name: &str) -> String {
    let names: Vec<String> = columns.iter().take(20).map(|column| format!("{:?}", column.name)).collect();
    let more = if columns.len() > names.len() { ", …" } else { "" };
    let hint = if name.contains(';') { "; cells are separated by commas" } else { "" };
    format!("there is no such column; there are: {}{more}{hint}", names.join(", "))
}

/// The cells of a record; `None` when something is wrong with it.
fn from_fields(
    columns: &[Column],
    header: &[usize],
    fields: Vec<Field>,
    row: u64,
    faults: &mut RowFaults,
) -> Option<Vec<Cell>> {
    let before = faults.count;
    if fields.len() != header.len() {
        let message = format!("has {} cells, the first line has {}", fields.len(), header.len());
        faults.add(row, None, message);
        return None;
    }
    let mut cells = vec![Cell::Null; columns.len()];
    for (&at, field) in header.iter().zip(fields) {
        let Column { name, kind } = &columns[at];
        let read = match String::from_utf8(field.text) {
            Ok(text) if *kind == ColumnType::Text => Cell::from_text(untamed(text), field.quoted, *kind),
            Ok(text) => Cell::from_text(text, field.quoted, *kind),
            Err(_) => Err("is not UTF-8".to_owned()),
        };
        match read {
            Ok(cell) => cells[at] = cell,
            Err(message) => faults.add(row, Some(name), message),
        }
    }
    (faults.count == before).then_some(cells)
}

/// The cells of an object, whose text is strict JSON.
fn from_json(columns: &[Column], text: &str, row: u64, faults: &mut RowFaults) -> Option<Vec<Cell>> {
    let before = faults.count;
    let Ok(fields) = serde_json::from_str::<BTreeMap<String, &RawValue>>(text) else {
        faults.add(row, None, "must be an object of columns and their values");
        return None;
    };
    let mut cells = vec![Cell::Null; columns.len()];
    for (name, value) in fields {
        let Some(at) = columns.iter().position(|column| column.name == name) else {
            faults.add(row, Some(&name), no_column(columns, &name));
            continue;
        };
        match Cell::from_json(value, columns[at].kind) {
            Ok(cell) => cells[at] = cell,
            Err(message) => faults.add(row, Some(&name), message),
        }
    }
    (faults.count == before).then_some(cells)
}
