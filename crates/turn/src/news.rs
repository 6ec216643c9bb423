//! News between nodes: a wake-up says that a run has moved, never what happened. The log is the truth; a lost
//! wake-up costs a reader one poll. Only runs that some other node follows are told of, many in one message.

use std::time::Duration;

use futures_util::StreamExt as _;
use store::turns::News;
use tokio::sync::watch;
use uuid::Uuid;

use crate::Turns;

/// How long movements gather before they are told.
const GATHER: Duration = Duration::from_millis(5);
/// A node says again which runs it has readers of; interest that is not renewed ends.
const REMIND: Duration = Duration::from_secs(5);
/// Longer than it takes to notice that no news are heard any more, and to hear them again.
pub(crate) const INTEREST: Duration = Duration::from_secs(45);
/// By when this node has heard of a reader that another one has.
pub(crate) const HEARING: Duration = Duration::from_millis(100);

impl Turns {
    /// Listens to the other nodes and tells them what they follow, where the store has a way.
    pub(crate) fn exchange_news(&self) {
        let Some(mut heard) = self.inner.store.system_news() else { return };
        let turns = self.clone();
        self.inner.tasks.spawn(async move {
            loop {
                tokio::select! {
                    () = turns.ended() => return,
                    news = heard.next() => match news {
                        Some(news) => turns.hear(&news),
                        None => return,
                    },
                }
            }
        });
        let turns = self.clone();
        self.inner.tasks.spawn(async move {
            // In the readers' place: one that is slow, or does not read at all for a while, still counts.
            let mut remind = tokio::time::interval(REMIND);
            loop {
                let followed = tokio::select! {
                    () = turns.ended() => return,
                    () = turns.inner.live.moved() => Vec::new(),
                    _ = remind.tick() => turns.inner.live.followed(),
                };
                tokio::time::sleep(GATHER).await;
                let moved = turns.inner.live.take_moved().into_iter().map(News::Moved);
                let news: Vec<News> = moved.chain(followed.into_iter().map(News::Following)).collect();
                turns.tell(&news).await;
            }
        });
    }

    /// In this workspace somebody may see less than before: whoever streams there looks again, on every node.
    pub async fn note_rights(&self, workspace: Uuid) {
        self.inner.live.rights.note(workspace);
        self.tell(&[News::Rights(workspace)]).await;
    }

    /// Changes when rights may have changed in this workspace.
    pub fn rights(&self, workspace: Uuid) -> watch::Receiver<()> {
        self.inner.live.rights.of(workspace).subscribe()
    }

    fn hear(&self, news: &News) {
        match *news {
            News::Moved(run) => self.inner.live.wake(run),
            News::Following(run) => self.inner.live.note_interest(run),
            News::Left(run) => {
                if self.inner.live.note_departure(run) {
                    let turns = self.clone();
                    self.inner.tasks.spawn(async move { turns.ask_for_news(run).await });
                }
            }
            News::Cancelled(run) => {
                self.inner.live.cancel(run);
            }
            News::Results(run) => {
                self.inner.live.note_results(run);
            }
            News::Rights(workspace) => self.inner.live.rights.note(workspace),
            News::Missed => {
                let turns = self.clone();
                self.inner.tasks.spawn(async move { turns.mend_logs().await });
            }
        }
    }

    /// A node that cannot be told reads the log on its timer.
    pub(crate) async fn tell(&self, news: &[News]) {
        if let Err(error) = self.inner.store.system_announce(news).await {
            tracing::debug!(%error, "news could not be told");
        }
    }

    /// This node drives a run that it did not before: those who have readers of it say so again.
    pub(crate) async fn ask_who_follows(&self, run: Uuid) {
        self.tell(&[News::Left(run)]).await;
    }

    /// Asks the node that drives the run to tell of its movements.
    pub(crate) async fn ask_for_news(&self, run: Uuid) {
        self.tell(&[News::Following(run)]).await;
    }
}
