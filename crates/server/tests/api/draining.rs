//! A server that stops, and one whose database went away: not ready, and whole answers all the same.

use std::sync::Arc;

use domain::secret::Secret;
use domain::time::SystemClock;
use serde_json::json;
use server::Server;
use server::config::Config;
use store::postgres::{PostgresOptions, PostgresStore};
use testkit::server::{Backend, TestServer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

#[tokio::test]
async fn a_draining_server_is_not_ready_and_finishes_what_it_began() {
    let server = TestServer::start(Backend::Sqlite).await.unwrap();
    let address = server.url().trim_start_matches("http://").to_owned();
    let mut asking = TcpStream::connect(&address).await.unwrap();
    asking.write_all(b"GET /readyz HTTP/1.1\r\nHost: x\r\n").await.unwrap();
    // Connections are taken in order: once a later one was answered, the first is the server's.
    let mut later = TcpStream::connect(&address).await.unwrap();
    later.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut text = String::new();
    later.read_to_string(&mut text).await.unwrap();
    assert!(text.starts_with("HTTP/1.1 200 "), "{text}");

    let finish = async {
        while TcpStream::connect(&address).await.is_ok() {
            tokio::task::yield_now().await;
        }
        asking.write_all(b"\r\n").await.unwrap();
        let mut text = String::new();
        asking.read_to_string(&mut text).await.unwrap();
        text
    };
    let (text, ()) = tokio::join!(finish, server.stop());
    assert!(text.starts_with("HTTP/1.1 503 "), "{text}");
    assert!(text.contains("retry-after: 1") && text.contains("draining"), "{text}");
}

#[tokio::test]
async fn a_server_without_its_database_is_not_ready() {
    let Some(database) = testkit::postgres::database().await else { return };
    let data = tempfile::tempdir().unwrap();
    let mut config = Config {
        data: data.path().to_owned(),
        blobs: server::config::Blobs::within(data.path()),
        ..Config::default()
    };
    config.auth.jwt_secret = Some(Secret::new(testkit::server::JWT_SECRET));
    config.secret = Some(Secret::new("the server's own secret, also longer than 32 bytes"));
    let store = PostgresStore::open(&Secret::new(database.url()), &PostgresOptions::default()).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = Server::prepare(&config, Arc::new(store), Arc::new(SystemClock), listener).await.unwrap();

    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let get = async |path: &str| {
        let bearer = testkit::server::token("ann", "acme");
        let response = client.get(format!("{url}{path}")).bearer_auth(bearer).send().await.unwrap();
        testkit::server::Answer::read(response).await.unwrap()
    };
    let story = async {
        assert_eq!(get("/readyz").await.status, 200);
        database.close().await.unwrap();
        let answer = get("/readyz").await;
        assert_eq!((answer.status, &answer.body["code"]), (503, &json!("unavailable")), "{}", answer.text);
        assert_eq!(get("/healthz").await.status, 200, "the process itself is well");
        for path in ["/v1/workspaces", "/v1/chat-conversations"] {
            let answer = get(path).await;
            assert_eq!((answer.status, answer.header("retry-after")), (503, "1"), "{path}: {}", answer.text);
            assert!(!answer.text.contains("tk_test_"), "the database is not named: {}", answer.text);
        }
    };
    tokio::select! {
        () = server.run(std::future::pending()) => unreachable!("nobody stops it"),
        () = story => {}
    }
}
