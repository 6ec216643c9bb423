//! What can go wrong in a store, named for what the caller can do about it.

use domain::conversation::PatchFault;
use domain::run::Usage;
use domain::table::TableFault;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Absent, or not the caller's to see: the two are one answer.
    #[error("not found")]
    NotFound,
    /// Something with that name or id is already there.
    #[error("{0} is taken")]
    Taken(&'static str),
    /// The change would leave something that must not be; the text says what to do first.
    #[error("{detail}")]
    Conflict { code: &'static str, detail: &'static str },
    /// The caller may see it but not do this to it.
    #[error("{0}")]
    Denied(&'static str),
    /// The files do not fit into their bag.
    #[error("the bag holds at most {limit} bytes")]
    BagFull { limit: u64 },
    /// The run's sandbox sent files back that are not in its log yet: they go there before it ends.
    #[error("the run has files that are not in its log")]
    FilesWaiting,
    /// The run has used more than its end says, through another node. Nothing was written.
    #[error("the run has used more than its end says")]
    MoreUsed(Usage),
    /// An attachment that is not a visible file of the conversation, by its place in the list.
    #[error("attachment {0} is not a file of this conversation")]
    NoAttachment(usize),
    /// The run is no longer this writer's: it was settled or taken over. Nothing was written.
    #[error("the run is held by another writer")]
    Lost,
    /// The run is this writer's, but its log ends with this entry, before what was to follow: the database crashed and lost
    /// what came after. Nothing was written.
    #[error("the log of the run ends with entry {last_entry}: the database has lost what came after")]
    Behind { last_entry: i64 },
    /// A request that names something which does not fit, such as a message that is not in the thread.
    #[error("{detail}")]
    Invalid { input: &'static str, detail: &'static str },
    /// A table's change was refused.
    #[error("the table cannot be changed: {0}")]
    BadTable(TableFault),
    /// A conversation's change was refused.
    #[error("the change was refused: {0:?}")]
    Refused(PatchFault),
    /// The database cannot take work right now: full disk, no connection, shutting down.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// The schema was made by a newer Threadkeep.
    #[error(
        "the database has schema version {found}, this Threadkeep knows up to {known}: use a newer binary"
    )]
    NewerSchema { found: i32, known: i32 },
    #[error("store: {0}")]
    Internal(String),
}

impl StoreError {
    /// Whether the same work may succeed at another time.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }
}

pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// Whether `Unavailable` gives this reason because no space is left: SQLite's words, PostgreSQL's code.
pub fn is_full(reason: &str) -> bool {
    reason.contains("database or disk is full") || reason.contains("(53100)")
}
