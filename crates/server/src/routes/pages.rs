//! Pages: `/v1/pages`. Markdown documents of a workspace, for all its members to read and write.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use domain::page::{Page, PageFault};
use domain::time::rfc3339;
use serde::{Deserialize, Serialize};
use store::knowledge::Listed;
use utoipa::ToSchema;
use uuid::Uuid;

use super::agents::{given, not_null};
use super::workspaces::path_id;
use crate::extract::paging::List;
use crate::extract::{Caller, Find, JsonBody, Named, Paging, Path};
use crate::jsonapi::error::sentence;
use crate::problem::Problem;
use crate::state::AppState;

#[derive(Debug, Serialize, ToSchema)]
pub struct PageView {
    id: Uuid,
    title: String,
    /// Markdown.
    body: String,
    /// Where it is from, if it is from the web.
    url: Option<String>,
    updated_at: String,
}

/// Of a new page title and body are needed; of another, what is left out stays as it is.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PageRequest {
    workspace: Option<Uuid>,
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = String)]
    title: Option<String>,
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = String)]
    body: Option<String>,
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    url: Option<Option<String>>,
}

/// A new page needs both.
#[derive(Debug, Deserialize, ToSchema)]
#[expect(dead_code, reason = "described for clients")]
pub struct CreatePage {
    #[serde(flatten)]
    request: PageRequest,
    title: String,
    body: String,
}

fn shape(page: Page) -> PageView {
    let Page { id, title, body, url, updated_at, .. } = page;
    PageView { id, title, body, url, updated_at: rfc3339(updated_at) }
}

impl From<PageFault> for Problem {
    fn from(fault: PageFault) -> Self {
        Self::invalid_value(&format!("/{}", fault.field), sentence(fault.detail))
    }
}

/// The workspace's pages; with `query` those that have its words, best first.
#[utoipa::path(get, path = "/v1/pages", operation_id = "list_pages", tag = "knowledge",
    params(("workspace" = Option<Uuid>, Query), ("query" = Option<String>, Query, description = "Words, or their beginnings"),
        ("limit" = Option<u32>, Query), ("after" = Option<String>, Query)),
    responses((status = 200, description = "A page of them", body = List<PageView>)))]
pub async fn list(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    find: Find,
) -> Result<Response, Problem> {
    let scope = caller.scope(named).await?;
    let found = match find.search()? {
        None => app.store.list_pages(&scope, find.paging.after()?, find.paging.limit).await?,
        Some(None) => Listed { items: Vec::new(), more: false },
        Some(Some(search)) => app.store.search_pages(&scope, &search).await?,
    };
    Ok(axum::Json(find.list(found, |page| page.id.to_string(), shape)?).into_response())
}

/// Makes a page.
#[utoipa::path(post, path = "/v1/pages", operation_id = "create_page", tag = "knowledge", params(("workspace" = Option<Uuid>, Query)),
    request_body = CreatePage, responses((status = 201, body = PageView)))]
pub async fn create(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    _: Paging,
    JsonBody(body): JsonBody<PageRequest>,
) -> Result<Response, Problem> {
    let scope = caller.scope(named.and(body.workspace)?).await?;
    let needed = |name: &str, value: Option<String>| {
        value.ok_or_else(|| Problem::invalid_value(&format!("/{name}"), format!("{name} is missing.")))
    };
    let now = app.clock.now();
    let page = Page {
        id: app.clock.new_id(),
        title: needed("title", body.title)?,
        body: needed("body", body.body)?,
        url: body.url.flatten(),
        created_at: now,
        updated_at: now,
    };
    page.check()?;
    app.store.create_page(&scope, &page).await?;
    Ok((StatusCode::CREATED, axum::Json(shape(page))).into_response())
}

/// One page.
#[utoipa::path(get, path = "/v1/pages/{id}", operation_id = "get_page", tag = "knowledge",
    params(("id" = Uuid, Path), ("workspace" = Option<Uuid>, Query)),
    responses((status = 200, body = PageView), (status = 404)))]
pub async fn show(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path(id): Path<String>,
    _: Paging,
) -> Result<Response, Problem> {
    let scope = caller.scope(named).await?;
    let page = app.store.find_page(&scope, path_id(&id)?).await?.ok_or_else(Problem::not_found)?;
    Ok(axum::Json(shape(page)).into_response())
}

/// Changes a page.
#[utoipa::path(put, path = "/v1/pages/{id}", operation_id = "update_page", tag = "knowledge",
    params(("id" = Uuid, Path), ("workspace" = Option<Uuid>, Query)), request_body = PageRequest,
    responses((status = 200, body = PageView), (status = 404)))]
pub async fn update(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path(id): Path<String>,
    _: Paging,
    JsonBody(body): JsonBody<PageRequest>,
) -> Result<Response, Problem> {
    let scope = caller.scope(named.and(body.workspace)?).await?;
    let found = app.store.find_page(&scope, path_id(&id)?).await?.ok_or_else(Problem::not_found)?;
    let page = Page {
        title: body.title.unwrap_or(found.title),
        body: body.body.unwrap_or(found.body),
        url: body.url.unwrap_or(found.url),
        updated_at: app.clock.now(),
        ..found
    };
    page.check()?;
    app.store.update_page(&scope, &page).await?;
    Ok(axum::Json(shape(page)).into_response())
}

/// Removes a page for good.
#[utoipa::path(delete, path = "/v1/pages/{id}", operation_id = "remove_page", tag = "knowledge",
    params(("id" = Uuid, Path), ("workspace" = Option<Uuid>, Query)), responses((status = 204), (status = 404)))]
pub async fn remove(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path(id): Path<String>,
    _: Paging,
) -> Result<StatusCode, Problem> {
    let scope = caller.scope(named).await?;
    app.store.remove_page(&scope, path_id(&id)?).await?;
    Ok(StatusCode::NO_CONTENT)
}
