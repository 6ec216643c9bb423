//! Bytes on their way out to somebody who may take long: asked again and again whether they may still go. In: the bytes,
//! and how to ask. Out: the same bytes, broken off soon after they may not.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use store::blobs::BlobError;

/// How long bytes go out unasked, to a slow reader and to a fast one.
const LONGEST: Duration = Duration::from_secs(1);
const MOST: usize = 8 * 1024 * 1024;

type Out = BoxStream<'static, Result<Bytes, BlobError>>;

/// Stops with an error, so that no part looks whole.
pub fn watched<Asked>(bytes: Out, may_go: impl Fn() -> Asked + Send + 'static) -> Out
where
    Asked: Future<Output = bool> + Send,
{
    watched_for(bytes, LONGEST, may_go)
}

fn watched_for<Asked>(bytes: Out, longest: Duration, may_go: impl Fn() -> Asked + Send + 'static) -> Out
where
    Asked: Future<Output = bool> + Send,
{
    let start = (bytes, may_go, Instant::now(), 0);
    stream::try_unfold(start, move |(mut bytes, may_go, mut asked_at, mut sent)| async move {
        let Some(chunk) = bytes.next().await.transpose()? else { return Ok(None) };
        if sent >= MOST || asked_at.elapsed() >= longest {
            if !may_go().await {
                return Err(BlobError::Missing);
            }
            (asked_at, sent) = (Instant::now(), 0);
        }
        sent += chunk.len();
        Ok(Some((chunk, (bytes, may_go, asked_at, sent))))
    })
    .boxed()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// How many of thirty megabytes come when the answer is no from the `last`th time on, and how often it was asked.
    async fn came(longest: Duration, last: usize) -> (usize, usize) {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let bytes = stream::iter((0..30).map(|_| Ok(Bytes::from(vec![0; 1 << 20])))).boxed();
        let may_go = move || {
            let now = counted.fetch_add(1, Ordering::Relaxed) + 1;
            async move { now < last }
        };
        let out: Vec<_> = watched_for(bytes, longest, may_go).collect().await;
        let came = out.iter().take_while(|chunk| chunk.is_ok()).count();
        // A failure is the end, and the only one that is not whole.
        assert_eq!(out.len(), if came == 30 { 30 } else { came + 1 });
        (came, asked.load(Ordering::Relaxed))
    }

    #[tokio::test]
    async fn bytes_break_off_when_they_may_not_go_any_more() {
        assert_eq!(came(Duration::MAX, usize::MAX).await, (30, 3));
        assert_eq!(came(Duration::MAX, 2).await, (16, 2));
        assert_eq!(came(Duration::MAX, 1).await, (8, 1));
        assert_eq!(came(Duration::ZERO, 3).await, (2, 3));
    }
}
