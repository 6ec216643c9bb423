//! Turns in the mode `ask`: answered by a model, the built-in one where no other is set up.

use domain::secret::Secret;
use reqwest::Method;
use serde_json::{Value, json};
use testkit::form::Form;
use testkit::sandbox::{Action, ScriptedSandbox};
use testkit::server::Backend;

use crate::world::{World, ask, refused, stories, thread};

stories!(
    a_newcomer_is_answered_without_any_setting,
    the_demo_model_thinks_and_fails_as_told,
    each_vendor_is_sent_the_thread_and_read,
    a_providers_failure_is_told_and_the_next_turn_goes_on,
    a_cancelled_answer_lets_the_provider_go,
    a_name_that_is_no_model_is_told,
    a_message_that_cannot_fit_is_refused_before_anything_is_written,
    the_budget_holds_and_its_cut_stays,
    the_demo_model_lists_and_reads_what_was_attached,
);

#[derive(Clone, Copy, Debug)]
enum Vendor {
    OpenAi,
    Anthropic,
}

impl Vendor {
    const ALL: [Self; 2] = [Self::OpenAi, Self::Anthropic];

    fn model(self) -> &'static str {
        match self {
            Self::OpenAi => "openai/m-1",
            Self::Anthropic => "anthropic/m-1",
        }
    }

    /// An answer in pieces, with 10 tokens in and 5 out.
    fn says(self, pieces: &[&str]) -> String {
        let mut out = String::new();
        let mut event = |data: Value| out.push_str(&format!("data: {data}\n\n"));
        match self {
            Self::OpenAi => {
                for piece in pieces {
                    event(json!({ "choices": [{ "index": 0, "delta": { "content": piece } }] }));
                }
                event(json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] }));
                event(json!({ "choices": [], "usage": { "prompt_tokens": 10, "completion_tokens": 5 } }));
            }
            Self::Anthropic => {
                event(json!({ "type": "message_start", "message": { "usage": { "input_tokens": 10 } } }));
                for piece in pieces {
                    let delta = json!({ "type": "text_delta", "text": piece });
                    event(json!({ "type": "content_block_delta", "index": 0, "delta": delta }));
                }
                let (stop, usage) = (json!({ "stop_reason": "end_turn" }), json!({ "output_tokens": 5 }));
                event(json!({ "type": "message_delta", "delta": stop, "usage": usage }));
                event(json!({ "type": "message_stop" }));
            }
        }
        out
    }

    /// What was sent, as (role, text), after the strictest of checks.
    fn sent(self, body: &Value) -> Vec<(String, String)> {
        let messages = body["messages"].as_array().unwrap();
        let mut said: Vec<(String, String)> = Vec::new();
        for message in messages {
            let role = message["role"].as_str().unwrap().to_owned();
            let text = match &message["content"] {
                Value::String(text) => text.clone(),
                Value::Array(parts) => parts.iter().map(|part| part["text"].as_str().unwrap()).collect(),
                other => panic!("{other}"),
            };
            assert!(!text.trim().is_empty(), "{body}");
            assert!(said.last().is_none_or(|(last, _)| *last != role), "nobody speaks twice: {body}");
            said.push((role, text));
        }
        match self {
            Self::OpenAi => assert_eq!(said.remove(0).0, "system"),
            Self::Anthropic => assert!(body["system"].is_string() && body["max_tokens"].is_u64()),
        }
        assert_eq!((said[0].0.as_str(), said.last().unwrap().0.as_str()), ("user", "user"), "{body}");
        assert_eq!((&body["model"], &body["stream"]), (&json!("m-1"), &json!(true)));
        said
    }
}

fn stream(text: &str) -> Vec<Action> {
    let headers = vec![("content-type", "text/event-stream".to_owned())];
    vec![Action::Headers("200 OK", headers), Action::Bytes(text.as_bytes().to_vec())]
}

/// A world with both vendors, played by one scripted provider.
async fn world(backend: Backend, script: Vec<Action>) -> Option<(World, ScriptedSandbox)> {
    world_with(backend, script, |_| {}).await
}

async fn world_with(
    backend: Backend,
    script: Vec<Action>,
    change: impl FnOnce(&mut server::config::Config),
) -> Option<(World, ScriptedSandbox)> {
    let provider = ScriptedSandbox::start(script).await.unwrap();
    let world = World::start_with(backend, |config| {
        config.openai.api_key = Some(Secret::new("sk-canary-openai"));
        config.openai.base_url = Some(format!("{}/v1", provider.url()));
        config.anthropic.api_key = Some(Secret::new("sk-canary-anthropic"));
        config.anthropic.base_url = Some(provider.url());
        config.limits.model_retries = 0;
        change(config);
    });
    Some((world.await?, provider))
}

async fn a_newcomer_is_answered_without_any_setting(backend: Backend) -> Option<()> {
    let world = World::start_with(backend, |config| config.sandbox.url = None).await?;
    let stream = world.begin(&json!({ "message": "Who are you?", "mode": "ask" })).await;
    let (run, conversation, message) = (stream.run(), stream.conversation(), stream.message());
    let told = stream.rest().await;
    assert!(told.frames.iter().filter(|frame| frame.event == "delta").count() > 10, "it streams");
    let shown = world.conversation(&conversation).await;
    let answer = shown["messages"][1]["content"].as_str().unwrap();
    assert!(answer.contains("demo model") && answer.contains("OPENAI_API_KEY"), "{answer}");
    assert_eq!((&shown["kind"], &shown["mode"]), (&json!("model_chat"), &json!("ask")));
    let ended = world.run(&run).await;
    assert_eq!(ended["status"], "succeeded");
    let total = ended["usage"]["total_tokens"].as_i64().unwrap();
    assert!(total > 0 && shown["total_tokens"] == total);
    // What was sent is in the trace.
    let (trace, _) = world.trace(&run).await;
    let sent = trace.iter().find(|entry| entry["kind"] == "dispatch").unwrap();
    assert_eq!(sent["line"]["messages"], json!([message]), "{sent}");
    assert!(
        trace.iter().any(|entry| entry["line"]["text"].as_str().unwrap_or("").contains("demo/assistant"))
    );
    Some(())
}

async fn the_demo_model_thinks_and_fails_as_told(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let stream = world.begin(&json!({ "message": "think 12 words", "mode": "ask" })).await;
    let conversation = stream.conversation();
    stream.rest().await;
    let parts = world.last_parts(&conversation).await;
    assert_eq!(parts[0]["type"], "reasoning");
    assert_eq!(parts[0]["text"].as_str().unwrap().split(' ').count(), 12);
    assert_eq!(parts[1], json!({ "type": "text", "text": "I thought 12 words." }));
    // The conversation's mode is the next turn's.
    let stream = world.begin(&json!({ "conversation": conversation, "message": "fail" })).await;
    let run = stream.run();
    stream.rest().await;
    let ended = world.run(&run).await;
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("failed"), &json!("model_error")));
    assert!(ended["error"]["message"].as_str().unwrap().contains("as it was asked to"));
    Some(())
}

async fn each_vendor_is_sent_the_thread_and_read(backend: Backend) -> Option<()> {
    for vendor in Vendor::ALL {
        let (world, provider) = world(backend, stream(&vendor.says(&["Hel", "lo ", "wörld"]))).await?;
        let body = json!({ "message": "Hi", "mode": "ask", "model": vendor.model() });
        let first = world.begin(&body).await;
        let conversation = first.conversation();
        let told = first.rest().await;
        let deltas = told.frames.iter().filter(|frame| frame.event == "delta").count();
        assert_eq!(deltas, 3, "{vendor:?}");
        provider.play(stream(&vendor.says(&["Again."])));
        // The model is the conversation's from now on.
        world.tell(&json!({ "conversation": conversation, "message": "More" })).await;
        let said = [("user", "Hi"), ("assistant", "Hello wörld"), ("user", "More"), ("assistant", "Again.")];
        assert_eq!(world.thread(&conversation).await, thread(&said));
        assert_eq!(vendor.sent(&provider.request(0).await.unwrap().body), thread(&said[..1]));
        assert_eq!(vendor.sent(&provider.request(1).await.unwrap().body), thread(&said[..3]));
        let shown = world.conversation(&conversation).await;
        assert_eq!(shown["total_tokens"], 30, "what each call reported");
    }
    Some(())
}

async fn a_providers_failure_is_told_and_the_next_turn_goes_on(backend: Backend) -> Option<()> {
    for vendor in Vendor::ALL {
        let broken = vendor.says(&["Half an"]);
        let broken = &broken[..broken.find("Half an").unwrap() + 20];
        let end = broken.len() - broken.len() % 2;
        let denied = vec![
            Action::Headers("401 Unauthorized", vec![]),
            Action::Bytes(
                br#"{"error":{"message":"No such key sk-canary-openai sk-canary-anthropic"}}"#.to_vec(),
            ),
        ];
        let (world, provider) = world(backend, denied).await?;
        // A stream that is cut keeps what came.
        provider.then(stream(&broken[..end]));
        provider.then(stream(&vendor.says(&["Fine."])));
        let body = json!({ "message": "One", "mode": "ask", "model": vendor.model() });
        let failed = world.begin(&body).await;
        let (conversation, run) = (failed.conversation(), failed.run());
        let told = failed.rest().await;
        let ended = world.run(&run).await;
        assert_eq!(ended["error"]["code"], "model_error");
        let message = ended["error"]["message"].as_str().unwrap();
        assert!(message.contains("401: No such key"), "{message}");
        let own = if matches!(vendor, Vendor::OpenAi) { "sk-canary-openai" } else { "sk-canary-anthropic" };
        assert!(!String::from_utf8_lossy(&told.bytes).contains(own), "the key is in the stream");
        world.tell(&json!({ "conversation": conversation, "message": "Two" })).await;
        world.tell(&json!({ "conversation": conversation, "message": "Three" })).await;
        let last = provider.requests().pop().unwrap();
        let said = vendor.sent(&last.body);
        // A turn that got no words is answered all the same, so that its question is not asked again.
        let said: Vec<&str> = said.iter().map(|(_, text)| text.as_str()).collect();
        assert!(matches!(said[..], ["One", "(no answer)", "Two", _, "Three"]), "{said:?}");
        assert_eq!(world.thread(&conversation).await.last().unwrap().1, "Fine.");
    }
    // Nobody there.
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let world = World::start_with(backend, |config| {
        config.openai.base_url = Some(format!("http://{gone}/v1"));
        config.limits.model_retries = 0;
    });
    let world = world.await?;
    let stream = world.begin(&json!({ "message": "Hi", "mode": "ask", "model": "openai/m" })).await;
    let run = stream.run();
    stream.rest().await;
    assert_eq!(world.run(&run).await["error"]["code"], "model_unreachable");
    Some(())
}

async fn a_cancelled_answer_lets_the_provider_go(backend: Backend) -> Option<()> {
    for vendor in Vendor::ALL {
        let whole = vendor.says(&["Begun"]);
        let begun = &whole[..whole.find("Begun").unwrap()
            + whole[whole.find("Begun").unwrap()..].find("\n\n").unwrap()
            + 2];
        let mut script = stream(begun);
        script.push(Action::Hang);
        let (world, provider) = world(backend, script).await?;
        let mut stream =
            world.begin(&json!({ "message": "Hi", "mode": "ask", "model": vendor.model() })).await;
        let (run, conversation) = (stream.run(), stream.conversation());
        while stream.next().await.unwrap().event != "delta" {}
        assert_eq!(world.cancel(&run).await.status, 200);
        stream.rest().await;
        provider.disconnected(0).await.unwrap();
        let parts = world.last_parts(&conversation).await;
        assert_eq!(parts[0], json!({ "type": "text", "text": "Begun" }));
        assert_eq!(parts[1]["code"], "cancelled");
    }
    Some(())
}

async fn a_name_that_is_no_model_is_told(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    for (name, words) in [("openai/gpt", "OPENAI_API_KEY"), ("x/y", "no provider")] {
        let stream = world.begin(&json!({ "message": "Hi", "mode": "ask", "model": name })).await;
        let run = stream.run();
        stream.rest().await;
        let error = world.run(&run).await["error"].clone();
        assert_eq!(error["code"], "model_error");
        assert!(error["message"].as_str().unwrap().contains(words), "{error}");
    }
    Some(())
}

async fn a_message_that_cannot_fit_is_refused_before_anything_is_written(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let long = "é".repeat(400_000);
    let answer = ask(world.turn(&json!({ "message": long, "mode": "ask" }))).await;
    refused(&answer, 413, "message_too_long");
    assert_eq!(answer.body["limit"], 400_000);
    assert_eq!(world.count().await, (0, 0));
    // The sandbox has no such budget; to answer it again, a model has.
    let stream = world.begin(&json!({ "message": long, "mode": "agent" })).await;
    let (conversation, message) = (stream.conversation(), stream.message());
    stream.rest().await;
    let again = json!({ "conversation": conversation, "replace": message, "mode": "ask" });
    let answer = ask(world.turn(&again)).await;
    refused(&answer, 413, "message_too_long");
    assert_eq!(answer.body["source"]["pointer"], "/replace");
    let branches = world.get(&format!("/v1/chat-conversations/{conversation}/branches")).await;
    assert_eq!(branches.body["data"].as_array().unwrap().len(), 1, "{}", branches.text);
    // Nor has an execution, but for one whose agent is a model.
    let agent =
        world.send(Method::POST, "/v1/agents", Some(&json!({ "name": "a", "runner": "model" }))).await;
    let body = json!({ "prompt": long, "agent": agent.body["id"] });
    let answer = world.send(Method::POST, "/v1/executions", Some(&body)).await;
    refused(&answer, 413, "message_too_long");
    assert_eq!(answer.body["source"]["pointer"], "/prompt");
    let body = json!({ "prompt": "Hi", "agent": agent.body["id"] });
    assert_eq!(world.send(Method::POST, "/v1/executions", Some(&body)).await.status, 200);
    let stream = world.begin(&json!({ "message": "Hi", "mode": "ask" })).await;
    let conversation = stream.conversation();
    stream.rest().await;
    let answer = ask(world.turn(&json!({ "message": long, "conversation": conversation }))).await;
    refused(&answer, 413, "message_too_long");
    assert_eq!(world.conversation(&conversation).await["message_count"], 2);
    Some(())
}

async fn the_budget_holds_and_its_cut_stays(backend: Backend) -> Option<()> {
    let vendor = Vendor::OpenAi;
    let answer = vendor.says(&[&"a".repeat(150)]);
    let budget = 2000;
    let (world, provider) =
        world_with(backend, stream(&answer), |config| config.limits.context_budget_chars = budget).await?;
    let body = json!({ "message": "The first", "mode": "ask", "model": vendor.model() });
    let first = world.begin(&body).await;
    let conversation = first.conversation();
    first.rest().await;
    let mut runs = Vec::new();
    for n in 0..24 {
        let message = format!("{n} {}", "q".repeat(150));
        let stream = world.begin(&json!({ "conversation": conversation, "message": message })).await;
        runs.push(stream.run());
        stream.rest().await;
    }
    let mut moves = 0;
    let mut before: Vec<(String, String)> = Vec::new();
    for request in provider.requests() {
        let all: usize = request.body["messages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|message| message["content"].as_str().unwrap().chars().count())
            .sum();
        assert!(all as u64 <= budget, "{all} characters");
        let said = vendor.sent(&request.body);
        if !said.starts_with(&before) {
            moves += 1;
            assert!(all as u64 <= budget / 4 * 3, "it moves far: {all}");
        }
        before = said;
    }
    assert!((2..=8).contains(&moves), "the cut moved {moves} times in 25 turns");
    let (trace, _) = world.trace(runs.last().unwrap()).await;
    let sent = trace.iter().find(|entry| entry["kind"] == "dispatch").unwrap();
    assert_eq!(sent["line"]["messages"].as_array().unwrap().len(), before.len());
    assert!(sent["line"]["cuts"][0].as_str().unwrap().contains("messages before"), "{sent}");
    Some(())
}

async fn the_demo_model_lists_and_reads_what_was_attached(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let stream = world.begin(&json!({ "message": "list files", "mode": "ask" })).await;
    let conversation = stream.conversation();
    stream.rest().await;
    assert!(world.thread(&conversation).await[1].1.contains("There are no files"));
    let form = Form::of("notes.txt", "buy milk".as_bytes()).end();
    let upload = world.request(Method::POST, &format!("/v1/chat-conversations/{conversation}/files"));
    let uploaded = ask(upload.header("content-type", Form::kind()).body(form)).await;
    assert_eq!(uploaded.status, 201, "{}", uploaded.text);
    for (message, words) in [
        ("list files", "notes.txt (text/plain"),
        ("read notes.txt", "buy milk"),
        ("read NOTES.txt", "buy milk"),
        ("read other.txt", "no file"),
    ] {
        let told = world.tell(&json!({ "conversation": conversation, "message": message })).await;
        let kinds: Vec<&str> = told.frames.iter().map(|frame| frame.event.as_str()).collect();
        assert!(kinds.contains(&"tool_calls") && kinds.contains(&"tool_result"), "{kinds:?}");
        let answer = world.thread(&conversation).await.pop().unwrap().1;
        assert!(answer.contains(words), "{message}: {answer}");
    }
    Some(())
}
