//! A run's events as far as they are stored, read at once and without waiting for more.

use domain::entry::decode;
use domain::scope::Scope;
use store::StoreError;
use turn::Seen;
use uuid::Uuid;

use crate::problem::Problem;
use crate::state::App;

const CHUNK_BYTES: usize = 1 << 20;

/// Empty for a run that has not begun. Of one whose log is over, the events that its message makes.
pub async fn so_far(app: &App, scope: &Scope, run: Uuid) -> Result<Vec<Seen>, Problem> {
    let mut events: Vec<Seen> = Vec::new();
    loop {
        let after = events.last().map_or(0, |event| event.seq);
        let page = app.store.read_log(scope, run, after, CHUNK_BYTES).await?;
        if page.expired || (page.run.status.is_settled() && page.run.last_event == 0) {
            return settled(app, scope, run).await;
        }
        for line in page.entries.iter().flat_map(|entries| entries.lines()) {
            let entry = decode(line).map_err(|error| StoreError::Internal(error.to_string()))?;
            if let Some(seq) = entry.seq.filter(|seq| *seq > after) {
                let data = entry.data.get().into();
                events.push(Seen { seq, ts: entry.ts, kind: entry.kind, data, line: None });
            }
        }
        if events.last().map_or(0, |event| event.seq) == after {
            return Ok(events);
        }
    }
}

async fn settled(app: &App, scope: &Scope, run: Uuid) -> Result<Vec<Seen>, Problem> {
    let mut follower = app.turns.follow(app.turns.open_stream(scope)?, run, 0).await?;
    let mut events = Vec::new();
    while let Some(batch) = follower.next().await? {
        events.extend(batch);
    }
    Ok(events)
}
