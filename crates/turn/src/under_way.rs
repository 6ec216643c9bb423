//! Requests whose work goes on though the caller goes away: what the store was asked to begin is driven by nobody else.

use std::sync::atomic::Ordering;

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
    pub(crate) async fn to_its_end<T: Send + 'static>(
        &self,
        under_way: UnderWay,
        work: impl Future<Output = Result<T, TurnError>> + Send + 'static,
    ) -> Result<T, TurnError> {
        let work = async move {
            let done = work.await;
            drop(under_way);
            done
        };
        let done = self.inner.tasks.spawn(trace::within(trace::current(), work)).await;
        done.unwrap_or_else(|_| Err(StoreError::Internal(PANICKED.into()).into()))
    }
}
