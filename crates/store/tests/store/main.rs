//! The contract of `Store`, held against both backends. Each test is a function that takes a
//! `TestStore`; `on_both!` makes `name::sqlite` and `name::postgres` of it.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

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

mod conversations;
mod knowledge;
mod lists;
mod messages;
mod migrations;
mod model;
mod outages;
mod rls;
mod search;
mod setup;
mod workspaces;
