//! The dialects a run's events are written in, chosen by `?wire=` or `Accept`. Pure: an event's number, time,
//! name and data go in, bytes are added to `out`. A further dialect is a file of its own and a line in here.

mod anthropic;
mod envelope;
mod ndjson;
mod openai;
mod told;

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
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the wire {0:?} is not known: ask for envelope, ndjson, openai or anthropic")]
pub struct UnknownWire(pub String);

const SHOWN_CHARS: usize = 64;

impl Wire {
    pub const ALL: [Self; 4] = [Self::Envelope, Self::Ndjson, Self::OpenAi, Self::Anthropic];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Envelope => "envelope",
            Self::Ndjson => "ndjson",
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
        }
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Self::Envelope | Self::OpenAi | Self::Anthropic => "text/event-stream",
            Self::Ndjson => "application/x-ndjson",
        }
    }

    /// The value of `?wire=`.
    pub fn parse(name: &str) -> Result<Self, UnknownWire> {
        Self::ALL
            .into_iter()
            .find(|wire| wire.as_str() == name)
            .ok_or_else(|| UnknownWire(name.chars().take(SHOWN_CHARS).collect()))
    }

    /// `?wire=` decides; without it the type that `Accept` likes best, the earlier of equals; else `envelope`.
    pub fn choose(query: Option<&str>, accept: Option<&str>) -> Result<Self, UnknownWire> {
        match query {
            Some(name) => Self::parse(name),
            None => Ok(accept.and_then(Self::accepted).unwrap_or(Self::Envelope)),
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
        matches!(self, Self::OpenAi | Self::Anthropic)
    }

    /// What keeps an idle stream alive; empty where the dialect has nothing that readers skip.
    pub fn heartbeat(self) -> &'static str {
        match self {
            Self::Envelope | Self::OpenAi | Self::Anthropic => ": heartbeat\n\n",
            Self::Ndjson => "",
        }
    }
}

/// Adds what an execution's reader gets for an event: the sandbox's line as it came, and an end of ours where it sent
/// none. Everything else of ours is left out.
pub fn forward(ts: i64, kind: &str, data: &str, line: Option<&str>, out: &mut Vec<u8>) {
    match (line, kind) {
        (Some(line), _) => {
            out.extend_from_slice(line.as_bytes());
            out.push(b'\n');
        }
        (None, "result" | "error") => ndjson::render(ts, kind, data, out),
        (None, _) => {}
    }
}

/// Adds one event to `out`; not every dialect has a word for each. `kind` is the event's name, `data` its JSON
/// text as it stands in the log.
pub fn render(wire: Wire, seq: i64, ts: i64, kind: &str, data: &str, out: &mut Vec<u8>) {
    match wire {
        // Logs never reach the chat.
        _ if kind == "log" => {}
        Wire::Envelope => envelope::render(seq, kind, data, out),
        Wire::Ndjson => ndjson::render(ts, kind, data, out),
        // These look back; see `Renderer`.
        Wire::OpenAi | Wire::Anthropic => {}
    }
}

/// A run's events in one dialect, in order. One that looks back is given every event from the first on, and writes
/// those after the one that its reader has seen.
#[derive(Debug)]
pub struct Renderer {
    wire: Wire,
    after: i64,
    openai: openai::OpenAi,
    anthropic: anthropic::Anthropic,
    unseen: Vec<u8>,
}

impl Renderer {
    /// `after` is the last event that the reader has seen; 0 for none.
    pub fn after(wire: Wire, after: i64) -> Self {
        let (openai, anthropic) = Default::default();
        Self { wire, after, openai, anthropic, unseen: Vec::new() }
    }

    /// As `render`.
    pub fn push(&mut self, seq: i64, ts: i64, kind: &str, data: &str, out: &mut Vec<u8>) {
        self.unseen.clear();
        let out = if seq > self.after { out } else { &mut self.unseen };
        match self.wire {
            Wire::Envelope | Wire::Ndjson => render(self.wire, seq, ts, kind, data, out),
            Wire::OpenAi => self.openai.push(seq, ts, kind, data, out),
            Wire::Anthropic => self.anthropic.push(seq, kind, data, out),
        }
    }
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;

#[cfg(test)]
mod added_tests;
