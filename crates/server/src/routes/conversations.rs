//! The `chat_conversation` resource: five operations and restore, all JSON:API.

use axum::extract::{FromRequest, RawQuery, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use domain::conversation::{
    Conversation, ConversationPatch, ConversationQuery, ConversationSearch, Found, NewConversation, Page,
    Position, Sort,
};
use domain::history;
use domain::message::{Message, Window};
use domain::scope::Scope;
use domain::search::Query;
use jiff::tz::TimeZone;
use serde_json::json;
use store::{StoreError, ThreadRead};
use uuid::Uuid;

use super::workspaces::path_id;
use crate::etag::{self, IfMatch};
use crate::extract::{Body, Caller, Named, Path};
use crate::jsonapi::cursor::{encode_offset, encode_position};
use crate::jsonapi::document::{self, Operation};
use crate::jsonapi::error::{ApiError, ErrorDocument, Source};
use crate::jsonapi::field::Field;
use crate::jsonapi::media::{MEDIA_TYPE, check_accept, check_content_type};
use crate::jsonapi::query::{ListPage, ListQuery, RetrieveQuery, View, WriteQuery};
use crate::jsonapi::resource::{self, Shown};
use crate::jsonapi::schema::{ConversationDocument, ConversationListDocument, ConversationWriteDocument};
use crate::jsonapi::write::Document;
use crate::problem::Problem;
use crate::state::{App, AppState};

/// A failure told as a JSON:API document: many errors of one request, or one problem.
pub enum Failure {
    Document(ErrorDocument),
    Problem(Problem),
}

impl From<ErrorDocument> for Failure {
    fn from(document: ErrorDocument) -> Self {
        Self::Document(document)
    }
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        Self::Document(error.into())
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Problem(error.into())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        match self {
            Self::Document(document) => document.into_response(),
            Self::Problem(problem) => problem.into_response(),
        }
    }
}

type Answer = Result<Response, Failure>;

pub(super) fn accepts(headers: &HeaderMap) -> Result<(), ApiError> {
    check_accept(headers.get_all(header::ACCEPT).iter().map(HeaderValue::as_bytes))
}

/// The body of a write, once its media type fits.
async fn body(request: Request, app: &AppState) -> Result<bytes::Bytes, Failure> {
    check_content_type(request.headers().get_all(header::CONTENT_TYPE).iter().map(HeaderValue::as_bytes))?;
    let Body(bytes) = Body::from_request(request, app).await?;
    Ok(bytes)
}

/// Closes a document, with the workspace where that was asked for and a resource is there to link to it.
async fn finish(
    app: &App,
    scope: &Scope,
    view: &View,
    (document, empty): (Document, bool),
    links: Links<'_>,
    meta: Option<&str>,
) -> Result<Vec<u8>, Problem> {
    let document = match (view.include_workspace, empty) {
        (false, _) => document,
        (true, true) => document.including(|_| {}),
        (true, false) => {
            let workspace = app.store.find_workspace(scope).await?.ok_or_else(Problem::not_found)?;
            document.including(|items| resource::add_workspace(items, &workspace, scope, view))
        }
    };
    Ok(document.finish(links, meta))
}

type Links<'a> = &'a [(&'static str, Option<&'a str>)];

pub(super) async fn answer_one(
    app: &App,
    scope: &Scope,
    view: &View,
    status: StatusCode,
    conversation: &Conversation,
    messages: &[Message],
) -> Result<Response, Problem> {
    let shown = Shown { conversation, messages, meta: None };
    let document = resource::one(&shown, view, &app.public_url);
    let link = resource::self_link(&app.public_url, conversation.id);
    let bytes = finish(app, scope, view, (document, false), &[("self", Some(&link))], None).await?;
    let headers =
        [(header::CONTENT_TYPE, MEDIA_TYPE.to_owned()), (header::ETAG, etag::of(conversation.version))];
    Ok((status, headers, bytes).into_response())
}

/// The messages for an answer to a write: only when they are shown.
async fn all_messages(app: &App, scope: &Scope, view: &View, id: Uuid) -> Result<Vec<Message>, StoreError> {
    if !view.fields.has(Field::Messages) {
        return Ok(Vec::new());
    }
    Ok(app.store.get_thread(scope, id, Some(Window::All).into()).await?.messages)
}

/// Conversations, newest first unless sorted or searched.
#[utoipa::path(get, path = "/v1/chat-conversations", operation_id = "list_conversations", tag = "conversations", params(
    ("fields[chat_conversation]" = Option<String>, Query, description = "Comma list; `messages` and `context` only when asked for"),
    ("fields[workspace]" = Option<String>, Query), ("include" = Option<String>, Query, description = "`workspace`"),
    ("sort" = Option<String>, Query, description = "`-updated_at` (default), `updated_at`, `created_at`, `title`, each with or without `-`"),
    ("page[size]" = Option<u32>, Query), ("page[after]" = Option<String>, Query), ("page[before]" = Option<String>, Query),
    ("filter[workspace]" = Option<Uuid>, Query), ("workspace" = Option<Uuid>, Query),
    ("filter[source]" = Option<String>, Query), ("filter[mode]" = Option<String>, Query),
    ("filter[kind]" = Option<String>, Query), ("filter[agent]" = Option<String>, Query),
    ("filter[query]" = Option<String>, Query, description = "Words, the last of each run as prefix"),
    ("filter[deleted]" = Option<bool>, Query), ("timeZone" = Option<String>, Query, description = "IANA name; groups by the reader's dates")),
    responses((status = 200, description = "A page of conversations", content_type = "application/vnd.api+json", body = ConversationListDocument), (status = 400), (status = 406)))]
pub async fn list(
    State(app): State<AppState>,
    caller: Caller,
    headers: HeaderMap,
    RawQuery(raw): RawQuery,
) -> Answer {
    accepts(&headers)?;
    let raw = raw.unwrap_or_default();
    let query = ListQuery::parse(&raw)?;
    let zone = query.time_zone.as_deref().map(time_zone).transpose()?;
    let scope = caller.scope(Named(query.workspace)).await?;
    let page = read_page(&app, &scope, &query).await?;
    let link = |side, cursor: &str| resource::page_link(&app.public_url, &raw, side, cursor);
    let prev = page.prev.as_deref().map(|cursor| link("before", cursor));
    let next = page.next.as_deref().map(|cursor| link("after", cursor));

    let answering = answering(&app, &scope, zone.as_ref(), &page.items).await?;
    let mut threads = Vec::new();
    for found in &page.items {
        threads.push(match all_messages(&app, &scope, &query.view, found.conversation.id).await {
            // Deleted, or since the page was read: its messages are gone with it.
            Err(StoreError::NotFound) => Vec::new(),
            messages => messages?,
        });
    }
    let searched = matches!(query.page, ListPage::Search { .. });
    let shown = page.items.iter().zip(&threads).map(|(found, messages)| Shown {
        conversation: &found.conversation,
        messages,
        meta: meta(found, searched, zone.as_ref().map(|zone| (zone, answering.as_slice())), app.clock.now()),
    });
    let document = resource::many(shown, &query.view, &app.public_url);
    let own = resource::request_link(&app.public_url, &raw);
    let links = [("self", Some(own.as_str())), ("prev", prev.as_deref()), ("next", next.as_deref())];
    let meta = json!({ "page": { "size": query.page_size } }).to_string();
    let empty = page.items.is_empty();
    let bytes = finish(&app, &scope, &query.view, (document, empty), &links, Some(&meta)).await?;
    Ok((StatusCode::OK, [(header::CONTENT_TYPE, MEDIA_TYPE)], bytes).into_response())
}

fn time_zone(name: &str) -> Result<TimeZone, ApiError> {
    history::time_zone(name).ok_or_else(|| {
        ApiError::invalid_parameter(
            Source::parameter("timeZone"),
            format!(
                "timeZone is {}; it must be an IANA name such as Europe/Paris.",
                crate::jsonapi::error::shown(name)
            ),
        )
    })
}

/// Which of them a run is under way in, for a reader of the history.
async fn answering(
    app: &App,
    scope: &Scope,
    zone: Option<&TimeZone>,
    found: &[Found],
) -> Result<Vec<Uuid>, StoreError> {
    if zone.is_none() {
        return Ok(Vec::new());
    }
    let ids: Vec<Uuid> = found.iter().map(|found| found.conversation.id).collect();
    app.store.list_answering(scope, &ids).await
}

/// What a list says about a conversation beside its attributes.
fn meta(
    found: &Found,
    searched: bool,
    history: Option<(&TimeZone, &[Uuid])>,
    now: jiff::Timestamp,
) -> Option<String> {
    let mut meta = serde_json::Map::new();
    if let Some((zone, answering)) = history {
        if answering.contains(&found.conversation.id) {
            meta.insert("answering".into(), true.into());
        }
        meta.insert("group".into(), history::group(found.conversation.updated_at, now, zone).into());
    }
    if searched {
        meta.insert("highlights".into(), json!(found.highlights));
    }
    (!meta.is_empty()).then(|| serde_json::Value::Object(meta).to_string())
}

/// A page with the cursors of its neighbours.
struct Cursored {
    items: Vec<Found>,
    prev: Option<String>,
    next: Option<String>,
}

async fn read_page(app: &App, scope: &Scope, query: &ListQuery) -> Result<Cursored, Problem> {
    let (filter, with_context) = (query.filter.clone(), query.view.fields.has(Field::Context));
    match &query.page {
        ListPage::Sorted { sort, seek, limit } => {
            let (sort, seek, limit) = (*sort, seek.clone(), *limit);
            let query = ConversationQuery { filter, sort, seek, limit, with_context };
            let page = app.store.list_conversations(scope, &query).await?;
            Ok(sorted(page, sort))
        }
        ListPage::Search { query: text, sort, offset, limit } => {
            let (sort, offset, limit) = (*sort, *offset, *limit);
            // A query without a single word matches nothing.
            let Some(query) = Query::parse(text) else {
                return Ok(Cursored { items: Vec::new(), prev: None, next: None });
            };
            let search =
                ConversationSearch { filter, query, sort, offset: offset as usize, limit, with_context };
            let page = app.store.search_conversations(scope, &search).await?;
            let end = offset.saturating_add(page.items.len() as u32);
            Ok(Cursored {
                prev: page.has_before.then(|| encode_offset(sort, offset)),
                next: page.has_after.then(|| encode_offset(sort, end)),
                items: page.items,
            })
        }
    }
}

fn sorted(page: Page<Conversation>, sort: Sort) -> Cursored {
    let at = |conversation: &Conversation| encode_position(sort, &Position::of(conversation, sort.key));
    let (has_before, has_after) = (page.has_before, page.has_after);
    Cursored {
        prev: page.items.first().filter(|_| has_before).map(at),
        next: page.items.last().filter(|_| has_after).map(at),
        items: page
            .items
            .into_iter()
            .map(|conversation| Found { conversation, highlights: Vec::new() })
            .collect(),
    }
}

/// One conversation with its messages, or a window of them.
#[utoipa::path(get, path = "/v1/chat-conversations/{id}", operation_id = "get_conversation", tag = "conversations", params(
    ("id" = Uuid, Path), ("If-None-Match" = Option<String>, Header),
    ("fields[chat_conversation]" = Option<String>, Query), ("fields[workspace]" = Option<String>, Query),
    ("include" = Option<String>, Query), ("workspace" = Option<Uuid>, Query),
    ("page[messages]" = Option<u32>, Query, description = "At most so many, the newest"),
    ("page[messages_before]" = Option<Uuid>, Query, description = "Only those before this message"),
    ("branchId" = Option<Uuid>, Query, description = "Another branch than the current one")),
    responses((status = 200, description = "The conversation", content_type = "application/vnd.api+json", body = ConversationDocument), (status = 304), (status = 404), (status = 406)))]
pub async fn retrieve(
    State(app): State<AppState>,
    caller: Caller,
    Path(id): Path<String>,
    headers: HeaderMap,
    RawQuery(raw): RawQuery,
) -> Answer {
    accepts(&headers)?;
    let query = RetrieveQuery::parse(&raw.unwrap_or_default())?;
    let scope = caller.scope(Named(query.workspace)).await?;
    let window =
        query.view.fields.has(Field::Messages).then_some(match (query.messages, query.messages_before) {
            (None, None) => Window::All,
            (Some(limit), None) => Window::Newest { limit },
            (limit, Some(message)) => Window::Before { message, limit: limit.unwrap_or(u32::MAX as usize) },
        });
    let id = path_id(&id)?;
    let read = ThreadRead { window, branch: query.branch };
    let thread = match app.store.get_thread(&scope, id, read).await {
        Err(StoreError::NotFound) if query.messages_before.is_some() => {
            // Where the conversation is there, it is the message that is not.
            app.store.get_thread(&scope, id, None.into()).await?;
            let detail = "page[messages_before] must be the id of a message of this conversation.";
            return Err(
                ApiError::invalid_parameter(Source::parameter("page[messages_before]"), detail).into()
            );
        }
        thread => thread?,
    };
    // An included workspace changes without the conversation's version.
    if !query.view.include_workspace && etag::not_modified(&headers, thread.conversation.version) {
        let tag = [(header::ETAG, etag::of(thread.conversation.version))];
        return Ok((StatusCode::NOT_MODIFIED, tag).into_response());
    }
    Ok(answer_one(&app, &scope, &query.view, StatusCode::OK, &thread.conversation, &thread.messages).await?)
}

/// Creates a conversation, under the client's own id where it brings one.
#[utoipa::path(post, path = "/v1/chat-conversations", operation_id = "create_conversation", tag = "conversations",
    params(("workspace" = Option<Uuid>, Query), ("fields[chat_conversation]" = Option<String>, Query), ("fields[workspace]" = Option<String>, Query), ("include" = Option<String>, Query)),
    request_body(content = ConversationWriteDocument, content_type = "application/vnd.api+json"),
    responses((status = 201, description = "The conversation", content_type = "application/vnd.api+json", body = ConversationDocument),
        (status = 400), (status = 403), (status = 404), (status = 406), (status = 409), (status = 415), (status = 422)))]
pub async fn create(
    State(app): State<AppState>,
    caller: Caller,
    RawQuery(raw): RawQuery,
    request: Request,
) -> Answer {
    accepts(request.headers())?;
    let query = WriteQuery::parse(&raw.unwrap_or_default())?;
    let bytes = body(request, &app).await?;
    let write = app.write();
    let document = document::read(&bytes, Operation::Create, write.max_tabs)?;
    let scope = caller.scope(Named(query.workspace).and(document.workspace)?).await?;
    check_agent(&app, &scope, &document.patch, None).await?;
    let id_source = document.id_source();
    let new = NewConversation { id: document.id, source: document.source, patch: document.patch };
    let made = match app.store.create_conversation(&scope, &new, app.clock.new_id(), &write).await {
        Err(StoreError::Taken(_)) => {
            let detail = "A conversation with this id exists in the workspace; choose another.";
            return Err(ApiError::client_id_taken(id_source, detail).into());
        }
        made => made?,
    };
    let response = answer_one(&app, &scope, &query.view, StatusCode::CREATED, &made, &[]).await?;
    Ok(located(&app, made.id, response))
}

/// Refuses the id of an agent that is not there. One that the conversation has already it may keep, though it was removed;
/// a name that is no id, as imports bring, is another system's.
async fn check_agent(
    app: &App,
    scope: &Scope,
    patch: &ConversationPatch,
    kept: Option<&str>,
) -> Result<(), Failure> {
    let named = patch.agent_id.as_ref().and_then(Option::as_deref).filter(|named| Some(*named) != kept);
    let Some(id) = named.and_then(|named| Uuid::try_parse(named).ok()) else { return Ok(()) };
    if app.store.find_agent(scope, id).await?.is_some() {
        return Ok(());
    }
    let at = Source::pointer("/data/attributes/agent_id");
    Err(ApiError::invalid_value(at, "There is no such agent in this workspace; see GET /v1/agents.").into())
}

/// An answer about a conversation that was made, with where it is.
pub(super) fn located(app: &AppState, id: Uuid, mut response: Response) -> Response {
    if let Ok(link) = HeaderValue::from_str(&resource::self_link(&app.public_url, id)) {
        response.headers_mut().insert(header::LOCATION, link);
    }
    response
}

/// Changes what the client may change, whole or not at all.
#[utoipa::path(patch, path = "/v1/chat-conversations/{id}", operation_id = "update_conversation", tag = "conversations",
    params(("id" = Uuid, Path), ("workspace" = Option<Uuid>, Query), ("If-Match" = Option<String>, Header),
        ("fields[chat_conversation]" = Option<String>, Query), ("fields[workspace]" = Option<String>, Query), ("include" = Option<String>, Query)),
    request_body(content = ConversationWriteDocument, content_type = "application/vnd.api+json"),
    responses((status = 200, description = "The conversation", content_type = "application/vnd.api+json", body = ConversationDocument),
        (status = 400), (status = 403), (status = 404), (status = 406), (status = 409), (status = 412), (status = 415), (status = 422)))]
pub async fn update(
    State(app): State<AppState>,
    caller: Caller,
    Path(id): Path<String>,
    RawQuery(raw): RawQuery,
    request: Request,
) -> Answer {
    accepts(request.headers())?;
    let query = WriteQuery::parse(&raw.unwrap_or_default())?;
    let if_match = IfMatch::from_headers(request.headers());
    let bytes = body(request, &app).await?;
    let scope = caller.scope(Named(query.workspace)).await?;
    let (id, write) = (path_id(&id)?, app.write());
    // What the caller may not see does not exist, whatever the document says.
    let stored = app.store.get_thread(&scope, id, None.into()).await?.conversation;
    let document = document::read(&bytes, Operation::Update { id }, write.max_tabs)?;
    document.check_workspace(scope.workspace)?;
    check_agent(&app, &scope, &document.patch, stored.agent_id.as_deref()).await?;
    let version = if_match.version(stored.version)?;
    let changed = app.store.update_conversation(&scope, id, &document.patch, version, &write).await?;
    if changed.visibility != stored.visibility {
        app.turns.note_rights(scope.workspace).await;
    }
    let messages = all_messages(&app, &scope, &query.view, id).await?;
    Ok(answer_one(&app, &scope, &query.view, StatusCode::OK, &changed, &messages).await?)
}

/// Deletes a conversation; `restore` undoes it until it is purged.
#[utoipa::path(delete, path = "/v1/chat-conversations/{id}", operation_id = "delete_conversation", tag = "conversations",
    params(("id" = Uuid, Path), ("workspace" = Option<Uuid>, Query), ("If-Match" = Option<String>, Header),
        ("fields[chat_conversation]" = Option<String>, Query), ("fields[workspace]" = Option<String>, Query), ("include" = Option<String>, Query)),
    responses((status = 204), (status = 403), (status = 404), (status = 406), (status = 412)))]
pub async fn delete(
    State(app): State<AppState>,
    caller: Caller,
    Path(id): Path<String>,
    headers: HeaderMap,
    RawQuery(raw): RawQuery,
) -> Answer {
    accepts(&headers)?;
    let query = WriteQuery::parse(&raw.unwrap_or_default())?;
    let scope = caller.scope(Named(query.workspace)).await?;
    let id = path_id(&id)?;
    let version = match IfMatch::from_headers(&headers) {
        IfMatch::Any => None,
        if_match => {
            if_match.version(app.store.get_thread(&scope, id, None.into()).await?.conversation.version)?
        }
    };
    app.store.delete_conversation(&scope, id, version, app.clock.now()).await?;
    app.note_deletion(scope.workspace).await;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Undoes a delete.
#[utoipa::path(post, path = "/v1/chat-conversations/{id}/restore", operation_id = "restore_conversation", tag = "conversations",
    params(("id" = Uuid, Path), ("workspace" = Option<Uuid>, Query),
        ("fields[chat_conversation]" = Option<String>, Query), ("fields[workspace]" = Option<String>, Query), ("include" = Option<String>, Query)),
    responses((status = 200, description = "The conversation", content_type = "application/vnd.api+json", body = ConversationDocument), (status = 404), (status = 406)))]
pub async fn restore(
    State(app): State<AppState>,
    caller: Caller,
    Path(id): Path<String>,
    headers: HeaderMap,
    RawQuery(raw): RawQuery,
) -> Answer {
    accepts(&headers)?;
    let query = WriteQuery::parse(&raw.unwrap_or_default())?;
    let scope = caller.scope(Named(query.workspace)).await?;
    let restored = app.store.restore_conversation(&scope, path_id(&id)?, app.clock.now()).await?;
    let messages = all_messages(&app, &scope, &query.view, restored.id).await?;
    Ok(answer_one(&app, &scope, &query.view, StatusCode::OK, &restored, &messages).await?)
}
