//! A conversation with all that belongs to it, as it leaves a store and comes into one, and the rules that hold it
//! together.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Refusal;
use crate::answer::replay_length;
use crate::approval::Approval;
use crate::context::check_context;
use crate::conversation::{Conversation, Visibility};
use crate::file::{Bag, File, is_safe_name, name_key};
use crate::json;
use crate::message::Message;
use crate::run::{Run, StartTurn};
use crate::tab::check_tabs;

const MAX_NAME_CHARS: usize = 255;
const MAX_PATH_CHARS: usize = 512;
/// For texts that have no limit of their own.
const ANY: usize = usize::MAX;

#[derive(Debug, Clone)]
pub struct Archive {
    pub conversation: Conversation,
    /// The clients' own pairs, as a JSON object.
    pub metadata: Option<String>,
    /// The first is the thread as it was first written and has the conversation's id; every other comes after the
    /// one it came from.
    pub branches: Vec<ArchivedBranch>,
    /// The branch that readers see.
    pub current: usize,
    /// Settled ones, by id.
    pub runs: Vec<ArchivedRun>,
    /// Visible ones, by id.
    pub files: Vec<ArchivedFile>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ArchivedBranch {
    pub id: Uuid,
    /// The branch whose messages through number `fork_seq` it shares; its own go on from there.
    pub parent: usize,
    pub fork_seq: i64,
    pub created_at: Timestamp,
    pub messages: Vec<Message>,
}

#[derive(Debug, Clone)]
pub struct ArchivedRun {
    pub run: Run,
    /// Of a turn, the branch that its messages stand on.
    pub branch: usize,
    /// Who asked for it.
    pub user: String,
    /// What was asked for: a `StartTurn` as JSON.
    pub asked: Option<String>,
    /// The files that it was given.
    pub assets: Option<Vec<Uuid>>,
    /// Taken out of the API that made it.
    pub forgotten: bool,
    /// By id.
    pub approvals: Vec<Approval>,
    /// How many entries its log has; they go out and come in beside it.
    pub entries: i64,
}

/// A run outside any conversation, with the files of its bag.
#[derive(Debug, Clone)]
pub struct ArchivedExecution {
    pub id: Uuid,
    pub run: ArchivedRun,
    pub response: Option<String>,
    /// Visible ones, by id.
    pub files: Vec<ArchivedFile>,
}

/// A part of a run's log: entries as they are stored, from the number `first` on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    pub run: Uuid,
    pub first: i64,
    pub entries: Vec<String>,
}

/// What a workspace has set for its conversations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    pub default_visibility: Visibility,
    pub model: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ArchivedFile {
    pub file: File,
    /// The run whose sandbox sent it.
    pub run: Option<Uuid>,
    /// Who brought it.
    pub user: String,
}

impl Archive {
    pub fn message_count(&self) -> usize {
        self.branches.iter().map(|branch| branch.messages.len()).sum()
    }

    /// The messages of a branch's thread, those that it shares included.
    pub fn thread(&self, branch: usize) -> Vec<&Message> {
        let (mut messages, mut at, mut through) = (Vec::new(), branch, i64::MAX);
        while let Some(found) = self.branches.get(at) {
            messages.extend(found.messages.iter().rev().filter(|message| message.seq <= through));
            if at == 0 {
                break;
            }
            (at, through) = (found.parent, through.min(found.fork_seq));
        }
        messages.reverse();
        messages
    }

    /// Moves it into a workspace; what belongs to it comes along.
    pub fn put_into(&mut self, workspace: Uuid, org: &str) {
        self.conversation.workspace = workspace;
        org.clone_into(&mut self.conversation.org);
        let bag = Bag::Conversation(self.conversation.id);
        for ArchivedRun { run, .. } in &mut self.runs {
            run.workspace = workspace;
        }
        for ArchivedFile { file, .. } in &mut self.files {
            place(file, bag, workspace);
        }
    }

    /// Runs that came without their logs: their answers are replayed instead.
    pub fn without_logs(&mut self, is_without: impl Fn(Uuid) -> bool) {
        let messages = self.branches.iter().flat_map(|branch| &branch.messages);
        let answers: HashMap<Uuid, &str> =
            messages.map(|message| (message.id, message.content.as_str())).collect();
        for of in self.runs.iter_mut().filter(|of| is_without(of.run.id)) {
            of.without_log(of.run.assistant_message.and_then(|id| answers.get(&id).copied()));
        }
    }

    /// Everything that a store and its readers rely on. `max_tabs` is the largest number of tabs.
    pub fn check(&self, max_tabs: usize) -> Result<(), Refusal> {
        self.check_attributes(max_tabs)?;
        let messages = self.check_branches()?;
        self.check_runs(&messages)?;
        check_files(&self.files)
    }

    fn check_attributes(&self, max_tabs: usize) -> Result<(), Refusal> {
        let of = &self.conversation;
        let texts = [
            ("title", &of.title, MAX_NAME_CHARS),
            ("page_path", &of.page_path, MAX_PATH_CHARS),
            ("workflow_id", &of.workflow_id, MAX_NAME_CHARS),
            ("agent_id", &of.agent_id, MAX_NAME_CHARS),
            ("model", &of.model, MAX_NAME_CHARS),
            ("preview", &of.preview, MAX_NAME_CHARS),
        ];
        for (name, text, max) in texts {
            if let Some(text) = text {
                check_text(name, text, max)?;
            }
        }
        check_text("user_id", &of.owner, MAX_NAME_CHARS)?;
        if of.owner.is_empty() {
            return Err(Refusal::new("user_id is empty: a conversation has an owner"));
        }
        if of.total_tokens < 0 {
            return Err(Refusal::new("total_tokens is below 0"));
        }
        if let Some(fault) = check_tabs(&of.tabs, of.active_tab_key.as_deref(), max_tabs).into_iter().next() {
            return Err(Refusal(format!("{}: {}", fault.pointer, fault.detail)));
        }
        if let Some(metadata) = &self.metadata {
            json::check(metadata.as_bytes()).map_err(|fault| Refusal(format!("metadata: {fault}")))?;
            if !metadata.starts_with('{') {
                return Err(Refusal::new("metadata is not an object"));
            }
        }
        if let Some(context) = &of.context {
            json::check_kept(context.as_bytes()).map_err(|fault| Refusal(format!("context: {fault}")))?;
            if let Some(fault) = check_context(context).into_iter().next() {
                return Err(Refusal(format!("{}: {}", fault.pointer, fault.detail)));
            }
        }
        Ok(())
    }

    /// The ids of all messages.
    fn check_branches(&self) -> Result<HashSet<Uuid>, Refusal> {
        let refuse = |reason: String| Err(Refusal(reason));
        if self.branches.first().is_none_or(|first| first.id != self.conversation.id) {
            return refuse("the first branch must have the conversation's id".into());
        }
        if self.current >= self.branches.len() {
            return refuse("current_branch is not one of the branches".into());
        }
        let (mut messages, mut ids) = (HashSet::new(), HashSet::new());
        // How many messages each branch's thread has.
        let mut lengths: Vec<i64> = Vec::with_capacity(self.branches.len());
        for (at, branch) in self.branches.iter().enumerate() {
            if !ids.insert(branch.id) {
                return refuse(format!("the branch {} is there twice", branch.id));
            }
            let shared = match at {
                0 => 0,
                _ => match lengths.get(branch.parent) {
                    Some(length) if (0..=*length).contains(&branch.fork_seq) => branch.fork_seq,
                    _ => return refuse(format!("the branch {} does not go on from another", branch.id)),
                },
            };
            for (message, seq) in branch.messages.iter().zip(shared + 1..) {
                if !messages.insert(message.id) {
                    return refuse(format!("the message {} is there twice", message.id));
                }
                if message.seq != seq || message.token_count < 0 {
                    return refuse(format!("the message {} has a number that cannot be", message.id));
                }
            }
            lengths.push(shared + branch.messages.len() as i64);
        }
        match self.conversation.first_message {
            Some(first) if !messages.contains(&first) => {
                refuse(format!("conversation_id {first} is not one of the messages"))
            }
            _ => Ok(messages),
        }
    }

    fn check_runs(&self, messages: &HashSet<Uuid>) -> Result<(), Refusal> {
        let mut ids = HashSet::new();
        for of in &self.runs {
            of.check()?;
            let run = &of.run;
            let named = [run.message, run.assistant_message].into_iter().flatten();
            // The message of a run that was cancelled in the queue never came into the thread.
            let strange = named.filter(|id| !messages.contains(id)).count();
            let fault = if !ids.insert(run.id) {
                "is there twice"
            } else if of.branch >= self.branches.len() {
                "stands on a branch that is not there"
            } else if strange > 0 && run.started_at.is_some() {
                "names a message that is not there"
            } else {
                continue;
            };
            return Err(Refusal(format!("the run {} {fault}", run.id)));
        }
        Ok(())
    }
}

impl ArchivedRun {
    /// It came without its log: its events are those that the content of its answer makes. One that never began has none.
    pub fn without_log(&mut self, answer: Option<&str>) {
        if self.run.last_event > 0 {
            self.run.last_event = replay_length(answer);
        }
    }

    fn check(&self) -> Result<(), Refusal> {
        let run = &self.run;
        let refuse = |fault: &str| Err(Refusal(format!("the run {} {fault}", run.id)));
        if !run.status.is_settled() {
            return refuse("has not ended: only settled runs are taken");
        }
        if run.usage.input_tokens < 0 || run.usage.output_tokens < 0 || run.last_event < 0 {
            return refuse("has a number below 0");
        }
        if self.asked.as_ref().is_some_and(|asked| serde_json::from_str::<StartTurn>(asked).is_err()) {
            return refuse("was asked for something that no turn is");
        }
        let mut ids = HashSet::new();
        if !self.approvals.iter().all(|approval| ids.insert(approval.id)) {
            return refuse("has an approval twice");
        }
        check_text("user_id", &self.user, MAX_NAME_CHARS)?;
        let decisions = self.approvals.iter().filter_map(|approval| approval.decision.as_ref());
        let said = decisions.flat_map(|decision| decision.reason.iter().chain([&decision.by]));
        let error = run.error.iter().flat_map(|error| [&error.code, &error.message]);
        said.chain(error).try_for_each(|text| check_text("a text of the run", text, ANY))
    }
}

impl ArchivedExecution {
    /// Moves it into a workspace; its files come along.
    pub fn put_into(&mut self, workspace: Uuid) {
        self.run.run.workspace = workspace;
        for ArchivedFile { file, .. } in &mut self.files {
            place(file, Bag::Execution(self.id), workspace);
        }
    }

    pub fn check(&self) -> Result<(), Refusal> {
        self.run.check()?;
        if let Some(response) = &self.response {
            check_text("response", response, ANY)?;
        }
        check_files(&self.files)
    }
}

fn place(file: &mut File, bag: Bag, workspace: Uuid) {
    file.bag = bag;
    file.storage_key = bag.storage_key(workspace, &file.name);
}

fn check_files(files: &[ArchivedFile]) -> Result<(), Refusal> {
    let (mut ids, mut names) = (HashSet::new(), HashMap::new());
    for ArchivedFile { file, user, .. } in files {
        check_file(file)?;
        check_text("user_id", user, MAX_NAME_CHARS)?;
        if !ids.insert(file.id) {
            return Err(Refusal(format!("the file {} is there twice", file.id)));
        }
        if let Some(other) = names.insert(name_key(&file.name), file.id) {
            return Err(Refusal(format!("the files {other} and {} have one name", file.id)));
        }
    }
    Ok(())
}

/// What holds for a file wherever it lies.
pub fn check_file(file: &File) -> Result<(), Refusal> {
    if !is_safe_name(&file.name) {
        return Err(Refusal(format!("the file {} has an unsafe name", file.id)));
    }
    check_text("mimeType", &file.mime_type, MAX_NAME_CHARS)
}

pub(super) fn check_text(name: &str, text: &str, max: usize) -> Result<(), Refusal> {
    if text.chars().count() > max {
        return Err(Refusal(format!("{name} is longer than {max} characters")));
    }
    if text.contains('\0') {
        return Err(Refusal(format!("{name} holds the character U+0000, which cannot be kept")));
    }
    Ok(())
}
