//! A conversation as somebody else's export tells of it: a tree of messages with what is known of each. `archive`
//! makes of it what a store can keep, with ids that depend on the source alone.

mod branches;
mod messages;

use jiff::Timestamp;
use uuid::Uuid;

use self::branches::{grow, settle};
use self::messages::Maker;
use super::archive::Archive;
use super::{Refusal, derived_id, one_line};
use crate::conversation::{Conversation, Kind, Mode, Source as Surface, Visibility};
use crate::file::Digest;
use crate::message::{Block, MessageRole};
use crate::tab::Tab;

#[derive(Debug, Default)]
pub struct Thread {
    /// What the source calls it.
    pub source_id: String,
    /// Its id where the source is one of ours.
    pub id: Option<Uuid>,
    pub title: Option<String>,
    pub owner: Option<String>,
    pub mode: Option<Mode>,
    pub kind: Option<Kind>,
    pub source: Option<Surface>,
    pub page_path: Option<String>,
    pub workflow_id: Option<String>,
    pub agent_id: Option<String>,
    pub model: Option<String>,
    pub visibility: Option<Visibility>,
    pub total_tokens: i64,
    /// The text as it came.
    pub context: Option<String>,
    pub tabs: Vec<Tab>,
    pub active_tab_key: Option<String>,
    pub created_at: Option<Timestamp>,
    pub updated_at: Option<Timestamp>,
    pub deleted_at: Option<Timestamp>,
    /// Every one after its parent.
    pub nodes: Vec<Node>,
    /// The last message of the branch that its reader saw.
    pub current: Option<usize>,
}

/// One message.
#[derive(Debug)]
pub struct Node {
    pub source_id: Option<String>,
    pub parent: Option<usize>,
    pub role: MessageRole,
    pub blocks: Vec<Block>,
    pub assets: Vec<Asset>,
    pub token_count: i64,
    /// A JSON object, as text.
    pub metadata: Option<String>,
    pub created_at: Option<Timestamp>,
}

impl Node {
    pub fn new(role: MessageRole, parent: Option<usize>) -> Self {
        Self {
            source_id: None,
            parent,
            role,
            blocks: Vec::new(),
            assets: Vec::new(),
            token_count: 0,
            metadata: None,
            created_at: None,
        }
    }
}

/// A file that a message names, whose bytes may lie beside the text.
#[derive(Debug, Clone, Default)]
pub struct Asset {
    /// Its id where the source is one of ours.
    pub id: Option<Uuid>,
    /// What stands for it in the message where its bytes are nowhere.
    pub chip: Option<Uuid>,
    pub name: String,
    pub mime_type: Option<String>,
    pub size: Option<u64>,
    pub sha256: Option<String>,
    /// What the bytes may be called beside the text: whole names, or how they begin.
    pub names: Vec<String>,
    /// The bytes themselves, where the text holds them.
    pub bytes: Option<Vec<u8>>,
    /// What was found.
    pub found: Option<Digest>,
    /// The first bytes of what was found.
    pub head: Vec<u8>,
}

impl Asset {
    /// The ending of the file that was found, where its name has none: people open files by it.
    pub fn end_as(&mut self, path: &str) {
        let file = path.rsplit('/').next().unwrap_or(path);
        if let Some((_, ending)) = file.rsplit_once('.')
            && !self.name.contains('.')
            && (1..=8).contains(&ending.len())
            && ending.bytes().all(|byte| byte.is_ascii_alphanumeric())
        {
            self.name = format!("{}.{ending}", self.name);
        }
    }
}

/// What making an archive needs to know beside the thread.
#[derive(Debug, Clone)]
pub struct Setting<'a> {
    pub format: &'a str,
    pub workspace: Uuid,
    /// Whose a thread becomes that names nobody.
    pub owner: &'a str,
    pub visibility: Visibility,
    /// For a thread without any time.
    pub now: Timestamp,
}

impl Thread {
    /// The conversation, and the places of the assets whose bytes its files have: node and asset.
    pub fn archive(self, of: &Setting<'_>) -> Result<(Archive, Vec<(usize, usize)>), Refusal> {
        let workspace = of.workspace.to_string();
        let id = self.id.unwrap_or_else(|| derived_id(&[of.format, &workspace, &self.source_id]));
        let times = Times::of(&self, of.now);
        let owner =
            self.owner.clone().filter(|owner| !owner.is_empty()).unwrap_or_else(|| of.owner.to_owned());
        let mut maker = Maker::new(of, id, owner.clone());
        let mut messages = Vec::with_capacity(self.nodes.len());
        for (at, node) in self.nodes.iter().enumerate() {
            let created_at = times.nodes.get(at).copied().unwrap_or(times.created);
            messages.push(Some(maker.message(at, node, created_at)?));
        }
        let mut archive = Archive {
            conversation: self.conversation(id, &owner, of, &times),
            metadata: None,
            branches: Vec::new(),
            current: 0,
            runs: Vec::new(),
            files: maker.files,
        };
        (archive.branches, archive.current) = grow(&self, &archive.conversation, messages, of)?;
        settle(&mut archive);
        Ok((archive, maker.places))
    }

    fn conversation(&self, id: Uuid, owner: &str, of: &Setting<'_>, times: &Times) -> Conversation {
        Conversation {
            id,
            workspace: of.workspace,
            org: String::new(),
            owner: owner.to_owned(),
            title: self.title.as_deref().and_then(|title| one_line(title, 255)),
            mode: self.mode,
            source: self.source,
            page_path: self.page_path.clone(),
            total_tokens: self.total_tokens.max(0),
            tabs: self.tabs.clone(),
            active_tab_key: self.active_tab_key.clone(),
            kind: self.kind.unwrap_or_else(|| Kind::of(self.mode)),
            workflow_id: self.workflow_id.clone(),
            agent_id: self.agent_id.clone(),
            model: self.model.clone().filter(|model| model.chars().count() <= 255),
            preview: None,
            message_count: 0,
            first_message: None,
            visibility: self.visibility.unwrap_or(of.visibility),
            context: self.context.clone(),
            deleted_at: self.deleted_at,
            created_at: times.created,
            updated_at: times.updated,
            version: 1,
        }
    }
}

/// Every time that was not told, from those that were.
struct Times {
    created: Timestamp,
    updated: Timestamp,
    nodes: Vec<Timestamp>,
}

impl Times {
    fn of(thread: &Thread, now: Timestamp) -> Self {
        let told = || thread.nodes.iter().filter_map(|node| node.created_at);
        let created = thread.created_at.or_else(|| told().min()).or(thread.updated_at).unwrap_or(now);
        let updated = thread.updated_at.or_else(|| told().max()).unwrap_or(created).max(created);
        let mut nodes: Vec<Timestamp> = Vec::with_capacity(thread.nodes.len());
        for node in &thread.nodes {
            let before = node.parent.and_then(|parent| nodes.get(parent)).copied().unwrap_or(created);
            nodes.push(node.created_at.unwrap_or(before));
        }
        Self { created, updated, nodes }
    }
}
