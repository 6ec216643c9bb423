//! The fold: the events of a run to the blocks of its message. What is stored, what the live page shows at the
//! end and what a reload shows are this same result. Pure, and the same whether events come one by one or from
//! the log. The cases in `vectors/fold` are its other half: every client that folds runs over them, too.
//!
//! Where the rules leave a choice: see `Fold::push`.

use std::collections::HashMap;

use serde_json::value::RawValue;

use crate::event::{Raw, RunEvent, Step, StepStatus, ToolCalls, ToolResult};
use crate::message::Block;

/// What a tool call that never ended has for its error.
pub const INTERRUPTED: &str = "interrupted";

/// The blocks of a run that has ended, of its events with their times.
pub fn fold(events: impl IntoIterator<Item = (i64, RunEvent)>) -> Vec<Block> {
    let mut fold = Fold::default();
    for (ts, event) in events {
        fold.push(ts, &event);
    }
    fold.finish()
}

/// The fold of a run under way.
#[derive(Debug, Clone, Default)]
pub struct Fold {
    blocks: Vec<Block>,
    /// Where each step stands.
    steps: HashMap<String, usize>,
    /// Where each tool call stands, by its round and id, and whether it is still open.
    calls: HashMap<(u32, String), (usize, bool)>,
    /// The approvals that were asked for; whether each was its client's to give.
    asked: HashMap<String, bool>,
    ended: bool,
}

impl Fold {
    /// Takes the next event; `ts` is its time in epoch ms.
    ///
    /// - Text joins the text before it unless another block came between. The end of a step further up is no
    ///   block: a sentence is not torn by it.
    /// - A step's later line sets name and status, and of the other fields those it has. The last line counts,
    ///   whatever it says: one that ended and then says `running` is open again and keeps its result.
    /// - An id means a step within the run, and a tool call within its round: in another round it is another
    ///   call. A step and a call with one id are two blocks.
    /// - The result of a call that was never announced makes the call's block, without arguments.
    /// - The `result` replaces no text above the last other block, also when it repeats it.
    /// - After the first `result` or `error` nothing counts.
    /// - White space around and within others' JSON is dropped, so that no way of storing it shows.
    pub fn push(&mut self, ts: i64, event: &RunEvent) {
        if self.ended {
            return;
        }
        match event {
            RunEvent::Turn(_) | RunEvent::Log(_) | RunEvent::Done(_) => {}
            RunEvent::Approval(asked) => {
                self.asked.insert(asked.id.clone(), asked.client);
            }
            RunEvent::Delta(delta) => self.text(&delta.text),
            RunEvent::Reasoning(delta) => self.reasoning(&delta.text),
            RunEvent::Step(step) => self.step(ts, step),
            RunEvent::ToolCalls(calls) => self.tool_calls(calls),
            RunEvent::ToolResult(result) => self.tool_result(result),
            RunEvent::Sources(found) => self.blocks.extend(found.sources.iter().cloned().map(Block::Source)),
            RunEvent::File(file) => self.blocks.push(Block::File {
                file_id: file.file_id,
                name: file.name.clone(),
                mime_type: file.mime_type.clone(),
                size: file.size,
                sha256: file.sha256.clone(),
            }),
            RunEvent::Result(result) => self.result(&result.message),
            RunEvent::Error(error) => {
                self.ended = true;
                self.blocks.push(Block::Error { code: error.code.clone(), message: error.message.clone() });
            }
        }
    }

    /// What there is so far.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// The text that is said now: more of it joins it, and the end replaces it.
    pub fn last_text(&self) -> Option<&str> {
        match self.blocks.last() {
            Some(Block::Text { text }) => Some(text),
            _ => None,
        }
    }

    /// The calls that have no result yet, each by its round and id.
    pub fn open_calls(&self) -> Vec<(u32, &str)> {
        let open = self.calls.iter().filter(|(_, (_, open))| *open);
        open.map(|((round, id), _)| (*round, id.as_str())).collect()
    }

    /// Whether this approval was asked for.
    pub fn has_asked(&self, approval: &str) -> bool {
        self.asked.contains_key(approval)
    }

    /// Whether it was asked of a person, and not of the client whose tool is called.
    pub fn has_asked_a_person(&self, approval: &str) -> bool {
        self.asked.get(approval) == Some(&false)
    }

    /// The run has ended: what is open stays unfinished for good.
    pub fn finish(mut self) -> Vec<Block> {
        for block in &mut self.blocks {
            if let Block::Step { status: status @ StepStatus::Running, .. } = block {
                *status = StepStatus::Interrupted;
            }
        }
        for (at, _) in self.calls.into_values().filter(|(_, open)| *open) {
            if let Some(Block::ToolCall { error, .. }) = self.blocks.get_mut(at) {
                *error = Some(INTERRUPTED.to_owned());
            }
        }
        self.blocks
    }

    fn text(&mut self, delta: &str) {
        match self.blocks.last_mut() {
            _ if delta.is_empty() => {}
            Some(Block::Text { text }) => text.push_str(delta),
            _ => self.blocks.push(Block::Text { text: delta.to_owned() }),
        }
    }

    fn reasoning(&mut self, delta: &str) {
        match self.blocks.last_mut() {
            _ if delta.is_empty() => {}
            Some(Block::Reasoning { text }) => text.push_str(delta),
            _ => self.blocks.push(Block::Reasoning { text: delta.to_owned() }),
        }
    }

    fn result(&mut self, message: &str) {
        self.ended = true;
        match self.blocks.last_mut() {
            _ if message.is_empty() => {}
            Some(Block::Text { text }) => message.clone_into(text),
            _ => self.blocks.push(Block::Text { text: message.to_owned() }),
        }
    }

    fn step(&mut self, ts: i64, line: &Step) {
        let at = match self.steps.get(&line.id) {
            Some(known) => *known,
            None => {
                self.blocks.push(Block::Step {
                    id: line.id.clone(),
                    name: String::new(),
                    status: line.status,
                    args: None,
                    result: None,
                    error: None,
                    duration_ms: None,
                    started_at: ts,
                });
                self.steps.insert(line.id.clone(), self.blocks.len() - 1);
                self.blocks.len() - 1
            }
        };
        if let Some(Block::Step { name, status, args, result, error, duration_ms, .. }) =
            self.blocks.get_mut(at)
        {
            line.name.clone_into(name);
            *status = line.status;
            set(args, line.args.as_deref());
            set(result, line.result.as_deref());
            set(duration_ms, line.duration_ms.as_deref());
            if line.error.is_some() {
                error.clone_from(&line.error);
            }
        }
    }

    fn tool_calls(&mut self, announced: &ToolCalls) {
        for call in &announced.calls {
            let at = self.call(announced.round, &call.id).0;
            if let Some(Block::ToolCall { name, args, .. }) = self.blocks.get_mut(at) {
                call.name.clone_into(name);
                set(args, Some(&call.args));
            }
        }
    }

    fn tool_result(&mut self, ended: &ToolResult) {
        let call = self.call(ended.round, &ended.id);
        call.1 = false;
        let at = call.0;
        if let Some(Block::ToolCall { name, result, error, truncated, .. }) = self.blocks.get_mut(at) {
            ended.name.clone_into(name);
            *result = ended.result.as_deref().map(compact);
            error.clone_from(&ended.error);
            *truncated = ended.truncated;
        }
    }

    /// The call's place and whether it is open; a new one gets its block here.
    fn call(&mut self, round: u32, id: &str) -> &mut (usize, bool) {
        self.calls.entry((round, id.to_owned())).or_insert_with(|| {
            self.blocks.push(Block::ToolCall {
                id: id.to_owned(),
                name: String::new(),
                args: None,
                result: None,
                error: None,
                truncated: false,
                round,
            });
            (self.blocks.len() - 1, true)
        })
    }
}

fn set(field: &mut Option<Raw>, given: Option<&RawValue>) {
    if let Some(given) = given {
        *field = Some(compact(given));
    }
}

/// The same JSON without white space between its parts.
fn compact(raw: &RawValue) -> Raw {
    let text = raw.get();
    let (mut kept, mut in_string, mut escaped) = (Vec::with_capacity(text.len()), false, false);
    for byte in text.bytes() {
        if in_string {
            in_string = escaped || byte != b'"';
            escaped = !escaped && byte == b'\\';
        } else if matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
            continue;
        } else {
            in_string = byte == b'"';
        }
        kept.push(byte);
    }
    // Most is written without any, and need not be read again.
    let compact = (kept.len() < text.len()).then(|| String::from_utf8(kept).ok()).flatten();
    compact.and_then(|kept| RawValue::from_string(kept).ok()).unwrap_or_else(|| raw.to_owned())
}

#[cfg(test)]
#[path = "fold_tests.rs"]
mod tests;
