//! Bytes out: whole, in ranges, not again when nothing changed, and never as something that a browser would run.

use reqwest::Method;
use serde_json::json;

use crate::caller::{CONVERSATIONS, content_path, got, refused, sha256};
use crate::world::{Home, World, stories, stories_everywhere};

stories_everywhere!(whole_and_in_ranges);
stories!(not_again, safe_headers, a_model_reads_the_last_of_many);

async fn whole_and_in_ranges(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let chat = world.ann.conversation().await;
    let bytes = crate::uploading::noise(7, 700_001);
    let file = world.ann.put(&chat, "n.bin", &bytes).await;
    let size = bytes.len();
    let whole = world.ann.content(&file).await;
    assert_eq!((whole.status, whole.header("content-length")), (200, size.to_string().as_str()));
    assert_eq!(whole.header("accept-ranges"), "bytes");
    assert!(whole.bytes == bytes);
    for (range, part) in [
        ("bytes=0-0", 0..1),
        ("bytes=0-9", 0..10),
        ("bytes=10-", 10..size),
        ("bytes=-5", size - 5..size),
        ("bytes=-9999999", 0..size),
        ("bytes=262143-262145", 262_143..262_146),
        ("bytes=700000-", 700_000..size),
        ("bytes=1-99999999999999999999", 1..size),
    ] {
        // This server of the tests takes the last byte of that for none given.
        if home == Home::PostgresS3rver && range == "bytes=0-0" {
            continue;
        }
        let got = world.ann.content_with(&file, &[("range", range)]).await;
        let told = format!("bytes {}-{}/{size}", part.start, part.end - 1);
        assert_eq!((got.status, got.header("content-range")), (206, told.as_str()), "{range}");
        assert_eq!(got.header("content-length"), part.len().to_string());
        assert!(got.bytes == bytes[part], "{range}");
    }
    for range in ["bytes=700001-", "bytes=99999999999999999999-", "bytes=-0"] {
        let got = world.ann.content_with(&file, &[("range", range)]).await;
        assert_eq!(
            (got.status, got.header("content-range")),
            (416, format!("bytes */{size}").as_str()),
            "{range}"
        );
    }
    for range in ["bytes=5-1", "bytes=0-1,3-4", "lines=0-1", "bytes", "bytes=x-y"] {
        let got = world.ann.content_with(&file, &[("range", range)]).await;
        assert_eq!((got.status, got.bytes.len()), (200, size), "{range}");
    }
    let head = got(world.ann.request(Method::HEAD, &content_path(&file))).await;
    assert_eq!(
        (head.status, head.header("content-length"), head.bytes.len()),
        (200, size.to_string().as_str(), 0)
    );
    assert_eq!(head.header("etag"), whole.header("etag"));
    Some(())
}

async fn not_again(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let chat = world.ann.conversation().await;
    let file = world.ann.put(&chat, "a.txt", b"0123456789").await;
    let whole = world.ann.content(&file).await;
    let tag = whole.header("etag").to_owned();
    assert_eq!(tag, format!("\"{}\"", sha256(b"0123456789")));
    let weak = format!("W/{tag}");
    let several = format!("\"other\", {tag}");
    for value in [&tag, &weak, &several, "*"] {
        let got = world.ann.content_with(&file, &[("if-none-match", value)]).await;
        assert_eq!((got.status, got.bytes.len(), got.header("etag")), (304, 0, tag.as_str()), "{value}");
    }
    assert_eq!(world.ann.content_with(&file, &[("if-none-match", "\"other\"")]).await.status, 200);
    for (value, status) in
        [(tag.as_str(), 206), ("\"other\"", 200), (&weak, 200), ("Wed, 21 Oct 2015 07:28:00 GMT", 200)]
    {
        let got = world.ann.content_with(&file, &[("range", "bytes=2-3"), ("if-range", value)]).await;
        assert_eq!(got.status, status, "If-Range: {value}");
    }
    Some(())
}

async fn safe_headers(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let chat = world.ann.conversation().await;
    let png = [&b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"[..], &[0; 40]].concat();
    for (name, bytes, kind) in [
        ("a.png", &png[..], "inline"),
        ("page.html", b"<!DOCTYPE html><script>1</script>", "attachment"),
        ("pic.svg", b"<svg xmlns='http://www.w3.org/2000/svg'><script>1</script></svg>", "attachment"),
        ("doc.pdf", b"%PDF-1.4", "attachment"),
        (
            "x.xhtml",
            b"<?xml version='1.0'?><html xmlns='http://www.w3.org/1999/xhtml'><script>1</script></html>",
            "attachment",
        ),
        ("x.js", b"alert(1)", "attachment"),
        // A picture by its first bytes, a page by the rest.
        ("gif.html", b"GIF89a/*<script>alert(1)</script>*/", "attachment"),
        ("n\"a;m e\u{e9}.txt", b"text", "attachment"),
    ] {
        let file = world.ann.put(&chat, name, bytes).await;
        let got = world.ann.content(&file).await;
        assert_eq!(got.header("x-content-type-options"), "nosniff", "{name}");
        let policy = got.header("content-security-policy");
        assert!(policy.contains("default-src 'none'") && policy.contains("sandbox"), "{policy}");
        assert!(!policy.contains("allow-"), "{policy}");
        let disposition = got.header("content-disposition");
        let plain_text = file["mimeType"] == "text/plain" && disposition.starts_with("inline");
        assert!(disposition.starts_with(kind) || plain_text, "{name}: {disposition}");
        assert!(got.header("cache-control").contains("private"), "{name}");
        let told = got.header("content-type").to_owned();
        assert_eq!(told.split(';').next(), file["mimeType"].as_str(), "{name}");
        // Refusals and ranges are no less safe.
        let part = world.ann.content_with(&file, &[("range", "bytes=0-0")]).await;
        assert_eq!((part.status, part.header("x-content-type-options")), (206, "nosniff"));
    }
    let nothing = json!({ "id": "0190b2a0-0000-7000-8000-000000000000", "chatId": chat });
    refused(&world.ann.get(&content_path(&nothing)).await, 404, "not_found");
    Some(())
}

async fn a_model_reads_the_last_of_many(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let chat = world.ann.conversation().await;
    for n in 0..=200 {
        world.ann.put(&chat, &format!("f-{n}.txt"), format!("the number {n}").as_bytes()).await;
    }
    for (message, said) in
        [("read F-200.txt", "the number 200"), ("list files", "There are more than 200 files")]
    {
        let asked =
            json!({ "conversation": chat, "message": message, "mode": "ask", "model": "demo/assistant" });
        world.ann.turn(&asked).await;
        let thread = world.ann.get(&format!("{CONVERSATIONS}/{chat}")).await.text;
        assert!(thread.contains(said), "{message}");
    }
    Some(())
}
