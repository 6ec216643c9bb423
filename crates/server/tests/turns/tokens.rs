//! A day's tokens: counted for turns, executions and calls of the gateway, told in headers and at `/v1/usage`, and
//! refused when nothing is left of them, before anything is written.

use reqwest::Method;
use serde_json::{Value, json};
use testkit::server::{Answer, Backend};

use crate::limits::others;
use crate::world::{World, ask, refused, stories};

stories!(
    what_is_used_is_shown_day_by_day,
    a_user_and_a_workspace_have_a_day_each,
    a_bad_number_of_days_is_told,
);

async fn usage(world: &World) -> Value {
    let answer = world.get("/v1/usage").await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.body
}

/// Waits until this much of the day is counted for the workspace: a call of the gateway is counted after its end.
async fn used(world: &World, tokens: i64) -> Value {
    loop {
        let usage = usage(world).await;
        if usage["today"]["workspace"]["used"].as_i64().unwrap() >= tokens {
            return usage;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

async fn call(world: &World, path: &str) -> Answer {
    let body = json!({ "model": "demo/assistant", "max_tokens": 9,
        "messages": [{ "role": "user", "content": "think 3 words" }] });
    world.send(Method::POST, path, Some(&body)).await
}

async fn what_is_used_is_shown_day_by_day(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let nothing = usage(&world).await;
    assert_eq!((&nothing["data"], &nothing["next"]), (&json!([]), &Value::Null));
    assert_eq!(nothing["today"]["user"]["limit"], Value::Null);
    let run = world.begin(&json!({ "message": "think 5 words", "mode": "ask" })).await;
    let id = run.run();
    run.rest().await;
    let of_run = world.run(&id).await["usage"].clone();
    // A run in a sandbox counts, too, with what it used: nothing.
    world.tell(&json!({ "message": "Hi" })).await;
    let told = usage(&world).await;
    let day = &told["data"][0];
    assert_eq!((&day["total_tokens"], &day["runs"]), (&of_run["total_tokens"], &json!(2)), "{told}");
    assert_eq!(
        (&day["input_tokens"], &day["output_tokens"]),
        (&of_run["input_tokens"], &of_run["output_tokens"])
    );
    assert_eq!(told["today"]["user"]["used"], of_run["total_tokens"]);
    let resets = told["today"]["workspace"]["resets_at"].as_str().unwrap();
    assert!(resets.ends_with("T00:00:00.000Z") && resets[..10] > *day["day"].as_str().unwrap(), "{told}");
    // What another member uses through the gateway is the workspace's, and not Ann's.
    let bob = world.member("bob").await;
    let answer = call(&bob, "/v1/chat/completions").await;
    assert_eq!(answer.header("ratelimit-policy"), "", "no limit, nothing to tell");
    let total = answer.body["usage"]["total_tokens"].as_i64().unwrap();
    let before = of_run["total_tokens"].as_i64().unwrap();
    let told = used(&bob, before + total).await;
    assert_eq!(told["today"]["user"]["used"], total);
    assert_eq!(usage(&world).await["today"]["user"]["used"], before);
    assert_eq!(told["data"][0]["runs"], 2, "a call is no run");
    // In pages, like every list.
    let page = world.get("/v1/usage?limit=1").await.body;
    assert_eq!((&page["data"], &page["next"]), (&told["data"], &Value::Null));
    let day = told["data"][0]["day"].as_str().unwrap();
    let rest = world.get(&format!("/v1/usage?limit=1&after={day}")).await.body;
    assert_eq!((&rest["data"], &rest["next"]), (&json!([]), &Value::Null));
    Some(())
}

async fn a_user_and_a_workspace_have_a_day_each(backend: Backend) -> Option<()> {
    let world = World::start_with(backend, |config| {
        config.limits.requests_per_second = 1000;
        config.limits.tokens_per_day_per_user = 10;
        config.limits.tokens_per_day_per_workspace = 200;
    })
    .await?;
    let turn = json!({ "message": "think 20 words", "mode": "ask" });
    let first = ask(world.turn(&turn).header("idempotency-key", "k")).await;
    let policy = first.header("ratelimit-policy");
    assert!(policy.contains("\"requests\";q=1000;w=1"), "{policy}");
    assert!(policy.contains("\"tokens-user\";q=10;w=86400, \"tokens-workspace\";q=200;w=86400"), "{policy}");
    assert!(first.header("ratelimit").contains("\"tokens-user\";r=10;t="), "{}", first.header("ratelimit"));
    let before = (world.count().await, usage(&world).await);
    let execution = json!({ "prompt": "Go" });
    let refusals = [
        ask(world.turn(&turn)).await,
        ask(world.turn(&turn).header("prefer", "respond-async")).await,
        world.send(Method::POST, "/v1/executions", Some(&execution)).await,
        call(&world, "/v1/chat/completions").await,
        call(&world, "/v1/messages").await,
    ];
    for answer in &refusals {
        refused(answer, 429, "tokens_exhausted");
        assert_eq!(answer.body["limit"], 10);
        let wait: u64 = answer.header("retry-after").parse().unwrap();
        assert!((1..=86_400).contains(&wait), "{wait}");
        assert!(
            answer.header("ratelimit").contains("\"tokens-user\";r=0;t="),
            "{}",
            answer.header("ratelimit")
        );
    }
    assert_eq!(refusals[3].body["error"]["type"], "rate_limit_error");
    for (path, body) in others("think 20 words") {
        let answer = world.send(Method::POST, path, Some(&body)).await;
        let told = answer.header("ratelimit");
        assert_eq!((answer.status, told.contains("\"tokens-user\";r=0;t=")), (429, true), "{path}: {told}");
    }
    assert_eq!((world.count().await, usage(&world).await), before, "nothing was written");
    // What was accepted before is answered again.
    let again = ask(world.turn(&turn).header("idempotency-key", "k")).await;
    assert_eq!((again.status, again.header("threadkeep-run")), (200, first.header("threadkeep-run")));
    // Others have their own, until the workspace's is used up.
    let bob = world.member("bob").await;
    let answer = call(&bob, "/v1/messages").await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    used(&bob, before.1["today"]["workspace"]["used"].as_i64().unwrap() + 1).await;
    for n in 0.. {
        let member = world.member(&format!("member {n}")).await;
        let answer = ask(member.turn(&turn)).await;
        if answer.status == 200 {
            continue;
        }
        refused(&answer, 429, "tokens_exhausted");
        assert_eq!(answer.body["limit"], 200);
        let told = answer.header("ratelimit");
        assert!(
            told.contains("\"tokens-user\";r=10;") && told.contains("\"tokens-workspace\";r=0;"),
            "{told}"
        );
        assert!(n > 0, "the first one still had some");
        break;
    }
    Some(())
}

async fn a_bad_number_of_days_is_told(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    for (query, code) in [
        ("days=0", "invalid_parameter"),
        ("days=367", "invalid_parameter"),
        ("days=x", "invalid_parameter"),
        ("days=1&days=1", "invalid_parameter"),
        ("limit=0", "invalid_parameter"),
        ("limit=-1", "invalid_parameter"),
        ("after=2026-11-15", "invalid_parameter"),
        ("page=1", "unknown_parameter"),
    ] {
        refused(&world.get(&format!("/v1/usage?{query}")).await, 400, code);
    }
    assert_eq!(world.get("/v1/usage?days=366").await.status, 200);
    assert_eq!(world.get("/v1/usage?days=366&limit=1000").await.status, 200);
    Some(())
}
