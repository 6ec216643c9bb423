//! Random damage to a valid document: every answer is a 2xx or a 4xx, the server stays up, and whatever was
//! accepted is valid.

use reqwest::Method;
use serde_json::{Value, json};

use crate::world::{World, change, id_of, item, stories};

stories!(three_hundred_broken_documents);

/// A small generator of its own, so that a failure repeats.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound.max(1) as u64) as usize
    }
}

const PIECES: [&str; 24] = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\",
    "null",
    "true",
    "-1",
    "1e308",
    "1e999",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "[[[[[[[[",
    "\"..\"",
    "\"//x\"",
    "{}",
    "[]",
    "\"id\"",
    "\u{7f}",
    "😀",
    "\"attributes\"",
];

fn damaged(document: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = document.to_vec();
    for _ in 0..=random.below(3) {
        let at = random.below(bytes.len());
        let end = (at + 1 + random.below(12)).min(bytes.len());
        match random.below(6) {
            0 => bytes[at] = random.below(256) as u8,
            1 => drop(bytes.drain(at..end)),
            2 => {
                let piece = PIECES[random.below(PIECES.len())];
                bytes.splice(at..at, piece.bytes());
            }
            3 => {
                let piece = PIECES[random.below(PIECES.len())];
                bytes.splice(at..end, piece.bytes());
            }
            4 => {
                let copy = bytes[at..end].to_vec();
                let to = random.below(bytes.len());
                bytes.splice(to..to, copy);
            }
            _ => bytes.truncate(at),
        }
        if bytes.is_empty() {
            break;
        }
    }
    bytes
}

async fn three_hundred_broken_documents(world: World) {
    let id = id_of(&world.create(json!({})).await);
    let attributes = json!({
        "title": "Q1 invoice", "mode": "agent", "page_path": "/a/b", "model": "m", "agent_id": "a",
        "context": { "root": "invoices", "rowCount": 7, "selectionType": "rows", "fields": [["id"]] },
        "tabs": [{ "key": "a", "destinationId": "a", "subPath": "/x/y" }, { "key": "b", "destinationId": "b" }],
        "active_tab_key": "a", "visibility": "private"
    });
    let document = change(&id, &attributes);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut refused = 0;
    for _ in 0..300 {
        let body = damaged(document.as_bytes(), &mut random);
        let shown = String::from_utf8_lossy(&body).into_owned();
        let answer = world.send(world.with_body(Method::PATCH, &item(&id), body)).await;
        assert!(
            matches!(answer.status, 200 | 400 | 403 | 409 | 422),
            "{shown}: {} {}",
            answer.status,
            answer.text
        );
        refused += usize::from(answer.status != 200);
    }
    assert!(refused > 200, "only {refused} were refused");
    for query in 0..100 {
        let raw = damaged(
            b"sort=title&page[size]=5&filter[query]=abc&filter[source]=web&timeZone=UTC",
            &mut random,
        );
        let text: String = raw
            .iter()
            .map(|b| if b.is_ascii_graphic() && *b != b'#' { char::from(*b) } else { '+' })
            .collect();
        let answer = world.get(&format!("{}?{text}", crate::world::CONVERSATIONS)).await;
        assert!(matches!(answer.status, 200 | 400), "{query}: {text}: {}", answer.text);
    }
    let stored = world.retrieve(&id).await["attributes"].clone();
    let keys: Vec<&Value> = stored["tabs"].as_array().unwrap().iter().map(|tab| &tab["key"]).collect();
    assert!(stored["active_tab_key"].is_null() || keys.contains(&&stored["active_tab_key"]), "{stored}");
    assert_eq!(world.get("/readyz").await.status, 200);
}
