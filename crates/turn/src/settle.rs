//! The end of a run: the fold of its events becomes the assistant's message, and one transaction makes it so.

use std::sync::Arc;
use std::time::Duration;

use domain::answer::message_json;
use domain::approval::{Approval, NOT_MADE};
use domain::entry::{Dispatch as Sent, EntryError, decode, decode_event};
use domain::event::{Done, Failed, Finished, Raw, RunEvent, ToolCall, ToolResult};
use domain::fold::Fold;
use domain::message::{MessageRole, NewMessage, plain_text};
use domain::run::{Run, RunError, RunStatus, Usage};
use domain::scope::{Role, Scope};
use jiff::Timestamp;
use serde_json::json;
use store::StoreError;
use store::turns::{Held, Settlement};
use upstream::trace::{self, Kind, Value};
use uuid::Uuid;

use crate::Turns;
use crate::error::TurnError;
use crate::failpoint::point;
use crate::live::LiveRun;
use crate::log::{RunLog, retry};

/// How soon a left run is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// How often an end is written anew because the sandbox has used more meanwhile: one that goes on asking models does not
/// hold up the end of its run.
const LOOKS: u32 = 3;

/// How a run ends.
#[derive(Debug, Clone)]
pub(crate) struct Ending {
    status: RunStatus,
    /// The answer, or what went wrong.
    outcome: Result<String, RunError>,
    /// The terminal line's own time, where it had one.
    ts: Option<i64>,
    /// What is not yet counted.
    usage: Usage,
    /// What was stored of it before the end.
    counted: Usage,
    /// More may have been, by another node.
    counted_elsewhere: bool,
    /// The terminal line as the sandbox sent it.
    line: Option<Raw>,
    /// The message's own, as a JSON object.
    metadata: Option<String>,
}

impl Ending {
    pub(crate) fn succeeded(message: String, ts: Option<i64>) -> Self {
        Self {
            status: RunStatus::Succeeded,
            outcome: Ok(message),
            ts,
            usage: Usage::default(),
            counted: Usage::default(),
            counted_elsewhere: false,
            line: None,
            metadata: None,
        }
    }

    fn unsuccessful(status: RunStatus, code: &str, message: impl Into<String>) -> Self {
        let error = RunError { code: code.into(), message: message.into() };
        Self { status, outcome: Err(error), ..Self::succeeded(String::new(), None) }
    }

    pub(crate) fn failed(code: &str, message: impl Into<String>) -> Self {
        Self::unsuccessful(RunStatus::Failed, code, message)
    }

    pub(crate) fn failed_at(code: &str, message: impl Into<String>, ts: Option<i64>) -> Self {
        Self { ts, ..Self::failed(code, message) }
    }

    pub(crate) fn cancelled(message: &str) -> Self {
        Self::unsuccessful(RunStatus::Cancelled, "cancelled", message)
    }

    pub(crate) fn interrupted(message: &str) -> Self {
        Self::unsuccessful(RunStatus::Interrupted, "interrupted", message)
    }

    /// Of a run that its node cannot go on with.
    pub(crate) fn given_up(error: &TurnError) -> Self {
        match error {
            TurnError::Store(StoreError::Internal(_)) => {
                Self::failed("internal", "the server could not go on with the run; its log says why")
            }
            TurnError::Store(StoreError::NotFound) => Self::cancelled("the conversation was deleted"),
            _ => Self::interrupted("its node could not go on with it"),
        }
    }

    /// The same end, with the line that said it.
    pub(crate) fn said(self, line: Option<Raw>) -> Self {
        Self { line, ..self }
    }

    /// `counted` is what was stored on the way, `usage` what is yet to be.
    pub(crate) fn with_usage(self, usage: Usage, counted: Usage) -> Self {
        Self { usage, counted, ..self }
    }

    /// What a sandbox used was stored on the way, by whichever node it asked.
    pub(crate) fn with_counted(self, counted: Usage) -> Self {
        let Usage { input_tokens, output_tokens } = counted;
        let usage = json!({ "usage": { "input_tokens": input_tokens, "output_tokens": output_tokens } });
        let metadata = (counted != Usage::default()).then(|| usage.to_string());
        Self { counted, counted_elsewhere: true, metadata, ..self }
    }

    /// Of a run that was left: what is known of it is what was stored. Where a model's prompt began, the next one begins.
    fn left(self, counted: Usage, sent: Option<&Sent>) -> Self {
        let ending = self.with_counted(counted);
        let Some((Some(model), [from, ..])) = sent.map(|sent| (&sent.model, sent.messages.as_slice())) else {
            return ending;
        };
        let Usage { input_tokens, output_tokens } = counted;
        let metadata = json!({ "model": model, "context_from": from,
            "usage": { "input_tokens": input_tokens, "output_tokens": output_tokens } });
        ending.with_metadata(metadata.to_string())
    }

    pub(crate) fn with_metadata(self, metadata: String) -> Self {
        Self { metadata: Some(metadata), ..self }
    }

    fn event(&self, assistant: Option<Raw>) -> RunEvent {
        match &self.outcome {
            Ok(message) => RunEvent::Result(Finished { message: message.clone(), assistant }),
            Err(RunError { code, message }) => {
                RunEvent::Error(Failed { code: code.clone(), message: message.clone(), assistant })
            }
        }
    }
}

impl Turns {
    /// Ends a run, once. What its sandbox sent back is in the log before that. Answers whether another run waits for
    /// the conversation.
    pub(crate) async fn settle(
        &self,
        mut log: RunLog,
        run: &Run,
        mut ending: Ending,
        live: &Arc<LiveRun>,
    ) -> Result<bool, TurnError> {
        let (held, mut looks) = (log.held, 0);
        self.end_unmade(&mut log, live).await?;
        loop {
            let files_logged = log.files_logged;
            let late = match self.write_end(log, run, &ending, live).await {
                Err(TurnError::Store(late @ (StoreError::FilesWaiting | StoreError::MoreUsed(_)))) => late,
                written => return written,
            };
            // All that came before is stored by now, so the log goes on from there.
            log = self.stored_log(held, live).await?.log;
            log.files_logged |= files_logged;
            match late {
                StoreError::MoreUsed(counted) => {
                    looks += 1;
                    ending = ending.with_counted(counted);
                    ending.counted_elsewhere = looks < LOOKS;
                }
                // Files came after the last look.
                _ => {
                    log.log_results().await?;
                    // All of them came at once. Where none is shown, they were deleted since.
                    log.files_logged = true;
                }
            }
        }
    }

    /// Ends the calls that waited for a person to the last. That they were not made is known, unlike of what a client
    /// was to make, and of what was begun.
    async fn end_unmade(&self, log: &mut RunLog, live: &LiveRun) -> Result<(), TurnError> {
        if log.fold.open_calls().is_empty() {
            return Ok(());
        }
        let (store, held) = (&self.inner.store, log.held);
        let known = retry(live, || store.list_approvals(held.workspace, held.lease.run)).await;
        // Where it is not known what waited, the run ends all the same.
        for Approval { id, round, call, .. } in
            known.unwrap_or_default().into_iter().filter(|one| !one.started)
        {
            let waited = log.fold.open_calls().contains(&(round, call.id.as_str()));
            if waited && log.fold.has_asked_a_person(&id.to_string()) {
                let error = Some(NOT_MADE.to_owned());
                let ToolCall { id, name, .. } = call;
                let end = ToolResult { id, name, result: None, error, truncated: false, round };
                log.event(self.now(), &RunEvent::ToolResult(end))?;
            }
        }
        Ok(())
    }

    /// The last transaction of a run. Nothing else ends one.
    async fn write_end(
        &self,
        mut log: RunLog,
        run: &Run,
        ending: &Ending,
        live: &LiveRun,
    ) -> Result<bool, TurnError> {
        let inner = &self.inner;
        let now = inner.clock.now();
        let ts = ending.ts.unwrap_or(now.as_millisecond());
        let assistant = run.conversation.map(|_| Arc::new(answer(&mut log, ending, ts, run.id, now)));
        let message = assistant.as_deref().and_then(message_json);
        let response = run.execution.and_then(|_| response(&log, ending));
        let end = log.end();
        log.event_unfolded(ts, &ending.event(message), ending.line.clone())?;
        log.event_unfolded(now.as_millisecond(), &RunEvent::Done(Done { status: ending.status }), None)?;
        let (batch, events) = log.last_batch();
        // The end of an execution says nothing of what it used.
        let counted = assistant.as_ref().filter(|_| ending.counted_elsewhere).map(|_| ending.counted);
        let settlement = Settlement {
            status: ending.status,
            error: ending.outcome.as_ref().err().cloned(),
            response,
            assistant,
            files_logged: log.files_logged,
            counted,
            usage: ending.usage,
            batch,
            now,
        };
        point!("settle.before");
        let settle = async {
            loop {
                match retry(live, || inner.store.settle_turn(&log.held, &settlement)).await {
                    Err(TurnError::Store(StoreError::Behind { last_entry })) => {
                        self.append_again(&log.held, live, last_entry).await?;
                    }
                    settled => return settled,
                }
            }
        };
        let settled = trace::span(
            || "turn.settle".into(),
            Kind::Internal,
            settle,
            |settled, attributes| {
                attributes.push(("threadkeep.status", Value::Text(settlement.status.as_str().to_owned())));
                settled.is_err()
            },
        );
        let queue = match settled.await {
            // A commit whose answer was lost looks like this when it is tried again.
            Err(TurnError::Store(StoreError::Lost)) if self.is_ours(&log.held, &settlement).await => true,
            Err(late @ TurnError::Store(StoreError::FilesWaiting | StoreError::MoreUsed(_))) => {
                log.flush_before(end, (settlement.batch, events)).await?;
                return Err(late);
            }
            settled => settled?.queue,
        };
        point!("settle.after");
        // Of a deleted conversation nobody is told any more, not even its end: a reader finds it gone.
        let gone = ending.status == RunStatus::Cancelled && self.is_gone(&log.held).await;
        log.publish(if gone { Vec::new() } else { events }, true);
        point!("settle.published");
        Ok(queue)
    }

    async fn is_gone(&self, held: &Held) -> bool {
        let run = self.inner.store.get_run(&own_scope(held), held.lease.run).await;
        matches!(run, Err(StoreError::NotFound))
    }

    async fn is_ours(&self, held: &Held, settlement: &Settlement) -> bool {
        let run = self.inner.store.get_run(&own_scope(held), held.lease.run).await;
        let ours = settlement.assistant.as_ref().map(|message| message.id);
        run.is_ok_and(|run| {
            run.status == settlement.status && run.error == settlement.error && run.assistant_message == ours
        })
    }

    /// Ends a left run, again and again until it is done, or another's: as long as this node has the run, nobody else
    /// ends it.
    pub(crate) async fn settle_left(&self, held: Held, ending: Ending) {
        let live = self.inner.live.run(held.lease.run);
        self.keep_settling_left(held, ending, &live).await;
    }

    async fn keep_settling_left(&self, held: Held, ending: Ending, live: &Arc<LiveRun>) {
        while self.try_settle_left(held, ending.clone(), live).await.is_err() {
            tokio::select! {
                () = tokio::time::sleep(AGAIN) => {}
                () = self.inner.draining.cancelled() => return,
            }
        }
    }

    /// As `settle_left`, for who cannot wait: what fails now is tried again in the background.
    pub(crate) async fn settle_left_or_later(&self, held: Held, ending: Ending) -> Result<(), TurnError> {
        let live = self.inner.live.run(held.lease.run);
        let tried = self.try_settle_left(held, ending.clone(), &live).await;
        if tried.is_err() {
            let turns = self.clone();
            self.inner.tasks.spawn(async move {
                tokio::time::sleep(AGAIN).await;
                turns.keep_settling_left(held, ending, &live).await;
            });
        }
        tried
    }

    async fn try_settle_left(
        &self,
        held: Held,
        ending: Ending,
        live: &Arc<LiveRun>,
    ) -> Result<(), TurnError> {
        match self.settle_stored(&held, ending, live).await {
            Err(TurnError::Store(StoreError::Lost)) => Ok(()),
            settled => settled.inspect_err(|error| {
                tracing::warn!(run = %held.lease.run, %error, "a left run could not be settled; trying again");
            }),
        }
    }

    /// Ends a run that its node left, with all that is in its log.
    async fn settle_stored(&self, held: &Held, ending: Ending, live: &Arc<LiveRun>) -> Result<(), TurnError> {
        let settled = match self.stored_log(*held, live).await {
            Ok(Stored { run, log, sent }) => {
                let ending = ending.left(run.usage, sent.as_ref());
                self.settle(log, &run, ending, live).await.map(|_| ())
            }
            Err(error) => Err(error),
        };
        self.inner.live.stop_driving(held.lease.run);
        settled
    }

    /// A run with its log; what the database lost of that is there again as far as it is known here.
    pub(crate) async fn stored_log(&self, held: Held, live: &Arc<LiveRun>) -> Result<Stored, TurnError> {
        let (mut fold, mut last, mut files_logged, mut sent) = (Fold::default(), (0, 0), false, None);
        loop {
            let page = retry(live, || self.inner.store.read_held(&held, last.0, 1 << 20)).await?;
            let Some(newest) = page.last else {
                let known = live.newest();
                match self.append_again(&held, live, last.0).await {
                    Ok(()) if last.0 < known.0 => continue,
                    // Too much was lost.
                    Ok(()) | Err(TurnError::Store(StoreError::Behind { .. })) => {}
                    Err(error) => return Err(error),
                }
                live.note_stored(last.1);
                let mut log = RunLog::going_on(self.clone(), held, Arc::clone(live), fold, last);
                log.pass_over(self.now(), known)?;
                log.files_logged = files_logged;
                return Ok(Stored { run: page.run, log, sent });
            };
            last = newest;
            for line in page.entries.iter().flat_map(|entries| entries.lines()) {
                match read(line) {
                    Ok(Told::Event(ts, event)) => {
                        files_logged |= matches!(event, RunEvent::File(_));
                        fold.push(ts, &event);
                    }
                    Ok(Told::Sent(dispatch)) => sent = Some(dispatch),
                    Ok(Told::Nothing) => {}
                    // What is left of it is kept: a run that cannot end would hold its conversation for good.
                    Err(_) => {
                        tracing::error!(run = %held.lease.run, "a damaged entry of a log is passed over");
                    }
                }
            }
        }
    }
}

/// A run as far as it is stored.
pub(crate) struct Stored {
    pub run: Run,
    /// To go on from there.
    pub log: RunLog,
    /// What its runner was given last.
    pub sent: Option<Sent>,
}

/// What a line of the log says.
enum Told {
    /// With its time.
    Event(i64, RunEvent),
    Sent(Sent),
    Nothing,
}

fn read(line: &str) -> Result<Told, EntryError> {
    let entry = decode(line)?;
    Ok(match (entry.seq, entry.kind) {
        (Some(_), kind) => Told::Event(entry.ts, decode_event(kind, entry.data.get())?),
        (None, "dispatch") => Told::Sent(serde_json::from_str(entry.data.get())?),
        (None, _) => Told::Nothing,
    })
}

/// The assistant's message: the fold of all that happened, with its end. It has the id of its run, so that whoever
/// streams it knows that id from the first word on.
fn answer(log: &mut RunLog, ending: &Ending, ts: i64, id: Uuid, now: Timestamp) -> NewMessage {
    log.fold.push(ts, &ending.event(None));
    let blocks = std::mem::take(&mut log.fold).finish();
    NewMessage {
        token_count: ending.counted.total() + ending.usage.total(),
        metadata: ending.metadata.clone().unwrap_or_else(|| "{}".into()),
        ..NewMessage::new(id, MessageRole::Assistant, &blocks, now)
    }
}

/// What an execution has answered: where its end says nothing, what it said before.
fn response(log: &RunLog, ending: &Ending) -> Option<String> {
    match ending.outcome.as_ref().ok()?.as_str() {
        "" => Some(plain_text(log.fold.blocks())),
        said => Some(said.to_owned()),
    }
}

/// The server's own view of a run: all of its workspace.
pub(crate) fn own_scope(held: &Held) -> Scope {
    Scope {
        workspace: held.workspace,
        org: String::new(),
        user: String::new(),
        role: Role::Service,
        key: None,
        administers: false,
    }
}
