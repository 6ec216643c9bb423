//! One row for every route: what it is about, who may use it, and how to ask it for something.
//! `every_route_has_a_row` holds the table against the router's own list.

use std::collections::BTreeSet;

use domain::time::{Clock as _, SystemClock};
use reqwest::Method;
use serde_json::{Value, json};

/// What a route is about, and so what a caller who may not see that gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// No credential is asked for.
    Open,
    /// The caller itself.
    Own,
    /// The caller itself, where it is a person; a key gets 403.
    Person,
    /// The workspace that a parameter, a header or the body names.
    List,
    /// The workspace in the path.
    Workspace,
    /// A thing in the path, in the workspace that a parameter or a header names.
    Item,
    /// As `Item`, of a thing that the whole workspace has: its members may.
    Shared,
    /// A run's own, for its sandbox, or what a signed link is for: nobody's credential opens it.
    Run,
}

pub struct Row {
    pub method: Method,
    pub path: &'static str,
    pub kind: Kind,
    pub admin: bool,
    /// Query strings beside the naming of a workspace.
    pub queries: &'static [&'static str],
    pub body: fn(&Ids) -> Value,
    /// Sent as a form with one file, instead of a body.
    pub form: bool,
    /// What it changes is in no list.
    pub unseen: bool,
    /// What is told of a thing that is not there.
    pub absent: u16,
}

/// Everything that a path or a body can name.
#[derive(Debug, Clone)]
pub struct Ids {
    pub workspace: String,
    pub conversation: String,
    /// One that no run holds.
    pub idle: String,
    /// Its message.
    pub item: String,
    pub deleted: String,
    /// The first message of the conversation.
    pub message: String,
    /// A run of the conversation that has ended, and one that waits.
    pub settled: String,
    pub queued: String,
    /// One under way, and a call of it that waits for a person.
    pub running: String,
    pub approval: String,
    pub agent: String,
    /// The name of a tool server.
    pub tools: String,
    pub page: String,
    pub table: String,
    pub row: String,
    /// A file of the conversation, one that is promised to it, and one of the workspace.
    pub file: String,
    pub promised: String,
    pub shared: String,
    pub execution: String,
    pub key: String,
    pub user: String,
}

impl Row {
    fn new(method: Method, path: &'static str, kind: Kind) -> Self {
        Self {
            method,
            path,
            kind,
            admin: false,
            queries: &[""],
            body: |_| Value::Null,
            form: false,
            unseen: false,
            absent: 404,
        }
    }

    fn admin(self) -> Self {
        Self { admin: true, ..self }
    }

    fn queries(self, queries: &'static [&'static str]) -> Self {
        Self { queries, ..self }
    }

    fn body(self, body: fn(&Ids) -> Value) -> Self {
        Self { body, ..self }
    }

    fn form(self) -> Self {
        Self { form: true, ..self }
    }

    fn unseen(self) -> Self {
        Self { unseen: true, ..self }
    }

    fn absent(self, absent: u16) -> Self {
        Self { absent, ..self }
    }

    pub fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    /// The path about these things.
    pub fn fill(&self, ids: &Ids) -> String {
        let id = match self.path {
            path if path.starts_with("/v1/workspaces") => &ids.workspace,
            path if path.starts_with("/v1/api-keys") => &ids.key,
            path if path.ends_with("/restore") => &ids.deleted,
            "/v1/runs/{id}/events" | "/v1/runs/{id}/trace" => &ids.settled,
            "/v1/runs/{id}/approvals" => &ids.running,
            "/v1/responses/{id}/cancel" => &ids.running,
            path if path.starts_with("/v1/responses") => &ids.settled,
            path if path.starts_with("/v1/conversations") => &ids.idle,
            path if path.starts_with("/v1/agents") => &ids.agent,
            path if path.starts_with("/v1/pages") => &ids.page,
            path if path.starts_with("/v1/tables") => &ids.table,
            path if path.starts_with("/v1/runs") => &ids.queued,
            path if path.starts_with("/v1/executions") => &ids.execution,
            "/v1/files/{id}" => &ids.shared,
            path if path.starts_with("/v1/files") => &ids.file,
            _ => &ids.conversation,
        };
        // The first branch of a conversation has its id.
        let path =
            self.path.replace("{id}", id).replace("{user}", &ids.user).replace("{branch}", &ids.conversation);
        let path = path.replace("{workspace}", &ids.workspace).replace("{run}", &ids.settled);
        let path = path.replace("{item}", &format!("msg_{}", ids.item.replace('-', "")));
        let file = if path.contains("/uploads/") { &ids.promised } else { &ids.file };
        path.replace("{name}", &ids.tools)
            .replace("{file}", file)
            .replace("{link}", "not-a-link")
            .replace("{row}", &ids.row)
            .replace("{model}", "demo/assistant")
    }
}

const CONVERSATIONS: &str = "/v1/chat-conversations";
const CONVERSATION: &str = "/v1/chat-conversations/{id}";
const FILES: &str = "/v1/chat-conversations/{id}/files";

pub fn table() -> Vec<Row> {
    use Kind::{Item, List, Open, Own, Person, Run, Shared, Workspace};
    use Method as M;
    vec![
        Row::new(M::GET, "/", Open),
        Row::new(M::GET, "/login", Open),
        Row::new(M::GET, "/healthz", Open),
        Row::new(M::GET, "/readyz", Open),
        Row::new(M::GET, "/metrics", Open),
        Row::new(M::GET, "/openapi.json", Open),
        Row::new(M::GET, "/v1/session", Own),
        Row::new(M::POST, "/v1/session", Person),
        Row::new(M::DELETE, "/v1/session", Own),
        Row::new(M::GET, "/v1/workspaces", Own),
        Row::new(M::POST, "/v1/workspaces", Person).body(|_| json!({ "name": "Another" })),
        Row::new(M::GET, "/v1/workspaces/{id}", Workspace),
        Row::new(M::PATCH, "/v1/workspaces/{id}", Workspace)
            .admin()
            .body(|_| json!({ "name": "Taken over", "default_visibility": "workspace" })),
        Row::new(M::DELETE, "/v1/workspaces/{id}", Workspace).admin().queries(&["", "cascade=true"]),
        Row::new(M::GET, "/v1/workspaces/{id}/members", Workspace),
        Row::new(M::POST, "/v1/workspaces/{id}/members", Workspace)
            .admin()
            .body(|ids| json!({ "user": ids.user, "role": "admin" })),
        Row::new(M::DELETE, "/v1/workspaces/{id}/members/{user}", Workspace).admin(),
        Row::new(M::GET, "/v1/api-keys", List).admin(),
        Row::new(M::POST, "/v1/api-keys", List)
            .admin()
            .body(|ids| json!({ "name": "taken over", "role": "admin", "workspace": ids.workspace })),
        Row::new(M::DELETE, "/v1/api-keys/{id}", Item).admin(),
        Row::new(M::GET, "/v1/audit", List).admin(),
        Row::new(M::GET, CONVERSATIONS, List).queries(&[
            "",
            // A beginning of the word: links repeat the query.
            "filter[query]=secretthr",
            "filter[deleted]=true",
            "include=workspace&fields[chat_conversation]=title,messages,context",
        ]),
        Row::new(M::POST, CONVERSATIONS, List).body(|ids| {
            let workspace = json!({ "data": { "type": "workspace", "id": ids.workspace } });
            json!({ "data": { "type": "chat_conversation", "attributes": { "title": "Planted" },
                    "relationships": { "workspace": workspace } } })
        }),
        Row::new(M::GET, CONVERSATION, Item).queries(&["", "page[messages]=1", "include=workspace"]),
        Row::new(M::PATCH, CONVERSATION, Item).body(|ids| {
            json!({ "data": { "type": "chat_conversation", "id": ids.conversation,
                    "attributes": { "title": "Taken over", "visibility": "workspace" } } })
        }),
        Row::new(M::DELETE, CONVERSATION, Item),
        Row::new(M::POST, "/v1/chat-conversations/{id}/restore", Item),
        Row::new(M::POST, "/v1/chat-conversations/{id}/fork", Item)
            .body(|ids| json!({ "through": ids.message })),
        Row::new(M::GET, "/v1/chat-conversations/{id}/branches", Item),
        Row::new(M::POST, "/v1/chat-conversations/{id}/branches/{branch}/select", Item),
        Row::new(M::GET, "/v1/chat-conversations/{id}/runs", Item).queries(&["", "limit=1"]),
        Row::new(M::GET, "/v1/chat-conversations/{id}/queue", Item),
        Row::new(M::DELETE, "/v1/chat-conversations/{id}/lock", Item),
        Row::new(M::POST, "/v1/turns", List)
            .queries(&["", "wire=ndjson"])
            .body(|ids| json!({ "message": "Planted", "workspace": ids.workspace })),
        Row::new(M::GET, "/v1/runs/{id}", Item),
        Row::new(M::PATCH, "/v1/runs/{id}", Item).body(|_| json!({ "message": "Taken over" })),
        Row::new(M::GET, "/v1/runs/{id}/events", Item).queries(&["", "after=1", "wire=ndjson"]),
        Row::new(M::POST, "/v1/runs/{id}/cancel", Item),
        Row::new(M::GET, "/v1/runs/{id}/trace", Item).queries(&["", "limit=1"]),
        Row::new(M::GET, FILES, Item).queries(&["", "limit=1"]),
        Row::new(M::POST, FILES, Item).form(),
        Row::new(M::GET, "/v1/chat-conversations/{id}/files/{file}/content", Item),
        Row::new(M::DELETE, "/v1/chat-conversations/{id}/files/{file}", Item),
        Row::new(M::POST, "/v1/chat-conversations/{id}/files/uploads", Item)
            .body(|_| json!({ "name": "planted", "size": 1, "sha256": "0".repeat(64) }))
            .unseen(),
        Row::new(M::POST, "/v1/chat-conversations/{id}/files/uploads/{file}/complete", Item),
        Row::new(M::POST, "/v1/executions", List)
            .body(|ids| json!({ "prompt": "Planted", "workspace": ids.workspace }))
            .unseen(),
        Row::new(M::GET, "/v1/executions/{id}", Item),
        Row::new(M::GET, "/v1/files", List).queries(&["", "limit=1"]),
        Row::new(M::POST, "/v1/files", Item).body(|ids| json!({ "from": ids.file })),
        Row::new(M::GET, "/v1/files/{id}/content", Item),
        Row::new(M::DELETE, "/v1/files/{id}", Shared),
        Row::new(M::GET, "/v1/agent/{workspace}/{run}/config", Run),
        Row::new(M::POST, "/v1/agent/{workspace}/{run}/results", Run).form(),
        Row::new(M::GET, "/v1/assets/{link}/assets.zip", Run),
        Row::new(M::PUT, "/v1/uploads/{link}", Run),
        Row::new(M::GET, "/v1/runs/{id}/approvals", Item),
        Row::new(M::POST, "/v1/runs/{id}/approvals", Item)
            .body(|ids| json!({ "id": ids.approval, "approve": true })),
        Row::new(M::GET, "/v1/agents", List).queries(&["", "limit=1"]),
        Row::new(M::POST, "/v1/agents", List)
            .admin()
            .body(|ids| json!({ "name": "Planted", "workspace": ids.workspace })),
        Row::new(M::GET, "/v1/agents/{id}", Shared),
        Row::new(M::PATCH, "/v1/agents/{id}", Item).admin().body(|_| json!({ "name": "Taken over" })),
        Row::new(M::DELETE, "/v1/agents/{id}", Item).admin(),
        Row::new(M::GET, "/v1/tool-servers", List).queries(&["", "limit=1"]),
        Row::new(M::POST, "/v1/tool-servers", List).admin().body(
            |ids| json!({ "name": "planted", "url": "http://127.0.0.1:9/mcp", "workspace": ids.workspace }),
        ),
        Row::new(M::DELETE, "/v1/tool-servers/{name}", Item).admin(),
        Row::new(M::POST, "/v1/tool-servers/{name}/approve", Item)
            .admin()
            .body(|_| json!({ "tool": "t", "hash": "0".repeat(64) })),
        Row::new(M::GET, "/v1/tools", List),
        Row::new(M::POST, "/v1/ai/chat", List).body(|ids| {
            let message = json!({ "role": "user", "parts": [{ "type": "text", "text": "Planted" }] });
            json!({ "message": message, "workspace": ids.workspace })
        }),
        Row::new(M::GET, "/v1/ai/chat/{id}", Item),
        // A chat that nobody has heard of is idle.
        Row::new(M::GET, "/v1/ai/chat/{id}/stream", Item).absent(204),
        Row::new(M::POST, "/v1/ai/chat/{id}/stop", Item),
        Row::new(M::POST, "/v1/ag-ui", List).body(|ids| {
            let messages = json!([{ "id": "m", "role": "user", "content": "Planted" }]);
            let props = json!({ "workspace": ids.workspace });
            let thread = SystemClock.new_id().to_string();
            json!({ "threadId": thread, "messages": messages, "forwardedProps": props })
        }),
        // A thread that nobody has heard of is empty.
        Row::new(M::POST, "/v1/ag-ui/connect", List).unseen().body(|ids| {
            json!({ "threadId": "planted", "runId": "r", "forwardedProps": { "workspace": ids.workspace } })
        }),
        Row::new(M::POST, "/v1/responses", Item).body(|ids| {
            json!({ "model": "demo/assistant", "input": "Planted", "conversation": ids.idle })
        }),
        Row::new(M::GET, "/v1/responses/{id}", Item).queries(&["", "stream=true", "stream=true&starting_after=1"]),
        Row::new(M::DELETE, "/v1/responses/{id}", Item).unseen(),
        Row::new(M::POST, "/v1/responses/{id}/cancel", Item),
        Row::new(M::GET, "/v1/responses/{id}/input_items", Item).queries(&["", "limit=1&order=asc"]),
        Row::new(M::GET, "/v1/conversations", List).queries(&["", "limit=1&order=asc"]),
        Row::new(M::POST, "/v1/conversations", List).body(|ids| {
            json!({ "metadata": { "a": "b" }, "workspace": ids.workspace })
        }),
        Row::new(M::GET, "/v1/conversations/{id}", Item),
        Row::new(M::POST, "/v1/conversations/{id}", Item).body(|_| json!({ "metadata": { "a": "b" } })).unseen(),
        Row::new(M::DELETE, "/v1/conversations/{id}", Item),
        Row::new(M::GET, "/v1/conversations/{id}/items", Item).queries(&["", "limit=1"]),
        Row::new(M::POST, "/v1/conversations/{id}/items", Item).body(|_| {
            json!({ "items": [{ "type": "message", "role": "user", "content": "Planted" }] })
        }),
        Row::new(M::GET, "/v1/conversations/{id}/items/{item}", Item),
        Row::new(M::DELETE, "/v1/conversations/{id}/items/{item}", Item),
        Row::new(M::GET, "/v1/export", List).admin().queries(&["", "format=html", "format=zip"]),
        Row::new(M::GET, "/v1/pages", List).queries(&["", "limit=1", "query=secretsp"]),
        Row::new(M::POST, "/v1/pages", List)
            .body(|ids| json!({ "title": "Planted", "body": "", "workspace": ids.workspace }))
            .unseen(),
        Row::new(M::GET, "/v1/pages/{id}", Shared),
        Row::new(M::PUT, "/v1/pages/{id}", Shared).body(|_| json!({ "title": "Taken over" })),
        Row::new(M::DELETE, "/v1/pages/{id}", Shared),
        Row::new(M::GET, "/v1/tables", List).queries(&["", "limit=1"]),
        Row::new(M::POST, "/v1/tables", List)
            .body(|ids| {
                let columns = json!([{ "name": "a", "type": "text" }]);
                json!({ "name": "Planted", "columns": columns, "workspace": ids.workspace })
            })
            .unseen(),
        Row::new(M::GET, "/v1/tables/{id}", Shared),
        Row::new(M::PUT, "/v1/tables/{id}", Shared).body(|_| json!({ "name": "Taken over" })),
        Row::new(M::DELETE, "/v1/tables/{id}", Shared),
        Row::new(M::GET, "/v1/tables/{id}/rows", Shared).queries(&["", "limit=1", "query=secretsp"]),
        Row::new(M::POST, "/v1/tables/{id}/rows", Shared).body(|_| json!({ "rows": [{ "a": "Planted" }] })),
        Row::new(M::GET, "/v1/tables/{id}/rows/{row}", Shared),
        Row::new(M::PUT, "/v1/tables/{id}/rows/{row}", Shared).body(|_| json!({ "a": "Taken over" })),
        Row::new(M::DELETE, "/v1/tables/{id}/rows/{row}", Shared),
        Row::new(M::POST, "/v1/tables/{id}/import", Shared).body(|_| json!([{ "a": "Planted" }])),
        Row::new(M::GET, "/v1/tables/{id}/export", Shared).queries(&["", "format=json"]),
        Row::new(M::GET, "/v1/models", Own),
        Row::new(M::GET, "/v1/models/{model}", Own),
        Row::new(M::POST, "/v1/chat/completions", List)
            .body(|ids| {
                let messages = json!([{ "role": "user", "content": "think 1 word" }]);
                json!({ "model": "demo/assistant", "messages": messages, "workspace": ids.workspace })
            })
            .unseen(),
        Row::new(M::POST, "/v1/messages", List)
            .body(|ids| {
                let messages = json!([{ "role": "user", "content": "think 1 word" }]);
                json!({ "model": "demo/assistant", "max_tokens": 100, "messages": messages,
                    "workspace": ids.workspace })
            })
            .unseen(),
        Row::new(M::GET, "/v1/usage", List).queries(&["", "days=7"]),
    ]
}

/// The router's own list.
fn listed() -> BTreeSet<String> {
    let api: Value = serde_json::from_str(&server::router::openapi_json()).unwrap();
    let paths = api["paths"].as_object().unwrap();
    let operations = paths.iter().flat_map(|(path, methods)| {
        let methods = methods.as_object().unwrap().keys();
        methods.map(move |method| format!("{} {path}", method.to_uppercase()))
    });
    operations.collect()
}

#[test]
fn every_route_has_a_row_and_every_row_a_route() {
    let rows: BTreeSet<String> = table().iter().map(Row::name).collect();
    let listed = listed();
    assert!(listed.len() > 20, "the router's list is read wrongly: {listed:?}");
    let missing: Vec<_> = listed.difference(&rows).collect();
    assert!(missing.is_empty(), "routes without a row in tests/tenancy/routes.rs: {missing:?}");
    let stale: Vec<_> = rows.difference(&listed).collect();
    assert!(stale.is_empty(), "rows without a route: {stale:?}");
    // What is mounted in another way than by `routes!` would not be in that list.
    let router = include_str!("../../src/router.rs");
    for other in [".route(", ".route_service(", ".nest(", ".nest_service("] {
        assert!(!router.contains(other), "router.rs mounts a route by {other}, which no list knows of");
    }
}
