-- Every begin counts its user's open runs. With the status in the index the rows themselves are not looked up for it.
DROP INDEX idx_runs_open;
CREATE INDEX idx_runs_open ON runs (workspace_id, user_id, status) WHERE status IN ('queued', 'running');
