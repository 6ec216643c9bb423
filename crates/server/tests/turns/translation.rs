//! Requests and answers between the dialects: what a client of one asks reaches a provider of the other, and what that
//! answers comes back as the client's own would say it.

use reqwest::Method;
use serde_json::{Value, json};
use testkit::sandbox::Action;
use testkit::server::{Answer, Backend};

use crate::gateway::{ANTHROPIC, OPENAI, PATHS, data, events, post, read, stream, text, world_with};
use crate::world::{ask, stories};

stories!(
    a_request_goes_on_as_it_is_to_a_provider_of_its_dialect,
    the_features_that_a_request_uses_go_along,
    a_request_is_translated_for_the_other_provider,
    all_that_was_said_is_told_to_the_other_provider,
    what_was_cached_is_counted_in_every_dialect,
    what_a_client_asks_of_the_answer_is_translated,
    an_answer_of_anthropic_comes_back_as_it_was,
    an_answer_of_openai_comes_back_as_it_was,
    the_kind_of_a_failure_is_told,
    calls_are_counted_from_nought_in_the_other_dialect,
    calls_that_come_mixed_are_blocks_one_after_the_other,
    what_is_asked_of_an_answer_is_told_to_anthropic,
);

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

async fn the_features_that_a_request_uses_go_along(backend: Backend) -> Option<()> {
    let (world, provider) = world_with(backend, stream(ANTHROPIC)).await?;
    let body =
        json!({ "model": "anthropic/m", "max_tokens": 9, "messages": [{ "role": "user", "content": "Hi" }] });
    let long = "x".repeat(2049);
    for (path, given, sent) in [
        (PATHS[1], vec!["files-api-2025-04-14", "a,b"], Some("files-api-2025-04-14,a,b")),
        (PATHS[1], vec![], None),
        (PATHS[1], vec![long.as_str()], None),
        (PATHS[0], vec!["a"], None),
    ] {
        let request = world.request(Method::POST, path).json(&body);
        let request = given.iter().fold(request, |request, name| request.header("anthropic-beta", *name));
        let answer = ask(request).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let asked = provider.requests().pop().unwrap();
        assert_eq!(asked.header("anthropic-beta"), sent, "{path} {given:?}");
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

async fn all_that_was_said_is_told_to_the_other_provider(backend: Backend) -> Option<()> {
    let (world, provider) = world_with(backend, stream(ANTHROPIC)).await?;
    let call =
        json!({ "id": "functions.f:0", "type": "function", "function": { "name": "f", "arguments": "{}" } });
    let body = json!({ "model": "anthropic/m", "max_tokens": 9, "messages": [
        { "role": "assistant", "content": "Hello." }, { "role": "user", "content": "Go" },
        { "role": "assistant", "content": null, "refusal": "I may not.", "tool_calls": [call] },
        { "role": "tool", "tool_call_id": "functions.f:0", "content": "done" },
        { "role": "assistant", "content": [{ "type": "refusal", "refusal": "I may " }] }] });
    let answer = post(&world, PATHS[0], &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let sent = provider.request(0).await.unwrap().body["messages"].clone();
    let roles: Vec<&Value> = sent.as_array().unwrap().iter().map(|message| &message["role"]).collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant", "user", "assistant"]);
    let said = |at: usize, n: usize| &sent[at]["content"][n];
    assert_eq!((&said(1, 0)["text"], &said(3, 0)["text"]), (&json!("Hello."), &json!("I may not.")));
    let (made, came) = (said(3, 1), said(4, 0));
    assert_eq!((&made["id"], &made["id"]), (&json!("call_0"), &came["tool_use_id"]), "{sent}");
    assert_eq!((&came["content"], &said(5, 0)["text"]), (&json!("done"), &json!("I may")));
    // And the other way.
    provider.then(stream(OPENAI));
    let text = |text: &str| json!({ "type": "text", "text": text });
    let found = json!({ "type": "search_result", "title": "Found", "source": "https://a.example/",
        "content": [text("One."), text("Two.")] });
    let note = json!({ "type": "document", "title": "Note", "context": "of May",
        "source": { "type": "text", "media_type": "text/plain", "data": "Noted." } });
    let paper = json!({ "type": "document", "title": "Paper", "context": "of June",
        "source": { "type": "base64", "media_type": "application/pdf", "data": "JVBE" } });
    let call = |id: &str| json!({ "type": "tool_use", "id": id, "name": "f", "input": {} });
    let came = |id: &str, content: Value| {
        let result = json!({ "type": "tool_result", "tool_use_id": id, "content": content });
        json!({ "role": "user", "content": [result] })
    };
    let body = json!({ "model": "openai/m", "max_tokens": 9, "messages": [
        { "role": "assistant", "content": "Hello." }, { "role": "user", "content": [note, paper] },
        { "role": "assistant", "content": [call("a"), call("b")] }, came("a", json!([found])), came("b", json!("x")),
        { "role": "assistant", "content": "So " }] });
    post(&world, PATHS[1], &body).await;
    let answer = post(&world, PATHS[1], &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let sent = provider.requests().pop().unwrap().body["messages"].clone();
    let roles: Vec<&Value> = sent.as_array().unwrap().iter().map(|message| &message["role"]).collect();
    assert_eq!(roles, ["assistant", "user", "assistant", "tool", "tool", "assistant"]);
    assert_eq!(sent[1]["content"][0]["text"], "Note\n\nof May\n\nNoted.\n\nof June");
    assert_eq!(sent[1]["content"][1]["file"]["filename"], "Paper");
    assert_eq!(sent[3]["content"], "Found\n\nhttps://a.example/\n\nOne.\n\nTwo.");
    assert_eq!((&sent[4]["content"], &sent[5]["content"]), (&json!("x"), &json!("So ")));
    // Where there is nothing to answer nothing is sent.
    let asked = provider.requests().len();
    let body = json!({ "model": "anthropic/m", "messages": [{ "role": "system", "content": "Be brief." }] });
    let answer = post(&world, PATHS[0], &body).await;
    assert_eq!((answer.status, &answer.body["error"]["param"]), (400, &json!("messages")), "{}", answer.text);
    assert_eq!(provider.requests().len(), asked);
    Some(())
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
