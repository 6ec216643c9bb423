//! The store's verbs, called as the server calls them, on stores of growing size.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, ensure};
use domain::conversation::{ConversationFilter, ConversationQuery, ConversationSearch, Seek, Sort, Source};
use domain::message::Window;
use domain::scope::{Role, Scope};
use domain::search::Query;
use domain::time::from_ms;
use uuid::Uuid;

use crate::corpus::{self, ADMIN, LONG_MESSAGES, MEMBER, Random};
use crate::measure::{Pace, interleaved};
use crate::note;
use crate::place::{Database, Place};
use crate::report::{FLAT, Row, SEARCH};

/// A store with what the operations choose from.
struct Subject<'a> {
    place: &'a Place,
    all: Vec<Uuid>,
    long: Vec<Uuid>,
    appended: AtomicU64,
}

impl<'a> Subject<'a> {
    fn of(place: &'a Place) -> Self {
        let (all, long) = (corpus::all(place.size), corpus::long(place.size));
        Self { place, all, long, appended: AtomicU64::new(0) }
    }
}

enum Task {
    List { scope: Scope, source: Option<Source>, rows: usize },
    Retrieve { window: Window, messages: usize },
    Append,
    Search { words: &'static str, hits: Option<usize> },
}

fn tasks() -> Vec<(&'static str, Task, Option<f64>)> {
    let admin = || corpus::scope(ADMIN, Role::Admin);
    let host = Scope { workspace: corpus::HOSTED, ..corpus::scope(corpus::HOST, Role::Member) };
    let list = |scope, source, rows| Task::List { scope, source, rows };
    let newest = Task::Retrieve { window: Window::Newest { limit: 50 }, messages: 50 };
    let whole = Task::Retrieve { window: Window::All, messages: LONG_MESSAGES };
    let rare = Task::Search { words: corpus::RARE, hits: Some(corpus::RARE_HITS) };
    let typing = Task::Search { words: "kumq", hits: Some(corpus::RARE_HITS) };
    vec![
        ("list the newest 50, as admin", list(admin(), None, 50), Some(FLAT)),
        ("list as a member who sees 30", list(corpus::scope(MEMBER, Role::Member), None, 30), Some(FLAT)),
        ("list as the one who shares all", list(host, None, 50), Some(FLAT)),
        ("list the newest 50 of one source", list(admin(), Some(Source::Extension), 50), Some(FLAT)),
        ("retrieve with the newest 50 of 60 messages", newest, Some(FLAT)),
        ("retrieve whole, 60 messages", whole, Some(FLAT)),
        ("search a word that 20 conversations have", rare, Some(SEARCH)),
        ("search its first four letters", typing, Some(SEARCH)),
        ("search one letter of a word", Task::Search { words: "k", hits: None }, Some(SEARCH)),
        (
            "search a word that every message has",
            Task::Search { words: corpus::COMMON, hits: None },
            Some(SEARCH),
        ),
        ("append a message", Task::Append, Some(FLAT)),
        (
            "search the 20 again, after the appends",
            Task::Search { words: corpus::RARE, hits: Some(corpus::RARE_HITS) },
            Some(SEARCH),
        ),
    ]
}

pub async fn rows(databases: &[Database], pace: Pace) -> anyhow::Result<Vec<Row>> {
    let places = databases.iter().flat_map(|database| &database.places);
    let subjects: Vec<Subject> = places.map(Subject::of).collect();
    let mut rows = Vec::new();
    for (what, task, goal) in tasks() {
        note(what);
        let figures =
            interleaved(&subjects, pace, |subject, round| run(subject, &task, round)).await.context(what)?;
        let mut figures = figures.into_iter();
        for database in databases {
            let figures = figures.by_ref().take(database.places.len()).collect();
            rows.push(Row { what: what.into(), database: database.name, figures, goal, work: None });
        }
    }
    Ok(rows)
}

async fn run(subject: &Subject<'_>, task: &Task, round: usize) -> anyhow::Result<()> {
    let store = &subject.place.store;
    let admin = corpus::scope(ADMIN, Role::Admin);
    match task {
        Task::List { scope, source, rows } => {
            let page = store.list_conversations(scope, &newest(*source)).await?;
            ensure!(page.items.len() == *rows, "{} rows instead of {rows}", page.items.len());
        }
        Task::Retrieve { window, messages } => {
            let thread = store.get_thread(&admin, pick(&subject.long, round)?, Some(*window).into()).await?;
            ensure!(thread.messages.len() == *messages, "{} messages", thread.messages.len());
        }
        Task::Append => {
            let number = subject.appended.fetch_add(1, Ordering::Relaxed);
            let mut random = Random::new(u64::MAX - number);
            let thread = pick(&subject.all, random.below(subject.all.len() as u64) as usize)?;
            let at_ms = 1_790_000_000_000 + number as i64;
            let message = corpus::message(&mut random, 1, at_ms, false);
            store.append_messages(&admin, thread, None, &[message], from_ms(at_ms)).await?;
        }
        Task::Search { words, hits } => {
            let found = store.search_conversations(&admin, &search(words)?).await?;
            let wanted = hits.unwrap_or(50);
            ensure!(found.items.len() == wanted, "{} hits instead of {wanted}", found.items.len());
        }
    }
    Ok(())
}

fn pick(ids: &[Uuid], index: usize) -> anyhow::Result<Uuid> {
    ids.get(index % ids.len()).copied().context("there are no conversations")
}

pub fn newest(source: Option<Source>) -> ConversationQuery {
    ConversationQuery {
        filter: ConversationFilter { source, ..ConversationFilter::default() },
        sort: Sort::default(),
        seek: Seek::Start,
        limit: 50,
        with_context: false,
    }
}

fn search(words: &str) -> anyhow::Result<ConversationSearch> {
    Ok(ConversationSearch {
        filter: ConversationFilter::default(),
        query: Query::parse(words).context("no words")?,
        sort: None,
        offset: 0,
        limit: 50,
        with_context: false,
    })
}
