//! What the routes have in common and no handler says of itself: the bounds and words of parameters, streams, and the
//! headers of answers.

use domain::conversation::{Kind, Mode, SortKey, Source};
use domain::wire::Wire;
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::{Operation, ParameterIn};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::security::SecurityRequirement;
use utoipa::openapi::{Object, OpenApi, Ref, RefOr, Schema};

use super::operations;
use crate::jsonapi::query::{MESSAGE_WINDOWS, PAGE_SIZES};
use crate::routes::{export, table_files, usage};

/// The headers that answers tell something by.
const HEADERS: [(&str, &str); 15] = [
    ("Accept-Ranges", "`bytes`"),
    ("Content-Disposition", "The file's name"),
    ("Content-Range", "Which bytes of how many"),
    ("ETag", "For `If-Match`, `If-None-Match` and `If-Range`"),
    ("Location", "Where it is now"),
    ("Preference-Applied", "`respond-async`"),
    ("RateLimit", "What is left of each limit, and when more will be (draft-ietf-httpapi-ratelimit-headers)"),
    ("RateLimit-Policy", "The limits"),
    ("Retry-After", "After how many seconds to come again, where that is known"),
    ("Set-Cookie", "The session"),
    ("Threadkeep-Conversation", "The conversation's id; not of an execution"),
    ("Threadkeep-Execution", "The execution's id"),
    ("Threadkeep-Message", "The id of the message that is answered"),
    ("Threadkeep-Run", "The run's id"),
    ("WWW-Authenticate", "`Bearer`"),
];

/// The headers of what certain operations answer with these statuses.
const TOLD: [(&[&str], &[&str], &[&str]); 9] = [
    (
        &[
            "create_turn",
            "follow_run",
            "create_execution",
            "ai_chat",
            "ai_chat_stream",
            "run_ag_ui",
            "create_response",
        ],
        &["200", "202"],
        &["Threadkeep-Run", "Threadkeep-Conversation", "Threadkeep-Message"],
    ),
    (&["create_turn"], &["202"], &["Preference-Applied"]),
    (&["create_execution"], &["200"], &["Threadkeep-Execution"]),
    (&["create_conversation", "fork_conversation"], &["201"], &["ETag", "Location"]),
    (&["get_conversation", "update_conversation", "restore_conversation"], &["200", "304"], &["ETag"]),
    (
        &["get_file_content", "get_workspace_file_content"],
        &["200", "206", "304"],
        &["ETag", "Accept-Ranges", "Content-Disposition"],
    ),
    (&["get_file_content", "get_workspace_file_content"], &["206", "416"], &["Content-Range"]),
    (&["log_in"], &["303"], &["Location", "Set-Cookie"]),
    (&["create_session", "end_session"], &["201", "204"], &["Set-Cookie"]),
];

pub fn describe_details(api: &mut OpenApi) {
    let components = api.components.get_or_insert_default();
    for (name, about) in HEADERS {
        let text = ObjectBuilder::new().schema_type(Type::String);
        let header = HeaderBuilder::new().schema(Some(text)).description(Some(about)).build();
        components.headers.insert(name.to_owned(), RefOr::T(header));
    }
    for (path, item) in &mut api.paths.paths {
        for operation in operations(item) {
            describe_parameters(path, operation);
            describe_answers(operation);
        }
    }
}

fn describe_parameters(path: &str, operation: &mut Operation) {
    let Some(parameters) = &mut operation.parameters else { return };
    // The lists of OpenAI's APIs refuse what is above a page, the others answer with a page.
    let is_openai = parameters.iter().any(|it| matches!(it, RefOr::T(it) if it.name == "order"));
    for parameter in parameters {
        let RefOr::T(it) = parameter else { continue };
        if it.parameter_in != ParameterIn::Query {
            continue;
        }
        let schema = match it.name.as_str() {
            "limit" => Some(number(1, is_openai.then_some(100))),
            "page[size]" => Some(number(*PAGE_SIZES.start(), Some(*PAGE_SIZES.end()))),
            "page[messages]" => Some(number(*MESSAGE_WINDOWS.start(), Some(*MESSAGE_WINDOWS.end()))),
            "days" => Some(number(1, usize::try_from(usage::MOST_DAYS).ok())),
            name => words(path, name).map(one_of),
        };
        if let Some(schema) = schema {
            it.schema = Some(RefOr::T(Schema::Object(schema)));
        }
    }
}

fn number(least: usize, most: Option<usize>) -> Object {
    ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(least)).maximum(most).build()
}

fn one_of(words: Vec<String>) -> Object {
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(words)).build()
}

/// The words that a parameter may be.
fn words(path: &str, name: &str) -> Option<Vec<String>> {
    let words = match (path, name) {
        (_, "wire") => &Wire::ALL.map(Wire::as_str)[..],
        (_, "order") => &["asc", "desc"],
        (_, "filter[source]") => Source::ALL,
        (_, "filter[mode]") => Mode::ALL,
        (_, "filter[kind]") => Kind::ALL,
        ("/v1/export", "format") => &export::FORMATS,
        ("/v1/tables/{id}/export", "format") => &table_files::FORMATS,
        (_, "sort") => {
            return Some(
                SortKey::ALL.iter().flat_map(|key| [(*key).to_owned(), format!("-{key}")]).collect(),
            );
        }
        _ => return None,
    };
    Some(words.iter().map(|word| (*word).to_owned()).collect())
}

fn describe_answers(operation: &mut Operation) {
    let id = operation.operation_id.clone().unwrap_or_default();
    let bearer = SecurityRequirement::new("bearer", [""; 0]);
    let guarded = operation.security.iter().flatten().any(|one| *one == bearer);
    for (status, response) in &mut operation.responses.responses {
        let RefOr::T(response) = response else { continue };
        // What a stream holds is told event by event, which a schema of the whole does not say.
        if let Some(RefOr::T(events)) = response.content.get_mut("text/event-stream") {
            events.schema = None;
        }
        let told = TOLD
            .iter()
            .filter(|(ids, statuses, _)| ids.contains(&id.as_str()) && statuses.contains(&status.as_str()));
        let of_all: &[&str] = match status.as_str() {
            "401" => &["WWW-Authenticate"],
            "429" if guarded => &["RateLimit", "RateLimit-Policy", "Retry-After"],
            "429" | "503" => &["Retry-After"],
            status if guarded && status.starts_with('2') => &["RateLimit", "RateLimit-Policy"],
            _ => &[],
        };
        for name in told.flat_map(|(_, _, names)| *names).chain(of_all) {
            let header = RefOr::Ref(Ref::new(format!("#/components/headers/{name}")));
            response.headers.insert((*name).to_owned(), header);
        }
    }
}
