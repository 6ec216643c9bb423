//! Local mode: a server for this machine's user, who is logged in by `local.key` or by the printed address.
//! Pages of other sites and names that were made to point here get nothing.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use domain::secret::Secret;
use reqwest::{Method, RequestBuilder};
use serde_json::json;
use server::boot;
use server::config::{Config, Database};
use store::sqlite::Use;
use tempfile::TempDir;
use testkit::postgres::TestDatabase;
use testkit::server::{Answer, Backend, token};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::setup::{Running, ask, expect, ids};

const CONVERSATIONS: &str = "/v1/chat-conversations";

/// A data folder that is not there yet, and a database; servers come and go on it.
struct Place {
    config: Config,
    _folder: TempDir,
    _database: Option<TestDatabase>,
}

impl Place {
    async fn new(backend: Backend) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let (database, setting) = if backend == Backend::Sqlite {
            (None, Database::Sqlite(data.join("threadkeep.db")))
        } else {
            let made = testkit::postgres::database().await?;
            let url = Secret::new(made.url());
            (Some(made), Database::Postgres(url))
        };
        let blobs = server::config::Blobs::within(&data);
        let config = Config { data, blobs, database: setting, ..Config::default() };
        assert!(config.is_local());
        Some(Self { config, _folder: folder, _database: database })
    }

    async fn start(&self) -> Running {
        let store = boot::open_store(&self.config, Use::Serve).await.unwrap();
        Running::start(&self.config, store).await
    }

    fn key_file(&self) -> PathBuf {
        self.config.data.join("local.key")
    }

    fn key(&self) -> String {
        std::fs::read_to_string(self.key_file()).unwrap().trim().to_owned()
    }
}

impl Running {
    /// The path and query of the printed address.
    fn login_path(&self) -> &str {
        self.address.strip_prefix(&self.url).unwrap()
    }

    /// Opens the printed address: the cookie to send from now on.
    async fn log_in(&self) -> String {
        let answer = ask(self.request(Method::GET, self.login_path())).await;
        expect(&answer, 303, "");
        answer.header("set-cookie").split(';').next().unwrap().to_owned()
    }

    fn make_workspace(&self, cookie: &str) -> RequestBuilder {
        let request = self.request(Method::POST, "/v1/workspaces").header("cookie", cookie);
        request.header("content-type", "application/json").body(json!({ "name": "Second" }).to_string())
    }
}

async fn local_key_is_an_admin_key_that_only_this_user_can_read(backend: Backend) {
    let Some(place) = Place::new(backend).await else { return };
    let running = place.start().await;
    let key = place.key();
    let workspaces = running.get("/v1/workspaces", &key).await;
    assert_eq!(workspaces.body["data"][0]["role"], "admin");
    assert_eq!(workspaces.body["data"][0]["name"], "Local");
    expect(&running.get(CONVERSATIONS, &key).await, 200, "");
    expect(&running.get("/v1/audit", &key).await, 200, "");

    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&place.config.data), 0o700);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&place.config.data).unwrap() {
        let path = entry.unwrap().path();
        // A lock file is empty, and in a folder that nobody else may enter.
        if std::fs::metadata(&path).unwrap().len() > 0 {
            assert_eq!(mode(&path), if path.is_dir() { 0o700 } else { 0o600 }, "{}", path.display());
        }
        names.push(path.file_name().unwrap().to_str().unwrap().to_owned());
    }
    for name in ["local.key", "secret.key"] {
        assert!(names.iter().any(|found| found == name), "{names:?}");
    }

    // Nobody else is let in: no credential, a user's token, another key.
    expect(&ask(running.request(Method::GET, CONVERSATIONS)).await, 401, "unauthenticated");
    expect(&running.get(CONVERSATIONS, &token("local", "local")).await, 401, "unauthenticated");
    let mut other = key.clone();
    other.replace_range(60..61, if &key[60..61] == "A" { "B" } else { "A" });
    expect(&running.get(CONVERSATIONS, &other).await, 401, "unauthenticated");
    running.stop().await;
}

/// The status of a request written by hand.
async fn raw(running: &Running, head: &str) -> u16 {
    let mut stream = TcpStream::connect(running.url.strip_prefix("http://").unwrap()).await.unwrap();
    stream.write_all(format!("{head}\r\nConnection: close\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.split(' ').nth(1).unwrap_or_else(|| panic!("no status for {head:?}: {answer:?}")).parse().unwrap()
}

async fn other_hosts_and_origins_get_nothing(backend: Backend) {
    let Some(place) = Place::new(backend).await else { return };
    let running = place.start().await;
    let (key, port) = (place.key(), running.url.rsplit(':').next().unwrap().to_owned());
    let with = |name: &'static str, value: String| {
        ask(running.request(Method::GET, CONVERSATIONS).bearer_auth(&key).header(name, value))
    };
    for host in [
        format!("127.0.0.1:{port}"),
        format!("localhost:{port}"),
        format!("[::1]:{port}"),
        "localhost".into(),
    ] {
        expect(&with("host", host).await, 200, "");
    }
    for host in [
        "evil.example".to_owned(),
        format!("evil.example:{port}"),
        format!("localhost.evil.example:{port}"),
        format!("127.0.0.1.nip.io:{port}"),
        format!("0.0.0.0:{port}"),
        format!("10.0.0.1:{port}"),
        format!("[::1].evil.example:{port}"),
        format!("localhost:{port}@evil.example"),
        format!("localhost.:{port}.evil.example"),
    ] {
        expect(&with("host", host).await, 403, "forbidden_host");
    }
    // Not even what asks for no credential.
    for path in ["/", "/healthz", "/metrics", "/openapi.json", running.login_path(), "/nothing"] {
        let answer = ask(running.request(Method::GET, path).header("host", "evil.example")).await;
        expect(&answer, 403, "forbidden_host");
        assert_eq!(answer.header("set-cookie"), "");
    }
    expect(&with("origin", running.url.clone()).await, 200, "");
    for origin in [
        "https://evil.example".to_owned(),
        "null".into(),
        String::new(),
        "http://127.0.0.1".into(),
        format!("http://127.0.0.1:{}", port.parse::<u16>().unwrap() ^ 1),
        format!("http://localhost:{port}"),
        format!("http://127.0.0.1:{port}.evil.example"),
        format!("http://127.0.0.1:{port}/"),
    ] {
        expect(&with("origin", origin).await, 403, "forbidden_host");
    }

    let auth = format!("Authorization: Bearer {key}");
    for (head, status) in [
        (format!("GET {CONVERSATIONS} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{auth}"), 200),
        (format!("GET {CONVERSATIONS} HTTP/1.0\r\n{auth}"), 403),
        (format!("GET http://evil.example{CONVERSATIONS} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{auth}"), 403),
        (format!("GET http://127.0.0.1:{port}{CONVERSATIONS} HTTP/1.1\r\nHost: evil.example\r\n{auth}"), 403),
        (
            format!("GET {CONVERSATIONS} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nHost: evil.example\r\n{auth}"),
            403,
        ),
    ] {
        assert_eq!(raw(&running, &head).await, status, "{head}");
    }
    running.stop().await;
}

async fn the_printed_address_logs_the_browser_in(backend: Backend) {
    let Some(place) = Place::new(backend).await else { return };
    let running = place.start().await;
    let answer = ask(running.request(Method::GET, running.login_path())).await;
    expect(&answer, 303, "");
    assert_eq!(answer.header("location"), "/");
    assert_eq!(answer.header("cache-control"), "no-store");
    let cookie = answer.header("set-cookie");
    for part in ["; HttpOnly", "; SameSite=Lax", "; Path=/"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert!(!cookie.contains("Secure"), "plain http would drop it: {cookie}");

    let good = running.login_path().to_owned();
    let (path, ticket) = good.split_once("ticket=").unwrap();
    for wrong in [
        "/login".to_owned(),
        format!("{path}ticket="),
        format!("{path}ticket=x{ticket}"),
        format!("{path}ticket={}", &ticket[1..]),
        format!("{path}ticket={}", ticket.to_uppercase()),
        format!("{path}Ticket={ticket}"),
        format!("{path}ticket=wrong&ticket={ticket}"),
    ] {
        let answer = ask(running.request(Method::GET, &wrong)).await;
        expect(&answer, 401, "unauthenticated");
        assert_eq!(answer.header("set-cookie"), "", "{wrong}");
    }
    running.stop().await;
}

async fn the_browser_reads_and_its_own_pages_write(backend: Backend) {
    let Some(place) = Place::new(backend).await else { return };
    let running = place.start().await;
    let cookie = running.log_in().await;
    let read = |path: &'static str| ask(running.request(Method::GET, path).header("cookie", &cookie));
    assert_eq!(read("/v1/session").await.body["user"], "local");
    expect(&read(CONVERSATIONS).await, 200, "");
    expect(&read("/v1/audit").await, 200, "");

    for (name, value) in [
        ("origin", "https://evil.example"),
        ("origin", "null"),
        ("origin", "http://127.0.0.1:1"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
        ("sec-fetch-site", "none"),
        ("x-nothing", "neither Origin nor Sec-Fetch-Site"),
    ] {
        let answer = ask(running.make_workspace(&cookie).header(name, value)).await;
        assert_eq!(answer.status, 403, "{name}: {value}: {answer:?}");
    }
    assert_eq!(ids(&read("/v1/workspaces").await).len(), 1);
    expect(&ask(running.make_workspace(&cookie).header("origin", &running.url)).await, 201, "");
    expect(&ask(running.make_workspace(&cookie).header("sec-fetch-site", "same-origin")).await, 201, "");
    assert_eq!(ids(&read("/v1/workspaces").await).len(), 3);

    let leave = running.request(Method::DELETE, "/v1/session").header("cookie", &cookie);
    let left = ask(leave.header("origin", &running.url)).await;
    assert_eq!(left.status, 204);
    let cleared = left.header("set-cookie");
    assert!(cleared.starts_with("threadkeep_session=; ") && cleared.contains("Max-Age=0"), "{cleared}");
    let after = running.request(Method::GET, CONVERSATIONS).header("cookie", "threadkeep_session=");
    expect(&ask(after).await, 401, "unauthenticated");
    running.stop().await;
}

async fn the_next_start_finds_all_of_it(backend: Backend) {
    let Some(place) = Place::new(backend).await else { return };
    let first = place.start().await;
    let (key, cookie, ticket) = (place.key(), first.log_in().await, first.login_path().to_owned());
    let workspaces = first.get("/v1/workspaces", &key).await.text;
    let audit = first.get("/v1/audit", &key).await.text;
    first.stop().await;

    let second = place.start().await;
    assert_eq!(place.key(), key);
    assert_eq!(second.get("/v1/workspaces", &key).await.text, workspaces);
    assert_eq!(second.get("/v1/audit", &key).await.text, audit);
    // The browser is still logged in; the old address logs nobody in.
    let read = second.request(Method::GET, CONVERSATIONS).header("cookie", &cookie);
    expect(&ask(read).await, 200, "");
    expect(&ask(second.request(Method::GET, &ticket)).await, 401, "unauthenticated");
    assert_ne!(second.login_path(), ticket);
    second.stop().await;
}

/// A lost file gives a new key. The old one is a row like any other and works until it is removed.
async fn a_lost_local_key_is_made_anew(backend: Backend) {
    let Some(place) = Place::new(backend).await else { return };
    let first = place.start().await;
    let old = place.key();
    let workspaces = first.get("/v1/workspaces", &old).await.text;
    first.stop().await;
    std::fs::remove_file(place.key_file()).unwrap();

    let second = place.start().await;
    let new = place.key();
    assert_ne!(new, old);
    assert_eq!(std::fs::metadata(place.key_file()).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(second.get("/v1/workspaces", &new).await.text, workspaces);
    expect(&second.get(CONVERSATIONS, &old).await, 200, "");
    let keys: Answer = second.get("/v1/api-keys", &new).await;
    let oldest = ids(&keys)[0];
    assert_eq!((ids(&keys).len(), &keys.body["data"][0]["name"]), (2, &json!("local.key")));
    let remove = second.request(Method::DELETE, &format!("/v1/api-keys/{oldest}")).bearer_auth(&new);
    assert_eq!(ask(remove).await.status, 204);
    expect(&second.get(CONVERSATIONS, &old).await, 401, "unauthenticated");
    expect(&second.get(CONVERSATIONS, &new).await, 200, "");
    second.stop().await;

    // A key that was removed over the API while its file stayed is made good again by the next start.
    let third = place.start().await;
    let id = third.get("/v1/session", &new).await.body["key"].as_str().unwrap().to_owned();
    let remove = third.request(Method::DELETE, &format!("/v1/api-keys/{id}")).bearer_auth(&new);
    assert_eq!(ask(remove).await.status, 204);
    expect(&third.get(CONVERSATIONS, &new).await, 401, "unauthenticated");
    third.stop().await;
    let fourth = place.start().await;
    expect(&fourth.get(CONVERSATIONS, &place.key()).await, 200, "");
    fourth.stop().await;
}

on_both!(
    local_key_is_an_admin_key_that_only_this_user_can_read,
    other_hosts_and_origins_get_nothing,
    the_printed_address_logs_the_browser_in,
    the_browser_reads_and_its_own_pages_write,
    the_next_start_finds_all_of_it,
    a_lost_local_key_is_made_anew,
);
