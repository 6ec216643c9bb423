//! Tabs: their number, keys and sub-paths, and the active key that is true in every state a reader can see.

use serde_json::{Value, json};

use crate::world::{World, id_of, pointer, stories};

stories!(
    at_most_fifty,
    keys_follow_their_destination,
    sub_paths_stay_inside,
    the_active_key_never_dangles,
    the_active_key_survives_racing_writers,
);

fn tab(destination: &str) -> Value {
    json!({ "key": destination, "destinationId": destination })
}

async fn at_most_fifty(world: World) {
    let tabs = |n: usize| -> Vec<Value> { (0..n).map(|n| tab(&format!("d{n}"))).collect() };
    let made = world.create(json!({ "tabs": tabs(50), "active_tab_key": "d49" })).await;
    assert_eq!(made["attributes"]["tabs"], json!(tabs(50)));
    let before = world.everything().await;
    let answer = world.patch(&id_of(&made), &json!({ "tabs": tabs(51) })).await;
    assert_eq!((answer.status, pointer(&answer)), (422, "/data/attributes/tabs"), "{}", answer.text);
    let answer = world.post(crate::world::creation(&json!({ "tabs": tabs(51) }))).await;
    assert_eq!((answer.status, pointer(&answer)), (422, "/data/attributes/tabs"), "{}", answer.text);
    assert_eq!(world.everything().await, before);
}

async fn keys_follow_their_destination(world: World) {
    let uuid = "3a9c1e2d-44b7-4f0e-8c6a-2b1d3e5f7a9c";
    let other = "4a9c1e2d-44b7-4f0e-8c6a-2b1d3e5f7a9c";
    let launcher = |key: &str| json!({ "key": key, "destinationId": "new_tab" });
    let id = id_of(&world.create(json!({})).await);
    let fine = json!([launcher(uuid), tab("invoices"), launcher(other)]);
    let answer = world.patch(&id, &json!({ "tabs": fine, "active_tab_key": other })).await;
    assert_eq!((answer.status, &answer.body["data"]["attributes"]["tabs"]), (200, &fine), "{}", answer.text);
    let before = world.everything().await;
    for (tabs, at) in [
        (json!([launcher("new_tab")]), "/tabs/0/key"),
        (json!([launcher("")]), "/tabs/0/key"),
        (json!([launcher(&uuid.replace('-', ""))]), "/tabs/0/key"),
        (json!([launcher(uuid), launcher(uuid)]), "/tabs/1/key"),
        (json!([tab("a"), tab("b"), tab("a")]), "/tabs/2/key"),
        (json!([{ "key": uuid, "destinationId": "invoices" }]), "/tabs/0/key"),
        (json!([tab(&"k".repeat(65))]), "/tabs/0/key"),
        (json!([{ "key": "", "destinationId": "" }]), "/tabs/0/destinationId"),
        (json!([{ "destinationId": "a" }]), "/tabs/0"),
        (json!([{ "key": "a" }]), "/tabs/0"),
        (json!([{ "key": 1, "destinationId": "a" }]), "/tabs/0/key"),
        (json!([{ "key": "a", "destinationId": null }]), "/tabs/0/destinationId"),
        (json!([{ "key": "a", "destinationId": "a", "subPath": 1 }]), "/tabs/0/subPath"),
        (json!([{ "key": "a", "destinationId": "a", "title": "A" }]), "/tabs/0/title"),
        (json!(["a"]), "/tabs/0"),
        (json!([tab("a"), null]), "/tabs/1"),
    ] {
        let answer = world.patch(&id, &json!({ "tabs": tabs, "active_tab_key": null })).await;
        assert_eq!(answer.status, 422, "{tabs}: {}", answer.text);
        assert_eq!(pointer(&answer), format!("/data/attributes{at}"), "{tabs}: {}", answer.text);
    }
    assert_eq!(world.everything().await, before);
}

async fn sub_paths_stay_inside(world: World) {
    let id = id_of(&world.create(json!({})).await);
    let with = |path: &str| json!({ "tabs": [{ "key": "a", "destinationId": "a", "subPath": path }] });
    for path in [
        "",
        "/",
        "records/invoices",
        "/workspaces/9f3e2d1a/new-tab",
        "/a?q=1#part",
        "/a..b/c",
        "...",
        "/.hidden",
        "/a%20b",
        "/100%",
        "/a%2Fb",
        "/caf%C3%A9",
        "/été/東京",
        "/a/b;c=d",
        "/time/12:30",
        "?tab=1",
        "#part",
        "/a//b",
    ] {
        let answer = world.patch(&id, &with(path)).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        assert_eq!(answer.body["data"]["attributes"]["tabs"][0]["subPath"], path);
    }
    let before = world.everything().await;
    let long = format!("/{}", "a".repeat(512));
    for path in [
        "..",
        "/..",
        "../x",
        "/a/../b",
        "/a/..",
        "a/../../b",
        "/a/..?x",
        "/a/..#x",
        "/%2e%2e/x",
        "/%2E%2E/x",
        "/.%2e/x",
        "/%2e./x",
        "/a%2f..%2fb",
        "/a%2F%2E%2E%2Fb",
        "/%252e%252e/x",
        "/%252E%252e%252Fx",
        "/a%252f..%252fb",
        "/%25252e%25252e/x",
        "\\..\\x",
        "/a\\..\\b",
        "..\\x",
        "/a%5c..%5cb",
        "/a%255c..%255cb",
        "https://evil.example/x",
        "HTTP://evil.example",
        "javascript:alert(1)",
        "data:text/html,x",
        "mailto:a@b",
        "%68ttps://evil.example",
        "https%3A%2F%2Fevil.example",
        " https://evil.example",
        "x-custom+1:y",
        "//evil.example",
        "\\\\evil.example",
        "/\\evil.example",
        "\\/evil.example",
        "%2f%2fevil.example",
        "/%2fevil.example",
        "%252f%252fevil.example",
        "/%5cevil.example",
        " //evil.example",
        "/.//evil.example",
        "/a\u{1}b",
        "/a\tb",
        "/a\nb",
        "/a%00b",
        "/a%0d%0ab",
        "/a%2509b",
        "/\u{7f}",
        "/%c0%ae%c0%ae/x",
        "/%ff",
        &long,
    ] {
        let answer = world.patch(&id, &with(path)).await;
        assert_eq!(answer.status, 422, "{path:?}: {}", answer.text);
        assert_eq!(pointer(&answer), "/data/attributes/tabs/0/subPath", "{path:?}: {}", answer.text);
    }
    assert_eq!(world.everything().await, before);
}

async fn the_active_key_never_dangles(world: World) {
    let made = world.create(json!({ "tabs": [tab("a"), tab("b")], "active_tab_key": "a" })).await;
    let id = id_of(&made);
    let before = world.everything().await;
    for refused in [
        json!({ "tabs": [tab("b")] }),
        json!({ "tabs": [] }),
        json!({ "tabs": [], "title": "x" }),
        json!({ "active_tab_key": "c" }),
        json!({ "active_tab_key": "A" }),
        json!({ "tabs": [tab("b")], "active_tab_key": "a" }),
    ] {
        let answer = world.patch(&id, &refused).await;
        assert_eq!(answer.status, 422, "{refused}: {}", answer.text);
        assert_eq!(pointer(&answer), "/data/attributes/active_tab_key", "{refused}: {}", answer.text);
        assert_eq!(world.everything().await, before, "{refused}");
    }
    for (fine, active) in [
        (json!({ "tabs": [tab("b"), tab("a")] }), json!("a")),
        (json!({ "active_tab_key": "b" }), json!("b")),
        (json!({ "tabs": [tab("c")], "active_tab_key": "c" }), json!("c")),
        (json!({ "tabs": [], "active_tab_key": null }), json!(null)),
        (json!({ "tabs": [tab("a")] }), json!(null)),
    ] {
        let answer = world.patch(&id, &fine).await;
        assert_eq!(answer.status, 200, "{fine}: {}", answer.text);
        assert_eq!(answer.body["data"]["attributes"]["active_tab_key"], active, "{fine}");
    }
    for refused in [json!({ "active_tab_key": "a" }), json!({ "tabs": [tab("b")], "active_tab_key": "a" })] {
        let answer = world.post(crate::world::creation(&refused)).await;
        assert_eq!((answer.status, pointer(&answer)), (422, "/data/attributes/active_tab_key"), "{refused}");
    }
}

async fn the_active_key_survives_racing_writers(world: World) {
    let id = id_of(&world.create(json!({ "tabs": [tab("a"), tab("b")] })).await);
    for _ in 0..10 {
        world.patch(&id, &json!({ "tabs": [tab("a"), tab("b")], "active_tab_key": null })).await;
        let (close, choose) = (json!({ "tabs": [tab("a")] }), json!({ "active_tab_key": "b" }));
        let (closed, chosen, seen) =
            tokio::join!(world.patch(&id, &close), world.patch(&id, &choose), world.retrieve(&id));
        let mut statuses = [closed.status, chosen.status];
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 422], "one of the two comes second");
        for state in [seen, world.retrieve(&id).await] {
            let attributes = &state["attributes"];
            let keys: Vec<&Value> =
                attributes["tabs"].as_array().unwrap().iter().map(|tab| &tab["key"]).collect();
            let active = &attributes["active_tab_key"];
            assert!(active.is_null() || keys.contains(&active), "{attributes}");
        }
    }
}
