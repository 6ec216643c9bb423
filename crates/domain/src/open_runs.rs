//! How many runs a user and a workspace may have open at once. A run is open while it waits or is under way.

use crate::tokens::Whose;

/// 0 is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunLimits {
    pub user: u64,
    pub workspace: u64,
}

/// Runs that are open. The workspace's are counted only where they are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenRuns {
    pub user: u64,
    pub workspace: u64,
}

/// A limit that has been reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyRuns {
    pub whose: Whose,
    pub limit: u64,
}

impl RunLimits {
    /// Whether one more may be opened.
    pub fn check(self, open: OpenRuns) -> Result<(), TooManyRuns> {
        for (whose, limit, open) in
            [(Whose::User, self.user, open.user), (Whose::Workspace, self.workspace, open.workspace)]
        {
            if limit > 0 && open >= limit {
                return Err(TooManyRuns { whose, limit });
            }
        }
        Ok(())
    }
}

impl OpenRuns {
    pub fn and_one(self) -> Self {
        Self { user: self.user + 1, workspace: self.workspace + 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_reached_when_as_many_are_open() {
        let limits = RunLimits { user: 2, workspace: 3 };
        let check = |user, workspace| limits.check(OpenRuns { user, workspace });
        assert_eq!(check(1, 2), Ok(()));
        assert_eq!(check(2, 3), Err(TooManyRuns { whose: Whose::User, limit: 2 }));
        assert_eq!(check(0, 3), Err(TooManyRuns { whose: Whose::Workspace, limit: 3 }));
        let none = RunLimits { user: 0, workspace: 0 };
        assert_eq!(none.check(OpenRuns { user: u64::MAX, workspace: u64::MAX }), Ok(()));
    }
}
