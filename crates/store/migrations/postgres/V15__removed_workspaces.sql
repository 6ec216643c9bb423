-- A purge removes what a removed workspace leaves. The nodes' own role sees which those are, and nothing else of them.
CREATE INDEX IF NOT EXISTS idx_workspaces_deleted ON workspaces (deleted_at) WHERE deleted_at IS NOT NULL;
DROP POLICY IF EXISTS workspaces_system ON workspaces;
CREATE POLICY workspaces_system ON workspaces FOR SELECT TO threadkeep_system
    USING ((SELECT current_user) = 'threadkeep_system');
GRANT SELECT (id, deleted_at) ON workspaces TO threadkeep_system;
