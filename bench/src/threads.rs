//! One thread as it grows, beside the ten thousand (or whatever the middle size is) other conversations.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, ensure};
use domain::conversation::{NewConversation, Write};
use domain::message::Window;
use domain::scope::{Role, Scope};
use domain::time::from_ms;
use store::Store;
use uuid::Uuid;

use crate::corpus::{self, ADMIN, Random};
use crate::measure::{Pace, interleaved};
use crate::note;
use crate::place::Database;
use crate::report::{FLAT, Row};

/// The short thread is there this often, so that appending to it does not make it a long one.
const SHORT_COPIES: usize = 50;
const AT_MS: i64 = 1_795_000_000_000;

/// Threads of one length in one store.
pub struct Grown {
    store: Arc<dyn Store>,
    length: usize,
    pub ids: Vec<Uuid>,
    appended: AtomicU64,
}

fn admin() -> Scope {
    corpus::scope(ADMIN, Role::Admin)
}

/// Makes the threads in the middle store of each database, shortest first.
pub async fn grow(databases: &[Database], lengths: &[usize]) -> anyhow::Result<Vec<Grown>> {
    let mut grown = Vec::new();
    for database in databases {
        let place = database.places.get(database.places.len() / 2).context("there is no size")?;
        for length in lengths {
            let copies = if *length < 100 { SHORT_COPIES } else { 1 };
            let mut ids = Vec::new();
            for copy in 0..copies {
                ids.push(thread(&*place.store, *length, copy).await?);
            }
            let store = Arc::clone(&place.store);
            grown.push(Grown { store, length: *length, ids, appended: AtomicU64::new(0) });
        }
    }
    Ok(grown)
}

async fn thread(store: &dyn Store, length: usize, copy: usize) -> anyhow::Result<Uuid> {
    let mut random = Random::new((length * 1_000 + copy) as u64);
    let id = Uuid::from_u128(random.below(u64::MAX).into());
    let write = Write { now: from_ms(AT_MS), max_tabs: 50 };
    store.create_conversation(&admin(), &NewConversation::default(), id, &write).await?;
    let messages: Vec<_> = (0..length).map(|n| corpus::message(&mut random, n, AT_MS, false)).collect();
    for some in messages.chunks(500) {
        store.append_messages(&admin(), id, None, some, from_ms(AT_MS)).await?;
    }
    Ok(id)
}

#[derive(Clone, Copy)]
enum Task {
    Newest(usize),
    Whole,
    Append,
}

pub async fn rows(databases: &[Database], grown: &[Grown], pace: Pace) -> anyhow::Result<Vec<Row>> {
    let per_database = grown.len() / databases.len();
    let mut rows = Vec::new();
    for (what, task) in [
        ("retrieve with the newest 10", Task::Newest(10)),
        ("retrieve with the newest 50", Task::Newest(50)),
        ("retrieve whole", Task::Whole),
        ("append a message", Task::Append),
    ] {
        note(what);
        let figures =
            interleaved(grown, pace, |thread, round| run(thread, task, round)).await.context(what)?;
        for (index, database) in databases.iter().enumerate() {
            let slice = index * per_database..(index + 1) * per_database;
            let threads = grown.get(slice.clone()).unwrap_or_default();
            let work = |task: Task, thread: &Grown| match task {
                Task::Newest(limit) => limit.min(thread.length) as f64,
                Task::Whole => thread.length as f64,
                Task::Append => 1.0,
            };
            let work: Vec<f64> = threads.iter().map(|thread| work(task, thread)).collect();
            let uneven = work.first() != work.last();
            rows.push(Row {
                what: what.into(),
                database: database.name,
                figures: figures.get(slice).unwrap_or_default().to_vec(),
                goal: Some(FLAT),
                work: uneven.then_some(work),
            });
        }
    }
    Ok(rows)
}

async fn run(thread: &Grown, task: Task, round: usize) -> anyhow::Result<()> {
    let id = thread.ids.get(round % thread.ids.len()).copied().context("there is no thread")?;
    let (window, wanted) = match task {
        Task::Append => return append(thread, id).await,
        Task::Newest(limit) => (Window::Newest { limit }, limit.min(thread.length)),
        Task::Whole => (Window::All, thread.length),
    };
    let read = thread.store.get_thread(&admin(), id, Some(window).into()).await?;
    ensure!(read.messages.len() == wanted, "{} messages instead of {wanted}", read.messages.len());
    Ok(())
}

async fn append(thread: &Grown, id: Uuid) -> anyhow::Result<()> {
    let number = thread.appended.fetch_add(1, Ordering::Relaxed);
    let at_ms = AT_MS + 1_000_000 + number as i64;
    let message = corpus::message(&mut Random::new(u64::MAX / 2 - number), 1, at_ms, false);
    thread.store.append_messages(&admin(), id, None, &[message], from_ms(at_ms)).await?;
    Ok(())
}
