//! The example in docs/sandbox.md, held to the protocol as the built-in sandbox is.

use std::process::{Command, Stdio};

use crate::protocol::{manifest, zipped};
use crate::world::{Lines, Service, World};

/// What the protocol asks of any sandbox.
async fn keeps_the_protocol(world: &World) {
    let one_end = |lines: &Lines| {
        assert_eq!(lines.of("result").count() + lines.of("error").count(), 1, "{lines:#?}");
        assert!(matches!(lines.last()["type"].as_str(), Some("result" | "error")), "{lines:#?}");
    };
    let plain = world.run("hello").await;
    one_end(&plain);
    assert_eq!((plain.deltas().as_str(), &plain.last()["message"]), ("All is done.", &"All is done.".into()));

    let failing = world.run("run echo oops; exit 3").await;
    one_end(&failing);
    let steps: Vec<_> = failing.of("step").collect();
    assert_eq!((steps[0]["status"].as_str(), steps[1]["status"].as_str()), (Some("running"), Some("failed")));
    assert_eq!(steps[0]["id"], steps[1]["id"]);
    assert_eq!(steps[0]["args"]["command"], "echo oops; exit 3");
    assert!(
        steps[1]["error"].as_str().unwrap().contains("exit code 3") && steps[1]["durationMs"].is_number()
    );
    assert_eq!(failing.last()["type"], "result", "the run goes on after a failed step");

    let files: &[(&str, &[u8])] = &[("in.txt", b"forty-two")];
    {
        let mut told = world.told.lock();
        (told.zip, told.files) = (Some(zipped(files)), manifest(files));
    }
    let made = world.run("read in.txt\nthen write assets/out.txt: made\nthen list").await;
    world.told.lock().zip = None;
    one_end(&made);
    assert_eq!(made.step("read_file")["result"], "forty-two");
    assert!(made.step("list_files")["result"].as_str().unwrap().contains("assets/out.txt"));
    assert_eq!(world.told.lock().results[&made.run], [("out.txt".to_owned(), b"made".to_vec())]);

    let failed = world.run("fail").await;
    one_end(&failed);
    assert_eq!(failed.last()["type"], "error");
}

#[tokio::test]
async fn the_built_in_sandbox_keeps_the_protocol() {
    keeps_the_protocol(&World::new().await).await;
}

#[tokio::test]
async fn the_example_in_the_documentation_keeps_the_protocol() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/sandbox.md");
    let page = std::fs::read_to_string(page).unwrap();
    let code = page.split("```python\n").nth(1).unwrap().split("```").next().unwrap();
    assert!(code.lines().count() <= 60, "{} lines", code.lines().count());
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = Command::new("python3");
    command.args(["-c", code, &port.to_string()]).stderr(Stdio::null());
    let world = World::around(Service::other(command.spawn().unwrap(), port)).await;
    keeps_the_protocol(&world).await;
}
