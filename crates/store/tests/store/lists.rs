//! Lists: orders, cursors, filters.

use domain::conversation::{
    Conversation, ConversationFilter, ConversationPatch, ConversationQuery, Kind, Mode, NewConversation,
    Position, Seek, Sort, SortKey, Source, Visibility,
};
use domain::scope::Scope;

use crate::setup::{TestStore, member, newest};

on_both!(
    every_order_can_be_walked_both_ways,
    a_page_knows_what_lies_on_either_side,
    a_place_stays_when_its_row_is_gone,
    filters_narrow_and_no_source_matches_every_source,
);

const SORTS: [(SortKey, bool); 6] = [
    (SortKey::UpdatedAt, true),
    (SortKey::UpdatedAt, false),
    (SortKey::CreatedAt, true),
    (SortKey::CreatedAt, false),
    (SortKey::Title, true),
    (SortKey::Title, false),
];

/// Threads of several people with equal times and titles among them, missing and empty titles too.
async fn fill(store: &TestStore, admin: &Scope) {
    let write = store.write();
    for n in 0..24u32 {
        let scope = member(admin, ["ann", "bob"][n as usize % 2]);
        let title = [None, Some(""), Some("a"), Some("B"), Some("ä"), Some("a")][n as usize % 6];
        let patch = ConversationPatch {
            title: title.map(|title| Some(title.to_owned())),
            visibility: (n % 3 == 0).then_some(Visibility::Workspace),
            ..Default::default()
        };
        let source = [None, Some(Source::Web), Some(Source::Extension)][n as usize % 3];
        let new = NewConversation { id: None, source, patch };
        // Two at a time share their times.
        let write = domain::conversation::Write {
            now: domain::time::from_ms(write.now.as_millisecond() + i64::from(n / 2)),
            ..write.clone()
        };
        store.create_conversation(&scope, &new, store.new_id(), &write).await.unwrap();
    }
}

/// The whole list by pages of three, and back again from its end.
async fn walk(store: &TestStore, scope: &Scope, query: &ConversationQuery) -> Vec<Conversation> {
    let mut there = Vec::new();
    let mut seek = Seek::Start;
    loop {
        let page = ConversationQuery { seek: seek.clone(), limit: 3, ..query.clone() };
        let page = store.list_conversations(scope, &page).await.unwrap();
        assert_eq!(page.has_before, seek != Seek::Start);
        there.extend(page.items);
        let Some(last) = there.last().filter(|_| page.has_after) else { break };
        seek = Seek::After(Position::of(last, query.sort.key));
    }
    let mut back: Vec<Conversation> = there.last().cloned().into_iter().collect();
    while let Some(first) = back.first().cloned() {
        let seek = Seek::Before(Position::of(&first, query.sort.key));
        let page = ConversationQuery { seek, limit: 4, ..query.clone() };
        let page = store.list_conversations(scope, &page).await.unwrap();
        assert!(page.has_after);
        let more = page.has_before;
        back = page.items.into_iter().chain(back).collect();
        if !more {
            break;
        }
    }
    assert_eq!(back, there, "the way back");
    there
}

async fn every_order_can_be_walked_both_ways(store: TestStore) {
    let admin = store.workspace("root").await;
    fill(&store, &admin).await;
    for scope in [admin.clone(), member(&admin, "ann"), member(&admin, "eve")] {
        for source in [None, Some(Source::Web)] {
            for (key, descending) in SORTS {
                let filter = ConversationFilter { source, ..Default::default() };
                let query = ConversationQuery { filter, sort: Sort { key, descending }, ..newest() };
                let walked = walk(&store, &scope, &query).await;
                let whole = store.list_conversations(&scope, &query).await.unwrap();
                assert_eq!(walked, whole.items);
                let mut sorted = walked.clone();
                sorted.sort_by(|a, b| {
                    let (a, b) = (Position::of(a, key), Position::of(b, key));
                    let order = a.value.cmp(&b.value).then(a.id.cmp(&b.id));
                    if descending { order.reverse() } else { order }
                });
                assert_eq!(walked, sorted, "{key:?} descending {descending} as {}", scope.user);
                let expected = match (scope.user.as_str(), source) {
                    ("root", None) => 24,
                    ("root", Some(_)) => 16,
                    ("ann", None) => 12 + 4,
                    ("ann", Some(_)) => 4 + 4 + 4,
                    (_, _) => 8,
                };
                assert_eq!(walked.len(), expected, "{key:?} as {} of {source:?}", scope.user);
            }
        }
    }
}

async fn a_page_knows_what_lies_on_either_side(store: TestStore) {
    let ann = store.workspace("ann").await;
    let page = store.list_conversations(&ann, &newest()).await.unwrap();
    assert!(page.items.is_empty() && !page.has_before && !page.has_after);
    let made = [store.create(&ann, "1").await, store.create(&ann, "2").await];
    let two = ConversationQuery { limit: 2, ..newest() };
    let page = store.list_conversations(&ann, &two).await.unwrap();
    assert!(!page.has_before && !page.has_after, "exactly one page");
    let after = Seek::After(Position::of(&made[0], SortKey::UpdatedAt));
    let end = ConversationQuery { seek: after, ..two.clone() };
    let page = store.list_conversations(&ann, &end).await.unwrap();
    assert!(page.items.is_empty() && page.has_before && !page.has_after);
    let before = Seek::Before(Position::of(&made[1], SortKey::UpdatedAt));
    let start = ConversationQuery { seek: before, ..two };
    let page = store.list_conversations(&ann, &start).await.unwrap();
    assert!(page.items.is_empty() && !page.has_before && page.has_after);
}

async fn a_place_stays_when_its_row_is_gone(store: TestStore) {
    let ann = store.workspace("ann").await;
    let mut made = Vec::new();
    for title in ["1", "2", "3"] {
        made.push(store.create(&ann, title).await);
    }
    let seek = Seek::After(Position::of(&made[1], SortKey::UpdatedAt));
    store.delete_conversation(&ann, made[1].id, None, store.now()).await.unwrap();
    assert_eq!(store.titles(&ann, &ConversationQuery { seek, ..newest() }).await, ["1"]);
}

async fn filters_narrow_and_no_source_matches_every_source(store: TestStore) {
    let ann = store.workspace("ann").await;
    for (title, source, mode, agent) in [
        ("none", None, None, None),
        ("web", Some(Source::Web), Some(Mode::Ask), None),
        ("extension", Some(Source::Extension), Some(Mode::Agent), Some("x")),
    ] {
        let patch = ConversationPatch {
            title: Some(Some(title.into())),
            mode: Some(mode),
            agent_id: Some(agent.map(str::to_owned)),
            ..Default::default()
        };
        store.make(&ann, NewConversation { id: None, source, patch }).await.unwrap();
    }
    let filter = ConversationFilter::default;
    for (filter, titles) in [
        (filter(), vec!["extension", "web", "none"]),
        (ConversationFilter { source: Some(Source::Web), ..filter() }, vec!["web", "none"]),
        (ConversationFilter { source: Some(Source::Extension), ..filter() }, vec!["extension", "none"]),
        (ConversationFilter { mode: Some(Mode::Ask), ..filter() }, vec!["web"]),
        (ConversationFilter { kind: Some(Kind::AssistantSandbox), ..filter() }, vec!["extension", "none"]),
        (ConversationFilter { agent: Some("x".into()), ..filter() }, vec!["extension"]),
        (ConversationFilter { agent: Some("x' OR '1'='1".into()), ..filter() }, vec![]),
        (ConversationFilter { source: Some(Source::Web), agent: Some("x".into()), ..filter() }, vec![]),
    ] {
        let query = ConversationQuery { filter, ..newest() };
        assert_eq!(store.titles(&ann, &query).await, titles, "{:?}", query.filter);
    }
}
