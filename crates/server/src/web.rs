//! The web app: the files of `web/dist`, embedded in a release build (a debug build reads them from disk) and
//! sent as they were compressed when they were built. Pages may load from this server alone, and nothing inline.

use std::borrow::Cow;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use rust_embed::{EmbeddedFile, RustEmbed};

use crate::problem::Problem;

#[derive(RustEmbed)]
#[folder = "../../web/dist"]
#[allow_missing = true]
struct Assets;

const INDEX: &str = "index.html";

/// Names below it hold a hash of their content.
const HASHED: &str = "assets/";

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self' blob:; \
     media-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
     require-trusted-types-for 'script'; trusted-types threadkeep-pdf";

const NOT_BUILT: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Threadkeep</title>\
     <meta name=\"viewport\" content=\"width=device-width\"><h1>Threadkeep is running</h1>\
     <p>This server was built without the web app. Run <code>make web</code> and build it again, or use \
     <a href=\"/openapi.json\">the API</a>.</p></html>";

/// The app's one page.
pub fn index(headers: &HeaderMap) -> Response {
    let page = find(INDEX, headers).unwrap_or_else(|| page(Body::from(NOT_BUILT), INDEX));
    secured(page)
}

/// Whatever no route has: a file of the app, its page for an address that the app made, else nothing.
pub async fn fallback(method: Method, uri: Uri, headers: HeaderMap) -> Response {
    let path = uri.path().trim_start_matches('/');
    if ![Method::GET, Method::HEAD].contains(&method) || path == "v1" || path.starts_with("v1/") {
        return Problem::not_found().into_response();
    }
    // Its compressed twins are sent in its place, not by themselves.
    let own = path != INDEX && !path.ends_with(".br") && !path.ends_with(".gz");
    match find(path, &headers).filter(|_| own) {
        Some(file) => file,
        None if !path.starts_with(HASHED) && wants_page(&headers) => index(&headers),
        None => Problem::not_found().into_response(),
    }
}

/// A person's browser, not a program: it names HTML, and does not mean it by `*/*`.
fn wants_page(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|kind| kind.trim().starts_with("text/html"))
}

/// The file, in the smallest form that the client takes.
fn find(path: &str, headers: &HeaderMap) -> Option<Response> {
    let plain = Assets::get(path)?;
    let form = [("br", ".br"), ("gzip", ".gz")].into_iter().find_map(|(encoding, ending)| {
        let file = takes(headers, encoding).then(|| Assets::get(&format!("{path}{ending}")))??;
        Some((encoding, file))
    });
    let (encoding, file) = form.map_or((None, plain), |(encoding, file)| (Some(encoding), file));
    let tag = tag(&file);
    if headers.get_all(header::IF_NONE_MATCH).iter().any(|sent| is_among(sent, &tag)) {
        let known = ([(header::ETAG, tag), (header::CACHE_CONTROL, keep(path).to_owned())], ());
        return Some((StatusCode::NOT_MODIFIED, known).into_response());
    }
    let body = match file.data {
        Cow::Borrowed(bytes) => Body::from(bytes),
        Cow::Owned(bytes) => Body::from(bytes),
    };
    let mut response = page(body, path);
    let answer = response.headers_mut();
    answer.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        answer.insert(header::ETAG, tag);
    }
    if let Some(encoding) = encoding {
        answer.insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoding));
    }
    Some(response)
}

fn page(body: Body, path: &str) -> Response {
    ([(header::CONTENT_TYPE, kind(path)), (header::CACHE_CONTROL, keep(path))], body).into_response()
}

fn secured(mut response: Response) -> Response {
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// For how long a browser need not ask again.
fn keep(path: &str) -> &'static str {
    if path.starts_with(HASHED) { "public, max-age=31536000, immutable" } else { "no-cache" }
}

fn kind(path: &str) -> &'static str {
    let name = path.rsplit('/').next().unwrap_or(path);
    match name.rsplit_once('.').map_or("txt", |(_, ending)| ending) {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "woff2" => "font/woff2",
        "ttf" => "font/ttf",
        // Of the PDF reader: fonts of another age, and tables of characters.
        "pfb" | "bcmap" => "application/octet-stream",
        "json" => "application/json",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

/// The compressed twin is another file with another hash, so the tag names the form as well.
fn tag(file: &EmbeddedFile) -> String {
    let hash = file.metadata.sha256_hash();
    let short: String = hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("\"{short}\"")
}

fn is_among(sent: &HeaderValue, tag: &str) -> bool {
    let known = |one: &str| one == "*" || one.trim_start_matches("W/") == tag;
    sent.to_str().is_ok_and(|tags| tags.split(',').any(|one| known(one.trim())))
}

/// Is the encoding named, and not with a weight of zero?
fn takes(headers: &HeaderMap, encoding: &str) -> bool {
    let sent = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    sent.flat_map(|value| value.split(',')).any(|one| {
        let (name, weight) = one.split_once(';').unwrap_or((one, ""));
        let refused = weight.trim().strip_prefix("q=").is_some_and(|q| q.parse() == Ok(0.0));
        name.trim().eq_ignore_ascii_case(encoding) && !refused
    })
}

#[cfg(test)]
#[path = "web_tests.rs"]
mod tests;
