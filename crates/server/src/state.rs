//! What every request can reach: the store, the clock, the settings, and who this server is.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use domain::conversation::Write;
use domain::limits::Limits;
use domain::media::Family;
use domain::secret::Secret;
use domain::time::Clock;
use store::Store;
use store::blobs::Blobs;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use turn::Turns;
use turn::tools::servers::ToolServers;
use upstream::llm::models::Models;
use uuid::Uuid;

use crate::auth::token::TokenRules;
use crate::extract::taken_back::TakenBack;
use crate::limit::RateLimit;

pub struct App {
    pub store: Arc<dyn Store>,
    /// The data folder, where the operator's recipes and skills are.
    pub data: PathBuf,
    /// The bytes of files.
    pub blobs: Blobs,
    /// What may be uploaded; empty for anything.
    pub upload_types: Vec<Family>,
    pub clock: Arc<dyn Clock>,
    pub turns: Turns,
    pub models: Arc<Models>,
    pub tool_servers: Arc<ToolServers>,
    pub limits: Limits,
    pub tokens: TokenRules,
    /// Signs cookies and URLs.
    pub secret: Secret,
    /// The base of every URL handed out, without a slash at the end.
    pub public_url: String,
    /// Set in local mode: who the browser becomes, and this start's ticket.
    pub local: Option<Local>,
    /// Of callers, and of workspaces.
    pub rate: Option<RateLimit>,
    pub workspace_rate: Option<RateLimit>,
    pub metrics: metrics_exporter_prometheus::PrometheusHandle,
    /// Uploads that are being taken back.
    pub taken_back: TakenBack,
    /// Work that a shutdown waits for.
    pub tasks: TaskTracker,
    pub draining: AtomicBool,
    /// Cancelled when the server stops: for work that would otherwise go on.
    pub stopping: CancellationToken,
}

pub struct Local {
    pub user: String,
    pub org: String,
    pub boot_id: Uuid,
}

pub type AppState = Arc<App>;

impl App {
    pub fn write(&self) -> Write {
        Write { now: self.clock.now(), max_tabs: self.limits.max_persisted_tabs as usize }
    }

    /// After a delete in the workspace: its runs end, and whoever streams there looks again, on every node.
    pub async fn note_deletion(&self, workspace: Uuid) {
        self.turns.note_rights(workspace).await;
        self.turns.notice_deletion().await;
    }

    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }
}
