//! A table: typed columns, and rows of cells in their order. What tables and rows may be; how cells are read is
//! `cell`, how files of rows are read and written `read` and `write`.

mod cell;
mod csv;
mod read;
mod records;
mod write;

use std::collections::HashSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use cell::{Cell, MAX_CELL_CHARS};
pub use read::{Format, MAX_FAULTS, MAX_RECORD_BYTES, RowFault, RowFaults, RowReader, read_rows};
pub use write::{RowWriter, row_json};

pub const MAX_COLUMNS: usize = 100;
pub const MAX_NAME_CHARS: usize = 255;
pub const MAX_COLUMN_CHARS: usize = 128;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ColumnType {
    Text,
    Number,
    Boolean,
    Date,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    pub name: String,
    #[serde(rename = "type")]
    pub kind: ColumnType,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    pub id: Uuid,
    pub name: String,
    /// Columns are only ever added, at the end: a row's cells stay where they are.
    pub columns: Vec<Column>,
    pub row_count: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// The cells of a row, in the order of the columns. Those of columns that came after it are missing, and null.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub id: Uuid,
    pub cells: Vec<Cell>,
}

/// What cannot be as it is; `pointer` names it as RFC 6901 does.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct TableFault {
    pub pointer: String,
    pub detail: String,
}

impl TableFault {
    fn new(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), detail: detail.into() }
    }
}

pub fn check_name(name: &str) -> Result<(), TableFault> {
    let fits = !name.trim().is_empty()
        && name.chars().count() <= MAX_NAME_CHARS
        && !name.chars().any(char::is_control);
    let detail = format!("name must be 1 to {MAX_NAME_CHARS} characters, without control characters");
    if fits { Ok(()) } else { Err(TableFault::new("/name", detail)) }
}

pub fn check_columns(columns: &[Column]) -> Result<(), TableFault> {
    if columns.is_empty() || columns.len() > MAX_COLUMNS {
        return Err(TableFault::new("/columns", format!("columns must be 1 to {MAX_COLUMNS}")));
    }
    let mut names = HashSet::new();
    for (at, Column { name, .. }) in columns.iter().enumerate() {
        let refused = |detail: String| Err(TableFault::new(format!("/columns/{at}/name"), detail));
        let chars = name.chars().count();
        if chars == 0 || chars > MAX_COLUMN_CHARS || name.chars().any(char::is_control) {
            let most = MAX_COLUMN_CHARS;
            return refused(format!("a column's name must be 1 to {most} characters, no control characters"));
        }
        if name.trim() != name {
            return refused(format!("the column {name:?} begins or ends with white space"));
        }
        if name.starts_with('_') {
            return refused(format!("the column {name:?} begins with an underscore, as only our own do"));
        }
        if !names.insert(name.as_str()) {
            return refused(format!("there are two columns {name:?}"));
        }
    }
    Ok(())
}

impl Table {
    /// The columns after a change: those that are there stay as they are, others are added after them.
    pub fn extended(&self, wanted: &[Column]) -> Result<Vec<Column>, TableFault> {
        check_columns(wanted)?;
        for own in &self.columns {
            let Some(at) = wanted.iter().position(|column| column.name == own.name) else {
                let detail = format!(
                    "the column {:?} is left out: columns can be added, not removed or renamed",
                    own.name
                );
                return Err(TableFault::new("/columns", detail));
            };
            if wanted[at].kind != own.kind {
                let detail =
                    format!("the column {:?} has rows of its type, which cannot be changed", own.name);
                return Err(TableFault::new(format!("/columns/{at}/type"), detail));
            }
        }
        let is_new = |column: &&Column| self.columns.iter().all(|own| own.name != column.name);
        Ok(self.columns.iter().chain(wanted.iter().filter(is_new)).cloned().collect())
    }

    /// Whether a row of another place can be one of this table.
    pub fn check_row(&self, row: &Row) -> Result<(), TableFault> {
        let refused = |at: usize, detail: String| Err(TableFault::new(format!("/cells/{at}"), detail));
        if row.cells.len() > self.columns.len() {
            return refused(self.columns.len(), format!("the row {} has more cells than columns", row.id));
        }
        for (at, (column, cell)) in self.columns.iter().zip(&row.cells).enumerate() {
            if let Err(reason) = cell.clone().fit(column.kind) {
                return refused(at, format!("the column {:?} of the row {} {reason}", column.name, row.id));
            }
        }
        Ok(())
    }

    /// A row in words, for people, models and the search index.
    pub fn describe(&self, row: &Row) -> String {
        let cells = self.columns.iter().zip(&row.cells).filter(|(_, cell)| **cell != Cell::Null);
        let each = cells.map(|(column, cell)| format!("{}: {}", column.name, cell.text()));
        each.collect::<Vec<_>>().join("; ")
    }
}

/// What of a row is searched: its texts and numbers.
pub fn row_text(cells: &[Cell]) -> String {
    let words = cells.iter().filter(|cell| matches!(cell, Cell::Text(_) | Cell::Number(_)));
    words.map(Cell::text).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
#[path = "table/table_tests.rs"]
mod tests;
