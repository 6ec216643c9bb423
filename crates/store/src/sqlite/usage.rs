//! What runs use of models beside their own calls.

use domain::run::Usage;
use rusqlite::{Connection, params};

use crate::error::{Result, StoreError};
use crate::turns::Held;

pub(super) fn count(db: &Connection, held: &Held, usage: Usage) -> Result<()> {
    let counted = db
        .prepare_cached(
            "UPDATE runs SET input_tokens = input_tokens + ?4, output_tokens = output_tokens + ?5 \
             WHERE workspace_id = ?1 AND id = ?2 AND fence = ?3 AND status = 'running'",
        )?
        .execute(params![
            held.workspace,
            held.lease.run,
            held.lease.fence,
            usage.input_tokens,
            usage.output_tokens
        ])?;
    if counted == 0 { Err(StoreError::Lost) } else { Ok(()) }
}
