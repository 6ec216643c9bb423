-- A fork is copied part by part. Until it is whole it is deleted, with 2 for `purging`: nobody sees it. One that never becomes
-- whole is found by this, and given up: 3.
CREATE INDEX idx_chat_conversations_unmade ON chat_conversations (deleted_at) WHERE purging >= 2;
