//! A canary in every setting that holds a key: driven through turns, failures, commands and logs at their loudest, it
//! comes out nowhere.

use std::path::Path;

use serde_json::{Value, json};
use testkit::process::ServerProcess;
use testkit::sandbox::{Action, ScriptedSandbox};
use testkit::server::token_by;

use crate::house::{Caller, House};

/// In every secret below, and in nothing else.
const CANARY: &str = "canary0f0f0f";
const JWT: &str = "canary0f0f0f of the user tokens, longer than thirty-two bytes";

fn settings<'a>(openai: &'a str, provider: &'a str, config: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![
        ("THREADKEEP_JWT_SECRET", JWT),
        ("THREADKEEP_SECRET", "canary0f0f0f of the server itself, longer than thirty-two bytes"),
        ("OPENAI_API_KEY", "sk-canary0f0f0f-openai"),
        ("OPENAI_BASE_URL", openai),
        ("ANTHROPIC_API_KEY", "sk-canary0f0f0f-anthropic"),
        ("ANTHROPIC_BASE_URL", provider),
        ("COMPOSIO_API_KEY", "ck-canary0f0f0f-composio"),
        ("COMPOSIO_BASE_URL", provider),
        ("SANDBOX_URL", provider),
        ("SANDBOX_TOKEN", "canary0f0f0f-of-the-sandbox"),
        ("AWS_ACCESS_KEY_ID", "AKIAcanary0f0f0f"),
        ("AWS_SESSION_TOKEN", "canary0f0f0f-of-the-session"),
        ("AWS_SECRET_ACCESS_KEY", "canary0f0f0f/of+s3"),
        ("THREADKEEP_MODEL_RETRIES", "0"),
        ("THREADKEEP_LOCAL_MODELS", "off"),
        ("THREADKEEP_CONFIG", config),
        ("RUST_LOG", "trace"),
    ]
}

/// An error that repeats the key, as some providers' do.
fn indiscreet(key: &str) -> Vec<Action> {
    let words = format!("Incorrect API key provided: {key}.");
    let body = json!({ "error": { "message": words, "type": "invalid_request_error" } }).to_string();
    let headers =
        vec![("content-type", "application/json".to_owned()), ("content-length", body.len().to_string())];
    vec![Action::Headers("401 Unauthorized", headers), Action::Bytes(body.into_bytes())]
}

fn says(text: &str) -> Vec<Action> {
    let openai =
        json!({ "choices": [{ "index": 0, "delta": { "content": text }, "finish_reason": "stop" }] });
    let delta =
        json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": text } });
    let events =
        [openai, delta, json!({ "type": "message_stop" })].map(|event| format!("data: {event}\n\n")).concat();
    let headers = vec![("content-type", "text/event-stream".to_owned())];
    vec![Action::Headers("200 OK", headers), Action::Bytes(events.into_bytes())]
}

/// Everything that a caller gets to see.
async fn drive(caller: &Caller, heard: &mut Vec<String>) {
    let made = caller.send(reqwest::Method::POST, "/v1/workspaces", Some(&json!({ "name": "W" }))).await;
    heard.push(made.expect("an answer").text);
    heard.push(caller.upload("/v1/files", "notes.txt", "Only notes.").await);
    let models = ["openai/m", "anthropic/m", "openai/m", "anthropic/m"];
    for (mode, model) in models.map(|model| ("ask", model)).into_iter().chain([("agent", "openai/m")]) {
        let body = json!({ "message": "Hi", "mode": mode, "model": model });
        let turn = caller.send(reqwest::Method::POST, "/v1/turns", Some(&body)).await.expect("an answer");
        let id = |name: &str| turn.headers[name].to_str().expect("an id").to_owned();
        let (run, conversation) = (id("threadkeep-run"), id("threadkeep-conversation"));
        for path in [
            format!("/v1/runs/{run}"),
            format!("/v1/runs/{run}/events"),
            format!("/v1/runs/{run}/trace"),
            format!("/v1/chat-conversations/{conversation}"),
        ] {
            heard.push(caller.send(reqwest::Method::GET, &path, None).await.expect("an answer").text);
        }
        heard.push(turn.text);
    }
    let call =
        json!({ "model": "openai/m", "max_tokens": 9, "messages": [{ "role": "user", "content": "Hi" }] });
    for (path, body) in [
        ("/v1/chat/completions", call.clone()),
        ("/v1/messages", call),
        ("/v1/executions", json!({ "prompt": "Hi" })),
    ] {
        heard.push(caller.send(reqwest::Method::POST, path, Some(&body)).await.expect("an answer").text);
    }
    for path in [
        "/v1/models",
        "/v1/usage",
        "/metrics",
        "/openapi.json",
        "/healthz",
        "/v1/audit",
        "/v1/files",
        "/v1/export",
    ] {
        heard.push(caller.send(reqwest::Method::GET, path, None).await.expect("an answer").text);
    }
}

/// Files below a folder that hold the canary.
fn holding(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(holding(&path));
        } else if std::fs::read(&path)
            .is_ok_and(|bytes| bytes.windows(CANARY.len()).any(|window| window == CANARY.as_bytes()))
        {
            found.push(path.display().to_string());
        }
    }
    found
}

/// Rows of any table that hold the canary, as text or in bytes.
async fn rows_holding(house: &House) -> Vec<String> {
    let Some(url) = house.database().and_then(|database| database.superuser_url()) else { return Vec::new() };
    let (client, connection) =
        tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect("a database");
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move { drop(connection.await) });
    let hex: String = CANARY.bytes().map(|byte| format!("{byte:02x}")).collect();
    let tables = "SELECT relname::text FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')";
    let (mut found, mut seen) = (Vec::new(), 0);
    for table in client.query(tables, &[]).await.expect("tables") {
        let table: String = table.get(0);
        for row in client.query(&format!("SELECT t::text FROM {table} t"), &[]).await.expect("rows") {
            let row: String = row.get(0);
            seen += 1;
            if row.contains(CANARY) || row.contains(&hex) {
                found.push(format!("{table}: {row}"));
            }
        }
    }
    assert!(seen > 20, "the database was in use: {seen} rows");
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn no_key_comes_out_anywhere() {
    nothing_comes_out(House::sqlite(), &[]).await;
}

/// With a password for the database and keys for the files, too.
#[tokio::test(flavor = "multi_thread")]
async fn no_key_comes_out_anywhere_on_postgresql_and_s3() {
    let (Some(house), Some(s3)) = (House::postgres().await, testkit::s3::server(testkit::s3::Kind::Moto))
    else {
        return;
    };
    let url = house.database().expect("a database").url().replacen('@', ":canary0f0f0f@", 1);
    let blobs = format!("s3://{}/{}", testkit::s3::BUCKET, testkit::s3::fresh_prefix());
    let more = [
        ("DATABASE_URL", url.as_str()),
        ("THREADKEEP_BLOB_URL", &blobs),
        ("AWS_ENDPOINT_URL", s3.endpoint()),
        ("AWS_REGION", "us-east-1"),
    ];
    nothing_comes_out(house, &more).await;
}

async fn nothing_comes_out(house: House, more: &[(&str, &str)]) {
    let elsewhere = tempfile::tempdir().expect("a folder");
    let config = elsewhere.path().join("config.toml");
    let file = "[mcp.keyed]\nurl = \"http://127.0.0.1:9/mcp?key=canary0f0f0f\"\n[mcp.local]\ncommand = \"true\"\nargs = [\"canary0f0f0f\"]\n";
    std::fs::write(&config, file).expect("written");
    let provider = ScriptedSandbox::start(says("Hello.")).await.expect("a provider");
    provider.then(says("Hello."));
    let (by_openai, by_anthropic) = ("sk-canary0f0f0f-openai", "sk-canary0f0f0f-anthropic");
    let by_sandbox = "canary0f0f0f-of-the-sandbox";
    for key in [by_openai, by_anthropic, by_sandbox, by_openai, by_openai, by_sandbox] {
        provider.then(indiscreet(key));
    }
    let (url, config) = (provider.url(), config.display().to_string());
    let openai = format!("{url}/v1");
    let mut settings = settings(&openai, &url, &config);
    settings.extend_from_slice(more);
    let mut server: ServerProcess = house.serve_with(&settings).await;
    let mut heard = Vec::new();
    drive(&Caller::new(server.url(), &token_by(JWT, "ann", "acme")), &mut heard).await;
    assert!(heard.iter().any(|text| text.contains("Hello.")), "a turn was answered");
    assert!(heard.iter().any(|text| text.contains("Incorrect API key")), "a provider's words were told");
    server.terminate().await.expect("stopped");
    heard.push(server.output());
    for args in [&["config"][..], &["config", "--json"], &["doctor"], &["keys", "list"]] {
        let ran = house.run(args, &settings).await;
        heard.extend([ran.stdout, ran.stderr]);
    }
    let sent = provider.requests();
    let keyed = |request: &testkit::sandbox::Recorded| {
        request.headers.iter().any(|(_, value)| value.contains(CANARY))
    };
    assert!(sent.iter().any(keyed), "the keys were in use");
    for text in &heard {
        let at = text.find(CANARY);
        assert!(
            at.is_none(),
            "…{}…",
            at.map_or("", |at| &text[at.saturating_sub(300).min(at)..(at + 40).min(text.len())])
        );
    }
    assert!(heard.iter().any(|text| text.contains("notes.txt")), "a file was kept");
    assert_eq!(holding(house.data()), Vec::<String>::new());
    assert_eq!(rows_holding(&house).await, Vec::<String>::new());
    // Nothing that went to one provider holds another's key.
    for request in sent {
        let body: &Value = &request.body;
        assert!(!body.to_string().contains(CANARY), "{body}");
    }
}
