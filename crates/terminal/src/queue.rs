//! Messages that were typed during a turn, until their own turn comes. The server queues them one after the other, in
//! the order they were typed in, so that they are answered even when the chat is left. Pure.

use std::collections::VecDeque;

use uuid::Uuid;

use crate::files::Chosen;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Typed,
    /// Sent, not heard of yet.
    Sent,
    /// In the server's queue.
    Taken(Uuid),
}

#[derive(Debug)]
pub struct Queued {
    pub text: String,
    pub files: Vec<Chosen>,
    pub state: State,
}

#[derive(Debug, Default)]
pub struct Queue(VecDeque<Queued>);

impl Queue {
    pub fn push(&mut self, text: String, files: Vec<Chosen>) {
        self.0.push_back(Queued { text, files, state: State::Typed });
    }

    pub fn iter(&self) -> impl Iterator<Item = &Queued> {
        self.0.iter()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn sending(&self) -> bool {
        self.0.iter().any(|queued| queued.state == State::Sent)
    }

    /// The next one to send, once the one before it is taken.
    pub fn send(&mut self) -> Option<(String, Vec<Chosen>)> {
        if self.sending() {
            return None;
        }
        let next = self.0.iter_mut().find(|queued| queued.state == State::Typed)?;
        next.state = State::Sent;
        Some((next.text.clone(), next.files.clone()))
    }

    /// False when the one that was sent is no longer here: its turn has come.
    pub fn taken(&mut self, run: Uuid) -> bool {
        let sent = self.0.iter_mut().find(|queued| queued.state == State::Sent);
        sent.map(|queued| queued.state = State::Taken(run)).is_some()
    }

    /// How far the newest one has come.
    pub fn last(&self) -> Option<State> {
        self.0.back().map(|queued| queued.state)
    }

    /// Takes out the newest one that has come so far.
    pub fn remove(&mut self, state: State) -> Option<Queued> {
        self.0.remove(self.0.iter().rposition(|queued| queued.state == state)?)
    }

    pub fn next(&mut self) -> Option<Queued> {
        self.0.pop_front()
    }

    /// Takes out what the server has not taken.
    pub fn take_untaken(&mut self) -> VecDeque<Queued> {
        let taken = self.0.iter().take_while(|queued| matches!(queued.state, State::Taken(_))).count();
        self.0.split_off(taken)
    }
}
