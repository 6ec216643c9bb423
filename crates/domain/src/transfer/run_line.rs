//! A run as a line of an export tells of it: within its conversation, or as an execution of its own. Its log comes in
//! lines beside it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::Refusal;
use super::archive::{ArchivedExecution, ArchivedRun, Trace};
use super::file_line::FileLine;
use super::own::{raw, time};
use crate::approval::{Approval, Decision};
use crate::entry;
use crate::event::{Raw, ToolCall};
use crate::file::Bag;
use crate::run::{OnDisconnect, Run, RunError, RunStatus, Usage};
use crate::time::rfc3339;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunLine {
    pub id: Uuid,
    status: RunStatus,
    /// None for an execution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<Uuid>,
    message: Option<Uuid>,
    assistant_message: Option<Uuid>,
    user_id: String,
    usage: Usage,
    error: Option<RunError>,
    last_event: i64,
    on_disconnect: OnDisconnect,
    created_at: String,
    started_at: Option<String>,
    ended_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    asked: Option<Raw>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    assets: Option<Vec<Uuid>>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    forgotten: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    approvals: Vec<ApprovalLine>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ApprovalLine {
    id: Uuid,
    round: u32,
    call: ToolCall,
    decision: Option<DecisionLine>,
    started: bool,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DecisionLine {
    approve: bool,
    reason: Option<String>,
    user_id: String,
    decided_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecutionLine {
    r#type: String,
    id: Uuid,
    response: Option<String>,
    run: RunLine,
    files: Vec<FileLine>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceLine {
    r#type: String,
    run: Uuid,
    entries: Vec<Raw>,
}

impl RunLine {
    pub fn of(of: &ArchivedRun, branch: Option<Uuid>) -> Result<Self, Refusal> {
        let run = &of.run;
        Ok(Self {
            id: run.id,
            status: run.status,
            branch,
            message: run.message,
            assistant_message: run.assistant_message,
            user_id: of.user.clone(),
            usage: run.usage,
            error: run.error.clone(),
            last_event: run.last_event,
            on_disconnect: run.on_disconnect,
            created_at: rfc3339(run.created_at),
            started_at: run.started_at.map(rfc3339),
            ended_at: run.ended_at.map(rfc3339),
            asked: of.asked.as_deref().map(raw).transpose()?,
            assets: of.assets.clone(),
            forgotten: of.forgotten,
            approvals: of.approvals.iter().map(ApprovalLine::of).collect(),
        })
    }

    /// The run, without its workspace, and on the first branch.
    pub fn read(self, conversation: Option<Uuid>, execution: Option<Uuid>) -> Result<ArchivedRun, Refusal> {
        Ok(ArchivedRun {
            run: Run {
                id: self.id,
                workspace: Uuid::nil(),
                conversation,
                execution,
                status: self.status,
                message: self.message,
                assistant_message: self.assistant_message,
                user: Some(self.user_id.clone()).filter(|user| !user.is_empty()),
                usage: self.usage,
                error: self.error,
                last_event: self.last_event,
                on_disconnect: self.on_disconnect,
                cancel_requested: false,
                created_at: time(&self.created_at)?,
                started_at: self.started_at.as_deref().map(time).transpose()?,
                ended_at: self.ended_at.as_deref().map(time).transpose()?,
            },
            branch: 0,
            user: self.user_id,
            asked: self.asked.map(|asked| asked.get().to_owned()),
            assets: self.assets,
            forgotten: self.forgotten,
            approvals: self.approvals.into_iter().map(ApprovalLine::read).collect(),
            entries: 0,
        })
    }
}

impl ApprovalLine {
    fn of(of: &Approval) -> Self {
        let decision = of.decision.clone().map(|Decision { approve, reason, by, at, result }| DecisionLine {
            approve,
            reason,
            user_id: by,
            decided_at: at,
            result,
        });
        Self { id: of.id, round: of.round, call: of.call.clone(), decision, started: of.started }
    }

    fn read(self) -> Approval {
        let decision = self.decision.map(|DecisionLine { approve, reason, user_id, decided_at, result }| {
            Decision { approve, reason, by: user_id, at: decided_at, result }
        });
        Approval { id: self.id, round: self.round, call: self.call, decision, started: self.started }
    }
}

impl ExecutionLine {
    pub fn of(of: &ArchivedExecution) -> Result<Self, Refusal> {
        Ok(Self {
            r#type: "execution".into(),
            id: of.id,
            response: of.response.clone(),
            run: RunLine::of(&of.run, None)?,
            files: of.files.iter().map(FileLine::of).collect(),
        })
    }

    pub fn read(self) -> Result<ArchivedExecution, Refusal> {
        let bag = Bag::Execution(self.id);
        Ok(ArchivedExecution {
            id: self.id,
            run: self.run.read(None, Some(self.id))?,
            response: self.response,
            files: self.files.into_iter().map(|file| file.read(bag)).collect::<Result<_, _>>()?,
        })
    }
}

impl TraceLine {
    pub fn of(of: &Trace) -> Result<Self, Refusal> {
        let entries = of.entries.iter().map(|entry| raw(entry)).collect::<Result<_, _>>()?;
        Ok(Self { r#type: "trace".into(), run: of.run, entries })
    }

    /// Entries that follow one another, each of which can be read.
    pub fn read(self) -> Result<Trace, Refusal> {
        let refuse = |what: &str| Refusal(format!("the trace of the run {} {what}", self.run));
        let number = |entry: &RawValue| {
            entry::decode(entry.get()).map(|entry| entry.n).map_err(|error| refuse(&error.to_string()))
        };
        let numbers = self.entries.iter().map(|entry| number(entry)).collect::<Result<Vec<_>, _>>()?;
        let first = numbers.first().copied().ok_or_else(|| refuse("is empty"))?;
        if first < 1 || numbers.iter().zip(first..).any(|(is, wanted)| *is != wanted) {
            return Err(refuse("has entries that do not follow one another"));
        }
        let entries = self.entries.iter().map(|entry| entry.get().to_owned()).collect();
        Ok(Trace { run: self.run, first, entries })
    }
}
