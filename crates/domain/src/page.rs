//! A page: a Markdown document that a workspace keeps, finds by its words and cites. What one may be, and where
//! citations of pages and tables point.

use jiff::Timestamp;
use uuid::Uuid;

use crate::event::Source;
use crate::search::{Query, excerpt};

pub const MAX_TITLE_CHARS: usize = 255;
pub const MAX_URL_CHARS: usize = 2048;
/// About how much of a text a citation shows.
const CITED_CHARS: usize = 240;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    pub id: Uuid,
    pub title: String,
    /// Markdown.
    pub body: String,
    /// Where it is from, if it is from the web.
    pub url: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// A field that cannot be as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct PageFault {
    pub field: &'static str,
    pub detail: &'static str,
}

impl Page {
    pub fn check(&self) -> Result<(), PageFault> {
        let title = &self.title;
        if title.trim().is_empty()
            || title.chars().count() > MAX_TITLE_CHARS
            || title.chars().any(char::is_control)
        {
            let detail = "title must be 1 to 255 characters, without control characters";
            return Err(PageFault { field: "title", detail });
        }
        match &self.url {
            Some(url) if !is_web_address(url) => {
                let detail = "url must be null or an http or https address of at most 2048 characters";
                Err(PageFault { field: "url", detail })
            }
            _ => Ok(()),
        }
    }

    /// What is searched.
    pub fn text(&self) -> String {
        format!("{}\n{}", self.title, self.body)
    }

    /// The citation of it as an answer to a question.
    pub fn source(&self, query: &Query) -> Source {
        Source {
            id: self.id.to_string(),
            title: self.title.clone(),
            url: self.url.clone(),
            locator: Some(format!("/pages/{}", self.id)),
            snippet: excerpt(&self.body, query, CITED_CHARS),
        }
    }
}

/// An address that a reader can be sent to: nothing that a browser would run.
fn is_web_address(url: &str) -> bool {
    let rest = ["http://", "https://"].iter().find_map(|scheme| {
        let (head, rest) = url.split_at_checked(scheme.len())?;
        head.eq_ignore_ascii_case(scheme).then_some(rest)
    });
    let host = rest.map(|rest| rest.split(['/', '?', '#']).next().unwrap_or(""));
    host.is_some_and(|host| !host.is_empty())
        && url.chars().count() <= MAX_URL_CHARS
        && !url.chars().any(|c| c.is_whitespace() || c.is_control())
}

/// The citation of a row of a table.
pub fn row_source(table: (Uuid, &str), row: Uuid, text: &str, query: &Query) -> Source {
    let (id, name) = table;
    Source {
        id: row.to_string(),
        title: name.to_owned(),
        url: None,
        locator: Some(format!("/tables/{id}/rows/{row}")),
        snippet: excerpt(text, query, CITED_CHARS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(title: &str, url: Option<&str>) -> Page {
        Page {
            id: Uuid::from_u128(1),
            title: title.into(),
            body: "The body".into(),
            url: url.map(Into::into),
            created_at: Timestamp::UNIX_EPOCH,
            updated_at: Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn what_a_page_may_be() {
        let long = "é".repeat(255);
        for title in ["A", "Ünïcode 報告", &long] {
            assert_eq!(page(title, None).check(), Ok(()), "{title}");
        }
        let longer = "é".repeat(256);
        for title in ["", "  ", "a\nb", "a\u{7}", &longer] {
            assert_eq!(page(title, None).check().map_err(|fault| fault.field), Err("title"), "{title:?}");
        }
        let address = format!("https://a.example/{}", "x".repeat(2040));
        for (url, fits) in [
            ("https://a.example", true),
            ("HTTP://a.example/b?c#d", true),
            ("http://127.0.0.1:8080/é", true),
            ("javascript:alert(1)", false),
            ("data:text/html,x", false),
            ("//a.example", false),
            ("https://", false),
            ("https:///b", false),
            ("https://a b", false),
            ("https://a\u{0}b", false),
            ("", false),
            (&address, false),
        ] {
            assert_eq!(page("t", Some(url)).check().is_ok(), fits, "{url}");
        }
    }

    #[test]
    fn a_citation_shows_what_was_found_and_where_it_is() {
        let long = format!("{} needle {}", "hay ".repeat(500), "hay ".repeat(500));
        let found = Page { body: long, ..page("Haystacks", Some("https://a.example")) };
        let source = found.source(&Query::parse("needle").unwrap());
        assert!(source.snippet.contains("needle") && source.snippet.chars().count() <= CITED_CHARS);
        assert_eq!(source.url.as_deref(), Some("https://a.example"));
        assert_eq!(source.locator.unwrap(), format!("/pages/{}", found.id));
        // Found by its title alone, it shows its beginning.
        let source = page("Needles", None).source(&Query::parse("needles").unwrap());
        assert_eq!((source.snippet.as_str(), source.title.as_str()), ("The body", "Needles"));
    }
}
