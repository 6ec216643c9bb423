//! A run in a sandbox: the envelope goes out, lines come back and become events.

use domain::entry::{Dispatch as Sent, Trace};
use domain::event::{Log, Raw, RunEvent, Text};
use domain::line::Line;
use domain::message::Message;
use domain::secret::Secret;
use domain::window::replayed;
use store::turns::Dispatch;
use tokio_util::sync::CancellationToken;
use upstream::sandbox::{Accepts, ChatTurn, Envelope, EnvelopeMessage, Outcome, Received, Version};

use std::sync::Arc;

use crate::Turns;
use crate::drive::Stop;
use crate::error::TurnError;
use crate::failpoint::point;
use crate::log::{OPENING, RunLog};
use crate::settle::Ending;

impl Turns {
    /// Runs until the sandbox or `stop` ends it. What was received is stored before more is asked for.
    pub(crate) async fn run_in_sandbox(
        &self,
        log: &mut RunLog,
        dispatch: Box<Dispatch>,
        stop: Stop,
    ) -> Result<Ending, TurnError> {
        let (envelope, sent) = self.envelope(log, &dispatch);
        // Most of a run is waiting: what was said before is not kept in memory for it.
        drop(dispatch);
        log.trace(self.now_ms(), &Trace::Dispatch(sent))?;
        let Some(client) = &self.inner.sandbox else {
            return Ok(Ending::failed("sandbox_unreachable", "no sandbox is configured; set SANDBOX_URL"));
        };
        // Dropped with this function, which aborts the sandbox's request.
        let mut lines = client.stream(&envelope, CancellationToken::new());
        drop(envelope);
        let live = Arc::clone(log.live());
        let mut stop = std::pin::pin!(stop.wait());
        loop {
            let (received, results) = tokio::select! {
                biased;
                stopped = &mut stop => return stopped,
                // What the sandbox said before it sent them stands before them.
                () = live.results.notified() => (lines.at_hand().await, true),
                received = lines.next() => (received, false),
                () = tokio::time::sleep(OPENING), if log.is_pending() => (Vec::new(), false),
            };
            let mut ending = None;
            for item in received {
                ending = self.take(log, item)?.or(ending);
            }
            if results {
                log.log_results().await?;
            }
            // What came with the end is stored with the end.
            if let Some(ending) = ending {
                point!("sandbox.ended");
                return Ok(ending);
            }
            log.flush().await?;
        }
    }

    fn now_ms(&self) -> i64 {
        self.inner.clock.now().as_millisecond()
    }

    fn envelope(&self, log: &RunLog, dispatch: &Dispatch) -> (Envelope, Sent) {
        let limit = self.inner.limits.replay_turn_limit as usize;
        let lease = log.held.lease;
        let access = self.inner.agents.access(log.held.workspace, lease.run, lease.fence);
        let replayed = replayed(&dispatch.before, limit);
        let sent = Sent {
            messages: replayed.iter().map(|message| message.id).chain([dispatch.message.id]).collect(),
            cuts: cuts(dispatch, &replayed),
            model: None,
        };
        let envelope = Envelope {
            version: Version,
            session_id: lease.run,
            agent_url: access.agent_url,
            config_token: Secret::new(access.config_token),
            upload_otp: Secret::new(access.upload_otp),
            workspace_id: log.held.workspace,
            chat_id: dispatch.run.conversation,
            execution_id: dispatch.run.execution,
            workflow_id: dispatch
                .turn
                .workflow
                .clone()
                .or_else(|| dispatch.conversation.as_ref().and_then(|thread| thread.workflow_id.clone())),
            message: EnvelopeMessage {
                id: dispatch.message.id,
                content: dispatch.message.text.clone(),
                ts: dispatch.message.created_at.as_millisecond(),
            },
            conversation: replayed
                .into_iter()
                .map(|message| ChatTurn {
                    role: message.role.as_str().to_owned(),
                    content: message.text.clone(),
                    ts: message.created_at.as_millisecond(),
                })
                .collect(),
            accepts: Accepts,
        };
        (envelope, sent)
    }

    /// One received thing into the log; the ending, if it was one. An execution's lines are kept as they came.
    fn take(&self, log: &mut RunLog, received: Received) -> Result<Option<Ending>, TurnError> {
        let now = self.now_ms();
        match received {
            Received::Line { line, raw } => {
                let raw = raw.and_then(|raw| raw_line(&raw));
                let (ts, event) = match line {
                    Line::Log { level, message, ts } => {
                        (ts.unwrap_or(now), RunEvent::Log(Log { level, message, ts }))
                    }
                    Line::Step(mut step) => (step.arrived(now), RunEvent::Step(step)),
                    Line::Delta { text, ts } => (ts.unwrap_or(now), RunEvent::Delta(Text { text })),
                    // The outcome that follows says the same.
                    Line::Result { .. } | Line::Error { .. } => {
                        log.last_line = raw;
                        return Ok(None);
                    }
                };
                match (raw, event) {
                    (Some(raw), event) => log.forward(ts, &event, raw)?,
                    (None, RunEvent::Log(line)) => log.trace(ts, &Trace::Log(line))?,
                    (None, event) => log.event(ts, &event)?,
                }
            }
            Received::Rejected { raw, reason } => log.trace(now, &Trace::rejected(&raw, &reason))?,
            Received::Ignored { count, first } => {
                log.trace(now, &Trace::ignored(count, first.first().map_or(&[][..], |line| line)))?;
            }
            Received::End(outcome) => return Ok(Some(ending(outcome).said(log.last_line.take()))),
        }
        Ok(None)
    }
}

/// The bytes of a line that was understood: JSON.
fn raw_line(bytes: &[u8]) -> Option<Raw> {
    let text = std::str::from_utf8(bytes).ok()?.trim_start_matches('\u{feff}');
    serde_json::value::RawValue::from_string(text.trim().to_owned()).ok()
}

/// What of the thread was left out, in words.
fn cuts(dispatch: &Dispatch, replayed: &[&Message]) -> Vec<String> {
    let first = replayed.first().map_or(dispatch.message.seq, |message| message.seq);
    let between = dispatch.before.iter().filter(|message| message.seq >= first).count() - replayed.len();
    let mut cuts = Vec::new();
    if first > 1 {
        cuts.push(format!("the {} messages before the first one sent", first - 1));
    }
    if between > 0 {
        cuts.push(format!("{between} system messages"));
    }
    cuts
}

fn ending(outcome: Outcome) -> Ending {
    match outcome {
        Outcome::Result { message, ts } => Ending::succeeded(message, ts),
        Outcome::Error { code, message, ts } => Ending::failed_at(&code, message, ts),
        Outcome::Failed { code, message } => Ending::failed(code.as_str(), message),
        Outcome::Cancelled => Ending::cancelled("the run was cancelled"),
    }
}
