//! Direct uploads: the bytes of a promised file go to storage by a signed link, past the API, and are checked before
//! anyone sees them.

use std::time::{Duration, Instant};

use axum::body::HttpBody as _;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use domain::file::{Bag, File, FileSource, safe_name};
use domain::grant::{LinkError, UploadLink};
use domain::media::sniff;
use domain::scope::Scope;
use domain::time::rfc3339;
use futures_util::TryStreamExt as _;
use serde::{Deserialize, Serialize};
use store::StoreError;
use store::bag::staging_key;
use store::blobs::BlobError;
use store::files::{NewFile, Promised, Reserved, Stored};
use utoipa::ToSchema;
use uuid::Uuid;

use super::files::{Uploaded, created};
use super::workspaces::path_id;
use crate::extract::upload::{check_type, patient, refused as refused_for_sure, too_large, unstored};
use crate::extract::{Caller, JsonBody, Named, Paging, Path};
use crate::problem::Problem;
use crate::state::{App, AppState};

/// How long the link of a direct upload works.
const LINK_LIFE: Duration = Duration::from_secs(15 * 60);
const HEAD_BYTES: u64 = 8 * 1024;
/// How long a request waits for another that completes the same upload.
const COMPLETING: Duration = Duration::from_secs(30);
const COMPLETING_POLL: Duration = Duration::from_millis(50);

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct PromiseFile {
    name: String,
    size: u64,
    /// 64 hexadecimal digits.
    sha256: String,
    /// Accepted, and not believed: the type is read from the bytes.
    #[expect(dead_code, reason = "clients send it; the bytes decide")]
    mime_type: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct DirectUpload {
    id: Uuid,
    /// Where the bytes go.
    url: String,
    method: &'static str,
    /// What the request has to carry.
    #[schema(value_type = Object)]
    headers: serde_json::Map<String, serde_json::Value>,
    expires_at: String,
}

/// Promises a file, and answers where its bytes go.
#[utoipa::path(post, path = "/v1/chat-conversations/{id}/files/uploads", operation_id = "promise_file", tag = "files",
    params(("id" = Uuid, Path), ("workspace" = Option<Uuid>, Query)), request_body = PromiseFile,
    responses((status = 201, body = DirectUpload), (status = 404), (status = 413), (status = 422)))]
pub async fn promise(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path(id): Path<String>,
    _: Paging,
    JsonBody(body): JsonBody<PromiseFile>,
) -> Result<Response, Problem> {
    let scope = caller.scope(named).await?;
    let bag = Bag::Conversation(path_id(&id)?);
    let sha256 = hash(&body.sha256)?;
    let limits = &app.limits;
    if body.size > limits.max_file_bytes {
        let detail =
            format!("size is over {} bytes, the most that one file may have.", limits.max_file_bytes);
        return Err(too_large("file_too_large", detail, limits.max_file_bytes));
    }
    let now = app.clock.now();
    let expires_at = now + LINK_LIFE;
    let promised = Promised { size: body.size, sha256, expires_at };
    let id = app.clock.new_id();
    let new = NewFile { id, name: safe_name(&body.name), source: FileSource::User, promised: Some(promised) };
    app.store.reserve_files(&scope, bag, &[new], limits.max_bag_bytes, now).await.map_err(unstored)?;
    let key = staging_key(scope.workspace, id);
    let url = match app.blobs.presign_put(&key, LINK_LIFE).await? {
        Some(url) => url,
        None => {
            let expires_at_ms = expires_at.as_millisecond();
            let link =
                UploadLink { workspace: scope.workspace, file: id, size: body.size, sha256, expires_at_ms };
            format!("{}/v1/uploads/{}", app.public_url, link.seal(&app.secret))
        }
    };
    let headers = serde_json::Map::new();
    let upload = DirectUpload { id, url, method: "PUT", headers, expires_at: rfc3339(expires_at) };
    Ok((StatusCode::CREATED, axum::Json(upload)).into_response())
}

fn hash(text: &str) -> Result<[u8; 32], Problem> {
    let bad = || Problem::invalid_value("/sha256", "sha256 must be 64 hexadecimal digits.");
    let digits = text.as_bytes();
    if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(bad());
    }
    let mut hash = [0; 32];
    for (byte, pair) in hash.iter_mut().zip(text.as_bytes().chunks(2)) {
        let pair = std::str::from_utf8(pair).map_err(|_| bad())?;
        *byte = u8::from_str_radix(pair, 16).map_err(|_| bad())?;
    }
    Ok(hash)
}

/// Takes the bytes of a promised file by its signed link; where the storage is a bucket, it takes them itself.
#[utoipa::path(put, path = "/v1/uploads/{link}", operation_id = "put_promised_file", tag = "files", params(("link" = String, Path)),
    request_body(content = String, content_type = "application/octet-stream"),
    responses((status = 204), (status = 401), (status = 410), (status = 413), (status = 422), (status = 507)))]
pub async fn put(
    State(app): State<AppState>,
    Path(link): Path<String>,
    _: Paging,
    request: Request,
) -> Result<Response, Problem> {
    let link = UploadLink::open(&link, &app.secret, app.clock.now().as_millisecond()).map_err(refused)?;
    let body = request.into_body();
    if body.size_hint().lower() > link.size {
        return Err(too_large(
            "file_too_large",
            format!("The file was promised with {} bytes.", link.size),
            link.size,
        ));
    }
    let key = staging_key(link.workspace, link.file);
    if !app.store.is_promised(link.workspace, link.file).await? {
        return Err(not_promised());
    }
    let mut writer = app.blobs.writer(&key).await?;
    let (mut bytes, mut size) = (body.into_data_stream(), 0);
    while let Some(chunk) = patient(bytes.try_next()).await? {
        size += chunk.len() as u64;
        if size > link.size {
            return Err(too_large(
                "file_too_large",
                format!("The file was promised with {} bytes.", link.size),
                link.size,
            ));
        }
        writer.write(chunk).await?;
    }
    let digest = writer.finish().await?;
    if (digest.size, digest.sha256) != (link.size, link.sha256) {
        app.blobs.remove(&key).await?;
        return Err(not_as_promised());
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

pub(super) fn refused(error: LinkError) -> Problem {
    match error {
        LinkError::Forged => Problem::unauthenticated("The link is not one of ours."),
        LinkError::Expired => Problem::new(
            StatusCode::GONE,
            "link_expired",
            "The link has expired",
            "The link has expired; ask for a new one.",
        ),
    }
}

fn not_promised() -> Problem {
    Problem::new(
        StatusCode::GONE,
        "not_promised",
        "Nobody waits for these bytes",
        "The upload was completed, or its conversation deleted; promise the file again.",
    )
}

fn not_as_promised() -> Problem {
    Problem::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        "not_as_promised",
        "Not the promised bytes",
        "The bytes do not have the size and sha256 that were promised; nothing was kept.",
    )
}

/// Checks the bytes of a promised file and puts it into the bag. Once; asked again it answers the same.
#[utoipa::path(post, path = "/v1/chat-conversations/{id}/files/uploads/{file}/complete", operation_id = "complete_upload", tag = "files",
    params(("id" = Uuid, Path), ("file" = Uuid, Path), ("workspace" = Option<Uuid>, Query)),
    responses((status = 201, body = Uploaded), (status = 404), (status = 409), (status = 415), (status = 422)))]
pub async fn complete(
    State(app): State<AppState>,
    caller: Caller,
    named: Named,
    Path((id, file)): Path<(String, String)>,
    _: Paging,
) -> Result<Response, Problem> {
    let scope = caller.scope(named).await?;
    let (bag, file) = (Bag::Conversation(path_id(&id)?), path_id(&file)?);
    // What is claimed is completed, also for a client that has gone by then: nobody could ask for it again.
    let tasks = app.tasks.clone();
    let completing = tasks.spawn(async move { complete_promised(&app, &scope, bag, file).await });
    let kept = completing.await.map_err(|_| Problem::internal())??;
    Ok(created(&[kept]))
}

async fn complete_promised(app: &App, scope: &Scope, bag: Bag, file: Uuid) -> Result<File, Problem> {
    let reserved = match claim(app, scope, bag, file).await? {
        Claimed::Here(reserved) => reserved,
        Claimed::Kept(kept) => return Ok(kept),
    };
    let staged = staging_key(scope.workspace, file);
    let promised = reserved.promised.as_ref().ok_or_else(Problem::internal)?;
    let key = &reserved.storage_key;
    let checked = async {
        // What is under the final key can no longer be reached by the link, so what is checked is what is kept.
        app.blobs.rename(&staged, key).await?;
        let digest = app.blobs.digest(key).await?;
        if (digest.size, digest.sha256) != (promised.size, promised.sha256) {
            return Err(not_as_promised());
        }
        let mime_type = sniff(&head_of(app, key, digest.size).await?, &reserved.name);
        check_type(&app.upload_types, &mime_type, &reserved.name)?;
        Ok(Stored { id: file, digest, mime_type })
    };
    let kept = match checked.await {
        Err(problem) => Err((problem, true)),
        Ok(stored) => {
            let (limit, now) = (app.limits.max_bag_bytes, app.clock.now());
            let kept = app.store.keep_files(scope, bag, &[stored], limit, now).await;
            let gone = refused_for_sure(&kept);
            kept.map_err(|error| (unstored(error), gone))
        }
    };
    match kept {
        Ok(kept) => kept.into_iter().next().ok_or_else(Problem::internal),
        Err((problem, gone)) => {
            // What is not known to be refused may be visible: only the sweep can tell.
            if gone {
                app.blobs.remove(key).await?;
                app.store.system_forget_files(scope.workspace, &[file]).await?;
            }
            Err(problem)
        }
    }
}

enum Claimed {
    /// This request completes it.
    Here(Reserved),
    /// Another has.
    Kept(File),
}

/// Takes a promised file whose bytes have come. Of requests that ask at once one does the work, and the others wait
/// for what becomes of it.
async fn claim(app: &App, scope: &Scope, bag: Bag, file: Uuid) -> Result<Claimed, Problem> {
    let staged = staging_key(scope.workspace, file);
    let began = Instant::now();
    while began.elapsed() < COMPLETING {
        let reserved = match app.store.get_reserved(scope, bag, file).await {
            Err(StoreError::NotFound) => match app.store.get_file(scope, file).await? {
                kept if kept.bag == bag => return Ok(Claimed::Kept(kept)),
                _ => return Err(Problem::not_found()),
            },
            reserved => reserved?,
        };
        let now = app.clock.now();
        let Some(promised) = reserved.promised else {
            tokio::time::sleep(COMPLETING_POLL).await;
            continue;
        };
        if promised.expires_at <= now {
            return Err(Problem::not_found());
        }
        match app.blobs.read(&staged, None).await {
            // Taken away by who completes it, or never there.
            Err(BlobError::Missing) => {
                let reserved = app.store.get_reserved(scope, bag, file).await;
                if reserved.is_ok_and(|reserved| reserved.promised.is_some()) {
                    return Err(upload_missing());
                }
            }
            found => {
                drop(found?);
                match app.store.claim_promised(scope, bag, file, now).await {
                    Err(StoreError::NotFound) => {}
                    claimed => return Ok(Claimed::Here(claimed?)),
                }
            }
        }
    }
    Err(Problem::new(
        StatusCode::CONFLICT,
        "upload_completing",
        "The upload is being completed",
        "Another request is completing this upload; ask again.",
    ))
}

fn upload_missing() -> Problem {
    Problem::new(
        StatusCode::CONFLICT,
        "upload_missing",
        "The bytes have not come",
        "Put the bytes to the upload's url first.",
    )
}

/// The bytes that tell what a file is.
async fn head_of(app: &App, key: &str, size: u64) -> Result<Vec<u8>, Problem> {
    let mut head = Vec::new();
    let mut bytes = app.blobs.read(key, Some(0..size.min(HEAD_BYTES))).await?;
    while let Some(chunk) = bytes.try_next().await? {
        head.extend_from_slice(&chunk);
    }
    Ok(head)
}
