//! The chat on a whole screen: keys, the run's events and the answers to what was asked are gathered here one by one, and
//! what `screen` makes of them is done. The terminal is given back as it was, whatever happens.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use crossterm::event::{DisableBracketedPaste, EnableBracketedPaste, Event, EventStream, KeyEventKind};
use crossterm::execute;
use futures_util::{Stream, StreamExt as _};
use ratatui::DefaultTerminal;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::api::{Listed, RunState, Server, Thread as Read};
use crate::clean::clean;
use crate::draw::draw;
use crate::failure::Failure;
use crate::files::{Chosen, Kept};
use crate::follow::{Item, Items, What, enqueue, follow};
use crate::picker::Picker;
use crate::queue::State;
use crate::screen::{Effect, Screen, Turn};
use crate::session::{Ask, Session};
use crate::thread::Thread;
use crate::{Open, Options};

/// How often the screen is drawn at most.
const FRAME: Duration = Duration::from_millis(33);
/// How often a server that does not answer is asked again.
const AGAIN: Duration = Duration::from_secs(1);
const MESSAGES: usize = 200;
const LISTED: usize = 50;

pub async fn run(session: Session, attach: Vec<Chosen>, options: &Options) -> Result<ExitCode, Failure> {
    let mut signals = Signals::new()?;
    let mut guard = Guard::new()?;
    let (answers, mut answered) = mpsc::channel(16);
    let mut app = App {
        session,
        screen: Screen::new(attach),
        tasks: TaskTracker::new(),
        items: None,
        joined: false,
        answers,
        watching: false,
        quit: false,
    };
    match (&options.open, app.session.conversation) {
        (Open::Pick, _) => {
            app.screen.picker = Some(Picker::new(""));
            app.perform(Effect::List(String::new()));
        }
        (_, Some(id)) => app.perform(Effect::Open(id)),
        _ => {}
    }
    let show = |screen: &mut Screen, server: &str| {
        guard.terminal.draw(|frame| draw(frame, screen, server)).map(drop)
    };
    gather(&mut app, EventStream::new(), &mut answered, signals.told(), show)
        .await
        .map_err(|error| Failure::Here(format!("the terminal: {error}")))?;
    drop(guard);
    app.farewell();
    Ok(ExitCode::SUCCESS)
}

/// Takes what comes until the chat ends. Every key that waits is taken before the next frame, so that text comes in as
/// fast as it is sent; a run's events only until a frame is due, so that no stream holds the screen still.
async fn gather(
    app: &mut App,
    mut keys: impl Stream<Item = std::io::Result<Event>> + Unpin,
    answered: &mut mpsc::Receiver<Answer>,
    told: impl Future<Output = ()>,
    mut show: impl FnMut(&mut Screen, &str) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let mut told = std::pin::pin!(told);
    let mut frames = tokio::time::interval(FRAME);
    let mut dirty = true;
    while !app.quit {
        tokio::select! {
            biased;
            () = &mut told => app.quit = true,
            key = keys.next() => match key {
                Some(Ok(event)) => app.terminal(event),
                // The terminal is gone.
                Some(Err(_)) | None => app.quit = true,
            },
            _ = frames.tick(), if dirty => {
                show(&mut app.screen, app.session.server.base())?;
                // From here on, however long it took to draw: what waits has its time before the next one.
                frames.reset();
                dirty = false;
                continue;
            }
            item = next(&mut app.items) => app.item(item),
            Some(answer) = answered.recv() => app.answer(answer),
        }
        app.forward();
        dirty = true;
    }
    Ok(())
}

async fn next(items: &mut Option<Items>) -> Option<Result<Item, Failure>> {
    match items {
        Some(items) => items.recv().await,
        None => std::future::pending().await,
    }
}

struct Signals(Signal, Signal);

impl Signals {
    fn new() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(|error| Failure::Here(format!("signals: {error}")));
        Ok(Self(listen(SignalKind::terminate())?, listen(SignalKind::hangup())?))
    }

    async fn told(&mut self) {
        tokio::select! { _ = self.0.recv() => {}, _ = self.1.recv() => {} }
    }
}

/// The whole screen, until it is dropped. A panic gives it back as well.
struct Guard {
    terminal: DefaultTerminal,
}

impl Guard {
    fn new() -> Result<Self, Failure> {
        let terminal =
            ratatui::try_init().map_err(|error| Failure::Here(format!("the terminal: {error}")))?;
        let _ = execute!(std::io::stdout(), EnableBracketedPaste);
        Ok(Self { terminal })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = execute!(std::io::stdout(), DisableBracketedPaste);
        let _ = ratatui::try_restore();
    }
}

/// A conversation, and its run under way.
type Opened = (Read, Option<RunState>);

/// What came of something that was asked of the server.
enum Answer {
    Listed(String, Result<Vec<Listed>, Failure>),
    Opened(Uuid, Result<Opened, Failure>),
    /// The same, after a run that was joined there.
    Joined(Uuid, Result<Opened, Failure>),
    /// The thread once more, with a message that another client sent.
    ReadAgain(Uuid, Result<Read, Failure>),
    Attached(Ask, Session, Result<Vec<Kept>, Failure>),
    /// The run of a message in the server's queue.
    Queued(Result<Uuid, Failure>),
    /// A message that is out of it again.
    TakenBack(Uuid, Result<(), Failure>),
    Files(Result<Vec<Kept>, Failure>),
    Saved(Result<PathBuf, Failure>),
    /// Of something that answers nothing.
    Done(Result<(), Failure>),
    /// Whether the server answers by now.
    Answers(bool),
}

struct App {
    session: Session,
    screen: Screen,
    tasks: TaskTracker,
    items: Option<Items>,
    /// The run is one that was under way when its conversation was opened.
    joined: bool,
    answers: mpsc::Sender<Answer>,
    /// A server that does not answer is being asked again.
    watching: bool,
    quit: bool,
}

impl App {
    fn terminal(&mut self, event: Event) {
        let effect = match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => self.screen.key(key),
            Event::Paste(text) => self.screen.paste(&text),
            // A new size is seen when it is drawn.
            _ => None,
        };
        if let Some(effect) = effect {
            self.perform(effect);
        }
    }

    fn item(&mut self, item: Option<Result<Item, Failure>>) {
        match item {
            Some(Ok(item)) => {
                if let Item::Run(run) = &item {
                    self.session.began();
                    if self.screen.turn == Turn::Recalled {
                        self.perform(Effect::Cancel(*run));
                    }
                }
                if let Item::Event(seen) = &item
                    && let domain::event::RunEvent::Turn(turn) = &seen.event
                {
                    self.session.conversation = turn.conversation.or(self.session.conversation);
                }
                if self.screen.item(item)
                    && let Some(id) = self.session.conversation
                {
                    let server = self.session.server.clone();
                    self.later(async move { Answer::ReadAgain(id, server.thread(id, MESSAGES).await) });
                }
            }
            Some(Err(failure)) => self.over(Some(&failure)),
            None => {
                self.over(None);
                self.title();
                self.join_next();
            }
        }
    }

    fn over(&mut self, failure: Option<&Failure>) {
        self.items = None;
        // Refused for good: where the server was busy it may have taken the turn before.
        if let Some(refused @ Failure::Refused { .. }) = failure
            && !refused.passes()
            && let Some(made) = self.session.unmake()
        {
            let server = self.session.server.clone();
            self.later(async move { Answer::Done(server.delete_conversation(made).await) });
        }
        self.screen.run_over(failure);
        self.watch();
        if let Some(effect) = self.screen.next_turn() {
            self.perform(effect);
        }
    }

    /// Messages for the queue, as soon as the conversation has an id to queue them in.
    fn forward(&mut self) {
        if self.session.conversation.is_some()
            && let Some(effect) = self.screen.forward()
        {
            self.perform(effect);
        }
    }

    /// After a run that was joined may come one that was queued before: it is joined as well.
    fn join_next(&mut self) {
        if let (true, Turn::Idle, Some(id)) = (self.joined, &self.screen.turn, self.session.conversation) {
            let server = self.session.server.clone();
            self.later(async move { Answer::Joined(id, open(&server, id).await) });
        }
    }

    /// A first turn gives a conversation its title.
    fn title(&mut self) {
        if let (true, Some(id)) = (self.screen.thread.title.is_empty(), self.session.conversation) {
            let server = self.session.server.clone();
            self.later(async move { Answer::ReadAgain(id, server.thread(id, 1).await) });
        }
    }

    /// What is said of a server that does not answer must not outlast it: it is asked until it does.
    fn watch(&mut self) {
        if self.screen.unanswered() && !std::mem::replace(&mut self.watching, true) {
            let server = self.session.server.clone();
            self.later(async move {
                tokio::time::sleep(AGAIN).await;
                Answer::Answers(server.answers().await)
            });
        }
    }

    fn later(&self, work: impl Future<Output = Answer> + Send + 'static) {
        let answers = self.answers.clone();
        self.tasks.spawn(async move {
            // Nobody waits for it once the chat has ended.
            let _ = answers.send(work.await).await;
        });
    }

    fn perform(&mut self, effect: Effect) {
        let (mut session, server) = (self.session.clone(), self.session.server.clone());
        match effect {
            Effect::Quit => self.quit = true,
            Effect::New => self.session.conversation = None,
            Effect::Ask(ask, files) => {
                self.joined = false;
                self.later(async move {
                    let attached = session.attach(&files).await;
                    Answer::Attached(ask, session, attached)
                });
            }
            Effect::Queue(text, files) => self.later(async move {
                let queued = async {
                    let attached = session.attach(&files).await?;
                    enqueue(&server, session.turn(&Ask::Message(text), &attached)).await
                };
                Answer::Queued(queued.await)
            }),
            Effect::Follow(run) => self.items = Some(follow(&self.tasks, &server, What::Run(run))),
            Effect::Cancel(run) => self.later(async move { Answer::Done(server.cancel(run).await) }),
            Effect::TakeBack(run) => {
                self.later(async move { Answer::TakenBack(run, server.cancel(run).await) })
            }
            Effect::List(query) => self.later(async move {
                let found = server.list(&query, LISTED).await;
                Answer::Listed(query, found)
            }),
            Effect::Open(id) => self.later(async move { Answer::Opened(id, open(&server, id).await) }),
            Effect::Files => self.later(async move { Answer::Files(files(&session).await) }),
            Effect::Save { name, to } => {
                self.later(async move { Answer::Saved(save(&session, &name, &to).await) })
            }
            Effect::Decide { run, approval, approve, why } => self.later(async move {
                Answer::Done(server.decide(run, &approval, approve, why.as_deref()).await)
            }),
        }
    }

    fn answer(&mut self, answer: Answer) {
        match answer {
            Answer::Listed(query, Ok(found)) => {
                if let Some(picker) = &mut self.screen.picker {
                    picker.found(&query, found);
                }
            }
            Answer::Opened(id, Ok((read, run))) => self.opened(id, &read, run),
            Answer::Joined(id, Ok((read, run))) => {
                // Unless something else was begun meanwhile.
                if run.is_some() && self.screen.turn == Turn::Idle && self.session.conversation == Some(id) {
                    self.opened(id, &read, run);
                }
            }
            Answer::Joined(_, Err(_)) => {}
            Answer::ReadAgain(id, Ok(read)) if self.session.conversation == Some(id) => {
                self.screen.read_again(&read);
            }
            Answer::ReadAgain(..) => {}
            Answer::Attached(ask, session, Ok(attached)) => {
                self.session = session;
                let body = self.session.turn(&ask, &attached);
                self.items = Some(follow(&self.tasks, &self.session.server, What::Turn(body)));
            }
            Answer::Attached(_, session, Err(failure)) => {
                self.session = session;
                self.over(Some(&failure));
            }
            Answer::Queued(Ok(run)) => {
                self.session.began();
                if !self.screen.thread.queue.taken(run) {
                    self.perform(Effect::Follow(run));
                    self.item(Some(Ok(Item::Run(run))));
                }
            }
            Answer::Queued(Err(failure)) => self.screen.not_queued(&failure),
            Answer::TakenBack(run, Ok(())) => self.screen.taken_back(State::Taken(run)),
            Answer::Files(Ok(files)) => self.screen.show_files(&files),
            Answer::Saved(Ok(path)) => self.screen.say(format!("Saved as {}", path.display())),
            Answer::Done(Ok(())) => {}
            Answer::Listed(_, Err(failure))
            | Answer::Opened(_, Err(failure))
            | Answer::TakenBack(_, Err(failure))
            | Answer::Files(Err(failure))
            | Answer::Saved(Err(failure))
            | Answer::Done(Err(failure)) => self.screen.failed(&failure),
            Answer::Answers(answers) => {
                self.watching = false;
                if answers {
                    self.screen.answered();
                }
            }
        }
        self.watch();
    }

    fn opened(&mut self, id: Uuid, read: &Read, run: Option<RunState>) {
        self.session.conversation = Some(id);
        self.screen.thread = Thread::load(&read.title, &read.messages);
        self.screen.offset = 0;
        self.items = None;
        self.screen.turn = Turn::Idle;
        self.joined = run.is_some();
        if let Some(run) = run {
            // A turn is under way: on from its first event, then live.
            self.screen.turn = Turn::Running(run.id);
            self.screen.thread.begin();
            self.items = Some(follow(&self.tasks, &self.session.server, What::Run(run.id)));
        }
    }

    fn farewell(&self) {
        use std::io::Write as _;
        for queued in self.screen.thread.queue.iter() {
            if !matches!(queued.state, State::Taken(_)) {
                let _ = writeln!(std::io::stderr(), "Not sent: {}", clean(&queued.text));
            }
        }
        if let Some(id) = self.session.conversation {
            let goes_on = if self.screen.turn == Turn::Idle { "" } else { "The turn goes on. " };
            let _ =
                writeln!(std::io::stderr(), "{goes_on}Come back with: threadkeep chat --conversation {id}");
        }
    }
}

async fn open(server: &Server, id: Uuid) -> Result<Opened, Failure> {
    Ok((server.thread(id, MESSAGES).await?, server.open_run(id).await?))
}

async fn files(session: &Session) -> Result<Vec<Kept>, Failure> {
    match session.conversation {
        Some(id) => session.server.files(id).await,
        None => Ok(Vec::new()),
    }
}

async fn save(session: &Session, name: &str, to: &Path) -> Result<PathBuf, Failure> {
    let kept = files(session).await?;
    let found = kept.iter().rev().find(|file| file.name == name);
    match (found, session.conversation) {
        (Some(file), Some(id)) => session.server.save(id, file, to).await,
        _ => Err(Failure::Here(format!("there is no file {name:?} here; /files lists them"))),
    }
}

#[cfg(test)]
#[path = "app_tests.rs"]
mod tests;
