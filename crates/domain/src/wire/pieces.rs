//! A run as the dialects of parts hear it: texts and thoughts that open and close, calls with names of their own, ends.
//! Comes from `told`, goes to `ui_message`, `ag_ui` and `responses`.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::told::{INTERRUPTED, Short, Told, Word, id_of};
use crate::approval::is_denial;
use crate::run::UsageDetails;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Piece {
    Begin {
        run: String,
        conversation: Option<String>,
    },
    /// The number of a text counts from 1 within its run; so does that of a thought.
    TextStart(usize),
    Text(usize, String),
    TextEnd(usize),
    ThoughtStart(usize),
    Thought(usize, String),
    ThoughtEnd(usize),
    /// `id` is the call's own within the run: one that comes again in another round has another.
    /// Without arguments it is a step whose later line may bring them: `Args` comes before its end.
    Call {
        id: String,
        /// 0 for a step.
        round: u64,
        name: String,
        args: Option<Value>,
    },
    /// What a step is given, or that it is given nothing.
    Args {
        id: String,
        name: String,
        args: Option<Value>,
        /// It was given something else before: the last word counts, where a dialect can take back.
        again: bool,
    },
    Ended(Ended),
    Approval {
        id: String,
        /// Nobody is asked: the client makes the call.
        client: bool,
        call: String,
        name: String,
        args: Value,
    },
    Sources(Vec<Value>),
    File(Value),
    /// What went wrong; everything is closed.
    Failure {
        code: String,
        message: String,
    },
    /// The run is over; its status.
    Done(String),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ended {
    pub(super) id: String,
    pub(super) result: Value,
    pub(super) error: Option<String>,
    /// A person was asked and did not allow it.
    pub(super) denied: bool,
    /// It had ended before: the last word counts, where a dialect can take back.
    pub(super) again: bool,
}

impl Ended {
    /// Whether it has a word of its own: an end without one leaves what an earlier one said.
    pub(super) fn says(&self) -> bool {
        self.error.is_some() || !self.result.is_null()
    }

    /// The result, or the error, as text.
    pub(super) fn text(&self) -> String {
        match (&self.error, &self.result) {
            (Some(error), _) => error.clone(),
            (None, Value::String(text)) => text.clone(),
            (None, Value::Null) => String::new(),
            (None, other) => other.to_string(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    Text,
    Thought,
}

#[derive(Debug, Default)]
pub(super) struct Pieces {
    told: Told,
    open: Option<Open>,
    texts: usize,
    thoughts: usize,
    /// The name of each call, by its round (0 for steps) and id.
    names: HashMap<(u64, String), String>,
    taken: HashSet<String>,
    /// Calls without an end, in order.
    unended: Vec<String>,
    /// Steps whose arguments have not come, with their names.
    ungiven: Vec<(String, String)>,
    /// Whether its reader makes calls of tools that it brought.
    makes_calls: bool,
    /// Approvals asked for and not yet answered by an end, with what they are about.
    asked: Vec<(String, String)>,
    /// Calls that wait for a reader of another dialect.
    elsewhere: Vec<String>,
}

impl Pieces {
    /// For a reader that makes calls of its own tools: they wait for it as others do for people.
    pub(super) fn of_its_own() -> Self {
        Self { makes_calls: true, ..Self::default() }
    }

    pub(super) fn read(&mut self, kind: &str, data: &str) -> Vec<Piece> {
        let mut out = Vec::new();
        match self.told.read(kind, data) {
            Word::Begin { run, conversation } => out.push(Piece::Begin { run, conversation }),
            Word::Text(text) => self.text(text, &mut out),
            Word::Reasoning(text) => self.thought(text, &mut out),
            Word::Calls { round, calls, ended } => {
                self.close(&mut out);
                for call in &calls {
                    self.call(round, call, &mut out);
                }
                if let Some(ended) = ended {
                    self.ended(&ended, &mut out);
                }
            }
            Word::Args { call, ended } => self.args(&call, ended.as_ref(), &mut out),
            Word::Ended(ended) => self.ended(&ended, &mut out),
            Word::Other(data) => self.other(kind, data, &mut out),
            Word::Closing { rest, whole } => {
                if whole {
                    self.close(&mut out);
                }
                self.text(rest, &mut out);
                self.finish(&mut out);
            }
            Word::Failure { code, message } => {
                self.finish(&mut out);
                out.push(Piece::Failure { code, message });
            }
            Word::Done => out.push(Piece::Done(self.told.status.clone())),
            Word::Nothing => {}
        }
        out
    }

    pub(super) fn short(&self) -> Short {
        self.told.short
    }

    /// The time of the finished message.
    pub(super) fn created(&self) -> Option<i64> {
        self.told.created
    }

    pub(super) fn details(&self) -> UsageDetails {
        self.told.details
    }

    /// The approvals that wait, each with its call.
    pub(super) fn waiting(&self) -> &[(String, String)] {
        &self.asked
    }

    /// As `waiting`, once nothing else goes on: none while another call is being made.
    pub(super) fn resting(&self) -> &[(String, String)] {
        let waits =
            |id: &String| self.asked.iter().any(|(_, call)| call == id) || self.elsewhere.contains(id);
        if self.unended.iter().all(waits) { &self.asked } else { &[] }
    }

    /// The calls whose arguments are still to come, with their names.
    pub(super) fn ungiven(&self) -> &[(String, String)] {
        &self.ungiven
    }

    /// Ends what is open, for a reader that goes on later.
    pub(super) fn close(&mut self, out: &mut Vec<Piece>) {
        match self.open.take() {
            Some(Open::Text) => out.push(Piece::TextEnd(self.texts)),
            Some(Open::Thought) => out.push(Piece::ThoughtEnd(self.thoughts)),
            None => {}
        }
    }

    /// What a reader that comes in between has to be told is open: a text's number, a thought's number.
    pub(super) fn is_open(&self) -> (Option<usize>, Option<usize>) {
        match self.open {
            Some(Open::Text) => (Some(self.texts), None),
            Some(Open::Thought) => (None, Some(self.thoughts)),
            None => (None, None),
        }
    }

    fn text(&mut self, text: String, out: &mut Vec<Piece>) {
        if text.is_empty() {
            return;
        }
        if self.open != Some(Open::Text) {
            self.close(out);
            self.open = Some(Open::Text);
            self.texts += 1;
            out.push(Piece::TextStart(self.texts));
        }
        out.push(Piece::Text(self.texts, text));
    }

    fn thought(&mut self, text: String, out: &mut Vec<Piece>) {
        if text.is_empty() {
            return;
        }
        if self.open != Some(Open::Thought) {
            self.close(out);
            self.open = Some(Open::Thought);
            self.thoughts += 1;
            out.push(Piece::ThoughtStart(self.thoughts));
        }
        out.push(Piece::Thought(self.thoughts, text));
    }

    fn call(&mut self, round: u64, call: &Value, out: &mut Vec<Piece>) {
        let own = id_of(call);
        let id = distinct(&own, &mut self.taken);
        self.names.insert((round, own), id.clone());
        self.unended.push(id.clone());
        let name = call["name"].as_str().unwrap_or_default().to_owned();
        // Only a step has none of a round's number.
        let args = (round > 0 || !call["args"].is_null()).then(|| args_of(call));
        if args.is_none() {
            self.ungiven.push((id.clone(), name.clone()));
        }
        out.push(Piece::Call { id, round, name, args });
    }

    /// A step's later line, which says what it is given.
    fn args(&mut self, call: &Value, ended: Option<&Value>, out: &mut Vec<Piece>) {
        let id = self.names.get(&(0, id_of(call))).cloned().unwrap_or_default();
        let says = |ended: &Value| !ended["error"].is_null() || !ended["result"].is_null();
        // To one that has ended, only a new end: a dialect would have to open it once more.
        if !self.unended.contains(&id) && !ended.is_some_and(says) {
            return;
        }
        let waited = self.ungiven.len();
        self.ungiven.retain(|(open, _)| *open != id);
        let (name, again) =
            (call["name"].as_str().unwrap_or_default().to_owned(), self.ungiven.len() == waited);
        out.push(Piece::Args { id, name, args: Some(args_of(call)), again });
        if let Some(ended) = ended {
            self.ended(ended, out);
        }
    }

    /// Nothing has come that the call was given, and nothing will.
    fn give_nothing(&mut self, id: &str, out: &mut Vec<Piece>) {
        if let Some(at) = self.ungiven.iter().position(|(open, _)| open == id) {
            let (id, name) = self.ungiven.remove(at);
            out.push(Piece::Args { id, name, args: None, again: false });
        }
    }

    fn ended(&mut self, ended: &Value, out: &mut Vec<Piece>) {
        let key = (ended["round"].as_u64().unwrap_or(0), id_of(ended));
        if !self.names.contains_key(&key) {
            self.close(out);
            self.call(key.0, ended, out);
        }
        let id = self.names.get(&key).cloned().unwrap_or_default();
        self.give_nothing(&id, out);
        let again = !self.unended.contains(&id);
        self.unended.retain(|open| *open != id);
        let asked = self.asked.iter().any(|(_, call)| *call == id);
        self.asked.retain(|(_, call)| *call != id);
        let error = ended["error"].as_str().map(str::to_owned);
        let denied = asked && error.as_deref().is_some_and(is_denial);
        out.push(Piece::Ended(Ended { id, result: ended["result"].clone(), error, denied, again }));
    }

    fn other(&mut self, kind: &str, data: Value, out: &mut Vec<Piece>) {
        match kind {
            "approval" => {
                let call = &data["call"];
                // Of the calls with this id, the newest asks.
                let own = id_of(call);
                let known = self.names.iter().filter(|((_, id), _)| *id == own);
                let newest = known.max_by_key(|((round, _), _)| *round).map(|(_, name)| name.clone());
                let asked = (id_of(&data), newest.unwrap_or(own));
                if data["client"] == true && !self.makes_calls {
                    self.elsewhere.push(asked.1);
                    return;
                }
                let name = call["name"].as_str().unwrap_or_default().to_owned();
                if self.asked.contains(&asked) {
                    // Whoever went on with the run has asked once more: it is the same question.
                    return;
                }
                let (id, of) = asked.clone();
                self.asked.push(asked);
                let client = data["client"] == true;
                out.push(Piece::Approval { id, client, call: of, name, args: args_of(call) });
            }
            "sources" => {
                self.close(out);
                out.push(Piece::Sources(data["sources"].as_array().cloned().unwrap_or_default()));
            }
            _ => {
                self.close(out);
                out.push(Piece::File(data));
            }
        }
    }

    /// The run says no more: what is open is closed, and what never ended is told so.
    fn finish(&mut self, out: &mut Vec<Piece>) {
        self.close(out);
        self.asked.clear();
        let never_ended = std::mem::take(&mut self.unended);
        for id in never_ended.clone() {
            self.give_nothing(&id, out);
            let error = Some(INTERRUPTED.to_owned());
            out.push(Piece::Ended(Ended { id, result: Value::Null, error, denied: false, again: false }));
        }
        // Steps that went on after their end.
        for open in self.told.take_unended() {
            let key = (open["round"].as_u64().unwrap_or(0), id_of(&open));
            if let Some(id) = self.names.get(&key).filter(|id| !never_ended.contains(id)).cloned() {
                let error = Some(INTERRUPTED.to_owned());
                out.push(Piece::Ended(Ended { id, result: Value::Null, error, denied: false, again: true }));
            }
        }
    }
}

/// The name of a call among those so far. One that is taken gets a number, which again may be taken.
pub(super) fn distinct(own: &str, taken: &mut HashSet<String>) -> String {
    let numbered = |n: usize| if n == 1 { own.to_owned() } else { format!("{own}-{n}") };
    let id = (1..).map(numbered).find(|name| !taken.contains(name)).unwrap_or_default();
    taken.insert(id.clone());
    id
}

/// A call's arguments; none are an empty object to every dialect.
fn args_of(call: &Value) -> Value {
    match &call["args"] {
        Value::Null => Value::Object(serde_json::Map::new()),
        args => args.clone(),
    }
}
