//! The verbs of a turn, held against both backends. Each test is a function that takes a `TestStore`;
//! `on_both!` makes `name::sqlite` and `name::postgres` of it.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

/// Makes tests of functions `async fn name(store: TestStore)`.
macro_rules! on_both {
    ($($name:ident),+ $(,)?) => {
        $(mod $name {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn sqlite() {
                super::$name(crate::setup::sqlite()).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn postgres() {
                if let Some(store) = crate::setup::postgres().await {
                    super::$name(store).await;
                }
            }
        })+
    };
}

mod approvals;
mod branches;
mod leases;
mod life;
mod log;
mod news;
mod plans;
mod play;
mod queue;
mod races;
#[expect(dead_code, reason = "shared with tests/store, which uses the rest")]
#[path = "../store/setup.rs"]
mod setup;
mod usage;
