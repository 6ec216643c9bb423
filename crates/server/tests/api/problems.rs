//! Errors outside JSON:API are problems (RFC 9457) with stable codes; `World::send` checks their members.

use reqwest::Method;
use serde_json::json;
use testkit::server::Answer;

use crate::world::{CONVERSATIONS, World, check_problem, stories};

stories!(each_kind_of_refusal, no_credential_is_told_the_same_way);

async fn send(world: &World, method: &str, path: &str, kind: &str, body: &str) -> Answer {
    let request = world.request(method.parse().unwrap(), path);
    let request = if kind.is_empty() { request } else { request.header("content-type", kind) };
    world.send(request.body(body.to_owned())).await
}

async fn each_kind_of_refusal(world: World) {
    let own = format!("/v1/workspaces/{}", world.workspace);
    let members = format!("{own}/members");
    world.create(json!({})).await;
    let json = "application/json";
    let large = format!("{{\"name\":\"{}\"}}", "x".repeat(2 * 1024 * 1024));
    for (method, path, kind, body, status, code, needle) in [
        ("GET", "/nowhere", "", "", 404, "not_found", ""),
        ("GET", "/v1/workspaces/x", "", "", 404, "not_found", ""),
        ("PUT", "/v1/workspaces", json, "{}", 405, "method_not_allowed", ""),
        ("GET", "/v1/workspaces?limit=0", "", "", 400, "invalid_parameter", "limit"),
        ("GET", "/v1/workspaces?limit=x", "", "", 400, "invalid_parameter", "limit"),
        ("GET", "/v1/workspaces?after=x", "", "", 400, "invalid_parameter", "after"),
        ("GET", "/v1/workspaces?colour=red", "", "", 400, "unknown_parameter", "colour"),
        ("GET", "/v1/workspaces?limit=1&limit=1", "", "", 400, "invalid_parameter", "limit"),
        ("GET", "/v1/audit?workspace=x", "", "", 400, "invalid_parameter", "workspace"),
        ("GET", "/v1/audit?after=%00", "", "", 400, "invalid_parameter", "control"),
        ("DELETE", &own, "", "", 409, "workspace_not_empty", "cascade"),
        ("DELETE", &format!("{own}?cascade=maybe"), "", "", 400, "invalid_parameter", "cascade"),
        ("POST", "/v1/workspaces", "text/plain", "{}", 415, "unsupported_media_type", "application/json"),
        ("POST", "/v1/workspaces", "", "{}", 415, "unsupported_media_type", "application/json"),
        ("POST", "/v1/workspaces", json, "", 400, "malformed_document", "JSON"),
        ("POST", "/v1/workspaces", json, "{\"name\":", 400, "malformed_document", "JSON"),
        ("POST", "/v1/workspaces", json, "{\"name\":\"a\\u0000\"}", 400, "malformed_document", "U+0000"),
        (
            "POST",
            "/v1/workspaces",
            json,
            "{\"name\":\"a\",\"name\":\"b\"}",
            400,
            "malformed_document",
            "name",
        ),
        ("POST", "/v1/workspaces", json, "{\"name\":\"a\",\"colour\":1}", 400, "unknown_field", "colour"),
        ("POST", "/v1/workspaces", json, "{}", 422, "invalid_value", "name"),
        ("POST", "/v1/workspaces", json, "{\"name\":7}", 422, "invalid_value", "string"),
        ("POST", "/v1/workspaces", json, "{\"name\":\" \"}", 422, "invalid_value", "name"),
        ("POST", "/v1/workspaces", json, "[]", 422, "invalid_value", ""),
        ("POST", "/v1/workspaces", json, &large, 413, "body_too_large", "2097152"),
        ("POST", &members, json, r#"{"user":"bob","role":"service"}"#, 422, "invalid_value", "role"),
        ("POST", &members, json, r#"{"user":"ann","role":"member"}"#, 409, "last_admin", "admin"),
        ("DELETE", &format!("{members}/nobody"), "", "", 404, "not_found", ""),
        ("DELETE", "/v1/api-keys/x", "", "", 404, "not_found", ""),
    ] {
        let answer = send(&world, method, path, kind, body).await;
        assert_eq!(
            (answer.status, &answer.body["code"]),
            (status, &json!(code)),
            "{method} {path}: {}",
            answer.text
        );
        assert_eq!(answer.body["type"], format!("urn:threadkeep:problem:{code}"));
        assert!(answer.text.contains(needle), "{method} {path}: {}", answer.text);
        if status == 413 {
            assert_eq!(answer.body["limit"], 2 * 1024 * 1024);
        }
    }
    let workspaces = world.get("/v1/workspaces").await;
    assert_eq!(workspaces.body["data"].as_array().unwrap().len(), 1, "nothing was made: {}", workspaces.text);
}

async fn no_credential_is_told_the_same_way(world: World) {
    for path in ["/v1/workspaces", "/v1/audit", "/v1/session", "/v1/api-keys", CONVERSATIONS] {
        for bearer in [None, Some("nonsense"), Some("tk_nonsense")] {
            let request = world.server.request(Method::GET, path);
            let request = bearer.into_iter().fold(request, |request, bearer| request.bearer_auth(bearer));
            let answer = world.send(request).await;
            assert_eq!((answer.status, answer.header("www-authenticate")), (401, "Bearer"), "{path}");
            assert!(answer.text.contains("unauthenticated"), "{path}: {}", answer.text);
            if path != CONVERSATIONS {
                check_problem(&answer);
            }
        }
    }
}
