//! What nodes tell each other, on PostgreSQL.

use futures_util::StreamExt as _;
use store::turns::News;
use uuid::Uuid;

use crate::setup::{Behind, open_postgres, superuser};

#[tokio::test]
async fn the_embedded_store_has_nobody_to_tell() {
    let store = crate::setup::sqlite();
    store.system_announce(&[News::Moved(Uuid::nil())]).await.unwrap();
    assert!(store.system_news().is_none());
}

/// News until this one is heard. A listener that is only now connecting misses what was said before, so it is
/// said again.
async fn hear(
    said_by: &dyn store::Store,
    heard: &mut futures_util::stream::BoxStream<'static, News>,
    news: News,
) {
    loop {
        said_by.system_announce(&[news]).await.unwrap();
        let wait = std::time::Duration::from_millis(200);
        if tokio::time::timeout(wait, async { while heard.next().await != Some(news) {} }).await.is_ok() {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_node_hears_what_any_node_announces_and_reconnects_by_itself() {
    let Some(store) = crate::setup::postgres().await else { return };
    let Behind::Postgres(database) = &store.behind else { return };
    let other = open_postgres(database, true).await;
    let (mut here, mut there) = (store.system_news().unwrap(), other.system_news().unwrap());
    let ready = News::Moved(Uuid::from_u128(1));
    hear(&*store.store, &mut here, ready).await;
    hear(&*store.store, &mut there, ready).await;
    // More than one payload holds, in order, of every kind.
    let news: Vec<News> = (2..1002_u128)
        .map(|n| match n % 3 {
            0 => News::Moved(Uuid::from_u128(n)),
            1 => News::Following(Uuid::from_u128(n)),
            _ => News::Cancelled(Uuid::from_u128(n)),
        })
        .collect();
    store.system_announce(&news).await.unwrap();
    store.system_announce(&[]).await.unwrap();
    for heard in [&mut here, &mut there] {
        let all: Vec<News> =
            heard.filter(|news| std::future::ready(*news != ready)).take(1000).collect().await;
        assert_eq!(all, news);
    }
    let root = superuser(database).await;
    let text = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                WHERE datname = current_database() AND query LIKE 'LISTEN%'";
    assert_eq!(root.query_one(text, &[]).await.unwrap().get::<_, i64>(0), 2);
    hear(&*other, &mut here, News::Following(Uuid::from_u128(2))).await;
    hear(&*other, &mut there, News::Following(Uuid::from_u128(3))).await;
}
