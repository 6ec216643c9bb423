//! What goes out comes in again: export, import into an empty store, export is the same to the byte.

use reqwest::Method;
use serde_json::json;
use testkit::form::Form;
use testkit::sandbox::{Action, ScriptedSandbox};
use testkit::server::Answer;

use crate::house::{CONVERSATIONS, Caller, House};

fn sandbox_lines() -> Vec<Action> {
    let lines = [
        json!({ "type": "log", "level": "info", "message": "secret log" }),
        json!({ "type": "step", "id": "s1", "name": "recipes/a.sh", "status": "running", "args": { "z": 1.50, "a": null } }),
        json!({ "type": "step", "id": "s1", "name": "recipes/a.sh", "status": "succeeded", "result": [1, "ü"], "durationMs": 12.5 }),
        json!({ "type": "step", "id": "s2", "name": "b", "status": "running" }),
        json!({ "type": "result", "message": "Done: ✓\n\nzweite Zeile" }),
    ];
    let headers = Action::Headers("200 OK", Vec::new());
    std::iter::once(headers).chain(lines.into_iter().map(Action::Line)).collect()
}

/// A workspace with some of everything, made as clients make it.
async fn fill(caller: &Caller) {
    let agent = json!({ "name": "Helper", "instructions": "Be kind.", "tools": ["search_pages", { "mcp": "docs", "allow": ["find"] }], "approval": ["x"], "max_rounds": 2 });
    let agent = caller.send(Method::POST, "/v1/agents", &agent).await["id"].clone();
    caller.upload("/v1/files", "kept for good.txt", b"forever").await;

    // Every attribute.
    let tabs = json!([{ "key": "invoices", "destinationId": "invoices", "subPath": "/a/b?c=1" },
        { "key": "3a9c1e2d-44b7-4f0e-8c6a-2b1d3e5f7a9c", "destinationId": "new_tab" }]);
    let context = json!({ "root": "invoices", "rowCount": 7, "mine": { "b": 1, "a": [null, "\u{1f600}"] } });
    let full = json!({ "title": "Größe \"und\" <b>", "mode": "ask", "source": "extension", "page_path": "/x",
        "tabs": tabs, "active_tab_key": "invoices", "context": context, "visibility": "workspace", "agent_id": agent });
    let full = caller.create(&full).await;
    let file = caller
        .upload(&format!("{CONVERSATIONS}/{full}/files"), "bild.png", &[0x89, b'P', b'N', b'G', 0, 255])
        .await;
    caller.upload(&format!("{CONVERSATIONS}/{full}/files"), "groß.bin", &vec![7; 600_000]).await;
    caller
        .turn(&json!({ "conversation": full, "message": "think 2 words look", "attachments": [file] }))
        .await;

    // Branches of branches, the current one not the newest, and a fork.
    let first = caller.turn(&json!({ "message": "think 3 words\n\u{0627}\u{0644}", "mode": "ask" })).await;
    let thread = first["conversation"].clone();
    let second = caller.turn(&json!({ "conversation": thread, "message": "think 2 words second" })).await;
    caller
        .turn(&json!({ "conversation": thread, "replace": second["message"], "message": "think 2 words second, better" }))
        .await;
    caller.turn(&json!({ "conversation": thread, "replace": second["message"] })).await;
    caller.turn(&json!({ "conversation": thread, "replace": first["message"], "message": "think 2 words all anew" })).await;
    let thread = thread.as_str().unwrap();
    let branches = caller.get(&format!("{CONVERSATIONS}/{thread}/branches")).await.body;
    let other = branches["data"][1]["id"].as_str().unwrap();
    caller.send(Method::POST, &format!("{CONVERSATIONS}/{thread}/branches/{other}/select"), &json!({})).await;
    let fork = json!({ "through": second["message"] });
    caller.send(Method::POST, &format!("{CONVERSATIONS}/{thread}/fork"), &fork).await;

    // A sandbox's steps, one of them never ended; and a run that failed.
    caller.turn(&json!({ "message": "work", "mode": "agent" })).await;
    caller.turn(&json!({ "message": "fail", "mode": "ask", "model": "openai/none" })).await;

    knowledge(caller).await;
    decided(caller).await;
    clients(caller).await;
    execution(caller).await;

    // Empty, and gone.
    caller.create(&json!({})).await;
    let gone = caller.create(&json!({ "title": "gone" })).await;
    let delete = caller.request(Method::DELETE, &format!("{CONVERSATIONS}/{gone}"));
    assert_eq!(delete.send().await.unwrap().status(), 204);
}

/// Pages, a table whose later columns its first rows lack, and the workspace's settings.
async fn knowledge(caller: &Caller) {
    let page = json!({ "title": "Straßen", "body": "# Ü\n\nblue whales", "url": "https://a.example/b?c" });
    caller.send(Method::POST, "/v1/pages", &page).await;
    caller.send(Method::POST, "/v1/pages", &json!({ "title": "empty", "body": "" })).await;
    let columns = json!([{ "name": "when", "type": "date" }, { "name": "how much", "type": "number" }]);
    let table = json!({ "name": "Kosten", "columns": columns });
    let table = caller.send(Method::POST, "/v1/tables", &table).await["id"].as_str().unwrap().to_owned();
    // Numbers keep their spelling: this is sent as text.
    let rows = r#"{"rows":[{"when":"2026-05-14","how much":1.50},{"how much":-1e3},{"when":null}]}"#;
    let rows: Box<serde_json::value::RawValue> = serde_json::from_str(rows).unwrap();
    let request = caller.request(Method::POST, &format!("/v1/tables/{table}/rows"));
    let request = request.header("content-type", "application/json").body(rows.get().to_owned());
    assert_eq!(request.send().await.unwrap().status(), 201);
    let wider = json!({ "columns": [columns[0], columns[1], { "name": "blue", "type": "boolean" }] });
    caller.send(Method::PUT, &format!("/v1/tables/{table}"), &wider).await;
    let many: Vec<_> = (0..1500).map(|n| json!({ "how much": n, "blue": n % 2 == 0 })).collect();
    for part in many.chunks(500) {
        caller.send(Method::POST, &format!("/v1/tables/{table}/rows"), &json!({ "rows": part })).await;
    }
    caller.send(Method::POST, "/v1/tables", &json!({ "name": "bare", "columns": columns })).await;
    let workspaces = caller.get("/v1/workspaces").await.body;
    let workspace = workspaces["data"][0]["id"].as_str().unwrap();
    let settings = json!({ "default_visibility": "workspace", "model": "demo/assistant" });
    caller.send(Method::PATCH, &format!("/v1/workspaces/{workspace}"), &settings).await;
}

/// Calls that a person decided on, each way, and one that nobody did.
async fn decided(caller: &Caller) {
    let agent = json!({ "name": "Asks", "tools": ["search_pages"], "approval": ["search_pages"] });
    let agent = caller.send(Method::POST, "/v1/agents", &agent).await["id"].clone();
    for approve in [Some(true), Some(false), None] {
        let turn = json!({ "message": "search whales", "mode": "ask", "agent": agent });
        let begun = caller.begin(&turn).await;
        let run = begun["run"].as_str().unwrap();
        let path = format!("/v1/runs/{run}/approvals");
        let waiting = caller.until(&path, |list| list["data"][0]["id"].is_string()).await;
        if let Some(approve) = approve {
            let decision = json!({ "id": waiting["data"][0]["id"], "approve": approve, "reason": "Grüße" });
            caller.send(Method::POST, &path, &decision).await;
        } else {
            caller.send(Method::POST, &format!("/v1/runs/{run}/cancel"), &json!({})).await;
        }
        caller.ended(run).await;
    }
}

/// What other people's clients keep: pairs of a conversation, a response that was taken out again.
async fn clients(caller: &Caller) {
    caller.send(Method::POST, "/v1/conversations", &json!({ "metadata": { "b": "1", "a": "ü" } })).await;
    let asked = json!({ "model": "demo/assistant", "input": "think 2 words", "metadata": { "k": "v" } });
    let id = caller.send(Method::POST, "/v1/responses", &asked).await["id"].clone();
    let path = format!("/v1/responses/{}", id.as_str().unwrap());
    assert_eq!(caller.request(Method::DELETE, &path).send().await.unwrap().status(), 200);
}

/// A run outside any conversation, with a file that it was given.
async fn execution(caller: &Caller) {
    let form = Form::of("given.txt", b"in").field("prompt", "count").end();
    let request = caller.request(Method::POST, "/v1/executions").header("content-type", Form::kind());
    let answer = Answer::read(request.body(form).send().await.unwrap()).await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text);
    let path = format!("/v1/executions/{}", answer.header("threadkeep-execution"));
    caller.until(&path, |execution| !execution["ended_at"].is_null()).await;
}

/// A house that was lived in.
async fn filled(house: &House) {
    let sandbox = ScriptedSandbox::start(sandbox_lines()).await.unwrap();
    let mut server = house.serve(&[("SANDBOX_URL", &sandbox.url())]).await;
    fill(&house.caller(&server)).await;
    server.terminate().await.unwrap();
}

/// Spellings that must be in the export of such a house, each for something that could be left out.
const PARTS: [&str; 14] = [
    r#"{"type":"workspace","default_visibility":"workspace","model":"demo/assistant"}"#,
    r##""body":"# Ü\n\nblue whales""##,
    r#""cells":["2026-05-14",1.50]"#,
    r#""cells":[null,1499,false]"#,
    r#""row_count":1503"#,
    r#""metadata":{"a":"ü","b":"1"}"#,
    r#""forgotten":true"#,
    r#""reason":"Grüße""#,
    r#""decision":null"#,
    r#"{"type":"execution","#,
    r#""name":"given.txt""#,
    r#""kind":"dispatch""#,
    "secret log",
    r#""echo":{"#,
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_imported_into_an_empty_store_exports_the_same_bytes() {
    for from in House::both().await {
        filled(&from).await;
        let lines = from.export().await;
        assert_eq!(lines, from.export().await, "the same store, the same bytes");
        assert!(!lines.contains("\"gone\""));
        for part in PARTS {
            assert!(lines.contains(part), "{part} is not there");
        }
        let count = |kind: &str| lines.lines().filter(|line| line.starts_with(kind)).count();
        let conversations = count("{\"type\":\"conversation\"") as u64;
        assert_eq!((conversations, count("{\"type\":\"rows\"")), (11, 2));
        let (file, zip, folder) = (from.write("all.jsonl", &lines), from.path("all.zip"), from.path("all"));
        let (zip, folder) = (zip.to_str().unwrap(), folder.to_str().unwrap());
        for path in [zip, folder] {
            let told = from.run(&["export", "-o", path, "--json"]).await;
            assert_eq!(told.json()["exported"]["conversations"], conversations, "{told:?}");
        }
        // Lines into the one database, a zip into the other, a folder into one that knows it all already.
        let mut houses = House::both().await;
        houses.reverse();
        for (at, source) in [&*file, zip, folder].into_iter().enumerate() {
            let to = &houses[at % houses.len()];
            let known = at >= houses.len();
            let dry = to.import(&[source, "--dry-run"]).await;
            let first = to.import(&[source]).await;
            assert_eq!(first["refused"], 0, "{first}");
            let came = if known { "already_there" } else { "imported" };
            let expected = json!({ "conversations": conversations, "messages": first[came]["messages"], "files": 4,
                "agents": 2, "pages": 2, "tables": 2, "executions": 1 });
            assert_eq!(first[came], expected, "{first}");
            assert_eq!(dry["would_import"], first["imported"], "{dry}");
            assert_eq!(to.export().await, lines, "{source}");
        }
        let again = houses[0].import(&[zip]).await;
        assert_eq!((&again["imported"]["conversations"], &again["refused"]), (&json!(0), &json!(0)));
        assert_eq!(houses[0].export().await, lines);
    }
}

/// An export whose logs were left out: each run is its answer then, told the same each time and resumed by its numbers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_without_its_log_is_resumed_by_the_numbers_of_its_replay() {
    let from = House::sqlite();
    let sandbox = ScriptedSandbox::start(sandbox_lines()).await.unwrap();
    let mut server = from.serve(&[("SANDBOX_URL", &sandbox.url())]).await;
    let caller = from.caller(&server);
    let run = caller.turn(&json!({ "message": "work", "mode": "agent" })).await["run"].clone();
    let failed = json!({ "message": "fail", "mode": "ask", "model": "openai/none" });
    let failed = caller.turn(&failed).await["run"].clone();
    execution(&caller).await;
    server.terminate().await.unwrap();
    let lines = from.export().await;
    let executed = lines.lines().find(|line| line.starts_with(r#"{"type":"execution""#)).unwrap();
    let executed: serde_json::Value = serde_json::from_str(executed).unwrap();
    let executed = executed["run"]["id"].clone();
    let stripped: Vec<&str> = lines.lines().filter(|line| !line.starts_with(r#"{"type":"trace""#)).collect();
    for to in House::both().await {
        to.import(&[&to.write("bare.jsonl", stripped.join("\n"))]).await;
        let mut server = to.serve(&[]).await;
        let caller = to.caller(&server);
        for (run, kinds) in [
            (&run, vec!["turn", "step", "step", "delta", "result", "done"]),
            (&failed, vec!["turn", "error", "done"]),
            (&executed, vec!["turn", "result", "done"]),
        ] {
            let path = format!("/v1/runs/{}", run.as_str().unwrap());
            let events = async |after: usize| {
                let text = caller.get(&format!("{path}/events?after={after}")).await.text;
                text.split_terminator("\n\n").map(str::to_owned).collect::<Vec<_>>()
            };
            let whole = events(0).await;
            let heads = whole.iter().map(|frame| frame.lines().take(2).collect::<Vec<_>>().join(" "));
            let expected = (1..).zip(&kinds).map(|(seq, kind)| format!("id: {seq} event: {kind}"));
            assert_eq!(heads.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
            assert_eq!(caller.get(&path).await.body["last_event"], whole.len());
            for after in 1..=whole.len() {
                assert_eq!(events(after).await, whole[after..], "{after}");
            }
        }
        server.terminate().await.unwrap();
    }
}

/// A log that cannot be read is all that is left out: its run is its answer then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_log_is_left_out() {
    let from = House::sqlite();
    let mut server = from.serve(&[]).await;
    let caller = from.caller(&server);
    let damaged = caller.turn(&json!({ "message": "one", "mode": "ask" })).await["run"].clone();
    let whole = caller.turn(&json!({ "message": "two", "mode": "ask" })).await["run"].clone();
    server.terminate().await.unwrap();
    from.damage_log(&damaged);
    let lines = from.export().await;
    let traces = lines.lines().filter(|line| line.starts_with(r#"{"type":"trace""#));
    let traces: Vec<serde_json::Value> = traces.map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(traces.iter().map(|trace| &trace["run"]).collect::<Vec<_>>(), [&whole]);
    let to = House::sqlite();
    assert_eq!(to.import(&[&to.write("all.jsonl", lines)]).await["refused"], 0);
    let mut server = to.serve(&[]).await;
    let caller = to.caller(&server);
    for run in [&damaged, &whole] {
        let told = caller.get(&format!("/v1/runs/{}/events", run.as_str().unwrap())).await.text;
        assert!(told.contains("event: result") && told.contains(r#"data: {"status":"succeeded"}"#), "{told}");
    }
    server.terminate().await.unwrap();
}

/// Threads of so many megabytes of one letter, as Claude's export tells of them: from one message on.
fn letters(thread: u32, megabytes: u32, from: u32) -> serde_json::Value {
    let message = |n: u32| {
        let text = if n < from { "a".into() } else { "A".repeat(1 << 20) };
        json!({ "uuid": format!("3f2b9a10-0000-4000-8000-{thread:06}{n:06}"), "sender": "human", "text": text,
            "created_at": "2025-01-01T00:00:00Z" })
    };
    json!({ "uuid": format!("3f2b9a10-0000-4000-9000-{thread:012}"), "name": format!("Thread {thread}"),
        "created_at": "2025-01-01T00:00:00Z", "chat_messages": (0..from + megabytes).map(message).collect::<Vec<_>>() })
}

/// What packs to next to nothing is no bomb where it is our own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_zip_of_one_letter_comes_in_again() {
    let (from, to) = (House::sqlite(), House::sqlite());
    let threads = json!([letters(1, 33, 0), letters(2, 33, 0)]);
    from.import(&[&from.write("letters.json", threads.to_string())]).await;
    let zip = from.path("all.zip");
    let zip = zip.to_str().unwrap();
    assert_eq!(from.run(&["export", "-o", zip]).await.code, Some(0));
    assert!(std::fs::metadata(zip).unwrap().len() < 66 * (1 << 20) / 200);
    let told = to.import(&[zip]).await;
    assert_eq!((&told["imported"]["messages"], &told["refused"]), (&json!(66), &json!(0)), "{told}");
    assert!(to.export().await == from.export().await);
}

/// What no line may hold comes in again in several, in every form and on both databases.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_longer_than_a_line_comes_in_again() {
    let from = House::sqlite();
    // It grew: no line of another's export holds it either.
    for thread in [letters(1, 35, 0), letters(1, 35, 35)] {
        from.import(&[&from.write("grown.json", thread.to_string())]).await;
    }
    let lines = from.export().await;
    let count = |kind: &str| lines.lines().filter(|line| line.starts_with(kind)).count();
    assert_eq!((count("{\"type\":\"part\""), count("{\"type\":\"conversation\"")), (8, 1));
    assert!(lines.len() > 70 << 20 && lines.lines().all(|line| line.len() < 10 << 20));
    let (file, zip) = (from.write("all.jsonl", &lines), from.path("all.zip"));
    let zip = zip.to_str().unwrap();
    assert_eq!(from.run(&["export", "-o", zip]).await.code, Some(0));
    let mut houses = House::both().await;
    houses.reverse();
    for (to, source) in houses.iter().zip([&*file, zip]) {
        let told = to.import(&[source]).await;
        assert_eq!((&told["imported"]["messages"], &told["refused"]), (&json!(70), &json!(0)), "{told}");
        assert!(to.export().await == lines, "{source}");
    }
}
