//! The contract of `Blobs`, held against a folder and two real S3 servers. Each test is a function that takes
//! a `TestBlobs`; `on_each!` makes `name::folder`, `name::s3rver` and `name::moto` of it.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

/// Makes tests of functions `async fn name(blobs: TestBlobs)`.
macro_rules! on_each {
    ($($name:ident),+ $(,)?) => {
        $(mod $name {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn folder() {
                super::$name(crate::setup::folder().await).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn s3rver() {
                if let Some(blobs) = crate::setup::bucket(testkit::s3::Kind::S3rver).await {
                    super::$name(blobs).await;
                }
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn moto() {
                if let Some(blobs) = crate::setup::bucket(testkit::s3::Kind::Moto).await {
                    super::$name(blobs).await;
                }
            }
        })+
    };
}

mod bytes;
mod child;
mod folder;
mod names;
mod s3;
mod setup;
