//! The stream of a run on which people have decided, for a client that has what came before.

use domain::approval::all_undecided;
use domain::scope::Scope;
use domain::wire::{Renderer, Responses};
use serde_json::json;
use turn::{Follower, Seen, Stream};
use uuid::Uuid;

use super::log;
use crate::problem::Problem;
use crate::state::App;
use crate::stream::Telling;

/// From where it paused when people were last asked. Where they still are, and nothing else goes on, the stream pauses
/// once more.
pub async fn go_on(
    app: &App,
    scope: &Scope,
    stream: Stream,
    run: Uuid,
    renderer: impl FnOnce(i64) -> Renderer,
) -> Result<(Telling, Follower), Problem> {
    let paused = paused(app, scope, run, |_| true).await?;
    let events = log::so_far(app, scope, run).await?;
    let (mut renderer, mut opening) = (renderer(paused), Vec::new());
    for event in events.iter().filter(|event| event.seq <= paused) {
        renderer.push(event.seq, event.ts, event.kind, &event.data, &mut opening);
    }
    renderer.begin_again(&mut opening);
    let known = app.store.list_approvals(scope.workspace, run).await?;
    let over = all_undecided(&known, renderer.resting());
    if over {
        renderer.pause(&mut opening);
    }
    let follower = app.turns.follow(stream, run, paused).await?;
    Ok((Telling { opening, over, pauses: true, ..Telling::plain(renderer) }, follower))
}

/// The event up to which a client had its stream when it paused for the last of these approvals: calls that ask nobody
/// may have ended after it was asked for. Where the run never rested, the approval's own.
pub async fn paused(
    app: &App,
    scope: &Scope,
    run: Uuid,
    asks: impl Fn(&Seen) -> bool + Send + Sync,
) -> Result<i64, Problem> {
    let (mut voice, mut paused, mut rested) = (Responses::new(json!({})), 0, true);
    let push = |event: Seen| {
        voice.push(event.seq, event.ts, event.kind, &event.data, i64::MAX, &mut Vec::new());
        if event.kind == "approval" && asks(&event) {
            (paused, rested) = (event.seq, false);
        }
        if !rested && !voice.resting().is_empty() {
            (paused, rested) = (event.seq, true);
        }
    };
    log::each(app, scope, run, push).await?;
    Ok(paused)
}
