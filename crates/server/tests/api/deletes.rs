//! Delete is soft: gone from every read, listed on demand, undone by restore.

use reqwest::Method;
use serde_json::json;

use crate::world::{World, code, id_of, ids, item, stories};

stories!(
    gone_from_every_read,
    listed_on_demand_and_restored,
    deleted_ones_are_for_owners_and_admins,
    restore_finds_what_there_is,
    ids_that_name_nothing
);

async fn gone_from_every_read(world: World) {
    let id = id_of(&world.create(json!({ "title": "quarterly numbers" })).await);
    world.ask(&id, "where are the receipts").await;
    let kept = id_of(&world.create(json!({ "title": "kept" })).await);
    let answer = world.delete(&id).await;
    assert_eq!((answer.status, answer.text.as_str()), (204, ""));

    assert_eq!(world.get(&item(&id)).await.status, 404);
    assert_eq!(world.patch(&id, &json!({ "title": "x" })).await.status, 404);
    let again = world.delete(&id).await;
    assert_eq!((again.status, code(&again)), (404, "not_found"));
    assert_eq!(ids(&world.list("").await), [kept]);
    for query in ["quarterly", "receipts"] {
        assert_eq!(world.list(&format!("filter[query]={query}")).await["data"], json!([]), "{query}");
    }
}

async fn listed_on_demand_and_restored(world: World) {
    let made = world.create(json!({ "title": "come back", "source": "web", "tabs": [] })).await;
    let id = id_of(&made);
    let said = world.ask(&id, "remember this").await;
    let live = world.retrieve(&id).await;
    let other = id_of(&world.create(json!({})).await);
    assert_eq!(world.list("filter[deleted]=true").await["data"], json!([]));
    world.delete(&id).await;

    let deleted = world.list("filter[deleted]=true").await;
    assert_eq!(ids(&deleted), std::slice::from_ref(&id));
    assert!(deleted["data"][0]["attributes"]["deleted_at"].is_string());
    let asked = world.list("filter[deleted]=true&fields[chat_conversation]=title,messages").await;
    assert_eq!(
        asked["data"][0]["attributes"],
        json!({ "title": "come back", "messages": [] }),
        "gone with it"
    );
    assert_eq!(ids(&world.list("filter[deleted]=false").await), std::slice::from_ref(&other));
    assert_eq!(
        ids(&world.list("filter[deleted]=true&filter[query]=remember").await),
        std::slice::from_ref(&id)
    );
    assert_eq!(ids(&world.list("filter[deleted]=true&filter[source]=extension").await), Vec::<String>::new());

    let restored = world.restore(&id).await;
    assert_eq!(restored.status, 200, "{}", restored.text);
    let mut expected = live;
    expected["attributes"]["updated_at"] = restored.body["data"]["attributes"]["updated_at"].clone();
    assert_eq!(restored.body["data"], expected);
    assert_eq!(world.retrieve(&id).await, expected);
    assert_eq!(expected["attributes"]["messages"][0]["id"], said.to_string());
    assert_eq!(ids(&world.list("").await), [id.clone(), other]);
    assert_eq!(ids(&world.list("filter[query]=remember").await), [id]);
    assert_eq!(world.list("filter[deleted]=true").await["data"], json!([]));
}

async fn deleted_ones_are_for_owners_and_admins(ann: World) {
    let bob = ann.member("bob").await;
    let shared = id_of(&ann.create(json!({ "title": "hers", "visibility": "workspace" })).await);
    let own = id_of(&bob.create(json!({ "title": "his" })).await);
    assert_eq!(bob.retrieve(&shared).await["attributes"]["title"], "hers");
    assert_eq!(bob.delete(&shared).await.status, 403, "seen, but not his to delete");
    ann.delete(&shared).await;
    bob.delete(&own).await;

    assert_eq!(ids(&bob.list("filter[deleted]=true").await), std::slice::from_ref(&own), "the owner's");
    assert_eq!(
        ids(&ann.list("filter[deleted]=true&sort=title").await),
        [shared.clone(), own.clone()],
        "the admin's"
    );
    assert_eq!(bob.restore(&shared).await.status, 404);
    assert_eq!(ann.restore(&own).await.status, 200);
    assert_eq!(bob.retrieve(&own).await["attributes"]["user_id"], "bob");
}

async fn restore_finds_what_there_is(world: World) {
    let live = world.create(json!({ "title": "never deleted" })).await;
    let answer = world.restore(&id_of(&live)).await;
    assert_eq!((answer.status, &answer.body["data"]), (200, &live));
    let nobody = "44444444-4444-4444-8444-444444444444";
    assert_eq!(world.restore(nobody).await.status, 404);
    let bob = world.other("bob", "acme").await;
    let id = id_of(&live);
    world.delete(&id).await;
    assert_eq!(bob.restore(&id).await.status, 404);
    assert_eq!(bob.list("filter[deleted]=true").await["data"], json!([]));
}

async fn ids_that_name_nothing(world: World) {
    let before = world.everything().await;
    for id in ["x", "1", "44444444-4444-4444-8444-444444444444", "%00", "44444444444444448444444444444444"] {
        for (method, path) in [
            (Method::GET, item(id)),
            (Method::DELETE, item(id)),
            (Method::POST, format!("{}/restore", item(id))),
        ] {
            let answer = world.send(world.request(method.clone(), &path)).await;
            assert_eq!(
                (answer.status, code(&answer)),
                (404, "not_found"),
                "{method} {path}: {}",
                answer.text
            );
        }
        let answer =
            world.send(world.with_body(Method::PATCH, &item(id), crate::world::change(id, &json!({})))).await;
        assert_eq!(answer.status, 404, "{id}: {}", answer.text);
    }
    assert_eq!(world.everything().await, before);
}
