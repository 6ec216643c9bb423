-- One key of one caller is one request, in whichever workspace it was sent.
CREATE INDEX idx_idempotency_keys_caller ON idempotency_keys (caller, key);
