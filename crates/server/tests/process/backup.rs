//! A backup while the server is written to, and the way back, whatever ends it on the way.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde_json::{Value, json};
use testkit::form::Form;
use testkit::process::command;
use testkit::server::Answer;

use crate::house::{BINARY, CONVERSATIONS, Caller, House, random};

/// A conversation with a file in it; its id, and the file's text.
async fn made(house: &House, caller: &Caller, url: &str, n: u64) -> (String, String) {
    let answer = caller.create(json!({ "title": format!("Conversation {n}") })).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let id = answer.body["data"]["id"].as_str().expect("an id").to_owned();
    let text = format!("the bytes of {n} ").repeat(1 + random(2000) as usize);
    let upload = crate::house::client()
        .post(format!("{url}{CONVERSATIONS}/{id}/files"))
        .bearer_auth(house.file("local.key"))
        .header("content-type", Form::kind())
        .body(Form::of(&format!("{n}.txt"), text.as_bytes()).end());
    let answer = Answer::read(upload.send().await.expect("an answer")).await.expect("a body");
    assert_eq!(answer.status, 201, "{}", answer.text);
    (id, text)
}

/// Every conversation by id, with its title and the text of its files.
async fn all(house: &House, env: &[(&str, &str)]) -> BTreeMap<String, (String, Vec<String>)> {
    let mut server = house.serve_with(env).await;
    let caller = Caller::new(server.url(), &house.file("local.key"));
    let (mut found, mut path) = (BTreeMap::new(), format!("{CONVERSATIONS}?page[size]=100&sort=created_at"));
    loop {
        let page = caller.get(&path).await.body;
        for row in page["data"].as_array().expect("a list") {
            let id = row["id"].as_str().expect("an id").to_owned();
            let mut texts = Vec::new();
            let files = caller.get(&format!("{CONVERSATIONS}/{id}/files")).await.body;
            for file in files["data"].as_array().expect("files") {
                let file = file["id"].as_str().expect("an id");
                let content = caller.get(&format!("{CONVERSATIONS}/{id}/files/{file}/content")).await;
                assert_eq!(content.status, 200, "{}", content.text);
                texts.push(content.text);
            }
            let title = row["attributes"]["title"].as_str().expect("a title").to_owned();
            found.insert(id, (title, texts));
        }
        match page["links"]["next"].as_str() {
            Some(next) => path = next.trim_start_matches(server.url()).to_owned(),
            None => break,
        }
    }
    server.terminate().await.expect("it stops");
    found
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_answered_before_a_backup_is_in_it_whatever_is_written_meanwhile() {
    let house = House::sqlite();
    let server = house.serve().await;
    let caller = house.caller(&server);
    let mut acknowledged = BTreeMap::new();
    for n in 0..30 {
        let (id, bytes) = made(&house, &caller, server.url(), n).await;
        acknowledged.insert(id, (format!("Conversation {n}"), vec![bytes]));
    }
    let elsewhere = tempfile::tempdir().expect("a folder");
    let to = elsewhere.path().join("monday");
    let writing = Arc::new(AtomicBool::new(true));
    let load = async {
        let mut n = 1000;
        while writing.load(Ordering::SeqCst) {
            let (id, _) = made(&house, &caller, server.url(), n).await;
            // Some of it goes at once, for good: its bytes may go between the copy of the rows and that of the bytes.
            if n % 2 == 0 {
                caller
                    .send(reqwest::Method::DELETE, &format!("{CONVERSATIONS}/{id}"), None)
                    .await
                    .expect("an answer");
            }
            if n % 8 == 0 {
                house.run(&["purge"], &[]).await;
            }
            n += 1;
        }
        n - 1000
    };
    let backup = async {
        let ran = house.run(&["backup", text(&to), "--json"], &[]).await;
        writing.store(false, Ordering::SeqCst);
        ran
    };
    let (ran, written) = tokio::join!(backup, load);
    assert!(ran.code == Some(0) && ran.stderr.is_empty(), "{ran:?}");
    assert!(written > 0, "nothing was written meanwhile");
    let told = &ran.json_lines()[0];
    assert!(told["files"].as_u64() >= Some(30) && told["backup"] == text(&to), "{told}");
    let again = house.run(&["backup", text(&to)], &[]).await;
    assert!(again.code == Some(1) && again.stderr.contains("is there already"), "{again:?}");

    let new = House::sqlite();
    let refused = house.run(&["restore", text(&to)], &[]).await;
    assert!(
        refused.code == Some(1) && refused.stderr.contains("is serving"),
        "a server runs there: {refused:?}"
    );
    let ran = new.run(&["restore", text(&to)], &[]).await;
    assert!(ran.code == Some(0) && ran.stdout.starts_with("Restored from"), "{ran:?}");
    assert_eq!(new.file("local.key"), house.file("local.key"));
    let restored = all(&new, &[]).await;
    for (id, wanted) in &acknowledged {
        assert_eq!(restored.get(id), Some(wanted), "{id}");
    }
    let refused = new.run(&["restore", text(&to)], &[]).await;
    assert!(refused.code == Some(1) && refused.stderr.contains("is not empty"), "{refused:?}");
}

#[tokio::test]
async fn a_restore_that_is_killed_is_run_again_and_comes_to_the_same_end() {
    let house = House::sqlite();
    let mut server = house.serve().await;
    let caller = house.caller(&server);
    for n in 0..25 {
        made(&house, &caller, server.url(), n).await;
    }
    let elsewhere = tempfile::tempdir().expect("a folder");
    let to = elsewhere.path().join("backup");
    assert_eq!(house.run(&["backup", text(&to)], &[]).await.code, Some(0));
    server.terminate().await.expect("it stops");
    let wanted = all(&house, &[]).await;

    let mut new = House::sqlite();
    let began = Instant::now();
    let ran = new.run(&["restore", text(&to)], &[]).await;
    let mut longest = began.elapsed();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let whole = tree(new.data());
    assert!(whole.len() > 25, "{:?}", whole.keys());
    new = House::sqlite();
    // Each at some moment of the time that it takes, which changes with what else the machine does; what has come to its
    // end begins anew.
    let (mut landed, mut half) = (0, 0);
    for _ in 0..50 {
        let mut restoring = command(Path::new(BINARY), &[], new.data());
        let mut child = restoring.args(["restore", text(&to)]).spawn().expect("the binary runs");
        tokio::time::sleep(longest.mul_f64(random(1000) as f64 / 1000.0)).await;
        child.start_kill().expect("killed");
        let succeeded = child.wait().await.expect("an end").success();
        // A kill may also come after the work and before the exit: all is there then, and would be refused.
        if succeeded || tree(new.data()) == whole {
            assert_same(&tree(new.data()), &whole);
            new = House::sqlite();
            longest = longest.mul_f64(0.9);
            continue;
        }
        landed += 1;
        // No server takes the half for the whole.
        if new.data().join("restore.json").exists() {
            half += 1;
            if half % 8 == 1 {
                let refused = new.run(&["serve"], &[]).await;
                let said = refused.stderr.contains("is being restored");
                assert!(refused.code == Some(1) && said, "{refused:?}");
            }
        } else {
            longest = longest.mul_f64(1.2);
        }
    }
    assert!(landed >= 10 && half >= 5, "{landed} of 50 kills came before the end, {half} left a half");
    if tree(new.data()) != whole {
        let ran = new.run(&["restore", text(&to)], &[]).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
    assert_same(&tree(new.data()), &whole);
    assert_eq!(all(&new, &[]).await, wanted);
}

/// The same files with the same bytes.
fn assert_same(found: &BTreeMap<PathBuf, Vec<u8>>, wanted: &BTreeMap<PathBuf, Vec<u8>>) {
    let more: Vec<_> = found.keys().filter(|name| !wanted.contains_key(*name)).collect();
    assert!(more.is_empty(), "{more:?} are there too");
    for (name, bytes) in wanted {
        assert!(found.get(name) == Some(bytes), "{} is not what one restore makes", name.display());
    }
}

/// Every file under a folder, but for locks and what a server sweeps away.
fn tree(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).expect("a folder").map(|entry| entry.expect("one").path()) {
            if entry.is_dir() {
                folders.extend(Some(entry).filter(|entry| !entry.ends_with("blobs/tmp")));
            } else if entry.extension().is_none_or(|ending| ending != "lock") {
                let name = entry.strip_prefix(folder).expect("below it").to_owned();
                found.insert(name, std::fs::read(&entry).expect("bytes"));
            }
        }
    }
    found
}

#[tokio::test]
async fn what_is_no_backup_or_damaged_is_refused_and_nothing_is_started_on_it() {
    let house = House::sqlite();
    let none = house.run(&["backup", "nowhere"], &[]).await;
    assert!(none.code == Some(1) && none.stderr.contains("no database"), "{none:?}");
    let mut server = house.serve().await;
    let caller = house.caller(&server);
    made(&house, &caller, server.url(), 1).await;
    let elsewhere = tempfile::tempdir().expect("a folder");
    let to = elsewhere.path().join("backup");
    assert_eq!(house.run(&["backup", text(&to)], &[]).await.code, Some(0));
    server.terminate().await.expect("it stops");

    let new = House::sqlite();
    let refused = new.run(&["restore", text(elsewhere.path())], &[]).await;
    assert!(refused.code == Some(1) && refused.stderr.contains("is not a backup"), "{refused:?}");
    let manifest: Value =
        serde_json::from_slice(&std::fs::read(to.join("backup.json")).expect("a manifest")).expect("JSON");
    assert_eq!((&manifest["format"], &manifest["files"]), (&json!(1), &json!(1)));
    std::fs::write(to.join("threadkeep.db"), {
        let mut bytes = std::fs::read(to.join("threadkeep.db")).expect("the database");
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        bytes
    })
    .expect("written");
    let refused = new.run(&["restore", text(&to)], &[]).await;
    assert!(refused.code == Some(1) && refused.stderr.contains("is damaged"), "{refused:?}");
    assert!(!new.data().join("threadkeep.db").exists());

    let Some(postgres) = House::postgres().await else { return };
    let refused = postgres.run(&["backup", "x"], &[]).await;
    assert!(refused.code == Some(1) && refused.stderr.contains("pg_dump"), "{refused:?}");
}
