//! Who writes what, and what a value may be: a table row for each refusal, with its status and its pointer.
//! A refused write changes nothing.

use reqwest::Method;
use serde_json::{Value, json};

use crate::world::{World, change, code, creation, detail, id_of, item, pointer, stories};

stories!(
    the_system_writes_its_attributes_alone,
    unknown_attributes_are_named,
    bad_values_are_pointed_at,
    every_mistake_is_told_at_once,
);

const SYSTEM: &[(&str, &str)] = &[
    ("total_tokens", "5"),
    ("messages", "[]"),
    ("deleted_at", "null"),
    ("created_at", "\"2026-05-14T09:12:30.000Z\""),
    ("updated_at", "\"2026-05-14T09:12:30.000Z\""),
    ("kind", "\"model_chat\""),
    ("workflow_id", "\"w\""),
    ("user_id", "\"ann\""),
    ("org_id", "\"acme\""),
    ("preview", "\"p\""),
    ("message_count", "0"),
    ("conversation_id", "null"),
];

/// Sends one attribute as it is, to a create and to an update.
async fn try_both(world: &World, id: &str, attributes: &str) -> [testkit::server::Answer; 2] {
    let creation = creation(&json!("HERE")).replace("\"HERE\"", attributes);
    let change = change(id, &json!("HERE")).replace("\"HERE\"", attributes);
    [world.post(creation).await, world.send(world.with_body(Method::PATCH, &item(id), change)).await]
}

async fn the_system_writes_its_attributes_alone(world: World) {
    let id = id_of(&world.create(json!({ "source": "web" })).await);
    let before = world.everything().await;
    for (name, value) in SYSTEM {
        for answer in try_both(&world, &id, &format!(r#"{{"title":"x","{name}":{value}}}"#)).await {
            assert_eq!((answer.status, code(&answer)), (403, "read_only_field"), "{name}: {}", answer.text);
            assert_eq!(pointer(&answer), format!("/data/attributes/{name}"));
            assert!(detail(&answer).contains(name), "{}", answer.text);
        }
    }
    for (name, value) in [
        ("source", json!("extension")),
        ("source", json!("web")),
        ("source", json!(null)),
        ("thread_id", json!("44444444-4444-4444-8444-444444444444")),
        ("thread_id", json!(null)),
    ] {
        let answer = world.patch(&id, &json!({ "title": "x", name: value })).await;
        assert_eq!((answer.status, code(&answer)), (403, "read_only_field"), "{name}: {}", answer.text);
        assert_eq!(pointer(&answer), format!("/data/attributes/{name}"));
    }
    assert_eq!(world.everything().await, before);
}

async fn unknown_attributes_are_named(world: World) {
    let id = id_of(&world.create(json!({})).await);
    let before = world.everything().await;
    for name in ["titel", "Title", "type", "id", "pk", "workspace", "context_", "a/b", "été"] {
        for answer in try_both(&world, &id, &json!({ "title": "x", name: 1 }).to_string()).await {
            assert_eq!((answer.status, code(&answer)), (400, "unknown_field"), "{name}: {}", answer.text);
            assert_eq!(pointer(&answer), format!("/data/attributes/{}", name.replace('/', "~1")));
            assert!(detail(&answer).contains(name), "{}", answer.text);
        }
    }
    assert_eq!(world.everything().await, before);
}

fn bad_values() -> Vec<(&'static str, Value, &'static str)> {
    let long = |n: usize| json!("é".repeat(n));
    let mut rows = vec![
        ("title", long(256), "title"),
        ("title", json!("line\nbreak"), "title"),
        ("mode", json!("chat"), "mode"),
        ("mode", json!("Ask"), "mode"),
        ("mode", json!(""), "mode"),
        ("page_path", long(513), "page_path"),
        ("model", long(256), "model"),
        ("agent_id", long(256), "agent_id"),
        ("agent_id", json!("0190a1b2-0000-7000-8000-000000000009"), "agent_id"),
        ("visibility", json!("public"), "visibility"),
        ("visibility", json!(null), "visibility"),
        ("active_tab_key", long(65), "active_tab_key"),
        ("active_tab_key", json!("nowhere"), "active_tab_key"),
        ("active_tab_key", json!(""), "active_tab_key"),
        ("tabs", json!(null), "tabs"),
        ("tabs", json!({}), "tabs"),
        ("tabs", json!("x"), "tabs"),
        ("context", json!([]), "context"),
        ("context", json!("{}"), "context"),
        ("context", json!(1), "context"),
    ];
    for wrong in [json!(5), json!(true), json!([]), json!({})] {
        for name in ["title", "mode", "page_path", "model", "agent_id", "active_tab_key", "visibility"] {
            rows.push((name, wrong.clone(), name));
        }
    }
    let context = [
        ("root", json!(1), "context/root"),
        ("lastGqlQuery", json!({}), "context/lastGqlQuery"),
        ("columns", json!("id"), "context/columns"),
        ("columns", json!(["id", 1]), "context/columns"),
        ("rowCount", json!("7"), "context/rowCount"),
        ("rowCount", json!(-1), "context/rowCount"),
        ("rowCount", json!(1.5), "context/rowCount"),
        ("sampleRow", json!([]), "context/sampleRow"),
        ("whereClause", json!("x"), "context/whereClause"),
        ("orderBy", json!(1), "context/orderBy"),
        ("fields", json!({}), "context/fields"),
        ("selectionType", json!("all"), "context/selectionType"),
        ("selectionType", json!(["rows"]), "context/selectionType"),
        ("selectedCells", json!("x"), "context/selectedCells"),
        ("selectedColumns", json!("x"), "context/selectedColumns"),
        ("documentAnalysisSummary", json!([]), "context/documentAnalysisSummary"),
        ("gcsPath", json!(7), "context/gcsPath"),
    ];
    rows.extend(context.map(|(name, value, at)| ("context", json!({ name: value }), at)));
    rows
}

async fn bad_values_are_pointed_at(world: World) {
    let id = id_of(&world.create(json!({ "title": "kept" })).await);
    let before = world.everything().await;
    for (name, value, at) in bad_values() {
        for answer in try_both(&world, &id, &json!({ name: value }).to_string()).await {
            assert_eq!(answer.status, 422, "{name} = {value}: {}", answer.text);
            assert_eq!(
                pointer(&answer),
                format!("/data/attributes/{at}"),
                "{name} = {value}: {}",
                answer.text
            );
            assert_eq!(code(&answer), "invalid_value");
        }
    }
    for value in [json!("mobile"), json!("WEB"), json!(1), json!([])] {
        let answer = world.post(creation(&json!({ "source": value }))).await;
        assert_eq!((answer.status, pointer(&answer)), (422, "/data/attributes/source"), "{value}");
    }
    assert_eq!(world.everything().await, before);
    // What is not a documented field of the context is the client's own, and each of them may be null.
    for context in [
        json!({ "mine": { "selectionType": 9 }, "queryResult": [1] }),
        json!({ "queryResult": "text", "orderBy": [{ "field": "a" }], "selectedCells": [{ "row": 1 }] }),
        json!({ "root": null, "columns": null, "rowCount": null, "selectionType": null, "gcsPath": null }),
        json!({ "selectedCells": { "row": 1 }, "selectedColumns": { "id": true } }),
        json!({ "selectedColumns": ["id"], "documentAnalysisSummary": { "pages": 3 } }),
        json!({ "selectionType": "cells" }),
        json!({ "selectionType": "rows" }),
        json!({ "selectionType": "columns" }),
        json!({ "selectionType": "none" }),
    ] {
        assert_eq!(world.create(json!({ "context": context })).await["attributes"]["context"], context);
    }
}

async fn every_mistake_is_told_at_once(world: World) {
    let bad = json!({ "title": 1, "mode": "x", "context": { "root": 1, "gcsPath": 2 }, "visibility": "y" });
    let answer = world.post(creation(&bad)).await;
    let mut found: Vec<&str> = answer.body["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|error| error["source"]["pointer"].as_str().unwrap().trim_start_matches("/data/attributes/"))
        .collect();
    found.sort_unstable();
    assert_eq!(found, ["context/gcsPath", "context/root", "mode", "title", "visibility"]);
    assert_eq!(answer.status, 422);
    // Different kinds of mistakes share the general status.
    let answer = world.post(creation(&json!({ "title": 1, "total_tokens": 1 }))).await;
    assert_eq!((answer.status, answer.body["errors"].as_array().unwrap().len()), (400, 2));
    assert_eq!(world.list("").await["data"], json!([]));
}
