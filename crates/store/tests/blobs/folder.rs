//! What only a folder has: a disk that fills up, rights, empty folders, files that others put there.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use store::blobs::{BlobError, Blobs};
use tempfile::TempDir;

use crate::setup::{TestBlobs, folder, get, keys, noise, put, try_put};

/// A small file system in memory, unmounted with the value.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn mount(options: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("mount");
        let tried = command.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(folder.path()).output();
        if tried.as_ref().is_ok_and(|output| output.status.success()) {
            return Some(Self(folder));
        }
        let test = std::thread::current().name().unwrap_or("a test").to_owned();
        let _ = writeln!(std::io::stderr(), "SKIPPED: {test} (a tmpfs cannot be mounted: {tried:?})");
        None
    }

    /// Takes every byte that is left.
    fn fill(&self) -> PathBuf {
        let path = self.0.path().join("ballast");
        let mut file = File::create(&path).unwrap();
        while file.write_all(&[7; 4096]).is_ok() {}
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path()).output();
    }
}

fn root(blobs: &TestBlobs) -> PathBuf {
    blobs.folder.as_ref().unwrap().path().join("made/files")
}

fn entries(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Waits for what another thread is about to do.
async fn until(so: impl Fn() -> bool) {
    let waiting = async {
        while !so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waiting).await.expect("it happens");
}

#[tokio::test]
async fn a_full_disk_is_said_and_passes() {
    let Some(disk) = SmallDisk::mount("size=8m") else { return };
    let blobs = Blobs::folder(disk.0.path().join("files")).await.unwrap();
    for round in 0..3 {
        let kept = noise(round, 100_000);
        put(&blobs, "bag/kept", &kept).await;
        // Too large for the disk, then anything at all.
        let large = try_put(&blobs, "bag/large", &noise(1, 9_000_000)).await;
        assert!(matches!(large, Err(BlobError::Full(_))), "{large:?}");
        assert_eq!(entries(&disk.0.path().join("files/tmp")), [""; 0], "nothing is left of it");
        let ballast = disk.fill();
        let small = try_put(&blobs, "bag/small", &noise(2, 5_000)).await;
        assert!(matches!(small, Err(BlobError::Full(_))), "{small:?}");
        assert!(matches!(blobs.ping().await, Err(BlobError::Full(_))));
        assert_eq!(get(&blobs, "bag/kept").await.unwrap(), kept, "reads go on");
        assert_eq!(keys(&blobs, "").await, ["bag/kept"]);
        fs::remove_file(ballast).unwrap();
        // The kernel counts the room that came free on each of its cores, and tells of it a moment later.
        let passing = async {
            while blobs.ping().await.is_err() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), passing).await.expect("it passes by itself");
        put(&blobs, "bag/small", &noise(2, 5_000)).await;
        blobs.remove("bag/small").await.unwrap();
    }
}

#[tokio::test]
async fn a_folder_that_cannot_be_used_is_named() {
    let base = tempfile::tempdir().unwrap();
    let file = base.path().join("file");
    fs::write(&file, "x").unwrap();
    let error = Blobs::folder(file.join("under")).await.unwrap_err().to_string();
    assert!(error.contains(file.to_str().unwrap()) && error.contains("folder"), "{error}");
    assert_eq!(error.lines().count(), 1);

    let (Some(full), Some(fixed)) = (SmallDisk::mount("size=64k"), SmallDisk::mount("ro,size=1m")) else {
        return;
    };
    let within = full.0.path().join("files");
    fs::create_dir(&within).unwrap();
    fs::create_dir(within.join("tmp")).unwrap();
    full.fill();
    let opened = Blobs::folder(&within).await.unwrap();
    assert!(
        matches!(opened.ping().await, Err(BlobError::Full(_))),
        "it opens, to be read, and says what it lacks"
    );
    let error = Blobs::folder(fixed.0.path().join("files")).await.unwrap_err();
    assert!(matches!(&error, BlobError::Unavailable(text) if text.contains("Read-only")), "{error}");
}

#[tokio::test]
async fn files_are_for_this_user_alone() {
    let blobs = folder().await;
    put(&blobs, "bag/w/x", &noise(1, 1)).await;
    let root = root(&blobs);
    for (path, mode) in [("", 0o700), ("tmp", 0o700), ("bag", 0o700), ("bag/w", 0o700), ("bag/w/x", 0o600)] {
        let found = fs::metadata(root.join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!(found, mode, "{path}: {found:o}");
    }
}

#[tokio::test]
async fn empty_folders_go_and_temporary_files_too() {
    let blobs = folder().await;
    let root = root(&blobs);
    put(&blobs, "bag/w/c/x", &noise(1, 600_000)).await;
    put(&blobs, "bag/v/c/x", &noise(1, 1)).await;
    blobs.remove("bag/w/c/x").await.unwrap();
    assert_eq!(entries(&root), ["bag", "tmp"]);
    assert_eq!(entries(&root.join("bag")), ["v"]);
    blobs.copy("bag/v/c/x", "bag/u/y").await.unwrap();
    blobs.rename("bag/v/c/x", "one").await.unwrap();
    assert_eq!(entries(&root.join("bag")), ["u"]);
    blobs.remove("bag/u/y").await.unwrap();
    blobs.remove("one").await.unwrap();
    assert_eq!(entries(&root), ["tmp"]);

    let mut writer = blobs.writer("x").await.unwrap();
    writer.write(noise(1, 600_000)).await.unwrap();
    until(|| !entries(&root.join("tmp")).is_empty()).await;
    drop(writer);
    until(|| entries(&root.join("tmp")).is_empty()).await;
    assert!(matches!(blobs.writer("tmp/x").await, Err(BlobError::Internal(_))), "keys stay out of tmp");
    assert_eq!(blobs.presign_put("x", Duration::from_secs(1)).await, Ok(None));
}

#[tokio::test]
async fn a_copy_takes_no_space_and_outlives_its_source() {
    use std::os::unix::fs::MetadataExt as _;
    let blobs = folder().await;
    put(&blobs, "a/x", &noise(1, 100)).await;
    blobs.copy("a/x", "b/x").await.unwrap();
    let node = |key: &str| fs::metadata(root(&blobs).join(key)).unwrap().ino();
    assert_eq!(node("a/x"), node("b/x"));
    assert_eq!(entries(&root(&blobs).join("tmp")), [""; 0]);
}

#[tokio::test]
async fn what_others_put_there_is_passed_over() {
    let blobs = folder().await;
    let root = root(&blobs);
    put(&blobs, "bag/x", &noise(1, 1)).await;
    symlink("/etc/passwd", root.join("bag/link")).unwrap();
    fs::write(root.join(std::ffi::OsStr::from_bytes(b"bag/\xff")), "x").unwrap();
    assert_eq!(keys(&blobs, "").await, ["bag/x"]);
    // A file that was cut short is told, not passed off as whole.
    put(&blobs, "bag/cut", &noise(2, 600_000)).await;
    let mut stream = blobs.read("bag/cut", None).await.unwrap();
    File::options().write(true).open(root.join("bag/cut")).unwrap().set_len(300_000).unwrap();
    let mut ended = Ok(());
    while let Some(chunk) = futures_util::StreamExt::next(&mut stream).await {
        ended = chunk.map(drop);
    }
    assert!(matches!(ended, Err(BlobError::Internal(_))), "{ended:?}");
}
