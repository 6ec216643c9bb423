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
    failures_are_told_as_clients_expect_them,
    a_run_has_a_token_of_its_own_and_what_it_uses_is_counted,
    a_client_that_leaves_lets_the_provider_go,
);

const PATHS: [&str; 2] = ["/v1/chat/completions", "/v1/messages"];

async fn post(world: &World, path: &str, body: &Value) -> Answer {
    world.send(Method::POST, path, Some(body)).await
}

fn stream(text: &str) -> Vec<Action> {
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

const OPENAI: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\n\
data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n\
data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3}}\n\ndata: [DONE]\n\n";
const ANTHROPIC: &str = "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":7}}}\n\n\
data: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"Hi\"}}\n\n\
data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":3}}\n\n\
data: {\"type\":\"message_stop\"}\n\n";

async fn world_with(backend: Backend, script: Vec<Action>) -> Option<(World, ScriptedSandbox)> {
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
            (json!({ "messages": user }), 422, "invalid_value"),
            (json!({ "model": "openai/m" }), 422, "invalid_value"),
            (json!({ "model": "openai/m", "messages": user, "stream": 1 }), 422, "invalid_value"),
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
    // After the first word it is an event.
    let half = &OPENAI[..OPENAI.find("data: {\"choices\":[{\"delta\":{},").unwrap()];
    let mut script = stream(half);
    // Apart from the end, so that it is told before.
    script.push(Action::Wait(std::time::Duration::from_millis(300)));
    provider.then(script);
    post(&world, PATHS[0], &json!({ "model": "openai/m", "messages": user })).await;
    let answer =
        post(&world, PATHS[0], &json!({ "model": "openai/m", "messages": user, "stream": true })).await;
    let last: Value = serde_json::from_str(data(&answer).last().unwrap()).unwrap();
    assert_eq!((answer.status, &last["error"]["code"]), (200, &json!("model_error")), "{}", answer.text);
    Some(())
}

async fn a_run_has_a_token_of_its_own_and_what_it_uses_is_counted(backend: Backend) -> Option<()> {
    let (world, _provider) = world_with(backend, stream(OPENAI)).await?;
    let gate = Release::default();
    world.play(wait_after(vec![], &gate, "Done."));
    let mut running = world.begin(&json!({ "message": "Go" })).await;
    let (run, conversation) = (running.run(), running.conversation());
    running.next().await.unwrap();
    let envelope = world.sandbox.request(0).await.unwrap().body;
    let url = format!("{}/config", envelope["agent_url"].as_str().unwrap());
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let config = client.get(url).bearer_auth(envelope["config_token"].as_str().unwrap());
    let model = ask(config).await.body["model"].clone();
    let token = model["api_key"].as_str().unwrap();
    let base = model["base_url"].as_str().unwrap();
    let body =
        json!({ "model": "openai/m", "max_tokens": 9, "messages": [{ "role": "user", "content": "Hi" }] });
    let call = |path: &str, header: &str, token: &str| {
        client.post(format!("{base}/{path}")).header(header, token).json(&body)
    };
    for (path, header, token) in [
        ("chat/completions", "authorization", format!("Bearer {token}")),
        ("messages", "x-api-key", token.to_owned()),
        ("messages", "authorization", format!("Bearer {token}")),
    ] {
        let answer = ask(call(path, header, &token)).await;
        assert_eq!(answer.status, 200, "{path} {header}: {}", answer.text);
    }
    // It opens nothing else, and no other token opens this.
    let elsewhere = client.get(format!("{base}/chat-conversations")).bearer_auth(token);
    assert_eq!(ask(elsewhere).await.status, 401);
    let wrong = envelope["config_token"].as_str().unwrap();
    assert_eq!(ask(call("messages", "x-api-key", wrong)).await.status, 401);
    // Counted as they come.
    loop {
        let shown = world.run(&run).await;
        if shown["usage"]["total_tokens"] == 30 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    gate.open();
    running.rest().await;
    assert_eq!(world.conversation(&conversation).await["total_tokens"], 30);
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
