//! `/v1/responses` as OpenAI's clients use it.

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
    a_response_goes_on_from_its_own_answer,
    many_items_go_on_with_a_conversation,
    what_was_put_out_is_taken_back_in,
    one_runs_in_the_background_and_is_cancelled,
    a_response_that_asks_ends_and_goes_on,
    a_response_in_the_background_asks_too,
    a_busy_conversation_is_locked,
    what_is_not_stored_is_gone,
    what_is_not_stored_goes_with_its_client,
    what_is_not_stored_stays_for_who_asked_first,
    errors_are_openais,
    a_message_beside_a_decision_is_refused,
    a_key_that_comes_again_is_the_same_response,
    the_loop_over_approvals_ends,
    no_tool_is_called_where_none_may_be,
);

pub(super) fn post(world: &World, path: &str, body: &Value) -> RequestBuilder {
    world.request(Method::POST, path).header("content-type", "application/json").body(body.to_string())
}

pub(super) async fn create(world: &World, body: Value) -> Value {
    let answer = ask(post(world, "/v1/responses", &body)).await;
    assert_eq!(answer.status, 200, "{body}: {}", answer.text);
    answer.body
}

pub(super) async fn stream(world: &World, body: Value) -> Vec<Frame> {
    Live::open(post(world, "/v1/responses", &body)).await.rest().await
}

pub(super) fn text(response: &Value) -> String {
    let items = response["output"].as_array().unwrap().iter().filter(|item| item["type"] == "message");
    items.map(|item| item["content"][0]["text"].as_str().unwrap()).collect()
}

pub(super) fn refused(answer: &Answer, status: u16, code: &str, param: Value) {
    let error = &answer.body["error"];
    assert_eq!((answer.status, error["code"].as_str()), (status, Some(code)), "{}", answer.text);
    assert_eq!(error["param"], param, "{}", answer.text);
    assert!(error["message"].as_str().is_some_and(|text| !text.is_empty()));
}

pub(super) fn items_path(response: &Value) -> String {
    format!("/v1/conversations/{}/items", response["conversation"]["id"].as_str().unwrap())
}

/// All items of a response's conversation.
pub(super) async fn items(world: &World, response: &Value) -> Vec<Value> {
    let list = world.get(&format!("{}?order=asc&limit=100", items_path(response))).await;
    list.body["data"].as_array().unwrap_or_else(|| panic!("{}", list.text)).clone()
}

pub(super) fn uuid(id: &Value, prefix: &str) -> String {
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
    // All of it is what the first response was asked with; the next one has its own.
    let asked_with = async |response: &Value| {
        let path = format!("/v1/responses/{}/input_items?order=asc", response["id"].as_str().unwrap());
        world.get(&path).await.body["data"].as_array().unwrap().clone()
    };
    assert_eq!(asked_with(&own).await, items["data"].as_array().unwrap()[..6]);
    let next = create(&world, ask_for("1", Some(&own["id"]))).await;
    assert_eq!(asked_with(&next).await.len(), 1);
    Some(())
}

async fn a_response_goes_on_from_its_own_answer(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let one = create(&world, json!({ "model": "demo/assistant", "input": "think 1 words" })).await;
    let conversation = uuid(&one["conversation"]["id"], "conv_");
    let run = world.get(&format!("/v1/runs/{}", uuid(&one["id"], "resp_"))).await.body;
    // It is answered anew elsewhere, and the other answer is the one that readers see.
    let again = json!({ "conversation": conversation, "replace": run["message"], "model": "demo/assistant" });
    let again = ask(post(&world, "/v1/turns", &again)).await;
    assert_eq!(again.status, 200, "{}", again.text);
    let path = format!("/v1/chat-conversations/{conversation}/branches");
    let current = async || {
        let branches = world.get(&path).await.body["data"].as_array().unwrap().clone();
        branches.into_iter().find(|branch| branch["current"] == true).unwrap()
    };
    assert_ne!(current().await["head"], run["assistant_message"]);
    let input =
        json!({ "model": "demo/assistant", "input": "think 2 words", "previous_response_id": one["id"] });
    create(&world, input).await;
    assert_eq!(current().await["id"], json!(conversation));
    assert_eq!(world.thread(&conversation).await.len(), 4);
    Some(())
}

/// A client that keeps its history itself sends back what it was answered with.
async fn what_was_put_out_is_taken_back_in(backend: Backend) -> Option<()> {
    let (world, agent) = careful(backend).await?;
    let user = |text: &str| json!({ "role": "user", "content": text });
    let asked = create(&world, json!({ "model": agent, "input": "list files" })).await;
    assert!(types(&asked).contains(&"mcp_approval_request"), "{asked}");
    let request =
        asked["output"].as_array().unwrap().iter().find(|item| item["type"] == "mcp_approval_request");
    let decision = json!({ "type": "mcp_approval_response", "approval_request_id": request.unwrap()["id"],
        "approve": true });
    let silent = json!({ "type": "message", "role": "assistant", "status": "completed",
        "content": [{ "type": "output_text", "text": "", "annotations": [] }] });
    let mut history = vec![user("list files")];
    history.extend(asked["output"].as_array().unwrap().iter().cloned());
    history.extend([decision.clone(), silent.clone(), user("think 1 words")]);
    let next = create(&world, json!({ "model": "demo/assistant", "input": history })).await;
    assert_eq!(text(&next), "I thought 1 word.");
    // What comes last is a decision still, and there is nothing here to decide on.
    history.pop();
    history.push(decision);
    let last =
        ask(post(&world, "/v1/responses", &json!({ "model": "demo/assistant", "input": history }))).await;
    assert_eq!(last.status, 404, "{}", last.text);
    // A user's own message is not to be empty.
    let empty = json!({ "model": "demo/assistant", "input": [silent, user("")] });
    refused(
        &ask(post(&world, "/v1/responses", &empty)).await,
        400,
        "invalid_value",
        json!("input.1.content"),
    );
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
    // One that is taken away ends, too: nobody could end it later, and it would hold its conversation.
    world.play(wait_after(vec![delta("One")], &gate, "One"));
    let made = create(&world, json!({ "model": "agent", "input": "hi", "background": true })).await;
    let path = format!("/v1/responses/{}", made["id"].as_str().unwrap());
    assert_eq!(world.send(Method::DELETE, &path, None).await.body["deleted"], true);
    assert_eq!(world.get(&path).await.status, 404);
    assert_eq!(world.settled(&uuid(&made["id"], "resp_")).await["status"], "cancelled");
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

pub(super) fn types(response: &Value) -> Vec<&str> {
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
        // What came before the decision is not told again; who asks for the response has all of it.
        assert_eq!(types(&ended), ["function_call_output", "message"]);
        let output = ended["output"][0]["output"].as_str().unwrap();
        assert_eq!(output.contains("did not allow"), !approve, "{output}");
        let mut whole = world.get(&format!("/v1/responses/{id}")).await.body;
        let told = [&asked["output"], &ended["output"]].map(|output| output.as_array().unwrap().clone());
        assert_eq!(whole["output"], json!(told.concat()));
        assert_eq!(items(&world, &ended).await[1..], *whole["output"].as_array().unwrap());
        whole["output"] = ended["output"].clone();
        assert_eq!(whole, ended);
        // The same decision once more is no other.
        let again = respond(decide(&request["id"], json!(approve))).await;
        assert_eq!(again, ended);
        let other = ask(post(&world, "/v1/responses", &decide(&request["id"], json!(!approve)))).await;
        assert_eq!(other.status, 409, "{}", other.text);
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
            assert_eq!(rest[0]["item"]["id"], ended["output"][0]["id"], "what came of the call is the first");
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

async fn what_is_not_stored_is_gone(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let made =
        create(&world, json!({ "model": "demo/assistant", "input": "think 1 words", "store": false })).await;
    assert_eq!((text(&made), &made["store"]), ("I thought 1 word.".into(), &json!(false)));
    assert_eq!(made["conversation"], Value::Null, "it is gone with the response");
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

/// A request that comes again and leaves takes nothing from the first, which goes on.
async fn what_is_not_stored_stays_for_who_asked_first(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let gate = Release::default();
    world.play(wait_after(vec![delta("One")], &gate, "One"));
    let body = json!({ "model": "agent", "input": "hi", "store": false, "stream": true });
    let sent = || post(&world, "/v1/responses", &body).header("idempotency-key", "again");
    let mut first = Live::open(sent()).await;
    first.until("response.output_text.delta").await;
    let second = Live::open(sent()).await;
    assert_eq!(second.run(), first.run());
    drop(second);
    // What its leaving would have taken away is still there for a while.
    for _ in 0..20 {
        assert_eq!(world.count().await.0, 1);
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    gate.open();
    assert_eq!(first.rest().await.last().unwrap().kind(), "response.completed");
    nothing_is_left(&world).await;
    Some(())
}

/// Of a client that waits for the whole and leaves before.
async fn what_is_not_stored_goes_with_its_client(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let gate = Release::default();
    world.play(wait_after(vec![delta("One")], &gate, "One"));
    let body = json!({ "model": "agent", "input": "hi", "store": false });
    let asked = post(&world, "/v1/responses", &body).send();
    tokio::select! {
        answer = asked => panic!("it was answered: {answer:?}"),
        request = world.sandbox.request(0) => { request.unwrap(); }
    }
    // Its run ends as well.
    world.sandbox.disconnected(0).await.unwrap();
    nothing_is_left(&world).await;
    // At any moment, also while the turn is written down.
    let body = json!({ "model": "demo/assistant", "input": "think 3 words", "store": false });
    for n in 0..60 {
        let moment = std::time::Duration::from_micros(200 * n);
        tokio::time::timeout(moment, post(&world, "/v1/responses", &body).send()).await.ok();
    }
    nothing_is_left(&world).await;
    Some(())
}

async fn nothing_is_left(world: &World) {
    for _ in 0..1000 {
        if world.count().await == (0, 0) {
            return;
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
            json!({ "input": "hi", "tools": [{ "type": "web_search" }] }),
            400,
            "invalid_value",
            json!("tools.0.type"),
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
        (json!({ "input": "hi", "temperature": "hot" }), 400, "invalid_value", json!("temperature")),
        (json!({ "input": "hi", "top_p": 2 }), 400, "invalid_value", json!("top_p")),
        (json!({ "input": "hi", "max_output_tokens": -1 }), 400, "invalid_value", json!("max_output_tokens")),
        (json!({ "input": "hi", "max_tool_calls": "x" }), 400, "invalid_value", json!("max_tool_calls")),
        (
            json!({ "input": "hi", "parallel_tool_calls": 1 }),
            400,
            "invalid_value",
            json!("parallel_tool_calls"),
        ),
        (json!({ "input": "hi", "tool_choice": "zap" }), 400, "invalid_value", json!("tool_choice")),
        (
            json!({ "input": "hi", "text": { "format": { "type": "zap" } } }),
            400,
            "invalid_value",
            json!("text"),
        ),
        (json!({ "input": "hi", "service_tier": 1 }), 400, "invalid_value", json!("service_tier")),
        (json!({ "input": "hi", "truncation": "zap" }), 400, "invalid_value", json!("truncation")),
        (json!({ "input": "hi", "reasoning": "much" }), 400, "invalid_value", json!("reasoning")),
        (json!({ "input": "hi", "conversation": {} }), 400, "invalid_value", json!("conversation.id")),
        (
            json!({ "input": "x".repeat(400_001), "model": "demo/assistant" }),
            413,
            "message_too_long",
            json!("input"),
        ),
        (
            json!({ "input": "hi", "instructions": "x".repeat(400_001), "model": "demo/assistant" }),
            413,
            "message_too_long",
            json!("instructions"),
        ),
        (
            json!({ "input": "hi", "model": "0190a1b2-0000-7000-8000-00000000000c" }),
            400,
            "invalid_value",
            json!("model"),
        ),
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
    // What is nowhere is told in the same words.
    for path in ["/v1/embeddings", "/v1/messages/batches", "/v1/responses/a/b", "/v1/chat/completions/a"] {
        refused(&ask(post(&world, path, &json!({}))).await, 404, "not_found", Value::Null);
    }
    let broken =
        world.request(Method::POST, "/v1/responses").header("content-type", "application/json").body("{");
    refused(&ask(broken).await, 400, "malformed_document", Value::Null);
    let path = "/v1/responses/resp_0190a1b2000070008000000000000001";
    for value in ["1", "TRUE"] {
        let answer = world.get(&format!("{path}?stream={value}")).await;
        refused(&answer, 400, "invalid_parameter", json!("stream"));
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

async fn a_message_beside_a_decision_is_refused(backend: Backend) -> Option<()> {
    let (world, agent) = careful(backend).await?;
    let asked = create(&world, json!({ "model": agent, "input": "list files" })).await;
    let decision = json!({ "type": "mcp_approval_response", "approval_request_id": asked["output"][1]["id"],
        "approve": true });
    let place = |input: Value| json!({ "previous_response_id": asked["id"], "input": input });
    for role in ["user", "developer"] {
        let message = json!({ "role": role, "content": "and hurry" });
        for (input, param) in
            [(json!([decision, message]), "input.1"), (json!([message, decision]), "input.0")]
        {
            let answer = ask(post(&world, "/v1/responses", &place(input))).await;
            refused(&answer, 400, "invalid_value", json!(param));
        }
    }
    let path = format!("/v1/responses/{}", asked["id"].as_str().unwrap());
    assert_eq!(world.get(&path).await.body, asked, "nothing is decided");
    assert_eq!(create(&world, place(json!([decision]))).await["status"], "completed");
    Some(())
}

async fn a_key_that_comes_again_is_the_same_response(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let say = |text: &str, previous: &Value| {
        json!({ "model": "demo/assistant", "input": text,
        "previous_response_id": previous })
    };
    let keyed =
        async |body: &Value| ask(post(&world, "/v1/responses", body).header("idempotency-key", "k")).await;
    let one = create(&world, say("think 1 words", &Value::Null)).await;
    let two = create(&world, say("think 2 words", &one["id"])).await;
    let body = say("think 3 words", &two["id"]);
    let three = keyed(&body).await;
    let four = create(&world, say("think 4 words", &one["id"])).await;
    let before = items(&world, &four).await;
    let again = keyed(&body).await;
    assert_eq!((again.status, &again.body), (200, &three.body), "{}", again.text);
    assert_eq!(items(&world, &four).await, before, "the branch that was gone on with stays");
    let other = keyed(&say("think 5 words", &two["id"])).await;
    refused(&other, 422, "idempotency_key_reused", Value::Null);
    Some(())
}

/// As clients are written: each answer is looked through for what it asks, and all of that is decided.
async fn the_loop_over_approvals_ends(backend: Backend) -> Option<()> {
    let (world, _) = careful(backend).await?;
    let tools = ["search_pages", "search_user_tables"];
    let agent = json!({ "name": "Careful", "runner": "model", "model": "demo/assistant", "tools": tools,
        "approval": tools });
    let agent = world.send(Method::POST, "/v1/agents", Some(&agent)).await.body["id"].clone();
    // Together, the first one first, the last one first.
    for order in [vec![0, 1], vec![0], vec![1]] {
        for streams in [false, true] {
            let respond = async |mut body: Value| {
                body["stream"] = json!(streams);
                if !streams {
                    return create(&world, body).await;
                }
                let frames = stream(&world, body).await;
                let mut output: Vec<Value> = Vec::new();
                for frame in &frames {
                    let at = frame.data["output_index"].as_u64().map(|at| at as usize);
                    match frame.kind() {
                        "response.created" => {
                            output = frame.data["response"]["output"].as_array().unwrap().clone()
                        }
                        "response.output_item.added" => {
                            assert_eq!(at, Some(output.len()), "{}", frame.data);
                            output.push(frame.data["item"].clone());
                        }
                        "response.output_item.done" => output[at.unwrap()] = frame.data["item"].clone(),
                        _ => assert!(at.is_none_or(|at| at < output.len()), "{}", frame.data),
                    }
                }
                let whole = frames.last().unwrap().data["response"].clone();
                assert_eq!(whole["output"], json!(output), "what was told is what it holds");
                whole
            };
            let mut response = respond(json!({ "model": agent, "input": "search words" })).await;
            let mut rounds = 0;
            loop {
                let output = response["output"].as_array().unwrap().clone();
                let asks: Vec<&Value> =
                    output.iter().filter(|item| item["type"] == "mcp_approval_request").collect();
                if asks.is_empty() {
                    break;
                }
                rounds += 1;
                assert!(rounds < 4, "{response}");
                let decided = asks.iter().enumerate().filter(|(at, _)| order.contains(at) || asks.len() == 1);
                let input: Vec<Value> = decided
                    .map(|(_, item)| {
                        json!({ "type": "mcp_approval_response",
                    "approval_request_id": item["id"], "approve": true })
                    })
                    .collect();
                response = respond(json!({ "previous_response_id": response["id"], "input": input })).await;
            }
            assert_eq!((rounds, response["status"].as_str()), (3 - order.len(), Some("completed")));
            assert!(!text(&response).is_empty());
        }
    }
    Some(())
}

async fn no_tool_is_called_where_none_may_be(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let agent =
        json!({ "name": "Lister", "runner": "model", "model": "demo/assistant", "tools": ["list_files"] });
    let agent = world.send(Method::POST, "/v1/agents", Some(&agent)).await.body["id"].clone();
    let body = |choice: &str| json!({ "model": agent, "input": "list files", "tool_choice": choice });
    assert!(types(&create(&world, body("auto")).await).contains(&"function_call"));
    let made = create(&world, body("none")).await;
    assert_eq!((types(&made), &made["tool_choice"]), (vec!["message"], &json!("none")));
    Some(())
}
