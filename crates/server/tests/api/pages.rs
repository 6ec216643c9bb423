//! Cursor pages: every sort, walked forwards and backwards by following the links as they are, over
//! conversations that share their times and have no titles.

use std::collections::HashMap;

use domain::time::{Clock as _, SystemClock};
use jiff::ToSpan as _;
use serde_json::{Value, json};

use crate::world::{CONVERSATIONS, World, code, id_of, ids, parameter, stories};

stories!(walks_reach_everything_once, links_keep_the_query, lists_may_grow_meanwhile, cursors_are_checked);

const SORTS: [&str; 6] = ["updated_at", "-updated_at", "created_at", "-created_at", "title", "-title"];

/// 57 conversations: five at each millisecond, every third without a title, titles repeated.
async fn fill(world: &World) -> HashMap<String, Value> {
    let start = SystemClock.now() - 2.hours();
    for n in 0..57i64 {
        let title = (n % 3 != 0).then(|| format!("Title {}", n % 7));
        world.create_at(title.as_deref(), start + (n / 5).milliseconds()).await;
    }
    // Some were updated since, the oldest last.
    for n in [30, 20, 10] {
        let page = world.list(&format!("sort=created_at&page[size]={n}")).await;
        let id = ids(&page).pop().unwrap();
        assert_eq!(world.patch(&id, &json!({ "mode": "ask" })).await.status, 200);
    }
    let all = world.everything().await;
    assert_eq!(all.len(), 57);
    all.into_iter().map(|resource| (id_of(&resource), resource["attributes"].clone())).collect()
}

/// The order in which a sort must show them: by key, then by id.
fn expected(all: &HashMap<String, Value>, sort: &str) -> Vec<String> {
    let key = sort.trim_start_matches('-');
    let mut order: Vec<(&str, &String)> =
        all.iter().map(|(id, attributes)| (attributes[key].as_str().unwrap_or(""), id)).collect();
    order.sort_unstable();
    if sort.starts_with('-') {
        order.reverse();
    }
    order.into_iter().map(|(_, id)| id.clone()).collect()
}

async fn walks_reach_everything_once(world: World) {
    let all = fill(&world).await;
    for sort in SORTS {
        let order = expected(&all, sort);
        for size in [1, 7, 100] {
            let what = format!("sort={sort}&page[size]={size}");
            let mut page = world.list(&what).await;
            assert_eq!(page["links"]["prev"], Value::Null, "{what}");
            let mut forwards = ids(&page);
            let mut pages = 1;
            while !page["links"]["next"].is_null() {
                page = world.follow(&page["links"]["next"]).await.body;
                assert!(ids(&page).len() <= size && !ids(&page).is_empty(), "{what}");
                forwards.extend(ids(&page));
                pages += 1;
            }
            assert_eq!(forwards, order, "forwards, {what}");
            assert_eq!(pages, 57usize.div_ceil(size), "{what}");

            let mut backwards = vec![ids(&page)];
            while !page["links"]["prev"].is_null() {
                page = world.follow(&page["links"]["prev"]).await.body;
                assert!(!page["links"]["next"].is_null(), "{what}");
                backwards.push(ids(&page));
            }
            backwards.reverse();
            assert_eq!(backwards.concat(), order, "backwards, {what}");
        }
    }
    let newest_first = world.list("page[size]=100").await;
    assert_eq!(ids(&newest_first), expected(&all, "-updated_at"), "the default");
    assert_eq!(ids(&world.list("").await).len(), 50, "the default size");
}

async fn links_keep_the_query(world: World) {
    for n in 0..5 {
        world.create(json!({ "title": format!("été & Co {n}"), "source": "web", "mode": "ask" })).await;
        world.create(json!({ "title": "other", "source": "extension" })).await;
    }
    let query = "filter%5Bsource%5D=web&sort=title&page[size]=2&fields[chat_conversation]=title&timeZone=Europe/Paris\
        &filter[mode]=ask";
    let first = world.list(query).await;
    let next = world.follow(&first["links"]["next"]).await.body;
    let titles = |page: &Value| -> Vec<Value> {
        page["data"].as_array().unwrap().iter().map(|item| item["attributes"].clone()).collect()
    };
    assert_eq!(titles(&next), [json!({ "title": "été & Co 2" }), json!({ "title": "été & Co 3" })]);
    assert_eq!(next["data"][0]["meta"]["group"], "today");
    // `self` leads to the same page again, on either page.
    for page in [&first, &next] {
        assert_eq!(&world.follow(&page["links"]["self"]).await.body, page);
    }
    let back = world.follow(&next["links"]["prev"]).await.body;
    assert_eq!(back["data"], first["data"]);
    // A search keeps its words.
    let found = world.list(&format!("filter[query]={}&page[size]=3", "%C3%A9t%C3%A9+%26")).await;
    let rest = world.follow(&found["links"]["next"]).await.body;
    assert_eq!((ids(&found).len(), ids(&rest).len()), (3, 2));
    assert!(ids(&found).iter().all(|id| !ids(&rest).contains(id)));
    assert_eq!(world.follow(&rest["links"]["prev"]).await.body["data"], found["data"]);
    assert_eq!((&found["links"]["prev"], &rest["links"]["next"]), (&Value::Null, &Value::Null));
}

async fn lists_may_grow_meanwhile(world: World) {
    let mut made = Vec::new();
    for _ in 0..6 {
        made.push(id_of(&world.create(json!({})).await));
    }
    let mut page = world.list("sort=created_at&page[size]=2").await;
    let mut seen = ids(&page);
    for _ in 0..3 {
        made.push(id_of(&world.create(json!({})).await));
        // The row that a cursor stands on may go away.
        world.delete(&seen.last().unwrap().clone()).await;
        page = world.follow(&page["links"]["next"]).await.body;
        seen.extend(ids(&page));
    }
    assert_eq!(seen, made[..8], "in order, each once");
}

async fn cursors_are_checked(world: World) {
    for n in 0..3 {
        world.create(json!({ "title": format!("a {n}") })).await;
    }
    let cursor = async |query: &str| {
        let next = world.list(query).await["links"]["next"].clone();
        next.as_str().unwrap().rsplit_once("page%5Bafter%5D=").unwrap().1.to_owned()
    };
    let by_time = cursor("page[size]=1").await;
    let by_title = cursor("page[size]=1&sort=title").await;
    let by_rank = cursor("page[size]=1&filter[query]=a").await;
    let json = |text: &str| {
        use base64::Engine as _;
        base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text)
    };
    let id = "44444444-4444-4444-8444-444444444444";
    let far = json(&format!(r#"{{"v":1,"sort":"-updated_at","at":9223372036854775807,"id":"{id}"}}"#));
    let nul = json(&format!(r#"{{"v":1,"sort":"title","at":"a\u0000","id":"{id}"}}"#));
    for (query, name) in [
        ("page[after]=garbage".to_owned(), "page[after]"),
        ("page[after]=".to_owned(), "page[after]"),
        ("page[before]=%F0%9F%98%80".to_owned(), "page[before]"),
        (format!("page[before]={}", "A".repeat(9000)), "page[before]"),
        (format!("page[after]={}", json("{}")), "page[after]"),
        (format!("page[after]={}", json("null")), "page[after]"),
        (format!("page[after]={far}"), "page[after]"),
        (format!("sort=title&page[after]={nul}"), "page[after]"),
        (format!("sort=title&page[after]={by_time}"), "page[after]"),
        (format!("sort=updated_at&page[after]={by_time}"), "page[after]"),
        (format!("page[after]={by_title}"), "page[after]"),
        (format!("page[before]={by_title}"), "page[before]"),
        (format!("page[after]={by_rank}"), "page[after]"),
        (format!("filter[query]=a&page[after]={by_time}"), "page[after]"),
        (format!("filter[query]=a&sort=title&page[after]={by_rank}"), "page[after]"),
        (format!("page[after]={by_time}&page[before]={by_time}"), "page[before]"),
    ] {
        let answer = world.get(&format!("{CONVERSATIONS}?{query}")).await;
        assert_eq!((answer.status, code(&answer)), (400, "invalid_parameter"), "{query}: {}", answer.text);
        assert_eq!(parameter(&answer), name, "{query}: {}", answer.text);
    }
    for query in [format!("page[after]={by_time}"), format!("sort=title&page[before]={by_title}")] {
        world.list(&query).await;
    }
}
