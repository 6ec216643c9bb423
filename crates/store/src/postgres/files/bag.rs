//! Bags: who may see one, what lies in it, how much it may hold.

use domain::file::Bag;
use domain::scope::Scope;
use uuid::Uuid;

use crate::error::{Result, StoreError};
use crate::list::{Dialect, Sql, Value};
use crate::postgres::transaction::Transaction;
use crate::postgres::{conversations, workspaces};

/// The conversation or the execution whose bag it is.
pub(super) fn owner(bag: Bag) -> Option<Uuid> {
    match bag {
        Bag::Conversation(id) | Bag::Execution(id) => Some(id),
        Bag::Workspace => None,
    }
}

/// The condition that a file `f` is in the bag, `$2` being its `owner`.
pub(super) fn in_bag(bag: Bag) -> &'static str {
    match bag {
        Bag::Conversation(_) => "f.conversation_id = $2",
        Bag::Execution(_) => "f.execution_id = $2",
        Bag::Workspace => "$2::uuid IS NULL AND f.conversation_id IS NULL AND f.execution_id IS NULL",
    }
}

/// The condition that what belongs to an execution is the scope's to see, `user` being who started it.
pub(in crate::postgres) fn own_execution(
    sql: &mut Sql,
    dialect: Dialect,
    scope: &Scope,
    user: &str,
) -> String {
    match dialect {
        Dialect::PostgresUnfiltered => "TRUE".into(),
        _ if scope.sees_all() => "TRUE".into(),
        _ => format!("{user} = {}", sql.bind(Value::Text(scope.user.clone()))),
    }
}

/// Answers a row when the bag is there and the scope may see it.
pub(super) fn seen(dialect: Dialect, scope: &Scope, bag: Bag) -> Sql {
    match bag {
        Bag::Conversation(id) => conversations::by_id_alone(dialect, scope, id),
        Bag::Execution(id) => {
            let mut sql = Sql::new(dialect);
            let inside = sql.inside(scope, "r.workspace_id");
            let own = own_execution(&mut sql, dialect, scope, "r.user_id");
            let id = sql.bind(Value::Uuid(id));
            sql.text = format!("SELECT r.id FROM runs r WHERE {inside} AND r.execution_id = {id} AND {own}");
            sql
        }
        Bag::Workspace => {
            let mut sql = Sql::new(dialect);
            let inside = sql.inside(scope, "w.id");
            sql.text = format!("SELECT w.id FROM workspaces w WHERE {inside} AND w.deleted_at IS NULL");
            sql
        }
    }
}

/// Makes writers of a bag wait for each other, and answers whose its new files are; `None` for the bag of an
/// execution that is not there yet.
pub(in crate::postgres) async fn lock_bag(
    tx: &Transaction,
    scope: &Scope,
    bag: Bag,
) -> Result<Option<String>> {
    if let Bag::Conversation(id) = bag {
        conversations::lock(tx, scope, id).await?;
        return Ok(Some(scope.user.clone()));
    }
    // Locked against removal alone, as for a new conversation.
    workspaces::get(tx, scope, "FOR KEY SHARE").await?;
    tx.wait_in_line(&format!("bag {} {:?}", scope.workspace, owner(bag))).await?;
    let Bag::Execution(id) = bag else { return Ok(Some(scope.user.clone())) };
    let text =
        format!("SELECT r.user_id FROM runs r WHERE {} AND r.execution_id = $2", tx.inside("r.workspace_id"));
    // One that is another's is there, and not to be taken for one that is not there yet.
    tx.see_all(true).await?;
    let run = tx.row(&text, &[&scope.workspace, &id]).await?;
    tx.see_all(scope.sees_all()).await?;
    let Some(run) = run else { return Ok(None) };
    let user: String = run.try_get(0)?;
    if scope.owns(&user) { Ok(Some(user)) } else { Err(StoreError::NotFound) }
}

pub(super) async fn check_room(tx: &Transaction, scope: &Scope, bag: Bag, max_bag_bytes: u64) -> Result<()> {
    let text = format!(
        "SELECT coalesce(sum(f.size), 0)::bigint FROM files f WHERE {} AND {} AND f.deleted_at IS NULL",
        tx.inside("f.workspace_id"),
        in_bag(bag)
    );
    let row = tx.row(&text, &[&scope.workspace, &owner(bag)]).await?.ok_or(StoreError::NotFound)?;
    let used: i64 = row.try_get(0)?;
    if used.unsigned_abs() > max_bag_bytes {
        return Err(StoreError::BagFull { limit: max_bag_bytes });
    }
    Ok(())
}
