//! Tables: `/v1/tables`. Typed columns; the rows are `rows`, files of them `table_files`.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use domain::scope::Scope;
use domain::table::{Column, Table, check_columns, check_name};
use domain::time::rfc3339;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::agents::not_null;
use super::workspaces::path_id;
use crate::extract::paging::List;
use crate::extract::{Caller, JsonBody, Named, Paging, Path};
use crate::problem::Problem;
use crate::state::{App, AppState};
use crate::words::ColumnType;

/// A column, as `Column` writes it.
#[derive(Debug, Serialize, ToSchema)]
pub struct ColumnDocument {
    name: String,
    #[serde(rename = "type")]
    #[schema(value_type = ColumnType)]
    kind: String,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct TableView {
    id: Uuid,
    name: String,
    #[schema(value_type = Vec<ColumnDocument>)]
    columns: Vec<Column>,
    row_count: i64,
    updated_at: String,
}

/// Of a new table all is needed; of another, what is left out stays as it is.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TableRequest {
    workspace: Option<Uuid>,
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = String)]
    name: Option<String>,
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Vec<ColumnDocument>)]
    columns: Option<Vec<Column>>,
}

/// A new table needs both.
#[derive(Debug, Deserialize, ToSchema)]
#[expect(dead_code, reason = "described for clients")]
pub struct CreateTable {
    #[serde(flatten)]
    request: TableRequest,
    name: String,
    #[schema(value_type = Vec<ColumnDocument>)]
    columns: Vec<Column>,
}

fn shape(table: Table) -> TableView {
    let Table { id, name, columns, row_count, updated_at, .. } = table;
    TableView { id, name, columns, row_count, updated_at: rfc3339(updated_at) }
}

pub(super) async fn get(app: &App, scope: &Scope, id: &str) -> Result<Table, Problem> {
    app.store.find_table(scope, path_id(id)?).await?.ok_or_else(Problem::not_found)
}

/// The workspace's tables.
#[utoipa::path(get, path = "/v1/tables", operation_id = "list_tables", tag = "knowledge",
    params(("workspace" = Option<Uuid>, Query), ("limit" = Option<u32>, Query), ("after" = Option<String>, Query)),
    responses((status = 200, description = "A page of them", body = List<TableView>)))]
pub async fn list(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    paging: Paging,
) -> Result<Response, Problem> {
    let scope = caller.scope(named).await?;
    let tables = app.store.list_tables(&scope, paging.after()?, paging.rows()).await?;
    Ok(axum::Json(paging.list(tables, |table| table.id.to_string(), shape)).into_response())
}

/// Makes a table.
#[utoipa::path(post, path = "/v1/tables", operation_id = "create_table", tag = "knowledge", params(("workspace" = Option<Uuid>, Query)),
    request_body = CreateTable, responses((status = 201, body = TableView)))]
pub async fn create(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    _: Paging,
    JsonBody(body): JsonBody<TableRequest>,
) -> Result<Response, Problem> {
    let scope = caller.scope(named.and(body.workspace)?).await?;
    let missing = |name: &str| Problem::invalid_value(&format!("/{name}"), format!("{name} is missing."));
    let now = app.clock.now();
    let table = Table {
        id: app.clock.new_id(),
        name: body.name.ok_or_else(|| missing("name"))?,
        columns: body.columns.ok_or_else(|| missing("columns"))?,
        row_count: 0,
        created_at: now,
        updated_at: now,
    };
    check_name(&table.name)?;
    check_columns(&table.columns)?;
    app.store.create_table(&scope, &table).await?;
    Ok((StatusCode::CREATED, axum::Json(shape(table))).into_response())
}

/// One table, without its rows.
#[utoipa::path(get, path = "/v1/tables/{id}", operation_id = "get_table", tag = "knowledge",
    params(("id" = Uuid, Path), ("workspace" = Option<Uuid>, Query)),
    responses((status = 200, body = TableView), (status = 404)))]
pub async fn show(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path(id): Path<String>,
    _: Paging,
) -> Result<Response, Problem> {
    let scope = caller.scope(named).await?;
    Ok(axum::Json(shape(get(&app, &scope, &id).await?)).into_response())
}

/// Renames a table, or adds columns to it. None can be removed, renamed or given another type.
#[utoipa::path(put, path = "/v1/tables/{id}", operation_id = "update_table", tag = "knowledge",
    params(("id" = Uuid, Path), ("workspace" = Option<Uuid>, Query)), request_body = TableRequest,
    responses((status = 200, body = TableView), (status = 404)))]
pub async fn update(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path(id): Path<String>,
    _: Paging,
    JsonBody(body): JsonBody<TableRequest>,
) -> Result<Response, Problem> {
    let scope = caller.scope(named.and(body.workspace)?).await?;
    if let Some(name) = &body.name {
        check_name(name)?;
    }
    let (name, columns) = (body.name.as_deref(), body.columns.as_deref());
    let table = app.store.update_table(&scope, path_id(&id)?, name, columns, app.clock.now()).await?;
    Ok(axum::Json(shape(table)).into_response())
}

/// Removes a table for good, with its rows.
#[utoipa::path(delete, path = "/v1/tables/{id}", operation_id = "remove_table", tag = "knowledge",
    params(("id" = Uuid, Path), ("workspace" = Option<Uuid>, Query)), responses((status = 204), (status = 404)))]
pub async fn remove(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path(id): Path<String>,
    _: Paging,
) -> Result<StatusCode, Problem> {
    let scope = caller.scope(named).await?;
    app.store.remove_table(&scope, path_id(&id)?).await?;
    Ok(StatusCode::NO_CONTENT)
}
