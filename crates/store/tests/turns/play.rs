//! Turns as the tests play them: a question, its events, its answer.

use domain::message::{MessageRole, NewMessage, Window};
use domain::run::{OnBusy, OnDisconnect, Run, RunError, RunStatus, StartTurn, TurnMessage, Usage};
use domain::scope::Scope;
use jiff::Timestamp;
use store::files::Fork;
use store::turns::{Batch, Begun, Held, Idempotency, NewTurn, QueueStart, Settlement, Waiting};
use store::{Thread, ThreadRead};
use uuid::Uuid;

use crate::setup::{Behind, TestStore, rusqlite, superuser};

pub const NODE: Uuid = Uuid::from_u128(0xa);
pub const OTHER: Uuid = Uuid::from_u128(0xb);
pub const LEASE: u64 = 30;

pub fn said(text: &str) -> TurnMessage {
    let content = format!(r#"[{{"type":"text","text":"{text}"}}]"#);
    TurnMessage { content, text: text.into(), wordless: false }
}

pub fn turn(conversation: Option<Uuid>, text: &str) -> StartTurn {
    StartTurn {
        conversation,
        replace: None,
        message: Some(said(text)),
        attachments: None,
        agent: None,
        model: None,
        workflow: None,
        mode: None,
        source: None,
        page_path: None,
        on_busy: OnBusy::Reject,
        on_disconnect: OnDisconnect::Cancel,
        brought: Default::default(),
    }
}

/// A fork without files.
pub fn bare_fork(id: Uuid, now: Timestamp) -> Fork {
    Fork { id, files: Vec::new(), now }
}

pub fn key(key: &str, body: u8) -> Idempotency {
    Idempotency { key: key.into(), body_hash: [body; 32] }
}

pub fn text(begun: &Begun) -> String {
    match begun {
        Begun::Started { .. } => "started".into(),
        Begun::Queued(..) => "queued".into(),
        Begun::Busy(run) => format!("busy {run}"),
        Begun::Repeated(run) => format!("repeated {}", run.id),
        Begun::KeyReused => "key reused".into(),
        Begun::TooManyRuns(_) => "too many".into(),
        Begun::OutOfTokens(spent) => format!("out of tokens {spent:?}"),
    }
}

/// Entries `from..=to`, all of them events, one a line.
pub fn events(from: i64, to: i64) -> Batch {
    let lines: Vec<String> = (from..=to).map(|n| format!(r#"{{"n":{n},"seq":{n}}}"#)).collect();
    Batch {
        first_entry: from,
        last_entry: to,
        first_seq: from,
        last_seq: to,
        entries: lines.join("\n").into(),
    }
}

impl TestStore {
    pub fn new_turn(&self, turn: StartTurn) -> NewTurn {
        self.clock.advance_ms(1000);
        NewTurn {
            run: self.new_id(),
            message: self.new_id(),
            conversation: self.new_id(),
            branch: self.new_id(),
            turn,
            idempotency: None,
            node: NODE,
            lease_seconds: LEASE,
            open_runs: domain::open_runs::RunLimits { user: 1000, workspace: 0 },
            tokens: domain::tokens::TokenLimits::default(),
            now: self.now(),
        }
    }

    /// Begins a turn that starts.
    pub async fn started(&self, scope: &Scope, turn: StartTurn) -> (Run, Held) {
        match self.begin_turn(scope, &self.new_turn(turn)).await.unwrap() {
            Begun::Started { run, lease, .. } => (run, Held { workspace: scope.workspace, lease }),
            other => panic!("not started: {other:?}"),
        }
    }

    /// Begins a turn that has to wait.
    pub async fn queued(&self, scope: &Scope, conversation: Uuid, text: &str, on_busy: OnBusy) -> Run {
        let turn = StartTurn { on_busy, ..turn(Some(conversation), text) };
        match self.begin_turn(scope, &self.new_turn(turn)).await.unwrap() {
            Begun::Queued(run, _) => run,
            other => panic!("not queued: {other:?}"),
        }
    }

    pub fn settlement(&self, answer: &str, batch: Batch) -> Settlement {
        self.clock.advance_ms(1000);
        Settlement {
            status: RunStatus::Succeeded,
            error: None,
            assistant: Some(
                NewMessage::text(self.new_id(), MessageRole::Assistant, answer, self.now()).into(),
            ),
            response: None,
            files_logged: true,
            counted: None,
            usage: Usage { input_tokens: 3, output_tokens: 4 },
            batch,
            now: self.now(),
        }
    }

    /// A whole turn: begun, one event, settled.
    pub async fn answered(&self, scope: &Scope, turn: StartTurn, answer: &str) -> Run {
        let (_, held) = self.started(scope, turn).await;
        self.settle_turn(&held, &self.settlement(answer, events(2, 3))).await.unwrap().run
    }

    /// Starts what waits in a conversation's queue.
    pub async fn next(&self, scope: &Scope, conversation: Uuid) -> Option<(Run, Held)> {
        self.clock.advance_ms(1000);
        let waiting = Waiting { workspace: scope.workspace, conversation };
        let start = QueueStart { node: NODE, lease_seconds: LEASE, branch: self.new_id(), now: self.now() };
        let started = self.start_queued(&waiting, &start).await.unwrap();
        started.map(|(run, lease, _)| (run, Held { workspace: scope.workspace, lease }))
    }

    pub async fn thread(&self, scope: &Scope, conversation: Uuid, branch: Option<Uuid>) -> Thread {
        self.get_thread(scope, conversation, ThreadRead { window: Some(Window::All), branch }).await.unwrap()
    }

    /// The texts of a thread.
    pub async fn texts(&self, scope: &Scope, conversation: Uuid, branch: Option<Uuid>) -> Vec<String> {
        let thread = self.thread(scope, conversation, branch).await;
        let numbers: Vec<i64> = thread.messages.iter().map(|message| message.seq).collect();
        assert_eq!(numbers, (1..=numbers.len() as i64).collect::<Vec<_>>());
        thread.messages.into_iter().map(|message| message.text).collect()
    }

    /// Runs one statement behind the store's back.
    pub async fn behind(&self, sqlite: &str, postgres: &str) {
        match &self.behind {
            Behind::Sqlite(folder) => rusqlite(folder).execute_batch(sqlite).unwrap(),
            Behind::Postgres(database) => superuser(database).await.batch_execute(postgres).await.unwrap(),
        }
    }

    /// A number behind the store's back; the statement is the same in both.
    pub async fn count(&self, statement: &str) -> i64 {
        match &self.behind {
            Behind::Sqlite(folder) => rusqlite(folder).query_row(statement, [], |row| row.get(0)).unwrap(),
            Behind::Postgres(database) => {
                superuser(database).await.query_one(statement, &[]).await.unwrap().get(0)
            }
        }
    }
}

pub fn failed(code: &str) -> Option<RunError> {
    Some(RunError { code: code.into(), message: "it \u{0} broke".into() })
}
