//! Lists outside JSON:API: `{ data, next }`, paged with `limit` and `after`.

use reqwest::Method;
use serde_json::{Value, json};

use crate::world::{World, stories};

stories!(pages_reach_everything_once, more_than_a_page_may_have_is_a_whole_page);

async fn pages_reach_everything_once(world: World) {
    for n in 0..6 {
        let request =
            world.request(Method::POST, "/v1/workspaces").header("content-type", "application/json");
        let answer = world.send(request.body(json!({ "name": format!("w{n}") }).to_string())).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
    }
    let members = format!("/v1/workspaces/{}/members", world.workspace);
    for n in 0..6 {
        let request = world.request(Method::POST, &members).header("content-type", "application/json");
        let body = json!({ "user": format!("user&{n}"), "role": "member" });
        assert_eq!(world.send(request.body(body.to_string())).await.status, 201);
    }
    let audit = format!("/v1/audit?workspace={}", world.workspace);
    for path in ["/v1/workspaces", &members, &audit] {
        let mark = if path.contains('?') { '&' } else { '?' };
        let whole = world.get(path).await.body;
        assert_eq!(whole["next"], Value::Null, "{path}");
        let expected = whole["data"].as_array().unwrap().clone();
        assert!(expected.len() >= 7, "{path}: {whole}");
        for limit in [1, 3, 7, 100] {
            let mut found = Vec::new();
            let mut after = String::new();
            loop {
                let page = world.get(&format!("{path}{mark}limit={limit}{after}")).await.body;
                let members: Vec<&String> = page.as_object().unwrap().keys().collect();
                assert_eq!(members, ["data", "next"], "{path}");
                found.extend(page["data"].as_array().unwrap().clone());
                let Some(next) = page["next"].as_str() else { break };
                after = format!("&after={}", crate::world::encoded(next));
            }
            assert_eq!(found, expected, "{path} by {limit}");
        }
    }
}

async fn more_than_a_page_may_have_is_a_whole_page(world: World) {
    let members = format!("/v1/workspaces/{}/members", world.workspace);
    for n in 0..110 {
        let request = world.request(Method::POST, &members).header("content-type", "application/json");
        let body = json!({ "user": format!("user{n:03}"), "role": "member" });
        assert_eq!(world.send(request.body(body.to_string())).await.status, 201);
    }
    for limit in ["101", "1000", "99999999999999999999999"] {
        let page = world.get(&format!("{members}?limit={limit}")).await;
        assert_eq!(page.status, 200, "{limit}: {}", page.text);
        assert_eq!(page.body["data"].as_array().unwrap().len(), 100, "{limit}");
        let next = crate::world::encoded(page.body["next"].as_str().unwrap());
        let rest = world.get(&format!("{members}?limit={limit}&after={next}")).await.body;
        assert_eq!((rest["data"].as_array().unwrap().len(), &rest["next"]), (11, &Value::Null), "{limit}");
    }
    for limit in ["0", "-1", "x", ""] {
        let page = world.get(&format!("{members}?limit={limit}")).await;
        assert_eq!((page.status, &page.body["code"]), (400, &json!("invalid_parameter")), "{limit}");
    }
}
