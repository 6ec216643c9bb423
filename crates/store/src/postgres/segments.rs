//! Segments: the stretches that a thread is made of, one of each branch that it has messages from, as SQL.

use super::transaction::inside;
use crate::list::Dialect;

/// Which branch a query is about, as SQL, where `$2` is the conversation and `$3` says which.
#[derive(Debug, Clone, Copy)]
pub(super) enum Start {
    /// `$3` is a branch's number; NULL is the current one.
    Number,
    /// `$3` is a branch's public id; NULL is the current one.
    Id,
}

impl Start {
    pub(super) fn sql(self, dialect: Dialect) -> String {
        let workspace = inside(dialect, "workspace_id");
        let current =
            format!("(SELECT current_branch FROM chat_conversations WHERE {workspace} AND id = $2)");
        match self {
            // No `coalesce`, which row level security would have compared with every row.
            Self::Number => format!("CASE WHEN $3::integer IS NULL THEN {current} ELSE $3 END"),
            Self::Id => format!(
                "CASE WHEN $3::uuid IS NULL THEN {current} WHEN $3 = $2 THEN 0 \
                 ELSE (SELECT branch FROM branches WHERE {workspace} AND conversation_id = $2 AND id = $3) END"
            ),
        }
    }
}

/// The row of a branch; the first one has none.
pub(super) fn row_of(dialect: Dialect, branch: &str) -> String {
    // The newest that is not above it is the branch itself. Asked for like that it is found by the key: by equality,
    // a plan that was made while the table was empty may as well read all branches of the conversation.
    format!(
        "(SELECT f.branch, f.parent, f.fork_seq FROM branches f \
         WHERE {} AND f.conversation_id = $2 AND f.branch <= {branch} ORDER BY f.branch DESC LIMIT 1) b",
        inside(dialect, "f.workspace_id")
    )
}

/// The thread's segments as a table `line`: messages of `branch` with `seq <= through`. `older` is the condition under
/// which a segment of the branch `b` needs the one before it.
pub(super) fn line(dialect: Dialect, start: Start, older: &str) -> String {
    format!(
        "WITH RECURSIVE line(branch, through) AS (SELECT {}, 9223372036854775807 UNION ALL \
         SELECT b.parent, least(l.through, b.fork_seq) FROM line l CROSS JOIN LATERAL {} WHERE {older})",
        start.sql(dialect),
        row_of(dialect, "l.branch"),
    )
}

/// The condition that a message `m` is in the segment `l`.
pub(super) fn in_segment(dialect: Dialect) -> String {
    let workspace = inside(dialect, "m.workspace_id");
    format!("{workspace} AND m.conversation_id = $2 AND m.branch = l.branch AND m.seq <= l.through")
}

/// The branch that a query is about, as a row.
pub(super) fn start(dialect: Dialect, start: Start) -> String {
    format!("(SELECT {} AS branch) s", start.sql(dialect))
}
