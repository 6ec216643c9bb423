//! What a workspace uses of models: `/v1/usage`, for its members.

use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Response};
use domain::time::rfc3339;
use domain::tokens::{DayUsage, day_ends, days_before};
use serde::Serialize;
use utoipa::ToSchema;

use crate::extract::paging::{List, pairs};
use crate::extract::{Caller, Named, Paging};
use crate::problem::Problem;
use crate::state::AppState;

const DAYS: i64 = 30;
pub(super) const MOST_DAYS: i64 = 366;

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
    /// The `after` of the page that follows; null on the last, and without `limit`.
    next: Option<String>,
}

fn shape(DayUsage { day, usage, runs }: DayUsage) -> DayView {
    let (input_tokens, output_tokens) = (usage.input_tokens, usage.output_tokens);
    DayView { day, input_tokens, output_tokens, total_tokens: input_tokens + output_tokens, runs }
}

/// What the workspace used, day by day, and what is left of today's limits.
#[utoipa::path(get, path = "/v1/usage", operation_id = "get_usage", tag = "models",
    params(("days" = Option<u32>, Query, description = "How many days, today included: 1 to 366; 30 when left out"),
        ("limit" = Option<u32>, Query, description = "At least 1; a page has at most 100, and all days come at once when left out"), ("after" = Option<String>, Query),
        ("workspace" = Option<Uuid>, Query)),
    responses((status = 200, body = UsageReport), (status = 400)))]
pub async fn show(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let (days, paging) = asked(query.as_deref().unwrap_or(""))?;
    let scope = caller.scope(named).await?;
    let (now, limits) = (app.clock.now(), app.limits.tokens());
    // First: what it counts is among the days then.
    let used = app.store.get_tokens_used(&scope, now).await?;
    let rows = app.store.list_usage(&scope, &days_before(now, days - 1)).await?;
    let List { data, next } = paging.cut(rows, |row| row.day.clone(), shape)?;
    let resets_at = rfc3339(day_ends(now));
    let of = |used, limit: u64| UsedView {
        used,
        limit: (limit > 0).then_some(limit),
        resets_at: resets_at.clone(),
    };
    let today =
        TodayView { user: of(used.user, limits.user), workspace: of(used.workspace, limits.workspace) };
    let view = UsageReport { data, today, next };
    app.tell_tokens(&scope, Ok(axum::Json(view).into_response())).await
}

/// How many days, and which page of them.
fn asked(query: &str) -> Result<(i64, Paging), Problem> {
    let (mut paging, days) = Paging::read(query, Some("days"))?;
    if !pairs(query)?.iter().any(|(name, _)| name == "limit") {
        paging.limit = MOST_DAYS as usize;
    }
    let Some(days) = days else { return Ok((DAYS, paging)) };
    let bad = || Problem::invalid_parameter("days", format!("days must be a number from 1 to {MOST_DAYS}."));
    let days = days.parse().ok().filter(|days| (1..=MOST_DAYS).contains(days)).ok_or_else(bad)?;
    Ok((days, paging))
}
