//! Lists: filters alone and together, sparse fieldsets, what is included, and parameters that are refused.

use serde_json::{Value, json};

use crate::world::{CONVERSATIONS, World, code, detail, id_of, item, parameter, stories, titles};

stories!(
    filters_choose,
    the_workspace_filter,
    a_list_says_how_long_its_pages_are,
    lists_leave_the_large_fields_out,
    fieldsets_are_sparse,
    the_workspace_is_included,
    bad_parameters_are_named,
    parameters_of_other_requests_are_unknown,
);

async fn filters_choose(world: World) {
    for (title, source, mode, agent) in [
        ("web ask", Some("web"), Some("ask"), None),
        ("web agent", Some("web"), Some("agent"), Some("a-1")),
        ("ext flow", Some("extension"), Some("task_flow"), Some("a-2")),
        ("ext none", Some("extension"), None, None),
        ("any ask", None, Some("ask"), Some("a-1")),
        ("any none", None, None, None),
    ] {
        world.create(json!({ "title": title, "source": source, "mode": mode, "agent_id": agent })).await;
    }
    let cases: [(&str, &[&str]); 18] = [
        ("", &["any ask", "any none", "ext flow", "ext none", "web agent", "web ask"]),
        // A row without a source is shown on every surface.
        ("filter[source]=web", &["any ask", "any none", "web agent", "web ask"]),
        ("filter[source]=extension", &["any ask", "any none", "ext flow", "ext none"]),
        ("filter[mode]=ask", &["any ask", "web ask"]),
        ("filter[mode]=agent", &["web agent"]),
        ("filter[mode]=task_flow", &["ext flow"]),
        ("filter[kind]=model_chat", &["any ask", "web ask"]),
        ("filter[kind]=assistant_sandbox", &["any none", "ext flow", "ext none", "web agent"]),
        ("filter[agent]=a-1", &["any ask", "web agent"]),
        ("filter[agent]=A-1", &[]),
        ("filter[agent]=%25", &[]),
        ("filter[deleted]=true", &[]),
        ("filter[source]=web&filter[mode]=ask", &["any ask", "web ask"]),
        ("filter[source]=extension&filter[agent]=a-1", &["any ask"]),
        ("filter[source]=web&filter[kind]=assistant_sandbox&filter[agent]=a-1", &["web agent"]),
        ("filter[query]=ask&filter[source]=extension", &["any ask"]),
        (
            "filter[query]=web&filter[mode]=agent&filter[agent]=a-1&filter[kind]=assistant_sandbox",
            &["web agent"],
        ),
        ("filter[query]=none&filter[agent]=a-1", &[]),
    ];
    for (query, expected) in cases {
        let found = world.list(&format!("{query}&sort=title")).await;
        assert_eq!(titles(&found), expected, "{query}");
    }
    // Sorting and paging hold under a filter that matches two kinds of rows.
    let first = world.list("filter[source]=web&sort=-title&page[size]=3").await;
    assert_eq!(titles(&first), ["web ask", "web agent", "any none"]);
    assert_eq!(titles(&world.follow(&first["links"]["next"]).await.body), ["any ask"]);
}

async fn the_workspace_filter(world: World) {
    world.create(json!({ "title": "first" })).await;
    let second = world.other("ann", "acme").await;
    let answer = world.get(CONVERSATIONS).await;
    assert_eq!((answer.status, code(&answer)), (400, "workspace_required"), "{}", answer.text);
    let (one, two) = (world.workspace, second.workspace);
    for name in ["filter[workspace]", "workspace"] {
        assert_eq!(titles(&world.list(&format!("{name}={one}")).await), ["first"]);
        assert_eq!(world.list(&format!("{name}={two}")).await["data"], json!([]));
    }
    let answer = world.get(&format!("{CONVERSATIONS}?workspace={one}&filter[workspace]={two}")).await;
    assert_eq!((answer.status, parameter(&answer)), (400, "filter[workspace]"));
    let bob = world.other("bob", "globex").await;
    assert_eq!(bob.get(&format!("{CONVERSATIONS}?filter[workspace]={one}")).await.status, 404);
}

async fn a_list_says_how_long_its_pages_are(world: World) {
    for title in ["a", "b", "c"] {
        world.create(json!({ "title": title })).await;
    }
    assert_eq!(world.list("").await["meta"], json!({ "page": { "size": 50 } }));
    for query in ["page[size]=2", "page[size]=2&filter[query]=a"] {
        assert_eq!(world.list(query).await["meta"], json!({ "page": { "size": 2 } }), "{query}");
    }
}

async fn lists_leave_the_large_fields_out(world: World) {
    let id = id_of(&world.create(json!({ "title": "t", "context": { "root": "x" } })).await);
    world.ask(&id, "hello").await;
    let retrieved = world.retrieve(&id).await;
    let listed = world.list("").await["data"][0].clone();
    let mut expected = retrieved.clone();
    for name in ["messages", "context"] {
        assert!(expected["attributes"].as_object_mut().unwrap().remove(name).is_some());
    }
    assert_eq!(listed, expected);
    let asked = world.list("fields[chat_conversation]=messages,context").await["data"][0].clone();
    for name in ["messages", "context"] {
        assert_eq!(asked["attributes"][name], retrieved["attributes"][name]);
    }
    assert_eq!(asked["attributes"].as_object().unwrap().len(), 2);
    let found = world.list("filter[query]=hello&fields[chat_conversation]=messages,context").await;
    assert_eq!(found["data"][0]["attributes"], asked["attributes"]);
}

async fn fieldsets_are_sparse(world: World) {
    let id = id_of(&world.create(json!({ "title": "t", "mode": "ask" })).await);
    let full = world.retrieve(&id).await;
    for (fields, shown, related) in [
        ("title", &["title"][..], false),
        ("mode,title", &["mode", "title"], false),
        ("title,workspace", &["title"], true),
        ("workspace", &[], true),
        ("", &[], false),
        ("messages", &["messages"], false),
    ] {
        let path = format!("?fields%5Bchat_conversation%5D={fields}");
        let listed = world.list(&path[1..]).await["data"][0].clone();
        let one = world.get(&format!("{}{path}", item(&id))).await.body["data"].clone();
        for resource in [listed, one] {
            let attributes = resource["attributes"].as_object().cloned().unwrap_or_default();
            let mut names: Vec<&str> = attributes.keys().map(String::as_str).collect();
            names.sort_unstable();
            assert_eq!(names, shown, "{fields}");
            assert!(shown.iter().all(|name| attributes[*name] == full["attributes"][*name]), "{fields}");
            assert_eq!(resource.get("relationships").is_some(), related, "{fields}");
            assert_eq!(resource["links"], full["links"]);
        }
    }
}

async fn the_workspace_is_included(world: World) {
    // Nothing is included that nothing links to.
    let empty = world.list("include=workspace").await;
    assert_eq!((&empty["data"], &empty["included"]), (&json!([]), &json!([])));
    assert_eq!(world.list("").await.get("included"), None);
    let id = id_of(&world.create(json!({})).await);
    world.create(json!({})).await;
    let workspace = json!({
        "type": "workspace", "id": world.workspace.to_string(),
        "attributes": { "name": "ann's", "org_id": "acme", "role": "admin", "default_visibility": "private" }
    });
    assert_eq!(world.list("include=workspace").await["included"], json!([workspace]));
    let path = format!("{}?include=workspace", item(&id));
    assert_eq!(world.get(&path).await.body["included"], json!([workspace]));
    let named = world.list("include=workspace&fields[workspace]=name").await;
    assert_eq!(named["included"][0]["attributes"], json!({ "name": "ann's" }));
    assert_eq!(world.list("include=").await.get("included"), None);
}

async fn bad_parameters_are_named(world: World) {
    world.create(json!({})).await;
    let long = format!("filter[query]={}", "a".repeat(1001));
    for (query, name, needle) in [
        ("page[size]=0", "page[size]", "0"),
        ("page[size]=101", "page[size]", "101"),
        ("page[size]=abc", "page[size]", "abc"),
        ("page[size]=-1", "page[size]", "-1"),
        ("page[size]=%2B5", "page[size]", "+5"),
        ("page[size]=", "page[size]", "1 to 100"),
        ("page[size]=99999999999999999999999", "page[size]", "1 to 100"),
        ("page[number]=1", "page[number]", "page[number]"),
        ("page=1", "page", "page"),
        ("offset=1", "offset", "offset"),
        ("Sort=title", "Sort", "Sort"),
        ("sort=owner", "sort", "owner"),
        ("sort=-", "sort", "sort"),
        ("sort=%2Btitle", "sort", "+title"),
        ("sort=title,-updated_at", "sort", "One sort key"),
        ("sort=", "sort", "sort"),
        ("filter[owner]=x", "filter[owner]", "filter[owner]"),
        ("filter=x", "filter", "filter"),
        ("filter[source]=mobile", "filter[source]", "web, extension"),
        ("filter[source]=", "filter[source]", "web, extension"),
        ("filter[mode]=chat", "filter[mode]", "task_flow"),
        ("filter[kind]=chat", "filter[kind]", "model_chat"),
        ("filter[deleted]=yes", "filter[deleted]", "true"),
        ("filter[agent]=", "filter[agent]", "255"),
        ("filter[workspace]=x", "filter[workspace]", "UUID"),
        ("workspace=x", "workspace", "UUID"),
        ("filter[query]=+", "filter[query]", "blanks"),
        (&long, "filter[query]", "1000"),
        ("fields[chat_conversation]=titel", "fields[chat_conversation]", "titel"),
        ("fields[chat_conversation]=title,", "fields[chat_conversation]", "\\\"\\\""),
        ("fields[workspace]=secret", "fields[workspace]", "secret"),
        ("fields[user]=name", "fields[user]", "fields[user]"),
        ("fields=title", "fields", "fields"),
        ("include=owner", "include", "owner"),
        ("include=workspace.owner", "include", "workspace.owner"),
        ("timeZone=Mars/Olympus", "timeZone", "Mars/Olympus"),
        ("sort=title&sort=title", "sort", "more than once"),
        ("page[size]=1&page%5Bsize%5D=2", "page[size]", "more than once"),
        ("filter[query]=%00", "filter[query]", "control"),
        ("filter[query]=%ff", "filter[query]", "UTF-8"),
        ("filter[query]=%zz", "filter[query]", "%"),
        ("%00=1", "%00", "control"),
        ("=1", "", "known are"),
    ] {
        let answer = world.get(&format!("{CONVERSATIONS}?{query}")).await;
        assert_eq!((answer.status, parameter(&answer)), (400, name), "{query}: {}", answer.text);
        let said = Value::from(detail(&answer)).to_string();
        assert!(said.contains(needle), "{query}: {said} names {needle}");
    }
    // Several mistakes are all told.
    let answer = world.get(&format!("{CONVERSATIONS}?a=1&sort=b&page[size]=c")).await;
    assert_eq!(answer.body["errors"].as_array().unwrap().len(), 3, "{}", answer.text);
}

async fn parameters_of_other_requests_are_unknown(world: World) {
    let id = id_of(&world.create(json!({ "title": "kept" })).await);
    let before = world.everything().await;
    let own = item(&id);
    for (method, path, name) in [
        ("GET", format!("{own}?sort=title"), "sort"),
        ("GET", format!("{own}?page[size]=1"), "page[size]"),
        ("GET", format!("{own}?filter[source]=web"), "filter[source]"),
        ("GET", format!("{CONVERSATIONS}?page[messages]=1"), "page[messages]"),
        ("POST", format!("{CONVERSATIONS}?sort=title"), "sort"),
        ("PATCH", format!("{own}?page[messages]=1"), "page[messages]"),
        ("DELETE", format!("{own}?force=true"), "force"),
        ("POST", format!("{own}/restore?x=1"), "x"),
    ] {
        let method = method.parse().unwrap();
        let body = crate::world::change(&id, &json!({ "title": "x" }));
        let answer = world.send(world.with_body(method, &path, body)).await;
        assert_eq!((answer.status, code(&answer)), (400, "unknown_parameter"), "{path}: {}", answer.text);
        assert_eq!(parameter(&answer), name);
    }
    assert_eq!(world.everything().await, before);
}
