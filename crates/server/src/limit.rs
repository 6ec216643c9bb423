//! Requests per second, of a caller and of a workspace, told in `RateLimit` headers. The count is this node's own.

use std::num::NonZeroU32;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, StatusCode};
use governor::clock::{Clock as _, DefaultClock};
use governor::middleware::StateInformationMiddleware;
use governor::state::keyed::DefaultKeyedStateStore;
use governor::{Quota, RateLimiter};

use crate::problem::Problem;

type Limiter = RateLimiter<String, DefaultKeyedStateStore<String>, DefaultClock, StateInformationMiddleware>;

/// Whose requests are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    Caller,
    Workspace,
}

pub struct RateLimit {
    counted: Counted,
    limiter: Limiter,
    clock: DefaultClock,
    per_second: u32,
}

/// What is left of an allowance.
#[derive(Debug, Clone, Copy)]
pub struct Allowance {
    counted: Counted,
    per_second: u32,
    remaining: u32,
    /// Until there is room again (or until it is all there again).
    reset: Duration,
}

impl RateLimit {
    /// `None` for no limit. A burst may take twice the rate.
    pub fn new(counted: Counted, per_second: u64) -> Option<Self> {
        let rate = NonZeroU32::new(u32::try_from(per_second).unwrap_or(u32::MAX))?;
        let burst = rate.saturating_mul(NonZeroU32::MIN.saturating_add(1));
        let limiter = RateLimiter::keyed(Quota::per_second(rate).allow_burst(burst))
            .with_middleware::<StateInformationMiddleware>();
        Some(Self { counted, limiter, clock: DefaultClock::default(), per_second: rate.get() })
    }

    /// Counts one request.
    pub fn take(&self, whose: &str) -> Result<Allowance, Allowance> {
        // Those that have been quiet are forgotten now and then, so that the map stays small.
        if self.limiter.len() > 10_000 {
            self.limiter.retain_recent();
        }
        match self.limiter.check_key(&whose.to_owned()) {
            Ok(state) => Ok(Allowance {
                counted: self.counted,
                per_second: self.per_second,
                remaining: state.remaining_burst_capacity(),
                reset: Duration::from_secs(1),
            }),
            Err(until) => Err(Allowance {
                counted: self.counted,
                per_second: self.per_second,
                remaining: 0,
                reset: until.wait_time_from(self.clock.now()),
            }),
        }
    }
}

impl Allowance {
    fn reset_seconds(self) -> u64 {
        self.reset.as_millis().div_ceil(1000).max(1) as u64
    }

    pub fn refused(self) -> Problem {
        let whose = match self.counted {
            Counted::Caller => "",
            Counted::Workspace => " of this workspace",
        };
        Problem::new(
            StatusCode::TOO_MANY_REQUESTS,
            "rate_limited",
            "Too many requests",
            format!("More than {} requests a second{whose}; wait and try again.", self.per_second),
        )
        .with("limit", self.per_second)
        .with("retry_after", self.reset_seconds())
    }

    pub fn tell(self, headers: &mut HeaderMap) {
        let name = match self.counted {
            Counted::Caller => "requests",
            Counted::Workspace => "requests-workspace",
        };
        let policy = format!("\"{name}\";q={};w=1", self.per_second);
        let left = format!("\"{name}\";r={};t={}", self.remaining, self.reset_seconds());
        add_policy(headers, &policy, Some(&left));
    }
}

/// Puts one more limit, and what is left of it where that is known, into the `RateLimit` headers.
pub fn add_policy(headers: &mut HeaderMap, policy: &str, left: Option<&str>) {
    for (name, text) in [("ratelimit-policy", Some(policy)), ("ratelimit", left)] {
        let Some(text) = text else { continue };
        let before = headers.get(name).and_then(|value| value.to_str().ok());
        let all = before.map_or_else(|| text.to_owned(), |before| format!("{before}, {text}"));
        if let Ok(value) = HeaderValue::from_str(&all) {
            headers.insert(name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_of_twice_the_rate_passes_and_callers_do_not_share() {
        let limit = RateLimit::new(Counted::Caller, 5).unwrap();
        for n in 0..10 {
            assert_eq!(limit.take("ann").unwrap().remaining, 9 - n);
        }
        let refused = limit.take("ann").unwrap_err();
        assert_eq!(refused.remaining, 0);
        assert!(limit.take("bob").is_ok());
        assert!(RateLimit::new(Counted::Workspace, 0).is_none());
    }
}
