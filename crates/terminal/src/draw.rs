//! The screen's state onto a screen: the title above, the thread, what is to be said of it, and what is being typed below.

use ratatui::Frame;
use ratatui::layout::{Position, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use crate::clean::one_line;
use crate::editor::Editor;
use crate::files::size;
use crate::screen::{Screen, Turn};
use crate::view::dim;
use crate::wrap::{Run, exact, width, words};

/// What is typed takes at most so many lines.
const TYPED_LINES: usize = 8;
/// What is said of the state of things takes at most so many.
const STATUS_LINES: usize = 3;

pub fn draw(frame: &mut Frame<'_>, screen: &mut Screen, server: &str) {
    let area = frame.area();
    if area.width < 4 || area.height < 4 {
        return;
    }
    let columns = usize::from(area.width);
    let editor = screen.picker.as_ref().map_or(&screen.editor, |picker| &picker.editor);
    let (typed, cursor) = typed(editor, columns.saturating_sub(2));
    let typed_height = (typed.len().min(TYPED_LINES) as u16).min(area.height.saturating_sub(3));
    let typed_top = area.height - typed_height;
    // Above it there is the title, and a line of the thread at least.
    let most = STATUS_LINES.min(usize::from(typed_top.saturating_sub(2)));
    let status = shorten(words(&[status(screen)], columns), most, columns);
    let body_height = typed_top.saturating_sub(1 + status.len() as u16);
    put(frame, 0, &[title(screen, server, columns)]);
    let lines = match &screen.picker {
        Some(picker) => picker.lines(columns, usize::from(body_height)),
        None => {
            screen.page = usize::from(body_height.saturating_sub(2));
            screen.thread.window(columns, usize::from(body_height), &mut screen.offset)
        }
    };
    put(frame, 1, &lines);
    put(frame, 1 + body_height, &status);
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
    put(frame, typed_top, &lines);
    let at = Position::new((column + 2).min(columns - 1) as u16, typed_top + (row - from) as u16);
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

fn status(screen: &Screen) -> Run {
    let (bad, busy) = (Style::default().fg(Color::Red), Style::default().fg(Color::Yellow));
    if screen.away {
        return ("The server is away; trying again…".to_owned(), bad);
    }
    if let Some(notice) = &screen.status {
        return (notice.text.clone(), if notice.failed { bad } else { busy });
    }
    match (&screen.turn, &screen.picker) {
        (_, Some(_)) => ("Type to search · Enter opens · Esc goes back".to_owned(), dim()),
        (Turn::Sent, _) => ("Sending…".to_owned(), busy),
        (Turn::Running(_), _) => match screen.approvals.front() {
            Some(approval) => (format!("{} waits for you: /approve or /deny", approval.call), busy),
            None => (format!("Working…{} Ctrl-C stops", waiting(screen)), busy),
        },
        (Turn::Recalled | Turn::Stopping(_), _) => ("Stopping…".to_owned(), busy),
        (Turn::Idle, _) if screen.editing.is_some() => {
            ("Editing your last message · Enter sends · Esc leaves it".to_owned(), busy)
        }
        (Turn::Idle, _) if !screen.attached.is_empty() => (attached(screen), dim()),
        (Turn::Idle, _) if screen.offset > 0 => ("PageDown goes to the end".to_owned(), dim()),
        (Turn::Idle, _) => ("/help · Ctrl-C leaves".to_owned(), dim()),
    }
}

/// Takes lines out before the last ones: what is to be done about it stands at the end.
fn shorten(mut lines: Vec<Line<'static>>, most: usize, columns: usize) -> Vec<Line<'static>> {
    let extra = lines.len().saturating_sub(most.max(1));
    if extra == 0 {
        return lines;
    }
    // With room for it the first one stays, for it says what this is about.
    let from = usize::from(most > 1);
    lines.drain(from..from + extra);
    let cut = &mut lines[from];
    let text = cut.spans.iter().map(|span| span.content.as_ref()).collect::<String>();
    let fits = |text: &str| width(text) < columns;
    let rest = text.char_indices().map(|(at, _)| &text[at..]).find(|rest| fits(rest)).unwrap_or_default();
    let style = cut.spans.first().map_or_else(Style::default, |span| span.style);
    *cut = Line::styled(format!("…{rest}"), style);
    lines
}

/// What comes after the turn under way.
fn waiting(screen: &Screen) -> String {
    let back = if screen.editor.is_empty() { " · Up takes it back" } else { "" };
    let messages = match screen.thread.queue.len() {
        0 => String::new(),
        1 => format!(" 1 message waits{back} ·"),
        more => format!(" {more} messages wait{} ·", back.replace("it", "one")),
    };
    if screen.attached.is_empty() { messages } else { format!("{messages} {} ·", attached(screen)) }
}

fn attached(screen: &Screen) -> String {
    let file = |file: &crate::files::Chosen| format!("{} ({})", one_line(&file.name, 60), size(file.size));
    let names: Vec<String> = screen.attached.iter().map(file).collect();
    format!("Attached: {}", names.join(", "))
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
