//! The rows of a table, at `/v1/tables/{id}/rows`: flat objects of columns and values, each with its `_id`.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use domain::table::{Row, RowFaults, Table, read_rows, row_json};
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use store::knowledge::Listed;
use utoipa::ToSchema;
use uuid::Uuid;

use super::tables::get;
use super::workspaces::path_id;
use crate::extract::{Caller, Find, JsonBody, Named, Paging, Path};
use crate::problem::Problem;
use crate::state::AppState;

/// Of one request; more come as a file.
const MAX_ROWS: usize = 10_000;

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RowsRequest {
    workspace: Option<Uuid>,
    /// A value for each column; what is left out is null.
    #[schema(value_type = Vec<Object>)]
    rows: Vec<Box<RawValue>>,
}

/// The rows that were added.
#[derive(Debug, Serialize, ToSchema)]
pub struct RowsView {
    inserted: usize,
    #[schema(value_type = Vec<Object>)]
    rows: Vec<Box<RawValue>>,
}

/// A page of rows, as `List` writes it: each with `_id` and a value for each column.
#[derive(Debug, Serialize, ToSchema)]
pub struct RowList {
    #[schema(value_type = Vec<Object>)]
    data: Vec<Box<RawValue>>,
    next: Option<String>,
}

fn shape(table: &Table, row: &Row) -> Box<RawValue> {
    RawValue::from_string(row_json(&table.columns, row, true)).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// Rows that do not fit their table: nothing of the request was stored.
pub(super) fn refused(faults: &RowFaults) -> Problem {
    let first = faults.first.first().map(|fault| {
        let column = fault.column.as_ref().map(|column| format!(", column {column:?}")).unwrap_or_default();
        format!(" The first is in row {}{column}: {}.", fault.row, fault.message)
    });
    let unit = if faults.count == 1 { "thing is" } else { "things are" };
    let detail = format!("{} {unit} wrong; nothing was stored.{}", faults.count, first.unwrap_or_default());
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_rows", "Rows do not fit the table", detail)
        .with("imported", 0)
        .with("errors", json!(faults.first))
        .with("error_count", faults.count)
}

/// A table's rows; with `query` those that have its words, best first.
#[utoipa::path(get, path = "/v1/tables/{id}/rows", operation_id = "list_rows", tag = "knowledge",
    params(("id" = Uuid, Path), ("workspace" = Option<Uuid>, Query), ("query" = Option<String>, Query, description = "Words, or their beginnings"),
        ("limit" = Option<u32>, Query), ("after" = Option<String>, Query)),
    responses((status = 200, description = "A page of them, each with `_id` and a value for each column", body = RowList), (status = 404)))]
pub async fn list(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path(id): Path<String>,
    find: Find,
) -> Result<Response, Problem> {
    let scope = caller.scope(named).await?;
    let table = get(&app, &scope, &id).await?;
    let found = match find.search()? {
        None => app.store.list_rows(&scope, table.id, find.paging.after()?, find.paging.limit).await?,
        Some(None) => Listed { items: Vec::new(), more: false },
        Some(Some(search)) => {
            let found = app.store.search_rows(&scope, Some(table.id), &search).await?;
            Listed { items: found.items.into_iter().map(|found| found.row).collect(), more: found.more }
        }
    };
    let list = find.list(found, |row| row.id.to_string(), |row| shape(&table, &row))?;
    Ok(axum::Json(list).into_response())
}

/// Adds rows: all of them, or none.
#[utoipa::path(post, path = "/v1/tables/{id}/rows", operation_id = "add_rows", tag = "knowledge",
    params(("id" = Uuid, Path), ("workspace" = Option<Uuid>, Query)), request_body = RowsRequest,
    responses((status = 201, body = RowsView), (status = 404), (status = 422, description = "`errors` tells row by row")))]
pub async fn add(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path(id): Path<String>,
    _: Paging,
    JsonBody(body): JsonBody<RowsRequest>,
) -> Result<Response, Problem> {
    let scope = caller.scope(named.and(body.workspace)?).await?;
    let table = get(&app, &scope, &id).await?;
    if body.rows.is_empty() || body.rows.len() > MAX_ROWS {
        return Err(Problem::invalid_value("/rows", format!("rows must be 1 to {MAX_ROWS}.")));
    }
    let cells = read_rows(&table.columns, &body.rows).map_err(|faults| refused(&faults))?;
    let rows: Vec<Row> = cells.into_iter().map(|cells| Row { id: app.clock.new_id(), cells }).collect();
    app.store.add_rows(&scope, table.id, &rows, app.clock.now()).await?;
    let rows: Vec<Box<RawValue>> = rows.iter().map(|row| shape(&table, row)).collect();
    Ok((StatusCode::CREATED, axum::Json(RowsView { inserted: rows.len(), rows })).into_response())
}

/// One row.
#[utoipa::path(get, path = "/v1/tables/{id}/rows/{row}", operation_id = "get_row", tag = "knowledge",
    params(("id" = Uuid, Path), ("row" = Uuid, Path), ("workspace" = Option<Uuid>, Query)),
    responses((status = 200, body = Object), (status = 404)))]
pub async fn show(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path((id, row)): Path<(String, String)>,
    _: Paging,
) -> Result<Response, Problem> {
    let scope = caller.scope(named).await?;
    let table = get(&app, &scope, &id).await?;
    let row = app.store.find_row(&scope, table.id, path_id(&row)?).await?.ok_or_else(Problem::not_found)?;
    Ok(axum::Json(shape(&table, &row)).into_response())
}

/// Replaces a row: what is left out becomes null.
#[utoipa::path(put, path = "/v1/tables/{id}/rows/{row}", operation_id = "update_row", tag = "knowledge",
    params(("id" = Uuid, Path), ("row" = Uuid, Path), ("workspace" = Option<Uuid>, Query)), request_body = Object,
    responses((status = 200, body = Object), (status = 404), (status = 422, description = "`errors` tells by column")))]
pub async fn update(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path((id, row)): Path<(String, String)>,
    _: Paging,
    JsonBody(mut body): JsonBody<BTreeMap<String, Box<RawValue>>>,
) -> Result<Response, Problem> {
    let scope = caller.scope(named).await?;
    let table = get(&app, &scope, &id).await?;
    let id = path_id(&row)?;
    // Whoever read the row sends its id back.
    if body.remove("_id").is_some_and(|own| own.get() != format!("\"{id}\"")) {
        return Err(Problem::invalid_value("/_id", "_id is not the one in the path."));
    }
    let raw = to_raw_value(&body).map_err(|_| Problem::internal())?;
    let mut cells = read_rows(&table.columns, &[raw]).map_err(|faults| refused(&faults))?;
    let row = Row { id, cells: cells.swap_remove(0) };
    app.store.update_row(&scope, table.id, &row, app.clock.now()).await?;
    Ok(axum::Json(shape(&table, &row)).into_response())
}

/// Removes a row for good.
#[utoipa::path(delete, path = "/v1/tables/{id}/rows/{row}", operation_id = "remove_row", tag = "knowledge",
    params(("id" = Uuid, Path), ("row" = Uuid, Path), ("workspace" = Option<Uuid>, Query)),
    responses((status = 204), (status = 404)))]
pub async fn remove(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path((id, row)): Path<(String, String)>,
    _: Paging,
) -> Result<StatusCode, Problem> {
    let scope = caller.scope(named).await?;
    app.store.remove_row(&scope, path_id(&id)?, path_id(&row)?, app.clock.now()).await?;
    Ok(StatusCode::NO_CONTENT)
}
