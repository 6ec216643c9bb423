//! Row level security: that it is on everywhere, that it fails closed, and that it alone, with the
//! application's filter off, returns nothing foreign.

use domain::conversation::{ConversationFilter, ConversationQuery, ConversationSearch, NewConversation};
use domain::file::{Bag, Digest, FileSource};
use domain::message::{MessageRole, Window};
use domain::scope::{Role, Scope};
use domain::search::Query;
use domain::workspace::ApiKey;
use store::files::{NewExecution, NewFile, Stored};
use store::turns::Begun;
use testkit::postgres::TestDatabase;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::setup::{Behind, TestStore, fails, member, newest, open_postgres, postgres, session, superuser};

/// The one table without tenants: which migrations were run.
const HISTORY: &str = "refinery_schema_history";

fn database(store: &TestStore) -> &TestDatabase {
    match &store.behind {
        Behind::Postgres(database) => database,
        Behind::Sqlite(_) => panic!("a test of PostgreSQL"),
    }
}

/// A session as the application's role.
async fn application(database: &TestDatabase) -> Client {
    let client = session(database.url()).await;
    client.batch_execute("SET ROLE threadkeep_app").await.unwrap();
    client
}

async fn tables(client: &Client) -> Vec<String> {
    let text = "SELECT relname::text FROM pg_class WHERE relnamespace = 'public'::regnamespace \
                AND relkind IN ('r', 'p', 'v', 'm', 'f') AND relname <> $1 ORDER BY relname";
    client.query(text, &[&HISTORY]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

/// A store with one of everything in two workspaces, and the scopes of their admins.
async fn filled() -> Option<(TestStore, Scope, Scope)> {
    let store = postgres().await?;
    let (ours, theirs) = (store.workspace("ann").await, store.workspace("ann").await);
    for scope in [&ours, &theirs] {
        let thread = store.create(&member(scope, "bob"), "word private").await;
        let shared = store.create_shared(&member(scope, "bob"), "word shared").await;
        for id in [thread.id, shared.id] {
            store.say(scope, id, MessageRole::User, "word").await;
            store.put_file(scope, id, "f", false).await;
        }
        let key = ApiKey {
            id: store.new_id(),
            name: "k".into(),
            role: Role::Member,
            created_by: "ann".into(),
            created_at: store.now(),
        };
        store.create_key(scope, &key, [1; 32]).await.unwrap();
        let run = store.new_id();
        let root = superuser(database(&store)).await;
        let text = "INSERT INTO runs (workspace_id, id, conversation_id, status, created_at) \
                    VALUES ($1, $2, $3, 'queued', now())";
        root.execute(text, &[&scope.workspace, &run, &thread.id]).await.unwrap();
        for text in [
            "INSERT INTO run_events VALUES ($1, $2, 1, 1, 1, '{}')",
            "INSERT INTO run_traces VALUES ($1, $2, '{}')",
            "INSERT INTO agents VALUES ($1, $2, 'a', '{}', now(), now())",
            "INSERT INTO tool_servers VALUES ($1, 't', $2, 'u', '', 'bob', now())",
            "INSERT INTO tool_pins VALUES ($1, ($2::uuid)::text, 't', 'h')",
            "INSERT INTO approvals VALUES ($1, $2, $2, 1, '{}')",
            "INSERT INTO usage_days VALUES ($1, '2026-11-15', ($2::uuid)::text, 0, 1, 1, 1)",
            "INSERT INTO idempotency_keys VALUES ($1, 'bob', 'k', '', $2, now())",
        ] {
            root.execute(text, &[&scope.workspace, &run]).await.unwrap();
        }
        let (page, table) =
            (crate::knowledge::page(&store, "word", "word"), crate::knowledge::table(&store, "t"));
        store.create_page(scope, &page).await.unwrap();
        store.create_table(scope, &table).await.unwrap();
        let row = crate::knowledge::row(&store, "word", 1);
        store.add_rows(scope, table.id, &[row], store.now()).await.unwrap();
        let text = "INSERT INTO branches VALUES ($1, $2, 1, $3, 0, 0, now())";
        root.execute(text, &[&scope.workspace, &thread.id, &run]).await.unwrap();
    }
    Some((store, ours, theirs))
}

#[tokio::test]
async fn every_table_forces_row_level_security() {
    let Some(store) = postgres().await else { return };
    let root = superuser(database(&store)).await;
    assert!(tables(&root).await.len() >= 11);
    let text = "SELECT relname::text FROM pg_class WHERE relnamespace = 'public'::regnamespace \
                AND relkind IN ('r', 'p', 'v', 'm', 'f') AND relname <> $1 \
                AND NOT (relrowsecurity AND relforcerowsecurity)";
    let open: Vec<String> =
        root.query(text, &[&HISTORY]).await.unwrap().iter().map(|row| row.get(0)).collect();
    assert!(open.is_empty(), "without forced row level security: {open:?}");
    // The nodes' own role is let near these alone.
    let text = "SELECT policyname::text FROM pg_policies WHERE roles <> '{threadkeep_app}' \
                AND NOT (roles = '{threadkeep_system}' \
                    AND tablename IN ('runs', 'idempotency_keys', 'files', 'chat_conversations', 'workspaces'))";
    let others: Vec<String> = root.query(text, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    assert!(others.is_empty(), "policies for other roles: {others:?}");
    let text = "SELECT count(*) FROM pg_proc WHERE prosecdef AND pronamespace = 'public'::regnamespace";
    assert_eq!(root.query_one(text, &[]).await.unwrap().get::<_, i64>(0), 0, "SECURITY DEFINER functions");
}

#[tokio::test]
async fn the_application_role_owns_nothing_and_is_bound() {
    let Some(store) = postgres().await else { return };
    let root = superuser(database(&store)).await;
    let text = "SELECT rolsuper OR rolbypassrls OR rolcreaterole OR rolcreatedb OR rolcanlogin, oid \
                FROM pg_roles WHERE rolname = 'threadkeep_app'";
    let role = root.query_one(text, &[]).await.unwrap();
    assert!(!role.get::<_, bool>(0));
    let oid: u32 = role.get(1);
    let text = "SELECT (SELECT count(*) FROM pg_class WHERE relowner = $1) \
                + (SELECT count(*) FROM pg_namespace WHERE nspowner = $1) \
                + (SELECT count(*) FROM pg_database WHERE datdba = $1) \
                + (SELECT count(*) FROM pg_auth_members WHERE member = $1)";
    assert_eq!(root.query_one(text, &[&oid]).await.unwrap().get::<_, i64>(0), 0);
}

#[tokio::test]
async fn without_settings_and_with_empty_ones_every_table_reads_empty() {
    let Some((store, ours, _)) = filled().await else { return };
    let root = superuser(database(&store)).await;
    let application = application(database(&store)).await;
    let count = async |client: &Client, table: &str| -> i64 {
        client.query_one(&format!("SELECT count(*) FROM {table}"), &[]).await.unwrap().get(0)
    };
    let set = |workspace: &str, user: &str, sees_all: &str, words: &str| {
        format!(
            "SET threadkeep.workspace = '{workspace}'; SET \"threadkeep\".\"user\" = '{user}'; \
             SET threadkeep.sees_all = '{sees_all}'; SET threadkeep.words = '{words}'"
        )
    };
    for table in tables(&root).await {
        assert!(count(&root, &table).await >= 2, "{table} holds rows of both workspaces");
        assert_eq!(count(&application, &table).await, 0, "{table} with settings unset");
    }
    for settings in [set("", "", "", ""), set("", "", "on", "")] {
        application.batch_execute(&settings).await.unwrap();
        for table in tables(&root).await {
            assert_eq!(count(&application, &table).await, 0, "{table} with {settings}");
        }
    }
    // Owning the tables is no way around.
    let owner = session(database(&store).url()).await;
    for table in tables(&root).await {
        assert_eq!(count(&owner, &table).await, 0, "{table} as its owner");
    }
    // And the settings do open what is theirs to open, or the above would show nothing.
    application.batch_execute(&set(&ours.workspace.to_string(), "ann", "on", "''word''")).await.unwrap();
    for table in tables(&root).await {
        assert!(count(&application, &table).await > 0, "{table} with settings");
    }
    // Bob used one key in both: outside of any workspace he sees that, and nobody else does.
    let inside = ours.workspace.to_string();
    for (workspace, user, keys) in [("", "bob", 2), ("", "ann", 0), (inside.as_str(), "bob", 1)] {
        application.batch_execute(&set(workspace, user, "on", "")).await.unwrap();
        assert_eq!(count(&application, "idempotency_keys").await, keys, "{workspace} {user}");
    }
}

/// What the nodes' own role may read: ids, times, states and the keys of bytes.
const SYSTEM_READS: [(&str, &str); 5] = [
    ("chat_conversations", "deleted_at id workspace_id"),
    ("files", "conversation_id deleted_at expires_at id kept reserved_at storage_key workspace_id"),
    ("idempotency_keys", "caller created_at key workspace_id"),
    (
        "runs",
        "cancel_requested conversation_id ended_at fence id lease_until log_expired node queue_position status \
         workspace_id",
    ),
    ("workspaces", "deleted_at id"),
];

#[tokio::test]
async fn the_nodes_own_role_reads_keys_and_times_and_nothing_that_a_person_wrote() {
    let Some((store, ..)) = filled().await else { return };
    let root = superuser(database(&store)).await;
    let text = "SELECT table_name::text, string_agg(column_name::text, ' ' ORDER BY column_name::text COLLATE \"C\") \
                FROM information_schema.role_column_grants \
                WHERE grantee = 'threadkeep_system' AND privilege_type = 'SELECT' GROUP BY 1 ORDER BY 1";
    let grants: Vec<(String, String)> =
        root.query(text, &[]).await.unwrap().iter().map(|row| (row.get(0), row.get(1))).collect();
    let wanted: Vec<_> = SYSTEM_READS.map(|(table, columns)| (table.into(), columns.into())).into();
    assert_eq!(grants, wanted);
    let system = session(database(&store).url()).await;
    system.batch_execute("SET ROLE threadkeep_system").await.unwrap();
    assert_eq!(system.query("SELECT storage_key FROM files", &[]).await.unwrap().len(), 4);
    // A visible file is not its to mark, and no row its to remove.
    assert_eq!(system.execute("UPDATE files SET deleted_at = now()", &[]).await.unwrap(), 0);
    for text in [
        "UPDATE files SET kept = false",
        "DELETE FROM files",
        "DELETE FROM chat_conversations",
        "UPDATE chat_conversations SET deleted_at = now()",
        "SELECT name FROM files",
        "SELECT title FROM chat_conversations",
        "SELECT name FROM workspaces",
        "SELECT text FROM messages",
    ] {
        let error = system.batch_execute(text).await.unwrap_err();
        assert_eq!(
            error.code(),
            Some(&tokio_postgres::error::SqlState::INSUFFICIENT_PRIVILEGE),
            "{text}: {error:?}"
        );
    }
}

/// A file that is there.
async fn upload(store: &TestStore, scope: &Scope, bag: Bag) -> Uuid {
    let new = NewFile { id: store.new_id(), name: "f".into(), source: FileSource::User, promised: None };
    store.reserve_files(scope, bag, std::slice::from_ref(&new), 100, store.now()).await.unwrap();
    let digest = Digest { size: 1, sha256: [1; 32], crc32: 1 };
    let stored = Stored { id: new.id, digest, mime_type: "text/plain".into() };
    store.keep_files(scope, bag, &[stored], 100, store.now()).await.unwrap();
    new.id
}

#[tokio::test]
async fn without_the_applications_filter_no_foreign_file_and_no_foreign_execution_comes_back() {
    let Some(filtered) = postgres().await else { return };
    let unfiltered = open_postgres(database(&filtered), false).await;
    let store = TestStore { store: unfiltered, ..filtered };
    let (ann, elsewhere) = (store.workspace("ann").await, store.workspace("bob").await);
    let (bob, eve) = (member(&ann, "bob"), member(&ann, "eve"));
    let new = NewExecution {
        id: store.new_id(),
        run: store.new_id(),
        prompt: "go".into(),
        agent: None,
        workflow: None,
        model: None,
        files: Vec::new(),
        idempotency: None,
        node: store.new_id(),
        lease_seconds: 30,
        open_runs: domain::open_runs::RunLimits { user: 10, workspace: 0 },
        tokens: domain::tokens::TokenLimits::default(),
        max_bag_bytes: 100,
        now: store.now(),
    };
    assert!(matches!(store.begin_execution(&bob, &new).await.unwrap(), Begun::Started { .. }));
    let thread = store.create(&bob, "private").await.id;
    let shared = store.create_shared(&bob, "shared").await.id;
    for (bag, eve_sees) in [
        (Bag::Execution(new.id), false),
        (Bag::Conversation(thread), false),
        (Bag::Conversation(shared), true),
        (Bag::Workspace, true),
    ] {
        let file = upload(&store, &bob, bag).await;
        for (scope, sees) in [(&bob, true), (&ann, true), (&eve, eve_sees), (&elsewhere, false)] {
            let who = format!("{} and {bag:?}", scope.user);
            assert_eq!(store.get_file(scope, file).await.is_ok(), sees, "{who}");
            let listed = store.list_files(scope, bag, None, 10).await.unwrap_or_default();
            assert_eq!(listed.len(), usize::from(sees), "{who}");
            if !sees {
                assert_eq!(fails(store.delete_file(scope, file, store.now()).await), "not found", "{who}");
            }
        }
    }
    for (scope, sees) in [(&bob, true), (&ann, true), (&eve, false), (&elsewhere, false)] {
        assert_eq!(store.get_execution(scope, new.id).await.is_ok(), sees, "{}", scope.user);
        assert_eq!(store.get_run(scope, new.run).await.is_ok(), sees, "{}", scope.user);
        assert_eq!(store.read_trace(scope, new.run, 0, 100).await.is_ok(), sees, "{}", scope.user);
        assert_eq!(store.request_cancel(scope, new.run, store.now()).await.is_ok(), sees, "{}", scope.user);
    }
}

#[tokio::test]
async fn the_audit_log_takes_entries_and_nothing_else() {
    let Some((store, ours, _)) = filled().await else { return };
    let application = application(database(&store)).await;
    let set = format!("SET threadkeep.workspace = '{}'; SET threadkeep.sees_all = 'on'", ours.workspace);
    application.batch_execute(&set).await.unwrap();
    for text in [
        "UPDATE audit_log SET detail = ''",
        "DELETE FROM audit_log",
        "TRUNCATE audit_log",
        "SELECT 1 FROM audit_log FOR UPDATE",
        "DROP TABLE audit_log",
        "ALTER TABLE audit_log DISABLE ROW LEVEL SECURITY",
        "DELETE FROM refinery_schema_history",
    ] {
        let error = application.batch_execute(text).await.unwrap_err();
        assert_eq!(
            error.code(),
            Some(&tokio_postgres::error::SqlState::INSUFFICIENT_PRIVILEGE),
            "{text}: {error:?}"
        );
    }
}

#[tokio::test]
async fn rows_cannot_be_written_into_another_workspace() {
    let Some((store, ours, theirs)) = filled().await else { return };
    let application = application(database(&store)).await;
    let set = format!("SET threadkeep.workspace = '{}'; SET threadkeep.sees_all = 'on'", ours.workspace);
    application.batch_execute(&set).await.unwrap();
    for text in [
        "INSERT INTO members VALUES ($1, 'eve', 'admin', now())",
        "INSERT INTO api_keys VALUES ($1, $1, '', 'k', 'admin', 'eve', now())",
        "INSERT INTO audit_log VALUES ($1, 99, now(), 'eve', NULL, 'a', 't', 'd', '')",
        "UPDATE members SET workspace_id = $1",
        "UPDATE chat_conversations SET workspace_id = $1",
    ] {
        let error = application.execute(text, &[&theirs.workspace]).await.unwrap_err();
        let message = error.as_db_error().unwrap().message();
        assert!(message.contains("row-level security"), "{text}: {message}");
    }
}

#[tokio::test]
async fn a_pooled_connection_has_no_scope_left_after_a_verb() {
    let Some(database) = testkit::postgres::database().await else { return };
    // Session settings would show in this server's own list of connections only through the connection
    // itself, so the store gets one connection and the next caller on it is nobody.
    let store = open_postgres(&database, false).await;
    let store = TestStore {
        store,
        clock: domain::time::FixedClock::new(domain::time::from_ms(1_778_749_956_000)),
        behind: Behind::Postgres(database),
    };
    let ann = store.workspace("ann").await;
    store.create(&ann, "t").await;
    let nobody =
        Scope { workspace: uuid::Uuid::nil(), role: Role::Member, user: String::new(), ..ann.clone() };
    for _ in 0..20 {
        assert_eq!(store.titles(&ann, &newest()).await.len(), 1);
        assert!(store.titles(&nobody, &newest()).await.is_empty());
        assert!(store.list_memberships("", None, None, 10).await.unwrap().is_empty());
        assert_eq!(store.list_memberships("ann", None, None, 10).await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn without_the_applications_filter_nothing_foreign_comes_back() {
    let Some((filled, ours, theirs)) = filled().await else { return };
    let unfiltered = open_postgres(database(&filled), false).await;
    let store = TestStore { store: unfiltered, ..filled };
    let (bob, eve) = (member(&ours, "bob"), member(&ours, "eve"));
    for (scope, count) in [(&ours, 2), (&bob, 2), (&eve, 1)] {
        let page = store.list_conversations(scope, &newest()).await.unwrap();
        assert_eq!(page.items.len(), count, "{}", scope.user);
        assert!(page.items.iter().all(|found| found.workspace == ours.workspace));
        let search = ConversationSearch {
            filter: ConversationFilter::default(),
            query: Query::parse("word").unwrap(),
            sort: None,
            offset: 0,
            limit: 50,
            with_context: true,
        };
        let found = store.search_conversations(scope, &search).await.unwrap();
        assert_eq!(found.items.len(), count, "{}", scope.user);
        assert!(found.items.iter().all(|hit| hit.conversation.workspace == ours.workspace));
    }
    let foreign = store.list_conversations(&theirs, &newest()).await.unwrap().items;
    let own = store.list_conversations(&ours, &newest()).await.unwrap().items;
    let private = own.iter().find(|found| found.title.as_deref() == Some("word private")).unwrap();
    for (scope, id) in [(&ours, foreign[0].id), (&ours, foreign[1].id), (&eve, private.id)] {
        let now = store.now();
        assert_eq!(fails(store.get_thread(scope, id, Some(Window::All).into()).await), "not found");
        assert_eq!(fails(store.patch(scope, id, |_| ()).await), "not found");
        assert_eq!(fails(store.delete_conversation(scope, id, None, now).await), "not found");
        assert_eq!(fails(store.restore_conversation(scope, id, now).await), "not found");
        assert_eq!(fails(store.append_messages(scope, id, None, &[], now).await), "not found");
    }
    assert_eq!(store.list_members(&ours, None, 10).await.unwrap().len(), 1);
    assert_eq!(store.find_member(&theirs, "ann").await.unwrap().map(|found| found.role), Some(Role::Admin));
    assert_eq!(store.list_keys(&ours, None, 10).await.unwrap().len(), 1);
    assert_eq!(store.list_audit(&ours, 0, 10).await.unwrap().len(), 3);
    assert_eq!(store.find_key(ours.workspace, [1; 32]).await.unwrap().unwrap().workspace.id, ours.workspace);
    assert_eq!(store.find_workspace(&ours).await.unwrap().unwrap().id, ours.workspace);
    let nowhere = Scope { workspace: store.new_id(), ..ours.clone() };
    assert_eq!(store.find_workspace(&nowhere).await.unwrap(), None);
    assert!(store.list_memberships("eve", None, None, 10).await.unwrap().is_empty());
    // What is deleted is its owner's business again, shared or not.
    let shared = own.iter().find(|found| found.title.as_deref() == Some("word shared")).unwrap();
    store.delete_conversation(&ours, shared.id, None, store.now()).await.unwrap();
    let filter = ConversationFilter { deleted: true, ..Default::default() };
    let deleted = ConversationQuery { filter, ..newest() };
    assert_eq!(store.titles(&bob, &deleted).await, ["word shared"]);
    assert!(store.titles(&eve, &deleted).await.is_empty());
    // Removing a workspace leaves the other one whole.
    store.remove_workspace(&ours, true, store.now()).await.unwrap();
    assert_eq!(store.list_conversations(&theirs, &newest()).await.unwrap().items, foreign);
    assert_eq!(store.list_members(&theirs, None, 10).await.unwrap().len(), 1);
    assert_eq!(store.list_keys(&theirs, None, 10).await.unwrap().len(), 1);
    store.make(&theirs, NewConversation::default()).await.unwrap();
}
