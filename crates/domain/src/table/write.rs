//! Rows as a file, page by page, and as flat objects. What is written is read back as it was.

use std::fmt::Write as _;

use super::csv::{tamed, write_field};
use super::{Cell, Column, ColumnType, Format, Row};

/// Writes a file: `begin`, any number of `rows`, `end`.
pub struct RowWriter {
    columns: Vec<Column>,
    format: Format,
    begun: bool,
}

impl RowWriter {
    pub fn new(columns: &[Column], format: Format) -> Self {
        Self { columns: columns.to_vec(), format, begun: false }
    }

    pub fn begin(&self) -> String {
        let mut out = String::new();
        match self.format {
            Format::Csv => {
                for (at, column) in self.columns.iter().enumerate() {
                    separate(&mut out, at);
                    write_field(&mut out, &tamed(&column.name), false);
                }
                out.push_str("\r\n");
            }
            Format::Json => out.push('['),
            Format::Ndjson => {}
        }
        out
    }

    pub fn rows(&mut self, rows: &[Row]) -> String {
        let mut out = String::new();
        for row in rows {
            match self.format {
                Format::Csv => self.record(&mut out, row),
                Format::Json => {
                    out.push_str(if self.begun { ",\n" } else { "\n" });
                    out.push_str(&row_json(&self.columns, row, false));
                }
                Format::Ndjson => {
                    out.push_str(&row_json(&self.columns, row, false));
                    out.push('\n');
                }
            }
            self.begun = true;
        }
        out
    }

    pub fn end(&self) -> &'static str {
        if self.format == Format::Json { "\n]\n" } else { "" }
    }

    fn record(&self, out: &mut String, row: &Row) {
        for (at, column) in self.columns.iter().enumerate() {
            separate(out, at);
            match row.cells.get(at) {
                None | Some(Cell::Null) => {}
                // A quoted nothing is a text, an unquoted one is null.
                Some(Cell::Text(text)) if column.kind == ColumnType::Text => {
                    write_field(out, &tamed(text), text.is_empty());
                }
                Some(cell) => write_field(out, cell.text(), false),
            }
        }
        out.push_str("\r\n");
    }
}

fn separate(out: &mut String, at: usize) {
    if at > 0 {
        out.push(',');
    }
}

/// A row as one flat object, every column in its order, after `_id` where that is wanted.
pub fn row_json(columns: &[Column], row: &Row, with_id: bool) -> String {
    let mut out = String::from("{");
    if with_id {
        let _ = write!(out, "\"_id\":\"{}\"", row.id);
    }
    for (at, column) in columns.iter().enumerate() {
        separate(&mut out, at + usize::from(with_id));
        let cell = row.cells.get(at).unwrap_or(&Cell::Null);
        let name = serde_json::to_string(&column.name).unwrap_or_default();
        let value = serde_json::to_string(cell).unwrap_or_else(|_| "null".to_owned());
        let _ = write!(out, "{name}:{value}");
    }
    out.push('}');
    out
}
