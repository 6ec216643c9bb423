//! The caller goes away, at every phase: within two seconds nothing of the run is left.

use std::time::{Duration, Instant};

use crate::protocol::{manifest, zipped};
use crate::world::{World, descendants, until, users};

/// Starts a run, waits until it has got somewhere, drops it, and waits until its processes are gone.
async fn dropped(world: &World, message: &str, phase: &'static str) {
    let (_, envelope) = world.envelope(message);
    world.told.lock().reached.clear();
    let mut response = world.post(&envelope).await;
    match phase {
        "step" => loop {
            let chunk = response.chunk().await.unwrap().expect("the run goes on");
            if String::from_utf8_lossy(&chunk).contains("\"running\"") {
                break;
            }
        },
        phase => until(phase, || world.told.lock().reached.contains(&phase)).await,
    }
    if phase != "config" {
        until("the room is there", || !descendants(world.sandbox.pid()).is_empty()).await;
    }
    let rooms = descendants(world.sandbox.pid());
    drop(response);
    let since = Instant::now();
    until(&format!("{phase}: the room is gone"), || descendants(world.sandbox.pid()).is_empty()).await;
    assert!(since.elapsed() < Duration::from_secs(2), "{phase}: {:?}", since.elapsed());
    let left: Vec<_> =
        rooms.iter().filter(|pid| std::path::Path::new(&format!("/proc/{pid}")).exists()).collect();
    assert!(left.is_empty(), "{phase}: {left:?}");
}

#[tokio::test]
async fn a_run_that_is_dropped_is_gone_at_every_phase() {
    let files: &[(&str, &[u8])] = &[("a.txt", b"a")];
    for user in users() {
        for way in ["", "on"] {
            let world =
                World::with(user, &[("SANDBOX_BUBBLEWRAP", way), ("THREADKEEP_SANDBOX_CONCURRENCY", "1")])
                    .await;
            {
                let mut told = world.told.lock();
                told.zip = Some(zipped(files));
                told.files = manifest(files);
            }
            for phase in ["config", "zip", "model", "results"] {
                world.told.lock().hang = Some(phase);
                dropped(&world, "write assets/x.txt: x", phase).await;
            }
            world.told.lock().hang = None;
            // In the middle of a program that will not go by itself.
            dropped(
                &world,
                "run trap '' TERM HUP INT; (setsid sh -c 'trap \"\" TERM; sleep 1000' &); sleep 1000",
                "step",
            )
            .await;
            // The place is free again.
            let lines = world.run("run echo next").await;
            assert_eq!(lines.output(), "next\n", "{user:?} {way}");
            assert!(lines.ended("wait for a free place").is_empty());
        }
    }
}

#[tokio::test]
async fn one_that_waits_for_a_place_can_be_dropped() {
    let world = World::with(None, &[("THREADKEEP_SANDBOX_CONCURRENCY", "1")]).await;
    let (_, first) = world.envelope("run sleep 1000");
    let mut holding = world.post(&first).await;
    holding.chunk().await.unwrap();
    let (_, second) = world.envelope("hello");
    let mut waiting = world.post(&second).await;
    let chunk = waiting.chunk().await.unwrap().unwrap();
    assert!(String::from_utf8_lossy(&chunk).contains("wait for a free place"));
    drop(waiting);
    drop(holding);
    assert_eq!(world.run("hello").await.last()["type"], "result");
}
