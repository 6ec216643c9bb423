//! The shapes of requests and answers as the API's description shows them. Nothing is built from these types:
//! answers are written by `write`, documents read by `document`; tests hold the two to each other.

use utoipa::ToSchema;
use uuid::Uuid;

#[derive(ToSchema)]
pub struct JsonApi {
    #[schema(example = "1.1")]
    pub version: String,
}

/// One conversation.
#[derive(ToSchema)]
pub struct ConversationDocument {
    pub jsonapi: JsonApi,
    pub data: ConversationResource,
    /// With `include=workspace`.
    pub included: Option<Vec<WorkspaceResource>>,
    pub links: SelfLink,
}

/// A page of conversations.
#[derive(ToSchema)]
pub struct ConversationListDocument {
    pub jsonapi: JsonApi,
    pub data: Vec<ConversationResource>,
    /// With `include=workspace`.
    pub included: Option<Vec<WorkspaceResource>>,
    pub links: PageLinks,
    pub meta: ListMeta,
}

/// About the page, not about what is on it.
#[derive(ToSchema)]
pub struct ListMeta {
    pub page: PageMeta,
}

#[derive(ToSchema)]
pub struct PageMeta {
    /// How many resources a page of this list may have.
    pub size: u32,
}

#[derive(ToSchema)]
pub struct ConversationResource {
    #[schema(example = "chat_conversation")]
    pub r#type: String,
    pub id: Uuid,
    pub attributes: ConversationAttributes,
    pub relationships: Option<ConversationRelationships>,
    pub links: SelfLink,
    pub meta: Option<ConversationMeta>,
}

/// All of them, or those that `fields[chat_conversation]` names. A list leaves `messages` and `context` out
/// unless they are named.
#[derive(ToSchema)]
pub struct ConversationAttributes {
    #[schema(required = false)]
    pub thread_id: Uuid,
    #[schema(max_length = 255)]
    pub title: Option<String>,
    pub mode: Option<Mode>,
    pub source: Option<Surface>,
    #[schema(max_length = 512)]
    pub page_path: Option<String>,
    #[schema(required = false)]
    pub total_tokens: u64,
    #[schema(required = false)]
    pub messages: Vec<ThreadMessage>,
    /// As the client sent it, to the byte.
    #[schema(value_type = Option<Object>)]
    pub context: Option<()>,
    #[schema(required = false, max_items = 50)]
    pub tabs: Vec<OpenTab>,
    /// The key of one of the tabs.
    #[schema(max_length = 64)]
    pub active_tab_key: Option<String>,
    #[schema(format = DateTime)]
    pub deleted_at: Option<String>,
    #[schema(required = false, format = DateTime)]
    pub created_at: String,
    #[schema(required = false, format = DateTime)]
    pub updated_at: String,
    #[schema(required = false)]
    pub kind: Kind,
    pub workflow_id: Option<String>,
    #[schema(max_length = 255)]
    pub agent_id: Option<String>,
    #[schema(max_length = 255)]
    pub model: Option<String>,
    #[schema(required = false)]
    pub user_id: String,
    #[schema(required = false)]
    pub org_id: String,
    pub preview: Option<String>,
    #[schema(required = false)]
    pub message_count: u64,
    /// The first user message's id.
    pub conversation_id: Option<Uuid>,
    #[schema(required = false)]
    pub visibility: Visibility,
}

#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub enum Mode {
    Ask,
    Agent,
    TaskFlow,
}

/// What created the conversation.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub enum Surface {
    Web,
    Extension,
}

#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub enum Kind {
    AssistantSandbox,
    ModelChat,
}

#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub enum Visibility {
    Private,
    Workspace,
}

#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub enum MessageRole {
    User,
    Assistant,
    System,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct ThreadMessage {
    pub id: Uuid,
    pub role: MessageRole,
    /// The plain text.
    pub content: String,
    /// The content blocks.
    #[schema(value_type = Vec<Object>)]
    pub parts: Option<()>,
    #[schema(format = DateTime)]
    pub ts: String,
    #[schema(value_type = Vec<Object>)]
    pub file_attachments: Option<()>,
    #[schema(value_type = Vec<Object>)]
    pub sources: Option<()>,
    pub token_count: u64,
    #[schema(value_type = Object)]
    pub metadata: Option<()>,
    /// Epoch milliseconds.
    pub created_at: i64,
}

#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct OpenTab {
    /// A UUID for `new_tab`, the `destinationId` for all others.
    #[schema(max_length = 64)]
    pub key: String,
    pub destination_id: String,
    /// Neither climbing, absolute nor protocol-relative.
    #[schema(max_length = 512)]
    pub sub_path: Option<String>,
}

#[derive(ToSchema)]
pub struct ConversationRelationships {
    pub workspace: WorkspaceRelationship,
}

#[derive(ToSchema)]
pub struct WorkspaceRelationship {
    pub data: WorkspaceIdentifier,
}

#[derive(ToSchema)]
pub struct WorkspaceIdentifier {
    #[schema(example = "workspace")]
    pub r#type: String,
    pub id: Uuid,
}

#[derive(ToSchema)]
pub struct WorkspaceResource {
    #[schema(example = "workspace")]
    pub r#type: String,
    pub id: Uuid,
    pub attributes: WorkspaceAttributes,
}

/// All of them, or those that `fields[workspace]` names.
#[derive(ToSchema)]
pub struct WorkspaceAttributes {
    pub name: Option<String>,
    pub org_id: Option<String>,
    /// The caller's role.
    pub role: Option<String>,
    pub default_visibility: Option<Visibility>,
}

/// In lists, with `timeZone` (the first two) and `filter[query]`.
#[derive(ToSchema)]
pub struct ConversationMeta {
    /// `today`, `yesterday`, `previous_7_days`, `previous_30_days` or a month such as `2026-05`.
    pub group: Option<String>,
    /// A run is under way; left out otherwise.
    pub answering: Option<bool>,
    pub highlights: Option<Vec<SearchHighlight>>,
}

#[derive(ToSchema)]
pub struct SearchHighlight {
    /// `title` or `message`.
    pub field: String,
    pub message_id: Option<Uuid>,
    pub text: String,
    /// Start and end of each match in `text`, in characters.
    pub ranges: Vec<Vec<u32>>,
}

#[derive(ToSchema)]
pub struct SelfLink {
    #[schema(rename = "self", format = "uri")]
    pub own: String,
}

#[derive(ToSchema)]
pub struct PageLinks {
    #[schema(rename = "self", format = "uri")]
    pub own: String,
    #[schema(format = "uri")]
    pub prev: Option<String>,
    #[schema(format = "uri")]
    pub next: Option<String>,
}

/// The document of a create or an update.
#[derive(ToSchema)]
pub struct ConversationWriteDocument {
    pub data: ConversationWriteResource,
}

#[derive(ToSchema)]
pub struct ConversationWriteResource {
    #[schema(example = "chat_conversation")]
    pub r#type: String,
    /// The client's own id on a create, the path's on an update.
    pub id: Option<Uuid>,
    pub attributes: Option<ConversationWriteAttributes>,
    pub relationships: Option<ConversationRelationships>,
}

/// What a client may set; the rest is the system's.
#[derive(ToSchema)]
pub struct ConversationWriteAttributes {
    /// On a create: another spelling of the resource's `id`.
    #[schema(nullable = false)]
    pub thread_id: Option<Uuid>,
    #[schema(max_length = 255)]
    pub title: Option<String>,
    pub mode: Option<Mode>,
    /// On a create only.
    pub source: Option<Surface>,
    #[schema(max_length = 512)]
    pub page_path: Option<String>,
    /// At most 256 KiB.
    #[schema(value_type = Option<Object>)]
    pub context: Option<()>,
    #[schema(required = false, max_items = 50)]
    pub tabs: Vec<OpenTab>,
    /// The key of one of the tabs.
    #[schema(max_length = 64)]
    pub active_tab_key: Option<String>,
    #[schema(max_length = 255)]
    pub model: Option<String>,
    #[schema(max_length = 255)]
    pub agent_id: Option<String>,
    #[schema(required = false)]
    pub visibility: Visibility,
}

/// Everything that was wrong with a JSON:API request.
#[derive(ToSchema)]
pub struct ErrorsDocument {
    pub errors: Vec<ErrorObject>,
    pub jsonapi: JsonApi,
}

#[derive(ToSchema)]
pub struct ErrorObject {
    #[schema(example = "422")]
    pub status: String,
    #[schema(example = "invalid_value")]
    pub code: String,
    pub title: String,
    pub detail: String,
    pub source: Option<ErrorSource>,
    /// What else helps: `limit`, `retry_after`.
    #[schema(value_type = Option<Object>)]
    pub meta: Option<()>,
}

/// Where in the request the mistake is: one of the three.
#[derive(ToSchema)]
pub struct ErrorSource {
    /// A JSON pointer into the document.
    #[schema(nullable = false)]
    pub pointer: Option<String>,
    /// A query parameter.
    #[schema(nullable = false)]
    pub parameter: Option<String>,
    #[schema(nullable = false)]
    pub header: Option<String>,
}

/// A failure outside JSON:API, as RFC 9457 has it; members such as `limit` or `retry_after` may follow.
#[derive(ToSchema)]
pub struct ProblemDocument {
    #[schema(example = "urn:threadkeep:problem:not_found")]
    pub r#type: String,
    pub title: String,
    pub status: u16,
    pub detail: String,
    /// Stable.
    #[schema(example = "not_found")]
    pub code: String,
    pub source: Option<ErrorSource>,
}
