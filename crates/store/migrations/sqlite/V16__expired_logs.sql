-- A log whose time is over stays in `run_events`, in parts of about 256 KiB, and is read in pages like any other. It was one
-- row of `run_traces`, which every reader had to hold whole. Bytes are counted, and a part ends at the first line end after
-- so many of them.
INSERT INTO run_events (workspace_id, run_id, first_entry, last_entry, last_seq, entries)
WITH RECURSIVE cuts (workspace_id, run_id, start) AS (
    SELECT t.workspace_id, t.run_id, 1 FROM run_traces t
    JOIN runs r ON r.workspace_id = t.workspace_id AND r.id = t.run_id AND r.log_expired = 1
    UNION ALL
    SELECT c.workspace_id, c.run_id,
        c.start + 196608 + instr(substr(CAST(t.entries AS BLOB), c.start + 196608), x'0a')
    FROM cuts c
    JOIN run_traces t ON t.workspace_id = c.workspace_id AND t.run_id = c.run_id
    WHERE instr(substr(CAST(t.entries AS BLOB), c.start + 196608), x'0a') > 0
),
spans AS MATERIALIZED (
    SELECT *, lead(start) OVER (PARTITION BY workspace_id, run_id ORDER BY start) AS next FROM cuts
),
parts AS MATERIALIZED (
    SELECT s.workspace_id, s.run_id, s.start,
        CAST(substr(CAST(t.entries AS BLOB), s.start, coalesce(s.next - 1 - s.start, length(CAST(t.entries AS BLOB)))) AS TEXT)
            AS entries
    FROM spans s
    JOIN run_traces t ON t.workspace_id = s.workspace_id AND t.run_id = s.run_id
),
readable AS MATERIALIZED (
    SELECT *, min(json_valid('[' || replace(entries, char(10), ',') || ']')) OVER (PARTITION BY workspace_id, run_id) AS known
    FROM parts
),
numbers AS MATERIALIZED (
    SELECT p.workspace_id, p.run_id, p.start, p.entries, min(json_extract(l.value, '$.n')) AS first_entry,
        max(json_extract(l.value, '$.n')) AS last_entry, coalesce(max(json_extract(l.value, '$.seq')), 0) AS newest
    FROM readable p
    CROSS JOIN json_each('[' || replace(p.entries, char(10), ',') || ']') l
    WHERE p.known = 1
    GROUP BY p.workspace_id, p.run_id, p.start
)
SELECT workspace_id, run_id, first_entry, last_entry,
    max(newest) OVER (PARTITION BY workspace_id, run_id ORDER BY last_entry), entries
FROM numbers;

-- One that cannot be read so is moved as it is.
INSERT INTO run_events (workspace_id, run_id, first_entry, last_entry, last_seq, entries)
SELECT t.workspace_id, t.run_id, 1, max(r.last_entry, 1), r.last_event, t.entries FROM run_traces t
JOIN runs r ON r.workspace_id = t.workspace_id AND r.id = t.run_id AND r.log_expired = 1
WHERE NOT EXISTS (SELECT 1 FROM run_events e WHERE e.workspace_id = t.workspace_id AND e.run_id = t.run_id);

DELETE FROM run_traces WHERE EXISTS (
    SELECT 1 FROM runs r
    WHERE r.workspace_id = run_traces.workspace_id AND r.id = run_traces.run_id AND r.log_expired = 1
);

-- A process of the version before puts nothing there that nobody reads: it fails to, and leaves the log as it is.
CREATE TRIGGER run_traces_closed BEFORE INSERT ON run_traces BEGIN
    SELECT RAISE(ABORT, 'logs are kept in run_events');
END;
