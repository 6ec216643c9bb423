//! Reading the document of a create or an update: bytes in, typed and checked values out, or every error of
//! the document at once, each with its pointer.

use domain::conversation::{ConversationPatch, Source as Surface};
use domain::json;
use uuid::Uuid;

use super::attributes;
use super::error::{ApiError, ErrorDocument, Source, sentence, shown, shown_json};
use super::members::{Members, child, string};
use super::query::parse_uuid;
use super::{CONVERSATION, WORKSPACE};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Create,
    /// `id` is the one in the path.
    Update {
        id: Uuid,
    },
}

/// What a document asks for.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ConversationWrite {
    /// The client's own id (create), or the path's (update).
    pub id: Option<Uuid>,
    /// The id came as `thread_id` alone.
    pub id_is_attribute: bool,
    /// The workspace that the relationship names.
    pub workspace: Option<Uuid>,
    /// Only ever set by a create.
    pub source: Option<Surface>,
    /// On a create, tabs and active key fit each other. On an update that sets one of the two, whoever holds
    /// the stored other one checks them together.
    pub patch: ConversationPatch,
}

impl ConversationWrite {
    /// Where the document says its id.
    pub fn id_source(&self) -> Source {
        Source::pointer(if self.id_is_attribute { "/data/attributes/thread_id" } else { "/data/id" })
    }

    /// A conversation never moves: an update may name its workspace, but no other one.
    pub fn check_workspace(&self, stored: Uuid) -> Result<(), ApiError> {
        match self.workspace {
            Some(named) if named != stored => Err(ApiError::read_only_field(
                Source::pointer("/data/relationships/workspace"),
                "A conversation stays in its workspace; leave the relationship out.",
            )),
            _ => Ok(()),
        }
    }
}

/// Reads a document whose size was limited before. `max_tabs` is the operator's limit.
pub fn read(bytes: &[u8], operation: Operation, max_tabs: usize) -> Result<ConversationWrite, ErrorDocument> {
    let not_json = |pointer, detail| ErrorDocument::from(malformed(pointer, detail));
    json::check_kept(bytes).map_err(|fault| not_json(fault.pointer.clone(), sentence(&fault.to_string())))?;
    let text = std::str::from_utf8(bytes).map_err(|fault| not_json(String::new(), fault.to_string()))?;
    let mut reader = Reader { operation, max_tabs, errors: ErrorDocument::default() };
    let write = reader.document(text).unwrap_or_default();
    reader.errors.or(write)
}

fn malformed(pointer: impl Into<String>, detail: impl Into<String>) -> ApiError {
    ApiError::malformed_document(Source::pointer(pointer), detail)
}

struct Reader {
    operation: Operation,
    max_tabs: usize,
    errors: ErrorDocument,
}

impl Reader {
    /// `None` only after an error that leaves nothing to read.
    fn document(&mut self, text: &str) -> Option<ConversationWrite> {
        let top = self.object(text, "", Some(&["data", "jsonapi", "meta", "links"]))?;
        for name in ["jsonapi", "meta", "links"] {
            if let Some(value) = top.get(name) {
                self.object(value, &child("", name), None);
            }
        }
        let Some(data) = top.get("data") else {
            self.errors.push(malformed("", "The document has no data; send { \"data\": { … } }."));
            return None;
        };
        let known = ["type", "id", "lid", "attributes", "relationships", "links", "meta"];
        let data = self.object(data, "/data", Some(&known))?;
        self.check_type(&data);
        let id = self.id(&data);
        let workspace = data.get("relationships").and_then(|text| self.relationships(text));
        let mut write = ConversationWrite { id, workspace, ..ConversationWrite::default() };
        let sent = match data.get("attributes") {
            Some(text) => self.object(text, "/data/attributes", None),
            None => Members::parse("{}"),
        };
        if let Some(sent) = sent {
            attributes::read(&sent, self.operation, self.max_tabs, &mut write, &mut self.errors);
        }
        Some(write)
    }

    /// An object at a place, holding only members that are `known`, if they are listed.
    fn object<'a>(&mut self, text: &'a str, at: &str, known: Option<&[&str]>) -> Option<Members<'a>> {
        let Some(members) = Members::parse(text) else {
            let what = if at.is_empty() { "The document" } else { at };
            self.errors.push(malformed(at, format!("{what} must be an object.")));
            return None;
        };
        if let Some(known) = known {
            for (name, _) in members.iter().filter(|(name, _)| !known.contains(name)) {
                let detail = format!("{} has no place here; known are {}.", shown(name), known.join(", "));
                self.errors.push(malformed(child(at, name), detail));
            }
        }
        Some(members)
    }

    fn check_type(&mut self, data: &Members<'_>) {
        let error = match data.get("type").map(string) {
            None => {
                malformed("/data", format!("The resource has no type; send \"type\": \"{CONVERSATION}\"."))
            }
            Some(None) => malformed("/data/type", "type must be a string."),
            Some(Some(kind)) if kind == CONVERSATION => return,
            Some(Some(kind)) => ApiError::type_conflict(
                Source::pointer("/data/type"),
                format!("The type is {}; this collection holds {CONVERSATION}.", shown(&kind)),
            ),
        };
        self.errors.push(error);
    }

    fn id(&mut self, data: &Members<'_>) -> Option<Uuid> {
        let at = || Source::pointer("/data/id");
        let sent = data.get("id").map(|text| string(text).ok_or(text));
        let error = match (self.operation, sent) {
            (Operation::Create, None) => return None,
            (Operation::Update { .. }, None) => {
                malformed("/data", "The resource has no id; send the id that is in the path.")
            }
            (_, Some(Err(text))) => {
                ApiError::invalid_value(at(), format!("id is {}; it must be a string.", shown_json(text)))
            }
            (Operation::Create, Some(Ok(id))) => match parse_uuid(&id) {
                Some(id) => return Some(id),
                None => ApiError::invalid_value(at(), format!("id is {}; it must be a UUID.", shown(&id))),
            },
            (Operation::Update { id: path }, Some(Ok(id))) => match parse_uuid(&id) {
                Some(id) if id == path => return Some(id),
                _ => ApiError::id_conflict(at(), format!("id is {}; the path names {path}.", shown(&id))),
            },
        };
        self.errors.push(error);
        None
    }

    fn relationships(&mut self, text: &str) -> Option<Uuid> {
        let at = "/data/relationships";
        let sent = self.object(text, at, None)?;
        for (name, _) in sent.iter().filter(|(name, _)| *name != WORKSPACE) {
            self.errors.push(ApiError::unknown_field(
                Source::pointer(child(at, name)),
                format!("{} is not a relationship of {CONVERSATION}.", shown(name)),
            ));
        }
        let at = "/data/relationships/workspace";
        let workspace = self.object(sent.get(WORKSPACE)?, at, Some(&["data", "links", "meta"]))?;
        let Some(data) = workspace.get("data") else {
            self.errors
                .push(malformed(at, "The relationship has no data; name a workspace or leave it out."));
            return None;
        };
        self.linkage(data, "/data/relationships/workspace/data")
    }

    fn linkage(&mut self, text: &str, at: &str) -> Option<Uuid> {
        let invalid = |pointer, detail: &str| ApiError::invalid_value(Source::pointer(pointer), detail);
        if text == "null" {
            self.errors.push(invalid(at.into(), "A conversation always has a workspace; name one."));
            return None;
        }
        let linkage = self.object(text, at, Some(&["type", "id", "meta"]))?;
        let (kind, id) = (linkage.get("type"), linkage.get("id"));
        for (name, value) in [("type", kind), ("id", id)] {
            if value.is_none() {
                self.errors.push(malformed(at, format!("The resource identifier has no {name}.")));
            }
        }
        if kind.is_some_and(|kind| string(kind).as_deref() != Some(WORKSPACE)) {
            self.errors.push(invalid(child(at, "type"), "The type of a workspace is \"workspace\"."));
        }
        let workspace = string(id?).and_then(|id| parse_uuid(&id));
        if workspace.is_none() {
            self.errors.push(invalid(child(at, "id"), "The id of a workspace is a UUID."));
        }
        workspace
    }
}
