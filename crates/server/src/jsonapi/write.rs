//! Writing answers: resources and their document as JSON text in one pass. An attribute's value is asked for
//! only when the answer shows it, and is appended as it is: ready JSON is never parsed again.

use jiff::Timestamp;
use serde::Serialize;
use uuid::Uuid;

use super::WORKSPACE;

/// The place of one value; each way of writing it uses the place up, so there is never a second one.
pub struct Out<'a>(&'a mut Vec<u8>);

impl Out<'_> {
    /// Text that is a JSON value already.
    pub fn raw(self, json: &str) {
        self.0.extend_from_slice(json.as_bytes());
    }

    /// A string, number, `Option` or small struct.
    pub fn value(self, value: &(impl Serialize + ?Sized)) {
        push(self.0, value);
    }

    pub fn time(self, at: Timestamp) {
        push(self.0, &domain::time::rfc3339(at));
    }

    pub fn optional_time(self, at: Option<Timestamp>) {
        push(self.0, &at.map(domain::time::rfc3339));
    }
}

/// What a resource is, apart from its attributes.
pub struct Resource<'a> {
    pub kind: &'static str,
    pub id: Uuid,
    pub self_link: Option<&'a str>,
    /// The linkage of `relationships.workspace`, where it is shown.
    pub workspace: Option<Uuid>,
    /// Ready JSON of an object.
    pub meta: Option<&'a str>,
}

/// A list of resources under way.
pub struct Items {
    out: Vec<u8>,
    empty: bool,
}

impl Items {
    fn after(prefix: &[u8]) -> Self {
        Self { out: prefix.to_vec(), empty: true }
    }

    /// Adds a resource. `fields` are the names that are shown, in order; `value` is called once for each.
    pub fn add<F>(
        &mut self,
        resource: &Resource<'_>,
        fields: impl IntoIterator<Item = (&'static str, F)>,
        value: impl FnMut(F, Out<'_>),
    ) {
        if !std::mem::replace(&mut self.empty, false) {
            self.out.push(b',');
        }
        push_resource(&mut self.out, resource, fields, value);
    }
}

/// A document whose primary data is written; what is included may follow, then `finish`.
pub struct Document(Vec<u8>);

impl Document {
    /// A document of one resource; the arguments are those of `Items::add`.
    pub fn one<F>(
        resource: &Resource<'_>,
        fields: impl IntoIterator<Item = (&'static str, F)>,
        value: impl FnMut(F, Out<'_>),
    ) -> Self {
        let mut out = br#"{"jsonapi":{"version":"1.1"},"data":"#.to_vec();
        push_resource(&mut out, resource, fields, value);
        Self(out)
    }

    /// A document of a list.
    pub fn many(write: impl FnOnce(&mut Items)) -> Self {
        let mut items = Items::after(br#"{"jsonapi":{"version":"1.1"},"data":["#);
        write(&mut items);
        items.out.push(b']');
        Self(items.out)
    }

    /// Adds `included`, called once at most, when the client asked for it; each resource is in it once.
    #[must_use]
    pub fn including(mut self, write: impl FnOnce(&mut Items)) -> Self {
        self.0.extend_from_slice(br#","included":["#);
        let mut items = Items { out: self.0, empty: true };
        write(&mut items);
        items.out.push(b']');
        Self(items.out)
    }

    /// Closes the document. A link that is `None` is written as null: there is no such page. `meta` is the
    /// ready JSON of an object.
    pub fn finish(self, links: &[(&'static str, Option<&str>)], meta: Option<&str>) -> Vec<u8> {
        let mut out = self.0;
        if !links.is_empty() {
            out.extend_from_slice(br#","links":"#);
            push_object(&mut out, links.iter().copied(), |link, place| place.value(&link));
        }
        if let Some(meta) = meta {
            out.extend_from_slice(br#","meta":"#);
            out.extend_from_slice(meta.as_bytes());
        }
        out.push(b'}');
        out
    }
}

fn push_resource<F>(
    out: &mut Vec<u8>,
    resource: &Resource<'_>,
    fields: impl IntoIterator<Item = (&'static str, F)>,
    value: impl FnMut(F, Out<'_>),
) {
    out.extend_from_slice(br#"{"type":"#);
    push(out, resource.kind);
    out.extend_from_slice(br#","id":"#);
    push(out, &resource.id);
    out.extend_from_slice(br#","attributes":"#);
    push_object(out, fields, value);
    if let Some(workspace) = &resource.workspace {
        out.extend_from_slice(br#","relationships":{"workspace":{"data":{"type":"#);
        push(out, WORKSPACE);
        out.extend_from_slice(br#","id":"#);
        push(out, workspace);
        out.extend_from_slice(b"}}}");
    }
    if let Some(link) = resource.self_link {
        out.extend_from_slice(br#","links":{"self":"#);
        push(out, link);
        out.push(b'}');
    }
    if let Some(meta) = resource.meta {
        out.extend_from_slice(br#","meta":"#);
        out.extend_from_slice(meta.as_bytes());
    }
    out.push(b'}');
}

fn push_object<F>(
    out: &mut Vec<u8>,
    members: impl IntoIterator<Item = (&'static str, F)>,
    mut value: impl FnMut(F, Out<'_>),
) {
    out.push(b'{');
    for (index, (name, member)) in members.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        push(out, name);
        out.push(b':');
        value(member, Out(out));
    }
    out.push(b'}');
}

fn push(out: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    let before = out.len();
    if serde_json::to_writer(&mut *out, value).is_err() {
        // Only a map with keys that are not strings gets here; null keeps the document whole.
        out.truncate(before);
        out.extend_from_slice(b"null");
    }
}

#[cfg(test)]
mod tests {
    use domain::time::from_ms;
    use serde_json::{Value, json};

    use super::*;
    use crate::jsonapi::CONVERSATION;
    use crate::jsonapi::field::{Field, FieldSet, WorkspaceField};

    fn conversation(n: u128) -> Resource<'static> {
        let (id, workspace) = (Uuid::from_u128(n), Some(Uuid::from_u128(9)));
        let self_link = Some("/v1/chat-conversations/1?a=\"b\"");
        Resource { kind: CONVERSATION, id, self_link, workspace, meta: None }
    }

    fn parse(bytes: &[u8]) -> Value {
        serde_json::from_slice(bytes).unwrap()
    }

    #[test]
    fn only_shown_attributes_are_computed_and_raw_text_is_kept() {
        let fields = FieldSet::NONE.with(Field::Title).with(Field::Context).with(Field::UpdatedAt);
        let mut computed = Vec::new();
        let document = Document::one(&conversation(1), fields.named(), |field, out| {
            computed.push(field);
            match field {
                Field::Title => out.value("a \"title\"\n"),
                Field::Context => out.raw(r#"{ "z": 1.50, "a": 1E2 }"#),
                Field::UpdatedAt => out.time(from_ms(0)),
                _ => out.optional_time(None),
            }
        });
        assert_eq!(computed, [Field::Title, Field::Context, Field::UpdatedAt]);
        let expected = concat!(
            r#"{"jsonapi":{"version":"1.1"},"data":{"type":"chat_conversation","#,
            r#""id":"00000000-0000-0000-0000-000000000001","attributes":{"title":"a \"title\"\n","#,
            r#""context":{ "z": 1.50, "a": 1E2 },"updated_at":"1970-01-01T00:00:00.000Z"},"#,
            r#""relationships":{"workspace":{"data":{"type":"workspace","#,
            r#""id":"00000000-0000-0000-0000-000000000009"}}},"#,
            r#""links":{"self":"/v1/chat-conversations/1?a=\"b\""}}}"#,
        );
        assert_eq!(String::from_utf8(document.finish(&[], None)).unwrap(), expected);
    }

    #[test]
    fn a_list_has_its_parts() {
        let document = Document::many(|items| {
            for n in 1..=2 {
                let resource = Resource { workspace: None, self_link: None, ..conversation(n) };
                let resource = Resource { meta: Some(r#"{"group":"today"}"#), ..resource };
                items.add(&resource, FieldSet::NONE.named(), |_, out| out.raw("null"));
            }
        });
        let document = document.including(|items| {
            let (kind, id) = (WORKSPACE, Uuid::from_u128(9));
            let resource = Resource { kind, id, self_link: None, workspace: None, meta: None };
            let fields = [WorkspaceField::Name].map(|field| (field.name(), field));
            items.add(&resource, fields, |_, out| out.value(&Some("Home")));
        });
        let links = [("self", Some("/v1/chat-conversations")), ("next", None)];
        let item = |n: u32| {
            json!({
                "type": "chat_conversation", "id": format!("00000000-0000-0000-0000-00000000000{n}"),
                "attributes": {}, "meta": { "group": "today" }
            })
        };
        let expected = json!({
            "jsonapi": { "version": "1.1" },
            "data": [item(1), item(2)],
            "included": [{
                "type": "workspace", "id": "00000000-0000-0000-0000-000000000009",
                "attributes": { "name": "Home" }
            }],
            "links": { "self": "/v1/chat-conversations", "next": null },
            "meta": { "total": 2 }
        });
        assert_eq!(parse(&document.finish(&links, Some(r#"{"total":2}"#))), expected);
    }

    #[test]
    fn an_empty_list_is_a_document_too() {
        let document = Document::many(|_| {}).including(|_| {}).finish(&[], None);
        assert_eq!(parse(&document), json!({ "jsonapi": { "version": "1.1" }, "data": [], "included": [] }));
    }
}
