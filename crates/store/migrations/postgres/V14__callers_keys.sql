-- One key of one caller is one request, in whichever workspace it was sent.
-- The lock first: see V11.
LOCK TABLE idempotency_keys IN ACCESS EXCLUSIVE MODE;

CREATE INDEX IF NOT EXISTS idx_idempotency_keys_caller ON idempotency_keys (caller, key);

-- As of `members`: outside of any workspace a user sees what that user sent, and changes nothing.
DROP POLICY IF EXISTS idempotency_keys_own ON idempotency_keys;
CREATE POLICY idempotency_keys_own ON idempotency_keys FOR SELECT TO threadkeep_app USING (
    (SELECT coalesce(current_setting('threadkeep.workspace', true), '') = '')
    AND caller = (SELECT nullif(current_setting('threadkeep.user', true), ''))
);
