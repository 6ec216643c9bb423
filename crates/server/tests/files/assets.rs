//! Into the sandbox: the configuration's `assets`, and the zip of exactly those files by a link that nobody can change.

use std::io::{Cursor, Read as _};

use reqwest::Method;
use serde_json::{Value, json};
use testkit::agent::Agent;

use crate::caller::{CONVERSATIONS, bag, got, id, sha256};
use crate::uploading::noise;
use crate::world::{Home, World, stories, stories_everywhere};

stories_everywhere!(exactly_the_files_of_the_dispatch);
stories!(no_changed_link, when_a_link_dies, what_comes_later_is_not_in_it);

/// The files of a zip: name, bytes.
pub fn read_zip(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).expect("a zip");
    let mut found = Vec::new();
    for at in 0..archive.len() {
        let mut entry = archive.by_index(at).expect("an entry");
        let mut body = Vec::new();
        entry.read_to_end(&mut body).expect("its bytes, with the right CRC");
        found.push((entry.name().expect("a name").into_owned(), body));
    }
    found
}

async fn exactly_the_files_of_the_dispatch(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let ann = &world.ann;
    let chat = ann.conversation().await;
    let bodies: Vec<(&str, Vec<u8>)> = vec![
        ("b.bin", noise(1, 300_000)),
        ("a.txt", b"hello".to_vec()),
        ("Z", noise(2, 1)),
        ("é.txt", noise(3, 70_000)),
    ];
    for (name, body) in &bodies {
        ann.put(&chat, name, body).await;
    }
    let gone = ann.put(&chat, "gone.txt", b"gone").await;
    assert_eq!(ann.delete(&format!("{}/{}", bag(&chat), id(&gone))).await, 204);
    let (_, agent) = world.hanging(&chat).await;
    let config = agent.config().await.unwrap().body;
    let assets = &config["assets"];
    let members: Vec<&String> = assets.as_object().unwrap().keys().collect();
    assert_eq!(members, ["expires_at", "files", "url"]);
    let now = ann.list(&chat).await[0]["createdAt"].as_i64().unwrap();
    let life = assets["expires_at"].as_i64().unwrap() - now;
    assert!((290_000..400_000).contains(&life), "five minutes, in epoch milliseconds: {life}");
    let mut listed: Vec<Value> = bodies
        .iter()
        .map(|(name, body)| {
            let mime = if name.ends_with("a.txt") { "text/plain" } else { "application/octet-stream" };
            json!({ "name": name, "size": body.len(), "sha256": sha256(body), "mimeType": mime })
        })
        .collect();
    listed.sort_by_key(|file| file["name"].as_str().unwrap().to_owned());
    let strip = |file: &Value| (file["name"].clone(), file["size"].clone(), file["sha256"].clone());
    let got_files = assets["files"].as_array().unwrap();
    assert_eq!(got_files.iter().map(strip).collect::<Vec<_>>(), listed.iter().map(strip).collect::<Vec<_>>());
    assert!(
        got_files.iter().all(|file| file["mimeType"].is_string() && file.as_object().unwrap().len() == 4)
    );

    let url = assets["url"].as_str().unwrap();
    let first = got(ann.anonymous(Method::GET, url)).await;
    assert_eq!((first.status, first.header("content-type")), (200, "application/zip"));
    assert_eq!(first.header("content-length"), first.bytes.len().to_string());
    assert_eq!(first.header("x-content-type-options"), "nosniff");
    let mut expected: Vec<(String, Vec<u8>)> =
        bodies.iter().map(|(name, body)| ((*name).to_owned(), body.clone())).collect();
    expected.sort();
    assert!(read_zip(&first.bytes) == expected);
    // The same bytes every time, by every link.
    let again = agent.config().await.unwrap().body["assets"]["url"].as_str().unwrap().to_owned();
    tokio::time::sleep(std::time::Duration::from_millis(2100)).await;
    for url in [url, &again] {
        assert!(got(ann.anonymous(Method::GET, url)).await.bytes == first.bytes, "deterministic");
    }
    let head = got(ann.anonymous(Method::HEAD, url)).await;
    assert_eq!((head.status, head.bytes.len()), (200, 0));
    assert_eq!(head.header("content-length"), first.bytes.len().to_string());
    Some(())
}

/// A bag without files has no assets; a run has those that were there when it started.
async fn what_comes_later_is_not_in_it(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let ann = &world.ann;
    let chat = ann.conversation().await;
    let (ids, agent) = world.hanging(&chat).await;
    assert_eq!(agent.config().await.unwrap().body["assets"], Value::Null);
    ann.put(&chat, "a.txt", b"a").await;
    assert_eq!(agent.config().await.unwrap().body["assets"], Value::Null);
    ann.send(Method::POST, &format!("/v1/runs/{}/cancel", ids["run"].as_str().unwrap()), None).await;
    ann.log(&ids["run"]).await;

    let (_, agent) = world.hanging(&chat).await;
    let (files, zip) = agent.assets().await.unwrap();
    ann.put(&chat, "b.txt", b"b").await;
    assert_eq!(files.len(), 1);
    assert_eq!(agent.assets().await.unwrap(), (files, zip.clone()));
    assert_eq!(read_zip(&zip), [("a.txt".to_owned(), b"a".to_vec())]);
    Some(())
}

async fn no_changed_link(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let ann = &world.ann;
    let (chat, other) = (ann.conversation().await, ann.conversation().await);
    ann.put(&chat, "a.txt", b"a").await;
    ann.put(&other, "secret.txt", b"secret").await;
    let (_, agent) = world.hanging(&chat).await;
    let (_, others) = world.hanging(&other).await;
    let url = link(&agent).await;
    let token = url.split('/').rev().nth(1).unwrap().to_owned();
    let other_token = link(&others).await.split('/').rev().nth(1).unwrap().to_owned();
    let prefix = token.split_once('_').unwrap().0.len() + 1;
    let mut changed: Vec<String> = Vec::new();
    for at in 0..token.len() {
        let mut text = token.clone().into_bytes();
        text[at] = if text[at] == b'A' { b'B' } else { b'A' };
        changed.push(String::from_utf8(text).unwrap());
    }
    for (at, _) in token.char_indices().skip(prefix).step_by(7) {
        // Halves of two links, both ways.
        changed.push(format!("{}{}", &token[..at], &other_token[at..]));
        changed.push(format!("{}{}", &other_token[..at], &token[at..]));
    }
    changed.extend([
        token[..token.len() - 1].to_owned(),
        token[1..].to_owned(),
        format!("{token}A"),
        format!("{token}="),
        format!("{token}%3D"),
        format!("%20{token}"),
        format!("{token}%00"),
        token.to_uppercase(),
        token.to_lowercase(),
        token.replace('_', "%252F"),
        token[prefix..].to_owned(),
        format!("tku_{}", &token[prefix..]),
        format!("tkr_{}", &token[prefix..]),
        agent.text("config_token").to_owned(),
        agent.text("upload_otp").to_owned(),
        "x".into(),
        "%2e%2e".into(),
    ]);
    changed.retain(|text| *text != token && *text != other_token);
    assert!(changed.len() >= 80, "{}", changed.len());
    for text in &changed {
        let answer = got(ann.anonymous(Method::GET, &url.replace(&token, text))).await;
        assert!(matches!(answer.status, 401 | 404), "{text}: {}", answer.status);
        let body = String::from_utf8_lossy(&answer.bytes);
        assert!(!body.contains("secret") && !body.contains("PK"), "{text}: {body}");
    }
    // A parameter nobody signed changes nothing: it is refused.
    for query in ["?expires_at=99999999999999", "?run=x", "?a=1&a=2"] {
        assert_eq!(got(ann.anonymous(Method::GET, &format!("{url}{query}"))).await.status, 400, "{query}");
    }
    for method in [Method::POST, Method::PUT, Method::DELETE] {
        assert_eq!(got(ann.anonymous(method, &url)).await.status, 405);
    }
    assert_eq!(got(ann.anonymous(Method::GET, &url)).await.status, 200);
    // Another server's secret signs nothing here.
    Some(())
}

async fn link(agent: &Agent) -> String {
    agent.config().await.unwrap().body["assets"]["url"].as_str().expect("a url").to_owned()
}

async fn when_a_link_dies(home: Home) -> Option<()> {
    let world = World::start_with(home, &[("THREADKEEP_CHAT_BAG_ZIP_URL_TTL_SECONDS", "2")]).await?;
    let ann = &world.ann;
    let status = async |url: &str| got(ann.anonymous(Method::GET, url)).await.status;
    // By the clock.
    let chat = ann.conversation().await;
    ann.put(&chat, "a.txt", b"a").await;
    let (_, agent) = world.hanging(&chat).await;
    let url = link(&agent).await;
    assert_eq!(status(&url).await, 200);
    tokio::time::sleep(std::time::Duration::from_millis(2100)).await;
    assert_eq!(status(&url).await, 410);
    assert_eq!(status(&link(&agent).await).await, 200, "the configuration has a new one");
    // When a file of it is deleted; the others are then in a new link.
    let second = ann.conversation().await;
    let gone = ann.put(&second, "gone.txt", b"a").await;
    ann.put(&second, "kept.txt", b"a").await;
    let (_, agent) = world.hanging(&second).await;
    let url = link(&agent).await;
    assert_eq!(ann.delete(&format!("{}/{}", bag(&second), id(&gone))).await, 204);
    assert_eq!(status(&url).await, 410);
    let (files, zip) = agent.assets().await.unwrap();
    assert_eq!((files.len(), read_zip(&zip)[0].0.as_str()), (1, "kept.txt"));
    // With its conversation.
    let url = link(&agent).await;
    assert_eq!(ann.delete(&format!("{CONVERSATIONS}/{second}")).await, 204);
    assert_eq!(status(&url).await, 410);
    Some(())
}
