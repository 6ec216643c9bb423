//! When a provider is called again: for connections, 429 and 5xx, before the first word, and no oftener than allowed.

use std::time::{Duration, Instant};

use domain::model::{Finish, ModelFaultKind};
use testkit::sandbox::{Action, ScriptedSandbox};
use upstream::llm::ModelLimits;

use crate::vendor::{KEY, VENDORS, WIDE, body, head, listen, refusal};

const TWICE: ModelLimits = ModelLimits { retries: 2, ..WIDE };

#[tokio::test]
async fn what_may_pass_is_tried_again_and_then_told() {
    for vendor in VENDORS {
        let hello = vendor.hello();
        for first in [
            refusal("429 Too Many Requests", vec![("retry-after", "0".into())], "{}"),
            refusal("500 Internal Server Error", vec![], "oops"),
            refusal("529 Overloaded", vec![], "{}"),
            vec![Action::Reset],
            vec![head(), Action::Reset],
            body(""),
            body(&vendor.error("overloaded_error", "busy")),
        ] {
            let server = ScriptedSandbox::start(first.clone()).await.unwrap();
            server.then(first.clone());
            server.then(body(&hello));
            let (got, _) = listen(&*vendor.model(&server.url(), TWICE)).await;
            assert_eq!((got.text.as_str(), got.end), ("Hello wörld", Some(Ok(Finish::Stop))), "{vendor:?}");
            assert_eq!(server.requests().len(), 3);
            // No more than that.
            let server = ScriptedSandbox::start(first).await.unwrap();
            let (got, _) = listen(&*vendor.model(&server.url(), TWICE)).await;
            assert!(got.end.unwrap().is_err());
            assert_eq!(server.requests().len(), 3);
        }
    }
}

#[tokio::test]
async fn nothing_is_tried_again_after_the_first_word_nor_what_cannot_pass() {
    for vendor in VENDORS {
        let spoken = vendor.spoken();
        for script in [
            body(&spoken),
            body(&format!("{spoken}{}", vendor.error("overloaded_error", "busy"))),
            refusal("400 Bad Request", vec![], "{}"),
            refusal("401 Unauthorized", vec![], "{}"),
            refusal("429 Too Many Requests", vec![("retry-after", "3600".into())], "{}"),
            body(&vendor.error("invalid_request_error", "no")),
        ] {
            let server = ScriptedSandbox::start(script).await.unwrap();
            let (got, _) = listen(&*vendor.model(&server.url(), TWICE)).await;
            assert!(got.end.unwrap().is_err());
            assert_eq!(server.requests().len(), 1, "{vendor:?}");
        }
    }
}

#[tokio::test]
async fn the_wait_is_the_one_that_the_provider_asks_for() {
    for vendor in VENDORS {
        let busy = refusal("429 Too Many Requests", vec![("retry-after", "1".into())], "{}");
        let server = ScriptedSandbox::start(busy).await.unwrap();
        server.then(body(&vendor.hello()));
        let before = Instant::now();
        let (got, _) = listen(&*vendor.model(&server.url(), TWICE)).await;
        assert!(got.end.unwrap().is_ok());
        assert!(before.elapsed() >= Duration::from_secs(1), "{:?}", before.elapsed());
    }
}

#[tokio::test]
async fn nobody_there_is_told_without_the_address_or_the_key() {
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for vendor in VENDORS {
        let (got, _) = listen(&*vendor.model(&format!("http://user:{KEY}@{gone}"), TWICE)).await;
        let fault = got.end.unwrap().unwrap_err();
        assert_eq!(fault.kind, ModelFaultKind::Unreachable);
        assert!(fault.message.contains("could not be reached") && !fault.message.contains(&gone.to_string()));
    }
}

#[tokio::test]
async fn a_page_is_no_stream_and_is_not_asked_for_again() {
    for vendor in VENDORS {
        let html = vec![("content-type", "text/html".to_owned())];
        let page = refusal("200 OK", html, "<html>Sign in</html>");
        let server = ScriptedSandbox::start(page).await.unwrap();
        server.then(body(&vendor.hello()));
        let limits = ModelLimits { retries: 2, ..WIDE };
        let (got, _) = listen(&*vendor.model(&server.url(), limits)).await;
        let fault = got.end.unwrap().unwrap_err();
        assert!(fault.message.contains("not a stream of events"), "{fault}");
        assert_eq!(server.requests().len(), 1);
    }
}
