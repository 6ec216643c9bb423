//! Reading an `envelope` stream: frames by the letter of their format, as they arrive or all at once.

use std::time::Duration;

use domain::entry::decode_event;
use domain::event::RunEvent;
use domain::fold::fold;
use reqwest::Response;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// Longer than anything here takes: a stream that goes on past it is stuck.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    pub id: i64,
    pub event: String,
    /// As it was sent.
    pub raw: String,
    pub data: Value,
}

impl Frame {
    /// The only shape there is: id, event, data, a blank line.
    fn parse(text: &str) -> Self {
        let lines: Vec<&str> = text.split('\n').collect();
        let [id, event, data] = lines[..] else { panic!("a frame has three lines: {text:?}") };
        let raw = data.strip_prefix("data: ").expect("data").to_owned();
        Self {
            id: id.strip_prefix("id: ").expect("an id").parse().expect("a number"),
            event: event.strip_prefix("event: ").expect("a name").to_owned(),
            data: serde_json::from_str(&raw).expect("data is JSON"),
            raw,
        }
    }
}

/// The whole frames of a text, and how many bytes they are. What comes after the last blank line is not whole.
pub fn frames(text: &[u8]) -> (Vec<Frame>, usize) {
    let (mut found, mut from) = (Vec::new(), 0);
    while let Some(length) = text[from..].windows(2).position(|pair| pair == b"\n\n") {
        let frame = std::str::from_utf8(&text[from..from + length]).expect("UTF-8");
        if !frame.starts_with(':') {
            found.push(Frame::parse(frame));
        }
        from += length + 2;
    }
    (found, from)
}

/// A stream that is read as it comes.
pub struct Stream {
    response: Response,
    pub bytes: Vec<u8>,
    taken: usize,
}

impl Stream {
    pub fn new(response: Response) -> Self {
        assert_eq!(response.status(), 200, "a stream");
        Self { response, bytes: Vec::new(), taken: 0 }
    }

    pub fn header(&self, name: &str) -> String {
        self.response.headers().get(name).map_or_else(String::new, |value| value.to_str().unwrap().to_owned())
    }

    pub fn run(&self) -> String {
        self.header("threadkeep-run")
    }

    pub fn conversation(&self) -> String {
        self.header("threadkeep-conversation")
    }

    pub fn message(&self) -> String {
        self.header("threadkeep-message")
    }

    /// More bytes; false at the end.
    pub async fn read(&mut self) -> bool {
        let chunk = tokio::time::timeout(PATIENCE, self.response.chunk()).await.expect("the stream is stuck");
        match chunk.expect("a body that does not break off") {
            Some(chunk) => {
                self.bytes.extend_from_slice(&chunk);
                true
            }
            None => false,
        }
    }

    /// The next frame; none after the last.
    pub async fn next(&mut self) -> Option<Frame> {
        loop {
            let rest = &self.bytes[self.taken..];
            if let Some(length) = rest.windows(2).position(|pair| pair == b"\n\n") {
                let text = std::str::from_utf8(&rest[..length]).expect("UTF-8").to_owned();
                self.taken += length + 2;
                if text.starts_with(':') {
                    continue;
                }
                return Some(Frame::parse(&text));
            }
            if !self.read().await {
                assert_eq!(self.taken, self.bytes.len(), "the stream ends with a whole frame");
                return None;
            }
        }
    }

    /// Reads up to and including the first event of this name.
    pub async fn until(&mut self, event: &str) -> Frame {
        while let Some(frame) = self.next().await {
            if frame.event == event {
                return frame;
            }
        }
        panic!("the stream ended without {event}: {}", String::from_utf8_lossy(&self.bytes));
    }

    /// Everything to the end, from the first byte on.
    pub async fn rest(mut self) -> Told {
        while self.read().await {}
        Told::new(self.bytes)
    }
}

/// A whole stream, held to what holds for every one: numbered without gaps, `turn` first and `done` last, exactly
/// one `result` or `error`, right before `done`.
#[derive(Debug, Clone)]
pub struct Told {
    pub bytes: Vec<u8>,
    pub frames: Vec<Frame>,
}

impl Told {
    pub fn new(bytes: Vec<u8>) -> Self {
        let (frames, whole) = frames(&bytes);
        let text = || String::from_utf8_lossy(&bytes).into_owned();
        assert_eq!(whole, bytes.len(), "whole frames: {}", text());
        let names: Vec<&str> = frames.iter().map(|frame| frame.event.as_str()).collect();
        assert!(frames.iter().zip(1..).all(|(frame, n)| frame.id == n), "numbered from 1: {}", text());
        assert_eq!((names.first(), names.last()), (Some(&"turn"), Some(&"done")), "{}", text());
        let terminal = names.iter().filter(|name| matches!(**name, "result" | "error")).count();
        assert_eq!(terminal, 1, "{}", text());
        assert!(matches!(names[names.len() - 2], "result" | "error"), "{}", text());
        Self { bytes, frames }
    }

    pub fn names(&self) -> Vec<&str> {
        self.frames.iter().map(|frame| frame.event.as_str()).collect()
    }

    pub fn run(&self) -> String {
        self.frames[0].data["run"].as_str().unwrap().to_owned()
    }

    pub fn conversation(&self) -> String {
        self.frames[0].data["conversation"].as_str().unwrap().to_owned()
    }

    pub fn message(&self) -> String {
        self.frames[0].data["message"].as_str().unwrap().to_owned()
    }

    /// The `result` or the `error`.
    pub fn terminal(&self) -> &Frame {
        &self.frames[self.frames.len() - 2]
    }

    pub fn status(&self) -> &str {
        self.frames.last().unwrap().data["status"].as_str().unwrap()
    }

    /// The assistant's blocks in the terminal event, as JSON text.
    pub fn assistant_content(&self) -> String {
        #[derive(Deserialize)]
        struct Terminal<'a> {
            #[serde(borrow)]
            assistant: Assistant<'a>,
        }
        #[derive(Deserialize)]
        struct Assistant<'a> {
            #[serde(borrow)]
            content: &'a RawValue,
        }
        let terminal: Terminal<'_> =
            serde_json::from_str(&self.terminal().raw).expect("an assistant message");
        terminal.assistant.content.get().to_owned()
    }

    /// The fold of the streamed events, as JSON text: what a client makes of them alone.
    pub fn folded(&self) -> String {
        let events = self.frames.iter().map(|frame| {
            let event = decode_event(&frame.event, &frame.raw).expect("an event");
            let ts =
                if let RunEvent::Step(step) = &event { step.ts.expect("a step has its time") } else { 0 };
            (ts, event)
        });
        serde_json::to_string(&fold(events)).unwrap()
    }
}
