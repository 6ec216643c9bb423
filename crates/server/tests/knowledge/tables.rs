//! `/v1/tables` and their rows: made, read, changed, removed, found; refused row by row where they do not fit.

use serde_json::{Value, json};
use testkit::server::Backend;

use crate::world::{World, refused, stories, text};

stories!(
    a_table_from_its_making_to_its_end,
    what_a_table_may_not_be,
    columns_can_be_added_and_nothing_else,
    rows_from_their_making_to_their_end,
    rows_that_do_not_fit_are_told_and_none_is_stored,
    a_table_is_its_workspaces,
);

const COLUMNS: [&str; 4] = ["name:text", "age:number", "member:boolean", "since:date"];

async fn a_table_from_its_making_to_its_end(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let columns = json!([{ "name": "name", "type": "text" }, { "name": "age", "type": "number" }]);
    let table = world.made("/v1/tables", &json!({ "name": "Leads", "columns": columns })).await;
    assert_eq!(
        (&table["name"], &table["columns"], &table["row_count"]),
        (&json!("Leads"), &columns, &json!(0))
    );
    let path = format!("/v1/tables/{}", text(&table["id"]));
    assert_eq!(world.get(&path).await.body, table);
    assert_eq!(world.get("/v1/tables").await.body, json!({ "data": [table], "next": null }));
    world.made(&format!("{path}/rows"), &json!({ "rows": [{ "name": "Ada" }, { "name": "Bob" }] })).await;
    assert_eq!(world.get(&path).await.body["row_count"], 2);
    let renamed = world.put(&path, &json!({ "name": "Customers" })).await;
    assert_eq!(
        (&renamed.body["name"], &renamed.body["row_count"], &renamed.body["columns"]),
        (&json!("Customers"), &json!(2), &columns)
    );
    assert_eq!(world.delete(&path).await.status, 204);
    for path in [path.clone(), format!("{path}/rows"), format!("{path}/export")] {
        refused(&world.get(&path).await, 404, "not_found");
    }
    refused(&world.delete(&path).await, 404, "not_found");
    refused(&world.put(&path, &json!({ "name": "Back" })).await, 404, "not_found");
    Some(())
}

async fn what_a_table_may_not_be(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let column = |name: &str, kind: &str| json!({ "name": name, "type": kind });
    let good = json!([column("a", "text")]);
    let many: Vec<Value> = (0..101).map(|n| column(&format!("c{n}"), "text")).collect();
    for (body, status, code, pointer) in [
        (json!({ "columns": good }), 422, "invalid_value", json!("/name")),
        (json!({ "name": "t" }), 422, "invalid_value", json!("/columns")),
        (json!({ "name": "", "columns": good }), 422, "invalid_value", json!("/name")),
        (json!({ "name": "t", "columns": [] }), 422, "invalid_value", json!("/columns")),
        (json!({ "name": "t", "columns": many }), 422, "invalid_value", json!("/columns")),
        (
            json!({ "name": "t", "columns": [column("a", "money")] }),
            422,
            "invalid_value",
            json!("/columns/0/type"),
        ),
        (
            json!({ "name": "t", "columns": [{ "name": "a" }] }),
            422,
            "invalid_value",
            json!("/columns/0/type"),
        ),
        (
            json!({ "name": "t", "columns": [column("_a", "text")] }),
            422,
            "invalid_value",
            json!("/columns/0/name"),
        ),
        (
            json!({ "name": "t", "columns": [column("a", "text"), column("a", "date")] }),
            422,
            "invalid_value",
            json!("/columns/1/name"),
        ),
        (
            json!({ "name": "t", "columns": [{ "name": "a", "type": "text", "width": 3 }] }),
            400,
            "unknown_field",
            json!("/columns/0/width"),
        ),
        (json!({ "name": "t", "columns": good, "rows": [] }), 400, "unknown_field", json!("/rows")),
    ] {
        let answer = world.post("/v1/tables", &body).await;
        refused(&answer, status, code);
        assert_eq!(answer.body["source"]["pointer"], pointer, "{}", answer.text);
    }
    assert_eq!(world.get("/v1/tables").await.body, json!({ "data": [], "next": null }));
    Some(())
}

async fn columns_can_be_added_and_nothing_else(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let table = world.table("T", &["a:text", "b:number"]).await;
    world.made(&format!("{table}/rows"), &json!({ "rows": [{ "a": "x", "b": 1 }] })).await;
    let column = |name: &str, kind: &str| json!({ "name": name, "type": kind });
    let wider = json!({ "columns": [column("c", "date"), column("b", "number"), column("a", "text")] });
    let changed = world.put(&table, &wider).await;
    assert_eq!(changed.status, 200, "{}", changed.text);
    let names: Vec<&str> =
        changed.body["columns"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "b", "c"], "those that were there stay where they are");
    world.made(&format!("{table}/rows"), &json!({ "rows": [{ "c": "2026-05-14" }] })).await;
    assert_eq!(
        world.rows(&table).await,
        [json!({ "a": "x", "b": 1, "c": null }), json!({ "a": null, "b": null, "c": "2026-05-14" })]
    );
    for columns in [
        json!([column("a", "text")]),
        json!([column("a", "number"), column("b", "number"), column("c", "date")]),
        json!([]),
    ] {
        let answer = world.put(&table, &json!({ "name": "No", "columns": columns })).await;
        refused(&answer, 422, "invalid_value");
    }
    assert_eq!(world.get(&table).await.body["name"], "T");
    Some(())
}

async fn rows_from_their_making_to_their_end(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let table = world.table("Leads", &COLUMNS).await;
    let ada = json!({ "name": "Ada", "age": 36.50, "member": true, "since": "2026-05-14" });
    let bob = json!({ "name": "Bøb \"x\"", "age": null });
    let added = world.made(&format!("{table}/rows"), &json!({ "rows": [ada, bob] })).await;
    assert_eq!(added["inserted"], 2);
    let first = &added["rows"][0];
    let path = format!("{table}/rows/{}", text(&first["_id"]));
    assert_eq!(&world.get(&path).await.body, first);
    let bob = json!({ "name": "Bøb \"x\"", "age": null, "member": null, "since": null });
    assert_eq!(world.rows(&table).await, [ada.clone(), bob]);
    let listed = world.get(&format!("{table}/rows?limit=1")).await;
    assert!(listed.body["next"].is_string() && listed.body["data"][0] == *first);
    // A number comes back as it was spelled.
    let big = r#"{"rows":[{"age":12345678901234567890.10}]}"#;
    let request = world.request(reqwest::Method::POST, &format!("{table}/rows"));
    let kept = crate::world::ask(request.header("content-type", "application/json").body(big)).await;
    assert!(kept.text.contains("12345678901234567890.10"), "{}", kept.text);
    // What was read can be sent back; what is left out becomes null.
    assert_eq!(world.put(&path, first).await.body, *first);
    let changed = world.put(&path, &json!({ "name": "Ada Lovelace" })).await;
    assert_eq!((&changed.body["name"], &changed.body["age"]), (&json!("Ada Lovelace"), &Value::Null));
    for (query, count) in [("lovel", 1), ("bob", 1), ("bøb", 1), ("36", 0), ("12345678901234567890", 1)] {
        let found = world.get(&format!("{table}/rows?query={query}")).await;
        assert_eq!(found.body["data"].as_array().unwrap().len(), count, "{query}: {}", found.text);
    }
    assert_eq!(world.delete(&path).await.status, 204);
    refused(&world.delete(&path).await, 404, "not_found");
    refused(&world.get(&path).await, 404, "not_found");
    refused(&world.put(&path, &json!({})).await, 404, "not_found");
    assert_eq!(world.get(&table).await.body["row_count"], 2);
    Some(())
}

async fn rows_that_do_not_fit_are_told_and_none_is_stored(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let table = world.table("Leads", &COLUMNS).await;
    let rows = json!({ "rows": [
        { "name": "Ada" }, { "name": 1, "age": "2" }, { "size": 3 }, { "member": "yes", "since": "14.5.2026" }, []
    ] });
    let answer = world.post(&format!("{table}/rows"), &rows).await;
    refused(&answer, 422, "invalid_rows");
    let told: Vec<(u64, Option<&str>)> = answer.body["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|error| (error["row"].as_u64().unwrap(), error["column"].as_str()))
        .collect();
    let expected = [
        (2, Some("age")),
        (2, Some("name")),
        (3, Some("size")),
        (4, Some("member")),
        (4, Some("since")),
        (5, None),
    ];
    assert_eq!(told, expected, "{}", answer.text);
    assert_eq!((&answer.body["error_count"], &answer.body["imported"]), (&json!(6), &json!(0)));
    let long = json!({ "rows": [{ "name": "x".repeat(32_001) }] });
    refused(&world.post(&format!("{table}/rows"), &long).await, 422, "invalid_rows");
    for body in [json!({ "rows": [] }), json!({ "rows": {} }), json!({})] {
        refused(&world.post(&format!("{table}/rows"), &body).await, 422, "invalid_value");
    }
    let many = json!({ "rows": vec![json!({}); 10_001] });
    refused(&world.post(&format!("{table}/rows"), &many).await, 422, "invalid_value");
    assert!(world.rows(&table).await.is_empty());
    Some(())
}

async fn a_table_is_its_workspaces(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let (member, stranger) = (world.member().await, world.stranger().await);
    let table = world.table("Secret", &["a:text"]).await;
    let added = member.made(&format!("{table}/rows"), &json!({ "rows": [{ "a": "ours" }] })).await;
    let row = format!("{table}/rows/{}", text(&added["rows"][0]["_id"]));
    let theirs = stranger.table("Theirs", &["a:text"]).await;
    // Their own table's path does not open our row.
    let crossed = row.replace(&table, &theirs);
    for path in [&table, &row, &crossed, &format!("{table}/rows"), &format!("{table}/export")] {
        refused(&stranger.get(path).await, 404, "not_found");
    }
    for path in [&table, &row, &crossed] {
        refused(&stranger.put(path, &json!({})).await, 404, "not_found");
        refused(&stranger.delete(path).await, 404, "not_found");
    }
    refused(
        &stranger.post(&format!("{table}/rows"), &json!({ "rows": [{ "a": "x" }] })).await,
        404,
        "not_found",
    );
    refused(&stranger.import(&table, "text/csv", "a\nx\n").await, 404, "not_found");
    assert_eq!(world.rows(&table).await, [json!({ "a": "ours" })]);
    assert_eq!(member.delete(&row).await.status, 204);
    assert_eq!(member.delete(&table).await.status, 204);
    Some(())
}
