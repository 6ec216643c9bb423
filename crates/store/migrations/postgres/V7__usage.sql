-- Tokens by day and user, and how many runs ended. Counted in the transaction that ends a run or counts a call.
-- A user's day is kept in several parts, so that runs which end at once do not wait for each other's row.
CREATE TABLE usage_days (
    workspace_id  uuid NOT NULL,
    day           text COLLATE "C" NOT NULL,
    user_id       text COLLATE "C" NOT NULL,
    part          smallint NOT NULL,
    input_tokens  bigint NOT NULL,
    output_tokens bigint NOT NULL,
    runs          bigint NOT NULL,
    PRIMARY KEY (workspace_id, day, user_id, part)
) WITH (fillfactor = 60);

ALTER TABLE usage_days ENABLE ROW LEVEL SECURITY;
ALTER TABLE usage_days FORCE ROW LEVEL SECURITY;

CREATE POLICY usage_days_scope ON usage_days TO threadkeep_app
    USING (workspace_id = (SELECT nullif(current_setting('threadkeep.workspace', true), '')::uuid));

GRANT SELECT, INSERT, UPDATE ON usage_days TO threadkeep_app;
