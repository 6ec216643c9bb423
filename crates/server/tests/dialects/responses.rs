//! `/v1/responses` and `/v1/conversations` as OpenAI's clients use them.

use futures_util::future::join_all;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use testkit::sandbox::Release;
use testkit::server::{Answer, Backend};

use crate::scripts::{delta, lines, result, step, wait_after};
use crate::told::{Frame, Live, joined, kinds};
use crate::world::{World, ask, stories, thread};

stories!(
    a_response_is_a_turn_of_a_conversation,
    steps_are_calls_and_sources_are_citations,
    a_stream_goes_on_after_any_frame,
    responses_follow_each_other_and_branch,
    many_items_go_on_with_a_conversation,
    one_runs_in_the_background_and_is_cancelled,
    a_response_that_asks_ends_and_goes_on,
    a_response_in_the_background_asks_too,
    a_busy_conversation_is_locked,
    conversations_have_items_and_metadata,
    texts_that_follow_each_other_stay_apart,
    images_and_files_of_items_are_kept,
    items_are_what_responses_put_out,
    an_item_is_taken_out,
    what_is_not_stored_is_gone,
    errors_are_openais,
);

fn post(world: &World, path: &str, body: &Value) -> RequestBuilder {
    world.request(Method::POST, path).header("content-type", "application/json").body(body.to_string())
}

async fn create(world: &World, body: Value) -> Value {
    let answer = ask(post(world, "/v1/responses", &body)).await;
    assert_eq!(answer.status, 200, "{body}: {}", answer.text);
    answer.body
}

async fn stream(world: &World, body: Value) -> Vec<Frame> {
    Live::open(post(world, "/v1/responses", &body)).await.rest().await
}

fn text(response: &Value) -> String {
    let items = response["output"].as_array().unwrap().iter().filter(|item| item["type"] == "message");
    items.map(|item| item["content"][0]["text"].as_str().unwrap()).collect()
}

fn refused(answer: &Answer, status: u16, code: &str, param: Value) {
    let error = &answer.body["error"];
    assert_eq!((answer.status, error["code"].as_str()), (status, Some(code)), "{}", answer.text);
    assert_eq!(error["param"], param, "{}", answer.text);
    assert!(error["message"].as_str().is_some_and(|text| !text.is_empty()));
}

fn items_path(response: &Value) -> String {
    format!("/v1/conversations/{}/items", response["conversation"]["id"].as_str().unwrap())
}

/// All items of a response's conversation.
async fn items(world: &World, response: &Value) -> Vec<Value> {
    let list = world.get(&format!("{}?order=asc&limit=100", items_path(response))).await;
    list.body["data"].as_array().unwrap_or_else(|| panic!("{}", list.text)).clone()
}

fn uuid(id: &Value, prefix: &str) -> String {
    let simple = id.as_str().unwrap().strip_prefix(prefix).unwrap();
    uuid::Uuid::try_parse(simple).unwrap().to_string()
}

async fn a_response_is_a_turn_of_a_conversation(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let body = json!({ "model": "demo/assistant", "input": "think 2 words", "instructions": "Be brief.",
        "metadata": { "a": "b" }, "temperature": 0.2 });
    let made = create(&world, body).await;
    assert_eq!(
        (&made["object"], &made["status"], &made["error"]),
        (&json!("response"), &json!("completed"), &Value::Null)
    );
    assert_eq!(
        (&made["model"], &made["metadata"], &made["temperature"]),
        (&json!("demo/assistant"), &json!({ "a": "b" }), &json!(0.2))
    );
    assert_eq!((&made["instructions"], &made["background"]), (&json!("Be brief."), &json!(false)));
    assert_eq!(text(&made), "I thought 2 words.");
    assert_eq!(made["output"][0]["content"][0], json!({ "type": "reasoning_text", "text": "one thought" }));
    assert!(made["usage"]["total_tokens"].as_i64().unwrap() > 0);
    let conversation = uuid(&made["conversation"]["id"], "conv_");
    assert_eq!(
        world.thread(&conversation).await,
        thread(&[("user", "think 2 words"), ("assistant", "I thought 2 words.")])
    );
    let id = made["id"].as_str().unwrap();
    let again = world.get(&format!("/v1/responses/{id}")).await;
    assert_eq!(again.body, made);
    let input = world.get(&format!("/v1/responses/{id}/input_items")).await.body;
    assert_eq!(input["data"][0]["content"], json!([{ "type": "input_text", "text": "think 2 words" }]));
    // Every run is one, whoever began it.
    let told = world.tell(&json!({ "message": "hi", "conversation": conversation, "mode": "agent" })).await;
    let other = world.get(&format!("/v1/responses/{}", told.run())).await.body;
    assert_eq!((text(&other), &other["status"]), ("Hello.".into(), &json!("completed")));
    let gone = world.send(Method::DELETE, &format!("/v1/responses/{id}"), None).await;
    assert_eq!(gone.body, json!({ "id": id, "object": "response", "deleted": true }));
    assert_eq!(world.get(&format!("/v1/responses/{id}")).await.status, 404);
    assert_eq!(world.thread(&conversation).await.len(), 4, "what was said is kept");
    Some(())
}

async fn steps_are_calls_and_sources_are_citations(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let ended =
        json!({ "type": "step", "id": "s", "name": "look", "status": "succeeded", "result": [1], "ts": 7 });
    world.play(lines(vec![delta("I look."), step("s", "running"), delta("It"), ended, result("It is.")]));
    let frames = stream(&world, json!({ "model": "agent", "input": "look", "stream": true })).await;
    for (n, frame) in frames.iter().enumerate() {
        assert_eq!(frame.data["sequence_number"], json!(n));
        assert_eq!(frame.event.as_deref(), Some(frame.kind()));
    }
    assert_eq!(
        kinds(&frames)[..3],
        ["response.created", "response.in_progress", "response.output_item.added"]
    );
    assert_eq!(joined(&frames, "response.output_text.delta", "delta"), "I look.It is.");
    let last = &frames.last().unwrap().data;
    assert_eq!(last["type"], "response.completed");
    let output = last["response"]["output"].as_array().unwrap();
    let types: Vec<&str> = output.iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["message", "function_call", "message", "function_call_output"]);
    assert_eq!((&output[1]["name"], &output[3]["output"]), (&json!("look"), &json!("[1]")));
    assert_eq!(output[1]["call_id"], output[3]["call_id"]);
    // The final object is what the item events say.
    for frame in frames.iter().filter(|frame| frame.kind() == "response.output_item.done") {
        let at = frame.data["output_index"].as_u64().unwrap() as usize;
        assert_eq!(frame.data["item"], output[at]);
    }
    let id = last["response"]["id"].as_str().unwrap();
    assert_eq!(world.get(&format!("/v1/responses/{id}")).await.body, last["response"]);
    Some(())
}

async fn a_stream_goes_on_after_any_frame(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let gate = Release::default();
    world.play(wait_after(vec![delta("One "), step("s", "running"), delta("two")], &gate, "two three"));
    let body = json!({ "model": "agent", "input": "count", "stream": true, "background": true });
    let mut live = Live::open(post(&world, "/v1/responses", &body)).await;
    let created = live.next().await.unwrap();
    let id = created.data["response"]["id"].as_str().unwrap().to_owned();
    live.until("response.output_text.delta").await;
    drop(live);
    let now = world.get(&format!("/v1/responses/{id}")).await.body;
    assert_eq!(
        (&now["status"], &now["background"], &now["usage"]),
        (&json!("in_progress"), &json!(true), &Value::Null)
    );
    gate.open();
    let path = format!("/v1/responses/{id}?stream=true");
    let whole = world.get(&path).await.text;
    let frames: Vec<&str> = whole.split_inclusive("\n\n").collect();
    assert!(frames.last().unwrap().contains("response.completed"), "the run went on alone");
    for after in 0..frames.len() {
        let rest = world.get(&format!("{path}&starting_after={after}")).await.text;
        assert_eq!(rest, frames[after + 1..].concat(), "after {after}");
    }
    let numbered = frames.iter().position(|frame| frame.starts_with("id: 3\n")).unwrap();
    let rest = ask(world.request(Method::GET, &path).header("last-event-id", 3)).await.text;
    assert_eq!(rest, frames[numbered + 1..].concat());
    assert_eq!(world.get(&format!("{path}&starting_after=x")).await.status, 400);
    Some(())
}

async fn responses_follow_each_other_and_branch(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let ask_for = |words: &str, previous: Option<&Value>| {
        json!({ "model": "demo/assistant", "input": format!("think {words} words"),
        "previous_response_id": previous })
    };
    let one = create(&world, ask_for("1", None)).await;
    let two = create(&world, ask_for("2", Some(&one["id"]))).await;
    assert_eq!((&two["previous_response_id"], &two["conversation"]), (&one["id"], &one["conversation"]));
    let three = create(&world, ask_for("3", Some(&one["id"]))).await;
    let conversation = uuid(&one["conversation"]["id"], "conv_");
    let said =
        async || world.thread(&conversation).await.into_iter().map(|(_, text)| text).collect::<Vec<_>>();
    assert_eq!(said().await, ["think 1 words", "I thought 1 word.", "think 3 words", "I thought 3 words."]);
    // The other branch goes on from where it was.
    let four = create(&world, ask_for("4", Some(&two["id"]))).await;
    assert_eq!(
        said().await[2..],
        ["think 2 words", "I thought 2 words.", "think 4 words", "I thought 4 words."]
    );
    assert_ne!(three["id"], four["id"]);
    let unknown = ask(post(&world, "/v1/responses", &ask_for("1", Some(&json!("resp_nothing"))))).await;
    refused(&unknown, 400, "previous_response_not_found", json!("previous_response_id"));
    // A history of the client's own.
    let input = json!([{ "role": "developer", "content": "Be kind." }, { "role": "user", "content": "hi" },
        { "type": "function_call", "call_id": "c", "name": "look", "arguments": "{}" },
        { "type": "function_call_output", "call_id": "c", "output": "nothing" },
        { "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": "Hi." }] },
        { "role": "user", "content": [{ "type": "input_text", "text": "think 1 words" },
            { "type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,aGk=" }] }]);
    let own = create(&world, json!({ "model": "demo/assistant", "input": input })).await;
    assert_eq!(text(&own), "I thought 1 word.");
    let conversation = uuid(&own["conversation"]["id"], "conv_");
    let items = world.get(&format!("/v1/conversations/{conversation}/items?order=asc")).await.body;
    let types: Vec<&str> =
        items["data"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(
        types,
        [
            "message",
            "message",
            "function_call",
            "function_call_output",
            "message",
            "message",
            "reasoning",
            "message"
        ]
    );
    assert_eq!(items["data"][5]["content"][1]["filename"], "a.txt");
    Some(())
}

/// Nothing of what goes on with a conversation is lost: what cannot be taken is refused.
async fn many_items_go_on_with_a_conversation(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let first = create(&world, json!({ "model": "agent", "input": "hi" })).await;
    let user = |text: &str| json!({ "role": "user", "content": text });
    let places = [
        json!({ "previous_response_id": first["id"] }),
        json!({ "conversation": first["conversation"]["id"] }),
    ];
    for (n, place) in places.into_iter().enumerate() {
        let mut body = place.clone();
        body["input"] = json!([{ "role": "developer", "content": "Be brief." }, user("AAA"), user("BBB")]);
        create(&world, body).await;
        let conversation = uuid(&first["conversation"]["id"], "conv_");
        assert_eq!(world.thread(&conversation).await[2 + 2 * n], ("user".into(), "AAA\n\nBBB".into()));
        let mut body = place;
        body["input"] = json!([user("AAA"), { "role": "assistant", "content": "BBB" }, user("CCC")]);
        refused(&ask(post(&world, "/v1/responses", &body)).await, 400, "invalid_value", json!("input.1"));
        assert_eq!(world.thread(&conversation).await.len(), 4 + 2 * n, "nothing is half-done");
    }
    Some(())
}

async fn one_runs_in_the_background_and_is_cancelled(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let gate = Release::default();
    world.play(wait_after(vec![delta("One")], &gate, "One"));
    let made = create(&world, json!({ "model": "agent", "input": "hi", "background": true })).await;
    assert_eq!((&made["status"], &made["output"]), (&json!("queued"), &json!([])));
    let path = format!("/v1/responses/{}", made["id"].as_str().unwrap());
    let ended = ask(post(&world, &format!("{path}/cancel"), &json!({}))).await;
    assert_eq!(
        (ended.status, &ended.body["status"], &ended.body["error"]["code"]),
        (200, &json!("cancelled"), &json!("cancelled"))
    );
    assert_eq!(world.get(&path).await.body["status"], "cancelled");
    let told = Live::open(world.request(Method::GET, &format!("{path}?stream=true"))).await.rest().await;
    assert_eq!(told.last().unwrap().kind(), "response.failed");
    // Without background the client's leaving ends it.
    let hanging = Release::default();
    world.play(wait_after(vec![delta("One")], &hanging, "One"));
    let mut live = Live::open(post(
        &world,
        "/v1/responses",
        &json!({ "model": "agent", "input": "hi", "stream": true }),
    ))
    .await;
    live.until("response.output_text.delta").await;
    let run = live.run();
    drop(live);
    // Looked at from outside: whoever follows it keeps it alive.
    loop {
        match world.run(&run).await["status"].as_str().unwrap() {
            "running" => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
            status => break assert_eq!(status, "cancelled"),
        }
    }
    Some(())
}

/// A server that ends at once what nobody reads, and an agent that asks before it lists files.
async fn careful(backend: Backend) -> Option<(World, Value)> {
    let world = World::start_with(backend, |config| config.limits.disconnect_grace_seconds = 0).await?;
    let agent = json!({ "name": "Careful", "runner": "model", "model": "demo/assistant", "tools": ["list_files"],
        "approval": ["list_files"] });
    let agent = world.send(Method::POST, "/v1/agents", Some(&agent)).await.body["id"].clone();
    Some((world, agent))
}

fn types(response: &Value) -> Vec<&str> {
    response["output"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect()
}

async fn a_response_that_asks_ends_and_goes_on(backend: Backend) -> Option<()> {
    let (world, agent) = careful(backend).await?;
    for (streams, approve) in [(false, true), (false, false), (true, true), (true, false)] {
        let last = std::cell::Cell::new(-1);
        let respond = async |mut body: Value| {
            body["stream"] = json!(streams);
            if !streams {
                return create(&world, body).await;
            }
            let frames = stream(&world, body).await;
            let numbers: Vec<i64> =
                frames.iter().map(|frame| frame.data["sequence_number"].as_i64().unwrap()).collect();
            assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
            assert_eq!(frames.last().unwrap().kind(), "response.completed");
            last.set(*numbers.last().unwrap());
            frames.last().unwrap().data["response"].clone()
        };
        let asked = respond(json!({ "model": agent, "input": "list files" })).await;
        assert_eq!((&asked["status"], &asked["model"]), (&json!("completed"), &agent));
        assert_eq!(types(&asked), ["function_call", "mcp_approval_request"]);
        assert!(asked["usage"]["total_tokens"].as_i64().unwrap() > 0);
        let request = &asked["output"][1];
        assert_eq!((&request["name"], &request["arguments"]), (&json!("list_files"), &json!("{}")));
        // Its client has gone, and it waits: long enough for a run that nobody keeps to be cancelled.
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        assert_eq!(world.run(&uuid(&asked["id"], "resp_")).await["status"], "running");
        let id = asked["id"].as_str().unwrap();
        assert_eq!(world.get(&format!("/v1/responses/{id}")).await.body, asked);
        assert_eq!(items(&world, &asked).await[1..], *asked["output"].as_array().unwrap());
        let (item, paused) =
            (format!("{}/{}", items_path(&asked), request["id"].as_str().unwrap()), last.get());
        assert_eq!(world.get(&item).await.body, *request);
        let busy = world.send(Method::DELETE, &item, None).await;
        refused(&busy, 400, "conversation_locked", json!("conversation"));
        let decide = |request: &Value, approve: Value| {
            json!({ "previous_response_id": id, "input": [{ "type": "mcp_approval_response",
                "approval_request_id": request, "approve": approve }] })
        };
        for (body, param) in [
            (decide(&json!("nope"), json!(true)), "input.0.approval_request_id"),
            (decide(&request["id"], Value::Null), "input.0.approve"),
            (decide(&request["id"], json!("yes")), "input.0.approve"),
        ] {
            refused(&ask(post(&world, "/v1/responses", &body)).await, 400, "invalid_value", json!(param));
        }
        let ended = respond(decide(&request["id"], json!(approve))).await;
        assert_eq!((&ended["id"], &ended["status"]), (&asked["id"], &json!("completed")));
        assert_eq!(
            types(&ended),
            ["function_call", "mcp_approval_request", "function_call_output", "message"]
        );
        let output = ended["output"][2]["output"].as_str().unwrap();
        assert_eq!(output.contains("did not allow"), !approve, "{output}");
        assert_eq!(world.get(&format!("/v1/responses/{id}")).await.body, ended);
        assert_eq!(items(&world, &ended).await[1..], *ended["output"].as_array().unwrap());
        // The frame that ended the first stream has a number of its own: nothing is missed after it, nothing told twice.
        if streams {
            let path = format!("/v1/responses/{id}?stream=true");
            let whole = Live::open(world.request(Method::GET, &path)).await.rest().await;
            assert!(whole.iter().all(|frame| frame.data["sequence_number"] != paused));
            let later = whole.iter().filter(|frame| frame.data["sequence_number"].as_i64() > Some(paused));
            let rest = world.request(Method::GET, &format!("{path}&starting_after={paused}"));
            let rest: Vec<Value> =
                Live::open(rest).await.rest().await.into_iter().map(|frame| frame.data).collect();
            assert_eq!(rest, later.map(|frame| frame.data.clone()).collect::<Vec<_>>());
            assert_eq!(rest[0]["item"]["id"], ended["output"][2]["id"], "what came of the call is the first");
        }
        assert_eq!(world.send(Method::DELETE, &item, None).await.status, 200);
        let left = items(&world, &ended).await;
        assert_eq!((left.len(), left.contains(request)), (4, false), "{left:?}");
    }
    Some(())
}

async fn a_response_in_the_background_asks_too(backend: Backend) -> Option<()> {
    let (world, agent) = careful(backend).await?;
    let made = create(&world, json!({ "model": agent, "input": "list files", "background": true })).await;
    let path = format!("/v1/responses/{}", made["id"].as_str().unwrap());
    let told = Live::open(world.request(Method::GET, &format!("{path}?stream=true"))).await.rest().await;
    let asked = &told.last().unwrap().data["response"];
    assert_eq!((types(asked).last(), &asked["status"]), (Some(&"mcp_approval_request"), &json!("completed")));
    assert_eq!(world.get(&path).await.body, *asked, "whoever looks now and then sees that it asks");
    // It can still be ended; and one that is not stored does not stay.
    let ended = ask(post(&world, &format!("{path}/cancel"), &json!({}))).await;
    assert_eq!(ended.body["status"], "cancelled", "{}", ended.text);
    let before = world.count().await;
    let asked = create(&world, json!({ "model": agent, "input": "list files", "store": false })).await;
    assert_eq!(types(&asked).last(), Some(&"mcp_approval_request"));
    assert_eq!(world.count().await, before);
    Some(())
}

async fn a_busy_conversation_is_locked(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let made = ask(post(&world, "/v1/conversations", &json!({}))).await.body;
    let gate = Release::default();
    world.play(wait_after(vec![delta("One")], &gate, "One"));
    let body = |model: &str| json!({ "model": model, "input": "hi", "conversation": { "id": made["id"] }, "background": model == "agent" });
    let under_way = create(&world, body("agent")).await;
    let busy = ask(post(&world, "/v1/responses", &body("demo/assistant"))).await;
    refused(&busy, 400, "conversation_locked", json!("conversation"));
    assert_eq!(busy.body["error"]["type"], "invalid_request_error");
    let items = json!({ "items": [{ "role": "user", "content": "hi" }] });
    let path = format!("/v1/conversations/{}/items", made["id"].as_str().unwrap());
    refused(&ask(post(&world, &path, &items)).await, 400, "conversation_locked", json!("conversation"));
    gate.open();
    world.settled(&uuid(&under_way["id"], "resp_")).await;
    assert_eq!(create(&world, body("demo/assistant")).await["status"], "completed");
    Some(())
}

async fn conversations_have_items_and_metadata(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let items = json!([{ "type": "message", "role": "user", "content": "hi" }]);
    let made =
        ask(post(&world, "/v1/conversations", &json!({ "metadata": { "topic": "a" }, "items": items })))
            .await;
    assert_eq!(
        (made.status, &made.body["object"], &made.body["metadata"]),
        (200, &json!("conversation"), &json!({ "topic": "a" }))
    );
    let path = format!("/v1/conversations/{}", made.body["id"].as_str().unwrap());
    assert_eq!(world.get(&path).await.body, made.body);
    let changed = ask(post(&world, &path, &json!({ "metadata": { "topic": "b" } }))).await.body;
    assert_eq!(changed["metadata"], json!({ "topic": "b" }));
    let more = json!({ "items": [{ "role": "assistant", "content": "Hello." }, { "role": "user", "content": "think 1 words" }] });
    let added = ask(post(&world, &format!("{path}/items"), &more)).await.body;
    assert_eq!((&added["object"], added["data"].as_array().unwrap().len()), (&json!("list"), 2));
    let list = world.get(&format!("{path}/items?limit=2")).await.body;
    assert_eq!(
        (&list["data"][0], &list["has_more"], &list["last_id"]),
        (&added["data"][1], &json!(true), &added["data"][0]["id"])
    );
    let next =
        world.get(&format!("{path}/items?limit=2&after={}", list["last_id"].as_str().unwrap())).await.body;
    assert_eq!((&next["has_more"], next["data"].as_array().unwrap().len()), (&json!(false), 1));
    let id = next["data"][0]["id"].as_str().unwrap();
    assert_eq!(world.get(&format!("{path}/items/{id}")).await.body, next["data"][0]);
    assert_eq!(world.get(&format!("{path}/items/msg_nothing")).await.status, 404);
    // The list is ours; what others make is in it, too.
    let told = world.tell(&json!({ "message": "hi" })).await;
    let all = world.get("/v1/conversations?limit=1").await.body;
    assert_eq!(uuid(&all["data"][0]["id"], "conv_"), told.conversation());
    let rest = world.get(&format!("/v1/conversations?after={}", all["last_id"].as_str().unwrap())).await.body;
    assert_eq!((&rest["data"][0], &rest["has_more"]), (&changed, &json!(false)));
    let gone = world.send(Method::DELETE, &path, None).await.body;
    assert_eq!((&gone["object"], &gone["deleted"]), (&json!("conversation.deleted"), &json!(true)));
    assert_eq!(world.get(&path).await.status, 404);
    assert_eq!(world.get(&format!("{path}/items")).await.status, 404);
    Some(())
}

async fn texts_that_follow_each_other_stay_apart(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let part = |text: &str| json!({ "type": "output_text", "text": text });
    let items = json!([{ "role": "user", "content": "hi" },
        { "role": "assistant", "content": [part("One."), part("Two.")] },
        { "role": "assistant", "content": "Three." }]);
    let made = ask(post(&world, "/v1/conversations", &json!({ "items": items }))).await.body;
    let path = format!("/v1/conversations/{}/items", made["id"].as_str().unwrap());
    let listed = async || {
        let list = world.get(&format!("{path}?order=asc")).await.body["data"].as_array().unwrap().clone();
        let item = |item: &Value| (item["id"].clone(), item["content"][0]["text"].clone());
        list.iter().map(item).collect::<Vec<_>>()
    };
    let mut all = listed().await;
    let texts: Vec<&Value> = all.iter().map(|(_, text)| text).collect();
    assert_eq!(texts, ["hi", "One.", "Two.", "Three."]);
    let (gone, _) = all.remove(2);
    let gone = format!("{path}/{}", gone.as_str().unwrap());
    assert_eq!(world.send(Method::DELETE, &gone, None).await.status, 200);
    assert_eq!(listed().await, all);
    // Where a thread has one text for them, they are as in its plain text.
    let thread = json!({ "threadId": uuid(&made["id"], "conv_") });
    let joined = Live::open(post(&world, "/v1/ag-ui/connect", &thread)).await.rest().await;
    assert_eq!(joined[1].data["messages"][1]["content"], "One.\n\nThree.");
    Some(())
}

async fn images_and_files_of_items_are_kept(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let png =
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    let image = json!({ "type": "input_image", "image_url": format!("data:image/png;base64,{png}") });
    let file = |name: &str, data: &str| json!({ "type": "input_file", "filename": name, "file_data": data });
    let user = |content: Value| json!({ "type": "message", "role": "user", "content": content });
    let words = json!({ "type": "input_text", "text": "see" });
    let first = json!([user(json!([words, image])), { "role": "assistant", "content": "Seen." },
        user(json!([image, file("note.txt", "aGk=")]))]);
    let made = ask(post(&world, "/v1/conversations", &json!({ "items": first }))).await.body;
    let path = format!("/v1/conversations/{}/items", made["id"].as_str().unwrap());
    let more = json!({ "items": [user(json!([words, file("a.txt", "data:text/plain;base64,aGVsbG8=")]))] });
    let added = ask(post(&world, &path, &more)).await.body["data"][0].clone();
    let read = async |path: &str| world.get(&format!("{path}?order=asc")).await.body["data"].clone();
    let listed = read(&path).await;
    assert_eq!(listed[3], added);
    let (id, text) =
        (|at: &Value| at["file_id"].clone(), |text: &str| json!({ "type": "input_text", "text": text }));
    let picture = |at: &Value| json!({ "type": "input_image", "detail": "auto", "file_id": id(at) });
    let named = |at: &Value, name: &str| json!({ "type": "input_file", "filename": name, "file_id": id(at) });
    let parts = |n: usize| &listed[n]["content"];
    assert_eq!(*parts(0), json!([text("see"), picture(&parts(0)[1])]), "{listed}");
    let [alone, note] = [0, 1].map(|at| &parts(2)[at]);
    assert_eq!(*parts(2), json!([picture(alone), named(note, "note.txt")]), "{listed}");
    assert_eq!(*parts(3), json!([text("see"), named(&parts(3)[1], "a.txt")]), "{listed}");
    // They are the bag's, tied to their messages.
    let bag = format!("/v1/chat-conversations/{}/files", uuid(&made["id"], "conv_"));
    let files = world.get(&bag).await.body["data"].clone();
    assert_eq!(files.as_array().unwrap().len(), 4, "{files}");
    for file in files.as_array().unwrap() {
        let content = |item: &Value| {
            item["content"].as_array().unwrap().iter().any(|part| part["file_id"] == file["id"])
        };
        let item = listed.as_array().unwrap().iter().find(|item| content(item)).unwrap();
        assert_eq!(file["messageId"], json!(uuid(&item["id"], "msg_")), "{file}");
    }
    // The model is shown them, and so is one that a history of the client's own brings.
    let shown = async |response: &Value| {
        let trace = world.get(&format!("/v1/runs/{}/trace", uuid(&response["id"], "resp_"))).await.text;
        let (_, files) = trace.split_once("with the files ").unwrap_or_else(|| panic!("{trace}"));
        files.split('"').next().unwrap().to_owned()
    };
    let body = json!({ "model": "demo/assistant", "input": "think 1 words", "conversation": made["id"] });
    let sent = shown(&create(&world, body).await).await;
    assert!(sent.contains("note.txt") && sent.contains("a.txt"), "{sent}");
    let input = json!([user(json!([words, file("b.txt", "aGk=")])), { "role": "assistant", "content": "Seen." },
        user(json!([text("think 1 words"), image]))]);
    let own = create(&world, json!({ "model": "demo/assistant", "input": input })).await;
    let sent = shown(&own).await;
    assert!(sent.contains("b.txt"), "{sent}");
    let own = items(&world, &own).await;
    assert_eq!(own[0]["content"][1], named(&own[0]["content"][1], "b.txt"));
    assert_eq!(own[2]["content"][1], picture(&own[2]["content"][1]));
    // What cannot be kept is refused by its name, and nothing of the request is kept.
    let before = (world.count().await, read(&path).await, world.get(&bag).await.body);
    let far = json!({ "type": "input_image", "image_url": "https://example.com/a.png" });
    let said = json!({ "role": "assistant", "content": [image] });
    for (items, param) in [
        (json!([user(json!([words, image, far])), user(json!([words]))]), "0.content.2.image_url"),
        (json!([user(json!([words])), user(json!([file("a", "?")]))]), "1.content.0.file_data"),
        (json!([said, user(json!([words]))]), "0.content.0.image_url"),
    ] {
        let body = json!({ "items": items });
        for path in ["/v1/conversations", &path] {
            refused(
                &ask(post(&world, path, &body)).await,
                400,
                "invalid_value",
                json!(format!("items.{param}")),
            );
        }
        let body = json!({ "model": "demo/assistant", "input": items });
        let answer = ask(post(&world, "/v1/responses", &body)).await;
        refused(&answer, 400, "invalid_value", json!(format!("input.{param}")));
    }
    assert_eq!((world.count().await, read(&path).await, world.get(&bag).await.body), before);
    Some(())
}

/// What was streamed, what the response is and what the conversation has are the same items with the same ids.
async fn items_are_what_responses_put_out(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let steps = |id: &str| (step(id, "running"), step(id, "succeeded"));
    let ((a, a_ends), (b, b_ends)) = (steps("a"), steps("b"));
    for script in [
        // A draft that the result takes the place of.
        vec![delta("Draft."), result("Settled.")],
        vec![delta("I look."), a, b, b_ends, delta("Draft."), a_ends, result("Settled.")],
        vec![delta("Draft."), step("c", "running"), result("Settled.")],
    ] {
        world.play(lines(script));
        let frames = stream(&world, json!({ "model": "agent", "input": "go", "stream": true })).await;
        let told = joined(&frames, "response.output_text.delta", "delta");
        assert!(told.ends_with("Draft.Settled."), "{told}");
        let ended = &frames.last().unwrap().data["response"];
        let output = ended["output"].as_array().unwrap();
        assert!(text(ended).ends_with("Settled.") && types(ended).contains(&"message"), "{ended}");
        let done = frames.iter().filter(|frame| frame.kind() == "response.output_item.done");
        let mut done: Vec<&Value> = done.map(|frame| &frame.data).collect();
        done.sort_by_key(|done| done["output_index"].as_u64());
        assert_eq!(
            done.iter().map(|done| &done["item"]).collect::<Vec<_>>(),
            output.iter().collect::<Vec<_>>()
        );
        let path = format!("/v1/responses/{}", ended["id"].as_str().unwrap());
        assert_eq!(world.get(&path).await.body, *ended);
        let all = items(&world, ended).await;
        assert_eq!(all[1..], *output);
        // One after the other, both ways, and by their names.
        for order in ["asc", "desc"] {
            let (mut walked, mut after) = (Vec::new(), String::new());
            loop {
                let query = format!("?order={order}&limit=1{after}");
                let page = world.get(&format!("{}{query}", items_path(ended))).await.body;
                walked.push(page["data"][0].clone());
                if page["has_more"] == false {
                    break;
                }
                after = format!("&after={}", page["last_id"].as_str().unwrap());
            }
            if order == "desc" {
                walked.reverse();
            }
            assert_eq!(walked, all, "{order}");
        }
        for item in &all {
            let path = format!("{}/{}", items_path(ended), item["id"].as_str().unwrap());
            assert_eq!(world.get(&path).await.body, *item);
        }
        // A fork has no runs: its messages tell theirs, under the same names.
        let path = format!("/v1/chat-conversations/{}/fork", uuid(&ended["conversation"]["id"], "conv_"));
        let fork = ask(post(&world, &path, &json!({ "through": uuid(&ended["id"], "resp_") }))).await;
        let fork = json!({ "conversation": { "id": fork.body["data"]["id"] } });
        let ids = |items: &[Value]| {
            let mut ids: Vec<String> = items.iter().map(|item| item["id"].to_string()).collect();
            ids.sort();
            ids
        };
        assert_eq!(ids(&items(&world, &fork).await), ids(&all));
    }
    // What was being said when the run ended is incomplete.
    let gate = Release::default();
    world.play(wait_after(vec![delta("One"), step("s", "running"), delta("Two")], &gate, "Two"));
    let body = json!({ "model": "agent", "input": "hi", "stream": true, "background": true });
    let mut live = Live::open(post(&world, "/v1/responses", &body)).await;
    // The text before the step, and the one after it.
    live.until("response.output_text.delta").await;
    live.until("response.output_text.delta").await;
    let path = format!("/v1/responses/{}", live.run());
    let ended = ask(post(&world, &format!("{path}/cancel"), &json!({}))).await.body;
    let status: Vec<&Value> =
        ended["output"].as_array().unwrap().iter().map(|item| &item["status"]).collect();
    assert_eq!(types(&ended), ["message", "function_call", "message", "function_call_output"]);
    assert_eq!(status, ["completed", "incomplete", "incomplete", "incomplete"]);
    assert_eq!(items(&world, &ended).await[1..], *ended["output"].as_array().unwrap());
    let hanging = Release::default();
    world.play(wait_after(vec![delta("One")], &hanging, "One"));
    let mut live = Live::open(post(&world, "/v1/responses", &body)).await;
    live.until("response.output_text.delta").await;
    let ended = ask(post(&world, &format!("/v1/responses/{}/cancel", live.run()), &json!({}))).await.body;
    assert_eq!(
        (&ended["status"], &ended["output"][0]["status"]),
        (&json!("cancelled"), &json!("incomplete"))
    );
    assert_eq!(items(&world, &ended).await[1..], *ended["output"].as_array().unwrap());
    Some(())
}

async fn an_item_is_taken_out(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let items = json!([{ "role": "user", "content": "marmalade" }, { "role": "assistant", "content": "Noted." },
        { "role": "user", "content": "and toast" }]);
    let made = ask(post(&world, "/v1/conversations", &json!({ "items": items }))).await.body;
    let path = format!("/v1/conversations/{}", made["id"].as_str().unwrap());
    let ids = async || -> Vec<String> {
        let list = world.get(&format!("{path}/items?order=asc")).await.body;
        list["data"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
    };
    let all = ids().await;
    let first = format!("{path}/items/{}", all[0]);
    let answer = world.send(Method::DELETE, &first, None).await;
    assert_eq!((answer.status, &answer.body), (200, &made));
    assert_eq!(ids().await, all[1..]);
    for method in [Method::GET, Method::DELETE] {
        refused(&world.send(method, &first, None).await, 404, "not_found", Value::Null);
    }
    // No word of it is found, shown or sent any more.
    let conversation = uuid(&made["id"], "conv_");
    let found = world.get("/v1/chat-conversations?filter%5Bquery%5D=marmalade").await;
    let hits =
        found.body["data"].as_array().unwrap().iter().flat_map(|hit| hit["meta"]["highlights"].as_array());
    assert!(hits.flatten().all(|hit| hit["field"] != "message"), "{}", found.text);
    assert_eq!(world.thread(&conversation).await[0], ("user".to_owned(), String::new()));
    let response = create(
        &world,
        json!({ "model": "demo/assistant", "input": "think 2 words",
        "conversation": made["id"] }),
    )
    .await;
    let run = uuid(&response["id"], "resp_");
    let trace = world.get(&format!("/v1/runs/{run}/trace")).await;
    assert!(!trace.text.contains("marmalade"), "{}", trace.text);
    // Of an answer with several items the others stay as they are, and what goes at once all goes.
    let steps = ["s1", "s2", "s3"].map(|id| [step(id, "running"), step(id, "succeeded")]);
    world.play(lines(steps.into_iter().flatten().chain([delta("Seen."), result("Seen.")]).collect()));
    let response =
        create(&world, json!({ "model": "agent", "input": "go", "conversation": made["id"] })).await;
    let before = ids().await;
    let calls = response["output"].as_array().unwrap().iter().filter(|item| item["type"] == "function_call");
    let paths: Vec<String> =
        calls.map(|call| format!("{path}/items/{}", call["id"].as_str().unwrap())).collect();
    assert_eq!(paths.len(), 3, "{response}");
    for answer in join_all(paths.iter().map(|item| world.send(Method::DELETE, item, None))).await {
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    let left = ids().await;
    assert_eq!(left.len(), before.len() - 6, "{before:?} {left:?}");
    assert!(left.iter().all(|id| before.contains(id)) && left.last() == before.last(), "{before:?} {left:?}");
    Some(())
}

async fn what_is_not_stored_is_gone(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let made =
        create(&world, json!({ "model": "demo/assistant", "input": "think 1 words", "store": false })).await;
    assert_eq!((text(&made), &made["store"]), ("I thought 1 word.".into(), &json!(false)));
    assert_eq!(world.get(&format!("/v1/responses/{}", made["id"].as_str().unwrap())).await.status, 404);
    let told = stream(
        &world,
        json!({ "model": "demo/assistant", "input": "think 1 words", "store": false, "stream": true }),
    )
    .await;
    assert_eq!(told.last().unwrap().kind(), "response.completed");
    let id = told.last().unwrap().data["response"]["id"].as_str().unwrap().to_owned();
    for _ in 0..500 {
        if world.get(&format!("/v1/responses/{id}")).await.status == 404 {
            assert_eq!(world.count().await, (0, 0));
            return Some(());
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("it is still there");
}

async fn errors_are_openais(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let long = json!("a".repeat(513));
    let pairs: serde_json::Map<String, Value> = (0..17).map(|n| (n.to_string(), json!("x"))).collect();
    for (body, status, code, param) in [
        (json!({}), 400, "invalid_value", json!("input")),
        (json!({ "input": "" }), 400, "invalid_value", json!("input")),
        (json!({ "input": 7 }), 400, "invalid_value", json!("input")),
        (json!({ "input": [] }), 400, "invalid_value", json!("input")),
        (
            json!({ "input": [{ "role": "robot", "content": "x" }] }),
            400,
            "invalid_value",
            json!("input.0.role"),
        ),
        (json!({ "input": [{ "type": "computer_call" }] }), 400, "invalid_value", json!("input.0.type")),
        (
            json!({ "input": [{ "role": "user", "content": "hi" }, { "role": "assistant", "content": "ho" }] }),
            400,
            "invalid_value",
            json!("input"),
        ),
        (
            json!({ "input": "hi", "tools": [{ "type": "function", "name": "f" }] }),
            400,
            "invalid_value",
            json!("tools"),
        ),
        (json!({ "input": "hi", "metadata": pairs }), 400, "invalid_value", json!("metadata")),
        (json!({ "input": "hi", "metadata": { "a": long } }), 400, "invalid_value", json!("metadata")),
        (
            json!({ "input": "hi", "store": false, "background": true }),
            400,
            "invalid_value",
            json!("background"),
        ),
        (
            json!({ "input": "hi", "conversation": "a", "previous_response_id": "b" }),
            400,
            "invalid_value",
            json!("previous_response_id"),
        ),
        (json!({ "input": "hi", "stream": "yes" }), 400, "invalid_value", json!("stream")),
        (json!({ "input": "hi", "model": "nobody/nothing" }), 404, "model_not_found", Value::Null),
        (json!({ "input": "hi", "conversation": "conv_nothing" }), 404, "not_found", Value::Null),
    ] {
        refused(&ask(post(&world, "/v1/responses", &body)).await, status, code, param);
    }
    assert_eq!(world.count().await, (0, 0));
    // What OpenAI has and this server has not says so.
    for path in ["/v1/responses/input_tokens", "/v1/responses/compact"] {
        let body = json!({ "model": "demo/assistant", "input": "hi" });
        refused(&ask(post(&world, path, &body)).await, 404, "not_offered", Value::Null);
    }
    // A model by its name, however its slash is written.
    let list = world.get("/v1/models").await.body["data"].clone();
    for name in ["demo/assistant", "demo%2Fassistant"] {
        assert_eq!(world.get(&format!("/v1/models/{name}")).await.body, list[0]);
    }
    for name in ["demo/nothing", "demo%2Fnothing", "nothing", "a/b/c"] {
        let unknown = world.get(&format!("/v1/models/{name}")).await;
        refused(&unknown, 404, "model_not_found", Value::Null);
    }
    let nobody = ask(world.server.request(Method::GET, "/v1/conversations")).await;
    assert_eq!((nobody.status, &nobody.body["error"]["type"]), (401, &json!("authentication_error")));
    // A run that fails is a response that failed.
    let failed = create(&world, json!({ "model": "demo/assistant", "input": "fail" })).await;
    assert_eq!((&failed["status"], &failed["error"]["code"]), (&json!("failed"), &json!("model_error")));
    let told = stream(&world, json!({ "model": "demo/assistant", "input": "fail", "stream": true })).await;
    assert_eq!(told.last().unwrap().kind(), "response.failed");
    Some(())
}
