//! The address that `serve` prints: it logs the browser in, in local mode, and shows the web app.

use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use jiff::SignedDuration;

use crate::auth::session::{Session, check_login_ticket};
use crate::extract::paging::pairs;
use crate::problem::Problem;
use crate::state::AppState;
use crate::web;

/// A local browser stays logged in for this long.
const LOCAL_SESSION: SignedDuration = SignedDuration::from_hours(30 * 24);

/// What runs here.
#[utoipa::path(get, path = "/", operation_id = "home", tag = "operating",
    responses((status = 200, description = "A page for people", content_type = "text/html", body = String)))]
pub async fn home(headers: HeaderMap) -> Response {
    web::index(&headers)
}

/// Logs the local browser in with the ticket of this start.
#[utoipa::path(get, path = "/login", operation_id = "log_in", tag = "session", params(("ticket" = String, Query, description = "As printed at start")),
    responses((status = 303, description = "Logged in; on to /"), (status = 400), (status = 401, description = "Not this start's ticket"),
        (status = 404, description = "Not in local mode")))]
pub async fn login(State(app): State<AppState>, RawQuery(query): RawQuery) -> Result<Response, Problem> {
    let local = app.local.as_ref().ok_or_else(Problem::not_found)?;
    let ticket = pairs(query.as_deref().unwrap_or(""))?
        .into_iter()
        .find_map(|(name, value)| (name == "ticket").then_some(value))
        .unwrap_or_default();
    if !check_login_ticket(&ticket, &app.secret, local.boot_id) {
        return Err(Problem::unauthenticated(
            "This is not the ticket of the server that runs now; open the address that it printed when it started.",
        ));
    }
    let now = app.clock.now();
    let expires_at = now.checked_add(LOCAL_SESSION).unwrap_or(now);
    let session = Session { user: local.user.clone(), org: local.org.clone(), expires_at };
    let cookie = session.set_cookie(&app.secret, now, &app.public_url);
    let cookie = HeaderValue::from_str(&cookie).map_err(|_| Problem::internal())?;
    let headers = [(header::LOCATION, HeaderValue::from_static("/")), (header::SET_COOKIE, cookie)];
    Ok((StatusCode::SEE_OTHER, headers).into_response())
}
