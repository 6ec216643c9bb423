//! Models behind the APIs of others: with a caller's credential or a run's own token, streamed or whole, in each
//! dialect; what a run used is counted, and who goes away lets the provider go.

use domain::secret::Secret;
use reqwest::Method;
use serde_json::{Value, json};
use testkit::sandbox::{Action, Release, ScriptedSandbox};
use testkit::server::{Answer, Backend};

use crate::scripts::wait_after;
use crate::world::{World, ask, stories};

stories!(
    the_demo_model_in_both_dialects,
    a_silent_provider_does_not_silence_the_stream,
    failures_are_told_as_clients_expect_them,
    a_run_has_a_token_of_its_own_and_what_it_uses_is_counted,
    a_client_that_leaves_lets_the_provider_go,
    a_run_that_is_cancelled_lets_the_provider_go,
);

pub const PATHS: [&str; 2] = ["/v1/chat/completions", "/v1/messages"];

pub async fn post(world: &World, path: &str, body: &Value) -> Answer {
    world.send(Method::POST, path, Some(body)).await
}

pub fn stream(text: &str) -> Vec<Action> {
    let headers = vec![("content-type", "text/event-stream".to_owned())];
    vec![Action::Headers("200 OK", headers), Action::Bytes(text.as_bytes().to_vec())]
}

/// The text of an answer in either dialect.
pub fn text(path: &str, body: &Value) -> String {
    match path {
        "/v1/messages" => {
            body["content"].as_array().unwrap().last().unwrap()["text"].as_str().unwrap().to_owned()
        }
        _ => body["choices"][0]["message"]["content"].as_str().unwrap().to_owned(),
    }
}

pub fn data(answer: &Answer) -> Vec<String> {
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
    // The next answer of the provider but one.
    let half = &OPENAI[..OPENAI.find("data: {\"choices\":[{\"delta\":{},").unwrap()];
    provider.then(stream(&format!("{half}data: {{\"error\":{{\"message\":\"broke\"}}}}\n\n")));
    // What another dialect has no word for is refused; a provider that speaks this one judges by itself.
    let many = json!({ "messages": user, "n": 2 });
    for (model, status, param) in [
        ("demo/assistant", 400, json!("n")),
        ("anthropic/m", 400, json!("n")),
        ("openai/m", 400, Value::Null),
    ] {
        let mut body = many.clone();
        body["model"] = model.into();
        let answer = post(&world, PATHS[0], &body).await;
        assert_eq!((answer.status, &answer.body["error"]["param"]), (status, &param), "{}", answer.text);
    }
    // Words that come with their failure are told before it.
    let body = json!({ "model": "openai/m", "messages": user, "stream": true });
    let answer = post(&world, PATHS[0], &body).await;
    assert!(
        answer.status == 200 && answer.text.contains("\"Hi\"") && answer.text.contains("broke"),
        "{}",
        answer.text
    );
    // What comes before the first word is none: a failure that comes with it has its own status.
    let start = &ANTHROPIC[..ANTHROPIC.find("data: {\"type\":\"content_block_delta").unwrap()];
    let error = r#"{"type":"error","error":{"type":"overloaded_error","message":"busy"}}"#;
    provider.play(stream(&format!("{start}data: {error}\n\n")));
    let body = json!({ "model": "anthropic/m", "messages": user, "stream": true, "max_tokens": 9 });
    let answer = post(&world, PATHS[1], &body).await;
    assert!(answer.status >= 500 && answer.text.contains("busy"), "{}: {}", answer.status, answer.text);
    // After the first word it is an event.
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
pub async fn sandbox_of(world: &World) -> (reqwest::Client, Value, Value) {
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
    assert_eq!(answer["tokenCount"], 60, "{answer}");
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

pub fn events(list: &[Value]) -> String {
    list.iter().map(|data| format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap())).collect()
}

pub fn read(answer: &Answer) -> Vec<Value> {
    data(answer).iter().map(|data| serde_json::from_str(data).unwrap()).collect()
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
