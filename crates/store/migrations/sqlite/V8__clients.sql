-- A client's own pairs, as a JSON object.
ALTER TABLE chat_conversations ADD COLUMN metadata TEXT;
-- Taken out of the API that made it: its conversation keeps what was said.
ALTER TABLE runs ADD COLUMN forgotten INTEGER NOT NULL DEFAULT 0;
