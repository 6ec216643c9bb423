//! What a day costs: counted once, by user and by workspace, and refused when nothing is left of it.

use domain::run::Usage;
use domain::tokens::{DayUsage, OutOfTokens, TokenLimits, TokensUsed, Whose};
use store::files::Purgeable;
use store::turns::{Begun, Held, NewTurn};

use crate::play::{events, key, turn};
use crate::setup::{TestStore, member};

on_both!(
    what_is_used_is_counted_into_the_day_of_who_asked,
    a_turn_is_refused_when_nothing_is_left_and_a_repeated_one_is_not,
    runs_that_end_at_once_are_all_counted,
    what_is_counted_by_its_total_is_counted_once,
    a_conversation_with_approvals_is_purged,
);

fn of(input_tokens: i64, output_tokens: i64) -> Usage {
    Usage { input_tokens, output_tokens }
}

async fn what_is_used_is_counted_into_the_day_of_who_asked(store: TestStore) {
    let ann = store.workspace("ann").await;
    let bob = member(&ann, "bob");
    let elsewhere = store.workspace("ann").await;
    // 3 and 4, as every settlement of these tests.
    store.answered(&ann, turn(None, "one"), "1").await;
    let (_, held) = store.started(&ann, turn(None, "two")).await;
    store.count_usage(&held, of(100, 10), None, store.now()).await.unwrap();
    let used = store.get_tokens_used(&ann, store.now()).await.unwrap();
    assert_eq!(used, TokensUsed { user: 117, workspace: 117 }, "before its run has ended");
    store.settle_turn(&held, &store.settlement("2", events(2, 3))).await.unwrap();
    store.count_call(&bob, store.new_id(), of(1000, 1), store.now()).await.unwrap();
    store.count_call(&bob, store.new_id(), of(1000, 1), store.now()).await.unwrap();
    let now = store.now();
    assert_eq!(store.get_tokens_used(&ann, now).await.unwrap(), TokensUsed { user: 124, workspace: 2126 });
    assert_eq!(store.get_tokens_used(&bob, now).await.unwrap(), TokensUsed { user: 2002, workspace: 2126 });
    assert_eq!(store.get_tokens_used(&elsewhere, now).await.unwrap(), TokensUsed::default());
    let today = domain::tokens::day(now);
    store.clock.advance_ms(2 * 86_400_000);
    assert_eq!(store.get_tokens_used(&ann, store.now()).await.unwrap(), TokensUsed::default());
    store.count_call(&ann, store.new_id(), of(1, 0), store.now()).await.unwrap();
    let later = domain::tokens::day(store.now());
    let days = store.list_usage(&bob, &today).await.unwrap();
    let day = |day: &str, usage, runs| DayUsage { day: day.into(), usage, runs };
    assert_eq!(days, [day(&later, of(1, 0), 0), day(&today, of(2106, 20), 2)]);
    assert_eq!(store.list_usage(&ann, &later).await.unwrap().len(), 1);
    assert!(store.list_usage(&elsewhere, &today).await.unwrap().is_empty());
}

async fn a_turn_is_refused_when_nothing_is_left_and_a_repeated_one_is_not(store: TestStore) {
    let ann = store.workspace("ann").await;
    let limited = |user, workspace| {
        let new = store.new_turn(turn(None, "hi"));
        NewTurn { tokens: TokenLimits { user, workspace }, ..new }
    };
    let first = NewTurn { idempotency: Some(key("k", 1)), ..limited(7, 0) };
    let Begun::Started { run, lease, .. } = store.begin_turn(&ann, &first).await.unwrap() else {
        panic!("started")
    };
    let held = Held { workspace: ann.workspace, lease };
    store.settle_turn(&held, &store.settlement("1", events(2, 3))).await.unwrap();
    let rows = "SELECT count(*) FROM runs";
    let before = store.count(rows).await;
    for (new, whose) in [(limited(7, 0), Whose::User), (limited(0, 5), Whose::Workspace)] {
        let limit = new.tokens.user.max(new.tokens.workspace);
        let refused = store.begin_turn(&ann, &new).await.unwrap();
        assert_eq!(refused, Begun::OutOfTokens(OutOfTokens { whose, limit }));
    }
    assert_eq!(store.count(rows).await, before);
    let again = NewTurn { idempotency: Some(key("k", 1)), ..limited(7, 0) };
    match store.begin_turn(&ann, &again).await.unwrap() {
        Begun::Repeated(before) => assert_eq!(before.id, run.id),
        other => panic!("{other:?}"),
    }
    assert!(matches!(store.begin_turn(&ann, &limited(8, 8)).await.unwrap(), Begun::Started { .. }));
    let bob = member(&ann, "bob");
    assert!(matches!(store.begin_turn(&bob, &limited(7, 0)).await.unwrap(), Begun::Started { .. }));
}

/// Its writer asks again when the answer was lost.
async fn what_is_counted_by_its_total_is_counted_once(store: TestStore) {
    let ann = store.workspace("ann").await;
    let (run, held) = store.started(&ann, turn(None, "one")).await;
    for (used, total) in [(of(5, 1), of(5, 1)), (of(0, 2), of(5, 3)), (of(5, 3), of(10, 6))] {
        for _ in 0..2 {
            store.count_usage(&held, used, Some(total), store.now()).await.unwrap();
        }
        assert_eq!(store.get_run(&ann, run.id).await.unwrap().usage, total);
        let all = total.input_tokens + total.output_tokens;
        let day = store.get_tokens_used(&ann, store.now()).await.unwrap();
        assert_eq!(day, TokensUsed { user: all, workspace: all });
    }
    store.settle_turn(&held, &store.settlement("1", events(2, 2))).await.unwrap();
    let late = store.count_usage(&held, of(1, 1), Some(of(14, 11)), store.now()).await;
    assert!(matches!(late, Err(store::StoreError::Lost)), "{late:?}");
}

async fn runs_that_end_at_once_are_all_counted(store: TestStore) {
    let ann = store.workspace("ann").await;
    let mut held = Vec::new();
    for _ in 0..24 {
        held.push(store.started(&ann, turn(None, "hi")).await.1);
    }
    let settlements: Vec<_> = held.iter().map(|_| store.settlement("1", events(2, 3))).collect();
    let ending = held.iter().zip(&settlements).map(|(held, end)| store.settle_turn(held, end));
    for ended in futures_util::future::join_all(ending).await {
        ended.unwrap();
    }
    let days = store.list_usage(&ann, "2000-01-01").await.unwrap();
    assert_eq!((days.len(), days[0].usage, days[0].runs), (1, of(72, 96), 24));
}

async fn a_conversation_with_approvals_is_purged(store: TestStore) {
    let ann = store.workspace("ann").await;
    let (run, held) = store.started(&ann, turn(None, "hi")).await;
    store.add_approvals(&held, &[crate::approvals::approval(&store)]).await.unwrap();
    store.settle_turn(&held, &store.settlement("1", events(2, 3))).await.unwrap();
    let conversation = run.conversation.unwrap();
    store.delete_conversation(&ann, conversation, None, store.now()).await.unwrap();
    let of = Purgeable { workspace: ann.workspace, conversation };
    store.system_begin_purge(&of).await.unwrap();
    store.system_purge(&of).await.unwrap();
    assert_eq!(store.count("SELECT count(*) FROM approvals").await, 0);
}
