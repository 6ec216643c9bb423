//! The agent: the model is asked, what it calls is done in the room, until it answers without calling. The loop runs
//! in the service and is the only one that talks to the gateway; the room has no network.

use domain::model::{Answer, Ask, Finish, Gathered, ModelEvent, Prompt, Said, ToolSpec};
use domain::prompt::{NO_ANSWER, valid};
use futures_util::StreamExt as _;
use std::time::Duration;
use upstream::llm::openai::OpenAi;
use upstream::llm::{LanguageModel as _, ModelLimits};

use crate::emit::{Closed, Emitter, cut};
use crate::envelope::{AssetFile, Envelope, Model};
use crate::plan::Plan;
use crate::room::Room;
use crate::run::Failure;
use crate::serve::Service;
use crate::tools::Toolbox;

/// Rounds of calls; then the model must answer.
const MAX_ROUNDS: usize = 40;
/// Deltas that are held back are sent in pieces of this size.
const PIECE_CHARS: usize = 2000;

pub struct Agent<'a> {
    pub mind: Mind<'a>,
    pub service: &'a Service,
    pub room: &'a mut Room,
    pub emit: &'a Emitter,
    pub envelope: &'a Envelope,
    /// The files that came with the run.
    pub given: Vec<AssetFile>,
    pub tools: Toolbox,
    pub plan: Plan,
}

/// What of an agent needs no room: the model, and what it is told.
pub struct Mind<'a> {
    pub service: &'a Service,
    pub emit: &'a Emitter,
    pub envelope: &'a Envelope,
    pub model: Model,
    pub system: String,
}

/// What the model says of one round goes out at once, or when the round is over.
enum Told {
    AsItComes,
    AtTheEnd,
    Never,
}

impl Agent<'_> {
    /// The final answer, when its files are handed in and its words are sent.
    pub async fn run(&mut self) -> Result<String, Failure> {
        let mut thread = self.mind.thread(&self.envelope.message.content);
        for round in 0..=MAX_ROUNDS {
            let tools = if round < MAX_ROUNDS { self.tools.specs(&self.plan) } else { Vec::new() };
            // Files come before the words that speak of them: where there are some, an answer that may be the last
            // is held back until it is known whether it is.
            let pending = round > 0 && self.has_results().await?;
            let told = if pending { Told::AtTheEnd } else { Told::AsItComes };
            self.mind.fit(&mut thread);
            let said = self.mind.ask_model(thread.clone(), tools, told).await?;
            if said.calls.is_empty() {
                self.plan.finish(self.emit).await?;
                let posted = round > 0 && self.hand_in().await?;
                if pending {
                    self.mind.tell(&said.text).await?;
                } else if posted && self.envelope.takes_deltas() {
                    // Files that came up while it spoke stand below its words now: those are not to be said again.
                    return Ok(String::new());
                }
                return Ok(said.text);
            }
            if pending {
                self.mind.tell(&said.text).await?;
            }
            let mut answers = Vec::new();
            for call in &said.calls {
                answers.push(self.call(call).await?);
            }
            thread.push(Said::Assistant { text: said.text, calls: said.calls });
            thread.push(Said::Answers(answers));
        }
        Err(Failure::new("tool_rounds_exhausted", format!("the model called tools for {MAX_ROUNDS} rounds")))
    }
}

impl Mind<'_> {
    /// Asks for a plan, which becomes steps that wait to be worked through.
    pub async fn plan(&self) -> Result<Plan, Failure> {
        let goal = &self.envelope.message.content;
        let step = self.emit.begin("plan", serde_json::json!({ "goal": goal })).await?;
        let mut thread = self.thread(&format!("plan {goal}"));
        self.fit(&mut thread);
        match self.ask_model(thread, Vec::new(), Told::Never).await {
            Ok(said) => {
                let mut plan = Plan::read(&said.text, goal);
                self.emit.succeed(step, plan.shown()).await?;
                plan.announce(self.emit).await?;
                Ok(plan)
            }
            Err(Failure::Error { code, message }) => {
                self.emit.fail(step, &message, serde_json::Value::Null).await?;
                Err(Failure::Error { code, message })
            }
            Err(closed) => Err(closed),
        }
    }

    /// The conversation and what is said now.
    fn thread(&self, now: &str) -> Vec<Said> {
        let mut thread: Vec<Said> = Vec::new();
        // A turn in which nothing was said is none that a model takes.
        let said = self.envelope.conversation.iter().filter(|turn| !turn.content.trim().is_empty());
        let before = said.map(|turn| (turn.role.as_str(), turn.content.as_str()));
        for (role, text) in before.chain([("user", now)]) {
            let answer = |text: &str| Said::Assistant { text: text.to_owned(), calls: Vec::new() };
            if role == "assistant" {
                thread.push(answer(text));
                continue;
            }
            // An answer that failed before its first word was left out.
            if matches!(thread.last(), Some(Said::User(_))) {
                thread.push(answer(NO_ANSWER));
            }
            thread.push(Said::User(text.into()));
        }
        valid(thread)
    }

    fn fit(&self, thread: &mut Vec<Said>) {
        let budget = self.service.limits.context_budget_chars as usize;
        fit(thread, budget.saturating_sub(self.system.len()));
    }

    async fn tell(&self, text: &str) -> Result<(), Closed> {
        if !self.envelope.takes_deltas() {
            return Ok(());
        }
        let chars: Vec<char> = text.chars().collect();
        for piece in chars.chunks(PIECE_CHARS) {
            self.emit.delta(&piece.iter().collect::<String>()).await?;
        }
        Ok(())
    }

    async fn ask_model(
        &self,
        messages: Vec<Said>,
        tools: Vec<ToolSpec>,
        told: Told,
    ) -> Result<Gathered, Failure> {
        let prompt = Prompt { system: self.system.clone(), messages };
        let ask = Ask { model: self.model.model.clone(), prompt, tools: tools.into(), ..Ask::default() };
        let mut stream = self.gateway()?.stream(ask);
        let aloud = matches!(told, Told::AsItComes) && self.envelope.takes_deltas();
        let mut said = Gathered::default();
        while let Some(batch) = stream.next().await {
            let mut text = String::new();
            for event in &batch {
                if let ModelEvent::Text(piece) = event {
                    text.push_str(piece);
                }
                said.push(event);
            }
            if aloud && !text.is_empty() {
                self.emit.delta(&text).await?;
            }
        }
        match said.end.take() {
            Some(Ok(Finish::Length)) => {
                self.emit.log("warn", "the model's answer was cut at its length limit").await?;
                Ok(said)
            }
            Some(Ok(_)) => Ok(said),
            Some(Err(fault)) => {
                let message = fault.message.replacen("OpenAI", "The gateway", 1);
                Err(Failure::new(fault.kind.code(), cut(&message, 2000)))
            }
            None => Err(Failure::new("model_error", "the model's answer has no end")),
        }
    }

    /// The gateway repeats calls to providers and keeps their time; here is only what keeps us from waiting for ever.
    fn gateway(&self) -> Result<OpenAi, Failure> {
        let limits = &self.service.limits;
        let seconds = (limits.model_retries + 1) * (limits.model_first_token_seconds + 30);
        let limits = ModelLimits {
            first_token: Duration::from_secs(seconds),
            idle: Duration::from_secs(limits.model_idle_seconds + 30),
            retries: 0,
            backoff: Duration::ZERO,
        };
        let (base, key) = (Some(self.model.base_url.as_str()), Some(self.model.api_key.clone()));
        OpenAi::new(base, key, self.service.client.clone(), limits).map_err(|_| {
            Failure::new("sandbox_config", "the gateway's address in the configuration is not a URL")
        })
    }
}

/// Leaves out the oldest of what was said before, and then what old calls came to, until the thread fits.
fn fit(thread: &mut Vec<Said>, budget: usize) {
    const LEFT_OUT: &str = "[left out: the conversation is too long]";
    let size = |said: &Said| match said {
        Said::User(words) => words.text.len(),
        Said::Assistant { text, calls } => {
            text.len() + calls.iter().map(|call| call.args.len()).sum::<usize>()
        }
        Said::Answers(answers) => answers.iter().map(|answer: &Answer| answer.text.len()).sum(),
    };
    let mut total: usize = thread.iter().map(size).sum();
    let newest = thread.iter().rposition(|said| matches!(said, Said::User(_))).unwrap_or(0);
    let mut from = 0;
    // A prompt begins with the user: an answer goes with its question.
    while from < newest && (total > budget || !matches!(thread[from], Said::User(_))) {
        total -= size(&thread[from]);
        from += 1;
    }
    thread.drain(..from);
    for said in thread {
        let Said::Answers(answers) = said else { continue };
        for answer in answers.iter_mut().filter(|answer| answer.text.len() > LEFT_OUT.len()) {
            if total <= budget {
                return;
            }
            total -= answer.text.len() - LEFT_OUT.len();
            LEFT_OUT.clone_into(&mut answer.text);
        }
    }
}
