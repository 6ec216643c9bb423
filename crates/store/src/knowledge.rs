//! Pages and tables: what their verbs take and give, and the order of what a search finds.

use std::cmp::Reverse;

use domain::search::{MatchKind, Query, matches};
use domain::table::{Cell, Column, Row, Table, row_text};
use jiff::Timestamp;
use uuid::Uuid;

use crate::error::{Result, StoreError};
use crate::turns::to_json;

/// A list ends early when what it holds is over this, whatever its limit: bodies can be long.
pub(crate) const LIST_BYTES: i64 = 4 * 1024 * 1024;
/// Rows of an import that did not come to its end are gone after this.
pub(crate) const STALE_MS: i64 = 2 * 60 * 60 * 1000;

/// What is searched for, and which part of what is found.
#[derive(Debug, Clone)]
pub struct TextSearch {
    pub query: Query,
    pub offset: usize,
    pub limit: usize,
}

/// A part of a list, and whether there is more after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed<T> {
    pub items: Vec<T>,
    pub more: bool,
}

/// A row that was found, and its table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundRow {
    pub table: Uuid,
    pub row: Row,
}

/// A row as it is written.
#[derive(Debug, Clone)]
pub(crate) struct WrittenRow {
    pub(crate) id: Uuid,
    pub(crate) cells: String,
    /// As the database's index wants them.
    pub(crate) words: String,
}

pub(crate) fn written(rows: &[Row], index: impl Fn(&str) -> String) -> Result<Vec<WrittenRow>> {
    let write = |row: &Row| {
        Ok(WrittenRow { id: row.id, cells: to_json(&row.cells)?, words: index(&row_text(&row.cells)) })
    };
    rows.iter().map(write).collect()
}

pub(crate) fn read_cells(stored: &str) -> Result<Vec<Cell>> {
    crate::turns::parse_json(stored)
}

/// What the word index found, before it is read.
pub(crate) struct Candidate {
    /// Of a row; nil for a page.
    pub(crate) table: Uuid,
    pub(crate) id: Uuid,
    /// Of a page.
    pub(crate) title: Option<String>,
    pub(crate) bytes: i64,
    /// How well the words fit, as the database says; more is better.
    pub(crate) score: f64,
}

/// The part that was asked for, best first: what has the words in its title, then what the words fit best, then the
/// newest.
pub(crate) fn best(mut found: Vec<Candidate>, search: &TextSearch) -> Listed<Candidate> {
    let title = |one: &Candidate| one.title.as_deref().map_or(MatchKind::None, |t| matches(t, &search.query));
    found.sort_by_cached_key(|one| Reverse((title(one), Score(one.score), one.id)));
    let all = found.len();
    let mut bytes = 0;
    let items: Vec<Candidate> = found
        .into_iter()
        .skip(search.offset)
        .take(search.limit)
        .take_while(|one| {
            let fits = bytes < LIST_BYTES;
            bytes += one.bytes;
            fits
        })
        .collect();
    let more = all > search.offset.saturating_add(items.len());
    Listed { items, more }
}

/// A table after a change, or why it cannot be.
pub(crate) fn changed(
    table: Table,
    name: Option<&str>,
    columns: Option<&[Column]>,
    now: Timestamp,
) -> Result<Table> {
    let columns = match columns {
        Some(wanted) => table.extended(wanted).map_err(StoreError::BadTable)?,
        None => table.columns,
    };
    let name = name.map_or(table.name, str::to_owned);
    Ok(Table { name, columns, updated_at: now, ..table })
}

#[derive(PartialEq)]
struct Score(f64);

impl Eq for Score {}

impl Ord for Score {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// The query of a list that is bounded in number and in bytes: `columns` of `table`, whose rows meet `own` (with the
/// workspace as the first parameter) and lie after the second, at most as many as the third says. The last column is
/// how many there are up to there. `placeholder` is the database's.
pub(crate) fn list_text(table: &str, columns: &str, long: &str, own: &str, placeholder: char) -> String {
    let p = placeholder;
    format!(
        "SELECT {columns}, q.total FROM ( \
             SELECT id, workspace_id, count(*) OVER () AS total, sum(bytes) OVER (ORDER BY id) - bytes AS before FROM ( \
                 SELECT id, workspace_id, octet_length({long}) AS bytes FROM {table} \
                 WHERE {own} AND id > {p}2 ORDER BY id LIMIT {p}3) picked) q \
         JOIN {table} t ON t.workspace_id = q.workspace_id AND t.id = q.id \
         WHERE q.before < {LIST_BYTES} ORDER BY t.id"
    )
}

/// What was read of such a list, of which `limit` were asked for and one more was looked at.
pub(crate) fn listed<T>(mut items: Vec<T>, total: i64, limit: usize) -> Listed<T> {
    items.truncate(limit);
    let more = total > items.len() as i64;
    Listed { items, more }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(id: u128, title: &str, bytes: i64, score: f64) -> Candidate {
        Candidate { table: Uuid::nil(), id: Uuid::from_u128(id), title: Some(title.into()), bytes, score }
    }

    #[test]
    fn titles_come_first_then_what_fits_then_the_newest() {
        let found = || {
            vec![
                candidate(1, "other", 1, 0.5),
                candidate(2, "other", 1, 0.9),
                candidate(3, "blueprint", 1, 0.1),
                candidate(4, "blue", 1, 0.1),
                candidate(5, "other", 1, 0.5),
            ]
        };
        let page = |offset, limit| {
            let search = TextSearch { query: Query::parse("blue").unwrap(), offset, limit };
            let Listed { items, more } = best(found(), &search);
            (items.iter().map(|one| one.id.as_u128()).collect::<Vec<_>>(), more)
        };
        assert_eq!(page(0, 10), (vec![4, 3, 2, 5, 1], false));
        assert_eq!(page(1, 2), (vec![3, 2], true));
        assert_eq!(page(5, 2), (vec![], false));
    }

    #[test]
    fn a_page_is_bounded_in_bytes_and_never_empty_before_the_end() {
        let found = (0..5).map(|id| candidate(id, "", LIST_BYTES - 1, 0.0)).collect();
        let search = TextSearch { query: Query::parse("blue").unwrap(), offset: 0, limit: 5 };
        let Listed { items, more } = best(found, &search);
        assert_eq!((items.len(), more), (2, true));
    }
}
