//! The thread that a model is told of: read back as far as can matter, and where its prompt begins.

use domain::budget::{Fitted, Material, Unit, chars};
use domain::message::{Block, Message, MessageRole};
use domain::prompt::{of_blocks, of_message, user_text};
use serde::Deserialize;
use store::turns::Dispatch;
use uuid::Uuid;

use crate::Turns;
use crate::error::TurnError;
use crate::log::{RunLog, retry};

/// Messages read at first; more where they are short.
const FIRST_READ: usize = 64;
const GROWTH: usize = 4;

pub(super) struct Thread {
    system: String,
    before: Vec<Unit>,
    newest: (Uuid, String),
    /// The place of the answer in its thread.
    seq: i64,
    /// Older messages that were not even read.
    unread: i64,
    /// The index of the first message that the last prompt began with.
    pub(super) from: usize,
}

impl Thread {
    pub(super) async fn read(
        turns: &Turns,
        log: &RunLog,
        dispatch: &Dispatch,
        system: String,
    ) -> Result<Self, TurnError> {
        let inner = &turns.inner;
        let budget = inner.limits.context_budget_chars as usize;
        let mut before = dispatch.before.clone();
        let (mut read, mut whole) = (FIRST_READ, false);
        loop {
            let units: Vec<Unit> = before.iter().map(unit).collect();
            let anchor = anchor(&before);
            let at = anchor.and_then(|id| units.iter().position(|unit| unit.id == id));
            let size: usize = units.iter().map(|unit| chars(&unit.said)).sum();
            whole |= before.first().is_none_or(|first| first.seq <= 1);
            if whole || at.is_some() || size > budget {
                return Ok(Self {
                    system,
                    unread: before.first().map_or(dispatch.message.seq, |first| first.seq) - 1,
                    before: units,
                    newest: (dispatch.message.id, user_text(&dispatch.message)),
                    seq: dispatch.message.seq + 1,
                    from: at.unwrap_or(0),
                });
            }
            before = retry(log.live(), || inner.store.get_dispatch(&log.held, read)).await?.before;
            whole = before.len() < read;
            read *= GROWTH;
        }
    }

    /// All of it, with what the run has said so far.
    pub(super) fn with(&self, blocks: &[Block]) -> Material {
        Material {
            system: self.system.clone(),
            before: self.before.clone(),
            newest: self.newest.1.clone(),
            own: of_blocks(self.seq, blocks),
        }
    }

    /// The messages that are sent from there on.
    pub(super) fn ids(&self, from: usize) -> Vec<Uuid> {
        self.before[from..].iter().map(|unit| unit.id).chain([self.newest.0]).collect()
    }

    /// The first message of the last prompt.
    pub(super) fn first_sent(&self) -> Uuid {
        self.before.get(self.from).map_or(self.newest.0, |unit| unit.id)
    }

    /// What is left out, in words.
    pub(super) fn cuts(&self, fitted: &Fitted) -> Vec<String> {
        let mut cuts = Vec::new();
        let older = self.unread + fitted.from as i64;
        if older > 0 {
            cuts.push(format!("the {older} messages before the first one sent"));
        }
        let silent = self.before[fitted.from..].iter().filter(|unit| unit.said.is_empty()).count();
        if silent > 0 {
            cuts.push(format!("{silent} messages without text"));
        }
        if fitted.dropped_calls > 0 {
            cuts.push(format!("the {} oldest calls of this run", fitted.dropped_calls));
        }
        cuts
    }
}

fn unit(message: &Message) -> Unit {
    Unit { id: message.id, said: of_message(message) }
}

/// Where the prompt of the newest answered turn began: the next one begins there, too.
fn anchor(before: &[Message]) -> Option<Uuid> {
    #[derive(Deserialize)]
    struct Metadata {
        context_from: Option<Uuid>,
    }
    let answers = before.iter().rev().filter(|message| message.role == MessageRole::Assistant);
    answers
        .filter_map(|message| serde_json::from_str::<Metadata>(&message.metadata).ok()?.context_from)
        .next()
}
