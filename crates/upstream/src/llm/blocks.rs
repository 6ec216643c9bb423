//! The blocks of one of Anthropic's answers, put together as they were sent: kinds that mean nothing to us are among
//! them, for they go back to where they came from.

use serde_json::{Map, Value, json};

#[derive(Debug, Default)]
pub(super) struct Blocks {
    all: Vec<Value>,
    /// The newest one's input so far, as text.
    input: String,
}

impl Blocks {
    pub(super) fn start(&mut self, block: &Value) {
        self.stop();
        self.all.push(block.clone());
    }

    /// More of the newest block.
    pub(super) fn delta(&mut self, delta: &Value) {
        let piece = |name: &str| delta[name].as_str().unwrap_or_default();
        match delta["type"].as_str().unwrap_or_default() {
            "text_delta" => self.text(piece("text")),
            "thinking_delta" => self.add("thinking", piece("thinking")),
            "signature_delta" => self.add("signature", piece("signature")),
            "input_json_delta" => self.input.push_str(piece("partial_json")),
            "citations_delta" => {
                let Some(block) = self.newest() else { return };
                match block.get_mut("citations") {
                    Some(Value::Array(cited)) => cited.push(delta["citation"].clone()),
                    _ => _ = block.insert("citations".into(), json!([delta["citation"]])),
                }
            }
            _ => {}
        }
    }

    pub(super) fn text(&mut self, text: &str) {
        self.add("text", text);
    }

    pub(super) fn stop(&mut self) {
        let input = std::mem::take(&mut self.input);
        if let (Ok(input), Some(block)) = (serde_json::from_str(&input), self.newest()) {
            block.insert("input".into(), input);
        }
    }

    /// All of them, but for texts without a word: those are refused when they come back.
    pub(super) fn take(&mut self) -> Vec<Value> {
        self.stop();
        let mut all = std::mem::take(&mut self.all);
        all.retain(|block| {
            block["type"] != "text" || !block["text"].as_str().unwrap_or("").trim().is_empty()
        });
        all
    }

    fn newest(&mut self) -> Option<&mut Map<String, Value>> {
        self.all.last_mut()?.as_object_mut()
    }

    fn add(&mut self, name: &str, more: &str) {
        let Some(block) = self.newest() else { return };
        match block.get_mut(name) {
            Some(Value::String(text)) => text.push_str(more),
            _ => _ = block.insert(name.into(), more.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_make_the_blocks_that_were_sent() {
        let mut blocks = Blocks::default();
        blocks.text("before any block");
        for (block, deltas) in [
            (
                json!({ "type": "thinking", "thinking": "", "signature": "" }),
                vec![
                    json!({ "type": "thinking_delta", "thinking": "a" }),
                    json!({ "type": "thinking_delta", "thinking": "\0b" }),
                    json!({ "type": "signature_delta", "signature": "c2ln" }),
                ],
            ),
            (json!({ "type": "redacted_thinking", "data": "x" }), vec![]),
            (json!({ "type": "text", "text": "" }), vec![json!({ "type": "text_delta", "text": " \n" })]),
            (
                json!({ "type": "text", "text": "A" }),
                vec![
                    json!({ "type": "citations_delta", "citation": { "n": 1 } }),
                    json!({ "type": "citations_delta", "citation": { "n": 2 } }),
                    json!({ "type": "text_delta", "text": " list" }),
                    json!({ "type": "new_delta", "text": "?" }),
                ],
            ),
            (
                json!({ "type": "server_tool_use", "id": "s", "input": {} }),
                vec![
                    json!({ "type": "input_json_delta", "partial_json": "{\"q\":" }),
                    json!({ "type": "input_json_delta", "partial_json": "1}" }),
                ],
            ),
            (json!({ "type": "tool_use", "id": "t", "input": { "whole": true } }), vec![]),
        ] {
            blocks.start(&block);
            deltas.iter().for_each(|delta| blocks.delta(delta));
        }
        assert_eq!(
            blocks.take(),
            [
                json!({ "type": "thinking", "thinking": "a\0b", "signature": "c2ln" }),
                json!({ "type": "redacted_thinking", "data": "x" }),
                json!({ "type": "text", "text": "A list", "citations": [{ "n": 1 }, { "n": 2 }] }),
                json!({ "type": "server_tool_use", "id": "s", "input": { "q": 1 } }),
                json!({ "type": "tool_use", "id": "t", "input": { "whole": true } }),
            ]
        );
        assert_eq!(blocks.take(), [] as [Value; 0]);
    }
}
