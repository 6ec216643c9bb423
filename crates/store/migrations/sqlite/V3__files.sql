-- A file is reserved before its bytes are written and visible once they are durable: `kept` says which.
-- Of a reserved one, size and sha256 are what was promised, or zero and empty.
ALTER TABLE files ADD COLUMN kept INTEGER NOT NULL DEFAULT 1;
ALTER TABLE files ADD COLUMN reserved_at INTEGER NOT NULL DEFAULT 0;
-- Until when a direct upload may come; null where the server itself takes the bytes.
ALTER TABLE files ADD COLUMN expires_at INTEGER;
-- The checksum that a zip states before the bytes.
ALTER TABLE files ADD COLUMN crc32 INTEGER NOT NULL DEFAULT 0;
-- Who brought it: an execution's files are that caller's.
ALTER TABLE files ADD COLUMN user_id TEXT NOT NULL DEFAULT '';
-- The run whose sandbox sent it back.
ALTER TABLE files ADD COLUMN run_id BLOB;

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
CREATE INDEX idx_files_reserved ON files (reserved_at) WHERE kept = 0;
CREATE INDEX idx_files_deleted ON files (deleted_at) WHERE deleted_at IS NOT NULL;
CREATE INDEX idx_files_key ON files (storage_key);

-- The ids of the files that the run was given when it started, a JSON array; null for none.
ALTER TABLE runs ADD COLUMN assets TEXT;
-- When its upload token was used.
ALTER TABLE runs ADD COLUMN upload_used_at INTEGER;
-- The answer of an execution.
ALTER TABLE runs ADD COLUMN response TEXT;
CREATE UNIQUE INDEX idx_runs_execution ON runs (workspace_id, execution_id) WHERE execution_id IS NOT NULL;

-- Set when the removal for good has begun: from then on it cannot be restored.
ALTER TABLE chat_conversations ADD COLUMN purging INTEGER NOT NULL DEFAULT 0;
CREATE INDEX idx_chat_conversations_deleted ON chat_conversations (deleted_at) WHERE deleted_at IS NOT NULL;
