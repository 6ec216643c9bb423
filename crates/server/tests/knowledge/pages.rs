//! `/v1/pages`: made, read, changed, removed, found; refused where they cannot be, hidden from everyone else.

use serde_json::{Value, json};
use testkit::server::Backend;

use crate::world::{World, refused, stories, text};

stories!(
    a_page_from_its_making_to_its_end,
    what_a_page_may_not_be,
    pages_are_listed_and_searched_in_parts,
    a_page_is_its_workspaces,
);

async fn a_page_from_its_making_to_its_end(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let body = json!({ "title": "Refunds", "body": "# Refunds\n\nWithin 30 days. 報告 \u{1F600}", "url": "https://a.example/r" });
    let page = world.made("/v1/pages", &body).await;
    for name in ["title", "body", "url"] {
        assert_eq!(page[name], body[name], "{name}");
    }
    let path = format!("/v1/pages/{}", text(&page["id"]));
    assert_eq!(world.get(&path).await.body, page);
    assert_eq!(world.get("/v1/pages").await.body, json!({ "data": [page], "next": null }));
    let changed = world.put(&path, &json!({ "title": "Returns", "body": "Never." })).await;
    assert_eq!((changed.status, &changed.body["title"]), (200, &json!("Returns")));
    assert_eq!(changed.body["url"], body["url"], "what is left out stays");
    assert!(text(&changed.body["updated_at"]) >= text(&page["updated_at"]));
    let cleared = world.put(&path, &json!({ "url": null })).await;
    assert_eq!((&cleared.body["url"], &cleared.body["body"]), (&Value::Null, &json!("Never.")));
    assert!(world.get("/v1/pages?query=refund").await.body["data"].as_array().unwrap().is_empty());
    assert_eq!(world.delete(&path).await.status, 204);
    refused(&world.get(&path).await, 404, "not_found");
    refused(&world.delete(&path).await, 404, "not_found");
    refused(&world.put(&path, &json!({ "title": "Back" })).await, 404, "not_found");
    assert!(world.get("/v1/pages?query=never").await.body["data"].as_array().unwrap().is_empty());
    Some(())
}

async fn what_a_page_may_not_be(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let id = world.page("There", "").await;
    for (body, status, code) in [
        (json!({ "body": "b" }), 422, "invalid_value"),
        (json!({ "title": "t" }), 422, "invalid_value"),
        (json!({ "title": " ", "body": "" }), 422, "invalid_value"),
        (json!({ "title": "t\n", "body": "" }), 422, "invalid_value"),
        (json!({ "title": "x".repeat(256), "body": "" }), 422, "invalid_value"),
        (json!({ "title": 1, "body": "" }), 422, "invalid_value"),
        (json!({ "title": "t", "body": "a\u{0}b" }), 400, "malformed_document"),
        (json!({ "title": "t", "body": "", "url": "javascript:alert(1)" }), 422, "invalid_value"),
        (json!({ "title": "t", "body": "", "id": id }), 400, "unknown_field"),
        (json!({ "title": "t", "body": "x".repeat(2 * 1024 * 1024) }), 413, "body_too_large"),
    ] {
        refused(&world.post("/v1/pages", &body).await, status, code);
    }
    let lone = r#"{"title":"t","body":"\ud800"}"#;
    let request =
        world.request(reqwest::Method::POST, "/v1/pages").header("content-type", "application/json");
    refused(&crate::world::ask(request.body(lone)).await, 400, "malformed_document");
    refused(&world.put(&format!("/v1/pages/{id}"), &json!({ "title": "" })).await, 422, "invalid_value");
    for (query, code) in [
        ("limit=0", "invalid_parameter"),
        ("limit=-1", "invalid_parameter"),
        ("after=x", "invalid_parameter"),
        ("query=a&after=x", "invalid_parameter"),
        ("query=a&query=b", "invalid_parameter"),
        ("query=%00", "invalid_parameter"),
        ("sort=title", "unknown_parameter"),
    ] {
        refused(&world.get(&format!("/v1/pages?{query}")).await, 400, code);
    }
    refused(&world.get("/v1/pages/not-an-id").await, 404, "not_found");
    assert_eq!(world.get("/v1/pages").await.body["data"].as_array().unwrap().len(), 1);
    Some(())
}

async fn pages_are_listed_and_searched_in_parts(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    for n in 0..7 {
        world.page(&format!("Page {n}"), if n % 2 == 0 { "un été à la plage" } else { "ein Sommer" }).await;
    }
    let all = async |query: &str| {
        let (mut titles, mut after) = (Vec::new(), String::new());
        loop {
            let page = world.get(&format!("/v1/pages?limit=3{query}{after}")).await;
            assert_eq!(page.status, 200, "{}", page.text);
            let data = page.body["data"].as_array().unwrap();
            assert!(data.len() <= 3);
            titles.extend(data.iter().map(|page| text(&page["title"])));
            match page.body["next"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => return titles,
            }
        }
    };
    let names = |numbers: &[usize]| numbers.iter().map(|n| format!("Page {n}")).collect::<Vec<_>>();
    assert_eq!(all("").await, names(&[0, 1, 2, 3, 4, 5, 6]));
    assert_eq!(all("&query=").await.len(), 7, "no query is none");
    // Equally good ones: the newest first.
    assert_eq!(all("&query=ete%20plag").await, names(&[6, 4, 2, 0]));
    assert_eq!(all("&query=SOMMER").await, names(&[5, 3, 1]));
    assert!(all("&query=!!!").await.is_empty());
    assert_eq!(all("&query=page%203").await, names(&[3]));
    Some(())
}

async fn a_page_is_its_workspaces(backend: Backend) -> Option<()> {
    let world = World::start(backend).await?;
    let (member, stranger) = (world.member().await, world.stranger().await);
    let path = format!("/v1/pages/{}", world.page("Secret plans", "of ours").await);
    assert_eq!(member.put(&path, &json!({ "body": "of all of us" })).await.status, 200);
    assert_eq!(world.get(&path).await.body["body"], "of all of us");
    for answer in [
        stranger.get(&path).await,
        stranger.put(&path, &json!({ "title": "Mine" })).await,
        stranger.delete(&path).await,
        stranger.get(&format!("{path}?workspace={}", world.workspace)).await,
    ] {
        refused(&answer, 404, "not_found");
    }
    assert_eq!(stranger.get("/v1/pages?query=secret").await.body, json!({ "data": [], "next": null }));
    assert_eq!(member.delete(&path).await.status, 204);
    Some(())
}
