-- Who asked, and what for: a queued run starts long after its request.
ALTER TABLE runs
    ADD COLUMN user_id text COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN on_disconnect text NOT NULL DEFAULT 'cancel',
    ADD COLUMN cancel_requested boolean NOT NULL DEFAULT false,
    -- The turn as it was asked for, as JSON.
    ADD COLUMN request text NOT NULL DEFAULT '{}',
    -- Its place among the queued ones; interrupting ones go before the first.
    ADD COLUMN queue_position bigint,
    -- The branch of the thread that its messages stand on.
    ADD COLUMN branch integer NOT NULL DEFAULT 0,
    -- The number of the newest log entry, events and trace-only ones alike.
    ADD COLUMN last_entry bigint NOT NULL DEFAULT 0,
    -- Set once the log's batches were folded into `run_traces`.
    ADD COLUMN log_expired boolean NOT NULL DEFAULT false;

CREATE INDEX idx_runs_queue ON runs (workspace_id, conversation_id, queue_position) WHERE status = 'queued';
CREATE INDEX idx_runs_open ON runs (workspace_id, user_id) WHERE status IN ('queued', 'running');
-- The sweep's and the heartbeat's questions, over all workspaces.
CREATE INDEX idx_runs_running ON runs (node, lease_until) WHERE status = 'running';
DROP INDEX idx_runs_conversation;
CREATE INDEX idx_runs_conversation ON runs (workspace_id, conversation_id, id);
CREATE INDEX idx_runs_ended ON runs (ended_at) WHERE NOT log_expired AND ended_at IS NOT NULL;

-- Every append rewrites its run's row: room on the page keeps that from touching the indexes.
ALTER TABLE runs SET (fillfactor = 60);

DROP TABLE run_events;
-- One row holds a batch of log entries, one JSON object a line: entries first_entry to last_entry, after which
-- last_seq is the newest event.
CREATE TABLE run_events (
    workspace_id uuid NOT NULL,
    run_id       uuid NOT NULL,
    first_entry  bigint NOT NULL,
    last_entry   bigint NOT NULL,
    last_seq     bigint NOT NULL,
    entries      text NOT NULL,
    PRIMARY KEY (workspace_id, run_id, last_entry),
    FOREIGN KEY (workspace_id, run_id) REFERENCES runs (workspace_id, id)
);

-- The whole log of a run whose event log has expired, for its trace.
CREATE TABLE run_traces (
    workspace_id uuid NOT NULL,
    run_id       uuid NOT NULL,
    entries      text NOT NULL,
    PRIMARY KEY (workspace_id, run_id),
    FOREIGN KEY (workspace_id, run_id) REFERENCES runs (workspace_id, id)
);

-- A retried request finds the run that the first one made.
CREATE TABLE idempotency_keys (
    workspace_id uuid NOT NULL,
    caller       text NOT NULL,
    key          text NOT NULL,
    body_hash    bytea NOT NULL,
    run_id       uuid NOT NULL,
    created_at   timestamptz NOT NULL,
    PRIMARY KEY (workspace_id, caller, key)
);

CREATE INDEX idx_idempotency_keys_created ON idempotency_keys (created_at);

-- A branch shares its parent's messages up to fork_seq and goes on by itself. Branch 0 has no row.
CREATE TABLE branches (
    workspace_id    uuid NOT NULL,
    conversation_id uuid NOT NULL,
    branch          integer NOT NULL,
    id              uuid NOT NULL,
    parent          integer NOT NULL,
    fork_seq        bigint NOT NULL,
    created_at      timestamptz NOT NULL,
    PRIMARY KEY (workspace_id, conversation_id, branch),
    UNIQUE (workspace_id, conversation_id, id),
    FOREIGN KEY (workspace_id, conversation_id) REFERENCES chat_conversations (workspace_id, id)
);

ALTER TABLE chat_conversations ADD COLUMN current_branch integer NOT NULL DEFAULT 0;

ALTER TABLE run_events ENABLE ROW LEVEL SECURITY;
ALTER TABLE run_events FORCE ROW LEVEL SECURITY;
ALTER TABLE run_traces ENABLE ROW LEVEL SECURITY;
ALTER TABLE run_traces FORCE ROW LEVEL SECURITY;
ALTER TABLE idempotency_keys ENABLE ROW LEVEL SECURITY;
ALTER TABLE idempotency_keys FORCE ROW LEVEL SECURITY;
ALTER TABLE branches ENABLE ROW LEVEL SECURITY;
ALTER TABLE branches FORCE ROW LEVEL SECURITY;

CREATE POLICY run_events_scope ON run_events TO threadkeep_app USING (
    workspace_id = (SELECT nullif(current_setting('threadkeep.workspace', true), '')::uuid)
    AND (SELECT TRUE FROM runs r WHERE r.workspace_id = run_events.workspace_id AND r.id = run_events.run_id)
);
CREATE POLICY run_traces_scope ON run_traces TO threadkeep_app USING (
    workspace_id = (SELECT nullif(current_setting('threadkeep.workspace', true), '')::uuid)
    AND (SELECT TRUE FROM runs r WHERE r.workspace_id = run_traces.workspace_id AND r.id = run_traces.run_id)
);
CREATE POLICY idempotency_keys_scope ON idempotency_keys TO threadkeep_app
    USING (workspace_id = (SELECT nullif(current_setting('threadkeep.workspace', true), '')::uuid));
CREATE POLICY branches_scope ON branches TO threadkeep_app USING (
    workspace_id = (SELECT nullif(current_setting('threadkeep.workspace', true), '')::uuid)
    AND (
        SELECT TRUE FROM chat_conversations c
        WHERE c.workspace_id = branches.workspace_id AND c.id = branches.conversation_id
    )
);

GRANT SELECT, INSERT, UPDATE, DELETE ON run_events, run_traces, idempotency_keys, branches TO threadkeep_app;

-- The nodes' own work over all workspaces: leases, sweeps, expiry. Nothing that a person wrote is readable to it.
-- Whoever may act as this role has to do so: a member of it has no more for that alone.
CREATE POLICY runs_system ON runs TO threadkeep_system USING ((SELECT current_user) = 'threadkeep_system');
CREATE POLICY idempotency_keys_system ON idempotency_keys TO threadkeep_system
    USING ((SELECT current_user) = 'threadkeep_system');
GRANT SELECT (workspace_id, id, conversation_id, status, fence, node, lease_until, cancel_requested, queue_position,
    ended_at, log_expired) ON runs TO threadkeep_system;
GRANT UPDATE (fence, node, lease_until) ON runs TO threadkeep_system;
GRANT SELECT (workspace_id, caller, key, created_at), DELETE ON idempotency_keys TO threadkeep_system;
