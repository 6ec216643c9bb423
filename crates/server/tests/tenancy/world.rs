//! A victim with something to lose, and everyone who must not get at it.
//! `Victim::view` is all that the victim sees, for comparing before and after.

use domain::approval::Approval;
use domain::event::ToolCall;
use domain::grant::{Grant, GrantKind};
use domain::message::{MessageRole, NewMessage};
use domain::run::Lease;
use domain::scope::{Role, Scope};
use domain::secret::Secret;
use domain::time::{Clock as _, SystemClock};
use domain::tool_server::Pin;
use jsonwebtoken::{EncodingKey, Header, encode};
use reqwest::Method;
use serde_json::json;
use serde_json::value::to_raw_value;
use store::turns::Held;
use testkit::form::Form;
use testkit::sandbox::{Action, ScriptedSandbox};
use testkit::server::{JWT_SECRET, TestCaller, TestServer, token};

use crate::routes::Ids;
use crate::setup::{ask, delete, expect, get, post};

/// In the name of the victim's workspace.
pub const SPACE_WORD: &str = "secretspace";
/// In the title, the context and the messages of the victim's conversations.
pub const THREAD_WORD: &str = "secretthread";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Not let in at all: 401.
    Refused,
    /// A member of the victim's workspace: its workspace is no secret, someone's private thread is.
    Mate,
    /// Not in the victim's workspace: nothing of it exists.
    Foreign,
}

/// One caller.
#[derive(Debug)]
pub struct Who {
    pub name: &'static str,
    pub class: Class,
    pub headers: Vec<(&'static str, String)>,
    /// A workspace that it is in.
    pub home: Option<String>,
    pub administers_home: bool,
    pub is_key: bool,
}

pub struct Victim {
    pub ids: Ids,
    /// The admin of the workspace and the owner of the private conversations.
    pub boss: String,
    pub owner: String,
}

/// Ids of nothing.
pub fn absent() -> Ids {
    let id = || SystemClock.new_id().to_string();
    Ids {
        workspace: id(),
        conversation: id(),
        idle: id(),
        item: id(),
        deleted: id(),
        message: id(),
        settled: id(),
        queued: id(),
        running: id(),
        approval: id(),
        agent: id(),
        tools: id(),
        page: id(),
        table: id(),
        row: id(),
        file: id(),
        promised: id(),
        shared: id(),
        execution: id(),
        key: id(),
        user: format!("nobody-{}", id()),
    }
}

async fn key(server: &TestServer, bearer: &str, workspace: &str, role: &str) -> (String, String) {
    let body = json!({ "name": "a key", "role": role, "workspace": workspace });
    let made = post(&server.caller(bearer), "/v1/api-keys", body).await;
    expect(&made, 201, "");
    (made.body["id"].as_str().unwrap().into(), made.body["key"].as_str().unwrap().into())
}

/// A turn of the victim's that nobody waits for: its run and its message.
async fn turn(owner: &TestCaller<'_>, workspace: &str, conversation: &str) -> (String, String) {
    let body = json!({ "workspace": workspace, "conversation": conversation, "on_busy": "enqueue",
        "message": format!("Ask about my {THREAD_WORD}") });
    let request = owner.request(Method::POST, "/v1/turns").header("prefer", "respond-async");
    let made = ask(request.header("content-type", "application/json").body(body.to_string())).await;
    expect(&made, 202, "");
    (made.body["run"].as_str().unwrap().into(), made.body["message"].as_str().unwrap().into())
}

/// A run that has ended, one that is under way for good, and one that waits behind it. Out: the first with its
/// message, and the other two.
async fn runs(
    owner: &TestCaller<'_>,
    sandbox: &ScriptedSandbox,
    workspace: &str,
    conversation: &str,
) -> [String; 4] {
    let answer = Action::Line(json!({ "type": "result", "message": format!("Your {THREAD_WORD}") }));
    let open = || Action::Headers("200 OK", Vec::new());
    let before = sandbox.requests().len();
    sandbox.play(vec![open(), answer]);
    sandbox.play(vec![open(), Action::Hang]);
    let (settled, message) = turn(owner, workspace, conversation).await;
    // Its events end with it.
    expect(&get(owner, &format!("/v1/runs/{settled}/events?workspace={workspace}")).await, 200, "");
    let (running, _) = turn(owner, workspace, conversation).await;
    sandbox.request(before + 1).await.unwrap();
    let (queued, _) = turn(owner, workspace, conversation).await;
    [settled, message, running, queued]
}

/// A call of a run under way that waits for a person. The run is known by the token that its sandbox was given.
async fn approval(server: &TestServer, sandbox: &ScriptedSandbox) -> String {
    let envelope = sandbox.requests().pop().unwrap().body;
    let token = envelope["config_token"].as_str().unwrap();
    let secret = Secret::new("the server's own secret, also longer than 32 bytes");
    let grant = Grant::open(token, GrantKind::Config, &secret).unwrap();
    let lease = Lease { run: grant.run, fence: grant.fence };
    let call = ToolCall { id: "a".into(), name: THREAD_WORD.into(), args: to_raw_value(&json!({})).unwrap() };
    let approval = Approval { id: SystemClock.new_id(), round: 1, call, decision: None, started: false };
    let held = Held { workspace: grant.workspace, lease };
    server.store().add_approvals(&held, std::slice::from_ref(&approval)).await.unwrap();
    approval.id.to_string()
}

async fn uploaded(caller: &TestCaller<'_>, path: &str, name: &str, text: &str) -> String {
    let request = caller.request(Method::POST, path).header("content-type", Form::kind());
    let made = ask(request.body(Form::of(name, text.as_bytes()).end())).await;
    expect(&made, 201, "");
    made.body["files"][0]["id"].as_str().unwrap().into()
}

/// A file of the conversation, and one whose bytes have come and wait for their completion.
async fn files(owner: &TestCaller<'_>, workspace: &str, conversation: &str) -> [String; 2] {
    let path = format!("/v1/chat-conversations/{conversation}/files");
    let name = format!("{THREAD_WORD}.txt");
    let file = uploaded(owner, &format!("{path}?workspace={workspace}"), &name, THREAD_WORD).await;
    // Of the one byte "x".
    let sha256 = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881";
    let promise = json!({ "name": format!("{THREAD_WORD}-2.txt"), "size": 1, "sha256": sha256 });
    let promised = post(owner, &format!("{path}/uploads?workspace={workspace}"), promise).await;
    expect(&promised, 201, "");
    let link = promised.body["url"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    expect(&ask(owner.request(Method::PUT, &format!("/v1/uploads/{link}")).body("x")).await, 204, "");
    [file, promised.body["id"].as_str().unwrap().into()]
}

async fn execution(owner: &TestCaller<'_>, workspace: &str) -> String {
    let body = json!({ "workspace": workspace, "prompt": format!("Ask about my {THREAD_WORD}") });
    let made = post(owner, "/v1/executions", body).await;
    expect(&made, 200, "");
    made.header("threadkeep-execution").to_owned()
}

/// A page, a table and a row of it.
async fn knowledge(boss: &TestCaller<'_>, workspace: &str) -> [String; 3] {
    let words = format!("The {SPACE_WORD}");
    let page = json!({ "title": words, "body": words, "workspace": workspace });
    let columns = json!([{ "name": "a", "type": "text" }]);
    let table = json!({ "name": words, "columns": columns, "workspace": workspace });
    let mut ids = Vec::new();
    for (path, body) in [("/v1/pages", page), ("/v1/tables", table)] {
        let made = post(boss, path, body).await;
        expect(&made, 201, "");
        ids.push(made.body["id"].as_str().unwrap().to_owned());
    }
    let rows = json!({ "rows": [{ "a": words }], "workspace": workspace });
    let made = post(boss, &format!("/v1/tables/{}/rows", ids[1]), rows).await;
    expect(&made, 201, "");
    ids.push(made.body["rows"][0]["_id"].as_str().unwrap().to_owned());
    ids.try_into().unwrap()
}

impl Victim {
    pub async fn new(server: &TestServer, sandbox: &ScriptedSandbox, tag: &str) -> Self {
        let (boss_id, owner_id) = (format!("boss-{tag}"), format!("owner-{tag}"));
        let (boss, owner) = (token(&boss_id, "org-1"), token(&owner_id, "org-1"));
        let (as_boss, as_owner) = (server.caller(&boss), server.caller(&owner));
        let workspace = as_boss.create_workspace(&format!("The {SPACE_WORD}")).await.unwrap();
        let members = format!("/v1/workspaces/{workspace}/members");
        for user in [owner_id.clone(), format!("mate-{tag}")] {
            expect(&post(&as_boss, &members, json!({ "user": user, "role": "member" })).await, 201, "");
        }
        let attributes = json!({ "title": format!("My {THREAD_WORD}"), "context": { "note": THREAD_WORD } });
        let conversation = as_owner.create_conversation(attributes.clone()).await.unwrap();
        let deleted = as_owner.create_conversation(attributes.clone()).await.unwrap();
        let idle = as_owner.create_conversation(attributes).await.unwrap();
        let scope = Scope {
            workspace: workspace.parse().unwrap(),
            org: "org-1".into(),
            user: owner_id.clone(),
            role: Role::Member,
            key: None,
            administers: false,
        };
        let item = SystemClock.new_id();
        for id in [&conversation, &deleted, &idle] {
            let now = SystemClock.now();
            let text = format!("Read my {THREAD_WORD}");
            let own = if id == &idle { item } else { SystemClock.new_id() };
            let message = NewMessage::text(own, MessageRole::User, text, now);
            server.store().append_messages(&scope, id.parse().unwrap(), None, &[message], now).await.unwrap();
        }
        expect(&delete(&as_owner, &format!("/v1/chat-conversations/{deleted}")).await, 204, "");
        let (key, _) = key(server, &boss, &workspace, "service").await;
        let [settled, message, running, queued] = runs(&as_owner, sandbox, &workspace, &conversation).await;
        let approval = approval(server, sandbox).await;
        let body = json!({ "name": format!("The {SPACE_WORD}"), "workspace": workspace });
        let agent = post(&as_boss, "/v1/agents", body).await;
        expect(&agent, 201, "");
        let agent = agent.body["id"].as_str().unwrap().to_owned();
        let tools = format!("{SPACE_WORD}-tools");
        let body = json!({ "name": tools, "url": "http://127.0.0.1:9/mcp", "workspace": workspace });
        expect(&post(&as_boss, "/v1/tool-servers", body).await, 201, "");
        let seen = [Pin { tool: "t".into(), hash: "1".repeat(64) }];
        let known = server.store().list_tool_servers(&scope, None, 1).await.unwrap();
        server.store().pin_tools(&scope, &known[0].id.to_string(), &seen).await.unwrap();
        let [page, table, row] = knowledge(&as_boss, &workspace).await;
        let [file, promised] = files(&as_owner, &workspace, &conversation).await;
        let path = format!("/v1/files?workspace={workspace}");
        let shared = uploaded(&as_boss, &path, "shared.txt", "everyone's").await;
        let execution = execution(&as_owner, &workspace).await;
        let user = owner_id;
        let ids = Ids {
            workspace,
            conversation,
            idle,
            item: item.to_string(),
            deleted,
            message,
            settled,
            queued,
            running,
            approval,
            agent,
            tools,
            page,
            table,
            row,
            file,
            promised,
            shared,
            execution,
            key,
            user,
        };
        Self { ids, boss, owner }
    }

    /// Workspace, members, keys and audit log as the admin sees them; the conversations as their owner does.
    pub async fn view(&self, server: &TestServer) -> Vec<String> {
        let view = self.view_or_refusals(server).await;
        let is_refusal = |text: &String| text.contains("\"status\":4") || text.contains("\"status\":\"4");
        assert!(!view.iter().any(is_refusal), "{view:?}");
        view
    }

    /// Where the run under way has been ended, the one behind it starts, and takes a script of the sandbox: it is waited
    /// for, or that would be the next victim's.
    pub async fn wait_for_the_queue(&self, server: &TestServer) {
        let owner = server.caller(&self.owner);
        let Ids { workspace, running, queued, .. } = &self.ids;
        let is_open = async |run: &str| {
            let answer = get(&owner, &format!("/v1/runs/{run}?workspace={workspace}")).await;
            matches!(answer.body["status"].as_str(), Some("queued" | "running"))
        };
        let mut looks = 0..100;
        while !is_open(running).await && is_open(queued).await {
            assert!(looks.next().is_some(), "the run in the queue does not end");
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }

    /// As `view`, where some of it may be gone.
    pub async fn view_or_refusals(&self, server: &TestServer) -> Vec<String> {
        let (boss, owner) = (server.caller(&self.boss), server.caller(&self.owner));
        let Ids { workspace, conversation, running, execution, page, table, .. } = &self.ids;
        let mut view = Vec::new();
        for path in [
            format!("/v1/workspaces/{workspace}"),
            format!("/v1/workspaces/{workspace}/members"),
            format!("/v1/api-keys?workspace={workspace}"),
            format!("/v1/agents?workspace={workspace}"),
            format!("/v1/tool-servers?workspace={workspace}"),
            format!("/v1/audit?limit=100&workspace={workspace}"),
            format!("/v1/files?workspace={workspace}"),
            // What mates make beside them is the workspace's own.
            format!("/v1/pages/{page}?workspace={workspace}"),
            format!("/v1/tables/{table}?workspace={workspace}"),
            format!("/v1/tables/{table}/rows?workspace={workspace}"),
        ] {
            view.push(get(&boss, &path).await);
        }
        for path in [
            format!("/v1/chat-conversations/{conversation}?workspace={workspace}"),
            format!("/v1/chat-conversations?workspace={workspace}&filter[query]={THREAD_WORD}"),
            format!("/v1/chat-conversations?workspace={workspace}&filter[deleted]=true"),
            format!("/v1/chat-conversations/{conversation}/runs?workspace={workspace}"),
            format!("/v1/chat-conversations/{conversation}/queue?workspace={workspace}"),
            format!("/v1/chat-conversations/{conversation}/branches?workspace={workspace}"),
            format!("/v1/runs/{running}/approvals?workspace={workspace}"),
            format!("/v1/chat-conversations/{conversation}/files?workspace={workspace}"),
            format!("/v1/executions/{execution}?workspace={workspace}"),
        ] {
            view.push(get(&owner, &path).await);
        }
        let mut view: Vec<String> = view.into_iter().map(|answer| answer.text).collect();
        // What a mate makes is the mate's own; what anyone else plants here is not.
        let all = get(&boss, &format!("/v1/chat-conversations?page[size]=100&workspace={workspace}")).await;
        for item in all.body["data"].as_array().into_iter().flatten() {
            if !item["attributes"]["user_id"].as_str().unwrap().starts_with("mate-") {
                view.push(item.to_string());
            }
        }
        view
    }

    /// Everyone else, in the table's three classes.
    pub async fn others(&self, server: &TestServer, tag: &str) -> Vec<Who> {
        let mut all = self.refused(server, tag).await;
        all.extend(self.mates(server, tag).await);
        all.extend(foreigners(server, tag).await);
        let removed = format!("removed-{tag}");
        let home = server.person(&removed, "org-1").create_workspace("Their own").await.unwrap();
        all.push(Who {
            home: Some(home),
            ..person("a removed member", Class::Foreign, &token(&removed, "org-1"))
        });
        all
    }

    async fn refused(&self, server: &TestServer, tag: &str) -> Vec<Who> {
        let workspace = &self.ids.workspace;
        let boss = server.caller(&self.boss);
        let (revoked_id, revoked) = key(server, &self.boss, workspace, "admin").await;
        expect(&delete(&boss, &format!("/v1/api-keys/{revoked_id}?workspace={workspace}")).await, 204, "");

        // Someone who was an admin, made a key, and is no longer a member.
        let removed = format!("removed-{tag}");
        let members = format!("/v1/workspaces/{workspace}/members");
        expect(&post(&boss, &members, json!({ "user": removed, "role": "admin" })).await, 201, "");
        let (_, orphan) = key(server, &token(&removed, "org-1"), workspace, "admin").await;
        expect(&delete(&boss, &format!("{members}/{removed}")).await, 204, "");

        let mut guessed = revoked.clone();
        guessed.replace_range(60..61, if &revoked[60..61] == "A" { "B" } else { "A" });
        let sign = |exp: i64, secret: &str| {
            let claims = json!({ "sub": format!("boss-{tag}"), "org_id": "org-1", "exp": exp });
            encode(&Header::default(), &claims, &EncodingKey::from_secret(secret.as_bytes())).unwrap()
        };
        let now = SystemClock.now().as_second();
        let forged = sign(now + 3600, "another secret that is as long as ours");
        let bearers = [
            ("garbage", "garbage".to_owned()),
            ("a garbage key", "tk_garbage".into()),
            ("a key with one other character", guessed),
            ("a revoked key", revoked),
            ("a removed member's key", orphan),
            ("an expired token", sign(now - 3600, JWT_SECRET)),
            ("a forged token", forged),
        ];
        let mut all: Vec<Who> =
            bearers.iter().map(|(name, bearer)| person(name, Class::Refused, bearer)).collect();
        let nothing = Who { headers: Vec::new(), ..person("no credential", Class::Refused, "") };
        let basic = vec![("authorization", format!("Basic {}", self.boss))];
        all.extend([nothing, Who { headers: basic, ..person("another scheme", Class::Refused, "") }]);
        all
    }

    async fn mates(&self, server: &TestServer, tag: &str) -> Vec<Who> {
        let mate = format!("mate-{tag}");
        let (_, service) = key(server, &self.boss, &self.ids.workspace, "service").await;
        let mut acting = person("a service key acting for a mate", Class::Mate, &service);
        acting.headers.push(("threadkeep-user", mate.clone()));
        vec![person("a mate", Class::Mate, &token(&mate, "org-1")), Who { is_key: true, ..acting }]
    }
}

fn person(name: &'static str, class: Class, bearer: &str) -> Who {
    let headers = vec![("authorization", format!("Bearer {bearer}"))];
    Who { name, class, headers, home: None, administers_home: true, is_key: false }
}

/// An admin of another workspace in the same org, one of another org, their keys, and someone who is nowhere.
async fn foreigners(server: &TestServer, tag: &str) -> Vec<Who> {
    let mut all = vec![person("a person in no workspace", Class::Foreign, &token("homeless", "org-1"))];
    for (names, org) in [
        (["a neighbour", "a neighbour's key", "a neighbour's service key"], "org-1"),
        (["a stranger", "a stranger's key", "a stranger's service key"], "org-2"),
    ] {
        let bearer = token(&format!("admin-{org}-{tag}"), org);
        let home = server.caller(&bearer).create_workspace("Elsewhere").await.unwrap();
        let (_, admin) = key(server, &bearer, &home, "admin").await;
        let (_, service) = key(server, &bearer, &home, "service").await;
        for (at, bearer) in [bearer, admin, service].iter().enumerate() {
            let who = person(names[at], Class::Foreign, bearer);
            all.push(Who { home: Some(home.clone()), administers_home: at < 2, is_key: at > 0, ..who });
        }
    }
    all
}

/// Whether an answer gives away anything of the victim's that this class may not know.
pub fn leaks(class: Class, ids: &Ids, text: &str) -> bool {
    let thread =
        [THREAD_WORD, &ids.conversation, &ids.deleted, &ids.message, &ids.settled, &ids.queued, &ids.running];
    let space =
        [SPACE_WORD, &ids.workspace, &ids.key, &ids.user, &ids.agent, &ids.page, &ids.table, &ids.row];
    let holds = |words: &[&str]| words.iter().any(|word| text.contains(word));
    holds(&thread) || (class == Class::Foreign && holds(&space))
}
