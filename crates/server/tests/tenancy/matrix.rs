//! Every route x every kind of caller who may not: the right refusal, nothing given away, nothing changed.
//!
//! - no valid credential: 401 with `WWW-Authenticate`, on every route that is not open;
//! - what is for a run's sandbox: 401, whoever asks with a credential of their own;
//! - not in the workspace: 404, and the whole answer (status, headers, body) is that for an id that never was;
//! - in the workspace, but not an admin: 403 on what is for admins, whether its object exists or not;
//! - in the workspace, and the conversation is someone else's private one: 404, as for one that never was.
//!
//! On PostgreSQL the same is asserted again, to the byte, with the application's own filter switched off.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use testkit::form::Form;
use testkit::sandbox::{Action, ScriptedSandbox};
use testkit::server::{Answer, Backend, TestServer};

use crate::routes::{Ids, Kind, Row, table};
use crate::setup::{document, expect, get, post};
use crate::world::{Class, Victim, Who, absent, leaks};

/// How a request names its workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Naming {
    Not,
    Parameter,
    Header,
    /// The caller's own one, by the header.
    Home,
}

/// A server, and the sandbox that its runs are in.
async fn server(backend: Backend) -> Option<(TestServer, ScriptedSandbox)> {
    let answer = Action::Line(json!({ "type": "result", "message": "Hello." }));
    let sandbox = ScriptedSandbox::start(vec![Action::Headers("200 OK", Vec::new()), answer]).await.unwrap();
    let server = TestServer::start_with(backend, |config| {
        // Thousands of requests in a moment; and the counts in the headers would differ from one to the next.
        config.limits.requests_per_second = 0;
        config.sandbox.url = Some(sandbox.url());
        // Tool servers of this machine, where none is: nobody waits for them.
        config.tool_networks = vec!["loopback".into()];
    });
    Some((server.await?, sandbox))
}

async fn send(server: &TestServer, row: &Row, query: &str, naming: Naming, who: &Who, ids: &Ids) -> Answer {
    let mut query = query.to_owned();
    if naming == Naming::Parameter {
        query = format!("{query}&workspace={}", ids.workspace);
    }
    let path = row.fill(ids);
    let mut request = server.request(row.method.clone(), &format!("{path}?{query}"));
    for (name, value) in &who.headers {
        request = request.header(*name, value);
    }
    match (naming, &who.home) {
        (Naming::Header, _) => request = request.header("threadkeep-workspace", &ids.workspace),
        (Naming::Home, Some(home)) => request = request.header("threadkeep-workspace", home),
        _ => {}
    }
    if path.starts_with("/v1/ai/") {
        // Otherwise it answers in words.
        request = request.header("accept", "application/json");
    }
    let body = (row.body)(ids);
    if row.form {
        request =
            request.header("content-type", Form::kind()).body(Form::of("planted.txt", b"Planted").end());
    }
    if !body.is_null() {
        let jsonapi = path.starts_with("/v1/chat-conversations");
        let kind = if jsonapi { "application/vnd.api+json" } else { "application/json" };
        request = request.header("content-type", kind).body(body.to_string());
    }
    let answer = request.send().await.unwrap();
    if answer.status().is_success() && path.ends_with("/stream") {
        // Its run is under way for good: that it is shown says all.
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        return Answer { status, headers, text: String::new(), body: serde_json::Value::Null };
    }
    Answer::read(answer).await.unwrap()
}

/// The answer without what differs between any two answers.
fn bare(answer: &Answer) -> (u16, Vec<(String, String)>, &str) {
    let mut headers: Vec<(String, String)> = answer
        .headers
        .iter()
        .filter(|(name, _)| *name != "date" && *name != "x-request-id")
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
        .collect();
    headers.sort();
    (answer.status, headers, &answer.text)
}

/// The same question about the victim's things and about nothing gets the same refusal.
async fn twins(
    server: &TestServer,
    row: &Row,
    naming: Naming,
    who: &Who,
    (theirs, nothing): (&Ids, &Ids),
    status: u16,
) {
    for query in row.queries {
        let real = send(server, row, query, naming, who, theirs).await;
        let never = send(server, row, query, naming, who, nothing).await;
        let at = format!("{} ?{query} by {} ({naming:?})", row.name(), who.name);
        assert_eq!(real.status, status, "{at}: {real:?}");
        assert_eq!(bare(&real), bare(&never), "{at}");
    }
}

async fn refused(server: &TestServer, row: &Row, who: &Who, victim: &Ids) {
    let namings: &[Naming] = match row.kind {
        Kind::List | Kind::Item | Kind::Shared => &[Naming::Not, Naming::Parameter, Naming::Header],
        _ => &[Naming::Not],
    };
    for naming in namings {
        let answer = send(server, row, row.queries[0], *naming, who, victim).await;
        let at = format!("{} by {}", row.name(), who.name);
        if row.kind == Kind::Open {
            assert_ne!(answer.status, 401, "{at}");
            continue;
        }
        expect(&answer, 401, "unauthenticated");
        assert_eq!(answer.header("www-authenticate"), "Bearer", "{at}");
        assert!(!leaks(Class::Foreign, victim, &answer.text), "{at}: {answer:?}");
        twins(server, row, *naming, who, (victim, &absent()), 401).await;
    }
}

async fn harmless(server: &TestServer, row: &Row, naming: Naming, who: &Who, victim: &Ids) {
    for query in row.queries {
        let answer = send(server, row, query, naming, who, victim).await;
        let at = format!("{} ?{query} by {}: {answer:?}", row.name(), who.name);
        assert!((200..300).contains(&answer.status), "{at}");
        assert!(!leaks(who.class, victim, &answer.text), "{at}");
    }
}

async fn own(server: &TestServer, row: &Row, who: &Who, victim: &Ids) {
    // Someone who is nowhere would be somewhere after that.
    let homeless = who.class == Class::Foreign && who.home.is_none();
    match (row.kind, who.is_key) {
        (Kind::Person, true) => {
            expect(&send(server, row, "", Naming::Not, who, victim).await, 403, "forbidden");
        }
        (Kind::Person, false) if homeless => {}
        _ => harmless(server, row, Naming::Not, who, victim).await,
    }
}

async fn foreign(server: &TestServer, row: &Row, who: &Who, victim: &Ids) {
    let nothing = absent();
    let pair = (victim, &nothing);
    match row.kind {
        Kind::Open => {}
        Kind::Own | Kind::Person => own(server, row, who, victim).await,
        Kind::Run => twins(server, row, Naming::Not, who, pair, 401).await,
        Kind::Workspace => twins(server, row, Naming::Not, who, pair, 404).await,
        Kind::List => {
            for naming in [Naming::Parameter, Naming::Header] {
                twins(server, row, naming, who, pair, 404).await;
            }
            if row.method != Method::GET {
                // By the body alone.
                twins(server, row, Naming::Not, who, pair, 404).await;
            } else if who.home.is_some() && (who.administers_home || !row.admin) {
                harmless(server, row, Naming::Home, who, victim).await;
            }
        }
        Kind::Item | Kind::Shared => {
            for naming in [Naming::Parameter, Naming::Header] {
                twins(server, row, naming, who, pair, 404).await;
            }
            let status = match (&who.home, row.admin && !who.administers_home) {
                // There is nowhere to look for it.
                (None, _) => 404,
                (Some(_), true) => 403,
                (Some(_), false) => row.absent,
            };
            twins(server, row, Naming::Home, who, pair, status).await;
        }
    }
}

async fn mate(server: &TestServer, row: &Row, who: &Who, victim: &Ids) {
    // The same workspace; only what is in it was never there.
    let nothing = Ids { workspace: victim.workspace.clone(), ..absent() };
    let pair = (victim, &nothing);
    match (row.kind, row.admin) {
        (Kind::Open | Kind::Shared, _) => {}
        (Kind::Own | Kind::Person, _) => own(server, row, who, victim).await,
        (Kind::Run, _) => twins(server, row, Naming::Not, who, pair, 401).await,
        (Kind::Workspace, true) => twins(server, row, Naming::Not, who, pair, 403).await,
        (Kind::Workspace, false) => harmless(server, row, Naming::Not, who, victim).await,
        (Kind::List | Kind::Item, true) => twins(server, row, Naming::Parameter, who, pair, 403).await,
        (Kind::List, false) => harmless(server, row, Naming::Parameter, who, victim).await,
        (Kind::Item, false) => {
            for naming in [Naming::Parameter, Naming::Header] {
                twins(server, row, naming, who, pair, row.absent).await;
            }
        }
    }
}

async fn nobody_gets_at_the_victim(backend: Backend) {
    let Some((server, sandbox)) = server(backend).await else { return };
    let victim = Victim::new(&server, &sandbox, "a").await;
    let others = victim.others(&server, "a").await;
    assert_eq!(others.len(), 19);
    let before = victim.view(&server).await;
    for row in table() {
        for who in &others {
            match who.class {
                Class::Refused => refused(&server, &row, who, &victim.ids).await,
                Class::Mate => mate(&server, &row, who, &victim.ids).await,
                Class::Foreign => foreign(&server, &row, who, &victim.ids).await,
            }
        }
        assert_eq!(victim.view(&server).await, before, "{} changed something", row.name());
    }
}

/// Every row's request is one that works: the refusals above are for who asks, not for what is asked.
async fn the_victims_own_admin_may_do_all_of_it(backend: Backend) {
    let Some((server, sandbox)) = server(backend).await else { return };
    let for_callers = |row: &Row| !matches!(row.kind, Kind::Open | Kind::Run);
    for (at, row) in table().iter().enumerate().filter(|(_, row)| for_callers(row)) {
        let victim = Victim::new(&server, &sandbox, &at.to_string()).await;
        let headers = vec![("authorization", format!("Bearer {}", victim.boss))];
        let boss = Who {
            name: "the admin",
            class: Class::Mate,
            headers,
            home: None,
            administers_home: true,
            is_key: false,
        };
        let before = victim.view(&server).await;
        let naming = if matches!(row.kind, Kind::List | Kind::Item | Kind::Shared) {
            Naming::Parameter
        } else {
            Naming::Not
        };
        let answer = send(&server, row, row.queries[row.queries.len() - 1], naming, &boss, &victim.ids).await;
        assert!((200..300).contains(&answer.status), "{}: {answer:?}", row.name());
        let about_victim = !matches!(row.kind, Kind::Own | Kind::Person);
        if about_victim && row.method != Method::GET && !row.unseen {
            // A run that was told to stop has stopped a moment after the answer.
            let mut looks = 0..100;
            while victim.view_or_refusals(&server).await == before {
                assert!(looks.next().is_some(), "{}: the view does not notice it", row.name());
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        victim.wait_for_the_queue(&server).await;
    }
}

/// An id that is taken elsewhere is free here: ids are unique in their workspace alone.
async fn a_foreign_id_can_be_used_and_stays_foreign(backend: Backend) {
    let Some((server, sandbox)) = server(backend).await else { return };
    let victim = Victim::new(&server, &sandbox, "a").await;
    let before = victim.view(&server).await;
    let stranger = server.person("stranger", "org-2");
    stranger.create_workspace("Elsewhere").await.unwrap();
    let conversation = &victim.ids.conversation;
    let twin = document(Some(conversation), json!({ "title": "Mine" }));
    expect(&post(&stranger, "/v1/chat-conversations", twin).await, 201, "");
    let path = format!("/v1/chat-conversations/{conversation}");
    let mine = get(&stranger, &path).await;
    assert_eq!(mine.body["data"]["attributes"]["title"], "Mine");
    assert_eq!(mine.body["data"]["attributes"]["messages"], json!([]));
    assert_eq!(stranger.send(Method::DELETE, &path, None).await.unwrap().status, 204);
    assert_eq!(victim.view(&server).await, before);
}

macro_rules! on_all {
    ($($name:ident),+ $(,)?) => {
        on_both!($($name),+);

        /// PostgreSQL with row level security alone.
        mod unfiltered {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name(testkit::server::Backend::PostgresUnfiltered).await;
            })+
        }
    };
}

on_all!(
    nobody_gets_at_the_victim,
    the_victims_own_admin_may_do_all_of_it,
    a_foreign_id_can_be_used_and_stays_foreign,
);
