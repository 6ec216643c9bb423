//! Tests that need a process of their own: to be killed, or to have its memory counted. The process is this
//! program again, told to run one ignored test.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use jiff::Timestamp;
use sha2::Digest as _;
use store::blobs::Blobs;
use testkit::s3::{self, BUCKET, Kind};
use tokio_util::task::TaskTracker;

use crate::setup::{folder, get, keys, noise};

const ROOT: &str = "TEST_BLOBS_FOLDER";
const SIZE: usize = 600 * 1024;

fn child(test: &str, env: &[(&str, &str)]) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([&format!("child::{test}"), "--exact", "--ignored", "--nocapture"]);
    command.envs(env.iter().copied()).stdout(Stdio::piped()).spawn().unwrap()
}

/// The words after `said` on the lines the child writes.
fn words(child: &mut Child) -> impl Iterator<Item = String> + use<> {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    lines.filter_map(|line| Some(line.split_once("said ")?.1.to_owned()))
}

#[tokio::test]
#[ignore = "is run by a_killed_process_leaves_whole_keys_only"]
async fn writes_until_killed() {
    let Ok(root) = std::env::var(ROOT) else { return };
    let blobs = Blobs::folder(root).await.unwrap();
    let mut open = Vec::new();
    for n in 0_u64.. {
        let mut other = blobs.writer("half").await.unwrap();
        other.write(noise(1, SIZE)).await.unwrap();
        // Of its chunks at least the first is on the disk now.
        open.push(other);
        let mut writer = blobs.writer(&format!("bag/{n}")).await.unwrap();
        writer.write(noise(n, SIZE)).await.unwrap();
        writer.finish().await.unwrap();
        println!("said {n}");
    }
}

#[tokio::test]
async fn a_killed_process_leaves_whole_keys_only() {
    for lines in [1, 2, 5, 9] {
        let blobs = folder().await;
        let root = blobs.folder.as_ref().unwrap().path().join("made/files");
        let mut child = child("writes_until_killed", &[(ROOT, root.to_str().unwrap())]);
        let mut said = words(&mut child);
        let mut acknowledged: Vec<String> = said.by_ref().take(lines).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        acknowledged.extend(said);
        assert!(acknowledged.len() >= lines, "{acknowledged:?}");

        let found = keys(&blobs, "").await;
        for n in &acknowledged {
            assert!(found.contains(&format!("bag/{n}")), "{n} of {found:?}");
        }
        for key in found {
            let n = key.strip_prefix("bag/").expect("nothing under the key of the open writers");
            assert!(get(&blobs, &key).await.unwrap() == noise(n.parse().unwrap(), SIZE), "{key}");
        }
        assert!(std::fs::read_dir(root.join("tmp")).unwrap().count() > 0);
        assert_eq!(blobs.sweep_temp(Timestamp::MIN).await, Ok(0));
        assert!(blobs.sweep_temp(Timestamp::MAX).await.unwrap() >= acknowledged.len() as u64);
        assert_eq!(std::fs::read_dir(root.join("tmp")).unwrap().count(), 0);
    }
}

#[tokio::test]
#[ignore = "is run by bytes_last_before_they_have_their_name"]
async fn writes_one_file() {
    let Ok(root) = std::env::var(ROOT) else { return };
    let blobs = Blobs::folder(root).await.unwrap();
    let mut writer = blobs.writer("bag/w/x").await.unwrap();
    writer.write(noise(1, 9 * 1024 * 1024)).await.unwrap();
    writer.finish().await.unwrap();
}

/// No kill shows it, only the loss of power does: so the calls themselves are looked at.
#[test]
fn bytes_last_before_they_have_their_name() {
    let base = tempfile::tempdir().unwrap();
    let (root, calls) = (base.path().canonicalize().unwrap().join("files"), base.path().join("calls"));
    let mut strace = Command::new("strace");
    strace.args([
        "-f",
        "-y",
        "-s",
        "0",
        "-e",
        "trace=write,fadvise64,fdatasync,fsync,rename,renameat2",
        "-o",
    ]);
    strace.arg(&calls).arg(std::env::current_exe().unwrap());
    strace.args(["child::writes_one_file", "--exact", "--ignored"]).env(ROOT, &root);
    let ran = strace.output();
    if !ran.as_ref().is_ok_and(|output| output.status.success()) {
        let _ = writeln!(std::io::stderr(), "SKIPPED: the order of calls (strace does not run: {ran:?})");
        return;
    }
    let calls = std::fs::read_to_string(calls).unwrap();
    let renamed =
        calls.lines().find(|line| line.contains("rename") && line.contains("/files/bag/w/x")).unwrap();
    // What one thread did is in its order, whatever others do between.
    let thread = renamed.split_whitespace().next().unwrap();
    let own: Vec<&str> = calls.lines().filter(|line| line.starts_with(thread)).collect();
    let (before, after) = own.split_at(own.iter().position(|line| *line == renamed).unwrap());
    let synced = before.iter().position(|line| line.contains("fdatasync") && line.contains("/files/tmp/"));
    let synced = synced.expect("the bytes are synced before they have their name");
    assert!(
        !before[synced..].iter().any(|line| line.contains("write(")),
        "nothing is written after that: {own:?}"
    );
    for folder in ["/files/bag/w>", "/files/bag>", "/files>"] {
        let last = after.iter().any(|line| line.contains("fsync") && line.contains(folder));
        assert!(last, "the name lasts up to the root, not in {folder}: {own:?}");
    }
    let begun = calls.lines().filter(|line| line.contains("fadvise64")).count();
    assert_eq!(begun, 2, "the disk begins before all has come: {calls}");
}

/// In kB, of this process.
fn memory(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').trim_end_matches("kB").trim().parse().unwrap()
}

#[tokio::test]
#[ignore = "is run by a_large_file_passes_through_little_memory"]
async fn carries_a_large_file() {
    let blobs = match (std::env::var(ROOT), std::env::var("AWS_ENDPOINT_URL")) {
        (Ok(root), _) => Blobs::folder(root).await.unwrap(),
        (_, Ok(_)) => {
            Blobs::s3(BUCKET, "large", |name| std::env::var(name).ok(), &TaskTracker::new()).await.unwrap()
        }
        _ => return,
    };
    let before = memory("VmRSS");
    let block = noise(1, 1024 * 1024);
    let mut writer = blobs.writer("large").await.unwrap();
    for _ in 0..100 {
        for piece in block.chunks(64 * 1024) {
            writer.write(Bytes::copy_from_slice(piece)).await.unwrap();
        }
    }
    let digest = writer.finish().await.unwrap();
    let mut expected = sha2::Sha256::new();
    (0..100).for_each(|_| expected.update(&block));
    assert_eq!(digest.sha256, <[u8; 32]>::from(expected.finalize()));
    let (mut size, mut bytes) = (0, blobs.read("large", None).await.unwrap());
    while let Some(chunk) = bytes.try_next().await.unwrap() {
        size += chunk.len();
    }
    assert_eq!(size, 100 * 1024 * 1024);
    assert_eq!(blobs.digest("large").await.unwrap(), digest);
    println!("said {}", memory("VmHWM") - before);
}

/// What the child's memory grew by, in MB; the largest that is right is known for each kind.
fn growth(env: &[(&str, &str)]) -> u64 {
    let mut child = child("carries_a_large_file", env);
    let said: Vec<String> = words(&mut child).collect();
    assert!(child.wait().unwrap().success());
    said.first().expect("the child counted").parse::<u64>().unwrap() / 1024
}

#[tokio::test]
async fn a_large_file_passes_through_little_memory() {
    let root = tempfile::tempdir().unwrap();
    let grown = growth(&[(ROOT, root.path().to_str().unwrap())]);
    assert!(grown < 10, "the folder took {grown} MB");
    for kind in [Kind::S3rver, Kind::Moto] {
        if let Some(server) = s3::server(kind) {
            // A part of 5 MiB, and what the connection holds of it.
            let grown = growth(&server.settings());
            assert!(grown < 30, "{kind:?} took {grown} MB");
        }
    }
}
