//! A conversation as somebody else's export tells of it: a tree of messages with what is known of each. `archive`
//! makes of it what a store can keep, with ids that depend on the source alone.

use std::collections::{HashMap, VecDeque};

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use super::archive::{Archive, ArchivedBranch, ArchivedFile};
use super::{Refusal, derived_id, one_line};
use crate::answer::sources_json;
use crate::conversation::{Conversation, Kind, Mode, Source as Surface, Visibility};
use crate::file::{Attachment, Bag, Digest, File, FileSource, name_key, numbered, safe_name};
use crate::media::sniff;
use crate::message::{Block, Message, MessageRole, plain_text};
use crate::tab::Tab;

/// The deepest tree of branches that is taken.
const MAX_BRANCHES: usize = 10_000;

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
        let mut maker = Maker {
            of,
            id,
            owner: String::new(),
            files: Vec::new(),
            taken: HashMap::new(),
            places: Vec::new(),
        };
        maker.owner =
            self.owner.clone().filter(|owner| !owner.is_empty()).unwrap_or_else(|| of.owner.to_owned());
        let mut messages = Vec::with_capacity(self.nodes.len());
        for (at, node) in self.nodes.iter().enumerate() {
            let created_at = times.nodes.get(at).copied().unwrap_or(times.created);
            messages.push(Some(maker.message(at, node, created_at)?));
        }
        let mut archive = Archive {
            conversation: self.conversation(id, &maker.owner, of, &times),
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

/// Makes messages and files of nodes.
struct Maker<'a> {
    of: &'a Setting<'a>,
    id: Uuid,
    owner: String,
    files: Vec<ArchivedFile>,
    /// Names of the bag.
    taken: HashMap<String, u32>,
    places: Vec<(usize, usize)>,
}

impl Maker<'_> {
    /// An id within the conversation: the source's own where it is a UUID.
    fn id(&self, kind: &str, own: Option<&str>, at: usize) -> Uuid {
        let own_uuid = own.filter(|own| own.len() == 36).and_then(|own| Uuid::try_parse(own).ok());
        own_uuid.unwrap_or_else(|| {
            let (conversation, at) = (self.id.to_string(), format!("#{at}"));
            derived_id(&[self.of.format, &conversation, kind, own.unwrap_or(&at)])
        })
    }

    fn message(&mut self, at: usize, node: &Node, created_at: Timestamp) -> Result<Message, Refusal> {
        let id = self.id("message", node.source_id.as_deref(), at);
        let (mut blocks, mut attachments) = (node.blocks.clone(), Vec::new());
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

    /// How the message names the file; none when there are no bytes and the source's is no id of ours.
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
                file_id: asset.id?,
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

/// The tree as branches: the first follows the first child from the first root on, every other goes on from a message
/// of one before it.
fn grow(
    thread: &Thread,
    conversation: &Conversation,
    mut messages: Vec<Option<Message>>,
    of: &Setting<'_>,
) -> Result<(Vec<ArchivedBranch>, usize), Refusal> {
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); thread.nodes.len()];
    let mut roots = Vec::new();
    for (at, node) in thread.nodes.iter().enumerate() {
        match node.parent {
            Some(parent) => children
                .get_mut(parent)
                .filter(|_| parent < at)
                .ok_or_else(|| Refusal::new("a message comes before the one it answers"))?
                .push(at),
            None => roots.push(at),
        }
    }
    let mut branches = vec![ArchivedBranch {
        id: conversation.id,
        parent: 0,
        fork_seq: 0,
        created_at: conversation.created_at,
        messages: Vec::new(),
    }];
    let mut current = 0;
    // What is still to be followed: the node, the branch it came from, and the number of the message before it.
    let mut open: VecDeque<(usize, usize, i64)> = roots.iter().map(|root| (*root, 0, 0)).collect();
    let mut first = true;
    while let Some((start, parent, shared)) = open.pop_front() {
        let branch = if first { 0 } else { branches.len() };
        if !std::mem::take(&mut first) {
            if branches.len() >= MAX_BRANCHES {
                return Err(Refusal(format!("it has more than {MAX_BRANCHES} branches")));
            }
            let first = messages.get(start).and_then(Option::as_ref);
            let created_at = first.map_or(conversation.created_at, |message| message.created_at);
            let first = first.map_or_else(|| start.to_string(), |message| message.id.to_string());
            let id = derived_id(&[of.format, &conversation.id.to_string(), "branch", &first]);
            branches.push(ArchivedBranch { id, parent, fork_seq: shared, created_at, messages: Vec::new() });
        }
        let (mut at, mut seq) = (Some(start), shared);
        while let Some(node) = at {
            seq += 1;
            if let (Some(mut message), Some(branch)) =
                (messages.get_mut(node).and_then(Option::take), branches.get_mut(branch))
            {
                message.seq = seq;
                branch.messages.push(message);
            }
            if thread.current == Some(node) {
                current = branch;
            }
            let next = children.get(node).map(Vec::as_slice).unwrap_or_default();
            open.extend(next.iter().skip(1).map(|child| (*child, branch, seq)));
            at = next.first().copied();
        }
    }
    Ok((branches, current))
}

/// Counters, preview and title, as a store keeps them.
fn settle(archive: &mut Archive) {
    let thread = archive.thread(archive.current);
    let count = thread.len() as i64;
    let first = thread.into_iter().find(|message| message.role == MessageRole::User);
    let first = first.map(|message| (message.id, message.text.clone()));
    let tokens: i64 =
        archive.branches.iter().flat_map(|branch| &branch.messages).map(|of| of.token_count).sum();
    let of = &mut archive.conversation;
    of.message_count = count;
    of.total_tokens = of.total_tokens.max(tokens);
    if let Some((id, text)) = first {
        of.first_message = Some(id);
        let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
        of.preview = one_line(line, 255);
        if of.title.is_none() {
            of.title = one_line(line, 80);
        }
    }
}

fn json_text(value: &impl Serialize) -> Result<String, Refusal> {
    serde_json::to_string(value).map_err(|error| Refusal(error.to_string()))
}

/// A time in any spelling that an export uses: RFC 3339, epoch seconds or milliseconds, as number or text.
pub fn read_time(value: &Value) -> Option<Timestamp> {
    match value {
        Value::Number(number) => number.as_f64().and_then(epoch),
        Value::String(text) => {
            let text = text.trim();
            if let Ok(number) = text.parse::<f64>() {
                return epoch(number);
            }
            // As databases print it: a space for the T, a zone of two digits or none.
            let mut spelled = text.replacen(' ', "T", 1);
            if spelled.len() > 3
                && matches!(spelled.as_bytes()[spelled.len() - 3], b'+' | b'-')
                && spelled.contains(':')
            {
                spelled.push_str(":00");
            }
            let parsed = spelled.parse::<Timestamp>().or_else(|_| format!("{spelled}Z").parse());
            let parsed = parsed.or_else(|_| format!("{spelled}T00:00:00Z").parse());
            parsed.ok().map(|at: Timestamp| crate::time::from_ms(at.as_millisecond()))
        }
        _ => None,
    }
}

fn epoch(number: f64) -> Option<Timestamp> {
    if !number.is_finite() || number <= 0.0 {
        return None;
    }
    // Seconds until the year 5138, milliseconds, or finer ones.
    let ms = match number {
        n if n < 1e11 => n * 1e3,
        n if n < 1e14 => n,
        n if n < 1e17 => n / 1e3,
        n => n / 1e6,
    };
    Timestamp::from_millisecond(ms.round() as i64).ok()
}
