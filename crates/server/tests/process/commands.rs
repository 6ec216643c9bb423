//! The commands beside the server: keys, migrate, doctor, completions, version.

use std::path::Path;
use std::process::Stdio;

use nix::sys::signal::Signal;
use reqwest::Method;
use serde_json::{Value, json};
use testkit::process::ServerProcess;
use testkit::server::{JWT_SECRET, token};
use tokio_postgres::NoTls;

use crate::house::{BINARY, CONVERSATIONS, Caller, House, stop_well};

/// Runs SQL on a database of the test's own.
pub async fn execute(url: &str, sql: &str) {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a connection");
    tokio::select! {
        done = client.batch_execute(sql) => done.unwrap_or_else(|error| panic!("{sql}: {error:?}")),
        _ = connection => panic!("the connection closed during: {sql}"),
    }
}

/// Makes, lists and removes a key by the commands while the server runs, which must notice at once.
async fn key_by_command(house: &House, server: &ServerProcess, whose: &[&str], env: &[(&str, &str)]) {
    let run = async |args: &[&str]| {
        let ran = house.run(&[&["keys"], args, whose].concat(), env).await;
        assert!(ran.code == Some(0) && ran.stderr.is_empty(), "{args:?}: {ran:?}");
        ran
    };
    let made =
        run(&["create", "--name", "made by command", "--role", "service", "--json"]).await.json_lines();
    let [made] = &made[..] else { panic!("one key is one line: {made:?}") };
    let (key, id) = (made["key"].as_str().expect("a key"), made["id"].as_str().expect("an id"));
    assert!(
        key.starts_with("tk_") && made["role"] == "service" && made["name"] == "made by command",
        "{made}"
    );
    let caller = Caller::new(server.url(), key);
    let who = caller.get("/v1/session").await;
    assert_eq!((who.status, &who.body["key"]), (200, &json!(id)), "{}", who.text);
    assert_eq!(caller.get(CONVERSATIONS).await.status, 200);

    let plain = run(&["create", "--name", "plain", "--role", "member"]).await.stdout;
    let plain =
        plain.strip_suffix('\n').filter(|key| !key.contains('\n')).expect("the key, alone on its line");
    assert_eq!(Caller::new(server.url(), plain).get("/v1/session").await.status, 200);

    let listed = run(&["list", "--json"]).await;
    assert_eq!(run(&["--json"]).await.stdout, listed.stdout, "alone it lists");
    let names: Vec<Value> = listed.json_list().into_iter().map(|key| key["name"].clone()).collect();
    assert!(names.contains(&json!("made by command")) && names.contains(&json!("plain")), "{names:?}");
    let shown = run(&["list"]).await.stdout;
    assert_eq!(run(&[]).await.stdout, shown, "alone it lists");
    assert!(shown.contains(id) && shown.contains("made by command"), "{shown}");
    for text in [&listed.stdout, &shown] {
        assert!(!text.contains(key) && !text.contains("tk_"), "a key is shown once: {text}");
    }

    // One key, and none, are a list too.
    for key in listed.json_list().iter().filter(|key| key["id"] != id) {
        run(&["remove", key["id"].as_str().expect("an id")]).await;
    }
    let ids = async || {
        run(&["list", "--json"]).await.json_list().iter().map(|key| key["id"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(ids().await, [json!(id)]);
    assert_eq!(run(&["remove", id, "--json"]).await.json_lines(), [json!({ "removed": id })]);
    assert_eq!(caller.get("/v1/session").await.status, 401);
    assert_eq!(ids().await, Vec::<Value>::new());
    assert!(!run(&["list"]).await.stdout.contains(id));
    let again = house.run(&[&["keys", "remove", id], whose].concat(), env).await;
    assert!(again.code == Some(1) && again.stdout.is_empty() && again.stderr.contains(id), "{again:?}");
}

#[tokio::test]
async fn keys_of_the_local_user_work_and_stop_at_once() {
    for house in [Some(House::sqlite()), House::postgres().await].into_iter().flatten() {
        let early = house.run(&["keys", "list"], &[]).await;
        assert!(early.code == Some(1) && early.stderr.contains("start the server once"), "{early:?}");
        let server = house.serve().await;
        key_by_command(&house, &server, &[], &[]).await;
    }
}

#[tokio::test]
async fn keys_of_a_named_user_work_where_tokens_are_verified() {
    for house in [Some(House::sqlite()), House::postgres().await].into_iter().flatten() {
        let env = [("THREADKEEP_JWT_SECRET", JWT_SECRET), ("THREADKEEP_SECRET", JWT_SECRET)];
        let server = house.serve_with(&env).await;
        assert_eq!(server.printed_address(), server.url(), "no ticket outside local mode");
        assert!(!house.data().join("local.key").exists() && !house.data().join("secret.key").exists());
        let ann = Caller::new(server.url(), &token("ann", "org"));
        let named = json!({ "name": "Ann's" });
        let made = ann.send(Method::POST, "/v1/workspaces", Some(&named)).await.expect("an answer");
        assert_eq!(made.status, 201, "{}", made.text);
        let nobody = house.run(&["keys", "list"], &env).await;
        assert!(nobody.code == Some(1) && nobody.stderr.contains("--user"), "{nobody:?}");
        let stranger = house.run(&["keys", "list", "--user", "bob"], &env).await;
        assert!(stranger.code == Some(1) && stranger.stderr.contains("bob"), "{stranger:?}");
        key_by_command(&house, &server, &["--user", "ann"], &env).await;
    }
}

#[tokio::test]
async fn a_schema_is_made_once() {
    for house in [Some(House::sqlite()), House::postgres().await].into_iter().flatten() {
        let first = house.run(&["migrate"], &[]).await;
        assert!(
            first.code == Some(0) && first.stdout.starts_with("The schema was made at version"),
            "{first:?}"
        );
        let second = house.run(&["migrate"], &[]).await;
        assert!(
            second.code == Some(0) && second.stdout.starts_with("The schema is up to date"),
            "{second:?}"
        );
        let third = house.run(&["migrate", "--json"], &[]).await;
        let [json] = &third.json_lines()[..] else { panic!("one line: {third:?}") };
        assert!(json["before"].is_i64() && json["before"] == json["after"], "{json}");
        let server = house.serve().await;
        let beside = house.run(&["migrate"], &[]).await;
        assert_eq!((beside.code, &beside.stdout), (Some(0), &second.stdout), "beside a server: {beside:?}");
        assert_eq!(house.caller(&server).get("/readyz").await.status, 200);
    }
}

/// The findings of `doctor --json` by check, with the exit code; the text for people must say the same.
async fn doctor(house: &House, env: &[(&str, &str)]) -> (Option<i32>, Vec<(String, bool, String)>) {
    let (json, text) = (house.run(&["doctor", "--json"], env).await, house.run(&["doctor"], env).await);
    assert_eq!((json.code, json.stderr.as_str()), (text.code, ""), "{json:?} {text:?}");
    let findings: Vec<_> = json
        .json_list()
        .iter()
        .map(|line| {
            let text = |name: &str| line[name].as_str().expect(name).to_owned();
            (text("check"), line["ok"].as_bool().expect("ok"), text("detail"))
        })
        .collect();
    for (check, ok, detail) in &findings {
        let line = format!("{} {check}: {detail}", if *ok { "ok  " } else { "FAIL" });
        assert!(text.stdout.lines().any(|found| found == line), "{line} is not in {}", text.stdout);
    }
    (json.code, findings)
}

/// The one finding that failed, and the exit code that says so.
async fn failure(house: &House, env: &[(&str, &str)]) -> (String, String) {
    let (code, findings) = doctor(house, env).await;
    assert_eq!(code, Some(1), "{findings:?}");
    let mut failed: Vec<_> = findings.into_iter().filter(|(_, ok, _)| !ok).collect();
    assert_eq!(failed.len(), 1, "{failed:?}");
    let (check, _, detail) = failed.remove(0);
    (check, detail)
}

#[tokio::test]
async fn the_doctor_finds_a_healthy_house_healthy_and_changes_nothing() {
    for house in [Some(House::sqlite()), House::postgres().await].into_iter().flatten() {
        let (code, findings) = doctor(&house, &[]).await;
        assert_eq!(code, Some(0), "{findings:?}");
        assert!(findings.iter().any(|(_, _, detail)| detail.contains("at the first start")), "{findings:?}");
        assert_eq!(std::fs::read_dir(house.data()).expect("a folder").count(), 0, "nothing was made");
        let server = house.serve().await;
        let address = server.url().trim_start_matches("http://").to_owned();
        let (code, findings) = doctor(&house, &[("THREADKEEP_LISTEN", &address)]).await;
        assert_eq!(code, Some(0), "{findings:?}");
        for part in ["is ready", "audit log whole", "local mode", "files in", "demo model alone"] {
            assert!(findings.iter().any(|(_, _, detail)| detail.contains(part)), "{part}: {findings:?}");
        }
    }
}

#[tokio::test]
async fn the_doctor_says_what_to_do_where_something_is_wrong() {
    let house = House::sqlite();
    let file = house.data().join("a-file");
    std::fs::write(&file, "not a database at all").expect("written");
    let (file, sqlite) = (file.to_str().expect("a path"), format!("sqlite:{}", file.display()));
    let (check, detail) = failure(&house, &[("DATABASE_URL", "postgres://me:hunter2@127.0.0.1:1/x")]).await;
    assert!(
        check == "database" && detail.contains("DATABASE_URL") && !detail.contains("hunter2"),
        "{detail}"
    );
    let (check, detail) = failure(&house, &[("DATABASE_URL", &sqlite)]).await;
    assert!(check == "database" && detail.contains("DATABASE_URL"), "{detail}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let (check, detail) = failure(&house, &[("THREADKEEP_LISTEN", &address)]).await;
    assert!(check == "server" && detail.contains("THREADKEEP_LISTEN"), "{detail}");
    let (check, detail) = failure(&house, &[("THREADKEEP_BLOB_URL", &format!("file://{file}"))]).await;
    assert!(check == "files" && detail.contains("THREADKEEP_BLOB_URL"), "{detail}");
    let other = house.data().join("other.db");
    let other = format!("sqlite:{}", other.display());
    let (check, detail) = failure(&house, &[("THREADKEEP_DATA", file), ("DATABASE_URL", &other)]).await;
    assert!(check == "data folder" && detail.contains("THREADKEEP_DATA"), "{detail}");
}

#[tokio::test]
async fn the_doctor_finds_an_audit_log_that_was_changed_behind_our_back() {
    let house = House::sqlite();
    stop_well(&mut house.serve().await, Signal::SIGTERM).await;
    let made = house.run(&["keys", "create", "--role", "member", "--name", "new", "--json"], &[]).await;
    let id = made.json_lines()[0]["id"].as_str().expect("an id").to_owned();
    assert_eq!(doctor(&house, &[]).await.0, Some(0));
    // As someone would who has the file and an editor: the log tells of another key.
    let path = house.data().join("threadkeep.db");
    let mut bytes = std::fs::read(&path).expect("the database");
    let at =
        bytes.windows(id.len()).position(|text| text == id.as_bytes()).expect("the entry is in the file");
    let last = &mut bytes[at + id.len() - 1];
    *last = if *last == b'0' { b'1' } else { b'0' };
    std::fs::write(&path, bytes).expect("written");
    let (check, detail) = failure(&house, &[]).await;
    assert!(check == "database" && detail.contains("audit log"), "{detail}");

    let Some(house) = House::postgres().await else { return };
    stop_well(&mut house.serve().await, Signal::SIGTERM).await;
    assert_eq!(doctor(&house, &[]).await.0, Some(0));
    let url = house.database().and_then(testkit::postgres::TestDatabase::superuser_url).expect("a superuser");
    execute(&url, "UPDATE audit_log SET user_id = 'somebody else'").await;
    let (check, detail) = failure(&house, &[]).await;
    assert!(check == "database" && detail.contains("audit log"), "{detail}");
}

#[tokio::test]
async fn completions_and_version_are_printed() {
    let house = House::sqlite();
    for shell in ["bash", "zsh", "fish"] {
        let ran = house.run(&["completions", shell], &[]).await;
        assert!(ran.code == Some(0) && ran.stderr.is_empty(), "{ran:?}");
        for word in ["threadkeep", "serve", "doctor", "database-url"] {
            assert!(ran.stdout.contains(word), "{word} for {shell}");
        }
    }
    let page = house.run(&["man"], &[]).await;
    assert!(page.code == Some(0) && page.stdout.contains(".TH threadkeep 1"), "{page:?}");
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("man1");
    let written = house.run(&["man", "--out", out.to_str().expect("a path")], &[]).await;
    assert_eq!(written.code, Some(0), "{written:?}");
    for name in [
        "threadkeep",
        "threadkeep-serve",
        "threadkeep-chat",
        "threadkeep-keys-create",
        "threadkeep-locks-clear",
    ] {
        let page = std::fs::read_to_string(out.join(format!("{name}.1"))).expect(name);
        assert!(page.contains("NAME") && page.contains(&name.replace('-', "\\-")), "{name}: {page}");
    }
    let version = house.run(&["--version"], &[]).await;
    assert_eq!(
        (version.code, version.stdout.trim()),
        (Some(0), concat!("threadkeep ", env!("CARGO_PKG_VERSION")))
    );
    let unknown = house.run(&["completions", "csh"], &[]).await;
    assert!(
        unknown.code == Some(2) && unknown.stdout.is_empty() && unknown.stderr.contains("csh"),
        "{unknown:?}"
    );
    for args in [&["serv"][..], &["serve", "--lissten", "x"], &[]] {
        let ran = house.run(args, &[]).await;
        assert!(ran.code == Some(2) && ran.stdout.is_empty() && ran.stderr.contains("Usage"), "{ran:?}");
    }
    assert_eq!(std::fs::read_dir(house.data()).expect("a folder").count(), 0, "nothing was made");
}

#[tokio::test]
async fn a_reader_that_goes_away_is_no_reason_to_panic() {
    let house = House::sqlite();
    for args in
        [&["completions", "bash"][..], &["config"], &["config", "--json"], &["doctor"], &["serve", "--help"]]
    {
        let mut command = testkit::process::command(Path::new(BINARY), &[], house.data());
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let child = command.args(args).stdout(Stdio::from(writer)).spawn().expect("the binary runs");
        let ran = child.wait_with_output().await.expect("an end");
        assert_eq!(String::from_utf8_lossy(&ran.stderr), "", "{args:?}");
        assert!(ran.status.code().is_some_and(|code| code < 100), "{args:?}: {:?}", ran.status);
    }
}
