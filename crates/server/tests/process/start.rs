//! Starting: what is there afterwards, and one sentence for whatever stands in the way.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use nix::sys::signal::Signal;
use reqwest::Method;
use serde_json::json;

use crate::house::{BINARY, CONVERSATIONS, Env, House, Ran, client, stop_well};

const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// Every file and folder below, with its permissions.
fn modes(folder: &Path, found: &mut Vec<(String, bool, u32)>) {
    for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry")) {
        let metadata = entry.metadata().expect("metadata");
        let mode = metadata.permissions().mode() & 0o777;
        found.push((entry.path().display().to_string(), metadata.is_dir(), mode));
        if metadata.is_dir() {
            modes(&entry.path(), found);
        }
    }
}

#[tokio::test]
async fn without_settings_one_line_is_printed_and_the_data_is_its_owners_alone() {
    let house = House::sqlite();
    // An empty variable is an unset one: the data folder is ./threadkeep-data.
    let mut server = house.serve_with(&[("THREADKEEP_DATA", "")]).await;
    let data = house.data().join("threadkeep-data");
    let key = fs::read_to_string(data.join("local.key")).expect("local.key");
    let caller = crate::house::Caller::new(server.url(), &key);
    assert_eq!(caller.create(json!({ "title": "first" })).await.status, 201);

    let mut found = Vec::new();
    modes(house.data(), &mut found);
    for (path, is_folder, mode) in &found {
        assert_eq!(*mode, if *is_folder { 0o700 } else { 0o600 }, "{path} has mode {mode:o}");
    }
    let named = |name: &str| found.iter().any(|(path, ..)| path.ends_with(name));
    for name in ["threadkeep-data", "threadkeep.db", "local.key", "secret.key", "blobs"] {
        assert!(named(name), "{name} is not in {found:?}");
    }

    stop_well(&mut server, Signal::SIGTERM).await;
    let stdout = server.stdout();
    assert_eq!(stdout.lines().count(), 1, "{stdout}");
    assert!(stdout.contains(server.printed_address()), "{stdout}");

    // Keys that were copied back are shut again.
    let keys = ["local.key", "secret.key"].map(|name| data.join(name));
    for key in &keys {
        fs::set_permissions(key, fs::Permissions::from_mode(0o644)).expect("a mode");
    }
    stop_well(&mut house.serve_with(&[("THREADKEEP_DATA", "")]).await, Signal::SIGTERM).await;
    for key in &keys {
        assert_eq!(fs::metadata(key).expect("a key").permissions().mode() & 0o777, 0o600);
    }
}

#[tokio::test]
async fn the_printed_address_logs_a_browser_in_until_the_next_start() {
    let house = House::sqlite();
    let mut server = house.serve().await;
    let client = client();
    let login = client.get(server.printed_address()).send().await.expect("an answer");
    assert_eq!((login.status().as_u16(), &login.headers()["location"]), (303, &"/".parse().expect("value")));
    let cookie = login.headers()["set-cookie"].to_str().expect("text").to_owned();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite"), "{cookie}");
    let cookie = cookie.split(';').next().expect("a cookie").to_owned();
    let get = async |url: &str, path: &str| {
        let request = client.get(format!("{url}{path}")).header("cookie", &cookie);
        let answer = request.send().await.expect("an answer");
        (answer.status().as_u16(), answer.text().await.expect("a body"))
    };
    let (status, page) = get(server.url(), "/").await;
    assert_eq!(status, 200);
    assert!(page.contains("Threadkeep"), "{page}");
    let (status, who) = get(server.url(), "/v1/session").await;
    assert!(status == 200 && who.contains("\"local\""), "{status} {who}");

    let ticket = server.printed_address().split_once("/login").expect("a login address").1.to_owned();
    stop_well(&mut server, Signal::SIGTERM).await;
    let server = house.serve().await;
    let (status, _) = get(server.url(), "/v1/session").await;
    assert_eq!(status, 200, "the session outlives the process");
    let (status, _) = get(server.url(), &format!("/login{ticket}")).await;
    assert_eq!(status, 401, "the ticket does not");
    let (status, _) = get(server.url(), "/login?ticket=").await;
    assert_eq!(status, 401);
}

#[tokio::test]
async fn in_local_mode_a_rate_holds_where_one_is_set() {
    let house = House::sqlite();
    let mut server = house.serve().await;
    let answer = house.caller(&server).get("/v1/workspaces").await;
    assert_eq!((answer.status, answer.header("ratelimit-policy")), (200, ""));
    stop_well(&mut server, Signal::SIGTERM).await;

    let server = house.serve_with(&[("THREADKEEP_REQUESTS_PER_SECOND", "1")]).await;
    let caller = house.caller(&server);
    let answer = caller.get("/v1/session").await;
    assert_eq!(answer.body["limits"]["requests_per_second"], 1, "{}", answer.text);
    assert_eq!(answer.header("ratelimit-policy"), "\"requests\";q=1;w=1");
    let mut statuses = Vec::new();
    for _ in 0..20 {
        statuses.push(caller.get("/v1/session").await.status);
    }
    assert!(statuses.contains(&429), "{statuses:?}");
}

#[tokio::test]
async fn a_server_on_postgresql_finds_its_things_again() {
    let Some(house) = House::postgres().await else { return };
    let mut server = house.serve().await;
    let made = house.caller(&server).create(json!({ "title": "kept" })).await;
    assert_eq!(made.status, 201, "{}", made.text);
    stop_well(&mut server, Signal::SIGTERM).await;
    assert!(!house.data().join("threadkeep.db").exists());
    let server = house.serve().await;
    let listed = house.caller(&server).get(CONVERSATIONS).await;
    assert_eq!(listed.body["data"][0]["attributes"]["title"], "kept", "{}", listed.text);
}

/// A refusal: an exit code that says so, nothing on stdout, one line on stderr with these words in it.
fn assert_refused(ran: &Ran, words: &[&str]) {
    assert_eq!(ran.code, Some(1), "{words:?}: {ran:?}");
    assert_eq!(ran.stdout, "", "{ran:?}");
    assert_eq!(ran.stderr.lines().count(), 1, "{words:?}: {ran:?}");
    for word in words {
        assert!(ran.stderr.contains(word), "{word} is not in: {}", ran.stderr);
    }
    for word in ["panicked", "backtrace", "hunter2"] {
        assert!(!ran.stderr.contains(word), "{}", ran.stderr);
    }
}

#[tokio::test]
async fn one_server_at_a_time_serves_from_a_folder() {
    let house = House::sqlite();
    let server = house.serve().await;
    let second = house.run(&["serve"], &[]).await;
    assert_refused(&second, &["DATABASE_URL", "another Threadkeep is serving from this file"]);
    assert_eq!(house.caller(&server).get("/readyz").await.status, 200, "the first goes on");
}

#[tokio::test]
async fn a_taken_port_is_named() {
    let (first, second) = (House::sqlite(), House::sqlite());
    let server = first.serve().await;
    let taken = server.url().trim_start_matches("http://");
    let ran = second.run(&["serve"], &[("THREADKEEP_LISTEN", taken)]).await;
    assert_refused(&ran, &["THREADKEEP_LISTEN", taken]);
}

#[tokio::test]
async fn whatever_is_set_wrong_stops_the_start_with_one_sentence_that_names_it() {
    let house = House::sqlite();
    let write = |name: &str, text: &str| {
        let path = house.data().join(name);
        fs::write(&path, text).expect("written");
        path.display().to_string()
    };
    let file = write("a-file", "no database, and no folder either");
    let toml = write("unknown.toml", "lissten = \"127.0.0.1:0\"\n");
    let number = write("number.toml", "listen = 8080\n");
    let broken = write("broken.toml", "secret = \"hunter2-hunter2\n");
    let blob = format!("file://{file}");
    let (in_file, as_file) = (format!("sqlite:{file}/x.db"), format!("sqlite:{file}"));
    let cases: &[(&Env, &[&str])] = &[
        (&[("THREADKEEP_DATA", &file)], &["THREADKEEP_DATA", &file]),
        (&[("THREADKEEP_DATA", "/dev/null/data")], &["THREADKEEP_DATA", "/dev/null/data"]),
        (&[("THREADKEEP_DATA", &file), ("THREADKEEP_BLOB_URL", "s3://bucket")], &["THREADKEEP_DATA", &file]),
        (&[("THREADKEEP_BLOB_URL", &blob)], &["THREADKEEP_BLOB_URL", &file]),
        (&[("DATABASE_URL", &in_file)], &["DATABASE_URL", &file]),
        (&[("DATABASE_URL", &as_file)], &["DATABASE_URL", &file]),
        (&[("DATABASE_URL", "postgres://me:hunter2@127.0.0.1:1/x")], &["DATABASE_URL", "127.0.0.1:1"]),
        (&[("DATABASE_URL", "postgres://me:hunter2@host.invalid/x")], &["DATABASE_URL", "host.invalid"]),
        (&[("DATABASE_URL", "postgres://me:hunter2@h:port/x")], &["DATABASE_URL"]),
        (&[("DATABASE_URL", "mysql://me:hunter2@h/x")], &["DATABASE_URL"]),
        (
            &[("THREADKEEP_LISTENN", "127.0.0.1:0")],
            &["THREADKEEP_LISTENN", "did you mean THREADKEEP_LISTEN?"],
        ),
        (&[("THREADKEEP_CONFIG", &toml)], &["lissten", &toml, "did you mean listen?"]),
        (&[("THREADKEEP_CONFIG", &number), ("THREADKEEP_LISTEN", "")], &["THREADKEEP_LISTEN", &number]),
        (&[("THREADKEEP_CONFIG", &broken)], &[&broken, "line 1"]),
        (&[("THREADKEEP_CONFIG", "/nowhere.toml")], &["THREADKEEP_CONFIG", "/nowhere.toml"]),
        (&[("THREADKEEP_LISTEN", "127.0.0.1")], &["THREADKEEP_LISTEN", "127.0.0.1"]),
        (&[("THREADKEEP_LISTEN", "0.0.0.0:0")], &["THREADKEEP_LISTEN", "loopback", "THREADKEEP_JWT_SECRET"]),
        (&[("THREADKEEP_LISTEN", "[::]:0")], &["THREADKEEP_LISTEN", "loopback"]),
        (&[("THREADKEEP_MAX_BODY_BYTES", "many")], &["THREADKEEP_MAX_BODY_BYTES", "many"]),
        (&[("LOG_FORMAT", "xml")], &["LOG_FORMAT", "xml", "text or json"]),
        (&[("RUST_LOG", "!!!")], &["RUST_LOG", "!!!"]),
        (&[("RUST_LOG", "server=loud")], &["RUST_LOG", "server=loud"]),
        (&[("THREADKEEP_SECRET", " ")], &["THREADKEEP_SECRET", "not blank"]),
        (&[("THREADKEEP_JWT_SECRET", SECRET)], &["THREADKEEP_SECRET must be set"]),
        (&[("THREADKEEP_JWKS_URL", "https://id.example.org/keys")], &["THREADKEEP_SECRET must be set"]),
        (&[("THREADKEEP_JWT_ISSUER", "me")], &["THREADKEEP_JWT_ISSUER", "THREADKEEP_JWT_SECRET"]),
    ];
    for (env, words) in cases {
        assert_refused(&house.run(&["serve"], env).await, words);
    }
    let ran = house.run(&["serve", "--listen", "nowhere"], &[]).await;
    assert_refused(&ran, &["THREADKEEP_LISTEN", "--listen"]);
}

#[tokio::test]
async fn a_short_secret_is_taken_and_warned_of_once() {
    let house = House::sqlite();
    let short = [("THREADKEEP_SECRET", "hunter2"), ("THREADKEEP_JWT_SECRET", "hunter3")];
    let mut server = house.serve_with(&short).await;
    let token = testkit::server::token_by("hunter3", "ann", "acme");
    let caller = crate::house::Caller::new(server.url(), &token);
    assert_eq!(caller.get("/v1/workspaces").await.status, 200);
    stop_well(&mut server, Signal::SIGTERM).await;
    let said = server.output();
    for name in ["THREADKEEP_SECRET", "THREADKEEP_JWT_SECRET"] {
        let warned = |line: &&str| line.contains("WARN") && line.contains(&format!("\"{name}\""));
        assert_eq!(said.lines().filter(warned).count(), 1, "{name}: {said}");
    }
    assert!(!said.contains("hunter"), "{said}");

    let long = [("THREADKEEP_SECRET", SECRET), ("THREADKEEP_JWT_SECRET", SECRET)];
    let mut server = house.serve_with(&long).await;
    stop_well(&mut server, Signal::SIGTERM).await;
    assert!(!server.output().contains("THREADKEEP_SECRET"), "{}", server.output());
}

#[tokio::test]
async fn a_key_file_that_is_none_is_neither_used_nor_replaced() {
    for (name, content) in [
        ("secret.key", &b""[..]),
        ("secret.key", b"short"),
        ("secret.key", b"\xff\xff not UTF-8, though long enough otherwise"),
        ("local.key", b""),
        ("local.key", b"hunter2"),
    ] {
        let house = House::sqlite();
        let path = house.data().join(name);
        fs::write(&path, content).expect("written");
        assert_refused(&house.run(&["serve"], &[]).await, &["THREADKEEP_DATA", name]);
        assert_eq!(fs::read(&path).expect("still there"), content);
        fs::remove_file(&path).expect("removed");
        house.serve().await;
    }
}

#[tokio::test]
async fn a_database_of_a_newer_threadkeep_is_left_alone() {
    let Some(house) = House::postgres().await else { return };
    assert_eq!(house.run(&["migrate"], &[]).await.code, Some(0));
    let url = house.database().expect("a database").url();
    let newer = "INSERT INTO refinery_schema_history (version, name, applied_on, checksum) \
                 VALUES (9999, 'later', '', '0')";
    crate::commands::execute(url, newer).await;
    assert_refused(&house.run(&["serve"], &[]).await, &["DATABASE_URL", "9999", "newer"]);
    assert_refused(&house.run(&["migrate"], &[]).await, &["DATABASE_URL", "9999", "newer"]);
}

#[tokio::test]
async fn a_start_that_is_killed_half_way_is_no_obstacle_to_the_next() {
    for house in [Some(House::sqlite()), House::postgres().await].into_iter().flatten() {
        for round in 0..8 {
            let env = house.database().map(|database| ("DATABASE_URL", database.url()));
            let mut command = testkit::process::command(Path::new(BINARY), env.as_slice(), house.data());
            let mut child = command.arg("serve").spawn().expect("the binary runs");
            let moment = std::time::Duration::from_millis(round * 8 + crate::house::random(8));
            // It may come further, or not as far: each round ends it at another point.
            let _ = tokio::time::timeout(moment, child.wait()).await;
            child.kill().await.expect("killed");
        }
        let server = house.serve().await;
        let caller = house.caller(&server);
        assert_eq!(caller.create(json!({ "title": "after all" })).await.status, 201);
        let workspaces = caller.send(Method::GET, "/v1/workspaces", None).await.expect("an answer");
        assert_eq!(workspaces.body["data"].as_array().map(Vec::len), Some(1), "{}", workspaces.text);
    }
}
