//! Logs: a line for each request with its id and its route, and nothing of what people wrote or of what
//! lets them in.

use std::io::Write;
use std::sync::{Arc, Mutex};

use reqwest::Method;
use serde_json::{Value, json};
use testkit::server::Backend;
use tracing_subscriber::EnvFilter;

use crate::world::{CONVERSATIONS, World, creation, id_of, item};

#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The server's own thread is the test's, so that a subscriber of the thread sees its lines.
async fn lines_of_a_day(backend: Backend) {
    let kept = Kept::default();
    let writer = kept.clone();
    let subscriber = tracing_subscriber::fmt()
        .json()
        .with_env_filter(EnvFilter::new("server=trace,store=trace,upstream=trace"))
        .with_writer(move || writer.clone())
        .finish();
    let guard = tracing::subscriber::set_default(subscriber);
    let Some(world) = World::start(backend, |_| {}).await else { return };

    let made = world.create(json!({ "title": "zebra title", "context": { "root": "zebra context" } })).await;
    let id = id_of(&made);
    world.ask(&id, "zebra message").await;
    world.list("filter[query]=zebra").await;
    world.patch(&id, &json!({ "title": "zebra again", "mode": "zebra mode" })).await;
    world.post("{\"zebra").await;
    world.get(&format!("{CONVERSATIONS}?zebra=1")).await;
    let request = world.with_body(Method::POST, CONVERSATIONS, creation(&json!({ "title": "zebra" })));
    world.send(request.header("x-request-id", "my-own-id")).await;
    let request = world.server.request(Method::GET, CONVERSATIONS).bearer_auth("tk_zebra_key");
    world.send(request.header("cookie", "threadkeep_session=zebra")).await;
    world.get(&item(&id)).await;
    drop(guard);

    let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
    for secret in ["zebra", world.bearer(), testkit::server::JWT_SECRET] {
        assert!(!text.contains(secret), "{secret} is in the log:\n{text}");
    }
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let own =
        lines.iter().find(|line| line["span"]["id"] == "my-own-id").expect("a line with the request's id");
    assert_eq!((&own["span"]["route"], &own["fields"]["status"]), (&json!(CONVERSATIONS), &json!(201)));
    let answered = lines.iter().filter(|line| line["fields"]["message"] == "answered").count();
    assert!(answered >= 9, "a line for each request:\n{text}");
}

#[tokio::test]
async fn nothing_of_what_people_write_on_sqlite() {
    lines_of_a_day(Backend::Sqlite).await;
}

#[tokio::test]
async fn nothing_of_what_people_write_on_postgres() {
    lines_of_a_day(Backend::Postgres).await;
}
