//! A day's tokens: what is left of them, told in `RateLimit` headers beside the requests', and the refusal when
//! nothing is.

use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use domain::scope::Scope;
use domain::tokens::{OutOfTokens, TokenLimits, TokensUsed, Whose, seconds_left};
use jiff::Timestamp;

use crate::limit::add_policy;
use crate::problem::Problem;
use crate::state::App;

/// A day, in seconds.
const WINDOW: u64 = 86_400;

impl App {
    /// Refuses a call of a model when nothing is left of the day.
    pub async fn check_tokens(&self, scope: &Scope) -> Result<(), Problem> {
        let (limits, now) = (self.limits.tokens(), self.clock.now());
        if !limits.is_set() {
            return Ok(());
        }
        let used = self.store.get_tokens_used(scope, now).await?;
        limits.check(used).map_err(|spent| refused(spent, seconds_left(now)))
    }

    /// An answer, with what is left of the day where there is a limit.
    pub async fn tell_tokens(
        &self,
        scope: &Scope,
        answered: Result<Response, Problem>,
    ) -> Result<Response, Problem> {
        let (limits, now) = (self.limits.tokens(), self.clock.now());
        if !limits.is_set() {
            return answered;
        }
        let used = self.store.get_tokens_used(scope, now).await?;
        let mut response = answered.unwrap_or_else(Problem::into_response);
        tell(limits, used, now, response.headers_mut());
        Ok(response)
    }

    /// As `tell_tokens`, of what starts a run: with how many may be open, and that none is left where it is refused.
    pub async fn tell_limits(
        &self,
        scope: &Scope,
        answered: Result<Response, Problem>,
    ) -> Result<Response, Problem> {
        let none_left = answered.as_ref().is_err_and(|problem| problem.code == "too_many_runs");
        let mut response = self.tell_tokens(scope, answered).await.unwrap_or_else(Problem::into_response);
        let policy = format!("\"runs-user\";q={}", self.limits.max_open_runs_per_user);
        let left = none_left.then_some("\"runs-user\";r=0;t=1");
        add_policy(response.headers_mut(), &policy, left);
        Ok(response)
    }
}

fn tell(limits: TokenLimits, used: TokensUsed, now: Timestamp, headers: &mut HeaderMap) {
    let reset = seconds_left(now);
    for (name, limit, used) in
        [("tokens-user", limits.user, used.user), ("tokens-workspace", limits.workspace, used.workspace)]
    {
        if limit > 0 {
            let left = limit.saturating_sub(used.unsigned_abs());
            add_policy(
                headers,
                &format!("\"{name}\";q={limit};w={WINDOW}"),
                Some(&format!("\"{name}\";r={left};t={reset}")),
            );
        }
    }
}

/// `retry_after` is in seconds.
pub fn refused(spent: OutOfTokens, retry_after: u64) -> Problem {
    let whose = match spent.whose {
        Whose::User => "you",
        Whose::Workspace => "this workspace",
    };
    let limit = spent.limit;
    Problem::new(
        StatusCode::TOO_MANY_REQUESTS,
        "tokens_exhausted",
        "The day's tokens are used up",
        format!(
            "The {limit} tokens a day that {whose} may use are used up; they are there again at midnight UTC."
        ),
    )
    .with("limit", limit)
    .with("retry_after", retry_after)
}
