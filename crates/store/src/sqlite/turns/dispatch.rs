//! What the runner of a run is given.

use domain::message::Window;
use domain::run::StartTurn;
use rusqlite::{Connection, OptionalExtension, params};

use crate::error::{Result, StoreError};
use crate::files::execution_message;
use crate::sqlite::{conversations, messages, run_files, runs};
use crate::turns::{Dispatch, Held, own_scope, parse_json};

pub(super) fn get_dispatch(db: &Connection, held: &Held, replay: usize) -> Result<Dispatch> {
    let scope = own_scope(held.workspace);
    let (request, branch, assets, user): (String, i64, Option<String>, String) = db
        .prepare_cached(
            "SELECT request, branch, assets, user_id FROM runs \
             WHERE workspace_id = ?1 AND id = ?2 AND fence = ?3 AND status = 'running'",
        )?
        .query_row(params![held.workspace, held.lease.run, held.lease.fence], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })
        .optional()?
        .ok_or(StoreError::Lost)?;
    let run = runs::by_id(db, held.workspace, held.lease.run)?;
    let turn: StartTurn = parse_json(&request)?;
    let files = run_files::frozen(db, held.workspace, assets.as_deref())?;
    if let Some(execution) = run.execution {
        let message = execution_message(execution, &run, &turn);
        return Ok(Dispatch { run, user, conversation: None, message, before: Vec::new(), turn, files });
    }
    let id = run.conversation.ok_or(StoreError::NotFound)?;
    let (conversation, _) = conversations::get(db, &scope, id)?;
    let message = messages::get(db, &scope, id, run.message.ok_or(StoreError::NotFound)?)?;
    let window = Window::Before { message: message.id, limit: replay };
    let (before, _) = messages::read_window(db, &scope, id, branch, window)?;
    Ok(Dispatch { run, user, conversation: Some(conversation), message, before, turn, files })
}
