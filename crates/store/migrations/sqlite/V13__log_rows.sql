-- Logs and traces lie in the order in which they were written, with their keys apart. Under WITHOUT ROWID the key's tree
-- held the entries too: to compare one key, SQLite reads all of a row that does not fit into its page, and every append
-- met several of those on its way.
CREATE TABLE new_run_events (
    workspace_id BLOB NOT NULL,
    run_id       BLOB NOT NULL,
    first_entry  INTEGER NOT NULL,
    last_entry   INTEGER NOT NULL,
    last_seq     INTEGER NOT NULL,
    entries      TEXT NOT NULL,
    PRIMARY KEY (workspace_id, run_id, last_entry),
    FOREIGN KEY (workspace_id, run_id) REFERENCES runs (workspace_id, id)
) STRICT;
INSERT INTO new_run_events SELECT * FROM run_events;
DROP TABLE run_events;
ALTER TABLE new_run_events RENAME TO run_events;

CREATE TABLE new_run_traces (
    workspace_id BLOB NOT NULL,
    run_id       BLOB NOT NULL,
    entries      TEXT NOT NULL,
    PRIMARY KEY (workspace_id, run_id),
    FOREIGN KEY (workspace_id, run_id) REFERENCES runs (workspace_id, id)
) STRICT;
INSERT INTO new_run_traces SELECT * FROM run_traces;
DROP TABLE run_traces;
ALTER TABLE new_run_traces RENAME TO run_traces;
