//! The thread that a model is told of: read back as far as can matter, and where its prompt begins.

use domain::budget::{Fitted, Material, Unit, chars};
use domain::message::{Block, Message, MessageRole};
use domain::model::{Said, Takes, Words};
use domain::part::shown;
use domain::prompt::{call_id, of_blocks, of_message, words};
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
    newest: (Uuid, Words),
    /// The newest message without its files.
    bare: String,
    /// Files that are not shown, by message, and why.
    withheld: Vec<(Uuid, Vec<String>)>,
    /// What is told of everything before the first message sent, and which that is.
    summary: Option<(Uuid, Option<String>)>,
    /// The place of the answer in its thread.
    seq: i64,
    /// Older messages that were not even read.
    unread: i64,
    made_summary: bool,
    /// The index of the first message that the last prompt began with.
    pub(super) from: usize,
}

impl Thread {
    pub(super) async fn read(
        turns: &Turns,
        log: &RunLog,
        dispatch: &Dispatch,
        system: String,
        takes: Takes,
    ) -> Result<Self, TurnError> {
        let inner = &turns.inner;
        let budget = inner.limits.context_budget_chars as usize;
        let mut before = dispatch.before.clone();
        let (mut read, mut whole) = (FIRST_READ, false);
        loop {
            let mut withheld = Vec::new();
            // Of a message's files as much is shown as leaves half of the budget to others.
            let mut tell = |message: &Message| {
                let shown = shown(message, takes, (budget / 2).saturating_sub(message.text.chars().count()));
                if !shown.withheld.is_empty() {
                    withheld.push((message.id, shown.withheld.clone()));
                }
                words(message, shown)
            };
            let units: Vec<Unit> = before.iter().map(|message| unit(message, &mut tell)).collect();
            let anchor = anchor(&before);
            let at = anchor.and_then(|id| units.iter().position(|unit| unit.id == id));
            let size: usize = units.iter().map(|unit| chars(&unit.said)).sum();
            whole |= before.first().is_none_or(|first| first.seq <= 1);
            if whole || at.is_some() || size > budget {
                let newest = tell(&dispatch.message);
                return Ok(Self {
                    system,
                    summary: anchor.map(|from| (from, kept_summary(&before, from))),
                    bare: dispatch.message.text.clone(),
                    withheld,
                    unread: before.first().map_or(dispatch.message.seq, |first| first.seq) - 1,
                    before: units,
                    newest: (dispatch.message.id, newest),
                    seq: dispatch.message.seq + 1,
                    made_summary: false,
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
            summary: self.summary.as_ref().and_then(|(_, summary)| summary.clone()),
            newest: self.newest.1.clone(),
            bare: self.bare.clone(),
            own: of_blocks(self.seq, blocks),
        }
    }

    /// The id in a prompt of the next call that the run makes, after these blocks.
    pub(super) fn next_call(&self, blocks: &[Block]) -> String {
        let made = blocks.iter().filter(|block| matches!(block, Block::ToolCall { .. })).count();
        call_id(self.seq, made)
    }

    /// The messages that are sent from there on.
    pub(super) fn ids(&self, from: usize) -> Vec<Uuid> {
        self.before[from..].iter().map(|unit| unit.id).chain([self.newest.0]).collect()
    }

    /// The first message of the last prompt.
    pub(super) fn first_sent(&self) -> Uuid {
        self.before.get(self.from).map_or(self.newest.0, |unit| unit.id)
    }

    /// The message that a prompt from there on begins with.
    fn first(&self, from: usize) -> Uuid {
        self.before.get(from).map_or(self.newest.0, |unit| unit.id)
    }

    /// Characters of the summary that is sent.
    pub(super) fn summary_chars(&self) -> usize {
        let summary = self.summary.as_ref().and_then(|(_, summary)| summary.as_ref());
        summary.map_or(0, |summary| summary.chars().count() + 2)
    }

    /// Whether nothing is left out, or what is has been summed up.
    pub(super) fn summary_is_for(&self, from: usize) -> bool {
        let nothing = from == 0 && self.unread == 0;
        nothing || self.summary.as_ref().is_some_and(|(at, _)| *at == self.first(from))
    }

    /// What is left out by a prompt from there on, with what summed up what was left out before.
    pub(super) fn left_out(&self, from: usize, tell: impl Fn(&Said) -> String) -> String {
        let before = self.summary.as_ref().and_then(|(_, summary)| summary.clone()).unwrap_or_default();
        let told = self.before[..from].iter().skip(self.from.min(from)).flat_map(|unit| &unit.said).map(tell);
        [format!("{before}\n\n")].into_iter().chain(told).collect()
    }

    pub(super) fn set_summary(&mut self, from: usize, summary: Option<String>) {
        self.summary = Some((self.first(from), summary));
        self.made_summary = true;
    }

    /// The summary that this run has made, to be kept with its answer.
    pub(super) fn new_summary(&self) -> Option<&str> {
        self.summary.as_ref().filter(|_| self.made_summary)?.1.as_deref()
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
        let sent = self.ids(fitted.from);
        cuts.extend(
            self.withheld.iter().filter(|(id, _)| sent.contains(id)).flat_map(|(_, why)| why.clone()),
        );
        if fitted.dropped_calls > 0 {
            cuts.push(format!("the {} oldest calls of this run", fitted.dropped_calls));
        }
        cuts
    }
}

fn unit(message: &Message, tell: &mut impl FnMut(&Message) -> Words) -> Unit {
    let said = match message.role {
        MessageRole::User if !message.is_removed() => vec![Said::User(tell(message))],
        _ => of_message(message),
    };
    Unit { id: message.id, said }
}

#[derive(Deserialize)]
struct Metadata {
    context_from: Option<Uuid>,
    context_summary: Option<String>,
}

/// What the answers' metadata say, newest first.
fn metadata(before: &[Message]) -> impl Iterator<Item = Metadata> {
    let answers = before.iter().rev().filter(|message| message.role == MessageRole::Assistant);
    answers.filter_map(|message| serde_json::from_str(&message.metadata).ok())
}

/// The summary that goes with prompts that begin at this message.
fn kept_summary(before: &[Message], from: Uuid) -> Option<String> {
    metadata(before)
        .find(|kept| kept.context_from == Some(from) && kept.context_summary.is_some())?
        .context_summary
}

/// Where the prompt of the newest answered turn began: the next one begins there, too.
fn anchor(before: &[Message]) -> Option<Uuid> {
    metadata(before).find_map(|kept| kept.context_from)
}
