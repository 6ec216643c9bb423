//! Tool servers that admins add: their names, where they may be, and what is never shown again.

use reqwest::Method;
use serde_json::{Value, json};
use testkit::server::{Answer, Backend};

use crate::fake::Fake;
use crate::world::{World, http, stories};

stories!(
    a_servers_life,
    what_a_server_may_not_be,
    inner_addresses_are_for_the_operator_to_allow,
    a_token_is_used_and_never_seen_again,
);

#[track_caller]
fn refused(answer: &Answer, status: u16, code: &str, words: &str) {
    assert_eq!((answer.status, answer.body["code"].as_str()), (status, Some(code)), "{}", answer.text);
    assert!(answer.body["detail"].as_str().unwrap().contains(words), "{}", answer.text);
}

fn loopback(config: &mut server::config::Config) {
    config.tool_networks = vec!["loopback".into()];
}

async fn a_servers_life(backend: Backend) -> Option<()> {
    let fake = Fake::start(|_| None).await;
    let url = fake.url();
    let world = World::start(backend, |config| {
        loopback(config);
        config.mcp.insert("ops".into(), http(&url));
    });
    let world = world.await?;
    let added = world.add(&json!({ "name": "tea-m_1", "url": url })).await;
    assert_eq!(added.status, 201, "{}", added.text);
    assert_eq!((&added.body["name"], &added.body["url"]), (&json!("tea-m_1"), &json!(url)));
    assert_eq!((&added.body["source"], &added.body["created_by"]), (&json!("workspace"), &json!("ann")));
    let listed = world.get("/v1/tool-servers").await.body;
    assert_eq!(listed["data"][0]["name"], "ops");
    assert_eq!((&listed["data"][0]["source"], &listed["data"][0]["url"]), (&json!("operator"), &Value::Null));
    assert_eq!((&listed["data"][1], &listed["next"]), (&added.body, &Value::Null));
    let page = world.get("/v1/tool-servers?limit=1").await.body;
    assert_eq!(page["data"].as_array().unwrap().len(), 1);
    let next = format!("/v1/tool-servers?limit=1&after={}", page["next"].as_str().unwrap());
    assert_eq!(world.get(&next).await.body["data"], json!([added.body]));
    let agent = world.agent(json!([{ "mcp": "tea-m_1" }]), json!([])).await;
    let turn = world.turn(&agent, &[("tea-m_1__echo", json!({ "text": "hi" }))]).await;
    assert_eq!(turn.call(0)["result"], "hi");
    for taken in ["tea-m_1", "ops"] {
        refused(&world.add(&json!({ "name": taken, "url": url })).await, 409, "conflict", "name");
    }
    assert_eq!(world.send(Method::DELETE, "/v1/tool-servers/tea-m_1", None).await.status, 204);
    refused(&world.send(Method::DELETE, "/v1/tool-servers/tea-m_1", None).await, 404, "not_found", "");
    refused(&world.send(Method::DELETE, "/v1/tool-servers/a%00b", None).await, 404, "not_found", "");
    refused(&world.send(Method::DELETE, "/v1/tool-servers/ops", None).await, 403, "forbidden", "operator");
    let turn = world.turn(&agent, &[]).await;
    assert!(turn.trace.contains("no tool server \\\"tea-m_1\\\""), "{}", turn.trace);
    // The name is free again, for another server.
    assert_eq!(world.add(&json!({ "name": "tea-m_1", "url": url })).await.status, 201);
    let audit = world.get("/v1/audit").await.text;
    assert!(audit.contains("tool_server.add") && audit.contains("tool_server.remove"), "{audit}");
    Some(())
}

async fn what_a_server_may_not_be(backend: Backend) -> Option<()> {
    let world = World::start(backend, |_| {}).await?;
    let good = "https://203.0.114.7/mcp";
    let long = "n".repeat(65);
    for (body, status, code, words) in [
        (json!({}), 422, "invalid_value", "name"),
        (json!({ "name": "a" }), 422, "invalid_value", "url"),
        (json!({ "name": "", "url": good }), 422, "invalid_value", "letters"),
        (json!({ "name": "a b", "url": good }), 422, "invalid_value", "letters"),
        (json!({ "name": "a/b", "url": good }), 422, "invalid_value", "letters"),
        (json!({ "name": "é", "url": good }), 422, "invalid_value", "letters"),
        (json!({ "name": long, "url": good }), 422, "invalid_value", "letters"),
        (json!({ "name": "a", "url": good, "token": "" }), 422, "invalid_value", "token"),
        (json!({ "name": "a", "url": good, "token": "two words" }), 422, "invalid_value", "token"),
        (json!({ "name": "a", "url": good, "command": "sh" }), 400, "unknown_field", "command"),
        (json!({ "name": "a", "url": "nonsense" }), 422, "invalid_value", "url"),
        (json!({ "name": "a", "url": "" }), 422, "invalid_value", "url"),
        (json!({ "name": "a", "url": "file:///etc/passwd" }), 422, "invalid_value", "http"),
        (json!({ "name": "a", "url": "https://u:canary@203.0.114.7/" }), 422, "invalid_value", "password"),
    ] {
        refused(&world.add(&body).await, status, code, words);
    }
    assert_eq!(world.get("/v1/tool-servers").await.body, json!({ "data": [], "next": null }));
    // What cannot be reached now may be added: it may come.
    assert_eq!(
        world.add(&json!({ "name": "a", "url": "https://no-such-host.invalid/mcp" })).await.status,
        201
    );
    Some(())
}

async fn inner_addresses_are_for_the_operator_to_allow(backend: Backend) -> Option<()> {
    let fake = Fake::start(|_| None).await;
    let port = fake.url().split(':').nth(2).unwrap().split('/').next().unwrap().to_owned();
    let world = World::start(backend, |_| {}).await?;
    for host in [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "localhost",
        "LOCALHOST",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "0.0.0.0",
        "[::]",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "169.254.169.254",
        "[fe80::1]",
        "[fd00::1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::1]",
        "224.0.0.1",
        "255.255.255.255",
    ] {
        let answer = world.add(&json!({ "name": "inner", "url": format!("http://{host}:{port}/mcp") })).await;
        refused(&answer, 422, "invalid_value", "not a public address");
    }
    assert!(fake.asked().is_empty());
    // This machine is allowed, and nothing else with it.
    let allowed = World::start(backend, loopback).await?;
    assert_eq!(allowed.add(&json!({ "name": "inner", "url": fake.url() })).await.status, 201);
    let link_local = json!({ "name": "cloud", "url": "http://169.254.169.254/latest" });
    refused(&allowed.add(&link_local).await, 422, "invalid_value", "not a public address");
    let private = json!({ "name": "lan", "url": "http://192.168.1.1/" });
    refused(&allowed.add(&private).await, 422, "invalid_value", "not a public address");
    Some(())
}

async fn a_token_is_used_and_never_seen_again(backend: Backend) -> Option<()> {
    // It repeats what it is sent, in every way it can.
    let fake = Fake::start(|asked| {
        use crate::fake::{Reply, text};
        let echoed = format!("{} {}", asked.header("authorization"), "canary-in-query");
        match asked.body["params"]["arguments"]["how"].as_str() {
            Some("result") => Some(Reply::Result(text(&echoed))),
            Some("structured") => {
                Some(Reply::Result(json!({ "content": [], "structuredContent": { "a": echoed } })))
            }
            Some("error") => Some(Reply::Error(200, json!({ "code": 1, "message": echoed }))),
            _ => None,
        }
    });
    let fake = fake.await;
    let world = World::start(backend, loopback).await?;
    let url = format!("{}?key=canary-in-query", fake.url());
    let added = world.add(&json!({ "name": "t", "url": url, "token": "canary-token" })).await;
    assert_eq!(added.status, 201, "{}", added.text);
    assert_eq!(added.body["url"], format!("{}?****", fake.url()));
    let agent = world.agent(json!([{ "mcp": "t" }]), json!([])).await;
    let mut seen = added.text;
    for how in ["result", "structured", "error"] {
        let turn = world.turn(&agent, &[("t__echo", json!({ "how": how }))]).await;
        assert!(turn.streamed.contains("****"), "{how}: {}", turn.streamed);
        seen += &(turn.streamed + &turn.trace + &turn.run.to_string() + &world.answers().join(" "));
    }
    for path in ["/v1/tool-servers", "/v1/tools", "/v1/audit", "/v1/agents"] {
        seen += &world.get(path).await.text;
    }
    let call = fake.of("tools/call").pop().unwrap();
    assert_eq!(call.header("authorization"), "Bearer canary-token");
    for file in walk(world.server.data()) {
        seen += &String::from_utf8_lossy(&std::fs::read(file).unwrap());
    }
    for canary in ["canary-token", "canary-in-query"] {
        assert!(!seen.contains(canary), "{canary} is seen");
    }
    Some(())
}

/// Every file of the data folder, the database among them.
fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}
