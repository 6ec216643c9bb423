//! Composio's tools, over a scripted server that speaks its API.

use domain::secret::Secret;
use reqwest::Method;
use serde_json::{Value, json};
use testkit::server::Backend;

use crate::fake::{Asked, Fake, Reply};
use crate::world::{World, tell};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_toolkits_tools_are_offered_and_executed_for_the_user() {
    tell(Backend::Sqlite, offered_and_executed).await;
}

fn item(slug: &str) -> Value {
    let schema =
        json!({ "type": "object", "required": ["title"], "properties": { "title": { "type": "string" } } });
    json!({ "slug": slug, "name": slug, "description": format!("Does {slug}"), "input_parameters": schema,
        "tags": [], "toolkit": { "slug": "github" } })
}

/// What the API answers, by path and query.
fn api(asked: &Asked) -> Option<Reply> {
    if asked.header("x-api-key") != "canary-composio" {
        return Some(Reply::Raw(
            401,
            "application/json",
            br#"{"error":{"message":"Invalid API key"}}"#.to_vec(),
        ));
    }
    let path = asked.path.as_str();
    if asked.http == Method::GET && path.starts_with("/api/v3/tools?") {
        assert!(path.contains("toolkit_slug=git%2Bhub"), "{path}");
        // None of them is important.
        let page = match (path.contains("important=true"), path.contains("cursor=2")) {
            (true, _) => json!({ "items": [], "next_cursor": null }),
            (_, false) => json!({ "items": [item("GITHUB_CREATE_ISSUE")], "next_cursor": "2" }),
            (_, true) => json!({ "items": [item("GITHUB_FAIL"), item("GITHUB_BREAK"), { "slug": 1 }] }),
        };
        return Some(Reply::Json(page));
    }
    let answer = match path.strip_prefix("/api/v3/tools/execute/")? {
        "GITHUB_CREATE_ISSUE" => {
            let sent = &asked.body;
            json!({ "data": { "user": sent["user_id"], "given": sent["arguments"] }, "error": null,
                "successful": true, "log_id": "l" })
        }
        "GITHUB_FAIL" => {
            json!({ "data": {}, "error": "No account for canary-composio", "successful": false })
        }
        _ => return Some(Reply::Raw(500, "text/html", b"<html>".to_vec())),
    };
    Some(Reply::Json(answer))
}

async fn offered_and_executed(backend: Backend) -> Option<()> {
    let fake = Fake::start(api).await;
    let base = fake.url().trim_end_matches("/mcp").to_owned();
    let world = World::start(backend, |config| {
        config.composio.api_key = Some(Secret::new("canary-composio"));
        config.composio.base_url = Some(base);
    });
    let world = world.await?;
    let agent = world.agent(json!([{ "composio": "git+hub" }]), json!([])).await;
    let title = json!({ "title": "A bug" });
    let calls = [
        ("GITHUB_CREATE_ISSUE", title.clone()),
        ("GITHUB_CREATE_ISSUE", json!({})),
        ("GITHUB_FAIL", title.clone()),
        ("GITHUB_BREAK", title.clone()),
    ];
    let turn = world.turn(&agent, &calls).await;
    assert_eq!(world.offered(), ["GITHUB_CREATE_ISSUE", "GITHUB_FAIL", "GITHUB_BREAK"]);
    assert_eq!(turn.call(0)["result"], json!({ "user": "ann", "given": title }));
    assert!(turn.failed(1).contains("title is missing"), "{}", turn.failed(1));
    assert_eq!(turn.failed(2), "No account for ****");
    assert!(turn.failed(3).contains("status 500"), "{}", turn.failed(3));
    assert!(!(turn.streamed + &turn.trace).contains("canary-composio"));
    // What agents can use is listed with the rest.
    let listed = world.get("/v1/tools").await;
    let tools = listed.body["data"].as_array().unwrap().iter().filter(|tool| tool["source"] == "composio");
    let tools: Vec<_> = tools.map(|tool| (tool["name"].as_str().unwrap(), tool["server"].clone())).collect();
    let github = json!("git+hub");
    let expected = ["GITHUB_CREATE_ISSUE", "GITHUB_FAIL", "GITHUB_BREAK"].map(|name| (name, github.clone()));
    assert_eq!(tools, expected, "{}", listed.text);
    // A key that it does not take: the run goes on without.
    let base = fake.url().trim_end_matches("/mcp").to_owned() + "/api/v3";
    let other = World::start(backend, |config| {
        config.composio.api_key = Some(Secret::new("canary-wrong"));
        config.composio.base_url = Some(base);
    });
    let other = other.await?;
    let agent = other.agent(json!([{ "composio": "git+hub" }]), json!([])).await;
    let turn = other.turn(&agent, &[]).await;
    assert!(turn.trace.contains("status 401 Unauthorized: Invalid API key"), "{}", turn.trace);
    assert!(other.offered().is_empty());
    Some(())
}
