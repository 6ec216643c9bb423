//! What the branches of a conversation share: for each the place of the last message that it has from its parent.

use jiff::Timestamp;
use uuid::Uuid;

use crate::turns::Branch;

/// A branch as its row says. The first one has none: it has the conversation's id, and leaves nothing.
pub(crate) struct BranchRow {
    pub(crate) branch: i64,
    pub(crate) id: Uuid,
    pub(crate) parent: i64,
    pub(crate) seq: i64,
    pub(crate) current: bool,
    pub(crate) created_at: Timestamp,
}

impl BranchRow {
    /// With the last message it shares, and the newest of its own.
    pub(crate) fn branch(&self, shared: Option<Uuid>, own: Option<Uuid>) -> Branch {
        let Self { id, current, created_at, .. } = *self;
        Branch { id, from_message: shared, head: own.or(shared), current, created_at }
    }
}

/// Where the last message stands that each of them shares: its branch and its number, which is 0 where there is none.
/// `forks` are all of a conversation's, in the order of their numbers, the first one included.
pub(crate) fn shared(forks: &[BranchRow]) -> Vec<(i64, i64)> {
    let place = |branch: i64| forks.binary_search_by_key(&branch, |fork| fork.branch).unwrap_or(0);
    let mut found: Vec<(i64, i64)> = Vec::with_capacity(forks.len());
    for fork in forks {
        let mut holder = fork.parent;
        // Of a branch that leaves its own parent no sooner nothing is shared but what that one has.
        while holder != 0
            && let at = place(holder)
            && forks.get(at).is_some_and(|parent| parent.seq >= fork.seq)
        {
            holder = found.get(at).map_or(0, |(branch, _)| *branch);
        }
        found.push((holder, fork.seq));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared_by(forks: &[(i64, i64)]) -> Vec<(i64, i64)> {
        let first = std::iter::once((0, 0));
        let forks = first.chain(forks.iter().copied()).zip(0..).map(|((parent, seq), branch)| BranchRow {
            branch,
            id: Uuid::nil(),
            parent,
            seq,
            current: false,
            created_at: Timestamp::UNIX_EPOCH,
        });
        shared(&forks.collect::<Vec<_>>()).split_off(1)
    }

    #[test]
    fn the_last_shared_message_stands_where_it_was_written() {
        // Each leaves the one before it, after its first message.
        assert_eq!(shared_by(&[(0, 2), (1, 3), (2, 4)]), [(0, 2), (1, 3), (2, 4)]);
        // Each takes the place of the one before it.
        assert_eq!(shared_by(&[(0, 2), (1, 2), (2, 2)]), [(0, 2), (0, 2), (0, 2)]);
        // Sooner than all those it comes from.
        assert_eq!(
            shared_by(&[(0, 2), (1, 4), (2, 5), (3, 3), (3, 1), (2, 0)]),
            [(0, 2), (1, 4), (2, 5), (1, 3), (0, 1), (0, 0)]
        );
    }
}
