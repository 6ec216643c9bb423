//! Clients of `/v1/responses` that bring tools of their own, with a scripted model.

use domain::secret::Secret;
use reqwest::Method;
use serde_json::{Value, json};
use testkit::sandbox::{Action, ScriptedSandbox};
use testkit::server::Backend;

use crate::responses::{create, items, post, refused, stream, text, types, uuid};
use crate::world::{World, ask, stories};

stories!(
    a_client_makes_the_call_of_its_tool,
    outputs_of_calls_at_once_may_come_apart,
    a_round_of_both_is_over_when_all_have_ended,
    only_functions_are_taken,
    a_waiting_run_is_cancelled,
    a_model_has_as_many_calls_as_its_client_says,
);

fn events(list: &[Value]) -> Vec<Action> {
    let mut text: String = list.iter().map(|event| format!("data: {event}\n\n")).collect();
    text.push_str("data: [DONE]\n\n");
    let headers = vec![("content-type", "text/event-stream".to_owned())];
    vec![Action::Headers("200 OK", headers), Action::Bytes(text.into_bytes())]
}

fn says(text: &str) -> Vec<Action> {
    events(&[
        json!({ "choices": [{ "delta": { "content": text } }] }),
        json!({ "choices": [{ "delta": {}, "finish_reason": "stop" }] }),
    ])
}

fn calls(calls: &[(&str, &str, &str)]) -> Vec<Action> {
    let call = |(index, (id, name, args)): (usize, &(&str, &str, &str))| json!({ "index": index, "id": id, "function": { "name": name, "arguments": args } });
    let calls: Vec<Value> = calls.iter().enumerate().map(call).collect();
    events(&[
        json!({ "choices": [{ "delta": { "tool_calls": calls } }] }),
        json!({ "choices": [{ "delta": {}, "finish_reason": "tool_calls" }] }),
    ])
}

/// A server that ends at once what nobody reads, with a model that plays these answers.
async fn scripted(backend: Backend, answers: Vec<Vec<Action>>) -> Option<(World, ScriptedSandbox)> {
    let model = ScriptedSandbox::start(says("Nothing more.")).await.unwrap();
    for answer in answers {
        model.play(answer);
    }
    let world = World::start_with(backend, |config| {
        config.limits.disconnect_grace_seconds = 0;
        config.openai.api_key = Some(Secret::new("sk-test"));
        config.openai.base_url = Some(format!("{}/v1", model.url()));
    });
    Some((world.await?, model))
}

fn function(name: &str) -> Value {
    let parameters = json!({ "type": "object", "properties": { "city": { "type": "string" } } });
    json!({ "type": "function", "name": name, "description": "The client's", "parameters": parameters,
        "strict": false })
}

fn output(call: &str, output: Value) -> Value {
    json!({ "type": "function_call_output", "call_id": call, "output": output })
}

fn more(response: &Value, outputs: &[Value]) -> Value {
    json!({ "previous_response_id": response["id"], "input": outputs, "tools": [function("weather")] })
}

/// The call ids of a response's calls.
fn called(response: &Value) -> Vec<&str> {
    let items = response["output"].as_array().unwrap().iter();
    items
        .filter(|item| item["type"] == "function_call")
        .map(|item| item["call_id"].as_str().unwrap())
        .collect()
}

/// The last answers to calls that the model was sent.
fn answers(model: &ScriptedSandbox) -> Vec<String> {
    let requests = model.requests();
    let messages = requests.last().unwrap().body["messages"].as_array().unwrap().clone();
    let answers = messages.iter().filter(|message| message["role"] == "tool");
    answers.map(|message| message["content"].as_str().unwrap().to_owned()).collect()
}

async fn a_client_makes_the_call_of_its_tool(backend: Backend) -> Option<()> {
    for streams in [false, true] {
        // A provider may call every call the same.
        let one = || calls(&[("c", "weather", r#"{"city":"Graz"}"#)]);
        let (world, model) = scripted(backend, vec![one(), one(), says("It is cold.")]).await?;
        let respond = async |mut body: Value| {
            body["stream"] = json!(streams);
            if !streams {
                return create(&world, body).await;
            }
            let frames = stream(&world, body).await;
            assert_eq!(frames.last().unwrap().kind(), "response.completed");
            frames.last().unwrap().data["response"].clone()
        };
        let body = json!({ "model": "openai/m", "input": "How is it?", "tools": [function("weather")],
            "tool_choice": { "type": "function", "name": "weather" } });
        let asked = respond(body).await;
        assert_eq!((&asked["status"], &asked["tools"]), (&json!("completed"), &json!([function("weather")])));
        assert_eq!((types(&asked), called(&asked)), (vec!["function_call"], vec!["c"]));
        assert_eq!(asked["output"][0]["arguments"], r#"{"city":"Graz"}"#);
        let sent = model.requests()[0].body.clone();
        assert_eq!(sent["tool_choice"], json!({ "type": "function", "function": { "name": "weather" } }));
        let offered = sent["tools"].as_array().unwrap().last().unwrap()["function"].clone();
        assert_eq!(
            (&offered["name"], &offered["parameters"]),
            (&json!("weather"), &function("weather")["parameters"])
        );
        // Its client has gone, and it waits; nobody is asked for an approval.
        let run = uuid(&asked["id"], "resp_");
        assert_eq!(world.run(&run).await["status"], "running");
        let approvals = world.get(&format!("/v1/runs/{run}/approvals")).await.body;
        assert_eq!(approvals["data"], json!([]));
        let path = format!("/v1/responses/{}", asked["id"].as_str().unwrap());
        assert_eq!(world.get(&path).await.body, asked);
        for (outputs, param) in [
            (json!([output("nope", json!("x"))]), "input.0.call_id"),
            (json!([output("c", json!("x")), output("nope", json!("x"))]), "input.1.call_id"),
            (json!([output("c", json!(7))]), "input.0.output"),
            (json!([output("c", json!("x")), { "role": "user", "content": "And?" }]), "input.1"),
        ] {
            let refusal =
                ask(post(&world, "/v1/responses", &more(&asked, outputs.as_array().unwrap()))).await;
            refused(&refusal, 400, "invalid_value", json!(param));
        }
        let second = respond(more(&asked, &[output("c", json!("3 °C"))])).await;
        assert_eq!((&second["id"], called(&second)), (&asked["id"], vec!["c-2"]), "{second}");
        assert_eq!(answers(&model), ["3 °C"]);
        let parts = json!([{ "type": "input_text", "text": "4" }, { "type": "input_text", "text": "°C" }]);
        let body = json!({ "conversation": asked["conversation"]["id"], "input": [output("c-2", parts)] });
        let ended = respond(body.clone()).await;
        assert_eq!((types(&ended), text(&ended)), (vec!["message"], "It is cold.".into()));
        assert_eq!(answers(&model), ["3 °C", "4\n\n°C"]);
        assert_eq!(types(&world.get(&path).await.body), ["function_call", "function_call", "message"]);
        // The same once more is no other, after the end too.
        assert_eq!(respond(body).await, ended);
        let other = ask(post(&world, "/v1/responses", &more(&asked, &[output("c", json!("5 °C"))]))).await;
        assert_eq!(other.status, 409, "{}", other.text);
        let kinds: Vec<Value> = items(&world, &ended).await.iter().map(|item| item["type"].clone()).collect();
        let both = ["function_call", "function_call_output"];
        assert_eq!(json!(kinds), json!(["message", both[0], both[1], both[0], both[1], "message"]));
    }
    Some(())
}

async fn outputs_of_calls_at_once_may_come_apart(backend: Backend) -> Option<()> {
    let two = || calls(&[("a", "weather", r#"{"city":"Graz"}"#), ("b", "weather", r#"{"city":7}"#)]);
    for streams in [false, true] {
        for order in [vec!["a", "b"], vec!["a"], vec!["b"]] {
            let (world, model) = scripted(backend, vec![two(), says("Cold.")]).await?;
            let respond = async |mut body: Value| {
                body["stream"] = json!(streams);
                if !streams {
                    return create(&world, body).await;
                }
                let mut told: Vec<Value> = Vec::new();
                let frames = stream(&world, body).await;
                for frame in &frames {
                    let at = frame.data["output_index"].as_u64().map(|at| at as usize);
                    match frame.kind() {
                        "response.output_item.added" => {
                            assert_eq!(at, Some(told.len()), "{}", frame.data);
                            told.push(frame.data["item"].clone());
                        }
                        "response.output_item.done" => told[at.unwrap()] = frame.data["item"].clone(),
                        _ => assert!(at.is_none_or(|at| at < told.len()), "{}", frame.data),
                    }
                }
                let whole = frames.last().unwrap().data["response"].clone();
                assert_eq!(whole["output"], json!(told));
                whole
            };
            let body = json!({ "model": "openai/m", "input": "Where?", "tools": [function("weather")] });
            let asked = respond(body).await;
            assert_eq!(called(&asked), ["a", "b"], "what fits its tool is for the client to say");
            let outputs = |names: &[&str]| -> Vec<Value> {
                names.iter().map(|name| output(name, json!(format!("of {name}")))).collect()
            };
            let mut response = respond(more(&asked, &outputs(&order))).await;
            if order.len() == 1 {
                let rest = if order[0] == "a" { "b" } else { "a" };
                assert_eq!((types(&response), called(&response)), (vec!["function_call"], vec![rest]));
                response = respond(more(&asked, &outputs(&[rest]))).await;
            }
            assert_eq!(text(&response), "Cold.");
            let mut heard = answers(&model);
            heard.sort();
            assert_eq!(heard, ["of a", "of b"]);
        }
    }
    Some(())
}

async fn a_round_of_both_is_over_when_all_have_ended(backend: Backend) -> Option<()> {
    let three = calls(&[
        ("a", "list_files", "{}"),
        ("b", "weather", "{}"),
        ("c", "search_pages", r#"{"query":"x"}"#),
    ]);
    let (world, model) = scripted(backend, vec![three, says("Done.")]).await?;
    let agent = json!({ "name": "Both", "runner": "model", "model": "openai/m",
        "tools": ["list_files", "search_pages"], "approval": ["list_files"] });
    let agent = world.send(Method::POST, "/v1/agents", Some(&agent)).await.body["id"].clone();
    // The client's own `search_pages` takes the place of the server's.
    let tools = json!([function("weather"), function("search_pages")]);
    let asked = create(&world, json!({ "model": agent, "input": "Go", "tools": tools })).await;
    let calls = vec!["function_call"; 3];
    assert_eq!(types(&asked), [calls, vec!["mcp_approval_request"]].concat());
    let approval = &asked["output"][3];
    assert_eq!(approval["name"], "list_files");
    let decide =
        json!({ "type": "mcp_approval_response", "approval_request_id": approval["id"], "approve": true });
    // A person does not decide on the client's calls, nor does the client make the server's.
    let wrong = ask(post(&world, "/v1/responses", &more(&asked, &[output("a", json!("x"))]))).await;
    refused(&wrong, 400, "invalid_value", json!("input.0.call_id"));
    let second = create(&world, more(&asked, &[output("b", json!("cold")), decide])).await;
    assert_eq!(types(&second), ["function_call", "function_call_output"], "{second}");
    assert_eq!(called(&second), ["c"]);
    let ended = create(&world, more(&asked, &[output("c", json!("found"))])).await;
    // All that came after the call that it brings the output of.
    assert_eq!((types(&ended), text(&ended)), (vec!["function_call_output", "message"], "Done.".into()));
    assert_eq!(answers(&model).len(), 3);
    let names = model.requests()[0].body["tools"].as_array().unwrap().clone();
    let names: Vec<&str> = names.iter().map(|tool| tool["function"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["list_files", "weather", "search_pages"]);
    Some(())
}

async fn only_functions_are_taken(backend: Backend) -> Option<()> {
    let (world, _model) = scripted(backend, Vec::new()).await?;
    let with = |name: &str, value: Value| {
        let mut tool = function("weather");
        tool[name] = value;
        json!([function("first"), tool])
    };
    let many: Vec<Value> = (0..129).map(|n| function(&format!("f{n}"))).collect();
    for (tools, param) in [
        (json!({}), "tools"),
        (json!(many), "tools"),
        (json!([{ "type": "web_search" }]), "tools.0.type"),
        (with("name", json!("a b")), "tools.1.name"),
        (with("name", json!("x".repeat(65))), "tools.1.name"),
        (with("name", json!("first")), "tools.1.name"),
        (with("parameters", json!("{}")), "tools.1.parameters"),
        (with("strict", json!("yes")), "tools.1.strict"),
    ] {
        let body = json!({ "model": "openai/m", "input": "Hi", "tools": tools });
        refused(&ask(post(&world, "/v1/responses", &body)).await, 400, "invalid_value", json!(param));
    }
    let tools = json!([function("weather")]);
    for (model, store, param) in [("agent", true, "tools"), ("openai/m", false, "store")] {
        let body = json!({ "model": model, "input": "Hi", "tools": tools, "store": store });
        refused(&ask(post(&world, "/v1/responses", &body)).await, 400, "invalid_value", json!(param));
    }
    assert_eq!(world.count().await, (0, 0), "nothing is written for what is refused");
    Some(())
}

async fn a_waiting_run_is_cancelled(backend: Backend) -> Option<()> {
    let (world, _model) = scripted(backend, vec![calls(&[("c", "weather", "{}")])]).await?;
    let body = json!({ "model": "openai/m", "input": "Hi", "tools": [function("weather")] });
    let asked = create(&world, body).await;
    let path = format!("/v1/responses/{}/cancel", asked["id"].as_str().unwrap());
    let ended = ask(post(&world, &path, &json!({}))).await;
    assert_eq!(ended.body["status"], "cancelled", "{}", ended.text);
    let late = ask(post(&world, "/v1/responses", &more(&asked, &[output("c", json!("x"))]))).await;
    assert_eq!(late.status, 409, "{}", late.text);
    Some(())
}

async fn a_model_has_as_many_calls_as_its_client_says(backend: Backend) -> Option<()> {
    let list = |ids: &[&str]| calls(&ids.iter().map(|id| (*id, "list_files", "{}")).collect::<Vec<_>>());
    let weather = calls(&[("w", "weather", "{}")]);
    let (world, model) =
        scripted(backend, vec![list(&["a"]), list(&["b", "c"]), weather, says("Done.")]).await?;
    let agent = json!({ "name": "Lister", "runner": "model", "model": "openai/m", "tools": ["list_files"] });
    let agent = world.send(Method::POST, "/v1/agents", Some(&agent)).await.body["id"].clone();
    let body = json!({ "model": agent, "input": "Go", "tools": [function("weather")], "max_tool_calls": 2 });
    let asked = create(&world, body).await;
    assert_eq!((&asked["max_tool_calls"], called(&asked)), (&json!(2), vec!["a", "b", "c", "w"]), "{asked}");
    // One too many is not made, and from then on only the client's own is offered.
    let heard = answers(&model);
    assert_eq!((heard.len(), heard[0] == heard[1]), (3, true), "{heard:?}");
    assert!(heard[2].contains("no calls left"), "{heard:?}");
    let offered: Vec<Value> = model.requests().iter().map(|request| request.body["tools"].clone()).collect();
    let counts: Vec<usize> = offered.iter().map(|tools| tools.as_array().unwrap().len()).collect();
    assert_eq!(counts, [2, 2, 1]);
    assert_eq!(offered[2][0]["function"]["name"], "weather");
    let ended = create(&world, more(&asked, &[output("w", json!("cold"))])).await;
    assert_eq!(text(&ended), "Done.");
    Some(())
}
