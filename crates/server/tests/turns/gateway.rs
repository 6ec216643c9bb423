//! Models behind the APIs of others: with a caller's credential or a run's own token, streamed or whole, in each
//! dialect to each provider; and what a run used is counted.

use domain::secret::Secret;
use reqwest::Method;
use serde_json::{Value, json};
use testkit::sandbox::{Action, Release, ScriptedSandbox};
use testkit::server::{Answer, Backend};

use crate::scripts::wait_after;
use crate::world::{World, ask, stories};

stories!(
    the_demo_model_in_both_dialects,
    a_request_goes_on_as_it_is_to_a_provider_of_its_dialect,
    a_request_is_translated_for_the_other_provider,
    what_was_cached_is_counted_in_every_dialect,
    what_a_client_asks_of_the_answer_is_translated,
    an_answer_of_anthropic_comes_back_as_it_was,
    an_answer_of_openai_comes_back_as_it_was,
    the_kind_of_a_failure_is_told,
    calls_are_counted_from_nought_in_the_other_dialect,
    calls_that_come_mixed_are_blocks_one_after_the_other,
    a_silent_provider_does_not_silence_the_stream,
    what_is_asked_of_an_answer_is_told_to_anthropic,
    failures_are_told_as_clients_expect_them,
    a_run_has_a_token_of_its_own_and_what_it_uses_is_counted,
    a_client_that_leaves_lets_the_provider_go,
    a_run_that_is_cancelled_lets_the_provider_go,
);

const PATHS: [&str; 2] = ["/v1/chat/completions", "/v1/messages"];

pub async fn post(world: &World, path: &str, body: &Value) -> Answer {
    world.send(Method::POST, path, Some(body)).await
}

pub fn stream(text: &str) -> Vec<Action> {
    let headers = vec![("content-type", "text/event-stream".to_owned())];
    vec![Action::Headers("200 OK", headers), Action::Bytes(text.as_bytes().to_vec())]
}

/// The text of an answer in either dialect.
fn text(path: &str, body: &Value) -> String {
    match path {
        "/v1/messages" => {
            body["content"].as_array().unwrap().last().unwrap()["text"].as_str().unwrap().to_owned()
        }
        _ => body["choices"][0]["message"]["content"].as_str().unwrap().to_owned(),
    }
}

fn data(answer: &Answer) -> Vec<String> {
    let frames = answer.text.split_terminator("\n\n");
    frames
        .map(|frame| frame.lines().find_map(|line| line.strip_prefix("data: ")).unwrap().to_owned())
        .collect()
}

async fn the_demo_model_in_both_dialects(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let listed = world.get("/v1/models").await;
    assert_eq!(listed.body["data"][0]["id"], "demo/assistant");
    let body = |message: &str, more: Value| {
        let mut body = json!({ "model": "demo/assistant", "max_tokens": 99,
            "messages": [{ "role": "user", "content": message }] });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    for path in PATHS {
        let answer = post(&world, path, &body("think 3 words", json!({}))).await;
        assert_eq!(
            (answer.status, text(path, &answer.body).as_str()),
            (200, "I thought 3 words."),
            "{}",
            answer.text
        );
    }
    let more = json!({ "stream": true, "stream_options": { "include_usage": true } });
    let answer = post(&world, PATHS[0], &body("think 3 words", more)).await;
    assert_eq!(answer.header("content-type"), "text/event-stream");
    let chunks = data(&answer);
    assert_eq!(chunks.last().unwrap(), "[DONE]");
    let chunks: Vec<Value> =
        chunks[..chunks.len() - 1].iter().map(|chunk| serde_json::from_str(chunk).unwrap()).collect();
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    let said: String =
        chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(said, "I thought 3 words.");
    assert_eq!(chunks[chunks.len() - 2]["choices"][0]["finish_reason"], "stop");
    assert!(chunks.last().unwrap()["usage"]["total_tokens"].as_i64().unwrap() > 0);
    // A tool that is offered is called, its result reported.
    let tools = json!({ "stream": true, "tools": [{ "name": "read_file",
        "input_schema": { "type": "object", "properties": { "path": { "type": "string" } } } }] });
    let answer = post(&world, PATHS[1], &body("read a.txt", tools)).await;
    let events: Vec<Value> = data(&answer).iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    let expected = [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ];
    assert_eq!(kinds, expected);
    assert_eq!(events[1]["content_block"]["name"], "read_file");
    assert_eq!(events[2]["delta"]["partial_json"], "{\"path\":\"a.txt\"}");
    assert_eq!(events[4]["delta"]["stop_reason"], "tool_use");
    Some(())
}

pub const OPENAI: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\n\
data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n\
data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3}}\n\ndata: [DONE]\n\n";
pub const ANTHROPIC: &str = "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":7}}}\n\n\
data: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"Hi\"}}\n\n\
data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":3}}\n\n\
data: {\"type\":\"message_stop\"}\n\n";

pub async fn world_with(backend: Backend, script: Vec<Action>) -> Option<(World, ScriptedSandbox)> {
    let provider = ScriptedSandbox::start(script).await.unwrap();
    let world = World::start_with(backend, |config| {
        config.openai.api_key = Some(Secret::new("sk-openai"));
        config.openai.base_url = Some(format!("{}/v1", provider.url()));
        config.anthropic.api_key = Some(Secret::new("sk-anthropic"));
        config.anthropic.base_url = Some(provider.url());
        config.limits.model_retries = 0;
    });
    Some((world.await?, provider))
}

async fn a_request_goes_on_as_it_is_to_a_provider_of_its_dialect(backend: Backend) -> Option<()> {
    for (path, model, script) in [(PATHS[0], "openai/m", OPENAI), (PATHS[1], "anthropic/m", ANTHROPIC)] {
        let (world, provider) = world_with(backend, stream(script)).await?;
        let parts = json!([{ "type": "text", "text": "Look" }, { "type": "new_part", "x": 1 }]);
        let body = json!({ "model": model, "max_tokens": 9, "new_field": [1],
            "messages": [{ "role": "user", "content": parts }] });
        let answer = post(&world, path, &body).await;
        assert_eq!((answer.status, text(path, &answer.body).as_str()), (200, "Hi"), "{}", answer.text);
        let sent = provider.request(0).await.unwrap();
        assert_eq!((sent.path.as_str(), &sent.body["model"]), (path, &json!("m")));
        assert_eq!((&sent.body["messages"], &sent.body["new_field"]), (&body["messages"], &json!([1])));
        // The caller's own credential stays here.
        let all = format!("{:?}", sent.headers);
        assert!(!all.contains(world.bearer()), "{all}");
        let usage = &answer.body["usage"];
        let input = usage["prompt_tokens"].as_i64().or(usage["input_tokens"].as_i64());
        assert_eq!(input, Some(7));
    }
    Some(())
}

async fn what_was_cached_is_counted_in_every_dialect(backend: Backend) -> Option<()> {
    let cached = ANTHROPIC.replace(
        "\"input_tokens\":7",
        r#""input_tokens":2,"cache_read_input_tokens":4,"cache_creation_input_tokens":1"#,
    );
    let user = json!([{ "role": "user", "content": "Hi" }]);
    let (world, _provider) = world_with(backend, stream(&cached)).await?;
    let body = json!({ "model": "anthropic/m", "max_tokens": 9, "messages": user });
    let usage = post(&world, PATHS[0], &body).await.body["usage"].clone();
    assert_eq!((&usage["prompt_tokens"], &usage["total_tokens"]), (&json!(7), &json!(10)));
    assert_eq!(usage["prompt_tokens_details"], json!({ "cached_tokens": 4, "cache_write_tokens": 1 }));
    let cached = OPENAI
        .replace("\"prompt_tokens\":7", r#""prompt_tokens":7,"prompt_tokens_details":{"cached_tokens":4}"#);
    for (script, fresh, kept) in [(cached.as_str(), 3, 4), (OPENAI, 7, 0)] {
        let (world, _provider) = world_with(backend, stream(script)).await?;
        let mut body = json!({ "model": "openai/m", "max_tokens": 9, "messages": user });
        let expected = json!({ "input_tokens": fresh, "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": kept, "output_tokens": 3 });
        assert_eq!(post(&world, PATHS[1], &body).await.body["usage"], expected);
        body["stream"] = json!(true);
        let told = read(&post(&world, PATHS[1], &body).await);
        let of = |kind: &str| told.iter().find(|event| event["type"] == kind).unwrap();
        assert_eq!(of("message_delta")["usage"], expected);
        assert_eq!(
            of("message_delta")["delta"],
            json!({ "stop_reason": "end_turn", "stop_sequence": null, "stop_details": null, "container": null })
        );
        assert!(of("message_start")["message"]["usage"]["cache_read_input_tokens"].is_number());
    }
    Some(())
}

async fn a_request_is_translated_for_the_other_provider(backend: Backend) -> Option<()> {
    let (world, provider) = world_with(backend, stream(ANTHROPIC)).await?;
    let call =
        json!({ "id": "c1", "type": "function", "function": { "name": "f", "arguments": "{\"x\":1}" } });
    let body = json!({ "model": "anthropic/m", "max_tokens": 9, "tools": [{ "type": "function",
        "function": { "name": "f", "description": "d", "parameters": { "type": "object" } } }],
        "messages": [{ "role": "system", "content": "Be brief." }, { "role": "user", "content": "Go" },
            { "role": "assistant", "content": null, "tool_calls": [call] },
            { "role": "tool", "tool_call_id": "c1", "content": "done" }] });
    let answer = post(&world, PATHS[0], &body).await;
    assert_eq!(text(PATHS[0], &answer.body), "Hi", "{}", answer.text);
    let sent = provider.request(0).await.unwrap().body;
    assert_eq!((&sent["system"], &sent["max_tokens"]), (&json!("Be brief."), &json!(9)));
    assert_eq!(
        sent["messages"][1]["content"][0],
        json!({ "type": "tool_use", "id": "c1", "name": "f", "input": { "x": 1 } })
    );
    assert_eq!(sent["messages"][2]["content"][0]["tool_use_id"], "c1");
    assert_eq!(sent["tools"][0]["name"], "f");
    // And the other way.
    provider.then(stream(OPENAI));
    let body = json!({ "model": "openai/m", "max_tokens": 9, "system": "Be brief.", "messages": [
        { "role": "user", "content": "Go" },
        { "role": "assistant", "content": [{ "type": "tool_use", "id": "c1", "name": "f", "input": { "x": 1 } }] },
        { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "c1", "content": "done" },
            { "type": "text", "text": "And?" }] }] });
    post(&world, PATHS[1], &body).await;
    let answer = post(&world, PATHS[1], &body).await;
    assert_eq!(text(PATHS[1], &answer.body), "Hi", "{}", answer.text);
    let sent = provider.requests().pop().unwrap().body;
    let roles: Vec<&str> = sent["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "user"]);
    assert_eq!(sent["messages"][2]["tool_calls"][0]["function"]["arguments"], "{\"x\":1}");
    Some(())
}

async fn failures_are_told_as_clients_expect_them(backend: Backend) -> Option<()> {
    let refusal = |status: &'static str, text: &str| {
        vec![Action::Headers(status, vec![]), Action::Bytes(text.as_bytes().to_vec())]
    };
    let broken = refusal("400 Bad Request", r#"{"error":{"message":"bad part"}}"#);
    let (world, provider) = world_with(backend, broken).await?;
    let user = json!([{ "role": "user", "content": "Hi" }]);
    for path in PATHS {
        for (body, status, code) in [
            (json!({ "model": "openai/m", "messages": user }), 400, "model_error"),
            (json!({ "model": "gpt", "messages": user }), 404, "model_not_found"),
            (json!({ "messages": user }), 400, "invalid_value"),
            (json!({ "model": "openai/m" }), 400, "invalid_value"),
            (json!({ "model": "openai/m", "messages": [] }), 400, "invalid_value"),
            (json!({ "model": "openai/m", "messages": user, "stream": 1 }), 400, "invalid_value"),
        ] {
            let answer = post(&world, path, &body).await;
            assert_eq!(
                (answer.status, answer.body["code"].as_str()),
                (status, Some(code)),
                "{}",
                answer.text
            );
            let error = &answer.body["error"];
            assert!(error["message"].is_string() && error["type"].is_string(), "{}", answer.text);
        }
        let anonymous = world.server.request(Method::POST, path).json(&json!({}));
        let answer = ask(anonymous).await;
        assert_eq!((answer.status, &answer.body["error"]["type"]), (401, &json!("authentication_error")));
        assert_eq!(answer.header("www-authenticate"), "Bearer");
    }
    let body = json!({ "model": "openai/m", "messages": user, "stream_options": "x" });
    let answer = post(&world, PATHS[0], &body).await;
    assert_eq!(
        (answer.status, &answer.body["error"]["param"]),
        (400, &json!("stream_options")),
        "{}",
        answer.text
    );
    assert_eq!(answer.body["error"]["type"], "invalid_request_error");
    // After the first word it is an event.
    let half = &OPENAI[..OPENAI.find("data: {\"choices\":[{\"delta\":{},").unwrap()];
    let mut script = stream(half);
    // Apart from the end, so that it is told before.
    script.push(Action::Wait(std::time::Duration::from_millis(300)));
    provider.then(script);
    post(&world, PATHS[0], &json!({ "model": "openai/m", "messages": user })).await;
    let answer =
        post(&world, PATHS[0], &json!({ "model": "openai/m", "messages": user, "stream": true })).await;
    let told = data(&answer);
    assert_eq!(told.last().unwrap(), "[DONE]", "as every stream of this dialect ends");
    let failed: Value = serde_json::from_str(&told[told.len() - 2]).unwrap();
    assert_eq!((answer.status, &failed["error"]["code"]), (200, &json!("model_error")), "{}", answer.text);
    Some(())
}

/// What the first run's sandbox has: a client, the envelope, and how it asks models.
async fn sandbox_of(world: &World) -> (reqwest::Client, Value, Value) {
    let envelope = world.sandbox.request(0).await.unwrap().body;
    let url = format!("{}/config", envelope["agent_url"].as_str().unwrap());
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let config = client.get(url).bearer_auth(envelope["config_token"].as_str().unwrap());
    let model = ask(config).await.body["model"].clone();
    (client, envelope, model)
}

async fn a_run_has_a_token_of_its_own_and_what_it_uses_is_counted(backend: Backend) -> Option<()> {
    let (world, _provider) = world_with(backend, stream(OPENAI)).await?;
    let gate = Release::default();
    world.play(wait_after(vec![], &gate, "Done."));
    let mut running = world.begin(&json!({ "message": "Go" })).await;
    let (run, conversation) = (running.run(), running.conversation());
    running.next().await.unwrap();
    let (client, envelope, model) = sandbox_of(&world).await;
    let token = model["api_key"].as_str().unwrap();
    let base = model["base_url"].as_str().unwrap();
    let body =
        json!({ "model": "openai/m", "max_tokens": 9, "messages": [{ "role": "user", "content": "Hi" }] });
    let call = |path: &str, header: &str, token: &str| {
        client.post(format!("{base}/{path}")).header(header, token).json(&body)
    };
    let mut streamed = body.clone();
    streamed["stream"] = true.into();
    let mut used = 0;
    for (path, header, token) in [
        ("chat/completions", "authorization", format!("Bearer {token}")),
        ("messages", "x-api-key", token.to_owned()),
        ("messages", "authorization", format!("Bearer {token}")),
    ] {
        for body in [&body, &streamed] {
            let answer = ask(call(path, header, &token).json(body)).await;
            assert_eq!(answer.status, 200, "{path} {header}: {}", answer.text);
            // By the time that the answer is there: its run may end now.
            used += 10;
            assert_eq!(world.run(&run).await["usage"]["total_tokens"], used, "{path} {header}");
        }
    }
    // It opens nothing else, and no other token opens this.
    let elsewhere = client.get(format!("{base}/chat-conversations")).bearer_auth(token);
    assert_eq!(ask(elsewhere).await.status, 401);
    let wrong = envelope["config_token"].as_str().unwrap();
    assert_eq!(ask(call("messages", "x-api-key", wrong)).await.status, 401);
    gate.open();
    running.rest().await;
    let shown = world.conversation(&conversation).await;
    assert_eq!(shown["total_tokens"], 60);
    let answer = &shown["messages"][1];
    assert_eq!(answer["tokenCount"], 18, "{answer}");
    assert_eq!(answer["metadata"]["usage"], json!({ "input_tokens": 42, "output_tokens": 18 }));
    let over = ask(call("chat/completions", "authorization", &format!("Bearer {token}"))).await;
    assert_eq!((over.status, &over.body["error"]["type"]), (401, &json!("authentication_error")));
    Some(())
}

async fn a_client_that_leaves_lets_the_provider_go(backend: Backend) -> Option<()> {
    let begun = &OPENAI[..OPENAI.find("\n\n").unwrap() + 2];
    let mut script = stream(begun);
    script.push(Action::Hang);
    let (world, provider) = world_with(backend, script).await?;
    let body =
        json!({ "model": "openai/m", "stream": true, "messages": [{ "role": "user", "content": "Hi" }] });
    let mut response = world.request(Method::POST, PATHS[0]).json(&body).send().await.unwrap();
    response.chunk().await.unwrap().unwrap();
    drop(response);
    provider.disconnected(0).await.unwrap();
    Some(())
}

/// Also where its sandbox goes on reading.
async fn a_run_that_is_cancelled_lets_the_provider_go(backend: Backend) -> Option<()> {
    let begun = &OPENAI[..OPENAI.find("\n\n").unwrap() + 2];
    let mut script = stream(begun);
    script.push(Action::Hang);
    let (world, provider) = world_with(backend, script).await?;
    world.play(wait_after(vec![], &Release::default(), "Never."));
    let mut running = world.begin(&json!({ "message": "Go", "on_disconnect": "continue" })).await;
    running.next().await.unwrap();
    let (client, _, model) = sandbox_of(&world).await;
    let (base, token) = (model["base_url"].as_str().unwrap(), model["api_key"].as_str().unwrap());
    let body =
        json!({ "model": "openai/m", "stream": true, "messages": [{ "role": "user", "content": "Hi" }] });
    let call = client.post(format!("{base}/chat/completions")).bearer_auth(token).json(&body);
    let mut answer = call.send().await.unwrap();
    answer.chunk().await.unwrap().unwrap();
    world.cancel(&running.run()).await;
    provider.disconnected(0).await.unwrap();
    // It is told, and the answer ends.
    let mut rest = Vec::new();
    while let Some(chunk) = answer.chunk().await.unwrap() {
        rest.extend_from_slice(&chunk);
    }
    assert!(String::from_utf8_lossy(&rest).contains("The run is over."), "{rest:?}");
    assert_eq!(running.rest().await.status(), "cancelled");
    Some(())
}

fn events(list: &[Value]) -> String {
    list.iter().map(|data| format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap())).collect()
}

fn read(answer: &Answer) -> Vec<Value> {
    data(answer).iter().map(|data| serde_json::from_str(data).unwrap()).collect()
}

/// A message with all that only Anthropic has.
fn rich_message() -> (Vec<Value>, Value) {
    let usage = json!({ "input_tokens": 5, "cache_creation_input_tokens": 100, "cache_read_input_tokens": 200,
        "output_tokens": 1 });
    let mut message = json!({ "id": "msg_1", "type": "message", "role": "assistant", "model": "m-2026", "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": usage });
    let start = |index: u32, block: Value| json!({ "type": "content_block_start", "index": index, "content_block": block });
    let delta =
        |index: u32, delta: Value| json!({ "type": "content_block_delta", "index": index, "delta": delta });
    let stop = |index: u32| json!({ "type": "content_block_stop", "index": index });
    let citation = json!({ "type": "char_location", "cited_text": "c", "document_index": 0 });
    let events = vec![
        json!({ "type": "message_start", "message": message }),
        json!({ "type": "ping" }),
        start(0, json!({ "type": "thinking", "thinking": "", "signature": "" })),
        delta(0, json!({ "type": "thinking_delta", "thinking": "hm" })),
        delta(0, json!({ "type": "signature_delta", "signature": "c2ln" })),
        stop(0),
        start(1, json!({ "type": "redacted_thinking", "data": "XXX" })),
        stop(1),
        start(2, json!({ "type": "server_tool_use", "id": "s1", "name": "web_search", "input": {} })),
        delta(2, json!({ "type": "input_json_delta", "partial_json": "{\"query\":" })),
        delta(2, json!({ "type": "input_json_delta", "partial_json": "\"q\"}" })),
        stop(2),
        start(3, json!({ "type": "web_search_tool_result", "tool_use_id": "s1", "content": [] })),
        stop(3),
        start(4, json!({ "type": "text", "text": "" })),
        delta(4, json!({ "type": "text_delta", "text": "Hel" })),
        delta(4, json!({ "type": "text_delta", "text": "lo" })),
        delta(4, json!({ "type": "citations_delta", "citation": citation })),
        stop(4),
        json!({ "type": "message_delta", "delta": { "stop_reason": "stop_sequence", "stop_sequence": "END" },
            "usage": { "output_tokens": 42 } }),
        json!({ "type": "message_stop" }),
    ];
    message["content"] = json!([
        { "type": "thinking", "thinking": "hm", "signature": "c2ln" },
        { "type": "redacted_thinking", "data": "XXX" },
        { "type": "server_tool_use", "id": "s1", "name": "web_search", "input": { "query": "q" } },
        { "type": "web_search_tool_result", "tool_use_id": "s1", "content": [] },
        { "type": "text", "text": "Hello", "citations": [citation] }]);
    message["stop_reason"] = json!("stop_sequence");
    message["stop_sequence"] = json!("END");
    message["usage"]["output_tokens"] = json!(42);
    (events, message)
}

async fn an_answer_of_anthropic_comes_back_as_it_was(backend: Backend) -> Option<()> {
    let (mut sent, mut whole) = rich_message();
    let (world, provider) = world_with(backend, stream(&events(&sent))).await?;
    let mut body =
        json!({ "model": "anthropic/m", "max_tokens": 9, "messages": [{ "role": "user", "content": "Hi" }] });
    let answer = post(&world, PATHS[1], &body).await;
    whole["model"] = json!("anthropic/m");
    assert_eq!(answer.body, whole);
    body["stream"] = json!(true);
    let (paused, headers) = {
        let mut paused = whole.clone();
        paused["stop_reason"] = json!("pause_turn");
        (paused, vec![("content-type", "application/json".to_owned())])
    };
    provider.then(vec![Action::Headers("200 OK", headers), Action::Bytes(paused.to_string().into_bytes())]);
    let answer = post(&world, PATHS[1], &body).await;
    sent[0]["message"]["model"] = json!("anthropic/m");
    assert_eq!(read(&answer), sent);
    assert!(answer.text.starts_with("event: message_start\n"), "{}", answer.text);
    // One that does not stream.
    body["stream"] = json!(false);
    assert_eq!(post(&world, PATHS[1], &body).await.body, paused);
    Some(())
}

async fn an_answer_of_openai_comes_back_as_it_was(backend: Backend) -> Option<()> {
    let chunk = |choices: Value| {
        json!({ "id": "c-1", "object": "chat.completion.chunk", "created": 77, "model": "m-2026",
            "system_fingerprint": "fp", "service_tier": "flex", "choices": choices, "usage": null })
    };
    let logprob = |token: &str| json!({ "token": token, "logprob": -1, "bytes": null, "top_logprobs": [] });
    let call =
        |more: Value| json!([{ "index": 0, "delta": { "tool_calls": [more] }, "finish_reason": null }]);
    let usage = json!({ "prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15,
        "prompt_tokens_details": { "cached_tokens": 8 }, "completion_tokens_details": { "reasoning_tokens": 3 } });
    let mut last = chunk(json!([]));
    last["usage"] = usage.clone();
    let mut sent = vec![
        chunk(json!([
            { "index": 0, "delta": { "role": "assistant", "content": "A" }, "finish_reason": null,
                "logprobs": { "content": [logprob("A")], "refusal": null } },
            { "index": 1, "delta": { "role": "assistant", "content": "B" }, "finish_reason": null }])),
        chunk(json!([{ "index": 0, "delta": { "content": "a" }, "finish_reason": null,
            "logprobs": { "content": [logprob("a")], "refusal": null } }])),
        chunk(call(
            json!({ "index": 0, "id": "k", "type": "function", "function": { "name": "f", "arguments": "" } }),
        )),
        chunk(call(json!({ "index": 0, "function": { "arguments": "{}" } }))),
        chunk(json!([
            { "index": 0, "delta": {}, "finish_reason": "tool_calls" },
            { "index": 1, "delta": { "refusal": "no" }, "finish_reason": "stop" }])),
        last,
    ];
    let script = |sent: &[Value]| {
        let text: String = sent.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
        stream(&format!("{text}data: [DONE]\n\n"))
    };
    let (world, provider) = world_with(backend, script(&sent)).await?;
    let mut body = json!({ "model": "openai/m", "n": 2, "messages": [{ "role": "user", "content": "Hi" }] });
    let answer = post(&world, PATHS[0], &body).await;
    let whole = json!({ "id": "c-1", "object": "chat.completion", "created": 77, "model": "openai/m",
        "system_fingerprint": "fp", "service_tier": "flex", "usage": usage, "choices": [
        { "index": 0, "finish_reason": "tool_calls", "logprobs": { "content": [logprob("A"), logprob("a")], "refusal": null },
            "message": { "role": "assistant", "content": "Aa", "refusal": null, "tool_calls": [
                { "id": "k", "type": "function", "function": { "name": "f", "arguments": "{}" } }] } },
        { "index": 1, "finish_reason": "stop", "logprobs": null,
            "message": { "role": "assistant", "content": "B", "refusal": "no" } }] });
    assert_eq!(answer.body, whole);
    body["stream"] = json!(true);
    body["stream_options"] = json!({ "include_usage": true });
    provider.then(script(&sent));
    let answer = post(&world, PATHS[0], &body).await;
    sent.iter_mut().for_each(|chunk| chunk["model"] = json!("openai/m"));
    let text = answer.text.strip_suffix("data: [DONE]\n\n").unwrap().to_owned();
    assert_eq!(read(&Answer { text, ..answer }), sent);
    // What was asked for only by us is kept from the client.
    body["stream_options"] = Value::Null;
    provider.then(script(&sent));
    let answer = post(&world, PATHS[0], &body).await;
    assert!(!answer.text.contains("usage") && answer.text.ends_with("data: [DONE]\n\n"), "{}", answer.text);
    Some(())
}

async fn the_kind_of_a_failure_is_told(backend: Backend) -> Option<()> {
    let (sent, _) = rich_message();
    let failing = |begun: usize| {
        let error =
            json!({ "type": "error", "error": { "type": "overloaded_error", "message": "Overloaded" } });
        let mut script = stream(&events(&sent[..begun]));
        script.push(Action::Wait(std::time::Duration::from_millis(300)));
        script.push(Action::Bytes(events(&[error]).into_bytes()));
        script
    };
    let (world, provider) = world_with(backend, failing(4)).await?;
    let body = json!({ "model": "anthropic/m", "max_tokens": 9, "stream": true,
        "messages": [{ "role": "user", "content": "Hi" }] });
    let answer = post(&world, PATHS[1], &body).await;
    assert_eq!(read(&answer).last().unwrap()["error"]["type"], "overloaded_error", "{}", answer.text);
    provider.then(failing(2));
    post(&world, PATHS[1], &body).await;
    let answer = post(&world, PATHS[1], &body).await;
    assert_eq!((answer.status, &answer.body["error"]["type"]), (529, &json!("overloaded_error")));
    Some(())
}

async fn calls_are_counted_from_nought_in_the_other_dialect(backend: Backend) -> Option<()> {
    let (mut sent, _) = rich_message();
    sent.truncate(6);
    for (index, id) in [(1, "a"), (2, "b")] {
        let block = json!({ "type": "tool_use", "id": id, "name": "f", "input": {} });
        sent.push(json!({ "type": "content_block_start", "index": index, "content_block": block }));
        let delta = json!({ "type": "input_json_delta", "partial_json": "{}" });
        sent.push(json!({ "type": "content_block_delta", "index": index, "delta": delta }));
        sent.push(json!({ "type": "content_block_stop", "index": index }));
    }
    sent.push(json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use" }, "usage": {} }));
    sent.push(json!({ "type": "message_stop" }));
    let (world, _provider) = world_with(backend, stream(&events(&sent))).await?;
    let body =
        json!({ "model": "anthropic/m", "stream": true, "messages": [{ "role": "user", "content": "Hi" }] });
    let answer = post(&world, PATHS[0], &body).await;
    let chunks = data(&answer);
    let chunks = chunks.iter().filter_map(|chunk| serde_json::from_str::<Value>(chunk).ok());
    let indexes: Vec<i64> =
        chunks.filter_map(|chunk| chunk["choices"][0]["delta"]["tool_calls"][0]["index"].as_i64()).collect();
    assert_eq!(indexes, [0, 0, 1, 1], "{}", answer.text);
    Some(())
}

async fn calls_that_come_mixed_are_blocks_one_after_the_other(backend: Backend) -> Option<()> {
    let call = |index: u64, id: Option<&str>, args: &str| {
        let mut call = json!({ "index": index, "function": { "arguments": args } });
        if let Some(id) = id {
            (call["id"], call["function"]["name"]) = (json!(id), json!(format!("f_{id}")));
        }
        json!({ "choices": [{ "index": 0, "delta": { "tool_calls": [call] } }] })
    };
    let chunks = [
        json!({ "choices": [{ "index": 0, "delta": { "content": "I look." } }] }),
        call(0, Some("a"), ""),
        call(1, Some("b"), "{"),
        call(0, None, "{\"n\""),
        call(2, Some("c"), ""),
        call(1, None, "}"),
        json!({ "choices": [{ "index": 0, "delta": { "content": "So." } }] }),
        call(0, None, ":1}"),
        json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "tool_calls" }] }),
    ];
    let script: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
    let (world, _provider) = world_with(backend, stream(&(script + "data: [DONE]\n\n"))).await?;
    let body =
        json!({ "model": "openai/m", "stream": true, "messages": [{ "role": "user", "content": "Hi" }] });
    let answer = post(&world, PATHS[1], &body).await;
    let mut blocks: Vec<(Value, String)> = Vec::new();
    for event in read(&answer) {
        let at = event["index"].as_u64().map(|at| at as usize);
        match event["type"].as_str().unwrap() {
            "content_block_start" => {
                assert_eq!(at, Some(blocks.len()), "{}", answer.text);
                let block = &event["content_block"];
                blocks.push((json!([block["type"], block["id"], block["name"]]), String::new()));
            }
            "content_block_delta" => {
                assert_eq!(at, Some(blocks.len() - 1), "{}", answer.text);
                let delta = &event["delta"];
                let piece = delta["text"].as_str().or(delta["partial_json"].as_str()).unwrap();
                blocks.last_mut().unwrap().1.push_str(piece);
            }
            _ => {}
        }
    }
    let expected = [
        (json!(["text", null, null]), "I look."),
        (json!(["tool_use", "a", "f_a"]), "{\"n\":1}"),
        (json!(["tool_use", "b", "f_b"]), "{}"),
        (json!(["tool_use", "c", "f_c"]), ""),
        (json!(["text", null, null]), "So."),
    ];
    assert_eq!(blocks, expected.map(|(block, said)| (block, said.to_owned())), "{}", answer.text);
    Some(())
}

async fn what_a_client_asks_of_the_answer_is_translated(backend: Backend) -> Option<()> {
    let (world, provider) = world_with(backend, stream(ANTHROPIC)).await?;
    let picture = json!({ "type": "image_url", "image_url": { "url": "https://pictures.example/1.png" } });
    let body = json!({ "model": "anthropic/m", "max_tokens": 9, "temperature": 0.25, "top_p": 0.5, "stop": "END",
        "tool_choice": "required", "parallel_tool_calls": false,
        "tools": [{ "type": "function", "function": { "name": "f" } }],
        "messages": [
            { "role": "user", "content": [{ "type": "text", "text": "Look" }, picture] },
            { "role": "user", "content": [picture, { "type": "text", "text": "and" }, { "type": "text", "text": "here" },
                picture, picture, { "type": "text", "text": "?" }] }] });
    post(&world, PATHS[0], &body).await;
    let sent = provider.request(0).await.unwrap().body;
    assert_eq!(
        (&sent["temperature"], sent.get("top_p"), &sent["max_tokens"]),
        (&json!(0.25), None, &json!(9)),
        "newer models refuse both"
    );
    let mut cooler = body.clone();
    cooler.as_object_mut().unwrap().remove("temperature");
    post(&world, PATHS[0], &cooler).await;
    let other = provider.request(1).await.unwrap().body;
    assert_eq!((other.get("temperature"), &other["top_p"]), (None, &json!(0.5)));
    assert_eq!(sent["stop_sequences"], json!(["END"]));
    assert_eq!(sent["tool_choice"], json!({ "type": "any", "disable_parallel_tool_use": true }));
    // What was said and shown comes in its order.
    let (text, source) = (
        |text: &str| json!({ "type": "text", "text": text }),
        json!({ "type": "url",
        "url": "https://pictures.example/1.png" }),
    );
    let picture = json!({ "type": "image", "source": source });
    let mut content = sent["messages"][0]["content"].clone();
    content.as_array_mut().unwrap().last_mut().unwrap().as_object_mut().unwrap().remove("cache_control");
    let expected = [
        text("Look"),
        picture.clone(),
        picture.clone(),
        text("and\n\nhere"),
        picture.clone(),
        picture,
        text("?"),
    ];
    assert_eq!(content, json!(expected));
    // And the other way.
    provider.then(stream(OPENAI));
    let picture =
        json!({ "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "iVBO" } });
    let body = json!({ "model": "openai/m", "max_tokens": 9, "temperature": 0.25, "top_p": 0.5,
        "stop_sequences": ["A", "B"], "tool_choice": { "type": "tool", "name": "f" },
        "tools": [{ "name": "f", "input_schema": { "type": "object" } }], "messages": [
        { "role": "user", "content": [{ "type": "text", "text": "This" }, picture, { "type": "text", "text": "or" }, picture] },
        { "role": "assistant", "content": [{ "type": "tool_use", "id": "c1", "name": "f", "input": {} }] },
        { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "c1", "is_error": true, "content": "no" }] }] });
    post(&world, PATHS[1], &body).await;
    let sent = provider.requests().pop().unwrap().body;
    assert_eq!(
        (&sent["temperature"], &sent["top_p"], &sent["stop"]),
        (&json!(0.25), &json!(0.5), &json!(["A", "B"]))
    );
    assert_eq!(sent["tool_choice"], json!({ "type": "function", "function": { "name": "f" } }));
    let picture = json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64,iVBO" } });
    let shown = json!([text("This"), picture, text("or"), picture]);
    assert_eq!(
        (&sent["messages"][0]["content"], &sent["messages"][2]["content"]),
        (&shown, &json!("Error: no"))
    );
    Some(())
}

async fn a_silent_provider_does_not_silence_the_stream(backend: Backend) -> Option<()> {
    // It takes its time, and one database shows it as well as two.
    if backend != Backend::Sqlite {
        return Some(());
    }
    let headers = vec![("content-type", "text/event-stream".to_owned())];
    let (world, _provider) =
        world_with(backend, vec![Action::Headers("200 OK", headers), Action::Hang]).await?;
    let body = json!({ "model": "openai/m", "stream": true, "max_tokens": 9,
        "messages": [{ "role": "user", "content": "Hi" }] });
    let first = async |path: &str| {
        let mut response = world.request(Method::POST, path).json(&body).send().await.unwrap();
        response.chunk().await.unwrap().unwrap()
    };
    let (completions, messages) = tokio::join!(first(PATHS[0]), first(PATHS[1]));
    assert_eq!((&completions[..], &messages[..]), (&b": heartbeat\n\n"[..], &b": heartbeat\n\n"[..]));
    Some(())
}

async fn what_is_asked_of_an_answer_is_told_to_anthropic(backend: Backend) -> Option<()> {
    let (world, provider) = world_with(backend, stream(ANTHROPIC)).await?;
    let schema = json!({ "type": "object", "properties": { "a": { "type": "string" } } });
    let format = json!({ "type": "json_schema", "name": "n", "schema": schema });
    let body = json!({ "model": "anthropic/claude-new", "input": "Hi", "temperature": 0.25,
        "reasoning": { "effort": "high" }, "text": { "format": format } });
    let answer = post(&world, "/v1/responses", &body).await;
    let sent = provider.request(0).await.unwrap().body;
    assert_eq!(sent["thinking"], json!({ "type": "adaptive" }), "{}", answer.text);
    let format = json!({ "type": "json_schema", "schema": schema });
    assert_eq!(sent["output_config"], json!({ "effort": "high", "format": format }));
    assert_eq!(sent.get("temperature"), None);
    // Older models are given a budget.
    provider.then(stream(ANTHROPIC));
    let body = json!({ "model": "anthropic/claude-sonnet-4-5", "reasoning_effort": "medium",
        "messages": [{ "role": "user", "content": "Hi" }] });
    post(&world, PATHS[0], &body).await;
    let sent = provider.request(1).await.unwrap().body;
    assert_eq!(sent["thinking"], json!({ "type": "enabled", "budget_tokens": 4096 }));
    assert_eq!(sent["max_tokens"], 8192 + 4096);
    // And the other way.
    provider.then(stream(OPENAI));
    let body = json!({ "model": "openai/m", "max_tokens": 9, "messages": [{ "role": "user", "content": "Hi" }],
        "output_config": { "effort": "max", "format": format } });
    post(&world, PATHS[1], &body).await;
    let sent = provider.request(2).await.unwrap().body;
    assert_eq!(
        (&sent["reasoning_effort"], &sent["response_format"]["json_schema"]["schema"]),
        (&json!("high"), &schema)
    );
    Some(())
}
