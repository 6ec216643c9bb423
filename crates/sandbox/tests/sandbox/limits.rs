//! What a run may use. Each limit ends in a failed step that names it, and the next run works.

use serde_json::Value;

use crate::world::{World, users};

const MIB: &str = "67108864";

async fn failed_step(world: &World, command: &str) -> Value {
    let lines = world.run(&format!("run {command}\nthen run echo still here")).await;
    let steps = lines.ended("shell");
    assert_eq!(steps[0]["status"], "failed", "{command}: {}", steps[0]);
    assert_eq!(lines.last()["type"], "result", "{command}: the run goes on: {}", lines.last());
    let next = world.run("run echo next").await;
    assert_eq!(next.output(), "next\n", "{command}: the next run works");
    steps[0].clone()
}

#[tokio::test]
async fn a_fork_bomb_ends_in_a_failed_step() {
    for user in users() {
        for way in ["", "on"] {
            let world =
                World::with(user, &[("THREADKEEP_SANDBOX_PROCESSES", "64"), ("SANDBOX_BUBBLEWRAP", way)])
                    .await;
            // The shell itself comes to need more processes than it is left.
            let bomb = "python3 -c 'import os, time\nwhile True:\n  try: os.fork() or time.sleep(99)\n  except OSError: pass' & \
                        sleep 2; sleep 9 | sleep 9 | sleep 9";
            let step = failed_step(&world, bomb).await;
            assert!(step["error"].as_str().unwrap().contains("SANDBOX_PROCESSES"), "{step}");
            let spread = "python3 -c 'import os\nwhile True:\n  try: os.fork()\n  except OSError: pass'";
            let step = failed_step(&world, spread).await;
            assert!(step["error"].as_str().unwrap().contains("SANDBOX_PROCESSES"), "{step}");
        }
    }
}

#[tokio::test]
async fn too_much_memory_ends_in_a_failed_step() {
    for user in users() {
        let world = World::with(user, &[("THREADKEEP_SANDBOX_MEMORY_BYTES", "268435456")]).await;
        let step = failed_step(&world, "python3 -c 'x = bytearray(64 << 30)'").await;
        assert!(step["result"].as_str().unwrap().contains("MemoryError"), "{step}");
        // Each process within its limit, all together not.
        let step = failed_step(
            &world,
            "for i in 1 2 3 4; do python3 -c 'import time; x = bytearray(100 << 20); time.sleep(9)' & done; wait",
        )
        .await;
        assert!(step["error"].as_str().unwrap().contains("SANDBOX_MEMORY_BYTES"), "{step}");
        // Much more than the machine may have, by many who each may have their part.
        let step = failed_step(
            &world,
            "python3 -c 'import os, time\nfor n in range(100):\n  if os.fork() == 0: x = bytearray(200 << 20); time.sleep(9)\nos.wait()'",
        )
        .await;
        assert!(step["error"].as_str().unwrap().contains("SANDBOX_MEMORY_BYTES"), "{step}");
        // Memory that is shared counts as well.
        let step = failed_step(
            &world,
            "python3 -c 'import mmap, time; m = mmap.mmap(-1, 1 << 30)\nfor at in range(0, 1 << 30, 4096): m[at] = 1'",
        )
        .await;
        assert!(step["error"].as_str().unwrap().contains("SANDBOX_MEMORY_BYTES"), "{step}");
    }
}

#[tokio::test]
async fn a_full_disk_ends_in_a_failed_step() {
    for user in users() {
        for way in ["", "on"] {
            let world =
                World::with(user, &[("THREADKEEP_SANDBOX_DISK_BYTES", MIB), ("SANDBOX_BUBBLEWRAP", way)])
                    .await;
            for command in [
                "dd if=/dev/zero of=big bs=1M count=200",
                "for i in 1 2 3 4; do dd if=/dev/zero of=$i bs=1M count=20 || exit 1; done",
                "dd if=/dev/zero of=/tmp/big bs=1M count=200",
                "python3 -c 'import os\nfor n in range(10**9): os.mkdir(str(n))'",
            ] {
                // bubblewrap sizes its disk by bytes alone.
                if way == "on" && command.contains("mkdir") {
                    continue;
                }
                let step = failed_step(&world, command).await;
                let said = format!("{}{}", step["result"], step["error"]);
                let clear =
                    ["No space left", "File too large", "SANDBOX_"].iter().any(|words| said.contains(words));
                assert!(clear, "{command}: {step}");
            }
        }
    }
}

#[tokio::test]
async fn an_endless_loop_ends_by_time_or_by_processor_time() {
    let world = World::with(None, &[("THREADKEEP_TOOL_TIMEOUT_SECONDS", "1")]).await;
    let step = failed_step(&world, "while :; do :; done").await;
    assert!(step["error"].as_str().unwrap().contains("TOOL_TIMEOUT_SECONDS"), "{step}");
    let step = failed_step(&world, "trap '' TERM INT HUP; setsid sleep 100 & sleep 100").await;
    assert!(step["error"].as_str().unwrap().contains("TOOL_TIMEOUT_SECONDS"), "{step}");
    let world = World::with(None, &[("THREADKEEP_SANDBOX_CPU_SECONDS", "1")]).await;
    let error = |step: &Value| step["error"].as_str().unwrap_or_default().to_owned();
    for command in
        ["while :; do :; done & while :; do :; done", "while :; do :; done", "sh -c 'while :; do :; done'; :"]
    {
        let lines = world.run(&format!("run {command}\nthen run echo more")).await;
        let steps = lines.ended("shell");
        let spent = "ended: the run has used its 1 s of processor time (SANDBOX_CPU_SECONDS)";
        assert_eq!(error(steps[0]), spent, "{command}");
        assert_eq!(error(steps[1]), spent, "{command}: spent is spent");
    }
    assert_eq!(world.run("run echo next").await.output(), "next\n");
}

#[tokio::test]
async fn limits_hold_without_namespaces() {
    let env = [
        ("SANDBOX_WITHOUT", "namespaces"),
        ("SANDBOX_ALLOW_MISSING", "namespaces"),
        ("THREADKEEP_SANDBOX_DISK_BYTES", MIB),
        ("THREADKEEP_SANDBOX_PROCESSES", "32"),
        ("THREADKEEP_SANDBOX_MEMORY_BYTES", "268435456"),
    ];
    for user in users() {
        let world = World::with(user, &env).await;
        for command in [
            "for i in 1 2 3 4 5 6; do dd if=/dev/zero of=$i bs=1M count=20 || exit 1; done; sleep 1",
            "python3 -c 'import os\nwhile True:\n  try: os.fork()\n  except OSError: pass'",
            "python3 -c 'x = bytearray(64 << 30)'",
        ] {
            failed_step(&world, command).await;
        }
    }
}

#[tokio::test]
async fn files_that_are_too_large_are_left_unread_and_the_others_are_saved() {
    let world = World::with(
        None,
        &[
            ("THREADKEEP_RUN_TIMEOUT_SECONDS", "60"),
            ("THREADKEEP_MAX_FILE_BYTES", "1000"),
            ("THREADKEEP_MAX_BAG_BYTES", "2000"),
        ],
    )
    .await;
    // Holes: it has the size, not the bytes.
    let lines = world
        .run("run cd assets; truncate -s 8T a; truncate -s 900 b; truncate -s 1000 c; truncate -s 900 d; echo 1 > e")
        .await;
    assert_eq!(lines.last()["type"], "result", "{lines:#?}");
    let step = lines.step("save files");
    assert_eq!(
        step["error"],
        "not saved: a: it has more than 1000 bytes; d: all together have more than 2000 bytes"
    );
    let told = world.told.lock();
    let names: Vec<&str> = told.results[&lines.run].iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["b", "c", "e"]);
}

#[tokio::test]
async fn files_that_a_bag_has_no_room_for_cost_no_answer() {
    let world = World::new().await;
    world.told.lock().full = true;
    let lines = world.run("write assets/a.txt: one").await;
    let step = lines.step("save files");
    assert_eq!(
        (&step["status"], &step["error"]),
        (&"failed".into(), &"the answer has status 413: The bag is full.".into())
    );
    assert_eq!((&lines.last()["type"], &lines.last()["message"]), (&"result".into(), &"All is done.".into()));
}
