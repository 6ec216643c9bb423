//! The lines of a run, as they go out. Whatever the model or a program says, a line that leaves here is one that the
//! strict reader on the other side accepts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use domain::model::keepable;
use domain::time::Clock;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

/// How much of one text of a step's arguments is shown.
const SHOWN_CHARS: usize = 4000;
const SHOWN_DEPTH: usize = 16;
/// What of a line is not its text.
const FRAME_BYTES: usize = 128;
/// A character takes no more in JSON.
const CHAR_BYTES: usize = 6;

/// Nobody reads any more: the run is over.
#[derive(Debug)]
pub struct Closed;

#[derive(Clone)]
pub struct Emitter {
    lines: mpsc::Sender<Bytes>,
    clock: Arc<dyn Clock>,
    /// What the other side takes as a line, at most.
    line_bytes: usize,
    steps: Arc<AtomicU64>,
}

/// A step that has begun.
pub struct Step {
    id: String,
    name: String,
    began: Instant,
}

impl Emitter {
    pub fn new(lines: mpsc::Sender<Bytes>, clock: Arc<dyn Clock>, line_bytes: u64) -> Self {
        let line_bytes = usize::try_from(line_bytes).unwrap_or(usize::MAX);
        Self { lines, clock, line_bytes, steps: Arc::default() }
    }

    async fn line(&self, mut line: Value) -> Result<(), Closed> {
        line["ts"] = json!(self.clock.now().as_millisecond());
        let mut text = line.to_string();
        let mut chars = SHOWN_CHARS;
        // A line over the limit would end the run: less and less of it is shown until it fits.
        while text.len() > self.line_bytes && chars > 0 {
            shorten(&mut line, chars);
            text = line.to_string();
            chars /= 4;
        }
        let mut bytes = text.into_bytes();
        bytes.push(b'\n');
        self.lines.send(bytes.into()).await.map_err(|_| Closed)
    }

    pub async fn log(&self, level: &str, message: &str) -> Result<(), Closed> {
        self.line(json!({ "type": "log", "level": level, "message": keepable(message) })).await
    }

    /// In as many lines as it takes.
    pub async fn delta(&self, text: &str) -> Result<(), Closed> {
        let text = keepable(text);
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let end = rest.char_indices().nth(self.line_chars()).map_or(rest.len(), |(end, _)| end);
            let (piece, after) = rest.split_at(end);
            self.line(json!({ "type": "delta", "text": piece })).await?;
            rest = after;
        }
        Ok(())
    }

    /// The answer. One that is too long for a line is empty if it was `told` as deltas, which stand then; else it is cut.
    pub async fn result(&self, message: &str, told: bool) -> Result<(), Closed> {
        let mut message = keepable(message);
        if json!(message).to_string().len() + FRAME_BYTES > self.line_bytes {
            message = if told { String::new() } else { cut(&message, self.line_chars()) };
        }
        self.line(json!({ "type": "result", "message": message })).await
    }

    /// As many characters fit a line, whichever they are.
    fn line_chars(&self) -> usize {
        (self.line_bytes.saturating_sub(FRAME_BYTES) / CHAR_BYTES).max(1)
    }

    pub async fn error(&self, code: &str, message: &str) -> Result<(), Closed> {
        self.line(json!({ "type": "error", "code": code, "message": keepable(message) })).await
    }

    /// A step begins.
    pub async fn begin(&self, name: &str, args: Value) -> Result<Step, Closed> {
        let id = format!("s{}", self.steps.fetch_add(1, Ordering::Relaxed) + 1);
        let step = Step { id, name: keepable(name), began: Instant::now() };
        let mut line = json!({ "type": "step", "id": step.id, "name": step.name, "status": "running" });
        if !args.is_null() {
            line["args"] = shown(args, 0);
        }
        self.line(line).await?;
        Ok(step)
    }

    pub async fn succeed(&self, step: Step, result: Value) -> Result<(), Closed> {
        self.end(step, "succeeded", result, None).await
    }

    pub async fn fail(&self, step: Step, error: &str, result: Value) -> Result<(), Closed> {
        self.end(step, "failed", result, Some(error)).await
    }

    async fn end(&self, step: Step, status: &str, result: Value, error: Option<&str>) -> Result<(), Closed> {
        let took = u64::try_from(step.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut line =
            json!({ "type": "step", "id": step.id, "name": step.name, "status": status, "durationMs": took });
        if !result.is_null() {
            line["result"] = shown(result, 0);
        }
        if let Some(error) = error {
            line["error"] = json!(keepable(error));
        }
        self.line(line).await
    }
}

/// What of a line can be shown in part, at most so many characters of each.
fn shorten(line: &mut Value, chars: usize) {
    for field in ["args", "result", "error", "message", "name"] {
        let Some(value) = line.get_mut(field) else { continue };
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        if text.chars().count() > chars {
            *value = json!(cut(&text, chars));
        }
    }
}

/// The same value, each of its texts of a size that can be shown, and of a depth that is taken.
fn shown(value: Value, depth: usize) -> Value {
    match value {
        Value::String(text) => json!(cut(&keepable(&text), SHOWN_CHARS)),
        value @ (Value::Array(_) | Value::Object(_)) if depth == SHOWN_DEPTH => {
            json!(cut(&value.to_string(), SHOWN_CHARS))
        }
        Value::Array(items) => items.into_iter().take(1000).map(|item| shown(item, depth + 1)).collect(),
        Value::Object(fields) => Value::Object(
            fields
                .into_iter()
                .take(1000)
                .map(|(name, value)| (keepable(&name), shown(value, depth + 1)))
                .collect::<Map<_, _>>(),
        ),
        value => value,
    }
}

/// At most so many characters, the mark for the cut included.
pub fn cut(text: &str, chars: usize) -> String {
    let count = text.chars().count();
    if count <= chars {
        return text.to_owned();
    }
    let mark = format!("\n[… cut: {count} characters in all]");
    let kept = chars.saturating_sub(mark.chars().count());
    text.chars().take(kept).chain(mark.chars()).collect()
}
