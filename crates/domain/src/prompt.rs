//! A thread as a model is told of it. Whatever the store holds (a call that was interrupted, two messages of the user
//! in a row, an empty answer), what comes out of `valid` is a history that every provider accepts.

use std::collections::HashMap;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::answer::replay_events;
use crate::fold::{INTERRUPTED, fold};
use crate::message::{Block, Message, MessageRole};
use crate::model::{Answer, Call, Said, Words};
use crate::part::Shown;

/// What a call that never ended has come to, as far as anyone knows.
const UNKNOWN: &str = "Error: the call was interrupted, and it is not known whether it took effect";
/// What a failed call's answer begins with.
pub const FAILED: &str = "Error: ";
const NO_OUTPUT: &str = "(no output)";
/// What stands for an answer without a word, of a turn that failed or was cancelled. Without it the next message would
/// be read as one with the question that nobody answered.
pub const NO_ANSWER: &str = "(no answer)";
/// What every provider takes as the name of a tool.
const NAME_CHARS: usize = 64;

/// What a stored message puts into a prompt, without its files.
pub fn of_message(message: &Message) -> Vec<Said> {
    if message.is_removed() {
        return Vec::new();
    }
    match message.role {
        MessageRole::User => vec![Said::User(message.text.as_str().into())],
        MessageRole::System => vec![Said::User(format!("[A note of the system] {}", message.text).into())],
        MessageRole::Assistant => {
            let (events, _) = replay_events(&message.content);
            let said = of_blocks(message.seq, &fold(events.into_iter().map(|event| (0, event))));
            match said.is_empty() {
                true => vec![Said::Assistant { text: NO_ANSWER.to_owned(), calls: Vec::new() }],
                false => said,
            }
        }
    }
}

/// What a user said, with the files that are shown.
pub fn words(message: &Message, shown: Shown) -> Words {
    Words { text: format!("{}{}", message.text, shown.note), parts: shown.parts }
}

/// What an assistant's blocks put into a prompt; `seq` is the message's place in its thread. The calls get ids of
/// our own, the same each time: those of a provider may repeat, or be none that another one takes.
pub fn of_blocks(seq: i64, blocks: &[Block]) -> Vec<Said> {
    let mut parts = Parts { seq, ..Parts::default() };
    for block in blocks {
        match block {
            Block::Text { text } => parts.text(text),
            Block::ToolCall { name, args, result, error, round, .. } => {
                parts.call(*round, name, args.as_deref(), outcome(result.as_deref(), error.as_deref()));
            }
            // What a sandbox did, thoughts, files and failures: the text says what is to be known of them.
            _ => {}
        }
    }
    parts.close();
    parts.out
}

/// The id that a call has in a prompt, by its place among all of its message.
pub fn call_id(seq: i64, place: usize) -> String {
    format!("call_{seq}_{place}")
}

#[derive(Default)]
struct Parts {
    seq: i64,
    out: Vec<Said>,
    text: String,
    round: u32,
    /// Calls so far, in all rounds.
    made: usize,
    calls: Vec<Call>,
    answers: Vec<Answer>,
}

impl Parts {
    /// White space alone, as some models say it before a call, is no text: the strictest provider refuses it.
    fn text(&mut self, text: &str) {
        if text.trim().is_empty() {
            return;
        }
        if !self.calls.is_empty() {
            self.close();
        }
        join(&mut self.text, text);
    }

    fn call(&mut self, round: u32, name: &str, args: Option<&RawValue>, (text, failed): (String, bool)) {
        if !self.calls.is_empty() && self.round != round {
            self.close();
        }
        self.round = round;
        let id = call_id(self.seq, self.made);
        self.made += 1;
        let name = tool_name(name);
        self.answers.push(Answer { id: id.clone(), name: name.clone(), text, failed });
        self.calls.push(Call { id, name, args: arguments(args) });
    }

    fn close(&mut self) {
        let (text, calls) = (std::mem::take(&mut self.text), std::mem::take(&mut self.calls));
        let answers = std::mem::take(&mut self.answers);
        if !calls.is_empty() {
            self.out.extend([Said::Assistant { text, calls }, Said::Answers(answers)]);
        } else if !text.is_empty() {
            self.out.push(Said::Assistant { text, calls });
        }
    }
}

fn join(text: &mut String, more: &str) {
    if !text.is_empty() && !more.is_empty() {
        text.push_str("\n\n");
    }
    text.push_str(more);
}

fn outcome(result: Option<&RawValue>, error: Option<&str>) -> (String, bool) {
    match error {
        Some(INTERRUPTED) => (UNKNOWN.to_owned(), true),
        Some(error) => (format!("{FAILED}{error}"), true),
        None => (result_text(result), false),
    }
}

/// A result as a model reads it: a text as it is, anything else as JSON.
pub fn result_text(result: Option<&RawValue>) -> String {
    let Some(result) = result.filter(|result| result.get() != "null") else { return NO_OUTPUT.to_owned() };
    let text = serde_json::from_str::<String>(result.get()).unwrap_or_else(|_| result.get().to_owned());
    if text.trim().is_empty() { NO_OUTPUT.to_owned() } else { text }
}

/// A JSON object, whatever the model made of it.
fn arguments(args: Option<&RawValue>) -> String {
    let text = args.map_or("{}", RawValue::get);
    if text.starts_with('{') && serde_json::from_str::<Value>(text).is_ok() {
        return text.to_owned();
    }
    if text == "null" {
        return "{}".to_owned();
    }
    let raw = serde_json::from_str::<Value>(text).unwrap_or_else(|_| text.into());
    serde_json::json!({ "invalid_arguments": raw }).to_string()
}

/// A name that every provider takes.
fn tool_name(name: &str) -> String {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let name: String = name.chars().take(NAME_CHARS).map(|c| if good(c) { c } else { '_' }).collect();
    if name.is_empty() { "unknown".to_owned() } else { name }
}

/// The same history, such that every provider accepts it (see `Said`). What is valid stays as it is.
pub fn valid(messages: impl IntoIterator<Item = Said>) -> Vec<Said> {
    // Nobody has asked before that: it answers nothing.
    let asks = |said: &Said| matches!(said, Said::User(words) if !is_nothing(words));
    let mut out = paired(messages.into_iter().skip_while(|said| !asks(said)));
    while matches!(out.last(), Some(Said::Assistant { .. })) {
        out.pop();
    }
    out
}

/// The same history where nobody speaks twice in a row, nothing is empty, and every call has its answer after it.
pub fn paired(messages: impl IntoIterator<Item = Said>) -> Vec<Said> {
    let mut out: Vec<Said> = Vec::new();
    let mut messages = messages.into_iter().peekable();
    while let Some(said) = messages.next() {
        match said {
            Said::User(words) if is_nothing(&words) => {}
            Said::User(words) => match out.last_mut() {
                Some(Said::User(before)) => before.join(words),
                _ => out.push(Said::User(words)),
            },
            // Nothing was called.
            Said::Answers(_) => {}
            Said::Assistant { text, calls } => {
                let answers = messages.next_if(|next| matches!(next, Said::Answers(_)));
                add_assistant(&mut out, text, calls, answers);
            }
        }
    }
    out
}

fn is_nothing(words: &Words) -> bool {
    words.text.trim().is_empty() && words.parts.is_empty()
}

fn add_assistant(out: &mut Vec<Said>, text: String, calls: Vec<Call>, answers: Option<Said>) {
    let text = if text.trim().is_empty() { String::new() } else { text };
    if calls.is_empty() && text.is_empty() {
        return;
    }
    let mut given: HashMap<String, Answer> = match answers {
        Some(Said::Answers(answers)) => answers.into_iter().map(|a| (a.id.clone(), a)).collect(),
        _ => HashMap::new(),
    };
    let answers: Vec<Answer> = calls
        .iter()
        .map(|call| {
            given.remove(&call.id).unwrap_or_else(|| Answer {
                id: call.id.clone(),
                name: call.name.clone(),
                text: UNKNOWN.to_owned(),
                failed: true,
            })
        })
        .collect();
    match out.last_mut() {
        Some(Said::Assistant { text: before, calls: made }) if made.is_empty() => {
            join(before, &text);
            *made = calls;
        }
        _ => out.push(Said::Assistant { text, calls }),
    }
    if !answers.is_empty() {
        out.push(Said::Answers(answers));
    }
}

#[cfg(test)]
#[path = "prompt_tests.rs"]
pub(crate) mod tests;
