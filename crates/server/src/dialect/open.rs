//! From what a client asked for to a run: finds or makes the conversation, brings files and earlier messages in, and
//! starts the turn.

use std::collections::HashSet;

use axum::http::StatusCode;
use domain::conversation::{Conversation, ConversationPatch, NewConversation, Visibility};
use domain::file::File;
use domain::message::{Block, Message, MessageRole, NewMessage, WORDLESS, Window, plain_text};
use domain::run::{
    Brought, Run, RunStatus, StartTurn, TurnMessage, message_id, named_id, own_named_id, spelled_id,
};
use domain::scope::{Role, Scope};
use serde::Deserialize;
use store::bag::purge_one;
use store::files::Purgeable;
use store::turns::Idempotency;
use store::{StoreError, Thread};
use turn::TurnError;
use uuid::Uuid;

use super::ag_ui::run_name;
use super::decide::{check_heard, decide, run_of};
use super::{Asked, FilePart, Incoming, Said, Want, files};
use crate::jsonapi::error::Source;
use crate::problem::Problem;
use crate::routes::turns::check_names;
use crate::state::AppState;

/// How much of a thread is read at first: what a client names is nearly always near its end.
const NEAR: usize = 64;
/// How many runs of a conversation are looked at to find those that are not over.
pub const RUNS: usize = 100;

/// How often a request looks at its conversation: another one may come between each time.
const LOOKS: usize = 3;

pub enum Opened {
    /// A new run, which the caller may follow as its own.
    Started(Run),
    /// A run that was there before.
    Found(Run),
    /// The run on which people have just decided, and which of its approvals they did.
    Decided(Run, Vec<Uuid>),
}

impl Opened {
    pub fn run(&self) -> &Run {
        match self {
            Self::Started(run) | Self::Found(run) | Self::Decided(run, _) => run,
        }
    }
}

/// The id of the conversation that a client calls so: the caller's own, else the workspace's of that name, where the
/// caller sees one; else the one that it gets when it is made. Nothing in that depends on what the caller does not see.
pub async fn conversation_id(app: &AppState, scope: &Scope, name: &str) -> Result<Uuid, Problem> {
    let (own, shared) = (own_named_id(scope.workspace, &scope.user, name), named_id(scope.workspace, name));
    // A key that acts for the workspace may be replaced by another.
    if own == shared || scope.role == Role::Service {
        return Ok(shared);
    }
    for id in [own, shared] {
        match app.store.get_thread(scope, id, None.into()).await {
            Err(StoreError::NotFound) => {}
            found => return Ok(found?.conversation.id),
        }
    }
    // Where all see what is new, a name is everybody's.
    let workspace = app.store.find_workspace(scope).await?;
    let together = workspace.is_some_and(|workspace| workspace.default_visibility == Visibility::Workspace);
    Ok(if together { shared } else { own })
}

/// A conversation's thread, or none where there is none for this caller.
pub async fn thread(
    app: &AppState,
    scope: &Scope,
    id: Uuid,
    window: Window,
) -> Result<Option<Thread>, Problem> {
    match app.store.get_thread(scope, id, Some(window).into()).await {
        Ok(thread) => Ok(Some(thread)),
        Err(StoreError::NotFound) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Who may take away what was said: those who may delete the conversation.
pub async fn check_owns(app: &AppState, scope: &Scope, id: Uuid) -> Result<(), Problem> {
    let thread = app.store.get_thread(scope, id, None.into()).await?;
    match scope.owns(&thread.conversation.owner) {
        true => Ok(()),
        false => {
            Err(Problem::forbidden("Only the owner of the conversation or an admin may take this away."))
        }
    }
}

/// The run that holds a conversation: the one under way, or the first that waits.
pub async fn active_run(app: &AppState, scope: &Scope, conversation: Uuid) -> Result<Option<Run>, Problem> {
    let runs = match app.store.list_runs(scope, conversation, None, RUNS).await {
        Err(StoreError::NotFound) => return Ok(None),
        runs => runs?,
    };
    let (mut first, mut under_way) = (None, None);
    for run in runs.into_iter().filter(|run| !run.status.is_settled()) {
        match run.started_at {
            Some(_) => under_way = Some(run),
            None => first = Some(run),
        }
    }
    Ok(under_way.or(first))
}

pub async fn open(
    app: &AppState,
    scope: &Scope,
    mut asked: Asked,
    idempotency: Option<Idempotency>,
) -> Result<Opened, Problem> {
    // Before anything is looked at: what the request named may be gone since, and is not asked for again.
    if let Some(run) = app.turns.find_repeated(scope, idempotency.as_ref()).await? {
        return Ok(Opened::Found(run));
    }
    if asked.sent_again {
        let here = |file: &FilePart| files::find(app, file).is_ok();
        asked.before.iter_mut().for_each(|said| said.files.retain(here));
    }
    let (before, want) = (std::mem::take(&mut asked.before), std::mem::take(&mut asked.want));
    let id = match &asked.conversation {
        Some(name) => Some(conversation_id(app, scope, name).await?),
        None => None,
    };
    let opening = Opening { app, scope, id, asked, before, idempotency };
    let mut looks = 1;
    loop {
        let found = match id {
            Some(id) => thread(app, scope, id, Window::Newest { limit: NEAR }).await?,
            None => None,
        };
        let opened = match (&want, found) {
            (Want::Nothing, _) => Err(Problem::invalid_value("/messages", "There is no message to answer.")),
            (Want::Decide { decided, last }, Some(found)) => {
                check_heard(app, scope, &found, last.as_ref()).await?;
                return decide(app, scope, found.conversation.id, decided).await;
            }
            (Want::Decide { .. }, None) => Err(Problem::not_found()),
            (Want::Answer { message, edit }, Some(found)) => opening.answer(found, message, *edit).await,
            (Want::Again { message, of }, Some(found)) => {
                opening.again(found, message.as_deref(), of.as_ref()).await
            }
            (Want::Answer { message, .. } | Want::Again { of: Some(message), .. }, None) => {
                opening.first(message).await
            }
            (Want::Again { of: None, .. }, None) => Err(Problem::not_found()),
        };
        match opened {
            Err(problem) if looks < LOOKS && is_overtaken(&problem) => looks += 1,
            opened => return opened,
        }
    }
}

/// Whether another request has come between the look at the conversation and the write: the same one, perhaps, sent
/// twice. What it left is looked at then.
fn is_overtaken(problem: &Problem) -> bool {
    ["conflict", "precondition_failed"].contains(&problem.code)
}

struct Opening<'a> {
    app: &'a AppState,
    scope: &'a Scope,
    id: Option<Uuid>,
    /// Without what was said before, and what is wanted.
    asked: Asked,
    before: Vec<Said>,
    idempotency: Option<Idempotency>,
}

impl Opening<'_> {
    /// A message for a conversation that is there.
    async fn answer(&self, mut found: Thread, message: &Incoming, edit: bool) -> Result<Opened, Problem> {
        if found.messages.is_empty() && !self.before.is_empty() {
            // Nothing was said here yet, or another request is about to bring the same.
            return self.fill(&found.conversation, message).await.0;
        }
        let conversation = found.conversation.id;
        let at = match &message.name {
            Some(name) if edit => self.place(&mut found, name).await?,
            Some(name) => find(&found.messages, self.scope, name),
            None => None,
        };
        let known = at.map(|at| &found.messages[at]);
        match known {
            // It has been heard already: the client tries again, or its user goes on elsewhere.
            Some(known) if !edit && is_same(known, message) => {
                match run_of(self.app, self.scope, conversation, known.id).await? {
                    Some(run) if !self.is_another_try(&run).await? => Ok(Opened::Found(run)),
                    _ => self.start(Some(conversation), Some(known.id), None).await,
                }
            }
            Some(known) => self.start(Some(conversation), Some(known.id), Some(message)).await,
            // Of an edit, too: what was refused when it was sent is not here, and is said now.
            None => self.say(conversation, message).await,
        }
    }

    async fn again(
        &self,
        mut found: Thread,
        named: Option<&str>,
        of: Option<&Incoming>,
    ) -> Result<Opened, Problem> {
        let conversation = found.conversation.id;
        let own = of.and_then(|message| message.name.as_deref());
        let names: Vec<&str> = named.into_iter().chain(own).collect();
        let mut known = names.is_empty().then_some(found.messages.len());
        for name in names {
            if known.is_none() {
                known = self.place(&mut found, name).await?.map(|at| at + 1);
            }
        }
        let to = match (known, of) {
            (Some(to), _) => to,
            // It was refused when it was sent, or its answer's name is none of ours.
            (None, Some(message)) => return self.say(conversation, message).await,
            (None, None) => {
                let detail = "There is no message of that id in the conversation's current branch.";
                return Err(Problem::invalid_value("/messageId", detail));
            }
        };
        let question = found.messages[..to].iter().rfind(|message| message.role == MessageRole::User);
        let none = || Problem::invalid_value("/messageId", "There is no message of a user to answer again.");
        self.start(Some(conversation), Some(question.ok_or_else(none)?.id), None).await
    }

    /// A message that is new to its conversation.
    async fn say(&self, conversation: Uuid, message: &Incoming) -> Result<Opened, Problem> {
        let replace = self.asked.replace;
        self.start(Some(conversation), replace, Some(message)).await
    }

    /// The place of the message of that name; the whole thread is read where it is not near the end.
    async fn place(&self, found: &mut Thread, name: &str) -> Result<Option<usize>, Problem> {
        let at = find(&found.messages, self.scope, name);
        if at.is_some() || !found.has_before {
            return Ok(at);
        }
        match thread(self.app, self.scope, found.conversation.id, Window::All).await? {
            Some(whole) => *found = whole,
            None => return Ok(None),
        }
        Ok(find(&found.messages, self.scope, name))
    }

    /// Whether the client has begun a run of a new name for a message whose run has come to nothing. The same name is
    /// the same request, sent once more.
    async fn is_another_try(&self, run: &Run) -> Result<bool, Problem> {
        let Some(name) = self.asked.echo.as_ref().and_then(run_name) else { return Ok(false) };
        if !run.status.is_settled() || run.status == RunStatus::Succeeded {
            return Ok(false);
        }
        let before = self.app.store.get_asking(self.scope, run.id).await?.turn.brought.echo;
        Ok(before.as_ref().and_then(run_name) != Some(name))
    }

    /// A message for a conversation that is not there yet.
    async fn first(&self, message: &Incoming) -> Result<Opened, Problem> {
        self.check(message)?;
        check_files(self.app, &self.before)?;
        if self.before.is_empty() && message.files.is_empty() {
            let turn = self.turn(None, None, Some(message), None);
            check_names(&turn)?;
            let mut again = StartTurn { conversation: self.id, ..turn.clone() };
            again.brought.conversation = None;
            return match self.begin(turn).await {
                // Another request has made it meanwhile; one that is deleted or not for this caller is not found.
                Err(TurnError::Store(StoreError::Taken("id"))) if self.id.is_some() => {
                    Ok(self.begin(again).await?)
                }
                opened => Ok(opened?),
            };
        }
        let id = self.id.unwrap_or_else(|| self.app.clock.new_id());
        let options = &self.asked.options;
        let patch = ConversationPatch {
            mode: options.mode.map(Some),
            page_path: options.page_path.clone().map(Some),
            model: options.model.clone().map(Some),
            agent_id: options.agent.clone().map(Some),
            ..ConversationPatch::default()
        };
        let new = NewConversation { id: Some(id), source: options.source, patch };
        let (app, scope) = (self.app, self.scope);
        let made = match app.store.create_conversation(scope, &new, id, &app.write()).await {
            // Another request has made it meanwhile; one that is deleted or not for this caller is not found.
            Err(StoreError::Taken(_)) => {
                let found = thread(app, scope, id, Window::Newest { limit: NEAR }).await?;
                return self.answer(found.ok_or_else(Problem::not_found)?, message, false).await;
            }
            made => made?,
        };
        let (opened, version) = self.fill(&made, message).await;
        if writes_nothing(&opened) {
            // Its id is free again: the client will send the same one. Only if nobody else has written there since.
            let gone = app.store.delete_conversation(scope, id, Some(version), app.clock.now()).await;
            let made = Purgeable { workspace: scope.workspace, conversation: id };
            if gone.is_ok()
                && let Err(error) = purge_one(app.store.as_ref(), &app.blobs, &made).await
            {
                tracing::warn!(%error, "what a refused request made is left to the purge");
            }
        }
        opened
    }

    /// What was said before and the message, into a conversation in which nothing is; with the version that it has by
    /// this request alone.
    async fn fill(&self, empty: &Conversation, message: &Incoming) -> (Result<Opened, Problem>, i64) {
        let mut version = empty.version;
        let opened = async {
            if !self.before.is_empty() {
                version = bring(self.app, self.scope, empty.id, Some(version), &self.before).await?.1;
            }
            self.start(Some(empty.id), None, Some(message)).await
        };
        (opened.await, version)
    }

    /// What can be refused before anything is written.
    fn check(&self, message: &Incoming) -> Result<(), Problem> {
        if blocks(message).is_empty() {
            return Err(Problem::invalid_value("/messages", "The message is empty."));
        }
        files::check(self.app, &message.files)
    }

    async fn begin(&self, turn: StartTurn) -> Result<Opened, TurnError> {
        let started = self.app.turns.start(self.scope, turn, self.idempotency.clone()).await?;
        Ok(if started.repeated { Opened::Found(started.run) } else { Opened::Started(started.run) })
    }

    async fn start(
        &self,
        conversation: Option<Uuid>,
        replace: Option<Uuid>,
        message: Option<&Incoming>,
    ) -> Result<Opened, Problem> {
        let (mut attachments, mut new) = (None, Vec::new());
        if let Some(message) = message {
            self.check(message)?;
            if let (false, Some(conversation)) = (message.files.is_empty(), conversation) {
                let put = files::put(self.app, self.scope, conversation, &message.files).await?;
                (attachments, new) = (Some(put.files.iter().map(|file| file.id).collect()), put.new);
            }
        }
        let turn = self.turn(conversation, replace, message, attachments);
        let opened = match check_names(&turn) {
            Ok(()) => self.begin(turn).await.map_err(Problem::from),
            Err(refused) => Err(refused),
        };
        if writes_nothing(&opened) {
            for file in new {
                let _ = self.app.store.delete_file(self.scope, file, self.app.clock.now()).await;
            }
        }
        opened
    }

    fn turn(
        &self,
        conversation: Option<Uuid>,
        replace: Option<Uuid>,
        message: Option<&Incoming>,
        attachments: Option<Vec<Uuid>>,
    ) -> StartTurn {
        let options = self.asked.options.clone();
        let name = message.and_then(|message| message.name.as_deref());
        let is_id = name.is_some_and(|name| spelled_id(name).is_some());
        // An edit has the name of the message that it replaces, whose id it cannot have.
        let edited = replace.is_some();
        let brought = Brought {
            conversation: if conversation.is_none() { self.id } else { None },
            message: name.filter(|_| !edited).map(|name| message_id(self.scope.workspace, name)),
            message_name: name.filter(|_| edited || !is_id).map(str::to_owned),
            metadata: message.map(|message| message.metadata.clone()).unwrap_or_default(),
            instructions: self.asked.instructions.clone(),
            manner: self.asked.manner.clone(),
            max_tokens: self.asked.max_tokens,
            max_calls: self.asked.max_calls,
            comes_back: options.comes_back,
            tools: self.asked.tools.clone(),
            echo: self.asked.echo.clone(),
        };
        let said = message.map(|message| {
            let blocks = blocks(message);
            let content = serde_json::to_string(&blocks).unwrap_or_default();
            TurnMessage { content, text: plain_text(&blocks), wordless: is_wordless(message) }
        });
        StartTurn {
            conversation,
            replace,
            message: said,
            attachments,
            agent: options.agent,
            model: options.model,
            workflow: options.workflow,
            mode: options.mode,
            source: options.source,
            page_path: options.page_path,
            on_busy: options.on_busy,
            on_disconnect: options.on_disconnect,
            brought,
        }
    }
}

/// The refusal of OpenAI's API for a conversation with a run under way.
pub fn locked() -> Problem {
    Problem::new(
        StatusCode::BAD_REQUEST,
        "conversation_locked",
        "The conversation is busy",
        "Another response of this conversation is under way; wait for it, or cancel it.",
    )
    .at(Source::pointer("/conversation"))
}

pub fn busy_is_locked(problem: Problem) -> Problem {
    if problem.code != "conversation_busy" {
        return problem;
    }
    Problem { extra: problem.extra, ..locked() }
}

/// Whether a request is refused, or only a repeated one: nothing may be left of it. Of one that failed it is not known
/// whether its turn has begun.
fn writes_nothing(opened: &Result<Opened, Problem>) -> bool {
    match opened {
        Ok(Opened::Started(_)) => false,
        Ok(Opened::Found(_) | Opened::Decided(..)) => true,
        Err(problem) => problem.status.is_client_error(),
    }
}

/// Whether a message that is known is not changed by what its client sends.
fn is_same(known: &Message, message: &Incoming) -> bool {
    let (sent, wordless) = (blocks(message), is_wordless(message));
    known.text == plain_text(&sent) || (wordless && known.is_wordless())
}

fn is_wordless(message: &Incoming) -> bool {
    message.texts.iter().all(|text| text.trim().is_empty()) && !message.files.is_empty()
}

/// The message's text; of one without any, the names of its files.
fn blocks(message: &Incoming) -> Vec<Block> {
    let texts = message.texts.iter().filter(|text| !text.trim().is_empty());
    let mut blocks: Vec<Block> = texts.map(|text| Block::Text { text: text.clone() }).collect();
    if is_wordless(message) {
        let names: Vec<String> = message.files.iter().map(files::file_name).collect();
        blocks.push(Block::Text { text: names.join(", ") });
    }
    blocks
}

/// The place of the newest message that the client calls so.
pub fn find(messages: &[Message], scope: &Scope, name: &str) -> Option<usize> {
    let id = message_id(scope.workspace, name);
    messages.iter().rposition(|message| message.id == id || client_id(message).as_deref() == Some(name))
}

/// What the client that sent a message calls it.
pub fn client_id(message: &Message) -> Option<String> {
    #[derive(Deserialize)]
    struct Metadata {
        client_id: Option<String>,
    }
    serde_json::from_str::<Metadata>(&message.metadata).ok()?.client_id
}

/// What can be refused of their files before anything is written.
pub fn check_files(app: &AppState, said: &[Said]) -> Result<(), Problem> {
    said.iter().try_for_each(|said| files::check(app, &said.files))
}

/// Puts messages from before this server heard of them at the end of a thread, with their files; answers their ids and
/// the conversation's version. With a version only while the conversation is of that.
pub async fn bring(
    app: &AppState,
    scope: &Scope,
    conversation: Uuid,
    if_version: Option<i64>,
    said: &[Said],
) -> Result<(Vec<Uuid>, i64), Problem> {
    check_files(app, said)?;
    let mut new = Vec::new();
    let brought = async {
        let (mut messages, mut taken) = (Vec::new(), HashSet::new());
        for said in said.iter().filter(|said| !is_nothing(said)) {
            let put = files::put(app, scope, conversation, &said.files).await?;
            new.extend(put.new);
            let mut said = said.clone();
            if said.content.is_empty() && !put.files.is_empty() {
                let names: Vec<&str> = put.files.iter().map(|file| file.name.as_str()).collect();
                said.content.push(Block::Text { text: names.join(", ") });
                said.metadata.insert(WORDLESS.into(), true.into());
            }
            let attached: Vec<_> = put.files.iter().map(File::attachment).collect();
            let file_attachments = serde_json::to_string(&attached).unwrap_or_else(|_| "[]".into());
            messages.push(NewMessage { file_attachments, ..earlier(app, scope, said, &mut taken) });
        }
        let store = &app.store;
        let thread =
            store.append_messages(scope, conversation, if_version, &messages, app.clock.now()).await?;
        Ok((messages.iter().map(|message| message.id).collect(), thread.version))
    };
    let brought = brought.await;
    if brought.as_ref().is_err_and(|problem: &Problem| problem.status.is_client_error()) {
        for file in new {
            let _ = app.store.delete_file(scope, file, app.clock.now()).await;
        }
    }
    brought
}

/// Whether nothing of a message can be shown again.
fn is_nothing(said: &Said) -> bool {
    let own = said.metadata.get("ui").is_some_and(|own| !own["parts"].is_null());
    said.content.is_empty() && said.files.is_empty() && !own
}

/// `taken` are the names of those before it.
fn earlier(app: &AppState, scope: &Scope, said: Said, taken: &mut HashSet<String>) -> NewMessage {
    let name = said.name.filter(|name| taken.insert(name.clone()));
    let id = name.as_deref().map_or_else(|| app.clock.new_id(), |name| message_id(scope.workspace, name));
    let is_id = name.as_deref().is_some_and(|name| spelled_id(name).is_some());
    let mut metadata = said.metadata;
    if let Some(name) = name.filter(|_| !is_id) {
        metadata.insert("client_id".into(), name.into());
    }
    let metadata = serde_json::Value::Object(metadata).to_string();
    NewMessage { metadata, ..NewMessage::new(id, said.role, &said.content, app.clock.now()) }
}
