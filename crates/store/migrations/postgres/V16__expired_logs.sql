-- A log whose time is over stays in `run_events`, in parts of about 256 KiB, and is read in pages like any other. It was one
-- row of `run_traces`, which every reader had to hold whole. A row whose lines are not as this program writes them, from an
-- import, is moved as it is.
--
-- Locks first, and what a policy asks about after what it guards: see V11. An owner that is no superuser sees no row of a
-- table that forces row level security on it.
LOCK TABLE run_events, run_traces, runs IN ACCESS EXCLUSIVE MODE;
ALTER TABLE run_events NO FORCE ROW LEVEL SECURITY;
ALTER TABLE run_traces NO FORCE ROW LEVEL SECURITY;
ALTER TABLE runs NO FORCE ROW LEVEL SECURITY;

WITH lines AS (
    SELECT t.workspace_id, t.run_id, r.last_event, l.line, l.n,
        substring(l.line FROM '^\{"n":[0-9]+,"seq":([0-9]+),')::bigint AS seq,
        sum(octet_length(l.line) + 1) OVER (PARTITION BY t.workspace_id, t.run_id ORDER BY l.n) AS bytes,
        bool_and(l.line ~ '^\{"n":[0-9]+,"seq":([0-9]+|null),') OVER (PARTITION BY t.workspace_id, t.run_id) AS known
    FROM run_traces t
    JOIN runs r ON r.workspace_id = t.workspace_id AND r.id = t.run_id AND r.log_expired
    CROSS JOIN LATERAL unnest(string_to_array(t.entries, E'\n')) WITH ORDINALITY AS l (line, n)
),
parts AS (
    SELECT workspace_id, run_id, min(n) AS first_entry, max(n) AS last_entry,
        CASE WHEN known THEN coalesce(max(seq), 0) ELSE last_event END AS newest,
        string_agg(line, E'\n' ORDER BY n) AS entries
    FROM lines
    GROUP BY workspace_id, run_id, last_event, known, CASE WHEN known THEN (bytes - 1) / 262144 END
)
INSERT INTO run_events (workspace_id, run_id, first_entry, last_entry, last_seq, entries)
SELECT workspace_id, run_id, first_entry, last_entry,
    max(newest) OVER (PARTITION BY workspace_id, run_id ORDER BY last_entry), entries
FROM parts;

DELETE FROM run_traces t USING runs r WHERE r.workspace_id = t.workspace_id AND r.id = t.run_id AND r.log_expired;

ALTER TABLE run_events FORCE ROW LEVEL SECURITY;
ALTER TABLE run_traces FORCE ROW LEVEL SECURITY;
ALTER TABLE runs FORCE ROW LEVEL SECURITY;

-- A node of the version before puts nothing there that nobody reads: it fails to, and leaves the log as it is.
REVOKE INSERT, UPDATE ON run_traces FROM threadkeep_app;
