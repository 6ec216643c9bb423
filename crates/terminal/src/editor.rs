//! The line that is being typed: text, a place in it, and what was sent before. Pure.

use unicode_segmentation::{GraphemeCursor, UnicodeSegmentation as _};

#[derive(Debug, Clone, Default)]
pub struct Editor {
    text: String,
    /// A byte's place, at a grapheme's edge.
    at: usize,
    past: Vec<String>,
    /// Which of the past is shown; the end is what is being typed.
    shown: usize,
    draft: String,
}

impl Editor {
    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn cursor(&self) -> usize {
        self.at
    }

    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    pub fn set(&mut self, text: &str) {
        text.clone_into(&mut self.text);
        self.at = self.text.len();
    }

    /// Puts text before what is being typed.
    pub fn put_back(&mut self, text: &str) {
        let draft = std::mem::take(&mut self.text);
        self.set(&if draft.is_empty() { text.to_owned() } else { format!("{text}\n{draft}") });
    }

    pub fn clear(&mut self) {
        self.set("");
        self.shown = self.past.len();
    }

    /// Takes what was typed, and remembers it.
    pub fn take(&mut self) -> String {
        let text = std::mem::take(&mut self.text);
        self.at = 0;
        if self.past.last() != Some(&text) {
            self.past.push(text.clone());
        }
        self.shown = self.past.len();
        text
    }

    pub fn insert(&mut self, text: &str) {
        // A terminal sends line ends as it likes, and nothing else that is no text belongs here.
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        let text: String = text.chars().filter(|c| matches!(c, '\n' | '\t') || !c.is_control()).collect();
        self.text.insert_str(self.at, &text);
        self.at += text.len();
    }

    pub fn backspace(&mut self) {
        let to = self.at;
        self.left();
        self.text.replace_range(self.at..to, "");
    }

    pub fn delete(&mut self) {
        let from = self.at;
        self.right();
        self.text.replace_range(from..self.at, "");
        self.at = from;
    }

    pub fn left(&mut self) {
        let mut cursor = GraphemeCursor::new(self.at, self.text.len(), true);
        self.at = cursor.prev_boundary(&self.text, 0).ok().flatten().unwrap_or(0);
    }

    pub fn right(&mut self) {
        let mut cursor = GraphemeCursor::new(self.at, self.text.len(), true);
        self.at = cursor.next_boundary(&self.text, 0).ok().flatten().unwrap_or(self.text.len());
    }

    pub fn word_left(&mut self) {
        let words = self.text[..self.at].split_word_bound_indices();
        let start = words.rev().find(|(_, word)| !word.trim().is_empty());
        self.at = start.map_or(0, |(start, _)| start);
    }

    pub fn word_right(&mut self) {
        let mut words = self.text[self.at..].split_word_bound_indices();
        let end = words.find(|(_, word)| !word.trim().is_empty());
        self.at = end.map_or(self.text.len(), |(start, word)| self.at + start + word.len());
    }

    pub fn delete_word(&mut self) {
        let to = self.at;
        self.word_left();
        self.text.replace_range(self.at..to, "");
    }

    pub fn home(&mut self) {
        self.at = self.text[..self.at].rfind('\n').map_or(0, |end| end + 1);
    }

    pub fn end(&mut self) {
        self.at = self.text[self.at..].find('\n').map_or(self.text.len(), |end| self.at + end);
    }

    pub fn delete_to_start(&mut self) {
        let to = self.at;
        self.home();
        self.text.replace_range(self.at..to, "");
    }

    pub fn delete_to_end(&mut self) {
        let from = self.at;
        self.end();
        self.text.replace_range(from..self.at, "");
        self.at = from;
    }

    /// What was sent before.
    pub fn older(&mut self) {
        if self.shown > 0 && self.shown <= self.past.len() {
            if self.shown == self.past.len() {
                self.draft = self.text.clone();
            }
            self.shown -= 1;
            let text = self.past[self.shown].clone();
            self.set(&text);
        }
    }

    pub fn newer(&mut self) {
        if self.shown < self.past.len() {
            self.shown += 1;
            let text = self.past.get(self.shown).cloned().unwrap_or_else(|| std::mem::take(&mut self.draft));
            self.set(&text);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_is_edited_by_characters_and_words() {
        let mut editor = Editor::default();
        editor.insert("one twö 👩‍🔬");
        editor.backspace();
        assert_eq!(editor.text(), "one twö ");
        editor.word_left();
        editor.delete();
        assert_eq!(editor.text(), "one wö ");
        editor.delete_word();
        assert_eq!(editor.text(), "wö ");
        editor.end();
        editor.insert("\r\nnext\u{1b}\u{7}");
        assert_eq!(editor.text(), "wö \nnext");
        editor.delete_to_start();
        editor.left();
        editor.delete_to_end();
        assert_eq!(editor.text(), "wö \n");
    }

    #[test]
    fn what_was_sent_can_be_had_again() {
        let mut editor = Editor::default();
        for text in ["a", "b", "b"] {
            editor.insert(text);
            editor.take();
        }
        editor.insert("draft");
        for (older, shown) in
            [(true, "b"), (true, "a"), (true, "a"), (false, "b"), (false, "draft"), (false, "draft")]
        {
            if older {
                editor.older()
            } else {
                editor.newer()
            }
            assert_eq!(editor.text(), shown);
        }
    }

    proptest! {
        #[test]
        fn no_key_breaks_it(start in ".{0,20}", keys in proptest::collection::vec(0..13_u8, 0..60)) {
            let mut editor = Editor::default();
            editor.insert(&start);
            for key in keys {
                match key {
                    0 => editor.left(),
                    1 => editor.right(),
                    2 => editor.backspace(),
                    3 => editor.delete(),
                    4 => editor.word_left(),
                    5 => editor.word_right(),
                    6 => editor.delete_word(),
                    7 => editor.home(),
                    8 => editor.end(),
                    9 => editor.delete_to_start(),
                    10 => editor.older(),
                    11 => { editor.take(); }
                    _ => editor.insert("é日\n"),
                }
                prop_assert!(editor.text().is_char_boundary(editor.cursor()));
            }
        }
    }
}
