//! What an upload refuses, and that nothing of it is stored and the next one works.

use std::path::Path;
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use testkit::form::Form;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::caller::{Caller, ask, bag, files, names, refused};
use crate::world::{Home, World, stories};

stories!(
    limits,
    limits_are_told_early,
    refused_and_sent_again_at_once,
    broken_bodies,
    types_that_are_not_taken,
    slow_and_cut_off,
    gone_before_the_answer
);

/// What was refused holds neither names nor room when its answer is there.
async fn refused_and_sent_again_at_once(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let ann = &world.ann;
    let chat = ann.conversation().await;
    let ten = (0..10u32).fold(Form::new(), |form, n| form.file(&format!("{n}.txt"), b"x"));
    let broken = ten.end();
    for _ in 0..5 {
        refused(&ann.upload(&chat, &ten.clone().file("10.txt", b"x")).await, 413, "too_many_files");
        assert_eq!(blobs(&world), Vec::<String>::new());
        let cut = ann.form(&bag(&chat), &ten).body(broken[..broken.len() - 20].to_vec());
        refused(&ask(cut).await, 400, "malformed_document");
        assert_eq!(blobs(&world), Vec::<String>::new());
    }
    let kept = ann.upload(&chat, &ten).await;
    assert_eq!(names(&files(&kept)), (0..10).map(|n| format!("{n}.txt")).collect::<Vec<_>>());
    Some(())
}

/// Every file of the storage folder, by its key.
pub fn blobs(world: &World) -> Vec<String> {
    let root = world.data().join("blobs");
    let mut found = Vec::new();
    walk(&root, &root, &mut found);
    found.sort();
    found
}

fn walk(root: &Path, folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            walk(root, &path, found);
        } else {
            found.push(path.strip_prefix(root).expect("below the root").to_string_lossy().into_owned());
        }
    }
}

/// Waits until something is so; what is never so fails.
pub async fn until(mut so: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !so().await {
        assert!(begun.elapsed() < Duration::from_secs(30), "it never comes to be");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A request that announces a body and sends only the first `cut` bytes of it before it hangs up.
pub async fn cut_off(caller: &Caller, path: &str, body: &[u8], cut: usize) {
    cut_off_with(caller, path, &format!("Bearer {}", caller.bearer()), body, cut).await;
}

pub async fn cut_off_with(caller: &Caller, path: &str, authorization: &str, body: &[u8], cut: usize) {
    let host = caller.url().trim_start_matches("http://");
    let mut stream = TcpStream::connect(host).await.unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: {authorization}\r\nContent-Type: {}\r\nContent-Length: {}\r\n\r\n",
        Form::kind(),
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&body[..cut]).await.unwrap();
    stream.flush().await.unwrap();
    // Some time for it to be read, so that more than the head is under way.
    tokio::time::sleep(Duration::from_millis(30)).await;
}

async fn empty(world: &World, chat: &str) {
    assert_eq!(world.ann.list(chat).await, Vec::<Value>::new());
    until(async || blobs(world).is_empty()).await;
}

async fn limits(home: Home) -> Option<()> {
    let env = [
        ("THREADKEEP_MAX_FILE_BYTES", "100000"),
        ("THREADKEEP_MAX_FILES_PER_MESSAGE", "3"),
        ("THREADKEEP_MAX_BAG_BYTES", "250000"),
    ];
    let world = World::start_with(home, &env).await?;
    let ann = &world.ann;
    let chat = ann.conversation().await;
    let over = Form::of("ok", b"x").file("over.bin", &[1; 100_001]);
    let answer = ann.upload(&chat, &over).await;
    refused(&answer, 413, "file_too_large");
    assert_eq!(answer.body["limit"], 100_000);
    assert!(answer.text.contains("over.bin"), "{}", answer.text);
    let four = (0..4).fold(Form::new(), |form, n| form.file(&n.to_string(), b"x"));
    let answer = ann.upload(&chat, &four).await;
    refused(&answer, 413, "too_many_files");
    assert_eq!(answer.body["limit"], 3);
    let bag_over = (0..3).fold(Form::new(), |form, n| form.file(&n.to_string(), &[1; 90_000]));
    let answer = ann.upload(&chat, &bag_over).await;
    refused(&answer, 413, "bag_full");
    assert_eq!(answer.body["limit"], 250_000);
    empty(&world, &chat).await;
    // To the byte.
    ann.put(&chat, "a", &[1; 100_000]).await;
    ann.put(&chat, "b", &[1; 100_000]).await;
    refused(&ann.upload(&chat, &Form::of("c", &[1; 50_001])).await, 413, "bag_full");
    ann.put(&chat, "c", &[1; 50_000]).await;
    refused(&ann.upload(&chat, &Form::of("d", b"1")).await, 413, "bag_full");
    // What is deleted makes room.
    let first = ann.list(&chat).await[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(ann.delete(&format!("{}/{first}", bag(&chat))).await, 204);
    ann.put(&chat, "d", &[1; 100_000]).await;
    // And the sandbox has the same bag.
    let (_, agent) = world.hanging(&chat).await;
    refused(&agent.send_back(&Form::of("e", b"1")).await.unwrap(), 413, "bag_full");
    // Two that fit each, but not both.
    let other = ann.conversation().await;
    let forms = [0, 1].map(|n| Form::of("x", &vec![n; 90_000]).file("y", &vec![n; 90_000]));
    let (one, two) = tokio::join!(ann.upload(&other, &forms[0]), ann.upload(&other, &forms[1]));
    let mut statuses = [one.status, two.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 413]);
    assert_eq!(ann.list(&other).await.len(), 2);
    Some(())
}

/// By the announced length alone, before the body comes.
async fn limits_are_told_early(home: Home) -> Option<()> {
    let env = [("THREADKEEP_MAX_FILE_BYTES", "100000"), ("THREADKEEP_MAX_BAG_BYTES", "300000")];
    let world = World::start_with(home, &env).await?;
    let chat = world.ann.conversation().await;
    let host = world.ann.url().trim_start_matches("http://").to_owned();
    // More than ten files could be; then more than the bag has room for, once its first file begins.
    for (length, sent) in
        [(50_000_000_u64, Vec::new()), (500_000, Form::of("a", &[1; 9000]).end()[..9000].to_vec())]
    {
        let mut stream = TcpStream::connect(&host).await.unwrap();
        let head = format!(
            "POST {} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {}\r\nContent-Type: {}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n",
            bag(&chat),
            world.ann.bearer(),
            Form::kind()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&sent).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer).await;
        assert!(answer.starts_with("HTTP/1.1 413"), "{length}: {answer}");
    }
    empty(&world, &chat).await;
    world.ann.put(&chat, "a", b"x").await;
    Some(())
}

async fn broken_bodies(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let ann = &world.ann;
    let chat = ann.conversation().await;
    let whole = Form::of("a.txt", b"hello").end();
    let kind = Form::kind();
    let part = "Content-Disposition: form-data; name=\"f\"; filename=\"a\"";
    let with = |kind: &str, body: Vec<u8>| {
        ann.request(Method::POST, &bag(&chat)).header("content-type", kind).body(body)
    };
    let text = String::from_utf8(whole.clone()).unwrap();
    for (what, request, status) in [
        ("no boundary", with("multipart/form-data", whole.clone()), 400),
        ("an empty boundary", with("multipart/form-data; boundary=", whole.clone()), 400),
        ("another boundary", with("multipart/form-data; boundary=other", whole.clone()), 400),
        ("no body", with(&kind, Vec::new()), 400),
        ("no parts", with(&kind, Form::new().end()), 400),
        ("no end", with(&kind, whole[..whole.len() - 6].to_vec()), 400),
        ("no end of headers", with(&kind, text.split("\r\n\r\n").next().unwrap().as_bytes().to_vec()), 400),
        ("only a part that is no file", with(&kind, Form::new().field("file", "hi").end()), 400),
        (
            "headers without end",
            with(&kind, Form::new().part(&format!("{part}\r\nX: {}", "y".repeat(6_000_000)), b"x").end()),
            400,
        ),
        (
            "too many headers",
            with(&kind, Form::new().part(&format!("{part}{}", "\r\nX: y".repeat(100)), b"x").end()),
            400,
        ),
        ("rubbish", with(&kind, vec![0xff; 5000]), 400),
        ("JSON", with("application/json", b"{}".to_vec()), 415),
        ("text", with("text/plain", whole.clone()), 415),
        ("a form of the other kind", with("application/x-www-form-urlencoded", b"a=b".to_vec()), 415),
        ("mixed", with(&kind.replace("form-data", "mixed"), whole.clone()), 415),
        ("no type", ann.request(Method::POST, &bag(&chat)).body(whole.clone()), 415),
        ("an unknown parameter", ann.form(&format!("{}?colour=red", bag(&chat)), &Form::of("a", b"x")), 400),
        (
            "no conversation",
            ann.form(&bag("0190b2a0-0000-7000-8000-000000000000"), &Form::of("a", b"x")),
            404,
        ),
        ("nonsense for one", ann.form(&bag("nonsense"), &Form::of("a", b"x")), 404),
    ] {
        let answer = ask(request).await;
        assert_eq!(answer.status, status, "{what}: {}", answer.text);
        refused(&answer, status, answer.body["code"].as_str().unwrap_or_default());
    }
    empty(&world, &chat).await;
    // A quoted boundary, other headers, a preamble and an epilogue are all fine.
    let quoted = kind.replace("boundary=", "boundary=\"") + "\"; charset=utf-8";
    let long = [b"preamble\r\n", &whole[..], b"epilogue"].concat();
    let answer = ask(with(&quoted, long)).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    assert_eq!(names(&ann.list(&chat).await), ["a.txt"]);
    // Other fields of a form are let be, wherever they stand.
    let form = Form::new().field("comment", "hi").file("b.txt", b"b").field("file", "c.txt").end();
    let answer = ask(with(&kind, form)).await;
    assert_eq!(names(&crate::caller::files(&answer)), ["b.txt"]);
    let kept = ask(ann.form("/v1/files", &Form::of("k.txt", b"k").field("comment", "hi"))).await;
    assert_eq!(names(&crate::caller::files(&kept)), ["k.txt"]);
    assert_eq!(ann.list(&chat).await.len(), 2);
    Some(())
}

async fn slow_and_cut_off(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let ann = &world.ann;
    let chat = ann.conversation().await;
    let whole = Form::of("a.bin", &crate::uploading::noise(3, 500_000)).file("b.bin", &[1; 1000]).end();
    for cut in [0, 10, 150, 9000, 300_000, whole.len() - 5, whole.len() - 1100] {
        cut_off(ann, &bag(&chat), &whole, cut).await;
    }
    empty(&world, &chat).await;
    // Bytes that come one by one are a file like any other.
    let small = Form::of("slow.txt", b"slow").end();
    let chunks = small.iter().map(|byte| Ok::<_, std::io::Error>(vec![*byte])).collect::<Vec<_>>();
    let body = reqwest::Body::wrap_stream(futures_util::stream::iter(chunks));
    let request = ann.request(Method::POST, &bag(&chat)).header("content-type", Form::kind()).body(body);
    assert_eq!(ask(request).await.status, 201);
    assert_eq!(names(&ann.list(&chat).await), ["slow.txt"]);
    // More than was announced is another request, which makes no sense.
    let host = ann.url().trim_start_matches("http://").to_owned();
    let mut stream = TcpStream::connect(&host).await.unwrap();
    let head = format!(
        "POST {} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n\r\n",
        bag(&chat),
        ann.bearer(),
        Form::kind(),
        small.len() - 20
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&small).await.unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 400");
    assert_eq!(ann.list(&chat).await.len(), 1);
    Some(())
}

/// Who hangs up once everything is sent may have stored it or not; what is listed is whole, and nothing else is there.
async fn gone_before_the_answer(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let ann = &world.ann;
    let chat = ann.conversation().await;
    let host = ann.url().trim_start_matches("http://").to_owned();
    let mut leaving = Vec::new();
    for n in 0..60_u64 {
        let body =
            Form::of("a.bin", &crate::uploading::noise(n as u8, 20_000)).file("b.bin", &[n as u8; 50]).end();
        let head = format!(
            "POST {} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n\r\n",
            bag(&chat),
            ann.bearer(),
            Form::kind(),
            body.len()
        );
        let host = host.clone();
        leaving.push(async move {
            let mut stream = TcpStream::connect(host).await.unwrap();
            stream.write_all(&[head.as_bytes(), &body].concat()).await.unwrap();
            tokio::time::sleep(Duration::from_micros(n * 500)).await;
            stream.set_zero_linger().unwrap();
        });
    }
    futures_util::future::join_all(leaving).await;
    // What was under way is done when the next one is.
    ann.put(&chat, "last", b"last").await;
    until(async || {
        let listed = ann.list(&chat).await;
        let mut keys: Vec<String> =
            listed.iter().map(|file| file["storageKey"].as_str().unwrap().to_owned()).collect();
        keys.sort();
        keys == blobs(&world)
    })
    .await;
    for file in ann.list(&chat).await {
        let got = ann.content(&file).await;
        assert_eq!(
            (got.status, crate::caller::sha256(&got.bytes)),
            (200, file["sha256"].as_str().unwrap().to_owned())
        );
    }
    Some(())
}

async fn types_that_are_not_taken(home: Home) -> Option<()> {
    let world = World::start_with(home, &[("THREADKEEP_UPLOAD_TYPES", "image, pdf")]).await?;
    let ann = &world.ann;
    let chat = ann.conversation().await;
    let png = [&b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"[..], &[0; 40]].concat();
    for (name, bytes, status) in [
        ("a.png", &png[..], 201),
        ("a.exe", &png, 201),
        ("a.pdf", b"%PDF-1.5", 201),
        ("a.txt", b"hello", 415),
        // By what it is, not by what it is called.
        ("b.png", b"hello", 415),
        ("c.pdf", b"MZ\x90\0\x03", 415),
        ("page.png", b"<!DOCTYPE html><p>", 415),
    ] {
        let answer = ann.upload(&chat, &Form::of(name, bytes)).await;
        assert_eq!(answer.status, status, "{name}: {}", answer.text);
        if status == 415 {
            refused(&answer, 415, "unsupported_file_type");
        }
    }
    // One of several: none.
    let mixed = Form::of("x.png", &png).file("y.txt", b"hello");
    refused(&ann.upload(&chat, &mixed).await, 415, "unsupported_file_type");
    assert_eq!(names(&ann.list(&chat).await), ["a.png", "a.exe", "a.pdf"]);
    // By a direct upload too; but a sandbox may make what it likes.
    let promise = json!({ "name": "x.png", "size": 5, "sha256": crate::caller::sha256(b"hello") });
    let promised = ann.post(&format!("{}/uploads", bag(&chat)), &promise).await.body;
    let put = ann.anonymous(Method::PUT, promised["url"].as_str().unwrap()).body("hello");
    assert_eq!(ask(put).await.status, 204);
    let path = format!("{}/uploads/{}/complete", bag(&chat), promised["id"].as_str().unwrap());
    refused(&ann.send(Method::POST, &path, None).await, 415, "unsupported_file_type");
    let (_, agent) = world.hanging(&chat).await;
    assert_eq!(agent.send_back(&Form::of("made.txt", b"hello")).await.unwrap().status, 201);
    Some(())
}
