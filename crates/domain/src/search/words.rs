//! A text as words: cut by the Unicode rules, folded so that case, accents and width do not matter,
//! each with its place in the text as it was written.

use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::{decompose_compatible, is_combining_mark};
use unicode_segmentation::UnicodeSegmentation as _;

/// How much of a text is looked at. A word's position must stay below PostgreSQL's limit of 16,384.
pub const MAX_INDEX_WORDS: usize = 16_000;
pub const MAX_INDEX_BYTES: usize = 512 * 1024;
/// Longer words count by their beginning.
pub const MAX_WORD_CHARS: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    pub folded: String,
    /// Where it stands, in characters (Unicode scalar values) of the text.
    pub start: usize,
    pub end: usize,
    /// No white space between it and the word before.
    pub glued: bool,
    /// For each character of `folded`, where in the text it ends.
    pub(super) ends: Vec<usize>,
}

/// A folded character and the characters of the text that it came from.
struct Cell {
    folded: char,
    start: usize,
    end: usize,
}

/// The words of a text in order. Scripts that write without spaces come out a character at a time.
pub fn words(text: &str) -> Vec<Word> {
    let mut out = Vec::new();
    let mut bytes = 0;
    let mut at = 0;
    // White space ends a word under every rule, so chunks can be taken one by one.
    for chunk in text[..text.floor_char_boundary(MAX_INDEX_BYTES)].split(char::is_whitespace) {
        let plain = plain(chunk, at);
        let cut = if plain.is_some() { Vec::new() } else { cut(fold(chunk, at)) };
        for (index, found) in plain.into_iter().chain(cut.iter().map(|cells| word(cells))).enumerate() {
            bytes += found.folded.len() + 1;
            if out.len() == MAX_INDEX_WORDS || bytes > MAX_INDEX_BYTES {
                return out;
            }
            out.push(Word { glued: index > 0, ..found });
        }
        at += chunk.chars().count() + 1;
    }
    out
}

/// The one word of a chunk of ASCII letters and digits, with whatever ASCII around it: most words of most texts, and
/// no rule would cut it.
fn plain(chunk: &str, at: usize) -> Option<Word> {
    let is_letter = |c: char| c.is_ascii_alphanumeric();
    let begun = chunk.trim_start_matches(|c: char| c.is_ascii() && !is_letter(c));
    let inner = begun.trim_end_matches(|c: char| c.is_ascii() && !is_letter(c));
    if inner.is_empty() || !inner.chars().all(is_letter) {
        return None;
    }
    let start = at + chunk.len() - begun.len();
    let kept = inner.len().min(MAX_WORD_CHARS);
    Some(Word {
        folded: inner[..kept].to_ascii_lowercase(),
        start,
        end: start + inner.len(),
        glued: false,
        ends: (start + 1..=start + kept).collect(),
    })
}

fn word(cells: &[Cell]) -> Word {
    let kept = &cells[..cells.len().min(MAX_WORD_CHARS)];
    Word {
        folded: kept.iter().map(|cell| cell.folded).collect(),
        start: cells.first().map_or(0, |cell| cell.start),
        end: cells.last().map_or(0, |cell| cell.end),
        glued: false,
        ends: kept.iter().map(|cell| cell.end).collect(),
    }
}

/// Cuts folded characters into words, leaving out what belongs to none.
fn cut(cells: Vec<Cell>) -> Vec<Vec<Cell>> {
    let folded: String = cells.iter().map(|cell| cell.folded).collect();
    let mut cells = cells.into_iter();
    let mut out = Vec::new();
    for segment in folded.split_word_bounds() {
        let mut word = Vec::new();
        for cell in cells.by_ref().take(segment.chars().count()) {
            if cell.folded.is_alphanumeric() || (!word.is_empty() && is_combining_mark(cell.folded)) {
                word.push(cell);
            } else if !word.is_empty() {
                out.push(std::mem::take(&mut word));
            }
        }
        if !word.is_empty() {
            out.push(word);
        }
    }
    out
}

/// Folds a chunk of text that starts at the character `at`.
fn fold(chunk: &str, at: usize) -> Vec<Cell> {
    if chunk.is_ascii() {
        let cell = |(index, byte): (usize, u8)| Cell {
            folded: char::from(byte.to_ascii_lowercase()),
            start: at + index,
            end: at + index + 1,
        };
        return chunk.bytes().enumerate().map(cell).collect();
    }
    let mut plain: Vec<Cell> = Vec::with_capacity(chunk.len());
    for (start, c) in (at..).zip(chunk.chars()) {
        let before = plain.len();
        fold_char(c, &mut |folded| plain.push(Cell { folded, start, end: start + 1 }));
        // What is folded away belongs to the character it stands behind.
        if plain.len() == before
            && let Some(last) = plain.last_mut()
        {
            last.end = start + 1;
        }
    }
    compose(plain)
}

/// Compatibility-decomposed, lower case, without what readers do not type.
fn fold_char(c: char, emit: &mut impl FnMut(char)) {
    decompose_compatible(c, |part| {
        for lower in part.to_lowercase() {
            match lower {
                'ß' => ['s', 's'].into_iter().for_each(&mut *emit),
                'ς' => emit('σ'),
                _ => decompose_compatible(lower, |folded| {
                    if !is_dropped(folded) {
                        emit(folded);
                    }
                }),
            }
        }
    });
}

/// Accents, soft hyphens, joiners and variation selectors. Marks of other blocks are letters of their scripts.
fn is_dropped(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36f}' | '\u{ad}' | '\u{200c}' | '\u{200d}' | '\u{2060}' | '\u{fe00}'..='\u{fe0f}')
}

/// Puts decomposed characters together again. Nothing composes across the bounds of a grapheme cluster.
fn compose(plain: Vec<Cell>) -> Vec<Cell> {
    let text: String = plain.iter().map(|cell| cell.folded).collect();
    let mut out = Vec::with_capacity(plain.len());
    let mut from = 0;
    for cluster in text.graphemes(true) {
        let to = from + cluster.chars().count();
        if let [first, .., last] | [first @ last] = &plain[from..to] {
            let (start, end) = (first.start, last.end);
            out.extend(cluster.nfc().map(|folded| Cell { folded, start, end }));
        }
        from = to;
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_plain_word_is_what_the_rules_make_of_it(chunk in "[a-zA-Z0-9'._,()\"-]{0,80}", at in 0_usize..1000) {
            if let Some(word) = plain(&chunk, at) {
                let cut: Vec<Word> = cut(fold(&chunk, at)).iter().map(|cells| super::word(cells)).collect();
                prop_assert_eq!(cut, [word]);
            }
        }
    }

    #[test]
    fn most_words_are_plain() {
        for (chunk, word) in [("Hello,", "hello"), ("(x1)", "x1"), ("_a_", "a")] {
            assert_eq!(plain(chunk, 0).unwrap().folded, word);
        }
        for chunk in ["don't", "a-b", "3.14", "été", "", "--"] {
            assert_eq!(plain(chunk, 0), None, "{chunk}");
        }
    }
}
