//! What goes out comes in again: export, import into an empty store, export is the same to the byte.

use reqwest::Method;
use serde_json::json;
use testkit::sandbox::{Action, ScriptedSandbox};

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
    caller.upload(&format!("{CONVERSATIONS}/{full}/files"), "groß.bin", &vec![7; 1_200_000]).await;
    caller.turn(&json!({ "conversation": full, "message": "look", "attachments": [file] })).await;

    // Branches of branches, the current one not the newest, and a fork.
    let first = caller.turn(&json!({ "message": "think 3 words\n\u{0627}\u{0644}", "mode": "ask" })).await;
    let thread = first["conversation"].clone();
    let second = caller.turn(&json!({ "conversation": thread, "message": "second" })).await;
    caller
        .turn(&json!({ "conversation": thread, "replace": second["message"], "message": "second, better" }))
        .await;
    caller.turn(&json!({ "conversation": thread, "replace": second["message"] })).await;
    caller.turn(&json!({ "conversation": thread, "replace": first["message"], "message": "all anew" })).await;
    let thread = thread.as_str().unwrap();
    let branches = caller.get(&format!("{CONVERSATIONS}/{thread}/branches")).await.body;
    let other = branches["data"][1]["id"].as_str().unwrap();
    caller.send(Method::POST, &format!("{CONVERSATIONS}/{thread}/branches/{other}/select"), &json!({})).await;
    let fork = json!({ "through": second["message"] });
    caller.send(Method::POST, &format!("{CONVERSATIONS}/{thread}/fork"), &fork).await;

    // A sandbox's steps, one of them never ended; and a run that failed.
    caller.turn(&json!({ "message": "work", "mode": "agent" })).await;
    caller.turn(&json!({ "message": "fail", "mode": "ask", "model": "openai/none" })).await;

    // Empty, and gone.
    caller.create(&json!({})).await;
    let gone = caller.create(&json!({ "title": "gone" })).await;
    let delete = caller.request(Method::DELETE, &format!("{CONVERSATIONS}/{gone}"));
    assert_eq!(delete.send().await.unwrap().status(), 204);
}

/// A house that was lived in.
async fn filled(house: &House) {
    let sandbox = ScriptedSandbox::start(sandbox_lines()).await.unwrap();
    let mut server = house.serve(&[("SANDBOX_URL", &sandbox.url())]).await;
    fill(&house.caller(&server)).await;
    server.terminate().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_imported_into_an_empty_store_exports_the_same_bytes() {
    for from in House::both().await {
        filled(&from).await;
        let lines = from.export().await;
        assert_eq!(lines, from.export().await, "the same store, the same bytes");
        assert!(!lines.contains("gone") && !lines.contains("secret log"), "{lines}");
        assert_eq!(lines.lines().filter(|line| line.starts_with("{\"type\":\"conversation\"")).count(), 6);
        let (file, zip, folder) = (from.write("all.jsonl", &lines), from.path("all.zip"), from.path("all"));
        let (zip, folder) = (zip.to_str().unwrap(), folder.to_str().unwrap());
        for path in [zip, folder] {
            let told = from.run(&["export", "-o", path, "--json"]).await;
            assert_eq!(told.json()["exported"]["conversations"], 6, "{told:?}");
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
            assert_eq!(
                (&first[came]["conversations"], &first[came]["files"]),
                (&json!(6), &json!(3)),
                "{first}"
            );
            assert_eq!(dry["would_import"], first["imported"], "{dry}");
            assert_eq!(to.export().await, lines, "{source}");
        }
        let again = houses[0].import(&[zip]).await;
        assert_eq!((&again["imported"]["conversations"], &again["refused"]), (&json!(0), &json!(0)));
        assert_eq!(houses[0].export().await, lines);
    }
}
