//! Archives that lie: each is refused with its reason before anything is written, and the run ends saying so.

use std::io::Write as _;

use serde_json::json;
use zip::CompressionMethod;
use zip::write::SimpleFileOptions;

use crate::protocol::{manifest, zipped};
use crate::world::World;

fn stored(entries: &[(&str, &[u8])], options: SimpleFileOptions) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, bytes) in entries {
        zip.start_file(*name, options).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

/// The bytes with every `from` made a `to` of the same length.
fn patched(mut zip: Vec<u8>, from: &[u8], to: &[u8]) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let places: Vec<usize> = (0..zip.len()).filter(|at| zip[*at..].starts_with(from)).collect();
    assert!(!places.is_empty());
    for at in places {
        zip[at..at + to.len()].copy_from_slice(to);
    }
    zip
}

/// The last occurrence only: the one in the directory.
fn patched_last(mut zip: Vec<u8>, from: &[u8], to: &[u8]) -> Vec<u8> {
    let at = (0..zip.len()).rev().find(|at| zip[*at..].starts_with(from)).unwrap();
    zip[at..at + to.len()].copy_from_slice(to);
    zip
}

fn link() -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    zip.add_symlink("link", "/etc/passwd", SimpleFileOptions::default()).unwrap();
    zip.finish().unwrap().into_inner()
}

fn plain(names: &[&str]) -> Vec<u8> {
    zipped(&names.iter().map(|name| (*name, b"x".as_slice())).collect::<Vec<_>>())
}

/// A bit of the flags of every header: at 6 in a local one, at 8 in one of the directory.
fn flagged(mut zip: Vec<u8>, bit: u8) -> Vec<u8> {
    for at in 0..zip.len().saturating_sub(10) {
        if zip[at..].starts_with(b"PK\x03\x04") {
            zip[at + 6] |= bit;
        } else if zip[at..].starts_with(b"PK\x01\x02") {
            zip[at + 8] |= bit;
        }
    }
    zip
}

fn attacks() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let dense = stored(&[("zeros", &vec![0; 8 << 20])], SimpleFileOptions::default());
    let many: Vec<String> = (0..10_001).map(|number| format!("f{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let plain_options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    let big = stored(&[("big", &vec![7; 20 << 20])], plain_options);
    let two = stored(&[("aaaa", b"one"), ("bbbb", b"two")], plain_options);
    // The directory's second entry points at the first one's bytes.
    let mut overlapping = two.clone();
    let second = (0..two.len()).rev().find(|at| two[*at..].starts_with(b"PK\x01\x02")).unwrap();
    overlapping[second + 42..second + 46].copy_from_slice(&[0; 4]);
    let mut counted = plain(&["a", "b"]);
    let end = counted.len() - 22;
    counted[end + 10] = 1;
    vec![
        ("a path upwards", patched(plain(&["xx/yyyy"]), b"xx/yyyy", b"../../y"), "does not stay within"),
        ("a path from the root", patched(plain(&["xetc/x"]), b"xetc/x", b"/etc/x"), "does not stay within"),
        (
            "a path upwards further in",
            patched(plain(&["a/xx/b"]), b"a/xx/b", b"a/../b"),
            "does not stay within",
        ),
        ("a backslash", patched(plain(&["a_b"]), b"a_b", b"a\\b"), "does not stay within"),
        ("a NUL", patched(plain(&["a_b"]), b"a_b", b"a\0b"), "does not stay within"),
        ("a new line", patched(plain(&["a_b"]), b"a_b", b"a\nb"), "does not stay within"),
        ("not UTF-8", patched(plain(&["a_b"]), b"a_b", b"a\xffb"), "not UTF-8"),
        ("an empty part", patched(plain(&["ax/b"]), b"ax/b", b"a//b"), "does not stay within"),
        ("a link", link(), "is a link"),
        ("the same name twice", patched(plain(&["aaaa", "bbbb"]), b"bbbb", b"aaaa"), "same name"),
        ("twins by case", plain(&["File.txt", "file.TXT"]), "twin"),
        ("twins by Unicode", plain(&["\u{e9}", "e\u{301}"]), "twin"),
        ("a file that is a folder", plain(&["a", "a/b"]), "twin"),
        ("a folder in two cases", plain(&["A/x", "a/y"]), "twin"),
        ("encrypted", flagged(plain(&["a"]), 1), "encrypted"),
        ("a bomb", dense, "100 to 1"),
        ("too many", plain(&many), "more than 10000"),
        ("too much", big, "bytes"),
        ("overlapping", overlapping, ""),
        ("another name in its own header", patched_last(plain(&["aaaa"]), b"aaaa", b"bbbb"), "own header"),
        ("fewer than there are", counted, ""),
        (
            "cut short",
            {
                let mut zip = plain(&["a"]);
                zip.truncate(20);
                zip
            },
            "not a zip",
        ),
        (
            "something behind its end",
            {
                let mut zip = plain(&["a"]);
                zip.extend_from_slice(b"more");
                zip
            },
            "not a zip",
        ),
        ("no zip at all", b"hello".to_vec(), "not a zip"),
        ("nothing", Vec::new(), "not a zip"),
        ("changed bytes", patched(stored(&[("a", b"hello")], plain_options), b"hello", b"hallo"), ""),
    ]
}

#[tokio::test]
async fn archives_that_lie_are_refused() {
    let world = World::with(None, &[("THREADKEEP_SANDBOX_DISK_BYTES", "16777216")]).await;
    for (name, zip, reason) in attacks() {
        world.told.lock().zip = Some(zip);
        let lines = world.run("list").await;
        assert_eq!(lines.last()["code"], "sandbox_assets", "{name}: {lines:#?}");
        let said = lines.step("unpack files")["error"].as_str().unwrap().to_owned();
        assert!(said.contains(reason), "{name}: {said}");
        assert!(lines.ended("list_files").is_empty(), "{name}: the agent never starts");
    }
    world.told.lock().zip = None;
    assert_eq!(world.run("hello").await.last()["type"], "result");
}

#[tokio::test]
async fn what_was_not_announced_is_refused() {
    let world = World::new().await;
    let files: &[(&str, &[u8])] = &[("a.txt", b"one")];
    for (name, announced) in [
        ("another hash", json!([{ "name": "a.txt", "size": 3, "sha256": "00" }])),
        ("another size", json!([{ "name": "a.txt", "size": 4, "sha256": manifest(files)[0]["sha256"] }])),
        ("another name", json!([{ "name": "b.txt", "size": 3, "sha256": manifest(files)[0]["sha256"] }])),
        ("one more", json!([manifest(files)[0], { "name": "b.txt", "size": 3, "sha256": "00" }])),
    ] {
        {
            let mut told = world.told.lock();
            told.zip = Some(zipped(files));
            told.files = announced.as_array().unwrap().clone();
        }
        assert_eq!(world.run("list").await.last()["code"], "sandbox_assets", "{name}");
    }
}

#[tokio::test]
async fn as_many_files_as_were_announced_are_taken() {
    let world = World::new().await;
    let names: Vec<String> = (0..10_001).map(|number| format!("f{number}")).collect();
    let files: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), b"x".as_slice())).collect();
    {
        let mut told = world.told.lock();
        told.zip = Some(zipped(&files));
        told.files = manifest(&files);
    }
    let lines = world.run("run ls | grep -c ^f").await;
    assert_eq!(lines.output(), "10001\n", "{:#?}", lines.last());
}

#[tokio::test]
async fn an_ordinary_archive_is_taken_whole() {
    let world = World::new().await;
    let text = "line\n".repeat(400_000);
    let random: Vec<u8> = (0..3_000_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let files: &[(&str, &[u8])] =
        &[("empty", b""), ("ordner/größe.txt", "ü".as_bytes()), ("random.bin", &random), ("small", b"1")];
    {
        let mut told = world.told.lock();
        told.zip = Some(zipped(files));
        told.files = manifest(files);
    }
    let lines = world.run("run sha256sum random.bin empty small 'ordner/größe.txt'; wc -c random.bin").await;
    let output = lines.output();
    for file in manifest(files) {
        assert!(output.contains(file["sha256"].as_str().unwrap()), "{file}: {output}");
    }
    assert!(text.len() > 1);
}

#[tokio::test]
async fn whatever_a_bag_may_call_a_file_is_taken() {
    let world = World::new().await;
    let sent = [
        "a: notes.txt",
        "1:1 notes.txt",
        "Q:1.txt",
        "C:x",
        ":",
        "a\"b",
        "-rf",
        "~",
        "$(id)",
        "..a",
        "con:1",
        "x ",
    ];
    let names: Vec<String> = sent.iter().map(|name| domain::file::safe_name(name)).collect();
    let files: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), name.as_bytes())).collect();
    {
        let mut told = world.told.lock();
        told.zip = Some(zipped(&files));
        told.files = manifest(&files);
    }
    for name in &names {
        let lines = world.run(&format!("read {name}")).await;
        assert_eq!(lines.step("read_file")["result"], **name, "{name}: {lines:#?}");
    }
}

#[tokio::test]
async fn a_file_named_like_a_folder_of_the_room_is_put_beside_it() {
    let world = World::new().await;
    let files: &[(&str, &[u8])] = &[("assets", b"one"), ("_assets/x", b"two"), ("recipes", b"three")];
    {
        let mut told = world.told.lock();
        told.zip = Some(zipped(files));
        told.files = manifest(files);
    }
    let output = world.shell("cat __assets _assets/x recipes; test -d assets && echo .").await;
    assert_eq!(output, "onetwothree.\n");
    world.told.lock().recipes = json!([{ "name": "a.sh", "content": "echo a" }]);
    assert_eq!(world.shell("cat __assets _recipes recipes/a.sh").await, "onethreeecho a");
}
