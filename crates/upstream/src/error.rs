//! What can go wrong when calling somebody else's server. No variant shows a URL or a response body:
//! an operator's URL may hold credentials, and these texts reach logs.

use std::error::Error;

#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    #[error("the outbound HTTP client could not be made: {0}; check the system's CA certificates")]
    Client(String),
    #[error("{setting} is not a usable URL: {reason}; give an absolute http or https address")]
    Url { setting: &'static str, reason: String },
    #[error("{what} could not be fetched: {reason}; check that its address can be reached from here")]
    Request { what: &'static str, reason: String },
    #[error(
        "{what} could not be fetched: the answer has status {status}, not 200 (redirects are not followed)"
    )]
    Status { what: &'static str, status: u16 },
    #[error("{what} is larger than {limit} bytes")]
    TooLarge { what: &'static str, limit: usize },
    #[error("{what} is malformed: {reason}")]
    Malformed { what: &'static str, reason: String },
    #[error("{what} is not available: {reason}")]
    Unavailable { what: &'static str, reason: String },
}

impl UpstreamError {
    pub(crate) fn client(error: reqwest::Error) -> Self {
        Self::Client(causes(error))
    }

    pub(crate) fn request(what: &'static str, error: reqwest::Error) -> Self {
        Self::Request { what, reason: causes(error) }
    }
}

/// reqwest's own text stops at "error sending request"; the reason is further down its chain.
pub(crate) fn causes(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}
