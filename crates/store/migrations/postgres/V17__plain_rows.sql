-- These rows are written beside the one that they belong to, in its own statement or under its lock, and go before it. To
-- look for that one again takes a lock of its row, which is written too: a good part of what an event costs.
-- The locks first: see V11.
LOCK TABLE run_events, title_search, message_search IN ACCESS EXCLUSIVE MODE;

DO $$
DECLARE
    pointing record;
BEGIN
    FOR pointing IN
        SELECT conrelid::regclass AS owner, conname AS name FROM pg_constraint
        WHERE contype = 'f' AND conrelid IN ('run_events'::regclass, 'title_search'::regclass, 'message_search'::regclass)
    LOOP
        EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', pointing.owner, pointing.name);
    END LOOP;
END $$;
