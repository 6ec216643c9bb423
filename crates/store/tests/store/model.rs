//! Both backends under the same random operations: every answer must be the same. `TEST_SEED` picks
//! other operations than the usual ones.

use domain::audit::first_broken;
use domain::conversation::{
    Conversation, ConversationFilter, ConversationPatch, ConversationQuery, ConversationSearch, Kind, Mode,
    NewConversation, Position, Seek, Sort, SortKey, Source, Visibility, Write,
};
use domain::message::{MessageRole, NewMessage, Window};
use domain::scope::{Role, Scope};
use domain::search::Query;
use domain::tab::Tab;
use domain::time::{Clock as _, FixedClock, from_ms};
use domain::workspace::{ApiKey, Workspace, WorkspacePatch};
use store::{Result, Store};
use uuid::Uuid;

use crate::setup::{self, kind};

const OPERATIONS: usize = 5000;
const USERS: [&str; 5] = ["ann", "bob", "Zoe", "äda", "key:1"];
const WORDS: [&str; 12] = [
    "alpha",
    "Alphabet",
    "BETA",
    "bêta",
    "gamma",
    "東京",
    "京都",
    "foo-bar",
    "foo",
    "bar",
    "straße",
    "\u{1F9F5}",
];

/// SplitMix64: small, and the same on every machine.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.roll() % n as u64) as usize
    }

    /// True in one of `n` cases.
    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    fn maybe<T>(&mut self, n: usize, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if self.one_in(n) { Some(make(self)) } else { None }
    }

    fn text(&mut self) -> String {
        let words: Vec<&str> = (0..1 + self.below(4)).map(|_| self.pick(&WORDS)).collect();
        words.join(" ")
    }
}

/// What the operations know of the world, to hit things that are there most of the time.
struct World {
    dice: Dice,
    clock: FixedClock,
    workspaces: Vec<Uuid>,
    conversations: Vec<(Uuid, Uuid)>,
    messages: Vec<Uuid>,
    keys: Vec<(Uuid, Uuid, [u8; 32])>,
    /// Rows that were listed, as places to seek from.
    places: Vec<Conversation>,
}

#[derive(Debug, Clone)]
enum Operation {
    Create(Scope, NewConversation, Uuid, Write),
    Thread(Scope, Uuid, Option<Window>),
    List(Scope, ConversationQuery),
    Search(Scope, ConversationSearch),
    Update(Scope, Uuid, ConversationPatch, Option<i64>, Write),
    Delete(Scope, Uuid, Option<i64>, jiff::Timestamp),
    Restore(Scope, Uuid, jiff::Timestamp),
    Append(Scope, Uuid, Vec<NewMessage>, jiff::Timestamp),
    CreateWorkspace(Scope, Workspace),
    Memberships(String, Option<Uuid>, Option<Uuid>, usize),
    FindWorkspace(Scope),
    UpdateWorkspace(Scope, WorkspacePatch, jiff::Timestamp),
    RemoveWorkspace(Scope, bool, jiff::Timestamp),
    Members(Scope, Option<String>, usize),
    FindMember(Scope, String),
    PutMember(Scope, String, Role, jiff::Timestamp),
    RemoveMember(Scope, String, jiff::Timestamp),
    CreateKey(Scope, ApiKey, [u8; 32]),
    Keys(Scope, Option<Uuid>, usize),
    RemoveKey(Scope, Uuid, jiff::Timestamp),
    FindKey(Uuid, [u8; 32]),
    Audit(Scope, i64, usize),
}

/// An answer to compare: a value whole, an error by its kind.
fn said<T: std::fmt::Debug>(answer: Result<T>) -> String {
    match answer {
        Ok(value) => format!("{value:?}"),
        Err(error) if matches!(kind(&error).as_str(), "internal" | "unavailable") => panic!("{error}"),
        Err(error) => kind(&error),
    }
}

impl Operation {
    async fn run(&self, store: &dyn Store) -> String {
        match self {
            Self::Create(scope, new, id, write) => {
                said(store.create_conversation(scope, new, *id, write).await)
            }
            Self::Thread(scope, id, window) => said(store.get_thread(scope, *id, (*window).into()).await),
            Self::List(scope, query) => said(store.list_conversations(scope, query).await),
            Self::Search(scope, search) => said(store.search_conversations(scope, search).await),
            Self::Update(scope, id, patch, version, write) => {
                said(store.update_conversation(scope, *id, patch, *version, write).await)
            }
            Self::Delete(scope, id, version, now) => {
                said(store.delete_conversation(scope, *id, *version, *now).await)
            }
            Self::Restore(scope, id, now) => said(store.restore_conversation(scope, *id, *now).await),
            Self::Append(scope, id, messages, now) => {
                said(store.append_messages(scope, *id, None, messages, *now).await)
            }
            Self::CreateWorkspace(scope, workspace) => said(store.create_workspace(scope, workspace).await),
            Self::Memberships(user, workspace, after, limit) => {
                said(store.list_memberships(user, *workspace, *after, *limit).await)
            }
            Self::FindWorkspace(scope) => said(store.find_workspace(scope).await),
            Self::UpdateWorkspace(scope, patch, now) => {
                said(store.update_workspace(scope, patch, *now).await)
            }
            Self::RemoveWorkspace(scope, cascade, now) => {
                said(store.remove_workspace(scope, *cascade, *now).await)
            }
            Self::Members(scope, after, limit) => {
                said(store.list_members(scope, after.as_deref(), *limit).await)
            }
            Self::FindMember(scope, user) => said(store.find_member(scope, user).await),
            Self::PutMember(scope, user, role, now) => said(store.put_member(scope, user, *role, *now).await),
            Self::RemoveMember(scope, user, now) => said(store.remove_member(scope, user, *now).await),
            Self::CreateKey(scope, key, hash) => said(store.create_key(scope, key, *hash).await),
            Self::Keys(scope, after, limit) => said(store.list_keys(scope, *after, *limit).await),
            Self::RemoveKey(scope, id, now) => said(store.remove_key(scope, *id, *now).await),
            Self::FindKey(workspace, hash) => said(store.find_key(*workspace, *hash).await),
            Self::Audit(scope, after, limit) => said(store.list_audit(scope, *after, *limit).await),
        }
    }
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            dice: Dice(seed),
            clock: FixedClock::new(from_ms(1_778_749_956_000)),
            workspaces: Vec::new(),
            conversations: Vec::new(),
            messages: Vec::new(),
            keys: Vec::new(),
            places: Vec::new(),
        }
    }

    fn write(&mut self) -> Write {
        Write { now: self.clock.now(), max_tabs: 3 }
    }

    fn scope(&mut self) -> Scope {
        let workspace = if self.dice.one_in(40) {
            Uuid::from_u128(404)
        } else {
            self.dice.pick(&self.workspaces.clone())
        };
        self.scope_in(workspace)
    }

    fn scope_in(&mut self, workspace: Uuid) -> Scope {
        let role = self.dice.pick(&[Role::Member, Role::Member, Role::Admin, Role::Service]);
        Scope {
            workspace,
            org: "acme".into(),
            user: self.dice.pick(&USERS).to_owned(),
            role,
            key: self.dice.maybe(5, |dice| Uuid::from_u128(dice.roll().into())),
            administers: role == Role::Admin,
        }
    }

    /// Somebody, and a conversation: mostly one of that workspace.
    fn aimed(&mut self) -> (Scope, Uuid) {
        if self.conversations.is_empty() || self.dice.one_in(30) {
            return (self.scope(), Uuid::from_u128(404));
        }
        let recent = self.conversations.len().min(60);
        let at = self.conversations.len() - 1 - self.dice.below(recent);
        let (workspace, id) = self.conversations[at];
        let scope = if self.dice.one_in(10) { self.scope() } else { self.scope_in(workspace) };
        (scope, id)
    }

    fn patch(&mut self) -> ConversationPatch {
        let dice = &mut self.dice;
        let tab = |key: &str| Tab { key: key.into(), destination_id: key.into(), sub_path: None };
        ConversationPatch {
            title: dice.maybe(2, |dice| dice.maybe(1, Dice::text).filter(|_| !dice.one_in(6))),
            mode: dice.maybe(3, |dice| {
                dice.pick(&[None, Some(Mode::Ask), Some(Mode::Agent), Some(Mode::TaskFlow)])
            }),
            page_path: dice.maybe(6, |dice| dice.maybe(2, Dice::text)),
            context: dice.maybe(6, |dice| dice.maybe(2, |dice| format!("{{ \"a\" : {} }}", dice.below(9)))),
            tabs: dice
                .maybe(5, |dice| (0..dice.below(5)).map(|n| tab(["a", "b", "c", "a", "d"][n])).collect()),
            active_tab_key: dice
                .maybe(8, |dice| dice.pick(&[None, Some("a".to_owned()), Some("z".to_owned())])),
            model: dice.maybe(6, |dice| dice.maybe(2, Dice::text)),
            agent_id: dice.maybe(6, |dice| dice.pick(&[None, Some("x".to_owned()), Some("y".to_owned())])),
            visibility: dice.maybe(3, |dice| dice.pick(&[Visibility::Private, Visibility::Workspace])),
        }
    }

    fn filter(&mut self) -> ConversationFilter {
        let dice = &mut self.dice;
        ConversationFilter {
            source: dice.maybe(3, |dice| dice.pick(&[Source::Web, Source::Extension])),
            mode: dice.maybe(6, |dice| dice.pick(&[Mode::Ask, Mode::Agent])),
            kind: dice.maybe(6, |dice| dice.pick(&[Kind::ModelChat, Kind::AssistantSandbox])),
            agent: dice.maybe(8, |dice| dice.pick(&["x".to_owned(), "none".to_owned()])),
            deleted: dice.one_in(5),
        }
    }

    fn sort(&mut self) -> Sort {
        let key = self.dice.pick(&[SortKey::UpdatedAt, SortKey::CreatedAt, SortKey::Title]);
        Sort { key, descending: self.dice.one_in(2) }
    }

    fn list(&mut self) -> Operation {
        let sort = self.sort();
        let seek = match self.dice.below(3) {
            _ if self.places.is_empty() => Seek::Start,
            0 => Seek::Start,
            side => {
                let place = self.places[self.dice.below(self.places.len())].clone();
                let place = Position::of(&place, sort.key);
                if side == 1 { Seek::After(place) } else { Seek::Before(place) }
            }
        };
        let filter = self.filter();
        let (limit, with_context) = (1 + self.dice.below(12), self.dice.one_in(4));
        Operation::List(self.scope(), ConversationQuery { filter, sort, seek, limit, with_context })
    }

    fn search(&mut self) -> Operation {
        let mut text = self.dice.text();
        if self.dice.one_in(3) {
            text.pop();
        }
        let query = Query::parse(&text).or(Query::parse("alp")).unwrap();
        let filter = self.filter();
        let sort = if self.dice.one_in(3) { Some(self.sort()) } else { None };
        let (offset, limit) = (self.dice.pick(&[0, 0, 2, 30]), 1 + self.dice.below(10));
        let with_context = self.dice.one_in(4);
        Operation::Search(
            self.scope(),
            ConversationSearch { filter, query, sort, offset, limit, with_context },
        )
    }

    fn append(&mut self) -> Operation {
        let (scope, id) = self.aimed();
        let now = self.clock.now();
        let messages: Vec<NewMessage> = (0..self.dice.below(4))
            .map(|_| {
                let id = match self.messages.len() {
                    0 => self.clock.new_id(),
                    many if self.dice.one_in(25) => self.messages[self.dice.below(many)],
                    _ => self.clock.new_id(),
                };
                let role = self.dice.pick(&[MessageRole::User, MessageRole::Assistant, MessageRole::System]);
                let token_count = self.dice.below(50) as i64;
                NewMessage { token_count, ..NewMessage::text(id, role, self.dice.text(), now) }
            })
            .collect();
        self.messages.extend(messages.iter().map(|message| message.id));
        Operation::Append(scope, id, messages, now)
    }

    fn thread(&mut self) -> Operation {
        let (scope, id) = self.aimed();
        let limit = 1 + self.dice.below(5);
        let window = match self.dice.below(4) {
            0 => None,
            1 => Some(Window::All),
            2 => Some(Window::Newest { limit }),
            _ if self.messages.is_empty() => None,
            _ => Some(Window::Before { message: self.dice.pick(&self.messages.clone()), limit }),
        };
        Operation::Thread(scope, id, window)
    }

    fn create(&mut self) -> Operation {
        let scope = self.scope();
        let id = self.clock.new_id();
        let taken = self.conversations.len();
        let new = NewConversation {
            id: match self.dice.below(8) {
                0 if taken > 0 => Some(self.conversations[self.dice.below(taken)].1),
                _ => None,
            },
            source: self.dice.pick(&[None, Some(Source::Web), Some(Source::Extension)]),
            patch: self.patch(),
        };
        self.conversations.push((scope.workspace, new.id.unwrap_or(id)));
        let write = self.write();
        Operation::Create(scope, new, id, write)
    }

    fn workspace(&mut self) -> Operation {
        let id = self.clock.new_id();
        let scope = self.scope_in(id);
        self.workspaces.push(id);
        let default_visibility = self.dice.pick(&[Visibility::Private, Visibility::Workspace]);
        let workspace = Workspace {
            id,
            org: "acme".into(),
            name: self.dice.text(),
            default_visibility,
            created_at: self.clock.now(),
        };
        Operation::CreateWorkspace(scope, workspace)
    }

    fn key(&mut self) -> Operation {
        let scope = self.scope();
        let id = self.clock.new_id();
        let mut hash = [0; 32];
        hash[..16].copy_from_slice(id.as_bytes());
        self.keys.push((scope.workspace, id, hash));
        let role = self.dice.pick(&[Role::Member, Role::Admin, Role::Service]);
        let created_by = self.dice.pick(&USERS).to_owned();
        let key = ApiKey { id, name: self.dice.text(), role, created_by, created_at: self.clock.now() };
        Operation::CreateKey(scope, key, hash)
    }

    fn known_key(&mut self) -> (Uuid, Uuid, [u8; 32]) {
        if self.keys.is_empty() {
            (Uuid::nil(), Uuid::nil(), [0; 32])
        } else {
            self.dice.pick(&self.keys.clone())
        }
    }

    fn next(&mut self) -> Operation {
        // Often several operations within one millisecond.
        self.clock.advance_ms(self.dice.below(3) as i64);
        let now = self.clock.now();
        let user = self.dice.pick(&USERS).to_owned();
        let limit = 1 + self.dice.below(6);
        match self.dice.below(100) {
            0..15 => self.create(),
            15..29 => self.append(),
            29..40 => {
                let ((scope, id), patch, write) = (self.aimed(), self.patch(), self.write());
                let version = self.dice.maybe(4, |dice| 1 + dice.below(3) as i64);
                Operation::Update(scope, id, patch, version, write)
            }
            40..45 => {
                let (scope, id) = self.aimed();
                let version = self.dice.maybe(4, |dice| 1 + dice.below(3) as i64);
                Operation::Delete(scope, id, version, now)
            }
            45..49 => {
                let (scope, id) = self.aimed();
                Operation::Restore(scope, id, now)
            }
            49..59 => self.thread(),
            59..72 => self.list(),
            72..82 => self.search(),
            82..84 => Operation::Memberships(
                user,
                self.dice.maybe(4, |_| self.workspaces[0]),
                self.dice.maybe(3, |_| self.workspaces[self.workspaces.len() / 2]),
                limit,
            ),
            84 => Operation::FindWorkspace(self.scope()),
            85 => {
                let name = self.dice.maybe(2, Dice::text);
                let visibility = [Visibility::Private, Visibility::Workspace];
                let default_visibility = self.dice.maybe(2, |dice| dice.pick(&visibility));
                Operation::UpdateWorkspace(self.scope(), WorkspacePatch { name, default_visibility }, now)
            }
            86 if self.dice.one_in(6) => Operation::RemoveWorkspace(self.scope(), self.dice.one_in(2), now),
            86 if self.workspaces.len() < 12 => self.workspace(),
            86..88 => Operation::Members(self.scope(), self.dice.maybe(2, |_| user), limit),
            88 => Operation::FindMember(self.scope(), user),
            89..92 => {
                let role = self.dice.pick(&[Role::Member, Role::Admin]);
                Operation::PutMember(self.scope(), user, role, now)
            }
            92 => Operation::RemoveMember(self.scope(), user, now),
            93 => self.key(),
            94 => Operation::Keys(self.scope(), self.dice.maybe(3, |_| Uuid::nil()), limit),
            95 => {
                let (workspace, id, _) = self.known_key();
                Operation::RemoveKey(self.scope_in(workspace), id, now)
            }
            96..98 => {
                let (workspace, _, hash) = self.known_key();
                Operation::FindKey(if self.dice.one_in(5) { self.workspaces[0] } else { workspace }, hash)
            }
            _ => Operation::Audit(self.scope(), self.dice.below(5) as i64, limit),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_backends_answer_every_operation_alike() {
    let Some(postgres) = setup::postgres().await else { return };
    let sqlite = setup::sqlite();
    let seed = std::env::var("TEST_SEED").map_or(20_260_514, |seed| seed.parse().unwrap());
    let mut world = World::new(seed);
    let mut operations = vec![world.workspace(), world.workspace(), world.workspace()];
    let (mut answered, mut failed) = (0, 0);
    for number in 0..OPERATIONS {
        let operation = operations.pop().unwrap_or_else(|| world.next());
        let (one, other) =
            futures_util::future::join(operation.run(&*sqlite.store), operation.run(&*postgres.store)).await;
        assert_eq!(
            one, other,
            "TEST_SEED={seed}, operation {number}: {operation:#?}\nSQLite left, PostgreSQL right"
        );
        if one.starts_with(char::is_lowercase) {
            failed += 1
        } else {
            answered += 1
        }
        if let Operation::List(scope, query) = &operation
            && let Ok(page) = sqlite.list_conversations(scope, query).await
            && let Some(place) = page.items.last()
        {
            world.places.push(place.clone());
        }
    }
    // Neither mostly refusals nor no refusals at all.
    assert!(
        answered > OPERATIONS / 2 && failed > OPERATIONS / 50,
        "TEST_SEED={seed}: {answered} and {failed}"
    );
    for workspace in world.workspaces.clone() {
        let scope = world.scope_in(workspace);
        let log = postgres.list_audit(&scope, 0, 10_000).await.unwrap();
        assert_eq!(first_broken(&log), None, "TEST_SEED={seed}");
        assert_eq!(log, sqlite.list_audit(&scope, 0, 10_000).await.unwrap(), "TEST_SEED={seed}");
    }
}
