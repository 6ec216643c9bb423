//! Without a terminal: a message in by standard input, the answer out by standard output.

use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use testkit::process::command;
use testkit::sandbox::{Action, Release};

use crate::world::{BINARY, Wire, World, begin, delta, ended, gated, lines, result, step, until};

#[tokio::test]
async fn an_answer_streams_to_standard_output_and_steps_go_beside_it() {
    let (world, gate) = (World::new().await, Release::default());
    let first = vec![step("s", "count words", "running"), delta("Two ")];
    let then = vec![step("s", "count words", "succeeded"), delta("words.\n"), result("")];
    world.sandbox.play(gated(first, &gate, then));
    let mut child = begin(world.chat(&[]), "Good morning\n").await;
    // It is there before the run has ended.
    assert_eq!(until(&mut child, "Two ").await, "Two ");
    gate.open();
    let ran = ended(child).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "words.\n"), "{ran:?}");
    assert_eq!(ran.stderr, "… count words\n✓ count words\n");
    let asked = world.sandbox.request(0).await.expect("a request").body;
    assert_eq!(asked["message"]["content"], "Good morning", "the line's end is not part of it");
}

#[tokio::test]
async fn a_pipe_is_one_message_and_conversations_go_on() {
    let world = World::new().await;
    for (args, message) in [(&[][..], "one\n\ntwo\n"), (&["--continue"], "three")] {
        let ran = world.say(message, args).await;
        assert_eq!(
            (ran.code, ran.stdout.as_str(), ran.stderr.as_str()),
            (Some(0), "Hello.\n", ""),
            "{ran:?}"
        );
    }
    let thread = world.newest().await;
    let id = thread["id"].as_str().expect("an id");
    let ran = world.say("four", &["--conversation", id, "--mode", "agent"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let thread = world.newest().await;
    let said: Vec<&str> = thread["attributes"]["messages"]
        .as_array()
        .expect("messages")
        .iter()
        .filter(|message| message["role"] == "user")
        .map(|message| message["content"].as_str().expect("text"))
        .collect();
    assert_eq!(said, ["one\n\ntwo", "three", "four"]);
}

#[tokio::test]
async fn events_are_lines_of_json() {
    let world = World::new().await;
    world.sandbox.play(lines(vec![delta("He"), delta("llo"), result("Hello\u{1b}[2J")]));
    let ran = world.say("Hi", &["--json"]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    let events: Vec<Value> =
        ran.stdout.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    let names: Vec<&str> = events.iter().map(|event| event["event"].as_str().expect("a name")).collect();
    let numbers: Vec<i64> = events.iter().map(|event| event["id"].as_i64().expect("a number")).collect();
    assert_eq!((names.first(), names.last()), (Some(&"turn"), Some(&"done")), "{names:?}");
    assert_eq!(numbers, (1..=events.len() as i64).collect::<Vec<_>>());
    let text: String = events.iter().filter_map(|event| event["data"]["text"].as_str()).collect();
    assert_eq!(text, "Hello");
    assert_eq!(events[events.len() - 2]["data"]["message"], "Hello\u{1b}[2J");
    assert_eq!(events.last().expect("one")["data"], json!({ "status": "succeeded" }));
}

#[tokio::test]
async fn a_run_that_fails_is_exit_code_one() {
    let world = World::new().await;
    world.sandbox.play(lines(vec![
        delta("Half"),
        json!({ "type": "error", "code": "too_hot", "message": "it\u{1b}[2J burns" }),
    ]));
    let ran = world.say("Hi", &[]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), "Half\n"), "{ran:?}");
    assert_eq!(ran.stderr, "✗ too_hot: it␛[2J burns\n");
    world.sandbox.play(lines(vec![json!({ "type": "error", "code": "too_hot", "message": "it burns" })]));
    let ran = world.say("Hi", &["--json"]).await;
    assert!(ran.code == Some(1) && ran.stdout.contains(r#""status":"failed""#), "{ran:?}");
}

#[tokio::test]
async fn what_cannot_be_is_told_in_one_sentence() {
    let world = World::new().await;
    let nobody = "01a1de95-4808-7263-ba89-ffcd7dae3033";
    let table: [(&[&str], &str, &str); 7] = [
        (&["--server", "http://127.0.0.1:1"], "Hi", "start one with `threadkeep serve`"),
        (&["--server", "127.0.0.1"], "Hi", "--server"),
        (&["--key", "tk_wrong"], "Hi", "--key"),
        (&["--conversation", nobody], "Hi", "not_found"),
        (&["--attach", "/not/there"], "Hi", "/not/there"),
        (&["--pick"], "Hi", "--pick needs a terminal"),
        (&[], " \n", "the message is empty"),
    ];
    for (args, message, said) in table {
        let ran = world.say(message, args).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{args:?}: {ran:?}");
        assert!(ran.stderr.contains(said) && ran.stderr.lines().count() == 1, "{args:?}: {ran:?}");
    }
    assert!(world.sandbox.requests().is_empty());
    // The key of this machine is not for another one, and there is none in an empty folder.
    let empty = tempfile::tempdir().expect("a folder");
    let mut chat = command(Path::new(BINARY), &[("THREADKEEP_SERVER", world.server.url())], empty.path());
    chat.arg("chat").stdin(std::process::Stdio::piped());
    let ran = ended(begin(chat, "Hi").await).await;
    assert!(ran.code == Some(1) && ran.stderr.contains("asks for a key"), "{ran:?}");
}

#[tokio::test]
async fn files_are_attached_by_path() {
    let world = World::new().await;
    let folder = tempfile::tempdir().expect("a folder");
    let (plain, odd) = (folder.path().join("a.txt"), folder.path().join("naïve \"q\".csv"));
    std::fs::write(&plain, "alpha").expect("written");
    std::fs::write(&odd, "x;y\n").expect("written");
    let paths = [plain.to_str().expect("a path"), odd.to_str().expect("a path")];
    let ran = world.say("Read these", &["--attach", paths[0], paths[1]]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let thread = world.newest().await;
    let attached = &thread["attributes"]["messages"][0]["fileAttachments"];
    let names: Vec<&str> = attached
        .as_array()
        .expect("a list")
        .iter()
        .map(|file| file["name"].as_str().expect("a name"))
        .collect();
    assert_eq!(names, ["a.txt", "naïve \"q\".csv"]);
}

#[tokio::test]
async fn files_whose_turn_is_refused_leave_no_conversation() {
    let world = World::new().await;
    let folder = tempfile::tempdir().expect("a folder");
    let (small, large) = (folder.path().join("a.txt"), folder.path().join("large.bin"));
    std::fs::write(&small, "alpha").expect("written");
    let file = std::fs::File::create(&large).expect("made");
    file.set_len(51 << 20).expect("long");
    let (small, large) = (small.to_str().expect("a path"), large.to_str().expect("a path"));
    let kept = world.say("Keep me", &[]).await;
    assert_eq!(kept.code, Some(0), "{kept:?}");
    let nobody = "01a1de95-4808-7263-ba89-ffcd7dae3033";
    let many: Vec<&str> = std::iter::once("--attach").chain(std::iter::repeat_n(small, 11)).collect();
    let table: [(&[&str], &str, &str); 4] = [
        (&["--attach", large], "Hi", "file_too_large"),
        (&many, "Hi", "too_many_files"),
        (&["--agent", nobody, "--attach", small], "Hi", "agent"),
        (&["--attach", small], "H\0i", "U+0000"),
    ];
    for (args, message, said) in table {
        let ran = world.say(message, args).await;
        assert!(ran.code == Some(1) && ran.stderr.contains(said), "{args:?}: {ran:?}");
        let all = world.get("/v1/chat-conversations").await;
        assert_eq!(all["data"].as_array().expect("a list").len(), 1, "{args:?}: {all}");
    }
    let ran = world.say("Read this", &["--continue", "--attach", small]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(world.newest().await["attributes"]["messages"][0]["content"], "Keep me");
}

#[tokio::test]
async fn an_interrupt_stops_the_run_and_keeps_what_was_said() {
    let world = World::new().await;
    let mut script = lines(vec![delta("So far")]);
    script.push(Action::Hang);
    world.sandbox.play(script);
    let mut child = begin(world.chat(&[]), "Go on forever").await;
    until(&mut child, "So far").await;
    let id = i32::try_from(child.id().expect("it runs")).expect("an id");
    kill(Pid::from_raw(id), Signal::SIGINT).expect("a signal");
    let ran = ended(child).await;
    assert!(ran.code == Some(1) && ran.stderr.contains("cancelled"), "{ran:?}");
    world.sandbox.disconnected(0).await.expect("the sandbox hears of it");
    let thread = world.newest().await;
    assert_eq!(thread["attributes"]["messages"][1]["content"], "So far");
}

#[tokio::test]
async fn a_broken_connection_is_made_again_and_nothing_is_missed_or_repeated() {
    let (world, gate) = (World::new().await, Release::default());
    let wire = Wire::to(world.server.url()).await;
    let words: Vec<Value> = (0..40).map(|n| delta(&format!("{n} "))).collect();
    world.sandbox.play(gated(words[..20].to_vec(), &gate, [&words[20..], &[result("")]].concat()));
    let mut child = begin(world.chat_with(wire.url(), &[]), "Count").await;
    let mut said = until(&mut child, "19 ").await;
    wire.cut();
    gate.open();
    // The run ends while nobody listens.
    let id = world.newest().await["id"].as_str().expect("an id").to_owned();
    loop {
        let runs = world.get(&format!("/v1/chat-conversations/{id}/runs")).await;
        if runs["data"][0]["status"] == "succeeded" {
            break;
        }
    }
    wire.mend();
    let ran = ended(child).await;
    said.push_str(&ran.stdout);
    let all: String = (0..40).map(|n| format!("{n} ")).collect();
    assert_eq!((ran.code, said), (Some(0), format!("{all}\n")), "{}", ran.stderr);
}

#[tokio::test]
async fn a_reader_that_goes_away_takes_its_question_back() {
    let (world, gate) = (World::new().await, Release::default());
    let mut more = gated(vec![delta("So far")], &gate, vec![delta("More")]);
    more.push(Action::Hang);
    world.sandbox.play(more);
    let mut child = begin(world.chat(&[]), "Go on forever").await;
    until(&mut child, "So far").await;
    drop(child.stdout.take());
    gate.open();
    let ran = ended(child).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    world.sandbox.disconnected(0).await.expect("the sandbox hears of it");
}
