//! Workspaces and their members: making, naming, changing, removing, and the log of it all.

use domain::audit::{AuditEntry, first_broken};
use domain::scope::{Role, Scope};
use domain::time::{Clock as _, SystemClock};
use reqwest::Method;
use serde_json::{Value, json};
use testkit::server::{Answer, Backend, TestServer};

use crate::setup::{Team, ask, delete, document, expect, get, ids, patch, post};

const CONVERSATIONS: &str = "/v1/chat-conversations";

async fn a_person_makes_workspaces_in_their_own_org(backend: Backend) {
    let Some(server) = TestServer::start(backend).await else { return };
    let ann = server.person("ann", "acme");
    let made = post(&ann, "/v1/workspaces", json!({ "name": "Été" })).await;
    expect(&made, 201, "");
    let id = made.body["id"].clone();
    let shape = json!({ "id": id, "name": "Été", "org_id": "acme", "role": "admin", "default_visibility": "private" });
    assert_eq!(made.body, shape);
    let path = format!("/v1/workspaces/{}", id.as_str().unwrap());
    assert_eq!(get(&ann, &path).await.body, shape);
    assert_eq!(get(&ann, "/v1/workspaces").await.body, json!({ "data": [shape], "next": null }));
    for (body, status, code) in [
        (json!({ "name": "" }), 422, "invalid_value"),
        (json!({ "name": " \u{a0}" }), 422, "invalid_value"),
        (json!({ "name": "x".repeat(256) }), 422, "invalid_value"),
        (json!({ "name": "a\nb" }), 422, "invalid_value"),
        (json!({ "name": 7 }), 422, "invalid_value"),
        (json!({ "name": "a", "default_visibility": "world" }), 422, "invalid_value"),
        (json!({}), 422, "invalid_value"),
        (json!({ "name": "a", "org_id": "other" }), 400, "unknown_field"),
        (json!({ "name": "a", "id": id }), 400, "unknown_field"),
        (json!({ "name": "a", "role": "admin" }), 400, "unknown_field"),
    ] {
        expect(&post(&ann, "/v1/workspaces", body).await, status, code);
    }
    assert_eq!(ids(&get(&ann, "/v1/workspaces").await).len(), 1);
    // Membership, not the token's org, decides what is seen.
    assert_eq!(get(&server.person("ann", "elsewhere"), &path).await.body["org_id"], "acme");
    expect(&get(&server.person("bob", "acme"), &path).await, 404, "not_found");
}

async fn lists_of_workspaces_have_pages(backend: Backend) {
    let Some(server) = TestServer::start(backend).await else { return };
    let ann = server.person("ann", "acme");
    let mut made = Vec::new();
    for name in ["a", "b", "c"] {
        made.push(ann.create_workspace(name).await.unwrap());
    }
    made.sort();
    let first = get(&ann, "/v1/workspaces?limit=2").await;
    let next = first.body["next"].as_str().unwrap();
    let second = get(&ann, &format!("/v1/workspaces?limit=2&after={next}")).await;
    assert_eq!([ids(&first), ids(&second)].concat(), made);
    assert_eq!(second.body["next"], Value::Null);
    for query in ["limit=0", "limit=-1", "limit=x", "after=x", "nonsense=1", "limit=1&limit=2"] {
        assert_eq!(get(&ann, &format!("/v1/workspaces?{query}")).await.status, 400, "{query}");
    }
}

/// Creates a conversation with these headers and this query, in the workspace that the body names.
async fn create(
    server: &TestServer,
    header: Option<&str>,
    query: Option<&str>,
    body: Option<&str>,
) -> Answer {
    let mut document = document(None, json!({}));
    if let Some(id) = body {
        document["data"]["relationships"] =
            json!({ "workspace": { "data": { "type": "workspace", "id": id } } });
    }
    let path = query.map_or(CONVERSATIONS.to_owned(), |id| format!("{CONVERSATIONS}?workspace={id}"));
    let mut request = server.person("ann", "acme").request(Method::POST, &path);
    if let Some(id) = header {
        request = request.header("threadkeep-workspace", id);
    }
    ask(request.header("content-type", "application/vnd.api+json").body(document.to_string())).await
}

fn workspace_of(answer: &Answer) -> &str {
    answer.body["data"]["relationships"]["workspace"]["data"]["id"].as_str().unwrap()
}

async fn a_request_is_about_one_workspace(backend: Backend) {
    let Some(server) = TestServer::start(backend).await else { return };
    let ann = server.person("ann", "acme");
    for path in [CONVERSATIONS, "/v1/api-keys", "/v1/audit"] {
        expect(&get(&ann, path).await, 400, "workspace_required");
    }
    expect(&create(&server, None, None, None).await, 400, "workspace_required");

    let first = ann.create_workspace("First").await.unwrap();
    assert_eq!(workspace_of(&create(&server, None, None, None).await), first);

    let second = ann.create_workspace("Second").await.unwrap();
    let foreign = server.person("bob", "acme").create_workspace("Bob's").await.unwrap();
    let absent = SystemClock.new_id().to_string();
    for path in [CONVERSATIONS, "/v1/api-keys", "/v1/audit"] {
        expect(&get(&ann, path).await, 400, "workspace_required");
    }
    expect(&create(&server, None, None, None).await, 400, "workspace_required");
    // Other people's clients may have no other place for it than their body.
    let made = post(&ann, "/v1/conversations", json!({ "workspace": second })).await;
    let conversation = format!("/v1/conversations/{}", made.body["id"].as_str().unwrap());
    let turn = json!({ "input": "hi", "model": "demo/assistant", "workspace": second });
    let response = post(&ann, "/v1/responses", turn).await;
    let response = format!("/v1/responses/{}", response.body["id"].as_str().unwrap());
    let chat = json!({ "id": "a", "messages": [{ "id": "m", "role": "user", "parts": [{ "type": "text", "text": "hi" }] }],
        "workspace": second });
    expect(&post(&ann, "/v1/ai/chat", chat).await, 200, "");
    for (path, body) in [
        (conversation.clone(), json!({ "metadata": { "a": "b" } })),
        (format!("{conversation}/items"), json!({ "items": [{ "role": "user", "content": "hi" }] })),
        (format!("{response}/cancel"), json!({})),
        ("/v1/ai/chat/a/stop".to_owned(), json!({})),
        (
            "/v1/ag-ui".to_owned(),
            json!({ "threadId": "t", "messages": [{ "id": "1", "role": "user", "content": "hi" }] }),
        ),
        ("/v1/ag-ui/connect".to_owned(), json!({ "threadId": "t" })),
    ] {
        let (mut here, mut there) = (body.clone(), body);
        here["workspace"] = json!(second);
        there["workspace"] = json!("x");
        assert_eq!(post(&ann, &path, here).await.status, 200, "{path}");
        assert!(matches!(post(&ann, &path, there).await.status, 400 | 422), "{path}");
    }
    let (s, f) = (Some(second.as_str()), Some(first.as_str()));
    for (header, query, body) in [
        (s, None, None),
        (None, s, None),
        (None, None, s),
        (s, s, None),
        (None, s, s),
        (s, None, s),
        (s, s, s),
    ] {
        let made = create(&server, header, query, body).await;
        expect(&made, 201, "");
        assert_eq!(workspace_of(&made), second, "{header:?} {query:?} {body:?}");
    }
    for (header, query, body) in [(f, s, None), (None, f, s), (f, None, s), (s, s, f)] {
        expect(&create(&server, header, query, body).await, 400, "workspace_conflict");
    }
    for other in [&foreign, &absent] {
        let o = Some(other.as_str());
        for (header, query, body) in [(o, None, None), (None, o, None), (None, None, o)] {
            expect(&create(&server, header, query, body).await, 404, "not_found");
        }
    }
    for (query, status, code) in [
        (format!("filter[workspace]={second}"), 200, ""),
        (format!("workspace={second}"), 200, ""),
        (format!("filter[workspace]={second}&workspace={second}"), 200, ""),
        (format!("filter[workspace]={foreign}"), 404, "not_found"),
        (format!("filter[workspace]={absent}"), 404, "not_found"),
        ("filter[workspace]=second".into(), 400, "invalid_parameter"),
        ("workspace=second".into(), 400, "invalid_parameter"),
    ] {
        expect(&get(&ann, &format!("{CONVERSATIONS}?{query}")).await, status, code);
    }
    assert_eq!(ids(&get(&ann, &format!("{CONVERSATIONS}?filter[workspace]={second}")).await).len(), 4 + 7);
    let two = get(&ann, &format!("{CONVERSATIONS}?filter[workspace]={second}&workspace={first}")).await;
    assert_eq!(two.status, 400, "{two:?}");
    let conflict = ann.request(Method::GET, &format!("{CONVERSATIONS}?filter[workspace]={second}"));
    expect(&ask(conflict.header("threadkeep-workspace", &first)).await, 400, "workspace_conflict");
    the_path_names_it_alone(&server, &first, [&second, &foreign, &absent]).await;
    let wrong = ann.request(Method::GET, CONVERSATIONS).header("threadkeep-workspace", "second");
    expect(&ask(wrong).await, 400, "invalid_header");
}

/// Clients send the header with all they ask; where the path is the workspace's own it says nothing.
async fn the_path_names_it_alone(server: &TestServer, first: &str, others: [&String; 3]) {
    let ann = server.person("ann", "acme");
    let key = post(&ann, "/v1/api-keys", json!({ "name": "k", "role": "admin", "workspace": first })).await;
    let key = server.caller(key.body["key"].as_str().unwrap());
    let own = format!("/v1/workspaces/{first}");
    for other in others {
        for caller in [&ann, &key] {
            let send = async |method, path: &str, body: Option<Value>| {
                let mut request = caller.request(method, path).header("threadkeep-workspace", other);
                if let Some(body) = body {
                    request = request.header("content-type", "application/json").body(body.to_string());
                }
                ask(request).await
            };
            let shown = send(Method::GET, &own, None).await;
            assert_eq!((shown.status, &shown.body["id"]), (200, &json!(first)), "{}", shown.text);
            let renamed = send(Method::PATCH, &own, Some(json!({ "name": "First" }))).await;
            assert_eq!((renamed.status, &renamed.body["id"]), (200, &json!(first)), "{}", renamed.text);
            let members = format!("{own}/members");
            let added = send(Method::POST, &members, Some(json!({ "user": "cat", "role": "member" }))).await;
            expect(&added, 201, "");
            assert_eq!(send(Method::GET, &members, None).await.body["data"].as_array().unwrap().len(), 2);
            expect(&send(Method::DELETE, &format!("{members}/cat"), None).await, 204, "");
        }
        expect(&get(&key, &format!("/v1/workspaces/{other}")).await, 404, "not_found");
    }
}

async fn members_come_change_and_go(backend: Backend) {
    let Some(server) = TestServer::start(backend).await else { return };
    let team = Team::new(&server).await;
    let path = format!("/v1/workspaces/{}", team.workspace);
    expect(&get(&team.mate, &path).await, 200, "");
    let again = team.member("mate", "member").await;
    assert_eq!((again.status, &again.body["role"]), (200, &json!("member")));
    let promoted = team.member("mate", "admin").await;
    assert_eq!((promoted.status, &promoted.body["role"]), (200, &json!("admin")));
    assert_eq!(promoted.body["added_at"], again.body["added_at"]);
    assert_eq!(get(&team.mate, &path).await.body["role"], "admin");

    // An admin may demote or remove another, and the last one stays.
    let demoted = post(&team.mate, &team.members(""), json!({ "user": "boss", "role": "member" })).await;
    expect(&demoted, 200, "");
    expect(
        &post(&team.boss, &team.members(""), json!({ "user": "boss", "role": "admin" })).await,
        403,
        "forbidden",
    );
    let last = post(&team.mate, &team.members(""), json!({ "user": "mate", "role": "member" })).await;
    expect(&last, 409, "last_admin");
    expect(&delete(&team.mate, &team.members("/mate")).await, 409, "last_admin");
    let members = get(&team.mate, &team.members("")).await;
    let roles: Vec<_> =
        members.body["data"].as_array().unwrap().iter().map(|m| (&m["user"], &m["role"])).collect();
    assert_eq!(roles, [(&json!("boss"), &json!("member")), (&json!("mate"), &json!("admin"))]);

    expect(&delete(&team.boss, &team.members("/boss")).await, 403, "forbidden");
    expect(&delete(&team.mate, &team.members("/boss")).await, 204, "");
    expect(&delete(&team.mate, &team.members("/boss")).await, 404, "not_found");
    expect(&get(&team.boss, &path).await, 404, "not_found");
    expect(&get(&team.boss, CONVERSATIONS).await, 400, "workspace_required");
    assert_eq!(get(&team.boss, "/v1/workspaces").await.body["data"], json!([]));
    for (body, status, code) in [
        (json!({ "user": "", "role": "member" }), 422, "invalid_value"),
        (json!({ "user": "a\u{7}", "role": "member" }), 422, "invalid_value"),
        (json!({ "user": "x".repeat(256), "role": "member" }), 422, "invalid_value"),
        (json!({ "user": "new", "role": "service" }), 422, "invalid_value"),
        (json!({ "user": "new", "role": "owner" }), 422, "invalid_value"),
        (json!({ "user": "new" }), 422, "invalid_value"),
        (json!({ "user": "new", "role": "member", "workspace": team.workspace }), 400, "unknown_field"),
    ] {
        expect(&post(&team.mate, &team.members(""), body).await, status, code);
    }
    // Ids of other shapes than a word, through the path.
    for (user, encoded) in [("a/b?c#d", "a%2Fb%3Fc%23d"), ("Zoë Ω", "Zo%C3%AB%20%CE%A9"), ("..", "%2E%2E")]
    {
        let added = post(&team.mate, &team.members(""), json!({ "user": user, "role": "member" })).await;
        expect(&added, 201, "");
        let removed = delete(&team.mate, &team.members(&format!("/{encoded}"))).await;
        // A client's own URL rules turn `..` into the path above with a slash, which must not be the workspace.
        assert_eq!(removed.status, if user == ".." { 404 } else { 204 }, "{user}: {removed:?}");
    }
    expect(&get(&team.mate, &path).await, 200, "");
}

async fn a_workspace_is_removed_with_all_that_it_grants(backend: Backend) {
    let Some(server) = TestServer::start(backend).await else { return };
    let team = Team::new(&server).await;
    let (_, key) = team.key(&team.boss, "service").await;
    let conversation = team.mate.create_conversation(json!({ "title": "Kept" })).await.unwrap();
    let path = format!("/v1/workspaces/{}", team.workspace);
    for query in ["", "?cascade=false"] {
        expect(&delete(&team.boss, &format!("{path}{query}")).await, 409, "workspace_not_empty");
    }
    for query in ["?cascade=yes", "?cascade=", "?force=true"] {
        assert_eq!(delete(&team.boss, &format!("{path}{query}")).await.status, 400, "{query}");
    }
    expect(&delete(&team.mate, &format!("{path}?cascade=true")).await, 403, "forbidden");
    expect(&get(&team.mate, &format!("{CONVERSATIONS}/{conversation}")).await, 200, "");

    expect(&delete(&team.boss, &format!("{path}?cascade=true")).await, 204, "");
    expect(&delete(&team.boss, &format!("{path}?cascade=true")).await, 404, "not_found");
    for caller in [&team.boss, &team.mate] {
        expect(&get(caller, &path).await, 404, "not_found");
        expect(&get(caller, CONVERSATIONS).await, 400, "workspace_required");
        // Who is in no workspace has nowhere to look: what is named is not there.
        let gone = format!("{CONVERSATIONS}/{conversation}");
        for path in [&gone, &format!("{gone}?workspace={}", team.workspace), &format!("{gone}/files")] {
            expect(&get(caller, path).await, 404, "not_found");
        }
        let turn = json!({ "conversation": conversation, "message": "Are you there?" });
        expect(&post(caller, "/v1/turns", turn).await, 404, "not_found");
        let copy = json!({ "from": conversation });
        expect(&post(caller, "/v1/files", copy).await, 404, "not_found");
        expect(&post(caller, "/v1/turns", json!({ "message": "Hello" })).await, 400, "workspace_required");
    }
    expect(&get(&server.caller(&key), CONVERSATIONS).await, 401, "unauthenticated");

    // An empty one, or one whose conversations were all deleted, needs no cascade.
    let again = team.boss.create_workspace("Again").await.unwrap();
    let conversation = team.boss.create_conversation(json!({})).await.unwrap();
    expect(&delete(&team.boss, &format!("{CONVERSATIONS}/{conversation}")).await, 204, "");
    expect(&delete(&team.boss, &format!("/v1/workspaces/{again}")).await, 204, "");
}

fn entry(value: &Value) -> AuditEntry {
    let text = |name: &str| value[name].as_str().unwrap().to_owned();
    let hex = text("hash");
    AuditEntry {
        seq: value["seq"].as_i64().unwrap(),
        at: text("at").parse().unwrap(),
        user: text("user"),
        key: value["key"].as_str().map(|key| key.parse().unwrap()),
        action: text("action"),
        target: text("target"),
        detail: text("detail"),
        hash: (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect(),
    }
}

async fn every_change_is_in_the_chained_log(backend: Backend) {
    let Some(server) = TestServer::start(backend).await else { return };
    let team = Team::new(&server).await;
    let workspace = team.workspace.as_str();
    let path = format!("/v1/workspaces/{workspace}");
    team.member("mate", "admin").await;
    let (key, text) = team.key(&team.mate, "service").await;
    let shared = team.boss.create_conversation(json!({ "title": "Not to be logged" })).await.unwrap();
    let item = format!("{CONVERSATIONS}/{shared}");
    let share = document(Some(&shared), json!({ "visibility": "workspace" }));
    expect(&patch(&server.caller(&text), &item, share).await, 200, "");
    expect(&patch(&team.boss, &path, json!({ "default_visibility": "workspace" })).await, 200, "");
    expect(&delete(&team.boss, &format!("/v1/api-keys/{key}")).await, 204, "");
    expect(&delete(&team.boss, &team.members("/mate")).await, 204, "");
    // What changes nothing, or is refused, leaves no entry.
    expect(&delete(&team.boss, &team.members("/mate")).await, 404, "not_found");
    expect(&delete(&team.boss, &team.members("/boss")).await, 409, "last_admin");
    expect(&delete(&team.boss, &path).await, 409, "workspace_not_empty");

    let log = get(&team.boss, "/v1/audit?limit=100").await;
    let entries: Vec<AuditEntry> = log.body["data"].as_array().unwrap().iter().map(entry).collect();
    let said: Vec<_> = entries
        .iter()
        .map(|e| (e.user.as_str(), e.action.as_str(), e.target.as_str(), e.detail.as_str()))
        .collect();
    let service = format!("key:{key}");
    assert_eq!(
        said,
        [
            ("boss", "workspace.create", workspace, "Team"),
            ("boss", "member.add", "boss", "admin"),
            ("boss", "member.add", "mate", "member"),
            ("boss", "member.add", "mate", "admin"),
            ("mate", "key.create", &key, "service"),
            (&service, "conversation.visibility", &shared, "workspace"),
            ("boss", "workspace.update", workspace, "workspace"),
            ("boss", "key.remove", &key, ""),
            ("boss", "member.remove", "mate", ""),
        ]
    );
    assert_eq!(first_broken(&entries), None);
    assert_eq!(entries[5].key.unwrap().to_string(), key);
    assert!(!log.text.contains("Not to be logged"));

    let first = get(&team.boss, "/v1/audit?limit=4").await;
    let rest =
        get(&team.boss, &format!("/v1/audit?limit=100&after={}", first.body["next"].as_str().unwrap())).await;
    assert_eq!(rest.body["data"].as_array().unwrap().len(), 5);

    // The removal is logged too, for whoever reads the store.
    expect(&delete(&team.boss, &format!("{path}?cascade=true")).await, 204, "");
    let scope = Scope {
        workspace: workspace.parse().unwrap(),
        org: "acme".into(),
        user: "boss".into(),
        role: Role::Admin,
        key: None,
        administers: true,
    };
    let entries = server.store().list_audit(&scope, 0, 100).await.unwrap();
    assert_eq!(entries.last().unwrap().action, "workspace.remove");
    assert_eq!((entries.len(), first_broken(&entries)), (10, None));
}

on_both!(
    a_person_makes_workspaces_in_their_own_org,
    lists_of_workspaces_have_pages,
    a_request_is_about_one_workspace,
    members_come_change_and_go,
    a_workspace_is_removed_with_all_that_it_grants,
    every_change_is_in_the_chained_log,
);
