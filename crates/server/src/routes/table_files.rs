//! Tables in and out: `/v1/tables/{id}/import` and `/export`. Neither holds more than a few rows in memory, and a file
//! with anything wrong in it leaves nothing behind.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{RawQuery, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use domain::file::safe_name;
use domain::scope::Scope;
use domain::table::{Cell, Format, Row, RowFault, RowReader, RowWriter, Table};
use futures_util::stream;
use serde::Serialize;
use store::StoreError;
use utoipa::ToSchema;
use uuid::Uuid;

use super::rows::refused;
use super::tables::get;
use crate::content::{disposition, put};
use crate::extract::paging::pairs;
use crate::extract::table_file::TableFile;
use crate::extract::{Caller, Named, Paging, Path};
use crate::problem::Problem;
use crate::state::AppState;

/// Rows that are written or read at once.
const BATCH: usize = 500;
/// Bytes of a file after which its rows are written, however few they are.
const BATCH_BYTES: usize = 1024 * 1024;
/// A file has to have come within this.
const TIME: Duration = Duration::from_secs(3600);

#[derive(Debug, Serialize, ToSchema)]
pub struct Imported {
    imported: u64,
    /// Always empty: a file with errors is refused as a whole, with 422 and the same two fields.
    #[schema(value_type = Vec<Object>)]
    errors: Vec<RowFault>,
}

/// An import under way. Unless it is kept, its rows are taken back, also when the request is dropped.
struct Import<'a> {
    app: &'a AppState,
    scope: &'a Scope,
    table: Uuid,
    id: Uuid,
    staged: u64,
}

impl Import<'_> {
    async fn stage(&mut self, rows: &mut Vec<Vec<Cell>>) -> Result<(), Problem> {
        let (clock, store) = (&self.app.clock, &self.app.store);
        while !rows.is_empty() {
            let batch = rows.drain(..rows.len().min(BATCH));
            let batch: Vec<Row> = batch.map(|cells| Row { id: clock.new_id(), cells }).collect();
            // Counted before it is known: what may be there is taken back.
            self.staged += batch.len() as u64;
            store.stage_rows(self.scope, self.table, self.id, &batch, clock.now()).await?;
        }
        Ok(())
    }

    async fn keep(mut self) -> Result<u64, Problem> {
        if self.staged == 0 {
            return Ok(0);
        }
        let now = self.app.clock.now();
        let kept = self.app.store.keep_import(self.scope, self.table, self.id, self.staged, now).await;
        let staged = self.staged;
        if !matches!(kept, Err(StoreError::NotFound)) {
            // Kept, or it is not known: then nobody may take them back.
            self.staged = 0;
        }
        kept?;
        Ok(staged)
    }
}

impl Drop for Import<'_> {
    fn drop(&mut self) {
        if self.staged == 0 {
            return;
        }
        let (app, scope, table, id) = (self.app.clone(), self.scope.clone(), self.table, self.id);
        self.app.tasks.spawn(async move {
            if let Err(error) = app.store.drop_import(&scope, table, id).await {
                tracing::warn!(%error, "the rows of a refused import are left to a later one");
            }
        });
    }
}

/// Adds the rows of a file: CSV whose first line names columns, an array of objects, or an object on each line.
#[utoipa::path(post, path = "/v1/tables/{id}/import", operation_id = "import_rows", tag = "knowledge",
    params(("id" = Uuid, Path), ("workspace" = Option<Uuid>, Query)),
    request_body(content((String = "text/csv"), (Vec<Object> = "application/json"), (String = "application/x-ndjson"), (super::files::UploadForm = "multipart/form-data"))),
    responses((status = 200, body = Imported), (status = 404), (status = 413), (status = 415), (status = 422, description = "`errors` tells row by row")))]
pub async fn import(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path(id): Path<String>,
    _: Paging,
    request: Request,
) -> Result<Response, Problem> {
    let scope = caller.scope(named).await?;
    let table = get(&app, &scope, &id).await?;
    let mut file = TableFile::open(request, app.limits.max_file_bytes).await?;
    let taken = tokio::time::timeout(TIME, take(&app, &scope, &table, &mut file)).await;
    let taken = taken.unwrap_or_else(|_| {
        let detail = format!("The file did not come within {} seconds.", TIME.as_secs());
        Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", "Request time-out", detail))
    });
    Ok(axum::Json(Imported { imported: taken?, errors: Vec::new() }).into_response())
}

async fn take(app: &AppState, scope: &Scope, table: &Table, file: &mut TableFile) -> Result<u64, Problem> {
    let mut reader = RowReader::new(&table.columns, file.format);
    let mut import = Import { app, scope, table: table.id, id: app.clock.new_id(), staged: 0 };
    let (mut rows, mut bytes) = (Vec::new(), 0);
    while let Some(piece) = file.piece().await? {
        reader.push(&piece, &mut rows);
        bytes += piece.len();
        if rows.len() >= BATCH || bytes >= BATCH_BYTES {
            import.stage(&mut rows).await?;
            bytes = 0;
        }
    }
    reader.finish(&mut rows).map_err(|faults| refused(&faults))?;
    import.stage(&mut rows).await?;
    import.keep().await
}

pub(super) const FORMATS: [&str; 3] = ["csv", "json", "ndjson"];

fn asked_format(query: Option<&str>) -> Result<Format, Problem> {
    let mut format = None;
    for (name, value) in pairs(query.unwrap_or(""))? {
        match name.as_str() {
            "workspace" => {}
            "format" if format.is_some() => {
                return Err(Problem::invalid_parameter("format", "format is given twice."));
            }
            "format" => {
                let all = FORMATS.into_iter().zip([Format::Csv, Format::Json, Format::Ndjson]);
                format = all.into_iter().find_map(|(name, format)| (name == value).then_some(format));
                if format.is_none() {
                    let detail = "format must be csv, json or ndjson.";
                    return Err(Problem::invalid_parameter("format", detail));
                }
            }
            _ => return Err(Problem::unknown_parameter(&name)),
        }
    }
    Ok(format.unwrap_or(Format::Csv))
}

/// All rows of a table as a file that `import` reads.
#[utoipa::path(get, path = "/v1/tables/{id}/export", operation_id = "export_rows", tag = "knowledge",
    params(("id" = Uuid, Path), ("workspace" = Option<Uuid>, Query), ("format" = Option<String>, Query, description = "`csv` (default), `json` or `ndjson`")),
    responses((status = 200, description = "The file", content((String = "text/csv"), (Vec<Object> = "application/json"), (String = "application/x-ndjson"))), (status = 404)))]
pub async fn export(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let format = asked_format(query.as_deref())?;
    let scope = caller.scope(named).await?;
    let table = get(&app, &scope, &id).await?;
    let (kind, extension) = match format {
        Format::Csv => ("text/csv; charset=utf-8; header=present", "csv"),
        Format::Json => ("application/json", "json"),
        Format::Ndjson => ("application/x-ndjson", "ndjson"),
    };
    let name = safe_name(&format!("{}.{extension}", table.name));
    let mut response = Body::from_stream(file_of(app, scope, table, format)).into_response();
    put(response.headers_mut(), header::CONTENT_TYPE, kind);
    put(response.headers_mut(), header::CONTENT_DISPOSITION, &disposition(false, &name));
    Ok(response)
}

/// Where an export stands.
enum At {
    Begin,
    After(Option<Uuid>),
    Over,
}

/// The file page by page. One that cannot be read to its end breaks off, so that nobody takes it for whole.
fn file_of(
    app: AppState,
    scope: Scope,
    table: Table,
    format: Format,
) -> impl stream::Stream<Item = Result<Bytes, StoreError>> {
    let writer = RowWriter::new(&table.columns, format);
    stream::try_unfold((At::Begin, writer), move |(at, mut writer)| {
        let (app, scope, table) = (app.clone(), scope.clone(), table.id);
        async move {
            let after = match at {
                At::Begin => return Ok(Some((Bytes::from(writer.begin()), (At::After(None), writer)))),
                At::After(after) => after,
                At::Over => return Ok(None),
            };
            let page = app.store.list_rows(&scope, table, after, BATCH).await?;
            let mut text = writer.rows(&page.items);
            let next = match page.items.last() {
                Some(last) if page.more => At::After(Some(last.id)),
                _ => {
                    text.push_str(writer.end());
                    At::Over
                }
            };
            Ok(Some((Bytes::from(text), (next, writer))))
        }
    })
}
