//! The state of the chat on a screen, and what each key, event and answer makes of it. What is to be done about it comes
//! back as data (`Effect`) for `app` to do. Pure.

use std::collections::VecDeque;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use domain::event::RunEvent;
use uuid::Uuid;

use crate::clean::one_line;
use crate::command::{Command, HELP, parse, typed};
use crate::editor::Editor;
use crate::failure::Failure;
use crate::files::{Chosen, Kept, choose, size};
use crate::follow::{Item, Seen};
use crate::notice::{About, Notice};
use crate::picker::{Picked, Picker};
use crate::queue::State;
use crate::session::Ask;
use crate::thread::{Entry, Thread};

/// What the chat wants done.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect {
    Ask(Ask, Vec<Chosen>),
    /// A message for the server's queue.
    Queue(String, Vec<Chosen>),
    /// The events of a run from its queue.
    Follow(Uuid),
    Cancel(Uuid),
    /// A run out of the server's queue.
    TakeBack(Uuid),
    List(String),
    Open(Uuid),
    New,
    Files,
    Save {
        name: String,
        to: std::path::PathBuf,
    },
    Decide {
        run: Uuid,
        approval: String,
        approve: bool,
        why: Option<String>,
    },
    Quit,
}

/// How far the turn under way has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turn {
    Idle,
    /// Sent, not heard of yet.
    Sent,
    /// The same, and to be stopped as soon as it is heard of.
    Recalled,
    Running(Uuid),
    Stopping(Uuid),
}

/// A call that waits for a person.
#[derive(Debug)]
pub struct Approval {
    id: String,
    /// The call's id, by which its end is known.
    of: String,
    pub call: String,
}

#[derive(Debug)]
pub struct Screen {
    pub thread: Thread,
    pub editor: Editor,
    pub turn: Turn,
    pub picker: Option<Picker>,
    pub attached: Vec<Chosen>,
    /// Those of the message that was sent, until it is heard of.
    asked: Vec<Chosen>,
    /// The message that is being changed.
    pub editing: Option<Uuid>,
    /// The first is asked about.
    pub approvals: VecDeque<Approval>,
    pub status: Option<Notice>,
    pub away: bool,
    /// Lines between the window and the end.
    pub offset: usize,
    pub page: usize,
}

impl Screen {
    pub fn new(attached: Vec<Chosen>) -> Self {
        Self {
            thread: Thread::default(),
            editor: Editor::default(),
            turn: Turn::Idle,
            picker: None,
            attached,
            asked: Vec::new(),
            editing: None,
            approvals: VecDeque::new(),
            status: None,
            away: false,
            offset: 0,
            page: 10,
        }
    }

    pub fn say(&mut self, text: impl AsRef<str>) {
        self.status = Some(Notice::new(text.as_ref(), false, About::Past));
    }

    fn fail(&mut self, text: impl AsRef<str>) {
        self.status = Some(Notice::new(text.as_ref(), true, About::Past));
    }

    pub fn failed(&mut self, failure: &Failure) {
        let about = if failure.unanswered() { About::Server } else { About::Past };
        self.status = Some(Notice::new(&failure.to_string(), true, about));
    }

    /// Whether it is said that the server does not answer.
    pub fn unanswered(&self) -> bool {
        self.status.as_ref().is_some_and(|notice| notice.about == About::Server)
    }

    /// The server has answered.
    pub fn answered(&mut self) {
        self.no_longer(About::Server);
    }

    fn no_longer(&mut self, about: About) {
        self.status.take_if(|notice| notice.about == about);
    }

    pub fn paste(&mut self, text: &str) -> Option<Effect> {
        match &mut self.picker {
            Some(picker) => {
                picker.typed(&one_line(text, 200));
                Some(Effect::List(picker.query().to_owned()))
            }
            None => {
                self.editor.insert(text);
                None
            }
        }
    }

    pub fn key(&mut self, key: KeyEvent) -> Option<Effect> {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if control && key.code == KeyCode::Char('c') {
            return self.interrupt();
        }
        if let Some(picker) = &mut self.picker {
            return match picker.key(key)? {
                Picked::Search(query) => Some(Effect::List(query)),
                Picked::Open(id) => {
                    self.picker = None;
                    Some(Effect::Open(id))
                }
                Picked::Nothing => {
                    self.picker = None;
                    None
                }
            };
        }
        match key.code {
            KeyCode::Enter if key.modifiers.intersects(KeyModifiers::ALT | KeyModifiers::SHIFT) => {
                self.editor.insert("\n");
            }
            KeyCode::Enter => return self.enter(),
            KeyCode::Char('j') if control => self.editor.insert("\n"),
            KeyCode::Char('d') if control && self.editor.is_empty() => return Some(Effect::Quit),
            KeyCode::PageUp => self.offset += self.page.max(1),
            KeyCode::PageDown => self.offset = self.offset.saturating_sub(self.page.max(1)),
            KeyCode::Esc => {
                if self.editing.take().is_some() {
                    self.editor.clear();
                }
                self.status = None;
            }
            KeyCode::Up if self.editor.is_empty() && self.thread.queue.len() > 0 => {
                return self.take_back();
            }
            _ => edit(&mut self.editor, key),
        }
        None
    }

    /// The newest message that waits is typed again: at once, or when it is out of the server's queue.
    fn take_back(&mut self) -> Option<Effect> {
        match self.thread.queue.last()? {
            State::Typed => self.taken_back(State::Typed),
            // It can be once it is there.
            State::Sent => {}
            State::Taken(run) => return Some(Effect::TakeBack(run)),
        }
        None
    }

    /// Not if its turn has come meanwhile.
    pub fn taken_back(&mut self, state: State) {
        if let Some(queued) = self.thread.queue.remove(state) {
            self.editor.put_back(&typed(&queued.text));
            self.attached.extend(queued.files);
        }
    }

    fn interrupt(&mut self) -> Option<Effect> {
        self.no_longer(About::Turn);
        match (&self.turn, &self.picker) {
            (_, Some(_)) => {
                self.picker = None;
                None
            }
            (Turn::Running(run), _) => {
                let run = *run;
                self.turn = Turn::Stopping(run);
                Some(Effect::Cancel(run))
            }
            (Turn::Sent, _) => {
                self.turn = Turn::Recalled;
                None
            }
            (Turn::Idle, _) if !self.editor.is_empty() => {
                // It may have been meant for a turn that ended just now: what was typed can be had again.
                self.editor.take();
                self.editing = None;
                None
            }
            _ => Some(Effect::Quit),
        }
    }

    fn enter(&mut self) -> Option<Effect> {
        let text = self.editor.text();
        if text.trim().is_empty() {
            return None;
        }
        let command = parse(text);
        self.status = None;
        match command {
            Err(why) => {
                self.fail(why);
                None
            }
            Ok(Command::Say(text)) if self.turn != Turn::Idle => {
                self.editor.take();
                self.thread.queue.push(text, std::mem::take(&mut self.attached));
                self.offset = 0;
                None
            }
            Ok(command) => {
                let waits = matches!(
                    command,
                    Command::Edit | Command::Regenerate | Command::New | Command::History(_)
                );
                if waits && self.turn != Turn::Idle {
                    let why = "a turn is under way; Ctrl-C stops it";
                    self.status = Some(Notice::new(why, true, About::Turn));
                    return None;
                }
                self.editor.take();
                self.command(command)
            }
        }
    }

    fn command(&mut self, command: Command) -> Option<Effect> {
        match command {
            Command::Say(text) => return Some(self.ask(text)),
            Command::Attach(paths) if paths.is_empty() => self.attached.clear(),
            Command::Attach(paths) => {
                for path in paths {
                    match choose(&path) {
                        Ok(file) => self.attached.push(file),
                        Err(failure) => self.fail(failure.to_string()),
                    }
                }
            }
            Command::Save { name, to } => {
                return Some(Effect::Save { name, to: to.unwrap_or_else(|| ".".into()) });
            }
            Command::Files => return Some(Effect::Files),
            Command::History(query) => {
                self.picker = Some(Picker::new(&query));
                return Some(Effect::List(query));
            }
            Command::New => {
                *self = Self { editor: std::mem::take(&mut self.editor), ..Self::new(Vec::new()) };
                return Some(Effect::New);
            }
            Command::Edit => match self.thread.last_user() {
                Some((id, text)) => {
                    self.editing = Some(id);
                    self.editor.set(&text);
                }
                None => self.fail("there is no message to change yet"),
            },
            Command::Regenerate => match self.thread.last_user() {
                Some((id, _)) => {
                    self.thread.cut(id, false);
                    return Some(self.sent(Ask::Again(id)));
                }
                None => self.fail("there is no message to answer again yet"),
            },
            Command::Approve => return self.decide(true, None),
            Command::Deny(why) => return self.decide(false, why),
            Command::Help => {
                let lines: Vec<String> =
                    HELP.iter().map(|(keys, what)| format!("{keys:<26}{what}")).collect();
                self.thread.push(Entry::Notice(lines.join("\n")));
                self.offset = 0;
            }
            Command::Quit => return Some(Effect::Quit),
        }
        None
    }

    fn decide(&mut self, approve: bool, why: Option<String>) -> Option<Effect> {
        match (&self.turn, self.approvals.pop_front()) {
            (Turn::Running(run), Some(approval)) => {
                Some(Effect::Decide { run: *run, approval: approval.id, approve, why })
            }
            _ => {
                self.fail("nothing waits for you");
                None
            }
        }
    }

    fn ask(&mut self, text: String) -> Effect {
        let ask = match self.editing.take() {
            Some(id) => {
                self.thread.cut(id, true);
                Ask::Edit(id, text.clone())
            }
            None => Ask::Message(text.clone()),
        };
        let files = self.attached.iter().map(|file| file.name.clone()).collect();
        self.thread.push(Entry::User { id: None, text, files });
        self.sent(ask)
    }

    fn sent(&mut self, ask: Ask) -> Effect {
        self.turn = Turn::Sent;
        self.offset = 0;
        self.thread.begin();
        self.asked = std::mem::take(&mut self.attached);
        Effect::Ask(ask, self.asked.clone())
    }

    /// What can be sent to the server's queue by now. What is typed before it knows the conversation waits for that.
    pub fn forward(&mut self) -> Option<Effect> {
        let heard = matches!(self.turn, Turn::Running(_) | Turn::Stopping(_));
        let (text, files) = if heard { self.thread.queue.send() } else { None }?;
        Some(Effect::Queue(text, files))
    }

    /// The turn of the next message in the queue, after a run is over.
    pub fn next_turn(&mut self) -> Option<Effect> {
        let next = self.thread.queue.next()?;
        let files = next.files.iter().map(|file| file.name.clone()).collect();
        self.thread.push(Entry::User { id: None, text: next.text.clone(), files });
        self.thread.begin();
        if let State::Taken(run) = next.state {
            self.turn = Turn::Running(run);
            return Some(Effect::Follow(run));
        }
        self.turn = Turn::Sent;
        self.asked = next.files;
        // One that was sent to the queue is heard of from there.
        let ask = || Effect::Ask(Ask::Message(next.text), self.asked.clone());
        (next.state == State::Typed).then(ask)
    }

    /// The server did not take a message into its queue.
    pub fn not_queued(&mut self, failure: &Failure) {
        if !self.thread.queue.sending() {
            return self.run_over(Some(failure));
        }
        self.give_back();
        self.failed(failure);
    }

    /// What the server has not taken is typed again.
    fn give_back(&mut self) {
        for queued in self.thread.queue.take_untaken().into_iter().rev() {
            self.editor.put_back(&typed(&queued.text));
            self.attached.extend(queued.files);
        }
    }

    /// Something of the run under way. True when the thread is to be read again.
    pub fn item(&mut self, item: Item) -> bool {
        if !matches!(item, Item::Away(_)) {
            self.answered();
        }
        match item {
            Item::Run(run) => {
                let recalled = self.turn == Turn::Recalled;
                self.turn = if recalled { Turn::Stopping(run) } else { Turn::Running(run) };
                self.asked.clear();
            }
            Item::Away(_) => self.away = true,
            Item::Back => self.away = false,
            Item::Again => self.thread.begin(),
            Item::Event(seen) => return self.event(&seen),
        }
        false
    }

    fn event(&mut self, seen: &Seen) -> bool {
        self.thread.event(&seen.event);
        match &seen.event {
            RunEvent::Turn(turn) => return turn.message.is_some_and(|message| !self.thread.knows(message)),
            RunEvent::Approval(approval) if !approval.client => {
                let (name, args) =
                    (one_line(&approval.call.name, 100), one_line(approval.call.args.get(), 300));
                let (id, of) = (approval.id.clone(), approval.call.id.clone());
                self.approvals.retain(|asked| asked.id != id);
                self.approvals.push_back(Approval { id, of, call: format!("{name} {args}") });
                self.status = None;
            }
            RunEvent::ToolResult(ended) => self.approvals.retain(|asked| asked.of != ended.id),
            _ => {}
        }
        false
    }

    /// The run's events are over, by its end or by a failure.
    pub fn run_over(&mut self, failure: Option<&Failure>) {
        if let Some(failure) = failure {
            if matches!(self.turn, Turn::Sent | Turn::Recalled) {
                // It was not taken: what was typed is given back, with what was to come after it.
                self.give_back();
                match self.thread.take_back() {
                    Some(text) => self.editor.put_back(&typed(&text)),
                    None => self.editor.older(),
                }
                self.attached.append(&mut self.asked);
            }
            self.failed(failure);
        }
        self.thread.end();
        self.turn = Turn::Idle;
        self.approvals.clear();
        self.no_longer(About::Turn);
        self.away = false;
    }

    /// The thread was read again: its title, and a message that another client sent.
    pub fn read_again(&mut self, read: &crate::api::Thread) {
        read.title.clone_into(&mut self.thread.title);
        if let Some(message) = read.messages.iter().rev().find(|message| message.role == "user")
            && !self.thread.knows(message.id)
            && !self.thread.is_unheard()
            && self.turn != Turn::Idle
        {
            self.thread.add(message);
        }
    }

    pub fn show_files(&mut self, files: &[Kept]) {
        let line = |file: &Kept| format!("{}  {}", one_line(&file.name, 200), size(file.size));
        let lines: Vec<String> = files.iter().map(line).collect();
        let text =
            if lines.is_empty() { "There are no files here yet.".to_owned() } else { lines.join("\n") };
        self.thread.push(Entry::Notice(text));
        self.offset = 0;
    }
}

/// The keys of a shell's line.
pub fn edit(editor: &mut Editor, key: KeyEvent) {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    let alt = key.modifiers.contains(KeyModifiers::ALT);
    match key.code {
        KeyCode::Char('a') if control => editor.home(),
        KeyCode::Char('e') if control => editor.end(),
        KeyCode::Char('u') if control => editor.delete_to_start(),
        KeyCode::Char('k') if control => editor.delete_to_end(),
        KeyCode::Char('w') if control => editor.delete_word(),
        KeyCode::Char('d') if control => editor.delete(),
        KeyCode::Char('b') if alt => editor.word_left(),
        KeyCode::Char('f') if alt => editor.word_right(),
        KeyCode::Char(c) if !control && !alt => editor.insert(c.encode_utf8(&mut [0; 4])),
        KeyCode::Tab => editor.insert("\t"),
        KeyCode::Backspace if alt => editor.delete_word(),
        KeyCode::Backspace => editor.backspace(),
        KeyCode::Delete => editor.delete(),
        KeyCode::Left if control || alt => editor.word_left(),
        KeyCode::Right if control || alt => editor.word_right(),
        KeyCode::Left => editor.left(),
        KeyCode::Right => editor.right(),
        KeyCode::Home => editor.home(),
        KeyCode::End => editor.end(),
        KeyCode::Up => editor.older(),
        KeyCode::Down => editor.newer(),
        _ => {}
    }
}

#[cfg(test)]
#[path = "screen_tests.rs"]
mod tests;
