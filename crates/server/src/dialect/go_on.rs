//! The stream of a run on which people have decided, for a client that has what came before.

use domain::approval::all_undecided;
use domain::scope::Scope;
use domain::wire::Renderer;
use turn::{Follower, Stream};
use uuid::Uuid;

use super::log;
use crate::problem::Problem;
use crate::state::App;
use crate::stream::Telling;

/// From where people were last asked. Where they still are, and nothing else goes on, the stream pauses once more.
pub async fn go_on(
    app: &App,
    scope: &Scope,
    stream: Stream,
    run: Uuid,
    renderer: impl FnOnce(i64) -> Renderer,
) -> Result<(Telling, Follower), Problem> {
    let events = log::so_far(app, scope, run).await?;
    let asked = events.iter().rev().find(|event| event.kind == "approval").map_or(0, |event| event.seq);
    let (mut renderer, mut opening) = (renderer(asked), Vec::new());
    for event in events.iter().filter(|event| event.seq <= asked) {
        renderer.push(event.seq, event.ts, event.kind, &event.data, &mut opening);
    }
    renderer.begin_again(&mut opening);
    let known = app.store.list_approvals(scope.workspace, run).await?;
    let over = all_undecided(&known, renderer.waiting());
    if over {
        renderer.pause(&mut opening);
    }
    let follower = app.turns.follow(stream, run, asked).await?;
    Ok((Telling { opening, over, pauses: true, ..Telling::plain(renderer) }, follower))
}
