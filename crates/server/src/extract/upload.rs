//! Files that come as `multipart/form-data`: streamed into storage part by part, hashed and checked on the way.
//! Until they are kept nobody sees them, and whatever is not kept is taken back, also when the request is dropped.

use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, BodyDataStream, HttpBody as _};
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use bytes::{Bytes, BytesMut};
use domain::file::{Bag, Digest, FileSource, safe_name};
use domain::media::{Family, family, sniff};
use domain::scope::Scope;
use futures_util::stream::{self, StreamExt as _};
use multer::{Field, Multipart};
use store::StoreError;
use store::blobs::{BlobError, BlobWriter};
use store::files::{NewFile, Reserved, Stored};
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::body::check_encoding;
use super::disposition::file_name;
use super::part_headers::PartHeaders;
use crate::jsonapi::error::{Source, shown};
use crate::problem::Problem;
use crate::state::AppState;

/// A part of a body has to follow the one before it within this.
const IDLE: Duration = Duration::from_secs(30);
/// How many bytes of a file tell what it is.
const HEAD_BYTES: usize = 8 * 1024;
/// What boundaries and part headers add to the files of one request.
pub(super) const FRAMING_BYTES: u64 = 64 * 1024;
/// Files that a run's sandbox may hand in, which it does in one request: its bag bounds them, and this.
const MAX_RESULTS: u64 = 1000;
/// How much may come before a part begins: its headers, and what a fast sender has already sent after them.
pub(super) const HEADER_BYTES: u64 = 4 * 1024 * 1024;
/// Of parts that are no files.
const MAX_FIELDS: usize = 100;

/// Where files go and what is asked of them.
#[derive(Debug, Clone)]
pub struct Target {
    pub bag: Bag,
    pub source: FileSource,
}

/// The files of one request, on their way into a bag.
pub struct Upload {
    app: AppState,
    scope: Scope,
    target: Target,
    reserved: Vec<Reserved>,
    /// Bytes on their way under a key. What is begun goes on without its request, and nothing may take the key again
    /// before it has ended.
    finishing: Option<JoinHandle<Result<Digest, BlobError>>>,
    pub stored: Vec<Stored>,
    /// The parts that are no files, by name.
    pub fields: Vec<(String, String)>,
}

impl Upload {
    pub fn new(app: &AppState, scope: &Scope, target: Target) -> Self {
        let (app, scope) = (app.clone(), scope.clone());
        let (reserved, stored, fields) = (Vec::new(), Vec::new(), Vec::new());
        Self { app, scope, target, reserved, finishing: None, stored, fields }
    }

    /// Reads the whole body. After an error nothing of it is left.
    pub async fn receive(mut self, request: Request) -> Result<Self, Problem> {
        check_encoding(request.headers())?;
        let boundary = boundary(request.headers())?;
        let announced = request.body().size_hint().lower();
        let limits = &self.app.limits;
        let most = self.max_files().saturating_mul(limits.max_file_bytes).saturating_add(self.framing());
        let source = Arc::new(Incoming::new(request.into_body()));
        if announced > most {
            return Err(too_large_request(most));
        }
        self.take_parts(source, boundary, announced).await?;
        Ok(self)
    }

    /// The name and hash of each file, in the order they came.
    pub fn contents(&self) -> Vec<(&str, [u8; 32])> {
        let names = self.reserved.iter().map(|file| file.name.as_str());
        names.zip(self.stored.iter().map(|file| file.digest.sha256)).collect()
    }

    fn max_files(&self) -> u64 {
        match self.target.source {
            FileSource::User => self.app.limits.max_files_per_message,
            FileSource::Sandbox => MAX_RESULTS,
        }
    }

    /// What is not the files' own of a request.
    fn framing(&self) -> u64 {
        match self.target.source {
            FileSource::User => FRAMING_BYTES,
            FileSource::Sandbox => 16 * FRAMING_BYTES,
        }
    }

    /// In less time than after which the sweep would think that nobody is writing any more.
    async fn take_parts(
        &mut self,
        source: Arc<Incoming>,
        boundary: String,
        announced: u64,
    ) -> Result<(), Problem> {
        let grace = Duration::from_secs(self.app.limits.file_grace_seconds);
        let taken = tokio::time::timeout(grace, self.take_each(source, boundary, announced)).await;
        taken.unwrap_or_else(|_| {
            Err(timed_out(format!("The body did not come within {} seconds.", grace.as_secs())))
        })
    }

    async fn take_each(
        &mut self,
        source: Arc<Incoming>,
        boundary: String,
        announced: u64,
    ) -> Result<(), Problem> {
        let mut parts = parts_of(Arc::clone(&source), boundary);
        loop {
            source.allow(HEADER_BYTES);
            let Some(field) = patient(parts.next_field()).await? else { return Ok(()) };
            source.allow(u64::MAX);
            match file_name(field.headers()) {
                Some(sent) => self.take_file(field, &sent, announced).await?,
                None => self.take_field(field).await?,
            }
        }
    }

    async fn take_field(&mut self, mut field: Field<'_>) -> Result<(), Problem> {
        let name = field.name().unwrap_or("").to_owned();
        if self.fields.len() == MAX_FIELDS {
            let detail = format!("One request takes at most {MAX_FIELDS} parts that are no files.");
            return Err(too_large("too_many_parts", detail, MAX_FIELDS as u64));
        }
        let limit = self.app.limits.max_body_bytes;
        let before: usize = self.fields.iter().map(|(name, text)| name.len() + text.len()).sum();
        let mut text = BytesMut::new();
        while let Some(chunk) = patient(field.chunk()).await? {
            text.extend_from_slice(&chunk);
            if (before + text.len()) as u64 > limit {
                let detail = format!("The part {} is too large.", shown(&name));
                return Err(too_large("body_too_large", detail, limit));
            }
        }
        let text = String::from_utf8(text.into()).map_err(|_| {
            Problem::malformed_document("", format!("The part {} is not UTF-8.", shown(&name)))
        })?;
        if text.contains('\0') {
            let detail = format!("The part {} holds U+0000.", shown(&name));
            return Err(Problem::malformed_document("", detail));
        }
        self.fields.push((name, text));
        Ok(())
    }

    async fn take_file(&mut self, mut field: Field<'_>, sent: &str, announced: u64) -> Result<(), Problem> {
        let limits = self.app.limits.clone();
        let mut head = BytesMut::new();
        while head.len() < HEAD_BYTES
            && let Some(chunk) = patient(field.chunk()).await?
        {
            head.extend_from_slice(&chunk);
        }
        // What a browser sends for a field in which no file was chosen.
        if sent.is_empty() && head.is_empty() {
            return Ok(());
        }
        if self.reserved.len() as u64 >= self.max_files() {
            let most = self.max_files();
            return Err(too_large(
                "too_many_files",
                format!("One request takes at most {most} files."),
                most,
            ));
        }
        let head = head.freeze();
        let name = safe_name(sent);
        let mime_type = sniff(&head, &name);
        self.check_type(&mime_type, sent)?;
        // Of the announced bytes at least these are files: a bag that cannot take them says so now.
        let coming = if self.reserved.is_empty() { announced.saturating_sub(self.framing()) } else { 0 };
        let (id, key) = self.reserve(name, self.target.source, coming).await?;
        let mut writer: BlobWriter = self.app.blobs.writer(&key).await?;
        let mut size = 0;
        let mut next = Some(head);
        while let Some(chunk) = next {
            size += chunk.len() as u64;
            if size > limits.max_file_bytes {
                let detail = format!("The file {} is over {} bytes.", shown(sent), limits.max_file_bytes);
                return Err(too_large("file_too_large", detail, limits.max_file_bytes));
            }
            writer.write(chunk).await?;
            next = patient(field.chunk()).await?;
        }
        let digest = self.finish(writer.finish()).await?;
        self.stored.push(Stored { id, digest, mime_type });
        Ok(())
    }

    /// Takes a file whose bytes came with the request.
    pub async fn take_bytes(&mut self, sent: &str, bytes: Bytes) -> Result<(), Problem> {
        let limit = self.app.limits.max_file_bytes;
        let size = bytes.len() as u64;
        if size > limit {
            let detail = format!("The file {} is over {limit} bytes.", shown(sent));
            return Err(too_large("file_too_large", detail, limit));
        }
        let name = safe_name(sent);
        let mime_type = sniff(bytes.get(..HEAD_BYTES).unwrap_or(&bytes), &name);
        self.check_type(&mime_type, sent)?;
        let (id, key) = self.reserve(name, self.target.source, size).await?;
        let mut writer: BlobWriter = self.app.blobs.writer(&key).await?;
        writer.write(bytes).await?;
        let digest = self.finish(writer.finish()).await?;
        self.stored.push(Stored { id, digest, mime_type });
        Ok(())
    }

    async fn finish(
        &mut self,
        writing: impl Future<Output = Result<Digest, BlobError>> + Send + 'static,
    ) -> Result<Digest, Problem> {
        let finishing = self.finishing.insert(self.app.tasks.spawn(writing));
        let finished = finishing.await;
        self.finishing = None;
        Ok(finished.map_err(|_| Problem::internal())??)
    }

    fn check_type(&self, mime_type: &str, sent: &str) -> Result<(), Problem> {
        if self.target.source == FileSource::Sandbox {
            return Ok(());
        }
        check_type(&self.app.upload_types, mime_type, sent)
    }

    /// A conversation's or an execution's bag is bounded; what a workspace keeps is not.
    fn limit(&self) -> u64 {
        match self.target.bag {
            Bag::Workspace => u64::MAX,
            Bag::Conversation(_) | Bag::Execution(_) => self.app.limits.max_bag_bytes,
        }
    }

    /// Takes a name in the bag, which must have room for `coming` more bytes.
    async fn reserve(
        &mut self,
        name: String,
        source: FileSource,
        coming: u64,
    ) -> Result<(Uuid, String), Problem> {
        let (id, limit) = (self.app.clock.new_id(), self.limit());
        self.app.taken_back.left((self.scope.workspace, self.target.bag)).await;
        let room = limit.checked_sub(coming).ok_or(StoreError::BagFull { limit })?;
        let new = [NewFile { id, name, source, promised: None }];
        let now = self.app.clock.now();
        let reserved = self.app.store.reserve_files(&self.scope, self.target.bag, &new, room, now).await;
        let reserved = reserved.map_err(|error| match error {
            StoreError::BagFull { .. } => StoreError::BagFull { limit }.into(),
            error => unstored(error),
        })?;
        let key = reserved.first().map(|file| file.storage_key.clone()).ok_or_else(Problem::internal)?;
        self.reserved.extend(reserved);
        Ok((id, key))
    }

    /// Takes a copy of a stored file into the bag, under its name there.
    pub async fn copy(&mut self, file: &domain::file::File) -> Result<(), Problem> {
        let (id, key) = self.reserve(file.name.clone(), file.source, file.digest.size).await?;
        let (blobs, from, digest) = (self.app.blobs.clone(), file.storage_key.clone(), file.digest);
        self.finish(async move { blobs.copy(&from, &key).await.map(|()| digest) }).await?;
        self.stored.push(Stored { id, digest, mime_type: file.mime_type.clone() });
        Ok(())
    }

    /// Makes them visible, all at once; also for a sender who has gone by then.
    pub async fn keep(mut self) -> Result<Vec<domain::file::File>, Problem> {
        let (app, scope, bag, stored) =
            (self.app.clone(), self.scope.clone(), self.target.bag, self.stored.clone());
        let (limit, now) = (self.limit(), app.clock.now());
        let keeping = self.app.tasks.clone().spawn(async move {
            self.keep_by(app.store.keep_files(&scope, bag, &stored, limit, now), refused).await
        });
        keeping.await.map_err(|_| Problem::internal())?.map_err(unstored)
    }

    /// Makes them visible by other means. Once that is under way, nobody who gives up on it knows whether they are:
    /// then, and after an error that does not say so either, only the sweep may remove them.
    pub async fn keep_by<T, E>(
        &mut self,
        keeping: impl Future<Output = Result<T, E>>,
        refused: impl FnOnce(&Result<T, E>) -> bool,
    ) -> Result<T, E> {
        let reserved = std::mem::take(&mut self.reserved);
        let kept = keeping.await;
        if refused(&kept) {
            self.reserved = reserved;
        }
        kept
    }
}

/// Whether the store says that nothing was written, and not only that it does not know.
pub fn refused<T>(kept: &Result<T, StoreError>) -> bool {
    !matches!(kept, Ok(_) | Err(StoreError::Unavailable(_) | StoreError::Internal(_)))
}

impl Drop for Upload {
    fn drop(&mut self) {
        let reserved = std::mem::take(&mut self.reserved);
        if reserved.is_empty() {
            return;
        }
        let (app, workspace, finishing) = (self.app.clone(), self.scope.workspace, self.finishing.take());
        // What fails here, or dies first, the sweep does later.
        let task = self.app.tasks.spawn(async move {
            if let Some(finishing) = finishing {
                let _ = finishing.await;
            }
            for file in &reserved {
                if let Err(error) = app.blobs.remove(&file.storage_key).await {
                    tracing::warn!(%error, "the bytes of a refused file are left to the sweep");
                    return;
                }
            }
            let ids: Vec<Uuid> = reserved.iter().map(|file| file.id).collect();
            if let Err(error) = app.store.system_forget_files(workspace, &ids).await {
                tracing::warn!(%error, "the rows of refused files are left to the sweep");
            }
        });
        self.app.taken_back.note((workspace, self.target.bag), task);
    }
}

/// Refuses types that the operator does not take. No list takes all.
pub fn check_type(taken: &[Family], mime_type: &str, name: &str) -> Result<(), Problem> {
    if taken.is_empty() || family(mime_type).is_some_and(|family| taken.contains(&family)) {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "unsupported_file_type",
        "This type of file is not taken here",
        format!("The file {} is {mime_type}, which is not taken here.", shown(name)),
    ))
}

pub(super) fn boundary(headers: &HeaderMap) -> Result<String, Problem> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    if !is_multipart(headers) {
        return Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported_media_type",
            "Unsupported media type",
            "Send files as multipart/form-data.",
        )
        .at(Source::header("Content-Type")));
    }
    multer::parse_boundary(kind)
        .map_err(|_| Problem::invalid_header("Content-Type", "multipart/form-data must name its boundary."))
}

/// The parts of a form, whose bytes come as far as they are allowed to.
pub(super) fn parts_of(body: Arc<Incoming>, boundary: String) -> Multipart<'static> {
    let mut headers = PartHeaders::new(&boundary);
    let cleaned = move |cx: &mut Context<'_>| body.poll_within(cx).map_ok(|chunk| headers.clean(chunk));
    Multipart::new(stream::poll_fn(cleaned), boundary)
}

pub fn is_multipart(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    kind.split(';').next().unwrap_or("").trim().eq_ignore_ascii_case("multipart/form-data")
}

/// What comes next of a body, if it comes in time and makes sense.
pub async fn patient<T, E: Display>(next: impl Future<Output = Result<T, E>>) -> Result<T, Problem> {
    match tokio::time::timeout(IDLE, next).await {
        Ok(Ok(next)) => Ok(next),
        Ok(Err(error)) => Err(Problem::malformed_document("", format!("The body is broken: {error}."))),
        Err(_) => Err(timed_out(format!("Nothing more of the body came for {} seconds.", IDLE.as_secs()))),
    }
}

fn timed_out(detail: String) -> Problem {
    Problem::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", "Request time-out", detail)
}

/// The body of a request, for a parser that gathers what it does not understand yet: only so much at a time.
pub(super) struct Incoming {
    /// The body, and how many of its bytes may still come.
    body: Mutex<(BodyDataStream, u64)>,
}

impl Incoming {
    pub(super) fn new(body: Body) -> Self {
        Self { body: Mutex::new((body.into_data_stream(), 0)) }
    }

    pub(super) fn allow(&self, bytes: u64) {
        self.body.lock().unwrap_or_else(PoisonError::into_inner).1 = bytes;
    }

    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, axum::Error>>> {
        self.body.lock().unwrap_or_else(PoisonError::into_inner).0.poll_next_unpin(cx)
    }

    fn poll_within(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, axum::Error>>> {
        let (body, left) = &mut *self.body.lock().unwrap_or_else(PoisonError::into_inner);
        if *left == 0 {
            return Poll::Ready(Some(Err(axum::Error::new("a part does not begin within its limits"))));
        }
        let polled = body.poll_next_unpin(cx);
        if let Poll::Ready(Some(Ok(chunk))) = &polled {
            *left = left.saturating_sub(chunk.len() as u64);
        }
        polled
    }
}

pub fn too_large(code: &'static str, detail: String, limit: u64) -> Problem {
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, code, "Too large", detail).with("limit", limit)
}

fn too_large_request(most: u64) -> Problem {
    too_large("request_too_large", format!("One request takes at most {most} bytes."), most)
}

/// Why the row of a file could not be written.
pub fn unstored(error: StoreError) -> Problem {
    match error {
        StoreError::Unavailable(reason) if store::is_full(&reason) => storage_full(&reason),
        error => error.into(),
    }
}

fn storage_full(reason: &str) -> Problem {
    tracing::error!(reason, "no space is left for files");
    Problem::new(
        StatusCode::INSUFFICIENT_STORAGE,
        "storage_full",
        "No space is left",
        "There is no space left for files; nothing was stored.",
    )
}

impl From<BlobError> for Problem {
    fn from(error: BlobError) -> Self {
        match error {
            BlobError::Full(reason) => storage_full(&reason),
            BlobError::Unavailable(reason) => {
                tracing::error!(reason, "the file storage is unavailable");
                Self::unavailable("The file storage cannot take this request now; try again shortly.", 1)
            }
            error @ (BlobError::Missing | BlobError::Internal(_)) => {
                tracing::error!(%error, "the file storage failed");
                Self::internal()
            }
        }
    }
}
