//! What holds for every route alike, walked over the router's own list: bodies, paths, lists and their errors.

use reqwest::Method;
use serde_json::{Value, json};
use testkit::sandbox::Release;
use testkit::server::{Answer, Backend};

use crate::scripts::wait_after;
use crate::world::{CONVERSATIONS, World, ask, refused, stories};

stories!(
    a_body_is_an_object_and_a_word_a_string,
    a_misfit_is_named,
    a_null_where_there_is_none_is_refused,
    a_path_that_is_no_text_is_told,
    lists_page_alike,
    openai_paths_tell_a_wrong_method_their_way,
    openai_paths_refuse_a_key_with_another_body,
    an_execution_has_its_agents_model,
    a_wish_may_have_parameters_and_a_fork_has_a_place,
);

/// Every (method, path, operation) there is under `/v1`.
fn operations() -> Vec<(Method, String, Value)> {
    let api: Value = serde_json::from_str(&server::router::openapi_json()).unwrap();
    let mut all = Vec::new();
    for (path, methods) in
        api["paths"].as_object().unwrap().iter().filter(|(path, _)| path.starts_with("/v1"))
    {
        for (method, operation) in methods.as_object().unwrap() {
            all.push((method.to_uppercase().parse().unwrap(), path.clone(), operation.clone()));
        }
    }
    all
}

/// A path with `with` for each of its parameters.
fn filled(path: &str, with: &str) -> String {
    let parts = path.split('/').map(|part| if part.starts_with('{') { with } else { part });
    parts.collect::<Vec<_>>().join("/")
}

/// The problem of a value that does not fit, which names its place.
fn misfit(answer: &Answer, pointer: &str, asked: &str) -> Value {
    let problem = problem(answer);
    assert_eq!((answer.status, &problem["code"]), (422, &json!("invalid_value")), "{asked}: {}", answer.text);
    assert_eq!(problem["source"]["pointer"], pointer, "{asked}: {}", answer.text);
    problem
}

/// The problem of an answer, whichever document it is in.
fn problem(answer: &Answer) -> Value {
    match &answer.body["errors"][0] {
        Value::Null => answer.body.clone(),
        error => error.clone(),
    }
}

async fn send(world: &World, method: &Method, path: &str, body: &str) -> Answer {
    let request = world.request(method.clone(), path).header("content-type", "application/json");
    ask(request.header("accept", "application/json, application/vnd.api+json").body(body.to_owned())).await
}

async fn a_body_is_an_object_and_a_word_a_string(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let told = world.tell(&json!({ "message": "hi" })).await;
    let (conversation, run) = (told.conversation(), told.run());
    let fork = format!("{CONVERSATIONS}/{conversation}/fork");
    let before = world.count().await;
    for (method, path, _) in operations().iter().filter(|(_, _, op)| !op["requestBody"].is_null()) {
        for body in ["[]", r#"["arr",null]"#, r#""hi""#, "5", "null"] {
            let answer = send(&world, method, &filled(path, &conversation), body).await;
            assert!((400..=422).contains(&answer.status), "{method} {path} {body}: {}", answer.text);
            assert!(!answer.text.contains("struct") && !answer.text.contains("elements"), "{}", answer.text);
        }
    }
    let workspace = world.workspace;
    let message = told.message();
    for (method, path, body, pointer) in [
        (Method::POST, "/v1/turns", json!([null, null, "array hi"]), ""),
        (Method::POST, "/v1/workspaces", json!(["arr", null]), ""),
        (Method::PATCH, &format!("/v1/workspaces/{workspace}"), json!(["arr", null]), ""),
        (Method::POST, &format!("/v1/workspaces/{workspace}/members"), json!(["bob", "member"]), ""),
        (Method::POST, "/v1/api-keys", json!([null, "name", "member"]), ""),
        (Method::PATCH, &format!("/v1/runs/{run}"), json!(["hi"]), ""),
        (Method::POST, &fork, json!([message]), ""),
        (Method::POST, &format!("{CONVERSATIONS}/{conversation}/files/uploads"), json!(["a", 1, "b"]), ""),
        (Method::POST, "/v1/turns", json!({ "message": "x", "on_busy": { "enqueue": null } }), "/on_busy"),
        (Method::POST, "/v1/turns", json!({ "message": "x", "mode": { "ask": null } }), "/mode"),
        (Method::POST, "/v1/turns", json!({ "message": "x", "on_disconnect": ["cancel"] }), "/on_disconnect"),
        (Method::POST, "/v1/tables", json!({ "name": "t", "columns": [["a", "text"]] }), "/columns/0"),
        (
            Method::POST,
            "/v1/tables",
            json!({ "name": "t", "columns": [{ "name": "a", "type": { "text": null } }] }),
            "/columns/0/type",
        ),
        (Method::POST, "/v1/agents", json!({ "name": "a", "runner": { "sandbox": null } }), "/runner"),
        (Method::POST, "/v1/agents", json!({ "name": "a", "tools": [5] }), "/tools/0"),
        (
            Method::POST,
            "/v1/ai/chat",
            json!({ "id": "c", "messages": [{ "id": "m", "role": "user", "parts": [{ "type": "text", "text": "x" }] }],
                "mode": { "ask": null } }),
            "/mode",
        ),
    ] {
        let answer = send(&world, &method, path, &body.to_string()).await;
        misfit(&answer, pointer, &format!("{path} {body}"));
        for word in ["struct", "enum", "elements", "ToolChoice"] {
            assert!(!answer.text.contains(word), "{path} {body}: {}", answer.text);
        }
    }
    assert_eq!(world.count().await, before);
    Some(())
}

async fn a_misfit_is_named(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let told = world.tell(&json!({ "message": "hi" })).await;
    let fork = format!("{CONVERSATIONS}/{}/fork", told.conversation());
    for (path, body, pointer, name) in [
        ("/v1/turns", json!({ "message": "x", "conversation": "foo" }), "/conversation", "conversation"),
        ("/v1/turns", json!({ "message": "x", "mode": "dream" }), "/mode", "mode"),
        ("/v1/turns", json!({ "message": "x", "on_busy": "x" }), "/on_busy", "on_busy"),
        ("/v1/turns", json!({ "message": "x", "source": 5 }), "/source", "source"),
        ("/v1/turns", json!({ "message": "x", "attachments": ["x"] }), "/attachments/0", "attachments[0]"),
        ("/v1/executions", json!({ "prompt": 5 }), "/prompt", "prompt"),
        ("/v1/executions", json!({ "prompt": "x", "assets": ["x"] }), "/assets/0", "assets[0]"),
        ("/v1/files", json!({ "from": "x" }), "/from", "from"),
        ("/v1/files", json!({}), "/from", "from is missing"),
        ("/v1/agents", json!({ "name": "a", "max_rounds": -1 }), "/max_rounds", "a whole number"),
        (&fork, json!({ "through": "x" }), "/through", "through"),
    ] {
        let answer = send(&world, &Method::POST, path, &body.to_string()).await;
        let problem = misfit(&answer, pointer, &format!("{path} {body}"));
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(name) && !detail.contains("column"), "{path} {body}: {detail}");
    }
    let unknown = send(&world, &Method::POST, "/v1/turns", r#"{"message":"x","a/b":1}"#).await;
    refused(&unknown, 400, "unknown_field");
    assert_eq!(unknown.body["source"]["pointer"], "/a~1b");
    Some(())
}

/// It would be taken for a field that was left out, and nothing would be said.
async fn a_null_where_there_is_none_is_refused(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let made = async |path: &str, body: Value| {
        let made = world.send(Method::POST, path, Some(&body)).await;
        assert_eq!(made.status, 201, "{}", made.text);
        format!("{path}/{}", made.body["id"].as_str().unwrap())
    };
    let agent = made("/v1/agents", json!({ "name": "a", "model": "demo/assistant", "max_rounds": 2 })).await;
    let page = made("/v1/pages", json!({ "title": "t", "body": "b", "url": "https://example.com/" })).await;
    let table =
        made("/v1/tables", json!({ "name": "t", "columns": [{ "name": "a", "type": "text" }] })).await;
    let workspace = format!("/v1/workspaces/{}", world.workspace);
    let mut kept = Vec::new();
    for (method, path, fields, nullable) in [
        (
            Method::PATCH,
            &agent,
            &["name", "instructions", "runner", "tools", "approval"][..],
            json!({ "model": null, "max_rounds": null }),
        ),
        (Method::PUT, &page, &["title", "body"], json!({ "url": null })),
        (Method::PUT, &table, &["name", "columns"], json!({})),
        (Method::PATCH, &workspace, &["name", "default_visibility"], json!({ "model": null })),
    ] {
        let before = world.get(path).await.body;
        for field in fields {
            let answer = send(&world, &method, path, &json!({ *field: null }).to_string()).await;
            misfit(&answer, &format!("/{field}"), &format!("{path} {field}"));
        }
        assert_eq!(world.get(path).await.body, before);
        let cleared = send(&world, &method, path, &nullable.to_string()).await;
        assert_eq!(cleared.status, 200, "{path}: {}", cleared.text);
        kept.push(cleared.body);
    }
    assert_eq!(
        (&kept[0]["model"], &kept[0]["max_rounds"], &kept[1]["url"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );
    Some(())
}

async fn a_path_that_is_no_text_is_told(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let mut seen = 0;
    for (method, path, _) in operations().iter().filter(|(_, path, _)| path.contains('{')) {
        let path = filled(path, "%ff");
        let answer = send(&world, method, &path, "{}").await;
        let kind = answer.header("content-type").to_owned();
        let problem = problem(&answer);
        assert_eq!(
            (answer.status, &problem["code"]),
            (400, &json!("malformed_path")),
            "{method} {path}: {}",
            answer.text
        );
        let own = ["", "/restore", "/fork"].map(|end| format!("{CONVERSATIONS}/%ff{end}"));
        let expected =
            if own.contains(&path) { "application/vnd.api+json" } else { "application/problem+json" };
        assert_eq!(kind, expected, "{method} {path}");
        seen += 1;
    }
    assert!(seen > 40, "{seen}");
    Some(())
}

/// Whether an operation answers with a plain list.
fn is_list(api: &Value, operation: &Value) -> bool {
    let schema = &operation["responses"]["200"]["content"]["application/json"]["schema"];
    let schema = match schema["$ref"].as_str() {
        Some(name) => api.pointer(name.trim_start_matches('#')).unwrap(),
        None => schema,
    };
    let has = |name: &str| !schema["properties"][name].is_null();
    // The report of what was used is no list: it has a day's limits beside its days.
    has("data") && has("next") && !has("today")
}

async fn lists_page_alike(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let gate = Release::default();
    world.play(wait_after(vec![], &gate, "Done."));
    let first = world.begin_async(&json!({ "message": "one" })).await;
    let conversation = first["conversation"].as_str().unwrap();
    for n in 0..3 {
        let body = json!({ "conversation": conversation, "message": format!("q{n}"), "on_busy": "enqueue" });
        world.begin_async(&body).await;
    }
    world.member("bob").await;
    world.member("carl").await;
    let table = json!({ "name": "t", "columns": [{ "name": "a", "type": "text" }] });
    let table = world.send(Method::POST, "/v1/tables", Some(&table)).await.body;
    let rows = json!({ "rows": [{ "a": "1" }, { "a": "2" }] });
    let path = format!("/v1/tables/{}/rows", table["id"].as_str().unwrap());
    assert_eq!(world.send(Method::POST, &path, Some(&rows)).await.status, 201);
    let other = world.tell(&json!({ "message": "hi" })).await;
    let again = json!({ "conversation": other.conversation(), "replace": other.message() });
    world.tell(&again).await;
    let api: Value = serde_json::from_str(&server::router::openapi_json()).unwrap();
    let (mut lists, mut long) = (0, Vec::new());
    for (method, path, operation) in operations() {
        if method != Method::GET || !is_list(&api, &operation) || path.starts_with("/v1/conversations") {
            continue;
        }
        lists += 1;
        let id = match path.as_str() {
            path if path.contains("/branches") => other.conversation(),
            path if path.starts_with(CONVERSATIONS) => conversation.to_owned(),
            path if path.starts_with("/v1/runs") => other.run(),
            path if path.starts_with("/v1/workspaces") => world.workspace.to_string(),
            path if path.starts_with("/v1/tables") => table["id"].as_str().unwrap().to_owned(),
            _ => String::new(),
        };
        let path = filled(&path, &id);
        let whole = world.get(&format!("{path}?limit=100")).await;
        assert_eq!((whole.status, &whole.body["next"]), (200, &Value::Null), "{path}: {}", whole.text);
        let expected = whole.body["data"].as_array().unwrap().clone();
        let (mut found, mut after) = (Vec::new(), String::new());
        loop {
            let page = world.get(&format!("{path}?limit=1{after}")).await;
            let data = page.body["data"].as_array().unwrap_or_else(|| panic!("{path}: {}", page.text));
            assert!(data.len() <= 1, "{path}: {}", page.text);
            found.extend(data.clone());
            let next = &page.body["next"];
            let Some(next) = next.as_str().map(str::to_owned).or(next.as_i64().map(|next| next.to_string()))
            else {
                break;
            };
            after = format!("&after={next}");
        }
        assert_eq!(found, expected, "{path}");
        for (query, name) in
            [("after=@@", "after"), ("after=garbage", "after"), ("limit=0", "limit"), ("limit=x", "limit")]
        {
            let answer = world.get(&format!("{path}?{query}")).await;
            refused(&answer, 400, "invalid_parameter");
            assert_eq!(answer.body["source"]["parameter"], name, "{path}?{query}");
        }
        if expected.len() > 1 {
            long.push(path);
        }
    }
    assert!(lists >= 14, "{lists}");
    for end in ["/queue", "/branches", "/tools", "/members", "/rows"] {
        assert!(long.iter().any(|path| path.ends_with(end)), "{end} was not walked: {long:?}");
    }
    gate.open();
    Some(())
}

async fn openai_paths_tell_a_wrong_method_their_way(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    for (method, path) in [
        (Method::GET, "/v1/responses"),
        (Method::GET, "/v1/chat/completions"),
        (Method::PUT, "/v1/models"),
        (Method::PUT, "/v1/conversations"),
        (Method::POST, "/v1/conversations/x/items/y"),
        (Method::GET, "/v1/messages"),
    ] {
        // Nobody needs a credential to be told.
        for request in [world.request(method.clone(), path), world.server.request(method.clone(), path)] {
            let answer = ask(request).await;
            refused(&answer, 405, "method_not_allowed");
            assert_ne!(answer.header("allow"), "", "{path}");
            assert_eq!(answer.body["error"]["code"], "method_not_allowed", "{path}: {}", answer.text);
            assert_eq!(answer.body["error"]["type"], "invalid_request_error");
        }
    }
    Some(())
}

async fn openai_paths_refuse_a_key_with_another_body(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let respond = async |input: &str| {
        let request = world.request(Method::POST, "/v1/responses").header("content-type", "application/json");
        let body = json!({ "model": "agent", "input": input });
        ask(request.header("idempotency-key", "k").body(body.to_string())).await
    };
    let first = respond("one").await;
    assert_eq!(first.status, 200, "{}", first.text);
    assert_eq!(respond("one").await.body["id"], first.body["id"]);
    let other = respond("two").await;
    refused(&other, 422, "idempotency_key_reused");
    assert_eq!(other.body["error"]["code"], "idempotency_key_reused");
    Some(())
}

async fn an_execution_has_its_agents_model(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let agent = json!({ "name": "a", "runner": "sandbox", "model": "openai/gpt-zzz" });
    let agent = world.send(Method::POST, "/v1/agents", Some(&agent)).await.body["id"].clone();
    let gate = Release::default();
    world.play(wait_after(vec![], &gate, "Done."));
    let body = json!({ "prompt": "go", "agent": agent }).to_string();
    let request = world.request(Method::POST, "/v1/executions").header("content-type", "application/json");
    let running = request.body(body).send().await.unwrap();
    let sent = world.sandbox.request(0).await.unwrap().body;
    let at = sent["agent_url"].as_str().unwrap();
    let config = format!("{}/config", &at[at.find("/v1/").unwrap()..]);
    let config = world.server.request(Method::GET, &config);
    let config = ask(config.bearer_auth(sent["config_token"].as_str().unwrap())).await.body;
    assert_eq!(config["model"]["model"], "openai/gpt-zzz", "{config}");
    gate.open();
    running.text().await.unwrap();
    let nobody = "0190d3a0-0000-7000-8000-000000000000";
    for (path, body) in [
        ("/v1/turns", json!({ "message": "x", "agent": nobody })),
        ("/v1/executions", json!({ "prompt": "x", "agent": nobody })),
    ] {
        let answer = send(&world, &Method::POST, path, &body.to_string()).await;
        refused(&answer, 422, "invalid_value");
        assert_eq!(answer.body["source"]["pointer"], "/agent");
    }
    assert_eq!(world.count().await, (0, 0));
    Some(())
}

async fn a_wish_may_have_parameters_and_a_fork_has_a_place(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let begun = ask(world.turn(&json!({ "message": "hi" })).header("prefer", "respond-async; foo=1")).await;
    assert_eq!(begun.status, 202, "{}", begun.text);
    world.settled(begun.body["run"].as_str().unwrap()).await;
    let path = format!("{CONVERSATIONS}/{}/fork", begun.body["conversation"].as_str().unwrap());
    let fork =
        send(&world, &Method::POST, &path, &json!({ "through": begun.body["message"] }).to_string()).await;
    assert_eq!(fork.status, 201, "{}", fork.text);
    let id = fork.body["data"]["id"].as_str().unwrap();
    assert!(
        fork.header("location").ends_with(&format!("{CONVERSATIONS}/{id}")),
        "{}",
        fork.header("location")
    );
    Some(())
}
