//! A log that is slow: what a sandbox says and sends meanwhile stands there in the order in which it was sent.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::agent::Agent;
use testkit::form::Form;
use testkit::sandbox::{Action, Called};

use crate::client::{new_id, turn};
use crate::house::House;

/// Says something while the log is kept, sends a file back, and goes on when that was taken.
fn writes() -> Vec<Action> {
    let call = |envelope: Value| {
        let work = async move {
            let sent = Agent::new(envelope).send_back(&Form::of("made.txt", b"made")).await;
            let status = sent.map_or_else(|error| error.to_string(), |answer| answer.status.to_string());
            vec![
                json!({ "type": "delta", "text": format!("after {status}") }),
                json!({ "type": "result", "message": "" }),
            ]
        };
        Box::pin(work) as Called
    };
    let head = Action::Headers("200 OK", vec![("content-type", "application/x-ndjson".to_owned())]);
    let log = json!({ "type": "log", "level": "info", "message": "here" });
    let before = json!({ "type": "delta", "text": "before" });
    let pause = Action::Wait(Duration::from_millis(200));
    vec![head, Action::Line(log), pause, Action::Line(before), Action::Call(Arc::new(call))]
}

async fn files_stand_where_they_came(postgres: bool) {
    let Some(house) = House::on(postgres, writes()).await else { return };
    let server = house.try_serve("append.after=1:wait").await.expect("a server");
    let caller = house.first_caller(&server).await;
    let (_, mut stream) = caller.start(&new_id(), &turn(None, "hello")).await.expect("a turn");
    let log = stream.rest().await.expect("a whole stream");
    let told: Vec<String> = log
        .iter()
        .map(|event| match event.kind.as_str() {
            "delta" => event.json()["text"].as_str().unwrap_or_default().to_owned(),
            kind => kind.to_owned(),
        })
        .collect();
    assert_eq!(told, ["turn", "before", "file", "after 201", "result", "done"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_stand_where_they_came_on_sqlite() {
    files_stand_where_they_came(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_stand_where_they_came_on_postgresql() {
    files_stand_where_they_came(true).await;
}
