-- A file is reserved before its bytes are written and visible once they are durable: `kept` says which.
-- Of a reserved one, size and sha256 are what was promised, or zero and empty.
ALTER TABLE files
    ADD COLUMN kept boolean NOT NULL DEFAULT true,
    ADD COLUMN reserved_at timestamptz NOT NULL DEFAULT 'epoch',
    -- Until when a direct upload may come; null where the server itself takes the bytes.
    ADD COLUMN expires_at timestamptz,
    -- The checksum that a zip states before the bytes.
    ADD COLUMN crc32 bigint NOT NULL DEFAULT 0,
    -- Who brought it: an execution's files are that caller's.
    ADD COLUMN user_id text NOT NULL DEFAULT '',
    -- The run whose sandbox sent it back.
    ADD COLUMN run_id uuid;

CREATE UNIQUE INDEX idx_files_execution_name ON files (workspace_id, execution_id, name_key)
    WHERE execution_id IS NOT NULL;
CREATE UNIQUE INDEX idx_files_workspace_name ON files (workspace_id, name_key)
    WHERE conversation_id IS NULL AND execution_id IS NULL;
DROP INDEX idx_files_bag;
CREATE INDEX idx_files_bag ON files (workspace_id, conversation_id, id) WHERE conversation_id IS NOT NULL;
CREATE INDEX idx_files_execution ON files (workspace_id, execution_id, id) WHERE execution_id IS NOT NULL;
CREATE INDEX idx_files_workspace ON files (workspace_id, id) WHERE conversation_id IS NULL AND execution_id IS NULL;
CREATE INDEX idx_files_run ON files (workspace_id, run_id, id) WHERE run_id IS NOT NULL;
-- The sweep's questions, over all workspaces.
CREATE INDEX idx_files_reserved ON files (reserved_at) WHERE NOT kept;
CREATE INDEX idx_files_deleted ON files (deleted_at) WHERE deleted_at IS NOT NULL;
CREATE INDEX idx_files_key ON files (storage_key);

ALTER TABLE runs
    -- The ids of the files that the run was given when it started, a JSON array; null for none.
    ADD COLUMN assets text,
    -- When its upload token was used.
    ADD COLUMN upload_used_at timestamptz,
    -- The answer of an execution.
    ADD COLUMN response text;
CREATE UNIQUE INDEX idx_runs_execution ON runs (workspace_id, execution_id) WHERE execution_id IS NOT NULL;

-- Set when the removal for good has begun: from then on it cannot be restored.
ALTER TABLE chat_conversations ADD COLUMN purging boolean NOT NULL DEFAULT false;
CREATE INDEX idx_chat_conversations_deleted ON chat_conversations (deleted_at) WHERE deleted_at IS NOT NULL;

-- What belongs to an execution is seen by who started it and by those who see all; a workspace's files by all of it.
DROP POLICY runs_scope ON runs;
CREATE POLICY runs_scope ON runs TO threadkeep_app USING (
    workspace_id = (SELECT nullif(current_setting('threadkeep.workspace', true), '')::uuid)
    AND CASE WHEN conversation_id IS NULL
        THEN (SELECT coalesce(current_setting('threadkeep.sees_all', true), '') = 'on')
            OR user_id = (SELECT nullif(current_setting('threadkeep.user', true), ''))
        ELSE (
            SELECT TRUE FROM chat_conversations c
            WHERE c.workspace_id = runs.workspace_id AND c.id = runs.conversation_id
        )
    END
);

DROP POLICY files_scope ON files;
CREATE POLICY files_scope ON files TO threadkeep_app USING (
    workspace_id = (SELECT nullif(current_setting('threadkeep.workspace', true), '')::uuid)
    AND CASE
        WHEN conversation_id IS NOT NULL THEN (
            SELECT TRUE FROM chat_conversations c
            WHERE c.workspace_id = files.workspace_id AND c.id = files.conversation_id
        )
        WHEN execution_id IS NOT NULL
        THEN (SELECT coalesce(current_setting('threadkeep.sees_all', true), '') = 'on')
            OR user_id = (SELECT nullif(current_setting('threadkeep.user', true), ''))
        ELSE TRUE
    END
);

-- The nodes' own work: which reservations and which deleted things have had their time, and where their bytes lie.
-- Of a file its key alone says something about it; only reservations can be marked. Rows are removed in the scope of
-- their workspace.
CREATE POLICY files_system ON files FOR SELECT TO threadkeep_system
    USING ((SELECT current_user) = 'threadkeep_system');
CREATE POLICY files_system_sweep ON files FOR UPDATE TO threadkeep_system
    USING ((SELECT current_user) = 'threadkeep_system' AND NOT kept);
CREATE POLICY chat_conversations_system ON chat_conversations FOR SELECT TO threadkeep_system
    USING ((SELECT current_user) = 'threadkeep_system');
GRANT SELECT (workspace_id, id, conversation_id, storage_key, kept, reserved_at, expires_at, deleted_at) ON files
    TO threadkeep_system;
GRANT UPDATE (deleted_at) ON files TO threadkeep_system;
GRANT SELECT (workspace_id, id, deleted_at) ON chat_conversations TO threadkeep_system;
