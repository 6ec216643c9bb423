//! Search in the words of any language, the same on every backend: texts become folded words for an
//! index, a query becomes phrases of such words, and hits get an order and highlights.

mod highlight;
mod words;

use std::collections::BTreeMap;
use std::fmt::Write as _;

pub use highlight::{Highlight, excerpt, highlight_message, highlight_title};
pub use words::{MAX_INDEX_BYTES, MAX_INDEX_WORDS, MAX_WORD_CHARS, Word, words};

/// How many words of a query are used; the rest is dropped.
pub const MAX_QUERY_WORDS: usize = 16;

/// PostgreSQL keeps no more positions of a word in one text.
const MAX_POSITIONS: usize = 255;

/// What a reader typed: each chunk between white space is a phrase, whose words must follow each other
/// in the text, the last one as a prefix. A text must have all phrases, in any order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    phrases: Vec<Vec<String>>,
    /// For each phrase how it was folded before, where that differs: older texts are in the index like this.
    before: Vec<Option<Vec<String>>>,
    /// One phrase is enough.
    any: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MatchKind {
    None,
    /// All phrases are there, some only as the beginning of a longer word.
    Prefix,
    /// All phrases are there with whole words.
    Whole,
}

/// What decides the place of a conversation among the hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hit {
    pub title: MatchKind,
    /// How many of its messages match.
    pub messages: u32,
    pub updated_at_ms: i64,
}

impl Hit {
    /// The greatest score comes first.
    pub fn score(&self) -> (u8, u32, i64) {
        (self.title as u8, self.messages, self.updated_at_ms)
    }
}

impl Query {
    /// `None` when the text holds no word, and so asks for nothing.
    pub fn parse(text: &str) -> Option<Self> {
        let mut phrases: Vec<Vec<String>> = Vec::new();
        let mut before = Vec::new();
        let mut left = MAX_QUERY_WORDS;
        for chunk in text.split_whitespace() {
            let phrase: Vec<String> = words(chunk).into_iter().take(left).map(|word| word.folded).collect();
            if phrase.is_empty() {
                continue;
            }
            let mut as_before = words::as_before(chunk);
            as_before.truncate(left);
            before.push(Some(as_before).filter(|words| *words != phrase));
            left -= phrase.len();
            phrases.push(phrase);
            if left == 0 {
                break;
            }
        }
        (!phrases.is_empty()).then_some(Self { phrases, before, any: false })
    }

    /// The same phrases, of which a text needs one alone: for questions, whose words are not all in the answer.
    #[must_use]
    pub fn any(self) -> Self {
        Self { any: true, ..self }
    }

    /// Each phrase has at least one word.
    pub fn phrases(&self) -> &[Vec<String>] {
        &self.phrases
    }

    /// For `MATCH` on an FTS5 table with `tokenize = 'ascii'` that holds `index_text`.
    pub fn fts5(&self) -> String {
        self.fts5_ending(" *")
    }

    /// As `fts5`, for texts that have the phrases with whole words.
    pub fn fts5_whole(&self) -> String {
        self.fts5_ending("")
    }

    fn fts5_ending(&self, end: &str) -> String {
        let phrase = |words: &Vec<String>| format!("\"{}\"{end}", words.join(" ").replace('"', "\"\""));
        let between = if self.any { " OR " } else { " AND " };
        self.either(phrase, " OR ").join(between)
    }

    /// For `@@ $1::tsquery` on a column that holds `index_tsvector`.
    pub fn tsquery(&self) -> String {
        self.tsquery_ending(":*")
    }

    /// As `tsquery`, for texts that have the phrases with whole words.
    pub fn tsquery_whole(&self) -> String {
        self.tsquery_ending("")
    }

    fn tsquery_ending(&self, end: &str) -> String {
        let phrase = |words: &Vec<String>| {
            let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
            format!("({}{end})", words.join(" <-> "))
        };
        let between = if self.any { " | " } else { " & " };
        self.either(phrase, " | ").join(between)
    }

    /// Each phrase as a query, as it is folded now or before.
    fn either(&self, of: impl Fn(&Vec<String>) -> String, or: &str) -> Vec<String> {
        let both = |(phrase, before): (&Vec<String>, &Option<Vec<String>>)| match before {
            Some(before) => format!("({}{or}{})", of(phrase), of(before)),
            None => of(phrase),
        };
        self.phrases.iter().zip(&self.before).map(both).collect()
    }
}

/// A lexeme of PostgreSQL's text forms. Folded words hold neither character; this does not rely on it.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\\', "\\\\").replace('\'', "''"))
}

/// The folded words of a text, joined by single spaces.
pub fn index_text(text: &str) -> String {
    words::joined(text)
}

/// The folded words of a text with their positions, as the text form of a tsvector.
pub fn index_tsvector(text: &str) -> String {
    let mut positions: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, word) in words(text).into_iter().enumerate() {
        let of_word = positions.entry(word.folded).or_default();
        if of_word.len() < MAX_POSITIONS {
            of_word.push(index + 1);
        }
    }
    let mut out = String::new();
    for (word, of_word) in &positions {
        let separator = if out.is_empty() { "" } else { " " };
        let of_word: Vec<String> = of_word.iter().map(usize::to_string).collect();
        let _ = write!(out, "{separator}{}:{}", quoted(word), of_word.join(","));
    }
    out
}

/// How a text answers a query; `None` when a phrase that it needs is missing.
pub fn matches(text: &str, query: &Query) -> MatchKind {
    let words = words(text);
    let best = |phrase: &Vec<String>| {
        occurrences(&words, phrase)
            .map(|found| whole_or_prefix(found, phrase))
            .max()
            .unwrap_or(MatchKind::None)
    };
    let each = query.phrases.iter().map(best);
    if query.any { each.max() } else { each.min() }.unwrap_or(MatchKind::None)
}

fn whole_or_prefix(found: &[Word], phrase: &[String]) -> MatchKind {
    let is_whole = found.last().map(|word| &word.folded) == phrase.last();
    if is_whole { MatchKind::Whole } else { MatchKind::Prefix }
}

/// The places where the words of a phrase follow each other, the last one as a prefix.
fn occurrences<'a>(words: &'a [Word], phrase: &'a [String]) -> impl Iterator<Item = &'a [Word]> {
    let (last, before) = phrase.split_last().map_or(("", phrase), |(last, before)| (last.as_str(), before));
    words.windows(before.len() + 1).filter(move |found| {
        found.iter().zip(before).all(|(word, wanted)| word.folded == *wanted)
            && found.last().is_some_and(|word| word.folded.starts_with(last))
    })
}

#[cfg(test)]
#[path = "search/search_tests.rs"]
mod tests;
