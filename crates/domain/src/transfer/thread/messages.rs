//! Nodes of a thread as messages and files of a bag.

use std::collections::HashMap;

use jiff::Timestamp;
use serde::Serialize;
use uuid::Uuid;

use super::super::archive::ArchivedFile;
use super::super::{Refusal, derived_id};
use super::{Asset, Node, Setting};
use crate::event::StepStatus;
use crate::file::{Attachment, Bag, File, FileSource, name_key, numbered, safe_name};
use crate::media::sniff;
use crate::message::{Block, Message, MessageRole, plain_text, sources_json};

/// Makes messages and files of nodes.
pub(super) struct Maker<'a> {
    of: &'a Setting<'a>,
    id: Uuid,
    owner: String,
    pub(super) files: Vec<ArchivedFile>,
    /// Names of the bag.
    taken: HashMap<String, u32>,
    /// Of each file the node and the asset.
    pub(super) places: Vec<(usize, usize)>,
}

impl<'a> Maker<'a> {
    pub(super) fn new(of: &'a Setting<'a>, id: Uuid, owner: String) -> Self {
        Self { of, id, owner, files: Vec::new(), taken: HashMap::new(), places: Vec::new() }
    }

    /// An id within the conversation: the source's own where it is a UUID.
    fn id(&self, kind: &str, own: Option<&str>, at: usize) -> Uuid {
        let own_uuid = own.filter(|own| own.len() == 36).and_then(|own| Uuid::try_parse(own).ok());
        own_uuid.unwrap_or_else(|| {
            let (conversation, at) = (self.id.to_string(), format!("#{at}"));
            derived_id(&[self.of.format, &conversation, kind, own.unwrap_or(&at)])
        })
    }

    pub(super) fn message(
        &mut self,
        at: usize,
        node: &Node,
        created_at: Timestamp,
    ) -> Result<Message, Refusal> {
        let id = self.id("message", node.source_id.as_deref(), at);
        let (mut blocks, mut attachments) = (node.blocks.clone(), Vec::new());
        blocks.iter_mut().for_each(|block| end_step(block, created_at));
        for (number, asset) in node.assets.iter().enumerate() {
            let from_user = node.role == MessageRole::User;
            match self.asset(asset, (at, number), id, created_at, from_user) {
                Some(attachment) if from_user => attachments.push(attachment),
                Some(Attachment { file_id, name, mime_type, size, sha256 }) => {
                    blocks.push(Block::File { file_id, name, mime_type, size, sha256 });
                }
                // Of bytes that are nowhere their name is kept, for whoever reads on.
                None => blocks.push(Block::Text { text: format!("[{}]", asset.name) }),
            }
        }
        let metadata = node.metadata.clone().filter(|metadata| metadata.starts_with('{'));
        Ok(Message {
            id,
            seq: 0,
            role: node.role,
            text: plain_text(&blocks),
            content: json_text(&blocks)?,
            file_attachments: json_text(&attachments)?,
            sources: sources_json(&blocks),
            token_count: node.token_count.max(0),
            metadata: metadata.unwrap_or_else(|| "{}".into()),
            created_at,
        })
    }

    /// How the message names the file; none when there are no bytes and nothing that stands for them.
    fn asset(
        &mut self,
        asset: &Asset,
        place: (usize, usize),
        message: Uuid,
        created_at: Timestamp,
        from_user: bool,
    ) -> Option<Attachment> {
        let Some(digest) = asset.found else {
            // Ours: the chip stays, as in a bag whose file was deleted.
            return Some(Attachment {
                file_id: asset.id.or(asset.chip)?,
                name: safe_name(&asset.name),
                mime_type: asset.mime_type.clone().unwrap_or_else(|| "application/octet-stream".into()),
                size: asset.size.unwrap_or(0),
                sha256: asset.sha256.clone().unwrap_or_default(),
            });
        };
        // By its message: the place in the thread may be another when more was said.
        let (of, number) = (message.to_string(), place.1.to_string());
        let file_id = asset.id.unwrap_or_else(|| derived_id(&[&self.id.to_string(), "file", &of, &number]));
        let name = self.free_name(&safe_name(&asset.name));
        let file = File {
            id: file_id,
            bag: Bag::Conversation(self.id),
            message: from_user.then_some(message),
            mime_type: sniff(&asset.head, &name),
            name,
            digest,
            storage_key: String::new(),
            source: if from_user { FileSource::User } else { FileSource::Sandbox },
            created_at,
            deleted_at: None,
        };
        let attachment = file.attachment();
        self.files.push(ArchivedFile { file, run: None, user: self.owner.clone() });
        self.places.push(place);
        Some(attachment)
    }

    fn free_name(&mut self, name: &str) -> String {
        let mut chosen = name.to_owned();
        while self.taken.contains_key(&name_key(&chosen)) {
            let count = self.taken.entry(name_key(name)).or_insert(0);
            *count += 1;
            chosen = numbered(name, *count);
        }
        self.taken.insert(name_key(&chosen), 0);
        chosen
    }
}

/// Nothing is under way in what was exported. A step that has no time has that of its message.
fn end_step(block: &mut Block, at: Timestamp) {
    if let Block::Step { status, started_at, .. } = block {
        if *status == StepStatus::Running {
            *status = StepStatus::Interrupted;
        }
        if *started_at == 0 {
            *started_at = at.as_millisecond();
        }
    }
}

fn json_text(value: &impl Serialize) -> Result<String, Refusal> {
    serde_json::to_string(value).map_err(|error| Refusal(error.to_string()))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use serde_json::value::RawValue;

    use super::super::Thread;
    use super::*;
    use crate::conversation::Visibility;
    use crate::time::from_ms;

    #[test]
    fn a_step_that_was_open_is_over() {
        let mut node = Node::new(MessageRole::Assistant, None);
        node.created_at = Some(from_ms(1_700_000_000_000));
        for step in [
            r#"{"type":"step","id":"s","name":"as ours","status":"running"}"#,
            r#"{"type":"step","id":"t","name":"as ours","status":"succeeded","startedAt":7}"#,
            r#"{"type":"step","name":"as others'","status":"running"}"#,
        ] {
            node.add_content(&RawValue::from_string(step.into()).unwrap());
        }
        let thread = Thread { source_id: "t".into(), nodes: vec![node], ..Thread::default() };
        let (visibility, now) = (Visibility::Private, from_ms(0));
        let setting = Setting { format: "claude", workspace: Uuid::nil(), owner: "u", visibility, now };
        let (archive, _) = thread.archive(&setting).unwrap();
        let blocks: Vec<Value> = serde_json::from_str(&archive.branches[0].messages[0].content).unwrap();
        let told: Vec<_> = blocks.iter().map(|step| (&step["status"], &step["startedAt"])).collect();
        let at = Value::from(1_700_000_000_000_i64);
        let (interrupted, succeeded) = (Value::from("interrupted"), Value::from("succeeded"));
        assert_eq!(told, [(&interrupted, &at), (&succeeded, &Value::from(7)), (&interrupted, &at)]);
    }
}
