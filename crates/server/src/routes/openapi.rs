//! The API's own description, generated from the routes, and what all operations have in common there.

pub mod details;

use std::sync::LazyLock;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityRequirement, SecurityScheme,
};
use utoipa::openapi::{Content, OpenApi, PathItem, Ref, RefOr, Required};

use crate::auth::session::COOKIE;
use crate::jsonapi::media::MEDIA_TYPE;
use crate::problem::speaks_jsonapi;

static DOCUMENT: LazyLock<String> = LazyLock::new(crate::router::openapi_json);

/// OpenAPI 3.1.
#[utoipa::path(get, path = "/openapi.json", operation_id = "describe_api", tag = "operating",
    responses((status = 200, description = "This document", content_type = "application/json", body = Object)))]
pub async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT.as_str()).into_response()
}

/// The credentials that operations take.
pub fn add_credentials(api: &mut OpenApi) {
    let components = api.components.get_or_insert_default();
    components.add_security_scheme("bearer", SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
    let cookie = ApiKeyValue::with_description(COOKIE, "The browser's session.");
    components.add_security_scheme("session", SecurityScheme::ApiKey(ApiKey::Cookie(cookie)));
    let mut run = Http::new(HttpAuthScheme::Bearer);
    run.description = Some("The token of a run, as its sandbox was sent it.".to_owned());
    components.add_security_scheme("run_token", SecurityScheme::Http(run));
    let upload = ApiKeyValue::with_description("Authorization", "The upload token of a run, as it is.");
    components.add_security_scheme("upload_token", SecurityScheme::ApiKey(ApiKey::Header(upload)));
}

/// A parameter that is the rest of a path is one like any other here.
pub fn name_tails(api: &mut OpenApi) {
    let paths = std::mem::take(&mut api.paths.paths);
    api.paths.paths = paths.into_iter().map(|(path, item)| (path.replace("{*", "{"), item)).collect();
}

/// What every operation behind a credential says: how to authenticate, and the refusals that all share.
pub fn guard(api: &mut OpenApi) {
    for operation in api.paths.paths.values_mut().flat_map(operations) {
        let either = ["bearer", "session"].map(|name| SecurityRequirement::new(name, [""; 0]));
        operation.security = Some(either.to_vec());
        let of_all: &[u16] = &[400, 401, 403, 429, 503];
        let of_bodies: &[u16] = if operation.request_body.is_some() { &[408, 413, 415, 422] } else { &[] };
        for status in of_all.iter().chain(of_bodies) {
            operation.responses.responses.entry(status.to_string()).or_insert_with(blank);
        }
        let parameters = operation.parameters.get_or_insert_default();
        let named =
            |parameter: &RefOr<Parameter>| matches!(parameter, RefOr::T(it) if it.name == "workspace");
        if parameters.iter().any(named) {
            // One that the caller is not in does not exist.
            operation.responses.responses.entry("404".to_owned()).or_insert_with(blank);
            parameters.push(RefOr::T(text_header(
                "Threadkeep-Workspace",
                "The workspace's id, for callers in several",
            )));
            parameters.push(RefOr::T(text_header("Threadkeep-User", "Whom a service key acts for")));
        }
    }
}

/// Gives every answer a description, and every failure the shape that failures have on its path.
pub fn describe_failures(api: &mut OpenApi) {
    for (path, item) in &mut api.paths.paths {
        let (kind, schema) = match speaks_jsonapi(path) {
            true => (MEDIA_TYPE, "ErrorsDocument"),
            false => ("application/problem+json", "ProblemDocument"),
        };
        for operation in operations(item) {
            for (status, response) in &mut operation.responses.responses {
                let RefOr::T(response) = response else { continue };
                let status = status.parse::<StatusCode>().unwrap_or_default();
                if response.description.is_empty() {
                    response.description = status.canonical_reason().unwrap_or("A failure").to_owned();
                }
                if status.as_u16() >= 400 {
                    let content = Content::new(Some(Ref::from_schema_name(schema)));
                    response.content.entry(kind.to_owned()).or_insert(RefOr::T(content));
                    if path.starts_with("/v1/ai/") {
                        let text = ObjectBuilder::new().schema_type(Type::String).build();
                        let content = Content::new(Some(text));
                        response.content.entry("text/plain".to_owned()).or_insert(RefOr::T(content));
                    }
                }
            }
        }
    }
}

fn blank() -> RefOr<utoipa::openapi::Response> {
    RefOr::T(utoipa::openapi::Response::new(""))
}

fn text_header(name: &str, description: &str) -> Parameter {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some(description))
        .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
        .build()
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [&mut item.get, &mut item.post, &mut item.put, &mut item.patch, &mut item.delete].into_iter().flatten()
}
