//! Which runs hold which conversations, and the end of one by hand, beside a running server.

use reqwest::Method;
use serde_json::{Value, json};
use testkit::sandbox::{Action, ScriptedSandbox};

use crate::house::House;

#[tokio::test]
async fn locks_are_listed_and_cleared() {
    for house in [Some(House::sqlite()), House::postgres().await].into_iter().flatten() {
        let open = Action::Headers("200 OK", vec![("content-type", "application/x-ndjson".to_owned())]);
        let said = Action::Line(json!({ "type": "delta", "text": "So far" }));
        let sandbox = ScriptedSandbox::start(vec![open, said, Action::Hang]).await.expect("a sandbox");
        let url = sandbox.url();
        let server = house.serve_with(&[("SANDBOX_URL", &url)]).await;
        let caller = house.caller(&server);
        let none = house.run(&["locks", "list"], &[]).await;
        assert_eq!((none.code, none.stdout.as_str()), (Some(0), "No conversation is locked.\n"), "{none:?}");
        for args in [&["locks", "--json"][..], &["locks", "list", "--json"]] {
            let none = house.run(args, &[]).await;
            assert_eq!((none.code, none.stdout.as_str()), (Some(0), "[]\n"), "{none:?}");
        }

        let mut runs = Vec::new();
        for _ in 0..2 {
            let body = json!({ "message": "Go on forever", "on_disconnect": "continue" });
            let answer = caller.start_turn(&body).await;
            assert_eq!(answer["status"], "running", "{answer}");
            runs.push(answer);
        }
        for number in 0..2 {
            sandbox.request(number).await.expect("both run");
        }
        let (listed, alone) =
            (house.run(&["locks", "list", "--json"], &[]).await, house.run(&["locks", "--json"], &[]).await);
        assert_eq!((alone.code, alone.json_list().len()), (Some(0), 2), "{alone:?}");
        let locks = listed.json_list();
        assert_eq!((listed.code, locks.len()), (Some(0), 2), "{listed:?}");
        let first = locks.iter().find(|lock| lock["run"] == runs[0]["run"]).expect("the first run");
        assert_eq!(first["conversation"], runs[0]["conversation"]);
        assert!(first["node"].is_string() && first["since"].is_string(), "{first}");
        assert!(first["lease_seconds"].as_f64().is_some_and(|left| left > 0.0 && left <= 15.0), "{first}");

        let conversation = runs[0]["conversation"].as_str().expect("an id");
        let cleared = house.run(&["locks", "clear", conversation, "--json"], &[]).await;
        assert_eq!(cleared.code, Some(0), "{cleared:?}");
        assert_eq!(cleared.json_lines()[0]["cleared"]["run"], runs[0]["run"]);
        let run = |n: usize| format!("/v1/runs/{}", runs[n]["run"].as_str().expect("an id"));
        let ended: Value = caller.get(&run(0)).await.body;
        assert_eq!(ended["status"], "interrupted", "{ended}");
        // The other run goes on, and this conversation takes its next turn.
        assert_eq!(caller.get(&run(1)).await.body["status"], "running");
        let again = caller.start_turn(&json!({ "conversation": conversation, "message": "Again" })).await;
        assert_eq!(again["status"], "running", "{again}");
        let nobody = "01a1de95-4808-7263-ba89-ffcd7dae3033";
        let refused = house.run(&["locks", "clear", nobody], &[]).await;
        assert!(refused.code == Some(1) && refused.stderr.contains(nobody), "{refused:?}");
        for run in [runs[1]["run"].clone(), again["run"].clone()] {
            let path = format!("/v1/runs/{}/cancel", run.as_str().expect("an id"));
            caller.send(Method::POST, &path, None).await.expect("an answer");
        }
    }
}
