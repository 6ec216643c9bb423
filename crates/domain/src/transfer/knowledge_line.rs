//! Pages and tables as lines of an export tell of them. The rows of a table come in lines of their own, before it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Refusal;
use super::archive::check_text;
use crate::page::Page;
use crate::table::{Cell, Column, Row, Table, check_columns, check_name};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageLine {
    id: Uuid,
    title: String,
    body: String,
    url: Option<String>,
    created_at: Timestamp,
    updated_at: Timestamp,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableLine {
    id: Uuid,
    name: String,
    columns: Vec<Column>,
    row_count: i64,
    created_at: Timestamp,
    updated_at: Timestamp,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowsLine {
    r#type: String,
    table: Uuid,
    rows: Vec<RowLine>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RowLine {
    id: Uuid,
    cells: Vec<Cell>,
}

impl PageLine {
    pub fn of(of: &Page) -> Self {
        let Page { id, title, body, url, created_at, updated_at } = of.clone();
        Self { id, title, body, url, created_at, updated_at }
    }

    pub fn read(self) -> Result<Page, Refusal> {
        let Self { id, title, body, url, created_at, updated_at } = self;
        let page = Page { id, title, body, url, created_at, updated_at };
        page.check().map_err(|fault| Refusal(fault.to_string()))?;
        check_text("body", &page.body, usize::MAX)?;
        Ok(page)
    }
}

impl TableLine {
    pub fn of(of: &Table) -> Self {
        let Table { id, name, columns, row_count, created_at, updated_at } = of.clone();
        Self { id, name, columns, row_count, created_at, updated_at }
    }

    pub fn read(self) -> Result<Table, Refusal> {
        let Self { id, name, columns, row_count, created_at, updated_at } = self;
        check_name(&name).and_then(|()| check_columns(&columns)).map_err(|fault| Refusal(fault.detail))?;
        Ok(Table { id, name, columns, row_count, created_at, updated_at })
    }
}

impl RowsLine {
    pub fn of(table: Uuid, rows: &[Row]) -> Self {
        let rows = rows.iter().map(|row| RowLine { id: row.id, cells: row.cells.clone() }).collect();
        Self { r#type: "rows".into(), table, rows }
    }

    /// The table that they are of, and the rows. Whether their cells are the columns' is not known yet.
    pub fn read(self) -> (Uuid, Vec<Row>) {
        (self.table, self.rows.into_iter().map(|RowLine { id, cells }| Row { id, cells }).collect())
    }
}
