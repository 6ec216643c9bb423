//! Many clients at one conversation: one run, and everybody else is told which.

use futures_util::future::join_all;
use serde_json::json;
use testkit::sandbox::Release;
use testkit::server::Backend;

use crate::scripts::wait_after;
use crate::sse::Stream;
use crate::world::{CONVERSATIONS, World, stories};

stories!(single_flight);

const CLIENTS: usize = 64;
const ROUNDS: usize = 200;

async fn single_flight(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let conversation = world.tell(&json!({ "message": "first" })).await.conversation();
    for round in 0..ROUNDS {
        let gate = Release::default();
        world.play(wait_after(vec![], &gate, "Done."));
        let clients = (0..CLIENTS).map(|n| {
            let body =
                json!({ "conversation": conversation, "message": format!("round {round} client {n}") });
            let turn = world.turn(&body);
            async move { turn.send().await.unwrap() }
        });
        let (mut winners, mut named) = (Vec::new(), Vec::new());
        for response in join_all(clients).await {
            match response.status().as_u16() {
                200 => winners.push(Stream::new(response)),
                409 => {
                    let body: serde_json::Value = response.json().await.unwrap();
                    assert_eq!(body["code"], "conversation_busy");
                    named.push(body["run"].as_str().unwrap().to_owned());
                }
                status => panic!("status {status}: {}", response.text().await.unwrap()),
            }
        }
        assert_eq!((winners.len(), named.len()), (1, CLIENTS - 1), "round {round}");
        let winner = winners.remove(0);
        assert!(named.iter().all(|run| *run == winner.run()), "round {round}");
        gate.open();
        assert_eq!(winner.rest().await.status(), "succeeded");
    }
    let thread = world.conversation(&conversation).await;
    assert_eq!(thread["message_count"], 2 * (ROUNDS + 1), "two messages a round, and no more");
    assert_eq!(world.sandbox.requests().len(), ROUNDS + 1);
    let runs = world.get(&format!("{CONVERSATIONS}/{conversation}/runs?limit=100")).await.body;
    assert_eq!(runs["data"].as_array().unwrap().len(), (ROUNDS + 1).min(100));
    Some(())
}
