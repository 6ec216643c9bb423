//! What a hit shows: a title or a piece of a message, and which of its characters matched.
//! Offsets count Unicode scalar values; there is no markup.

use serde::Serialize;
use unicode_segmentation::UnicodeSegmentation as _;
use uuid::Uuid;

use super::{Query, Word, occurrences, words};

/// About how much of a message is shown, and how much of that before the first match.
const SNIPPET_CHARS: usize = 160;
const LEAD_CHARS: usize = 40;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Highlight {
    /// `title` or `message`.
    pub field: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<Uuid>,
    pub text: String,
    /// Start and end of each match in `text`, in order, without overlaps.
    pub ranges: Vec<[usize; 2]>,
}

/// The whole title with every match; `None` when nothing of the query is in it.
pub fn highlight_title(title: &str, query: &Query) -> Option<Highlight> {
    let ranges = ranges(title, query);
    let found = !ranges.is_empty();
    found.then(|| Highlight { field: "title", message_id: None, text: title.to_owned(), ranges })
}

/// The piece of a message around its first match; `None` when nothing of the query is in it.
pub fn highlight_message(id: Uuid, text: &str, query: &Query) -> Option<Highlight> {
    let ranges = ranges(text, query);
    let (from, to) = snippet(text, *ranges.first()?, SNIPPET_CHARS);
    let ranges = ranges
        .into_iter()
        .filter(|[start, _]| *start < to)
        .map(|[start, end]| [start - from, end.min(to) - from])
        .collect();
    let text = text.chars().skip(from).take(to - from).collect();
    Some(Highlight { field: "message", message_id: Some(id), text, ranges })
}

/// About `chars` characters of a text, around its first match or from its beginning, on one line.
pub fn excerpt(text: &str, query: &Query, chars: usize) -> String {
    let first = ranges(text, query).first().copied().unwrap_or([0, 0]);
    let (from, to) = snippet(text, first, chars);
    let piece: String = text.chars().skip(from).take(to - from).collect();
    piece.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Every place where a phrase of the query stands, touching ones joined.
fn ranges(text: &str, query: &Query) -> Vec<[usize; 2]> {
    let words = words(text);
    let mut found: Vec<[usize; 2]> = Vec::new();
    for phrase in query.phrases() {
        for place in occurrences(&words, phrase) {
            found.extend(
                place.iter().zip(phrase).map(|(word, wanted)| [word.start, matched_end(word, wanted)]),
            );
        }
    }
    found.sort_unstable();
    let mut out: Vec<[usize; 2]> = Vec::with_capacity(found.len());
    for [start, end] in found {
        match out.last_mut() {
            Some(last) if start <= last[1] => last[1] = last[1].max(end),
            _ => out.push([start, end]),
        }
    }
    out
}

fn matched_end(word: &Word, wanted: &str) -> usize {
    if word.folded == wanted {
        return word.end;
    }
    let length = wanted.chars().count();
    length.checked_sub(1).and_then(|last| word.ends.get(last)).copied().unwrap_or(word.end)
}

/// From where to where a message is shown: cut between words, and never inside the first match
/// unless that alone is longer than a snippet.
fn snippet(text: &str, [start, end]: [usize; 2], chars: usize) -> (usize, usize) {
    let length = text.chars().count();
    if length <= chars {
        return (0, length);
    }
    let earliest = start.saturating_sub(LEAD_CHARS).min(length - chars);
    let latest = earliest + chars;
    let mut from = if earliest == 0 { Some(0) } else { None };
    let mut to = if latest == length { Some(length) } else { None };
    let mut at = 0;
    for segment in text.split_word_bounds() {
        let after = at + segment.chars().count();
        let blank = segment.chars().all(char::is_whitespace);
        if from.is_none() && !blank && (earliest..=start).contains(&at) {
            from = Some(at);
        }
        if latest < length && !blank && (end..=latest).contains(&after) {
            to = Some(after);
        }
        if after > latest {
            break;
        }
        at = after;
    }
    (from.unwrap_or(start), to.unwrap_or(latest))
}
