//! Back from the sandbox: files into the bag with one use of the run's token, into the running turn, and into the next
//! turn's configuration.

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use testkit::agent::{Agent, echo};
use testkit::form::Form;
use testkit::sandbox::{Action, Release};
use testkit::server::Answer;

use crate::bad_input::{cut_off_with, until};
use crate::caller::{CONVERSATIONS, Caller, attachment, files, names, refused, sha256};
use crate::scripts;
use crate::uploading::noise;
use crate::world::{Home, World, stories, stories_everywhere};

stories_everywhere!(files_of_a_running_turn);
stories!(
    one_of_a_hundred,
    more_files_than_a_person_may_send_at_once,
    a_broken_upload_may_be_tried_again,
    whose_token,
    when_a_token_dies,
    late_files_are_in_the_message,
    files_that_are_gone_again_hold_up_no_end
);

async fn files_of_a_running_turn(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let ann = &world.ann;
    let chat = ann.conversation().await;
    ann.put(&chat, "in.txt", b"in").await;
    let gate = Release::default();
    let delta = scripts::delta("Working. ");
    world.sandbox.play(scripts::wait_after(vec![delta], &gate, "Done."));
    let ids =
        ann.begin(&json!({ "conversation": chat, "message": "make", "on_disconnect": "continue" })).await;
    let mut live = ann.follow(ids["run"].as_str().unwrap()).await;
    live.until("delta").await;
    let agent = world.agent(0).await;
    let big = noise(9, 6_000_000);
    let form = Form::of("out.bin", &big).file("IN.txt", b"made").file("empty", b"");
    let sent = agent.send_back(&form).await.unwrap();
    let stored = files(&sent);
    assert_eq!(names(&stored), ["out.bin", "IN-1.txt", "empty"]);
    for file in &stored {
        assert_eq!((&file["source"], &file["chatId"]), (&json!("sandbox"), &json!(chat)));
    }
    assert_eq!(stored[0]["sha256"], sha256(&big));
    // At once, while the turn goes on: in the bag, and as events.
    assert_eq!(names(&ann.list(&chat).await), ["in.txt", "out.bin", "IN-1.txt", "empty"]);
    for file in &stored {
        let event = live.until("file").await;
        let mut block = attachment(file);
        block["type"] = json!("file");
        assert!(event.data == attachment(file) || event.data == block, "{}", event.raw);
    }
    assert!(ann.content(&stored[0]).await.bytes == big);
    assert_eq!(agent.send_back(&form).await.unwrap().status, 401, "once");
    gate.open();
    let told = live.rest().await;
    // Live, stored and read again are one.
    let blocks = ann.messages(&chat).await[1]["parts"].clone();
    let kinds: Vec<&str> =
        blocks.as_array().unwrap().iter().map(|block| block["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["text", "file", "file", "file", "text"]);
    let assistant: Value = serde_json::from_str(&told.assistant_content()).unwrap();
    assert_eq!((&assistant, &told.folded()), (&blocks, &told.assistant_content()));
    assert_eq!(ann.log(&ids["run"]).await.bytes, told.bytes);
    assert_eq!(blocks[1]["fileId"], stored[0]["id"]);
    // The next turn is given them.
    world.sandbox.play(echo("more.txt", b"more"));
    let told = ann.turn(&json!({ "conversation": chat, "message": "next" })).await;
    assert_eq!(told.terminal().data["message"], "4 given, 201");
    assert_eq!(told.names(), ["turn", "file", "result", "done"]);
    Some(())
}

/// The limit on the files of one request is for people: a run hands in all that it made, once.
async fn more_files_than_a_person_may_send_at_once(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let ann = &world.ann;
    for (turn, count) in [11, 100].into_iter().enumerate() {
        let chat = ann.conversation().await;
        let gate = Release::default();
        world.sandbox.play(scripts::wait_after(vec![], &gate, "Done."));
        let ids =
            ann.begin(&json!({ "conversation": chat, "message": "make", "on_disconnect": "continue" })).await;
        let agent = world.agent(turn).await;
        let form = (1..count)
            .fold(Form::of("f0", b"0"), |form, n| form.file(&format!("f{n}"), n.to_string().as_bytes()));
        let sent = agent.send_back(&form).await.unwrap();
        assert_eq!(files(&sent).len(), count, "{}", sent.text);
        gate.open();
        let told = ann.log(&ids["run"]).await;
        assert_eq!(told.names().iter().filter(|name| **name == "file").count(), count);
        assert_eq!(told.terminal().event, "result");
    }
    Some(())
}

async fn one_of_a_hundred(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let ann = &world.ann;
    let chat = ann.conversation().await;
    let (ids, agent) = world.hanging(&chat).await;
    let uses = join_all((0..100).map(|n| {
        let agent = agent.clone();
        async move { agent.send_back(&Form::of("x.txt", format!("use {n}").as_bytes())).await.unwrap() }
    }));
    let answers: Vec<Answer> = uses.await;
    let won: Vec<&Answer> = answers.iter().filter(|answer| answer.status == 201).collect();
    assert_eq!(won.len(), 1);
    assert_eq!(answers.iter().filter(|answer| answer.status == 401).count(), 99);
    let listed = ann.list(&chat).await;
    assert_eq!(listed, files(won[0]));
    assert!(ann.content(&listed[0]).await.bytes.starts_with(b"use "));
    // Nothing of the others is left.
    until(async || crate::bad_input::blobs(&world).len() == 1).await;
    ann.send(Method::POST, &format!("/v1/runs/{}/cancel", ids["run"].as_str().unwrap()), None).await;
    let told = ann.log(&ids["run"]).await;
    assert_eq!(told.names().iter().filter(|name| **name == "file").count(), 1);
    Some(())
}

async fn a_broken_upload_may_be_tried_again(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let ann = &world.ann;
    let chat = ann.conversation().await;
    let (_, agent) = world.hanging(&chat).await;
    let form = Form::of("a.bin", &noise(1, 400_000)).file("b.bin", &noise(2, 400_000));
    let whole = form.end();
    let path = agent.text("agent_url").strip_prefix(ann.url()).unwrap().to_owned() + "/results";
    for cut in [100, 300_000, 500_000, whole.len() - 10] {
        cut_off_with(ann, &path, agent.text("upload_otp"), &whole, cut).await;
    }
    // Broken in other ways, and refused for them.
    for bad in [agent.results(&Form::new()), agent.results(&form).body(whole[..whole.len() - 30].to_vec())] {
        assert_eq!(bad.send().await.unwrap().status(), 400);
    }
    let text = ann.anonymous(Method::POST, &format!("{}/results", agent.text("agent_url")));
    let text =
        text.header("authorization", agent.text("upload_otp")).header("content-type", "text/plain").body("x");
    assert_eq!(text.send().await.unwrap().status(), 415);
    let many = (0..=1000).fold(Form::new(), |form, n| form.file(&n.to_string(), b"x"));
    assert_eq!(agent.send_back(&many).await.unwrap().status, 413);
    assert_eq!(ann.list(&chat).await, Vec::<Value>::new());
    // The token was not used by any of these.
    let stored = files(&agent.send_back(&form).await.unwrap());
    assert_eq!(names(&stored), ["a.bin", "b.bin"]);
    assert_eq!(agent.send_back(&form).await.unwrap().status, 401);
    Some(())
}

async fn with(agent: &Agent, url: &str, authorization: Option<&str>) -> u16 {
    let client = Caller::new(url, "");
    let mut request = client.anonymous(Method::POST, &format!("{}/results", agent.text("agent_url")));
    if let Some(value) = authorization {
        request = request.header("authorization", value);
    }
    let form = Form::of("x", b"x");
    request.header("content-type", Form::kind()).body(form.end()).send().await.unwrap().status().as_u16()
}

async fn whose_token(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let ann = &world.ann;
    let (chat, other) = (ann.conversation().await, ann.conversation().await);
    let (_, agent) = world.hanging(&chat).await;
    let (_, foreign) = world.hanging(&other).await;
    let own = agent.text("upload_otp").to_owned();
    let mut forged = own.clone();
    forged.replace_range(40..41, if &own[40..41] == "A" { "B" } else { "A" });
    let users = format!("Bearer {}", ann.bearer());
    for bad in [
        None,
        Some(""),
        Some(" "),
        Some("Bearer"),
        Some("Bearer "),
        Some("null"),
        Some("undefined"),
        Some(foreign.text("upload_otp")),
        Some(agent.text("config_token")),
        Some(&forged),
        Some(&own[..own.len() - 1]),
        Some(&users),
    ] {
        assert_eq!(with(&agent, ann.url(), bad).await, 401, "{bad:?}");
    }
    // The right token on another run's path.
    let crossed = Agent::new(json!({ "agent_url": foreign.text("agent_url"), "upload_otp": own }));
    assert_eq!(crossed.send_back(&Form::of("x", b"x")).await.unwrap().status, 401);
    assert_eq!((ann.list(&chat).await.len(), ann.list(&other).await.len()), (0, 0));
    // Plain, as the protocol has it; and as most clients would write it.
    assert_eq!(with(&agent, ann.url(), Some(&own)).await, 201);
    Some(())
}

async fn when_a_token_dies(home: Home) -> Option<()> {
    let world = World::start_with(home, &[("THREADKEEP_UPLOAD_OTP_TTL_SECONDS", "3")]).await?;
    let ann = &world.ann;
    let chat = ann.conversation().await;
    // With the cancellation, from the moment that it is asked for.
    let (ids, agent) = world.hanging(&chat).await;
    ann.send(Method::POST, &format!("/v1/runs/{}/cancel", ids["run"].as_str().unwrap()), None).await;
    refused(&agent.send_back(&Form::of("x", b"x")).await.unwrap(), 401, "unauthenticated");
    ann.log(&ids["run"]).await;
    refused(&agent.send_back(&Form::of("x", b"x")).await.unwrap(), 401, "unauthenticated");
    // With the end.
    let told = ann.turn(&json!({ "conversation": chat, "message": "quick" })).await;
    assert_eq!(told.status(), "succeeded");
    refused(&world.agent(1).await.send_back(&Form::of("x", b"x")).await.unwrap(), 401, "unauthenticated");
    // By the clock.
    let (_, agent) = world.hanging(&chat).await;
    tokio::time::sleep(std::time::Duration::from_millis(3200)).await;
    refused(&agent.send_back(&Form::of("x", b"x")).await.unwrap(), 401, "unauthenticated");
    // With its conversation.
    let second = ann.conversation().await;
    let (_, agent) = world.hanging(&second).await;
    assert_eq!(ann.delete(&format!("{CONVERSATIONS}/{second}")).await, 204);
    refused(&agent.send_back(&Form::of("x", b"x")).await.unwrap(), 401, "unauthenticated");
    assert_eq!(ann.list(&chat).await, Vec::<Value>::new());
    // With its process: the run is interrupted, and what it had not sent is not there.
    Some(())
}

/// Files whose commit races the end of their run: refused, or in its message; never beside it.
async fn late_files_are_in_the_message(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let ann = &world.ann;
    let (mut taken, mut late) = (0, 0);
    for round in 0..30_u64 {
        let chat = ann.conversation().await;
        let gate = Release::default();
        // Its last word comes with its end, in one piece.
        let end = format!("{}\n{}\n", scripts::delta("Said last. "), scripts::result("Done."));
        let mut script = scripts::wait_after(vec![], &gate, "");
        script.pop();
        script.push(Action::Bytes(end.into()));
        world.sandbox.play(script);
        let ids = ann.begin(&json!({ "conversation": chat, "message": "make" })).await;
        let agent = world.agent(round as usize).await;
        let opening = async {
            tokio::time::sleep(std::time::Duration::from_micros(round * 400)).await;
            gate.open();
        };
        let form = Form::of("x.txt", b"x");
        let (sent, ()) = tokio::join!(agent.send_back(&form), opening);
        let log = ann.log(&ids["run"]).await;
        assert_eq!(log.frames.iter().filter(|frame| frame.event == "delta").count(), 1);
        let blocks = ann.messages(&chat).await[1]["parts"].clone();
        let listed = ann.list(&chat).await;
        let shown = blocks.as_array().unwrap().iter().filter(|block| block["type"] == "file").count();
        match sent.unwrap().status {
            201 => taken += 1,
            401 => late += 1,
            other => panic!("{other}"),
        }
        assert_eq!(shown, listed.len(), "{blocks} {listed:?}");
    }
    assert_eq!(taken + late, 30);
    Some(())
}

/// What came back and was deleted before anybody looked: its run ends all the same.
async fn files_that_are_gone_again_hold_up_no_end(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let ann = &world.ann;
    let gate = Release::default();
    world.sandbox.play(scripts::wait_after(vec![scripts::delta("Working. ")], &gate, "Done."));
    let ids = ann.begin(&json!({ "message": "make", "on_disconnect": "continue" })).await;
    let run = ids["run"].as_str().unwrap();
    ann.follow(run).await.until("delta").await;
    let sqlite = "UPDATE runs SET upload_used_at = 1 WHERE id = ?1";
    world.alter(run, sqlite, "UPDATE runs SET upload_used_at = now() WHERE id = $1").await;
    gate.open();
    ann.log(&ids["run"]).await;
    let ended = ann.get(&format!("/v1/runs/{run}")).await;
    assert_eq!(ended.body["status"], "succeeded", "{}", ended.text);
    Some(())
}
