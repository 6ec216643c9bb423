//! One round of calls: announced and stored before any is made, made in parallel, each within its time, each result
//! cut once and stored before the model sees it.

use std::sync::Arc;
use std::time::Duration;

use domain::approval::Approval;
use domain::entry::{ToolOutput, Trace};
use domain::event::{RunEvent, Source, Sources, ToolCall, ToolCalls, ToolResult};
use domain::fold::INTERRUPTED;
use domain::message::Block;
use domain::model::{Call, ToolSpec, keepable};
use domain::prompt::FAILED;
use domain::run::Usage;
use domain::tool::{Planned, clip};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use serde_json::Value;
use serde_json::value::to_raw_value;
use tokio::time::MissedTickBehavior;

use super::people::LOOK;
use super::{Halt, ModelRun, until};
use crate::error::TurnError;
use crate::failpoint::point;
use crate::log::retry;
use crate::tools::{Output, Place, Tool};

/// A call that has come to its end.
struct Ended {
    id: String,
    name: String,
    outcome: Result<Output, String>,
}

impl ModelRun<'_> {
    pub(super) async fn make_calls(&mut self, round: u32, planned: Vec<Planned>) -> Result<(), Halt> {
        self.count().await?;
        let calls = planned.iter().map(|planned| planned.call.clone()).collect();
        self.log.event(self.turns.now(), &RunEvent::ToolCalls(ToolCalls { round, calls }))?;
        point!("tools.planned");
        // From here on it is known that they may have been made.
        self.log.flush().await?;
        point!("tools.announced");
        // What a client's tool can be given is for the client to say.
        let asks = |planned: &Planned| {
            let name = planned.call.name.as_str();
            self.is_brought(name) || (planned.args.is_ok() && self.asks_for(name))
        };
        let (asking, free): (Vec<Planned>, Vec<Planned>) = planned.into_iter().partition(asks);
        let asked = self.keep_calls(round, &asking).await?;
        // People are asked at once: what they have to think about does not wait for what needs nobody.
        self.ask_people(&asked).await?;
        self.see_through(round, free, asked).await
    }

    /// Counts what was used so far: whatever happens in the round, and whoever goes on with the run, it is known.
    async fn count(&mut self) -> Result<(), TurnError> {
        let inner = &self.turns.inner;
        let (used, now) = (std::mem::take(&mut self.used), inner.clock.now());
        self.counted.input_tokens += used.input_tokens;
        self.counted.output_tokens += used.output_tokens;
        if used == Usage::default() {
            return Ok(());
        }
        // Known by what it comes to: a commit whose answer was lost is not counted again.
        let total = Some(self.counted);
        retry(self.log.live(), || inner.store.count_usage(&self.log.held, used, total, now)).await
    }

    /// Whether a person must agree to calls of this tool, by whichever of its names.
    fn asks_for(&self, name: &str) -> bool {
        let also = |asked: &String| self.tool(name).is_some_and(|tool| tool.goes_by(asked));
        self.agent.asks_for(name) || self.agent.approval.iter().any(also)
    }

    fn tool(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        // Those of the client come after ours.
        self.specs.iter().position(|spec| spec.name == name).and_then(|at| self.tools.get(at))
    }

    /// What the model may call: once it has no calls of ours left, the client's tools alone.
    pub(super) fn offered(&self) -> Arc<[ToolSpec]> {
        match self.calls_left() {
            Some(0) => self.specs.iter().skip(self.tools.len()).cloned().collect(),
            _ => Arc::clone(&self.specs),
        }
    }

    /// Calls that are more than the model has are told to it, and not made.
    pub(super) fn refuse_more(&self, planned: &mut [Planned]) {
        let Some(left) = self.calls_left() else { return };
        let own = planned.iter_mut().filter(|planned| !self.is_brought(&planned.call.name));
        for planned in own.skip(left) {
            planned.args = Err("not made: there are no calls left for this answer".to_owned());
        }
    }

    /// How many calls of the server's tools the model has, where that is bounded.
    fn calls_left(&self) -> Option<usize> {
        let own = |block: &&Block| matches!(block, Block::ToolCall { name, .. } if !self.is_brought(name));
        let most = usize::try_from(self.max_calls?).unwrap_or(usize::MAX);
        Some(most.saturating_sub(self.log.fold.blocks().iter().filter(own).count()))
    }

    /// Whether calls of this name are the client's to make.
    pub(super) fn is_brought(&self, name: &str) -> bool {
        self.specs.iter().skip(self.tools.len()).any(|spec| spec.name == name)
    }

    /// A model may leave out whose tool it calls: the name that its server has for it will do, if one tool alone has it.
    pub(super) fn name_calls(&self, calls: &mut [Call]) {
        let known = |name: &str| self.specs.iter().any(|spec| spec.name == name);
        for call in calls.iter_mut().filter(|call| !known(&call.name)) {
            let mut alike = self.tools.iter().filter(|tool| tool.goes_by(&call.name));
            if let (Some(tool), None) = (alike.next(), alike.next()) {
                call.name = tool.spec().name;
            }
        }
    }

    /// Makes calls in parallel, each within its time, and beside them those that people agree to, until no call of the
    /// round is open.
    pub(super) async fn see_through(
        &mut self,
        round: u32,
        free: Vec<Planned>,
        mut open: Vec<Approval>,
    ) -> Result<(), Halt> {
        let mut under_way: FuturesUnordered<_> =
            free.into_iter().map(|planned| self.making(planned)).collect();
        // The first look is at once: a decision may be older than this process.
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !open.is_empty() || !under_way.is_empty() {
            let may_leave = under_way.is_empty();
            let next = async {
                tokio::select! {
                    biased;
                    Some(ended) = under_way.next() => Some(ended),
                    _ = look.tick(), if !open.is_empty() => None,
                }
            };
            let ended = tokio::select! {
                biased;
                // What is under way is seen to its end first: the next node could not say what came of it.
                () = self.turns.inner.draining.cancelled(), if may_leave => return Err(Halt::Left),
                next = until(&mut self.stop, next) => next?,
            };
            match ended {
                Some(ended) => {
                    self.record(round, ended)?;
                    point!("tools.made");
                    self.log.flush().await?;
                    point!("tools.stored");
                }
                None => {
                    let approved = self.hear_people(round, &mut open).await?;
                    under_way.extend(approved.into_iter().map(|planned| self.making(planned)));
                }
            }
        }
        Ok(())
    }

    /// Ends a call that is not made.
    pub(super) fn end_call(&mut self, round: u32, call: ToolCall, reason: String) -> Result<(), TurnError> {
        self.record(round, Ended { id: call.id, name: call.name, outcome: Err(reason) })
    }

    /// Ends a call that the client has made.
    pub(super) fn end_brought(
        &mut self,
        round: u32,
        call: ToolCall,
        result: String,
    ) -> Result<(), TurnError> {
        let outcome = Ok(Output { value: Value::String(result), sources: Vec::new() });
        self.record(round, Ended { id: call.id, name: call.name, outcome })
    }

    /// Ends a call of which nobody knows whether it was made.
    pub(super) fn end_unknown(&mut self, round: u32, id: &str) -> Result<(), TurnError> {
        let name = self.log.fold.blocks().iter().find_map(|block| match block {
            Block::ToolCall { id: own, name, round: at, .. } if own == id && *at == round => {
                Some(name.clone())
            }
            _ => None,
        });
        let (name, outcome) = (name.unwrap_or_default(), Err(INTERRUPTED.to_owned()));
        self.record(round, Ended { id: id.to_owned(), name, outcome })
    }

    fn making(&self, planned: Planned) -> impl Future<Output = Ended> + Send + 'static {
        let Planned { call, args } = planned;
        let patience = Duration::from_secs(self.turns.inner.limits.tool_timeout_seconds);
        let tool = self.tool(&call.name).cloned();
        let place = self.place.clone();
        async move {
            let outcome = match (tool, args) {
                (_, Err(reason)) => Err(reason),
                (None, Ok(_)) => Err(format!("there is no tool {:?}", call.name)),
                (Some(tool), Ok(args)) => make(&*tool, &place, args, patience).await,
            };
            Ended { id: call.id, name: call.name, outcome }
        }
    }

    /// The result into the log: what the model sees is what is kept, and the whole of it is in the trace.
    fn record(&mut self, round: u32, ended: Ended) -> Result<(), TurnError> {
        let Ended { id, name, outcome } = ended;
        let now = self.turns.now();
        let max = self.turns.inner.limits.tool_result_chars as usize;
        let mut event = ToolResult { id, name, result: None, error: None, truncated: false, round };
        let mut sources = Vec::new();
        let whole = match outcome {
            Err(reason) => {
                let reason = keepable(&reason);
                let (error, truncated) = clip(&reason, max.saturating_sub(FAILED.len()));
                (event.error, event.truncated) = (Some(error), truncated);
                reason
            }
            Ok(output) => {
                sources = output.sources;
                let whole = match &output.value {
                    Value::String(text) => keepable(text),
                    other => keepable(&other.to_string().replace("\\u0000", "\\ufffd")),
                };
                let (kept, truncated) = clip(&whole, max);
                event.truncated = truncated;
                // JSON that was cut is a text.
                event.result = match output.value {
                    Value::String(_) => to_raw_value(&kept).ok(),
                    _ if truncated => to_raw_value(&kept).ok(),
                    _ => serde_json::from_str(&whole).ok(),
                };
                whole
            }
        };
        if event.truncated {
            let output = ToolOutput { id: event.id.clone(), round, output: whole };
            self.log.trace(now, &Trace::ToolOutput(output))?;
        }
        self.log.event(now, &RunEvent::ToolResult(event))?;
        self.cite(now, sources)
    }

    /// What was cited before is not cited again.
    fn cite(&mut self, now: i64, mut sources: Vec<Source>) -> Result<(), TurnError> {
        let cited = |id: &str| {
            let blocks = self.log.fold.blocks().iter();
            blocks.into_iter().any(|block| matches!(block, Block::Source(known) if known.id == id))
        };
        sources.retain(|source| !cited(&source.id));
        if sources.is_empty() {
            return Ok(());
        }
        self.log.event(now, &RunEvent::Sources(Sources { sources }))
    }
}

async fn make(tool: &dyn Tool, place: &Place, args: Value, patience: Duration) -> Result<Output, String> {
    match tokio::time::timeout(patience, tool.call(place, args)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(format!("the tool did not answer within {} s", patience.as_secs())),
    }
}
