//! An entry of the thread as lines. Whatever others wrote is made harmless here. Pure.

use domain::event::StepStatus;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use crate::clean::{clean, one_line};
use crate::files::size;
use crate::markdown::markdown;
use crate::printer::step_line;
use crate::queue::Queued;
use crate::thread::{Entry, Part};
use crate::wrap::words;

const ARGS: usize = 300;

/// With an empty line at the end.
pub fn entry_lines(entry: &Entry, width: usize) -> Vec<Line<'static>> {
    let mut lines = match entry {
        Entry::User { text, files, .. } => user(text, files, width),
        Entry::Assistant(parts) => assistant(parts, width),
        Entry::Notice(text) => words(&[(clean(text), dim())], width),
    };
    if !lines.is_empty() {
        lines.push(Line::default());
    }
    lines
}

pub fn dim() -> Style {
    Style::default().fg(Color::DarkGray)
}

fn user(text: &str, files: &[String], width: usize) -> Vec<Line<'static>> {
    let style = Style::default().fg(Color::Green).add_modifier(Modifier::BOLD);
    let mut lines = words(&[(clean(text), style)], width.saturating_sub(2));
    for (index, line) in lines.iter_mut().enumerate() {
        line.spans.insert(0, Span::styled(if index == 0 { "› " } else { "  " }, style));
    }
    lines.extend(files.iter().map(|name| Line::styled(format!("  + {}", one_line(name, 200)), dim())));
    lines
}

/// A message that waits for its turn.
pub fn queued_lines(queued: &Queued, width: usize) -> Vec<Line<'static>> {
    let mut lines = words(&[(format!("› {}", clean(&queued.text)), dim())], width);
    lines.extend(
        queued.files.iter().map(|file| Line::styled(format!("  + {}", one_line(&file.name, 200)), dim())),
    );
    lines.push(Line::default());
    lines
}

fn assistant(parts: &[Part], width: usize) -> Vec<Line<'static>> {
    let mut lines: Vec<Line<'static>> = Vec::new();
    let mut after_text = false;
    for part in parts {
        let is_text = matches!(part, Part::Text(_) | Part::Reasoning(_));
        let shown = part_lines(part, width);
        if shown.is_empty() {
            continue;
        }
        if !lines.is_empty() && (is_text || after_text) {
            lines.push(Line::default());
        }
        after_text = is_text;
        lines.extend(shown);
    }
    lines
}

fn part_lines(part: &Part, width: usize) -> Vec<Line<'static>> {
    let failed = Style::default().fg(Color::Red);
    match part {
        Part::Text(text) => markdown(text, width),
        Part::Reasoning(text) => words(&[(clean(text.trim()), dim().add_modifier(Modifier::ITALIC))], width),
        Part::Step { status, name, args, duration_ms, error } => {
            let status = match status.as_str() {
                "running" => StepStatus::Running,
                "succeeded" => StepStatus::Succeeded,
                "failed" => StepStatus::Failed,
                _ => StepStatus::Interrupted,
            };
            let line = step_line(status, name, duration_ms.as_deref(), error.as_deref());
            done(&line, status_style(status), args.as_deref(), width)
        }
        Part::Call { name, args, error, open } => {
            let status = match (open, error) {
                (true, _) => StepStatus::Running,
                (false, Some(_)) => StepStatus::Failed,
                (false, None) => StepStatus::Succeeded,
            };
            let line = step_line(status, name, None, error.as_deref());
            done(&line, status_style(status), args.as_deref(), width)
        }
        Part::Source { id, title, at } => {
            let at = one_line(at, ARGS);
            words(&[(format!("[{}] {} {at}", one_line(id, 20), one_line(title, ARGS)), dim())], width)
        }
        Part::File { name, size: bytes } => {
            let name = one_line(name, ARGS);
            words(
                &[(format!("+ {name} ({}) · /save {name}", size(*bytes)), Style::default().fg(Color::Blue))],
                width,
            )
        }
        // Somebody wanted it: nothing has failed.
        Part::Error { code, .. } if code == "cancelled" => vec![Line::styled("Stopped", dim())],
        Part::Error { code, message } => {
            words(&[(format!("✗ {}: {}", one_line(code, 100), clean(message)), failed)], width)
        }
    }
}

fn status_style(status: StepStatus) -> Style {
    let colour = match status {
        StepStatus::Running => Color::Yellow,
        StepStatus::Succeeded => Color::DarkGray,
        StepStatus::Failed | StepStatus::Interrupted => Color::Red,
    };
    Style::default().fg(colour)
}

/// What is done, and with what, on as many lines as it takes.
fn done(line: &str, style: Style, args: Option<&str>, width: usize) -> Vec<Line<'static>> {
    let args =
        args.map(|args| one_line(args, ARGS)).filter(|args| !matches!(args.as_str(), "" | "{}" | "null"));
    let args = args.map(|args| (format!("  {args}"), dim()));
    words(&[(line.to_owned(), style)].into_iter().chain(args).collect::<Vec<_>>(), width)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wrap::texts;

    #[test]
    fn parts_are_told_apart_and_hostile_ones_are_harmless() {
        let parts = vec![
            Part::Step {
                status: "failed".into(),
                name: "rm\u{1b}[2J".into(),
                args: Some("{\"a\":\"\u{9b}\"}".into()),
                duration_ms: Some("12".into()),
                error: Some("no\nway".into()),
            },
            Part::Call { name: "search".into(), args: Some("{}".into()), error: None, open: true },
            Part::Text("**Bold**".into()),
            Part::File { name: "a\u{202e}b.txt".into(), size: 2048 },
            Part::Error { code: "x".into(), message: "bad".into() },
        ];
        let lines = texts(&entry_lines(&Entry::Assistant(parts), 80));
        assert_eq!(
            lines,
            [
                "✗ rm␛[2J (12 ms): no way  {\"a\":\"\u{fffd}\"}",
                "… search",
                "",
                "Bold",
                "",
                "+ a\u{fffd}b.txt (2 KiB) · /save a\u{fffd}b.txt",
                "✗ x: bad",
                ""
            ]
        );
    }
}
