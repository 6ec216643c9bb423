//! The attributes of a create or an update: which ones a client may set, and what each may be. Values go into
//! a `ConversationWrite`; what is wrong becomes an error object that points at the attribute.

use domain::context::check_context;
use domain::conversation::{Mode, Source as Surface, Visibility};
use domain::tab::{MAX_KEY_CHARS, Tab, check_tabs};

use super::CONVERSATION;
use super::document::{ConversationWrite, Operation};
use super::error::{ApiError, ErrorDocument, Source, sentence, shown, shown_json};
use super::field::{Field, Writer};
use super::members::{Members, child, elements, string};
use super::query::parse_uuid;

const AT: &str = "/data/attributes";
const MAX_NAME_CHARS: usize = 255;
const MAX_PATH_CHARS: usize = 512;

/// A value, or what is wrong with it.
type Checked<T> = Result<T, String>;

/// Reads every attribute that was `sent`, and then how tabs and active key fit each other.
pub(super) fn read(
    sent: &Members<'_>,
    operation: Operation,
    max_tabs: usize,
    write: &mut ConversationWrite,
    errors: &mut ErrorDocument,
) {
    let mut reader = Reader { operation, write, errors };
    for (name, value) in sent.iter() {
        match Field::parse(name) {
            Some(field) => reader.attribute(field, value),
            None => reader.errors.push(ApiError::unknown_field(
                Source::pointer(child(AT, name)),
                format!("{} is not an attribute of {CONVERSATION}.", shown(name)),
            )),
        }
    }
    reader.fit_tabs(max_tabs, sent.get(Field::Tabs.name()).is_some());
}

struct Reader<'a> {
    operation: Operation,
    write: &'a mut ConversationWrite,
    errors: &'a mut ErrorDocument,
}

impl Reader<'_> {
    fn attribute(&mut self, field: Field, value: &str) {
        match (field.writer(), self.operation) {
            (Writer::System, _) => self.read_only(field, "is set by the system"),
            (Writer::ClientOnce, Operation::Update { id }) => {
                let unchanged =
                    field == Field::ThreadId && string(value).and_then(|v| parse_uuid(&v)) == Some(id);
                if !unchanged {
                    self.read_only(field, "never changes after creation");
                }
            }
            (Writer::ClientOnce | Writer::Client, _) => self.value(field, value),
        }
    }

    fn read_only(&mut self, field: Field, reason: &str) {
        let detail = format!("{} {reason}; leave it out.", field.name());
        self.errors.push(ApiError::read_only_field(Source::pointer(child(AT, field.name())), detail));
    }

    fn value(&mut self, field: Field, value: &str) {
        match field {
            Field::ThreadId => self.thread_id(value),
            Field::Title => self.write.patch.title = self.keep(field, text(value, MAX_NAME_CHARS)),
            Field::Mode => {
                self.write.patch.mode = self.keep(field, optional_word(value, Mode::ALL, Mode::parse))
            }
            Field::Source => {
                let source = optional_word(value, Surface::ALL, Surface::parse);
                self.write.source = self.keep(field, source).flatten();
            }
            Field::PagePath => self.write.patch.page_path = self.keep(field, text(value, MAX_PATH_CHARS)),
            Field::Context => self.context(value),
            Field::Tabs => self.tabs(value),
            Field::ActiveTabKey => {
                self.write.patch.active_tab_key = self.keep(field, text(value, MAX_KEY_CHARS));
            }
            Field::Model => self.write.patch.model = self.keep(field, name(value)),
            Field::AgentId => self.write.patch.agent_id = self.keep(field, name(value)),
            Field::Visibility => {
                let visibility = word(value, Visibility::ALL, Visibility::parse);
                self.write.patch.visibility = self.keep(field, visibility);
            }
            system => self.read_only(system, "is set by the system"),
        }
    }

    fn keep<T>(&mut self, field: Field, checked: Checked<T>) -> Option<T> {
        checked.map_err(|detail| self.invalid(field.name(), &format!("{} {detail}", field.name()))).ok()
    }

    /// `path` is a pointer below the attributes, without its first slash.
    fn invalid(&mut self, path: &str, detail: &str) {
        let pointer = format!("{AT}/{path}");
        self.errors.push(ApiError::invalid_value(Source::pointer(pointer), sentence(detail)));
    }

    /// The other spelling of `data.id`: where both are given they are equal.
    fn thread_id(&mut self, value: &str) {
        let found = string(value).and_then(|text| parse_uuid(&text));
        match (found, self.write.id) {
            (None, _) => self.invalid("thread_id", "thread_id must be a UUID"),
            (Some(thread), Some(id)) if thread != id => {
                self.invalid("thread_id", "thread_id differs from the id of the resource: give one of them");
            }
            (Some(_), Some(_)) => {}
            (Some(thread), None) => {
                self.write.id = Some(thread);
                self.write.id_is_attribute = true;
            }
        }
    }

    fn context(&mut self, value: &str) {
        if value == "null" {
            self.write.patch.context = Some(None);
            return;
        }
        let faults = check_context(value);
        for fault in &faults {
            self.invalid(fault.pointer.trim_start_matches('/'), &fault.detail);
        }
        if faults.is_empty() {
            self.write.patch.context = Some(Some(value.to_owned()));
        }
    }

    fn tabs(&mut self, value: &str) {
        let Some(sent) = elements(value) else {
            return self.invalid("tabs", "tabs must be an array");
        };
        let tabs: Vec<_> = sent.iter().enumerate().filter_map(|(index, tab)| self.tab(index, tab)).collect();
        if tabs.len() == sent.len() {
            self.write.patch.tabs = Some(tabs);
        }
    }

    fn tab(&mut self, index: usize, value: &str) -> Option<Tab> {
        let at = format!("tabs/{index}");
        let Some(members) = Members::parse(value) else {
            self.invalid(&at, "a tab must be an object { key, destinationId, subPath? }");
            return None;
        };
        let unknown = members.iter().find(|(name, _)| !["key", "destinationId", "subPath"].contains(name));
        if let Some((name, _)) = unknown {
            let detail = format!("a tab has no {}: known are key, destinationId, subPath", shown(name));
            self.invalid(&child(&at, name), &detail);
            return None;
        }
        let mut required = |name: &str| {
            let found = members.get(name).and_then(string);
            if found.is_none() {
                let place = if members.get(name).is_some() { child(&at, name) } else { at.clone() };
                self.invalid(&place, &format!("a tab must have a {name}, a string"));
            }
            found
        };
        let (key, destination_id) = (required("key")?, required("destinationId")?);
        let sub_path = match members.get("subPath") {
            None | Some("null") => None,
            Some(_) => Some(required("subPath")?),
        };
        Some(Tab { key, destination_id, sub_path })
    }

    /// A new conversation has no other tabs than those sent. What an update leaves out is only known in the
    /// store, so there the active key is held against the tabs only when both are sent.
    fn fit_tabs(&mut self, max_tabs: usize, tabs_sent: bool) {
        let patch = &self.write.patch;
        let active = patch.active_tab_key.as_ref().and_then(Option::as_deref);
        let faults = match (&patch.tabs, self.operation) {
            (Some(tabs), _) => check_tabs(tabs, active, max_tabs),
            (None, Operation::Create) if !tabs_sent => check_tabs(&[], active, max_tabs),
            (None, _) => Vec::new(),
        };
        for fault in faults {
            self.invalid(fault.pointer.trim_start_matches('/'), &fault.detail);
        }
    }
}

/// Null or a string of at most so many characters, none of them a control character.
fn text(value: &str, max_chars: usize) -> Checked<Option<String>> {
    if value == "null" {
        return Ok(None);
    }
    let text = string(value).ok_or("must be a string or null")?;
    let length = text.chars().count();
    if length > max_chars {
        return Err(format!("has {length} characters, at most {max_chars} are kept"));
    }
    match text.chars().find(|c| c.is_control()) {
        Some(c) => Err(format!("has the control character U+{:04X}: remove it", u32::from(c))),
        None => Ok(Some(text)),
    }
}

fn name(value: &str) -> Checked<Option<String>> {
    match text(value, MAX_NAME_CHARS)? {
        Some(name) if name.trim().is_empty() => Err("is empty: use null for none".into()),
        name => Ok(name),
    }
}

fn optional_word<T>(value: &str, words: &[&str], parse: impl Fn(&str) -> Option<T>) -> Checked<Option<T>> {
    if value == "null" {
        return Ok(None);
    }
    word(value, words, parse).map(Some).map_err(|detail| format!("{detail} or null"))
}

fn word<T>(value: &str, words: &[&str], parse: impl Fn(&str) -> Option<T>) -> Checked<T> {
    let found = string(value).and_then(|text| parse(&text));
    found.ok_or_else(|| format!("is {}: it must be one of {}", shown_json(value), words.join(", ")))
}
