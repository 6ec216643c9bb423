//! The parameters of a path; what cannot be read of them is told as every other failure is.

use axum::extract::FromRequestParts;
use axum::extract::path::{ErrorKind, Path as Raw};
use axum::extract::rejection::PathRejection;
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use crate::problem::Problem;

pub struct Path<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Raw::from_request_parts(parts, state).await {
            Ok(Raw(path)) => Ok(Self(path)),
            Err(PathRejection::FailedToDeserializePathParams(refused)) => match refused.into_kind() {
                ErrorKind::InvalidUtf8InPathParam { key } => Err(not_utf8(&key)),
                _ => Err(Problem::internal()),
            },
            Err(_) => Err(Problem::internal()),
        }
    }
}

fn not_utf8(name: &str) -> Problem {
    let detail = format!("The part of the path that names {name} is not UTF-8 when it is decoded.");
    Problem::new(StatusCode::BAD_REQUEST, "malformed_path", "The path is malformed", detail)
}
