//! Who calls. `authenticate` runs before every `/v1` handler and leaves a `Caller`; a handler asks it for
//! the `Scope` of the workspace that the request names.

use std::sync::{Arc, OnceLock};

use axum::extract::{FromRequestParts, MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use domain::scope::{Role, Scope};
use domain::workspace::{KeyGrant, looks_like_key, read_key};
use uuid::Uuid;

use crate::auth::session::{Session, same_origin};
use crate::auth::token::TokenFault;
use crate::limit::Allowance;
use crate::problem::Problem;
use crate::state::{App, AppState};

pub const WORKSPACE_HEADER: HeaderName = HeaderName::from_static("threadkeep-workspace");
pub const USER_HEADER: HeaderName = HeaderName::from_static("threadkeep-user");

#[derive(Debug, Clone)]
enum Credential {
    /// A person, by token or by browser session.
    User { user: String, org: String, expires_at: jiff::Timestamp },
    /// With the hash under which it is found again.
    Key(Box<KeyGrant>, [u8; 32]),
}

#[derive(Clone)]
pub struct Caller {
    app: AppState,
    credential: Credential,
    /// The workspace of the `Threadkeep-Workspace` header.
    header_workspace: Option<Uuid>,
    acting_for: Option<String>,
    /// Whether the request names a thing of some workspace, which is not there for who is in none.
    names_a_thing: bool,
    /// What the request took of its workspace's allowance, once that was known.
    of_workspace: Arc<OnceLock<Result<Allowance, Allowance>>>,
}

/// Where else than in the header a request named its workspace.
#[derive(Debug, Clone, Copy, Default)]
pub struct Named(pub Option<Uuid>);

impl Named {
    /// One name from two places, which must agree.
    pub fn and(self, other: Option<Uuid>) -> Result<Self, Problem> {
        match (self.0, other) {
            (Some(a), Some(b)) if a != b => Err(Problem::new(
                StatusCode::BAD_REQUEST,
                "workspace_conflict",
                "Two workspaces are named",
                format!("The request names the workspaces {a} and {b}; name one."),
            )),
            (a, b) => Ok(Self(a.or(b))),
        }
    }
}

pub async fn authenticate(State(app): State<AppState>, mut request: Request, next: Next) -> Response {
    let mut caller = match identify(&app, request.method(), request.headers()).await {
        Ok(caller) => caller,
        Err(problem) => return problem.into_response(),
    };
    let route = request.extensions().get::<MatchedPath>();
    caller.names_a_thing = route.is_some_and(|route| route.as_str().contains('{'));
    let allowance = match app.rate.as_ref().map(|rate| rate.take(&caller.id())) {
        Some(Err(refused)) => {
            let mut response = refused.refused().into_response();
            refused.tell(response.headers_mut());
            return response;
        }
        Some(Ok(allowance)) => Some(allowance),
        None => None,
    };
    let of_workspace = Arc::clone(&caller.of_workspace);
    request.extensions_mut().insert(caller);
    let mut response = next.run(request).await;
    let of_workspace = of_workspace.get().map(|taken| taken.unwrap_or_else(|refused| refused));
    for allowance in allowance.into_iter().chain(of_workspace) {
        allowance.tell(response.headers_mut());
    }
    response
}

async fn identify(app: &AppState, method: &Method, headers: &HeaderMap) -> Result<Caller, Problem> {
    let credential = match bearer(headers)? {
        Some(token) if looks_like_key(token) => key(app, token).await?,
        Some(token) => user(app, token).await?,
        None => browser(app, method, headers)?,
    };
    let acting_for = acting_for(headers)?;
    if acting_for.as_deref().is_some_and(|user| !may_act_for(&credential, user)) {
        return Err(Problem::forbidden("Only a service key may act for another user."));
    }
    Ok(Caller {
        app: Arc::clone(app),
        credential,
        header_workspace: workspace_header(headers)?,
        acting_for,
        names_a_thing: false,
        of_workspace: Arc::default(),
    })
}

/// Everyone may name themselves; whether a service key names a member is for the workspace to say.
fn may_act_for(credential: &Credential, user: &str) -> bool {
    match credential {
        Credential::User { user: own, .. } => own == user,
        Credential::Key(grant, _) => grant.key.role == Role::Service || grant.key.created_by == user,
    }
}

/// The credential of the `Authorization` header; there may be one, and it must be a bearer.
fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let wrong = || {
        Problem::unauthenticated("The Authorization header must be one, of the form: Bearer <token or key>.")
    };
    if values.next().is_some() {
        return Err(wrong());
    }
    let text = value.to_str().map_err(|_| wrong())?;
    let (scheme, token) = text.split_once(' ').ok_or_else(wrong)?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(Some(token)).ok_or_else(wrong)
}

async fn key(app: &App, text: &str) -> Result<Credential, Problem> {
    let refused = || Problem::unauthenticated("The API key is unknown or was removed.");
    let (workspace, hash) = read_key(text).ok_or_else(refused)?;
    let grant = app.store.find_key(workspace, hash).await?.ok_or_else(refused)?;
    // A key of someone who is no longer a member gives nothing.
    if grant.role().is_none() {
        return Err(refused());
    }
    Ok(Credential::Key(Box::new(grant), hash))
}

async fn user(app: &App, token: &str) -> Result<Credential, Problem> {
    if app.local.is_some() {
        return Err(Problem::unauthenticated(
            "In local mode only the local API key is accepted; it is in local.key in the data folder.",
        ));
    }
    match app.tokens.verify(token, &*app.clock).await {
        Ok(token) => Ok(Credential::User { user: token.user, org: token.org, expires_at: token.expires_at }),
        Err(fault @ TokenFault::Invalid(_)) => {
            Err(Problem::unauthenticated(format!("The bearer credential is refused: {fault}.")))
        }
        Err(TokenFault::Unavailable) => Err(Problem::unavailable(
            "User tokens cannot be verified now: the issuer's keys could not be fetched.",
            5,
        )),
    }
}

fn browser(app: &App, method: &Method, headers: &HeaderMap) -> Result<Credential, Problem> {
    let session = Session::from_headers(headers, &app.secret, app.clock.now()).ok_or_else(|| {
        Problem::unauthenticated("Send Authorization: Bearer with a user's token or an API key.")
    })?;
    let safe = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    if !safe && !same_origin(headers, &own_origins(app, headers)) {
        return Err(Problem::new(
            StatusCode::FORBIDDEN,
            "cross_origin",
            "Cross-origin request",
            "A request with the browser's session must come from this server's own pages.",
        ));
    }
    Ok(Credential::User { user: session.user, org: session.org, expires_at: session.expires_at })
}

/// The origins that are this server: its public URL, and the host that the browser itself addressed.
pub(crate) fn own_origins(app: &App, headers: &HeaderMap) -> Vec<String> {
    let mut origins = vec![origin_of(&app.public_url).to_owned()];
    if let Some(host) = headers.get(header::HOST).and_then(|host| host.to_str().ok()) {
        origins.extend([format!("http://{host}"), format!("https://{host}")]);
    }
    origins
}

/// Scheme, host and port of a URL.
fn origin_of(url: &str) -> &str {
    let start = url.find("://").map_or(0, |at| at + 3);
    let end = url[start..].find('/').map_or(url.len(), |at| start + at);
    &url[..end]
}

fn workspace_header(headers: &HeaderMap) -> Result<Option<Uuid>, Problem> {
    let mut named = Named::default();
    for value in headers.get_all(WORKSPACE_HEADER) {
        let id = value.to_str().ok().and_then(|text| Uuid::try_parse(text).ok()).ok_or_else(|| {
            Problem::invalid_header(
                "Threadkeep-Workspace",
                "Threadkeep-Workspace must be the UUID of a workspace.",
            )
        })?;
        named = named.and(Some(id))?;
    }
    Ok(named.0)
}

fn acting_for(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut values = headers.get_all(USER_HEADER).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let text = std::str::from_utf8(value.as_bytes()).ok().filter(|text| is_user_id(text));
    match (text, values.next()) {
        (Some(user), None) => Ok(Some(user.to_owned())),
        _ => Err(Problem::invalid_header("Threadkeep-User", "Threadkeep-User must be one user id.")),
    }
}

/// What may be a user's id: 1 to 255 characters, no control characters.
pub fn is_user_id(text: &str) -> bool {
    !text.is_empty() && text.chars().count() <= 255 && !text.chars().any(char::is_control)
}

impl Caller {
    pub fn app(&self) -> &AppState {
        &self.app
    }

    /// Whether the body names a thing, as a path does.
    pub fn naming(mut self, a_thing: bool) -> Self {
        self.names_a_thing |= a_thing;
        self
    }

    /// For counting: one per person, one per key.
    fn id(&self) -> String {
        match &self.credential {
            Credential::User { user, org, .. } => format!("user {org} {user}"),
            Credential::Key(grant, _) => format!("key {}", grant.key.id),
        }
    }

    /// The person calling by token or session: (user, org, until when).
    pub fn person(&self) -> Option<(&str, &str, jiff::Timestamp)> {
        match &self.credential {
            Credential::User { user, org, expires_at } => Some((user, org, *expires_at)),
            Credential::Key(..) => None,
        }
    }

    pub fn key(&self) -> Option<&KeyGrant> {
        match &self.credential {
            Credential::User { .. } => None,
            Credential::Key(grant, _) => Some(grant),
        }
    }

    /// The workspace that the request is about and what the caller may do there. `named` is what the
    /// query or the body said. A workspace that the caller is not in does not exist.
    pub async fn scope(&self, named: Named) -> Result<Scope, Problem> {
        self.scope_in(named.and(self.header_workspace)?.0).await
    }

    /// As `scope`, where the path is the workspace's own: the header, which clients send with all they ask, says nothing
    /// there.
    pub async fn scope_of(&self, workspace: Uuid) -> Result<Scope, Problem> {
        self.scope_in(Some(workspace)).await
    }

    async fn scope_in(&self, named: Option<Uuid>) -> Result<Scope, Problem> {
        let scope = match &self.credential {
            Credential::Key(grant, _) => self.key_scope(grant, named).await,
            Credential::User { user, .. } => self.user_scope(user, named).await,
        }?;
        self.count(scope.workspace)?;
        Ok(scope)
    }

    /// Counts the request to its workspace, once.
    fn count(&self, workspace: Uuid) -> Result<(), Problem> {
        let Some(rate) = &self.app.workspace_rate else { return Ok(()) };
        let taken = self.of_workspace.get_or_init(|| rate.take(&workspace.to_string()));
        taken.map(|_| ()).map_err(Allowance::refused)
    }

    /// Whether the caller may still be there: a token ends, a key or a membership is taken back.
    pub async fn recheck(&self, named: Named) -> Result<Scope, Problem> {
        let now = self.app.clock.now();
        match &self.credential {
            Credential::User { expires_at, .. } if *expires_at <= now => {
                return Err(Problem::unauthenticated("The token has expired."));
            }
            Credential::Key(grant, hash) => {
                let found = self.app.store.find_key(grant.workspace.id, *hash).await?;
                found
                    .and_then(|found| found.role())
                    .ok_or_else(|| Problem::unauthenticated("The API key was removed."))?;
            }
            Credential::User { .. } => {}
        }
        self.scope(named).await
    }

    /// As `scope`, for callers that may administer the workspace.
    pub async fn admin_scope(&self, named: Named) -> Result<Scope, Problem> {
        administering(self.scope(named).await?)
    }

    /// As `scope_of`, for callers that may administer the workspace.
    pub async fn admin_scope_of(&self, workspace: Uuid) -> Result<Scope, Problem> {
        administering(self.scope_of(workspace).await?)
    }

    async fn user_scope(&self, user: &str, named: Option<Uuid>) -> Result<Scope, Problem> {
        let mut found = self.app.store.list_memberships(user, named, None, 2).await?;
        let membership = match (found.len(), named) {
            (1, _) => found.remove(0),
            (0, Some(_)) => return Err(Problem::not_found()),
            (0, None) if self.names_a_thing => return Err(Problem::not_found()),
            (0, None) => {
                return Err(workspace_required(
                    "You are in no workspace yet; make one with POST /v1/workspaces.",
                ));
            }
            _ => {
                return Err(workspace_required(
                    "You are in several workspaces; name one by the Threadkeep-Workspace header or ?workspace=.",
                ));
            }
        };
        Ok(Scope {
            workspace: membership.workspace.id,
            org: membership.workspace.org,
            user: user.to_owned(),
            role: membership.role,
            key: None,
            administers: membership.role == Role::Admin,
        })
    }

    async fn key_scope(&self, grant: &KeyGrant, named: Option<Uuid>) -> Result<Scope, Problem> {
        if named.is_some_and(|named| named != grant.workspace.id) {
            return Err(Problem::not_found());
        }
        let role = grant.role().unwrap_or(Role::Member);
        let mut scope = Scope {
            workspace: grant.workspace.id,
            org: grant.workspace.org.clone(),
            user: grant.key.created_by.clone(),
            role,
            key: Some(grant.key.id),
            administers: role == Role::Admin,
        };
        match (&self.acting_for, role) {
            (None, Role::Service) => scope.user = format!("key:{}", grant.key.id),
            (Some(user), Role::Service) => {
                let member = self.app.store.find_member(&scope, user).await?.ok_or_else(|| {
                    Problem::forbidden("Threadkeep-User names nobody in this workspace.")
                        .at(crate::jsonapi::error::Source::header("Threadkeep-User"))
                })?;
                scope.user = member.user;
                scope.role = member.role;
                scope.administers = member.role == Role::Admin;
            }
            // Others act as themselves.
            (_, _) => {}
        }
        Ok(scope)
    }
}

fn administering(scope: Scope) -> Result<Scope, Problem> {
    if scope.administers {
        Ok(scope)
    } else {
        Err(Problem::forbidden("This is for admins of the workspace."))
    }
}

fn workspace_required(detail: &str) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, "workspace_required", "A workspace must be named", detail)
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        parts.extensions.get::<Self>().cloned().ok_or_else(Problem::internal)
    }
}

/// The `?workspace=` of a plain route, beside the parameters that the route itself knows.
impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let mut named = Self::default();
        for (name, value) in super::paging::pairs(parts.uri.query().unwrap_or(""))? {
            if name == "workspace" {
                let id = Uuid::try_parse(&value).map_err(|_| {
                    Problem::invalid_parameter("workspace", "workspace must be the UUID of a workspace.")
                })?;
                named = named.and(Some(id))?;
            }
        }
        Ok(named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_end_at_the_path() {
        assert_eq!(origin_of("https://a.example:8443/base/x"), "https://a.example:8443");
        assert_eq!(origin_of("http://127.0.0.1:8080"), "http://127.0.0.1:8080");
    }
}
