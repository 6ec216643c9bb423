//! Messages that a client has and this server has not: from before it heard of their conversation, or sent in vain.

use std::collections::HashSet;

use domain::answer::sources_json;
use domain::file::File;
use domain::message::{Block, MessageRole, NewMessage};
use domain::run::{message_id, spelled_id};
use domain::scope::Scope;
use store::Thread;
use turn::TurnError;
use uuid::Uuid;

use super::decide::is_heard;
use super::open::active_run;
use super::{Said, files};
use crate::problem::Problem;
use crate::state::AppState;

/// What can be refused of their files before anything is written.
pub fn check_files(app: &AppState, said: &[Said]) -> Result<(), Problem> {
    said.iter().try_for_each(|said| files::check(app, &said.files))
}

/// Puts messages from before this server heard of them at the end of a thread, with their files; answers their ids and
/// the conversation's version.
pub async fn bring(
    app: &AppState,
    scope: &Scope,
    conversation: Uuid,
    said: Vec<Said>,
) -> Result<(Vec<Uuid>, i64), Problem> {
    check_files(app, &said)?;
    let mut new = Vec::new();
    let brought = async {
        let (mut messages, mut taken) = (Vec::new(), HashSet::new());
        for mut said in said.into_iter().filter(|said| !is_nothing(said)) {
            let put = files::put(app, scope, conversation, &said.files).await?;
            new.extend(put.new);
            if said.content.is_empty() && !put.files.is_empty() {
                let names: Vec<&str> = put.files.iter().map(|file| file.name.as_str()).collect();
                said.content.push(Block::Text { text: names.join(", ") });
            }
            let attached: Vec<_> = put.files.iter().map(File::attachment).collect();
            let file_attachments = serde_json::to_string(&attached).unwrap_or_else(|_| "[]".into());
            messages.push(NewMessage { file_attachments, ..earlier(app, scope, said, &mut taken) });
        }
        let thread = app.store.append_messages(scope, conversation, &messages, app.clock.now()).await?;
        Ok((messages.iter().map(|message| message.id).collect(), thread.version))
    };
    let brought = brought.await;
    if brought.as_ref().is_err_and(|problem: &Problem| problem.status.is_client_error()) {
        for file in new {
            let _ = app.store.delete_file(scope, file, app.clock.now()).await;
        }
    }
    brought
}

/// Brings the user's messages directly before a new one that never arrived, or were refused when they did. Of the others
/// the thread is the one that counts.
pub async fn catch_up(
    app: &AppState,
    scope: &Scope,
    found: &Thread,
    before: Vec<Said>,
) -> Result<(), Problem> {
    let mut unheard = Vec::new();
    for said in before.into_iter().rev() {
        let new = match &said.name {
            Some(name) if said.role == MessageRole::User => !is_heard(app, scope, found, name).await?,
            _ => false,
        };
        if !new {
            break;
        }
        unheard.push(said);
    }
    unheard.retain(|said| !is_nothing(said));
    if unheard.is_empty() {
        return Ok(());
    }
    // They would stand between a question and its answer.
    if let Some(run) = active_run(app, scope, found.conversation.id).await? {
        return Err(TurnError::Busy(run.id).into());
    }
    unheard.reverse();
    bring(app, scope, found.conversation.id, unheard).await?;
    Ok(())
}

/// Whether nothing of a message can be shown again.
fn is_nothing(said: &Said) -> bool {
    let own = said.metadata.get("ui").is_some_and(|own| !own["parts"].is_null());
    said.content.is_empty() && said.files.is_empty() && !own
}

/// `taken` are the names of those before it.
fn earlier(app: &AppState, scope: &Scope, said: Said, taken: &mut HashSet<String>) -> NewMessage {
    let name = said.name.filter(|name| taken.insert(name.clone()));
    let id = name.as_deref().map_or_else(|| app.clock.new_id(), |name| message_id(scope.workspace, name));
    let is_id = name.as_deref().is_some_and(|name| spelled_id(name).is_some());
    let mut metadata = said.metadata;
    if let Some(name) = name.filter(|_| !is_id) {
        metadata.insert("client_id".into(), name.into());
    }
    let metadata = serde_json::Value::Object(metadata).to_string();
    let (sources, content) = (sources_json(&said.content), said.content);
    NewMessage { content, sources, metadata, ..NewMessage::text(id, said.role, "", app.clock.now()) }
}
