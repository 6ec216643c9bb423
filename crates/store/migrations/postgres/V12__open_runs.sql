-- Who sees all of a workspace sees every row that hangs on one of its conversations or runs: that is decided once for a
-- statement, before any row is asked whose it is. What the server does for a run is done so: every append, every
-- settlement.
--
-- Locks first, and what a policy asks about after what it guards: see V11.
LOCK TABLE run_events, run_traces, approvals, branches, message_search, title_search, messages, files, runs
    IN ACCESS EXCLUSIVE MODE;

ALTER POLICY run_events_scope ON run_events USING (
    workspace_id = (SELECT nullif(current_setting('threadkeep.workspace', true), '')::uuid)
    AND (
        (SELECT coalesce(current_setting('threadkeep.sees_all', true), '') = 'on')
        OR (SELECT TRUE FROM runs r WHERE r.workspace_id = run_events.workspace_id AND r.id = run_events.run_id)
    )
);
ALTER POLICY run_traces_scope ON run_traces USING (
    workspace_id = (SELECT nullif(current_setting('threadkeep.workspace', true), '')::uuid)
    AND (
        (SELECT coalesce(current_setting('threadkeep.sees_all', true), '') = 'on')
        OR (SELECT TRUE FROM runs r WHERE r.workspace_id = run_traces.workspace_id AND r.id = run_traces.run_id)
    )
);
ALTER POLICY approvals_scope ON approvals USING (
    workspace_id = (SELECT nullif(current_setting('threadkeep.workspace', true), '')::uuid)
    AND (
        (SELECT coalesce(current_setting('threadkeep.sees_all', true), '') = 'on')
        OR (SELECT TRUE FROM runs r WHERE r.workspace_id = approvals.workspace_id AND r.id = approvals.run_id)
    )
);
ALTER POLICY branches_scope ON branches USING (
    workspace_id = (SELECT nullif(current_setting('threadkeep.workspace', true), '')::uuid)
    AND (
        (SELECT coalesce(current_setting('threadkeep.sees_all', true), '') = 'on')
        OR (
            SELECT TRUE FROM chat_conversations c
            WHERE c.workspace_id = branches.workspace_id AND c.id = branches.conversation_id
        )
    )
);
ALTER POLICY message_search_scope ON message_search USING (
    workspace_id::text = (SELECT current_setting('threadkeep.workspace', true))
    AND (
        (SELECT coalesce(current_setting('threadkeep.sees_all', true), '') = 'on')
        OR (
            SELECT TRUE FROM chat_conversations c
            WHERE c.workspace_id = message_search.workspace_id AND c.id = message_search.conversation_id
        )
    )
);
ALTER POLICY title_search_scope ON title_search USING (
    workspace_id::text = (SELECT current_setting('threadkeep.workspace', true))
    AND (
        (SELECT coalesce(current_setting('threadkeep.sees_all', true), '') = 'on')
        OR (
            SELECT TRUE FROM chat_conversations c
            WHERE c.workspace_id = title_search.workspace_id AND c.id = title_search.conversation_id
        )
    )
);
ALTER POLICY messages_scope ON messages USING (
    workspace_id = (SELECT nullif(current_setting('threadkeep.workspace', true), '')::uuid)
    AND (
        (SELECT coalesce(current_setting('threadkeep.sees_all', true), '') = 'on')
        OR (
            SELECT TRUE FROM chat_conversations c
            WHERE c.workspace_id = messages.workspace_id AND c.id = messages.conversation_id
        )
    )
);
ALTER POLICY files_scope ON files USING (
    workspace_id = (SELECT nullif(current_setting('threadkeep.workspace', true), '')::uuid)
    AND (
        (SELECT coalesce(current_setting('threadkeep.sees_all', true), '') = 'on')
        OR CASE
            WHEN conversation_id IS NOT NULL THEN (
                SELECT TRUE FROM chat_conversations c
                WHERE c.workspace_id = files.workspace_id AND c.id = files.conversation_id
            )
            WHEN execution_id IS NOT NULL THEN
                user_id = (SELECT nullif(current_setting('threadkeep.user', true), ''))
            ELSE TRUE
        END
    )
);
ALTER POLICY runs_scope ON runs USING (
    workspace_id = (SELECT nullif(current_setting('threadkeep.workspace', true), '')::uuid)
    AND (
        (SELECT coalesce(current_setting('threadkeep.sees_all', true), '') = 'on')
        OR CASE
            WHEN conversation_id IS NULL THEN
                user_id = (SELECT nullif(current_setting('threadkeep.user', true), ''))
            ELSE (
                SELECT TRUE FROM chat_conversations c
                WHERE c.workspace_id = runs.workspace_id AND c.id = runs.conversation_id
            )
        END
    )
);
