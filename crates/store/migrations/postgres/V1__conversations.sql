-- Every key leads with the workspace, so that the tables can be sharded by it as they are.
-- Row level security is the application's own rule, standing a second time: the settings that it reads
-- are set for one transaction, and unset or empty they match nothing.

CREATE TABLE workspaces (
    id                 uuid PRIMARY KEY,
    org_id             text NOT NULL,
    name               text NOT NULL,
    default_visibility text NOT NULL DEFAULT 'private' CHECK (default_visibility IN ('private', 'workspace')),
    created_at         timestamptz NOT NULL,
    deleted_at         timestamptz
);

CREATE TABLE members (
    workspace_id uuid NOT NULL REFERENCES workspaces (id),
    user_id      text COLLATE "C" NOT NULL,
    role         text NOT NULL CHECK (role IN ('member', 'admin')),
    added_at     timestamptz NOT NULL,
    PRIMARY KEY (workspace_id, user_id)
);

CREATE INDEX idx_members_user ON members (user_id, workspace_id);

CREATE TABLE api_keys (
    workspace_id uuid NOT NULL REFERENCES workspaces (id),
    id           uuid NOT NULL,
    hash         bytea NOT NULL,
    name         text NOT NULL,
    role         text NOT NULL CHECK (role IN ('member', 'admin', 'service')),
    created_by   text NOT NULL,
    created_at   timestamptz NOT NULL,
    PRIMARY KEY (workspace_id, id)
);

CREATE UNIQUE INDEX idx_api_keys_hash ON api_keys (workspace_id, hash);

CREATE TABLE audit_log (
    workspace_id uuid NOT NULL,
    seq          bigint NOT NULL,
    at           timestamptz NOT NULL,
    user_id      text NOT NULL,
    key_id       uuid,
    action       text NOT NULL,
    target       text NOT NULL,
    detail       text NOT NULL,
    hash         bytea NOT NULL,
    PRIMARY KEY (workspace_id, seq)
);

CREATE TABLE chat_conversations (
    workspace_id   uuid NOT NULL REFERENCES workspaces (id),
    id             uuid NOT NULL,
    org_id         text NOT NULL,
    user_id        text COLLATE "C" NOT NULL,
    title          text COLLATE "C",
    mode           text CHECK (mode IN ('ask', 'agent', 'task_flow')),
    source         text COLLATE "C" CHECK (source IN ('web', 'extension')),
    page_path      text,
    total_tokens   bigint NOT NULL DEFAULT 0,
    tabs           text NOT NULL DEFAULT '[]',
    active_tab_key text,
    kind           text NOT NULL CHECK (kind IN ('assistant_sandbox', 'model_chat')),
    workflow_id    text,
    agent_id       text,
    model          text,
    preview        text,
    message_count  bigint NOT NULL DEFAULT 0,
    first_message  uuid,
    visibility     text NOT NULL CHECK (visibility IN ('private', 'workspace')),
    deleted_at     timestamptz,
    created_at     timestamptz NOT NULL,
    updated_at     timestamptz NOT NULL,
    version        bigint NOT NULL,
    -- The client's own text, to the byte: not jsonb, which reorders keys and respells numbers.
    context        text,
    PRIMARY KEY (workspace_id, id)
);

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
    workspace_id     uuid NOT NULL,
    conversation_id  uuid NOT NULL,
    branch           integer NOT NULL DEFAULT 0,
    seq              bigint NOT NULL,
    id               uuid NOT NULL,
    role             text NOT NULL CHECK (role IN ('user', 'assistant', 'system')),
    text             text NOT NULL,
    content          text NOT NULL,
    file_attachments text NOT NULL,
    sources          text NOT NULL,
    token_count      bigint NOT NULL,
    metadata         text NOT NULL,
    created_at       timestamptz NOT NULL,
    PRIMARY KEY (workspace_id, conversation_id, branch, seq),
    UNIQUE (workspace_id, conversation_id, id),
    FOREIGN KEY (workspace_id, conversation_id) REFERENCES chat_conversations (workspace_id, id)
);

-- The words of titles and messages, made by domain::search, each document with its workspace as one more
-- word. Tables of their own, because their policies below are the search itself.
CREATE TABLE title_search (
    workspace_id    uuid NOT NULL,
    conversation_id uuid NOT NULL,
    words           tsvector NOT NULL,
    PRIMARY KEY (workspace_id, conversation_id),
    FOREIGN KEY (workspace_id, conversation_id) REFERENCES chat_conversations (workspace_id, id)
);

CREATE INDEX idx_title_search_words ON title_search USING gin (words);

CREATE TABLE message_search (
    workspace_id    uuid NOT NULL,
    conversation_id uuid NOT NULL,
    message_id      uuid NOT NULL,
    seq             bigint NOT NULL,
    created_at      timestamptz NOT NULL,
    words           tsvector NOT NULL,
    PRIMARY KEY (workspace_id, conversation_id, message_id),
    FOREIGN KEY (workspace_id, conversation_id) REFERENCES chat_conversations (workspace_id, id)
);

CREATE INDEX idx_message_search_words ON message_search USING gin (words);
-- For words that are everywhere: the newest are found by walking back in time.
CREATE INDEX idx_message_search_newest ON message_search (workspace_id, created_at DESC, message_id DESC);

CREATE TABLE runs (
    workspace_id         uuid NOT NULL,
    id                   uuid NOT NULL,
    conversation_id      uuid,
    execution_id         uuid,
    status               text NOT NULL
        CHECK (status IN ('queued', 'running', 'succeeded', 'failed', 'cancelled', 'interrupted')),
    message_id           uuid,
    assistant_message_id uuid,
    input_tokens         bigint NOT NULL DEFAULT 0,
    output_tokens        bigint NOT NULL DEFAULT 0,
    error_code           text,
    error_message        text,
    fence                bigint NOT NULL DEFAULT 0,
    node                 text,
    lease_until          timestamptz,
    last_event           bigint NOT NULL DEFAULT 0,
    created_at           timestamptz NOT NULL,
    started_at           timestamptz,
    ended_at             timestamptz,
    PRIMARY KEY (workspace_id, id),
    FOREIGN KEY (workspace_id, conversation_id) REFERENCES chat_conversations (workspace_id, id)
);

-- Single flight, kept by the database.
CREATE UNIQUE INDEX idx_runs_one_running ON runs (workspace_id, conversation_id) WHERE status = 'running';
CREATE INDEX idx_runs_conversation ON runs (workspace_id, conversation_id, created_at);

-- One row holds a batch of events, numbered first_seq to last_seq.
CREATE TABLE run_events (
    workspace_id uuid NOT NULL,
    run_id       uuid NOT NULL,
    first_seq    bigint NOT NULL,
    last_seq     bigint NOT NULL,
    events       text NOT NULL,
    created_at   timestamptz NOT NULL,
    PRIMARY KEY (workspace_id, run_id, first_seq),
    FOREIGN KEY (workspace_id, run_id) REFERENCES runs (workspace_id, id)
);

-- `name_key` is the name as it is compared: two names that differ in case alone are one.
CREATE TABLE files (
    workspace_id    uuid NOT NULL,
    id              uuid NOT NULL,
    conversation_id uuid,
    execution_id    uuid,
    message_id      uuid,
    name            text NOT NULL,
    name_key        text NOT NULL,
    mime_type       text NOT NULL,
    size            bigint NOT NULL,
    sha256          bytea NOT NULL,
    storage_key     text NOT NULL,
    source          text NOT NULL CHECK (source IN ('user', 'sandbox')),
    created_at      timestamptz NOT NULL,
    deleted_at      timestamptz,
    PRIMARY KEY (workspace_id, id),
    FOREIGN KEY (workspace_id, conversation_id) REFERENCES chat_conversations (workspace_id, id)
);

CREATE UNIQUE INDEX idx_files_bag_name ON files (workspace_id, conversation_id, name_key)
    WHERE conversation_id IS NOT NULL;
CREATE INDEX idx_files_bag ON files (workspace_id, conversation_id, created_at);

-- Who is asking, as the transaction said. Subselects, so that a scan evaluates them once.
ALTER TABLE workspaces ENABLE ROW LEVEL SECURITY;
ALTER TABLE workspaces FORCE ROW LEVEL SECURITY;
ALTER TABLE members ENABLE ROW LEVEL SECURITY;
ALTER TABLE members FORCE ROW LEVEL SECURITY;
ALTER TABLE api_keys ENABLE ROW LEVEL SECURITY;
ALTER TABLE api_keys FORCE ROW LEVEL SECURITY;
ALTER TABLE audit_log ENABLE ROW LEVEL SECURITY;
ALTER TABLE audit_log FORCE ROW LEVEL SECURITY;
ALTER TABLE chat_conversations ENABLE ROW LEVEL SECURITY;
ALTER TABLE chat_conversations FORCE ROW LEVEL SECURITY;
ALTER TABLE messages ENABLE ROW LEVEL SECURITY;
ALTER TABLE messages FORCE ROW LEVEL SECURITY;
ALTER TABLE title_search ENABLE ROW LEVEL SECURITY;
ALTER TABLE title_search FORCE ROW LEVEL SECURITY;
ALTER TABLE message_search ENABLE ROW LEVEL SECURITY;
ALTER TABLE message_search FORCE ROW LEVEL SECURITY;
ALTER TABLE runs ENABLE ROW LEVEL SECURITY;
ALTER TABLE runs FORCE ROW LEVEL SECURITY;
ALTER TABLE run_events ENABLE ROW LEVEL SECURITY;
ALTER TABLE run_events FORCE ROW LEVEL SECURITY;
ALTER TABLE files ENABLE ROW LEVEL SECURITY;
ALTER TABLE files FORCE ROW LEVEL SECURITY;

CREATE POLICY members_scope ON members TO threadkeep_app
    USING (workspace_id = (SELECT nullif(current_setting('threadkeep.workspace', true), '')::uuid));

-- Outside of any workspace a user sees where that user is a member, and changes nothing.
CREATE POLICY members_own ON members FOR SELECT TO threadkeep_app USING (
    (SELECT coalesce(current_setting('threadkeep.workspace', true), '') = '')
    AND user_id = (SELECT nullif(current_setting('threadkeep.user', true), ''))
);

CREATE POLICY workspaces_scope ON workspaces TO threadkeep_app
    USING (id = (SELECT nullif(current_setting('threadkeep.workspace', true), '')::uuid));

CREATE POLICY workspaces_own ON workspaces FOR SELECT TO threadkeep_app USING (
    (SELECT coalesce(current_setting('threadkeep.workspace', true), '') = '')
    AND EXISTS (SELECT 1 FROM members m WHERE m.workspace_id = workspaces.id)
);

CREATE POLICY api_keys_scope ON api_keys TO threadkeep_app
    USING (workspace_id = (SELECT nullif(current_setting('threadkeep.workspace', true), '')::uuid));

CREATE POLICY audit_log_scope ON audit_log TO threadkeep_app
    USING (workspace_id = (SELECT nullif(current_setting('threadkeep.workspace', true), '')::uuid));

CREATE POLICY chat_conversations_scope ON chat_conversations TO threadkeep_app USING (
    workspace_id = (SELECT nullif(current_setting('threadkeep.workspace', true), '')::uuid)
    AND (
        (SELECT coalesce(current_setting('threadkeep.sees_all', true), '') = 'on')
        OR (visibility = 'workspace' AND deleted_at IS NULL)
        OR user_id = (SELECT nullif(current_setting('threadkeep.user', true), ''))
    )
);

-- What belongs to a conversation is seen by those who see the conversation. Not EXISTS, which PostgreSQL
-- may turn into a hash of every conversation of the workspace; this looks the one up by its key.
CREATE POLICY messages_scope ON messages TO threadkeep_app USING (
    workspace_id = (SELECT nullif(current_setting('threadkeep.workspace', true), '')::uuid)
    AND (
        SELECT TRUE FROM chat_conversations c
        WHERE c.workspace_id = messages.workspace_id AND c.id = messages.conversation_id
    )
);

-- Compared as text, so that a search goes by the index of words and never by the workspace's rows.
CREATE POLICY title_search_scope ON title_search TO threadkeep_app USING (
    workspace_id::text = (SELECT current_setting('threadkeep.workspace', true))
    AND (
        SELECT TRUE FROM chat_conversations c
        WHERE c.workspace_id = title_search.workspace_id AND c.id = title_search.conversation_id
    )
);

CREATE POLICY message_search_scope ON message_search TO threadkeep_app USING (
    workspace_id::text = (SELECT current_setting('threadkeep.workspace', true))
    AND (
        SELECT TRUE FROM chat_conversations c
        WHERE c.workspace_id = message_search.workspace_id AND c.id = message_search.conversation_id
    )
);

-- Only what matches can be seen. A policy, because PostgreSQL evaluates policies before a query's own
-- conditions unless those are leakproof, which @@ is not: as a condition it could not use the index.
CREATE POLICY title_search_match ON title_search AS RESTRICTIVE FOR SELECT TO threadkeep_app
    USING (words @@ (SELECT nullif(current_setting('threadkeep.words', true), '')::tsquery));

CREATE POLICY message_search_match ON message_search AS RESTRICTIVE FOR SELECT TO threadkeep_app
    USING (words @@ (SELECT nullif(current_setting('threadkeep.words', true), '')::tsquery));

CREATE POLICY runs_scope ON runs TO threadkeep_app USING (
    workspace_id = (SELECT nullif(current_setting('threadkeep.workspace', true), '')::uuid)
    AND (
        conversation_id IS NULL
        OR (
            SELECT TRUE FROM chat_conversations c
            WHERE c.workspace_id = runs.workspace_id AND c.id = runs.conversation_id
        )
    )
);

CREATE POLICY run_events_scope ON run_events TO threadkeep_app USING (
    workspace_id = (SELECT nullif(current_setting('threadkeep.workspace', true), '')::uuid)
    AND (SELECT TRUE FROM runs r WHERE r.workspace_id = run_events.workspace_id AND r.id = run_events.run_id)
);

CREATE POLICY files_scope ON files TO threadkeep_app USING (
    workspace_id = (SELECT nullif(current_setting('threadkeep.workspace', true), '')::uuid)
    AND (
        conversation_id IS NULL
        OR (
            SELECT TRUE FROM chat_conversations c
            WHERE c.workspace_id = files.workspace_id AND c.id = files.conversation_id
        )
    )
);

GRANT SELECT, INSERT, UPDATE, DELETE
    ON workspaces, members, api_keys, chat_conversations, messages, title_search, message_search, runs,
       run_events, files TO threadkeep_app;
-- The audit log is append-only.
GRANT SELECT, INSERT ON audit_log TO threadkeep_app;
