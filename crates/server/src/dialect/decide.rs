//! Decisions of people on the calls of a run under way, what clients have made of calls of their own tools, and what comes
//! beside them.

use std::collections::HashMap;

use axum::http::StatusCode;
use domain::approval::{Approval, Decision};
use domain::run::{Run, message_id};
use domain::scope::Scope;
use domain::wire::Responses;
use serde_json::json;
use store::{StoreError, Thread};
use turn::Seen;
use uuid::Uuid;

use super::log;
use super::open::{Opened, RUNS, active_run, find};
use super::{Decided, Last};
use crate::problem::Problem;
use crate::state::AppState;

/// The newest run that answers a message.
pub async fn run_of(
    app: &AppState,
    scope: &Scope,
    conversation: Uuid,
    message: Uuid,
) -> Result<Option<Run>, Problem> {
    let runs = app.store.list_runs(scope, conversation, None, RUNS).await?;
    Ok(runs.into_iter().find(|run| run.message == Some(message)))
}

/// A decision goes on with the run that asked: a message that comes with it would be lost.
pub async fn check_heard(
    app: &AppState,
    scope: &Scope,
    found: &Thread,
    last: Option<&Last>,
) -> Result<(), Problem> {
    let Some(Last { name, pointer }) = last else { return Ok(()) };
    let heard = match name {
        Some(name) => is_heard(app, scope, found, name).await?,
        None => false,
    };
    let detail = "This message is new, and would not be answered: send the decision without it, and the message \
                  once the run that asked has ended.";
    if heard { Ok(()) } else { Err(Problem::invalid_value(pointer, detail)) }
}

/// Whether a user's message of this name is in the conversation, on whichever branch, or waits in its queue.
async fn is_heard(app: &AppState, scope: &Scope, found: &Thread, name: &str) -> Result<bool, Problem> {
    if find(&found.messages, scope, name).is_some() {
        return Ok(true);
    }
    let (conversation, id) = (found.conversation.id, message_id(scope.workspace, name));
    match app.store.get_message(scope, conversation, id).await {
        Ok(_) => Ok(true),
        Err(StoreError::NotFound) => Ok(run_of(app, scope, conversation, id).await?.is_some()),
        Err(error) => Err(error.into()),
    }
}

pub async fn decide(
    app: &AppState,
    scope: &Scope,
    conversation: Uuid,
    decisions: &[Decided],
) -> Result<Opened, Problem> {
    let over = || {
        Problem::new(
            StatusCode::CONFLICT,
            "run_ended",
            "Conflict",
            "Nothing of this conversation waits for a decision any more.",
        )
    };
    let run = match active_run(app, scope, conversation).await? {
        Some(run) => run,
        // The same decision may come again after the end: its client has not heard what became of it.
        None => app.store.list_runs(scope, conversation, None, 1).await?.pop().ok_or_else(over)?,
    };
    let thread = app.store.get_thread(scope, conversation, None.into()).await?.conversation;
    if !scope.owns(&thread.owner) {
        return Err(Problem::forbidden("Only the conversation's owner and admins decide on its calls."));
    }
    let asked = app.store.list_approvals(scope.workspace, run.id).await?;
    let brought = app.store.get_asking(scope, run.id).await?.turn.brought;
    let made = decisions.iter().any(|one| one.result.is_some());
    let calls = if made { waited(app, scope, run.id).await? } else { HashMap::new() };
    let mut known: Vec<(Uuid, Decision)> = Vec::new();
    for Decided { approval, approve, reason, result, pointer } in decisions {
        let unknown = || {
            if run.status.is_settled() {
                return over();
            }
            let detail = match result {
                Some(_) => format!("No call {approval:?} of the run under way waits for its client."),
                None => format!("Nothing of the run under way asks for the approval {approval:?}."),
            };
            Problem::invalid_value(pointer, detail)
        };
        // A person decides on calls of the server's tools, a client makes those of its own.
        let id = if result.is_some() { calls.get(approval) } else { Some(approval) };
        let is_meant = |one: &&Approval| {
            id == Some(&one.id.to_string()) && brought.makes(&one.call.name) == result.is_some()
        };
        let one = asked.iter().find(is_meant).ok_or_else(unknown)?;
        let decision = Decision {
            approve: *approve,
            reason: reason.clone(),
            by: scope.user.clone(),
            at: app.clock.now(),
            result: result.clone(),
        };
        if known.iter().any(|(id, said)| *id == one.id && !said.is_as(&decision)) {
            return Err(Problem::invalid_value(
                pointer,
                "What is said of this call here contradicts itself.",
            ));
        }
        known.push((one.id, decision));
    }
    // All or none: no call is made for a request that is refused.
    for (id, decision) in &known {
        app.store.decide_approval(scope, run.id, *id, decision).await?;
    }
    Ok(Opened::Decided(run, known.into_iter().map(|(id, _)| id).collect()))
}

/// What of a run has waited: the call, as it is told to clients, and its approval.
pub async fn waited(app: &AppState, scope: &Scope, run: Uuid) -> Result<HashMap<String, String>, Problem> {
    let (mut voice, mut known) = (Responses::new(json!({})), HashMap::new());
    let push = |event: Seen| {
        voice.push(event.seq, event.ts, event.kind, &event.data, i64::MAX, &mut Vec::new());
        known.extend(voice.waiting().iter().map(|(id, call)| (call.clone(), id.clone())));
    };
    log::each(app, scope, run, push).await?;
    Ok(known)
}
