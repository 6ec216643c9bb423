//! The lines of our own export: one JSON object each, in a fixed order and spelling, so that the same store gives
//! the same bytes. The first says what it is; bytes of files that come in the same stream stand before the line
//! that names them.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::Refusal;
use super::archive::{
    Archive, ArchivedBranch, ArchivedExecution, ArchivedFile, ArchivedRun, Settings, Trace, check_file,
};
use super::block::read_block;
use super::file_line::FileLine;
use super::knowledge_line::{PageLine, RowsLine, TableLine};
use super::run_line::{ExecutionLine, RunLine, TraceLine};
use crate::agent::{Agent, AgentSettings};
use crate::conversation::{Conversation, Kind, Mode, Source as Surface, Visibility};
use crate::event::{Raw, Source};
use crate::file::{Attachment, Bag};
use crate::message::{Message, MessageRole, plain_text};
use crate::page::Page;
use crate::tab::Tab;
use crate::table::{Row, Table};
use crate::time::{from_ms, rfc3339};

/// What the first line of an export says.
pub const VERSION: u32 = 1;

/// How many bytes of a file one line holds.
pub const BLOB_CHUNK: usize = 512 * 1024;

/// One line of an export.
#[derive(Debug)]
pub enum Line {
    Header,
    Workspace(Settings),
    Agent(Agent),
    Page(Page),
    /// Rows of the table with this id, which is told of after them.
    Rows(Uuid, Vec<Row>),
    Table(Table),
    /// A file that the workspace keeps.
    File(ArchivedFile),
    /// The bytes of a file, from `offset` on.
    Blob {
        sha256: String,
        offset: u64,
        bytes: Vec<u8>,
    },
    /// A part of the log of a run, which is told of after it.
    Trace(Trace),
    Execution(Box<ArchivedExecution>),
    Conversation(Box<Archive>),
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Small {
    Threadkeep { version: u32 },
    Workspace(Settings),
    Agent(AgentLine),
    Page(PageLine),
    Table(TableLine),
    File(FileLine),
    Blob { sha256: String, offset: u64, data: String },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentLine {
    id: Uuid,
    name: String,
    settings: AgentSettings,
    created_at: Timestamp,
    updated_at: Timestamp,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConversationLine {
    r#type: String,
    id: Uuid,
    user_id: String,
    title: Option<String>,
    kind: Kind,
    mode: Option<Mode>,
    source: Option<Surface>,
    page_path: Option<String>,
    visibility: Visibility,
    workflow_id: Option<String>,
    agent_id: Option<String>,
    model: Option<String>,
    preview: Option<String>,
    conversation_id: Option<Uuid>,
    total_tokens: i64,
    created_at: String,
    updated_at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    metadata: Option<Raw>,
    context: Option<Raw>,
    tabs: Vec<Tab>,
    active_tab_key: Option<String>,
    current_branch: Uuid,
    branches: Vec<BranchLine>,
    runs: Vec<RunLine>,
    files: Vec<FileLine>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BranchLine {
    id: Uuid,
    /// Null for the first.
    parent: Option<Uuid>,
    from_message: Option<Uuid>,
    created_at: String,
    messages: Vec<MessageLine>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct MessageLine {
    id: Uuid,
    role: MessageRole,
    content: Vec<Raw>,
    file_attachments: Vec<Attachment>,
    sources: Vec<Source>,
    token_count: i64,
    metadata: Raw,
    created_at: i64,
}

/// One line, without its end. JSON text of someone else's making may hold line breaks between its parts, never
/// within a string; they become spaces.
fn line(value: &impl Serialize) -> Result<String, Refusal> {
    let text = serde_json::to_string(value).map_err(|error| Refusal(error.to_string()))?;
    Ok(if text.contains(['\n', '\r']) { text.replace(['\n', '\r'], " ") } else { text })
}

pub fn header_line() -> Result<String, Refusal> {
    line(&Small::Threadkeep { version: VERSION })
}

pub fn workspace_line(settings: &Settings) -> Result<String, Refusal> {
    line(&Small::Workspace(settings.clone()))
}

pub fn page_line(page: &Page) -> Result<String, Refusal> {
    line(&Small::Page(PageLine::of(page)))
}

pub fn rows_line(table: Uuid, rows: &[Row]) -> Result<String, Refusal> {
    line(&RowsLine::of(table, rows))
}

pub fn table_line(table: &Table) -> Result<String, Refusal> {
    line(&Small::Table(TableLine::of(table)))
}

pub fn trace_line(trace: &Trace) -> Result<String, Refusal> {
    line(&TraceLine::of(trace)?)
}

pub fn execution_line(execution: &ArchivedExecution) -> Result<String, Refusal> {
    line(&ExecutionLine::of(execution)?)
}

pub fn agent_line(agent: &Agent) -> Result<String, Refusal> {
    let Agent { id, name, settings, created_at, updated_at } = agent.clone();
    line(&Small::Agent(AgentLine { id, name, settings, created_at, updated_at }))
}

pub fn file_line(file: &ArchivedFile) -> Result<String, Refusal> {
    line(&Small::File(FileLine::of(file)))
}

pub fn blob_line(sha256: &str, offset: u64, bytes: &[u8]) -> Result<String, Refusal> {
    line(&Small::Blob { sha256: sha256.to_owned(), offset, data: BASE64.encode(bytes) })
}

pub fn conversation_line(archive: &Archive) -> Result<String, Refusal> {
    let of = &archive.conversation;
    let branches = archive.branches.iter().enumerate().map(|(at, branch)| branch_line(archive, at, branch));
    line(&ConversationLine {
        r#type: "conversation".into(),
        id: of.id,
        user_id: of.owner.clone(),
        title: of.title.clone(),
        kind: of.kind,
        mode: of.mode,
        source: of.source,
        page_path: of.page_path.clone(),
        visibility: of.visibility,
        workflow_id: of.workflow_id.clone(),
        agent_id: of.agent_id.clone(),
        model: of.model.clone(),
        preview: of.preview.clone(),
        conversation_id: of.first_message,
        total_tokens: of.total_tokens,
        created_at: rfc3339(of.created_at),
        updated_at: rfc3339(of.updated_at),
        metadata: archive.metadata.as_deref().map(raw).transpose()?,
        context: of.context.as_deref().map(raw).transpose()?,
        tabs: of.tabs.clone(),
        active_tab_key: of.active_tab_key.clone(),
        current_branch: archive.branches.get(archive.current).map_or(of.id, |branch| branch.id),
        branches: branches.collect::<Result<_, _>>()?,
        runs: archive.runs.iter().map(|run| run_line(archive, run)).collect::<Result<_, _>>()?,
        files: archive.files.iter().map(FileLine::of).collect(),
    })
}

fn run_line(archive: &Archive, of: &ArchivedRun) -> Result<RunLine, Refusal> {
    let branch = archive.branches.get(of.branch).map_or(archive.conversation.id, |branch| branch.id);
    RunLine::of(of, Some(branch))
}

pub(super) fn raw(text: &str) -> Result<Raw, Refusal> {
    RawValue::from_string(text.to_owned()).map_err(|error| Refusal(error.to_string()))
}

fn parse<T: for<'de> Deserialize<'de>>(text: &str) -> Result<T, Refusal> {
    serde_json::from_str(text).map_err(|error| Refusal(error.to_string()))
}

fn branch_line(archive: &Archive, at: usize, branch: &ArchivedBranch) -> Result<BranchLine, Refusal> {
    let parent = (at > 0).then(|| archive.branches.get(branch.parent)).flatten();
    let shared = parent.and_then(|_| {
        archive.thread(branch.parent).into_iter().find(|message| message.seq == branch.fork_seq)
    });
    Ok(BranchLine {
        id: branch.id,
        parent: parent.map(|parent| parent.id),
        from_message: shared.map(|message| message.id),
        created_at: rfc3339(branch.created_at),
        messages: branch.messages.iter().map(message_line).collect::<Result<_, _>>()?,
    })
}

fn message_line(message: &Message) -> Result<MessageLine, Refusal> {
    Ok(MessageLine {
        id: message.id,
        role: message.role,
        content: parse(&message.content)?,
        file_attachments: parse(&message.file_attachments)?,
        sources: parse(&message.sources)?,
        token_count: message.token_count,
        metadata: raw(&message.metadata)?,
        created_at: message.created_at.as_millisecond(),
    })
}

#[derive(Deserialize)]
struct Tag {
    r#type: String,
}

/// Reads one line. What a conversation holds is checked by `Archive::check`.
pub fn read_line(text: &str) -> Result<Line, Refusal> {
    let Tag { r#type } = parse(text).map_err(|_| Refusal::new("a line is a JSON object with a type"))?;
    // What holds JSON as it was spelled must be read as what it is at once.
    match &*r#type {
        "conversation" => return Ok(Line::Conversation(Box::new(read_conversation(parse(text)?)?))),
        "execution" => return Ok(Line::Execution(Box::new(parse::<ExecutionLine>(text)?.read()?))),
        "trace" => return Ok(Line::Trace(parse::<TraceLine>(text)?.read()?)),
        "rows" => {
            let (table, rows) = parse::<RowsLine>(text)?.read();
            return Ok(Line::Rows(table, rows));
        }
        _ => {}
    }
    match parse(text)? {
        Small::Threadkeep { version: VERSION } => Ok(Line::Header),
        Small::Threadkeep { version } => Err(Refusal(format!(
            "the export has version {version}, this Threadkeep reads version {VERSION}: use a newer one"
        ))),
        Small::Workspace(settings) => Ok(Line::Workspace(settings)),
        Small::Page(page) => Ok(Line::Page(page.read()?)),
        Small::Table(table) => Ok(Line::Table(table.read()?)),
        Small::Agent(AgentLine { id, name, settings, created_at, updated_at }) => {
            Ok(Line::Agent(Agent { id, name, settings, created_at, updated_at }))
        }
        Small::File(file) => {
            let file = file.read(Bag::Workspace)?;
            check_file(&file.file)?;
            Ok(Line::File(file))
        }
        Small::Blob { sha256, offset, data } => {
            let bytes = BASE64.decode(data).map_err(|_| Refusal::new("the data of a blob is not base64"))?;
            Ok(Line::Blob { sha256, offset, bytes })
        }
    }
}

pub(super) fn time(text: &str) -> Result<Timestamp, Refusal> {
    let at: Timestamp = text.parse().map_err(|_| Refusal(format!("{text:?} is not a time")))?;
    Ok(from_ms(at.as_millisecond()))
}

fn read_conversation(of: ConversationLine) -> Result<Archive, Refusal> {
    let (branches, current) = read_branches(&of)?;
    let places: HashMap<Uuid, usize> =
        branches.iter().enumerate().map(|(at, branch)| (branch.id, at)).collect();
    let mut archive = Archive {
        conversation: Conversation {
            id: of.id,
            workspace: Uuid::nil(),
            org: String::new(),
            owner: of.user_id,
            title: of.title,
            mode: of.mode,
            source: of.source,
            page_path: of.page_path,
            total_tokens: of.total_tokens,
            tabs: of.tabs,
            active_tab_key: of.active_tab_key,
            kind: of.kind,
            workflow_id: of.workflow_id,
            agent_id: of.agent_id,
            model: of.model,
            preview: of.preview,
            message_count: 0,
            first_message: of.conversation_id,
            visibility: of.visibility,
            context: of.context.map(|context| context.get().to_owned()),
            deleted_at: None,
            created_at: time(&of.created_at)?,
            updated_at: time(&of.updated_at)?,
            version: 1,
        },
        metadata: of.metadata.map(|metadata| metadata.get().to_owned()),
        branches,
        current,
        runs: of
            .runs
            .into_iter()
            .map(|run| {
                let named = run.branch.and_then(|branch| places.get(&branch).copied());
                let refusal = Refusal(format!("the run {} stands on a branch that is not there", run.id));
                Ok(ArchivedRun { branch: named.ok_or(refusal)?, ..run.read(Some(of.id), None)? })
            })
            .collect::<Result<_, _>>()?,
        files: of
            .files
            .into_iter()
            .map(|file| file.read(Bag::Conversation(of.id)))
            .collect::<Result<_, _>>()?,
    };
    archive.conversation.message_count = archive.thread(current).len() as i64;
    Ok(archive)
}

/// The branches in their order, and which of them is current.
fn read_branches(of: &ConversationLine) -> Result<(Vec<ArchivedBranch>, usize), Refusal> {
    let mut branches: Vec<ArchivedBranch> = Vec::with_capacity(of.branches.len());
    // Where every message stands: its branch and number.
    let mut places: HashMap<Uuid, i64> = HashMap::new();
    let mut known: HashMap<Uuid, usize> = HashMap::new();
    for branch in &of.branches {
        let refuse = |what: &str| Refusal(format!("the branch {} {what}", branch.id));
        let parent = match (&branch.parent, branches.is_empty()) {
            (None, true) => 0,
            (Some(parent), false) => {
                *known.get(parent).ok_or_else(|| refuse("comes from a branch that is not before it"))?
            }
            _ => return Err(refuse("must name its parent, unless it is the first")),
        };
        let fork_seq = match branch.from_message {
            None => 0,
            Some(id) => {
                *places.get(&id).ok_or_else(|| refuse("begins at a message that is not before it"))?
            }
        };
        let mut messages = Vec::with_capacity(branch.messages.len());
        for (message, seq) in branch.messages.iter().zip(fork_seq + 1..) {
            let read = read_message(message, seq)
                .map_err(|fault| Refusal(format!("the message {}: {fault}", message.id)))?;
            places.insert(read.id, seq);
            messages.push(read);
        }
        known.insert(branch.id, branches.len());
        let created_at = time(&branch.created_at)?;
        branches.push(ArchivedBranch { id: branch.id, parent, fork_seq, created_at, messages });
    }
    let current =
        known.get(&of.current_branch).copied().ok_or_else(|| Refusal::new("current_branch is not there"))?;
    Ok((branches, current))
}

fn read_message(of: &MessageLine, seq: i64) -> Result<Message, Refusal> {
    let blocks = of.content.iter().map(|block| read_block(block)).collect::<Result<Vec<_>, _>>()?;
    if !of.metadata.get().starts_with('{') {
        return Err(Refusal::new("metadata is not an object"));
    }
    Ok(Message {
        id: of.id,
        seq,
        role: of.role,
        text: plain_text(&blocks),
        content: line(&blocks)?,
        file_attachments: line(&of.file_attachments)?,
        sources: line(&of.sources)?,
        token_count: of.token_count,
        metadata: of.metadata.get().to_owned(),
        created_at: from_ms(of.created_at),
    })
}
