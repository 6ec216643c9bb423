//! What the process writes: a line for each request with its id, and nothing that people wrote or that opens a
//! door, however much is logged.

use nix::sys::signal::Signal;
use reqwest::Method;
use serde_json::{Value, json};
use testkit::process::ServerProcess;
use testkit::server::{JWT_SECRET, token};
use tokio::io::AsyncBufReadExt as _;

use crate::house::{CONVERSATIONS, Caller, House, MEDIA, client, document, stop_well};

/// Texts in every place that a request has for them, good and bad.
async fn put_canaries(url: &str, bearer: &str, cookie: &str) {
    let caller = Caller::new(url, bearer);
    let canary = |n: &str| format!("canary-text-{n}");
    let attributes = json!({ "title": canary("title"), "context": { "note": canary("context") },
        "page_path": format!("/{}", canary("page")) });
    let made = caller.create(attributes.clone()).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let id = made.body["data"]["id"].as_str().expect("an id").to_owned();
    let path = format!("{CONVERSATIONS}/{id}");
    let send = async |method, path: &str, body: Option<Value>, statuses: &[u16]| {
        let answer = caller.send(method, path, body.as_ref()).await.expect("an answer");
        assert!(statuses.contains(&answer.status), "{path}: {} {}", answer.status, answer.text);
    };
    let patch = |attributes| Some(document(Some(&id), attributes));
    send(Method::PATCH, &path, patch(json!({ "title": canary("patched") })), &[200]).await;
    send(Method::PATCH, &path, patch(json!({ canary("member"): 1 })), &[400, 422]).await;
    send(Method::PATCH, &path, patch(json!({ "active_tab_key": canary("tab") })), &[422]).await;
    // An id that is taken: databases like to repeat the row.
    send(Method::POST, CONVERSATIONS, patch(attributes), &[409]).await;
    let query = |name: &str| format!("{CONVERSATIONS}?{name}={}", canary("query"));
    for name in ["filter[query]", "filter[agent]", "page[after]", "unknown", "workspace", "timeZone"] {
        send(Method::GET, &query(name), None, &[200, 400]).await;
    }
    send(Method::GET, &format!("/{}", canary("path")), None, &[404]).await;
    send(Method::GET, &format!("{CONVERSATIONS}/{}", canary("path")), None, &[404]).await;
    let key = json!({ "name": canary("key name"), "role": "member" });
    send(Method::POST, "/v1/api-keys", Some(key), &[201]).await;

    // By the browser's session, over HTTP/2, with a broken body, and with credentials that are refused.
    let http2 = reqwest::Client::builder().no_proxy().http2_prior_knowledge().build().expect("a client");
    for client in [client(), http2] {
        let session = client.get(format!("{url}/v1/session")).header("cookie", cookie);
        assert_eq!(session.send().await.expect("an answer").status(), 200);
        let broken = client.post(format!("{url}{CONVERSATIONS}")).bearer_auth(bearer);
        let broken = broken.header("content-type", MEDIA).body(format!("{{\"{}\"", canary("broken")));
        assert_eq!(broken.send().await.expect("an answer").status(), 400);
        for refused in [format!("tk_{}", canary("bad key")), canary("bad.bad.token")] {
            let request = client.get(format!("{url}/v1/session")).bearer_auth(refused);
            assert_eq!(request.send().await.expect("an answer").status(), 401);
        }
        let asked = client.get(format!("{url}/healthz")).header("referer", canary("referer"));
        asked.header("user-agent", canary("agent")).send().await.expect("an answer");
    }
}

/// The server's whole output holds none of these.
fn assert_silent(server: &ServerProcess, secrets: &[(&str, &str)]) {
    let output = server.output();
    assert!(output.lines().count() > 20, "too little was logged to show anything:\n{output}");
    for (what, secret) in secrets.iter().chain(&[("a text", "canary")]) {
        assert!(!secret.is_empty(), "{what} is not known");
        let line = output.lines().find(|line| line.contains(secret));
        assert!(line.is_none(), "{what} is in the log: {line:?}");
    }
}

const LOUD: [(&str, &str); 2] = [("RUST_LOG", "debug"), ("LOG_FORMAT", "json")];

#[tokio::test]
async fn local_mode_logs_no_secret_and_no_text() {
    let house = House::sqlite();
    let mut server = house.serve_with(&LOUD).await;
    let login = client().get(server.printed_address()).send().await.expect("an answer");
    let cookie =
        login.headers()["set-cookie"].to_str().expect("text").split(';').next().expect("one").to_owned();
    let key = house.file("local.key");
    put_canaries(server.url(), &key, &cookie).await;
    let wrong = format!("{}/login?ticket=canary-ticket", server.url());
    assert_eq!(client().get(wrong).send().await.expect("an answer").status(), 401);
    let ticket = server.printed_address().split_once("ticket=").expect("a ticket").1.to_owned();
    let said = server.output().matches(&ticket).count();
    assert_eq!(said, 1, "the ticket is in the printed line alone");
    stop_well(&mut server, Signal::SIGTERM).await;
    let cookie = cookie.split_once('=').expect("a cookie").1;
    assert_silent(
        &server,
        &[("local.key", &key), ("secret.key", &house.file("secret.key")), ("a cookie", cookie)],
    );
    assert_eq!(server.output().matches(&ticket).count(), 1);
}

#[tokio::test]
async fn a_server_with_tokens_on_postgresql_logs_no_secret_and_no_text() {
    let Some(house) = House::postgres().await else { return };
    let url = house.database().expect("a database").url();
    // The test's cluster asks for no password, and is told one anyway.
    let with_password = url.replacen("threadkeep_owner@", "threadkeep_owner:canary-password@", 1);
    assert_ne!(url, with_password);
    let env = [
        ("DATABASE_URL", with_password.as_str()),
        ("THREADKEEP_JWT_SECRET", JWT_SECRET),
        ("THREADKEEP_SECRET", "canary-secret-of-the-server-0123456789"),
    ];
    let mut server = house.serve_with(&[&LOUD[..], &env].concat()).await;
    let token = token("ann", "org");
    let ann = Caller::new(server.url(), &token);
    let made = ann.send(Method::POST, "/v1/workspaces", Some(&json!({ "name": "canary-workspace" }))).await;
    assert_eq!(made.expect("an answer").status, 201);
    let session = ann.send(Method::POST, "/v1/session", None).await.expect("an answer");
    let cookie = session.header("set-cookie").split(';').next().expect("a cookie").to_owned();
    put_canaries(server.url(), &token, &cookie).await;
    stop_well(&mut server, Signal::SIGTERM).await;
    let cookie = cookie.split_once('=').expect("a cookie").1;
    assert_silent(&server, &[("a token", &token), ("the JWT secret", JWT_SECRET), ("a cookie", cookie)]);
}

#[tokio::test]
async fn every_request_is_a_json_line_with_its_id() {
    let house = House::sqlite();
    let mut server = house.serve_with(&[("LOG_FORMAT", "json")]).await;
    let get = |path: &str, id: &str| {
        client().get(format!("{}{path}", server.url())).header("x-request-id", id).send()
    };
    let answer = get("/healthz", "my-own-id.1").await.expect("an answer");
    assert_eq!(answer.headers()["x-request-id"], "my-own-id.1");
    // Another's line must not be forged by an id.
    let answer = get("/healthz", "forged\" id").await.expect("an answer");
    let made = answer.headers()["x-request-id"].to_str().expect("text").to_owned();
    assert!(made.len() == 32 && made.bytes().all(|byte| byte.is_ascii_hexdigit()), "{made}");
    assert_eq!(
        get(&format!("{CONVERSATIONS}?secret=1"), "refused.2").await.expect("an answer").status(),
        401
    );
    stop_well(&mut server, Signal::SIGTERM).await;

    let output = server.output();
    let (stdout, lines): (Vec<_>, Vec<_>) = output.lines().partition(|line| line.contains("is ready"));
    assert_eq!(stdout.join("\n"), server.stdout().trim_end());
    let lines: Vec<Value> = lines
        .iter()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
        .collect();
    for (id, route, status) in
        [("my-own-id.1", "/healthz", 200), (&made, "/healthz", 200), ("refused.2", CONVERSATIONS, 401)]
    {
        let line =
            lines.iter().find(|line| line["span"]["id"] == *id).unwrap_or_else(|| panic!("{id}: {output}"));
        assert_eq!(
            (&line["span"]["route"], &line["fields"]["status"]),
            (&json!(route), &json!(status)),
            "{line}"
        );
        assert_eq!(line["level"], "INFO");
    }
    assert!(!output.contains("forged"), "{output}");
}

/// Whoever read its log has gone: requests are answered all the same, and it stops as it should.
#[tokio::test]
async fn a_log_that_nobody_reads_stops_nothing() {
    let data = tempfile::tempdir().expect("a folder");
    let mut command = testkit::process::command(
        std::path::Path::new(env!("CARGO_BIN_EXE_threadkeep")),
        &[("THREADKEEP_LISTEN", "127.0.0.1:0"), ("RUST_LOG", "info")],
        data.path(),
    );
    let mut child = command.arg("serve").spawn().expect("a server");
    drop(child.stderr.take());
    let mut said = tokio::io::BufReader::new(child.stdout.take().expect("its stdout")).lines();
    let line = said.next_line().await.expect("a line").expect("its address");
    let address = line.split_whitespace().find_map(|word| word.strip_prefix("http://")).expect("an address");
    let origin = format!("http://{}", address.split('/').next().unwrap_or_default());
    for _ in 0..3 {
        let answer = client().get(format!("{origin}/healthz")).send().await.expect("an answer");
        assert_eq!(answer.status(), 200);
    }
    let pid = nix::unistd::Pid::from_raw(child.id().expect("its id") as i32);
    nix::sys::signal::kill(pid, Signal::SIGTERM).expect("a signal");
    assert!(child.wait().await.expect("its end").success());
}
