//! Input that is wrong in any way is a 4xx that names what was wrong, and changes nothing.

use futures_util::stream;
use reqwest::{Body, Method};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::world::{CONVERSATIONS, World, code, creation, detail, id_of, item, pointer, stories};

stories!(
    documents_that_are_none,
    documents_of_the_wrong_shape,
    bodies_that_are_too_large,
    bodies_that_break_off,
    heads_that_are_too_large,
    wrong_methods_and_paths,
);

fn nested(levels: usize) -> String {
    let (open, close) = ("[".repeat(levels), "]".repeat(levels));
    // Four levels lie around it: the document, data, attributes and context.
    creation(&json!({ "context": { "x": "HERE" } })).replace("\"HERE\"", &format!("{open}{close}"))
}

fn with_title(raw: &[u8]) -> Vec<u8> {
    let document = creation(&json!({ "title": "HERE" }));
    let (before, after) = document.split_once("HERE").unwrap();
    [before.as_bytes(), raw, after.as_bytes()].concat()
}

async fn documents_that_are_none(world: World) {
    let id = id_of(&world.create(json!({ "title": "kept" })).await);
    let before = world.everything().await;
    let whole = creation(&json!({ "title": "t" }));
    let context = |raw: &str| creation(&json!({ "context": { "x": "HERE" } })).replace("\"x\":\"HERE\"", raw);
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("empty", vec![], "JSON"),
        ("blank", b" \n".to_vec(), "JSON"),
        ("text", b"hello".to_vec(), "JSON"),
        ("cut off", whole.as_bytes()[..whole.len() - 1].to_vec(), "JSON"),
        ("two documents", format!("{whole}{whole}").into_bytes(), "JSON"),
        ("trailing comma", whole.replace("\"}}", "\",}}").into_bytes(), "JSON"),
        ("comment", format!("/* */{whole}").into_bytes(), "JSON"),
        ("single quotes", whole.replace('"', "'").into_bytes(), "JSON"),
        ("NaN", context("\"x\":NaN").into_bytes(), "JSON"),
        ("number without its end", context("\"x\":1e").into_bytes(), "JSON"),
        ("byte order mark", [b"\xef\xbb\xbf", whole.as_bytes()].concat(), "JSON"),
        ("UTF-16", whole.encode_utf16().flat_map(u16::to_le_bytes).collect(), "JSON"),
        ("invalid UTF-8", with_title(b"\xff\xfe"), "UTF-8"),
        ("overlong UTF-8", with_title(b"\xc0\xaf"), "UTF-8"),
        ("surrogate in UTF-8", with_title(b"\xed\xa0\x80"), "UTF-8"),
        ("NUL in a title", with_title(b"a\\u0000b"), "/data/attributes/title"),
        ("raw NUL in a title", with_title(b"a\0b"), "JSON"),
        ("lone surrogate", with_title(b"\\ud800"), "JSON"),
        ("lone low surrogate", with_title(b"x\\udc00"), "JSON"),
        ("NUL in a context's key", context("\"a\\u0000\":1").into_bytes(), "U+0000"),
        ("NUL in a context", context("\"a\":[\"\\u0000\"]").into_bytes(), "/data/attributes/context/a/0"),
        (
            "NUL in a tab",
            creation(&json!({ "tabs": [{ "key": "a\0", "destinationId": "a\0" }] })).into_bytes(),
            "/tabs/0",
        ),
        ("NUL in an unknown member", creation(&json!({ "a\0": 1 })).into_bytes(), "U+0000"),
        (
            "duplicate key",
            whole.replace(r#""title":"t""#, r#""title":"t","title":"u""#).into_bytes(),
            "title",
        ),
        (
            "duplicate key in the context",
            context(r#""a":1,"\u0061":2"#).into_bytes(),
            "/data/attributes/context/a",
        ),
        ("65 levels", nested(61).into_bytes(), "64"),
        ("100,000 levels", nested(100_000).into_bytes(), "64"),
    ];
    for (what, body, needle) in cases {
        for (method, path) in [(Method::POST, CONVERSATIONS.to_owned()), (Method::PATCH, item(&id))] {
            let answer = world.send(world.with_body(method, &path, body.clone())).await;
            assert_eq!(
                (answer.status, code(&answer)),
                (400, "malformed_document"),
                "{what}: {}",
                answer.text
            );
            let said = format!("{} {}", detail(&answer), pointer(&answer));
            assert!(said.contains(needle), "{what}: {said}");
            assert!(answer.text.len() < 4000, "{what}: the answer stays short");
        }
    }
    assert_eq!(world.everything().await, before);
    assert_eq!(world.post(nested(60)).await.status, 201, "64 levels are fine");
}

async fn documents_of_the_wrong_shape(world: World) {
    let before = world.everything().await;
    for (body, status, at) in [
        ("[]", 400, ""),
        ("null", 400, ""),
        ("\"x\"", 400, ""),
        ("{}", 400, ""),
        (r#"{"data":null}"#, 400, "/data"),
        (r#"{"data":[]}"#, 400, "/data"),
        (r#"{"data":[{"type":"chat_conversation"}]}"#, 400, "/data"),
        (r#"{"data":"x"}"#, 400, "/data"),
        (r#"{"data":{}}"#, 400, "/data"),
        (r#"{"data":{"type":1}}"#, 400, "/data/type"),
        (r#"{"data":{"type":"workspace"}}"#, 409, "/data/type"),
        (r#"{"data":{"type":"chat_conversation","attributes":[]}}"#, 400, "/data/attributes"),
        (r#"{"data":{"type":"chat_conversation","attributes":null}}"#, 400, "/data/attributes"),
        (r#"{"data":{"type":"chat_conversation","title":"t"}}"#, 400, "/data/title"),
        (r#"{"data":{"type":"chat_conversation"},"datas":1}"#, 400, "/datas"),
        (r#"{"data":{"type":"chat_conversation"},"errors":[]}"#, 400, "/errors"),
        (r#"{"data":{"type":"chat_conversation"},"included":[]}"#, 400, "/included"),
        (r#"{"data":{"type":"chat_conversation"},"meta":[]}"#, 400, "/meta"),
    ] {
        let answer = world.post(body).await;
        assert_eq!((answer.status, pointer(&answer)), (status, at), "{body}: {}", answer.text);
    }
    assert_eq!(world.everything().await, before);
    // What JSON:API itself allows beside the data does no harm.
    let body = r#"{"jsonapi":{"version":"1.1"},"meta":{"a":1},"links":{},"@x":1,"data":{"type":"chat_conversation","lid":"l","meta":{},"attributes":{"@y":2}}}"#;
    assert_eq!(world.post(body).await.status, 201);
}

async fn bodies_that_are_too_large(world: World) {
    const LIMIT: usize = 2 * 1024 * 1024;
    let before = world.everything().await;
    let padded = |bytes: usize| {
        let document = creation(&json!({ "title": "t" }));
        format!("{}{document}", " ".repeat(bytes - document.len()))
    };
    let chunked = |bytes: usize| {
        let whole = padded(bytes).into_bytes();
        let chunks: Vec<_> =
            whole.chunks(64 * 1024).map(|chunk| Ok::<_, std::io::Error>(chunk.to_vec())).collect();
        Body::wrap_stream(stream::iter(chunks))
    };
    for (what, body) in [
        ("one byte too many", Body::from(padded(LIMIT + 1))),
        ("one byte too many, in chunks", chunked(LIMIT + 1)),
        ("no JSON at all", Body::from(vec![0; LIMIT + 1])),
    ] {
        let answer = world.post(body).await;
        assert_eq!((answer.status, code(&answer)), (413, "body_too_large"), "{what}: {}", answer.text);
        assert!(detail(&answer).contains(&LIMIT.to_string()), "{what}: {}", answer.text);
        assert_eq!(answer.body["errors"][0]["meta"]["limit"], LIMIT, "{what}: {}", answer.text);
    }
    assert_eq!(world.everything().await, before);
    assert_eq!(world.post(padded(LIMIT)).await.status, 201, "the limit itself is fine");
    assert_eq!(world.post(chunked(LIMIT)).await.status, 201);
    // Far beyond it nothing is read; the answer names the limit, if the sender stays to read it.
    let head = format!("POST {CONVERSATIONS} HTTP/1.1\r\nContent-Length: 99999999999\r\n");
    let text = exchange(&world, &head, &[b' '; 1024]).await;
    assert!(text.starts_with("HTTP/1.1 413 "), "{text}");
    assert!(text.contains("2097152"), "{text}");
}

/// Sends a request byte by byte as it is, and reads until the server closes or has answered.
async fn exchange(world: &World, head: &str, body: &[u8]) -> String {
    let address = world.server.url().trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).await.unwrap();
    let bearer = testkit::server::token("ann", "acme");
    let common = format!(
        "Host: {address}\r\nAuthorization: Bearer {bearer}\r\nContent-Type: application/vnd.api+json\r\n\r\n"
    );
    // The server may answer and close before everything is written.
    let _ = stream.write_all(&[head.as_bytes(), common.as_bytes(), body].concat()).await;
    let mut found = Vec::new();
    let mut buffer = [0; 4096];
    let whole = |found: &[u8]| {
        let text = String::from_utf8_lossy(found);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
        let length = head
            .lines()
            .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
        length.is_some_and(|length: usize| body.len() >= length)
    };
    while !whole(&found) {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(read) => found.extend_from_slice(&buffer[..read]),
        }
    }
    String::from_utf8_lossy(&found).into_owned()
}

async fn bodies_that_break_off(world: World) {
    let before = world.everything().await;
    let document = creation(&json!({ "title": "t" }));
    let address = world.server.url().trim_start_matches("http://").to_owned();
    let bearer = testkit::server::token("ann", "acme");
    for (length, body) in [(document.len() + 10, document.as_str()), (document.len(), &document[..20])] {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        let head = format!(
            "POST {CONVERSATIONS} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {bearer}\r\n\
             Content-Type: application/vnd.api+json\r\nContent-Length: {length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(body.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text).await;
        assert!(text.is_empty() || text.starts_with("HTTP/1.1 400 "), "{text}");
    }
    let head = format!("POST {CONVERSATIONS} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n");
    let text = exchange(&world, &head, b"zz\r\nbroken").await;
    assert!(text.starts_with("HTTP/1.1 400 "), "{text}");
    assert_eq!(world.everything().await, before);
}

async fn heads_that_are_too_large(world: World) {
    let before = world.everything().await;
    for (head, status) in [
        (format!("GET {CONVERSATIONS}?x={} HTTP/1.1\r\n", "a".repeat(100_000)), ["414", "431"]),
        (format!("GET /{} HTTP/1.1\r\n", "a".repeat(40_000)), ["414", "431"]),
        (format!("GET {CONVERSATIONS} HTTP/1.1\r\nX-Long: {}\r\n", "a".repeat(40_000)), ["431", "431"]),
        (format!("GET {CONVERSATIONS} HTTP/1.1\r\n{}", "X-Many: 1\r\n".repeat(2000)), ["431", "431"]),
        ("GET / HTTP/9.9\r\n".to_owned(), ["400", "505"]),
        ("nonsense\r\n".to_owned(), ["400", "400"]),
        ("GET /\x01 HTTP/1.1\r\n".to_owned(), ["400", "400"]),
        (
            format!("GET {CONVERSATIONS} HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n"),
            ["400", "400"],
        ),
        (format!("GET {CONVERSATIONS} HTTP/1.1\r\nBad Header: 1\r\n"), ["400", "400"]),
    ] {
        let text = exchange(&world, &head, b"").await;
        let found = text.split(' ').nth(1).unwrap_or("");
        assert!(status.contains(&found), "{}: {text}", &head[..head.len().min(60)]);
    }
    assert_eq!(world.everything().await, before);
}

async fn wrong_methods_and_paths(world: World) {
    let id = id_of(&world.create(json!({ "title": "kept" })).await);
    let before = world.everything().await;
    for (method, path, allowed) in [
        ("DELETE", CONVERSATIONS.to_owned(), &["GET", "POST"][..]),
        ("PUT", CONVERSATIONS.to_owned(), &["GET", "POST"]),
        ("PUT", item(&id), &["GET", "PATCH", "DELETE"]),
        ("POST", item(&id), &["GET", "PATCH", "DELETE"]),
        ("GET", format!("{}/restore", item(&id)), &["POST"]),
        ("POST", "/healthz".to_owned(), &["GET"]),
        ("PUT", "/v1/workspaces".to_owned(), &["GET", "POST"]),
        ("NONSENSE", "/v1/audit".to_owned(), &["GET"]),
    ] {
        let answer = world.send(world.request(method.parse().unwrap(), &path)).await;
        assert_eq!(answer.status, 405, "{method} {path}: {}", answer.text);
        assert!(answer.text.contains("method_not_allowed"), "{method} {path}: {}", answer.text);
        let allow: Vec<&str> = answer.header("allow").split(',').map(str::trim).collect();
        assert!(allowed.iter().all(|one| allow.contains(one)), "{method} {path}: {allow:?}");
        assert!(!allow.contains(&method), "{method} {path}: {allow:?}");
    }
    for path in [
        "/v1",
        "/v1/chat-conversation",
        "/v1/chat-conversations/",
        "/v1/Chat-Conversations",
        "/v2/chat-conversations",
        "/nowhere",
        "/v1/chat-conversations/x/y",
        "//v1/chat-conversations",
        "/v1/chat-conversations%2f",
    ] {
        let answer = world.get(path).await;
        assert_eq!(answer.status, 404, "{path}: {}", answer.text);
        assert!(answer.text.contains("not_found"), "{path}: {}", answer.text);
    }
    assert_eq!(world.everything().await, before);
}
