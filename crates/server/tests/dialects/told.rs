//! Reading the streams of other dialects: frames with an id and a name where they have one.

use std::time::Duration;

use reqwest::{RequestBuilder, Response};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
pub struct Frame {
    pub id: Option<i64>,
    pub event: Option<String>,
    /// `[DONE]` is null.
    pub data: Value,
}

impl Frame {
    fn parse(text: &str) -> Self {
        let mut frame = Self { id: None, event: None, data: Value::Null };
        for line in text.split('\n') {
            match line.split_once(": ").unwrap_or_else(|| panic!("a line of {text:?}")) {
                ("id", id) => frame.id = Some(id.parse().unwrap()),
                ("event", name) => frame.event = Some(name.to_owned()),
                ("data", "[DONE]") => {}
                ("data", data) => frame.data = serde_json::from_str(data).unwrap(),
                _ => panic!("a line of {text:?}"),
            }
        }
        frame
    }

    pub fn kind(&self) -> &str {
        self.data["type"].as_str().unwrap_or("[DONE]")
    }
}

/// A stream that is read as it comes.
pub struct Live {
    response: Response,
    bytes: Vec<u8>,
}

impl Live {
    pub async fn open(request: RequestBuilder) -> Self {
        let response = request.send().await.expect("an answer");
        assert_eq!(response.status(), 200, "a stream");
        Self { response, bytes: Vec::new() }
    }

    pub fn header(&self, name: &str) -> String {
        self.response.headers().get(name).map_or_else(String::new, |value| value.to_str().unwrap().to_owned())
    }

    pub fn run(&self) -> String {
        self.header("threadkeep-run")
    }

    pub async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(length) = self.bytes.windows(2).position(|pair| pair == b"\n\n") {
                let rest = self.bytes.split_off(length + 2);
                let text = String::from_utf8(std::mem::replace(&mut self.bytes, rest)).unwrap();
                if text.starts_with(':') {
                    continue;
                }
                return Some(Frame::parse(text.trim_end_matches('\n')));
            }
            let chunk = tokio::time::timeout(PATIENCE, self.response.chunk())
                .await
                .expect("a stream that is not stuck");
            self.bytes.extend_from_slice(&chunk.expect("a body that does not break off")?);
        }
    }

    /// Up to and including the first frame of this kind.
    pub async fn until(&mut self, kind: &str) -> Frame {
        while let Some(frame) = self.next().await {
            if frame.kind() == kind {
                return frame;
            }
        }
        panic!("the stream ended without {kind}");
    }

    pub async fn rest(mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            frames.push(frame);
        }
        frames
    }
}

pub fn kinds(frames: &[Frame]) -> Vec<&str> {
    frames.iter().map(Frame::kind).collect()
}

/// The texts of all frames of this kind, joined.
pub fn joined(frames: &[Frame], kind: &str, member: &str) -> String {
    frames
        .iter()
        .filter(|frame| frame.kind() == kind)
        .filter_map(|frame| frame.data[member].as_str())
        .collect()
}
