//! Requests whose work goes on though the caller goes away: what the store was asked to begin is driven by nobody else.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use store::StoreError;
use upstream::trace;

use crate::Turns;
use crate::drive::PANICKED;
use crate::error::TurnError;

/// Work that may end in a run of this node. Shutdown waits for it as for the run.
pub(crate) struct UnderWay(Turns);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.inner.live.under_way.fetch_sub(1, Ordering::SeqCst);
        self.0.inner.live.look_whether_idle();
    }
}

impl Turns {
    /// Refused once this node is to stop.
    pub(crate) fn take_on(&self) -> Result<UnderWay, TurnError> {
        // Counted first: what is not refused is seen by whoever waits for this node to be idle.
        let under_way = self.count_in();
        if self.inner.draining.is_cancelled() { Err(TurnError::Draining) } else { Ok(under_way) }
    }

    pub(crate) fn count_in(&self) -> UnderWay {
        self.inner.live.under_way.fetch_add(1, Ordering::SeqCst);
        UnderWay(self.clone())
    }

    /// Does the work to its end, whether or not somebody still waits for the answer.
    pub(crate) fn to_its_end<T: Send + 'static>(
        &self,
        under_way: UnderWay,
        work: impl Future<Output = Result<T, TurnError>> + Send + 'static,
    ) -> ToItsEnd<T> {
        let work = AssertUnwindSafe(work).catch_unwind().map(move |done| {
            drop(under_way);
            done.unwrap_or_else(|_| Err(StoreError::Internal(PANICKED.into()).into()))
        });
        ToItsEnd { turns: self.clone(), work: Some(trace::within(trace::current(), work).boxed()) }
    }
}

/// Work that whoever asks for it does as long as it waits, which saves two changes of thread, and a task of its own
/// from then on.
pub(crate) struct ToItsEnd<T: Send + 'static> {
    turns: Turns,
    /// None once it is done.
    work: Option<BoxFuture<'static, Result<T, TurnError>>>,
}

impl<T: Send + 'static> Future for ToItsEnd<T> {
    type Output = Result<T, TurnError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(work) = &mut self.work else { return Poll::Pending };
        let done = ready!(work.as_mut().poll(context));
        self.work = None;
        Poll::Ready(done)
    }
}

impl<T: Send + 'static> Drop for ToItsEnd<T> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            self.turns.inner.tasks.spawn(work.map(drop));
        }
    }
}
