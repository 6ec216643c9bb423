//! `/v1/conversations` and their items as OpenAI's clients use them.

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use testkit::sandbox::Release;
use testkit::server::Backend;

use crate::responses::{create, items, items_path, post, refused, stream, text, types, uuid};
use crate::scripts::{delta, lines, result, step, wait_after};
use crate::told::{Live, joined};
use crate::world::{World, ask, stories};

stories!(
    conversations_have_items_and_metadata,
    texts_that_follow_each_other_stay_apart,
    images_and_files_of_items_are_kept,
    items_are_what_responses_put_out,
    an_item_is_taken_out,
    an_output_may_come_after_its_call,
    what_a_call_is_given_stays_as_it_was,
    items_come_back_as_they_were_given,
);

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
    // Words that are the name of their file are somebody's, and those of a picture that was renamed are nobody's.
    let same =
        json!({ "items": [user(json!([text("b.txt"), file("b.txt", "aGk=")])), user(json!([image]))] });
    let both = ask(post(&world, "/v1/conversations", &same)).await.body;
    let both = read(&format!("/v1/conversations/{}/items", both["id"].as_str().unwrap())).await;
    assert_eq!(both[0]["content"][0], text("b.txt"));
    for _ in 0..2 {
        let body =
            json!({ "model": "demo/assistant", "input": [user(json!([image]))], "conversation": made["id"] });
        create(&world, body).await;
    }
    let pictures = read(&path).await;
    let bare = |item: &&Value| item["role"] == "user" && item["content"].as_array().map(Vec::len) == Some(1);
    assert_eq!(pictures.as_array().unwrap().iter().filter(bare).count(), 2, "{pictures}");
    let listed = read(&path).await;
    // They are the bag's, tied to their messages.
    let bag = format!("/v1/chat-conversations/{}/files", uuid(&made["id"], "conv_"));
    let files = world.get(&bag).await.body["data"].clone();
    assert_eq!(files.as_array().unwrap().len(), 6, "{files}");
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
    assert_eq!(found.body["data"], json!([]), "{}", found.text);
    assert_eq!(world.conversation(&conversation).await["title"], Value::Null);
    // The AI SDK takes no message without a part.
    let chat = world.get(&format!("/v1/ai/chat/{conversation}")).await.body;
    let texts: Vec<&Value> = chat["messages"].as_array().unwrap().iter().map(|one| &one["parts"]).collect();
    assert_eq!(texts.len(), 2, "{chat}");
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
    // Whoever only sees the conversation takes nothing out of it.
    let bob = world.member("bob").await;
    let shared = json!({ "data": { "type": "chat_conversation", "id": conversation,
        "attributes": { "visibility": "workspace" } } });
    let patch = world.request(Method::PATCH, &format!("/v1/chat-conversations/{conversation}"));
    let patch = patch.header("content-type", "application/vnd.api+json").body(shared.to_string());
    assert_eq!(ask(patch).await.status, 200);
    for path in
        [format!("{path}/items/{}", left[0]), format!("/v1/responses/{}", response["id"].as_str().unwrap())]
    {
        assert_eq!(bob.get(&path).await.status, 200, "{path}");
        refused(&bob.send(Method::DELETE, &path, None).await, 403, "forbidden", Value::Null);
    }
    assert_eq!(left.len(), before.len() - 6, "{before:?} {left:?}");
    assert!(left.iter().all(|id| before.contains(id)) && left.last() == before.last(), "{before:?} {left:?}");
    Some(())
}

async fn an_output_may_come_after_its_call(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let call = |id: &str| json!({ "type": "function_call", "call_id": id, "name": "f", "arguments": "{}" });
    let output =
        |id: &str, output: Value| json!({ "type": "function_call_output", "call_id": id, "output": output });
    let given = json!([{ "role": "user", "content": "Go" }]);
    let made = ask(post(&world, "/v1/conversations", &json!({ "items": given }))).await.body;
    let path = format!("/v1/conversations/{}/items", made["id"].as_str().unwrap());
    let add = async |items: Value| ask(post(&world, &path, &json!({ "items": items }))).await;
    let listed = async || world.get(&format!("{path}?order=asc")).await.body["data"].clone();
    let added = add(json!([call("a"), call("b"), call("c")])).await.body["data"].clone();
    assert_eq!(types(&json!({ "output": added })), ["function_call"; 3]);
    assert_eq!(added.as_array().unwrap()[..], listed().await.as_array().unwrap()[1..]);
    // Both at once, each in a request of its own.
    let (first, second) = tokio::join!(
        add(json!([output("b", json!([{ "type": "input_text", "text": "two" }]))])),
        add(json!([output("a", json!("one")), { "role": "user", "content": "And?" }]))
    );
    let (first, second) = (&first.body["data"], &second.body["data"]);
    assert_eq!((&first[0]["call_id"], &first[0]["output"]), (&json!("b"), &json!("two")), "{first}");
    assert_eq!((&second[0]["call_id"], &second[0]["output"]), (&json!("a"), &json!("one")), "{second}");
    assert_eq!(second.as_array().unwrap().len(), 2, "{second}");
    let all = listed().await;
    let (made, came) = ("function_call", "function_call_output");
    assert_eq!(
        types(&json!({ "output": all })),
        ["message", made, came, made, came, made, "message"],
        "{all}"
    );
    assert_eq!([&all[1], &all[3], &all[5]], [&added[0], &added[1], &added[2]]);
    assert_eq!([&all[2], &all[4], &all[6]], [&second[0], &first[0], &second[1]]);
    // There is one for each call, and only where it waits: of a refused request nothing is kept.
    for items in [
        json!([output("b", json!("again"))]),
        json!([output("never", json!("x"))]),
        json!([output("c", json!("x")), output("c", json!("y"))]),
    ] {
        let at = items.as_array().unwrap().len() - 1;
        let answer = add(items).await;
        refused(&answer, 400, "invalid_value", json!(format!("items.{at}.call_id")));
    }
    for given in [Value::Null, json!(5), json!({ "text": "x" })] {
        refused(&add(json!([output("c", given)])).await, 400, "invalid_value", json!("items.0.output"));
    }
    let part = json!([{ "type": "input_text", "text": "x" }, { "type": "output_text", "text": "y" }]);
    refused(&add(json!([output("c", part)])).await, 400, "invalid_value", json!("items.0.output.1"));
    let alone = json!({ "items": [{ "role": "user", "content": "Go" }, output("c", json!("x"))] });
    let answer = ask(post(&world, "/v1/conversations", &alone)).await;
    refused(&answer, 400, "invalid_value", json!("items.1.call_id"));
    assert_eq!(listed().await, all);
    Some(())
}

async fn what_a_call_is_given_stays_as_it_was(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let call = |arguments: &Value| json!({ "type": "function_call", "call_id": "a", "name": "f", "arguments": arguments });
    for arguments in ["{\"x\":1}", "{bad", "[1]", "\"x\"", "7", "null"] {
        let made = json!({ "items": [call(&json!(arguments))] });
        let made = ask(post(&world, "/v1/conversations", &made)).await.body;
        let path = format!("/v1/conversations/{}/items", made["id"].as_str().unwrap());
        let item = world.get(&path).await.body["data"][0].clone();
        assert_eq!(item["arguments"], arguments);
        // And so it does when it comes back.
        let again = ask(post(&world, &path, &json!({ "items": [item] }))).await.body["data"][0].clone();
        assert_eq!(again["arguments"], arguments);
    }
    let answer = ask(post(&world, "/v1/conversations", &json!({ "items": [call(&json!({}))] }))).await;
    refused(&answer, 400, "invalid_value", json!("items.0.arguments"));
    Some(())
}

async fn items_come_back_as_they_were_given(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let cited = json!({ "type": "url_citation", "url": "https://a.example/", "title": "A", "start_index": 0,
        "end_index": 3 });
    let part = |text: &str, annotations: Value| json!({ "type": "output_text", "text": text, "annotations": annotations, "logprobs": [] });
    let said = |content: Value| json!({ "type": "message", "role": "assistant", "status": "completed", "content": [content] });
    let thought = |text: &str| {
        json!({ "type": "reasoning", "status": "completed", "encrypted_content": format!("of {text}"),
        "summary": [{ "type": "summary_text", "text": text }] })
    };
    let mut phased = said(part("Look.", json!([])));
    phased["phase"] = json!("commentary");
    let mut both = thought("Both.");
    both["content"] = json!([{ "type": "reasoning_text", "text": "All of it." }]);
    let given = vec![
        json!({ "type": "message", "role": "developer", "status": "completed",
            "content": [{ "type": "input_text", "text": "Be brief." }] }),
        json!({ "type": "message", "role": "user", "status": "completed",
            "content": [{ "type": "input_text", "text": "Go" }] }),
        thought("One."),
        both,
        phased,
        said(json!({ "type": "refusal", "refusal": "I may not." })),
        said(part("See A.", json!([cited]))),
    ];
    let made = ask(post(&world, "/v1/conversations", &json!({ "items": given }))).await.body;
    let path = format!("/v1/conversations/{}", made["id"].as_str().unwrap());
    let listed = async || -> (Vec<String>, Vec<Value>) {
        let list = world.get(&format!("{path}/items?order=asc")).await.body["data"].clone();
        let mut items: Vec<Value> = serde_json::from_value(list).unwrap();
        let ids = items.iter_mut().map(|item| item.as_object_mut().unwrap().remove("id").unwrap());
        (ids.map(|id| id.as_str().unwrap().to_owned()).collect(), items)
    };
    let (ids, items) = listed().await;
    assert_eq!(items, given);
    // Also once others of them are gone, of which nothing is kept.
    for at in [2, 4, 0] {
        let gone = format!("{path}/items/{}", ids[at]);
        assert_eq!(world.send(Method::DELETE, &gone, None).await.status, 200);
    }
    let left = [&given[1], &given[3], &given[5], &given[6]];
    assert_eq!(listed().await.1.iter().collect::<Vec<_>>(), left);
    let thread = world.conversation(&uuid(&made["id"], "conv_")).await.to_string();
    for gone in ["of One.", "commentary", "developer"] {
        assert!(!thread.contains(gone), "{gone}: {thread}");
    }
    Some(())
}
