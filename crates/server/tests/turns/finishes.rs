//! How a model ended its answer, as every dialect tells it.

use reqwest::Method;
use serde_json::{Value, json};
use testkit::server::Backend;

use crate::gateway::{ANTHROPIC, OPENAI, post, stream, world_with};
use crate::world::{ask, stories};

stories!(a_refusal_is_told_in_every_dialect);

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
