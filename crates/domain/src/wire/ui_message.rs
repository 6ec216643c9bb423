//! For `useChat` of the Vercel AI SDK: the UI message stream, version 1. Nothing in it is newer than the clients of its
//! version 6: one chunk that a client does not know ends its stream.

use serde_json::{Value, json};

use super::openai::frame;
use super::pieces::{Piece, Pieces};
use super::told::Short;

#[derive(Debug, Default)]
pub(super) struct UiMessage {
    pieces: Pieces,
    /// Where this server is: files are named by whole URLs.
    pub(super) base: String,
    run: String,
    conversation: Option<String>,
    /// Why the run did not succeed.
    failure: Option<Value>,
}

impl UiMessage {
    pub(super) fn push(&mut self, seq: i64, kind: &str, data: &str, out: &mut Vec<u8>) {
        let mut chunks = Vec::new();
        for piece in self.pieces.read(kind, data) {
            self.chunk(piece, &mut chunks);
        }
        write(&chunks, Some(seq), out);
    }

    /// Begins a message that its reader has the first part of.
    pub(super) fn begin_again(&self, out: &mut Vec<u8>) {
        write(&self.beginning(), None, out);
    }

    pub(super) fn resting(&self) -> &[(String, String)] {
        self.pieces.resting()
    }

    /// Ends the message for now: the run waits for a person.
    pub(super) fn pause(&mut self, out: &mut Vec<u8>) {
        let (mut pieces, mut chunks) = (Vec::new(), Vec::new());
        self.pieces.close(&mut pieces);
        for piece in pieces {
            self.chunk(piece, &mut chunks);
        }
        chunks.push(json!({ "type": "finish-step" }));
        chunks.push(json!({ "type": "finish", "finishReason": "tool-calls" }));
        chunks.push(Value::Null);
        write(&chunks, None, out);
    }

    fn reason(&self, status: &str) -> &'static str {
        match status {
            "cancelled" => "other",
            _ if self.failure.is_some() => "error",
            _ => match self.pieces.short() {
                Short::No => "stop",
                Short::Cut => "length",
                Short::Refused => "content-filter",
            },
        }
    }

    fn beginning(&self) -> [Value; 2] {
        let metadata = json!({ "conversation": self.conversation, "run": self.run });
        // The answer has the id of its run.
        let start = json!({ "type": "start", "messageId": self.run, "messageMetadata": metadata });
        [start, json!({ "type": "start-step" })]
    }

    fn chunk(&mut self, piece: Piece, out: &mut Vec<Value>) {
        match piece {
            Piece::Begin { run, conversation } => {
                (self.run, self.conversation) = (run, conversation);
                out.extend(self.beginning());
            }
            Piece::TextStart(n) => out.push(json!({ "type": "text-start", "id": text_id(n) })),
            Piece::Text(n, text) => {
                out.push(json!({ "type": "text-delta", "id": text_id(n), "delta": text }));
            }
            Piece::TextEnd(n) => out.push(json!({ "type": "text-end", "id": text_id(n) })),
            Piece::ThoughtStart(n) => out.push(json!({ "type": "reasoning-start", "id": thought_id(n) })),
            Piece::Thought(n, text) => {
                out.push(json!({ "type": "reasoning-delta", "id": thought_id(n), "delta": text }));
            }
            Piece::ThoughtEnd(n) => out.push(json!({ "type": "reasoning-end", "id": thought_id(n) })),
            Piece::Call { id, name, args, .. } => {
                out.push(input(&id, &name, args.unwrap_or_else(|| json!({}))));
            }
            // Takes the place of what it had.
            Piece::Args { id, name, args, .. } => out.extend(args.map(|args| input(&id, &name, args))),
            // An end without a word leaves what an earlier one said.
            Piece::Ended(ended) if ended.again && !ended.says() => {}
            Piece::Ended(ended) if ended.denied => {
                out.push(json!({ "type": "tool-output-denied", "toolCallId": ended.id }));
            }
            Piece::Ended(ended) => out.push(match ended.error {
                Some(error) => {
                    json!({ "type": "tool-output-error", "toolCallId": ended.id, "errorText": error,
                    "providerExecuted": true, "dynamic": true })
                }
                None => {
                    json!({ "type": "tool-output-available", "toolCallId": ended.id, "output": ended.result,
                    "providerExecuted": true, "dynamic": true })
                }
            }),
            Piece::Approval { id, call, .. } => {
                out.push(json!({ "type": "tool-approval-request", "approvalId": id, "toolCallId": call }));
            }
            Piece::Sources(sources) => out.extend(sources.iter().map(source)),
            Piece::File(file) => out.push(json!({ "type": "file", "mediaType": file["mimeType"],
                "url": file_url(&self.base, self.conversation.as_deref(), &file) })),
            Piece::Failure { code, message } => {
                self.failure = Some(json!({ "code": code, "message": message }));
                out.push(match code.as_str() {
                    "cancelled" => json!({ "type": "abort", "reason": message }),
                    _ => json!({ "type": "error", "errorText": message }),
                });
            }
            Piece::Done(status) => {
                out.push(json!({ "type": "finish-step" }));
                let mut finish = json!({ "type": "finish", "finishReason": self.reason(&status) });
                if let Some(created) = self.pieces.created() {
                    finish["messageMetadata"] = json!({ "createdAt": created });
                    if let Some(error) = self.failure.take() {
                        finish["messageMetadata"]["error"] = error;
                    }
                }
                out.push(finish);
                out.push(Value::Null);
            }
        }
    }
}

fn input(call: &str, name: &str, args: Value) -> Value {
    json!({ "type": "tool-input-available", "toolCallId": call, "toolName": name, "input": args,
        "providerExecuted": true, "dynamic": true })
}

fn text_id(n: usize) -> String {
    format!("text-{n}")
}

fn thought_id(n: usize) -> String {
    format!("reasoning-{n}")
}

pub(super) fn source(source: &Value) -> Value {
    match source["url"].as_str() {
        Some(url) => {
            json!({ "type": "source-url", "sourceId": source["id"], "url": url, "title": source["title"] })
        }
        None => json!({ "type": "source-document", "sourceId": source["id"], "mediaType": "text/plain",
            "title": source["title"] }),
    }
}

/// Where a file's bytes are, for whoever may read them.
pub fn file_url(base: &str, conversation: Option<&str>, file: &Value) -> String {
    let id = file["fileId"].as_str().unwrap_or_default();
    match conversation {
        Some(conversation) => format!("{base}/v1/chat-conversations/{conversation}/files/{id}/content"),
        None => format!("{base}/v1/files/{id}/content"),
    }
}

/// Chunks as frames, the last one with the event's number; null is the end of the stream.
fn write(chunks: &[Value], seq: Option<i64>, out: &mut Vec<u8>) {
    let last = chunks.len().saturating_sub(1);
    for (at, chunk) in chunks.iter().enumerate() {
        let text = if chunk.is_null() { "[DONE]".to_owned() } else { chunk.to_string() };
        frame(None, seq.filter(|_| at == last), &text, out);
    }
}
