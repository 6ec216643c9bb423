//! What of a sandbox's run there is room for in its answer. An answer is held as a whole while it is written, and read as a
//! whole by everyone who opens its thread.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

use domain::event::{Raw, Step};

/// Different step ids a run may use.
pub const MAX_STEPS: usize = 10_000;
/// The text of an answer. It is kept twice, in its block and as the message's plain text.
pub const MAX_TEXT_BYTES: usize = 5 * 1024 * 1024;
/// The steps of an answer, as they stand.
pub const MAX_STEPS_BYTES: usize = 10 * 1024 * 1024;

#[derive(Default)]
pub(crate) struct Room {
    /// By a hash of their id: it may be long, and a clash only lets one pass.
    steps: HashMap<u64, Size>,
    hasher: RandomState,
    of_steps: usize,
    of_text: usize,
}

/// What of a step is taken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    Whole,
    /// Its id, name and status alone.
    Bare,
    Nothing,
}

#[derive(Default, Clone, Copy)]
struct Size {
    name: usize,
    args: usize,
    result: usize,
    error: usize,
}

impl Size {
    fn total(self) -> usize {
        self.name + self.args + self.result + self.error
    }

    fn named(self, step: &Step) -> Self {
        Self { name: step.id.len() + step.name.len(), ..self }
    }

    /// As the fold has it: a field that a line leaves out stays what it was.
    fn after(self, step: &Step) -> Self {
        let raw = |field: &Option<Raw>, before| field.as_ref().map_or(before, |raw| raw.get().len());
        Self {
            args: raw(&step.args, self.args),
            result: raw(&step.result, self.result),
            error: step.error.as_ref().map_or(self.error, String::len),
            ..self.named(step)
        }
    }
}

impl Room {
    /// Whether there is room for more text.
    pub(crate) fn takes_text(&mut self, text: &str) -> bool {
        self.of_text += text.len();
        self.of_text <= MAX_TEXT_BYTES
    }

    pub(crate) fn take_step(&mut self, step: &Step) -> Taken {
        let id = self.hasher.hash_one(&step.id);
        let known = self.steps.get(&id).copied();
        if known.is_none() && self.steps.len() == MAX_STEPS {
            return Taken::Nothing;
        }
        let before = known.unwrap_or_default();
        let others = self.of_steps - before.total();
        let of = [(before.after(step), Taken::Whole), (before.named(step), Taken::Bare)];
        for (size, taken) in of {
            if others + size.total() <= MAX_STEPS_BYTES {
                self.steps.insert(id, size);
                self.of_steps = others + size.total();
                return taken;
            }
        }
        Taken::Nothing
    }
}

#[cfg(test)]
mod tests {
    use domain::line::{Line, parse};

    use super::*;

    fn step(line: &str) -> Step {
        match parse(line.as_bytes()) {
            Ok(Line::Step(step)) => step,
            other => panic!("{other:?}"),
        }
    }

    fn with(id: &str, field: &str, length: usize) -> Step {
        let value = "x".repeat(length - 2);
        step(&format!(r#"{{"type":"step","id":"{id}","name":"n","status":"running","{field}":"{value}"}}"#))
    }

    #[test]
    fn a_step_that_is_too_much_is_taken_bare_and_its_end_always() {
        let mut room = Room::default();
        assert_eq!(room.take_step(&with("0", "result", MAX_STEPS_BYTES - 1002)), Taken::Whole);
        assert_eq!(room.take_step(&with("1", "args", 500)), Taken::Whole);
        assert_eq!(room.take_step(&with("1", "result", 499)), Taken::Bare);
        assert_eq!(room.take_step(&with("1", "result", 498)), Taken::Whole);
        let ended = step(r#"{"type":"step","id":"1","name":"n","status":"succeeded"}"#);
        assert_eq!(room.take_step(&ended), Taken::Whole);
        assert_eq!(room.take_step(&with("2", "args", 10)), Taken::Nothing);
        // What is replaced makes room.
        assert_eq!(room.take_step(&with("1", "result", 400)), Taken::Whole);
        assert_eq!(room.take_step(&with("2", "error", 98)), Taken::Whole);
    }

    #[test]
    fn text_has_room_of_its_own() {
        let mut room = Room::default();
        assert_eq!(room.take_step(&with("1", "result", MAX_STEPS_BYTES - 2)), Taken::Whole);
        assert!(room.takes_text(&"t".repeat(MAX_TEXT_BYTES)));
        assert!(!room.takes_text("t"));
    }

    #[test]
    fn there_are_only_so_many_steps() {
        let mut room = Room::default();
        for id in 0..MAX_STEPS {
            assert_eq!(room.take_step(&with(&id.to_string(), "args", 2)), Taken::Whole);
        }
        assert_eq!(room.take_step(&with("one more", "args", 2)), Taken::Nothing);
        assert_eq!(room.take_step(&with("7", "args", 3)), Taken::Whole);
    }
}
