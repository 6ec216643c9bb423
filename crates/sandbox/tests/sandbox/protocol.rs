//! The run as its caller sees it: lines in their order, files in and out, tools, recipes, skills, plans.

use std::io::Write as _;

use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::world::World;

pub fn zipped(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, bytes) in files {
        zip.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

pub fn manifest(files: &[(&str, &[u8])]) -> Vec<serde_json::Value> {
    let hex =
        |bytes: &[u8]| Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    files
        .iter()
        .map(|(name, bytes)| json!({ "name": name, "size": bytes.len(), "sha256": hex(bytes), "mimeType": "text/plain" }))
        .collect()
}

#[tokio::test]
async fn a_plain_answer_streams_and_ends_once() {
    let world = World::new().await;
    let lines = world.run("hello").await;
    assert_eq!(lines.deltas(), "All is done.");
    assert_eq!(lines.last()["type"], "result");
    assert_eq!(lines.last()["message"], "All is done.");
    assert_eq!(lines.of("result").count() + lines.of("error").count(), 1);
    assert_eq!(lines.of("step").count(), 0, "nothing was done: {lines:#?}");
    assert!(world.told.lock().results.is_empty(), "nothing is posted where there is nothing");
}

#[tokio::test]
async fn a_step_begins_and_ends_with_its_arguments_result_and_duration() {
    let world = World::new().await;
    let lines = world.run("run echo $((6 * 7)); pwd; echo $WORKSPACE; ls -d assets").await;
    let steps: Vec<_> = lines.of("step").collect();
    assert_eq!(steps.len(), 2, "{lines:#?}");
    assert_eq!(steps[0]["status"], "running");
    assert_eq!(steps[0]["args"]["command"], "echo $((6 * 7)); pwd; echo $WORKSPACE; ls -d assets");
    assert_eq!(steps[1]["status"], "succeeded");
    assert_eq!(steps[1]["result"], "42\n/root/workspace\n/root/workspace\nassets\n");
    assert!(steps[1]["durationMs"].is_u64());
    assert_eq!(steps[0]["id"], steps[1]["id"]);
    let failed = world.run("run echo oops; exit 3").await;
    assert_eq!(failed.step("shell")["status"], "failed");
    assert_eq!(failed.step("shell")["error"], "exit code 3");
    assert_eq!(failed.step("shell")["result"], "oops\n");
    assert_eq!(failed.last()["type"], "result", "a tool that fails does not fail the run");
}

#[tokio::test]
async fn files_come_in_and_go_out_before_the_last_words() {
    let world = World::new().await;
    let files: &[(&str, &[u8])] =
        &[("in.txt", b"forty-two"), ("ünï.bin", &[0, 159, 146, 150]), ("assets/old.txt", b"as it was")];
    {
        let mut told = world.told.lock();
        told.zip = Some(zipped(files));
        told.files = manifest(files);
    }
    let order = "read in.txt\nthen run mkdir -p assets/deep && cp ünï.bin assets/ && cp in.txt assets/deep/out.txt \
                 && cp in.txt assets/in.txt && ln -s /etc/passwd assets/link && mkfifo assets/pipe\nthen list";
    let lines = world.run(order).await;
    assert_eq!(lines.step("unpack files")["result"]["count"], 3);
    assert_eq!(lines.step("read_file")["result"], "forty-two");
    assert_eq!(lines.step("save files")["status"], "succeeded", "{lines:#?}");
    let told = world.told.lock();
    let posted = &told.results[&lines.run];
    // Whatever is put there is posted, a copy of what came in too; not what came in there; links and pipes are no files.
    let expected: [(&str, &[u8]); 3] =
        [("in.txt", b"forty-two"), ("ünï.bin", &[0, 159, 146, 150]), ("deep-out.txt", b"forty-two")];
    assert_eq!(posted, &expected.map(|(name, bytes)| (name.to_owned(), bytes.to_vec())));
    let at = |wanted: &dyn Fn(&serde_json::Value) -> bool| lines.all.iter().position(wanted).unwrap();
    let saved = at(&|line| line["name"] == "save files" && line["status"] == "succeeded");
    let words = at(&|line| line["text"] == "All is done.");
    assert!(saved < words, "files before the words that speak of them: {lines:#?}");
    assert_eq!(lines.last()["message"], "All is done.");
}

#[tokio::test]
async fn a_link_in_the_place_of_assets_hands_nothing_in() {
    let world = World::new().await;
    let order = "run mkdir other && echo mine > other/a.txt && rm -rf assets && ln -s other assets\nthen call list_files {\"path\":\"assets\"}";
    let lines = world.run(order).await;
    assert_eq!(lines.last()["type"], "result", "{lines:#?}");
    assert_eq!(lines.step("list_files")["result"], "There are no files.");
    assert!(!lines.all.iter().any(|line| line["name"] == "save files"), "{lines:#?}");
    assert!(!world.told.lock().results.contains_key(&lines.run));
}

#[tokio::test]
async fn a_broken_upload_is_sent_again_and_a_refused_one_fails_the_run() {
    let world = World::new().await;
    world.told.lock().broken_uploads = 2;
    let lines = world.run("write assets/a.txt: one").await;
    assert_eq!(lines.last()["type"], "result", "{lines:#?}");
    assert_eq!(world.told.lock().results[&lines.run][0].1, b"one");
    world.told.lock().broken_uploads = 100;
    let lines = world.run("write assets/a.txt: one").await;
    assert_eq!(lines.last()["code"], "sandbox_results", "{lines:#?}");
    assert_eq!(lines.step("save files")["status"], "failed");
}

#[tokio::test]
async fn every_tool_answers_and_says_what_is_wrong() {
    let world = World::new().await;
    for (order, name, status, expected) in [
        ("write a/b.txt: hi", "write_file", "succeeded", "a/b.txt (2 bytes)"),
        ("read nothing.txt", "read_file", "failed", "nothing.txt: No such file"),
        ("read /dev/zero", "read_file", "failed", "is not a file"),
        ("list", "list_files", "succeeded", "There are no files."),
        ("call shell {}", "shell", "failed", "\"command\" is missing"),
        ("call write_file {\"path\":\"/usr/x\",\"content\":\"\"}", "write_file", "failed", "/usr/x: "),
        ("call nonsense {}", "nonsense", "failed", "there is no tool \"nonsense\""),
        ("run head -c 300000 /dev/zero | tr '\\0' x", "shell", "succeeded", "[… cut: "),
        ("run printf 'a\\000b\\377'", "shell", "succeeded", "a\u{FFFD}b\u{FFFD}"),
    ] {
        let lines = world.run(order).await;
        let step = lines.step(name);
        assert_eq!(step["status"], status, "{order}: {step}");
        let said =
            format!("{}{}", step["result"].as_str().unwrap_or(""), step["error"].as_str().unwrap_or(""));
        assert!(said.contains(expected), "{order}: {step}");
        assert_eq!(lines.last()["type"], "result", "{order}");
    }
}

#[tokio::test]
async fn a_turn_without_words_is_none_to_the_model() {
    let world = World::new().await;
    let (run, mut envelope) = world.envelope("hello");
    let turn = |role: &str, content: &str| json!({ "role": role, "content": content, "ts": 0 });
    let turns = [("user", "one"), ("assistant", ""), ("user", " \n"), ("assistant", ""), ("user", "two")];
    envelope["conversation"] = turns.iter().map(|(role, content)| turn(role, content)).collect();
    let body = world.post(&envelope).await.text().await.unwrap();
    assert_eq!(crate::world::Lines::read(run.clone(), &body).last()["type"], "result", "{body}");
    let told = world.told.lock();
    let sent = told.asked[&run][0]["messages"].as_array().unwrap()[1..].iter();
    let sent: Vec<_> =
        sent.map(|said| (said["role"].as_str().unwrap(), said["content"].as_str().unwrap())).collect();
    let none = domain::prompt::NO_ANSWER;
    let expected =
        [("user", "one"), ("assistant", none), ("user", "two"), ("assistant", none), ("user", "hello")];
    assert_eq!(sent, expected);
}

#[tokio::test]
async fn of_a_long_conversation_the_oldest_is_left_out() {
    let world = World::new().await;
    let turn = |role: &str, content: &str| json!({ "role": role, "content": content, "ts": 0 });
    let long = |sign: &str| sign.repeat(300_000);
    for skills in [json!([]), json!([{ "name": "task_flow", "content": "Answer with a numbered list." }])] {
        let asks = 1 + skills.as_array().unwrap().len();
        world.told.lock().skills = skills;
        let (run, mut envelope) = world.envelope("hello");
        let turns =
            [("user", long("a")), ("assistant", long("b")), ("user", long("c")), ("assistant", "d".into())];
        envelope["conversation"] = turns.iter().map(|(role, content)| turn(role, content)).collect();
        let body = world.post(&envelope).await.text().await.unwrap();
        assert_eq!(crate::world::Lines::read(run.clone(), &body).last()["type"], "result", "{body}");
        let told = world.told.lock();
        assert_eq!(told.asked[&run].len(), asks);
        for asked in &told.asked[&run] {
            let sent = asked["messages"].as_array().unwrap()[1..].iter();
            let sent: Vec<_> = sent.map(|said| said["content"].as_str().unwrap()).collect();
            assert_eq!((sent.len(), sent[0] == long("c"), sent[1]), (3, true, "d"));
        }
    }
}

#[tokio::test]
async fn a_recipe_reads_all_of_its_arguments_however_long() {
    let world = World::new().await;
    world.told.lock().recipes = json!([{ "name": "count.sh", "content": "sleep 0.2; wc -c" }]);
    let arguments = json!({ "text": "x".repeat(300_000) }).to_string();
    let lines = world.run(&format!("call recipe_count {arguments}")).await;
    assert_eq!(lines.step("recipes/count.sh")["result"], format!("{}\n", arguments.len()), "{lines:#?}");
    // One that reads nothing is not waited for.
    world.told.lock().recipes = json!([{ "name": "count.sh", "content": "echo done" }]);
    let lines = world.run(&format!("call recipe_count {arguments}")).await;
    assert_eq!(lines.step("recipes/count.sh")["result"], "done\n", "{lines:#?}");
}

#[tokio::test]
async fn recipes_and_skills_reach_the_model_and_run() {
    let world = World::new().await;
    {
        let mut told = world.told.lock();
        told.skills = json!([{ "name": "tone", "content": "Speak plainly." }]);
        let script = "#!/bin/sh\n# Adds a node.\n# @param kind  which node\nread args; echo \"{\\\"got\\\": $args}\"\n";
        told.recipes = json!([{ "name": "add-node.sh", "content": script }]);
    }
    let lines = world.run("call recipe_add_node {\"kind\":\"x\"}").await;
    let step = lines.step("recipes/add-node.sh");
    assert_eq!(step["result"], json!({ "got": { "kind": "x" } }), "{lines:#?}");
    let told = world.told.lock();
    let asked = &told.asked[&lines.run][0];
    let system = asked["messages"][0]["content"].as_str().unwrap();
    assert!(system.contains("Speak plainly."), "{system}");
    let tools = asked["tools"].as_array().unwrap();
    let recipe = tools.iter().find(|tool| tool["function"]["name"] == "recipe_add_node").unwrap();
    assert_eq!(recipe["function"]["description"], "Adds a node.");
    assert_eq!(recipe["function"]["parameters"]["properties"]["kind"]["description"], "which node");
}

#[tokio::test]
async fn a_task_flow_emits_its_plan_as_steps_first() {
    let world = World::new().await;
    {
        let mut told = world.told.lock();
        told.skills = json!([{ "name": "task_flow", "content": "Answer with a numbered list." }]);
        let files: &[(&str, &[u8])] = &[("a.txt", b"a")];
        (told.zip, told.files) = (Some(zipped(files)), manifest(files));
    }
    let lines = world.run("run echo work\nthen call complete_step {\"number\":2}").await;
    let names: Vec<_> = lines
        .of("step")
        .map(|step| format!("{} {}", step["name"].as_str().unwrap(), step["status"].as_str().unwrap()))
        .collect();
    let expected = [
        "plan running",
        "plan succeeded",
        "Look. running",
        "Do. running",
        "Check. running",
        "unpack files running",
        "unpack files succeeded",
        "shell running",
        "shell succeeded",
        "complete_step running",
        "Look. succeeded",
        "Do. succeeded",
        "complete_step succeeded",
        "Check. succeeded",
    ];
    assert_eq!(names, expected);
    assert_eq!(lines.last()["message"], "All is done.");
    let told = world.told.lock();
    assert_eq!(told.asked[&lines.run][0]["messages"][0]["content"], "Answer with a numbered list.");
}

#[tokio::test]
async fn a_model_that_fails_ends_the_run_with_its_words() {
    let world = World::new().await;
    let lines = world.run("fail").await;
    assert_eq!(lines.last()["code"], "model_error", "{lines:#?}");
    assert!(lines.last()["message"].as_str().unwrap().contains("the model failed as asked"));
}

#[tokio::test]
async fn runs_beyond_the_places_wait_and_say_so() {
    let world = World::with(None, &[("THREADKEEP_SANDBOX_CONCURRENCY", "1")]).await;
    for skills in [json!([]), json!([{ "name": "task_flow", "content": "Answer with a numbered list." }])] {
        world.told.lock().skills = skills.clone();
        let (first, second) = tokio::join!(world.run("run sleep 1"), world.run("run sleep 1"));
        let waited = |lines: &crate::world::Lines| lines.ended("wait for a free place").len();
        assert_eq!(waited(&first) + waited(&second), 1, "{first:#?} {second:#?}");
        for lines in [first, second] {
            assert_eq!(lines.last()["type"], "result");
            let begins = lines.of("step").next().unwrap()["name"].clone();
            assert!(skills == json!([]) || begins == "plan", "{lines:#?}");
        }
    }
}

#[tokio::test]
async fn no_line_is_longer_than_the_server_takes() {
    const LINE: usize = 20_000;
    let world = World::with(None, &[("THREADKEEP_MAX_LINE_BYTES", &LINE.to_string())]).await;
    let junk: Vec<String> = (0..100).map(|n| format!("{n}: {}", "\"x\u{1}\u{1f9f5}".repeat(200))).collect();
    let shell = json!({ "command": "echo done", "junk": junk });
    let answer = format!("say {}", "\"ü\u{2}\u{1f9f5}".repeat(20_000));
    let name = "n".repeat(30_000);
    for accepts in [json!(["delta"]), json!([])] {
        let (run, mut envelope) =
            world.envelope(&format!("call shell {shell}\nthen call {name} {{}}\nthen {answer}"));
        envelope["accepts"] = accepts.clone();
        let body = world.post(&envelope).await.text().await.unwrap();
        let longest = body.lines().map(str::len).max();
        assert!(longest <= Some(LINE), "{longest:?}");
        let lines = crate::world::Lines::read(run, &body);
        let begun = lines.of("step").find(|step| step["name"] == "shell").unwrap();
        let shown = begun["args"].as_str().unwrap();
        assert!(shown.contains("echo done") && shown.contains("[… cut: "), "{begun}");
        assert_eq!(lines.step("shell")["result"], "done\n");
        let last = lines.last();
        let message = last["message"].as_str().unwrap();
        assert_eq!(last["type"], "result");
        if accepts == json!([]) {
            let kept = message.split("\n[… cut: ").next().unwrap();
            assert!(kept.len() > LINE / 6 && answer.starts_with(kept), "{last}");
        } else {
            assert_eq!(message, "");
            assert!(lines.deltas().ends_with(&answer));
        }
    }
}

#[tokio::test]
async fn what_is_no_envelope_is_refused() {
    let world = World::with(None, &[("SANDBOX_TOKEN", "s3cret")]).await;
    let (_, envelope) = world.envelope("hello");
    assert_eq!(world.post(&envelope).await.status(), 401);
    let client = reqwest::Client::new();
    let post = |body: String| {
        client.post(format!("{}/stream", world.sandbox.url)).bearer_auth("s3cret").body(body).send()
    };
    assert_eq!(post("{".into()).await.unwrap().status(), 400);
    assert_eq!(
        post(envelope.to_string().replace("\"version\":1", "\"version\":2")).await.unwrap().status(),
        400
    );
    assert_eq!(post(envelope.to_string()).await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_file_whose_name_has_control_characters_is_handed_in_with_the_others() {
    let world = World::new().await;
    let made = r#"run for name in 'a\001b' 'c\nd' 'e\rf' 'g\th'; do echo 1 > "assets/$(printf $name)"; done; echo 2 > assets/z"#;
    let lines = world.run(made).await;
    assert_eq!(lines.last()["type"], "result", "{lines:#?}");
    let told = world.told.lock();
    let mut names: Vec<&str> = told.results[&lines.run].iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["ab", "cd", "ef", "gh", "z"]);
}

#[tokio::test]
async fn a_sign_of_life_comes_before_the_server_gives_up() {
    let world = World::with(None, &[("THREADKEEP_SANDBOX_IDLE_SECONDS", "1")]).await;
    let (_, envelope) = world.envelope("run sleep 2");
    let body = world.post(&envelope).await.text().await.unwrap();
    assert!(body.lines().any(str::is_empty), "{body}");
}
