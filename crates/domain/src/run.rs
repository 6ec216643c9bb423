//! A run: the execution of one turn. Its states, the policies a caller may choose, and what a turn asks for.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::to_raw_value;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::conversation::{Mode, Source};
use crate::model::{Manner, ToolSpec};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    Queued,
    Running,
    Succeeded,
    Failed,
    Cancelled,
    Interrupted,
}

impl RunStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Self::Queued, Self::Running, Self::Succeeded, Self::Failed, Self::Cancelled, Self::Interrupted]
            .into_iter()
            .find(|status| status.as_str() == text)
    }

    /// An end: it never changes again.
    pub fn is_settled(self) -> bool {
        !matches!(self, Self::Queued | Self::Running)
    }

    /// Every legal step of a run's life.
    pub fn may_become(self, next: Self) -> bool {
        match self {
            // It fails when it cannot be started.
            Self::Queued => matches!(next, Self::Running | Self::Cancelled | Self::Failed),
            Self::Running => next.is_settled(),
            _ => false,
        }
    }
}

/// What to do when the conversation has a run under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnBusy {
    #[default]
    Reject,
    Enqueue,
    Interrupt,
    Rollback,
}

impl OnBusy {
    /// Whether the others are cancelled for its sake.
    pub fn interrupts(self) -> bool {
        matches!(self, Self::Interrupt | Self::Rollback)
    }
}

/// What becomes of a run when nobody reads it any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnDisconnect {
    #[default]
    Cancel,
    Continue,
}

impl OnDisconnect {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Continue => "continue",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunError {
    pub code: String,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    pub input_tokens: i64,
    pub output_tokens: i64,
}

impl Usage {
    pub fn total(self) -> i64 {
        self.input_tokens + self.output_tokens
    }
}

/// Which of these tokens were of a kind of their own, as far as a provider says. Told with an answer; what is counted is
/// `Usage`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct UsageDetails {
    /// Input that the provider had kept.
    #[serde(skip_serializing_if = "is_none")]
    pub cached_tokens: i64,
    /// Input that it keeps now.
    #[serde(skip_serializing_if = "is_none")]
    pub cache_write_tokens: i64,
    /// Output that was thought and not said.
    #[serde(skip_serializing_if = "is_none")]
    pub reasoning_tokens: i64,
}

fn is_none(count: &i64) -> bool {
    *count == 0
}

impl std::ops::Add for UsageDetails {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        Self {
            cached_tokens: self.cached_tokens + more.cached_tokens,
            cache_write_tokens: self.cache_write_tokens + more.cache_write_tokens,
            reasoning_tokens: self.reasoning_tokens + more.reasoning_tokens,
        }
    }
}

/// A stored run.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    pub id: Uuid,
    pub workspace: Uuid,
    pub conversation: Option<Uuid>,
    pub execution: Option<Uuid>,
    pub status: RunStatus,
    /// The user message it answers; it stands in the thread once the run has started.
    pub message: Option<Uuid>,
    pub assistant_message: Option<Uuid>,
    /// Who asked; nobody where a key of the workspace did.
    pub user: Option<String>,
    pub usage: Usage,
    pub error: Option<RunError>,
    /// The number of the newest event in the log.
    pub last_event: i64,
    pub on_disconnect: OnDisconnect,
    /// Someone asked for the end; the node that drives it acts on it.
    pub cancel_requested: bool,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
}

/// The right to write to a run: every write carries it, and one with an old fence changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    pub run: Uuid,
    pub fence: i64,
}

/// A turn as the caller asked for it, checked. Kept with a queued run as JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StartTurn {
    pub conversation: Option<Uuid>,
    /// Edit this user message, or, when `message` is left out, answer it again.
    pub replace: Option<Uuid>,
    /// The user's blocks as JSON, with their plain text; `None` only with `replace`.
    pub message: Option<TurnMessage>,
    /// Files of the conversation to attach; `None` with `replace` keeps those of the message it edits.
    #[serde(default)]
    pub attachments: Option<Vec<Uuid>>,
    pub agent: Option<String>,
    pub model: Option<String>,
    pub workflow: Option<String>,
    pub mode: Option<Mode>,
    pub source: Option<Source>,
    pub page_path: Option<String>,
    pub on_busy: OnBusy,
    pub on_disconnect: OnDisconnect,
    #[serde(default)]
    pub brought: Brought,
}

/// What a client of another dialect brought along: ids of its own, and what it wants to be told again.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Brought {
    /// For a first turn, the conversation to make.
    pub conversation: Option<Uuid>,
    pub message: Option<Uuid>,
    /// How the client calls the message, where that is not its id to the letter.
    pub message_name: Option<String>,
    /// What the client has of the message beside its text and files, for the message's metadata.
    pub metadata: serde_json::Map<String, serde_json::Value>,
    /// What a model is told for this turn alone, beside its agent's instructions.
    pub instructions: Option<String>,
    /// How a model is to answer this turn, and how much it may say.
    pub manner: Manner,
    pub max_tokens: Option<u64>,
    /// How many calls of the server's tools a model has in this turn.
    pub max_calls: Option<u64>,
    /// The client leaves where people are asked, and comes back with what they decided: from then on the run stays,
    /// whoever reads it.
    pub comes_back: bool,
    /// Tools that the client makes the calls of.
    pub tools: Vec<BroughtTool>,
    /// The request's own settings, which its answer repeats.
    pub echo: Option<serde_json::Value>,
}

/// A function of the client's: a model is offered it, and the client makes its calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BroughtTool {
    pub name: String,
    pub description: String,
    /// JSON Schema of its arguments, an object.
    pub parameters: serde_json::Value,
}

impl BroughtTool {
    /// As a model is told of it.
    pub fn spec(&self) -> Option<ToolSpec> {
        let schema = to_raw_value(&self.parameters).ok()?;
        Some(ToolSpec { name: self.name.clone(), description: self.description.clone(), schema })
    }
}

impl Brought {
    /// Whether calls of this name are the client's to make.
    pub fn makes(&self, name: &str) -> bool {
        self.tools.iter().any(|tool| tool.name == name)
    }
}

/// The id of what a client calls by a name of its own: a UUID is itself, any other text always gives the same one
/// within `space`.
pub fn named_id(space: Uuid, name: &str) -> Uuid {
    Uuid::try_parse(name).unwrap_or_else(|_| derived_id(space, name))
}

/// As `named_id`, of what a user has by that name and others may have, too.
pub fn own_named_id(space: Uuid, user: &str, name: &str) -> Uuid {
    named_id(derived_id(space, user), name)
}

/// As `named_id`, of a message: its client knows it by the very letters it sent, so that a UUID in another spelling than
/// ours is a name like any other.
pub fn message_id(space: Uuid, name: &str) -> Uuid {
    spelled_id(name).unwrap_or_else(|| derived_id(space, name))
}

/// The UUID that a text is, if it is written the way ids are told: hyphenated, in small letters.
pub fn spelled_id(text: &str) -> Option<Uuid> {
    Uuid::try_parse(text).ok().filter(|id| id.hyphenated().encode_lower(&mut Uuid::encode_buffer()) == text)
}

fn derived_id(space: Uuid, name: &str) -> Uuid {
    let digest = Sha256::new().chain_update(space.as_bytes()).chain_update(name.as_bytes()).finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TurnMessage {
    /// A JSON array of blocks.
    pub content: String,
    pub text: String,
    /// It came as files alone, whose names are its text.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wordless: bool,
}

#[cfg(test)]
mod tests {
    use super::RunStatus::{self, Cancelled, Failed, Interrupted, Queued, Running, Succeeded};
    use super::{Uuid, message_id, named_id, own_named_id};

    #[test]
    fn a_name_has_one_id_in_its_space() {
        let (here, there) = (Uuid::from_u128(1), Uuid::from_u128(2));
        assert_eq!(named_id(here, "chat-1"), named_id(here, "chat-1"));
        assert_ne!(named_id(here, "chat-1"), named_id(there, "chat-1"));
        assert_ne!(named_id(here, "chat-1"), named_id(here, "chat-2"));
        assert_eq!(named_id(here, "chat-1").get_version_num(), 8);
        let own = own_named_id(here, "ann", "chat-1");
        assert_eq!(own, own_named_id(here, "ann", "chat-1"));
        let others = [
            named_id(here, "chat-1"),
            own_named_id(here, "bob", "chat-1"),
            own_named_id(there, "ann", "chat-1"),
        ];
        assert!(!others.contains(&own));
        assert_eq!(own_named_id(here, "ann", &there.to_string()), there);
        assert_eq!(named_id(here, &there.to_string().to_uppercase()), there);
    }

    #[test]
    fn a_message_has_its_uuid_in_one_spelling() {
        let (here, id) = (Uuid::from_u128(1), Uuid::from_u128(0xabc));
        assert_eq!(message_id(here, &id.to_string()), id);
        let others = [
            id.to_string().to_uppercase(),
            id.simple().to_string(),
            id.braced().to_string(),
            id.urn().to_string(),
        ];
        for (at, name) in others.iter().enumerate() {
            assert_ne!(message_id(here, name), id, "{name}");
            assert!(others[..at].iter().all(|other| message_id(here, other) != message_id(here, name)));
        }
        assert_eq!(message_id(here, "m"), named_id(here, "m"));
    }

    #[test]
    fn only_these_steps_are_legal() {
        let legal = [
            (Queued, Running),
            (Queued, Cancelled),
            (Queued, Failed),
            (Running, Succeeded),
            (Running, Failed),
            (Running, Cancelled),
            (Running, Interrupted),
        ];
        let all = [Queued, Running, Succeeded, Failed, Cancelled, Interrupted];
        for from in all {
            for to in all {
                assert_eq!(from.may_become(to), legal.contains(&(from, to)), "{from:?} -> {to:?}");
            }
            assert_eq!(RunStatus::parse(from.as_str()), Some(from));
        }
        assert_eq!(RunStatus::parse("gone"), None);
    }
}
