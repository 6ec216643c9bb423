//! `/v1/ag-ui` as AG-UI clients use it.

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use testkit::sandbox::Release;
use testkit::server::Backend;

use crate::scripts::{answer, delta, lines, result, step, wait_after};
use crate::told::{Frame, Live, joined, kinds};
use crate::world::{World, ask, stories, thread};

stories!(
    a_run_is_told_and_kept,
    a_run_that_failed_is_tried_again_under_another_name,
    what_was_attached_is_in_the_snapshot,
    a_page_joins_a_run_under_way,
    a_thread_that_rests_is_told_whole,
    ids_of_messages_stay_as_they_were_sent,
    the_calls_of_a_round_stay_together,
    a_thread_from_elsewhere_keeps_its_messages,
    a_call_interrupts_and_is_resumed,
    only_a_plain_yes_makes_the_call,
    an_interrupt_that_is_not_there_is_refused,
    calls_are_decided_one_by_one,
    bad_input_is_told_at_its_place,
    a_message_beside_a_decision_is_refused,
    files_of_a_thread_from_elsewhere_come_along,
    a_snapshot_is_no_longer_than_its_client_takes,
);

fn post(world: &World, path: &str, body: &Value) -> RequestBuilder {
    world.request(Method::POST, path).header("content-type", "application/json").body(body.to_string())
}

fn user(id: &str, text: &str) -> Value {
    json!({ "id": id, "role": "user", "content": text })
}

fn input(thread: &str, run: &str, messages: &[Value]) -> Value {
    json!({ "threadId": thread, "runId": run, "messages": messages, "tools": [], "context": [], "state": {},
        "forwardedProps": {} })
}

async fn run(world: &World, body: &Value) -> Vec<Frame> {
    Live::open(post(world, "/v1/ag-ui", body)).await.rest().await
}

/// What an AG-UI client checks of a stream.
fn lawful(frames: &[Frame]) {
    let mut open: Vec<Value> = Vec::new();
    let (mut begun, mut over) = (false, false);
    for frame in frames {
        let (data, kind) = (&frame.data, frame.kind());
        assert!(!over, "nothing after the end: {data}");
        assert!(begun != (kind == "RUN_STARTED"), "{data}");
        begun = true;
        let id = if data["toolCallId"].is_null() { &data["messageId"] } else { &data["toolCallId"] };
        let family = kind.rsplit_once('_').map_or(kind, |(family, _)| family);
        let key = json!([family, id]);
        if kind.ends_with("_START") {
            assert!(!open.contains(&key), "{data}");
            open.push(key);
        } else if kind.ends_with("_END") {
            assert!(open.contains(&key), "{data}");
            open.retain(|one| *one != key);
        } else if kind.ends_with("_CONTENT") || kind.ends_with("_ARGS") {
            assert!(open.contains(&key) && data["delta"] != "", "{data}");
        }
        over = matches!(kind, "RUN_FINISHED" | "RUN_ERROR");
    }
    assert!(over && open.is_empty(), "{open:?}");
}

async fn a_run_is_told_and_kept(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let ended =
        json!({ "type": "step", "id": "s", "name": "look", "status": "succeeded", "result": [1], "ts": 7 });
    world.play(lines(vec![delta("I look."), step("s", "running"), ended, result("It is.")]));
    let live =
        Live::open(post(&world, "/v1/ag-ui", &input("t-1", "r-1", &[user("u-1", "What is it?")]))).await;
    let conversation = live.header("threadkeep-conversation");
    let frames = live.rest().await;
    lawful(&frames);
    assert_eq!(
        kinds(&frames),
        [
            "RUN_STARTED",
            "TEXT_MESSAGE_START",
            "TEXT_MESSAGE_CONTENT",
            "TEXT_MESSAGE_END",
            "TOOL_CALL_START",
            "TOOL_CALL_ARGS",
            "TOOL_CALL_END",
            "TOOL_CALL_RESULT",
            "TEXT_MESSAGE_START",
            "TEXT_MESSAGE_CONTENT",
            "TEXT_MESSAGE_END",
            "RUN_FINISHED"
        ]
    );
    assert_eq!((&frames[0].data["threadId"], &frames[0].data["runId"]), (&json!("t-1"), &json!("r-1")));
    assert_eq!(frames.last().unwrap().data["outcome"], json!({ "type": "success" }));
    assert_eq!(frames[4].data["parentMessageId"], frames[1].data["messageId"]);
    assert_eq!(frames[7].data["content"], "[1]");
    assert_eq!(
        world.thread(&conversation).await,
        thread(&[("user", "What is it?"), ("assistant", "I look.\n\nIt is.")])
    );
    // The whole history comes again; only what is new counts.
    world.play(answer("More."));
    let again = input(
        "t-1",
        "r-2",
        &[
            user("u-1", "What is it?"),
            json!({ "id": "a", "role": "assistant", "content": "x" }),
            user("u-2", "And?"),
        ],
    );
    assert_eq!(joined(&run(&world, &again).await, "TEXT_MESSAGE_CONTENT", "delta"), "More.");
    assert_eq!(world.thread(&conversation).await.len(), 4);
    // A failure ends it.
    world.play(lines(vec![delta("I"), json!({ "type": "error", "code": "broken", "message": "no" })]));
    let failed = run(&world, &input("t-1", "r-3", &[user("u-3", "fail")])).await;
    lawful(&failed);
    assert_eq!(failed.last().unwrap().data["code"], "broken");
    Some(())
}

async fn a_run_that_failed_is_tried_again_under_another_name(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let error = json!({ "type": "error", "code": "broken", "message": "no", "ts": 7 });
    world.play(lines(vec![error]));
    let said = |run: &str| input("t", run, &[user("u-1", "go")]);
    let failed = Live::open(post(&world, "/v1/ag-ui", &said("r-1"))).await;
    let (first, conversation) = (failed.run(), failed.header("threadkeep-conversation"));
    assert_eq!(failed.rest().await.last().unwrap().kind(), "RUN_ERROR");
    // The same request, sent once more.
    let repeat = Live::open(post(&world, "/v1/ag-ui", &said("r-1"))).await;
    assert_eq!(repeat.run(), first);
    repeat.rest().await;
    world.play(answer("Now."));
    let again = Live::open(post(&world, "/v1/ag-ui", &said("r-2"))).await;
    let second = again.run();
    let told = again.rest().await;
    lawful(&told);
    assert_eq!(told.last().unwrap().data["outcome"]["type"], "success");
    assert_ne!(first, second);
    assert_eq!(world.thread(&conversation).await, thread(&[("user", "go"), ("assistant", "Now.")]));
    // What went well is not done again, under whichever name.
    for run in ["r-2", "r-3"] {
        let found = Live::open(post(&world, "/v1/ag-ui", &said(run))).await;
        assert_eq!(found.run(), second, "{run}");
        found.rest().await;
    }
    Some(())
}

async fn what_was_attached_is_in_the_snapshot(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let file = |kind: &str, value: &str, mime_type: &str| {
        json!({ "type": kind,
        "source": { "type": "data", "value": value, "mimeType": mime_type } })
    };
    let content = json!([{ "type": "text", "text": "Look" }, file("image", "iVBORw0KGgo=", "image/png"),
        file("document", "aGk=", "text/plain")]);
    let said = json!({ "id": "u-1", "role": "user", "content": content });
    let first = Live::open(post(&world, "/v1/ag-ui", &input("t", "r-1", &[said]))).await;
    let (run_id, conversation) = (first.run(), first.header("threadkeep-conversation"));
    first.rest().await;
    let told = kept(&world, "t").await.remove(0);
    let stored = world.conversation(&conversation).await["messages"][0]["fileAttachments"].clone();
    let part = |n: usize, kind: &str| {
        let id = stored[n]["fileId"].as_str().unwrap();
        let end = format!("/v1/chat-conversations/{conversation}/files/{id}/content");
        let source = &told["content"][n + 1]["source"];
        assert!(source["value"].as_str().unwrap().ends_with(&end), "{told}");
        assert_eq!((&told["content"][n + 1]["type"], &source["type"]), (&json!(kind), &json!("url")));
        assert_eq!(source["mimeType"], stored[n]["mimeType"]);
    };
    assert_eq!(told["content"][0], json!({ "type": "text", "text": "Look" }));
    part(0, "image");
    part(1, "document");
    // The client has it from the snapshot now, and sends it so.
    let repeat = Live::open(post(&world, "/v1/ag-ui", &input("t", "r-2", &[told]))).await;
    assert_eq!(repeat.run(), run_id);
    repeat.rest().await;
    // So with a picture alone, whose name nobody said.
    let said =
        json!({ "id": "u-2", "role": "user", "content": [file("image", "iVBORw0KGgo=", "image/png")] });
    let second = Live::open(post(&world, "/v1/ag-ui", &input("t", "r-3", &[said]))).await;
    let run_id = second.run();
    second.rest().await;
    let told = kept(&world, "t").await[2].clone();
    assert_eq!((&told["id"], told["content"].as_array().map(Vec::len)), (&json!("u-2"), Some(1)), "{told}");
    let repeat = Live::open(post(&world, "/v1/ag-ui", &input("t", "r-4", &[told]))).await;
    assert_eq!(repeat.run(), run_id);
    repeat.rest().await;
    Some(())
}

async fn a_page_joins_a_run_under_way(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    run(&world, &input("t", "r-0", &[user("u-0", "before")])).await;
    let gate = Release::default();
    world.play(wait_after(vec![step("s", "running"), delta("One "), delta("two")], &gate, "One two three"));
    let mut live = Live::open(post(&world, "/v1/ag-ui", &input("t", "r-1", &[user("u-1", "count")]))).await;
    let id = live.run();
    live.until("TEXT_MESSAGE_CONTENT").await;
    live.until("TEXT_MESSAGE_CONTENT").await;
    drop(live);
    let mut joined_in = Live::open(post(&world, "/v1/ag-ui/connect", &input("t", "r-9", &[]))).await;
    let started = joined_in.next().await.unwrap();
    assert_eq!((started.kind(), &started.data["runId"]), ("RUN_STARTED", &json!("r-9")));
    let snapshot = joined_in.next().await.unwrap();
    assert_eq!(snapshot.kind(), "MESSAGES_SNAPSHOT");
    let messages = snapshot.data["messages"].as_array().unwrap();
    let roles: Vec<&str> = messages.iter().map(|message| message["role"].as_str().unwrap()).collect();
    // The step, which has been given nothing yet, is begun behind it.
    assert_eq!(roles, ["user", "assistant", "user", "assistant"]);
    assert_eq!((&messages[2]["id"], &messages[3]["content"]), (&json!("u-1"), &json!("One two")));
    let open = joined_in.next().await.unwrap();
    assert_eq!((open.kind(), &open.data["messageId"]), ("TEXT_MESSAGE_START", &messages[3]["id"]));
    let begun = joined_in.next().await.unwrap();
    assert_eq!((begun.kind(), &begun.data["parentMessageId"]), ("TOOL_CALL_START", &json!(id)));
    gate.open();
    let mut rest = vec![started, snapshot, open, begun];
    rest.extend(joined_in.rest().await);
    lawful(&rest);
    assert_eq!(joined(&rest, "TEXT_MESSAGE_CONTENT", "delta"), " three");
    assert!(kinds(&rest).contains(&"TOOL_CALL_RESULT"), "the step never ended");
    assert_eq!(world.settled(&id).await["status"], "succeeded", "closing was no stop");
    Some(())
}

async fn a_thread_that_rests_is_told_whole(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let nothing = Live::open(post(&world, "/v1/ag-ui/connect", &input("t", "r", &[]))).await;
    assert_eq!(nothing.header("x-accel-buffering"), "no");
    let nothing = nothing.rest().await;
    lawful(&nothing);
    assert_eq!(nothing[1].data["messages"], json!([]));
    let ended =
        json!({ "type": "step", "id": "s", "name": "look", "status": "failed", "error": "no", "ts": 7 });
    world.play(lines(vec![delta("I look."), ended, result("It is.")]));
    let told = run(&world, &input("t", "r-1", &[user("u-1", "go")])).await;
    let whole = Live::open(post(&world, "/v1/ag-ui/connect", &input("t", "r", &[]))).await.rest().await;
    lawful(&whole);
    let messages = whole[1].data["messages"].as_array().unwrap();
    let text = |n: usize| messages[n]["content"].as_str().unwrap_or("");
    assert_eq!((text(0), text(1), text(2), text(3)), ("go", "I look.", "no", "It is."));
    assert_eq!(messages[1]["id"], told[1].data["messageId"], "as it was streamed");
    assert_eq!(messages[1]["toolCalls"][0]["id"], messages[2]["toolCallId"]);
    Some(())
}

async fn ids_of_messages_stay_as_they_were_sent(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let id = uuid::Uuid::from_u128(0x0190_a1b2_0000_4000_8000_0000_0000_0abc);
    let spelled = [id.simple().to_string(), id.to_string().to_uppercase(), id.to_string()];
    for name in &spelled {
        run(&world, &input("t", "r", &[user(name, "hi")])).await;
    }
    let whole = Live::open(post(&world, "/v1/ag-ui/connect", &input("t", "r", &[]))).await.rest().await;
    let messages = whole[1].data["messages"].as_array().unwrap().iter();
    let ids: Vec<&Value> = messages.filter(|one| one["role"] == "user").map(|one| &one["id"]).collect();
    assert_eq!(ids, spelled.iter().map(|name| json!(name)).collect::<Vec<_>>().iter().collect::<Vec<_>>());
    Some(())
}

/// The messages of a thread that rests.
async fn kept(world: &World, thread: &str) -> Vec<Value> {
    let whole = Live::open(post(world, "/v1/ag-ui/connect", &input(thread, "r", &[]))).await.rest().await;
    lawful(&whole);
    whole[1].data["messages"].as_array().unwrap().clone()
}

async fn the_calls_of_a_round_stay_together(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let tools = ["search_pages", "search_user_tables"];
    let agent = json!({ "name": "Searcher", "runner": "model", "model": "demo/assistant", "tools": tools });
    let agent = world.send(Method::POST, "/v1/agents", Some(&agent)).await.body["id"].clone();
    let told = waiting(&world, &agent, "t", "search words").await;
    lawful(&told);
    let of = |kind: &str, member: &str| -> Vec<Value> {
        told.iter().filter(|frame| frame.kind() == kind).map(|frame| frame.data[member].clone()).collect()
    };
    let parents = of("TOOL_CALL_START", "parentMessageId");
    assert_eq!((parents.len(), &parents[0]), (2, &parents[1]));
    let messages = kept(&world, "t").await;
    let asking = messages.iter().find(|message| message["id"] == parents[0]).unwrap();
    let calls: Vec<&Value> = asking["toolCalls"].as_array().unwrap().iter().map(|call| &call["id"]).collect();
    assert_eq!(calls, of("TOOL_CALL_START", "toolCallId").iter().collect::<Vec<_>>());
    let mut heard = vec![json!("u"), parents[0].clone()];
    heard.extend(of("TEXT_MESSAGE_START", "messageId"));
    heard.extend(of("REASONING_MESSAGE_START", "messageId"));
    heard.extend(of("TOOL_CALL_RESULT", "messageId"));
    let mut ids: Vec<String> = messages.iter().map(|message| message["id"].to_string()).collect();
    let mut heard: Vec<String> = heard.iter().map(ToString::to_string).collect();
    heard.sort();
    heard.dedup();
    ids.sort();
    assert_eq!(ids, heard);
    Some(())
}

async fn a_thread_from_elsewhere_keeps_its_messages(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let call = |id: &str, args: &str| json!({ "id": id, "type": "function", "function": { "name": "look", "arguments": args } });
    let uuid = uuid::Uuid::from_u128(0x0190_a1b2_0000_4000_8000_0000_0000_0abc).to_string();
    let before = [
        json!({ "id": "d1", "role": "developer", "content": "Be brief." }),
        user("u1", "What is it?"),
        json!({ "id": "r1", "role": "reasoning", "content": "Hm." }),
        json!({ "id": uuid, "role": "assistant", "content": "I look.",
            "toolCalls": [call("t1", r#"{"x":1}"#), call("t2", "{}")] }),
        json!({ "id": "m1", "role": "tool", "toolCallId": "t1", "content": "found" }),
        json!({ "id": "m2", "role": "tool", "toolCallId": "t2", "content": "", "error": "broken" }),
        json!({ "id": "a2", "role": "assistant", "toolCalls": [call("t3", "{}")] }),
        json!({ "id": "m3", "role": "tool", "toolCallId": "t3", "content": "3" }),
        json!({ "id": "a3", "role": "assistant", "content": "It is." }),
        json!({ "id": "r2", "role": "reasoning", "content": "Done?" }),
    ];
    let mut sent = before.to_vec();
    sent.push(user("u2", "And now?"));
    run(&world, &input("old", "r-1", &sent)).await;
    let messages = kept(&world, "old").await;
    assert_eq!(messages[..sent.len()], sent);
    assert_eq!(messages[sent.len()]["content"], "Hello.");
    Some(())
}

/// An agent that asks before it does anything.
async fn careful(world: &World) -> Value {
    let tools = ["list_files", "search_pages", "search_user_tables"];
    let agent = json!({ "name": "Careful", "runner": "model", "model": "demo/assistant", "tools": tools,
        "approval": tools });
    world.send(Method::POST, "/v1/agents", Some(&agent)).await.body["id"].clone()
}

/// A thread whose run waits for a person: its frames up to there.
async fn waiting(world: &World, agent: &Value, thread: &str, text: &str) -> Vec<Frame> {
    let mut first = input(thread, "r-1", &[user("u", text)]);
    first["forwardedProps"] = json!({ "agent": agent });
    run(world, &first).await
}

fn resume(thread: &str, entries: &Value) -> Value {
    let mut resumed = input(thread, "r-3", &[user("u", "list files")]);
    resumed["resume"] = entries.clone();
    resumed
}

async fn a_call_interrupts_and_is_resumed(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let agent = careful(&world).await;
    for (entry, expected) in [
        (json!({ "status": "resolved", "payload": { "approve": true } }), "bag"),
        (json!({ "status": "resolved", "payload": { "approve": false, "reason": "no" } }), "did not allow"),
        (json!({ "status": "cancelled" }), "did not allow"),
    ] {
        let thread = entry.to_string();
        let asked = waiting(&world, &agent, &thread, "list files").await;
        lawful(&asked);
        let outcome = &asked.last().unwrap().data["outcome"];
        assert_eq!(outcome["type"], "interrupt");
        let interrupt = &outcome["interrupts"][0];
        let joined_in =
            Live::open(post(&world, "/v1/ag-ui/connect", &input(&thread, "r-2", &[]))).await.rest().await;
        lawful(&joined_in);
        assert_eq!(joined_in.last().unwrap().data["outcome"], *outcome, "it still waits");
        let mut entry = entry.clone();
        entry["interruptId"] = interrupt["id"].clone();
        let rest = run(&world, &resume(&thread, &json!([entry]))).await;
        lawful(&rest);
        let ended = rest.iter().find(|frame| frame.kind() == "TOOL_CALL_RESULT").unwrap();
        assert_eq!(ended.data["toolCallId"], interrupt["toolCallId"]);
        let content = ended.data["content"].as_str().unwrap();
        assert!(content.contains(expected) || expected == "bag", "{content}");
        assert_eq!(rest.last().unwrap().data["outcome"]["type"], "success");
    }
    Some(())
}

async fn only_a_plain_yes_makes_the_call(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let asked = waiting(&world, &careful(&world).await, "t", "list files").await;
    let outcome = &asked.last().unwrap().data["outcome"];
    let id = &outcome["interrupts"][0]["id"];
    let resolved = |payload: Value| json!([{ "interruptId": id, "status": "resolved", "payload": payload }]);
    let approve = "/resume/0/payload/approve";
    for (entries, pointer) in [
        (json!([{ "interruptId": id, "status": "resolved" }]), approve),
        (resolved(Value::Null), approve),
        (resolved(json!({})), approve),
        (resolved(json!({ "approve": "no" })), approve),
        (resolved(json!({ "approve": null })), approve),
        (resolved(json!({ "approve": 1 })), approve),
        (resolved(json!({ "accepted": false })), approve),
        (resolved(json!("no")), approve),
        (resolved(json!(true)), approve),
        (json!([{ "interruptId": id, "status": "zzz", "payload": { "approve": true } }]), "/resume/0/status"),
        (json!([{ "interruptId": id, "payload": { "approve": true } }]), "/resume/0/status"),
        (json!([{ "status": "resolved", "payload": { "approve": true } }]), "/resume/0/interruptId"),
        (json!({ "interruptId": id }), "/resume"),
    ] {
        let answer = ask(post(&world, "/v1/ag-ui", &resume("t", &entries))).await;
        let told = (answer.status, &answer.body["source"]["pointer"]);
        assert_eq!(told, (422, &json!(pointer)), "{entries}: {}", answer.text);
    }
    assert_eq!(connected(&world, "t").await["outcome"], *outcome, "it still waits");
    Some(())
}

/// The end of what a page that joins in is told.
async fn connected(world: &World, thread: &str) -> Value {
    let joined_in = post(world, "/v1/ag-ui/connect", &input(thread, "r-2", &[]));
    let told = Live::open(joined_in).await.rest().await;
    lawful(&told);
    told.last().unwrap().data.clone()
}

async fn an_interrupt_that_is_not_there_is_refused(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let asked = waiting(&world, &careful(&world).await, "t", "list files").await;
    let outcome = &asked.last().unwrap().data["outcome"];
    let yes = |id: &Value| json!({ "interruptId": id, "status": "resolved", "payload": { "approve": true } });
    let no = |id: &Value| json!({ "interruptId": id, "status": "cancelled" });
    let id = &outcome["interrupts"][0]["id"];
    for (entries, at) in [
        (json!([yes(&json!("nope"))]), 0),
        (json!([no(&json!("nope"))]), 0),
        (json!([yes(&json!("0190a1b2-0000-7000-8000-00000000000c"))]), 0),
        // Nothing is decided by what is refused.
        (json!([yes(id), yes(&json!("nope"))]), 1),
        (json!([yes(id), no(id)]), 1),
    ] {
        let answer = ask(post(&world, "/v1/ag-ui", &resume("t", &entries))).await;
        let told = (answer.status, &answer.body["source"]["pointer"]);
        let pointer = format!("/resume/{at}/interruptId");
        assert_eq!(told, (422, &json!(pointer)), "{entries}: {}", answer.text);
    }
    assert_eq!(connected(&world, "t").await["outcome"], *outcome, "it still waits");
    Some(())
}

async fn calls_are_decided_one_by_one(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let asked = waiting(&world, &careful(&world).await, "t", "search words").await;
    let interrupts = asked.last().unwrap().data["outcome"]["interrupts"].as_array().unwrap().clone();
    assert_eq!(interrupts.len(), 2);
    let yes = |at: usize| {
        let id = &interrupts[at]["id"];
        json!([{ "interruptId": id, "status": "resolved", "payload": { "approve": true } }])
    };
    // The same once more changes nothing, and ends as it did.
    for _ in 0..2 {
        let first = run(&world, &resume("t", &yes(0))).await;
        lawful(&first);
        assert_eq!(kinds(&first), ["RUN_STARTED", "TOOL_CALL_RESULT", "RUN_FINISHED"]);
        assert_eq!(first[1].data["toolCallId"], interrupts[0]["toolCallId"]);
        assert_eq!(first[2].data["outcome"]["interrupts"], json!([interrupts[1]]));
    }
    let rest = run(&world, &resume("t", &yes(1))).await;
    assert_eq!(rest.last().unwrap().data["outcome"]["type"], "success");
    Some(())
}

async fn bad_input_is_told_at_its_place(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    for (body, pointer) in [
        (json!({}), "/threadId"),
        (json!({ "threadId": 1 }), "/threadId"),
        (json!({ "threadId": "t", "messages": 1 }), "/messages"),
        (json!({ "threadId": "t", "messages": [] }), "/messages"),
        (json!({ "threadId": "t", "messages": [{ "role": "user" }] }), "/messages/0/content"),
        (
            json!({ "threadId": "t", "messages": [{ "role": "user", "content": [{ "type": "smell" }] }] }),
            "/messages/0/content/0/type",
        ),
        (
            json!({ "threadId": "t", "messages": [user("u", "hi")], "forwardedProps": { "mode": "dream" } }),
            "/forwardedProps/mode",
        ),
    ] {
        let answer = ask(post(&world, "/v1/ag-ui", &body)).await;
        assert_eq!(
            (answer.status, &answer.body["source"]["pointer"]),
            (422, &json!(pointer)),
            "{body}: {}",
            answer.text
        );
    }
    assert_eq!(world.count().await, (0, 0));
    Some(())
}

async fn a_message_beside_a_decision_is_refused(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let asked = waiting(&world, &careful(&world).await, "t", "list files").await;
    let outcome = &asked.last().unwrap().data["outcome"];
    let yes = json!([{ "interruptId": outcome["interrupts"][0]["id"], "status": "resolved",
        "payload": { "approve": true } }]);
    let with = |messages: Value| {
        let mut body = resume("t", &yes);
        body["messages"] = messages;
        body
    };
    let called = json!({ "id": "a", "role": "assistant", "toolCalls": [] });
    for (messages, at) in [
        (json!([user("u", "list files"), called, user("v", "and hurry")]), 2),
        (json!([user("u", "list files"), user("v", "and hurry")]), 1),
        (json!([{ "role": "user", "content": "and hurry" }]), 0),
    ] {
        let answer = ask(post(&world, "/v1/ag-ui", &with(messages))).await;
        let told = (answer.status, &answer.body["source"]["pointer"]);
        assert_eq!(told, (422, &json!(format!("/messages/{at}"))), "{}", answer.text);
    }
    assert_eq!(connected(&world, "t").await["outcome"], *outcome, "it still waits");
    // What it goes on from is in the list, too.
    let rest = run(&world, &with(json!([user("u", "list files"), called]))).await;
    assert_eq!(rest.last().unwrap().data["outcome"]["type"], "success");
    Some(())
}

async fn files_of_a_thread_from_elsewhere_come_along(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let part = json!({ "type": "document", "filename": "a.txt",
        "source": { "type": "data", "value": "aGk=", "mimeType": "text/plain" } });
    let sent = [
        json!({ "id": "u1", "role": "user", "content": [{ "type": "text", "text": "Look" }, part] }),
        json!({ "id": "u2", "role": "user", "content": [part] }),
        user("u3", "And now?"),
    ];
    let live = Live::open(post(&world, "/v1/ag-ui", &input("old", "r-1", &sent))).await;
    let conversation = live.header("threadkeep-conversation");
    live.rest().await;
    let stored = world.conversation(&conversation).await["messages"].clone();
    for (at, content) in [(0, "Look"), (1, "a-1.txt")] {
        let message = &stored[at];
        assert_eq!(
            (&message["content"], &message["fileAttachments"][0]["size"]),
            (&json!(content), &json!(2))
        );
    }
    assert_eq!(kept(&world, "old").await[0]["content"].as_array().map(Vec::len), Some(2));
    Some(())
}

/// Clients take 10 MB at once.
async fn a_snapshot_is_no_longer_than_its_client_takes(backend: Backend) -> Option<()> {
    let world = World::start_with(backend, |config| config.limits.max_body_bytes = 16 << 20).await?;
    let long = "long ".repeat(600_000);
    let call = json!({ "id": "t1", "type": "function", "function": { "name": "look", "arguments": "{}" } });
    let before = [
        user("u1", &long),
        user("u2", &long),
        json!({ "id": "a2", "role": "assistant", "toolCalls": [call] }),
        json!({ "id": "m2", "role": "tool", "toolCallId": "t1", "content": long }),
        user("u3", &long),
        json!({ "id": "a3", "role": "assistant", "content": "So." }),
    ];
    let mut sent = before.to_vec();
    sent.push(user("u4", "And now?"));
    run(&world, &input("old", "r-1", &sent)).await;
    let whole = Live::open(post(&world, "/v1/ag-ui/connect", &input("old", "r", &[]))).await.rest().await;
    lawful(&whole);
    assert!(whole[1].data.to_string().len() < 8 << 20);
    let messages = whole[1].data["messages"].as_array().unwrap();
    let ids: Vec<&Value> = messages[..3].iter().map(|message| &message["id"]).collect();
    assert_eq!(ids, ["u3", "a3", "u4"], "a turn is told whole or not at all");
    Some(())
}
