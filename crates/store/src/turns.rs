//! What the verbs of a turn take and give.

use std::sync::Arc;

use domain::conversation::{Conversation, ConversationPatch, Kind, NewConversation};
use domain::entry::write_event;
use domain::event::{RunEvent, Turn};
use domain::file::File;
use domain::message::{Message, MessageRole, NewMessage, WORDLESS};
use domain::open_runs::{OpenRuns, RunLimits, TooManyRuns};
use domain::run::{Brought, Lease, Run, RunError, RunStatus, StartTurn, TurnMessage, Usage};
use domain::scope::{Role, Scope};
use domain::tokens::{OutOfTokens, TokenLimits};
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::error::{Result, StoreError};

/// A turn to begin, with every id it may need.
#[derive(Debug, Clone)]
pub struct NewTurn {
    pub run: Uuid,
    pub message: Uuid,
    /// For a first turn, which makes its conversation.
    pub conversation: Uuid,
    /// For a turn that starts a branch.
    pub branch: Uuid,
    pub turn: StartTurn,
    pub idempotency: Option<Idempotency>,
    pub node: Uuid,
    pub lease_seconds: u64,
    pub open_runs: RunLimits,
    pub tokens: TokenLimits,
    pub now: Timestamp,
}

#[derive(Debug, Clone)]
pub struct Idempotency {
    pub key: String,
    pub body_hash: [u8; 32],
}

#[derive(Debug, Clone, PartialEq)]
pub enum Begun {
    /// The run is under way and this node's to drive; its log has its first event. What is open counts it.
    Started {
        run: Run,
        lease: Lease,
        opening: Batch,
        open: OpenRuns,
        /// What `get_dispatch` would answer, where that is known already.
        dispatch: Option<Box<Dispatch>>,
    },
    /// It starts when the conversation is free.
    Queued(Run, OpenRuns),
    /// Refused: this run is under way.
    Busy(Uuid),
    /// The same request came before; this is its run.
    Repeated(Run),
    /// The same key came before with another body, or for another workspace.
    KeyReused,
    /// So many runs are open already.
    TooManyRuns(TooManyRuns),
    /// Nothing is left of a day's tokens.
    OutOfTokens(OutOfTokens),
}

/// A run, and the turn that it was asked to be.
#[derive(Debug, Clone, PartialEq)]
pub struct Asking {
    pub run: Run,
    pub turn: StartTurn,
    /// Taken out of the API that made it.
    pub forgotten: bool,
}

/// A run with the right to write to it, wherever it lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    pub workspace: Uuid,
    pub lease: Lease,
}

/// A run under way and the conversation that it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lock {
    pub workspace: Uuid,
    pub conversation: Uuid,
    pub run: Uuid,
    /// The process that drives it, by the name it gave itself when it started.
    pub node: Option<String>,
    /// By the database's clock; below zero once it has run out.
    pub lease_left_ms: i64,
}

/// Everything a runner is given.
#[derive(Debug, Clone, PartialEq)]
pub struct Dispatch {
    pub run: Run,
    /// Who asked for it.
    pub user: String,
    /// None for an execution.
    pub conversation: Option<Conversation>,
    /// The user's message; of an execution its prompt, with the execution's id.
    pub message: Message,
    /// The messages before it, newest last.
    pub before: Vec<Message>,
    pub turn: StartTurn,
    /// The visible ones of the files that the run was given when it started, by name.
    pub files: Vec<File>,
}

/// Log entries to append, one JSON object a line, numbered on from what is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    pub first_entry: i64,
    pub last_entry: i64,
    pub first_seq: i64,
    /// `first_seq - 1` when the batch holds no event.
    pub last_seq: i64,
    pub entries: Arc<str>,
}

impl Batch {
    /// Why it was refused, of a log that is its writer's and ends with this entry and this event.
    pub(crate) fn misplaced(&self, (last_entry, last_seq): (i64, i64)) -> StoreError {
        let before = (self.first_entry - 1, self.first_seq - 1);
        // Or where it should: then it did not when the batch was refused.
        match last_entry < before.0 || (last_entry, last_seq) == before {
            true => StoreError::Behind { last_entry },
            false => StoreError::Lost,
        }
    }
}

/// How a run ended, and all that is written with it.
#[derive(Debug, Clone)]
pub struct Settlement {
    pub status: RunStatus,
    pub error: Option<RunError>,
    /// None for a run outside any conversation.
    pub assistant: Option<Arc<NewMessage>>,
    /// The answer of an execution.
    pub response: Option<String>,
    /// Whether what the run's sandbox sent back is in its log; `FilesWaiting` when it is not.
    pub files_logged: bool,
    /// What its end says was used and counted on the way; `MoreUsed` when it is more. None where it says nothing of it.
    pub counted: Option<Usage>,
    /// What is yet to be counted.
    pub usage: Usage,
    /// What came with the end, and the terminal events.
    pub batch: Batch,
    pub now: Timestamp,
}

impl Settlement {
    /// What may be counted already for the run to end so.
    pub(crate) fn most_counted(&self) -> Usage {
        self.counted.unwrap_or(Usage { input_tokens: i64::MAX, output_tokens: i64::MAX })
    }

    /// Why a run that is still its writer's did not end so; none if there is no reason.
    pub(crate) fn hindrance(&self, files: bool, counted: Usage) -> Option<StoreError> {
        let most = self.most_counted();
        if files && !self.files_logged {
            Some(StoreError::FilesWaiting)
        } else if counted.input_tokens > most.input_tokens || counted.output_tokens > most.output_tokens {
            Some(StoreError::MoreUsed(counted))
        } else {
            None
        }
    }
}

/// What a settlement left.
#[derive(Debug, Clone, PartialEq)]
pub struct Settled {
    pub run: Run,
    /// Another run waits for the conversation.
    pub queue: bool,
}

/// A stretch of a run's log.
#[derive(Debug, Clone, PartialEq)]
pub struct LogPage {
    pub run: Run,
    /// Whole batches, in order; the first may hold entries before the place asked for.
    pub entries: Vec<String>,
    /// The last entry and the last event up to the end of these batches, as they were written; none of none. One that is
    /// damaged may not say so itself.
    pub last: Option<(i64, i64)>,
    /// The event log's time is over. Where the run came without a log, its settled message is all there is.
    pub expired: bool,
}

/// The entries of batches, and the last of their entries and events.
pub(crate) type Batches = (Vec<String>, Option<(i64, i64)>);

/// What a heartbeat found of this node's runs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Heartbeat {
    /// Still this node's, with their fences.
    pub held: Vec<Held>,
    /// Of those, the ones that someone wants ended.
    pub cancelled: Vec<Uuid>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Branch {
    pub id: Uuid,
    /// The last message shared with the branch it came from.
    pub from_message: Option<Uuid>,
    pub head: Option<Uuid>,
    pub current: bool,
    pub created_at: Timestamp,
}

/// Where a conversation goes on after one of its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WayOn {
    /// The branch that the message was written on.
    pub branch: Uuid,
    /// Whether the current branch has the message as well: it goes on there then.
    pub current: bool,
    /// What a user said next.
    pub next: Option<Uuid>,
}

/// A conversation whose queue can move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Waiting {
    pub workspace: Uuid,
    pub conversation: Uuid,
}

/// What starting a queued run needs.
#[derive(Debug, Clone, Copy)]
pub struct QueueStart {
    pub node: Uuid,
    pub lease_seconds: u64,
    /// For a turn that starts a branch.
    pub branch: Uuid,
    pub now: Timestamp,
}

impl QueueStart {
    /// A turn begins no sooner than the one before it ended, whose end has moved the conversation: the clock was asked
    /// before it was waited for, and another node's may be ahead.
    pub(crate) fn in_order(self, conversation: &Conversation) -> Self {
        Self { now: self.now.max(conversation.updated_at), ..self }
    }
}

/// What nodes tell each other, of a run but for the last. A hint that saves waiting, never the truth: it may be lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum News {
    /// Its log has grown, or it has ended.
    Moved(Uuid),
    /// Some node has a reader of it, and wants to hear when it moves.
    Following(Uuid),
    /// The last reader that some node had of it has left; whoever else follows it says so again.
    Left(Uuid),
    /// Someone wants it ended.
    Cancelled(Uuid),
    /// Its sandbox has sent files back.
    Results(Uuid),
    /// In this workspace somebody may see less than before.
    Rights(Uuid),
    /// For a while nothing was heard, for whatever reason; a crash of the database is one. Nobody says it.
    Missed,
}

/// How long an idempotency key is remembered.
pub(crate) const KEY_LIFE: jiff::SignedDuration = jiff::SignedDuration::from_hours(24);

pub(crate) fn parse_json<T: DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| StoreError::Internal(error.to_string()))
}

pub(crate) fn to_json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|error| StoreError::Internal(error.to_string()))
}

/// What the log of every run begins with, stored with its start: its first entry and first event.
pub(crate) fn opening(turn: Turn, now: Timestamp) -> Result<Batch> {
    let mut text = Vec::new();
    write_event(&mut text, (1, 1, now.as_millisecond()), &RunEvent::Turn(turn), None)
        .map_err(|error| StoreError::Internal(error.to_string()))?;
    let entries = String::from_utf8_lossy(&text).into();
    Ok(Batch { first_entry: 1, last_entry: 1, first_seq: 1, last_seq: 1, entries })
}

/// `opening` of a run of a thread.
pub(crate) fn thread_opening(
    thread: &Conversation,
    run: Uuid,
    message: Option<Uuid>,
    now: Timestamp,
) -> Result<Batch> {
    let (conversation, conversation_id) = (Some(thread.id), thread.first_message);
    opening(Turn { conversation, run, message, conversation_id }, now)
}

/// The message that a turn puts into its thread.
pub(crate) fn user_message(
    id: Uuid,
    said: &TurnMessage,
    brought: &Brought,
    now: Timestamp,
) -> Result<NewMessage> {
    let TurnMessage { content, text, wordless } = said.clone();
    let mut metadata = brought.metadata.clone();
    if let Some(name) = &brought.message_name {
        metadata.insert("client_id".into(), name.as_str().into());
    }
    if wordless {
        metadata.insert(WORDLESS.into(), true.into());
    }
    let metadata = to_json(&metadata)?;
    Ok(NewMessage { content, text, metadata, ..NewMessage::new(id, MessageRole::User, &[], now) })
}

/// What the runner of a thread's first turn is given: there is nothing before it, and its bag is empty.
pub(crate) fn first_dispatch(
    scope: &Scope,
    run: &Run,
    thread: &Conversation,
    new: &NewTurn,
) -> Result<Option<Box<Dispatch>>> {
    let Some(said) = &new.turn.message else { return Ok(None) };
    let NewMessage { id, role, content, text, file_attachments, sources, token_count, metadata, created_at } =
        user_message(new.message, said, &new.turn.brought, run.created_at)?;
    let message = Message {
        id,
        seq: 1,
        role,
        text,
        content,
        file_attachments,
        sources,
        token_count,
        metadata,
        created_at,
    };
    Ok(Some(Box::new(Dispatch {
        run: run.clone(),
        user: scope.user.clone(),
        conversation: Some(thread.clone()),
        message,
        before: Vec::new(),
        turn: new.turn.clone(),
        files: Vec::new(),
    })))
}

/// The scope of the server's own work for a run: all of one workspace.
pub(crate) fn own_scope(workspace: Uuid) -> Scope {
    Scope {
        workspace,
        org: String::new(),
        user: String::new(),
        role: Role::Service,
        key: None,
        administers: false,
    }
}

/// Whose idempotency keys these are: two callers never meet in one key.
pub(crate) fn caller(scope: &Scope) -> String {
    match scope.key {
        Some(key) => format!("{key} {}", scope.user),
        None => scope.user.clone(),
    }
}

/// The conversation that a first turn makes.
pub(crate) fn first_of(new: &NewTurn) -> Result<NewConversation> {
    let turn = &new.turn;
    if turn.replace.is_some() {
        return Err(StoreError::Invalid { input: "/replace", detail: "replace needs a conversation" });
    }
    Ok(NewConversation {
        id: Some(new.conversation),
        source: turn.source,
        patch: ConversationPatch {
            mode: turn.mode.map(Some),
            page_path: turn.page_path.clone().map(Some),
            model: turn.model.clone().map(Some),
            agent_id: turn.agent.clone().map(Some),
            ..ConversationPatch::default()
        },
    })
}

/// What a turn says about its conversation: the mode and page last used, and what it overrides.
pub(crate) fn note_turn(thread: &mut Conversation, turn: &StartTurn) {
    thread.mode = turn.mode.or(thread.mode);
    for (field, value) in [
        (&mut thread.page_path, &turn.page_path),
        (&mut thread.model, &turn.model),
        (&mut thread.agent_id, &turn.agent),
        (&mut thread.workflow_id, &turn.workflow),
    ] {
        if value.is_some() {
            field.clone_from(value);
        }
    }
    if turn.mode.is_some() || thread.agent_id.is_some() {
        thread.kind = Kind::of(thread.mode);
    }
}
