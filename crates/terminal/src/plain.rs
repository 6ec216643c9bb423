//! The chat without a screen. A pipe is one message, up to its end; a person's lines are one message each. The answer
//! goes to standard output as it comes, everything else to standard error; with `--json` each event is a line.

use std::io::{IsTerminal as _, Read as _, Write as _};
use std::process::ExitCode;

use domain::event::RunEvent;
use domain::run::RunStatus;
use serde_json::value::RawValue;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::clean::clean;
use crate::failure::Failure;
use crate::files::Chosen;
use crate::follow::{Item, Seen, What, follow};
use crate::printer::{Piece, Printer};
use crate::session::{Ask, Session};
use crate::{Open, Options};

pub async fn run(
    mut session: Session,
    mut attach: Vec<Chosen>,
    options: &Options,
) -> Result<ExitCode, Failure> {
    if options.open == Open::Pick {
        return Err(Failure::Here("--pick needs a terminal; name one with --conversation".to_owned()));
    }
    let mut turns = Turns::new(options.json)?;
    let mut code = ExitCode::SUCCESS;
    if !std::io::stdin().is_terminal() {
        let Some(message) = turns.input(whole_input).await else { return Ok(ExitCode::FAILURE) };
        let succeeded = turns.turn(&mut session, message?, &attach).await?;
        return Ok(if succeeded { code } else { ExitCode::FAILURE });
    }
    loop {
        aside("> ", false);
        match turns.input(one_line).await.transpose()?.flatten() {
            None => return Ok(code),
            Some(line) if line.trim().is_empty() => {}
            Some(line) => {
                let succeeded = turns.turn(&mut session, line, &std::mem::take(&mut attach)).await?;
                code = if succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE };
            }
        }
    }
}

fn one_line() -> Result<Option<String>, Failure> {
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line);
    let read = read.map_err(|error| Failure::Here(format!("standard input: {error}")))?;
    Ok((read > 0).then_some(line))
}

fn whole_input() -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let read = std::io::stdin().lock().read_to_end(&mut bytes);
    read.map_err(|error| Failure::Here(format!("standard input: {error}")))?;
    let text = String::from_utf8(bytes)
        .map_err(|_| Failure::Here("standard input is not UTF-8 text; attach it with --attach".to_owned()))?;
    Ok(text)
}

/// One turn after the other.
struct Turns {
    json: bool,
    tasks: TaskTracker,
    /// Control characters reach a file or another program as they are, a terminal never.
    raw: bool,
    interrupt: Signal,
    terminate: Signal,
}

impl Turns {
    fn new(json: bool) -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(|error| Failure::Here(format!("signals: {error}")));
        Ok(Self {
            json,
            tasks: TaskTracker::new(),
            raw: !std::io::stdout().is_terminal(),
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    /// What a blocking read answers; `None` when we are told to end meanwhile.
    async fn input<T: Send + 'static>(&mut self, read: fn() -> T) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        // A thread of its own, which an end of the process does not wait for.
        std::thread::spawn(move || answer.send(read()));
        tokio::select! {
            read = answered => read.ok(),
            _ = self.interrupt.recv() => None,
            _ = self.terminate.recv() => None,
        }
    }

    /// Whether it succeeded.
    async fn turn(
        &mut self,
        session: &mut Session,
        message: String,
        attach: &[Chosen],
    ) -> Result<bool, Failure> {
        let message = message.trim_end_matches(['\n', '\r']).to_owned();
        if message.trim().is_empty() {
            return Err(Failure::Here("the message is empty: standard input had no text".to_owned()));
        }
        let attached = session.attach(attach).await?;
        let body = session.turn(&Ask::Message(message), &attached);
        let mut items = follow(&self.tasks, &session.server, What::Turn(body));
        let (mut run, mut status, mut printer) = (None, None, Printer::default());
        let mut stopping = false;
        loop {
            let item = tokio::select! {
                item = items.recv() => item,
                _ = self.interrupt.recv() => { stopping = self.stop(session, run, stopping).await?; continue }
                _ = self.terminate.recv() => { stopping = self.stop(session, run, stopping).await?; continue }
            };
            // Refused for good: where the server was busy it may have taken the turn before.
            if let Some(Err(failure @ Failure::Refused { .. })) = &item
                && !failure.passes()
            {
                session.take_back().await;
            }
            match item.transpose()? {
                None => return Ok(status == Some(RunStatus::Succeeded)),
                Some(Item::Run(id)) => {
                    run = Some(id);
                    session.began();
                    if stopping {
                        session.server.cancel(id).await?;
                    }
                }
                Some(Item::Away(why)) => aside(&format!("… {} Trying again.", sentence(&why)), true),
                Some(Item::Back) => {}
                // Nothing of it is printed twice: only the end is still of interest.
                Some(Item::Again) => printer = Printer::default(),
                Some(Item::Event(seen)) => {
                    if let RunEvent::Turn(turn) = &seen.event {
                        session.conversation = turn.conversation.or(session.conversation);
                    }
                    if let RunEvent::Done(done) = &seen.event {
                        status = Some(done.status);
                    }
                    if !self.print(&mut printer, &seen) {
                        // Nobody reads on: the question is taken back.
                        self.stop(session, run, false).await?;
                        return Ok(false);
                    }
                }
            }
        }
    }

    /// The first time the run is asked to end, as soon as it is known, which its events tell; the second time we end.
    async fn stop(&self, session: &Session, run: Option<Uuid>, again: bool) -> Result<bool, Failure> {
        match run {
            Some(run) if !again => session.server.cancel(run).await.map(|()| true),
            None if !again => Ok(true),
            _ => Err(Failure::Here("interrupted".to_owned())),
        }
    }

    /// False when standard output is gone.
    fn print(&self, printer: &mut Printer, seen: &Seen) -> bool {
        if self.json {
            let Ok(data) = RawValue::from_string(seen.data.clone()) else { return true };
            let line = serde_json::json!({ "id": seen.seq, "event": seen.event.name(), "data": data });
            return write(&format!("{line}\n"));
        }
        printer.push(&seen.event).into_iter().all(|piece| match piece {
            Piece::Answer(text) if self.raw => write(&text),
            Piece::Answer(text) => write(&clean(&text)),
            Piece::Aside(line) => {
                aside(&line, true);
                true
            }
        })
    }
}

fn write(text: &str) -> bool {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_ok()
}

fn aside(text: &str, line: bool) {
    let end = if line { "\n" } else { "" };
    let mut out = std::io::stderr().lock();
    let _ = write!(out, "{text}{end}").and_then(|()| out.flush());
}

fn sentence(text: &str) -> String {
    let text = crate::clean::one_line(text, 300);
    if text.ends_with('.') { text } else { format!("{text}.") }
}
