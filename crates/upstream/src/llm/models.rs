//! Which models there are: a name is `provider/model`. Providers are those the operator has set up, and the demo.

use std::sync::Arc;
use std::time::Duration;

use domain::limits::Limits;
use domain::model::{Dialect, ModelFault, ModelFaultKind, Takes};
use domain::secret::Secret;
use reqwest::{RequestBuilder, Url};
use serde_json::Value;
use tokio::sync::OnceCell;

use super::anthropic::{self, Anthropic};
use super::demo::{self, Demo};
use super::openai::{self, OpenAi, endpoint};
use super::takes::takes;
use super::{LanguageModel, ModelLimits};
use crate::error::UpstreamError;

/// How long a provider may take to say which models it has.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);
/// One on this machine is there or is not.
const LOCAL_TIMEOUT: Duration = Duration::from_secs(1);
const LIST_BYTES: usize = 4 * 1024 * 1024;

/// What the operator said of one provider.
#[derive(Debug, Clone, Default)]
pub struct ProviderSettings {
    pub key: Option<Secret>,
    pub base_url: Option<String>,
    /// What its models take beside text; empty goes by their names.
    pub inputs: Vec<String>,
}

impl ProviderSettings {
    fn is_set(&self) -> bool {
        self.key.is_some() || self.base_url.is_some()
    }
}

#[derive(Debug, Clone, Default)]
pub struct ModelSettings {
    pub openai: ProviderSettings,
    pub anthropic: ProviderSettings,
    pub anthropic_version: Option<String>,
    /// For conversations where nobody chose one.
    pub default_model: Option<String>,
    /// Servers on this machine that are offered while they are there.
    pub local: Vec<LocalServer>,
}

/// A server of OpenAI's dialect on this machine.
#[derive(Debug, Clone)]
pub struct LocalServer {
    /// What its models' names begin with.
    pub provider: &'static str,
    /// As an error names it.
    pub title: &'static str,
    /// Without `/v1`.
    pub url: String,
    /// What its list says of who owns a model, where that tells it from others on the same port.
    pub owner: Option<&'static str>,
}

pub struct Models {
    client: reqwest::Client,
    settings: ModelSettings,
    openai: Option<OpenAi>,
    anthropic: Option<Anthropic>,
    local: Vec<(LocalServer, OpenAi, Url)>,
    /// What the provider itself offered first, asked once.
    first: OnceCell<String>,
}

/// A model that a name stands for.
#[derive(Clone)]
pub struct Found {
    pub model: Arc<dyn LanguageModel>,
    /// As its provider names it.
    pub name: String,
    pub takes: Takes,
    /// What its provider speaks; the built-in model speaks none.
    pub dialect: Option<Dialect>,
}

impl Models {
    pub fn new(
        settings: ModelSettings,
        limits: &Limits,
        client: reqwest::Client,
    ) -> Result<Self, UpstreamError> {
        let limits = ModelLimits::new(limits);
        let openai = match &settings.openai {
            set if set.is_set() => {
                Some(OpenAi::new(set.base_url.as_deref(), set.key.clone(), client.clone(), limits)?)
            }
            _ => None,
        };
        let anthropic = match &settings.anthropic {
            set if set.is_set() => {
                let version = settings.anthropic_version.as_deref().unwrap_or(anthropic::VERSION);
                let (base, key) = (set.base_url.as_deref(), set.key.clone());
                Some(Anthropic::new(base, key, version, client.clone(), limits)?)
            }
            _ => None,
        };
        let mut local = Vec::new();
        for server in &settings.local {
            let base = endpoint(server.provider, &server.url, &["v1"])?;
            let list = endpoint(server.provider, base.as_str(), &["models"])?;
            let model = OpenAi::new(Some(base.as_str()), None, client.clone(), limits)?.called(server.title);
            local.push((server.clone(), model, list));
        }
        Ok(Self { client, settings, openai, anthropic, local, first: OnceCell::new() })
    }

    /// The model of this name, or what is wrong with the name.
    pub fn find(&self, name: &str) -> Result<Found, ModelFault> {
        let bad = |message: String| ModelFault::new(ModelFaultKind::Error, message);
        let shown: String = name.chars().take(100).collect();
        let Some((provider, model)) = name.split_once('/').filter(|(_, model)| !model.is_empty()) else {
            return Err(bad(format!(
                "{shown:?} is not the name of a model: name it provider/model, such as openai/gpt-5-mini or {}.",
                demo::MODEL
            )));
        };
        let unset =
            |key: &str| bad(format!("the model {shown:?} needs {key}, which is not set on this server."));
        let local = self.local.iter().find(|(server, ..)| server.provider == provider);
        let (openai, anthropic) = (Some(Dialect::Openai), Some(Dialect::Anthropic));
        let (found, dialect): (Arc<dyn LanguageModel>, _) = match (provider, local) {
            (_, Some((_, model, _))) => (Arc::new(model.clone()), openai),
            ("openai", _) => (Arc::new(self.openai.clone().ok_or_else(|| unset("OPENAI_API_KEY"))?), openai),
            ("anthropic", _) => {
                (Arc::new(self.anthropic.clone().ok_or_else(|| unset("ANTHROPIC_API_KEY"))?), anthropic)
            }
            ("demo", _) if model == demo::NAME => (Arc::new(Demo), None),
            ("demo", _) => {
                return Err(bad(format!("there is no demo model {shown:?}: its name is {}.", demo::MODEL)));
            }
            _ => {
                return Err(bad(format!(
                    "there is no provider for the model {shown:?}: it begins with openai/, anthropic/, ollama/, llamacpp/ or demo/."
                )));
            }
        };
        let said = match provider {
            "openai" => &*self.settings.openai.inputs,
            "anthropic" => &*self.settings.anthropic.inputs,
            _ => &[],
        };
        Ok(Found { model: found, name: model.to_owned(), takes: takes(provider, model, said), dialect })
    }

    /// The model where nobody chose one: the operator's, else the first of the provider that is set up, else the demo.
    pub async fn default_model(&self) -> String {
        if let Some(chosen) = &self.settings.default_model {
            return chosen.clone();
        }
        if self.openai.is_none() && self.anthropic.is_none() {
            return demo::MODEL.to_owned();
        }
        self.first.get_or_init(|| self.first_offered()).await.clone()
    }

    /// A vendor's own list begins with anything; a server of one's own lists what it has.
    async fn first_offered(&self) -> String {
        let (own, known, settings) = if self.openai.is_some() {
            ("openai/", "openai/gpt-5-mini", &self.settings.openai)
        } else {
            ("anthropic/", "anthropic/claude-sonnet-4-5", &self.settings.anthropic)
        };
        if settings.base_url.is_none() {
            return known.to_owned();
        }
        let listed = self.list().await.into_iter().find(|name| name.starts_with(own));
        listed.unwrap_or_else(|| known.to_owned())
    }

    /// Every model that can be asked for now, by its whole name; a provider that does not answer has none.
    pub async fn list(&self) -> Vec<String> {
        let ask = |setting, settings: &ProviderSettings, base: &str, path: &[&str]| {
            let url = endpoint(setting, settings.base_url.as_deref().unwrap_or(base), path).ok();
            url.filter(|_| settings.is_set())
        };
        let openai = ask("OPENAI_BASE_URL", &self.settings.openai, openai::BASE_URL, &["models"]);
        let anthropic =
            ask("ANTHROPIC_BASE_URL", &self.settings.anthropic, anthropic::BASE_URL, &["v1", "models"]);
        let version = self.settings.anthropic_version.as_deref().unwrap_or(anthropic::VERSION);
        let (openai_key, anthropic_key) = (&self.settings.openai.key, &self.settings.anthropic.key);
        let of = |url: Option<Url>, authorised: &dyn Fn(RequestBuilder) -> RequestBuilder| {
            url.map(|url| authorised(self.client.get(url)))
        };
        let openai = of(openai, &|request| match openai_key {
            Some(key) => request.bearer_auth(key.expose()),
            None => request,
        });
        let anthropic = of(anthropic, &|request| {
            let request = request.header("anthropic-version", version);
            match anthropic_key {
                Some(key) => request.header("x-api-key", key.expose()),
                None => request,
            }
        });
        let offered = |prefix: &'static str, request| async move {
            let models = listed(request, LIST_TIMEOUT).await;
            models.into_iter().map(|(id, _)| format!("{prefix}{id}")).collect::<Vec<_>>()
        };
        let (openai, anthropic, local) =
            tokio::join!(offered("openai/", openai), offered("anthropic/", anthropic), self.list_local());
        let mut all = [openai, anthropic, local].concat();
        all.push(demo::MODEL.to_owned());
        all
    }
}

impl Models {
    /// The models of servers on this machine, as far as those are there.
    pub async fn list_local(&self) -> Vec<String> {
        let each = self.local.iter().map(|(server, _, list)| async {
            let models = listed(Some(self.client.get(list.clone())), LOCAL_TIMEOUT).await;
            let ours = models.into_iter().filter(|(_, owner)| server.owner.is_none_or(|own| own == owner));
            ours.map(|(id, _)| format!("{}/{id}", server.provider)).collect::<Vec<_>>()
        });
        futures_util::future::join_all(each).await.concat()
    }
}

/// The models that a provider lists, with whom it says they belong to; none when it does not answer in time.
async fn listed(request: Option<RequestBuilder>, patience: Duration) -> Vec<(String, String)> {
    let Some(request) = request else { return Vec::new() };
    let asked = async {
        let mut response = request.send().await.ok().filter(|response| response.status().is_success())?;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.ok()? {
            body.extend_from_slice(&chunk);
            if body.len() > LIST_BYTES {
                return None;
            }
        }
        serde_json::from_slice::<Value>(&body).ok()
    };
    let Ok(Some(body)) = tokio::time::timeout(patience, asked).await else { return Vec::new() };
    let models = body.get("data").and_then(Value::as_array).cloned().unwrap_or_default();
    let text = |model: &Value, name: &str| model.get(name).and_then(Value::as_str).map(str::to_owned);
    models
        .iter()
        .filter_map(|model| Some((text(model, "id")?, text(model, "owned_by").unwrap_or_default())))
        .collect()
}
