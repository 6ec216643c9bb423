//! Into the bag: one to ten files per request, streamed, named, typed by their bytes, listed in pages.

use futures_util::future::join_all;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use testkit::form::Form;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::caller::{bag, files, id, ids, names, refused, sha256};
use crate::world::{Home, World, stories, stories_everywhere};

stories_everywhere!(a_file_and_its_row, ten_files_at_once, many_uploads_of_one_name);
stories!(
    over_http_2,
    a_taken_name_gets_a_number,
    pages,
    what_the_bytes_are,
    names_as_senders_write_them,
    an_interrupted_upload_leaves_its_name,
    stopped_in_the_middle
);

async fn a_file_and_its_row(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let chat = world.ann.conversation().await;
    let bytes = b"%PDF-1.7 and so on";
    let file = world.ann.put(&chat, "report.pdf", bytes).await;
    let now = file["createdAt"].as_i64().unwrap();
    assert!(now > 1_700_000_000_000, "epoch milliseconds: {now}");
    let key = format!("assistant-chat-bag/{}/{chat}/report.pdf", world.workspace);
    let row = json!({
        "id": file["id"], "chatId": chat, "executionId": null, "messageId": null, "name": "report.pdf",
        "mimeType": "application/pdf", "size": bytes.len(), "sha256": sha256(bytes), "storageKey": key,
        "source": "user", "createdAt": now, "deletedAt": null,
    });
    assert_eq!(file, row);
    assert_eq!(id(&file).as_bytes()[14], b'7', "a UUIDv7");
    let list = world.ann.get(&bag(&chat)).await;
    assert_eq!((list.status, list.body), (200, json!({ "data": [row], "next": null })));
    assert_eq!(world.ann.content(&file).await.bytes, bytes);
    if !world.on_s3() {
        assert_eq!(std::fs::read(world.data().join("blobs").join(&key)).ok().as_deref(), Some(&bytes[..]));
    }
    Some(())
}

async fn ten_files_at_once(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let chat = world.ann.conversation().await;
    // Small ones, one that needs several chunks, and one as large as several parts of an upload to a bucket.
    let sizes = [1, 2, 1000, 65_535, 65_536, 300_000, 1_000_003, 7, 8, 11_000_001];
    let bodies: Vec<Vec<u8>> = sizes.iter().enumerate().map(|(n, size)| noise(n as u8, *size)).collect();
    let form = bodies
        .iter()
        .zip(0..)
        .fold(Form::new(), |form, (body, n): (_, u32)| form.file(&format!("{n}.bin"), body));
    let stored = files(&world.ann.upload(&chat, &form).await);
    assert_eq!(names(&stored), (0..10).map(|n| format!("{n}.bin")).collect::<Vec<_>>());
    for (file, body) in stored.iter().zip(&bodies) {
        assert_eq!((file["size"].as_u64(), &file["sha256"]), (Some(body.len() as u64), &json!(sha256(body))));
        let got = world.ann.content(file).await;
        assert!(got.bytes == *body, "{} comes back as it went", file["name"]);
    }
    assert_eq!(world.ann.list(&chat).await, stored);
    // The eleventh.
    let more = form.file("11.bin", b"x");
    refused(&world.ann.upload(&chat, &more).await, 413, "too_many_files");
    assert_eq!(world.ann.list(&chat).await, stored);
    Some(())
}

/// Many frames come at once there.
async fn over_http_2(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let ann = &world.ann;
    let chat = ann.conversation().await;
    let client = reqwest::Client::builder().no_proxy().http2_prior_knowledge().build().unwrap();
    let bodies: Vec<Vec<u8>> = (0..4).map(|n| noise(n, 5_000_000)).collect();
    let form = bodies
        .iter()
        .zip(0..)
        .fold(Form::new(), |form, (body, n): (_, u32)| form.file(&format!("{n}.bin"), body));
    let request = client.post(format!("{}{}", ann.url(), bag(&chat))).bearer_auth(ann.bearer());
    let answer = crate::caller::ask(request.header("content-type", Form::kind()).body(form.end())).await;
    for (file, body) in files(&answer).iter().zip(&bodies) {
        let path = format!("{}{}", ann.url(), crate::caller::content_path(file));
        let got = crate::caller::got(client.get(path).bearer_auth(ann.bearer())).await;
        assert!(got.status == 200 && got.bytes == *body, "{}", file["name"]);
    }
    Some(())
}

/// Bytes that do not repeat soon.
pub fn noise(seed: u8, size: usize) -> Vec<u8> {
    let mut state = u64::from(seed) + 1;
    let next = move |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..size).map(next).collect()
}

async fn many_uploads_of_one_name(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let chat = world.ann.conversation().await;
    let count = if world.on_s3() { 40 } else { 200 };
    let bodies: Vec<Vec<u8>> = (0..count).map(|n| format!("upload {n}").into_bytes()).collect();
    let stored = join_all(bodies.iter().map(|body| world.ann.put(&chat, "report.tar.gz", body))).await;
    let mut expected: Vec<String> = (1..count).map(|n| format!("report-{n}.tar.gz")).collect();
    expected.push("report.tar.gz".into());
    expected.sort();
    let mut got = names(&stored);
    got.sort_unstable();
    assert_eq!(got, expected);
    for (file, body) in stored.iter().zip(&bodies) {
        assert_eq!(world.ann.content(file).await.bytes, *body, "{}", file["name"]);
    }
    assert_eq!(world.ann.list(&chat).await.len(), count);
    Some(())
}

async fn a_taken_name_gets_a_number(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let chat = world.ann.conversation().await;
    let long = format!("{}.txt", "é".repeat(125));
    let cut = format!("{}-1.txt", "é".repeat(124));
    for (sent, name) in [
        ("report.pdf", "report.pdf"),
        ("report.pdf", "report-1.pdf"),
        ("REPORT.PDF", "REPORT-2.PDF"),
        ("report-1.pdf", "report-1-1.pdf"),
        ("a.tar.gz", "a.tar.gz"),
        ("a.tar.gz", "a-1.tar.gz"),
        ("README", "README"),
        ("readme", "readme-1"),
        (".env", ".env"),
        (".env", ".env-1"),
        ("straße", "straße"),
        ("STRASSE", "STRASSE-1"),
        ("caf\u{e9}", "caf\u{e9}"),
        ("cafe\u{301}", "caf\u{e9}-1"),
        (&long, &long),
        (&long, &cut),
    ] {
        assert_eq!(world.ann.put(&chat, sent, b"x").await["name"], name, "{sent}");
    }
    // In one request too.
    let stored =
        files(&world.ann.upload(&chat, &Form::of("twin", b"1").file("TWIN", b"2").file("twin", b"3")).await);
    assert_eq!(names(&stored), ["twin", "TWIN-1", "twin-2"]);
    // Another bag has names of its own.
    let other = world.ann.conversation().await;
    assert_eq!(world.ann.put(&other, "report.pdf", b"x").await["name"], "report.pdf");
    Some(())
}

async fn names_as_senders_write_them(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let chat = world.ann.conversation().await;
    let named = |name: &str| format!("Content-Disposition: form-data; name=\"files\"; filename=\"{name}\"");
    let form = Form::new()
        .part(&named("a\u{1}\u{1b}[31m\u{7f}\0b.txt"), b"\x01\x02 as it is \0")
        // A field in which no file was chosen, and a file without a name.
        .part(&named(""), b"")
        .part(&named(""), b"x");
    let stored = files(&world.ann.upload(&chat, &form).await);
    assert_eq!(names(&stored), ["a[31mb.txt", "file"]);
    assert_eq!(world.ann.content(&stored[0]).await.bytes, b"\x01\x02 as it is \0");
    let nothing = world.ann.upload(&chat, &Form::new().part(&named(""), b"")).await;
    refused(&nothing, 400, "malformed_document");
    Some(())
}

async fn pages(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let chat = world.ann.conversation().await;
    let mut all = Vec::new();
    for n in 0..7 {
        all.push(world.ann.put(&chat, &format!("{n}"), b"x").await);
    }
    let (mut found, mut after): (Vec<Value>, String) = (Vec::new(), String::new());
    for size in [3, 3, 1] {
        let page = world.ann.get(&format!("{}?limit=3{after}", bag(&chat))).await;
        let data = page.body["data"].as_array().unwrap();
        assert_eq!((page.status, data.len()), (200, size), "{}", page.text);
        found.extend(data.iter().cloned());
        after = page.body["next"].as_str().map_or_else(String::new, |next| format!("&after={next}"));
    }
    assert_eq!((ids(&found), after.as_str()), (ids(&all), ""));
    for bad in ["limit=0", "limit=-1", "limit=x", "after=nonsense", "colour=red"] {
        assert_eq!(world.ann.get(&format!("{}?{bad}", bag(&chat))).await.status, 400, "{bad}");
    }
    Some(())
}

async fn what_the_bytes_are(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let chat = world.ann.conversation().await;
    let png = [&b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"[..], &[0; 40]].concat();
    let jpeg = [&b"\xff\xd8\xff\xe0\0\x10JFIF\0"[..], &[0; 40]].concat();
    for (name, bytes, mime) in [
        ("a.png", &png[..], "image/png"),
        // What it says it is does not matter.
        ("a.txt", &png, "image/png"),
        ("b.png", &jpeg, "image/jpeg"),
        ("c.pdf", b"%PDF-1.4\n", "application/pdf"),
        ("d.png", b"<!DOCTYPE html><script>alert(1)</script>", "text/html"),
        ("e.txt", b"hello", "text/plain"),
        ("f.csv", b"a,b\n1,2\n", "text/csv"),
        ("g.json", b"{\"a\":1}", "application/json"),
        ("h.gif", b"GIF89a\x01\0\x01\0\0\0\0", "image/gif"),
        ("i", &[0, 1, 2, 3, 0xff, 0xfe], "application/octet-stream"),
    ] {
        assert_eq!(world.ann.put(&chat, name, bytes).await["mimeType"], mime, "{name}");
    }
    Some(())
}

/// A client that gives up in the middle takes nothing with it: the same name is free for the next try.
async fn an_interrupted_upload_leaves_its_name(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let chat = world.ann.conversation().await;
    let whole = Form::of("report.pdf", &noise(1, 600_000)).end();
    for cut in [200, 70_000, whole.len() - 20] {
        crate::bad_input::cut_off(&world.ann, &bag(&chat), &whole, cut).await;
    }
    crate::bad_input::until(async || {
        world.data().join("blobs").is_dir() && crate::bad_input::blobs(&world).is_empty()
    })
    .await;
    assert_eq!(world.ann.list(&chat).await, Vec::<Value>::new());
    // The name comes free a moment after the bytes are gone.
    crate::bad_input::until(async || {
        world.ann.put(&chat, "report.pdf", b"%PDF-").await["name"] == "report.pdf"
    })
    .await;
    Some(())
}

/// The server is told to stop while a file is on its way: it is taken to its end, and is there after the next start.
async fn stopped_in_the_middle(home: Home) -> Option<()> {
    let mut world = World::start(home).await?;
    let chat = world.ann.conversation().await;
    let bytes = noise(4, 3_000_000);
    let whole = Form::of("late.bin", &bytes).end();
    let host = world.ann.url().trim_start_matches("http://").to_owned();
    let head = format!(
        "POST {} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n\
         Expect: 100-continue\r\n\r\n",
        bag(&chat),
        world.ann.bearer(),
        Form::kind(),
        whole.len()
    );
    let mut stream = TcpStream::connect(&host).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    // Said when the body begins to be read.
    let mut begun = [0; 12];
    stream.read_exact(&mut begun).await.unwrap();
    assert_eq!(&begun, b"HTTP/1.1 100");
    let (now, later) = whole.split_at(whole.len() / 2);
    stream.write_all(now).await.unwrap();
    world.process.signal(Signal::SIGTERM).unwrap();
    crate::bad_input::until(async || TcpStream::connect(&host).await.is_err()).await;
    stream.write_all(later).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains("HTTP/1.1 201"), "{answer}");
    assert_eq!(world.process.ended().await.unwrap().code(), Some(0), "{}", world.process.output());
    world.restart(&[]).await;
    let listed = world.ann.list(&chat).await;
    assert_eq!(names(&listed), ["late.bin"]);
    assert!(world.ann.content(&listed[0]).await.bytes == bytes);
    Some(())
}
