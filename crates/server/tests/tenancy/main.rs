//! Who may do what, over real HTTP. Each story is a function that takes a `Backend`; `on_both!` makes
//! `name::sqlite` and `name::postgres` of it.

#![expect(clippy::unwrap_used, clippy::panic, reason = "every function here is part of a test")]

/// Makes tests of functions `async fn name(backend: Backend)`.
macro_rules! on_both {
    ($($name:ident),+ $(,)?) => {
        $(mod $name {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn sqlite() {
                super::$name(testkit::server::Backend::Sqlite).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn postgres() {
                super::$name(testkit::server::Backend::Postgres).await;
            }
        })+
    };
}

mod issuer;
mod keys;
mod local;
mod matrix;
mod routes;
mod session;
mod setup;
mod tokens;
mod visibility;
mod workspaces;
mod world;
