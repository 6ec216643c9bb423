//! Two nodes on one PostgreSQL: one conversation has one run, readers and cancels cross over, and what a dead or
//! a sleeping node leaves is the other's.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use nix::sys::signal::Signal;
use serde_json::json;
use testkit::process::ServerProcess;
use testkit::sandbox::{Action, Release};

use crate::client::{Caller, Event, new_id, now, turn};
use crate::house::{House, LEASE, SETTLED, accepted, delta, endless, story};
use crate::ledger::fold;

pub struct Nodes {
    pub house: House,
    pub a: ServerProcess,
    pub b: ServerProcess,
    pub on_a: Caller,
    pub on_b: Caller,
}

pub async fn nodes(script: Vec<Action>) -> Option<Nodes> {
    let house = House::postgres(script).await?;
    let (a, b) = (house.serve().await, house.serve().await);
    let (on_a, on_b) = (house.first_caller(&a).await, house.caller(&b));
    Some(Nodes { house, a, b, on_a, on_b })
}

/// By when a cancelled run is settled: 5 seconds (G9), and as much again for a machine that has others to serve.
const CANCELLED: Duration = Duration::from_secs(10);
/// What a node says of a run that it finds to be another's.
const LOST: &str = "this node no longer writes to the run";

const ROUNDS: usize = 200;

pub fn status(log: &[Event]) -> String {
    let last = log.last().expect("an event");
    last.json()["status"].as_str().unwrap_or_else(|| panic!("{last:?}")).to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_clients_on_both_nodes_one_gets_the_run() {
    let Some(nodes) = nodes(endless()).await else { return };
    let first = nodes.on_a.say(None, "first").await;
    nodes.on_b.cancel(&first.run).await.expect("an answer");
    nodes.on_b.events(&first.run, 0).await;
    for round in 0..ROUNDS {
        let mut body = turn(Some(&first.conversation), "me!");
        body["on_busy"] = "reject".into();
        let sent = (0..64).map(|n| {
            let caller = if n % 2 == 0 { &nodes.on_a } else { &nodes.on_b };
            let request =
                caller.request(reqwest::Method::POST, "/v1/turns").header("prefer", "respond-async");
            let request = request.header("content-type", "application/json").body(body.to_string());
            async move {
                testkit::server::Answer::read(request.send().await.expect("an answer")).await.expect("whole")
            }
        });
        let answers = join_all(sent).await;
        let taken: Vec<_> = answers.iter().filter(|answer| answer.status == 202).collect();
        assert_eq!(taken.len(), 1, "round {round}");
        let run = taken[0].body["run"].as_str().expect("an id");
        for answer in answers.iter().filter(|answer| answer.status != 202) {
            assert_eq!((answer.status, &answer.body["run"]), (409, &json!(run)), "{}", answer.text);
        }
        let other = if round % 2 == 0 { &nodes.on_a } else { &nodes.on_b };
        assert_eq!(other.cancel(run).await.expect("an answer"), 200);
        // A machine that has others to serve may cost a node its short lease.
        let status = status(&other.events(run, 0).await);
        assert!(status == "cancelled" || status == "interrupted", "round {round}: {status}");
    }
    assert_eq!(nodes.on_b.runs(&first.conversation).await.len(), ROUNDS + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_key_sent_to_both_nodes_is_one_run() {
    let Some(nodes) = nodes(story(Duration::ZERO)).await else { return };
    for _ in 0..10 {
        let (key, body) = (new_id(), turn(None, "once"));
        let sent = (0..50).map(|n| {
            let caller = if n % 2 == 0 { &nodes.on_a } else { &nodes.on_b };
            caller.start_async(&key, &body)
        });
        let answers: Vec<_> =
            join_all(sent).await.into_iter().map(|answer| answer.expect("accepted")).collect();
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
        assert_eq!(nodes.on_a.runs(&answers[0].conversation).await, [answers[0].run.clone()]);
        assert_eq!(status(&nodes.on_b.events(&answers[0].run, 0).await), "succeeded");
    }
    let list = nodes.on_a.get("/v1/chat-conversations?page[size]=100").await;
    assert_eq!(list.body["data"].as_array().expect("a list").len(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_follows_and_resumes_on_the_other_node() {
    let pause = || Action::Wait(Duration::from_millis(50));
    let mut script = vec![accepted()];
    for n in 0..100 {
        script.extend([delta(&format!("{n} ")), pause()]);
    }
    script.extend([Action::Line(json!({ "type": "result", "message": "end" })), Action::EndChunks]);
    let Some(nodes) = nodes(script).await else { return };
    let (accepted, mut here) = nodes.on_a.start(&new_id(), &turn(None, "hello")).await.expect("a turn");
    let mut there = nodes.on_b.follow(&accepted.run, 0).await;
    let mut moved = nodes.on_a.follow(&accepted.run, 0).await;
    let arrivals = async |stream: &mut crate::client::Stream| {
        let mut seen = Vec::new();
        while let Some(event) = stream.next().await.expect("a stream that goes on") {
            seen.push((event, Instant::now()));
        }
        seen
    };
    let moving = async {
        let mut events = moved.until(20).await;
        events.extend(nodes.on_b.follow(&accepted.run, 20).await.until(40).await);
        events.extend(nodes.on_a.events(&accepted.run, 40).await);
        events
    };
    let (here, there, moved) = tokio::join!(arrivals(&mut here), arrivals(&mut there), moving);
    let log = nodes.on_b.events(&accepted.run, 0).await;
    assert_eq!(log.len(), 103);
    assert_eq!(here.iter().map(|(event, _)| event.clone()).collect::<Vec<_>>(), log);
    assert_eq!(there.iter().map(|(event, _)| event.clone()).collect::<Vec<_>>(), log);
    assert_eq!(moved, log);
    let late = here.iter().zip(&there).map(|((_, here), (_, there))| there.saturating_duration_since(*here));
    let mut late: Vec<Duration> = late.collect();
    late.sort();
    // Woken, not by the look at the log twice a second: that alone would be 250 ms late in the middle.
    let (middle, last) = (late[late.len() / 2], late[late.len() - 1]);
    assert!(middle < Duration::from_millis(125), "{middle:?} later on the other node, at most {last:?}");
    assert!(last < Duration::from_secs(5), "{last:?} later on the other node");
}

/// Its node learns of it when it is to end: the answer is written anew, and once.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_sandbox_uses_through_the_other_node_is_in_its_answer() {
    let gate = Release::default();
    let result = Action::Line(json!({ "type": "result", "message": "Here." }));
    let (before, after) = (delta("Let me ask. "), delta("I know. "));
    let script = vec![accepted(), before, Action::WaitFor(gate.clone()), after, result, Action::EndChunks];
    let Some(nodes) = nodes(script).await else { return };
    let (accepted, mut stream) = nodes.on_a.start(&new_id(), &turn(None, "hello")).await.expect("a turn");
    stream.until(2).await;
    let envelope = nodes.house.sandbox.request(0).await.expect("a request").body;
    let of = |name: &str| envelope[name].as_str().expect(name).to_owned();
    let as_agent = Caller::new(&of("agent_url"), &of("config_token"));
    let token = as_agent.get("/config").await.body["model"]["api_key"].as_str().expect("a key").to_owned();
    let asked = json!({ "model": "demo/assistant", "messages": [{ "role": "user", "content": "Hi" }] });
    let through_b = Caller::new(nodes.b.url(), &token);
    let answer = through_b.post("/v1/chat/completions", &asked).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    // Counted once it has been answered.
    let used = loop {
        let used = nodes.on_b.run(&accepted.run).await["usage"].clone();
        if used["total_tokens"].as_i64() > Some(0) {
            break used;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    gate.open();
    let live = stream.rest().await.expect("a stream");
    let log = nodes.on_b.events(&accepted.run, 2).await;
    assert_eq!(live, log);
    assert_eq!(status(&log), "succeeded");
    let (messages, _) = nodes.on_b.thread(&accepted.conversation).await;
    let told = &messages[1]["metadata"]["usage"];
    assert_eq!(
        (&told["input_tokens"], &told["output_tokens"]),
        (&used["input_tokens"], &used["output_tokens"])
    );
    assert_eq!(messages.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_reaches_the_other_nodes_sandbox() {
    let Some(nodes) = nodes(endless()).await else { return };
    let mut took = Vec::new();
    for n in 0..7 {
        let (accepted, mut stream) = nodes.on_a.start(&new_id(), &turn(None, "hello")).await.expect("a turn");
        let before = stream.until(7).await;
        let (asked, since) = (Instant::now(), now());
        assert_eq!(nodes.on_b.cancel(&accepted.run).await.expect("an answer"), 200);
        let gone =
            nodes.house.sandbox.disconnected(n).await.expect("a request").disconnected.expect("a time");
        took.push(gone - asked);
        let log = nodes.on_b.events(&accepted.run, 0).await;
        assert_eq!((status(&log), &log[..7]), ("cancelled".to_owned(), &before[..]));
        let after = nodes.on_b.settled_after(&accepted.run, since).await;
        assert!(after < CANCELLED, "settled after {after:?}");
        assert_eq!(nodes.on_b.cancel(&accepted.run).await.expect("an answer"), 200, "idempotent");
        assert_eq!(stream.rest().await.expect("a whole stream"), log[7..]);
        assert_eq!(nodes.on_b.events(&accepted.run, 0).await, log);
    }
    // Within a second; one that a busy machine held up is no proof of the contrary.
    took.sort();
    assert!(took[3] < Duration::from_secs(1) && took[6] < CANCELLED, "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delete_on_one_node_ends_the_streams_of_the_other() {
    let gate = Release::default();
    let script =
        vec![accepted(), delta("before"), Action::WaitFor(gate.clone()), delta("after"), Action::Hang];
    let Some(nodes) = nodes(script.clone()).await else { return };
    nodes.house.sandbox.then(script);
    for path in ["/v1/chat-conversations", "/v1/conversations"] {
        let (accepted, mut here) = nodes.on_a.start(&new_id(), &turn(None, "hello")).await.expect("a turn");
        here.until(2).await;
        let mut there = nodes.on_b.follow(&accepted.run, 2).await;
        let deleted = nodes.on_b.delete(&format!("{path}/{}", accepted.conversation)).await;
        assert!(deleted == 204 || deleted == 200, "{path}: {deleted}");
        for stream in [&mut here, &mut there] {
            let rest = stream.rest().await.expect("an end");
            assert_eq!(status(&rest), "cancelled", "{rest:?}");
            assert!(rest.iter().all(|event| !event.json().to_string().contains("after")), "{rest:?}");
        }
        assert_eq!(nodes.on_a.get(&format!("/v1/runs/{}", accepted.run)).await.status, 404);
    }
    gate.open();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_nodes_runs_are_settled_by_the_other() {
    let Some(mut nodes) = nodes(endless()).await else { return };
    for _ in 1..4 {
        nodes.house.sandbox.then(endless());
    }
    nodes.house.sandbox.then(story(Duration::ZERO));
    let mut left = Vec::new();
    for _ in 0..4 {
        let (accepted, mut stream) = nodes.on_a.start(&new_id(), &turn(None, "hello")).await.expect("a turn");
        let seen = stream.until(7).await;
        let queued = nodes.on_a.say(Some(&accepted.conversation), "and then").await;
        left.push((accepted, seen, nodes.on_b.follow(&queued.run, 0).await, queued));
    }
    let mut attached = nodes.on_b.follow(&left[0].0.run, 0).await;
    nodes.a.kill9().await.expect("killed");
    let death = now();
    for (accepted, seen, mut waiting, queued) in left {
        let log = nodes.on_b.events(&accepted.run, 0).await;
        let after = nodes.on_b.settled_after(&accepted.run, death).await;
        assert!(after <= SETTLED, "settled after {after:?}");
        assert_eq!((status(&log), &log[..7], log.len()), ("interrupted".to_owned(), &seen[..], 9));
        let next = waiting.rest().await.expect("a whole stream");
        assert_eq!(status(&next), "succeeded", "the queued turn of {}", queued.run);
        let (messages, count) = nodes.on_b.thread(&accepted.conversation).await;
        assert_eq!((messages.len(), count), (4, 4));
        assert_eq!(messages[1]["parts"], fold(&log), "what was streamed is kept");
        let more = nodes.on_b.say(Some(&accepted.conversation), "go on").await;
        assert_eq!(status(&nodes.on_b.events(&more.run, 0).await), "succeeded");
    }
    assert_eq!(status(&attached.rest().await.expect("a whole stream")), "interrupted");
}

/// All that anyone can see of a run and its conversation.
async fn view(caller: &Caller, run: &str, conversation: &str) -> String {
    let trace = caller.get(&format!("/v1/runs/{run}/trace?limit=100")).await.text;
    let (messages, count) = caller.thread(conversation).await;
    format!("{:?} {} {trace} {messages:?} {count}", caller.events(run, 0).await, caller.run(run).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_slept_past_its_lease_writes_nothing() {
    let gate = Release::default();
    let mut script = vec![accepted(), delta("Once "), delta("upon "), Action::WaitFor(gate.clone())];
    script.extend((0..50).map(|n| delta(&format!("late {n} "))));
    script.extend([Action::Line(json!({ "type": "result", "message": "late" })), Action::Hang]);
    let Some(mut nodes) = nodes(script).await else { return };
    let mut left = Vec::new();
    for _ in 0..4 {
        let (accepted, mut stream) = nodes.on_a.start(&new_id(), &turn(None, "hello")).await.expect("a turn");
        stream.until(3).await;
        left.push((accepted, stream));
    }
    nodes.a.signal(Signal::SIGSTOP).expect("stopped");
    let (asleep, since) = (Instant::now(), now());
    let mut before = Vec::new();
    for (accepted, _) in &left {
        assert_eq!(status(&nodes.on_b.events(&accepted.run, 0).await), "interrupted");
        let after = nodes.on_b.settled_after(&accepted.run, since).await;
        assert!(after <= SETTLED, "settled after {after:?}");
        before.push(view(&nodes.on_b, &accepted.run, &accepted.conversation).await);
    }
    assert!(asleep.elapsed() > LEASE, "a node that only slept a little keeps its runs");
    let runs: Vec<String> = left.iter().map(|(accepted, _)| accepted.run.clone()).collect();
    // All that the sandbox says from now on finds a node without the right to write it.
    gate.open();
    nodes.a.signal(Signal::SIGCONT).expect("woken");
    for n in 0..left.len() {
        nodes.house.sandbox.disconnected(n).await.expect("a request that its node gave up");
    }
    for ((accepted, mut stream), before) in left.into_iter().zip(before) {
        let rest = stream.rest().await.expect("the reader who waited through it");
        assert_eq!(rest, nodes.on_b.events(&accepted.run, 3).await);
        assert_eq!(view(&nodes.on_b, &accepted.run, &accepted.conversation).await, before);
        assert_eq!(view(&nodes.on_a, &accepted.run, &accepted.conversation).await, before);
        let next = nodes.on_a.say(Some(&accepted.conversation), "go on").await;
        assert_eq!(status(&nodes.on_b.events(&next.run, 0).await), "succeeded", "the woken node serves");
        assert_eq!(nodes.on_b.thread(&accepted.conversation).await.1, 4);
    }
    let ended = nodes.a.terminate().await.expect("an end");
    assert_eq!(ended.code(), Some(0), "{}", nodes.a.output());
    // It says so, of each of them.
    for run in runs {
        let said = nodes.a.output();
        let said = said.lines().any(|line| line.contains(&run) && line.contains(LOST));
        assert!(said, "nothing about {run}: {}", nodes.a.output());
    }
}

/// As after a commit whose answer was lost: the run is a node's, which knows nothing of it and is busy with others.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_its_node_knows_nothing_of_is_ended() {
    let Some(nodes) = nodes(endless()).await else { return };
    let (known, mut stream) = nodes.on_a.start(&new_id(), &turn(None, "hello")).await.expect("a turn");
    stream.until(7).await;
    let (unknown, mut stream) = nodes.on_b.start(&new_id(), &turn(None, "hello")).await.expect("a turn");
    stream.until(7).await;
    let give = format!(
        "UPDATE runs SET fence = fence + 1, node = (SELECT node FROM runs WHERE id = '{}') WHERE id = '{}'",
        known.run, unknown.run
    );
    nodes.house.superuser().await.batch_execute(&give).await.expect("given away");
    let log = nodes.on_b.events(&unknown.run, 0).await;
    assert_eq!((status(&log), log.len()), ("interrupted".to_owned(), 9));
    assert_eq!(nodes.on_b.run(&known.run).await["status"], "running", "its node is as busy as before");
}

/// Wherever in its writing a node falls asleep, it holds nothing that the other needs.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_asleep_in_the_middle_of_its_writing_blocks_nobody() {
    let Some(nodes) = nodes(story(Duration::from_millis(1))).await else { return };
    let talking = (0..12).map(|_| async {
        loop {
            // Answers stop coming when the node sleeps.
            let (key, body) = (new_id(), turn(None, "hello"));
            let told = async { nodes.on_a.start(&key, &body).await.expect("a turn").1.rest().await };
            if tokio::time::timeout(Duration::from_secs(2), told).await.is_err() {
                return;
            }
        }
    });
    let sleep = async {
        tokio::time::sleep(Duration::from_millis(700 + crate::house::random(500))).await;
        nodes.a.signal(Signal::SIGSTOP).expect("stopped");
        Instant::now()
    };
    let (_, asleep) = tokio::join!(join_all(talking), sleep);
    let list = nodes.on_b.get("/v1/chat-conversations?page[size]=100").await;
    let rows = list.body["data"].as_array().expect("a list").iter();
    join_all(rows.map(async |row| {
        for run in nodes.on_b.runs(row["id"].as_str().expect("an id")).await {
            nodes.on_b.events(&run, 0).await;
        }
    }))
    .await;
    assert!(asleep.elapsed() <= SETTLED, "settled after {:?}", asleep.elapsed());
    nodes.a.signal(Signal::SIGCONT).expect("woken");
}

/// A run whose last reader leaves another node is cancelled long before it would have ended.
#[tokio::test(flavor = "multi_thread")]
async fn the_last_reader_of_another_node_is_missed_when_it_leaves() {
    let Some(nodes) = nodes(vec![accepted(), delta("a"), Action::Hang]).await else { return };
    let mut body = turn(None, "first");
    body["on_disconnect"] = "cancel".into();
    let (first, stream) = nodes.on_a.start(&new_id(), &body).await.expect("a turn");
    let mut attached = nodes.on_b.follow(&first.run, 0).await;
    attached.until(2).await;
    drop(stream);
    // As long as somebody reads, it goes on.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(nodes.on_a.get(&format!("/v1/runs/{}", first.run)).await.body["status"], "running");
    drop(attached);
    let left = Instant::now();
    while nodes.on_a.get(&format!("/v1/runs/{}", first.run)).await.body["status"] == "running" {
        assert!(left.elapsed() < SETTLED, "nobody missed it");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A run that is to end with its readers ends with the last of them, on whichever node that one reads.
#[tokio::test(flavor = "multi_thread")]
async fn readers_on_the_other_node_count() {
    let pause = || Action::Wait(Duration::from_millis(100));
    let mut slow = vec![accepted()];
    for n in 0..75 {
        slow.extend([delta(&format!("{n} ")), pause()]);
    }
    slow.extend([Action::Line(json!({ "type": "result", "message": "end" })), Action::EndChunks]);
    let Some(nodes) = nodes(slow).await else { return };
    let mut body = turn(None, "first");
    body["on_disconnect"] = "cancel".into();
    let (first, stream) = nodes.on_a.start(&new_id(), &body).await.expect("a turn");
    // Queued from the other node, and to be started by the one that has the first.
    body["conversation"] = first.conversation.clone().into();
    let (_, mut queued) = nodes.on_b.start(&new_id(), &body).await.expect("a queued turn");
    let mut attached = nodes.on_b.follow(&first.run, 0).await;
    let seen = attached.until(3).await;
    drop(stream);
    let rest = attached.rest().await.expect("a whole stream");
    assert_eq!((status(&rest), seen.len() + rest.len()), ("succeeded".to_owned(), 78));
    assert_eq!(status(&queued.rest().await.expect("a whole stream")), "succeeded");
}
