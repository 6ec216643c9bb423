//! A stored conversation as a JSON:API resource: which attribute has which value, and the links of a page.

use domain::conversation::Conversation;
use domain::message::Message;
use domain::scope::Scope;
use domain::time::rfc3339;
use domain::workspace::Workspace;
use serde::Serialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::field::{Field, WorkspaceField};
use super::params::decode;
use super::query::View;
use super::write::{Document, Items, Out, Resource};
use super::{CONVERSATION, WORKSPACE};

pub const COLLECTION: &str = "/v1/chat-conversations";

/// One conversation as an answer shows it.
pub struct Shown<'a> {
    pub conversation: &'a Conversation,
    pub messages: &'a [Message],
    /// Ready JSON of the resource's `meta`.
    pub meta: Option<String>,
}

/// A message, as seed of `messages`: `content` is the plain text, `parts` the blocks.
#[derive(Serialize)]
struct MessageView<'a> {
    id: Uuid,
    role: &'static str,
    content: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    parts: Option<&'a RawValue>,
    ts: String,
    #[serde(rename = "fileAttachments", skip_serializing_if = "Option::is_none")]
    file_attachments: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sources: Option<&'a RawValue>,
    #[serde(rename = "tokenCount")]
    token_count: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a RawValue>,
    #[serde(rename = "createdAt")]
    created_at: i64,
}

impl<'a> From<&'a Message> for MessageView<'a> {
    fn from(message: &'a Message) -> Self {
        Self {
            id: message.id,
            role: message.role.as_str(),
            content: &message.text,
            parts: serde_json::from_str(&message.content).ok(),
            ts: rfc3339(message.created_at),
            file_attachments: serde_json::from_str(&message.file_attachments).ok(),
            sources: serde_json::from_str(&message.sources).ok(),
            token_count: message.token_count,
            metadata: serde_json::from_str(&message.metadata).ok(),
            created_at: message.created_at.as_millisecond(),
        }
    }
}

fn attribute(shown: &Shown<'_>, field: Field, out: Out<'_>) {
    let it = shown.conversation;
    match field {
        Field::ThreadId => out.value(&it.id),
        Field::Title => out.value(&it.title),
        Field::Mode => out.value(&it.mode),
        Field::Source => out.value(&it.source),
        Field::PagePath => out.value(&it.page_path),
        Field::TotalTokens => out.value(&it.total_tokens),
        Field::Messages => {
            let views: Vec<MessageView<'_>> = shown.messages.iter().map(MessageView::from).collect();
            out.value(&views);
        }
        Field::Context => out.raw(it.context.as_deref().unwrap_or("null")),
        Field::Tabs => out.value(&it.tabs),
        Field::ActiveTabKey => out.value(&it.active_tab_key),
        Field::DeletedAt => out.optional_time(it.deleted_at),
        Field::CreatedAt => out.time(it.created_at),
        Field::UpdatedAt => out.time(it.updated_at),
        Field::Kind => out.value(&it.kind),
        Field::WorkflowId => out.value(&it.workflow_id),
        Field::AgentId => out.value(&it.agent_id),
        Field::Model => out.value(&it.model),
        Field::UserId => out.value(&it.owner),
        Field::OrgId => out.value(&it.org),
        Field::Preview => out.value(&it.preview),
        Field::MessageCount => out.value(&it.message_count),
        Field::ConversationId => out.value(&it.first_message),
        Field::Visibility => out.value(&it.visibility),
    }
}

/// The URL of a conversation.
pub fn self_link(public_url: &str, id: Uuid) -> String {
    format!("{public_url}{COLLECTION}/{id}")
}

fn resource<'a>(shown: &'a Shown<'_>, view: &View, link: &'a str) -> Resource<'a> {
    Resource {
        kind: CONVERSATION,
        id: shown.conversation.id,
        self_link: Some(link),
        workspace: view.fields.has_workspace().then_some(shown.conversation.workspace),
        meta: shown.meta.as_deref(),
    }
}

/// The document of one conversation, without its end.
pub fn one(shown: &Shown<'_>, view: &View, public_url: &str) -> Document {
    let link = self_link(public_url, shown.conversation.id);
    Document::one(&resource(shown, view, &link), view.fields.named(), |field, out| {
        attribute(shown, field, out)
    })
}

/// The document of a list, without its end.
pub fn many<'a>(all: impl Iterator<Item = Shown<'a>>, view: &View, public_url: &str) -> Document {
    Document::many(|items| {
        for shown in all {
            let link = self_link(public_url, shown.conversation.id);
            let resource = resource(&shown, view, &link);
            items.add(&resource, view.fields.named(), |field, out| attribute(&shown, field, out));
        }
    })
}

/// The caller's workspace, for `included`.
pub fn add_workspace(items: &mut Items, workspace: &Workspace, scope: &Scope, view: &View) {
    let resource =
        Resource { kind: WORKSPACE, id: workspace.id, self_link: None, workspace: None, meta: None };
    let fields = view.workspace_fields.iter().map(|field| (field.name(), *field));
    items.add(&resource, fields, |field, out| match field {
        WorkspaceField::Name => out.value(&workspace.name),
        WorkspaceField::OrgId => out.value(&workspace.org),
        WorkspaceField::Role => out.value(&scope.role),
        WorkspaceField::DefaultVisibility => out.value(&workspace.default_visibility),
    });
}

/// The URL of the list that was asked for.
pub fn request_link(public_url: &str, query: &str) -> String {
    link(public_url, query.split('&').filter(|part| !part.is_empty()))
}

/// The URL of another page of the same list: the request's own query with its cursor replaced.
pub fn page_link(public_url: &str, query: &str, side: &str, cursor: &str) -> String {
    let is_cursor = |part: &&str| {
        let name = decode(part.split('=').next().unwrap_or("")).unwrap_or_default();
        name == "page[after]" || name == "page[before]"
    };
    let replaced = format!("page[{side}]={cursor}");
    let kept = query.split('&').filter(|part| !part.is_empty() && !is_cursor(part));
    link(public_url, kept.chain([replaced.as_str()]))
}

fn link<'a>(public_url: &str, parts: impl Iterator<Item = &'a str>) -> String {
    let query = parts.collect::<Vec<_>>().join("&").replace('[', "%5B").replace(']', "%5D");
    let mark = if query.is_empty() { "" } else { "?" };
    format!("{public_url}{COLLECTION}{mark}{query}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_links_keep_the_query_and_replace_the_cursor() {
        let query = "filter[source]=web&page%5Bafter%5D=old&page[size]=2&page[before]=x";
        assert_eq!(
            page_link("http://h", query, "after", "new"),
            "http://h/v1/chat-conversations?filter%5Bsource%5D=web&page%5Bsize%5D=2&page%5Bafter%5D=new"
        );
        assert_eq!(request_link("http://h", ""), "http://h/v1/chat-conversations");
        assert_eq!(
            request_link("http://h", "page[size]=2&"),
            "http://h/v1/chat-conversations?page%5Bsize%5D=2"
        );
        assert_eq!(
            page_link("http://h", "", "before", "c"),
            "http://h/v1/chat-conversations?page%5Bbefore%5D=c"
        );
    }
}
