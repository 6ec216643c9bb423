//! The rules of a JSON:API 1.1 document, as assertions: a document comes in, a broken rule panics.

use std::collections::HashSet;

use serde_json::{Map, Value};

const TOP: &[&str] = &["data", "errors", "meta", "jsonapi", "links", "included"];
const TOP_LINKS: &[&str] = &["self", "related", "describedby", "first", "last", "prev", "next"];

/// Panics where the document breaks a rule. `sparse`: fields were left out on demand, which excuses
/// included resources from being linked.
pub fn check(document: &Value, sparse: bool) {
    let top = object(document, "the document");
    only(top, TOP, "the document");
    assert!(top.contains_key("data") != top.contains_key("errors"), "data xor errors: {document}");
    assert!(top.contains_key("data") || !top.contains_key("included"), "included without data: {document}");
    let jsonapi = object(&top["jsonapi"], "jsonapi");
    only(jsonapi, &["version", "ext", "profile", "meta"], "jsonapi");
    assert_eq!(jsonapi["version"], "1.1");
    if let Some(links) = top.get("links") {
        check_links(links, TOP_LINKS);
    }
    if let Some(meta) = top.get("meta") {
        object(meta, "meta");
    }
    if let Some(errors) = top.get("errors") {
        let errors = errors.as_array().expect("errors is an array");
        assert!(!errors.is_empty(), "errors holds at least one");
        errors.iter().for_each(check_error);
        return;
    }
    check_data(top, sparse);
}

fn check_data(top: &Map<String, Value>, sparse: bool) {
    let primary: Vec<&Value> = match &top["data"] {
        Value::Array(items) => items.iter().collect(),
        one => vec![one],
    };
    let included: Vec<&Value> = top
        .get("included")
        .map_or(vec![], |all| all.as_array().expect("included is an array").iter().collect());
    let mut seen = HashSet::new();
    let mut linked = HashSet::new();
    for resource in primary.iter().chain(&included) {
        check_resource(resource);
        assert!(seen.insert(identity(resource)), "twice in one document: {resource}");
        for relationship in resource["relationships"].as_object().into_iter().flat_map(Map::values) {
            linked.extend(linkage(relationship).into_iter().map(identity));
        }
    }
    for resource in included {
        assert!(sparse || linked.contains(&identity(resource)), "included but not linked: {resource}");
    }
}

fn check_resource(resource: &Value) {
    let members = object(resource, "a resource");
    only(members, &["type", "id", "attributes", "relationships", "links", "meta"], "a resource");
    check_identity(members);
    let mut fields = HashSet::new();
    for part in ["attributes", "relationships"] {
        for name in members.get(part).map(|part| object(part, "fields")).into_iter().flat_map(Map::keys) {
            assert!(!["type", "id"].contains(&name.as_str()), "{name} is reserved: {resource}");
            assert!(is_member_name(name), "{name} is no member name");
            assert!(fields.insert(name), "{name} is an attribute and a relationship");
        }
    }
    for relationship in
        members.get("relationships").and_then(Value::as_object).into_iter().flat_map(Map::values)
    {
        let parts = object(relationship, "a relationship");
        only(parts, &["data", "links", "meta"], "a relationship");
        assert!(!parts.is_empty(), "an empty relationship: {resource}");
        for identifier in linkage(relationship) {
            let identifier = object(identifier, "a resource identifier");
            only(identifier, &["type", "id", "meta"], "a resource identifier");
            check_identity(identifier);
        }
    }
    if let Some(links) = members.get("links") {
        check_links(links, &["self"]);
    }
    if let Some(meta) = members.get("meta") {
        object(meta, "meta");
    }
}

fn check_error(error: &Value) {
    let members = object(error, "an error");
    only(members, &["id", "links", "status", "code", "title", "detail", "source", "meta"], "an error");
    for name in ["status", "code", "title", "detail"] {
        let text = members.get(name).and_then(Value::as_str);
        assert!(text.is_some_and(|text| !text.is_empty()), "an error has a {name}, a string: {error}");
    }
    let status: u16 = members["status"].as_str().unwrap_or("").parse().expect("status is a number");
    assert!((400..600).contains(&status), "{error}");
    if let Some(source) = members.get("source") {
        let source = object(source, "source");
        only(source, &["pointer", "parameter", "header"], "source");
        assert!(!source.is_empty() && source.values().all(Value::is_string), "{error}");
        if let Some(pointer) = source.get("pointer").and_then(Value::as_str) {
            assert!(pointer.is_empty() || pointer.starts_with('/'), "no JSON pointer: {error}");
        }
    }
    if let Some(meta) = members.get("meta") {
        object(meta, "meta");
    }
}

fn check_links(links: &Value, known: &[&str]) {
    let links = object(links, "links");
    only(links, known, "links");
    for (name, link) in links {
        assert!(link.is_null() || link.as_str().is_some_and(|url| url.starts_with("http")), "{name}: {link}");
    }
}

fn check_identity(members: &Map<String, Value>) {
    for name in ["type", "id"] {
        let text = members.get(name).and_then(Value::as_str);
        assert!(text.is_some_and(|text| !text.is_empty()), "{name} must be a string: {members:?}");
    }
}

fn identity(resource: &Value) -> (String, String) {
    (resource["type"].to_string(), resource["id"].to_string())
}

fn linkage(relationship: &Value) -> Vec<&Value> {
    match &relationship["data"] {
        Value::Null => vec![],
        Value::Array(items) => items.iter().collect(),
        one => vec![one],
    }
}

fn is_member_name(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-' || !c.is_ascii();
    let outer = |c: char| c.is_ascii_alphanumeric() || !c.is_ascii();
    name.chars().all(inner) && name.starts_with(outer) && name.ends_with(outer)
}

fn object<'a>(value: &'a Value, what: &str) -> &'a Map<String, Value> {
    value.as_object().unwrap_or_else(|| panic!("{what} must be an object: {value}"))
}

fn only(members: &Map<String, Value>, known: &[&str], what: &str) {
    for name in members.keys() {
        assert!(known.contains(&name.as_str()), "{what} has the member {name}: {members:?}");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::check;

    #[test]
    fn broken_documents_do_not_pass() {
        let jsonapi = json!({ "version": "1.1" });
        let error = json!({ "status": "400", "code": "c", "title": "t", "detail": "d" });
        let one = json!({ "type": "a", "id": "1" });
        check(&json!({ "jsonapi": jsonapi, "data": [one] }), false);
        check(&json!({ "jsonapi": jsonapi, "errors": [error] }), false);
        for broken in [
            json!([]),
            json!({ "jsonapi": jsonapi }),
            json!({ "data": [] }),
            json!({ "jsonapi": jsonapi, "data": [], "errors": [error] }),
            json!({ "jsonapi": jsonapi, "data": [], "extra": 1 }),
            json!({ "jsonapi": jsonapi, "errors": [] }),
            json!({ "jsonapi": jsonapi, "errors": [{ "status": 400, "code": "c", "title": "t", "detail": "d" }] }),
            json!({ "jsonapi": jsonapi, "errors": [{ "status": "400" }] }),
            json!({ "jsonapi": jsonapi, "data": { "type": "a", "id": 1 } }),
            json!({ "jsonapi": jsonapi, "data": { "type": "a", "id": "1", "attributes": { "id": 1 } } }),
            json!({ "jsonapi": jsonapi, "data": { "type": "a", "id": "1", "relationships": { "x": {} } } }),
            json!({ "jsonapi": jsonapi, "data": [one, one] }),
            json!({ "jsonapi": jsonapi, "data": [], "included": [one] }),
            json!({ "jsonapi": jsonapi, "data": [], "links": { "nxt": null } }),
        ] {
            assert!(std::panic::catch_unwind(|| check(&broken, false)).is_err(), "{broken}");
        }
    }
}
