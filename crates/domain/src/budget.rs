//! How much of a thread is sent to a model: what fits into a number of Unicode characters, oldest dropped first. The
//! cut is sticky: when it must move it moves far, and then stays, so that a prompt begins as the one before it did and
//! the provider's cache of it goes on working.

use uuid::Uuid;

use crate::model::{Prompt, Said, Words};
use crate::prompt::valid;

/// Of the budget, what is used right after the cut has moved.
const AFTER_A_MOVE: (usize, usize) = (3, 4);
/// What joining two messages into one costs: the earlier of the two is counted with it, and so all but the newest.
const JOIN: usize = 2;

/// A message of the thread and what it puts into a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    pub id: Uuid,
    pub said: Vec<Said>,
}

/// Everything that could be sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Material {
    pub system: String,
    /// The thread before the newest message, oldest first.
    pub before: Vec<Unit>,
    /// What was left out before, in short.
    pub summary: Option<String>,
    /// The newest message of the user, which always stays.
    pub newest: Words,
    /// Its words alone, for when its files leave no room.
    pub bare: String,
    /// What the run has said and done so far.
    pub own: Vec<Said>,
}

/// What is sent, and what was left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fitted {
    pub prompt: Prompt,
    /// The index in `before` of the first message sent; its length where none is.
    pub from: usize,
    /// Calls of this run that were left out.
    pub dropped_calls: usize,
}

/// Unicode characters of what is sent: contents, the names and arguments of calls, results.
pub fn chars(said: &[Said]) -> usize {
    let count = |text: &str| text.chars().count();
    said.iter()
        .map(|said| match said {
            Said::User(words) => newest_chars(words) + JOIN,
            Said::Assistant { text, calls } => {
                let calls = calls.iter().map(|call| count(&call.name) + count(&call.args));
                count(text) + JOIN + calls.sum::<usize>()
            }
            Said::Answers(answers) => answers.iter().map(|answer| count(&answer.text)).sum(),
        })
        .sum()
}

fn newest_chars(words: &Words) -> usize {
    words.text.chars().count() + words.parts.iter().map(|part| part.chars).sum::<usize>()
}

/// Whether a message can be sent at all.
pub fn takes(system: &str, message: &str, budget: usize) -> bool {
    system.chars().count() + message.chars().count() <= budget
}

/// The prompt that fits. `from` is where the last one began: it begins there again unless that is too much.
pub fn fit(material: Material, from: usize, budget: usize) -> Fitted {
    let Material { system, before, summary, newest, bare, own } = material;
    // What the user says now comes before what was said once.
    let own_room = budget.saturating_sub(system.chars().count() + bare.chars().count());
    let summary = summary.map(|summary| Said::User(summary.into()));
    let summary = summary.filter(|summary| chars(std::slice::from_ref(summary)) <= own_room);
    let base = system.chars().count() + chars(summary.as_slice());
    let newest = if base + newest_chars(&newest) <= budget { newest } else { bare.into() };
    let fixed = base + newest_chars(&newest);
    let (own, dropped_calls) = cut_own(own, budget.saturating_sub(fixed));
    let from = first(&before, from.min(before.len()), fixed + chars(&own), budget);
    let thread = before.into_iter().skip(from).flat_map(|unit| unit.said);
    let messages = valid(summary.into_iter().chain(thread).chain([Said::User(newest)]).chain(own));
    Fitted { prompt: Prompt { system, messages }, from, dropped_calls }
}

/// The first message that is sent, given what else is.
fn first(before: &[Unit], from: usize, fixed: usize, budget: usize) -> usize {
    let sizes: Vec<usize> = before.iter().map(|unit| chars(&unit.said)).collect();
    let mut sum: usize = fixed + sizes[from..].iter().sum::<usize>();
    if sum <= budget {
        return from;
    }
    let (of, parts) = AFTER_A_MOVE;
    let room = budget / parts * of;
    let mut at = from;
    // A prompt begins with the user: an answer goes with its question.
    let begins = |unit: &Unit| matches!(unit.said.first(), Some(Said::User(_)));
    while at < before.len() && (sum > room || !begins(&before[at])) {
        sum -= sizes[at];
        at += 1;
    }
    at
}

/// A run's own calls, the oldest dropped until the rest fits, each with its answer.
fn cut_own(mut own: Vec<Said>, room: usize) -> (Vec<Said>, usize) {
    let mut dropped = 0;
    while chars(&own) > room && !own.is_empty() {
        let rounds = own.iter().filter(|said| matches!(said, Said::Answers(_))).count();
        match &mut own[..] {
            // The newest round loses its oldest calls alone.
            [Said::Assistant { text, calls }, Said::Answers(answers), ..]
                if rounds == 1 && calls.len() > 1 =>
            {
                text.clear();
                calls.remove(0);
                answers.remove(0);
                dropped += 1;
            }
            [Said::Assistant { calls, .. }, Said::Answers(_), ..] => {
                dropped += calls.len();
                own.drain(..2);
            }
            _ => {
                own.remove(0);
            }
        }
    }
    (own, dropped)
}

#[cfg(test)]
#[path = "budget_tests.rs"]
mod tests;
