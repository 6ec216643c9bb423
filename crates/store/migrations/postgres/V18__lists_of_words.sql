-- The words of a long text are a long value themselves, compressed with every answer that is stored. As in V11, with less
-- work where this PostgreSQL has lz4.
-- The locks first: see V11.
LOCK TABLE message_search, page_search, row_search IN ACCESS EXCLUSIVE MODE;

DO $$ BEGIN
    IF EXISTS (SELECT 1 FROM pg_settings WHERE name = 'default_toast_compression' AND 'lz4' = ANY (enumvals)) THEN
        EXECUTE 'ALTER TABLE message_search ALTER COLUMN words SET COMPRESSION lz4';
        EXECUTE 'ALTER TABLE page_search ALTER COLUMN words SET COMPRESSION lz4';
        EXECUTE 'ALTER TABLE row_search ALTER COLUMN words SET COMPRESSION lz4';
    END IF;
END $$;
