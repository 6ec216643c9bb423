//! Requests per second and caller, told in `RateLimit` headers. The count is this node's own.

use std::num::NonZeroU32;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, StatusCode};
use governor::clock::{Clock as _, DefaultClock};
use governor::middleware::StateInformationMiddleware;
use governor::state::keyed::DefaultKeyedStateStore;
use governor::{Quota, RateLimiter};

use crate::problem::Problem;

type Limiter = RateLimiter<String, DefaultKeyedStateStore<String>, DefaultClock, StateInformationMiddleware>;

pub struct RateLimit {
    limiter: Limiter,
    clock: DefaultClock,
    per_second: u32,
}

/// What is left of a caller's allowance.
#[derive(Debug, Clone, Copy)]
pub struct Allowance {
    per_second: u32,
    remaining: u32,
    /// Until there is room again (or until it is all there again).
    reset: Duration,
}

impl RateLimit {
    /// `None` for no limit. A burst may take twice the rate.
    pub fn new(per_second: u64) -> Option<Self> {
        let rate = NonZeroU32::new(u32::try_from(per_second).unwrap_or(u32::MAX))?;
        let burst = rate.saturating_mul(NonZeroU32::MIN.saturating_add(1));
        let limiter = RateLimiter::keyed(Quota::per_second(rate).allow_burst(burst))
            .with_middleware::<StateInformationMiddleware>();
        Some(Self { limiter, clock: DefaultClock::default(), per_second: rate.get() })
    }

    /// Counts one request of a caller.
    pub fn take(&self, caller: &str) -> Result<Allowance, Allowance> {
        // Callers that have been quiet are forgotten now and then, so that the map stays small.
        if self.limiter.len() > 10_000 {
            self.limiter.retain_recent();
        }
        match self.limiter.check_key(&caller.to_owned()) {
            Ok(state) => Ok(Allowance {
                per_second: self.per_second,
                remaining: state.remaining_burst_capacity(),
                reset: Duration::from_secs(1),
            }),
            Err(until) => Err(Allowance {
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
        Problem::new(
            StatusCode::TOO_MANY_REQUESTS,
            "rate_limited",
            "Too many requests",
            format!("More than {} requests a second; wait and try again.", self.per_second),
        )
        .with("limit", self.per_second)
        .with("retry_after", self.reset_seconds())
    }

    pub fn tell(self, headers: &mut HeaderMap) {
        let policy = format!("\"requests\";q={};w=1", self.per_second);
        let left = format!("\"requests\";r={};t={}", self.remaining, self.reset_seconds());
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
        let limit = RateLimit::new(5).unwrap();
        for n in 0..10 {
            assert_eq!(limit.take("ann").unwrap().remaining, 9 - n);
        }
        let refused = limit.take("ann").unwrap_err();
        assert_eq!(refused.remaining, 0);
        assert!(limit.take("bob").is_ok());
        assert!(RateLimit::new(0).is_none());
    }
}
