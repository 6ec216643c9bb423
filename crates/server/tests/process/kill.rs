//! Killed at random moments while clients write: what was acknowledged is there after the restart (G1), and
//! what was not is there whole or not at all.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use testkit::server::Answer;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::house::{CONVERSATIONS, Caller, House, document, new_id, random};

const ROUNDS: usize = 15;
const CLIENTS: usize = 6;

/// What a conversation may be: absent, or every part of it at one version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Absent,
    At(u64),
}

/// By conversation: the last acknowledged state first, then those that were asked for without an answer.
type Ledger = Arc<Mutex<BTreeMap<String, Vec<State>>>>;

fn attributes(version: u64) -> Value {
    let tab = format!("d{version}");
    json!({
        "title": format!("v{version}"), "context": { "version": version, "padding": "x".repeat(2000) },
        "tabs": [{ "key": tab, "destinationId": tab }], "active_tab_key": tab,
    })
}

/// One client: a write at a time until one gets no answer; tells of each that got one.
async fn write_until_killed(caller: Caller, ledger: Ledger, answered: UnboundedSender<()>) {
    let mut own: Vec<String> = Vec::new();
    for version in 1.. {
        let pick = (!own.is_empty() && random(3) > 0).then(|| random(own.len() as u64) as usize);
        let (id, state, method) = match pick {
            None => (new_id(), State::At(version), Method::POST),
            Some(at) if random(4) == 0 => (own.swap_remove(at), State::Absent, Method::DELETE),
            Some(at) => (own[at].clone(), State::At(version), Method::PATCH),
        };
        let path =
            if method == Method::POST { CONVERSATIONS.into() } else { format!("{CONVERSATIONS}/{id}") };
        let body = (state != State::Absent).then(|| document(Some(&id), attributes(version)));
        let before = if method == Method::POST { vec![State::Absent] } else { vec![] };
        ledger.lock().expect("a ledger").entry(id.clone()).or_insert(before).push(state);
        let Ok(answer) = caller.send(method.clone(), &path, body.as_ref()).await else { return };
        assert!((200..300).contains(&answer.status), "{method} {path}: {}", answer.text);
        if method == Method::POST {
            own.push(id.clone());
        }
        ledger.lock().expect("a ledger").insert(id, vec![state]);
        let _ = answered.send(());
    }
}

/// What is stored, all of whose parts must be of one version.
fn state_of(answer: &Answer) -> State {
    if answer.status == 404 {
        return State::Absent;
    }
    assert_eq!(answer.status, 200, "{}", answer.text);
    let found = &answer.body["data"]["attributes"];
    let version = found["context"]["version"].as_u64().unwrap_or_else(|| panic!("no version: {found}"));
    for (name, wanted) in attributes(version).as_object().expect("an object") {
        let read = &found[name];
        assert_eq!(read, wanted, "{name} of {found}");
    }
    State::At(version)
}

async fn check(caller: &Caller, ledger: &BTreeMap<String, Vec<State>>, moment: &str) {
    for (id, allowed) in ledger {
        let path =
            format!("{CONVERSATIONS}/{id}?fields[chat_conversation]=title,context,tabs,active_tab_key");
        let state = state_of(&caller.get(&path).await);
        assert!(allowed.contains(&state), "{moment}: {id} is {state:?}, the ledger has {allowed:?}");
    }
}

/// The ids that the list, read page by page, shows.
async fn listed(caller: &Caller) -> Vec<String> {
    let mut ids = Vec::new();
    let mut next = Some(format!("{CONVERSATIONS}?page[size]=100&fields[chat_conversation]=title"));
    while let Some(path) = next {
        let page = caller.get(&path).await;
        let rows = page.body["data"].as_array().expect("a list").iter();
        ids.extend(rows.map(|row| row["id"].as_str().expect("an id").to_owned()));
        let link = page.body["links"]["next"].as_str();
        next = link.map(|link| link[link.find("/v1").expect("a path")..].to_owned());
    }
    ids
}

async fn survive(house: &House) {
    let ledger = Ledger::default();
    let (mut acknowledged, mut unanswered) = (0, 0);
    let mut server = house.serve().await;
    for round in 0..ROUNDS {
        let this_round = Ledger::default();
        let mut clients = tokio::task::JoinSet::new();
        let (tell, mut answered) = unbounded_channel();
        for _ in 0..CLIENTS {
            clients.spawn(write_until_killed(house.caller(&server), Arc::clone(&this_round), tell.clone()));
        }
        for _ in 0..=random(60) {
            let next = tokio::time::timeout(Duration::from_secs(20), answered.recv()).await;
            assert_eq!(next, Ok(Some(())), "round {round}: {}", server.output());
        }
        tokio::time::sleep(Duration::from_micros(random(10_000))).await;
        server.kill9().await.expect("killed");
        while let Some(ended) = clients.join_next().await {
            ended.expect("a client that was answered well");
        }
        server = house.serve().await;
        let written = std::mem::take(&mut *this_round.lock().expect("a ledger"));
        check(&house.caller(&server), &written, &format!("after round {round}")).await;
        acknowledged += written.values().filter(|allowed| allowed.len() == 1).count();
        unanswered += written.values().filter(|allowed| allowed.len() > 1).count();
        ledger.lock().expect("a ledger").extend(written);
    }
    let ledger = ledger.lock().expect("a ledger").clone();
    let shows = acknowledged > ROUNDS && unanswered > ROUNDS;
    assert!(shows, "{acknowledged} conversations with answers, {unanswered} without: the test shows nothing");
    let caller = house.caller(&server);
    check(&caller, &ledger, "at the end").await;
    let listed = listed(&caller).await;
    let may = |state| move |allowed: &Vec<State>| allowed.iter().any(|s| (*s == State::Absent) == state);
    for (id, allowed) in &ledger {
        let there = listed.contains(id);
        assert!(may(!there)(allowed), "{id} is {}in the list: {allowed:?}", if there { "" } else { "not " });
    }
    assert!(listed.iter().all(|id| ledger.contains_key(id)), "the list shows what nobody made");
}

#[tokio::test]
async fn acknowledged_writes_survive_sudden_death_on_sqlite() {
    survive(&House::sqlite()).await;
}

#[tokio::test]
async fn acknowledged_writes_survive_sudden_death_on_postgresql() {
    if let Some(house) = House::postgres().await {
        survive(&house).await;
    }
}
