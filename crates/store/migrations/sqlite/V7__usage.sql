-- Tokens by day and user, and how many runs ended. Counted in the transaction that ends a run or counts a call.
CREATE TABLE usage_days (
    workspace_id  BLOB NOT NULL,
    day           TEXT NOT NULL,
    user_id       TEXT NOT NULL,
    input_tokens  INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    runs          INTEGER NOT NULL,
    PRIMARY KEY (workspace_id, day, user_id)
) STRICT, WITHOUT ROWID;
