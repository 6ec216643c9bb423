//! A conversation that was not to be kept: it goes when whoever it was made for has gone, whichever way.

use store::StoreError;
use uuid::Uuid;

use crate::extract::{Caller, Named};
use crate::problem::Problem;

/// Deletes its conversation when it is dropped.
pub struct Forget {
    caller: Caller,
    named: Named,
    conversation: Option<Uuid>,
}

impl Forget {
    pub fn new(caller: &Caller, named: Named, conversation: Uuid) -> Self {
        Self { caller: caller.clone(), named, conversation: Some(conversation) }
    }

    /// Deletes it now. Given up half-way, or failed, it is tried once more behind the caller's back.
    pub async fn now(mut self) -> Result<(), Problem> {
        if let Some(conversation) = self.conversation {
            delete(&self.caller, self.named, conversation).await?;
            self.conversation = None;
        }
        Ok(())
    }
}

impl Drop for Forget {
    fn drop(&mut self) {
        let Some(conversation) = self.conversation else { return };
        let (caller, named) = (self.caller.clone(), self.named);
        self.caller.app().tasks.spawn(async move {
            if let Err(problem) = delete(&caller, named, conversation).await {
                tracing::warn!(code = problem.code, "a conversation that was not to be kept is still there");
            }
        });
    }
}

async fn delete(caller: &Caller, named: Named, conversation: Uuid) -> Result<(), Problem> {
    let (app, scope) = (caller.app(), caller.scope(named).await?);
    match app.store.delete_conversation(&scope, conversation, None, app.clock.now()).await {
        // Somebody else's delete is as good.
        Err(StoreError::NotFound) => return Ok(()),
        gone => gone?,
    }
    // Its run is this node's, and nobody else reads it.
    app.turns.notice_deletion().await;
    Ok(())
}
