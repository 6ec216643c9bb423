//! The thread as the screen shows it: what is stored, and the run under way through the one fold, so that what is
//! seen live is what a reload shows. Pure.

use domain::event::RunEvent;
use domain::fold::Fold;
use domain::message::Block;
use ratatui::text::Line;
use serde_json::Value;
use uuid::Uuid;

use crate::api::Stored;
use crate::queue::Queue;
use crate::view::{entry_lines, queued_lines};

#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    Text(String),
    Reasoning(String),
    Step {
        status: String,
        name: String,
        args: Option<String>,
        duration_ms: Option<String>,
        error: Option<String>,
    },
    Call {
        name: String,
        args: Option<String>,
        error: Option<String>,
        open: bool,
    },
    Source {
        id: String,
        title: String,
        at: String,
    },
    File {
        name: String,
        size: u64,
    },
    Error {
        code: String,
        message: String,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub enum Entry {
    User {
        id: Option<Uuid>,
        text: String,
        files: Vec<String>,
    },
    Assistant(Vec<Part>),
    /// Said by the chat itself.
    Notice(String),
}

#[derive(Debug, Default)]
pub struct Thread {
    pub title: String,
    /// What comes after the run under way.
    pub queue: Queue,
    entries: Vec<Laid>,
    live: Option<Fold>,
    live_lines: usize,
}

/// An entry and its lines at a width.
#[derive(Debug)]
struct Laid {
    entry: Entry,
    lines: Option<(usize, Vec<Line<'static>>)>,
}

impl From<Entry> for Laid {
    fn from(entry: Entry) -> Self {
        Self { entry, lines: None }
    }
}

impl Thread {
    pub fn load(title: &str, messages: &[Stored]) -> Self {
        let entries = messages.iter().map(|message| Laid::from(entry(message))).collect();
        Self { title: title.to_owned(), entries, ..Self::default() }
    }

    pub fn push(&mut self, entry: Entry) {
        self.entries.push(entry.into());
    }

    pub fn add(&mut self, message: &Stored) {
        self.push(entry(message));
    }

    #[cfg(test)]
    pub fn entries(&self) -> Vec<&Entry> {
        self.entries.iter().map(|laid| &laid.entry).collect()
    }

    /// The newest message of the user's that the server knows.
    pub fn last_user(&self) -> Option<(Uuid, String)> {
        self.entries.iter().rev().find_map(|laid| match &laid.entry {
            Entry::User { id: Some(id), text, .. } => Some((*id, text.clone())),
            _ => None,
        })
    }

    pub fn knows(&self, message: Uuid) -> bool {
        self.entries
            .iter()
            .any(|laid| matches!(laid.entry, Entry::User { id: Some(id), .. } if id == message))
    }

    /// Takes away what follows a user message, and with `itself` the message as well.
    pub fn cut(&mut self, message: Uuid, itself: bool) {
        let at = self
            .entries
            .iter()
            .position(|laid| matches!(laid.entry, Entry::User { id: Some(id), .. } if id == message));
        if let Some(at) = at {
            self.entries.truncate(at + usize::from(!itself));
        }
    }

    /// The place of the message that was just sent, until the server has told its id.
    fn unheard(&self) -> Option<usize> {
        self.entries.iter().rposition(|laid| matches!(laid.entry, Entry::User { id: None, .. }))
    }

    pub fn is_unheard(&self) -> bool {
        self.unheard().is_some()
    }

    /// The message that was just sent was not taken: its text.
    pub fn take_back(&mut self) -> Option<String> {
        match self.entries.remove(self.unheard()?).entry {
            Entry::User { text, .. } => Some(text),
            _ => None,
        }
    }

    pub fn begin(&mut self) {
        self.live = Some(Fold::default());
        self.live_lines = 0;
    }

    /// The next event of the run under way; `ts` is only kept for steps.
    pub fn event(&mut self, event: &RunEvent) {
        if let RunEvent::Turn(turn) = event
            && let Some(at) = self.unheard()
            && let Entry::User { id, .. } = &mut self.entries[at].entry
        {
            *id = turn.message;
        }
        let Some(live) = &mut self.live else { return };
        let ts = if let RunEvent::Step(step) = event { step.ts.unwrap_or(0) } else { 0 };
        live.push(ts, event);
        if matches!(event, RunEvent::Done(_)) {
            self.end();
        }
    }

    /// The run has ended, or will not be heard of again.
    pub fn end(&mut self) {
        if let Some(live) = self.live.take() {
            let parts = parts(&live.finish());
            if !parts.is_empty() {
                self.push(Entry::Assistant(parts));
            }
        }
    }

    /// The lines of a window, `offset` lines from the end, which is set to what there is. A window that was moved up
    /// stays where it is while the end grows.
    pub fn window(&mut self, width: usize, height: usize, offset: &mut usize) -> Vec<Line<'static>> {
        let live = self.live.as_ref().map(|live| entry_lines(&Entry::Assistant(parts(live.blocks())), width));
        let mut live = live.unwrap_or_default();
        live.extend(self.queue.iter().flat_map(|queued| queued_lines(queued, width)));
        if *offset > 0 {
            *offset += live.len().saturating_sub(self.live_lines);
        }
        self.live_lines = live.len();
        // From the last line up, as far as it is looked at.
        let mut lines: Vec<Line<'static>> = live.into_iter().rev().collect();
        for laid in self.entries.iter_mut().rev() {
            if lines.len() >= *offset + height {
                break;
            }
            let kept = match laid.lines.take() {
                Some((at, kept)) if at == width => kept,
                _ => entry_lines(&laid.entry, width),
            };
            lines.extend(kept.iter().rev().cloned());
            laid.lines = Some((width, kept));
        }
        *offset = (*offset).min(lines.len().saturating_sub(height));
        let mut window: Vec<_> = lines.into_iter().skip(*offset).take(height).collect();
        window.reverse();
        window
    }
}

fn entry(message: &Stored) -> Entry {
    match message.role.as_str() {
        "user" => Entry::User {
            id: Some(message.id),
            text: message.content.clone(),
            files: message.file_attachments.iter().map(|file| text(file, "name")).collect(),
        },
        "assistant" => Entry::Assistant(message.parts.iter().filter_map(part).collect()),
        _ => Entry::Notice(message.content.clone()),
    }
}

/// Blocks by way of their JSON, which is what a reload gets.
fn parts(blocks: &[Block]) -> Vec<Part> {
    blocks.iter().filter_map(|block| part(&serde_json::to_value(block).ok()?)).collect()
}

fn text(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or_default().to_owned()
}

fn some(value: &Value, name: &str) -> Option<String> {
    match &value[name] {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

fn part(block: &Value) -> Option<Part> {
    Some(match block["type"].as_str()? {
        "text" => Part::Text(text(block, "text")),
        "reasoning" => Part::Reasoning(text(block, "text")),
        "step" => Part::Step {
            status: text(block, "status"),
            name: text(block, "name"),
            args: some(block, "args"),
            duration_ms: some(block, "durationMs"),
            error: some(block, "error"),
        },
        "tool_call" => Part::Call {
            name: text(block, "name"),
            args: some(block, "args"),
            error: some(block, "error"),
            open: block["result"].is_null() && block["error"].is_null(),
        },
        "source" => Part::Source {
            id: text(block, "id"),
            title: text(block, "title"),
            at: some(block, "url").or_else(|| some(block, "locator")).unwrap_or_default(),
        },
        "file" => Part::File { name: text(block, "name"), size: block["size"].as_u64().unwrap_or(0) },
        "error" => Part::Error { code: text(block, "code"), message: text(block, "message") },
        // A newer server may know blocks that we do not.
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use domain::entry::decode_event;
    use serde_json::json;

    use super::*;
    use crate::wrap::texts;

    fn event(kind: &str, data: Value) -> RunEvent {
        decode_event(kind, &data.to_string()).unwrap()
    }

    fn turn(message: Uuid) -> RunEvent {
        event(
            "turn",
            json!({ "conversation": null, "run": Uuid::nil(), "message": message, "conversation_id": null }),
        )
    }

    #[test]
    fn a_run_is_shown_as_a_reload_would() {
        let mut live = Thread::default();
        live.push(Entry::User { id: None, text: "Hi".into(), files: vec![] });
        live.begin();
        let id = Uuid::from_u128(7);
        live.event(&turn(id));
        live.event(&event(
            "step",
            json!({ "type": "step", "id": "s", "name": "look", "status": "running", "ts": 5 }),
        ));
        live.event(&event("delta", json!({ "text": "Hel" })));
        let mut offset = 0;
        assert_eq!(texts(&live.window(40, 20, &mut offset)), ["› Hi", "", "… look", "", "Hel", ""]);
        live.event(&event(
            "step",
            json!({ "type": "step", "id": "s", "name": "look", "status": "succeeded", "ts": 6 }),
        ));
        live.event(&event("result", json!({ "message": "Hello", "assistant": null })));
        live.event(&event("done", json!({ "status": "succeeded" })));
        let content = json!([{ "type": "step", "id": "s", "name": "look", "status": "succeeded", "startedAt": 5 },
            { "type": "text", "text": "Hello" }]);
        let stored = [
            json!({ "id": id, "role": "user", "content": "Hi" }),
            json!({ "id": Uuid::nil(), "role": "assistant", "content": "Hello", "parts": content }),
        ];
        let stored: Vec<Stored> = stored.into_iter().map(|m| serde_json::from_value(m).unwrap()).collect();
        assert_eq!(live.entries(), Thread::load("", &stored).entries());
        assert_eq!(live.last_user(), Some((id, "Hi".to_owned())));
    }

    #[test]
    fn a_window_that_was_moved_up_stays_while_the_end_grows() {
        let mut thread = Thread::default();
        thread.push(Entry::Notice((1..=20).map(|n| format!("{n}\n\n")).collect()));
        thread.begin();
        let (mut offset, mut bottom) = (3, 0);
        let before = texts(&thread.window(10, 4, &mut offset));
        thread.event(&event("delta", json!({ "text": "a\n\nb\n\nc" })));
        assert_eq!(texts(&thread.window(10, 4, &mut offset)), before);
        assert!(texts(&thread.window(10, 4, &mut bottom)).contains(&"c".to_owned()));
        let mut far = 10_000;
        thread.window(10, 4, &mut far);
        assert!(far < 100, "it ends at the first line");
    }

    #[test]
    fn edits_take_away_what_follows() {
        let id = Uuid::from_u128(1);
        let fresh = || {
            let mut thread = Thread::default();
            thread.push(Entry::User { id: Some(id), text: "a".into(), files: vec![] });
            thread.push(Entry::Assistant(vec![Part::Text("b".into())]));
            thread
        };
        let mut again = fresh();
        again.cut(id, false);
        assert_eq!(again.entries().len(), 1);
        let mut edited = fresh();
        edited.cut(id, true);
        assert!(edited.entries().is_empty());
        let mut refused = fresh();
        refused.push(Entry::User { id: None, text: "c".into(), files: vec![] });
        assert_eq!(refused.take_back().as_deref(), Some("c"));
        assert_eq!(refused.take_back(), None);
        assert_eq!(refused.entries().len(), 2);
    }
}
