//! A text as words: cut by the Unicode rules, folded so that case, accents, vowel marks and width do not
//! matter, each with its place in the text as it was written.

use std::ops::Range;

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
    /// For each character of `folded`, where in the text it ends.
    pub(super) ends: Vec<usize>,
}

/// A folded character and the characters of the text that it came from.
struct Cell {
    folded: char,
    start: usize,
    end: usize,
}

/// Which rules fold a text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Folding {
    Now,
    /// Without those that came later: marks of Arabic and Hebrew, and letters that no decomposition makes plain.
    Before,
}

/// The words of a text in order. Scripts that write without spaces come out a character at a time.
pub fn words(text: &str) -> Vec<Word> {
    let mut out = Vec::new();
    let mut bytes = 0;
    let mut at = 0;
    // White space ends a word under every rule, so chunks can be taken one by one.
    for chunk in text[..text.floor_char_boundary(MAX_INDEX_BYTES)].split(char::is_whitespace) {
        let plain = plain(chunk, at);
        let cut = if plain.is_some() { Vec::new() } else { cut(fold(chunk, at, Folding::Now)) };
        for found in plain.into_iter().chain(cut.iter().map(|cells| word(cells))) {
            bytes += found.folded.len() + 1;
            if out.len() == MAX_INDEX_WORDS || bytes > MAX_INDEX_BYTES {
                return out;
            }
            out.push(found);
        }
        at += chunk.chars().count() + 1;
    }
    out
}

/// The folded words of `words`, joined by single spaces: nothing else of them is made.
pub(super) fn joined(text: &str) -> String {
    let text = &text[..text.floor_char_boundary(MAX_INDEX_BYTES)];
    let (mut out, mut count) = (String::with_capacity(text.len()), 0);
    for chunk in text.split(char::is_whitespace) {
        let inner = inner(chunk);
        let plain =
            inner.clone().map(|inner| &chunk[inner.start..inner.end.min(inner.start + MAX_WORD_CHARS)]);
        let cut = if plain.is_some() { Vec::new() } else { cut(fold(chunk, 0, Folding::Now)) };
        let cut: Vec<String> = cut.iter().map(|cells| word(cells).folded).collect();
        for found in plain.into_iter().chain(cut.iter().map(String::as_str)) {
            let between = usize::from(!out.is_empty());
            if count == MAX_INDEX_WORDS || out.len() + between + found.len() + 1 > MAX_INDEX_BYTES {
                return out;
            }
            count += 1;
            out.extend(std::iter::repeat_n(' ', between));
            let start = out.len();
            out.push_str(found);
            // What was cut is folded already, and of ASCII in lower case.
            out[start..].make_ascii_lowercase();
        }
    }
    out
}

/// The words of a chunk without white space as indexes from before hold them.
pub(super) fn as_before(chunk: &str) -> Vec<String> {
    let chunk = &chunk[..chunk.floor_char_boundary(MAX_INDEX_BYTES)];
    cut(fold(chunk, 0, Folding::Before)).iter().map(|cells| word(cells).folded).collect()
}

/// Where in a chunk its ASCII letters and digits stand, with whatever ASCII around them: most words of most texts, and
/// no rule would cut one.
fn inner(chunk: &str) -> Option<Range<usize>> {
    let bytes = chunk.as_bytes();
    let start = bytes.iter().position(u8::is_ascii_alphanumeric)?;
    let end = bytes.iter().rposition(u8::is_ascii_alphanumeric)? + 1;
    let plain = bytes[start..end].iter().all(u8::is_ascii_alphanumeric);
    (plain && bytes[..start].is_ascii() && bytes[end..].is_ascii()).then_some(start..end)
}

/// The one word of a plain chunk.
fn plain(chunk: &str, at: usize) -> Option<Word> {
    let inner = inner(chunk)?;
    let (start, kept) = (at + inner.start, inner.len().min(MAX_WORD_CHARS));
    Some(Word {
        folded: chunk[inner.start..inner.start + kept].to_ascii_lowercase(),
        start,
        end: start + inner.len(),
        ends: (start + 1..=start + kept).collect(),
    })
}

fn word(cells: &[Cell]) -> Word {
    let kept = &cells[..cells.len().min(MAX_WORD_CHARS)];
    Word {
        folded: kept.iter().map(|cell| cell.folded).collect(),
        start: cells.first().map_or(0, |cell| cell.start),
        end: cells.last().map_or(0, |cell| cell.end),
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
fn fold(chunk: &str, at: usize, by: Folding) -> Vec<Cell> {
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
        fold_char(c, by, &mut |folded| plain.push(Cell { folded, start, end: start + 1 }));
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
fn fold_char(c: char, by: Folding, emit: &mut impl FnMut(char)) {
    decompose_compatible(c, |part| {
        for lower in part.to_lowercase() {
            match lower {
                'ß' => ['s', 's'].into_iter().for_each(&mut *emit),
                'ς' => emit('σ'),
                _ => decompose_compatible(lower, |folded| match plain_letters(folded) {
                    _ if is_dropped(folded) => {}
                    _ if by == Folding::Before => emit(folded),
                    Some(letters) => letters.chars().for_each(&mut *emit),
                    None if is_vowel_mark(folded) => {}
                    None => emit(folded),
                }),
            }
        }
    });
}

/// Letters that are typed without their stroke, or as two, where a keyboard does not have them.
fn plain_letters(c: char) -> Option<&'static str> {
    Some(match c {
        'đ' | 'ð' => "d",
        'ø' => "o",
        'ł' => "l",
        'ħ' => "h",
        'ŧ' => "t",
        'ı' => "i",
        'æ' => "ae",
        'œ' => "oe",
        'þ' => "th",
        _ => return None,
    })
}

/// What is mostly left out in writing: points and accents of Hebrew; vowels, hamza, signs of recitation and the
/// lengthening stroke of Arabic.
fn is_vowel_mark(c: char) -> bool {
    matches!(c,
        '\u{591}'..='\u{5bd}' | '\u{5bf}' | '\u{5c1}' | '\u{5c2}' | '\u{5c4}' | '\u{5c5}' | '\u{5c7}'
        | '\u{610}'..='\u{61a}' | '\u{640}' | '\u{64b}'..='\u{65f}' | '\u{670}' | '\u{6d6}'..='\u{6dc}'
        | '\u{6df}'..='\u{6e4}' | '\u{6e7}' | '\u{6e8}' | '\u{6ea}'..='\u{6ed}' | '\u{8d3}'..='\u{8e1}'
        | '\u{8e3}'..='\u{8ff}')
}

/// Accents, soft hyphens, joiners and variation selectors. Marks of other blocks are letters of their scripts,
/// except those above.
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
                let cut: Vec<Word> = cut(fold(&chunk, at, Folding::Now)).iter().map(|cells| super::word(cells)).collect();
                prop_assert_eq!(cut, [word]);
            }
        }
    }

    proptest! {
        #[test]
        fn joined_words_are_the_words(text in "(?s)(.|[ a-zA-Z0-9'._,-]|\\PC{1,9}){0,60}") {
            let words: Vec<String> = words(&text).into_iter().map(|word| word.folded).collect();
            prop_assert_eq!(joined(&text), words.join(" "));
        }
    }

    #[test]
    fn joined_words_end_where_the_words_do() {
        for text in [
            "ab ".repeat(MAX_INDEX_WORDS + 9),
            "abcdefghij ".repeat(MAX_INDEX_BYTES / 11 + 9),
            "x".repeat(99),
        ] {
            let words: Vec<String> = words(&text).into_iter().map(|word| word.folded).collect();
            assert_eq!(joined(&text), words.join(" "));
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
