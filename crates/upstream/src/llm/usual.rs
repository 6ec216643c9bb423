//! The chunks that nearly all of an answer is made of, one piece of text and nothing else, read without building a
//! tree. `None` for every other chunk: the dialect's own reader knows what to do with it.

use domain::model::{ModelEvent, keepable};
use serde::Deserialize;
use serde::de::IgnoredAny;

// A field with a value that would mean something stands here as `Option<IgnoredAny>`: null is nothing.
#[derive(Deserialize)]
struct Chunk {
    choices: (Choice,),
    error: Option<IgnoredAny>,
    usage: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    index: u64,
    delta: Delta,
    finish_reason: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Delta {
    content: String,
    reasoning_content: Option<IgnoredAny>,
    reasoning: Option<IgnoredAny>,
    refusal: Option<IgnoredAny>,
    tool_calls: Option<IgnoredAny>,
}

/// The text of a chunk of OpenAI's dialect.
pub(super) fn openai(data: &str) -> Option<ModelEvent> {
    let Chunk { choices: (choice,), error: None, usage: None } = serde_json::from_str(data).ok()? else {
        return None;
    };
    let Choice { index: 0, delta, finish_reason: None } = choice else { return None };
    match delta {
        Delta { content, reasoning_content: None, reasoning: None, refusal: None, tool_calls: None } => {
            said(content)
        }
        _ => None,
    }
}

#[derive(Deserialize)]
struct Event<'a> {
    r#type: &'a str,
    #[serde(borrow)]
    delta: TextDelta<'a>,
}

#[derive(Deserialize)]
struct TextDelta<'a> {
    r#type: &'a str,
    text: String,
}

/// The text of an event of Anthropic's dialect.
pub(super) fn anthropic(data: &str) -> Option<ModelEvent> {
    match serde_json::from_str(data).ok()? {
        Event { r#type: "content_block_delta", delta: TextDelta { r#type: "text_delta", text } } => {
            said(text)
        }
        _ => None,
    }
}

fn said(text: String) -> Option<ModelEvent> {
    let text = if text.contains('\0') { keepable(&text) } else { text };
    (!text.is_empty()).then_some(ModelEvent::Text(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Option<ModelEvent> {
        Some(ModelEvent::Text(text.to_owned()))
    }

    #[test]
    fn a_piece_of_text_is_read_and_all_else_is_left_to_the_dialect() {
        let chunk = |choice: &str, more: &str| openai(&format!(r#"{{"id":"x","choices":[{choice}]{more}}}"#));
        let usual = r#"{"index":0,"delta":{"role":"assistant","content":"a\u0000é","refusal":null},"finish_reason":null,"new":[1]}"#;
        assert_eq!(chunk(usual, r#","usage":null,"error":null,"new":{}"#), text("a\u{FFFD}é"));
        assert_eq!(chunk(r#"{"delta":{"content":"a"}}"#, ""), text("a"));
        assert_eq!(chunk(usual, r#","usage":{"prompt_tokens":1}"#), None);
        assert_eq!(chunk(usual, r#","error":{"message":"no"}"#), None);
        assert_eq!(chunk(usual, r#","choices":[]"#), None);
        assert_eq!(chunk(&format!("{usual},{usual}"), ""), None);
        for choice in [
            "",
            r#"{"index":1,"delta":{"content":"a"}}"#,
            r#"{"delta":{"content":""}}"#,
            r#"{"delta":{"content":null}}"#,
            r#"{"delta":{"content":[{"text":"a"}]}}"#,
            r#"{"delta":{"content":"a"},"finish_reason":"stop"}"#,
            r#"{"delta":{"content":"a","reasoning":"b"}}"#,
            r#"{"delta":{"content":"a","reasoning_content":"b"}}"#,
            r#"{"delta":{"content":"a","refusal":"b"}}"#,
            r#"{"delta":{"content":"a","tool_calls":[]}}"#,
            r#"{"delta":{"content":"\ud800"}}"#,
            r#"{"message":{"content":"a"}}"#,
        ] {
            assert_eq!(chunk(choice, ""), None, "{choice}");
        }

        let event = |kind: &str, delta: &str| {
            anthropic(&format!(r#"{{"type":"{kind}","index":0,"delta":{delta},"new":1}}"#))
        };
        let said = r#"{"type":"text_delta","text":"a\u0000"}"#;
        assert_eq!(event("content_block_delta", said), text("a\u{FFFD}"));
        assert_eq!(event("message_delta", said), None);
        assert_eq!(event("content_block_delta", r#"{"type":"text_delta","text":""}"#), None);
        assert_eq!(event("content_block_delta", r#"{"type":"thinking_delta","thinking":"a"}"#), None);
        assert_eq!(event("content_block_delta", r#"{"type":"input_json_delta","text":"a"}"#), None);
    }
}
