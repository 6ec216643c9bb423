//! Pages and tables in turns: searched and cited by the demo model, saved to by a scripted one, once.

use domain::secret::Secret;
use serde_json::{Value, json};
use testkit::sandbox::{Action, ScriptedSandbox};
use testkit::server::Backend;

use crate::world::{World, stories, text};

stories!(
    the_demo_model_searches_and_cites,
    a_search_sees_its_own_workspace_alone,
    a_model_saves_to_a_table_once,
    what_a_model_gets_wrong_it_is_told,
    a_question_finds_what_has_some_of_its_words,
);

fn named<'a>(frames: &'a [(String, Value)], name: &str) -> Vec<&'a Value> {
    frames.iter().filter(|(event, _)| event == name).map(|(_, data)| data).collect()
}

/// The last message of a conversation.
async fn last(world: &World, conversation: &str) -> Value {
    let thread = world.get(&format!("/v1/chat-conversations/{conversation}")).await;
    thread.body["data"]["attributes"]["messages"].as_array().unwrap().last().unwrap().clone()
}

async fn the_demo_model_searches_and_cites(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let body = json!({ "title": "Refund policy", "body": "# Refunds\n\nWithin **30 days** of purchase.", "url": "https://a.example/refunds" });
    let page = text(&world.made("/v1/pages", &body).await["id"]);
    let table = world.table("Orders", &["item:text", "price:number"]).await;
    let rows = json!({ "rows": [{ "item": "refund for a lamp", "price": 12.5 }, { "item": "chair" }] });
    let row = text(&world.made(&format!("{table}/rows"), &rows).await["rows"][0]["_id"]);
    let (conversation, frames) = world.turn(&json!({ "message": "search refund", "mode": "ask" })).await;
    let calls: Vec<&str> = named(&frames, "tool_calls")[0]["calls"]
        .as_array()
        .unwrap()
        .iter()
        .map(|call| call["name"].as_str().unwrap())
        .collect();
    assert_eq!(calls, ["search_pages", "search_user_tables"]);
    let mut sources: Vec<Value> = named(&frames, "sources")
        .iter()
        .flat_map(|sources| sources["sources"].as_array().unwrap().clone())
        .collect();
    sources.sort_by_key(|source| source.get("url").is_none());
    assert_eq!(
        sources[0],
        json!({ "id": page, "title": "Refund policy", "url": "https://a.example/refunds",
            "locator": format!("/pages/{page}"), "snippet": "# Refunds Within **30 days** of purchase." })
    );
    let locator = format!("{}/rows/{row}", table.replace("/v1", ""));
    assert_eq!(
        sources[1],
        json!({ "id": row, "title": "Orders", "locator": locator, "snippet": "item: refund for a lamp; price: 12.5" })
    );
    assert_eq!(sources.len(), 2);
    // The locator is where the thing is.
    assert_eq!(world.get(&format!("/v1{locator}")).await.body["item"], "refund for a lamp");
    // The answer, the stored message and the one of the stream are one.
    let result = named(&frames, "result")[0];
    let answer = text(&result["message"]);
    assert!(
        answer.contains("Refund policy") && answer.contains("30 days") && answer.contains("lamp"),
        "{answer}"
    );
    let stored = last(&world, &conversation).await;
    assert_eq!(stored["parts"], result["assistant"]["content"]);
    assert_eq!(stored["sources"], result["assistant"]["sources"]);
    assert_eq!(stored["sources"].as_array().unwrap().len(), 2);
    assert_eq!(stored["content"], answer);
    // Nothing found is said, and nothing is cited.
    let more = json!({ "message": "search nothingness", "conversation": conversation });
    let (_, frames) = world.turn(&more).await;
    assert!(named(&frames, "sources").is_empty());
    assert!(text(&named(&frames, "result")[0]["message"]).contains("No page has these words"));
    Some(())
}

async fn a_search_sees_its_own_workspace_alone(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let stranger = world.stranger().await;
    stranger.page("Secret of theirs", "whale").await;
    world.page("Ours", "whale").await;
    let (_, frames) = world.turn(&json!({ "message": "search whale", "mode": "ask" })).await;
    let sources = named(&frames, "sources");
    assert_eq!((sources.len(), &sources[0]["sources"][0]["title"]), (1, &json!("Ours")));
    assert!(!frames.iter().any(|(_, data)| data.to_string().contains("Secret")));
    Some(())
}

async fn a_question_finds_what_has_some_of_its_words(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    world.page("Refund policy", "Money back within 30 days.").await;
    let question = json!({ "message": "search what is our refund policy please", "mode": "ask" });
    let (_, frames) = world.turn(&question).await;
    assert_eq!(named(&frames, "sources")[0]["sources"][0]["title"], "Refund policy");
    Some(())
}

fn stream(events: &[Value]) -> Vec<Action> {
    let text: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    let headers = vec![("content-type", "text/event-stream".to_owned())];
    vec![Action::Headers("200 OK", headers), Action::Bytes(text.into_bytes())]
}

fn says(text: &str) -> Vec<Action> {
    stream(&[
        json!({ "choices": [{ "delta": { "content": text } }] }),
        json!({ "choices": [{ "delta": {}, "finish_reason": "stop" }] }),
    ])
}

fn calls(name: &str, args: &Value) -> Vec<Action> {
    let call = json!({ "index": 0, "id": "c", "function": { "name": name, "arguments": args.to_string() } });
    stream(&[
        json!({ "choices": [{ "delta": { "tool_calls": [call] } }] }),
        json!({ "choices": [{ "delta": {}, "finish_reason": "tool_calls" }] }),
    ])
}

/// A world with a scripted provider, and an agent that may save.
async fn saving(backend: Backend) -> Option<(World, ScriptedSandbox, Value)> {
    let provider = ScriptedSandbox::start(says("Done.")).await.unwrap();
    let world = World::start_with(backend, |config| {
        config.openai.api_key = Some(Secret::new("sk-canary"));
        config.openai.base_url = Some(format!("{}/v1", provider.url()));
    })
    .await?;
    let agent =
        json!({ "name": "Clerk", "model": "openai/m", "tools": ["save_to_table", "search_user_tables"] });
    let agent = world.made("/v1/agents", &agent).await["id"].clone();
    Some((world, provider, agent))
}

async fn a_model_saves_to_a_table_once(backend: Backend) -> Option<()> {
    let (world, provider, agent) = saving(backend).await?;
    let table = world.table("Leads", &["name:text", "size:number"]).await;
    let args = json!({ "table": "leads", "rows": [{ "name": "Ada", "size": 3 }, { "name": "Bob" }] });
    provider.play(calls("save_to_table", &args));
    let (_, frames) = world.turn(&json!({ "message": "Save them", "mode": "ask", "agent": agent })).await;
    let result = named(&frames, "tool_result")[0];
    assert_eq!(
        (&result["error"], &result["result"]),
        (&Value::Null, &json!("Saved 2 rows to the table \"Leads\"."))
    );
    let rows = [json!({ "name": "Ada", "size": 3 }), json!({ "name": "Bob", "size": null })];
    assert_eq!(world.rows(&table).await, rows);
    // Without an agent that has it, it is not even offered.
    let body = json!({ "message": "Save them", "mode": "ask", "model": "openai/m" });
    provider.play(calls("save_to_table", &args));
    let (_, frames) = world.turn(&body).await;
    assert!(text(&named(&frames, "tool_result")[0]["error"]).contains("no tool"));
    let offered = provider.requests().pop().unwrap().body["tools"].to_string();
    assert!(offered.contains("search_pages") && !offered.contains("save_to_table"), "{offered}");
    assert_eq!(world.rows(&table).await.len(), 2);
    Some(())
}

async fn what_a_model_gets_wrong_it_is_told(backend: Backend) -> Option<()> {
    let (world, provider, agent) = saving(backend).await?;
    let table = world.table("Leads", &["name:text", "size:number"]).await;
    world.table("Twins", &["a:text"]).await;
    world.table("Twins", &["a:text"]).await;
    let id = table.rsplit('/').next().unwrap();
    for (name, args, words) in [
        (
            "save_to_table",
            json!({ "table": "Leads", "rows": [{ "name": "Ada" }, { "size": "big" }] }),
            "row 2, \"size\"",
        ),
        ("save_to_table", json!({ "table": "Leads", "rows": [{ "nme": "Ada" }] }), "no such column"),
        ("save_to_table", json!({ "table": "Leads", "rows": [] }), "rows must be"),
        ("save_to_table", json!({ "table": "Nowhere", "rows": [{}] }), "there are: \"Leads\""),
        ("save_to_table", json!({ "table": "Twins", "rows": [{}] }), "by its id"),
        ("save_to_table", json!({ "table": id, "rows": [3] }), "rows.0 must be object"),
        ("save_to_table", json!({ "rows": [{}] }), "table is missing"),
        ("search_user_tables", json!({ "query": "!" }), "must hold a word"),
        ("search_user_tables", json!({ "query": "a", "table": "Nowhere" }), "no table"),
    ] {
        provider.play(calls(name, &args));
        let (_, frames) = world.turn(&json!({ "message": "Go", "mode": "ask", "agent": agent })).await;
        let error = text(&named(&frames, "tool_result")[0]["error"]);
        assert!(error.contains(words), "{args}: {error}");
        assert_eq!(named(&frames, "done")[0]["status"], "succeeded");
    }
    assert!(world.rows(&table).await.is_empty());
    Some(())
}
