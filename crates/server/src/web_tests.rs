//! Which file, in which form, for how long. What is embedded depends on whether the web app was built, so the
//! cases hold either way.

use super::*;

fn headers(pairs: &[(HeaderName, &str)]) -> HeaderMap {
    pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
}

async fn get(path: &str, pairs: &[(HeaderName, &str)]) -> Response {
    fallback(Method::GET, path.parse().unwrap(), headers(pairs)).await
}

fn header_of(response: &Response, name: HeaderName) -> String {
    response.headers().get(name).map_or(String::new(), |value| value.to_str().unwrap().to_owned())
}

const BROWSER: (HeaderName, &str) = (header::ACCEPT, "text/html,application/xhtml+xml,*/*;q=0.8");

#[tokio::test]
async fn an_address_of_the_app_is_its_page() {
    for path in ["/c/01a1ded4-0b72-71da-b177-5da4caf99e0f", "/settings/keys", "/nothing"] {
        let page = get(path, &[BROWSER]).await;
        assert_eq!(page.status(), StatusCode::OK, "{path}");
        assert_eq!(header_of(&page, header::CONTENT_TYPE), "text/html; charset=utf-8", "{path}");
        assert_eq!(header_of(&page, header::CACHE_CONTROL), "no-cache", "{path}");
        let policy = header_of(&page, header::CONTENT_SECURITY_POLICY);
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    }
}

#[tokio::test]
async fn programs_and_the_api_get_no_page() {
    for (path, accept) in [
        ("/nothing", "*/*"),
        ("/c/x", "application/json"),
        ("/v1/nothing", "text/html"),
        ("/v1", "text/html"),
        ("/assets/gone-12345678.js", "text/html"),
        ("/index.html", "*/*"),
        ("/index.html.br", "*/*"),
        ("/../Cargo.toml", "*/*"),
    ] {
        let answer = get(path, &[(header::ACCEPT, accept)]).await;
        assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{path}");
        assert_eq!(header_of(&answer, header::CONTENT_TYPE), "application/problem+json", "{path}");
    }
    let posted = fallback(Method::POST, "/c/x".parse().unwrap(), headers(&[BROWSER])).await;
    assert_eq!(posted.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn every_file_is_sent_as_it_was_compressed_and_kept_by_its_name() {
    for path in Assets::iter().filter(|path| {
        !path.ends_with(".br") && !path.ends_with(".gz") && ![INDEX, ".gitkeep"].contains(&path.as_ref())
    }) {
        let address = format!("/{path}");
        for (accepted, encoding, ending) in
            [("gzip, deflate, br, zstd", "br", ".br"), ("gzip;q=1.0, br;q=0", "gzip", ".gz"), ("", "", "")]
        {
            let answer = get(&address, &[(header::ACCEPT_ENCODING, accepted)]).await;
            assert_eq!(answer.status(), StatusCode::OK, "{path}");
            let packed = Assets::get(&format!("{path}{ending}")).is_some();
            let expected = if packed { encoding } else { "" };
            assert_eq!(header_of(&answer, header::CONTENT_ENCODING), expected, "{path} for {accepted}");
            let unnamed = header_of(&answer, header::CONTENT_TYPE) == "application/octet-stream";
            assert_eq!(unnamed, path.ends_with(".bcmap") || path.ends_with(".pfb"), "{path}");
            let kept = header_of(&answer, header::CACHE_CONTROL);
            assert_eq!(kept.contains("immutable"), path.starts_with(HASHED), "{path}: {kept}");
            let tag = header_of(&answer, header::ETAG);
            let sent = [(header::ACCEPT_ENCODING, accepted), (header::IF_NONE_MATCH, tag.as_str())];
            assert_eq!(get(&address, &sent).await.status(), StatusCode::NOT_MODIFIED, "{path}");
        }
    }
}

#[test]
fn an_encoding_is_taken_when_it_is_named() {
    for (sent, taken) in [
        ("br", true),
        ("gzip, BR", true),
        ("br;q=0.5", true),
        ("br;q=0", false),
        ("gzip", false),
        ("", false),
    ] {
        assert_eq!(takes(&headers(&[(header::ACCEPT_ENCODING, sent)]), "br"), taken, "{sent}");
    }
}
