-- The model of conversations and agents that name none.
ALTER TABLE workspaces ADD COLUMN model TEXT;

CREATE TABLE agents (
    workspace_id BLOB NOT NULL REFERENCES workspaces (id),
    id           BLOB NOT NULL,
    name         TEXT NOT NULL,
    -- Instructions, model, runner, tools and limits, as JSON.
    settings     TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    PRIMARY KEY (workspace_id, id)
) STRICT, WITHOUT ROWID;

-- Calls that wait for a person. `started` is set before the call is made, and never undone.
CREATE TABLE approvals (
    workspace_id BLOB NOT NULL,
    run_id       BLOB NOT NULL,
    id           BLOB NOT NULL,
    round        INTEGER NOT NULL,
    call         TEXT NOT NULL,
    approve      INTEGER,
    reason       TEXT,
    decided_by   TEXT,
    decided_at   INTEGER,
    started      INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (workspace_id, run_id, id),
    FOREIGN KEY (workspace_id, run_id) REFERENCES runs (workspace_id, id)
) STRICT, WITHOUT ROWID;
