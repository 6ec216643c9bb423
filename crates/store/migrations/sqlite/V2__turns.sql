-- Who asked, and what for: a queued run starts long after its request.
ALTER TABLE runs ADD COLUMN user_id TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN on_disconnect TEXT NOT NULL DEFAULT 'cancel';
ALTER TABLE runs ADD COLUMN cancel_requested INTEGER NOT NULL DEFAULT 0;
-- The turn as it was asked for, as JSON.
ALTER TABLE runs ADD COLUMN request TEXT NOT NULL DEFAULT '{}';
-- Its place among the queued ones; interrupting ones go before the first.
ALTER TABLE runs ADD COLUMN queue_position INTEGER;
-- The branch of the thread that its messages stand on.
ALTER TABLE runs ADD COLUMN branch INTEGER NOT NULL DEFAULT 0;
-- The number of the newest log entry, events and trace-only ones alike.
ALTER TABLE runs ADD COLUMN last_entry INTEGER NOT NULL DEFAULT 0;
-- Set once the log's batches were folded into `run_traces`.
ALTER TABLE runs ADD COLUMN log_expired INTEGER NOT NULL DEFAULT 0;

CREATE INDEX idx_runs_queue ON runs (workspace_id, conversation_id, queue_position) WHERE status = 'queued';
CREATE INDEX idx_runs_open ON runs (workspace_id, user_id) WHERE status IN ('queued', 'running');
-- The sweep's and the heartbeat's questions, over all workspaces.
CREATE INDEX idx_runs_running ON runs (node, lease_until) WHERE status = 'running';
DROP INDEX idx_runs_conversation;
CREATE INDEX idx_runs_conversation ON runs (workspace_id, conversation_id, id);
CREATE INDEX idx_runs_ended ON runs (ended_at) WHERE log_expired = 0 AND ended_at IS NOT NULL;

DROP TABLE run_events;
-- One row holds a batch of log entries, one JSON object a line: entries first_entry to last_entry, after which
-- last_seq is the newest event.
CREATE TABLE run_events (
    workspace_id BLOB NOT NULL,
    run_id       BLOB NOT NULL,
    first_entry  INTEGER NOT NULL,
    last_entry   INTEGER NOT NULL,
    last_seq     INTEGER NOT NULL,
    entries      TEXT NOT NULL,
    PRIMARY KEY (workspace_id, run_id, last_entry),
    FOREIGN KEY (workspace_id, run_id) REFERENCES runs (workspace_id, id)
) STRICT, WITHOUT ROWID;

-- The whole log of a run whose event log has expired, for its trace.
CREATE TABLE run_traces (
    workspace_id BLOB NOT NULL,
    run_id       BLOB NOT NULL,
    entries      TEXT NOT NULL,
    PRIMARY KEY (workspace_id, run_id),
    FOREIGN KEY (workspace_id, run_id) REFERENCES runs (workspace_id, id)
) STRICT, WITHOUT ROWID;

-- A retried request finds the run that the first one made.
CREATE TABLE idempotency_keys (
    workspace_id BLOB NOT NULL,
    caller       TEXT NOT NULL,
    key          TEXT NOT NULL,
    body_hash    BLOB NOT NULL,
    run_id       BLOB NOT NULL,
    created_at   INTEGER NOT NULL,
    PRIMARY KEY (workspace_id, caller, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX idx_idempotency_keys_created ON idempotency_keys (created_at);

-- A branch shares its parent's messages up to fork_seq and goes on by itself. Branch 0 has no row.
CREATE TABLE branches (
    workspace_id    BLOB NOT NULL,
    conversation_id BLOB NOT NULL,
    branch          INTEGER NOT NULL,
    id              BLOB NOT NULL,
    parent          INTEGER NOT NULL,
    fork_seq        INTEGER NOT NULL,
    created_at      INTEGER NOT NULL,
    PRIMARY KEY (workspace_id, conversation_id, branch),
    UNIQUE (workspace_id, conversation_id, id),
    FOREIGN KEY (workspace_id, conversation_id) REFERENCES chat_conversations (workspace_id, id)
) STRICT, WITHOUT ROWID;

ALTER TABLE chat_conversations ADD COLUMN current_branch INTEGER NOT NULL DEFAULT 0;
