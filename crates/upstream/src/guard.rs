//! Calls to addresses that an admin of a workspace gave, not the operator: they may go to the public network, and
//! elsewhere only where the operator allows it. Every address of a name is checked, and one of those is connected to:
//! a name that changes its mind in between gains nothing.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use domain::address::{Reach, reach};
use domain::secret::Secret;
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::error::UpstreamError;
use crate::http;
use crate::mcp::HttpEndpoint;

const LOOKUP: Duration = Duration::from_secs(5);

/// Where such calls may go beside the public network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Allowed {
    pub loopback: bool,
    pub private: bool,
}

impl Allowed {
    fn admits(self, address: IpAddr) -> bool {
        match reach(address) {
            Reach::Public => true,
            Reach::Loopback => self.loopback,
            Reach::Private => self.private,
            Reach::Never => false,
        }
    }

    /// The address to call, or why it may not be called, as far as it can be told without asking for its host.
    fn check(self, url: &str) -> Result<Url, String> {
        let url = Url::parse(url).map_err(|error| format!("is no address: {error}"))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err("must be an http or https address".to_owned());
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("must not have a user or a password in it; give a token instead".to_owned());
        }
        match literal(&url) {
            Some(address) if !self.admits(address) => Err(inner(address)),
            _ => Ok(url),
        }
    }

    /// As `check`, with what the name of the host stands for now. A name that is not known now may be later.
    async fn look_up(self, url: &Url) -> Result<(), String> {
        let host = url.host_str().unwrap_or_default();
        if literal(url).is_some() {
            return Ok(());
        }
        match tokio::time::timeout(LOOKUP, self.resolved(host)).await {
            Ok(Err(Unresolved::Inner(address))) => Err(inner(address)),
            _ => Ok(()),
        }
    }

    async fn resolved(self, host: &str) -> Result<Vec<SocketAddr>, Unresolved> {
        let found = tokio::net::lookup_host((host, 0)).await;
        let found: Vec<SocketAddr> = found.map_err(|error| Unresolved::Unknown(error.to_string()))?.collect();
        match found.iter().find(|found| !self.admits(found.ip())) {
            Some(inside) => Err(Unresolved::Inner(inside.ip())),
            None => Ok(found),
        }
    }
}

/// The host, where it is an address itself. The parser has already read every odd spelling of one.
fn literal(url: &Url) -> Option<IpAddr> {
    url.host_str()?.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

fn inner(address: IpAddr) -> String {
    format!("leads to {address}, which is not a public address")
}

#[derive(Debug, thiserror::Error)]
enum Unresolved {
    #[error("its name is not known: {0}")]
    Unknown(String),
    #[error("it leads to {0}, which is not a public address")]
    Inner(IpAddr),
}

struct Guard(Allowed);

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let allowed = self.0;
        Box::pin(async move {
            let found = allowed.resolved(name.as_str()).await?;
            let addresses: Addrs = Box::new(found.into_iter());
            Ok(addresses)
        })
    }
}

/// The way out for such calls.
pub struct Guarded {
    allowed: Allowed,
    client: reqwest::Client,
}

impl Guarded {
    pub fn new(allowed: Allowed) -> Result<Self, UpstreamError> {
        let client = http::builder().dns_resolver(Guard(allowed)).build().map_err(UpstreamError::client)?;
        Ok(Self { allowed, client })
    }

    /// The address as it is to be called, and as it may be shown; or why it may not be called.
    pub async fn admit(&self, url: &str) -> Result<(String, String), String> {
        let checked = self.allowed.check(url)?;
        self.allowed.look_up(&checked).await?;
        let mut shown = checked.clone();
        shown.set_fragment(None);
        if shown.query().is_some() {
            shown.set_query(Some("****"));
        }
        Ok((checked.into(), shown.into()))
    }

    /// A tool server there. The resolver sees names alone, so an address is checked here.
    pub fn endpoint(&self, url: &str, token: Option<Secret>) -> Result<HttpEndpoint, String> {
        Ok(HttpEndpoint { client: self.client.clone(), url: self.allowed.check(url)?, token })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: Allowed = Allowed { loopback: true, private: true };

    #[test]
    fn no_spelling_of_an_inner_address_passes() {
        for url in [
            "http://127.0.0.1/mcp",
            "http://127.1/",
            "http://0x7f.1/",
            "http://2130706433/",
            "http://0177.0.0.1/",
            "http://[::1]:8080/",
            "http://[::ffff:127.0.0.1]/",
            "http://[::ffff:7f00:1]/",
            "http://10.0.0.1/",
            "http://192.168.1.1/",
            "http://[fd00::1]/",
            "http://１２７.0.0.1/",
        ] {
            let refused = Allowed::default().check(url).unwrap_err();
            assert!(refused.contains("not a public address"), "{url}: {refused}");
            assert!(OPEN.check(url).is_ok(), "{url}");
        }
        for url in [
            "http://169.254.169.254/latest/meta-data",
            "http://0.0.0.0/",
            "http://[::]/",
            "http://[fe80::1]/",
            "http://[64:ff9b::7f00:1]/",
            "http://[2002:7f00:1::]/",
            "ftp://example.org/",
            "file:///etc/passwd",
            "http://user:word@example.org/",
            "http://user@example.org/",
            "example.org",
            "http://",
            "",
        ] {
            assert!(OPEN.check(url).is_err(), "{url}");
        }
        assert!(Allowed::default().check("https://example.org/mcp?key=1").is_ok());
        assert!(Allowed::default().check("http://8.8.8.8:9/").is_ok());
    }

    #[tokio::test]
    async fn a_name_of_an_inner_address_is_refused_when_given_and_when_called() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://localhost:{}/", listener.local_addr().unwrap().port());
        let strict = Allowed::default();
        let url = strict.check(&url).unwrap();
        assert!(strict.look_up(&url).await.unwrap_err().contains("not a public address"));
        let client = |allowed| Guarded::new(allowed).unwrap().client;
        let error = client(strict).get(url.clone()).send().await.unwrap_err();
        assert!(crate::error::causes(error).contains("not a public address"));
        let loopback = Allowed { loopback: true, private: false };
        assert!(loopback.look_up(&url).await.is_ok());
        let answered = client(loopback).get(url).timeout(Duration::from_millis(300)).send();
        let (_, accepted) = tokio::join!(answered, listener.accept());
        assert!(accepted.is_ok(), "it is connected to where that is allowed");
    }
}
