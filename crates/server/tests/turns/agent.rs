//! `GET {agent_url}/config`: for the sandbox of a run, with that run's own token, while the run lives.

use reqwest::Method;
use serde_json::{Value, json};
use testkit::sandbox::Release;
use testkit::server::{Answer, Backend};

use crate::scripts::{hang_after, wait_after};
use crate::world::{World, ask, refused, stories};

stories!(the_configuration_of_a_run, nobody_elses_token, a_run_that_is_over);

async fn config(world: &World, envelope: &Value, authorization: Option<&str>) -> Answer {
    let url = envelope["agent_url"].as_str().unwrap();
    let path = url.strip_prefix(world.server.url()).unwrap();
    let mut request = world.server.request(Method::GET, &format!("{path}/config"));
    if let Some(authorization) = authorization {
        request = request.header("authorization", authorization);
    }
    ask(request).await
}

fn bearer(envelope: &Value, token: &str) -> String {
    format!("Bearer {}", envelope[token].as_str().unwrap())
}

async fn the_configuration_of_a_run(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    world.play(hang_after(vec![]));
    let started = world.begin_async(&json!({ "message": "hi", "model": "some/model" })).await;
    let envelope = world.sandbox.request(0).await.unwrap().body;
    // As often as it likes.
    for _ in 0..2 {
        let answer = config(&world, &envelope, Some(&bearer(&envelope, "config_token"))).await;
        let key = answer.body["model"]["api_key"].as_str().unwrap_or_default();
        assert!(
            key.len() > 40 && key != envelope["config_token"] && key != envelope["upload_otp"],
            "{}",
            answer.text
        );
        assert_eq!(
            (answer.status, &answer.body),
            (
                200,
                &json!({
                    "session_id": started["run"], "chat_id": started["conversation"],
                    "model": { "base_url": format!("{}/v1", world.server.url()), "api_key": key, "model": "some/model" },
                    "assets": null, "skills": [], "recipes": [],
                })
            )
        );
        assert_eq!(answer.header("cache-control"), "no-store");
    }
    Some(())
}

async fn nobody_elses_token(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    world.play(hang_after(vec![]));
    world.play(hang_after(vec![]));
    world.begin_async(&json!({ "message": "one" })).await;
    let first = world.sandbox.request(0).await.unwrap().body;
    world.begin_async(&json!({ "message": "two" })).await;
    let second = world.sandbox.request(1).await.unwrap().body;
    let own = bearer(&first, "config_token");
    let model =
        config(&world, &first, Some(&own)).await.body["model"]["api_key"].as_str().unwrap().to_owned();
    let mut forged = own.clone();
    forged.replace_range(30..31, if &own[30..31] == "A" { "B" } else { "A" });
    for authorization in [
        None,
        Some(String::new()),
        Some("Bearer".into()),
        Some("Bearer x".into()),
        Some(own.replace("Bearer", "Basic")),
        Some(first["config_token"].as_str().unwrap().to_owned()),
        Some(forged),
        Some(bearer(&second, "config_token")),
        Some(bearer(&first, "upload_otp")),
        Some(format!("Bearer {model}")),
        // The user's own token is for the API, not for this.
        Some(format!("Bearer {}", world.bearer())),
    ] {
        let answer = config(&world, &first, authorization.as_deref()).await;
        refused(&answer, 401, "unauthenticated");
        assert!(!answer.text.contains("tkr_"), "{}", answer.text);
    }
    // A run's token opens nothing else.
    for path in [
        "/v1/session",
        "/v1/chat-conversations",
        &format!("/v1/runs/{}", first["session_id"].as_str().unwrap()),
    ] {
        let request = world.server.request(Method::GET, path).header("authorization", &own);
        assert_eq!(ask(request).await.status, 401, "{path}");
    }
    assert_eq!(config(&world, &first, Some(&own)).await.status, 200);
    Some(())
}

async fn a_run_that_is_over(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let gate = Release::default();
    world.play(wait_after(vec![], &gate, "Done."));
    let started = world.begin_async(&json!({ "message": "one" })).await;
    let envelope = world.sandbox.request(0).await.unwrap().body;
    let own = bearer(&envelope, "config_token");
    assert_eq!(config(&world, &envelope, Some(&own)).await.status, 200);
    gate.open();
    world.settled(started["run"].as_str().unwrap()).await;
    refused(&config(&world, &envelope, Some(&own)).await, 401, "unauthenticated");

    world.play(hang_after(vec![]));
    let started = world.begin_async(&json!({ "message": "two" })).await;
    let envelope = world.sandbox.request(1).await.unwrap().body;
    let own = bearer(&envelope, "config_token");
    assert_eq!(config(&world, &envelope, Some(&own)).await.status, 200);
    world.cancel(started["run"].as_str().unwrap()).await;
    // From the moment that it was asked for.
    refused(&config(&world, &envelope, Some(&own)).await, 401, "unauthenticated");
    Some(())
}
