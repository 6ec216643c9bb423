//! No space for bytes, and no space for rows: 507, nothing stored, and the next upload works once there is some.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;
use testkit::form::Form;

use crate::bad_input::blobs;
use crate::caller::{refused, sha256};
use crate::uploading::noise;
use crate::world::{Home, World, tell};

/// A small file system in memory, unmounted with the value.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn mount(options: &str) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let tried =
            Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(folder.path()).output();
        if tried.is_ok_and(|output| output.status.success()) {
            return Some(Self(folder));
        }
        crate::browser::skipped("mount -t tmpfs");
        None
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Takes every byte that is left but these.
    fn fill(&self, but: usize) -> PathBuf {
        let (path, spare) = (self.path().join("ballast"), self.path().join("spare"));
        std::fs::write(&spare, vec![7; but]).expect("a file");
        let mut file = File::create(&path).expect("a file");
        while file.write_all(&[7; 4096]).is_ok() {}
        while file.write_all(&[7]).is_ok() {}
        std::fs::remove_file(spare).expect("removed");
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.path()).output();
    }
}

#[tokio::test]
async fn no_space_for_bytes() {
    for home in [Home::Sqlite, Home::Postgres] {
        tell(home, full_of_bytes).await;
    }
}

async fn full_of_bytes(home: Home) -> Option<()> {
    let disk = SmallDisk::mount("size=4m")?;
    let url = format!("file://{}/blobs", disk.path().display());
    let world = World::start_with(home, &[("THREADKEEP_BLOB_URL", &url)]).await?;
    let ann = &world.ann;
    let chat = ann.conversation().await;
    let kept = ann.put(&chat, "kept.bin", &noise(1, 100_000)).await;
    for _ in 0..3 {
        let ballast = disk.fill(300_000);
        // One that fits, one that does not: neither is there.
        let form = Form::of("small.bin", &noise(2, 50_000)).file("large.bin", &noise(3, 900_000));
        refused(&ann.upload(&chat, &form).await, 507, "storage_full");
        assert_eq!(ann.list(&chat).await, std::slice::from_ref(&kept));
        assert_eq!(sha256(&ann.content(&kept).await.bytes), kept["sha256"].as_str().unwrap(), "reads go on");
        std::fs::remove_file(ballast).expect("removed");
    }
    let next = ann.put(&chat, "large.bin", &noise(3, 900_000)).await;
    assert_eq!((&next["name"], ann.list(&chat).await.len()), (&Value::from("large.bin"), 2));
    Some(())
}

#[tokio::test]
async fn no_space_for_rows() {
    tell(Home::Sqlite, full_of_rows).await;
}

async fn full_of_rows(home: Home) -> Option<()> {
    let disk = SmallDisk::mount("size=8m")?;
    let blobs_at = tempfile::tempdir().expect("a temporary folder");
    let data = disk.path().join("data");
    let url = format!("file://{}", blobs_at.path().display());
    let env = [("THREADKEEP_BLOB_URL", url.as_str()), ("THREADKEEP_DATA", data.to_str().expect("a path"))];
    let world = World::start_with(home, &env).await?;
    let ann = &world.ann;
    let chat = ann.conversation().await;
    let kept = ann.put(&chat, "kept.txt", b"kept").await;
    let mut stored = vec![kept];
    let ballast = disk.fill(0);
    let mut refusals = 0;
    // What the log of writes still has room for is taken; then it is full.
    for n in 0..400 {
        let answer = ann.upload(&chat, &Form::of(&format!("{n}.txt"), b"more")).await;
        match answer.status {
            201 => stored.push(answer.body["files"][0].clone()),
            _ => {
                refused(&answer, 507, "storage_full");
                refusals += 1;
            }
        }
        if refusals == 3 {
            break;
        }
    }
    assert_eq!(refusals, 3, "the disk is not full");
    assert_eq!(ann.list(&chat).await, stored);
    std::fs::remove_file(ballast).expect("removed");
    stored.push(ann.put(&chat, "after.txt", b"after").await);
    assert_eq!(ann.list(&chat).await, stored);
    assert_eq!(blobs(&world), Vec::<String>::new(), "the bytes are elsewhere");
    Some(())
}
