//! For AG-UI clients, version 1.0. Each text is a message of its own; the calls of a round, and steps that follow each
//! other, hang on the message before them: the blocks alone say which, so that a stored answer has the ids it was told
//! with. Ids begin with the run's: such a client looks for them in the whole thread.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::openai::frame;
use super::pieces::{Piece, Pieces};
use super::told::Short;
use super::ui_message::file_url;

#[derive(Debug, Default)]
pub(super) struct AgUi {
    pieces: Pieces,
    pub(super) base: String,
    /// What the client calls the thread and the run; none is ours.
    pub(super) thread: Option<String>,
    pub(super) name: Option<String>,
    run: String,
    conversation: Option<String>,
    /// Assistant messages so far.
    count: usize,
    /// The message that is being told, or that calls may hang on.
    current: Option<String>,
    /// The round of the calls that hang on it.
    round: Option<u64>,
    /// The message that each call hangs on whose arguments are still to come.
    ungiven: HashMap<String, String>,
    failed: bool,
    /// Its beginning was told by `join`.
    joined: bool,
    /// The events make the messages of a snapshot, where a result can still be replaced.
    pub(super) snapshot: bool,
}

impl AgUi {
    pub(super) fn push(&mut self, seq: i64, kind: &str, data: &str, out: &mut Vec<u8>) {
        write(&self.events(kind, data), Some(seq), out);
    }

    /// The events that an event of ours is.
    pub(super) fn events(&mut self, kind: &str, data: &str) -> Vec<Value> {
        let mut events = Vec::new();
        for piece in self.pieces.read(kind, data) {
            self.event(piece, &mut events);
        }
        events
    }

    pub(super) fn resting(&self) -> &[(String, String)] {
        self.pieces.resting()
    }

    /// Ends the run for now: it waits for a person.
    pub(super) fn pause(&mut self, out: &mut Vec<u8>) {
        let (mut pieces, mut events) = (Vec::new(), Vec::new());
        self.pieces.close(&mut pieces);
        for piece in pieces {
            self.event(piece, &mut events);
        }
        let interrupts = self.pieces.waiting().iter().map(|(id, call)| {
            json!({ "id": id, "reason": "tool_call", "message": "A call waits for your approval.",
                "toolCallId": self.call_id(call), "responseSchema": { "type": "object",
                "properties": { "approve": { "type": "boolean" }, "reason": { "type": "string" } } } })
        });
        let outcome = json!({ "type": "interrupt", "interrupts": interrupts.collect::<Vec<_>>() });
        events.push(self.finished(outcome));
        write(&events, None, out);
    }

    /// The beginning of a stream for a reader that has what came before.
    pub(super) fn begin_again(&self, out: &mut Vec<u8>) {
        write(&[self.started()], None, out);
    }

    /// The beginning of a stream for a reader that joins in: all messages so far, and what is open.
    pub(super) fn join(&mut self, seq: Option<i64>, messages: &[Value], out: &mut Vec<u8>) {
        self.joined = true;
        // A call that is still to be given something is begun below, and nothing is begun twice.
        let messages = without(messages, |call| {
            self.pieces.ungiven().iter().any(|(ungiven, _)| *call == self.call_id(ungiven))
        });
        let mut events = vec![self.started(), json!({ "type": "MESSAGES_SNAPSHOT", "messages": messages })];
        match self.pieces.is_open() {
            (Some(_), _) => events.push(self.text_start()),
            (_, Some(n)) => events.extend(self.thought_start(n)),
            _ => {}
        }
        for (call, name) in self.pieces.ungiven() {
            let (id, parent) = (self.call_id(call), self.ungiven.get(call));
            events.push(json!({ "type": "TOOL_CALL_START", "toolCallId": id, "toolCallName": name,
                "parentMessageId": parent }));
        }
        write(&events, seq, out);
    }

    fn thread(&self) -> &str {
        self.thread.as_deref().or(self.conversation.as_deref()).unwrap_or(&self.run)
    }

    fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.run)
    }

    fn started(&self) -> Value {
        json!({ "type": "RUN_STARTED", "threadId": self.thread(), "runId": self.name() })
    }

    fn finished(&self, outcome: Value) -> Value {
        json!({ "type": "RUN_FINISHED", "threadId": self.thread(), "runId": self.name(), "outcome": outcome })
    }

    fn call_id(&self, call: &str) -> String {
        format!("{}-{call}", self.run)
    }

    fn thought_id(&self, n: usize) -> String {
        format!("{}-reasoning-{n}", self.run)
    }

    /// The next assistant message: the first has the run's id, as the stored one has.
    fn next_id(&mut self) -> String {
        self.count += 1;
        let id = if self.count == 1 { self.run.clone() } else { format!("{}-{}", self.run, self.count) };
        (self.current, self.round) = (Some(id.clone()), None);
        id
    }

    fn text_start(&self) -> Value {
        json!({ "type": "TEXT_MESSAGE_START", "messageId": self.current, "role": "assistant" })
    }

    fn thought_start(&self, n: usize) -> [Value; 2] {
        let id = self.thought_id(n);
        [
            json!({ "type": "REASONING_START", "messageId": id }),
            json!({ "type": "REASONING_MESSAGE_START", "messageId": id, "role": "reasoning" }),
        ]
    }

    fn event(&mut self, piece: Piece, out: &mut Vec<Value>) {
        match piece {
            Piece::Begin { run, conversation } => {
                (self.run, self.conversation) = (run, conversation);
                if !self.joined {
                    out.push(self.started());
                }
            }
            Piece::TextStart(_) => {
                self.next_id();
                out.push(self.text_start());
            }
            Piece::Text(_, text) => {
                out.push(json!({ "type": "TEXT_MESSAGE_CONTENT", "messageId": self.current, "delta": text }));
            }
            Piece::TextEnd(_) => out.push(json!({ "type": "TEXT_MESSAGE_END", "messageId": self.current })),
            Piece::ThoughtStart(n) => {
                self.current = None;
                out.extend(self.thought_start(n));
            }
            Piece::Thought(n, text) => {
                let id = self.thought_id(n);
                out.push(json!({ "type": "REASONING_MESSAGE_CONTENT", "messageId": id, "delta": text }));
            }
            Piece::ThoughtEnd(n) => {
                let id = self.thought_id(n);
                out.push(json!({ "type": "REASONING_MESSAGE_END", "messageId": id }));
                out.push(json!({ "type": "REASONING_END", "messageId": id }));
            }
            Piece::Call { id, round, name, args } => {
                let parent = match self.current.clone() {
                    Some(current) if self.round.is_none_or(|of| of == round) => current,
                    _ => self.next_id(),
                };
                self.round = Some(round);
                if args.is_none() {
                    self.ungiven.insert(id.clone(), parent.clone());
                }
                let id = self.call_id(&id);
                out.push(json!({ "type": "TOOL_CALL_START", "toolCallId": id, "toolCallName": name,
                    "parentMessageId": parent }));
                if let Some(args) = args {
                    out.extend(given(&id, &args));
                }
            }
            Piece::Args { again: true, .. } if !self.snapshot => {}
            Piece::Args { id, args, .. } => {
                self.ungiven.remove(&id);
                out.extend(given(&self.call_id(&id), &args.unwrap_or_else(|| json!({}))));
            }
            // What was said of a call stays said.
            Piece::Ended(ended) if ended.again && !(self.snapshot && ended.says()) => {}
            Piece::Ended(ended) => {
                let id = self.call_id(&ended.id);
                out.push(
                    json!({ "type": "TOOL_CALL_RESULT", "messageId": format!("{id}-result"), "toolCallId": id,
                    "content": ended.text(), "role": "tool" }),
                );
            }
            Piece::Approval { id, call, name, args, .. } => {
                let call = json!({ "id": self.call_id(&call), "name": name, "args": args });
                out.push(
                    json!({ "type": "CUSTOM", "name": "approval", "value": { "id": id, "call": call } }),
                );
            }
            Piece::Sources(sources) => {
                out.push(json!({ "type": "CUSTOM", "name": "sources", "value": sources }));
            }
            Piece::File(mut file) => {
                file["url"] = json!(file_url(&self.base, self.conversation.as_deref(), &file));
                out.push(json!({ "type": "CUSTOM", "name": "file", "value": file }));
            }
            Piece::Failure { code, message } => {
                self.failed = code != "cancelled";
                if self.failed {
                    out.push(json!({ "type": "RUN_ERROR", "message": message, "code": code }));
                }
            }
            Piece::Done(_) if self.failed => {}
            Piece::Done(status) => {
                let outcome = if status == "cancelled" { "cancelled" } else { "success" };
                let mut finished = self.finished(json!({ "type": outcome }));
                match self.pieces.short() {
                    Short::No => {}
                    Short::Cut => finished["result"] = json!({ "finishReason": "length" }),
                    Short::Refused => finished["result"] = json!({ "finishReason": "content_filter" }),
                }
                out.push(finished);
            }
        }
    }
}

fn given(call: &str, args: &Value) -> [Value; 2] {
    [
        json!({ "type": "TOOL_CALL_ARGS", "toolCallId": call, "delta": args.to_string() }),
        json!({ "type": "TOOL_CALL_END", "toolCallId": call }),
    ]
}

/// The messages without these calls. One that had nothing else is not there.
fn without(messages: &[Value], calls: impl Fn(&str) -> bool) -> Vec<Value> {
    let mut left = Vec::with_capacity(messages.len());
    for message in messages {
        let mut message = message.clone();
        if let Some(made) = message.get_mut("toolCalls").and_then(Value::as_array_mut) {
            made.retain(|call| !calls(call["id"].as_str().unwrap_or_default()));
            if made.is_empty() {
                message.as_object_mut().map(|message| message.remove("toolCalls"));
                if message["content"].is_null() {
                    continue;
                }
            }
        }
        left.push(message);
    }
    left
}

/// The messages that a client makes of events, put behind those that it has.
pub(super) fn apply(events: &[Value], messages: &mut Vec<Value>) {
    for event in events {
        let (id, delta) = (&event["messageId"], event["delta"].as_str().unwrap_or_default());
        match event["type"].as_str().unwrap_or_default() {
            "TEXT_MESSAGE_START" => messages.push(json!({ "id": id, "role": "assistant", "content": "" })),
            "REASONING_MESSAGE_START" => {
                messages.push(json!({ "id": id, "role": "reasoning", "content": "" }));
            }
            "TEXT_MESSAGE_CONTENT" | "REASONING_MESSAGE_CONTENT" => {
                if let Some(message) = messages.iter_mut().rfind(|message| message["id"] == *id) {
                    let so_far = message["content"].as_str().unwrap_or_default().to_owned();
                    message["content"] = json!(so_far + delta);
                }
            }
            "TOOL_CALL_START" => {
                let parent = &event["parentMessageId"];
                let call = json!({ "id": event["toolCallId"], "type": "function",
                    "function": { "name": event["toolCallName"], "arguments": "" } });
                match messages.iter_mut().rfind(|message| message["id"] == *parent) {
                    Some(message) => match message.get_mut("toolCalls").and_then(Value::as_array_mut) {
                        Some(calls) => calls.push(call),
                        None => message["toolCalls"] = json!([call]),
                    },
                    None => messages.push(json!({ "id": parent, "role": "assistant", "toolCalls": [call] })),
                }
            }
            "TOOL_CALL_ARGS" => {
                let calls =
                    messages.iter_mut().filter_map(|message| message.get_mut("toolCalls")?.as_array_mut());
                if let Some(call) = calls.flatten().find(|call| call["id"] == event["toolCallId"]) {
                    call["function"]["arguments"] = event["delta"].clone();
                }
            }
            "TOOL_CALL_RESULT" => {
                let call = &event["toolCallId"];
                if let Some(given) = messages.iter_mut().find(|message| message["id"] == *id) {
                    given["content"] = event["content"].clone();
                    continue;
                }
                let asks = |message: &Value| {
                    message["toolCalls"]
                        .as_array()
                        .is_some_and(|calls| calls.iter().any(|one| one["id"] == *call))
                };
                // Where its client puts it: behind the message that asked, and the results that are there.
                let after = messages.iter().position(asks).map_or(messages.len(), |at| at + 1);
                let results =
                    messages[after..].iter().take_while(|message| message["role"] == "tool").count();
                let result =
                    json!({ "id": id, "role": "tool", "toolCallId": call, "content": event["content"] });
                messages.insert(after + results, result);
            }
            _ => {}
        }
    }
}

fn write(events: &[Value], seq: Option<i64>, out: &mut Vec<u8>) {
    let last = events.len().saturating_sub(1);
    for (at, event) in events.iter().enumerate() {
        frame(None, seq.filter(|_| at == last), &event.to_string(), out);
    }
}
