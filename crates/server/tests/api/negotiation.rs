//! Media types: what may be sent (415) and what may be asked for (406), on every operation.

use reqwest::Method;
use serde_json::json;

use crate::world::{CONVERSATIONS, MEDIA_TYPE, World, code, creation, id_of, item, stories};

stories!(
    what_may_be_asked_for,
    what_may_be_sent,
    what_was_compressed_is_told_so,
    every_operation_negotiates,
    other_paths_are_plain_json
);

async fn what_may_be_asked_for(world: World) {
    let cases: [(&[&str], bool); 19] = [
        (&["application/vnd.api+json"], true),
        (&["*/*"], true),
        (&["application/*"], true),
        (&["text/html, application/vnd.api+json;q=0.5"], true),
        (&["text/html", "application/vnd.api+json"], true),
        (&["application/vnd.api+json;profile=\"https://example.com/p\""], true),
        (&["application/vnd.api+json;charset=utf-8, application/vnd.api+json"], true),
        (&["application/vnd.api+json;ext=\"\""], true),
        (&["text/html, */*;q=0.1"], true),
        (&["APPLICATION/VND.API+JSON"], true),
        (&["application/json"], false),
        (&["text/html"], false),
        (&["application/vnd.api+json;charset=utf-8"], false),
        (&["application/vnd.api+json;version=1"], false),
        (&["application/vnd.api+json;ext=\"https://jsonapi.org/ext/atomic\""], false),
        (&["application/vnd.api+json;ext=a, application/vnd.api+json;charset=x"], false),
        (&["application/vnd.api+json;q=0"], false),
        (&["*/*;q=0"], false),
        (&["nonsense"], false),
    ];
    for (accept, fine) in cases {
        let mut request = world.request(Method::GET, CONVERSATIONS);
        for value in accept {
            request = request.header("accept", *value);
        }
        let answer = world.send(request).await;
        let expected = if fine { (200, "none") } else { (406, "not_acceptable") };
        assert_eq!((answer.status, code(&answer)), expected, "{accept:?}: {}", answer.text);
        if !fine {
            assert_eq!(answer.body["errors"][0]["source"]["header"], "Accept");
        }
    }
}

async fn what_may_be_sent(world: World) {
    let cases: [(&[&str], bool); 13] = [
        (&["application/vnd.api+json"], true),
        (&["application/vnd.api+json;profile=\"https://example.com/p https://example.com/q\""], true),
        (&["Application/Vnd.Api+Json"], true),
        (&[], false),
        (&[""], false),
        (&["application/json"], false),
        (&["text/plain"], false),
        (&["application/x-www-form-urlencoded"], false),
        (&["application/vnd.api+json;charset=utf-8"], false),
        (&["application/vnd.api+json;ext=\"https://jsonapi.org/ext/atomic\""], false),
        (&["application/vnd.api+json;profile=\"p\";charset=utf-8"], false),
        (&["application/vnd.api+json, application/json"], false),
        (&["application/vnd.api+json", "application/vnd.api+json"], false),
    ];
    for (kinds, fine) in cases {
        let before = world.everything().await;
        let mut request = world.request(Method::POST, CONVERSATIONS).body(creation(&json!({ "title": "t" })));
        for value in kinds {
            request = request.header("content-type", *value);
        }
        let answer = world.send(request).await;
        assert_eq!(answer.status, if fine { 201 } else { 415 }, "{kinds:?}: {}", answer.text);
        if !fine {
            assert_eq!(code(&answer), "unsupported_media_type");
            assert_eq!(answer.body["errors"][0]["source"]["header"], "Content-Type");
            assert_eq!(world.everything().await, before);
        }
    }
}

async fn what_was_compressed_is_told_so(world: World) {
    let id = id_of(&world.create(json!({ "title": "kept" })).await);
    let before = world.everything().await;
    let gzip: &[u8] = b"\x1f\x8b\x08\0\0\0\0\0\0\x03\xab\xae\x05\0C\xbf\xa6\xa3\x02\0\0\0";
    for encoding in ["gzip", "br", "identity, gzip"] {
        for (method, path) in [(Method::POST, CONVERSATIONS.to_owned()), (Method::PATCH, item(&id))] {
            let request = world.with_body(method, &path, gzip).header("content-encoding", encoding);
            let answer = world.send(request).await;
            assert_eq!((answer.status, code(&answer)), (415, "unsupported_media_type"), "{}", answer.text);
            assert_eq!(answer.body["errors"][0]["source"]["header"], "Content-Encoding");
        }
        for (path, kind) in [
            ("/v1/workspaces", "application/json"),
            ("/v1/turns", "application/json"),
            ("/v1/files", "multipart/form-data; boundary=x"),
        ] {
            let request = world.request(Method::POST, path).header("content-type", kind).body(gzip);
            let answer = world.send(request.header("content-encoding", encoding)).await;
            let told = (answer.status, &answer.body["code"]);
            assert_eq!(told, (415, &json!("unsupported_media_type")), "{path} {}", answer.text);
            assert_eq!(answer.header("content-type"), "application/problem+json");
            assert_eq!(answer.body["source"]["header"], "Content-Encoding");
        }
    }
    assert_eq!(world.everything().await, before);
    let body = creation(&json!({ "title": "t" }));
    let plain = world.with_body(Method::POST, CONVERSATIONS, body).header("content-encoding", "Identity");
    assert_eq!(world.send(plain).await.status, 201);
}

async fn every_operation_negotiates(world: World) {
    let id = id_of(&world.create(json!({ "title": "kept" })).await);
    let before = world.everything().await;
    for (method, path) in [
        (Method::GET, CONVERSATIONS.to_owned()),
        (Method::POST, CONVERSATIONS.to_owned()),
        (Method::GET, item(&id)),
        (Method::PATCH, item(&id)),
        (Method::DELETE, item(&id)),
        (Method::POST, format!("{}/restore", item(&id))),
    ] {
        let body = crate::world::change(&id, &json!({ "title": "x" }));
        let request = world.with_body(method.clone(), &path, body).header("accept", "application/json");
        let answer = world.send(request).await;
        assert_eq!(
            (answer.status, code(&answer)),
            (406, "not_acceptable"),
            "{method} {path}: {}",
            answer.text
        );
    }
    let body = crate::world::change(&id, &json!({ "title": "x" }));
    let request =
        world.request(Method::PATCH, &item(&id)).header("content-type", "application/json").body(body);
    assert_eq!(world.send(request).await.status, 415);
    assert_eq!(world.everything().await, before);
}

async fn other_paths_are_plain_json(world: World) {
    for accept in ["application/json", "*/*", MEDIA_TYPE, "application/vnd.other+json"] {
        let answer = world.send(world.request(Method::GET, "/v1/workspaces").header("accept", accept)).await;
        assert_eq!((answer.status, answer.header("content-type")), (200, "application/json"), "{accept}");
    }
}
