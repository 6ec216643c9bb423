//! What a provider wants back as it said it while a run goes on: the thoughts that led to its calls, with their
//! signatures, and an answer that it paused. In memory alone: who goes on with a run that another process left has its
//! words and calls, as every later turn has.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::model::{Prompt, Said};

/// Answers in their provider's own blocks, by their place among a prompt's messages.
pub type Blocks = BTreeMap<usize, Vec<Value>>;

#[derive(Debug, Default)]
pub struct Kept {
    /// Each with the id that its first call has in a prompt.
    answers: Vec<(String, Vec<Value>)>,
    /// The answer that is not at its end, so far.
    paused: Vec<Value>,
}

impl Kept {
    /// An answer that called. `first` is the id that its first call has in a prompt.
    pub fn calls(&mut self, first: String, blocks: Vec<Value>) {
        self.pause(blocks);
        let blocks = std::mem::take(&mut self.paused);
        if !blocks.is_empty() {
            self.answers.push((first, blocks));
        }
    }

    /// A part of an answer that is to be gone on with.
    pub fn pause(&mut self, blocks: Vec<Value>) {
        self.paused.extend(blocks);
    }

    /// Those that are in this prompt. One that has lost its first calls for want of room is not what was said. A paused
    /// answer is put at the end, where the provider goes on with it.
    pub fn within(&self, prompt: &mut Prompt) -> Blocks {
        if !self.paused.is_empty() {
            prompt.messages.push(Said::Assistant { text: String::new(), calls: Vec::new() });
        }
        let paused = (!self.paused.is_empty()).then(|| (prompt.messages.len() - 1, self.paused.clone()));
        let blocks = |said: &Said| match said {
            Said::Assistant { calls, .. } => {
                let first = &calls.first()?.id;
                self.answers.iter().find(|(id, _)| id == first).map(|(_, blocks)| blocks.clone())
            }
            _ => None,
        };
        let called = prompt.messages.iter().enumerate().filter_map(|(at, said)| Some((at, blocks(said)?)));
        called.chain(paused).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::Call;

    fn said(ids: &[&str]) -> Said {
        let call = |id: &&str| Call { id: (*id).into(), name: "f".into(), args: "{}".into() };
        Said::Assistant { text: "t".into(), calls: ids.iter().map(call).collect() }
    }

    #[test]
    fn blocks_are_found_by_the_first_call_of_their_answer() {
        let mut kept = Kept::default();
        let (one, two) = (vec![json!({ "n": 1 })], vec![json!({ "n": 2 })]);
        kept.calls("a".into(), one.clone());
        kept.calls("b".into(), Vec::new());
        kept.calls("c".into(), two.clone());
        let user = || Said::User("hi".into());
        let messages = vec![user(), said(&[]), user(), said(&["a"]), user(), said(&["b"]), said(&["c", "d"])];
        let mut prompt = Prompt { system: String::new(), messages };
        assert_eq!(kept.within(&mut prompt), [(3, one.clone()), (6, two)].into());
        prompt.messages[6] = said(&["d"]);
        assert_eq!(kept.within(&mut prompt), [(3, one)].into());
        assert_eq!(prompt.messages.len(), 7);
    }

    #[test]
    fn a_paused_answer_comes_last_and_is_one_with_the_calls_after_it() {
        let mut kept = Kept::default();
        let parts = [1, 2, 3].map(|n| json!({ "n": n }));
        kept.pause(vec![parts[0].clone()]);
        kept.pause(vec![parts[1].clone()]);
        let asked = || Prompt { system: String::new(), messages: vec![Said::User("hi".into())] };
        let mut prompt = asked();
        assert_eq!(kept.within(&mut prompt), [(1, parts[..2].to_vec())].into());
        assert_eq!(prompt.messages.len(), 2);
        kept.calls("a".into(), vec![parts[2].clone()]);
        let mut prompt = asked();
        prompt.messages.push(said(&["a"]));
        assert_eq!(kept.within(&mut prompt), [(1, parts.to_vec())].into());
        assert_eq!(prompt.messages.len(), 2);
    }
}
