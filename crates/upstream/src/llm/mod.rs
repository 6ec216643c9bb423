//! Language models: one trait, the providers that speak OpenAI's and Anthropic's dialects over HTTP, and the demo
//! model that needs neither. In go a prompt and tools; out come events, batch by batch, and one end.
//!
//! To add a dialect: a file with its request, its `Parser` and its error, a golden case in `tests/golden`, and a
//! line in `Models`.

pub mod anthropic;
mod blocks;
mod call;
pub mod demo;
mod halves;
pub mod models;
pub mod openai;
pub mod takes;
mod usual;

use std::time::Duration;

use domain::limits::Limits;
use domain::model::{Ask, ModelEvent};
use futures_util::stream::BoxStream;

/// What has arrived since the last batch, never empty. The last batch ends with `ModelEvent::End`.
pub type ModelStream = BoxStream<'static, Vec<ModelEvent>>;

pub trait LanguageModel: Send + Sync {
    /// Nothing is sent before the stream is first polled. Dropping it ends the call.
    fn stream(&self, ask: Ask) -> ModelStream;
}

#[derive(Debug, Clone, Copy)]
pub struct ModelLimits {
    /// From the call to the first word.
    pub first_token: Duration,
    /// Without a byte after that.
    pub idle: Duration,
    /// Repeated calls, before the first word only.
    pub retries: u32,
    /// Before the first repeat; doubled with each further one.
    pub backoff: Duration,
}

impl ModelLimits {
    pub fn new(limits: &Limits) -> Self {
        Self {
            first_token: Duration::from_secs(limits.model_first_token_seconds),
            idle: Duration::from_secs(limits.model_idle_seconds),
            retries: u32::try_from(limits.model_retries).unwrap_or(u32::MAX),
            backoff: Duration::from_millis(500),
        }
    }
}
