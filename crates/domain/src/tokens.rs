//! What a day costs in tokens, for a user and for a workspace, and what it may cost. A day is one of UTC.

use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use serde::Serialize;

use crate::run::Usage;

/// Tokens a day; 0 is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TokenLimits {
    pub user: u64,
    pub workspace: u64,
}

/// Tokens used so far on one day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TokensUsed {
    pub user: i64,
    pub workspace: i64,
}

/// What a workspace used on one day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DayUsage {
    /// As `2026-11-15`.
    pub day: String,
    pub usage: Usage,
    /// Runs that ended.
    pub runs: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Whose {
    User,
    Workspace,
}

/// A limit that has been reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfTokens {
    pub whose: Whose,
    pub limit: u64,
}

impl TokenLimits {
    pub fn is_set(self) -> bool {
        self != Self::default()
    }

    /// What a call costs is known only afterwards: the one that passes a limit is the last.
    pub fn check(self, used: TokensUsed) -> Result<(), OutOfTokens> {
        for (whose, limit, used) in
            [(Whose::User, self.user, used.user), (Whose::Workspace, self.workspace, used.workspace)]
        {
            if limit > 0 && used.unsigned_abs() >= limit {
                return Err(OutOfTokens { whose, limit });
            }
        }
        Ok(())
    }
}

/// The day of a moment, as `2026-11-15`.
pub fn day(at: Timestamp) -> String {
    at.to_zoned(TimeZone::UTC).date().to_string()
}

/// The day so many days before that of a moment.
pub fn days_before(at: Timestamp, days: i64) -> String {
    let date = at.to_zoned(TimeZone::UTC).date();
    date.checked_sub(days.days()).unwrap_or(jiff::civil::Date::MIN).to_string()
}

/// When the day of a moment is over.
pub fn day_ends(at: Timestamp) -> Timestamp {
    let next = at.to_zoned(TimeZone::UTC).date().tomorrow();
    next.and_then(|date| date.to_zoned(TimeZone::UTC)).map_or(Timestamp::MAX, |midnight| midnight.timestamp())
}

/// Seconds until the day of a moment is over, at least one.
pub fn seconds_left(at: Timestamp) -> u64 {
    let ms = day_ends(at).as_millisecond() - at.as_millisecond();
    u64::try_from(ms).unwrap_or(0).div_ceil(1000).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_begins_and_ends_at_midnight_in_utc() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let last = at("2026-11-15T23:59:59.999Z");
        assert_eq!(day(last), "2026-11-15");
        assert_eq!(day_ends(last), at("2026-11-16T00:00:00Z"));
        assert_eq!(day_ends(at("2026-11-16T00:00:00Z")), at("2026-11-17T00:00:00Z"));
        assert_eq!(days_before(at("2026-03-01T05:00:00Z"), 29), "2026-01-31");
        assert_eq!(days_before(last, 0), "2026-11-15");
    }

    #[test]
    fn a_limit_is_reached_when_it_is_used_up() {
        let limits = TokenLimits { user: 10, workspace: 15 };
        let check = |user, workspace| limits.check(TokensUsed { user, workspace });
        assert_eq!(check(9, 14), Ok(()));
        assert_eq!(check(10, 14), Err(OutOfTokens { whose: Whose::User, limit: 10 }));
        assert_eq!(check(9, 15), Err(OutOfTokens { whose: Whose::Workspace, limit: 15 }));
        assert_eq!(TokenLimits::default().check(TokensUsed { user: i64::MAX, workspace: 1 }), Ok(()));
        assert!(!TokenLimits::default().is_set() && limits.is_set());
    }
}
