//! One user turn, accepted to settled. The walk:
//!
//! `start` accepts it (the store's `begin_turn`), `drive` runs it and pushes events, `log` numbers and stores
//! them before anyone sees them, `follow` lets any number of readers pull them, `settle` folds them into the
//! assistant's message and ends the run in one transaction. `sweep` keeps leases alive, ends what dead nodes left
//! and moves the queue. `Turns` is the only door.

mod drive;
mod error;
mod failpoint;
mod follow;
mod live;
mod log;
mod model_run;
mod news;
mod recent;
mod sandbox_run;
mod settle;
mod start;
mod sweep;
pub mod tools;
mod under_way;

use std::sync::Arc;
use std::time::Duration;

use domain::limits::Limits;
use domain::run::Run;
use domain::scope::Scope;
use domain::time::Clock;
use store::blobs::Blobs;
use store::turns::{Held, Waiting};
use store::{Store, StoreError};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

pub use error::TurnError;
pub use follow::{Follower, Seen, Stream};
pub use start::{StartExecution, Started};
use upstream::llm::models::Models;
use upstream::sandbox::SandboxClient;

use crate::live::Live;
use crate::settle::{Ending, own_scope};
use crate::tools::servers::ToolServers;

/// How soon the end of another node's run is noticed.
const LOOK: Duration = Duration::from_millis(500);

/// What a run hands to its sandbox beside the message: where to call back, and with which tokens.
pub trait Agents: Send + Sync {
    /// `agent_url`, the config token and the upload password of one run.
    fn access(&self, workspace: Uuid, run: Uuid, fence: i64) -> Access;
}

#[derive(Debug, Clone)]
pub struct Access {
    pub agent_url: String,
    pub config_token: String,
    pub upload_otp: String,
}

#[derive(Clone)]
pub struct Turns {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    limits: Limits,
    /// This process, as the leases name it: made anew by each start.
    node: Uuid,
    tasks: TaskTracker,
    /// None: no sandbox is configured.
    sandbox: Option<SandboxClient>,
    agents: Arc<dyn Agents>,
    models: Arc<Models>,
    tools: Vec<Arc<dyn tools::Tool>>,
    tool_servers: Arc<ToolServers>,
    blobs: Blobs,
    context_summary: bool,
    live: Live,
    /// Cancelled when the server is told to stop.
    draining: CancellationToken,
}

/// What `Turns` is made of.
pub struct Parts {
    pub store: Arc<dyn Store>,
    pub clock: Arc<dyn Clock>,
    pub limits: Limits,
    pub tasks: TaskTracker,
    pub sandbox: Option<SandboxClient>,
    pub agents: Arc<dyn Agents>,
    pub models: Arc<Models>,
    /// What models may call on the server.
    pub tools: Vec<Arc<dyn tools::Tool>>,
    /// And what they may call elsewhere.
    pub tool_servers: Arc<ToolServers>,
    /// The bytes of files.
    pub blobs: Blobs,
    /// Whether what is left out of a prompt is summed up in it.
    pub context_summary: bool,
}

impl Turns {
    /// Settles what an earlier process left (on the embedded store all of it), then keeps house in the background.
    pub async fn open(parts: Parts) -> Result<Self, TurnError> {
        let turns = Self::new(parts);
        turns.sweep().await?;
        turns.keep_house();
        turns.exchange_news();
        Ok(turns)
    }

    /// For one command beside the servers: it starts and sweeps nothing by itself.
    pub fn beside(parts: Parts) -> Self {
        let turns = Self::new(parts);
        turns.inner.draining.cancel();
        turns
    }

    fn new(parts: Parts) -> Self {
        let node = parts.clock.new_id();
        let Parts {
            store,
            clock,
            limits,
            tasks,
            sandbox,
            agents,
            models,
            tools,
            tool_servers,
            blobs,
            context_summary,
        } = parts;
        #[cfg(feature = "failpoints")]
        let tools = tools.into_iter().chain(tools::effect::wanted()).collect();
        let (live, draining) = (Live::default(), CancellationToken::new());
        Self {
            inner: Arc::new(Inner {
                store,
                clock,
                limits,
                node,
                tasks,
                sandbox,
                agents,
                models,
                tools,
                tool_servers,
                blobs,
                context_summary,
                live,
                draining,
            }),
        }
    }

    /// The server's own tools.
    pub fn tools(&self) -> &[Arc<dyn tools::Tool>] {
        &self.inner.tools
    }

    /// Asks for a run's end. Idempotent; a run on another node is told by the store.
    pub async fn cancel(&self, scope: &Scope, run: Uuid) -> Result<Run, TurnError> {
        let found = self.inner.store.request_cancel(scope, run, self.inner.clock.now()).await?;
        if !self.inner.live.cancel(run) && found.cancel_requested && !found.status.is_settled() {
            self.tell(&[store::turns::News::Cancelled(run)]).await;
        }
        Ok(found)
    }

    /// Resolves when the run is to end or has ended, on whichever node it is.
    pub async fn over(&self, held: &Held) {
        let run = held.lease.run;
        if let Some(live) = self.inner.live.find(run).filter(|live| live.is_driven()) {
            let mut progress = live.progress();
            tokio::select! {
                () = live.cancel.cancelled() => return,
                () = live.lost.cancelled() => return,
                _ = progress.wait_for(|progress| progress.ended) => return,
            }
        }
        loop {
            tokio::time::sleep(LOOK).await;
            match self.inner.store.get_run(&own_scope(held), run).await {
                Ok(run) if !run.status.is_settled() && !run.cancel_requested => {}
                // A store that is away says nothing about the run.
                Err(StoreError::Unavailable(_)) => {}
                _ => return,
            }
        }
    }

    /// Ends the conversation's run under way by hand, whoever holds it. True when there was one.
    pub async fn clear_lock(&self, scope: &Scope, conversation: Uuid) -> Result<bool, TurnError> {
        let (turns, scope) = (self.clone(), scope.clone());
        self.to_its_end(self.count_in(), async move {
            let (node, lease) = (turns.inner.node, turns.inner.limits.lease_seconds);
            let Some(held) = turns.inner.store.take_over(&scope, conversation, node, lease).await? else {
                return Ok(false);
            };
            turns.inner.live.lose(held.lease.run);
            // From here on the run is this node's, and nobody else would end it.
            let ending = Ending::interrupted("the lock was cleared by an admin");
            turns.settle_left_or_later(held, ending).await?;
            turns.start_waiting(Waiting { workspace: scope.workspace, conversation }).await;
            Ok(true)
        })
        .await
    }

    /// Stops taking new turns, gives those under way until `patience` to end, and settles the rest as interrupted.
    pub async fn drain(&self, patience: Duration) {
        self.inner.draining.cancel();
        if tokio::time::timeout(patience, self.inner.live.idle()).await.is_err() {
            self.inner.live.interrupt_all();
            let _ = tokio::time::timeout(Duration::from_secs(5), self.inner.live.idle()).await;
        }
    }
}
