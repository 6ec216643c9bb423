//! Agents and the workspace's model, over HTTP: what they may be, and what a run makes of them.

use reqwest::Method;
use serde_json::{Value, json};
use testkit::server::Backend;

use crate::world::{CONVERSATIONS, World, ask, refused, stories};

stories!(
    an_agents_life,
    what_an_agent_may_not_be,
    which_model_is_taken,
    an_agents_runner_wins,
    the_kind_says_who_answers
);

async fn make(world: &World, body: Value) -> Value {
    let made = world.send(Method::POST, "/v1/agents", Some(&body)).await;
    assert_eq!(made.status, 201, "{}", made.text);
    made.body
}

async fn an_agents_life(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let body = json!({ "name": "Helper", "instructions": "Be brief.", "model": "demo/assistant", "runner": "model",
        "tools": ["search_pages", { "mcp": "files", "allow": ["read"] }, { "composio": "mail" }],
        "approval": ["save_to_table"], "max_rounds": 3 });
    let made = make(&world, body.clone()).await;
    for (name, value) in body.as_object().unwrap() {
        assert_eq!(&made[name], value, "{name}");
    }
    let path = format!("/v1/agents/{}", made["id"].as_str().unwrap());
    assert_eq!(world.get(&path).await.body, made);
    assert_eq!(world.get("/v1/agents").await.body["data"], json!([made]));
    let patch = json!({ "model": null, "tools": [], "name": "Other" });
    let changed = world.send(Method::PATCH, &path, Some(&patch)).await;
    assert_eq!(
        (changed.status, &changed.body["model"], &changed.body["name"]),
        (200, &Value::Null, &json!("Other"))
    );
    assert_eq!(changed.body["instructions"], "Be brief.", "what is left out stays");
    assert_eq!(world.send(Method::DELETE, &path, None).await.status, 204);
    refused(&world.get(&path).await, 404, "not_found");
    refused(&world.send(Method::DELETE, &path, None).await, 404, "not_found");
    Some(())
}

async fn what_an_agent_may_not_be(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    for (body, status, code) in [
        (json!({}), 422, "invalid_value"),
        (json!({ "name": " " }), 422, "invalid_value"),
        (json!({ "name": "a", "model": "gpt" }), 422, "invalid_value"),
        (json!({ "name": "a", "runner": "human" }), 422, "invalid_value"),
        (json!({ "name": "a", "tools": [1] }), 422, "invalid_value"),
        (json!({ "name": "a", "max_rounds": 0 }), 422, "invalid_value"),
        (json!({ "name": "a", "max_rounds": 6 }), 422, "invalid_value"),
        (json!({ "name": "a", "tools": ["read_file", "zzz"] }), 422, "invalid_value"),
        (json!({ "name": "a", "instructions": "x".repeat(32_001) }), 422, "invalid_value"),
        (json!({ "name": "a", "id": "mine" }), 400, "unknown_field"),
    ] {
        refused(&world.send(Method::POST, "/v1/agents", Some(&body)).await, status, code);
    }
    let body = json!({ "name": "a", "tools": ["read_file", "zzz"] });
    let answer = world.send(Method::POST, "/v1/agents", Some(&body)).await;
    assert_eq!(answer.body["source"]["pointer"], "/tools/1", "{}", answer.text);
    let member = world.member("mel").await;
    refused(&member.send(Method::POST, "/v1/agents", Some(&json!({ "name": "a" }))).await, 403, "forbidden");
    assert_eq!(member.get("/v1/agents").await.body, json!({ "data": [], "next": null }));
    Some(())
}

async fn model_of(world: &World, body: &Value) -> String {
    let stream = world.begin(body).await;
    let run = stream.run();
    stream.rest().await;
    let (trace, _) = world.trace(&run).await;
    let notes = trace.iter().filter_map(|entry| entry["line"]["text"].as_str());
    let error = world.run(&run).await["error"]["message"].as_str().unwrap_or("").to_owned();
    format!("{}{error}", notes.collect::<Vec<_>>().join(" "))
}

/// The conversation's, else its agent's, else the workspace's, else the server's.
async fn which_model_is_taken(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let ask = |more: Value| {
        let mut body = json!({ "message": "hello", "mode": "ask" });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    assert!(model_of(&world, &ask(json!({}))).await.contains("demo/assistant"));
    let path = format!("/v1/workspaces/{}", world.workspace);
    refused(&world.send(Method::PATCH, &path, Some(&json!({ "model": "gpt" }))).await, 422, "invalid_value");
    let set = world.send(Method::PATCH, &path, Some(&json!({ "model": "openai/of-workspace" }))).await;
    assert_eq!((set.status, &set.body["model"]), (200, &json!("openai/of-workspace")));
    assert!(model_of(&world, &ask(json!({}))).await.contains("openai/of-workspace"));
    let agent = make(&world, json!({ "name": "a", "model": "openai/of-agent" })).await["id"].clone();
    assert!(model_of(&world, &ask(json!({ "agent": agent }))).await.contains("openai/of-agent"));
    let own = ask(json!({ "agent": agent, "model": "demo/assistant" }));
    assert!(model_of(&world, &own).await.contains("demo/assistant"));
    let cleared = world.send(Method::PATCH, &path, Some(&json!({ "model": null }))).await;
    assert_eq!((cleared.status, cleared.body.get("model")), (200, None));
    Some(())
}

async fn an_agents_runner_wins(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let model = make(&world, json!({ "name": "a", "model": "demo/assistant" })).await["id"].clone();
    let sandbox = make(&world, json!({ "name": "b", "runner": "sandbox" })).await["id"].clone();
    let stream = world.begin(&json!({ "message": "hello", "mode": "agent", "agent": model })).await;
    let conversation = stream.conversation();
    stream.rest().await;
    assert!(world.thread(&conversation).await[1].1.contains("demo model"));
    let stream = world.begin(&json!({ "message": "hello", "mode": "ask", "agent": sandbox })).await;
    let conversation = stream.conversation();
    stream.rest().await;
    assert_eq!(world.thread(&conversation).await[1].1, "Hello.");
    // Of an execution, too: a model's words are its lines then.
    let before = world.sandbox.requests().len();
    let run =
        world.send(Method::POST, "/v1/executions", Some(&json!({ "prompt": "hello", "agent": model }))).await;
    let lines: Vec<Value> = run.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (last, first) = (lines.last().unwrap(), &lines[0]);
    assert_eq!((&first["type"], &last["type"]), (&json!("delta"), &json!("result")), "{}", run.text);
    assert!(last["message"].as_str().unwrap().contains("demo model"), "{}", run.text);
    assert_eq!(world.sandbox.requests().len(), before);
    let shown = world.get(&format!("/v1/executions/{}", run.header("threadkeep-execution"))).await.body;
    assert_eq!((&shown["status"], &shown["response"]), (&json!("succeeded"), &last["message"]));
    let usage = world.run(run.header("threadkeep-run")).await["usage"].clone();
    assert!(usage["total_tokens"].as_i64().unwrap() > 0, "{usage}");
    let prompt = json!({ "prompt": "hello", "agent": sandbox });
    let run = world.send(Method::POST, "/v1/executions", Some(&prompt)).await;
    assert!(run.text.contains("Hello."), "{}", run.text);
    for agent in ["helper", "0190d3a0-0000-7000-8000-0000000000aa"] {
        let refusal = json!({ "prompt": "hello", "agent": agent });
        let answer = world.send(Method::POST, "/v1/executions", Some(&refusal)).await;
        refused(&answer, 422, "invalid_value");
        assert_eq!(answer.body["source"]["pointer"], "/agent", "{}", answer.text);
    }
    Some(())
}

/// What kind of conversation it is, and that a list of that kind has it.
async fn kind(world: &World, conversation: &str) -> String {
    let kind = world.conversation(conversation).await["kind"].as_str().unwrap().to_owned();
    let listed = world.get(&format!("{CONVERSATIONS}?filter%5Bkind%5D={kind}")).await.body;
    let listed = listed["data"].as_array().unwrap();
    assert!(listed.iter().any(|found| found["id"] == conversation), "{kind}");
    kind
}

async fn the_kind_says_who_answers(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let model = make(&world, json!({ "name": "a", "model": "demo/assistant" })).await["id"].clone();
    let sandbox = make(&world, json!({ "name": "b", "runner": "sandbox" })).await["id"].clone();
    let told = world.tell(&json!({ "message": "hello", "agent": model })).await;
    let first = told.conversation();
    assert_eq!(kind(&world, &first).await, "model_chat");
    let told = world.tell(&json!({ "message": "hello", "mode": "ask", "agent": sandbox })).await;
    assert_eq!(kind(&world, &told.conversation()).await, "assistant_sandbox");
    // A later turn with another agent, and with another mode alone.
    world.tell(&json!({ "conversation": first, "message": "hello", "agent": sandbox })).await;
    assert_eq!(kind(&world, &first).await, "assistant_sandbox");
    world.tell(&json!({ "conversation": first, "message": "hello", "mode": "ask" })).await;
    assert_eq!(kind(&world, &first).await, "assistant_sandbox");

    let send = async |method: Method, path: &str, id: &str, attributes: Value| {
        let mut data = json!({ "type": "chat_conversation", "attributes": attributes });
        if !id.is_empty() {
            data["id"] = id.into();
        }
        let request = world.request(method, path).header("content-type", "application/vnd.api+json");
        let answer = ask(request.body(json!({ "data": data }).to_string())).await;
        assert!(answer.status < 300, "{}", answer.text);
        answer.body["data"]["id"].as_str().unwrap().to_owned()
    };
    let made = send(Method::POST, CONVERSATIONS, "", json!({ "agent_id": model })).await;
    assert_eq!(kind(&world, &made).await, "model_chat");
    let path = format!("{CONVERSATIONS}/{made}");
    send(Method::PATCH, &path, &made, json!({ "mode": "agent" })).await;
    assert_eq!(kind(&world, &made).await, "model_chat");
    send(Method::PATCH, &path, &made, json!({ "agent_id": null })).await;
    assert_eq!(kind(&world, &made).await, "assistant_sandbox");
    send(Method::PATCH, &path, &made, json!({ "agent_id": model, "mode": "task_flow" })).await;
    assert_eq!(kind(&world, &made).await, "model_chat");
    // One that is removed later is kept; a name of another system's is no agent's.
    let gone = world.send(Method::DELETE, &format!("/v1/agents/{}", model.as_str().unwrap()), None).await;
    assert_eq!(gone.status, 204);
    send(Method::PATCH, &path, &made, json!({ "agent_id": model, "title": "kept" })).await;
    send(Method::PATCH, &path, &made, json!({ "agent_id": "research" })).await;
    let named =
        json!({ "data": { "type": "chat_conversation", "id": made, "attributes": { "agent_id": model } } });
    let refused = world.request(Method::PATCH, &path).header("content-type", "application/vnd.api+json");
    let refused = ask(refused.body(named.to_string())).await;
    let told = &refused.body["errors"][0];
    assert_eq!((refused.status, &told["source"]["pointer"]), (422, &json!("/data/attributes/agent_id")));
    assert_eq!(world.conversation(&made).await["agent_id"], "research");
    Some(())
}
