-- Tool servers that admins have added. `sealed` is the whole address and the token, encrypted.
CREATE TABLE tool_servers (
    workspace_id BLOB NOT NULL REFERENCES workspaces (id),
    name         TEXT NOT NULL,
    id           BLOB NOT NULL,
    url          TEXT NOT NULL,
    sealed       BLOB NOT NULL,
    created_by   TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    PRIMARY KEY (workspace_id, name)
) STRICT, WITHOUT ROWID;
