-- The model of conversations and agents that name none.
ALTER TABLE workspaces ADD COLUMN model text;

CREATE TABLE agents (
    workspace_id uuid NOT NULL REFERENCES workspaces (id),
    id           uuid NOT NULL,
    name         text NOT NULL,
    -- Instructions, model, runner, tools and limits, as JSON.
    settings     text NOT NULL,
    created_at   timestamptz NOT NULL,
    updated_at   timestamptz NOT NULL,
    PRIMARY KEY (workspace_id, id)
);

-- Calls that wait for a person. `started` is set before the call is made, and never undone.
CREATE TABLE approvals (
    workspace_id uuid NOT NULL,
    run_id       uuid NOT NULL,
    id           uuid NOT NULL,
    round        integer NOT NULL,
    call         text NOT NULL,
    approve      boolean,
    reason       text,
    decided_by   text,
    decided_at   timestamptz,
    started      boolean NOT NULL DEFAULT false,
    PRIMARY KEY (workspace_id, run_id, id),
    FOREIGN KEY (workspace_id, run_id) REFERENCES runs (workspace_id, id)
);

ALTER TABLE agents ENABLE ROW LEVEL SECURITY;
ALTER TABLE agents FORCE ROW LEVEL SECURITY;
ALTER TABLE approvals ENABLE ROW LEVEL SECURITY;
ALTER TABLE approvals FORCE ROW LEVEL SECURITY;

CREATE POLICY agents_scope ON agents TO threadkeep_app
    USING (workspace_id = (SELECT nullif(current_setting('threadkeep.workspace', true), '')::uuid));
CREATE POLICY approvals_scope ON approvals TO threadkeep_app USING (
    workspace_id = (SELECT nullif(current_setting('threadkeep.workspace', true), '')::uuid)
    AND (SELECT TRUE FROM runs r WHERE r.workspace_id = approvals.workspace_id AND r.id = approvals.run_id)
);

GRANT SELECT, INSERT, UPDATE, DELETE ON agents, approvals TO threadkeep_app;
