//! What of a sandbox's lines is shown where: logs and rejected lines in the trace alone, nothing after the end.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::sandbox::{Action, Release};
use testkit::server::Backend;

use crate::scripts::{bytes, delta, lines, log, open, result};
use crate::world::{World, stories};

stories!(
    logs_are_in_the_trace_alone,
    rejected_lines_are_counted,
    what_comes_after_the_end,
    the_end_does_not_wait_for_the_connection,
    a_long_trace_in_pages,
    line_ends_and_marks,
    what_a_line_says_is_kept,
);

fn kinds(entries: &[Value]) -> Vec<&str> {
    entries.iter().map(|entry| entry["kind"].as_str().unwrap()).collect()
}

async fn logs_are_in_the_trace_alone(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let late =
        json!({ "type": "log", "level": "error", "message": "loud secret", "ts": 1_700_000_000_000_i64 });
    world.play(lines(vec![log("quiet secret"), delta("a"), late, result("ab")]));
    let told = world.tell(&json!({ "message": "hi" })).await;
    assert_eq!(told.names(), ["turn", "delta", "result", "done"]);
    assert!(!String::from_utf8_lossy(&told.bytes).contains("secret"));
    let answer = world.get(&format!("/v1/runs/{}/events?wire=ndjson", told.run())).await;
    assert!(!answer.text.contains("secret"), "{}", answer.text);
    let shown = world.conversation(&told.conversation()).await;
    assert!(!shown.to_string().contains("secret"));

    let (entries, rejected) = world.trace(&told.run()).await;
    assert_eq!(rejected, 0);
    assert_eq!(kinds(&entries), ["turn", "dispatch", "log", "delta", "log", "result", "done"]);
    assert_eq!(
        entries.iter().map(|entry| entry["seq"].as_i64().unwrap()).collect::<Vec<_>>(),
        (1..=7).collect::<Vec<_>>()
    );
    assert_eq!(entries[2]["line"], log("quiet secret"));
    assert_eq!(entries[4]["line"]["level"], "error");
    assert_eq!(entries[4]["ts"], 1_700_000_000_000_i64);
    assert_eq!(entries[3]["line"], json!({ "text": "a" }));
    Some(())
}

async fn rejected_lines_are_counted(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    // Nothing of it is lost, however long it is.
    let long = format!("not a line: {}", "x".repeat(500_000));
    let bad: [&[u8]; 9] = [
        long.as_bytes(),
        b"[1]",
        br#"{"type":"surprise"}"#,
        br#"{"type":"delta"}"#,
        br#"{"type":"delta","text":5}"#,
        br#"{"type":"delta","text":"a","text":"b"}"#,
        b"{\"type\":\"delta\",\"text\":\"\xff\"}",
        br#"{"type":"step","id":"s","name":"n","status":"paused"}"#,
        br#"{"type":"log","level":"loud","message":"m"}"#,
    ];
    let mut body = Vec::new();
    for line in bad {
        body.extend_from_slice(line);
        body.push(b'\n');
    }
    body.extend_from_slice(format!("{}\n", result("Fine.")).as_bytes());
    world.play(bytes(body));
    let told = world.tell(&json!({ "message": "hi" })).await;
    assert_eq!(told.names(), ["turn", "result", "done"]);
    let (entries, rejected) = world.trace(&told.run()).await;
    assert_eq!(rejected, 9);
    let found: Vec<&Value> = entries.iter().filter(|entry| entry["kind"] == "rejected").collect();
    assert_eq!(found.len(), 9);
    for (entry, line) in found.iter().zip(bad) {
        assert_eq!(entry["line"]["line"], String::from_utf8_lossy(line).as_ref());
        assert!(!entry["line"]["reason"].as_str().unwrap().is_empty());
    }
    Some(())
}

async fn what_comes_after_the_end(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    for (first, status) in
        [(result("First."), "succeeded"), (json!({ "type": "error", "code": "c", "message": "m" }), "failed")]
    {
        let body: String = [
            first.clone(),
            result("Second."),
            delta("late"),
            json!({ "type": "error", "code": "x", "message": "y" }),
        ]
        .iter()
        .map(|line| format!("{line}\n"))
        .collect();
        // In one piece, and each line a moment after the one before.
        let (pieces, pause) = (body.split_inclusive('\n'), Action::Wait(Duration::from_millis(10)));
        let apart = pieces.flat_map(|line| [Action::Bytes(line.into()), pause.clone()]);
        world.play([open()].into_iter().chain(apart).collect());
        let slowly = world.tell(&json!({ "message": "hi" })).await;
        world.play(bytes(body));
        let told = world.tell(&json!({ "message": "hi" })).await;
        assert_eq!(told.names().len(), 3);
        assert_eq!(
            (told.terminal().data["message"].clone(), told.status()),
            (first["message"].clone(), status)
        );
        for told in [told, slowly] {
            let (entries, rejected) = world.trace(&told.run()).await;
            assert_eq!(rejected, 0);
            let ignored =
                entries.iter().find(|entry| entry["kind"] == "ignored").expect("a note of what was ignored");
            assert_eq!(ignored["line"], json!({ "lines": 3, "line": result("Second.").to_string() }));
        }
    }
    Some(())
}

/// A sandbox that keeps the line open after its result keeps nobody waiting.
async fn the_end_does_not_wait_for_the_connection(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let gate = Release::default();
    world.play(vec![
        open(),
        Action::Line(result("Done.")),
        Action::WaitFor(gate),
        Action::Line(delta("late")),
    ]);
    let told = world.tell(&json!({ "message": "hi" })).await;
    assert_eq!((told.names(), told.status()), (vec!["turn", "result", "done"], "succeeded"));
    world.sandbox.disconnected(0).await.unwrap();
    Some(())
}

async fn a_long_trace_in_pages(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let line =
        |n: u64| if n.is_multiple_of(50) { "nonsense".into() } else { log(&format!("line {n}")).to_string() };
    world.play(vec![open(), Action::Lines(450, line), Action::Line(result("Done."))]);
    let run = world.tell(&json!({ "message": "hi" })).await.run();
    let (mut all, mut next) = (Vec::new(), String::new());
    loop {
        let page = world.get(&format!("/v1/runs/{run}/trace?limit=100{next}")).await.body;
        assert_eq!(page["rejected"], 9, "of the whole run, on every page");
        all.extend(page["data"].as_array().unwrap().clone());
        match page["next"].as_str() {
            Some(cursor) => next = format!("&after={cursor}"),
            None => break,
        }
    }
    assert_eq!(
        all.iter().map(|entry| entry["seq"].as_i64().unwrap()).collect::<Vec<_>>(),
        (1..=454).collect::<Vec<_>>()
    );
    let logs = all.iter().filter(|entry| entry["kind"] == "log").count();
    assert_eq!(logs, 441);
    Some(())
}

/// `\n` ends a line, a `\r` before it and a byte order mark at the very start are dropped; what is in a string stays.
async fn line_ends_and_marks(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let text = "a\u{2028}b\u{85}c\r\nd\n\nid: 7\nevent: done\ndata: x \u{1F469}\u{200D}\u{1F4BB}";
    let body = format!("\u{FEFF}{}\r\n{}\r\n", delta(text), result(text));
    world.play(bytes(body));
    let told = world.tell(&json!({ "message": text })).await;
    assert_eq!(told.names(), ["turn", "delta", "result", "done"]);
    assert_eq!(told.frames[1].data["text"], text);
    assert_eq!(world.last_parts(&told.conversation()).await[0]["text"], text);
    assert_eq!(world.sandbox.request(0).await.unwrap().body["message"]["content"], text);
    Some(())
}

/// A step reaches its readers as it was sent, a number as it was spelled; of a string only what no text can hold is
/// replaced.
async fn what_a_line_says_is_kept(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let step = r#"{"type":"step","id":"s","name":"n","status":"succeeded","result":{"n":[1e400,1.50]},"label":"L","ts":12.7}"#;
    world.play(bytes(format!("{step}\n{}\n", r#"{"type":"result","message":"a\u0000b \ud83e."}"#)));
    let begun = world.begin_async(&json!({ "message": "hi" })).await;
    let (run, conversation) = (begun["run"].as_str().unwrap(), begun["conversation"].as_str().unwrap());
    // To its end, which the stream is over with.
    world.get(&format!("/v1/runs/{run}/events?wire=ndjson")).await;
    assert_eq!(world.run(run).await["status"], "succeeded");
    let block = r#"{"type":"step","id":"s","name":"n","status":"succeeded","result":{"n":[1e400,1.50]},"startedAt":12}"#;
    let text = "a\u{fffd}b \u{fffd}.";
    for (path, shown) in [
        (format!("/v1/runs/{run}/events"), vec![step, block, text]),
        (format!("/v1/runs/{run}/events?wire=ndjson"), vec![step, text]),
        (format!("/v1/runs/{run}/events?wire=ui-message"), vec![r#""output":{"n":["1e400",1.5]}"#, text]),
        (format!("/v1/runs/{run}/trace"), vec![step, text]),
        (format!("/v1/chat-conversations/{conversation}"), vec![block, text]),
    ] {
        let answer = world.get(&path).await;
        for part in shown {
            assert!(answer.text.contains(part), "{path}: {part} is not in {}", answer.text);
        }
    }
    Some(())
}
