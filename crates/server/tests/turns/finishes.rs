//! How a model ended its answer and what it cost, as the dialects tell it.

use reqwest::Method;
use serde_json::{Value, json};
use testkit::server::Backend;

use crate::gateway::{ANTHROPIC, OPENAI, post, stream, world_with};
use crate::world::{ask, stories};

stories!(
    a_refusal_is_told_in_every_dialect,
    what_was_cached_or_thought_is_told_in_responses,
    an_answer_that_ends_with_a_thought_is_kept_once,
);

async fn an_answer_that_ends_with_a_thought_is_kept_once(backend: Backend) -> Option<()> {
    let thought = "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"hm\"},";
    let script = OPENAI.replace("data: {\"choices\":[{\"delta\":{},", thought);
    let (world, _provider) = world_with(backend, stream(&script)).await?;
    let turn = world.begin(&json!({ "message": "Hi", "mode": "ask", "model": "openai/m" })).await;
    let conversation = turn.conversation();
    turn.rest().await;
    let answer = world.conversation(&conversation).await["messages"][1].clone();
    let blocks = json!([{ "type": "text", "text": "Hi" }, { "type": "reasoning", "text": "hm" }]);
    assert_eq!((&answer["content"], &answer["parts"]), (&json!("Hi"), &blocks), "{answer}");
    Some(())
}

async fn a_refusal_is_told_in_every_dialect(backend: Backend) -> Option<()> {
    for (model, script) in [
        ("openai/m", OPENAI.replace("\"stop\"", "\"content_filter\"")),
        ("anthropic/m", ANTHROPIC.replace("end_turn", "refusal")),
    ] {
        let (world, _provider) = world_with(backend, stream(&script)).await?;
        for (wire, word) in [
            ("openai", r#""finish_reason":"content_filter""#),
            ("anthropic", r#""stop_reason":"refusal""#),
            ("ui-message", r#""finishReason":"content-filter""#),
            ("ag-ui", r#""finishReason":"content_filter""#),
            ("envelope", r#""finish":"content_filter""#),
        ] {
            let turn = world.request(Method::POST, &format!("/v1/turns?wire={wire}"));
            let body = json!({ "message": "Hi", "mode": "ask", "model": model }).to_string();
            let answer = ask(turn.header("content-type", "application/json").body(body)).await;
            assert!(answer.text.contains(word), "{model} {wire}: {}", answer.text);
        }
        let made = post(&world, "/v1/responses", &json!({ "model": model, "input": "Hi" })).await.body;
        assert_eq!((&made["status"], &made["completed_at"]), (&json!("incomplete"), &Value::Null), "{made}");
        assert_eq!(made["incomplete_details"], json!({ "reason": "content_filter" }));
        let again = world.get(&format!("/v1/responses/{}", made["id"].as_str().unwrap())).await.body;
        assert_eq!(again, made);
        let body = json!({ "model": model, "input": "Hi", "stream": true });
        let streamed = post(&world, "/v1/responses", &body).await;
        assert!(streamed.text.contains("event: response.incomplete\n"), "{}", streamed.text);
    }
    Some(())
}

async fn what_was_cached_or_thought_is_told_in_responses(backend: Backend) -> Option<()> {
    let details = r#""completion_tokens":3,"prompt_tokens_details":{"cached_tokens":5},"completion_tokens_details":{"reasoning_tokens":2}"#;
    let cached = r#""input_tokens":2,"cache_read_input_tokens":4,"cache_creation_input_tokens":1"#;
    for (model, script, (read, written, thought)) in [
        ("openai/m", OPENAI.replace("\"completion_tokens\":3", details), (5, 0, 2)),
        ("anthropic/m", ANTHROPIC.replace("\"input_tokens\":7", cached), (4, 1, 0)),
        // The end says again what was read anew, and nothing of the rest.
        (
            "anthropic/m",
            ANTHROPIC
                .replace("\"input_tokens\":7", cached)
                .replace("{\"output_tokens\":3}", "{\"input_tokens\":2,\"output_tokens\":3}"),
            (4, 1, 0),
        ),
    ] {
        let (world, _provider) = world_with(backend, stream(&script)).await?;
        let body = json!({ "model": model, "input": "Hi" });
        let made = post(&world, "/v1/responses", &body).await.body;
        let usage = json!({ "input_tokens": 7, "output_tokens": 3, "total_tokens": 10,
            "input_tokens_details": { "cached_tokens": read, "cache_write_tokens": written },
            "output_tokens_details": { "reasoning_tokens": thought } });
        assert_eq!(made["usage"], usage, "{model}");
        let again = world.get(&format!("/v1/responses/{}", made["id"].as_str().unwrap())).await.body;
        assert_eq!(again, made);
        let body = json!({ "model": model, "input": "Hi", "stream": true });
        let streamed = post(&world, "/v1/responses", &body).await.text;
        let last = streamed.lines().rev().find_map(|line| line.strip_prefix("data: ")).unwrap();
        assert_eq!(serde_json::from_str::<Value>(last).unwrap()["response"]["usage"], usage);
    }
    Some(())
}
