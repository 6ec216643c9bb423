-- Times are epoch milliseconds, ids 16-byte UUIDs. Every key leads with the workspace.

CREATE TABLE workspaces (
    id                 BLOB NOT NULL PRIMARY KEY,
    org_id             TEXT NOT NULL,
    name               TEXT NOT NULL,
    default_visibility TEXT NOT NULL DEFAULT 'private' CHECK (default_visibility IN ('private', 'workspace')),
    created_at         INTEGER NOT NULL,
    deleted_at         INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE members (
    workspace_id BLOB NOT NULL REFERENCES workspaces (id),
    user_id      TEXT NOT NULL,
    role         TEXT NOT NULL CHECK (role IN ('member', 'admin')),
    added_at     INTEGER NOT NULL,
    PRIMARY KEY (workspace_id, user_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX idx_members_user ON members (user_id, workspace_id);

CREATE TABLE api_keys (
    workspace_id BLOB NOT NULL REFERENCES workspaces (id),
    id           BLOB NOT NULL,
    hash         BLOB NOT NULL,
    name         TEXT NOT NULL,
    role         TEXT NOT NULL CHECK (role IN ('member', 'admin', 'service')),
    created_by   TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    PRIMARY KEY (workspace_id, id)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX idx_api_keys_hash ON api_keys (workspace_id, hash);

CREATE TABLE audit_log (
    workspace_id BLOB NOT NULL,
    seq          INTEGER NOT NULL,
    at           INTEGER NOT NULL,
    user_id      TEXT NOT NULL,
    key_id       BLOB,
    action       TEXT NOT NULL,
    target       TEXT NOT NULL,
    detail       TEXT NOT NULL,
    hash         BLOB NOT NULL,
    PRIMARY KEY (workspace_id, seq)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER audit_log_is_append_only_update BEFORE UPDATE ON audit_log
BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_log_is_append_only_delete BEFORE DELETE ON audit_log
BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;

-- `pk` is the row that the search index names; it never leaves the store.
CREATE TABLE chat_conversations (
    pk             INTEGER PRIMARY KEY,
    workspace_id   BLOB NOT NULL REFERENCES workspaces (id),
    id             BLOB NOT NULL,
    org_id         TEXT NOT NULL,
    user_id        TEXT NOT NULL,
    title          TEXT,
    mode           TEXT CHECK (mode IN ('ask', 'agent', 'task_flow')),
    source         TEXT CHECK (source IN ('web', 'extension')),
    page_path      TEXT,
    total_tokens   INTEGER NOT NULL DEFAULT 0,
    tabs           TEXT NOT NULL DEFAULT '[]',
    active_tab_key TEXT,
    kind           TEXT NOT NULL CHECK (kind IN ('assistant_sandbox', 'model_chat')),
    workflow_id    TEXT,
    agent_id       TEXT,
    model          TEXT,
    preview        TEXT,
    message_count  INTEGER NOT NULL DEFAULT 0,
    first_message  BLOB,
    visibility     TEXT NOT NULL CHECK (visibility IN ('private', 'workspace')),
    deleted_at     INTEGER,
    created_at     INTEGER NOT NULL,
    updated_at     INTEGER NOT NULL,
    version        INTEGER NOT NULL,
    context        TEXT,
    UNIQUE (workspace_id, id)
) STRICT;

CREATE INDEX idx_chat_conversations_workspace_deleted ON chat_conversations (workspace_id, deleted_at);
CREATE INDEX idx_chat_conversations_workspace_source_updated
    ON chat_conversations (workspace_id, source, updated_at DESC, id DESC) WHERE deleted_at IS NULL;
CREATE INDEX idx_chat_conversations_workspace_updated
    ON chat_conversations (workspace_id, updated_at DESC, id DESC) WHERE deleted_at IS NULL;
-- A member's list is two walks merged, own private ones and shared ones, so that neither other people's
-- private threads nor one's own shared ones are walked over.
CREATE INDEX idx_chat_conversations_owner_updated
    ON chat_conversations (workspace_id, user_id, updated_at DESC, id DESC)
    WHERE deleted_at IS NULL AND visibility = 'private';
CREATE INDEX idx_chat_conversations_owner_source_updated
    ON chat_conversations (workspace_id, user_id, source, updated_at DESC, id DESC)
    WHERE deleted_at IS NULL AND visibility = 'private';
CREATE INDEX idx_chat_conversations_shared_updated
    ON chat_conversations (workspace_id, updated_at DESC, id DESC)
    WHERE deleted_at IS NULL AND visibility = 'workspace';
CREATE INDEX idx_chat_conversations_shared_source_updated
    ON chat_conversations (workspace_id, source, updated_at DESC, id DESC)
    WHERE deleted_at IS NULL AND visibility = 'workspace';

-- `branch` 0 is the thread as it was first written; edits make others.
CREATE TABLE messages (
    pk               INTEGER PRIMARY KEY,
    workspace_id     BLOB NOT NULL,
    conversation_id  BLOB NOT NULL,
    branch           INTEGER NOT NULL DEFAULT 0,
    seq              INTEGER NOT NULL,
    id               BLOB NOT NULL,
    role             TEXT NOT NULL CHECK (role IN ('user', 'assistant', 'system')),
    text             TEXT NOT NULL,
    content          TEXT NOT NULL,
    file_attachments TEXT NOT NULL,
    sources          TEXT NOT NULL,
    token_count      INTEGER NOT NULL,
    metadata         TEXT NOT NULL,
    created_at       INTEGER NOT NULL,
    FOREIGN KEY (workspace_id, conversation_id) REFERENCES chat_conversations (workspace_id, id),
    UNIQUE (workspace_id, conversation_id, branch, seq),
    UNIQUE (workspace_id, conversation_id, id)
) STRICT;

-- The words of titles and messages, made by domain::search, one row per document, named by `pk`.
CREATE VIRTUAL TABLE title_search USING fts5 (words, content = '', contentless_delete = 1, tokenize = 'ascii', prefix = '1 2 3');
CREATE VIRTUAL TABLE message_search USING fts5 (words, content = '', contentless_delete = 1, tokenize = 'ascii', prefix = '1 2 3');

CREATE TABLE runs (
    workspace_id         BLOB NOT NULL,
    id                   BLOB NOT NULL,
    conversation_id      BLOB,
    execution_id         BLOB,
    status               TEXT NOT NULL
        CHECK (status IN ('queued', 'running', 'succeeded', 'failed', 'cancelled', 'interrupted')),
    message_id           BLOB,
    assistant_message_id BLOB,
    input_tokens         INTEGER NOT NULL DEFAULT 0,
    output_tokens        INTEGER NOT NULL DEFAULT 0,
    error_code           TEXT,
    error_message        TEXT,
    fence                INTEGER NOT NULL DEFAULT 0,
    node                 TEXT,
    lease_until          INTEGER,
    last_event           INTEGER NOT NULL DEFAULT 0,
    created_at           INTEGER NOT NULL,
    started_at           INTEGER,
    ended_at             INTEGER,
    PRIMARY KEY (workspace_id, id),
    FOREIGN KEY (workspace_id, conversation_id) REFERENCES chat_conversations (workspace_id, id)
) STRICT, WITHOUT ROWID;

-- Single flight, kept by the database.
CREATE UNIQUE INDEX idx_runs_one_running ON runs (workspace_id, conversation_id) WHERE status = 'running';
CREATE INDEX idx_runs_conversation ON runs (workspace_id, conversation_id, created_at);

-- One row holds a batch of events, numbered first_seq to last_seq.
CREATE TABLE run_events (
    workspace_id BLOB NOT NULL,
    run_id       BLOB NOT NULL,
    first_seq    INTEGER NOT NULL,
    last_seq     INTEGER NOT NULL,
    events       TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    PRIMARY KEY (workspace_id, run_id, first_seq),
    FOREIGN KEY (workspace_id, run_id) REFERENCES runs (workspace_id, id)
) STRICT, WITHOUT ROWID;

-- `name_key` is the name as it is compared: two names that differ in case alone are one.
CREATE TABLE files (
    workspace_id    BLOB NOT NULL,
    id              BLOB NOT NULL,
    conversation_id BLOB,
    execution_id    BLOB,
    message_id      BLOB,
    name            TEXT NOT NULL,
    name_key        TEXT NOT NULL,
    mime_type       TEXT NOT NULL,
    size            INTEGER NOT NULL,
    sha256          BLOB NOT NULL,
    storage_key     TEXT NOT NULL,
    source          TEXT NOT NULL CHECK (source IN ('user', 'sandbox')),
    created_at      INTEGER NOT NULL,
    deleted_at      INTEGER,
    PRIMARY KEY (workspace_id, id),
    FOREIGN KEY (workspace_id, conversation_id) REFERENCES chat_conversations (workspace_id, id)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX idx_files_bag_name ON files (workspace_id, conversation_id, name_key)
    WHERE conversation_id IS NOT NULL;
CREATE INDEX idx_files_bag ON files (workspace_id, conversation_id, created_at);
