-- How each tool of a tool server described itself when the workspace first saw it, or when an admin agreed to a change.
CREATE TABLE tool_pins (
    workspace_id uuid NOT NULL REFERENCES workspaces (id),
    server       text COLLATE "C" NOT NULL,
    tool         text COLLATE "C" NOT NULL,
    hash         text NOT NULL,
    PRIMARY KEY (workspace_id, server, tool)
);

ALTER TABLE tool_pins ENABLE ROW LEVEL SECURITY;
ALTER TABLE tool_pins FORCE ROW LEVEL SECURITY;

CREATE POLICY tool_pins_scope ON tool_pins TO threadkeep_app
    USING (workspace_id = (SELECT nullif(current_setting('threadkeep.workspace', true), '')::uuid));

GRANT SELECT, INSERT, UPDATE, DELETE ON tool_pins TO threadkeep_app;
