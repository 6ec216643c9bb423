//! What only S3 has: credentials, a bucket that may not be there, a server that goes away, parts of uploads.

use std::time::Duration;

use store::blobs::{BlobError, Blobs};
use testkit::s3::{self, BUCKET, Kind, S3Server, server};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

use crate::setup::{bucket, get, keys, noise, open, put};

/// Opens the bucket with some settings changed; an empty one is as good as none.
async fn refusal(server: &S3Server, bucket: &str, changed: &[(&str, &str)]) -> String {
    let env = |name: &str| match changed.iter().find(|(known, _)| *known == name) {
        Some((_, value)) => Some((*value).to_owned()),
        None => server.env(name),
    };
    let error = Blobs::s3(bucket, "", env, &TaskTracker::new()).await.expect_err("it must be refused");
    assert!(matches!(error, BlobError::Unavailable(_)), "{error:?}");
    let text = error.to_string();
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.contains(&format!("s3://{bucket}")) && !text.contains("S3RVER"), "{text}");
    text
}

#[tokio::test]
async fn a_wrong_bucket_is_named() {
    for kind in [Kind::S3rver, Kind::Moto] {
        let Some(server) = server(kind) else { continue };
        let text = refusal(server, "no-such-bucket", &[]).await;
        assert!(text.contains("no such bucket") && text.contains("THREADKEEP_BLOB_URL"), "{text}");
        assert!(text.contains(server.endpoint()), "{text}");
    }
}

#[tokio::test]
async fn wrong_credentials_are_named() {
    let Some(server) = server(Kind::S3rver) else { return };
    // s3rver knows its key by name only, and does not look at the signature.
    let text = refusal(server, BUCKET, &[("AWS_ACCESS_KEY_ID", "somebody")]).await;
    assert!(text.contains("credentials are refused") && text.contains("AWS_ACCESS_KEY_ID"), "{text}");
    let text = refusal(server, BUCKET, &[("AWS_SECRET_ACCESS_KEY", "")]).await;
    assert!(text.to_lowercase().contains("secret"), "{text}");
}

/// A server that says the same to every request.
async fn refusing(status: &'static str, code: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let body =
        format!("<?xml version=\"1.0\"?>\n<Error><Code>{code}</Code><Message>It\nsaid so.</Message></Error>");
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    TaskTracker::new().spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 16 * 1024];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
        }
    });
    address
}

/// What neither of the servers here refuses.
#[tokio::test]
async fn every_refusal_says_what_to_do() {
    let Some(server) = server(Kind::S3rver) else { return };
    let cases = [
        ("403 Forbidden", "SignatureDoesNotMatch", "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY"),
        (
            "403 Forbidden",
            "AccessDenied",
            "may not write objects there: grant it (AccessDenied: It said so.)",
        ),
        ("400 Bad Request", "AuthorizationHeaderMalformed", "set AWS_REGION"),
        ("301 Moved", "PermanentRedirect", "AWS_REGION"),
        ("507 Insufficient Storage", "XMinioStorageFull", "XMinioStorageFull: It said so."),
        ("418 I'm a teapot", "", "It said so."),
    ];
    for (status, code, wanted) in cases {
        let address = refusing(status, code).await;
        let text = refusal(server, BUCKET, &[("AWS_ENDPOINT_URL", &address)]).await;
        assert!(text.contains(wanted), "{code}: {text}");
    }
}

#[tokio::test]
async fn a_wrong_address_is_named() {
    let Some(server) = server(Kind::S3rver) else { return };
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let text = refusal(server, BUCKET, &[("AWS_ENDPOINT_URL", &format!("http://{free}"))]).await;
    assert!(text.contains(&free.to_string()) && text.contains("refused"), "{text}");
    let text = refusal(server, BUCKET, &[("AWS_ENDPOINT_URL", "nonsense")]).await;
    assert!(text.contains("nonsense"), "{text}");
    // The name that is for S3 alone wins over the one for all of AWS.
    let changed = [("AWS_ENDPOINT_URL_S3", server.endpoint()), ("AWS_ENDPOINT_URL", "http://127.0.0.1:1")];
    let env = |name: &str| {
        let found = changed.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned()).or_else(|| server.env(name))
    };
    Blobs::s3(BUCKET, "", env, &TaskTracker::new()).await.unwrap();
}

#[tokio::test]
async fn a_prefix_keeps_to_itself() {
    let Some(server) = server(Kind::S3rver) else { return };
    let (tasks, prefix) = (TaskTracker::new(), s3::fresh_prefix());
    let outer = open(server, &prefix, &tasks).await.unwrap();
    let inner = open(server, &format!("{prefix}/a b+c"), &tasks).await.unwrap();
    put(&inner, "x/y", &noise(1, 5)).await;
    assert_eq!(keys(&inner, "").await, ["x/y"]);
    assert_eq!(keys(&outer, "").await, ["a b+c/x/y"]);
    assert!(open(server, "a/../b", &tasks).await.is_err());
}

/// The uploads in parts that the server knows of; moto answers that without credentials.
async fn open_uploads(server: &S3Server) -> usize {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = format!("{}/{BUCKET}?uploads", server.endpoint());
    client.get(url).send().await.unwrap().text().await.unwrap().matches("abandoned").count()
}

#[tokio::test]
async fn a_dropped_upload_leaves_no_parts() {
    let (Some(server), Some(blobs)) = (server(Kind::Moto), bucket(Kind::Moto).await) else { return };
    let mut writer = blobs.writer("abandoned").await.unwrap();
    writer.write(noise(1, 60 * 1024 * 1024)).await.unwrap();
    let begun = async { while open_uploads(server).await == 0 {} };
    tokio::select! {
        biased;
        () = begun => {}
        finished = writer.finish() => panic!("there was no moment to drop it at: {finished:?}"),
    }
    blobs.tasks.close();
    blobs.tasks.wait().await;
    assert_eq!(open_uploads(server).await, 0);
    assert_eq!(keys(&blobs, "").await, [""; 0]);
}

#[tokio::test]
async fn a_presigned_address_takes_bytes_until_it_expires() {
    let Some(blobs) = bucket(Kind::S3rver).await else { return };
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = blobs.presign_put("uploads/w/1", Duration::from_secs(60)).await.unwrap().unwrap();
    let body = noise(1, 3_000_000);
    assert_eq!(client.put(&url).body(body.clone()).send().await.unwrap().status(), 200);
    assert!(get(&blobs, "uploads/w/1").await.unwrap() == body);
    let brief = blobs.presign_put("uploads/w/3", Duration::from_secs(1)).await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_millis(2_100)).await;
    assert_eq!(client.put(brief).body("x").send().await.unwrap().status(), 403, "it expires");
    assert_eq!(keys(&blobs, "").await, ["uploads/w/1"]);
}

/// Passes connections on to the server while it is up; otherwise closes them at once.
async fn relay(server: &'static S3Server, up: watch::Receiver<bool>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let target = server.endpoint().trim_start_matches("http://");
    let tasks = TaskTracker::new();
    let passing = async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let mut up = up.clone();
            tasks.spawn(async move {
                let mut far = TcpStream::connect(target).await.unwrap();
                tokio::select! {
                    biased;
                    _ = up.wait_for(|up| !up) => {}
                    _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                }
            });
        }
    };
    TaskTracker::new().spawn(passing);
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_goes_away_is_unavailable_and_comes_back() {
    let Some(server) = server(Kind::S3rver) else { return };
    let (switch, up) = watch::channel(true);
    let address = relay(server, up).await;
    let env = |name: &str| match name {
        "AWS_ENDPOINT_URL" => Some(address.clone()),
        _ => server.env(name),
    };
    let blobs = Blobs::s3(BUCKET, &s3::fresh_prefix(), env, &TaskTracker::new()).await.unwrap();
    put(&blobs, "kept", &noise(1, 100)).await;
    let mut writer = blobs.writer("half").await.unwrap();
    writer.write(noise(2, 10_000_000)).await.unwrap();

    switch.send(false).unwrap();
    // What was on its way may still arrive.
    while blobs.ping().await.is_ok() {}
    let (read, remove, finish) = tokio::join!(get(&blobs, "kept"), blobs.remove("kept"), writer.finish());
    for error in [read.err(), remove.err(), finish.err()] {
        assert!(matches!(error, Some(BlobError::Unavailable(_))), "{error:?}");
    }

    switch.send(true).unwrap();
    blobs.ping().await.unwrap();
    assert_eq!(get(&blobs, "kept").await.unwrap(), noise(1, 100));
    assert_eq!(keys(&blobs, "").await, ["kept"]);
}
