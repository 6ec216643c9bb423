//! Uploads that are being taken back: for a moment their names are still reserved and their bytes still there. The
//! answer to such a request comes after that, and so does whatever is stored next in the same bag.

use std::cell::RefCell;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use domain::file::Bag;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, join_all};
use tokio::task::{AbortHandle, JoinHandle};
use uuid::Uuid;

/// Nobody waits longer for a storage that is slow; the sweep finds what is left.
const PATIENCE: Duration = Duration::from_secs(5);

type Gone = Shared<BoxFuture<'static, ()>>;

tokio::task_local! {
    static OF_THIS_REQUEST: RefCell<Vec<Gone>>;
}

/// Those under way on this node.
#[derive(Default)]
pub struct TakenBack(Mutex<Vec<Leaving>>);

struct Leaving {
    bag: (Uuid, Bag),
    task: AbortHandle,
    gone: Gone,
}

impl TakenBack {
    pub(super) fn note(&self, bag: (Uuid, Bag), task: JoinHandle<()>) {
        let handle = task.abort_handle();
        let gone = task.map(|_| ()).boxed().shared();
        let mut leaving = self.leaving();
        leaving.retain(|other| !other.task.is_finished());
        leaving.push(Leaving { bag, task: handle, gone: gone.clone() });
        // A request that went away has nobody who waits.
        let _ = OF_THIS_REQUEST.try_with(|own| own.borrow_mut().push(gone));
    }

    /// Until what is being taken back from the bag has left it.
    pub(super) async fn left(&self, bag: (Uuid, Bag)) {
        let leaving: Vec<Gone> =
            self.leaving().iter().filter(|other| other.bag == bag).map(|other| other.gone.clone()).collect();
        all(leaving).await;
    }

    fn leaving(&self) -> MutexGuard<'_, Vec<Leaving>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn all(gone: Vec<Gone>) {
    if !gone.is_empty() {
        let _ = tokio::time::timeout(PATIENCE, join_all(gone)).await;
    }
}

/// Answers a request when nothing of what it took back is left.
pub async fn before_the_answer(request: Request, next: Next) -> Response {
    let answered = async {
        let response = next.run(request).await;
        all(OF_THIS_REQUEST.with(RefCell::take)).await;
        response
    };
    OF_THIS_REQUEST.scope(RefCell::default(), answered).await
}
