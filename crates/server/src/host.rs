//! Local mode's door: a page of another site, or a name that was made to point here, gets nothing.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::extract::caller::own_origins;
use crate::jsonapi::error::Source;
use crate::problem::Problem;
use crate::state::{App, AppState};

pub async fn guard(State(app): State<AppState>, request: Request, next: Next) -> Response {
    if app.local.is_some() {
        // Over HTTP/2 the host is in the request line.
        let authority = request.uri().authority().map(|authority| authority.as_str().to_owned());
        if let Err(problem) = check(&app, authority.as_deref(), request.headers()) {
            return problem.into_response();
        }
    }
    next.run(request).await
}

fn check(app: &App, authority: Option<&str>, headers: &HeaderMap) -> Result<(), Problem> {
    let refused = |name: &str, detail: &str| {
        Problem::new(StatusCode::FORBIDDEN, "forbidden_host", "Not for this host", detail)
            .at(Source::header(name))
    };
    let sent = headers.get_all(header::HOST).iter().map(|host| host.to_str().unwrap_or(""));
    let hosts: Vec<&str> = sent.chain(authority).collect();
    if hosts.is_empty() || !hosts.iter().all(|host| is_own_host(app, host)) {
        return Err(refused(
            "Host",
            "In local mode the server answers to 127.0.0.1, localhost and [::1] only.",
        ));
    }
    for origin in headers.get_all(header::ORIGIN) {
        let origin = origin.to_str().unwrap_or("");
        if !own_origins(app, headers).iter().any(|own| own == origin) {
            return Err(refused("Origin", "In local mode only this server's own pages may call it."));
        }
    }
    Ok(())
}

fn is_own_host(app: &App, host: &str) -> bool {
    is_loopback(host)
        || app.public_url.split_once("://").is_some_and(|(_, rest)| rest.split('/').next() == Some(host))
}

/// Any port: whoever forwards one to here is on this machine.
fn is_loopback(host: &str) -> bool {
    let (name, port) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((inside, "")) => (inside, None),
        Some((inside, after)) if after.starts_with(':') => (inside, Some(&after[1..])),
        Some(_) => return false,
        None => host.rsplit_once(':').map_or((host, None), |(name, port)| (name, Some(port))),
    };
    if port.is_some_and(|port| port.parse::<u16>().is_err()) {
        return false;
    }
    name.eq_ignore_ascii_case("localhost")
        || matches!(name.parse::<std::net::IpAddr>(), Ok(ip) if ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::is_loopback;

    #[test]
    fn only_loopback_names_are_local() {
        for host in ["127.0.0.1", "127.0.0.1:8080", "localhost:1", "LOCALHOST", "[::1]:8080", "[::1]"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example:8080",
            "evil.example:127.0.0.1",
            "[::1].evil.example",
            "10.0.0.1",
            "0.0.0.0",
            "",
            "127.0.0.1@evil.example",
            "localhost:80@evil.example",
            "localhost:80.evil.example",
            "[::1]:80@evil.example",
            "localhost:",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
