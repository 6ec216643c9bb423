//! API keys: what each role may do, as whom, for how long, and what is left of a key at rest.

use std::sync::Arc;

use domain::secret::Secret;
use domain::workspace::read_key;
use reqwest::Method;
use serde_json::json;
use server::config::Config;
use store::postgres::{PostgresOptions, PostgresStore};
use testkit::server::{Answer, Backend, JWT_SECRET, TestCaller, TestServer, token};
use tokio_postgres::NoTls;

use crate::setup::{Running, Team, ask, code, delete, document, expect, get, ids, patch, post};

const CONVERSATIONS: &str = "/v1/chat-conversations";

async fn acting(caller: &TestCaller<'_>, user: &str, path: &str) -> Answer {
    ask(caller.request(Method::GET, path).header("threadkeep-user", user)).await
}

/// What only an admin may do, asked as `user` where one is given.
async fn administering(team: &Team<'_>, caller: &TestCaller<'_>, user: Option<&str>) -> Vec<(u16, String)> {
    let workspace = format!("/v1/workspaces/{}", team.workspace);
    let members = team.members("");
    let key = json!({ "name": "mine", "role": "admin" });
    let mut answers = Vec::new();
    for (method, path, body) in [
        (Method::GET, "/v1/api-keys".to_owned(), json!(null)),
        (Method::GET, "/v1/audit".into(), json!(null)),
        (Method::POST, "/v1/api-keys".into(), key),
        (Method::POST, members.clone(), json!({ "user": "friend", "role": "admin" })),
        (Method::DELETE, format!("{members}/mate"), json!(null)),
        (Method::PATCH, workspace.clone(), json!({ "name": "Taken over" })),
        (Method::DELETE, workspace, json!(null)),
    ] {
        let mut request = caller.request(method, &path);
        if let Some(user) = user {
            request = request.header("threadkeep-user", user);
        }
        if !body.is_null() {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let answer = ask(request).await;
        answers.push((answer.status, code(&answer).to_owned()));
    }
    answers
}

async fn a_service_key_acts_for_the_workspace_and_does_not_administer(backend: Backend) {
    let Some(server) = TestServer::start(backend).await else { return };
    let team = Team::new(&server).await;
    let (id, text) = team.key(&team.boss, "service").await;
    let service = server.caller(&text);

    let who = get(&service, "/v1/session").await;
    let limits = json!({ "max_file_bytes": 52_428_800, "max_files_per_message": 10, "max_open_runs_per_user": 100,
        "max_open_runs_per_workspace": null, "requests_per_second": 200, "requests_per_second_per_workspace": null,
        "tokens_per_day_per_user": null, "tokens_per_day_per_workspace": null });
    assert_eq!(
        who.body,
        json!({ "user": null, "org_id": "acme", "key": id, "workspace": team.workspace, "limits": limits })
    );

    let private = team.mate.create_conversation(json!({ "title": "Mate's" })).await.unwrap();
    expect(&get(&service, &format!("{CONVERSATIONS}/{private}")).await, 200, "");
    let made = service.create_conversation(json!({ "title": "The key's" })).await.unwrap();
    let path = format!("{CONVERSATIONS}/{made}");
    assert_eq!(get(&service, &path).await.body["data"]["attributes"]["user_id"], format!("key:{id}"));
    assert_eq!(ids(&get(&service, CONVERSATIONS).await), [&made, &private]);
    expect(&get(&team.mate, &path).await, 404, "not_found");
    expect(&get(&team.boss, &path).await, 200, "");

    let before = get(&team.boss, "/v1/audit").await.text;
    for user in [None, Some("mate")] {
        for answer in administering(&team, &service, user).await {
            assert_eq!(answer, (403, "forbidden".to_owned()), "as {user:?}");
        }
    }
    assert_eq!(get(&team.boss, "/v1/audit").await.text, before);
}

async fn a_service_key_acts_as_a_member(backend: Backend) {
    let Some(server) = TestServer::start(backend).await else { return };
    let team = Team::new(&server).await;
    let (id, text) = team.key(&team.boss, "service").await;
    let service = server.caller(&text);
    let bosses = team.boss.create_conversation(json!({ "title": "Boss's" })).await.unwrap();
    let mates = team.mate.create_conversation(json!({ "title": "Mate's" })).await.unwrap();

    expect(&acting(&service, "mate", &format!("{CONVERSATIONS}/{bosses}")).await, 404, "not_found");
    expect(&acting(&service, "mate", &format!("{CONVERSATIONS}/{mates}")).await, 200, "");
    assert_eq!(ids(&acting(&service, "mate", CONVERSATIONS).await), [&mates]);
    // As an admin it sees what an admin sees, and does what an admin does, under both names.
    assert_eq!(ids(&acting(&service, "boss", CONVERSATIONS).await).len(), 2);
    for (path, fact) in
        [("/v1/api-keys", id.as_str()), ("/v1/audit", "key.create"), (&team.members(""), "mate")]
    {
        let answer = acting(&service, "boss", path).await;
        expect(&answer, 200, "");
        assert!(answer.text.contains(fact), "{path} {}", answer.text);
    }
    let add = service
        .request(Method::POST, &team.members(""))
        .header("threadkeep-user", "boss")
        .header("content-type", "application/json")
        .body(json!({ "user": "friend", "role": "member" }).to_string());
    expect(&ask(add).await, 201, "");
    let log = acting(&service, "boss", "/v1/audit").await;
    let newest = log.body["data"].as_array().unwrap().last().unwrap();
    let what = ["user", "key", "action", "target"].map(|part| newest[part].as_str().unwrap());
    assert_eq!(what, ["boss", &id, "member.add", "friend"]);

    let made = ask(service
        .request(Method::POST, CONVERSATIONS)
        .header("threadkeep-user", "mate")
        .header("content-type", "application/vnd.api+json")
        .body(document(None, json!({ "title": "For mate" })).to_string()))
    .await;
    assert_eq!(made.body["data"]["attributes"]["user_id"], "mate");
    let own = made.body["data"]["id"].as_str().unwrap();
    expect(&get(&team.mate, &format!("{CONVERSATIONS}/{own}")).await, 200, "");

    let unknown = acting(&service, "nobody", CONVERSATIONS).await;
    expect(&unknown, 403, "forbidden");
    assert_eq!(unknown.body["errors"][0]["source"]["header"], "Threadkeep-User");
    expect(&acting(&service, &format!("key:{id}"), CONVERSATIONS).await, 403, "forbidden");
    expect(&acting(&service, "", CONVERSATIONS).await, 400, "invalid_header");
    let twice = service.request(Method::GET, CONVERSATIONS).header("threadkeep-user", "boss");
    expect(&ask(twice.header("threadkeep-user", "mate")).await, 400, "invalid_header");
    expect(&delete(&team.boss, &team.members("/mate")).await, 204, "");
    expect(&acting(&service, "mate", CONVERSATIONS).await, 403, "forbidden");
}

async fn only_a_service_key_acts_for_others(backend: Backend) {
    let Some(server) = TestServer::start(backend).await else { return };
    let team = Team::new(&server).await;
    let (_, member) = team.key(&team.boss, "member").await;
    let (_, admin) = team.key(&team.boss, "admin").await;
    for bearer in [token("boss", "acme"), member, admin] {
        let caller = server.caller(&bearer);
        for path in [CONVERSATIONS, "/v1/workspaces", "/v1/session", &team.members("")] {
            expect(&acting(&caller, "mate", path).await, 403, "forbidden");
            expect(&acting(&caller, "nobody", path).await, 403, "forbidden");
            expect(&acting(&caller, "boss", path).await, 200, "");
        }
    }
    // Nothing is made in another's name, or in one's own by mistake.
    let make = team.boss.request(Method::POST, "/v1/workspaces").header("threadkeep-user", "mate");
    let body = json!({ "name": "Whose?" }).to_string();
    expect(&ask(make.header("content-type", "application/json").body(body)).await, 403, "forbidden");
    assert_eq!(ids(&get(&team.boss, "/v1/workspaces").await), [&team.workspace]);
}

async fn a_key_acts_as_its_maker_and_never_as_more(backend: Backend) {
    let Some(server) = TestServer::start(backend).await else { return };
    let team = Team::new(&server).await;
    let bosses = team.boss.create_conversation(json!({ "title": "Boss's" })).await.unwrap();
    let mates = team.mate.create_conversation(json!({ "title": "Mate's" })).await.unwrap();
    let (bosses, mates) = (format!("{CONVERSATIONS}/{bosses}"), format!("{CONVERSATIONS}/{mates}"));

    // A member key of an admin: that person, without the powers.
    let (_, text) = team.key(&team.boss, "member").await;
    let member = server.caller(&text);
    assert_eq!(get(&member, "/v1/session").await.body["user"], "boss");
    assert_eq!(get(&member, "/v1/workspaces").await.body["data"][0]["role"], "member");
    expect(&get(&member, &bosses).await, 200, "");
    expect(&get(&member, &mates).await, 404, "not_found");
    let made = member.create_conversation(json!({})).await.unwrap();
    let made = get(&team.boss, &format!("{CONVERSATIONS}/{made}")).await;
    assert_eq!(made.body["data"]["attributes"]["user_id"], "boss");
    assert!(administering(&team, &member, None).await.iter().all(|(status, _)| *status == 403));

    // An admin key, while its maker is an admin.
    team.member("mate", "admin").await;
    let (id, text) = team.key(&team.mate, "admin").await;
    let (_, service) = team.key(&team.mate, "service").await;
    let admin = server.caller(&text);
    expect(&get(&admin, &bosses).await, 200, "");
    expect(&post(&admin, &team.members(""), json!({ "user": "new", "role": "member" })).await, 201, "");
    let log = get(&admin, "/v1/audit?limit=100").await;
    let last = log.body["data"].as_array().unwrap().last().unwrap();
    assert_eq!((&last["user"], &last["key"], &last["target"]), (&json!("mate"), &json!(id), &json!("new")));

    // Demoted with its maker, and promoted again.
    team.member("mate", "member").await;
    expect(&get(&admin, &bosses).await, 404, "not_found");
    expect(&get(&admin, &mates).await, 200, "");
    assert!(administering(&team, &admin, None).await.iter().all(|(status, _)| *status == 403));
    team.member("mate", "admin").await;
    expect(&get(&admin, "/v1/audit").await, 200, "");

    // Gone with its maker, for good; the service key is the workspace's and stays.
    expect(&delete(&team.boss, &team.members("/mate")).await, 204, "");
    expect(&get(&admin, &mates).await, 401, "unauthenticated");
    team.member("mate", "admin").await;
    expect(&get(&admin, &mates).await, 401, "unauthenticated");
    expect(&get(&server.caller(&service), &mates).await, 200, "");
}

async fn a_key_is_bound_to_one_workspace_and_stops_when_removed(backend: Backend) {
    let Some(server) = TestServer::start(backend).await else { return };
    let team = Team::new(&server).await;
    let other = team.boss.create_workspace("Other").await.unwrap();
    for role in ["member", "admin", "service"] {
        let (id, text) = team.key(&team.boss, role).await;
        let key = server.caller(&text);
        // Its maker is in two workspaces; the key is in one.
        expect(&get(&key, CONVERSATIONS).await, 200, "");
        expect(&get(&key, &format!("{CONVERSATIONS}?workspace={}", team.workspace)).await, 200, "");
        assert_eq!(ids(&get(&key, "/v1/workspaces").await), [&team.workspace]);
        for path in [
            format!("{CONVERSATIONS}?workspace={other}"),
            format!("/v1/workspaces/{other}"),
            format!("/v1/workspaces/{other}/members"),
            format!("/v1/api-keys?workspace={other}"),
        ] {
            expect(&get(&key, &path).await, 404, "not_found");
        }
        expect(&post(&key, "/v1/workspaces", json!({ "name": "Mine" })).await, 403, "forbidden");
        expect(&post(&key, "/v1/session", json!({})).await, 403, "forbidden");

        let path = format!("/v1/api-keys/{id}?workspace={}", team.workspace);
        let elsewhere = format!("/v1/api-keys/{id}?workspace={other}");
        expect(&delete(&team.boss, &elsewhere).await, 404, "not_found");
        expect(&get(&key, CONVERSATIONS).await, 200, "");
        expect(&delete(&team.boss, &path).await, 204, "");
        expect(&get(&key, CONVERSATIONS).await, 401, "unauthenticated");
        expect(&delete(&team.boss, &path).await, 404, "not_found");
    }
}

async fn one_authorization_header_of_one_form(backend: Backend) {
    let Some(server) = TestServer::start(backend).await else { return };
    let team = Team::new(&server).await;
    let (_, key) = team.key(&team.boss, "admin").await;
    let with = |name: &'static str, value: String| {
        ask(server.request(Method::GET, CONVERSATIONS).header(name, value))
    };
    for scheme in ["Bearer ", "bearer ", "BEARER ", "Bearer   "] {
        expect(&with("authorization", format!("{scheme}{key}")).await, 200, "");
    }
    for value in [
        key.clone(),
        format!("Basic {key}"),
        format!("Bearer{key}"),
        format!("Token {key}"),
        "Bearer".into(),
        format!("Bearer {}", key.to_uppercase()),
        format!("Bearer {key} x"),
        format!("Bearer {key}="),
    ] {
        expect(&with("authorization", value).await, 401, "unauthenticated");
    }
    expect(&with("x-api-key", key.clone()).await, 401, "unauthenticated");
    expect(
        &ask(server.request(Method::GET, &format!("{CONVERSATIONS}?api_key={key}"))).await,
        401,
        "unauthenticated",
    );
    let twice = server.request(Method::GET, CONVERSATIONS).bearer_auth(&key).bearer_auth(&key);
    expect(&ask(twice).await, 401, "unauthenticated");
}

on_both!(
    a_service_key_acts_for_the_workspace_and_does_not_administer,
    a_service_key_acts_as_a_member,
    only_a_service_key_acts_for_others,
    a_key_acts_as_its_maker_and_never_as_more,
    a_key_is_bound_to_one_workspace_and_stops_when_removed,
    one_authorization_header_of_one_form,
);

/// What of a key must not be found: its text, that without the prefix, and the random bytes in either form.
fn forms(key: &str) -> Vec<Vec<u8>> {
    use base64::Engine as _;
    let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(&key[3..]).unwrap();
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into_bytes();
    vec![key.into(), key[3..].into(), bytes[16..].to_vec(), hex(&bytes[16..]), hex(key.as_bytes())]
}

fn holds(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_shown_once_and_is_in_no_file_of_sqlite() {
    let server = TestServer::start(Backend::Sqlite).await.unwrap();
    let team = Team::new(&server).await;
    let (_, key) = team.key(&team.boss, "admin").await;
    expect(&get(&server.caller(&key), CONVERSATIONS).await, 200, "");
    for path in ["/v1/api-keys", "/v1/audit"] {
        assert!(!get(&team.boss, path).await.text.contains(&key[3..]), "{path}");
    }
    let path = format!("/v1/workspaces/{}", team.workspace);
    expect(&patch(&team.boss, &path, json!({ "name": "zebra" })).await, 200, "");
    let mut found = [false; 2];
    let (_, hash) = read_key(&key).unwrap();
    for entry in std::fs::read_dir(server.data()).unwrap() {
        let path = entry.unwrap().path();
        let Ok(bytes) = std::fs::read(&path) else { continue };
        for form in forms(&key) {
            assert!(!holds(&bytes, &form), "the key is in {}", path.display());
        }
        found[0] |= holds(&bytes, &hash);
        found[1] |= holds(&bytes, b"zebra");
    }
    assert_eq!(found, [true, true], "the search does not see the hash or the workspace's name");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_in_no_table_of_postgres() {
    let Some(database) = testkit::postgres::database().await else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut config = Config {
        data: folder.path().to_owned(),
        blobs: server::config::Blobs::within(folder.path()),
        ..Config::default()
    };
    config.auth.jwt_secret = Some(Secret::new(JWT_SECRET));
    let url = Secret::new(database.url());
    let store = PostgresStore::open(&url, &PostgresOptions::default()).await.unwrap();
    let running = Running::start(&config, Arc::new(store)).await;
    let make = |path: &str, body: serde_json::Value| {
        let request = running.request(Method::POST, path).bearer_auth(token("boss", "acme"));
        ask(request.header("content-type", "application/json").body(body.to_string()))
    };
    expect(&make("/v1/workspaces", json!({ "name": "zebra" })).await, 201, "");
    let made = make("/v1/api-keys", json!({ "name": "a key", "role": "admin" })).await;
    let key = made.body["key"].as_str().unwrap();
    expect(&running.get("/v1/audit", key).await, 200, "");

    let (client, connection) =
        tokio_postgres::connect(&database.superuser_url().unwrap(), NoTls).await.unwrap();
    #[expect(clippy::disallowed_methods, reason = "the task ends with its client")]
    tokio::spawn(connection);
    let mut dump = Vec::new();
    let tables =
        "SELECT relname::text FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace";
    for table in client.query(tables, &[]).await.unwrap() {
        let rows = format!("SELECT t::text FROM {} t", table.get::<_, String>(0));
        for row in client.query(&rows, &[]).await.unwrap() {
            dump.extend(row.get::<_, String>(0).into_bytes());
        }
    }
    for form in forms(key) {
        assert!(!holds(&dump, &form), "the key is in the database");
    }
    let (_, hash) = read_key(key).unwrap();
    let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(holds(&dump, hash.as_bytes()) && holds(&dump, b"zebra"));
    running.stop().await;
}
