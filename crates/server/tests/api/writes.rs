//! Create, retrieve and update: every attribute, its default, the client's own ids, and what comes back.

use domain::time::{Clock as _, SystemClock};
use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};

use crate::world::{CONVERSATIONS, World, change, code, creation, id_of, item, pointer, stories};

stories!(
    a_new_conversation_has_every_default,
    what_a_client_sets_comes_back,
    a_seed_example_is_kept,
    each_attribute_changes_alone,
    null_takes_a_value_away,
    the_workspace_says_who_sees_new_ones,
    client_ids,
    a_taken_id_is_refused,
    the_same_id_lives_in_two_workspaces,
    an_update_names_what_it_updates,
    times_only_move_forward,
    context_comes_back_to_the_byte,
    the_relationship_names_the_workspace,
    answers_to_writes_have_the_asked_fields,
);

fn client_attributes() -> Value {
    json!({
        "title": "Q1 invoice reconciliation",
        "mode": "agent",
        "source": "web",
        "page_path": "/workspaces/9f3e2d1a-7b4c-4e5f-8a2b-1c0d3e6f9a8b/records/invoices",
        "context": { "root": "invoices", "rowCount": 7, "columns": ["id"], "selectionType": "rows" },
        "tabs": [
            { "key": "invoices", "destinationId": "invoices" },
            { "key": "3a9c1e2d-44b7-4f0e-8c6a-2b1d3e5f7a9c", "destinationId": "new_tab", "subPath": "/workspaces/9f3e2d1a/new-tab" }
        ],
        "active_tab_key": "invoices",
        "model": "large-2",
        "agent_id": "agent-7",
        "visibility": "workspace"
    })
}

async fn a_new_conversation_has_every_default(world: World) {
    let answer = world.post(r#"{"data":{"type":"chat_conversation"}}"#).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let data = &answer.body["data"];
    let id = id_of(data);
    let made = data["attributes"]["created_at"].clone();
    assert_eq!(
        data["attributes"],
        json!({
            "thread_id": id, "title": null, "mode": null, "source": null, "page_path": null, "total_tokens": 0,
            "messages": [], "context": null, "tabs": [], "active_tab_key": null, "deleted_at": null,
            "created_at": made, "updated_at": made, "kind": "assistant_sandbox", "workflow_id": null,
            "agent_id": null, "model": null, "user_id": "ann", "org_id": "acme", "preview": null,
            "message_count": 0, "conversation_id": null, "visibility": "private"
        })
    );
    assert_eq!(data["type"], "chat_conversation");
    let workspace = json!({ "type": "workspace", "id": world.workspace.to_string() });
    assert_eq!(data["relationships"], json!({ "workspace": { "data": workspace } }));
    let link = format!("{}{}", world.server.url(), item(&id));
    assert_eq!(
        (data["links"]["self"].as_str(), answer.header("location")),
        (Some(link.as_str()), link.as_str())
    );
    assert_eq!(answer.body["links"]["self"], link);
    assert_eq!(id.parse::<uuid::Uuid>().unwrap().get_version_num(), 7);

    let made: Timestamp = made.as_str().unwrap().parse().unwrap();
    let now = SystemClock.now();
    assert!(made <= now && now.as_second() - made.as_second() < 60, "{made}");
    let text = data["attributes"]["created_at"].as_str().unwrap();
    assert!(text.len() == 24 && text.ends_with('Z'), "milliseconds in UTC: {text}");

    let again = world.follow(&data["links"]["self"]).await;
    assert_eq!((again.status, &again.body["data"]), (200, data));
    assert_eq!(again.header("etag"), answer.header("etag"));
}

async fn what_a_client_sets_comes_back(world: World) {
    let sent = client_attributes();
    let made = world.create(sent.clone()).await;
    let again = world.retrieve(&id_of(&made)).await;
    assert_eq!(made, again);
    for (name, value) in sent.as_object().unwrap() {
        assert_eq!(&again["attributes"][name], value, "{name}");
    }
    for mode in ["ask", "agent", "task_flow"] {
        assert_eq!(world.create(json!({ "mode": mode })).await["attributes"]["mode"], mode);
    }
    for source in ["web", "extension"] {
        assert_eq!(world.create(json!({ "source": source })).await["attributes"]["source"], source);
    }
    // The longest values, counted in characters.
    let (name, path) = ("é".repeat(255), "é".repeat(512));
    let key = "k".repeat(64);
    let longest = json!({
        "title": name, "page_path": path, "model": name, "agent_id": name,
        "tabs": [{ "key": key, "destinationId": key, "subPath": path }], "active_tab_key": key
    });
    let made = world.create(longest.clone()).await;
    for (name, value) in longest.as_object().unwrap() {
        assert_eq!(&made["attributes"][name], value, "{name}");
    }
}

async fn a_seed_example_is_kept(world: World) {
    let context = r#"{"root":"invoices","lastGqlQuery":"{ invoices(where: { status: { _eq: \"unpaid\" } }) { id amount } }","queryResult":null,"columns":["id","amount","status","due_date"],"rowCount":7,"sampleRow":{"id":"inv_001","amount":4800,"status":"unpaid"},"whereClause":{"status":{"_eq":"unpaid"}},"orderBy":{"field":"due_date","direction":"asc"},"fields":[["id"],["amount"],["status"]],"selectionType":"rows","selectedCells":null,"selectedColumns":null,"documentAnalysisSummary":null,"gcsPath":null}"#;
    let id = "c7e1a2f3-88d4-4b9e-9c6a-3f0e1d2b5a7c";
    let body = format!(
        r#"{{"data":{{"type":"chat_conversation","id":"{id}","attributes":{{"thread_id":"{id}","context":{context}}}}}}}"#
    );
    let answer = world.post(body).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let again = world.get(&item(id)).await;
    assert!(again.text.contains(&format!(r#""context":{context}"#)), "{}", again.text);
    assert_eq!(again.body["data"]["attributes"]["thread_id"], id);
}

async fn each_attribute_changes_alone(world: World) {
    let id = id_of(&world.create(client_attributes()).await);
    for (name, value) in [
        ("title", json!("Another")),
        ("mode", json!("task_flow")),
        ("page_path", json!("/elsewhere?x=1")),
        ("context", json!({ "mine": [1, 2] })),
        ("tabs", json!([{ "key": "invoices", "destinationId": "invoices" }])),
        ("active_tab_key", json!(null)),
        ("model", json!("small-1")),
        ("agent_id", json!("agent-8")),
        ("visibility", json!("private")),
    ] {
        let before = world.retrieve(&id).await;
        let answer = world.patch(&id, &json!({ name: value })).await;
        assert_eq!(answer.status, 200, "{name}: {}", answer.text);
        let after = world.retrieve(&id).await;
        assert_eq!(answer.body["data"], after, "{name}");
        let mut expected = before.clone();
        expected["attributes"][name] = value;
        expected["attributes"]["updated_at"] = after["attributes"]["updated_at"].clone();
        assert_eq!(after, expected, "{name}");
        assert!(time(&after, "updated_at") > time(&before, "updated_at"), "{name}");
    }
}

async fn null_takes_a_value_away(world: World) {
    let id = id_of(&world.create(client_attributes()).await);
    let nulls = ["title", "mode", "page_path", "context", "active_tab_key", "model", "agent_id"];
    for name in nulls {
        let answer = world.patch(&id, &json!({ name: null })).await;
        assert_eq!((answer.status, &answer.body["data"]["attributes"][name]), (200, &Value::Null), "{name}");
    }
    let answer = world.patch(&id, &json!({ "tabs": [] })).await;
    assert_eq!(answer.body["data"]["attributes"]["tabs"], json!([]));
    let mut all = json!({ "source": null });
    nulls.iter().for_each(|name| all[name] = Value::Null);
    world.create(all).await;
}

async fn the_workspace_says_who_sees_new_ones(world: World) {
    let path = format!("/v1/workspaces/{}", world.workspace);
    let request = world.request(Method::PATCH, &path).header("content-type", "application/json");
    let answer = world.send(request.body(r#"{"default_visibility":"workspace"}"#)).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(world.create(json!({})).await["attributes"]["visibility"], "workspace");
    assert_eq!(world.create(json!({ "visibility": "private" })).await["attributes"]["visibility"], "private");
}

async fn client_ids(world: World) {
    let [a, b] = ["11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"];
    let upper = "ABCDEF01-1111-4111-8111-111111111111";
    let body = |id: &str, thread: &str| {
        let (id, thread) = (part("id", id), part("thread_id", thread));
        let thread = thread.trim_start_matches(',');
        format!(r#"{{"data":{{"type":"chat_conversation"{id},"attributes":{{{thread}}}}}}}"#)
    };
    for (id, thread, expected) in [(a, "", a), ("", b, b), (upper, upper, &*upper.to_lowercase())] {
        let answer = world.post(body(id, thread)).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        assert_eq!(answer.body["data"]["id"], expected);
        assert_eq!(answer.body["data"]["attributes"]["thread_id"], expected);
        world.retrieve(expected).await;
    }
    let before = world.everything().await;
    let c = "33333333-3333-4333-8333-333333333333";
    for (id, thread, status, at) in [
        (c, a, 422, "/data/attributes/thread_id"),
        ("mine", "", 422, "/data/id"),
        ("", "mine", 422, "/data/attributes/thread_id"),
        ("33333333333343338333333333333333", "", 422, "/data/id"),
        ("{33333333-3333-4333-8333-333333333333}", "", 422, "/data/id"),
    ] {
        let answer = world.post(body(id, thread)).await;
        assert_eq!((answer.status, pointer(&answer)), (status, at), "{id} {thread}: {}", answer.text);
    }
    for raw in ["7", "null", "[]", "\"\""] {
        let answer = world.post(format!(r#"{{"data":{{"type":"chat_conversation","id":{raw}}}}}"#)).await;
        assert_eq!((answer.status, pointer(&answer)), (422, "/data/id"), "{raw}: {}", answer.text);
        let attributes =
            format!(r#"{{"data":{{"type":"chat_conversation","attributes":{{"thread_id":{raw}}}}}}}"#);
        let answer = world.post(attributes).await;
        assert_eq!((answer.status, pointer(&answer)), (422, "/data/attributes/thread_id"), "{raw}");
    }
    assert_eq!(world.everything().await, before);
}

fn part(name: &str, value: &str) -> String {
    if value.is_empty() { String::new() } else { format!(r#","{name}":"{value}""#) }
}

async fn a_taken_id_is_refused(world: World) {
    let id = id_of(&world.create(json!({ "title": "mine" })).await);
    let body = creation(&json!({ "thread_id": id, "title": "again" }));
    for deleted in [false, true] {
        let before = world.everything().await;
        let answer = world.post(body.clone()).await;
        assert_eq!((answer.status, code(&answer)), (409, "client_id_taken"), "{}", answer.text);
        assert_eq!(pointer(&answer), "/data/attributes/thread_id");
        for attributes in [json!({}), json!({ "thread_id": id })] {
            let named =
                json!({ "data": { "type": "chat_conversation", "id": id, "attributes": attributes } });
            let answer = world.post(named.to_string()).await;
            assert_eq!((code(&answer), pointer(&answer)), ("client_id_taken", "/data/id"), "{}", answer.text);
        }
        assert_eq!(world.everything().await, before);
        if !deleted {
            assert_eq!(world.delete(&id).await.status, 204);
        }
    }
    // Of many at once, one gets it.
    let body = creation(&json!({ "thread_id": "55555555-5555-4555-8555-555555555555" }));
    let all = futures_util::future::join_all((0..8).map(|_| world.post(body.clone()))).await;
    let mut found: Vec<u16> = all.iter().map(|answer| answer.status).collect();
    found.sort_unstable();
    assert_eq!(found, [201, 409, 409, 409, 409, 409, 409, 409]);
}

async fn the_same_id_lives_in_two_workspaces(world: World) {
    let bob = world.other("bob", "globex").await;
    let id = id_of(&world.create(json!({ "title": "Ann's" })).await);
    let theirs = bob.create(json!({ "thread_id": id, "title": "Bob's" })).await;
    assert_eq!(theirs["id"], id);
    assert_eq!(bob.patch(&id, &json!({ "title": "Bob's still" })).await.status, 200);
    assert_eq!(world.retrieve(&id).await["attributes"]["title"], "Ann's");
    assert_eq!(bob.delete(&id).await.status, 204);
    world.retrieve(&id).await;
}

async fn an_update_names_what_it_updates(world: World) {
    let id = id_of(&world.create(json!({ "title": "kept" })).await);
    let other = "44444444-4444-4444-8444-444444444444";
    let before = world.everything().await;
    for (body, status, at) in [
        (r#"{"data":{"type":"chat_conversation","attributes":{}}}"#.to_owned(), 400, "/data"),
        (change(other, &json!({ "title": "x" })), 409, "/data/id"),
        (
            change(&id, &json!({ "title": "x" })).replace("chat_conversation", "conversation"),
            409,
            "/data/type",
        ),
        (format!(r#"{{"data":{{"id":"{id}"}}}}"#), 400, "/data"),
    ] {
        let answer = world.send(world.with_body(Method::PATCH, &item(&id), body.clone())).await;
        assert_eq!((answer.status, pointer(&answer)), (status, at), "{body}: {}", answer.text);
    }
    let answer = world.patch(other, &json!({})).await;
    assert_eq!((answer.status, code(&answer)), (404, "not_found"));
    assert_eq!(world.everything().await, before);
    // The id that it has already is no change.
    assert_eq!(world.patch(&id, &json!({ "thread_id": id })).await.status, 200);
}

async fn times_only_move_forward(world: World) {
    let made = world.create(json!({})).await;
    let id = id_of(&made);
    let mut last = time(&made, "updated_at");
    for n in 0..20 {
        let attributes = if n % 2 == 0 { json!({ "title": "same" }) } else { json!({}) };
        let answer = world.patch(&id, &attributes).await;
        let now = time(&answer.body["data"], "updated_at");
        assert!(now > last, "{now} after {last}");
        assert_eq!(time(&answer.body["data"], "created_at"), time(&made, "created_at"));
        last = now;
    }
    world.ask(&id, "a message is a write").await;
    let after = time(&world.retrieve(&id).await, "updated_at");
    assert!(after > last);
    world.delete(&id).await;
    let restored = world.restore(&id).await;
    assert!(time(&restored.body["data"], "updated_at") > after);
    assert_eq!(time(&restored.body["data"], "created_at"), time(&made, "created_at"));
}

fn time(resource: &Value, name: &str) -> Timestamp {
    resource["attributes"][name].as_str().unwrap().parse().unwrap()
}

async fn context_comes_back_to_the_byte(world: World) {
    for context in [
        "{}",
        "{ \"z\" : 1.50,\n\t\"a\":1E2, \"b\":-0.0,\"c\":100000000000000000000000000, \"A\":[ 1 ,2]}",
        r#"{"\u0061":"\u00e9é\/\n","emoji":"\ud83d\ude00😀","html":"<b>&amp;","deep":{"@x":{"":null}}}"#,
        r#"{"rowCount":7.0,"n":0.1000000000000000055511151231257827,"root":null}"#,
    ] {
        let body =
            format!(r#"{{"data":{{"type":"chat_conversation","attributes":{{"context": {context} }}}}}}"#);
        let made = world.post(body).await;
        assert_eq!(made.status, 201, "{}", made.text);
        let id = id_of(&made.body["data"]);
        let listed = format!(
            "{CONVERSATIONS}?fields[chat_conversation]=context,created_at&sort=-created_at&page[size]=1"
        );
        let expected = format!("\"context\":{context}");
        for (what, text) in [
            ("create", made.text),
            ("retrieve", world.get(&item(&id)).await.text),
            ("update", world.patch(&id, &json!({ "title": "t" })).await.text),
            ("list", world.get(&listed).await.text),
        ] {
            assert!(text.contains(&expected), "{what} of {context}: {text}");
        }
    }
    // 256 KiB of text fit, one byte more does not.
    for (bytes, status) in [(256 * 1024, 201), (256 * 1024 + 1, 422)] {
        let context = format!("{{\"x\":\"{}\"}}", "y".repeat(bytes - 8));
        assert_eq!(context.len(), bytes);
        let body =
            format!(r#"{{"data":{{"type":"chat_conversation","attributes":{{"context":{context}}}}}}}"#);
        let answer = world.post(body).await;
        assert_eq!(answer.status, status);
        if status == 422 {
            assert_eq!(pointer(&answer), "/data/attributes/context");
        }
    }
}

async fn the_relationship_names_the_workspace(world: World) {
    let body = |id: &str| {
        let workspace = json!({ "data": { "type": "workspace", "id": id } });
        json!({ "data": { "type": "chat_conversation", "relationships": { "workspace": workspace } } })
    };
    let own = world.workspace.to_string();
    let answer = world.post(body(&own).to_string()).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let id = id_of(&answer.body["data"]);

    let bob = world.other("bob", "globex").await;
    let foreign = bob.workspace.to_string();
    assert_eq!(world.post(body(&foreign).to_string()).await.status, 404);
    let mut move_away = body(&foreign);
    move_away["data"]["id"] = json!(id);
    let answer = world.send(world.with_body(Method::PATCH, &item(&id), move_away.to_string())).await;
    assert_eq!((answer.status, pointer(&answer)), (403, "/data/relationships/workspace"), "{}", answer.text);
    assert_eq!(bob.list("").await["data"], json!([]));

    for (relationships, at) in [
        (r#"{"owner":{"data":null}}"#, "/data/relationships/owner"),
        (r#"{"workspace":{"data":null}}"#, "/data/relationships/workspace/data"),
        (r#"{"workspace":{"data":{"type":"workspace","id":"x"}}}"#, "/data/relationships/workspace/data/id"),
        (r#"{"workspace":{"data":{"type":"user","id":"WS"}}}"#, "/data/relationships/workspace/data/type"),
        (r#"{"workspace":{}}"#, "/data/relationships/workspace"),
        (r#"[]"#, "/data/relationships"),
    ] {
        let relationships = relationships.replace("WS", &own);
        let body = format!(r#"{{"data":{{"type":"chat_conversation","relationships":{relationships}}}}}"#);
        let answer = world.post(body).await;
        assert!((400..=422).contains(&answer.status), "{relationships}: {}", answer.text);
        assert_eq!(pointer(&answer), at, "{relationships}: {}", answer.text);
    }
}

async fn answers_to_writes_have_the_asked_fields(world: World) {
    let query = "fields[chat_conversation]=title,workspace&include=workspace&fields[workspace]=name";
    let path = format!("{CONVERSATIONS}?{query}");
    let made = world.send(world.with_body(Method::POST, &path, creation(&json!({ "title": "t" })))).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let id = id_of(&made.body["data"]);
    let path = format!("{}?{query}", item(&id));
    let changed =
        world.send(world.with_body(Method::PATCH, &path, change(&id, &json!({ "title": "t" })))).await;
    world.delete(&id).await;
    let path = format!("{}/restore?{query}", item(&id));
    let restored = world.send(world.request(Method::POST, &path)).await;
    for answer in [made, changed, restored] {
        assert_eq!(answer.body["data"]["attributes"], json!({ "title": "t" }), "{}", answer.text);
        assert_eq!(answer.body["included"][0]["attributes"], json!({ "name": "ann's" }), "{}", answer.text);
        assert_eq!(answer.body["included"][0]["id"], world.workspace.to_string());
    }
}
