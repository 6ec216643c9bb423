//! Markdown to lines for a terminal of a width. Half-written Markdown, as it streams in, is shown as far as it goes.
//! What others wrote is made harmless after it was parsed, when an entity can no longer hide anything. Pure.

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use crate::clean::clean;
use crate::table::{Table, table_lines};
use crate::wrap::{Run, exact, words};

/// The lines of a text. Only a table of very many columns is wider than `width`.
pub fn markdown(text: &str, width: usize) -> Vec<Line<'static>> {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut writer = Writer::new(width);
    for event in Parser::new_ext(text, options) {
        writer.event(event);
    }
    writer.end_block();
    while writer.lines.last().is_some_and(|line| line.width() == 0) {
        writer.lines.pop();
    }
    writer.lines
}

/// What stands left of every line within a quote or a list.
#[derive(Debug, Clone)]
enum Margin {
    Quote,
    Item { indent: usize, marker: Option<String> },
}

struct Writer {
    width: usize,
    lines: Vec<Line<'static>>,
    margins: Vec<Margin>,
    /// The number of the next item; none for a list of dots.
    lists: Vec<Option<u64>>,
    runs: Vec<Run>,
    styles: Vec<Style>,
    links: Vec<(String, usize)>,
    code: Option<String>,
    table: Option<Table>,
    /// The last block was an item of a tight list: no empty line before the next.
    tight: bool,
}

impl Writer {
    fn new(width: usize) -> Self {
        Self {
            width: width.max(8),
            lines: Vec::new(),
            margins: Vec::new(),
            lists: Vec::new(),
            runs: Vec::new(),
            styles: vec![Style::default()],
            links: Vec::new(),
            code: None,
            table: None,
            tight: false,
        }
    }

    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => match &mut self.code {
                Some(code) => code.push_str(&text),
                None => self.text(&text, Style::default()),
            },
            Event::Code(text) => self.text(&text, Style::default().fg(Color::Cyan)),
            Event::Html(text) | Event::InlineHtml(text) => self.text(&text, Style::default()),
            Event::InlineMath(text) | Event::DisplayMath(text) => self.text(&text, Style::default()),
            Event::SoftBreak => self.text(" ", Style::default()),
            Event::HardBreak => self.text("\n", Style::default()),
            Event::Rule => {
                self.end_block();
                let rule = "─".repeat(self.room().min(40));
                self.block(vec![Line::styled(rule, Style::default().fg(Color::DarkGray))]);
            }
            Event::TaskListMarker(done) => self.text(if done { "[x] " } else { "[ ] " }, Style::default()),
            Event::FootnoteReference(name) => self.text(&format!("[{name}]"), Style::default()),
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        let style = self.style();
        match tag {
            Tag::Emphasis => self.styles.push(style.add_modifier(Modifier::ITALIC)),
            Tag::Strong => self.styles.push(style.add_modifier(Modifier::BOLD)),
            Tag::Strikethrough => self.styles.push(style.add_modifier(Modifier::CROSSED_OUT)),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.links.push((dest_url.into_string(), self.runs.len()));
                self.styles.push(style.add_modifier(Modifier::UNDERLINED));
            }
            Tag::Heading { level, .. } => {
                self.end_block();
                let mut style = Style::default().add_modifier(Modifier::BOLD);
                if matches!(level, HeadingLevel::H1 | HeadingLevel::H2) {
                    style = style.fg(Color::Yellow);
                }
                self.styles.push(style);
            }
            Tag::BlockQuote(_) => {
                self.end_block();
                self.margins.push(Margin::Quote);
            }
            Tag::CodeBlock(_) => {
                self.end_block();
                self.code = Some(String::new());
            }
            Tag::List(first) => {
                self.end_block();
                self.lists.push(first);
            }
            Tag::Item => self.item(),
            Tag::Table(_) => {
                self.end_block();
                self.table = Some(Table::default());
            }
            Tag::TableRow => self.table.iter_mut().for_each(Table::row),
            Tag::TableHead => {
                self.table.iter_mut().for_each(Table::row);
                self.styles.push(style.add_modifier(Modifier::BOLD));
            }
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => self.pop_style(),
            TagEnd::Link | TagEnd::Image => {
                self.pop_style();
                self.end_link();
            }
            TagEnd::Heading(_) => {
                self.end_block();
                self.pop_style();
            }
            TagEnd::Paragraph => self.end_block(),
            TagEnd::BlockQuote(_) => {
                self.end_block();
                self.margins.pop();
            }
            TagEnd::CodeBlock => {
                let code = self.code.take().unwrap_or_default();
                let style = Style::default().fg(Color::Cyan);
                let room = self.room().saturating_sub(2);
                let mut lines = exact(clean(&code).trim_end_matches('\n'), style, room);
                lines.iter_mut().for_each(|line| line.spans.insert(0, Span::raw("  ")));
                self.block(lines);
            }
            TagEnd::List(_) => {
                self.end_block();
                self.lists.pop();
                self.tight = !self.lists.is_empty();
            }
            TagEnd::Item => {
                self.end_block();
                // An item without a word still has its dot.
                if let Some(Margin::Item { marker: Some(_), .. }) = self.margins.last() {
                    self.block(vec![Line::default()]);
                }
                self.margins.pop();
                self.tight = true;
            }
            TagEnd::TableCell => {
                let runs = std::mem::take(&mut self.runs);
                self.table.iter_mut().for_each(|table| table.cell(runs.clone()));
            }
            TagEnd::TableHead => self.pop_style(),
            TagEnd::Table => {
                if let Some(table) = self.table.take() {
                    let lines = table_lines(&table, self.room());
                    self.block(lines);
                }
            }
            _ => {}
        }
    }

    fn item(&mut self) {
        self.end_block();
        let marker = match self.lists.last_mut() {
            Some(Some(number)) => {
                *number += 1;
                format!("{}. ", *number - 1)
            }
            _ => "• ".to_owned(),
        };
        self.margins.push(Margin::Item { indent: marker.chars().count(), marker: Some(marker) });
    }

    fn style(&self) -> Style {
        self.styles.last().copied().unwrap_or_default()
    }

    fn pop_style(&mut self) {
        if self.styles.len() > 1 {
            self.styles.pop();
        }
    }

    fn text(&mut self, text: &str, style: Style) {
        let style = self.style().patch(style);
        self.runs.push((clean(text), style));
    }

    /// Where a link leads is always told: its text may say something else.
    fn end_link(&mut self) {
        let Some((url, from)) = self.links.pop() else { return };
        let shown: String = self.runs.iter().skip(from).map(|(text, _)| text.as_str()).collect();
        let url = clean(&url);
        if shown != url && !url.is_empty() {
            self.runs.push((format!(" ({url})"), Style::default().fg(Color::DarkGray)));
        }
    }

    /// Room for text right of the margins.
    fn room(&self) -> usize {
        let margins: usize = self
            .margins
            .iter()
            .map(|margin| match margin {
                Margin::Quote => 2,
                Margin::Item { indent, .. } => *indent,
            })
            .sum();
        self.width.saturating_sub(margins).max(4)
    }

    fn end_block(&mut self) {
        let runs = std::mem::take(&mut self.runs);
        if runs.iter().any(|(text, _)| !text.trim().is_empty()) {
            let lines = words(&runs, self.room());
            self.block(lines);
        }
    }

    /// Adds a block's lines, behind the margins, and an empty line before it where one belongs.
    fn block(&mut self, lines: Vec<Line<'static>>) {
        let is_item =
            self.margins.iter().any(|margin| matches!(margin, Margin::Item { marker: Some(_), .. }));
        let together = self.tight && is_item;
        if !self.lines.is_empty() && !together {
            self.lines.push(Line::default());
        }
        self.tight = is_item;
        for mut line in lines {
            let margin = self.margins.iter_mut().map(|margin| match margin {
                Margin::Quote => Span::styled("│ ", Style::default().fg(Color::DarkGray)),
                Margin::Item { indent, marker } => {
                    Span::raw(marker.take().unwrap_or_else(|| " ".repeat(*indent)))
                }
            });
            line.spans.splice(0..0, margin.collect::<Vec<_>>());
            self.lines.push(line);
        }
    }
}

#[cfg(test)]
#[path = "markdown_tests.rs"]
mod tests;
