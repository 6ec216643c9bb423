-- A purge removes what a removed workspace leaves.
CREATE INDEX idx_workspaces_deleted ON workspaces (deleted_at) WHERE deleted_at IS NOT NULL;
