//! A request that is answered before its body was read to the end, as a refused one is: the rest is read away, within
//! bounds. Who is cut off while writing may never read the answer.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::header;
use axum::middleware::Next;
use axum::response::Response;
use http_body_util::BodyExt as _;
use hyper::body::{Frame, SizeHint};

use crate::state::AppState;

const BYTES: usize = 64 * 1024 * 1024;
const TIME: Duration = Duration::from_secs(10);

/// The answer goes out at once; the reading goes on beside it.
pub async fn read_away(State(app): State<AppState>, request: Request, next: Next) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    // Who asks before sending, and is refused before anything was read, sends nothing.
    let comes = !request.headers().contains_key(header::EXPECT);
    let (head, body) = request.into_parts();
    let mut shared = Shared(Arc::new(Mutex::new(Left { body, comes })));
    let response = next.run(Request::from_parts(head, Body::new(shared.clone()))).await;
    if shared.comes() {
        app.tasks.spawn(async move {
            let reading = async {
                let mut read = 0;
                while let Some(Ok(frame)) = shared.frame().await
                    && read <= BYTES
                {
                    read += frame.data_ref().map_or(0, Bytes::len);
                }
            };
            let _ = tokio::time::timeout(TIME, reading).await;
        });
    }
    response
}

/// A body that is left when its reader is gone.
#[derive(Clone)]
struct Shared(Arc<Mutex<Left>>);

struct Left {
    body: Body,
    /// Its sender is sending it.
    comes: bool,
}

impl Shared {
    fn left(&self) -> MutexGuard<'_, Left> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn comes(&self) -> bool {
        let left = self.left();
        left.comes && !left.body.is_end_stream()
    }
}

impl HttpBody for Shared {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut left = self.left();
        let polled = Pin::new(&mut left.body).poll_frame(cx);
        left.comes = !matches!(polled, Poll::Ready(None | Some(Err(_))));
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.left().body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.left().body.size_hint()
    }
}
