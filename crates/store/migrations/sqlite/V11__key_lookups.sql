-- As PostgreSQL's: a conversation that is not deleted needs no entry here.
DROP INDEX idx_chat_conversations_workspace_deleted;
CREATE INDEX idx_chat_conversations_workspace_deleted ON chat_conversations (workspace_id, deleted_at)
    WHERE deleted_at IS NOT NULL;
