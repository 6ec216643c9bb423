//! A conversation that went on at its source after it was imported: what is new there, and where it belongs. What is
//! here stays as it is; what was written here meanwhile stands on a branch of its own.

use std::collections::{HashMap, HashSet};

use uuid::Uuid;

use super::archive::{Archive, ArchivedBranch, ArchivedFile};
use super::block::read_block;
use super::{Refusal, derived_id};
use crate::conversation::Conversation;
use crate::event::Raw;
use crate::file::Attachment;
use crate::message::{Block, Message};

#[derive(Debug, Clone)]
pub struct Growth {
    /// As it is to be.
    pub conversation: Conversation,
    /// The version that it must have for this.
    pub version: i64,
    pub current: usize,
    /// New ones, the first of them with the number `first_branch`; their messages are not here.
    pub branches: Vec<ArchivedBranch>,
    pub first_branch: usize,
    /// Each with the number of its branch.
    pub messages: Vec<(usize, Message)>,
    pub files: Vec<ArchivedFile>,
}

/// What `new` has that `old` has not; none when that is nothing. Messages are the same when their ids are.
pub fn grown(old: &Archive, new: &Archive) -> Option<Growth> {
    let mut places: HashMap<Uuid, (usize, i64)> = HashMap::new();
    for (at, branch) in old.branches.iter().enumerate() {
        places.extend(branch.messages.iter().map(|message| (message.id, (at, message.seq))));
    }
    // The number of each branch's last message.
    let mut ends: Vec<i64> = old
        .branches
        .iter()
        .map(|branch| branch.messages.last().map_or(branch.fork_seq, |message| message.seq))
        .collect();
    let (mut branches, mut messages) = (Vec::new(), Vec::new());
    for (at, branch) in new.branches.iter().enumerate() {
        let shared = new.thread(branch.parent);
        let before = shared.iter().find(|message| at > 0 && message.seq == branch.fork_seq);
        let mut place = before.and_then(|message| places.get(&message.id)).copied().unwrap_or((0, 0));
        for message in &branch.messages {
            if let Some(known) = places.get(&message.id) {
                place = *known;
                continue;
            }
            // Another message follows there already: a branch begins.
            if ends.get(place.0) != Some(&place.1) {
                let own = [&*old.conversation.id.to_string(), "branch", &*message.id.to_string()];
                branches.push(ArchivedBranch {
                    id: derived_id(&own),
                    parent: place.0,
                    fork_seq: place.1,
                    created_at: message.created_at,
                    messages: Vec::new(),
                });
                place.0 = ends.len();
                ends.push(place.1);
            }
            place.1 += 1;
            if let Some(end) = ends.get_mut(place.0) {
                *end = place.1;
            }
            places.insert(message.id, place);
            messages.push((place.0, Message { seq: place.1, ..message.clone() }));
        }
    }
    if messages.is_empty() {
        return None;
    }
    // Readers follow the source, unless the thread they see was continued here.
    let theirs: HashSet<Uuid> =
        new.branches.iter().flat_map(|branch| &branch.messages).map(|message| message.id).collect();
    let followed = old.thread(old.current).iter().all(|message| theirs.contains(&message.id));
    let head = new.thread(new.current).last().and_then(|message| places.get(&message.id)).copied();
    let current = head.filter(|_| followed).map_or(old.current, |(branch, _)| branch);
    let named = |file: &&ArchivedFile| {
        let id = file.file.id.to_string();
        messages.iter().any(|(_, of)| of.file_attachments.contains(&id) || of.content.contains(&id))
    };
    Some(Growth {
        conversation: counted(old, new, &messages, ends.get(current).copied().unwrap_or_default()),
        version: old.conversation.version,
        current,
        first_branch: old.branches.len(),
        files: new.files.iter().filter(named).cloned().collect(),
        branches,
        messages,
    })
}

fn counted(old: &Archive, new: &Archive, added: &[(usize, Message)], count: i64) -> Conversation {
    let (was, is) = (&old.conversation, &new.conversation);
    let tokens: i64 = added.iter().map(|(_, message)| message.token_count).sum();
    Conversation {
        message_count: count,
        total_tokens: (was.total_tokens + tokens).max(is.total_tokens),
        title: was.title.clone().or_else(|| is.title.clone()),
        preview: was.preview.clone().or_else(|| is.preview.clone()),
        first_message: was.first_message.or(is.first_message),
        updated_at: was.updated_at.max(is.updated_at),
        version: was.version + 1,
        ..was.clone()
    }
}

impl Growth {
    /// Calls a file by another name, in the messages that name it too.
    pub fn rename(&mut self, file: Uuid, name: &str) -> Result<(), Refusal> {
        let json = |error: serde_json::Error| Refusal(error.to_string());
        for of in self.files.iter_mut().filter(|of| of.file.id == file) {
            name.clone_into(&mut of.file.name);
        }
        for (_, message) in &mut self.messages {
            if message.file_attachments.contains(&file.to_string()) {
                let mut all: Vec<Attachment> =
                    serde_json::from_str(&message.file_attachments).map_err(json)?;
                all.iter_mut().filter(|of| of.file_id == file).for_each(|of| name.clone_into(&mut of.name));
                message.file_attachments = serde_json::to_string(&all).map_err(json)?;
            }
            if message.content.contains(&file.to_string()) {
                let all: Vec<Raw> = serde_json::from_str(&message.content).map_err(json)?;
                let mut all = all.iter().map(|block| read_block(block)).collect::<Result<Vec<_>, _>>()?;
                for block in &mut all {
                    if let Block::File { file_id, name: own, .. } = block
                        && *file_id == file
                    {
                        name.clone_into(own);
                    }
                }
                message.content = serde_json::to_string(&all).map_err(json)?;
            }
        }
        Ok(())
    }
}
