//! A turn for a conversation that is busy: it waits, or the other one makes way.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use testkit::form::Form;
use testkit::sandbox::Release;
use testkit::server::Backend;

use crate::scripts::{delta, hang_after, wait_after};
use crate::world::{CONVERSATIONS, World, ask, refused, stories, thread};

stories!(
    busy_names_the_run,
    queued_turns_start_in_order,
    what_is_answered_is_shown_in_the_history,
    a_queued_turn_goes_with_its_last_reader,
    the_queue_is_listed_and_edited,
    a_queued_turn_is_cancelled,
    a_page_of_the_queue_goes_on_where_it_was,
    a_queued_turn_is_streamed,
    a_queued_turn_goes_with_its_conversation,
    interrupt_keeps_the_partial_answer,
    interrupt_goes_before_the_queue,
    rollback_moves_the_other_turn_aside,
    the_queue_moves_on_after_a_failure,
);

fn queued(conversation: &Value, message: &str, on_busy: &str) -> Value {
    json!({ "conversation": conversation, "message": message, "on_busy": on_busy, "on_disconnect": "continue" })
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// What the sandbox was asked, in order.
fn asked(world: &World) -> Vec<String> {
    world
        .sandbox
        .requests()
        .iter()
        .map(|request| text(&request.body["message"]["content"]).to_owned())
        .collect()
}

async fn queue(world: &World, conversation: &Value) -> Vec<Value> {
    let answer = world.get(&format!("{CONVERSATIONS}/{}/queue", text(conversation))).await;
    assert_eq!((answer.status, &answer.body["next"]), (200, &Value::Null), "{}", answer.text);
    answer.body["data"].as_array().unwrap().clone()
}

async fn busy_names_the_run(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let gate = Release::default();
    world.play(wait_after(vec![], &gate, "Done."));
    let first = world.begin_async(&json!({ "message": "one" })).await;
    let before = world.count().await;
    for body in [
        json!({ "conversation": first["conversation"], "message": "two" }),
        json!({ "conversation": first["conversation"], "message": "two", "on_busy": "reject" }),
    ] {
        let answer = ask(world.turn(&body)).await;
        refused(&answer, 409, "conversation_busy");
        assert_eq!(answer.body["run"], first["run"]);
    }
    assert_eq!(world.count().await, before);
    // As it says: one can attach to it.
    let stream = world.follow(text(&first["run"]), 0).await;
    gate.open();
    assert_eq!(stream.rest().await.status(), "succeeded");
    assert_eq!(
        world.thread(text(&first["conversation"])).await,
        thread(&[("user", "one"), ("assistant", "Done.")])
    );
    Some(())
}

async fn queued_turns_start_in_order(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let gate = Release::default();
    world.play(wait_after(vec![], &gate, "A1."));
    let first = world.begin_async(&json!({ "message": "q1" })).await;
    let mut runs = Vec::new();
    for n in 2..=5 {
        let made = world.begin_async(&queued(&first["conversation"], &format!("q{n}"), "enqueue")).await;
        assert_eq!(made["status"], "queued");
        runs.push(made);
    }
    // Durable and in line, and not in the thread yet.
    assert_eq!(world.thread(text(&first["conversation"])).await, thread(&[("user", "q1")]));
    let run = world.run(text(&runs[0]["run"])).await;
    assert_eq!(
        (&run["status"], &run["started_at"], &run["last_event"]),
        (&json!("queued"), &Value::Null, &json!(0))
    );
    assert_eq!(run["message"], runs[0]["message"]);
    gate.open();
    for run in &runs {
        assert_eq!(world.settled(text(&run["run"])).await["status"], "succeeded");
    }
    assert_eq!(asked(&world), ["q1", "q2", "q3", "q4", "q5"]);
    let said = world.thread(text(&first["conversation"])).await;
    let users: Vec<&str> =
        said.iter().filter(|(role, _)| role == "user").map(|(_, text)| text.as_str()).collect();
    assert_eq!(users, ["q1", "q2", "q3", "q4", "q5"]);
    assert_eq!(said.len(), 10);
    // Each had the answers before it.
    let last = world.sandbox.requests()[4].body["conversation"].as_array().unwrap().clone();
    assert_eq!((last.len(), &last[7]["content"]), (8, &json!("Hello.")));
    Some(())
}

async fn what_is_answered_is_shown_in_the_history(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let done = world.tell(&json!({ "message": "done" })).await;
    let gate = Release::default();
    world.play(wait_after(vec![], &gate, "Done."));
    let under_way = world.begin_async(&json!({ "message": "under way" })).await;
    let answering = async || {
        let list = world.get(&format!("{CONVERSATIONS}?timeZone=UTC")).await.body;
        let shown = list["data"].as_array().unwrap().iter();
        shown.map(|one| (one["id"].clone(), one["meta"]["answering"].clone())).collect::<Vec<_>>()
    };
    let (first, second) = (under_way["conversation"].clone(), done.conversation());
    assert_eq!(answering().await, [(first.clone(), json!(true)), (json!(second), Value::Null)]);
    assert_eq!(world.get(CONVERSATIONS).await.body["data"][0].get("meta"), None);
    gate.open();
    world.settled(text(&under_way["run"])).await;
    assert_eq!(answering().await, [(first, Value::Null), (json!(second), Value::Null)]);
    Some(())
}

async fn a_queued_turn_goes_with_its_last_reader(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let gate = Release::default();
    world.play(wait_after(vec![], &gate, "A1."));
    let first = world.begin_async(&json!({ "message": "q1" })).await;
    let waiting = |message: &str, on_disconnect: &str| {
        let mut body = queued(&first["conversation"], message, "enqueue");
        body["on_disconnect"] = on_disconnect.into();
        body
    };
    let left = world.begin(&waiting("left", "cancel")).await;
    let kept = world.begin(&waiting("kept", "continue")).await;
    let read = world.begin(&waiting("read", "cancel")).await;
    let ids: Vec<Value> =
        queue(&world, &first["conversation"]).await.iter().map(|run| run["id"].clone()).collect();
    let another = world.follow(text(&ids[2]), 0).await;
    drop((left, kept, read));
    // Looked at without reading it, which would keep it.
    let gone = loop {
        let run = world.run(text(&ids[0])).await;
        if run["status"] != "queued" {
            break run;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert_eq!((&gone["status"], &gone["started_at"]), (&json!("cancelled"), &Value::Null));
    gate.open();
    assert_eq!(another.rest().await.status(), "succeeded");
    assert_eq!(world.run(text(&ids[1])).await["status"], "succeeded");
    assert_eq!(asked(&world), ["q1", "kept", "read"]);
    Some(())
}

async fn the_queue_is_listed_and_edited(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let gate = Release::default();
    world.play(wait_after(vec![], &gate, "A1."));
    let first = world.begin_async(&json!({ "message": "q1" })).await;
    let conversation = &first["conversation"];
    assert_eq!(queue(&world, conversation).await, Vec::<Value>::new());
    let second = world.begin_async(&queued(conversation, "q2", "enqueue")).await;
    let upload = world.request(Method::POST, &format!("{CONVERSATIONS}/{}/files", text(conversation)));
    let form = Form::new().file("notes.txt", b"buy milk");
    let uploaded = ask(upload.header("content-type", Form::kind()).body(form.end())).await;
    let file = &uploaded.body["files"][0]["id"];
    let mut third = queued(conversation, "q3", "enqueue");
    third["attachments"] = json!([file]);
    let third = world.begin_async(&third).await;
    let listed = queue(&world, conversation).await;
    let shown: Vec<[&Value; 4]> =
        listed.iter().map(|run| ["id", "text", "status", "attachments"].map(|name| &run[name])).collect();
    let status = json!("queued");
    let second_shown = [&second["run"], &json!("q2"), &status, &json!([])];
    assert_eq!(shown, [second_shown, [&third["run"], &json!("q3"), &status, &json!([file])]]);

    let edit = async |run: &Value, message: Value| {
        world
            .send(Method::PATCH, &format!("/v1/runs/{}", text(run)), Some(&json!({ "message": message })))
            .await
    };
    let edited =
        edit(&second["run"], json!([{ "type": "text", "text": "better" }, { "type": "text", "text": "q2" }]))
            .await;
    assert_eq!((edited.status, &edited.body["id"]), (200, &second["run"]));
    assert_eq!(queue(&world, conversation).await[0]["text"], "better\n\nq2");
    // The one under way has its message for good.
    refused(&edit(&first["run"], json!("no")).await, 409, "run_started");
    gate.open();
    world.settled(text(&third["run"])).await;
    assert_eq!(asked(&world), ["q1", "better\n\nq2", "q3"]);
    let shown = world.conversation(text(conversation)).await;
    assert_eq!(shown["messages"][2]["id"], second["message"]);
    assert_eq!(shown["messages"][2]["parts"][0]["text"], "better");
    refused(&edit(&second["run"], json!("late")).await, 409, "run_started");
    assert_eq!(queue(&world, conversation).await, Vec::<Value>::new());
    Some(())
}

async fn a_queued_turn_is_cancelled(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let gate = Release::default();
    world.play(wait_after(vec![], &gate, "A1."));
    let first = world.begin_async(&json!({ "message": "q1" })).await;
    let second = world.begin_async(&queued(&first["conversation"], "q2", "enqueue")).await;
    let third = world.begin_async(&queued(&first["conversation"], "q3", "enqueue")).await;
    let reader = world.follow(text(&second["run"]), 0).await;
    for _ in 0..2 {
        let answer = world.cancel(text(&second["run"])).await;
        assert_eq!((answer.status, &answer.body["status"]), (200, &json!("cancelled")));
        assert_eq!(answer.body["error"]["code"], "cancelled");
        assert_eq!(answer.body["last_event"], 3);
    }
    assert_eq!(queue(&world, &first["conversation"]).await.len(), 1);
    // Whoever waited for it is told, in the usual words.
    let told = reader.rest().await;
    assert_eq!((told.names(), told.status()), (vec!["turn", "error", "done"], "cancelled"));
    for after in 0..=3 {
        let path = format!("/v1/runs/{}/events?after={after}", text(&second["run"]));
        let rest = ask(world.request(Method::GET, &path)).await;
        let ids: Vec<_> = rest.text.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
        assert_eq!((rest.status, ids), (200, ["1", "2", "3"][after..].to_vec()));
    }
    let path = format!("/v1/runs/{}/events?after=4", text(&second["run"]));
    refused(&ask(world.request(Method::GET, &path)).await, 400, "invalid_parameter");
    assert_eq!(told.terminal().data["assistant"], Value::Null);
    gate.open();
    world.settled(text(&third["run"])).await;
    assert_eq!(asked(&world), ["q1", "q3"]);
    assert_eq!(world.thread(text(&first["conversation"])).await.len(), 4);
    Some(())
}

async fn a_page_of_the_queue_goes_on_where_it_was(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    world.play(hang_after(vec![]));
    let first = world.begin_async(&json!({ "message": "q0" })).await;
    let mut waiting = Vec::new();
    for message in ["q1", "q2", "q3"] {
        waiting.push(world.begin_async(&queued(&first["conversation"], message, "enqueue")).await);
    }
    let path = format!("{CONVERSATIONS}/{}/queue", text(&first["conversation"]));
    let page = async |after: &Value| world.get(&format!("{path}?limit=2&after={}", text(after))).await;
    let begun = world.get(&format!("{path}?limit=2")).await.body;
    assert_eq!(begun["next"], waiting[1]["run"]);
    // The one that the cursor names is taken back: those before it are not told again.
    world.cancel(text(&begun["next"])).await;
    let rest = page(&begun["next"]).await.body;
    let runs: Vec<&Value> = rest["data"].as_array().unwrap().iter().map(|run| &run["id"]).collect();
    assert_eq!((runs, &rest["next"]), (vec![&waiting[2]["run"]], &Value::Null));
    // One that has started left all of them behind it.
    assert_eq!(page(&first["run"]).await.body["data"].as_array().unwrap().len(), 2);
    let other = world.tell(&json!({ "message": "elsewhere" })).await.run();
    for unknown in [json!(other), json!("0190a1b2-0000-7000-8000-00000000000c"), json!("x")] {
        refused(&page(&unknown).await, 400, "invalid_parameter");
        // As of the list of runs.
        let path = path.replace("/queue", "/runs");
        refused(&world.get(&format!("{path}?after={}", text(&unknown))).await, 400, "invalid_parameter");
    }
    Some(())
}

/// The response of a queued turn waits with it, and streams when it starts.
/// Its reader is told of the turn before its end, as every reader is.
async fn a_queued_turn_goes_with_its_conversation(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    world.play(hang_after(vec![]));
    let running = world.begin_async(&json!({ "message": "one" })).await;
    let stream = world.begin(&queued(&running["conversation"], "two", "enqueue")).await;
    let (run, message) = (stream.run(), stream.message());
    let path = format!("{CONVERSATIONS}/{}", text(&running["conversation"]));
    assert_eq!(world.send(Method::DELETE, &path, None).await.status, 204);
    let told = stream.rest().await;
    assert_eq!(told.names(), ["turn", "error", "done"]);
    let turn = json!({ "conversation": running["conversation"], "run": run, "message": message, "conversation_id": null });
    assert_eq!(told.frames[0].data, turn);
    assert_eq!(told.terminal().data["code"], "cancelled");
    Some(())
}

async fn a_queued_turn_is_streamed(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let gate = Release::default();
    world.play(wait_after(vec![], &gate, "A1."));
    let first = world.begin_async(&json!({ "message": "q1" })).await;
    let body = json!({ "conversation": first["conversation"], "message": "q2", "on_busy": "enqueue" });
    let stream = world.begin(&body).await;
    assert_eq!(world.run(&stream.run()).await["status"], "queued");
    gate.open();
    let told = stream.rest().await;
    assert_eq!((told.names(), told.status()), (vec!["turn", "result", "done"], "succeeded"));
    Some(())
}

async fn interrupt_keeps_the_partial_answer(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    world.play(hang_after(vec![delta("half an ans")]));
    let mut first = world.begin(&json!({ "message": "one" })).await;
    first.until("delta").await;
    let body = json!({ "conversation": first.conversation(), "message": "two", "on_busy": "interrupt" });
    let told = world.tell(&body).await;
    assert_eq!(told.status(), "succeeded");
    let cut = first.rest().await;
    assert_eq!((cut.status(), cut.terminal().data["code"].as_str()), ("cancelled", Some("cancelled")));
    world.sandbox.disconnected(0).await.unwrap();
    let said = [("user", "one"), ("assistant", "half an ans"), ("user", "two"), ("assistant", "Hello.")];
    assert_eq!(world.thread(&told.conversation()).await, thread(&said));
    // What was said so far goes along.
    let replayed = world.sandbox.request(1).await.unwrap().body["conversation"].clone();
    assert_eq!(replayed[1]["content"], "half an ans");
    // Without anything in the way it is a turn like any other.
    let body = json!({ "conversation": told.conversation(), "message": "three", "on_busy": "interrupt" });
    assert_eq!(world.tell(&body).await.status(), "succeeded");
    Some(())
}

async fn interrupt_goes_before_the_queue(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    world.play(hang_after(vec![]));
    let first = world.begin_async(&json!({ "message": "one" })).await;
    world.sandbox.request(0).await.unwrap();
    let waiting = world.begin_async(&queued(&first["conversation"], "waits", "enqueue")).await;
    let urgent = world.begin_async(&queued(&first["conversation"], "urgent", "interrupt")).await;
    world.settled(text(&waiting["run"])).await;
    assert_eq!(world.run(text(&urgent["run"])).await["status"], "succeeded");
    assert_eq!(world.run(text(&first["run"])).await["status"], "cancelled");
    assert_eq!(asked(&world), ["one", "urgent", "waits"]);
    Some(())
}

async fn rollback_moves_the_other_turn_aside(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let before = world.tell(&json!({ "message": "zero" })).await;
    world.play(hang_after(vec![delta("half")]));
    let mut first = world.begin(&json!({ "conversation": before.conversation(), "message": "one" })).await;
    first.until("delta").await;
    let body = json!({ "conversation": before.conversation(), "message": "better", "on_busy": "rollback" });
    let told = world.tell(&body).await;
    assert_eq!((told.status(), first.rest().await.status()), ("succeeded", "cancelled"));
    let conversation = before.conversation();
    let zero = [("user", "zero"), ("assistant", "Hello.")];
    let kept = [&zero[..], &[("user", "better"), ("assistant", "Hello.")]].concat();
    assert_eq!(world.thread(&conversation).await, thread(&kept));
    assert_eq!(world.conversation(&conversation).await["message_count"], 4);
    // It was not told of what was rolled back.
    assert_eq!(world.sandbox.request(2).await.unwrap().body["conversation"].as_array().unwrap().len(), 2);
    // The other turn is on a branch beside.
    let branches = world.get(&format!("{CONVERSATIONS}/{conversation}/branches")).await.body["data"].clone();
    let branches = branches.as_array().unwrap();
    assert_eq!(
        branches.iter().map(|branch| branch["current"].clone()).collect::<Vec<_>>(),
        [json!(false), json!(true)]
    );
    let side =
        world.get(&format!("{CONVERSATIONS}/{conversation}?branchId={}", text(&branches[0]["id"]))).await;
    let other = [&zero[..], &[("user", "one"), ("assistant", "half")]].concat();
    assert_eq!(crate::world::said(&side.body["data"]["attributes"]["messages"]), thread(&other));
    Some(())
}

async fn the_queue_moves_on_after_a_failure(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    world.play(hang_after(vec![]));
    let first = world.begin_async(&json!({ "message": "one" })).await;
    // Scripts go by connection: the first must have its own before the next is set.
    world.sandbox.request(0).await.unwrap();
    let second = world.begin_async(&queued(&first["conversation"], "two", "enqueue")).await;
    world.play(crate::scripts::bytes("nonsense"));
    let third = world.begin_async(&queued(&first["conversation"], "three", "enqueue")).await;
    assert_eq!(world.cancel(text(&first["run"])).await.status, 200);
    assert_eq!(world.settled(text(&third["run"])).await["status"], "succeeded");
    assert_eq!(world.run(text(&second["run"])).await["error"]["code"], "sandbox_protocol");
    assert_eq!(world.run(text(&first["run"])).await["status"], "cancelled");
    Some(())
}
