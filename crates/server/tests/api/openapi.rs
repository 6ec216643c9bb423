//! The API's description: generated from the routes, kept in the repository, valid OpenAPI 3.1.

use std::collections::HashSet;
use std::path::Path;

use serde_json::{Map, Value, json};
use testkit::server::Backend;

use crate::world::{ALL_FIELDS, World, speaks_jsonapi};

const METHODS: [&str; 8] = ["get", "put", "post", "delete", "options", "head", "patch", "trace"];

fn document() -> Value {
    serde_json::from_str(&server::router::openapi_json()).unwrap()
}

/// Every operation as (method, path, itself).
fn operations(document: &Value) -> Vec<(&String, &String, &Value)> {
    let paths = document["paths"].as_object().unwrap();
    paths
        .iter()
        .flat_map(|(path, item)| {
            let known = |name: &&String| METHODS.contains(&name.as_str());
            item.as_object()
                .unwrap()
                .iter()
                .filter(move |(name, _)| known(name))
                .map(move |(m, o)| (m, path, o))
        })
        .collect()
}

#[test]
fn the_kept_description_is_the_generated_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../openapi.json");
    let generated = format!("{}\n", server::router::openapi_json());
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(&path, &generated).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == generated, "openapi.json is out of date: run the tests once with UPDATE_GENERATED=1");
}

#[tokio::test]
async fn the_server_answers_it() {
    let world = World::start(Backend::Sqlite, |_| {}).await.unwrap();
    let answer = world.send(world.server.request(reqwest::Method::GET, "/openapi.json")).await;
    assert_eq!((answer.status, answer.header("content-type")), (200, "application/json"));
    assert_eq!(answer.body, document());
}

#[test]
fn the_top_is_valid() {
    let document = document();
    let known = [
        "openapi",
        "info",
        "jsonSchemaDialect",
        "servers",
        "paths",
        "webhooks",
        "components",
        "security",
        "tags",
        "externalDocs",
    ];
    assert!(document.as_object().unwrap().keys().all(|name| known.contains(&name.as_str())));
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1."));
    for name in ["title", "version"] {
        assert!(document["info"][name].as_str().is_some_and(|text| !text.is_empty()), "{name}");
    }
    assert!(
        document["info"]["license"].get("url").is_none()
            || document["info"]["license"].get("identifier").is_none()
    );
    let tags: HashSet<&str> =
        document["tags"].as_array().unwrap().iter().map(|tag| tag["name"].as_str().unwrap()).collect();
    for (method, path, operation) in operations(&document) {
        for tag in operation["tags"].as_array().unwrap() {
            assert!(tags.contains(tag.as_str().unwrap()), "{method} {path}: {tag} is declared");
        }
    }
}

#[test]
fn every_operation_is_described() {
    let document = document();
    let mut seen = HashSet::new();
    for (method, path, operation) in operations(&document) {
        let what = format!("{method} {path}");
        assert!(path.starts_with('/'), "{what}");
        let id = operation["operationId"].as_str().unwrap_or("");
        assert!(!id.is_empty() && seen.insert(id.to_owned()), "{what}: the operationId {id:?} is its own");
        let text = |name| operation[name].as_str().is_some_and(|text: &str| !text.is_empty());
        assert!(text("summary"), "{what}: a summary");
        let responses = operation["responses"].as_object().unwrap();
        assert!(!responses.is_empty(), "{what}");
        for (status, response) in responses {
            assert!(
                status.len() == 3 && status.parse::<u16>().is_ok_and(|s| (200..600).contains(&s)),
                "{what}: {status}"
            );
            assert!(
                response["description"].as_str().is_some_and(|text| !text.is_empty()),
                "{what}: {status} says what it is"
            );
            check_content(response, status, &what);
        }
        if let Some(body) = operation.get("requestBody") {
            let content = body["content"].as_object().unwrap();
            assert!(!content.is_empty(), "{what}");
            assert!(
                content.values().all(|media| media.get("schema").is_some()),
                "{what}: the body has a schema"
            );
            assert_eq!(body["required"], true, "{what}");
        }
    }
    assert!(seen.len() >= 20, "{seen:?}");
}

fn check_content(response: &Value, status: &str, what: &str) {
    let content = response["content"].as_object();
    if matches!(status, "204" | "303" | "304") {
        assert_eq!(content, None, "{what}: {status} has no body");
        return;
    }
    let content = content.unwrap_or_else(|| panic!("{what}: {status} has content"));
    for (kind, media) in content {
        // A schema would be held against each event.
        let whole = kind != "text/event-stream";
        assert_eq!(media.get("schema").is_some(), whole, "{what}: {status} {kind}");
    }
    if status.starts_with(['4', '5']) {
        let jsonapi = what.split_once(' ').is_some_and(|(_, path)| speaks_jsonapi(path));
        let kind = if jsonapi { "application/vnd.api+json" } else { "application/problem+json" };
        assert!(content.contains_key(kind), "{what}: {status} is {kind}");
    }
}

#[test]
fn parameters_are_declared_once_and_fit_the_path() {
    let document = document();
    for (method, path, operation) in operations(&document) {
        let what = format!("{method} {path}");
        let parameters = operation.get("parameters").and_then(Value::as_array).cloned().unwrap_or_default();
        let mut seen = HashSet::new();
        let mut in_path = HashSet::new();
        for parameter in &parameters {
            let (name, place) = (parameter["name"].as_str().unwrap(), parameter["in"].as_str().unwrap());
            assert!(["path", "query", "header", "cookie"].contains(&place), "{what}: {place}");
            assert!(seen.insert((name, place)), "{what}: {name} twice");
            assert!(parameter.get("schema").is_some(), "{what}: {name} has a schema");
            if place == "path" {
                assert_eq!(parameter["required"], true, "{what}: {name}");
                in_path.insert(name);
            }
        }
        let templated: HashSet<&str> =
            path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect();
        assert_eq!(in_path, templated, "{what}");
    }
}

/// The server itself names the parameters that it knows, when it is given one that it does not.
#[tokio::test]
async fn the_described_parameters_are_those_that_are_known() {
    let world = World::start(Backend::Sqlite, |_| {}).await.unwrap();
    let id = crate::world::id_of(&world.create(serde_json::json!({})).await);
    let document = document();
    let mut asked = 0;
    for (method, path, operation) in operations(&document) {
        if !speaks_jsonapi(path) {
            continue;
        }
        let target = format!("{}?nope=1", path.replace("{id}", &id));
        let answer = world.send(world.request(method.to_uppercase().parse().unwrap(), &target)).await;
        let detail = crate::world::detail(&answer);
        let known = detail.split_once("known are ").unwrap().1.trim_end_matches('.');
        let mut known: Vec<&str> = known.split(", ").collect();
        let mut described: Vec<&str> = operation["parameters"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|parameter| parameter["in"] == "query")
            .map(|parameter| parameter["name"].as_str().unwrap())
            .collect();
        known.sort_unstable();
        described.sort_unstable();
        assert_eq!(described, known, "{method} {path}");
        asked += 1;
    }
    assert_eq!(asked, 7);
}

#[test]
fn every_reference_leads_somewhere() {
    let document = document();
    let mut references = Vec::new();
    collect(&document, &mut references);
    assert!(!references.is_empty());
    for reference in references {
        let pointer = reference.strip_prefix('#').unwrap_or_else(|| panic!("{reference} is a local one"));
        assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
    }
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        check_schema(schema, name);
    }
}

fn collect(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
        Value::Object(members) => {
            for (name, member) in members {
                match member {
                    Value::String(text) if name == "$ref" => found.push(text.clone()),
                    member => collect(member, found),
                }
            }
        }
        _ => {}
    }
}

/// The rules of JSON Schema 2020-12 that generators get wrong.
fn check_schema(schema: &Value, what: &str) {
    let Some(members) = schema.as_object() else { return assert!(schema.is_boolean(), "{what}: {schema}") };
    assert!(!members.contains_key("nullable"), "{what}: nullable is of OpenAPI 3.0");
    let types = ["null", "boolean", "object", "array", "number", "string", "integer"];
    match members.get("type") {
        Some(Value::String(one)) => assert!(types.contains(&one.as_str()), "{what}: {one}"),
        Some(Value::Array(all)) => {
            assert!(all.iter().all(|one| types.contains(&one.as_str().unwrap_or(""))), "{what}")
        }
        other => assert_eq!(other, None, "{what}"),
    }
    let properties = members.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
    for name in members.get("required").and_then(Value::as_array).into_iter().flatten() {
        assert!(properties.contains_key(name.as_str().unwrap()), "{what}: {name} is required but not there");
    }
    for (name, property) in &properties {
        check_schema(property, &format!("{what}.{name}"));
    }
    for name in ["items", "additionalProperties"] {
        if let Some(inner) = members.get(name) {
            check_schema(inner, &format!("{what} {name}"));
        }
    }
    for name in ["oneOf", "anyOf", "allOf", "prefixItems"] {
        for inner in members.get(name).and_then(Value::as_array).into_iter().flatten() {
            check_schema(inner, &format!("{what} {name}"));
        }
    }
}

#[test]
fn guarded_operations_say_so() {
    let document = document();
    let scheme = &document["components"]["securitySchemes"]["bearer"];
    assert_eq!((scheme["type"].as_str(), scheme["scheme"].as_str()), (Some("http"), Some("bearer")));
    for (method, path, operation) in operations(&document) {
        let what = format!("{method} {path}");
        // A run's sandbox has a token of its own, and a signed link is its own credential.
        let open = ["/v1/agent/", "/v1/assets/", "/v1/uploads/"].iter().any(|open| path.starts_with(open));
        let guarded = path.starts_with("/v1/") && !open;
        let names: Vec<&String> = operation["security"]
            .as_array()
            .into_iter()
            .flatten()
            .flat_map(|one| one.as_object().into_iter().flat_map(Map::keys))
            .collect();
        assert_eq!(names.iter().any(|name| *name == "bearer"), guarded, "{what}");
        let schemes = document["components"]["securitySchemes"].as_object().unwrap();
        assert!(names.iter().all(|name| schemes.contains_key(*name)), "{what}");
        assert_eq!(names.is_empty(), !guarded && !path.starts_with("/v1/agent/"), "{what}");
        for status in ["401", "429"] {
            assert!(!guarded || operation["responses"].get(status).is_some(), "{what}: {status}");
        }
    }
}

#[test]
fn lists_and_resources_have_their_shapes() {
    let document = document();
    let schemas = &document["components"]["schemas"];
    let attributes = schemas["ConversationAttributes"]["properties"].as_object().unwrap();
    let mut named: Vec<&str> = attributes.keys().map(String::as_str).collect();
    let mut fields: Vec<&str> =
        ALL_FIELDS.split(',').map(str::trim).filter(|name| *name != "workspace").collect();
    named.sort_unstable();
    fields.sort_unstable();
    assert_eq!(named, fields, "each attribute is described");
    for (name, words) in [
        ("Mode", domain::conversation::Mode::ALL),
        ("Surface", domain::conversation::Source::ALL),
        ("Kind", domain::conversation::Kind::ALL),
        ("Visibility", domain::conversation::Visibility::ALL),
    ] {
        assert_eq!(schemas[name]["enum"], serde_json::json!(words), "{name}");
    }
    let settable: Vec<&String> =
        schemas["ConversationWriteAttributes"]["properties"].as_object().unwrap().keys().collect();
    let client = [
        "active_tab_key",
        "agent_id",
        "context",
        "mode",
        "model",
        "page_path",
        "source",
        "tabs",
        "thread_id",
        "title",
        "visibility",
    ];
    assert_eq!(settable, client);
    for path in ["/v1/workspaces", "/v1/workspaces/{id}/members", "/v1/api-keys", "/v1/audit"] {
        let schema =
            &document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"];
        let list = document.pointer(schema["$ref"].as_str().unwrap().trim_start_matches('#')).unwrap();
        let names: Vec<&String> = list["properties"].as_object().unwrap().keys().collect();
        assert_eq!(names, ["data", "next"], "{path}");
        assert_eq!(list["properties"]["data"]["type"], "array", "{path}");
    }
    for name in ["type", "title", "status", "detail", "code"] {
        assert!(schemas["ProblemDocument"]["properties"].get(name).is_some(), "{name}");
    }
}

/// What the routes do beside their bodies: media types, refusals, words, bounds and members that must be there.
#[test]
fn what_routes_take_and_answer_is_told() {
    let document = document();
    let paths = &document["paths"];
    let told = |method: &str, path: &str, status: &str| {
        let content = paths[path][method]["responses"][status]["content"].as_object();
        content.unwrap_or_else(|| panic!("{method} {path} {status}")).keys().cloned().collect::<Vec<_>>()
    };
    let exported = ["application/x-ndjson", "application/zip", "text/html", "text/markdown"];
    assert_eq!(told("get", "/v1/export", "200"), exported);
    for (method, path) in [
        ("post", "/v1/chat/completions"),
        ("post", "/v1/messages"),
        ("post", "/v1/responses"),
        ("get", "/v1/responses/{id}"),
    ] {
        assert_eq!(told(method, path, "200"), ["application/json", "text/event-stream"], "{path}");
    }
    for status in ["400", "404"] {
        assert_eq!(told("get", "/login", status), ["application/problem+json"]);
    }
    let parts = &paths["/v1/tables/{id}/import"]["post"]["requestBody"]["content"];
    assert!(parts["multipart/form-data"]["schema"].is_object(), "{parts}");

    let parameter = |path: &str, name: &str| {
        let all = paths[path]["get"]["parameters"].as_array().unwrap();
        all.iter().find(|it| it["name"] == name).unwrap_or_else(|| panic!("{path} {name}"))["schema"].clone()
    };
    let list = "/v1/chat-conversations";
    assert_eq!(parameter(list, "page[size]"), json!({ "type": "integer", "minimum": 1, "maximum": 100 }));
    assert_eq!(parameter("/v1/pages", "limit"), json!({ "type": "integer", "minimum": 1 }));
    assert_eq!(
        parameter("/v1/conversations", "limit"),
        json!({ "type": "integer", "minimum": 1, "maximum": 100 })
    );
    assert_eq!(parameter(list, "filter[mode]")["enum"], json!(domain::conversation::Mode::ALL));
    let formats = parameter("/v1/export", "format")["enum"].clone();
    assert_eq!(formats, json!(["jsonl", "zip", "markdown", "html"]));
    for (path, name) in
        [(list, "sort"), ("/v1/runs/{id}/events", "wire"), ("/v1/tables/{id}/export", "format")]
    {
        assert!(
            parameter(path, name)["enum"].as_array().is_some_and(|words| words.len() > 2),
            "{path} {name}"
        );
    }

    let schemas = &document["components"]["schemas"];
    let is = |schema: &Value, name: &str| schema.to_string().contains(&format!("schemas/{name}\""));
    let turn = &schemas["TurnRequest"]["properties"];
    for (member, name) in [
        ("message", "SaidText"),
        ("mode", "Mode"),
        ("source", "Surface"),
        ("on_busy", "OnBusy"),
        ("on_disconnect", "OnDisconnect"),
    ] {
        assert!(is(&turn[member], name), "{member}: {}", turn[member]);
    }
    for (of, member, name) in [
        ("RunView", "status", "RunStatus"),
        ("AddMember", "role", "MemberRole"),
        ("CreateKey", "role", "Role"),
        ("WorkspaceView", "default_visibility", "Visibility"),
        ("AgentView", "runner", "Runner"),
        ("ColumnDocument", "type", "ColumnType"),
    ] {
        assert!(is(&schemas[of]["properties"][member], name), "{of}.{member}");
    }
    for (name, needed) in [
        ("CreatePage", json!(["title", "body"])),
        ("CreateTable", json!(["name", "columns"])),
        ("CreateAgent", json!(["name"])),
    ] {
        let parts = schemas[name]["allOf"].as_array().unwrap();
        assert_eq!(parts.last().unwrap()["required"], needed, "{name}");
    }
    assert_eq!(schemas["ExecutionRequest"]["required"], json!(["prompt"]));
}

/// Headers that are told are those of answers, and those of answers that a client may want are told.
#[tokio::test]
async fn headers_of_answers_are_told() {
    let world =
        World::start(Backend::Sqlite, |config| config.limits.requests_per_second = 100).await.unwrap();
    let document = document();
    let told = |method: &str, path: &str, status: &str| {
        let headers = document["paths"][path][method]["responses"][status]["headers"].as_object();
        headers.unwrap_or_else(|| panic!("{method} {path} {status}")).keys().cloned().collect::<Vec<_>>()
    };
    let body = json!({ "data": { "type": "chat_conversation" } }).to_string();
    let create = world.request(reqwest::Method::POST, "/v1/chat-conversations").body(body);
    let created = world.send(create.header("content-type", "application/vnd.api+json")).await;
    let id = crate::world::id_of(&created.body["data"]);
    let got = world.send(world.request(reqwest::Method::GET, &format!("/v1/chat-conversations/{id}"))).await;
    let pages = world.send(world.request(reqwest::Method::GET, "/v1/pages")).await;
    let one = "/v1/chat-conversations/{id}";
    for (answer, told) in [
        (&created, told("post", "/v1/chat-conversations", "201")),
        (&got, told("get", one, "200")),
        (&pages, told("get", "/v1/pages", "200")),
    ] {
        for name in told {
            assert!(answer.headers.contains_key(&name), "{name}: {:?}", answer.headers);
        }
    }
    let run =
        ["RateLimit", "RateLimit-Policy", "Threadkeep-Conversation", "Threadkeep-Message", "Threadkeep-Run"];
    assert_eq!(told("get", "/v1/runs/{id}/events", "200"), run);
    assert_eq!(told("post", "/v1/turns", "200"), run);
    assert!(told("post", "/v1/turns", "202").contains(&"Preference-Applied".to_owned()));
    assert!(told("post", "/v1/executions", "200").contains(&"Threadkeep-Execution".to_owned()));
    assert!(told("post", "/v1/turns", "429").contains(&"Retry-After".to_owned()));
    for name in ["ETag", "Content-Range"] {
        assert!(told("get", "/v1/files/{id}/content", "206").contains(&name.to_owned()), "{name}");
    }
    // What is told stands for an operation and a status that are there.
    let named = document.to_string();
    for name in document["components"]["headers"].as_object().unwrap().keys() {
        assert!(named.contains(&format!("components/headers/{name}\"")), "{name} is of no answer");
    }
}
