//! What the chat has to say at the moment, and what that is about: a notice goes when it stops being true. Pure.

use crate::clean::one_line;

const LONGEST: usize = 500;

/// What a notice goes with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    /// Something that has happened: it stays until something else is done.
    Past,
    /// The turn under way.
    Turn,
    /// A server that does not answer.
    Server,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    pub text: String,
    /// Whether something went wrong.
    pub failed: bool,
    pub about: About,
}

impl Notice {
    pub fn new(text: &str, failed: bool, about: About) -> Self {
        Self { text: one_line(text, LONGEST), failed, about }
    }
}
