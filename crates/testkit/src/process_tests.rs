//! `ServerProcess` against a stand-in: `/bin/sh serve`, where `serve` is a script in the data folder.

use super::*;

async fn start(script: &str, env: &[(&str, &str)]) -> (tempfile::TempDir, anyhow::Result<ServerProcess>) {
    let data = tempfile::tempdir().unwrap();
    std::fs::write(data.path().join("serve"), script).unwrap();
    let server = ServerProcess::start(Path::new("/bin/sh"), env, data.path()).await;
    (data, server)
}

const SERVE: &str = "trap 'echo bye; exit 7' TERM\n\
    echo http://127.0.0.1:4711/login?k=1\n\
    while :; do sleep 0.05; done";

#[test]
fn an_address_is_read_out_of_its_line() {
    for (line, address) in [
        ("open http://127.0.0.1:81/?key=a.b now", Some("http://127.0.0.1:81/?key=a.b")),
        (r#"{"url":"http://127.0.0.1:81/x"}"#, Some("http://127.0.0.1:81/x")),
        ("\u{1b}[1mhttp://127.0.0.1:81\u{1b}[0m", Some("http://127.0.0.1:81")),
        ("listening on 127.0.0.1:81", None),
        ("http://127.0.0.1:", None),
    ] {
        assert_eq!(address_in(line), address, "{line}");
    }
    assert_eq!(origin("http://127.0.0.1:81?key=/"), "http://127.0.0.1:81");
}

#[tokio::test]
async fn a_server_is_started_found_and_asked_to_stop() {
    let (_data, server) = start(SERVE, &[]).await;
    let mut server = server.unwrap();
    assert_eq!(server.url(), "http://127.0.0.1:4711");
    assert_eq!(server.printed_address(), "http://127.0.0.1:4711/login?k=1");
    assert_eq!(server.terminate().await.unwrap().code(), Some(7));
    assert_eq!(server.output(), "http://127.0.0.1:4711/login?k=1\nbye\n");
    assert_eq!(server.terminate().await.unwrap().code(), Some(7), "a second time changes nothing");
}

#[tokio::test]
async fn the_environment_is_the_given_one_alone() {
    let script =
        "env | sort >seen\necho http://127.0.0.1:1234/jwks >&2\necho http://127.0.0.1:4711/\nexec sleep 60";
    let (data, server) = start(script, &[("THREADKEEP_JWKS_URL", "http://127.0.0.1:1234/jwks")]).await;
    assert_eq!(server.unwrap().url(), "http://127.0.0.1:4711");
    let seen = std::fs::read_to_string(data.path().join("seen")).unwrap();
    assert!(seen.contains("THREADKEEP_LISTEN=127.0.0.1:0\n"), "{seen}");
    assert!(seen.contains(&format!("THREADKEEP_DATA={}\n", data.path().display())), "{seen}");
    assert!(seen.contains("THREADKEEP_JWKS_URL=") && !seen.contains("CARGO_"), "{seen}");
}

#[tokio::test]
async fn a_server_that_ends_at_once_says_why() {
    let (_data, server) = start("echo THREADKEEP_LISTEN is wrong >&2; exit 2", &[]).await;
    let error = format!("{:#}", server.unwrap_err());
    assert!(error.contains("THREADKEEP_LISTEN is wrong"), "{error}");
}

fn process_of(server: &ServerProcess) -> Pid {
    Pid::from_raw(i32::try_from(server.child.id().unwrap()).unwrap())
}

#[tokio::test]
async fn a_killed_server_is_gone() {
    let (_data, server) = start(SERVE, &[]).await;
    let mut server = server.unwrap();
    let process = process_of(&server);
    assert!(kill(process, None).is_ok());
    server.kill9().await.unwrap();
    assert!(kill(process, None).is_err());
    assert!(!server.output().contains("bye"));
}

#[tokio::test]
async fn a_dropped_server_is_killed() {
    let (_data, server) = start(SERVE, &[]).await;
    let server = server.unwrap();
    let process = process_of(&server);
    drop(server);
    let gone = async {
        while kill(process, None).is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(START, gone).await.expect("killed by the drop");
}
