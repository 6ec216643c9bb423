//! A call that waits for a person. It is kept, so that a restart neither forgets it nor makes the call twice.

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

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    pub approve: bool,
    pub reason: Option<String>,
    pub by: String,
    pub at: Timestamp,
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
            }),
            started: false,
        };
        let known = [approval(1, Some(true)), approval(2, None), approval(3, None)];
        let waits = |ids: &[u128]| {
            let waiting: Vec<_> =
                ids.iter().map(|n| (Uuid::from_u128(*n).to_string(), "c".to_owned())).collect();
            all_undecided(&known, &waiting)
        };
        assert!(waits(&[2]) && waits(&[2, 3]));
        assert!(!waits(&[]) && !waits(&[1]) && !waits(&[1, 2]) && !waits(&[9]));
    }
}
