-- Tool servers that admins have added. `sealed` is the whole address and the token, encrypted.
CREATE TABLE tool_servers (
    workspace_id uuid NOT NULL REFERENCES workspaces (id),
    name         text COLLATE "C" NOT NULL,
    id           uuid NOT NULL,
    url          text NOT NULL,
    sealed       bytea NOT NULL,
    created_by   text NOT NULL,
    created_at   timestamptz NOT NULL,
    PRIMARY KEY (workspace_id, name)
);

ALTER TABLE tool_servers ENABLE ROW LEVEL SECURITY;
ALTER TABLE tool_servers FORCE ROW LEVEL SECURITY;

CREATE POLICY tool_servers_scope ON tool_servers TO threadkeep_app
    USING (workspace_id = (SELECT nullif(current_setting('threadkeep.workspace', true), '')::uuid));

GRANT SELECT, INSERT, UPDATE, DELETE ON tool_servers TO threadkeep_app;
