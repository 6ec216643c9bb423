//! The one outbound HTTP client. Nothing of the environment (proxies) steers it and it follows no
//! redirect, so a call goes where the caller said or nowhere.

use std::time::Duration;

use crate::error::UpstreamError;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Build once and clone: clones share the connection pool. Time-outs of a whole request are the caller's.
pub fn client() -> Result<reqwest::Client, UpstreamError> {
    reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .user_agent(concat!("threadkeep/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(UpstreamError::client)
}
