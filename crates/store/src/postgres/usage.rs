//! What runs use of models beside their own calls.

use domain::run::Usage;

use super::transaction::Transaction;
use crate::error::{Result, StoreError};
use crate::turns::Held;

pub(super) async fn count(tx: &Transaction, held: &Held, usage: Usage) -> Result<()> {
    let text = format!(
        "UPDATE runs SET input_tokens = input_tokens + $4, output_tokens = output_tokens + $5 \
         WHERE {} AND id = $2 AND fence = $3 AND status = 'running'",
        tx.inside("workspace_id")
    );
    let Usage { input_tokens, output_tokens } = usage;
    let params: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
        [&held.workspace, &held.lease.run, &held.lease.fence, &input_tokens, &output_tokens];
    if tx.execute(&text, &params).await? == 0 { Err(StoreError::Lost) } else { Ok(()) }
}
