//! What a client says was said, for a provider of another dialect: all of it, with ids of calls that every provider takes.

use std::collections::HashSet;

use domain::model::{Answer, Call, Said};
use domain::prompt::paired;

/// As many characters as every provider takes.
const ID_CHARS: usize = 40;

pub fn history(mut said: Vec<Said>) -> Vec<Said> {
    name_calls(&mut said);
    paired(said)
}

/// A call whose id not every provider takes, or that another call before it has, gets one of its own, and so does its
/// answer.
fn name_calls(said: &mut [Said]) {
    let given: HashSet<String> = said.iter().flat_map(calls).map(|call| call.id.clone()).collect();
    let (mut taken, mut made) = (HashSet::new(), 0_usize);
    for at in 0..said.len() {
        let (before, after) = said.split_at_mut(at + 1);
        let Some(Said::Assistant { calls, .. }) = before.last_mut() else { continue };
        let mut answers: Vec<&mut Answer> = match after.first_mut() {
            Some(Said::Answers(answers)) => answers.iter_mut().collect(),
            _ => Vec::new(),
        };
        for call in calls {
            // Calls that share an id are answered in their order.
            let own = answers.iter().position(|answer| answer.id == call.id);
            let own = own.map(|at| answers.remove(at));
            if is_good(&call.id) && taken.insert(call.id.clone()) {
                continue;
            }
            let mut id = format!("call_{made}");
            while given.contains(&id) {
                made += 1;
                id = format!("call_{made}");
            }
            made += 1;
            if let Some(answer) = own {
                answer.id.clone_from(&id);
            }
            call.id = id;
        }
    }
}

fn calls(said: &Said) -> &[Call] {
    match said {
        Said::Assistant { calls, .. } => calls,
        _ => &[],
    }
}

fn is_good(id: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    !id.is_empty() && id.len() <= ID_CHARS && id.chars().all(good)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(ids: &[&str]) -> Said {
        let call = |id: &&str| Call { id: (*id).to_owned(), name: "f".to_owned(), args: "{}".to_owned() };
        Said::Assistant { text: String::new(), calls: ids.iter().map(call).collect() }
    }

    fn answered(of: &[(&str, &str)]) -> Said {
        let answer = |(id, text): &(&str, &str)| Answer {
            id: (*id).to_owned(),
            name: "f".to_owned(),
            text: (*text).to_owned(),
            failed: false,
        };
        Said::Answers(of.iter().map(answer).collect())
    }

    #[test]
    fn every_call_has_an_id_of_its_own_that_all_take_and_keeps_its_answer() {
        let long = "c".repeat(41);
        let (said, told) = (
            vec![
                asked(&["a.1", "", &long, "call_1"]),
                answered(&[("", "two"), ("call_1", "four"), ("a.1", "one"), (&long, "three")]),
                asked(&["call_1", "toolu_x-9"]),
                answered(&[("toolu_x-9", "six"), ("call_1", "five")]),
            ],
            vec![
                asked(&["call_0", "call_2", "call_3", "call_1"]),
                answered(&[("call_0", "one"), ("call_2", "two"), ("call_3", "three"), ("call_1", "four")]),
                asked(&["call_4", "toolu_x-9"]),
                answered(&[("call_4", "five"), ("toolu_x-9", "six")]),
            ],
        );
        assert_eq!(history(said), told);
    }

    #[test]
    fn calls_that_share_an_id_are_answered_in_their_order() {
        let said = vec![
            asked(&["", "", "c", "c", "c"]),
            answered(&[("", "one"), ("", "two"), ("c", "three"), ("c", "four"), ("c", "five")]),
        ];
        let told = vec![
            asked(&["call_0", "call_1", "c", "call_2", "call_3"]),
            answered(&[
                ("call_0", "one"),
                ("call_1", "two"),
                ("c", "three"),
                ("call_2", "four"),
                ("call_3", "five"),
            ]),
        ];
        assert_eq!(history(said), told);
    }
}
