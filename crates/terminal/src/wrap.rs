//! Styled words into lines of a width. Widths are those of a terminal: a Chinese character takes two places, an accent
//! none. Pure.

use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::UnicodeWidthStr as _;

/// Text of one style. A line break in it is one in the output.
pub type Run = (String, Style);

const TAB: &str = "    ";

pub fn width(text: &str) -> usize {
    text.width()
}

/// Breaks at spaces where it can, within a word where it must. There is always at least one line.
pub fn words(runs: &[Run], width: usize) -> Vec<Line<'static>> {
    let mut page = Page::new(width);
    for (text, style) in runs {
        for (index, line) in text.split('\n').enumerate() {
            if index > 0 {
                page.end_line();
            }
            for piece in line.split_word_bounds() {
                if piece.chars().all(char::is_whitespace) {
                    page.space(piece, *style);
                } else {
                    page.word(piece, *style);
                }
            }
        }
    }
    page.finish()
}

/// Keeps every space; breaks at the width.
pub fn exact(text: &str, style: Style, width: usize) -> Vec<Line<'static>> {
    let mut page = Page::new(width);
    for (index, line) in text.split('\n').enumerate() {
        if index > 0 {
            page.end_line();
        }
        page.break_word(&line.replace('\t', TAB), style);
    }
    page.finish()
}

struct Page {
    width: usize,
    lines: Vec<Line<'static>>,
    line: Vec<Run>,
    used: usize,
    /// Words that no space came between: they are broken from each other last.
    pending: Vec<Run>,
    pending_width: usize,
}

impl Page {
    fn new(width: usize) -> Self {
        let width = width.max(1);
        Self { width, lines: Vec::new(), line: Vec::new(), used: 0, pending: Vec::new(), pending_width: 0 }
    }

    fn word(&mut self, word: &str, style: Style) {
        self.pending_width += word.width();
        self.pending.push((word.to_owned(), style));
    }

    fn space(&mut self, space: &str, style: Style) {
        self.flush();
        // At a line's start none is wanted, and at its end it may stand over the edge.
        if self.used > 0 && self.used < self.width {
            let space = space.replace('\t', " ");
            self.used += space.width();
            push(&mut self.line, &space, style);
        }
    }

    fn flush(&mut self) {
        let (pending, width) =
            (std::mem::take(&mut self.pending), std::mem::replace(&mut self.pending_width, 0));
        if self.used > 0 && self.used + width > self.width {
            self.break_line();
        }
        for (word, style) in pending {
            self.break_word(&word, style);
        }
    }

    fn break_word(&mut self, word: &str, style: Style) {
        for grapheme in word.graphemes(true) {
            let width = grapheme.width();
            if self.used > 0 && self.used + width > self.width {
                self.break_line();
            }
            self.used += width;
            push(&mut self.line, grapheme, style);
        }
    }

    fn break_line(&mut self) {
        while self.line.last().is_some_and(|(text, _)| text.trim_end().is_empty()) {
            self.line.pop();
        }
        if let Some((text, _)) = self.line.last_mut() {
            text.truncate(text.trim_end().len());
        }
        let spans = std::mem::take(&mut self.line).into_iter().map(|(text, style)| Span::styled(text, style));
        self.lines.push(Line::from_iter(spans));
        self.used = 0;
    }

    fn end_line(&mut self) {
        self.flush();
        self.break_line();
    }

    fn finish(mut self) -> Vec<Line<'static>> {
        self.end_line();
        self.lines
    }
}

fn push(line: &mut Vec<Run>, text: &str, style: Style) {
    match line.last_mut() {
        Some((known, same)) if *same == style => known.push_str(text),
        _ => line.push((text.to_owned(), style)),
    }
}

/// The text of lines, without styles.
#[cfg(test)]
pub fn texts(lines: &[Line<'_>]) -> Vec<String> {
    lines.iter().map(|line| line.spans.iter().map(|span| span.content.as_ref()).collect()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn wrapped(text: &str, width: usize) -> Vec<String> {
        texts(&words(&[(text.to_owned(), Style::default())], width))
    }

    #[test]
    fn lines_break_between_words_and_long_words_within() {
        assert_eq!(wrapped("the quick brown fox", 9), ["the quick", "brown fox"]);
        assert_eq!(wrapped("abcdefghij kl", 4), ["abcd", "efgh", "ij", "kl"]);
        assert_eq!(wrapped("a, b.", 2), ["a,", "b."]);
        assert_eq!(wrapped("日本語のテキスト", 6), ["日本語", "のテキ", "スト"]);
        assert_eq!(wrapped("a\n\nb", 5), ["a", "", "b"]);
        assert_eq!(wrapped("", 5), [""]);
        assert_eq!(texts(&exact("  a\tb", Style::default(), 20)), ["  a    b"]);
    }

    proptest! {
        #[test]
        fn no_line_is_too_wide_and_no_character_is_lost(text in "[a-z é日\\n.-]{0,200}", width in 2..40_usize) {
            let lines = wrapped(&text, width);
            for line in &lines {
                prop_assert!(line.width() <= width, "{line:?} in {width}");
            }
            let letters = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
            prop_assert_eq!(letters(&lines.concat()), letters(&text));
        }
    }
}
