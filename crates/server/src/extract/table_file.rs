//! A file of rows as a request carries it, the body itself or the one file of a form: read piece by piece, within its
//! size and time.

use std::sync::Arc;

use axum::body::HttpBody as _;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use bytes::Bytes;
use domain::table::Format;
use futures_util::{StreamExt as _, stream};
use multer::{Field, Multipart};

use super::body::check_encoding;
use super::disposition::file_name;
use super::upload::{
    FRAMING_BYTES, HEADER_BYTES, Incoming, boundary, is_multipart, parts_of, patient, too_large,
};
use crate::jsonapi::error::{Source, shown};
use crate::problem::Problem;

pub struct TableFile {
    pub format: Format,
    body: Arc<Incoming>,
    /// Where it comes as a form.
    part: Option<(Multipart<'static>, Field<'static>)>,
    read: u64,
    limit: u64,
}

impl TableFile {
    /// The file, of which nothing was read yet.
    pub async fn open(request: Request, limit: u64) -> Result<Self, Problem> {
        check_encoding(request.headers())?;
        let announced = request.body().size_hint().lower();
        let headers = request.headers().clone();
        let body = Arc::new(Incoming::new(request.into_body()));
        if announced > limit.saturating_add(FRAMING_BYTES) {
            return Err(over(limit));
        }
        Self::read_head(&headers, body, limit).await
    }

    async fn read_head(headers: &HeaderMap, body: Arc<Incoming>, limit: u64) -> Result<Self, Problem> {
        if !is_multipart(headers) {
            let format = media_type(headers).and_then(|kind| format_of(&kind)).ok_or_else(unsupported)?;
            return Ok(Self { format, body, part: None, read: 0, limit });
        }
        let mut parts = parts_of(Arc::clone(&body), boundary(headers)?);
        body.allow(HEADER_BYTES);
        let missing = || Problem::malformed_document("", "There is no file in the request.");
        let field = patient(parts.next_field()).await?.ok_or_else(missing)?;
        body.allow(u64::MAX);
        let Some(name) = file_name(field.headers()) else {
            let named = shown(field.name().unwrap_or(""));
            return Err(Problem::malformed_document("", format!("The part {named} is not a file.")));
        };
        let extension = name.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
        let by_name = match extension.as_deref() {
            Some("csv") => Some(Format::Csv),
            Some("json") => Some(Format::Json),
            Some("ndjson" | "jsonl") => Some(Format::Ndjson),
            _ => None,
        };
        let by_type = || media_type(field.headers()).and_then(|kind| format_of(&kind));
        let format = by_name.or_else(by_type).ok_or_else(unsupported)?;
        Ok(Self { format, body, part: Some((parts, field)), read: 0, limit })
    }

    /// The next piece; none at the end.
    pub async fn piece(&mut self) -> Result<Option<Bytes>, Problem> {
        let piece = match &mut self.part {
            None => {
                let mut body = stream::poll_fn(|cx| self.body.poll(cx));
                patient(async { body.next().await.transpose() }).await?
            }
            Some((_, field)) => patient(field.chunk()).await?,
        };
        self.read += piece.as_ref().map_or(0, |piece| piece.len() as u64);
        if self.read > self.limit {
            return Err(over(self.limit));
        }
        if piece.is_none() {
            self.end().await?;
        }
        Ok(piece)
    }

    /// A form has one file and nothing after it.
    async fn end(&mut self) -> Result<(), Problem> {
        let Some((mut parts, field)) = self.part.take() else { return Ok(()) };
        drop(field);
        self.body.allow(HEADER_BYTES);
        match patient(parts.next_field()).await? {
            None => Ok(()),
            Some(_) => Err(Problem::malformed_document("", "One request imports one file.")),
        }
    }
}

fn media_type(headers: &HeaderMap) -> Option<String> {
    let kind = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    Some(kind.split(';').next().unwrap_or("").trim().to_ascii_lowercase())
}

fn format_of(kind: &str) -> Option<Format> {
    match kind {
        "text/csv" | "application/csv" => Some(Format::Csv),
        "application/x-ndjson" | "application/ndjson" | "application/jsonl" | "application/x-jsonlines" => {
            Some(Format::Ndjson)
        }
        kind if kind == "application/json" || kind.ends_with("+json") => Some(Format::Json),
        _ => None,
    }
}

fn unsupported() -> Problem {
    Problem::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "unsupported_media_type",
        "Unsupported media type",
        "Send the file as text/csv, application/json or application/x-ndjson, or in a form as a .csv, .json, .ndjson or \
         .jsonl file.",
    )
    .at(Source::header("Content-Type"))
}

fn over(limit: u64) -> Problem {
    too_large("file_too_large", format!("The file is over {limit} bytes."), limit)
}
