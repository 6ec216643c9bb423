//! Every route in one list. The list is also what the OpenAPI document and the tests of who may do what are
//! made from.

use axum::handler::Handler as _;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::{Router, response::IntoResponse};
use tower_http::catch_panic::CatchPanicLayer;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::extract::caller::authenticate;
use crate::extract::taken_back;
use crate::jsonapi::schema::{ErrorsDocument, ProblemDocument};
use crate::problem::{self, Problem};
use crate::routes::{
    ag_ui, agent, agents, ai_chat, api_keys, approvals, audit, branches, conversations, executions, export,
    files, gateway as models, health, home, members, oai_conversations as oai, openapi, pages, responses,
    rows, runs, session, table_files, tables, tool_servers, turns, uploads, usage, workspace_files,
    workspaces,
};
use crate::state::AppState;
use crate::{dialect, gateway, head, host, listen, observe, unread, web};

#[derive(OpenApi)]
#[openapi(info(
    title = "Threadkeep",
    description = "A conversation server for AI assistants. Authenticate with `Authorization: Bearer`, a user's token or an API key.",
    license(name = "Apache-2.0", identifier = "Apache-2.0")
), tags(
    (name = "conversations", description = "The `chat_conversation` resource, JSON:API 1.1"),
    (name = "turns", description = "One user message and its answer"),
    (name = "runs", description = "The execution of a turn: its events, its trace, its end"),
    (name = "branches", description = "Edits and forks of a thread"),
    (name = "files", description = "Files of a conversation, and of a workspace"),
    (name = "executions", description = "Runs outside any conversation"),
    (name = "clients", description = "For clients of the Vercel AI SDK, AG-UI and OpenAI's Responses and Conversations"),
    (name = "models", description = "Models for clients of OpenAI's and Anthropic's APIs"),
    (name = "knowledge", description = "Pages and tables that a workspace keeps, searches and cites"),
    (name = "sandbox", description = "What a run's sandbox may ask for"),
    (name = "workspaces", description = "Who may do what"),
    (name = "session", description = "The browser's session"),
    (name = "operating", description = "For whoever runs the server")
), components(schemas(ErrorsDocument, ProblemDocument)))]
struct Api;

/// Routes that ask for no credential.
fn open() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(home::home))
        .routes(routes!(home::login))
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(health::metrics))
        .routes(routes!(openapi::openapi))
        .routes(routes!(agent::config))
        .routes(routes!(agent::results))
        .routes(routes!(agent::zip))
        .routes(routes!(uploads::put))
}

/// Routes for authenticated callers.
fn guarded() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(session::show, session::create, session::remove))
        .routes(routes!(workspaces::list, workspaces::create))
        .routes(routes!(workspaces::show, workspaces::update, workspaces::remove))
        .routes(routes!(members::list, members::add))
        .routes(routes!(members::remove))
        .routes(routes!(api_keys::list, api_keys::create))
        .routes(routes!(api_keys::remove))
        .routes(routes!(audit::list))
        .routes(routes!(conversations::list, conversations::create))
        .routes(routes!(conversations::retrieve, conversations::update, conversations::delete))
        .routes(routes!(conversations::restore))
        .routes(routes!(branches::fork))
        .routes(routes!(branches::list))
        .routes(routes!(branches::select))
        .routes(routes!(agents::list, agents::create))
        .routes(routes!(agents::show, agents::update, agents::remove))
        .routes(routes!(tool_servers::list, tool_servers::add))
        .routes(routes!(tool_servers::remove))
        .routes(routes!(tool_servers::approve))
        .routes(routes!(tool_servers::tools))
        .routes(routes!(turns::create))
        .routes(routes!(runs::show, runs::edit))
        .routes(routes!(runs::events))
        .routes(routes!(runs::cancel))
        .routes(routes!(runs::trace))
        .routes(routes!(approvals::list, approvals::decide))
        .routes(routes!(runs::of_conversation))
        .routes(routes!(runs::queue))
        .routes(routes!(runs::clear_lock))
        .routes(routes!(files::list, files::upload))
        .routes(routes!(files::content))
        .routes(routes!(files::delete))
        .routes(routes!(uploads::promise))
        .routes(routes!(uploads::complete))
        .routes(routes!(executions::create))
        .routes(routes!(executions::show))
        .routes(routes!(usage::show))
        .routes(routes!(workspace_files::list, workspace_files::keep))
        .routes(routes!(workspace_files::content))
        .routes(routes!(workspace_files::delete))
        .routes(routes!(ag_ui::run))
        .routes(routes!(ag_ui::connect))
        .routes(routes!(export::export))
        .routes(routes!(pages::list, pages::create))
        .routes(routes!(pages::show, pages::update, pages::remove))
        .routes(routes!(tables::list, tables::create))
        .routes(routes!(tables::show, tables::update, tables::remove))
        .routes(routes!(rows::list, rows::add))
        .routes(routes!(rows::show, rows::update, rows::remove))
        .routes(routes!(table_files::import))
        .routes(routes!(table_files::export))
}

/// Routes for other people's clients, and for runs with a token of their own.
fn served() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(models::models))
        .routes(routes!(models::model))
        .routes(routes!(models::completions))
        .routes(routes!(models::messages))
}

/// Routes of OpenAI's APIs over conversations.
fn responded() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(responses::create))
        .routes(routes!(responses::retrieve, responses::delete))
        .routes(routes!(responses::cancel))
        .routes(routes!(responses::input_items))
        .routes(routes!(oai::list, oai::create))
        .routes(routes!(oai::retrieve, oai::update, oai::delete))
        .routes(routes!(oai::list_items, oai::create_items))
        .routes(routes!(oai::get_item, oai::delete_item))
}

/// Routes for clients that show a failure's body to their user.
fn chatted() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(ai_chat::chat))
        .routes(routes!(ai_chat::show))
        .routes(routes!(ai_chat::stream))
        .routes(routes!(ai_chat::stop))
}

pub fn router(app: &AppState) -> Router {
    let wrong_method = || async { Problem::method_not_allowed() };
    let plain = |routes: OpenApiRouter<AppState>| routes.split_for_parts().0;
    let guarded = plain(guarded()).layer(from_fn_with_state(app.clone(), authenticate));
    // A wrong method is told before anyone is asked for a credential, in the clients' own way.
    let served = plain(served())
        .layer(from_fn_with_state(app.clone(), gateway::authenticate))
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn(dialect::as_openai))
        .layer(from_fn(gateway::as_clients_expect));
    let chatted = plain(chatted())
        .layer(from_fn_with_state(app.clone(), authenticate))
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn(dialect::in_words));
    let responded = plain(responded())
        .layer(from_fn_with_state(app.clone(), authenticate))
        .method_not_allowed_fallback(responses::not_offered)
        .layer(from_fn(dialect::as_openai))
        .layer(from_fn(gateway::as_clients_expect));
    let all = plain(open()).merge(guarded).merge(served).merge(chatted).merge(responded);
    all.fallback(web::fallback.layer(from_fn(gateway::as_who_asks_expects)))
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(app.clone(), listen::callbacks_alone))
        .layer(from_fn_with_state(app.clone(), host::guard))
        .layer(from_fn(taken_back::before_the_answer))
        .layer(from_fn(head::bound))
        .layer(CatchPanicLayer::custom(|_: Box<dyn std::any::Any + Send>| {
            Problem::internal().into_response()
        }))
        .layer(from_fn(problem::as_jsonapi))
        .layer(from_fn(observe::observe))
        .layer(from_fn_with_state(app.clone(), unread::read_away))
        .with_state(app.clone())
}

/// The description of every route, and of the credential that it asks for.
pub fn openapi() -> utoipa::openapi::OpenApi {
    let (_, open) = open().split_for_parts();
    let (_, mut guarded) = guarded().merge(served()).merge(chatted()).merge(responded()).split_for_parts();
    openapi::guard(&mut guarded);
    let mut api = Api::openapi();
    api.merge(open);
    api.merge(guarded);
    openapi::name_tails(&mut api);
    openapi::add_credentials(&mut api);
    openapi::describe_failures(&mut api);
    openapi::details::describe_details(&mut api);
    api
}

pub fn openapi_json() -> String {
    openapi().to_pretty_json().unwrap_or_default()
}
