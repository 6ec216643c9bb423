//! What goes to a language model and what comes back, in no vendor's dialect. The dialects are in `upstream::llm`;
//! what a thread becomes is `prompt`, how much of it fits is `budget`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

use crate::kept::Blocks;
use crate::message::Raw;
pub use crate::part::{Part, PartKind, Takes};
use crate::run::{Usage, UsageDetails};

/// What stands between two texts of one message.
const PARAGRAPH: &str = "\n\n";

/// What a model is given to go on from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Prompt {
    pub system: String,
    pub messages: Vec<Said>,
}

/// One message of a prompt. In a valid one (`prompt::valid`) the first is the user's, nobody speaks twice in a row,
/// every call has its answer in the message after it, and the assistant is not the last to speak. What a client of the
/// gateway says was said (`prompt::paired`) may begin and end with the assistant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    User(Words),
    Assistant { text: String, calls: Vec<Call> },
    Answers(Vec<Answer>),
}

/// What a user said, and the files that are shown with it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Words {
    pub text: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
}

/// A piece of what a user said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'a> {
    Text(&'a str),
    Part(&'a Part),
}

impl Words {
    /// Puts a text behind what was said, with a blank line between texts.
    pub fn say(&mut self, text: &str) {
        if !self.text.is_empty() && !text.is_empty() {
            self.text.push_str(PARAGRAPH);
        }
        self.text.push_str(text);
    }

    /// Puts a file behind what was said.
    pub fn show(&mut self, part: Part) {
        self.parts.push(Part { at: self.text.len(), ..part });
    }

    /// Puts what was said after it behind all of this. Files that came before their words still do.
    pub fn join(&mut self, after: Self) {
        let own = self.text.len();
        self.say(&after.text);
        let moved = self.text.len() - after.text.len();
        let at = |part: &Part| if part.at == 0 { own } else { moved + part.at };
        self.parts.extend(after.parts.into_iter().map(|part| Part { at: at(&part), ..part }));
    }

    /// Texts and files in their order, but for texts without a word.
    pub fn pieces(&self) -> Vec<Piece<'_>> {
        let (mut pieces, mut told) = (Vec::with_capacity(self.parts.len() + 1), 0);
        let mut text = |to: usize| {
            let text = self.text.get(told..to).unwrap_or_default();
            let text = if told > 0 { text.strip_prefix(PARAGRAPH).unwrap_or(text) } else { text };
            told = told.max(to);
            (!text.trim().is_empty()).then_some(Piece::Text(text))
        };
        for part in &self.parts {
            pieces.extend(text(part.at));
            pieces.push(Piece::Part(part));
        }
        pieces.extend(text(self.text.len()));
        pieces
    }
}

impl<T: Into<String>> From<T> for Words {
    fn from(text: T) -> Self {
        Self { text: text.into(), parts: Vec::new() }
    }
}

/// A call as a model made it. `args` is the text of a JSON object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Call {
    pub id: String,
    pub name: String,
    pub args: String,
}

/// What a call came to. `id` is the call's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Answer {
    pub id: String,
    pub name: String,
    pub text: String,
    pub failed: bool,
}

/// A tool as a model is told of it.
#[derive(Debug, Clone, Serialize)]
pub struct ToolSpec {
    pub name: String,
    pub description: String,
    /// JSON Schema of its arguments, an object.
    pub schema: Raw,
}

/// One call of a model.
#[derive(Debug, Clone, Default)]
pub struct Ask {
    /// As its provider names it.
    pub model: String,
    pub prompt: Prompt,
    /// Empty: it must answer without.
    pub tools: Arc<[ToolSpec]>,
    pub max_tokens: Option<u64>,
    pub manner: Manner,
    /// What of the prompt its provider said itself, in its own blocks: it wants them back as they were.
    pub kept: Blocks,
    /// A client's own request in the provider's dialect: sent as it is but for the model's name and the streaming,
    /// in place of all of the above.
    pub verbatim: Option<Verbatim>,
}

/// How a model is to answer, as far as a client says. A provider that has no word for something is not told of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Manner {
    pub temperature: Option<Number>,
    pub top_p: Option<Number>,
    /// It stops before it says one of these.
    pub stop: Vec<String>,
    pub choice: Option<Choice>,
    /// False: at most one call at once.
    pub parallel: Option<bool>,
    /// How much it thinks, in OpenAI's words.
    pub effort: Option<String>,
    /// The shape of the answer, as OpenAI's `response_format`.
    pub format: Option<Value>,
}

impl Manner {
    /// As it holds for an answer after the first: a call that had to be made has been made.
    #[must_use]
    pub fn later(self) -> Self {
        let choice = self.choice.filter(|choice| !matches!(choice, Choice::Any | Choice::Tool(_)));
        Self { choice, ..self }
    }
}

/// Which of the tools a model may or must call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Choice {
    /// It must answer without.
    None,
    Auto,
    Any,
    Tool(String),
}

impl Ask {
    /// The client's own request, for a provider that speaks its dialect.
    pub fn verbatim_in(&self, dialect: Dialect) -> Option<&Verbatim> {
        self.verbatim.as_ref().filter(|verbatim| verbatim.dialect == dialect)
    }
}

#[derive(Debug, Clone)]
pub struct Verbatim {
    pub dialect: Dialect,
    pub body: Value,
    /// The features beyond its version that the body uses, by their names: Anthropic's `anthropic-beta`.
    pub beta: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    Openai,
    Anthropic,
}

/// What a model sends, piece by piece. The last is an `End`, and there is one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelEvent {
    Text(String),
    Reasoning(String),
    Call(CallPart),
    /// An answer that calls or pauses, in the provider's own blocks, where it wants them back to go on.
    Blocks(Vec<Value>),
    /// What the call has cost so far; the newest counts.
    Usage(Usage),
    /// Of what kinds that was, where there is something to say; the newest counts.
    Details(UsageDetails),
    /// The same in the provider's own words, before ours: only where the request went out verbatim.
    Own(Own),
    End(Result<Finish, ModelFault>),
}

/// What a provider sent, as it sent it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Own {
    /// An event of its stream.
    Event { name: String, data: String },
    /// A whole answer, from a provider that does not stream.
    Whole(Value),
}

/// A piece of a tool call: id and name once, the arguments bit by bit.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct CallPart {
    /// Tells apart the calls of one answer.
    pub index: u64,
    pub id: Option<String>,
    pub name: Option<String>,
    pub args: String,
}

/// Why a model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    Stop,
    /// It wants its calls answered.
    Calls,
    Length,
    Refused,
    /// It wants what it said back, and goes on.
    Paused,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelFaultKind {
    Unreachable,
    Timeout,
    /// The provider's own error, or an answer that makes no sense.
    Error,
}

impl ModelFaultKind {
    /// The code of a run that ended by it.
    pub fn code(self) -> &'static str {
        match self {
            Self::Unreachable => "model_unreachable",
            Self::Timeout => "model_timeout",
            Self::Error => "model_error",
        }
    }
}

/// What went wrong, in the provider's words where it had some.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{message}")]
pub struct ModelFault {
    pub kind: ModelFaultKind,
    pub message: String,
    /// The status of the provider's answer, where there was one that was no success.
    pub status: Option<u16>,
    /// Seconds after which the provider would like to be asked again.
    pub retry_after: Option<u64>,
}

impl ModelFault {
    pub fn new(kind: ModelFaultKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), status: None, retry_after: None }
    }
}

/// An answer put together from its pieces.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Gathered {
    pub text: String,
    pub calls: Vec<Call>,
    /// The index of each call, and whether it has got its id.
    indexes: Vec<u64>,
    pub blocks: Vec<Value>,
    pub usage: Usage,
    pub details: UsageDetails,
    pub end: Option<Result<Finish, ModelFault>>,
}

impl Gathered {
    pub fn push(&mut self, event: &ModelEvent) {
        match event {
            ModelEvent::Text(text) => self.text.push_str(text),
            ModelEvent::Reasoning(_) | ModelEvent::Own(_) => {}
            ModelEvent::Call(part) => self.part(part),
            ModelEvent::Blocks(blocks) => self.blocks.clone_from(blocks),
            ModelEvent::Usage(usage) => self.usage = *usage,
            ModelEvent::Details(details) => self.details = *details,
            ModelEvent::End(end) => self.end = Some(end.clone()),
        }
    }

    fn part(&mut self, part: &CallPart) {
        let at = self.indexes.iter().position(|index| *index == part.index).unwrap_or_else(|| {
            self.indexes.push(part.index);
            self.calls.push(Call { id: String::new(), name: String::new(), args: String::new() });
            self.calls.len() - 1
        });
        let call = &mut self.calls[at];
        // Some servers repeat both with every piece.
        if let Some(id) = part.id.as_ref().filter(|_| call.id.is_empty()) {
            call.id.clone_from(id);
        }
        if let Some(name) = part.name.as_ref().filter(|_| call.name.is_empty()) {
            call.name.clone_from(name);
        }
        call.args.push_str(&part.args);
    }
}

/// Text that every store can keep.
pub fn keepable(text: &str) -> String {
    text.replace('\0', "\u{FFFD}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_calls_are_put_together_by_their_index() {
        let part = |index, id: Option<&str>, name: Option<&str>, args: &str| {
            ModelEvent::Call(CallPart {
                index,
                id: id.map(Into::into),
                name: name.map(Into::into),
                args: args.into(),
            })
        };
        let mut gathered = Gathered::default();
        for event in [
            ModelEvent::Text("I ".into()),
            part(0, Some("a"), Some("read"), "{\"n\""),
            part(3, Some("a"), Some("list"), ""),
            ModelEvent::Text("look.".into()),
            part(0, Some("again"), Some("again"), ":1}"),
        ] {
            gathered.push(&event);
        }
        assert_eq!(gathered.text, "I look.");
        let call =
            |id: &str, name: &str, args: &str| Call { id: id.into(), name: name.into(), args: args.into() };
        assert_eq!(gathered.calls, [call("a", "read", "{\"n\":1}"), call("a", "list", "")]);
        assert_eq!(gathered.end, None);
    }
}
