//! OpenAI's responses and conversations before a provider: what they ask for reaches it, and what they took out does not.

use reqwest::Method;
use serde_json::{Value, json};
use testkit::server::Backend;

use crate::gateway::{OPENAI, post, stream, world_with};
use crate::world::{World, stories};

stories!(
    what_a_response_asks_for_reaches_the_provider,
    what_was_taken_out_of_a_conversation_is_not_sent,
    a_conversation_keeps_what_an_update_does_not_say,
);

async fn what_a_response_asks_for_reaches_the_provider(backend: Backend) -> Option<()> {
    let (world, provider) = world_with(backend, stream(&OPENAI.replace("\"stop\"", "\"length\""))).await?;
    let format = json!({ "type": "json_schema", "name": "n", "schema": { "type": "object" } });
    let body = json!({ "model": "openai/m", "input": "Hi", "max_output_tokens": 16, "temperature": 0.25, "top_p": 0.5,
        "reasoning": { "effort": "low" }, "text": { "format": format } });
    let answer = post(&world, "/v1/responses", &body).await;
    let sent = provider.request(0).await.unwrap().body;
    assert_eq!((&sent["temperature"], &sent["top_p"]), (&json!(0.25), &json!(0.5)), "{}", answer.text);
    assert_eq!((&sent["max_completion_tokens"], &sent["reasoning_effort"]), (&json!(16), &json!("low")));
    let schema = json!({ "name": "n", "schema": { "type": "object" } });
    assert_eq!(sent["response_format"], json!({ "type": "json_schema", "json_schema": schema }));
    assert_eq!((&answer.body["status"], &answer.body["completed_at"]), (&json!("incomplete"), &Value::Null));
    assert_eq!(answer.body["incomplete_details"], json!({ "reason": "max_output_tokens" }));
    Some(())
}

async fn what_was_taken_out_of_a_conversation_is_not_sent(backend: Backend) -> Option<()> {
    let (world, provider) = world_with(backend, stream(OPENAI)).await?;
    let said = |role: &str, text: &str| json!({ "role": role, "content": text });
    let items =
        [said("user", "one"), said("assistant", "two"), said("user", "three"), said("assistant", "four")];
    let made = post(&world, "/v1/conversations", &json!({ "items": items })).await.body;
    let path = format!("/v1/conversations/{}/items", made["id"].as_str().unwrap());
    let list = world.get(&format!("{path}?order=asc")).await.body;
    for at in [2, 3] {
        let item = format!("{path}/{}", list["data"][at]["id"].as_str().unwrap());
        assert_eq!(world.send(Method::DELETE, &item, None).await.body, made);
    }
    let body = json!({ "model": "openai/m", "input": "five", "conversation": made["id"] });
    let answer = post(&world, "/v1/responses", &body).await;
    let sent = provider.request(0).await.unwrap().body;
    let told = sent["messages"].to_string();
    for (word, there) in [("one", true), ("two", true), ("three", false), ("four", false), ("five", true)] {
        assert_eq!(told.contains(word), there, "{word}: {told} {}", answer.text);
    }
    assert!(!told.contains("(no answer)"), "{told}");
    Some(())
}

async fn a_conversation_keeps_what_an_update_does_not_say(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let made = post(&world, "/v1/conversations", &json!({ "metadata": { "a": "b" } })).await;
    let path = format!("/v1/conversations/{}", made.body["id"].as_str().unwrap());
    for (body, metadata) in [
        (json!({}), json!({ "a": "b" })),
        (json!({ "metadata": { "c": "d" } }), json!({ "c": "d" })),
        (json!({ "metadata": null }), json!({})),
    ] {
        assert_eq!(post(&world, &path, &body).await.body["metadata"], metadata, "{body}");
    }
    Some(())
}
