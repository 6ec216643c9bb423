//! What the clients of a story asked for and what they were told, and the check that it all holds: accepted turns
//! are there, each run is settled once, every event that was received is in the log, no answer is there twice, the
//! stored message is the log's fold, and every conversation goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use domain::entry::decode_event;
use domain::event::RunEvent;
use domain::fold::Fold;
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::client::{Accepted, Caller, Event, Stream, new_id, turn};
use crate::house::{ANSWER, random};

/// One turn that a client asked for.
#[derive(Debug, Clone)]
pub struct Asked {
    pub body: Value,
    /// What came before the answer was lost, if anything did.
    pub accepted: Option<Accepted>,
    pub events: Vec<Event>,
    pub cancelled: bool,
}

/// By idempotency key.
#[derive(Clone, Default)]
pub struct Ledger(Arc<Mutex<BTreeMap<String, Asked>>>);

/// How long the settling of dead runs may take.
pub enum Due {
    /// Before the first answer.
    AtOnce,
    By(Instant),
}

impl Ledger {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Asked>> {
        self.0.lock().expect("a ledger")
    }

    pub fn entries(&self) -> Vec<(String, Asked)> {
        self.all().clone().into_iter().collect()
    }

    fn change(&self, key: &str, change: impl FnOnce(&mut Asked)) {
        change(self.all().get_mut(key).expect("an entry"));
    }

    pub fn absorb(&self, other: &Self) {
        self.all().extend(other.entries());
    }

    /// Asks for a turn; `None` when the server was gone before it answered.
    pub async fn ask(&self, caller: &Caller, conversation: Option<&str>) -> Option<Reading> {
        let key = new_id();
        let body = turn(conversation, &format!("question {key}"));
        let asked = Asked { body: body.clone(), accepted: None, events: Vec::new(), cancelled: false };
        self.all().insert(key.clone(), asked);
        match caller.start(&key, &body).await {
            Ok((accepted, stream)) => {
                self.change(&key, |asked| asked.accepted = Some(accepted.clone()));
                Some(Reading { ledger: self.clone(), key, accepted, stream })
            }
            // A refusal would be an answer; the clients here ask for nothing that may be refused.
            Err(error) => {
                assert!(error.downcast_ref::<reqwest::Error>().is_some(), "{error:#}");
                None
            }
        }
    }

    pub fn received(&self) -> usize {
        self.all().values().map(|asked| asked.events.len()).sum()
    }

    /// Checks everything, on a server that came after the death of the last.
    pub async fn check(&self, caller: &Caller, due: Due) {
        let entries = self.entries();
        self.check_settled(caller, &entries, due).await;
        let runs = join_all(entries.iter().map(|(key, asked)| check_turn(caller, key, asked))).await;
        let mut threads: BTreeMap<String, Vec<Answered>> = BTreeMap::new();
        for ((key, asked), (accepted, assistant)) in entries.iter().zip(runs) {
            let question = asked.body["message"].as_str().expect("a text").to_owned();
            self.change(key, |asked| asked.accepted = Some(accepted.clone()));
            let answered = Answered { run: accepted.run, message: accepted.message, question, assistant };
            threads.entry(accepted.conversation).or_default().push(answered);
        }
        join_all(threads.iter().map(|(id, answered)| check_thread(caller, id, answered))).await;
    }

    /// The runs that had begun when their process died.
    async fn check_settled(&self, caller: &Caller, entries: &[(String, Asked)], due: Due) {
        let begun = entries.iter().filter(|(_, asked)| !asked.events.is_empty());
        let begun: Vec<&Accepted> = begun.filter_map(|(_, asked)| asked.accepted.as_ref()).collect();
        for accepted in &begun {
            match due {
                Due::AtOnce => {
                    let run = caller.run(&accepted.run).await;
                    assert!(run["ended_at"].is_string(), "not settled before the first request: {run}");
                }
                Due::By(when) => {
                    caller.events(&accepted.run, 0).await;
                    assert!(Instant::now() <= when, "not settled in time: {accepted:?}");
                }
            }
        }
    }

    /// That every conversation takes a next turn, and that there is none that nobody asked for.
    pub async fn check_going_on(&self, caller: &Caller) {
        let entries = self.entries();
        let accepted = entries.iter().filter_map(|(_, asked)| asked.accepted.as_ref());
        let conversations: BTreeSet<&str> = accepted.map(|accepted| accepted.conversation.as_str()).collect();
        let firsts = entries.iter().filter(|(_, asked)| asked.body["conversation"].is_null()).count();
        assert_eq!(conversations.len(), firsts, "a first turn made no conversation, or two");
        join_all(conversations.into_iter().map(|conversation| async move {
            let reading = self.ask(caller, Some(conversation)).await.expect("a next turn");
            assert_eq!(reading.rest().await.as_deref(), Some("succeeded"), "in {conversation}");
        }))
        .await;
    }
}

/// An accepted turn whose events are being read.
pub struct Reading {
    ledger: Ledger,
    key: String,
    pub accepted: Accepted,
    stream: Stream,
}

impl Reading {
    /// The next event, noted; `None` at the end, whichever.
    pub async fn next(&mut self) -> Option<Event> {
        let event = self.stream.next().await.ok()??;
        self.ledger.change(&self.key, |asked| asked.events.push(event.clone()));
        Some(event)
    }

    /// Reads on; the run's status, if it came to that.
    pub async fn rest(mut self) -> Option<String> {
        let mut last = None;
        while let Some(event) = self.next().await {
            last = Some(event);
        }
        last.filter(|event| event.kind == "done")
            .and_then(|event| event.json()["status"].as_str().map(str::to_owned))
    }

    pub async fn cancel(&self, caller: &Caller) {
        self.ledger.change(&self.key, |asked| asked.cancelled = true);
        if let Ok(status) = caller.cancel(&self.accepted.run).await {
            assert_eq!(status, 200);
        }
    }
}

/// A turn as its conversation must show it.
struct Answered {
    run: String,
    message: String,
    question: String,
    /// Id and blocks of the answer.
    assistant: (String, Value),
}

/// One turn: the same request again gives the same run, its log holds what was received, and ends once.
async fn check_turn(caller: &Caller, key: &str, asked: &Asked) -> (Accepted, (String, Value)) {
    let again = caller.start_async(key, &asked.body).await.expect("the same request again");
    if let Some(accepted) = &asked.accepted {
        assert_eq!(&again, accepted, "an accepted turn is another one after the restart");
    }
    let log = caller.events(&again.run, 0).await;
    check_log(&log);
    for event in &asked.events {
        assert_eq!(
            log.get(event.seq as usize - 1),
            Some(event),
            "received, but not in the log of {}",
            again.run
        );
    }
    let cut =
        asked.events.last().map_or_else(|| random(log.len() as u64 + 1) as usize, |event| event.seq as usize);
    assert_eq!(caller.events(&again.run, cut as i64).await, log[cut..], "resumed after {cut}");
    let run = caller.run(&again.run).await;
    let status = run["status"].as_str().expect("a status");
    let allowed =
        status == "succeeded" || status == "interrupted" || (status == "cancelled" && asked.cancelled);
    assert!(allowed, "{run}");
    let [.., terminal, done] = &log[..] else { panic!("{log:?}") };
    assert_eq!(done.json()["status"], status, "{run}");
    assert_eq!(run["last_event"], log.len(), "{run}");
    let assistant = terminal.json()["assistant"].clone();
    assert_eq!(run["assistant_message"], assistant["id"], "{run}");
    assert_eq!(fold(&log), assistant["content"], "the log's fold is not the answer of {run}");
    match status {
        "succeeded" => {
            assert_eq!((&terminal.json()["message"], run["error"].is_null()), (&json!(ANSWER), true))
        }
        _ => assert_eq!(run["error"]["code"], status, "{run}"),
    }
    (again, (assistant["id"].as_str().expect("an id").to_owned(), assistant["content"].clone()))
}

/// Numbered from 1 without a gap; a beginning, one terminal event, the end.
pub fn check_log(log: &[Event]) {
    let numbers: Vec<i64> = log.iter().map(|event| event.seq).collect();
    assert_eq!(numbers, (1..=log.len() as i64).collect::<Vec<_>>(), "{log:?}");
    let kinds: Vec<&str> = log.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds.first(), Some(&"turn"), "{log:?}");
    let is_terminal = |kind: &&&str| matches!(**kind, "result" | "error");
    assert_eq!(kinds.iter().filter(is_terminal).count(), 1, "{log:?}");
    assert_eq!(kinds.iter().filter(|kind| **kind == "done").count(), 1, "{log:?}");
    assert!(is_terminal(&&kinds[kinds.len() - 2]) && kinds[kinds.len() - 1] == "done", "{log:?}");
}

pub fn fold(log: &[Event]) -> Value {
    let mut fold = Fold::default();
    for event in log {
        let decoded = decode_event(&event.kind, &event.data).expect("an event of the log");
        let ts = if let RunEvent::Step(step) = &decoded { step.ts.unwrap_or(0) } else { 0 };
        fold.push(ts, &decoded);
    }
    serde_json::to_value(fold.finish()).expect("JSON")
}

/// A conversation holds each question with its answer, each once, and nothing else.
async fn check_thread(caller: &Caller, id: &str, answered: &[Answered]) {
    let (messages, count) = caller.thread(id).await;
    assert_eq!((messages.len(), count as usize), (2 * answered.len(), 2 * answered.len()), "{messages:?}");
    for pair in messages.chunks(2) {
        let turn = answered.iter().find(|turn| pair[0]["id"] == turn.message);
        let turn = turn.unwrap_or_else(|| panic!("nobody asked {}", pair[0]));
        assert_eq!((&pair[0]["role"], &pair[0]["content"]), (&json!("user"), &json!(turn.question)));
        assert_eq!((&pair[1]["role"], &pair[1]["id"]), (&json!("assistant"), &json!(turn.assistant.0)));
        assert_eq!(pair[1]["parts"], turn.assistant.1, "the stored answer is not the streamed one");
    }
    let runs: BTreeSet<String> = caller.runs(id).await.into_iter().collect();
    let wanted: BTreeSet<String> = answered.iter().map(|turn| turn.run.clone()).collect();
    assert_eq!(runs, wanted, "the runs of {id}");
}
