//! A message without one of its items, for OpenAI's Conversations. The message keeps its place in the thread, and the
//! items that are left keep their ids.

use domain::message::{Message, MessageRole, REMOVED};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::extras;

/// What is left of the message with these items, or none where that one is not among them.
pub fn without(message: &Message, items: &[Value], item: &str) -> Option<Message> {
    let gone = items.iter().find(|one| one["id"] == item)?;
    let (content, left): (_, Vec<Value>) = match message.role {
        MessageRole::Assistant => {
            let left =
                items.iter().filter(|one| !goes_with(one, gone)).map(|one| one["id"].clone()).collect();
            (blocks_left(message, items, gone), left)
        }
        MessageRole::User | MessageRole::System => (Vec::new(), Vec::new()),
    };
    let texts = content.iter().filter(|block| kind(block) == "text").filter_map(|block| text(block));
    let mut metadata: Map<String, Value> = serde_json::from_str(&message.metadata).unwrap_or_default();
    extras::retain(&mut metadata, message.id, &left);
    match left.is_empty() {
        true => {
            // What its client had beside the blocks goes with them.
            metadata.remove("ui");
            metadata.insert(REMOVED.into(), json!(true))
        }
        false => metadata.insert("item_ids".into(), Value::Array(left)),
    };
    let sourced = content.iter().any(|block| kind(block) == "source");
    Some(Message {
        text: texts.collect::<Vec<_>>().join("\n\n"),
        content: serde_json::to_string(&content).ok()?,
        file_attachments: "[]".into(),
        sources: if sourced { message.sources.clone() } else { "[]".into() },
        metadata: Value::Object(metadata).to_string(),
        ..message.clone()
    })
}

/// A call and its output go together: one without the other is nothing that a model takes.
fn goes_with(one: &Value, gone: &Value) -> bool {
    one["id"] == gone["id"] || (!gone["call_id"].is_null() && one["call_id"] == gone["call_id"])
}

#[derive(serde::Deserialize)]
struct Block<'a> {
    r#type: &'a str,
    text: Option<String>,
}

fn kind(block: &RawValue) -> &str {
    serde_json::from_str::<Block<'_>>(block.get()).map_or("", |block| block.r#type)
}

fn text(block: &RawValue) -> Option<String> {
    serde_json::from_str::<Block<'_>>(block.get()).ok()?.text
}

/// The blocks of an answer but those of the item: it is told by the block of its kind that stands where it does among
/// them. A text goes with the sources and files that it names, which stand before it.
fn blocks_left(message: &Message, items: &[Value], gone: &Value) -> Vec<Box<RawValue>> {
    let blocks: Vec<Box<RawValue>> = serde_json::from_str(&message.content).unwrap_or_default();
    let item_kind = if gone["call_id"].is_null() { gone["type"].as_str() } else { Some("function_call") };
    let place = items
        .iter()
        .filter(|one| one["type"].as_str() == item_kind)
        .position(|one| goes_with(one, gone))
        .unwrap_or_default();
    let block_kinds: &[&str] = match item_kind {
        Some("function_call") => &["step", "tool_call"],
        Some("reasoning") => &["reasoning"],
        // The message says nothing of it.
        Some("mcp_approval_request") => &[],
        _ => &["text"],
    };
    let (mut seen, mut left) = (0, Vec::new());
    for block in blocks {
        let kind = kind(&block);
        let here = seen == place;
        let noted = block_kinds == ["text"] && matches!(kind, "source" | "file");
        let own = block_kinds.contains(&kind);
        seen += usize::from(own);
        if !(here && (own || noted)) {
            left.push(block);
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::super::told::items_alone;
    use super::*;

    fn answer(content: &Value) -> Message {
        Message {
            id: uuid::Uuid::nil(),
            seq: 2,
            role: MessageRole::Assistant,
            text: "One.\n\nTwo.".into(),
            content: content.to_string(),
            file_attachments: "[]".into(),
            sources: "[]".into(),
            token_count: 3,
            metadata: r#"{"model":"m"}"#.into(),
            created_at: jiff::Timestamp::UNIX_EPOCH,
        }
    }

    fn taken(message: &Message, item: &str) -> Option<Message> {
        without(message, &items_alone(uuid::Uuid::nil(), message), item)
    }

    fn ids(message: &Message) -> Vec<String> {
        items_alone(uuid::Uuid::nil(), message)
            .iter()
            .map(|item| item["id"].as_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn what_is_left_keeps_its_ids_until_nothing_is_left() {
        let call = |id: &str| json!({ "type": "tool_call", "id": id, "name": "f", "args": {}, "result": "x", "round": 1 });
        let source =
            json!({ "type": "source", "id": "s", "title": "S", "url": "https://a.example/", "snippet": "" });
        let mut message =
            answer(&json!([{ "type": "reasoning", "text": "Hm." }, { "type": "text", "text": "One." },
            call("a"), call("b"), source, { "type": "text", "text": "Two." }]));
        let all = ids(&message);
        assert_eq!(all.len(), 7, "{all:?}");
        assert!(taken(&message, "msg_other").is_none());
        // One after the other, from the middle out: a call takes its output along.
        for (at, texts) in [(2, "One.\n\nTwo."), (1, "Two."), (6, ""), (0, ""), (4, "")] {
            let before = ids(&message);
            message = taken(&message, &all[at]).unwrap();
            let left = ids(&message);
            assert!(!left.contains(&all[at]) && left.iter().all(|id| before.contains(id)), "{at}: {left:?}");
            assert_eq!(message.text, texts, "{at}");
        }
        assert_eq!((message.content.as_str(), ids(&message)), ("[]", vec![]));
        let metadata: Value = serde_json::from_str(&message.metadata).unwrap();
        assert_eq!((&metadata["model"], &metadata[REMOVED]), (&json!("m"), &json!(true)));
    }

    #[test]
    fn a_users_message_is_one_item() {
        let content = json!([{ "type": "text", "text": "Hi" }, { "type": "text", "text": "you" }]);
        let message = Message { role: MessageRole::User, ..answer(&content) };
        let id = ids(&message).remove(0);
        let left = taken(&message, &id).unwrap();
        assert_eq!((left.text.as_str(), left.content.as_str(), ids(&left)), ("", "[]", vec![]));
    }
}
