//! A run's events as far as they are stored, read at once and without waiting for more.

use domain::entry::decode;
use domain::scope::Scope;
use store::StoreError;
use turn::Seen;
use uuid::Uuid;

use crate::problem::Problem;
use crate::state::App;

const CHUNK_BYTES: usize = 256 * 1024;

/// Empty for a run that has not begun. Of one without a log, the events that its message makes.
pub async fn so_far(app: &App, scope: &Scope, run: Uuid) -> Result<Vec<Seen>, Problem> {
    let mut events: Vec<Seen> = Vec::new();
    each(app, scope, run, |event| events.push(event)).await?;
    Ok(events)
}

/// As `so_far`, each by itself: a long log is never held whole.
pub async fn each(
    app: &App,
    scope: &Scope,
    run: Uuid,
    mut tell: impl FnMut(Seen) + Send,
) -> Result<(), Problem> {
    let mut after = 0;
    loop {
        let page = app.store.read_log(scope, run, after, CHUNK_BYTES).await?;
        let unstarted = page.run.status.is_settled() && page.run.last_event == 0;
        if after == 0 && page.entries.is_empty() && (page.expired || unstarted) {
            return settled(app, scope, run, tell).await;
        }
        let before = after;
        for line in page.entries.iter().flat_map(|entries| entries.lines()) {
            let entry = decode(line).map_err(|error| StoreError::Internal(error.to_string()))?;
            if let Some(seq) = entry.seq.filter(|seq| *seq > after) {
                after = seq;
                let data = entry.data.get().into();
                tell(Seen { seq, ts: entry.ts, kind: entry.kind, data, line: None });
            }
        }
        if after == before {
            return Ok(());
        }
    }
}

async fn settled(
    app: &App,
    scope: &Scope,
    run: Uuid,
    mut tell: impl FnMut(Seen) + Send,
) -> Result<(), Problem> {
    let mut follower = app.turns.follow(app.turns.open_stream(scope)?, run, 0).await?;
    while let Some(batch) = follower.next().await? {
        batch.into_iter().for_each(&mut tell);
    }
    Ok(())
}
