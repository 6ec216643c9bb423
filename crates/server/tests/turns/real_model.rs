//! A real model, small as it is, in llama.cpp's own server: found on this machine, and a streamed turn end to end in
//! both vendors' dialects. Skipped, aloud, where that server is not installed.

use reqwest::Method;
use serde_json::{Value, json};
use testkit::llama::Llama;
use testkit::server::Backend;

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
    // Without tools, so that the prompt is short.
    let agent = json!({ "name": "Brief", "instructions": "You are brief.", "tools": [] });
    let agent = world.send(Method::POST, "/v1/agents", Some(&agent)).await.body["id"].clone();
    let model = name("openai/").split_once('/').unwrap().1.to_owned();
    for model in [format!("openai/{model}"), format!("anthropic/{model}"), name("llamacpp/")] {
        let body = json!({ "message": "Say hello.", "mode": "ask", "agent": agent, "model": model });
        let stream = world.begin(&body).await;
        let (run, conversation) = (stream.run(), stream.conversation());
        let told = stream.rest().await;
        let run = world.run(&run).await;
        assert_eq!(run["status"], "succeeded", "{model}: {run}");
        assert!(told.frames.iter().filter(|frame| frame.event == "delta").count() > 2, "{model} streams");
        let text = world.thread(&conversation).await[1].1.clone();
        assert!(!text.trim().is_empty(), "{model}");
        let tokens = |name: &str| run["usage"][name].as_i64().unwrap();
        assert!(tokens("input_tokens") > 5 && tokens("output_tokens") > 2, "{model}: {run}");
        // The thread goes on.
        let again = world.begin(&json!({ "conversation": conversation, "message": "And goodbye?" })).await;
        let run = again.run();
        again.rest().await;
        let shown: Value = world.run(&run).await;
        assert_eq!(shown["status"], "succeeded", "{model}: {shown}");
    }
}
