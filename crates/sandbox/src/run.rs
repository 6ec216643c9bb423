//! One run, from its place in the queue to its last line. Each phase is a function; the room is made once the
//! configuration is there and is gone before the last line is sent.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::agent_loop::{Agent, Mind};
use crate::assets;
use crate::emit::{Closed, Emitter};
use crate::envelope::{self, Config, Envelope, TASK_FLOW};
use crate::frame::Kind;
use crate::plan::Plan;
use crate::prompt;
use crate::room::Room;
use crate::serve::Service;
use crate::tools::Toolbox;

/// How a run ends without an answer.
pub enum Failure {
    /// Told as the run's `error` line.
    Error {
        code: &'static str,
        message: String,
    },
    Closed,
}

impl From<Closed> for Failure {
    fn from(_: Closed) -> Self {
        Self::Closed
    }
}

impl Failure {
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self::Error { code, message: message.into() }
    }
}

impl Service {
    /// Runs to the end and says it.
    pub async fn run(&self, envelope: Envelope, emit: &Emitter) -> Result<(), Closed> {
        let longest = Duration::from_secs(self.limits.run_timeout_seconds);
        let ended = match tokio::time::timeout(longest, self.answer(&envelope, emit)).await {
            Ok(ended) => ended,
            Err(_) => {
                Err(Failure::new("run_timeout", format!("the run took longer than {} s", longest.as_secs())))
            }
        };
        match ended {
            Ok(message) => emit.result(&message, envelope.takes_deltas()).await,
            Err(Failure::Error { code, message }) => emit.error(code, &message).await,
            Err(Failure::Closed) => Err(Closed),
        }
    }

    async fn answer(&self, envelope: &Envelope, emit: &Emitter) -> Result<String, Failure> {
        let isolation = self
            .isolation
            .as_ref()
            .map_err(|refused| Failure::new("sandbox_isolation", refused.to_string()))?;
        let config = self.config(envelope).await.map_err(|why| {
            Failure::new("sandbox_config", format!("the run's configuration could not be fetched: {why}"))
        })?;
        // A plan comes before all else that is seen of a run, and needs no room.
        let plan = self.plan(envelope, &config, emit).await?;
        let _place = self.place(emit).await?;
        let mut room = self.room(&isolation.kind).await?;
        let ended = self.work(&mut room, envelope, config, plan, emit).await;
        // The room is gone before anybody hears that the run is.
        room.close().await;
        ended
    }

    async fn config(&self, envelope: &Envelope) -> Result<Config, String> {
        let mut config = envelope::config(&self.client, envelope).await?;
        self.nearer(&mut config.model.base_url);
        if let Some(assets) = &mut config.assets {
            self.nearer(&mut assets.url);
        }
        Ok(config)
    }

    /// The plan of a run that plans first; else an empty one.
    async fn plan(&self, envelope: &Envelope, config: &Config, emit: &Emitter) -> Result<Plan, Failure> {
        let Some(skill) = config.skills.iter().find(|skill| skill.name == TASK_FLOW) else {
            return Ok(Plan::default());
        };
        let (model, system) = (config.model.clone(), skill.content.clone());
        Mind { service: self, emit, envelope, model, system }.plan().await
    }

    /// Waits for a free place, and says so where it has to.
    async fn place(&self, emit: &Emitter) -> Result<tokio::sync::SemaphorePermit<'_>, Failure> {
        if let Ok(place) = self.places.try_acquire() {
            return Ok(place);
        }
        let args = json!({ "at_once": self.limits.sandbox_concurrency });
        let step = emit.begin("wait for a free place", args).await?;
        let place = self.places.acquire().await.map_err(|_| Failure::Closed)?;
        emit.succeed(step, Value::Null).await?;
        Ok(place)
    }

    async fn room(&self, kind: &Kind) -> Result<Room, Failure> {
        Room::open(&self.rooms, kind)
            .await
            .map_err(|error| Failure::new("sandbox_isolation", error.to_string()))
    }

    async fn work(
        &self,
        room: &mut Room,
        envelope: &Envelope,
        mut config: Config,
        plan: Plan,
        emit: &Emitter,
    ) -> Result<String, Failure> {
        let began = Instant::now();
        let unpacked = self.unpack(room, envelope, &mut config, emit).await?;
        let tools = Toolbox::furnish(room, &config.recipes).await?;
        let skills = prompt::skills(room, config.skills).await?;
        emit.log("info", &format!("Loaded {} skills and {} recipes", skills.len(), tools.recipes())).await?;
        tracing::debug!(run = %envelope.session_id, ms = began.elapsed().as_millis() as u64, "a room is ready");
        let mut system = prompt::system(&skills);
        if !plan.is_empty() {
            system.push_str(&plan.prompt());
        }
        let mind = Mind { service: self, emit, envelope, model: config.model, system };
        let mut agent = Agent { mind, service: self, room, emit, envelope, given: unpacked, tools, plan };
        agent.run().await
    }

    /// The files that the run was given, into the workspace.
    async fn unpack(
        &self,
        room: &mut Room,
        envelope: &Envelope,
        config: &mut Config,
        emit: &Emitter,
    ) -> Result<Vec<envelope::AssetFile>, Failure> {
        let Some(assets) = &config.assets else { return Ok(Vec::new()) };
        let names: Vec<&str> = assets.files.iter().map(|file| file.name.as_str()).take(100).collect();
        let step = emit.begin("unpack files", json!({ "files": names })).await?;
        let folders: &[&str] = if config.recipes.is_empty() { &["assets"] } else { &["assets", "recipes"] };
        let mut unpacked = assets::unpack(self, room, assets, folders).await;
        if let Err(assets::Refused::Download(_)) = &unpacked {
            // The link may have run out, or the files have changed: once more, with a new one.
            if let Ok(again) = self.config(envelope).await {
                *config = again;
            }
            match &config.assets {
                Some(assets) => unpacked = assets::unpack(self, room, assets, folders).await,
                None => unpacked = Ok(0),
            }
        }
        match unpacked {
            Ok(count) => emit.succeed(step, json!({ "count": count })).await?,
            Err(refused) => {
                let why = refused.to_string();
                emit.fail(step, &why, Value::Null).await?;
                return Err(Failure::new(
                    "sandbox_assets",
                    format!("the run's files could not be unpacked: {why}"),
                ));
            }
        }
        Ok(config.assets.as_ref().map(|assets| assets.files.clone()).unwrap_or_default())
    }
}
