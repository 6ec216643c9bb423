//! Calls that wait for a person, and what a run is counted to have used, on both databases.

use domain::approval::{Approval, Decision};
use domain::event::ToolCall;
use domain::run::{RunStatus, Usage};
use serde_json::value::RawValue;
use store::StoreError;
use store::turns::{Held, Settlement};
use uuid::Uuid;

use crate::play::{events, turn};
use crate::setup::{Behind, TestStore, fails, superuser};

on_both!(
    a_call_is_decided_once_and_started_once,
    what_a_client_made_of_a_call_is_kept_once,
    an_end_that_says_less_than_was_used_is_not_written,
    usage_is_counted_with_the_fence,
);

pub fn approval(store: &TestStore) -> Approval {
    let args = RawValue::from_string("{\"x\":1}".into()).unwrap();
    let call = ToolCall { id: "a".into(), name: "f".into(), args };
    Approval { id: store.new_id(), round: 2, call, decision: None, started: false }
}

fn stale(held: &Held) -> Held {
    Held { lease: domain::run::Lease { fence: held.lease.fence - 1, ..held.lease }, ..*held }
}

async fn a_call_is_decided_once_and_started_once(store: TestStore) {
    let scope = store.workspace("ann").await;
    let (run, held) = store.started(&scope, turn(None, "hi")).await;
    let asked = approval(&store);
    let all = std::slice::from_ref(&asked);
    assert!(matches!(store.add_approvals(&stale(&held), all).await, Err(StoreError::Lost)));
    store.add_approvals(&held, all).await.unwrap();
    store.add_approvals(&held, all).await.unwrap();
    let decide = |approve| Decision {
        approve,
        reason: Some("r".into()),
        by: "ann".into(),
        at: store.now(),
        result: None,
    };
    // Nothing starts before someone agreed.
    assert!(!store.start_approved(&held, asked.id).await.unwrap());
    let elsewhere = store.workspace("bob").await;
    let foreign = store.decide_approval(&elsewhere, run.id, asked.id, &decide(true)).await;
    assert!(matches!(foreign, Err(StoreError::NotFound)), "{foreign:?}");
    let unknown = store.decide_approval(&scope, run.id, Uuid::nil(), &decide(true)).await;
    assert!(matches!(unknown, Err(StoreError::NotFound)), "{unknown:?}");
    store.decide_approval(&scope, run.id, asked.id, &decide(true)).await.unwrap();
    let other = store.decide_approval(&scope, run.id, asked.id, &decide(false)).await;
    assert!(matches!(other, Err(StoreError::Conflict { code: "approval_decided", .. })), "{other:?}");
    assert!(matches!(store.start_approved(&stale(&held), asked.id).await, Err(StoreError::Lost)));
    assert!(store.start_approved(&held, asked.id).await.unwrap());
    assert!(!store.start_approved(&held, asked.id).await.unwrap());
    let kept = store.list_approvals(scope.workspace, run.id).await.unwrap().remove(0);
    assert_eq!((kept.id, kept.round, kept.started), (asked.id, 2, true));
    let decision = kept.decision.unwrap();
    assert_eq!((kept.call.args.get(), decision.approve, decision.by.as_str()), ("{\"x\":1}", true, "ann"));
    assert!(store.list_approvals(elsewhere.workspace, run.id).await.unwrap().is_empty());
}

async fn what_a_client_made_of_a_call_is_kept_once(store: TestStore) {
    let scope = store.workspace("ann").await;
    let (run, held) = store.started(&scope, turn(None, "hi")).await;
    let asked = approval(&store);
    store.add_approvals(&held, std::slice::from_ref(&asked)).await.unwrap();
    let made = |result: Option<&str>| {
        let result = result.map(str::to_owned);
        Decision { approve: true, reason: None, by: "ann".into(), at: store.now(), result }
    };
    for _ in 0..2 {
        store.decide_approval(&scope, run.id, asked.id, &made(Some("12 °C"))).await.unwrap();
    }
    for other in [Some("13 °C"), None] {
        let other = store.decide_approval(&scope, run.id, asked.id, &made(other)).await;
        assert!(matches!(other, Err(StoreError::Conflict { code: "approval_decided", .. })), "{other:?}");
    }
    let kept = store.list_approvals(scope.workspace, run.id).await.unwrap().remove(0);
    assert_eq!(kept.decision.unwrap().result.as_deref(), Some("12 °C"));
}

async fn an_end_that_says_less_than_was_used_is_not_written(store: TestStore) {
    let scope = store.workspace("ann").await;
    let (run, held) = store.started(&scope, turn(None, "hi")).await;
    let used = |input_tokens, output_tokens| Usage { input_tokens, output_tokens };
    store.count_usage(&held, used(7, 3), None, store.now()).await.unwrap();
    for less in [used(0, 0), used(6, 3), used(7, 2)] {
        let settlement = Settlement { counted: Some(less), ..store.settlement("Hello.", events(2, 3)) };
        assert_eq!(fails(store.settle_turn(&held, &settlement).await), "more used: 7 and 3");
        let stale = fails(store.settle_turn(&stale(&held), &settlement).await);
        assert_eq!(stale, "lost", "another's run is not looked at");
    }
    assert_eq!(store.get_run(&scope, run.id).await.unwrap().status, RunStatus::Running);
    let settlement = Settlement { counted: Some(used(7, 3)), ..store.settlement("Hello.", events(2, 3)) };
    let settled = store.settle_turn(&held, &settlement).await.unwrap();
    assert_eq!((settled.run.status, settled.run.usage), (RunStatus::Succeeded, used(10, 7)));
}

async fn usage_is_counted_with_the_fence(store: TestStore) {
    let scope = store.workspace("ann").await;
    let (run, held) = store.started(&scope, turn(None, "hi")).await;
    let used = Usage { input_tokens: 7, output_tokens: 3 };
    assert!(matches!(store.count_usage(&stale(&held), used, None, store.now()).await, Err(StoreError::Lost)));
    store.count_usage(&held, used, None, store.now()).await.unwrap();
    store.count_usage(&held, used, None, store.now()).await.unwrap();
    let mut settlement = store.settlement("Hello.", events(2, 3));
    settlement.usage = Usage { input_tokens: 1, output_tokens: 1 };
    let settled = store.settle_turn(&held, &settlement).await.unwrap();
    assert_eq!(settled.run.usage, Usage { input_tokens: 15, output_tokens: 7 });
    let thread = store.get_thread(&scope, run.conversation.unwrap(), None.into()).await.unwrap();
    assert_eq!(thread.conversation.total_tokens, 22);
    assert!(matches!(store.count_usage(&held, used, None, store.now()).await, Err(StoreError::Lost)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decision_waits_for_an_end_that_is_under_way() {
    let Some(store) = crate::setup::postgres().await else { return };
    let Behind::Postgres(database) = &store.behind else { return };
    let scope = store.workspace("ann").await;
    let (run, held) = store.started(&scope, turn(None, "hi")).await;
    let asked = approval(&store);
    store.add_approvals(&held, std::slice::from_ref(&asked)).await.unwrap();
    let (end, root) = (superuser(database).await, superuser(database).await);
    let settle =
        format!("BEGIN; UPDATE runs SET status = 'succeeded', ended_at = now() WHERE id = '{}'", run.id);
    end.batch_execute(&settle).await.unwrap();
    let decision = Decision { approve: true, reason: None, by: "ann".into(), at: store.now(), result: None };
    let mut decide = store.decide_approval(&scope, run.id, asked.id, &decision);
    let waits = "SELECT FROM pg_locks l JOIN pg_stat_activity a USING (pid) \
                 WHERE NOT l.granted AND a.datname = current_database()";
    while root.query(waits, &[]).await.unwrap().is_empty() {
        assert!(futures_util::poll!(&mut decide).is_pending(), "decided on a run that is ending");
    }
    end.batch_execute("COMMIT").await.unwrap();
    assert_eq!(fails(decide.await), "conflict run_ended");
    let kept = store.list_approvals(scope.workspace, run.id).await.unwrap().remove(0);
    assert!(kept.decision.is_none());
}
