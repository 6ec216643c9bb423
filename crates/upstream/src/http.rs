//! The one outbound HTTP client. Nothing of the environment (proxies) steers it and it follows no
//! redirect, so a call goes where the caller said or nowhere.

use std::time::Duration;

use crate::error::UpstreamError;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Build once and clone: clones share the connection pool. Time-outs of a whole request are the caller's.
pub fn client() -> Result<reqwest::Client, UpstreamError> {
    builder().build().map_err(UpstreamError::client)
}

/// What every outbound client has in common.
pub(crate) fn builder() -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .user_agent(concat!("threadkeep/", env!("CARGO_PKG_VERSION")))
}
