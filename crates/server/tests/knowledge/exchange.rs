//! Tables in and out: what is exported is imported as it was, and a file with anything wrong in it leaves nothing.

use bytes::Bytes;
use futures_util::stream;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use testkit::form::Form;
use testkit::server::Backend;

use crate::world::{World, refused, stories};

stories!(
    what_is_exported_is_imported_as_it_was,
    files_as_the_world_writes_them,
    a_file_with_bad_rows_is_told_row_by_row_and_leaves_nothing,
    hostile_files_are_refused,
    a_spreadsheet_finds_no_formula,
    a_large_file_comes_and_goes_in_pieces,
    a_file_that_breaks_off_leaves_nothing,
);

const COLUMNS: [&str; 4] = ["name:text", "n:number", "ok:boolean", "on:date"];
const FORMATS: [(&str, &str); 3] =
    [("csv", "text/csv"), ("json", "application/json"), ("ndjson", "application/x-ndjson")];

fn any_row() -> impl Strategy<Value = Value> {
    let text = prop_oneof!["[=+@',\"\r\n\t é\u{feff}-]{0,6}", "\\PC{0,12}"];
    let name = prop_oneof![1 => Just(Value::Null), 4 => text.prop_map(Value::from)];
    let n = prop_oneof![
        Just(Value::Null),
        any::<i64>().prop_map(Value::from),
        // Such that reading it as a float changes nothing.
        any::<i32>().prop_map(|n| json!(f64::from(n) / 8.0))
    ];
    let ok = prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from)];
    let on = prop_oneof![
        Just(Value::Null),
        (1..29_u32, 1..13_u32).prop_map(|(day, month)| json!(format!("2026-{month:02}-{day:02}"))),
    ];
    (name, n, ok, on).prop_map(|(name, n, ok, on)| json!({ "name": name, "n": n, "ok": ok, "on": on }))
}

/// Tells the first row that is not the same.
#[track_caller]
fn same(found: &[Value], wanted: &[Value]) {
    assert_eq!(found.iter().zip(wanted).find(|(found, wanted)| found != wanted), None);
    assert_eq!(found.len(), wanted.len());
}

async fn what_is_exported_is_imported_as_it_was(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let mut runner = TestRunner::deterministic();
    let rows = prop::collection::vec(any_row(), 700).new_tree(&mut runner).unwrap().current();
    let from = world.table("From", &COLUMNS).await;
    world.made(&format!("{from}/rows"), &json!({ "rows": rows })).await;
    same(&world.rows(&from).await, &rows);
    for (format, kind) in FORMATS {
        let file = world.get(&format!("{from}/export?format={format}")).await;
        assert_eq!(file.status, 200);
        assert!(file.header("content-type").starts_with(kind), "{}", file.header("content-type"));
        assert!(file.header("content-disposition").contains(&format!("From.{format}")));
        let to = world.table("To", &COLUMNS).await;
        let imported = world.import(&to, kind, file.text.clone()).await;
        assert_eq!(imported.body, json!({ "imported": 700, "errors": [] }), "{format}");
        same(&world.rows(&to).await, &rows);
        assert_eq!(world.get(&to).await.body["row_count"], 700);
        assert_eq!(world.get(&format!("{to}/export?format={format}")).await.text, file.text);
        // An empty table, too.
        let empty = world.table("Empty", &COLUMNS).await;
        let file = world.get(&format!("{empty}/export?format={format}")).await;
        assert_eq!(world.import(&empty, kind, file.text).await.body["imported"], 0, "{format}");
    }
    refused(&world.get(&format!("{from}/export?format=xls")).await, 400, "invalid_parameter");
    refused(&world.get(&format!("{from}/export?rows=1")).await, 400, "unknown_parameter");
    let default = world.get(&format!("{from}/export")).await;
    assert!(default.text.starts_with("name,n,ok,on\r\n"));
    Some(())
}

async fn files_as_the_world_writes_them(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let ada = json!({ "name": "Ada", "n": 36, "ok": true, "on": "2026-05-14" });
    let form = |name: &str, file: &str| Form::of(name, file.as_bytes()).end();
    for (kind, file) in [
        ("text/csv", b"name,n,ok,on\nAda,36,true,2026-05-14".to_vec()),
        ("text/csv; charset=utf-8", "\u{feff}on,ok,n,name\r\n2026-05-14,Yes,36,Ada\r\n\r\n".into()),
        ("application/json", br#"[{"name":"Ada","n":36,"ok":true,"on":"2026-05-14"}]"#.to_vec()),
        ("application/json", b"{\"name\":\"Ada\",\"n\":36,\n\"ok\":true,\"on\":\"2026-05-14\"}\n".to_vec()),
        ("application/json", br#"{"rows":[{"name":"Ada","n":36,"ok":true,"on":"2026-05-14"}]}"#.to_vec()),
        ("application/x-ndjson", b"\n{\"name\":\"Ada\",\"n\":36,\"ok\":true,\"on\":\"2026-05-14\"}".to_vec()),
        (&Form::kind(), form("people.CSV", "name,n,ok,on\nAda,36,1,2026-05-14\n")),
        (
            &Form::kind(),
            form("people.jsonl", "{\"name\":\"Ada\",\"n\":36,\"ok\":true,\"on\":\"2026-05-14\"}"),
        ),
    ] {
        let table = world.table("People", &COLUMNS).await;
        let imported = world.import(&table, kind, file).await;
        assert_eq!(
            (imported.status, &imported.body["imported"]),
            (200, &json!(1)),
            "{kind}: {}",
            imported.text
        );
        assert_eq!(world.rows(&table).await, std::slice::from_ref(&ada), "{kind}");
        let found = world.get(&format!("{table}/rows?query=ada")).await;
        assert_eq!(found.body["data"].as_array().unwrap().len(), 1);
    }
    let table = world.table("People", &COLUMNS).await;
    for (kind, file, status, code) in [
        ("text/plain", b"name\nAda\n".to_vec(), 415, "unsupported_media_type"),
        (&*Form::kind(), form("people.xlsx", "x"), 415, "unsupported_media_type"),
        (&*Form::kind(), Form::new().end(), 400, "malformed_document"),
        (&*Form::kind(), Form::new().field("a", "b").end(), 400, "malformed_document"),
        (
            &*Form::kind(),
            Form::of("a.csv", b"name\na\n").file("b.csv", b"name\nb\n").end(),
            400,
            "malformed_document",
        ),
    ] {
        refused(&world.import(&table, kind, file).await, status, code);
    }
    assert!(world.rows(&table).await.is_empty());
    Some(())
}

async fn a_file_with_bad_rows_is_told_row_by_row_and_leaves_nothing(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let table = world.table("People", &COLUMNS).await;
    world.made(&format!("{table}/rows"), &json!({ "rows": [{ "name": "before" }] })).await;
    let good = "word,1,true,2026-05-14\n".repeat(1500);
    let file = format!("name,n,ok,on\n{good}Bad,x,maybe,never\n{good}short,1\n");
    let answer = world.import(&table, "text/csv", file).await;
    refused(&answer, 422, "invalid_rows");
    let told: Vec<Value> = answer.body["errors"].as_array().unwrap().clone();
    let at = |row: u64, column: &str| (json!(row), json!(column));
    let places: Vec<(Value, Value)> =
        told.iter().map(|error| (error["row"].clone(), error["column"].clone())).collect();
    assert_eq!(places, [at(1501, "n"), at(1501, "ok"), at(1501, "on"), (json!(3002), Value::Null)]);
    assert!(answer.body["detail"].as_str().unwrap().contains("row 1501, column \"n\""), "{}", answer.text);
    // All of them are counted, the first hundred are told.
    let many = format!("n\n{}", "x\n".repeat(250));
    let answer = world.import(&table, "text/csv", many).await;
    assert_eq!(answer.body["errors"].as_array().unwrap().len(), 100);
    assert_eq!(answer.body["error_count"], 250);
    let json = r#"[{"name":"a"},{"name":2},{"nme":"c"}]"#;
    let answer = world.import(&table, "application/json", json).await;
    assert_eq!(answer.body["errors"].as_array().unwrap().len(), 2, "{}", answer.text);
    assert_eq!(world.rows(&table).await.len(), 1);
    assert!(world.get(&format!("{table}/rows?query=word")).await.body["data"].as_array().unwrap().is_empty());
    assert_eq!(world.get(&table).await.body["row_count"], 1);
    Some(())
}

async fn hostile_files_are_refused(backend: Backend) -> Option<()> {
    let world = World::start_with(backend, |config| config.limits.max_file_bytes = 3 << 20).await?;
    let table = world.table("People", &COLUMNS).await;
    let deep = format!("[{{\"name\":{}1{}}}]", "[".repeat(10_000), "]".repeat(10_000));
    for (kind, file) in [
        ("text/csv", Vec::new()),
        ("text/csv", b"\n\n\n".to_vec()),
        ("text/csv", b"name\n\"open\n".to_vec()),
        ("text/csv", b"name\n\"a\"b\n".to_vec()),
        ("text/csv", b"name\na\0b\n".to_vec()),
        ("text/csv", b"name\n\xff\xfe\n".to_vec()),
        ("text/csv", b"_id\nx\n".to_vec()),
        ("text/csv", b"name,name\na,b\n".to_vec()),
        ("text/csv", [b"name\n\"", "a".repeat(2 << 20).as_bytes()].concat()),
        ("text/csv", b"\xff\xfen\0a\0m\0e\0".to_vec()),
        ("application/json", Vec::new()),
        ("application/json", b"[".to_vec()),
        ("application/json", b"[{\"name\":\"a\"}".to_vec()),
        ("application/json", b"[[]]".to_vec()),
        ("application/json", b"null".to_vec()),
        ("application/json", b"[{\"name\":\"\\u0000\"}]".to_vec()),
        ("application/json", b"[{\"name\":\"\\ud800\"}]".to_vec()),
        ("application/json", b"[{\"name\":\"a\",\"name\":\"b\"}]".to_vec()),
        ("application/json", b"[{\"n\":1e999}]".to_vec()),
        ("application/json", deep.into_bytes()),
        ("application/x-ndjson", [b"{\"name\":\"", "a".repeat(2 << 20).as_bytes()].concat()),
    ] {
        let shown = String::from_utf8_lossy(&file[..file.len().min(40)]).into_owned();
        let answer = world.import(&table, kind, file).await;
        assert_eq!(
            (answer.status, &answer.body["code"]),
            (422, &json!("invalid_rows")),
            "{shown}: {}",
            answer.text
        );
        assert!(answer.body["error_count"].as_u64().unwrap() >= 1, "{shown}");
    }
    let large = format!("name\n{}", "a\n".repeat(2 << 20));
    refused(&world.import(&table, "text/csv", large).await, 413, "file_too_large");
    assert!(world.rows(&table).await.is_empty());
    Some(())
}

async fn a_spreadsheet_finds_no_formula(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let table = world.table("People", &["=cmd:text", "n:number"]).await;
    let hostile = ["=HYPERLINK(\"http://x\")", "+1", "-1+1", "@SUM(A1)", "\t=1", "'=1", "\r\n=1"];
    let rows: Vec<Value> = hostile.iter().map(|cell| json!({ "=cmd": cell, "n": -1 })).collect();
    world.made(&format!("{table}/rows"), &json!({ "rows": rows })).await;
    let file = world.get(&format!("{table}/export")).await.text;
    // A record begins with its text, bare or quoted.
    for record in file.split_inclusive(",-1\r\n") {
        let cell = record.trim_start_matches("'=cmd,n\r\n").trim_start_matches('"');
        assert!(cell.starts_with('\''), "{record:?}");
    }
    let to = world.table("People", &["=cmd:text", "n:number"]).await;
    assert_eq!(world.import(&to, "text/csv", file).await.body["imported"], hostile.len());
    assert_eq!(world.rows(&to).await, rows);
    Some(())
}

async fn a_large_file_comes_and_goes_in_pieces(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let table = world.table("People", &["name:text", "n:number"]).await;
    let count = 4000;
    let mut pieces = vec![Bytes::from_static(b"name,n\n")];
    for chunk in 0..count / 100 {
        let rows = (0..100).map(|n| format!("\"person, {}\",{n}\n", chunk * 100 + n)).collect::<String>();
        // Cut anywhere: in the middle of a quoted cell.
        let (head, tail) = rows.split_at(rows.len() / 2 + 3);
        pieces.extend([Bytes::from(head.to_owned()), Bytes::from(tail.to_owned())]);
    }
    let body = reqwest::Body::wrap_stream(stream::iter(pieces.into_iter().map(Ok::<_, std::io::Error>)));
    let imported = world.import(&table, "text/csv", body).await;
    assert_eq!(imported.body, json!({ "imported": count, "errors": [] }), "{}", imported.text);
    let file = world.get(&format!("{table}/export?format=ndjson")).await.text;
    assert_eq!(file.lines().count(), count);
    let last: Value = serde_json::from_str(file.lines().last().unwrap()).unwrap();
    assert_eq!(last, json!({ "name": format!("person, {}", count - 1), "n": 99 }));
    Some(())
}

async fn a_file_that_breaks_off_leaves_nothing(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let table = world.table("People", &["name:text"]).await;
    let pieces = vec![
        Ok(Bytes::from(format!("name\n{}", "word\n".repeat(3000)))),
        Err(std::io::Error::other("the sender is gone")),
    ];
    let request = world.request(reqwest::Method::POST, &format!("{table}/import"));
    let body = reqwest::Body::wrap_stream(stream::iter(pieces));
    assert!(request.header("content-type", "text/csv").body(body).send().await.is_err());
    assert!(world.rows(&table).await.is_empty());
    // The table is as good as new.
    assert_eq!(world.import(&table, "text/csv", "name\nAda\n").await.body["imported"], 1);
    assert_eq!(world.rows(&table).await, [json!({ "name": "Ada" })]);
    assert_eq!(world.delete(&table).await.status, 204);
    Some(())
}
