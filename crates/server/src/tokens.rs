//! A day's tokens and open runs: what is left of them, told in `RateLimit` headers beside the requests', and the
//! refusal when nothing is.

use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use domain::open_runs::{OpenRuns, RunLimits, TooManyRuns};
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

    /// As `tell_tokens`, of what starts a run: with how many more may be opened. `open` is what is known to be.
    pub async fn tell_limits(
        &self,
        scope: &Scope,
        open: Option<OpenRuns>,
        answered: Result<Response, Problem>,
    ) -> Result<Response, Problem> {
        let limits = self.limits.open_runs();
        let mut response = self.tell_tokens(scope, answered).await.unwrap_or_else(Problem::into_response);
        let open = match open {
            Some(open) => Some(open),
            // An answer stands whether or not this can be told with it.
            None => self.store.get_open_runs(scope, limits).await.ok(),
        };
        tell_open(limits, open, response.headers_mut());
        Ok(response)
    }
}

/// A run may end at any moment: looking again after a second is worth it.
fn tell_open(limits: RunLimits, open: Option<OpenRuns>, headers: &mut HeaderMap) {
    for (name, limit, open) in [
        ("runs-user", limits.user, open.map(|open| open.user)),
        ("runs-workspace", limits.workspace, open.map(|open| open.workspace)),
    ] {
        if limit > 0 {
            let left = open.map(|open| format!("\"{name}\";r={};t=1", limit.saturating_sub(open)));
            add_policy(headers, &format!("\"{name}\";q={limit}"), left.as_deref());
        }
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

pub fn too_many_runs(full: TooManyRuns) -> Problem {
    let limit = full.limit;
    let who = match full.whose {
        Whose::User => "You have",
        Whose::Workspace => "This workspace has",
    };
    Problem::new(
        StatusCode::TOO_MANY_REQUESTS,
        "too_many_runs",
        "Too many at once",
        format!("{who} {limit} runs open already; let one end first."),
    )
    .with("limit", limit)
    .with("retry_after", 1)
}
