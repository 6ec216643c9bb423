//! The screen's state onto a screen: the title above, the thread, a line of status, and what is being typed below.

use ratatui::Frame;
use ratatui::layout::{Position, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use crate::clean::one_line;
use crate::editor::Editor;
use crate::files::size;
use crate::screen::{Screen, Turn};
use crate::view::dim;
use crate::wrap::{exact, width};

/// What is typed takes at most so many lines.
const TYPED_LINES: usize = 8;

pub fn draw(frame: &mut Frame<'_>, screen: &mut Screen, server: &str) {
    let area = frame.area();
    if area.width < 4 || area.height < 4 {
        return;
    }
    let columns = usize::from(area.width);
    let editor = screen.picker.as_ref().map_or(&screen.editor, |picker| &picker.editor);
    let (typed, cursor) = typed(editor, columns.saturating_sub(2));
    let typed_height = (typed.len().min(TYPED_LINES) as u16).min(area.height.saturating_sub(3));
    let body_height = area.height.saturating_sub(2 + typed_height);
    put(frame, 0, &[title(screen, server, columns)]);
    let lines = match &screen.picker {
        Some(picker) => picker.lines(columns, usize::from(body_height)),
        None => {
            screen.page = usize::from(body_height.saturating_sub(2));
            screen.thread.window(columns, usize::from(body_height), &mut screen.offset)
        }
    };
    put(frame, 1, &lines);
    put(frame, 1 + body_height, &[status(screen)]);
    // The part of what is typed that holds the cursor.
    let (row, column) = cursor;
    let from = (row + 1).saturating_sub(usize::from(typed_height));
    let prompt = if screen.picker.is_some() { "? " } else { "› " };
    let lines: Vec<Line<'static>> = typed
        .into_iter()
        .enumerate()
        .skip(from)
        .take(usize::from(typed_height))
        .map(|(index, mut line)| {
            line.spans.insert(
                0,
                Span::styled(if index == 0 { prompt } else { "  " }, Style::default().fg(Color::Green)),
            );
            line
        })
        .collect();
    put(frame, 2 + body_height, &lines);
    let at = Position::new((column + 2).min(columns - 1) as u16, 2 + body_height + (row - from) as u16);
    frame.set_cursor_position(at);
}

fn put(frame: &mut Frame<'_>, top: u16, lines: &[Line<'_>]) {
    let area = frame.area();
    for (y, line) in (top..area.height).zip(lines) {
        frame.render_widget(line, Rect::new(0, y, area.width, 1));
    }
}

fn title(screen: &Screen, server: &str, columns: usize) -> Line<'static> {
    let title = match &screen.picker {
        Some(_) => "History".to_owned(),
        None if screen.thread.title.trim().is_empty() => "New conversation".to_owned(),
        None => one_line(&screen.thread.title, columns.saturating_sub(2)),
    };
    let rest = columns.saturating_sub(width(&title) + 2);
    let server = one_line(server, rest.max(1));
    let fill = rest.saturating_sub(width(&server));
    let style = Style::default().add_modifier(Modifier::REVERSED);
    let server = if fill > 0 { server } else { String::new() };
    Line::styled(
        format!(
            " {title}{}{server} ",
            " ".repeat(columns.saturating_sub(width(&title) + width(&server) + 2))
        ),
        style,
    )
}

fn status(screen: &Screen) -> Line<'static> {
    let (bad, busy) = (Style::default().fg(Color::Red), Style::default().fg(Color::Yellow));
    if screen.away {
        return Line::styled("The server is away; trying again…", bad);
    }
    if let Some(notice) = &screen.status {
        return Line::styled(notice.text.clone(), if notice.failed { bad } else { busy });
    }
    match (&screen.turn, &screen.picker) {
        (_, Some(_)) => Line::styled("Type to search · Enter opens · Esc goes back", dim()),
        (Turn::Sent, _) => Line::styled("Sending…", busy),
        (Turn::Running(_), _) => match &screen.approval {
            Some(approval) => {
                Line::styled(format!("{} waits for you: /approve or /deny", approval.call), busy)
            }
            None => Line::styled(format!("Working…{} Ctrl-C stops", waiting(screen)), busy),
        },
        (Turn::Recalled | Turn::Stopping(_), _) => Line::styled("Stopping…", busy),
        (Turn::Idle, _) if screen.editing.is_some() => {
            Line::styled("Editing your last message · Enter sends · Esc leaves it", busy)
        }
        (Turn::Idle, _) if !screen.attached.is_empty() => {
            let file =
                |file: &crate::files::Chosen| format!("{} ({})", one_line(&file.name, 60), size(file.size));
            let names: Vec<String> = screen.attached.iter().map(file).collect();
            Line::styled(format!("Attached: {}", names.join(", ")), dim())
        }
        (Turn::Idle, _) if screen.offset > 0 => Line::styled("PageDown goes to the end", dim()),
        (Turn::Idle, _) => Line::styled("/help · Ctrl-C leaves", dim()),
    }
}

fn waiting(screen: &Screen) -> String {
    match screen.thread.queue.len() {
        0 => String::new(),
        1 => " 1 message waits ·".to_owned(),
        more => format!(" {more} messages wait ·"),
    }
}

/// The lines of what is typed, and the cursor's row and column among them.
fn typed(editor: &Editor, width: usize) -> (Vec<Line<'static>>, (usize, usize)) {
    let style = Style::default();
    let lines = exact(editor.text(), style, width);
    let before = exact(&editor.text()[..editor.cursor()], style, width);
    let row = before.len() - 1;
    let column = before.last().map_or(0, Line::width);
    // At the very edge the next character stands on the next line.
    if column >= width && row + 1 < lines.len() { (lines, (row + 1, 0)) } else { (lines, (row, column)) }
}
