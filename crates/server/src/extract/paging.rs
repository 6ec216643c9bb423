//! `?limit=` and `?after=` of plain lists, and the strict reading of a query string.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use serde::Serialize;
use utoipa::ToSchema;

use crate::jsonapi::error::shown;
use crate::jsonapi::params::decode;
use crate::problem::Problem;

const DEFAULT: usize = 50;
const MAX: usize = 100;

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

    /// The cursor as the id or number that it is.
    pub fn after<T: std::str::FromStr>(&self) -> Result<Option<T>, Problem> {
        let bad = || Problem::invalid_parameter("after", "after must be the `next` of the page before.");
        self.after.as_deref().map(|text| text.parse().map_err(|_| bad())).transpose()
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Paging {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let mut paging = Self { limit: DEFAULT, after: None };
        let mut seen = Vec::new();
        for (name, value) in pairs(parts.uri.query().unwrap_or(""))? {
            if seen.contains(&name) {
                return Err(Problem::invalid_parameter(&name, format!("{name} is given twice.")));
            }
            match name.as_str() {
                "limit" => {
                    paging.limit = value.parse().ok().filter(|n| (1..=MAX).contains(n)).ok_or_else(|| {
                        Problem::invalid_parameter(
                            "limit",
                            format!("limit must be a whole number from 1 to {MAX}."),
                        )
                    })?;
                }
                "after" => paging.after = Some(value),
                "workspace" => {}
                _ => return Err(Problem::unknown_parameter(&name)),
            }
            seen.push(name);
        }
        Ok(paging)
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
