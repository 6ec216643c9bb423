CREATE TABLE pages (
    workspace_id uuid NOT NULL REFERENCES workspaces (id),
    id           uuid NOT NULL,
    title        text NOT NULL,
    body         text NOT NULL,
    url          text,
    created_at   timestamptz NOT NULL,
    updated_at   timestamptz NOT NULL,
    PRIMARY KEY (workspace_id, id)
);

CREATE TABLE user_tables (
    workspace_id uuid NOT NULL REFERENCES workspaces (id),
    id           uuid NOT NULL,
    name         text NOT NULL,
    -- Names and types, as JSON. Columns are only ever added, at the end.
    columns      text NOT NULL,
    row_count    bigint NOT NULL DEFAULT 0,
    created_at   timestamptz NOT NULL,
    updated_at   timestamptz NOT NULL,
    PRIMARY KEY (workspace_id, id)
);

-- Rows of an import that has not come to its end have its id, and nobody sees them.
CREATE TABLE table_rows (
    workspace_id uuid NOT NULL,
    table_id     uuid NOT NULL,
    id           uuid NOT NULL,
    -- In the order of the columns, as JSON.
    cells        text NOT NULL,
    import_id    uuid,
    created_at   timestamptz NOT NULL,
    updated_at   timestamptz NOT NULL,
    PRIMARY KEY (workspace_id, table_id, id),
    FOREIGN KEY (workspace_id, table_id) REFERENCES user_tables (workspace_id, id)
);

CREATE INDEX idx_table_rows_import ON table_rows (workspace_id, table_id, import_id)
    WHERE import_id IS NOT NULL;

-- The words of pages and rows, made by domain::search, each document with its workspace as one more word, and of a row
-- with its table as another. As with titles and messages, their policies are the search itself.
CREATE TABLE page_search (
    workspace_id uuid NOT NULL,
    page_id      uuid NOT NULL,
    words        tsvector NOT NULL,
    PRIMARY KEY (workspace_id, page_id),
    FOREIGN KEY (workspace_id, page_id) REFERENCES pages (workspace_id, id) ON DELETE CASCADE
);

CREATE INDEX idx_page_search_words ON page_search USING gin (words);

CREATE TABLE row_search (
    workspace_id uuid NOT NULL,
    table_id     uuid NOT NULL,
    row_id       uuid NOT NULL,
    words        tsvector NOT NULL,
    PRIMARY KEY (workspace_id, table_id, row_id),
    FOREIGN KEY (workspace_id, table_id, row_id) REFERENCES table_rows (workspace_id, table_id, id) ON DELETE CASCADE
);

CREATE INDEX idx_row_search_words ON row_search USING gin (words);
-- For words that are everywhere: the newest are found by walking back in time.
CREATE INDEX idx_row_search_newest ON row_search (workspace_id, row_id DESC);

ALTER TABLE pages ENABLE ROW LEVEL SECURITY;
ALTER TABLE pages FORCE ROW LEVEL SECURITY;
ALTER TABLE user_tables ENABLE ROW LEVEL SECURITY;
ALTER TABLE user_tables FORCE ROW LEVEL SECURITY;
ALTER TABLE table_rows ENABLE ROW LEVEL SECURITY;
ALTER TABLE table_rows FORCE ROW LEVEL SECURITY;
ALTER TABLE page_search ENABLE ROW LEVEL SECURITY;
ALTER TABLE page_search FORCE ROW LEVEL SECURITY;
ALTER TABLE row_search ENABLE ROW LEVEL SECURITY;
ALTER TABLE row_search FORCE ROW LEVEL SECURITY;

CREATE POLICY pages_scope ON pages TO threadkeep_app
    USING (workspace_id = (SELECT nullif(current_setting('threadkeep.workspace', true), '')::uuid));
CREATE POLICY user_tables_scope ON user_tables TO threadkeep_app
    USING (workspace_id = (SELECT nullif(current_setting('threadkeep.workspace', true), '')::uuid));
CREATE POLICY table_rows_scope ON table_rows TO threadkeep_app
    USING (workspace_id = (SELECT nullif(current_setting('threadkeep.workspace', true), '')::uuid));

-- Compared as text, so that a search goes by the index of words and never by the workspace's rows.
CREATE POLICY page_search_scope ON page_search TO threadkeep_app
    USING (workspace_id::text = (SELECT current_setting('threadkeep.workspace', true)));
CREATE POLICY row_search_scope ON row_search TO threadkeep_app
    USING (workspace_id::text = (SELECT current_setting('threadkeep.workspace', true)));

-- Only what matches can be seen.
CREATE POLICY page_search_match ON page_search AS RESTRICTIVE FOR SELECT TO threadkeep_app
    USING (words @@ (SELECT nullif(current_setting('threadkeep.words', true), '')::tsquery));
CREATE POLICY row_search_match ON row_search AS RESTRICTIVE FOR SELECT TO threadkeep_app
    USING (words @@ (SELECT nullif(current_setting('threadkeep.words', true), '')::tsquery));

GRANT SELECT, INSERT, UPDATE, DELETE ON pages, user_tables, table_rows, page_search, row_search TO threadkeep_app;
