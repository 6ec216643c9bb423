//! The other end of a run, as its sandbox has it: the envelope's tokens, used to fetch the configuration and the zip
//! and to send files back.

use std::sync::Arc;

use anyhow::Context as _;
use reqwest::{Client, RequestBuilder, Response};
use serde_json::{Value, json};

use crate::form::Form;
use crate::sandbox::Action;
use crate::server::Answer;

#[derive(Debug, Clone)]
pub struct Agent {
    client: Client,
    pub envelope: Value,
}

impl Agent {
    /// # Panics
    /// Where there is no HTTP client.
    #[must_use]
    #[expect(clippy::expect_used, reason = "a test without a client has failed")]
    pub fn new(envelope: Value) -> Self {
        Self { client: Client::builder().no_proxy().build().expect("a client"), envelope }
    }

    /// A member of the envelope.
    #[must_use]
    pub fn text(&self, name: &str) -> &str {
        self.envelope[name].as_str().unwrap_or_default()
    }

    /// # Errors
    /// Where no answer came.
    pub async fn config(&self) -> anyhow::Result<Answer> {
        let request = self.client.get(format!("{}/config", self.text("agent_url")));
        Answer::read(request.bearer_auth(self.text("config_token")).send().await?).await
    }

    /// Whatever is under a signed address.
    ///
    /// # Errors
    /// Where no answer came.
    pub async fn fetch(&self, url: &str) -> anyhow::Result<Response> {
        Ok(self.client.get(url).send().await?)
    }

    /// The run's files, as its configuration lists them, and the bytes of their zip.
    ///
    /// # Errors
    /// Where the server refused either.
    pub async fn assets(&self) -> anyhow::Result<(Vec<Value>, Vec<u8>)> {
        let config = self.config().await?;
        anyhow::ensure!(config.status == 200, "no configuration: {}", config.text);
        let Some(files) = config.body["assets"]["files"].as_array() else { return Ok(Default::default()) };
        let url = config.body["assets"]["url"].as_str().context("no url")?;
        let zip = self.fetch(url).await?.error_for_status()?.bytes().await?;
        Ok((files.clone(), zip.to_vec()))
    }

    /// A request that sends these files back, for the test to change.
    pub fn results(&self, form: &Form) -> RequestBuilder {
        let request = self.client.post(format!("{}/results", self.text("agent_url")));
        request
            .header("authorization", self.text("upload_otp"))
            .header("content-type", Form::kind())
            .body(form.end())
    }

    /// # Errors
    /// Where no answer came.
    pub async fn send_back(&self, form: &Form) -> anyhow::Result<Answer> {
        Answer::read(self.results(form).send().await?).await
    }
}

/// A script that fetches what the run was given, sends one file back, and answers with what happened.
#[must_use]
pub fn echo(name: &'static str, bytes: &'static [u8]) -> Vec<Action> {
    let call = move |envelope: Value| {
        let work = async move {
            let agent = Agent::new(envelope);
            let given = agent
                .assets()
                .await
                .map_or_else(|error| format!("{error:#}"), |(files, _)| files.len().to_string());
            let sent = agent.send_back(&Form::of(name, bytes)).await;
            let sent = sent.map_or_else(|error| format!("{error:#}"), |answer| answer.status.to_string());
            vec![json!({ "type": "result", "message": format!("{given} given, {sent}") })]
        };
        Box::pin(work) as crate::sandbox::Called
    };
    let head = Action::Headers("200 OK", vec![("content-type", "application/x-ndjson".to_owned())]);
    vec![head, Action::Call(Arc::new(call))]
}
