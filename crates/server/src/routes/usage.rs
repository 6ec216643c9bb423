//! What a workspace uses of models: `/v1/usage`, for its members.

use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Response};
use domain::time::rfc3339;
use domain::tokens::{DayUsage, day_ends, days_before};
use serde::Serialize;
use utoipa::ToSchema;

use crate::extract::paging::pairs;
use crate::extract::{Caller, Named};
use crate::problem::Problem;
use crate::state::AppState;

const DAYS: i64 = 30;
const MOST_DAYS: i64 = 366;

/// One day (UTC) of the workspace; one without use is left out.
#[derive(Debug, Serialize, ToSchema)]
pub struct DayView {
    /// As `2026-11-15`.
    day: String,
    input_tokens: i64,
    output_tokens: i64,
    total_tokens: i64,
    /// Runs that ended.
    runs: i64,
}

/// What today's tokens stand at.
#[derive(Debug, Serialize, ToSchema)]
pub struct TodayView {
    /// The caller in this workspace.
    user: UsedView,
    workspace: UsedView,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct UsedView {
    used: i64,
    /// Null where there is none.
    limit: Option<u64>,
    resets_at: String,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct UsageReport {
    /// Newest first.
    data: Vec<DayView>,
    today: TodayView,
    /// Always null: all days come at once.
    next: Option<String>,
}

fn shape(DayUsage { day, usage, runs }: DayUsage) -> DayView {
    let (input_tokens, output_tokens) = (usage.input_tokens, usage.output_tokens);
    DayView { day, input_tokens, output_tokens, total_tokens: input_tokens + output_tokens, runs }
}

/// What the workspace used, day by day, and what is left of today's limits.
#[utoipa::path(get, path = "/v1/usage", operation_id = "get_usage", tag = "models",
    params(("days" = Option<u32>, Query, description = "How many days, today included: 1 to 366; 30 when left out"),
        ("workspace" = Option<Uuid>, Query)),
    responses((status = 200, body = UsageReport), (status = 400)))]
pub async fn show(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let days = days(query.as_deref().unwrap_or(""))?;
    let scope = caller.scope(named).await?;
    let (now, limits) = (app.clock.now(), app.limits.tokens());
    let data = app.store.list_usage(&scope, &days_before(now, days - 1)).await?;
    let used = app.store.get_tokens_used(&scope, now).await?;
    let resets_at = rfc3339(day_ends(now));
    let of = |used, limit: u64| UsedView {
        used,
        limit: (limit > 0).then_some(limit),
        resets_at: resets_at.clone(),
    };
    let today =
        TodayView { user: of(used.user, limits.user), workspace: of(used.workspace, limits.workspace) };
    let view = UsageReport { data: data.into_iter().map(shape).collect(), today, next: None };
    app.tell_tokens(&scope, Ok(axum::Json(view).into_response())).await
}

fn days(query: &str) -> Result<i64, Problem> {
    let mut days = None;
    for (name, value) in pairs(query)? {
        match name.as_str() {
            "workspace" => {}
            "days" if days.is_some() => {
                return Err(Problem::invalid_parameter("days", "days is given twice."));
            }
            "days" => {
                let bad = || {
                    let detail = format!("days must be a number from 1 to {MOST_DAYS}.");
                    Problem::invalid_parameter("days", detail)
                };
                let number = value.parse().ok().filter(|days| (1..=MOST_DAYS).contains(days));
                days = Some(number.ok_or_else(bad)?);
            }
            _ => return Err(Problem::unknown_parameter(&name)),
        }
    }
    Ok(days.unwrap_or(DAYS))
}
