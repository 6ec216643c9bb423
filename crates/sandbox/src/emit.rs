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

/// Nobody reads any more: the run is over.
#[derive(Debug)]
pub struct Closed;

#[derive(Clone)]
pub struct Emitter {
    lines: mpsc::Sender<Bytes>,
    clock: Arc<dyn Clock>,
    steps: Arc<AtomicU64>,
}

/// A step that has begun.
pub struct Step {
    id: String,
    name: String,
    began: Instant,
}

impl Emitter {
    pub fn new(lines: mpsc::Sender<Bytes>, clock: Arc<dyn Clock>) -> Self {
        Self { lines, clock, steps: Arc::default() }
    }

    async fn line(&self, mut line: Value) -> Result<(), Closed> {
        line["ts"] = json!(self.clock.now().as_millisecond());
        let mut bytes = line.to_string().into_bytes();
        bytes.push(b'\n');
        self.lines.send(bytes.into()).await.map_err(|_| Closed)
    }

    pub async fn log(&self, level: &str, message: &str) -> Result<(), Closed> {
        self.line(json!({ "type": "log", "level": level, "message": keepable(message) })).await
    }

    pub async fn delta(&self, text: &str) -> Result<(), Closed> {
        self.line(json!({ "type": "delta", "text": keepable(text) })).await
    }

    pub async fn result(&self, message: &str) -> Result<(), Closed> {
        self.line(json!({ "type": "result", "message": keepable(message) })).await
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

/// The same value, of a size and depth that fits a line.
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
