//! A real model, small as it is, in llama.cpp's own server: found on this machine, and a streamed turn end to end in
//! both vendors' dialects. Skipped, aloud, where that server is not installed.

use reqwest::Method;
use serde_json::{Value, json};
use testkit::llama::Llama;
use testkit::server::Backend;
use uuid::Uuid;

use crate::world::World;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_model_answers_in_both_dialects() {
    let Some(llama) = tokio::task::spawn_blocking(Llama::start).await.unwrap() else { return };
    let world = World::start_with(Backend::Sqlite, |config| {
        config.openai.base_url = Some(format!("{}/v1", llama.url()));
        config.anthropic.base_url = Some(llama.url().to_owned());
        config.llamacpp_url = Some(llama.url().replace("127.0.0.1", "localhost"));
        config.limits.model_first_token_seconds = 120;
    });
    let world = world.await.unwrap();
    let listed = world.get("/v1/models").await.body["data"].clone();
    let names: Vec<&str> =
        listed.as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect();
    let name = |provider: &str| {
        let found = names.iter().find(|name| name.starts_with(provider));
        (*found.unwrap_or_else(|| panic!("{provider} of {names:?}"))).to_owned()
    };
    let model = name("openai/").split_once('/').unwrap().1.to_owned();
    for model in [format!("openai/{model}"), format!("anthropic/{model}"), name("llamacpp/")] {
        // Without tools, so that the prompt is short.
        let agent = json!({ "name": model, "instructions": "You are brief.", "tools": [], "model": model });
        let agent = world.send(Method::POST, "/v1/agents", Some(&agent)).await.body["id"].clone();
        let mut before = Value::Null;
        for question in ["Say hello.", "And goodbye?"] {
            // So small a model may find no end by itself.
            let asked = json!({ "model": agent, "input": question, "max_output_tokens": 32,
                "previous_response_id": before });
            let response = world.send(Method::POST, "/v1/responses", Some(&asked)).await.body;
            before = response["id"].clone();
            let id = before.as_str().unwrap_or_else(|| panic!("{model}: {response}"));
            let id = Uuid::try_parse(id.trim_start_matches("resp_")).unwrap().to_string();
            let (run, told) = (world.run(&id).await, world.log(&id).await);
            assert_eq!(run["status"], "succeeded", "{model}: {run}");
            assert!(told.frames.iter().filter(|frame| frame.event == "delta").count() > 2, "{model} streams");
            let thread = world.thread(run["conversation"].as_str().unwrap()).await;
            assert_eq!(thread[thread.len() - 2].1, question);
            assert!(!thread.last().unwrap().1.trim().is_empty(), "{model}");
            let tokens = |name: &str| run["usage"][name].as_i64().unwrap();
            assert!(tokens("input_tokens") > 5 && tokens("output_tokens") > 2, "{model}: {run}");
        }
        // Anthropic's wire always says how long an answer may be, and a turn of our own not how short.
        if !model.starts_with("anthropic/") {
            let told = world.tell(&json!({ "message": "Say hello.", "mode": "ask", "agent": agent })).await;
            assert_eq!(told.status(), "succeeded", "{model}");
            assert!(told.frames.iter().filter(|frame| frame.event == "delta").count() > 2, "{model} streams");
        }
    }
}
