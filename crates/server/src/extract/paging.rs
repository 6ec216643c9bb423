//! `?limit=` and `?after=` of plain lists, and the strict reading of a query string.

use std::num::IntErrorKind;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::search::Query;
use serde::Serialize;
use store::knowledge::{Listed, TextSearch};
use utoipa::ToSchema;

use crate::jsonapi::error::shown;
use crate::jsonapi::params::decode;
use crate::problem::Problem;

const DEFAULT: usize = 50;
const MAX: usize = 100;
/// What the text in a cursor begins with.
const TEXT_MARK: &str = "after:";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paging {
    pub limit: usize,
    /// The `next` of the page before.
    pub after: Option<String>,
}

/// A page of a plain list.
#[derive(Debug, Serialize, ToSchema)]
pub struct List<T> {
    pub data: Vec<T>,
    /// The `after` of the page that follows; null on the last.
    pub next: Option<String>,
}

impl Paging {
    /// A page of at most `limit` from the `limit + 1` rows that were read; `cursor` names a row.
    pub fn list<R, T>(
        &self,
        mut rows: Vec<R>,
        cursor: impl Fn(&R) -> String,
        shape: impl Fn(R) -> T,
    ) -> List<T> {
        let more = rows.len() > self.limit;
        rows.truncate(self.limit);
        let next = rows.last().filter(|_| more).map(cursor);
        List { data: rows.into_iter().map(shape).collect(), next }
    }

    /// How many rows to read: one more tells whether there is another page.
    pub fn rows(&self) -> usize {
        self.limit + 1
    }

    /// A page of rows that were all read, from after the one that the cursor names.
    pub fn cut<R, T>(
        &self,
        mut rows: Vec<R>,
        cursor: impl Fn(&R) -> String,
        shape: impl Fn(R) -> T,
    ) -> Result<List<T>, Problem> {
        if let Some(after) = &self.after {
            let at = rows.iter().position(|row| cursor(row) == *after).ok_or_else(bad_after)?;
            rows.drain(..=at);
        }
        Ok(self.list(rows, cursor, shape))
    }

    /// The cursor as the id or number that it is.
    pub fn after<T: std::str::FromStr>(&self) -> Result<Option<T>, Problem> {
        self.after.as_deref().map(|text| text.parse().map_err(|_| bad_after())).transpose()
    }

    /// The cursor as the text that `text_cursor` made it of.
    pub fn after_text(&self) -> Result<Option<String>, Problem> {
        let read = |cursor: &String| {
            let text = String::from_utf8(URL_SAFE_NO_PAD.decode(cursor).ok()?).ok()?;
            // No name has it, and a database may not take it.
            text.strip_prefix(TEXT_MARK).filter(|text| !text.contains('\0')).map(str::to_owned)
        };
        self.after.as_ref().map(|cursor| read(cursor).ok_or_else(bad_after)).transpose()
    }
}

/// The cursor of a row that is known by a text of people's own: any text would do as one, so a cursor is marked.
pub fn text_cursor(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(format!("{TEXT_MARK}{text}"))
}

pub fn bad_after() -> Problem {
    Problem::invalid_parameter("after", "after must be the `next` of the page before.")
}

impl<S: Send + Sync> FromRequestParts<S> for Paging {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Self::read(parts.uri.query().unwrap_or(""), None).map(|(paging, _)| paging)
    }
}

/// A page of a list that can be searched, too: `?query=` beside the others.
pub struct Find {
    pub paging: Paging,
    pub query: Option<String>,
}

impl<S: Send + Sync> FromRequestParts<S> for Find {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let (paging, query) = Paging::read(parts.uri.query().unwrap_or(""), Some("query"))?;
        Ok(Self { paging, query: query.filter(|query| !query.is_empty()) })
    }
}

impl Find {
    /// What is searched for; the inner none when that holds no word, and so matches nothing.
    pub fn search(&self) -> Result<Option<Option<TextSearch>>, Problem> {
        let Some(text) = &self.query else { return Ok(None) };
        let (offset, limit) = (self.paging.after()?.unwrap_or(0), self.paging.limit);
        Ok(Some(Query::parse(text).map(|query| TextSearch { query, offset, limit })))
    }

    /// A page of what was found.
    pub fn list<R, T>(
        &self,
        found: Listed<R>,
        cursor: impl Fn(&R) -> String,
        shape: impl Fn(R) -> T,
    ) -> Result<List<T>, Problem> {
        let next = match (&self.query, found.more) {
            (_, false) => None,
            (None, true) => found.items.last().map(cursor),
            (Some(_), true) => {
                Some((self.paging.after::<usize>()?.unwrap_or(0) + found.items.len()).to_string())
            }
        };
        Ok(List { data: found.items.into_iter().map(shape).collect(), next })
    }
}

impl Paging {
    /// The parameters of a list, and the one other that it may have.
    pub fn read(query: &str, other: Option<&str>) -> Result<(Self, Option<String>), Problem> {
        let mut paging = Self { limit: DEFAULT, after: None };
        let (mut seen, mut given) = (Vec::new(), None);
        for (name, value) in pairs(query)? {
            if seen.contains(&name) {
                return Err(Problem::invalid_parameter(&name, format!("{name} is given twice.")));
            }
            match name.as_str() {
                "limit" => {
                    paging.limit = page_size(&value).ok_or_else(|| {
                        Problem::invalid_parameter(
                            "limit",
                            format!("limit must be a whole number from 1; a page has at most {MAX}."),
                        )
                    })?;
                }
                "after" => paging.after = Some(value),
                "workspace" => {}
                _ if other == Some(name.as_str()) => given = Some(value),
                _ => return Err(Problem::unknown_parameter(&name)),
            }
            seen.push(name);
        }
        Ok((paging, given))
    }
}

/// Who asks for more than a page may have gets a whole page, and the cursor of the next.
fn page_size(text: &str) -> Option<usize> {
    match text.parse::<usize>() {
        Ok(0) => None,
        Ok(wanted) => Some(wanted.min(MAX)),
        Err(error) => (*error.kind() == IntErrorKind::PosOverflow).then_some(MAX),
    }
}

/// The decoded pairs of a query string.
pub fn pairs(query: &str) -> Result<Vec<(String, String)>, Problem> {
    let parts = query.split('&').filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let bad =
                |reason| Problem::invalid_parameter(name, format!("The parameter {} {reason}.", shown(name)));
            Ok((decode(name).map_err(bad)?, decode(value).map_err(bad)?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_at_most_so_many() {
        for (text, expected) in [
            ("1", Some(1)),
            ("100", Some(100)),
            ("101", Some(100)),
            ("99999999999999999999999", Some(100)),
            ("0", None),
            ("-1", None),
            ("-99999999999999999999999", None),
            ("1.5", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(page_size(text), expected, "{text}");
        }
    }

    #[test]
    fn a_cursor_that_is_a_text_is_one_that_a_database_takes() {
        let after = |text| Paging { limit: 1, after: Some(text_cursor(text)) }.after_text().ok().flatten();
        assert_eq!(after("ann"), Some("ann".to_owned()));
        assert_eq!(after("a\0"), None);
    }

    #[test]
    fn query_strings_decode_strictly() {
        let read = |query| pairs(query).ok();
        assert_eq!(
            read("a=b%20c&d+e="),
            Some(vec![("a".into(), "b c".into()), ("d e".into(), String::new())])
        );
        for bad in ["a=%", "a=%4", "a=%zz", "a=%+1", "a=%00", "a=%ff", "%0a=1"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
