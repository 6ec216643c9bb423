//! The conversations that are measured: the same for every database, and alike at every size. What a
//! row looks for is there equally often whatever the size, unless the row says otherwise.

use domain::conversation::{ConversationPatch, Mode, NewConversation, Source, Visibility};
use domain::message::{MessageRole, NewMessage};
use domain::scope::{Role, Scope};
use domain::time::from_ms;
use jiff::Timestamp;
use uuid::Uuid;

/// When the first conversation was made; each of the others a minute after the one before.
const START_MS: i64 = 1_700_000_000_000;
const STEP_MS: i64 = 60_000;

pub const WORKSPACE: Uuid = Uuid::from_u128(0x018b_cfe5_6800_7000_8000_0000_0000_0001);
/// Another workspace, with a tenth as many conversations: all shared, and all of one user.
pub const HOSTED: Uuid = Uuid::from_u128(0x018b_cfe5_6800_7000_8000_0000_0000_0002);
pub const HOST: &str = "host";
pub const ORG: &str = "bench";
pub const ADMIN: &str = "admin";
/// Owns few conversations among many private ones of others.
pub const MEMBER: &str = "member";

/// Found in this many conversations at every size.
pub const RARE: &str = "kumquat";
pub const RARE_HITS: usize = 20;
/// In every message.
pub const COMMON: &str = "report";
/// How many conversations are the member's own, and how many others are shared.
const OWN: usize = 20;
const SHARED: usize = 10;
/// How many conversations have no source, and so match every one.
const SOURCELESS: usize = 10;
/// How many conversations are long, and how many messages those have.
const LONG: usize = 40;
pub const LONG_MESSAGES: usize = 60;
const OTHERS: usize = 100;
const VOCABULARY: u64 = 4_000;

/// Numbers that look random and are the same in every run (splitmix64).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    fn id(&mut self, at_ms: i64) -> Uuid {
        let mut random = [0; 10];
        random[..8].copy_from_slice(&self.next().to_be_bytes());
        uuid::Builder::from_unix_timestamp_millis(at_ms.unsigned_abs(), &random).into_uuid()
    }

    /// A word of the vocabulary; low numbers come far more often than high ones, as in a language.
    fn word(&mut self) -> String {
        let ceiling = self.below(VOCABULARY) + 1;
        let mut number = self.below(ceiling);
        let mut word = String::new();
        for _ in 0..3 {
            word.push(char::from(b"bdfghklmnprstvwz"[(number % 16) as usize]));
            word.push(char::from(b"aeiou"[(number / 16 % 5) as usize]));
            number = number / 7 + 3;
        }
        word
    }

    fn text(&mut self, words: usize) -> String {
        let words: Vec<String> = (0..words).map(|_| self.word()).collect();
        words.join(" ")
    }
}

pub fn scope(user: &str, role: Role) -> Scope {
    let administers = role == Role::Admin;
    Scope { workspace: WORKSPACE, org: ORG.into(), user: user.into(), role, key: None, administers }
}

/// One conversation before it is stored.
pub struct Draft {
    pub scope: Scope,
    pub id: Uuid,
    pub new: NewConversation,
    pub created_at: Timestamp,
    pub messages: Vec<NewMessage>,
    /// When the messages were added.
    pub updated_at: Timestamp,
}

/// Whether item `index` of `size` is one of `count` that are spread evenly over all of them.
fn chosen(index: usize, size: usize, count: usize, phase: usize) -> bool {
    let step = size / count;
    index % step == phase % step && index / step < count
}

fn ids(size: usize) -> impl Iterator<Item = (usize, Uuid, Random)> {
    (0..size).map(|index| {
        let mut random = Random::new(index as u64 + 1);
        let id = random.id(START_MS + index as i64 * STEP_MS);
        (index, id, random)
    })
}

/// The ids of the conversations that have `LONG_MESSAGES` messages.
pub fn long(size: usize) -> Vec<Uuid> {
    ids(size).filter(|(index, ..)| chosen(*index, size, LONG, 3)).map(|(_, id, _)| id).collect()
}

/// The ids of all conversations.
pub fn all(size: usize) -> Vec<Uuid> {
    ids(size).map(|(_, id, _)| id).collect()
}

pub fn drafts(size: usize) -> impl Iterator<Item = Draft> {
    let own = ids(size).map(move |(index, id, random)| draft(index, size, id, random));
    own.chain(ids(size / 10).map(move |(index, id, random)| hosted(draft(index, size, id, random))))
}

fn hosted(mut draft: Draft) -> Draft {
    draft.scope = Scope { workspace: HOSTED, ..scope(HOST, Role::Member) };
    draft.new.patch.visibility = Some(Visibility::Workspace);
    draft.messages.truncate(2);
    draft
}

fn draft(index: usize, size: usize, id: Uuid, mut random: Random) -> Draft {
    let created_ms = START_MS + index as i64 * STEP_MS;
    // One in five was taken up again later.
    let later = if index.is_multiple_of(5) { random.below((size - index) as u64) as i64 } else { 0 };
    let updated_ms = created_ms + later * STEP_MS + 1_000;
    let own = chosen(index, size, OWN, 1);
    let owner = if own { MEMBER.to_owned() } else { format!("user-{:02}", random.below(OTHERS as u64)) };
    let shared = chosen(index, size, SHARED, 2);
    let source = match random.below(5) {
        _ if chosen(index, size, SOURCELESS, 5) => None,
        0 => Some(Source::Extension),
        _ => Some(Source::Web),
    };
    let patch = ConversationPatch {
        mode: Some(Some(if index.is_multiple_of(2) { Mode::Ask } else { Mode::Agent })),
        page_path: Some(Some("/reports/quarterly".into())),
        visibility: Some(if shared { Visibility::Workspace } else { Visibility::Private }),
        ..ConversationPatch::default()
    };
    let count = if chosen(index, size, LONG, 3) { LONG_MESSAGES } else { 2 };
    let rare = chosen(index, size, RARE_HITS, 4);
    let messages = (0..count).map(|n| message(&mut random, n, updated_ms, rare && n == 1)).collect();
    Draft {
        scope: scope(&owner, Role::Member),
        id,
        new: NewConversation { id: Some(id), source, patch },
        created_at: from_ms(created_ms),
        messages,
        updated_at: from_ms(updated_ms),
    }
}

/// Message `n` of a thread, of some 250 characters.
pub fn message(random: &mut Random, n: usize, at_ms: i64, rare: bool) -> NewMessage {
    let (role, words) =
        if n.is_multiple_of(2) { (MessageRole::User, 20) } else { (MessageRole::Assistant, 50) };
    let mut text = random.text(words);
    text.push(' ');
    text.push_str(COMMON);
    if rare {
        text.push(' ');
        text.push_str(RARE);
    }
    NewMessage::text(random.id(at_ms + n as i64), role, text, from_ms(at_ms + n as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_holds_what_the_rows_look_for_equally_often() {
        for size in [500, 1_000, 10_007] {
            let (drafts, hosted): (Vec<Draft>, Vec<Draft>) =
                drafts(size).partition(|draft| draft.scope.workspace == WORKSPACE);
            assert_eq!(hosted.len(), size / 10);
            let count = |wanted: &dyn Fn(&Draft) -> bool| drafts.iter().filter(|draft| wanted(draft)).count();
            assert_eq!(count(&|draft| draft.scope.user == MEMBER), OWN);
            assert_eq!(count(&|draft| draft.new.patch.visibility == Some(Visibility::Workspace)), SHARED);
            assert_eq!(count(&|draft| draft.new.source.is_none()), SOURCELESS);
            assert_eq!(count(&|draft| draft.messages.len() == LONG_MESSAGES), LONG);
            assert_eq!(long(size).len(), LONG);
            assert_eq!(
                count(&|draft| draft.messages.iter().any(|m| format!("{m:?}").contains(RARE))),
                RARE_HITS
            );
            assert_eq!(all(size), drafts.iter().map(|draft| draft.id).collect::<Vec<_>>());
        }
    }
}
