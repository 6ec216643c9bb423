//! The choice of a conversation: what was typed, what was found, which one is meant. Pure.

use crossterm::event::{KeyCode, KeyEvent};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use uuid::Uuid;

use crate::api::Listed;
use crate::clean::one_line;
use crate::editor::Editor;
use crate::screen::edit;
use crate::view::dim;

#[derive(Debug, Default)]
pub struct Picker {
    pub editor: Editor,
    found: Vec<Listed>,
    at: usize,
    /// No answer has come yet.
    pub waiting: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Picked {
    Search(String),
    Open(Uuid),
    Nothing,
}

impl Picker {
    pub fn new(query: &str) -> Self {
        let mut picker = Self { waiting: true, ..Self::default() };
        picker.editor.set(query);
        picker
    }

    pub fn query(&self) -> &str {
        self.editor.text()
    }

    pub fn typed(&mut self, text: &str) {
        self.editor.insert(text);
        self.waiting = true;
    }

    /// An answer; one to an older question says nothing.
    pub fn found(&mut self, query: &str, found: Vec<Listed>) {
        if query == self.query() {
            self.found = found;
            self.at = 0;
            self.waiting = false;
        }
    }

    pub fn key(&mut self, key: KeyEvent) -> Option<Picked> {
        match key.code {
            KeyCode::Up => self.at = self.at.saturating_sub(1),
            KeyCode::Down => self.at = (self.at + 1).min(self.found.len().saturating_sub(1)),
            KeyCode::Enter => return self.found.get(self.at).map(|listed| Picked::Open(listed.id)),
            KeyCode::Esc => return Some(Picked::Nothing),
            _ => {
                let before = self.query().to_owned();
                edit(&mut self.editor, key);
                if self.query() != before {
                    self.waiting = true;
                    return Some(Picked::Search(self.query().to_owned()));
                }
            }
        }
        None
    }

    /// As many rows as fit, with the chosen one among them; each group of dates has its heading.
    pub fn lines(&self, width: usize, height: usize) -> Vec<Line<'static>> {
        let mut lines = Vec::new();
        let (mut chosen, mut group) = (0, "");
        for (index, listed) in self.found.iter().enumerate() {
            // Groups are those of a history; what was searched for comes best first.
            if self.query().trim().is_empty() && listed.group != group {
                group = &listed.group;
                lines.push(Line::styled(one_line(&group.replace('_', " "), 40), dim()));
            }
            if index == self.at {
                chosen = lines.len();
            }
            let title = if listed.title.trim().is_empty() { &listed.preview } else { &listed.title };
            let style = if index == self.at {
                Style::default().add_modifier(Modifier::REVERSED)
            } else {
                Style::default()
            };
            let title = one_line(title, width.saturating_sub(4).max(8));
            lines.push(Line::from(vec![
                Span::raw(if index == self.at { "› " } else { "  " }),
                Span::styled(if title.is_empty() { "(without a title)".to_owned() } else { title }, style),
            ]));
        }
        if lines.is_empty() {
            let text = if self.waiting { "Looking…" } else { "Nothing found." };
            lines.push(Line::styled(text, dim()));
        }
        let from = (chosen + 1).saturating_sub(height);
        lines.into_iter().skip(from).take(height).collect()
    }
}
