//! What a model is shown beside the thread's words: files in the form it takes, and a summary of what is left out.

use domain::secret::Secret;
use reqwest::Method;
use serde_json::{Value, json};
use testkit::form::Form;
use testkit::sandbox::{Action, ScriptedSandbox};
use testkit::server::Backend;

use crate::world::{World, ask, refused, stories};

stories!(
    files_are_shown_in_each_vendors_form_and_stay_where_they_are,
    a_model_that_sees_nothing_is_told_in_words,
    a_deleted_file_is_shown_no_more,
    what_is_left_out_is_summed_up_once,
    a_server_on_this_machine_is_offered_and_answers,
    an_edit_that_cannot_fit_is_refused,
);

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0";
const PDF: &[u8] = b"%PDF-1.7\n\x80\x81\n1 0 obj\n";

fn answer(text: &str) -> Vec<Action> {
    let delta = json!({ "choices": [{ "index": 0, "delta": { "content": text }, "finish_reason": "stop" }] });
    let usage = json!({ "choices": [], "usage": { "prompt_tokens": 10, "completion_tokens": 5 } });
    let start =
        json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": text } });
    let stop = json!({ "type": "message_stop" });
    // Each vendor's reader passes over what is the other's.
    let events = [delta, usage, start, stop].map(|event| format!("data: {event}\n\n")).concat();
    let headers = vec![("content-type", "text/event-stream".to_owned())];
    vec![Action::Headers("200 OK", headers), Action::Bytes(events.into_bytes())]
}

async fn world(
    backend: Backend,
    change: impl FnOnce(&mut server::config::Config),
) -> Option<(World, ScriptedSandbox)> {
    let provider = ScriptedSandbox::start(answer("I see.")).await.unwrap();
    let world = World::start_with(backend, |config| {
        config.openai.api_key = Some(Secret::new("sk-openai"));
        config.openai.base_url = Some(format!("{}/v1", provider.url()));
        config.anthropic.api_key = Some(Secret::new("sk-anthropic"));
        config.anthropic.base_url = Some(provider.url());
        config.limits.model_retries = 0;
        change(config);
    });
    Some((world.await?, provider))
}

/// A conversation with these files in its bag; their ids.
async fn bag(world: &World, model: &str, files: &[(&str, &[u8])]) -> (String, Vec<String>) {
    let first = world.begin(&json!({ "message": "Hi", "mode": "ask", "model": model })).await;
    let conversation = first.conversation();
    first.rest().await;
    let form = files.iter().fold(Form::new(), |form, (name, bytes)| form.file(name, bytes));
    let upload = world.request(Method::POST, &format!("/v1/chat-conversations/{conversation}/files"));
    let uploaded = ask(upload.header("content-type", Form::kind()).body(form.end())).await;
    assert_eq!(uploaded.status, 201, "{}", uploaded.text);
    let ids = uploaded.body["files"].as_array().unwrap();
    (conversation, ids.iter().map(|file| file["id"].as_str().unwrap().to_owned()).collect())
}

/// The messages of a request, without what only the newest has.
fn messages(request: &testkit::sandbox::Recorded) -> Vec<Value> {
    let mut messages = request.body["messages"].as_array().unwrap().clone();
    for part in messages.iter_mut().filter_map(|message| message["content"].as_array_mut()).flatten() {
        part.as_object_mut().unwrap().remove("cache_control");
    }
    messages
}

async fn files_are_shown_in_each_vendors_form_and_stay_where_they_are(backend: Backend) -> Option<()> {
    let (world, provider) = world(backend, |_| {}).await?;
    let files: &[(&str, &[u8])] = &[
        ("notes.txt", b"buy milk"),
        ("photo.png", PNG),
        ("report.pdf", PDF),
        ("music.mp3", b"ID3\x04\0\0\0\0"),
    ];
    let mut asked = 0;
    for model in ["openai/gpt-5-mini", "anthropic/claude-sonnet-4-5"] {
        let (conversation, ids) = bag(&world, model, files).await;
        let turn = json!({ "conversation": conversation, "message": "What is this?", "attachments": ids });
        let stream = world.begin(&turn).await;
        let run = stream.run();
        stream.rest().await;
        let sent = messages(&provider.request(asked + 1).await.unwrap());
        let content = sent.last().unwrap()["content"].as_array().unwrap().clone();
        let texts: Vec<&str> = content.iter().filter_map(|part| part["text"].as_str()).collect();
        assert_eq!(texts[0], "[File notes.txt]\nbuy milk\n[End of notes.txt]");
        assert!(
            texts[1].starts_with("What is this?\n\n[Attached files: notes.txt (text/plain, 8 bytes), "),
            "{texts:?}"
        );
        assert!(texts[1].contains("music.mp3 (audio/mpeg, 8 bytes; models are not shown"), "{texts:?}");
        let kinds: Vec<&str> = content.iter().map(|part| part["type"].as_str().unwrap()).collect();
        if model.starts_with("openai") {
            assert_eq!(kinds, ["text", "image_url", "file", "text"]);
            let url = content[1]["image_url"]["url"].as_str().unwrap();
            assert!(url.starts_with("data:image/png;base64,iVBORw0KGgo"), "{url}");
            assert_eq!(content[2]["file"]["filename"], "report.pdf");
            assert!(
                content[2]["file"]["file_data"]
                    .as_str()
                    .unwrap()
                    .starts_with("data:application/pdf;base64,JVBER")
            );
        } else {
            assert_eq!(kinds, ["text", "image", "document", "text"]);
            let source = &content[1]["source"];
            assert_eq!((&source["type"], &source["media_type"]), (&json!("base64"), &json!("image/png")));
            assert!(content[2]["source"]["data"].as_str().unwrap().starts_with("JVBER"));
        }
        let (trace, _) = world.trace(&run).await;
        let told = json!(trace).to_string();
        assert!(told.contains("with the files notes.txt, photo.png, report.pdf"), "{told}");
        assert!(told.contains("the file music.mp3: models are not shown"), "{told}");
        assert!(!told.contains("iVBOR"), "no bytes in the trace");
        // The next prompt begins with the same.
        world.tell(&json!({ "conversation": conversation, "message": "And now?" })).await;
        let next = messages(&provider.request(asked + 2).await.unwrap());
        assert_eq!(next[..sent.len()], sent[..]);
        asked += 3;
    }
    Some(())
}

async fn a_model_that_sees_nothing_is_told_in_words(backend: Backend) -> Option<()> {
    let (world, provider) = world(backend, |config| config.openai.inputs = vec!["none".into()]).await?;
    let long = "x".repeat(250_000);
    let files: &[(&str, &[u8])] = &[("photo.png", PNG), ("report.pdf", PDF), ("long.txt", long.as_bytes())];
    let (conversation, ids) = bag(&world, "openai/gpt-5", files).await;
    world.tell(&json!({ "conversation": conversation, "message": "Look", "attachments": ids })).await;
    let request = provider.request(1).await.unwrap();
    let said =
        request.body["messages"].as_array().unwrap().last().unwrap()["content"].as_str().unwrap().to_owned();
    for words in [
        "photo.png (image/png, 29 bytes; this model is not shown pictures)",
        "not shown PDF",
        "read_file reads it",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    Some(())
}

async fn a_deleted_file_is_shown_no_more(backend: Backend) -> Option<()> {
    let (world, provider) = world(backend, |_| {}).await?;
    let (conversation, ids) = bag(&world, "openai/gpt-5", &[("notes.txt", b"the secret recipe")]).await;
    world.tell(&json!({ "conversation": conversation, "message": "Look", "attachments": ids })).await;
    assert!(provider.request(1).await.unwrap().body.to_string().contains("the secret recipe"));
    let path = format!("/v1/chat-conversations/{conversation}/files/{}", ids[0]);
    assert_eq!(world.send(Method::DELETE, &path, None).await.status, 204);
    world.tell(&json!({ "conversation": conversation, "message": "And now?" })).await;
    let sent = provider.request(2).await.unwrap().body.to_string();
    assert!(
        !sent.contains("the secret recipe") && sent.contains("notes.txt cannot be read any more"),
        "{sent}"
    );
    Some(())
}

async fn what_is_left_out_is_summed_up_once(backend: Backend) -> Option<()> {
    let budget = 4000;
    let (world, provider) = world(backend, |config| {
        config.limits.context_budget_chars = budget;
        config.context_summary = true;
    })
    .await?;
    let first = world.begin(&json!({ "message": "The first", "mode": "ask", "model": "openai/m" })).await;
    let conversation = first.conversation();
    first.rest().await;
    for n in 0..24 {
        let message = format!("{n} {}", "q".repeat(300));
        world.tell(&json!({ "conversation": conversation, "message": message })).await;
    }
    let (mut summaries, mut moves, mut tokens) = (0, 0, 0);
    let mut before: Vec<Value> = Vec::new();
    for request in provider.requests() {
        tokens += 15;
        let sent = request.body["messages"].as_array().unwrap().clone();
        let chars = |message: &Value| message["content"].as_str().unwrap().chars().count();
        assert!(sent.iter().map(chars).sum::<usize>() as u64 <= budget);
        if sent[0]["content"].as_str().unwrap().starts_with("Sum up") {
            summaries += 1;
            continue;
        }
        if !sent.starts_with(&before) {
            moves += 1;
            let opening = sent[1]["content"].as_str().unwrap();
            assert!(
                opening.starts_with("[A summary of the conversation before this")
                    && opening.contains("I see."),
                "{opening}"
            );
        }
        before = sent;
    }
    assert!((2..=8).contains(&moves), "the cut moved {moves} times");
    assert_eq!(summaries, moves, "made once for each move");
    assert_eq!(world.conversation(&conversation).await["total_tokens"], tokens, "its tokens are counted");
    Some(())
}

async fn a_server_on_this_machine_is_offered_and_answers(backend: Backend) -> Option<()> {
    let list = br#"{"object":"list","data":[{"id":"llama3.2:3b","object":"model","owned_by":"library"}]}"#;
    let headers = vec![("content-type", "application/json".to_owned())];
    let listing = vec![Action::Headers("200 OK", headers), Action::Bytes(list.to_vec())];
    let ollama = ScriptedSandbox::start(listing).await.unwrap();
    let world = World::start_with(backend, |config| config.ollama_url = Some(ollama.url())).await?;
    let listed = world.get("/v1/models").await.body["data"].clone();
    assert_eq!(
        (&listed[0]["id"], &listed[1]["id"]),
        (&json!("ollama/llama3.2:3b"), &json!("demo/assistant"))
    );
    let ollama = ScriptedSandbox::start(answer("Here.")).await.unwrap();
    let world = World::start_with(backend, |config| config.ollama_url = Some(ollama.url())).await?;
    let turn = world.begin(&json!({ "message": "Hi", "mode": "ask", "model": "ollama/llama3.2:3b" })).await;
    let conversation = turn.conversation();
    turn.rest().await;
    assert_eq!(world.thread(&conversation).await[1].1, "Here.");
    let sent = ollama.requests().into_iter().find(|request| request.method == "POST").unwrap();
    assert_eq!((sent.path.as_str(), &sent.body["model"]), ("/v1/chat/completions", &json!("llama3.2:3b")));
    // Nothing is looked for when that is switched off.
    let off = ScriptedSandbox::start(answer("")).await.unwrap();
    let world = World::start_with(backend, |config| {
        config.ollama_url = Some(off.url());
        config.local_models = false;
    })
    .await?;
    assert_eq!(world.get("/v1/models").await.body["data"].as_array().unwrap().len(), 1);
    assert!(off.requests().is_empty());
    Some(())
}

async fn an_edit_that_cannot_fit_is_refused(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    world.play(crate::scripts::hang_after(vec![]));
    let first = world.begin_async(&json!({ "message": "one" })).await;
    let waiting = |mode: &str| json!({ "conversation": first["conversation"], "message": "two", "mode": mode, "on_busy": "enqueue" });
    let (by_model, in_sandbox) =
        (world.begin_async(&waiting("ask")).await, world.begin_async(&waiting("agent")).await);
    let long = json!({ "message": "é".repeat(400_000) });
    let edit = async |run: &Value| {
        world.send(Method::PATCH, &format!("/v1/runs/{}", run["run"].as_str().unwrap()), Some(&long)).await
    };
    let answer = edit(&by_model).await;
    refused(&answer, 413, "message_too_long");
    assert_eq!(answer.body["limit"], 400_000);
    let path = format!("/v1/chat-conversations/{}/queue", first["conversation"].as_str().unwrap());
    assert!(world.get(&path).await.text.contains("two"), "as it was");
    assert_eq!(edit(&in_sandbox).await.status, 200, "the sandbox has no such budget");
    let path = format!("/v1/runs/{}", by_model["run"].as_str().unwrap());
    assert_eq!(world.send(Method::PATCH, &path, Some(&json!({ "message": "three" }))).await.status, 200);
    Some(())
}
