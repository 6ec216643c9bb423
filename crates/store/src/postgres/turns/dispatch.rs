//! What the runner of a run is given.

use domain::message::{Message, Window};
use domain::scope::Scope;
use uuid::Uuid;

use crate::error::{Result, StoreError};
use crate::files::execution_message;
use crate::postgres::runs::RUNNING;
use crate::postgres::segments::Start;
use crate::postgres::transaction::Transaction;
use crate::postgres::{conversations, messages, run_files, runs};
use crate::turns::{Dispatch, Held, own_scope, parse_json};

pub(super) async fn get_dispatch(tx: &Transaction, held: &Held, replay: usize) -> Result<Dispatch> {
    let scope = own_scope(held.workspace);
    let text = format!(
        "SELECT {}, r.request, r.branch, r.assets IS NOT NULL, r.user_id FROM runs r \
         WHERE {} AND r.id = $2 AND r.fence = $3 AND r.{RUNNING}",
        runs::COLUMNS,
        tx.inside("r.workspace_id")
    );
    let row = tx.row(&text, &[&held.workspace, &held.lease.run, &held.lease.fence]).await?;
    let row = row.ok_or(StoreError::Lost)?;
    let (run, turn) = (runs::read(&row)?, parse_json(row.try_get(runs::MORE)?)?);
    let (branch, has_files): (Option<i32>, bool) =
        (row.try_get(runs::MORE + 1)?, row.try_get(runs::MORE + 2)?);
    let files = if has_files { run_files::given_to(tx, held.workspace, run.id).await? } else { Vec::new() };
    let (conversation, message, before) = match (run.conversation, run.execution) {
        (Some(id), _) => {
            let conversation = conversations::get(tx, &scope, id).await?;
            let message = run.message.ok_or(StoreError::NotFound)?;
            let (message, before) = said(tx, &scope, id, message, (branch, replay)).await?;
            (Some(conversation), message, before)
        }
        (None, Some(id)) => (None, execution_message(id, &run, &turn), Vec::new()),
        (None, None) => return Err(StoreError::NotFound),
    };
    let user = row.try_get(runs::MORE + 3)?;
    Ok(Dispatch { run, user, conversation, message, before, turn, files })
}

/// A message and so many before it.
async fn said(
    tx: &Transaction,
    scope: &Scope,
    conversation: Uuid,
    message: Uuid,
    (branch, replay): (Option<i32>, usize),
) -> Result<(Message, Vec<Message>)> {
    let message = messages::get(tx, scope, conversation, message).await?;
    let window = Window::Before { message: message.id, limit: replay };
    let (texts, limits) = messages::window_queries(tx.dialect, Start::Number, window);
    let [anchor, newest] = messages::queries(&texts, scope, &conversation, &branch, &limits);
    let anchor = tx.rows(anchor.text, &anchor.params).await?;
    let newest = tx.rows(newest.text, &newest.params).await?;
    let (before, _) = messages::read_window(window, &anchor, &newest)?;
    Ok((message, before))
}
