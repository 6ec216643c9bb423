//! A conversation, what may be asked of a list of them, and the rules of changing one.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::agent::Runner;
use crate::message::Message;
use crate::scope::Scope;
use crate::search;
use crate::tab::{Tab, check_tabs};

/// A closed set of words: one table gives `as_str`, `parse` and the serde names.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum $name {
            $(#[serde(rename = $text)] $variant),+
        }

        impl $name {
            pub const ALL: &'static [&'static str] = &[$($text),+];

            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            pub fn parse(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$variant),)+ _ => None }
            }
        }
    };
}

words!(Mode { Ask = "ask", Agent = "agent", TaskFlow = "task_flow" });
words!(
    /// The surface that created the conversation.
    Source { Web = "web", Extension = "extension" }
);
words!(Kind { AssistantSandbox = "assistant_sandbox", ModelChat = "model_chat" });
words!(Visibility { Private = "private", Workspace = "workspace" });

impl Kind {
    /// `ask` is a chat with a model; everything else runs in a sandbox.
    pub fn of(mode: Option<Mode>) -> Self {
        match mode {
            Some(Mode::Ask) => Self::ModelChat,
            Some(Mode::Agent | Mode::TaskFlow) | None => Self::AssistantSandbox,
        }
    }

    /// What an agent's own setting makes of it, which counts before the mode.
    pub fn run_by(runner: Runner) -> Self {
        match runner {
            Runner::Model => Self::ModelChat,
            Runner::Sandbox => Self::AssistantSandbox,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Conversation {
    pub id: Uuid,
    pub workspace: Uuid,
    pub org: String,
    pub owner: String,
    pub title: Option<String>,
    pub mode: Option<Mode>,
    pub source: Option<Source>,
    pub page_path: Option<String>,
    pub total_tokens: i64,
    pub tabs: Vec<Tab>,
    pub active_tab_key: Option<String>,
    pub kind: Kind,
    pub workflow_id: Option<String>,
    pub agent_id: Option<String>,
    pub model: Option<String>,
    pub preview: Option<String>,
    pub message_count: i64,
    /// The first user message, once there is one; shown as `conversation_id`.
    pub first_message: Option<Uuid>,
    pub visibility: Visibility,
    /// The client's own JSON text, kept to the byte. `None` also when it was not asked for.
    pub context: Option<String>,
    pub deleted_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// Grows by one with every write; the ETag.
    pub version: i64,
}

/// What a client may set. The outer `Option` says whether it was sent at all.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ConversationPatch {
    pub title: Option<Option<String>>,
    pub mode: Option<Option<Mode>>,
    pub page_path: Option<Option<String>>,
    pub context: Option<Option<String>>,
    pub tabs: Option<Vec<Tab>>,
    pub active_tab_key: Option<Option<String>>,
    pub model: Option<Option<String>>,
    pub agent_id: Option<Option<String>>,
    pub visibility: Option<Visibility>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct NewConversation {
    pub id: Option<Uuid>,
    pub source: Option<Source>,
    pub patch: ConversationPatch,
}

/// Why a patch was refused; nothing of it was applied.
#[derive(Debug, Clone, PartialEq)]
pub enum PatchFault {
    /// The caller may see the conversation but not change this.
    Denied { attribute: &'static str, reason: &'static str },
    /// A value that does not fit the document it would become part of.
    Invalid { pointer: String, detail: String },
    /// The version the caller named is not the stored one.
    Stale,
}

/// What one write needs to know beside the rows it changes.
#[derive(Debug, Clone)]
pub struct Write {
    pub now: Timestamp,
    /// The largest number of tabs a conversation may keep.
    pub max_tabs: usize,
}

impl Conversation {
    /// The conversation that `new` describes, before its first write.
    pub fn create(
        scope: &Scope,
        new: &NewConversation,
        id: Uuid,
        default_visibility: Visibility,
        write: &Write,
    ) -> Result<Self, PatchFault> {
        let mut made = Self {
            id,
            workspace: scope.workspace,
            org: scope.org.clone(),
            owner: scope.user.clone(),
            title: None,
            mode: None,
            source: new.source,
            page_path: None,
            total_tokens: 0,
            tabs: Vec::new(),
            active_tab_key: None,
            kind: Kind::of(None),
            workflow_id: None,
            agent_id: None,
            model: None,
            preview: None,
            message_count: 0,
            first_message: None,
            visibility: default_visibility,
            context: None,
            deleted_at: None,
            created_at: write.now,
            updated_at: write.now,
            version: 0,
        };
        made.apply(scope, &new.patch, None, write)?;
        made.updated_at = write.now;
        Ok(made)
    }

    /// Whether it is still as it was; without a version it is.
    pub fn check_version(&self, if_version: Option<i64>) -> Result<(), PatchFault> {
        if if_version.is_none_or(|version| version == self.version) { Ok(()) } else { Err(PatchFault::Stale) }
    }

    /// Applies a client's patch, or refuses it whole.
    pub fn apply(
        &mut self,
        scope: &Scope,
        patch: &ConversationPatch,
        if_version: Option<i64>,
        write: &Write,
    ) -> Result<(), PatchFault> {
        self.check_version(if_version)?;
        if let Some(visibility) = patch.visibility
            && visibility != self.visibility
        {
            if !scope.owns(&self.owner) {
                return Err(PatchFault::Denied {
                    attribute: "visibility",
                    reason: "only the owner or an admin may change who sees a conversation",
                });
            }
            self.visibility = visibility;
        }
        let tabs = patch.tabs.as_ref().unwrap_or(&self.tabs);
        // What was kept when more were allowed stays: a patch of something else is not about it.
        let max_tabs = if patch.tabs.is_some() { write.max_tabs } else { usize::MAX };
        let active = patch.active_tab_key.as_ref().unwrap_or(&self.active_tab_key);
        if let Some(fault) = check_tabs(tabs, active.as_deref(), max_tabs).into_iter().next() {
            return Err(PatchFault::Invalid { pointer: fault.pointer, detail: fault.detail });
        }
        self.set(patch);
        self.touch(write.now);
        Ok(())
    }

    fn set(&mut self, patch: &ConversationPatch) {
        if let Some(title) = &patch.title {
            self.title.clone_from(title);
        }
        if let Some(mode) = patch.mode {
            self.mode = mode;
        }
        if let Some(page_path) = &patch.page_path {
            self.page_path.clone_from(page_path);
        }
        if let Some(context) = &patch.context {
            self.context.clone_from(context);
        }
        if let Some(tabs) = &patch.tabs {
            self.tabs.clone_from(tabs);
        }
        if let Some(active) = &patch.active_tab_key {
            self.active_tab_key.clone_from(active);
        }
        if let Some(model) = &patch.model {
            self.model.clone_from(model);
        }
        if let Some(agent_id) = &patch.agent_id {
            self.agent_id.clone_from(agent_id);
        }
        if patch.mode.is_some() || patch.agent_id.is_some() {
            self.kind = Kind::of(self.mode);
        }
    }

    /// Every write moves `updated_at`, even two within one millisecond or under a clock set back.
    pub fn touch(&mut self, now: Timestamp) {
        let next = self.updated_at.checked_add(SignedDuration::from_millis(1)).unwrap_or(now);
        self.updated_at = now.max(next);
        self.version += 1;
    }

    /// Counters, preview and title as one more message is added.
    pub fn note_message(&mut self, id: Uuid, from_user: bool, text: &str, tokens: i64, now: Timestamp) {
        self.message_count += 1;
        self.total_tokens += tokens.max(0);
        if from_user && self.first_message.is_none() {
            self.first_message = Some(id);
            self.preview = first_line(text, 255);
            if self.title.is_none() {
                self.title = first_line(text, 80);
            }
        }
        self.touch(now);
    }

    /// A message of the thread has other content now: a title that was made from it is made anew.
    pub fn note_rewrite(&mut self, was: &Message, message: &Message, now: Timestamp) {
        if self.first_message == Some(message.id) {
            if self.title == first_line(&was.text, 80) {
                self.title = first_line(&message.text, 80);
            }
            self.preview = first_line(&message.text, 255);
        }
        self.touch(now);
    }
}

/// The first line that is not blank, cut to `max` characters. Control characters are dropped, but white space among them
/// keeps words apart.
fn first_line(text: &str, max: usize) -> Option<String> {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    let spaced = line.chars().map(|c| if c.is_control() && c.is_whitespace() { ' ' } else { c });
    let cut: String = spaced.filter(|c| !c.is_control()).take(max).collect();
    (!cut.is_empty()).then_some(cut)
}

words!(SortKey { UpdatedAt = "updated_at", CreatedAt = "created_at", Title = "title" });

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sort {
    pub key: SortKey,
    pub descending: bool,
}

impl Default for Sort {
    fn default() -> Self {
        Self { key: SortKey::UpdatedAt, descending: true }
    }
}

/// The value of the sort key at a place in a list. A missing title sorts as the empty one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum SortValue {
    Time(Timestamp),
    Text(String),
}

/// A place in a sorted list: between two rows, named by the row beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    pub value: SortValue,
    pub id: Uuid,
}

impl Position {
    pub fn of(conversation: &Conversation, key: SortKey) -> Self {
        let value = match key {
            SortKey::UpdatedAt => SortValue::Time(conversation.updated_at),
            SortKey::CreatedAt => SortValue::Time(conversation.created_at),
            SortKey::Title => SortValue::Text(conversation.title.clone().unwrap_or_default()),
        };
        Self { value, id: conversation.id }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seek {
    Start,
    After(Position),
    Before(Position),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConversationFilter {
    pub source: Option<Source>,
    pub mode: Option<Mode>,
    pub kind: Option<Kind>,
    pub agent: Option<String>,
    /// Only deleted ones, of the caller's own (or of everyone, for those who see all).
    pub deleted: bool,
}

#[derive(Debug, Clone)]
pub struct ConversationQuery {
    pub filter: ConversationFilter,
    pub sort: Sort,
    pub seek: Seek,
    pub limit: usize,
    pub with_context: bool,
}

#[derive(Debug, Clone)]
pub struct ConversationSearch {
    pub filter: ConversationFilter,
    pub query: search::Query,
    /// `None` is best first.
    pub sort: Option<Sort>,
    pub offset: usize,
    pub limit: usize,
    pub with_context: bool,
}

/// One page of a list, with what lies on either side of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Page<T> {
    pub items: Vec<T>,
    pub has_before: bool,
    pub has_after: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    pub conversation: Conversation,
    pub highlights: Vec<search::Highlight>,
}
