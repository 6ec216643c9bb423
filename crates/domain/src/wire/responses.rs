//! OpenAI's Responses: what a run puts out, item by item, as its events or as the whole object. Not a wire to ask for
//! by name: a response repeats what its request said, which only its own API knows.

use serde_json::{Value, json};

use super::openai::frame;
use super::pieces::{Ended, Piece, Pieces};
use super::told::Short;
use crate::run::{Usage, UsageDetails};

/// A call as it is told.
#[derive(Debug)]
struct Told {
    id: String,
    /// Its number in the run.
    n: usize,
    /// The client makes it.
    client: bool,
}

#[derive(Debug, Default)]
pub struct Responses {
    pieces: Pieces,
    /// The response as its request made it.
    base: Value,
    run: String,
    conversation: Option<String>,
    output: Vec<Value>,
    /// Where the open item stands in the output.
    open: Option<usize>,
    /// Which of its parts is told: the second takes the place of the first.
    part: usize,
    calls: Vec<Told>,
    /// Sources and files that the next text names.
    notes: Vec<Value>,
    /// Frames so far: the number of the next.
    sequence: i64,
    status: &'static str,
    /// The answer breaks off here: what ends now is not complete.
    broken: bool,
    error: Option<Value>,
    /// When the newest event was.
    ts: i64,
    ended: Option<i64>,
    usage: Option<Usage>,
    /// Up to this event only what still waits for people is told.
    from: i64,
    /// Approvals that are decided: they are asked for no more.
    decided: Vec<String>,
    /// Calls that still wait for the client.
    unmade: Vec<String>,
    /// Messages so far.
    messages: usize,
}

impl Responses {
    /// `base` holds what the object says before anything has happened: `id`, `created_at`, `model`, and what its
    /// request said.
    pub fn new(base: Value) -> Self {
        Self { base, status: "queued", pieces: Pieces::of_its_own(), ..Self::default() }
    }

    /// Tells what comes after an event, and of what came before only what still waits: for people, and, named by their
    /// calls, for the client.
    #[must_use]
    pub fn going_on(self, from: i64, decided: Vec<String>, unmade: Vec<String>) -> Self {
        Self { from, decided, unmade, ..self }
    }

    /// What the run has cost; known at its end.
    pub fn know(&mut self, usage: Usage) {
        self.usage = Some(usage);
    }

    /// Adds the frames of an event, those after frame number `after`.
    #[expect(
        clippy::too_many_arguments,
        reason = "an event has four parts; then from where on, and where to"
    )]
    pub fn push(&mut self, seq: i64, ts: i64, kind: &str, data: &str, after: i64, out: &mut Vec<u8>) {
        self.ts = ts;
        let mut events = Vec::new();
        let mut pieces = self.pieces.read(kind, data);
        self.broken |= kind == "error" || self.pieces.short() != Short::No;
        // A result that does not go on from the text before it takes its place.
        if kind == "result" && matches!(pieces[..], [Piece::TextEnd(_), Piece::TextStart(_), ..]) {
            pieces.drain(..2);
            self.text_again(&mut events);
        }
        let mut told = Vec::new();
        for piece in pieces {
            self.event(ts, piece, &mut events);
            told.extend(events.drain(..).map(|event| (self.is_told(seq, &event), event)));
            // An open item is told until it is done: the next event that is none of its own ends it.
            if self.from > 0 && self.open.is_none() {
                let output = std::mem::take(&mut self.output);
                self.output = output.into_iter().filter(|item| self.is_kept(seq, item)).collect();
            }
        }
        let last = told.len().saturating_sub(1);
        for (at, (is_told, mut event)) in told.into_iter().enumerate() {
            event["sequence_number"] = json!(self.sequence);
            if self.sequence > after && is_told {
                let name = event["type"].as_str().map(str::to_owned);
                frame(name.as_deref(), (at == last).then_some(seq), &event.to_string(), out);
            }
            self.sequence += 1;
        }
        if !self.resting().is_empty() {
            // For the frame that ends the stream here, should it pause: whoever goes on after it misses nothing.
            self.sequence += 1;
        }
    }

    /// Whether a frame is for a reader that has what came before its decisions.
    fn is_told(&self, seq: i64, event: &Value) -> bool {
        match &event["item"] {
            Value::Null if seq > self.from || !event["response"].is_null() => true,
            // What an item that is told is given is told with it.
            Value::Null => {
                let of = |item: &&Value| !event["item_id"].is_null() && item["id"] == event["item_id"];
                self.output.iter().find(of).is_some_and(|item| self.is_unmade(item))
            }
            item => self.is_kept(seq, item),
        }
    }

    fn is_kept(&self, seq: i64, item: &Value) -> bool {
        if item["type"] == "mcp_approval_request" {
            return !self.decided.iter().any(|id| item["id"] == id.as_str());
        }
        seq > self.from || self.is_unmade(item)
    }

    fn is_unmade(&self, item: &Value) -> bool {
        item["type"] == "function_call" && self.unmade.iter().any(|call| item["call_id"] == call.as_str())
    }

    /// Whether calls of this name are the client's to make.
    fn is_brought(&self, name: &Value) -> bool {
        let tools = self.base["tools"].as_array().into_iter().flatten();
        tools.into_iter().any(|tool| tool["type"] == "function" && tool["name"] == *name)
    }

    /// What waits for people and for the client, each with its call.
    pub fn waiting(&self) -> &[(String, String)] {
        self.pieces.waiting()
    }

    /// As `waiting`, once nothing else of the run goes on.
    pub fn resting(&self) -> &[(String, String)] {
        self.pieces.resting()
    }

    /// Ends the response for now: it holds what people are asked, and a request that goes on from it brings what they
    /// decided. The frame is of this stream alone; its number is no other's.
    pub fn pause(&mut self, after: i64, out: &mut Vec<u8>) {
        (self.status, self.ended) = ("completed", Some(self.ts / 1000));
        let (mut event, number) = (self.lifecycle("response.completed"), self.sequence - 1);
        event["sequence_number"] = json!(number);
        if number > after {
            frame(Some("response.completed"), None, &event.to_string(), out);
        }
    }

    /// The response as it stands.
    pub fn whole(&self) -> Value {
        let mut response = self.base.clone();
        response["status"] = json!(self.status);
        response["output"] = json!(self.output);
        if self.status == "incomplete" {
            let refused = self.pieces.short() == Short::Refused;
            let reason = if refused { "content_filter" } else { "max_output_tokens" };
            response["incomplete_details"] = json!({ "reason": reason });
        }
        response["error"] = self.error.clone().unwrap_or(Value::Null);
        response["completed_at"] = json!(self.ended.filter(|_| self.status == "completed"));
        let UsageDetails { cached_tokens, cache_write_tokens, reasoning_tokens } = self.pieces.details();
        response["usage"] = match self.usage {
            Some(Usage { input_tokens, output_tokens }) => json!({
                "input_tokens": input_tokens,
                "input_tokens_details": { "cached_tokens": cached_tokens, "cache_write_tokens": cache_write_tokens },
                "output_tokens": output_tokens,
                "output_tokens_details": { "reasoning_tokens": reasoning_tokens },
                "total_tokens": input_tokens + output_tokens }),
            None => Value::Null,
        };
        response
    }

    fn lifecycle(&self, kind: &str) -> Value {
        json!({ "type": kind, "response": self.whole() })
    }

    fn id(&self, kind: &str, n: usize) -> String {
        let run = self.run.replace('-', "");
        if kind == "msg" && n == 1 { format!("msg_{run}") } else { format!("{kind}_{run}_{n}") }
    }

    fn event(&mut self, ts: i64, piece: Piece, out: &mut Vec<Value>) {
        match piece {
            Piece::Begin { run, conversation } => {
                (self.run, self.conversation) = (run, conversation);
                self.status = "in_progress";
                out.push(self.lifecycle("response.created"));
                out.push(self.lifecycle("response.in_progress"));
            }
            Piece::TextStart(n) => self.text_start(n, out),
            Piece::Text(_, text) => self.text("response.output_text.delta", text, out),
            Piece::TextEnd(_) => self.text_end(out),
            Piece::ThoughtStart(n) => {
                let item = json!({ "type": "reasoning", "id": self.id("rs", n), "summary": [], "content": [],
                    "status": "in_progress" });
                self.open = Some(self.add(item, out));
                self.part("added", &json!({ "type": "reasoning_text", "text": "" }), out);
            }
            Piece::Thought(_, text) => self.text("response.reasoning_text.delta", text, out),
            Piece::ThoughtEnd(_) => self.close("response.reasoning_text.done", out),
            Piece::Call { id, round, name, args } => {
                self.call(id, &name, args.map(|args| arguments(&args, round)), out);
            }
            Piece::Args { id, args, again: true, .. } => self.given_again(&id, args.as_ref()),
            Piece::Args { id, args, .. } => {
                self.given(&id, &args.unwrap_or_else(|| json!({})).to_string(), out)
            }
            Piece::Ended(ended) if ended.again => self.ended_again(&ended),
            Piece::Ended(ended) => self.ended(&ended, out),
            // The call itself is what the client is asked.
            Piece::Approval { client: true, .. } => {}
            Piece::Approval { id, name, args, .. } => {
                let item = json!({ "type": "mcp_approval_request", "id": id, "name": name,
                    "arguments": args.to_string(), "server_label": "threadkeep" });
                let at = self.add(item, out);
                self.done(at, out);
            }
            Piece::Sources(sources) => self.notes.extend(sources.iter().map(citation)),
            Piece::File(file) => self.notes.push(json!({ "type": "container_file_citation",
                "container_id": self.conversation, "file_id": file["fileId"], "filename": file["name"] })),
            Piece::Failure { code, message } => {
                self.error = Some(json!({ "code": code, "message": message }));
            }
            Piece::Done(status) => self.over(ts, &status, out),
        }
    }

    fn over(&mut self, ts: i64, status: &str, out: &mut Vec<Value>) {
        if !self.notes.is_empty() {
            // Nothing was said after them: they still belong to the answer.
            self.text_start(self.messages + 1, out);
            self.text_end(out);
        }
        self.ended = Some(ts / 1000);
        let (status, kind) = match status {
            "succeeded" if self.pieces.short() != Short::No => ("incomplete", "response.incomplete"),
            "succeeded" => ("completed", "response.completed"),
            "cancelled" => ("cancelled", "response.failed"),
            _ => ("failed", "response.failed"),
        };
        self.status = status;
        out.push(self.lifecycle(kind));
    }

    /// Puts an item at the end of the output.
    fn add(&mut self, item: Value, out: &mut Vec<Value>) -> usize {
        let at = self.output.len();
        out.push(json!({ "type": "response.output_item.added", "output_index": at, "item": item }));
        self.output.push(item);
        at
    }

    fn done(&mut self, at: usize, out: &mut Vec<Value>) {
        let item = &mut self.output[at];
        if !item["status"].is_null() {
            item["status"] = json!(if self.broken { "incomplete" } else { "completed" });
        }
        out.push(json!({ "type": "response.output_item.done", "output_index": at, "item": item }));
    }

    /// An event about the newest part of the open item.
    fn about(&self, kind: &str) -> Option<Value> {
        let at = self.open?;
        let (item, part) = (&self.output[at]["id"], self.part);
        Some(json!({ "type": kind, "item_id": item, "output_index": at, "content_index": part }))
    }

    fn part(&mut self, what: &str, part: &Value, out: &mut Vec<Value>) {
        let Some(mut event) = self.about(&format!("response.content_part.{what}")) else { return };
        event["part"] = part.clone();
        out.push(event);
        if let Some(at) = self.open {
            self.output[at]["content"] = json!([part]);
        }
    }

    fn text_start(&mut self, n: usize, out: &mut Vec<Value>) {
        self.messages = n;
        let item = json!({ "type": "message", "id": self.id("msg", n), "role": "assistant", "content": [],
            "status": "in_progress" });
        self.open = Some(self.add(item, out));
        self.part("added", &text_part(&json!([])), out);
        for (index, note) in std::mem::take(&mut self.notes).into_iter().enumerate() {
            let Some(mut event) = self.about("response.output_text.annotation.added") else { return };
            event["annotation_index"] = json!(index);
            event["annotation"] = note.clone();
            out.push(event);
            if let Some(list) = self.open_part().and_then(|part| part["annotations"].as_array_mut()) {
                list.push(note);
            }
        }
    }

    fn open_part(&mut self) -> Option<&mut Value> {
        self.output.get_mut(self.open?)?["content"].get_mut(0)
    }

    fn text(&mut self, kind: &str, text: String, out: &mut Vec<Value>) {
        if let Some(Value::String(so_far)) = self.open_part().and_then(|part| part.get_mut("text")) {
            so_far.push_str(&text);
        }
        let Some(mut event) = self.about(kind) else { return };
        if kind == "response.output_text.delta" {
            event["logprobs"] = json!([]);
        }
        event["delta"] = json!(text);
        out.push(event);
    }

    /// What was told of the open item stays told; another part of it begins, and is all that the item has in the end.
    fn text_again(&mut self, out: &mut Vec<Value>) {
        self.part_end("response.output_text.done", out);
        let notes = self.open_part().map(|part| part["annotations"].take()).unwrap_or_default();
        self.part += 1;
        self.part("added", &text_part(&notes), out);
    }

    fn text_end(&mut self, out: &mut Vec<Value>) {
        self.close("response.output_text.done", out);
    }

    fn close(&mut self, kind: &str, out: &mut Vec<Value>) {
        self.part_end(kind, out);
        self.part = 0;
        if let Some(at) = self.open.take() {
            self.done(at, out);
        }
    }

    fn part_end(&mut self, kind: &str, out: &mut Vec<Value>) {
        let part = self.open_part().cloned().unwrap_or_default();
        let Some(mut event) = self.about(kind) else { return };
        event["text"] = part["text"].clone();
        if kind == "response.output_text.done" {
            event["logprobs"] = json!([]);
        }
        out.push(event);
        self.part("done", &part, out);
    }

    /// Its item is done once what it is given is known.
    fn call(&mut self, id: String, name: &str, args: Option<String>, out: &mut Vec<Value>) {
        let n = self.calls.len() + 1;
        let item = json!({ "type": "function_call", "id": self.id("fc", n), "call_id": id, "name": name,
            "arguments": "", "status": "in_progress" });
        self.add(item, out);
        if let Some(args) = args {
            self.given(&id, &args, out);
        }
        let client = self.is_brought(&json!(name));
        self.calls.push(Told { id, n, client });
    }

    fn place(&self, call: &str) -> Option<usize> {
        self.output.iter().rposition(|item| item["type"] == "function_call" && item["call_id"] == call)
    }

    fn given(&mut self, call: &str, args: &str, out: &mut Vec<Value>) {
        let Some(at) = self.place(call) else { return };
        let (item_id, name) = (self.output[at]["id"].clone(), self.output[at]["name"].clone());
        self.output[at]["arguments"] = json!(args);
        out.push(
            json!({ "type": "response.function_call_arguments.delta", "item_id": item_id, "output_index": at,
            "delta": args }),
        );
        out.push(
            json!({ "type": "response.function_call_arguments.done", "item_id": item_id, "output_index": at,
            "name": name, "arguments": args }),
        );
        self.done(at, out);
    }

    /// As `ended_again`.
    fn given_again(&mut self, call: &str, args: Option<&Value>) {
        if let (Some(at), Some(args)) = (self.place(call), args) {
            self.output[at]["arguments"] = json!(args.to_string());
        }
    }

    fn ended(&mut self, ended: &Ended, out: &mut Vec<Value>) {
        let call = self.calls.iter().find(|call| call.id == ended.id);
        if call.is_some_and(|call| call.client) {
            // Its client has said so itself: what it puts in is not put out.
            return;
        }
        let n = call.map_or(0, |call| call.n);
        let item = json!({ "type": "function_call_output", "id": self.id("fco", n), "call_id": ended.id,
            "output": ended.text(), "status": "in_progress" });
        let at = self.add(item, out);
        self.done(at, out);
    }

    /// What was told is told; the object has the last word, as the stored message has.
    fn ended_again(&mut self, ended: &Ended) {
        let given = |item: &&mut Value| item["type"] == "function_call_output" && item["call_id"] == ended.id;
        if let (true, Some(item)) = (ended.says(), self.output.iter_mut().find(given)) {
            item["output"] = json!(ended.text());
        }
    }
}

/// What a call is given, as its model said it; a text is what was no object. A step's is any JSON.
fn arguments(args: &Value, round: u64) -> String {
    match args {
        Value::String(text) if round > 0 => text.clone(),
        args => args.to_string(),
    }
}

fn text_part(annotations: &Value) -> Value {
    json!({ "type": "output_text", "text": "", "annotations": annotations, "logprobs": [] })
}

fn citation(source: &Value) -> Value {
    match source["url"].as_str() {
        Some(url) => json!({ "type": "url_citation", "url": url, "title": source["title"], "start_index": 0,
            "end_index": 0 }),
        None => {
            json!({ "type": "file_citation", "file_id": source["id"], "filename": source["title"], "index": 0 })
        }
    }
}
