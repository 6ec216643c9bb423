//! A call that waits for a person, or for the client that brought its tool. It is kept, so that a restart neither forgets
//! it nor makes the call twice.

use jiff::Timestamp;
use uuid::Uuid;

use crate::event::ToolCall;

#[derive(Debug, Clone)]
pub struct Approval {
    pub id: Uuid,
    pub round: u32,
    pub call: ToolCall,
    pub decision: Option<Decision>,
    /// The call may have been made.
    pub started: bool,
}

/// How the error of a call that a person did not allow begins.
const DENIED: &str = "a person did not allow this call";

/// The error of a call that a person did not allow.
pub fn denial(reason: Option<&str>) -> String {
    reason.map_or_else(|| DENIED.to_owned(), |reason| format!("{DENIED}: {reason}"))
}

/// Whether an error is the one that `denial` makes. A tool may say the same words: only a call that asked was denied.
pub fn is_denial(error: &str) -> bool {
    error.strip_prefix(DENIED).is_some_and(|rest| rest.is_empty() || rest.starts_with(": "))
}

/// The error of a call for which nobody was found in time: its run has ended, and it is known that it was not made.
pub const NOT_MADE: &str = "interrupted: the call waited for a person, and was not made";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    pub approve: bool,
    pub reason: Option<String>,
    pub by: String,
    pub at: Timestamp,
    /// What the client that brought the tool has made of the call: the server makes nothing.
    pub result: Option<String>,
}

impl Decision {
    /// Whether it says the same, whoever says it.
    pub fn is_as(&self, other: &Self) -> bool {
        self.approve == other.approve && self.result == other.result
    }
}

/// Whether a run does nothing but wait for people: not one of the approvals that it waits for, each told with its
/// call, is decided. What is decided comes to an end by itself.
pub fn all_undecided(known: &[Approval], waiting: &[(String, String)]) -> bool {
    let undecided = |id: &str| known.iter().any(|one| one.decision.is_none() && one.id.to_string() == *id);
    !waiting.is_empty() && waiting.iter().all(|(id, _)| undecided(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_waits_for_people_alone_while_nothing_is_decided() {
        let approval = |n: u128, approve: Option<bool>| Approval {
            id: Uuid::from_u128(n),
            round: 1,
            call: ToolCall { id: "c".into(), name: "f".into(), args: Default::default() },
            decision: approve.map(|approve| Decision {
                approve,
                reason: None,
                by: "ann".into(),
                at: Timestamp::UNIX_EPOCH,
                result: None,
            }),
            started: false,
        };
        let known = [approval(1, Some(true)), approval(2, None), approval(3, None)];
        let waits = |ids: &[u128]| {
            let waiting: Vec<_> =
                ids.iter().map(|n| (Uuid::from_u128(*n).to_string(), "c".to_owned())).collect();
            all_undecided(&known, &waiting)
        };
        assert!(is_denial(&denial(None)) && is_denial(&denial(Some("no"))) && !is_denial("interrupted"));
        assert!(waits(&[2]) && waits(&[2, 3]));
        assert!(!waits(&[]) && !waits(&[1]) && !waits(&[1, 2]) && !waits(&[9]));
    }
}
