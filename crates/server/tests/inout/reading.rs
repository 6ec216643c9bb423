//! Exports to read, and over HTTP.

use reqwest::Method;

use crate::formats::fixture;
use crate::house::House;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn markdown_html_and_http_tell_the_same_conversations() {
    let house = House::sqlite();
    for name in ["open_webui.json", "claude.json"] {
        house.import(&[fixture(name).to_str().unwrap()]).await;
    }
    let markdown = house.run(&["export", "--format", "markdown"]).await.stdout;
    assert!(
        markdown.contains("# Über Bäume\n")
            && markdown.contains("## User · 2025-02-03T10:00:01.000Z\n\nSee file\n"),
        "{markdown}"
    );
    assert!(
        markdown.contains("> Two trees.")
            && markdown.contains("**Tool** repl")
            && markdown.contains("📎 notes.txt (11 bytes)"),
        "{markdown}"
    );
    let page = house.path("page.html");
    let ran = house.run(&["export", "--format", "html", "-o", page.to_str().unwrap()]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let html = std::fs::read_to_string(&page).unwrap();
    assert!(
        html.contains("Describe &lt;it&gt; &amp; more")
            && !html.contains("<it>")
            && !html.contains("<script"),
        "{html}"
    );
    assert!(html.starts_with("<!doctype html>") && html.ends_with("</html>\n"));

    let lines = house.export().await;
    let server = house.serve(&[]).await;
    let caller = house.caller(&server);
    let get = async |path: &str| {
        let answer = caller.request(Method::GET, path).send().await.unwrap();
        (
            answer.status().as_u16(),
            answer.headers()["content-type"].to_str().unwrap().to_owned(),
            answer.bytes().await.unwrap(),
        )
    };
    let (status, kind, body) = get("/v1/export").await;
    assert_eq!((status, &*kind, &*body), (200, "application/x-ndjson", lines.as_bytes()));
    let (_, kind, body) = get("/v1/export?format=html").await;
    assert_eq!((&*kind, &*body), ("text/html; charset=utf-8", html.as_bytes()));
    assert_eq!(get("/v1/export?format=markdown").await.2, markdown.as_bytes());
    let (_, kind, body) = get("/v1/export?format=zip").await;
    assert_eq!(kind, "application/zip");
    let zip = house.write("served.zip", body);
    let other = House::sqlite();
    other.import(&[&zip]).await;
    assert_eq!(other.export().await, lines);
    assert_eq!(get("/v1/export?format=pdf").await.0, 400);
    assert_eq!(get("/v1/export?colour=red").await.0, 400);
    assert_eq!(get("/v1/export?conversation=3f2b9a10-0000-4000-8000-0000000000ff").await.0, 404);
    let one = lines.lines().find(|line| line.contains("Local model")).unwrap();
    let id: serde_json::Value = serde_json::from_str(one).unwrap();
    let (status, _, body) = get(&format!("/v1/export?conversation={}", id["id"].as_str().unwrap())).await;
    assert_eq!((status, String::from_utf8_lossy(&body).lines().last()), (200, Some(one)));
}
