//! Which format a record is of, and what it becomes: threads, rows that belong to a thread, or further records.

use serde_json::value::RawValue;

use super::fields::Fields;
use super::thread::Thread;
use super::{
    Refusal, assistants, chat_conversations, chatgpt, claude, conversations, copilot_chats, librechat,
    open_webui,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Format {
    Threadkeep,
    CopilotChats,
    Conversations,
    ChatConversations,
    ChatGpt,
    Claude,
    LibreChat,
    OpenWebUi,
    Assistants,
}

impl Format {
    pub const ALL: [Self; 9] = [
        Self::Threadkeep,
        Self::CopilotChats,
        Self::Conversations,
        Self::ChatConversations,
        Self::ChatGpt,
        Self::Claude,
        Self::LibreChat,
        Self::OpenWebUi,
        Self::Assistants,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Threadkeep => "threadkeep",
            Self::CopilotChats => "copilot-chats",
            Self::Conversations => "conversations",
            Self::ChatConversations => "chat-conversations",
            Self::ChatGpt => "chatgpt",
            Self::Claude => "claude",
            Self::LibreChat => "librechat",
            Self::OpenWebUi => "open-webui",
            Self::Assistants => "assistants",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }
}

/// What a record is.
#[derive(Debug)]
pub enum Record<'a> {
    /// A line of our own export.
    Own,
    Thread(Format, Box<Thread>),
    /// A conversation whose messages are rows of their own.
    Conversation {
        format: Format,
        id: String,
    },
    /// A row that belongs to the conversation with this id.
    Message {
        format: Format,
        conversation: String,
    },
    /// A document that holds records.
    Records(Vec<&'a RawValue>),
    /// Nothing that is known.
    Unknown,
}

/// Members that hold records where a document is a whole table, or several.
const LISTS: [&str; 9] = [
    "data",
    "conversations",
    "messages",
    "copilotChats",
    "copilot_chats",
    "chat_conversations",
    "chatConversations",
    "chats",
    "threads",
];

/// Looks at a record: `format` is the one that was asked for, `max_tabs` the most that a conversation keeps.
pub fn look<'a>(of: &Fields<'a>, format: Option<Format>, max_tabs: usize) -> Result<Record<'a>, Refusal> {
    let kind = of.text(&["type"]);
    if is_own(of, format) {
        return Ok(Record::Own);
    }
    if let Some(message) = message_row(of, format) {
        return Ok(message);
    }
    let Some(found) = format.or_else(|| detect(of, kind.as_deref())) else {
        return Ok(nested(of, None).unwrap_or(Record::Unknown));
    };
    if let Some(records) = nested(of, Some(found)) {
        return Ok(records);
    }
    let thread = match found {
        Format::Threadkeep => return Err(Refusal::new("it is not a line of an export of ours")),
        Format::CopilotChats => copilot_chats::read(of)?,
        Format::Conversations if of.has("messages") => conversations::read(of, &of.list(&["messages"])?)?,
        Format::Conversations => {
            let id = of.text(&["id"]).ok_or_else(|| Refusal::new("it has no id"))?;
            return Ok(Record::Conversation { format: found, id });
        }
        Format::ChatConversations => chat_conversations::read(of, max_tabs)?,
        Format::ChatGpt => chatgpt::read(of)?,
        Format::Claude => claude::read(of)?,
        Format::LibreChat => librechat::read(of)?,
        Format::OpenWebUi => open_webui::read(of)?,
        Format::Assistants if !of.has("messages") && !of.has("data") => {
            let id = of.text(&["id"]).ok_or_else(|| Refusal::new("it has no id"))?;
            return Ok(Record::Conversation { format: found, id });
        }
        Format::Assistants => assistants::read(of)?,
    };
    Ok(Record::Thread(found, Box::new(thread)))
}

/// Whether a record is a line of an export of ours.
pub fn is_own(of: &Fields<'_>, format: Option<Format>) -> bool {
    if format.is_some_and(|format| format != Format::Threadkeep) {
        return false;
    }
    match of.text(&["type"]).as_deref() {
        Some("threadkeep") => of.has("version"),
        Some("conversation") => of.has("branches"),
        Some("workspace") => of.has("default_visibility"),
        Some("agent") => of.has("settings"),
        Some("page") => of.has("body"),
        Some("rows") => of.has("table"),
        Some("table") => of.has("columns"),
        Some("trace") => of.has("entries"),
        Some("part") => of.has("conversation"),
        Some("execution") => of.has("run"),
        Some("file") => of.has("sha256"),
        Some("blob") => of.has("sha256") && of.has("offset"),
        _ => false,
    }
}

/// A row of a table of messages.
fn message_row<'a>(of: &Fields<'a>, format: Option<Format>) -> Option<Record<'a>> {
    if !of.has("role") || of.has("messages") || of.has("mapping") {
        return None;
    }
    if let Some(thread) = of.text(&["thread_id"]) {
        let asked = format.is_none_or(|format| format == Format::Assistants);
        return asked.then_some(Record::Message { format: Format::Assistants, conversation: thread });
    }
    let conversation = of.text(&["conversation_id", "conversationId"])?;
    let asked = format.is_none_or(|format| format == Format::Conversations);
    asked.then_some(Record::Message { format: Format::Conversations, conversation })
}

fn detect(of: &Fields<'_>, kind: Option<&str>) -> Option<Format> {
    let has = |names: &[&str]| names.iter().any(|name| of.has(name));
    if has(&["mapping"]) {
        return Some(Format::ChatGpt);
    }
    if has(&["chat_messages"]) {
        return Some(Format::Claude);
    }
    if of.object(&["history"]).is_some()
        || of.object(&["chat"]).is_some_and(|chat| chat.has("history") || chat.has("messages"))
    {
        return Some(Format::OpenWebUi);
    }
    let object = of.text(&["object"]);
    if object.as_deref() == Some("thread")
        || has(&["thread"])
        || (object.as_deref() == Some("list") && holds(of, "data", "thread_id"))
    {
        return Some(Format::Assistants);
    }
    if has(&["conversationId"])
        && (holds(of, "messages", "messageId") || has(&["messagesTree", "exportAt", "endpoint"]))
    {
        return Some(Format::LibreChat);
    }
    if kind == Some("chat_conversation")
        || has(&["thread_id", "threadId", "active_path", "tabs", "active_tab_key"])
    {
        return Some(Format::ChatConversations);
    }
    if has(&["messages"]) && has(&["id"]) {
        let copilot = kind.is_some() || has(&["workflowId", "workflow_id", "conversationId", "workspaceId"]);
        let old = has(&["page_path", "mode", "source", "total_tokens", "context"]);
        let row = has(&["message_count", "preview", "agent_id", "org_id"]);
        return Some(match (copilot, old, row) {
            (false, true, _) => Format::ChatConversations,
            (false, false, true) => Format::Conversations,
            _ => Format::CopilotChats,
        });
    }
    is_row(of).then_some(Format::Conversations)
}

/// Whether this is a row of `conversations` without its messages: not one of something that a conversation has, such as
/// what somebody thought of an answer.
fn is_row(of: &Fields<'_>) -> bool {
    let has = |name: &&str| of.has(name);
    let told = ["message_count", "preview"].iter().any(has);
    let placed =
        ["user_id", "org_id", "workspace_id", "agent_id"].iter().filter(|name| has(name)).count() > 1;
    of.has("id")
        && !["conversation_id", "conversationId"].iter().any(has)
        && (told || (placed && of.has("created_at")))
}

/// Whether the first element of a list has a member.
fn holds(of: &Fields<'_>, list: &str, member: &str) -> bool {
    let first = of.elements(&[list]).into_iter().next();
    first.is_some_and(|first| Fields::read(first.get()).is_ok_and(|first| first.has(member)))
}

/// The records of a document that is no record itself.
fn nested<'a>(of: &Fields<'a>, found: Option<Format>) -> Option<Record<'a>> {
    let is_record = of.has("id") || of.has("uuid") || of.has("conversationId") || of.has("thread_id");
    if is_record
        || found == Some(Format::Assistants)
        || of.has("mapping")
        || of.has("chat_messages")
        || of.has("history")
    {
        return None;
    }
    // One resource alone, as the API answers it.
    if let Some(resource) = of.raw(&["data"]).filter(|data| data.get().starts_with('{')) {
        return Some(Record::Records(vec![resource]));
    }
    let records: Vec<&RawValue> = LISTS.iter().flat_map(|name| of.elements(&[name])).collect();
    let known = LISTS.iter().any(|name| of.raw(&[name]).is_some_and(|list| list.get().starts_with('[')));
    known.then_some(Record::Records(records))
}
