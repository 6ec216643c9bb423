//! Nothing is left behind: after many runs, after the service is killed, after what programs leave running.

use std::path::Path;
use std::time::Duration;

use crate::world::{Service, World, descendants, until, users};

fn open_files(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

fn mounts() -> usize {
    std::fs::read_to_string("/proc/self/mountinfo").unwrap().lines().count()
}

fn folders() -> Vec<String> {
    let entries = std::fs::read_dir(std::env::temp_dir()).unwrap().filter_map(Result::ok);
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| name.starts_with("threadkeep-sandbox") || name.starts_with("room-"));
    names.sort();
    names
}

#[tokio::test]
async fn two_hundred_runs_leave_nothing() {
    let world = World::with(None, &[("THREADKEEP_SANDBOX_CONCURRENCY", "4")]).await;
    world.run("run echo warm > assets.txt").await;
    let pid = world.sandbox.pid();
    let before = (mounts(), folders());
    let files = open_files(pid);
    for _ in 0..50 {
        let run = |order| world.run(order);
        let (a, b, c, d) = tokio::join!(
            run("write assets/a.txt: one\nthen read assets/a.txt"),
            run("run (sleep 1000 &); echo hi > assets.txt; mkdir -p a/b/c; ln -s / a/root"),
            run("hello"),
            run("run exit 1"),
        );
        for lines in [a, b, c, d] {
            assert_eq!(lines.last()["type"], "result", "{:?}", lines.last());
        }
    }
    until("no process is left", || descendants(pid).is_empty()).await;
    assert_eq!((mounts(), folders()), before);
    // Connections of ours may still be open: no more than a few.
    until("no open file is left", || open_files(pid) <= files + 8).await;
}

#[tokio::test]
async fn a_killed_service_leaves_nothing() {
    for user in users() {
        for (way, without) in [("", ""), ("on", ""), ("", "namespaces")] {
            let env = [
                ("SANDBOX_BUBBLEWRAP", way),
                ("SANDBOX_WITHOUT", without),
                ("SANDBOX_ALLOW_MISSING", without),
            ];
            let world = World::with(user, &env).await;
            let (_, envelope) = world.envelope("run trap '' TERM HUP; (setsid sleep 1000 &); sleep 1000");
            let mut response = world.post(&envelope).await;
            while !String::from_utf8_lossy(&response.chunk().await.unwrap().unwrap()).contains("running") {}
            until("the program runs", || descendants(world.sandbox.pid()).len() >= 4).await;
            let rooms = descendants(world.sandbox.pid());
            let pid = world.sandbox.pid();
            drop(world);
            let alive = |pid: &u32| {
                let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
                !stat.is_empty() && !stat.contains(") Z ")
            };
            until(&format!("{user:?} {way} {without}: the room is gone"), || !rooms.iter().any(alive)).await;
            // What a room without namespaces left on the disk goes with the next start.
            let base = std::env::temp_dir().join(format!("threadkeep-sandbox-{}", user.unwrap_or(0)));
            let _next = Service::start(user, &env);
            // Other tests have rooms there, too.
            let own = |entry: &std::fs::DirEntry| {
                entry.file_name().to_string_lossy().starts_with(&format!("{pid}-"))
            };
            let left = std::fs::read_dir(&base)
                .map_or(0, |entries| entries.filter_map(Result::ok).filter(own).count());
            assert_eq!(left, 0, "{user:?} {way} {without} {}", base.display());
        }
    }
}

#[tokio::test]
async fn what_a_program_leaves_running_ends_with_the_run() {
    let world = World::new().await;
    let lines = world.run("run (setsid sleep 1000 &) ; nohup sleep 1000 & echo started").await;
    assert_eq!(lines.output(), "started\n");
    assert_eq!(lines.last()["type"], "result");
    // The room is gone when the last line is there.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(descendants(world.sandbox.pid()).is_empty());
    assert!(!Path::new("/tmp/workspace").exists());
}
