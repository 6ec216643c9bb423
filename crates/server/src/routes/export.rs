//! Everything of a workspace, or one conversation, as a stream: `/v1/export`, for admins.

use std::io;

use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use store::ThreadRead;
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::extract::paging::pairs;
use crate::extract::{Caller, Named};
use crate::problem::Problem;
use crate::state::AppState;
use crate::transfer::export::{Export, Format, Origin, Part};
use crate::transfer::output::{as_text, write_zip};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Lines,
    Zip,
    Markdown,
    Html,
}

pub(super) const FORMATS: [&str; 4] = ["jsonl", "zip", "markdown", "html"];

impl Asked {
    fn parse(name: &str) -> Option<Self> {
        let all = [Self::Lines, Self::Zip, Self::Markdown, Self::Html];
        FORMATS.into_iter().zip(all).find_map(|(known, asked)| (known == name).then_some(asked))
    }

    /// Format, media type and name.
    fn told(self) -> (Format, &'static str, &'static str) {
        match self {
            Self::Lines => (Format::Lines, "application/x-ndjson", "threadkeep.jsonl"),
            Self::Zip => (Format::LinesThenBlobs, "application/zip", "threadkeep.zip"),
            Self::Markdown => (Format::Markdown, "text/markdown; charset=utf-8", "threadkeep.md"),
            Self::Html => (Format::Html, "text/html; charset=utf-8", "threadkeep.html"),
        }
    }
}

fn read_query(query: &str) -> Result<(Asked, Option<Uuid>), Problem> {
    let (mut asked, mut conversation) = (Asked::Lines, None);
    for (name, value) in pairs(query)? {
        match name.as_str() {
            "format" => {
                asked = Asked::parse(&value).ok_or_else(|| {
                    Problem::invalid_parameter("format", "format must be jsonl, zip, markdown or html.")
                })?;
            }
            "conversation" => {
                let bad = || Problem::invalid_parameter("conversation", "conversation must be a UUID.");
                conversation = Some(value.parse().map_err(|_| bad())?);
            }
            "workspace" => {}
            _ => return Err(Problem::unknown_parameter(&name)),
        }
    }
    Ok((asked, conversation))
}

/// Everything of the workspace, or one conversation. The stream breaks off where something goes wrong on the way.
#[utoipa::path(get, path = "/v1/export", operation_id = "export", tag = "workspaces",
    params(("workspace" = Option<Uuid>, Query), ("conversation" = Option<Uuid>, Query),
        ("format" = Option<String>, Query, description = "`jsonl` (default), `zip`, `markdown` or `html`")),
    responses((status = 200, description = "The export", content((String = "application/x-ndjson"), (String = "application/zip"), (String = "text/markdown"), (String = "text/html"))),
        (status = 400), (status = 403), (status = 404)))]
pub async fn export(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let (asked, conversation) = read_query(query.as_deref().unwrap_or(""))?;
    let scope = caller.admin_scope(named).await?;
    if let Some(id) = conversation {
        app.store.get_thread(&scope, id, ThreadRead::default()).await?;
    }
    let (format, media, name) = asked.told();
    let origin = Origin { store: app.store.clone(), blobs: app.blobs.clone(), scope, conversation };
    let (out, parts) = mpsc::channel(8);
    app.tasks.spawn(async move {
        if let Err(error) = Export::new(origin, format, out).run(|_| {}).await {
            tracing::warn!(%error, "an export broke off");
        }
    });
    let body = if asked == Asked::Zip { zipped(&app, parts) } else { Body::from_stream(texts(parts)) };
    let headers = [
        (header::CONTENT_TYPE, media.to_owned()),
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"{name}\"")),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (header::CACHE_CONTROL, "private, no-store".to_owned()),
    ];
    Ok((headers, body).into_response())
}

/// The parts as text. What ends without having said so is an error, which breaks the response off.
fn texts(parts: mpsc::Receiver<Part>) -> impl futures_util::Stream<Item = io::Result<Bytes>> {
    stream::try_unfold(Some(parts), |parts| async move {
        let Some(mut parts) = parts else { return Ok(None) };
        match parts.recv().await {
            Some(Part::End) => Ok(None),
            Some(part) => Ok(Some((Bytes::from(as_text(part)?), Some(parts)))),
            None => Err(io::Error::other("the export broke off")),
        }
    })
}

/// A zip that is written while it is read.
fn zipped(app: &AppState, parts: mpsc::Receiver<Part>) -> Body {
    let (out, bytes) = mpsc::channel::<io::Result<Bytes>>(8);
    app.tasks.spawn_blocking(move || {
        let failed = out.clone();
        let writer = io::BufWriter::with_capacity(64 * 1024, Channel(out));
        let written =
            write_zip(writer, parts).and_then(|writer| writer.into_inner().map_err(io::Error::from));
        if let Err(error) = written {
            let _ = failed.blocking_send(Err(error));
        }
    });
    Body::from_stream(stream::unfold(bytes, |mut bytes| async move {
        bytes.recv().await.map(|chunk| (chunk, bytes))
    }))
}

/// A writer whose bytes are read elsewhere.
struct Channel(mpsc::Sender<io::Result<Bytes>>);

impl io::Write for Channel {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.0.blocking_send(Ok(Bytes::copy_from_slice(bytes)));
        sent.map(|()| bytes.len()).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
