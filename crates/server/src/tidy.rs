//! What keeps files tidy in the background: unfinished uploads and bytes without a row go after a grace period, and
//! what was deleted long ago goes for good where the operator wants that.

use std::time::Duration;

use store::bag::{BagError, Purged, purge, sweep_forks, sweep_orphans, sweep_reservations};

use crate::state::{App, AppState};

/// Looking through all bytes is for now and then: once in so many rounds.
const SCAN_EVERY: u32 = 24;

/// Starts with a look at everything; ends with the server.
pub fn keep_tidy(app: &AppState) {
    let app = AppState::clone(app);
    let tasks = app.tasks.clone();
    tasks.spawn(async move {
        let grace = app.limits.file_grace_seconds;
        let pause = Duration::from_secs((grace / 4).clamp(1, 900));
        for round in 0_u32.. {
            tidy(&app, round % SCAN_EVERY == 0).await;
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = app.stopping.cancelled() => return,
            }
        }
    });
}

/// One that fails keeps none of the others.
async fn tidy(app: &App, scan: bool) {
    let (store, blobs, now) = (&*app.store, &app.blobs, app.clock.now());
    let grace = Duration::from_secs(app.limits.file_grace_seconds);
    let swept = done(sweep_reservations(store, blobs, now - grace).await);
    let forks = done(sweep_forks(store, blobs, now - grace).await);
    let orphans = if scan { done(sweep_orphans(store, blobs, now - grace).await) } else { 0 };
    if forks > 0 {
        tracing::info!(forks, "removed what was left of forks");
    }
    if swept > 0 || orphans > 0 {
        tracing::info!(swept, orphans, "removed what uploads had left");
    }
    if app.limits.retention_days > 0 {
        let age = Duration::from_secs(app.limits.retention_days.saturating_mul(24 * 3600));
        let purged = done(purge(store, blobs, now - age, |_| {}).await);
        if purged != Purged::default() {
            tracing::info!(purged.workspaces, purged.conversations, purged.files, "removed for good");
        }
    }
}

fn done<T: Default>(tidied: Result<T, BagError>) -> T {
    tidied.unwrap_or_else(|error| {
        tracing::warn!(%error, "not all could be tidied; trying again later");
        T::default()
    })
}
