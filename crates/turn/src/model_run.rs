//! A run by a model: the thread goes out within its budget, words come back and become events, calls are announced,
//! stored, made on the server and answered, round by round. What to do next is decided in `domain::tool`; here it is
//! done.

mod agent;
mod files;
mod material;
mod people;
mod round;
mod summary;

use std::pin::Pin;
use std::sync::Arc;

use domain::agent::{Agent, AgentSettings};
use domain::budget::{Fitted, fit};
use domain::entry::{Dispatch as Sent, Trace};
use domain::event::{RunEvent, Text};
use domain::file::Bag;
use domain::kept::Kept;
use domain::model::{Ask, Choice, Finish, Gathered, Manner, ModelEvent, ModelFault, Prompt, ToolSpec};
use domain::run::{BroughtTool, Usage, UsageDetails};
use domain::tool::{Next, next};
use futures_util::StreamExt as _;
use serde_json::json;
use store::turns::Dispatch;
use upstream::llm::models::Found;

use crate::Turns;
use crate::drive::Stop;
use crate::error::TurnError;
use crate::failpoint::point;
use crate::log::{OPENING, RunLog};
use crate::settle::Ending;
use crate::tools::{Place, Tool};
use summary::SUMMARY_CHARS;

/// What `finish` is in the metadata of an answer that a limit has cut.
const CUT: &str = "length";
/// And of one that the model refused, or a filter of its provider.
const REFUSED: &str = "content_filter";

/// What is to be run.
pub(crate) struct Job {
    pub(crate) dispatch: Box<Dispatch>,
    pub(crate) agent: Option<Agent>,
    /// Another node began it, and left it waiting for a person.
    pub(crate) goes_on: bool,
}

/// What ends a run before it has come to its own end.
pub(crate) enum Halt {
    Ending(Ending),
    Error(TurnError),
    /// It waits for a person, and this node is to stop: the next one goes on with it.
    Left,
}

impl From<TurnError> for Halt {
    fn from(error: TurnError) -> Self {
        Self::Error(error)
    }
}

impl From<ModelFault> for Halt {
    fn from(fault: ModelFault) -> Self {
        Self::Ending(Ending::failed(fault.kind.code(), fault.message))
    }
}

type Stopping<'s> = Pin<&'s mut (dyn Future<Output = Result<Ending, TurnError>> + Send)>;

/// A run by a model while it is under way.
struct ModelRun<'r> {
    turns: &'r Turns,
    log: &'r mut RunLog,
    stop: Stopping<'r>,
    place: Place,
    /// The model's whole name.
    name: String,
    model: Found,
    tools: Vec<Arc<dyn Tool>>,
    specs: Arc<[ToolSpec]>,
    agent: AgentSettings,
    material: material::Thread,
    read: files::Read,
    /// What calls of the model have used since it was last counted.
    used: Usage,
    /// Of what kinds all of that was, since this process has the run.
    details: UsageDetails,
    /// What the run has used before, and is stored already.
    counted: Usage,
    /// What the provider wants back as it said it.
    kept: Kept,
    /// Why the newest answer has less than the model would have said, as its metadata say it.
    short: Option<&'static str>,
    manner: Manner,
    max_tokens: Option<u64>,
    max_calls: Option<u64>,
    comes_back: bool,
}

impl Turns {
    /// Runs until the model has answered or `stop` ends it. What was received is stored before more is asked for.
    /// `None` when it is left for another node.
    pub(crate) async fn run_with_model(
        &self,
        log: &mut RunLog,
        job: Job,
        stop: Stop,
    ) -> Result<Option<Ending>, TurnError> {
        let mut stop = std::pin::pin!(stop.wait());
        let goes_on = job.goes_on;
        let mut run = match Box::pin(self.prepare(log, job, stop.as_mut())).await {
            Ok(run) => run,
            Err(Halt::Ending(ending)) => return Ok(Some(ending)),
            Err(Halt::Error(error)) => return Err(error),
            Err(Halt::Left) => return Ok(None),
        };
        let ending = match run.converse(goes_on).await {
            Ok(ending) | Err(Halt::Ending(ending)) => ending,
            Err(Halt::Error(error)) => return Err(error),
            Err(Halt::Left) => return Ok(None),
        };
        let mut metadata = json!({ "model": run.name, "context_from": run.material.first_sent() });
        if let Some(summary) = run.material.new_summary() {
            metadata["context_summary"] = json!(summary);
        }
        let (used, counted) = (run.used, run.counted);
        metadata["usage"] = json!(run.details);
        metadata["usage"]["input_tokens"] = json!(counted.input_tokens + used.input_tokens);
        metadata["usage"]["output_tokens"] = json!(counted.output_tokens + used.output_tokens);
        if let Some(short) = run.short {
            metadata["finish"] = json!(short);
        }
        Ok(Some(ending.with_usage(used, counted).with_metadata(metadata.to_string())))
    }

    async fn prepare<'r>(
        &'r self,
        log: &'r mut RunLog,
        Job { dispatch, agent, .. }: Job,
        mut stop: Stopping<'r>,
    ) -> Result<ModelRun<'r>, Halt> {
        let inner = &self.inner;
        let chosen = self.chosen_model(log, &dispatch, agent.as_ref()).await?;
        let name = match chosen {
            Some(chosen) => chosen,
            None => until(&mut stop, inner.models.default_model()).await?,
        };
        let model = inner.models.find(&name)?;
        let held = log.held;
        let mut offered = until(&mut stop, self.tools_of(&held, agent.as_ref())).await?;
        for text in offered.missing {
            log.trace(self.now(), &Trace::Note { text })?;
        }
        let brought = &dispatch.turn.brought;
        // A client that names its own as one of ours wants its own.
        offered.tools.retain(|tool| !brought.makes(&tool.spec().name));
        let own = offered.tools.iter().map(|tool| tool.spec());
        let specs = own.chain(brought.tools.iter().filter_map(BroughtTool::spec)).collect();
        let tools = offered.tools;
        let system = agent::system(agent.as_ref(), dispatch.turn.brought.instructions.as_deref());
        let material = material::Thread::read(self, log, &dispatch, system, model.takes).await?;
        let place = Place {
            workspace: log.held.workspace,
            conversation: dispatch.run.conversation,
            execution: dispatch.run.execution,
            run: log.held.lease.run,
            user: dispatch
                .conversation
                .as_ref()
                .map_or_else(|| dispatch.user.clone(), |thread| thread.owner.clone()),
        };
        let agent = agent.map(|agent| agent.settings).unwrap_or_default();
        Ok(ModelRun {
            turns: self,
            log,
            stop,
            place,
            name,
            model,
            tools,
            specs,
            agent,
            material,
            read: files::Read::new(),
            used: Usage::default(),
            details: UsageDetails::default(),
            counted: dispatch.run.usage,
            kept: Kept::default(),
            short: None,
            manner: brought.manner.clone(),
            max_tokens: brought.max_tokens,
            max_calls: brought.max_calls,
            comes_back: brought.comes_back,
        })
    }

    pub(crate) fn now(&self) -> i64 {
        self.inner.clock.now().as_millisecond()
    }
}

impl ModelRun<'_> {
    async fn converse(&mut self, goes_on: bool) -> Result<Ending, Halt> {
        let rounds = u32::try_from(self.turns.inner.limits.max_tool_rounds).unwrap_or(u32::MAX);
        let rounds = self.agent.max_rounds.map_or(rounds, |own| own.min(rounds));
        let first = if goes_on { self.go_on().await? + 1 } else { 1 };
        for round in first.. {
            let none = self.manner.choice == Some(Choice::None);
            let offered = if round <= rounds && !none { self.offered() } else { Arc::default() };
            let mut answer = self.ask(round, Arc::clone(&offered)).await?;
            let blocks = std::mem::take(&mut answer.blocks);
            self.name_calls(&mut answer.calls);
            match next(answer, &offered, round) {
                Next::Answer(_) => return Ok(self.answer()),
                Next::GoOn(_) if round <= rounds => self.kept.pause(blocks),
                Next::GoOn(_) => {
                    self.short = Some(CUT);
                    return Ok(self.answer());
                }
                Next::Round(mut planned) => {
                    self.refuse_more(&mut planned);
                    self.kept.calls(self.material.next_call(self.log.fold.blocks()), blocks);
                    self.make_calls(round, planned).await?;
                }
                Next::Failed(fault) => return Err(fault.into()),
                Next::Exhausted => break,
            }
        }
        let message = format!("the model went on calling tools after {rounds} rounds and gave no answer");
        Ok(Ending::failed("tool_rounds_exhausted", message))
    }

    /// The end, with all that was said since the last call or thought: an answer may have come in parts. What was said
    /// before a thought that came last is in the log, and would stand there twice.
    fn answer(&self) -> Ending {
        Ending::succeeded(self.log.fold.last_text().unwrap_or_default().to_owned(), None)
    }

    /// One call of the model, its words streamed into the log.
    async fn ask(&mut self, round: u32, tools: Arc<[ToolSpec]>) -> Result<Gathered, Halt> {
        let mut prompt = self.say(round).await?;
        point!("model.asked");
        let (model, mut manner, max_tokens) = (self.model.name.clone(), self.manner.clone(), self.max_tokens);
        if round > 1 {
            manner = manner.later();
        }
        // A provider refuses what names a tool that it is not given.
        manner.choice = manner.choice.filter(|choice| match choice {
            Choice::Tool(name) => tools.iter().any(|tool| tool.name == *name),
            Choice::None | Choice::Auto | Choice::Any => true,
        });
        let kept = self.kept.within(&mut prompt);
        let ask = Ask { model, prompt, tools, max_tokens, manner, kept, verbatim: None };
        let mut stream = self.model.model.stream(ask);
        let (mut gathered, before, details) = (Gathered::default(), self.used, self.details);
        loop {
            let opening = self.log.is_pending();
            let heard = async {
                tokio::select! {
                    biased;
                    batch = stream.next() => batch,
                    () = tokio::time::sleep(OPENING), if opening => Some(Vec::new()),
                }
            };
            let Some(batch) = until(&mut self.stop, heard).await? else { break };
            let waited = batch.is_empty();
            for event in batch {
                self.hear(&event)?;
                gathered.push(&event);
            }
            // Counted as it goes: whatever ends the run, what was used is known.
            self.used.input_tokens = before.input_tokens + gathered.usage.input_tokens;
            self.used.output_tokens = before.output_tokens + gathered.usage.output_tokens;
            self.details = details + gathered.details;
            // What came with the end of an answer is stored with what follows it.
            if waited || gathered.end.is_none() {
                self.log.flush().await?;
            }
        }
        self.short = match &gathered.end {
            Some(Ok(Finish::Length)) => Some(CUT),
            Some(Ok(Finish::Refused)) => Some(REFUSED),
            _ => None,
        };
        let note = match &gathered.end {
            Some(Ok(Finish::Length)) => Some("the model stopped at its limit: the answer is cut"),
            Some(Ok(Finish::Refused)) => Some("the model refused, or its provider did"),
            Some(Ok(Finish::Paused)) => Some("the model paused: it is to go on with its answer"),
            _ => None,
        };
        if let Some(note) = note {
            self.log.trace(self.turns.now(), &Trace::Note { text: note.into() })?;
        }
        Ok(gathered)
    }

    /// What is sent, files and all, and told of in the trace.
    async fn say(&mut self, round: u32) -> Result<Prompt, Halt> {
        let mut fitted = self.fit().await?;
        let mut prompt = std::mem::take(&mut fitted.prompt);
        let files = self.fill(&mut prompt).await?;
        self.tell(round, &fitted, &files)?;
        self.material.from = fitted.from;
        Ok(prompt)
    }

    /// What fits, with a summary of the rest where one is wanted.
    async fn fit(&mut self) -> Result<Fitted, Halt> {
        let inner = &self.turns.inner;
        let budget = inner.limits.context_budget_chars as usize;
        // A summary has its own room, so that it moves nothing.
        let room = if inner.context_summary { budget - SUMMARY_CHARS.min(budget / 4) } else { budget };
        let fit_all = |run: &Self| {
            let summary = run.material.summary_chars();
            fit(run.material.with(run.log.fold.blocks()), run.material.from, (room + summary).min(budget))
        };
        let fitted = fit_all(self);
        if self.material.summary_is_for(fitted.from) {
            return Ok(fitted);
        }
        self.sum_up(fitted.from).await?;
        self.material.from = fitted.from;
        Ok(fit_all(self))
    }

    fn bag(&self) -> Bag {
        self.place.conversation.map_or(Bag::Workspace, Bag::Conversation)
    }

    fn note(&mut self, text: String) -> Result<(), TurnError> {
        self.log.trace(self.turns.now(), &Trace::Note { text })
    }

    fn hear(&mut self, event: &ModelEvent) -> Result<(), TurnError> {
        let now = self.turns.now();
        match event {
            ModelEvent::Text(text) => self.log.event(now, &RunEvent::Delta(Text { text: text.clone() })),
            ModelEvent::Reasoning(text) => {
                self.log.event(now, &RunEvent::Reasoning(Text { text: text.clone() }))
            }
            ModelEvent::Call(_)
            | ModelEvent::Blocks(_)
            | ModelEvent::Usage(_)
            | ModelEvent::Details(_)
            | ModelEvent::Own(_)
            | ModelEvent::End(_) => Ok(()),
        }
    }

    /// What this call of the model is given, for the trace.
    fn tell(&mut self, round: u32, fitted: &Fitted, files: &[String]) -> Result<(), TurnError> {
        let now = self.turns.now();
        let sent = Sent {
            messages: self.material.ids(fitted.from),
            cuts: self.material.cuts(fitted),
            model: Some(self.name.clone()),
        };
        self.log.trace(now, &Trace::Dispatch(sent))?;
        let with = match files {
            [] => String::new(),
            files => format!(", with the files {}", files.join(", ")),
        };
        self.note(format!("call {round} of the model {}{with}", self.name))
    }
}

/// Waits for something of somebody else's, or for the run's end.
async fn until<T>(stop: &mut Stopping<'_>, work: impl Future<Output = T>) -> Result<T, Halt> {
    tokio::select! {
        biased;
        stopped = stop => Err(stopped.map_or_else(Halt::Error, Halt::Ending)),
        done = work => Ok(done),
    }
}
