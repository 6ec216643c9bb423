-- `pk` is the row that the search index names; it never leaves the store.
CREATE TABLE pages (
    pk           INTEGER PRIMARY KEY,
    workspace_id BLOB NOT NULL REFERENCES workspaces (id),
    id           BLOB NOT NULL,
    title        TEXT NOT NULL,
    body         TEXT NOT NULL,
    url          TEXT,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    UNIQUE (workspace_id, id)
) STRICT;

CREATE TABLE user_tables (
    workspace_id BLOB NOT NULL REFERENCES workspaces (id),
    id           BLOB NOT NULL,
    name         TEXT NOT NULL,
    -- Names and types, as JSON. Columns are only ever added, at the end.
    columns      TEXT NOT NULL,
    row_count    INTEGER NOT NULL DEFAULT 0,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    PRIMARY KEY (workspace_id, id)
) STRICT, WITHOUT ROWID;

-- Rows of an import that has not come to its end have its id, and nobody sees them.
CREATE TABLE table_rows (
    pk           INTEGER PRIMARY KEY,
    workspace_id BLOB NOT NULL,
    table_id     BLOB NOT NULL,
    id           BLOB NOT NULL,
    -- In the order of the columns, as JSON.
    cells        TEXT NOT NULL,
    import_id    BLOB,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    UNIQUE (workspace_id, table_id, id),
    FOREIGN KEY (workspace_id, table_id) REFERENCES user_tables (workspace_id, id)
) STRICT;

CREATE INDEX idx_table_rows_import ON table_rows (workspace_id, table_id, import_id)
    WHERE import_id IS NOT NULL;

-- The words of pages and rows, made by domain::search, one row per document, named by `pk`. `place` is the workspace,
-- and of a row its table too: words that only ever stand there.
CREATE VIRTUAL TABLE page_search USING fts5 (place, words, content = '', contentless_delete = 1, tokenize = 'ascii', prefix = '1 2 3');
CREATE VIRTUAL TABLE row_search USING fts5 (place, words, content = '', contentless_delete = 1, tokenize = 'ascii', prefix = '1 2 3');
