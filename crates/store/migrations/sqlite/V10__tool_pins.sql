-- How each tool of a tool server described itself when the workspace first saw it, or when an admin agreed to a change.
CREATE TABLE tool_pins (
    workspace_id BLOB NOT NULL REFERENCES workspaces (id),
    server       TEXT NOT NULL,
    tool         TEXT NOT NULL,
    hash         TEXT NOT NULL,
    PRIMARY KEY (workspace_id, server, tool)
) STRICT, WITHOUT ROWID;
