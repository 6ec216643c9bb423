//! How many runs are open, and whether one more may be begun.

use domain::open_runs::{OpenRuns, RunLimits, TooManyRuns};
use domain::scope::Scope;

use crate::error::Result;
use crate::postgres::transaction::{Database, Query, Settings, Transaction, inside};

/// So many begins of one user may be between their count and their commit at once: as many as there are connections
/// to work on, on a few nodes.
const AT_ONCE: u64 = 64;

/// What is open, or the limit that is reached. Far from the limits begins go on side by side; near one, one after the
/// other, so that none passes it.
pub(in crate::postgres) async fn open_runs(
    tx: &Transaction,
    scope: &Scope,
    limits: RunLimits,
) -> Result<std::result::Result<OpenRuns, TooManyRuns>> {
    let (mut user, mut workspace) = (false, false);
    loop {
        let open = count_open(tx, scope, limits).await?;
        if let Err(full) = limits.check(open) {
            return Ok(Err(full));
        }
        let near = |open: u64, limit: u64| limit > 0 && open + AT_ONCE >= limit;
        let near_workspace = near(open.workspace, limits.workspace);
        // Always the user's line first, so that no two transactions wait for each other.
        if !user && (near_workspace || near(open.user, limits.user)) {
            tx.wait_in_line(&format!("open runs {} {}", scope.workspace, scope.user)).await?;
            user = true;
        } else if !workspace && near_workspace {
            tx.wait_in_line(&format!("open runs {}", scope.workspace)).await?;
            workspace = true;
        } else {
            return Ok(Ok(open));
        }
    }
}

async fn count_open(tx: &Transaction, scope: &Scope, limits: RunLimits) -> Result<OpenRuns> {
    let text = count_text(&tx.inside("workspace_id"), limits);
    // Others' runs count though the caller may not see them.
    let others = limits.workspace > 0;
    if others {
        tx.see_all(true).await?;
    }
    let row = tx.row(&text, &[&scope.workspace, &scope.user]).await?;
    if others {
        tx.see_all(scope.sees_all()).await?;
    }
    row.map_or(Ok(OpenRuns::default()), |row| read_open(&row))
}

/// Counts the user's runs, and the workspace's where there is a limit of them.
fn count_text(inside: &str, limits: RunLimits) -> String {
    let (workspace, of_user) =
        if limits.workspace > 0 { ("count(*)", "") } else { ("0::bigint", "AND user_id = $2") };
    format!(
        "SELECT count(*) FILTER (WHERE user_id = $2), {workspace} FROM runs \
         WHERE {inside} {of_user} AND status IN ('queued', 'running')"
    )
}

fn read_open(row: &tokio_postgres::Row) -> Result<OpenRuns> {
    let count = |at| row.try_get::<_, i64>(at).map(i64::unsigned_abs);
    Ok(OpenRuns { user: count(0)?, workspace: count(1)? })
}

pub(super) async fn get_open(db: &Database, scope: &Scope, limits: RunLimits) -> Result<OpenRuns> {
    let text = count_text(&inside(db.dialect, "workspace_id"), limits);
    let query = Query { text: &text, params: vec![&scope.workspace, &scope.user] };
    let [rows] = db.read(&Settings::of(scope).seeing_all(), [query]).await?;
    rows.first().map_or(Ok(OpenRuns::default()), read_open)
}
