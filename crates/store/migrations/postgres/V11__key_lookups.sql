-- A plan that was made while a table was empty stays until its first statistics. By the key of a row it must then not
-- take an index that only begins with the same workspace, and walk over all of the workspace: so those are for other
-- questions alone.
--
-- All locks first, in the order in which the policies of a statement take theirs: nodes that serve meanwhile then wait for
-- the whole, or break it off before anything is done.
LOCK TABLE run_events, runs, messages, chat_conversations IN ACCESS EXCLUSIVE MODE;

DROP INDEX idx_chat_conversations_workspace_deleted;
CREATE INDEX idx_chat_conversations_workspace_deleted ON chat_conversations (workspace_id, deleted_at)
    WHERE deleted_at IS NOT NULL;
DROP INDEX idx_runs_conversation;
CREATE INDEX idx_runs_conversation ON runs (workspace_id, conversation_id, id) WHERE conversation_id IS NOT NULL;

-- Every turn writes long texts; where this PostgreSQL has lz4, it compresses them with less work.
DO $$ BEGIN
    IF EXISTS (SELECT 1 FROM pg_settings WHERE name = 'default_toast_compression' AND 'lz4' = ANY (enumvals)) THEN
        -- As texts: a PostgreSQL that knows no such words would not even read them.
        EXECUTE 'ALTER TABLE run_events ALTER COLUMN entries SET COMPRESSION lz4';
        EXECUTE 'ALTER TABLE messages ALTER COLUMN text SET COMPRESSION lz4, ALTER COLUMN content SET COMPRESSION lz4';
    END IF;
END $$;
