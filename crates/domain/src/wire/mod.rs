//! The dialects a run's events are written in, chosen by `?wire=` or `Accept`. Pure: an event's number, time,
//! name and data go in, bytes are added to `out`. A further dialect is a file of its own and a line in here.

mod ag_ui;
mod anthropic;
mod envelope;
mod ndjson;
mod openai;
mod pieces;
mod responses;
mod told;
mod ui_message;
mod ui_parts;

pub use anthropic::usage_of;
pub use responses::Responses;
use serde_json::Value;
pub use ui_message::file_url;
pub use ui_parts::ui_message;

use crate::run::Usage;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// Server-sent events.
    Envelope,
    /// The run's lines, as a sandbox sends them.
    Ndjson,
    /// For parsers of OpenAI's chat completions.
    OpenAi,
    /// For parsers of Anthropic's messages.
    Anthropic,
    /// For `useChat` of the Vercel AI SDK.
    UiMessage,
    /// For AG-UI clients.
    AgUi,
    /// OpenAI's Responses; told by its own API alone, and so not among `ALL`.
    Responses,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the wire {0:?} is not known: ask for envelope, ndjson, openai, anthropic, ui-message or ag-ui")]
pub struct UnknownWire(pub String);

const SHOWN_CHARS: usize = 64;

impl Wire {
    pub const ALL: [Self; 6] =
        [Self::Envelope, Self::Ndjson, Self::OpenAi, Self::Anthropic, Self::UiMessage, Self::AgUi];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Envelope => "envelope",
            Self::Ndjson => "ndjson",
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
            Self::UiMessage => "ui-message",
            Self::AgUi => "ag-ui",
            Self::Responses => "responses",
        }
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Self::Ndjson => "application/x-ndjson",
            _ => "text/event-stream",
        }
    }

    /// The value of `?wire=`.
    pub fn parse(name: &str) -> Result<Self, UnknownWire> {
        Self::ALL
            .into_iter()
            .find(|wire| wire.as_str() == name)
            .ok_or_else(|| UnknownWire(name.chars().take(SHOWN_CHARS).collect()))
    }

    /// `?wire=` decides; without it the type that `Accept` likes best, the earlier of equals; else the `usual` one.
    pub fn choose(query: Option<&str>, accept: Option<&str>, usual: Self) -> Result<Self, UnknownWire> {
        match query {
            Some(name) => Self::parse(name),
            None => Ok(accept.and_then(Self::accepted).unwrap_or(usual)),
        }
    }

    fn accepted(accept: &str) -> Option<Self> {
        let mut best: Option<(f32, Self)> = None;
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            let Some(wire) =
                Self::ALL.into_iter().find(|wire| wire.content_type().eq_ignore_ascii_case(media))
            else {
                continue;
            };
            let quality = parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")));
            let quality = quality.map_or(1.0, |q| q.parse::<f32>().unwrap_or(0.0));
            if quality > best.map_or(0.0, |(most, _)| most) {
                best = Some((quality, wire));
            }
        }
        best.map(|(_, wire)| wire)
    }

    /// Whether what is written of an event depends on those before it: such a run is read from its start.
    pub fn looks_back(self) -> bool {
        !matches!(self, Self::Envelope | Self::Ndjson)
    }

    /// What keeps an idle stream alive; empty where the dialect has nothing that readers skip.
    pub fn heartbeat(self) -> &'static str {
        match self {
            Self::Ndjson => "",
            _ => ": heartbeat\n\n",
        }
    }
}

/// Adds what an execution's reader gets for an event: the sandbox's line as it came, an end of ours where it sent
/// none, and what a model says, which no sandbox says for it. Everything else of ours is left out.
pub fn forward(ts: i64, kind: &str, data: &str, line: Option<&str>, out: &mut Vec<u8>) {
    match (line, kind) {
        (Some(line), _) => {
            out.extend_from_slice(line.as_bytes());
            out.push(b'\n');
        }
        (
            None,
            "result" | "error" | "delta" | "reasoning" | "tool_calls" | "tool_result" | "approval"
            | "sources",
        ) => ndjson::render(ts, kind, data, out),
        (None, _) => {}
    }
}

/// Adds one event to `out`; not every dialect has a word for each. `kind` is the event's name, `data` its JSON
/// text as it stands in the log.
pub fn render(wire: Wire, seq: i64, ts: i64, kind: &str, data: &str, out: &mut Vec<u8>) {
    match wire {
        // Logs are events of executions alone, whose lines `forward` writes; every number has its frame.
        Wire::Ndjson if kind == "log" => {}
        Wire::Envelope => envelope::render(seq, kind, data, out),
        Wire::Ndjson => ndjson::render(ts, kind, data, out),
        // The others look back; see `Renderer`.
        _ => {}
    }
}

/// A run's events in one dialect, in order. One that looks back is given every event from the first on, and writes
/// those after the one that its reader has seen.
#[derive(Debug)]
pub struct Renderer {
    wire: Wire,
    after: i64,
    voice: Voice,
    unseen: Vec<u8>,
}

/// What a dialect remembers of a run.
#[derive(Debug)]
enum Voice {
    Plain,
    OpenAi(openai::OpenAi),
    Anthropic(anthropic::Anthropic),
    UiMessage(ui_message::UiMessage),
    AgUi(ag_ui::AgUi),
    /// With the number of the last frame that the reader has.
    Responses(Box<Responses>, i64),
}

impl Renderer {
    /// `after` is the last event that the reader has seen; 0 for none.
    pub fn after(wire: Wire, after: i64) -> Self {
        let voice = match wire {
            Wire::Envelope | Wire::Ndjson => Voice::Plain,
            Wire::OpenAi => Voice::OpenAi(Default::default()),
            Wire::Anthropic => Voice::Anthropic(Default::default()),
            Wire::UiMessage => Voice::UiMessage(Default::default()),
            Wire::AgUi => Voice::AgUi(Default::default()),
            Wire::Responses => Voice::Responses(Box::default(), -1),
        };
        Self { wire, after, voice, unseen: Vec::new() }
    }

    /// `after` is the last frame that the reader has; -1 for none. All of the run's events are pushed.
    pub fn responses(voice: Responses, after: i64) -> Self {
        let voice = Voice::Responses(Box::new(voice), after);
        Self { wire: Wire::Responses, after: 0, voice, unseen: Vec::new() }
    }

    /// The reader has these events, too: by whichever number it counts.
    #[must_use]
    pub fn since(self, after: i64) -> Self {
        Self { after, ..self }
    }

    /// What the run has cost, for a dialect that says so at an end.
    pub fn know(&mut self, usage: Usage) {
        if let Voice::Responses(voice, _) = &mut self.voice {
            voice.know(usage);
        }
    }

    /// Where this server is, for a dialect that names files by whole URLs.
    #[must_use]
    pub fn at(mut self, base: &str) -> Self {
        match &mut self.voice {
            Voice::UiMessage(voice) => base.clone_into(&mut voice.base),
            Voice::AgUi(voice) => base.clone_into(&mut voice.base),
            _ => {}
        }
        self
    }

    /// What an AG-UI client calls the thread and the run.
    #[must_use]
    pub fn named(mut self, thread: &str, run: Option<&str>) -> Self {
        if let Voice::AgUi(voice) = &mut self.voice {
            voice.thread = Some(thread.to_owned());
            voice.name = run.map(str::to_owned);
        }
        self
    }

    pub fn wire(&self) -> Wire {
        self.wire
    }

    /// As `render`.
    pub fn push(&mut self, seq: i64, ts: i64, kind: &str, data: &str, out: &mut Vec<u8>) {
        self.unseen.clear();
        let out = if seq > self.after { out } else { &mut self.unseen };
        match &mut self.voice {
            Voice::Plain => render(self.wire, seq, ts, kind, data, out),
            Voice::OpenAi(voice) => voice.push(seq, ts, kind, data, out),
            Voice::Anthropic(voice) => voice.push(seq, kind, data, out),
            Voice::UiMessage(voice) => voice.push(seq, kind, data, out),
            Voice::AgUi(voice) => voice.push(seq, kind, data, out),
            Voice::Responses(voice, after) => voice.push(seq, ts, kind, data, *after, out),
        }
    }

    /// The approvals that what was pushed asks for and that have not come yet, each with its call; none as long as
    /// anything else of the run goes on.
    pub fn resting(&self) -> &[(String, String)] {
        match &self.voice {
            Voice::UiMessage(voice) => voice.resting(),
            Voice::AgUi(voice) => voice.resting(),
            Voice::Responses(voice, _) => voice.resting(),
            _ => &[],
        }
    }

    /// The run waits for a person: ends the stream the way the dialect asks one.
    pub fn pause(&mut self, out: &mut Vec<u8>) {
        match &mut self.voice {
            Voice::UiMessage(voice) => voice.pause(out),
            Voice::AgUi(voice) => voice.pause(out),
            Voice::Responses(voice, after) => voice.pause(*after, out),
            _ => {}
        }
    }

    /// Begins once more for a reader that has what came before, after a pause. All of that has been pushed.
    pub fn begin_again(&mut self, out: &mut Vec<u8>) {
        match &mut self.voice {
            Voice::UiMessage(voice) => voice.begin_again(out),
            Voice::AgUi(voice) => voice.begin_again(out),
            _ => {}
        }
    }

    /// Begins for an AG-UI client that joins in, with all messages of the thread. What came before has been pushed.
    pub fn join(&mut self, messages: &[Value], out: &mut Vec<u8>) {
        if let Voice::AgUi(voice) = &mut self.voice {
            voice.join((self.after > 0).then_some(self.after), messages, out);
        }
    }
}

/// The messages that an AG-UI client has after these events of one run, put behind those before.
pub fn ag_ui_messages<'a>(
    base: &str,
    events: impl IntoIterator<Item = (&'a str, &'a str)>,
    messages: &mut Vec<Value>,
) {
    let mut voice = ag_ui::AgUi::default();
    voice.snapshot = true;
    base.clone_into(&mut voice.base);
    for (kind, data) in events {
        ag_ui::apply(&voice.events(kind, data), messages);
    }
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;

#[cfg(test)]
mod added_tests;

#[cfg(test)]
mod golden_tests;
