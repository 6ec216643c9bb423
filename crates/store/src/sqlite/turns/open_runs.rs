//! How many runs are open, of which a begin may add one.

use domain::open_runs::{OpenRuns, RunLimits};
use domain::scope::Scope;
use rusqlite::{Connection, params};

use crate::error::Result;

/// What is open; the workspace's runs are counted where there is a limit of them.
pub(in crate::sqlite) fn open_runs(db: &Connection, scope: &Scope, limits: RunLimits) -> Result<OpenRuns> {
    let count = |of_user: &str| -> Result<u64> {
        let mut statement = db.prepare_cached(&count_text(of_user))?;
        let count = statement.query_row(params![scope.workspace, scope.user], |row| row.get::<_, i64>(0))?;
        Ok(count.unsigned_abs())
    };
    let workspace = if limits.workspace > 0 { count("?2 IS NOT NULL")? } else { 0 };
    Ok(OpenRuns { user: count("user_id = ?2")?, workspace })
}

fn count_text(of_user: &str) -> String {
    format!(
        "SELECT count(*) FROM runs INDEXED BY idx_runs_open \
         WHERE workspace_id = ?1 AND {of_user} AND status IN ('queued', 'running')"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::open::plan;

    #[test]
    fn open_runs_are_counted_without_looking_them_up() {
        for of_user in ["user_id = ?2", "?2 IS NOT NULL"] {
            let plan = plan(&count_text(of_user), params![uuid::Uuid::nil(), "ann"]);
            assert!(plan.contains("COVERING INDEX idx_runs_open"), "{plan}");
        }
    }
}
