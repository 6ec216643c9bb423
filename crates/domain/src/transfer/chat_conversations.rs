//! ChatConversation rows and resources. Rows from before tabs had keys, before `active_tab_key` and before `source`
//! are brought up to what they are now.

use serde_json::Value;

use super::fields::Fields;
use super::row::{add_messages, read_attributes};
use super::thread::Thread;
use super::{Refusal, derived_id};
use crate::conversation::Source as Surface;
use crate::tab::{NEW_TAB, Tab};

pub fn read(of: &Fields<'_>, max_tabs: usize) -> Result<Thread, Refusal> {
    // A resource has its attributes apart from its id.
    let (row, is_resource) = match of.object(&["attributes"]) {
        Some(mut attributes) => {
            attributes.take_from(of, "id");
            (attributes, true)
        }
        None => (of.clone(), false),
    };
    let row = &row;
    let mut thread = read_attributes(row)?;
    add_messages(&mut thread, &row.list(&["messages"])?)?;
    let legacy = read_tabs(&mut thread, row, max_tabs)? || row.has("active_path") || row.has("activePath");
    read_active(&mut thread, row);
    // A null in a row with a path is one that was never filled in; a resource says what its reader was told.
    let unfilled = !row.has("source") || (!is_resource && thread.page_path.is_some());
    if thread.source.is_none() && (legacy || unfilled) {
        thread.source = Some(surface_of(thread.page_path.as_deref()));
    }
    Ok(thread)
}

/// The rule by which the rows without a source got theirs.
fn surface_of(page_path: Option<&str>) -> Surface {
    match page_path {
        Some(path) if !path.starts_with("/workspaces/") => Surface::Extension,
        _ => Surface::Web,
    }
}

/// The tabs; true when they were the names of their destinations alone, which nobody counted: only the first are kept.
fn read_tabs(thread: &mut Thread, row: &Fields<'_>, max: usize) -> Result<bool, Refusal> {
    let mut legacy = false;
    for (at, raw) in row.list(&["tabs"])?.into_iter().enumerate() {
        match serde_json::from_str::<Value>(raw.get()) {
            Ok(Value::String(destination)) => {
                legacy = true;
                let key = if destination == NEW_TAB {
                    // Fresh, and the same each time it is asked for.
                    derived_id(&["tab", &thread.source_id, &at.to_string()]).to_string()
                } else {
                    destination.clone()
                };
                let known = thread.tabs.iter().any(|tab| tab.key == key);
                if !known && !destination.is_empty() && thread.tabs.len() < max {
                    thread.tabs.push(Tab { key, destination_id: destination, sub_path: None });
                }
            }
            Ok(Value::Object(mut tab)) => {
                // What was not there may have been written as null.
                tab.retain(|_, value| !value.is_null());
                let tab = serde_json::from_value(Value::Object(tab))
                    .map_err(|error| Refusal(format!("tab {}: {error}", at + 1)))?;
                thread.tabs.push(tab);
            }
            _ => return Err(Refusal(format!("tab {} is neither a text nor an object", at + 1))),
        }
    }
    Ok(legacy)
}

/// The key of the active tab: the one that is named, if it is there, or that of the destination in the old path.
fn read_active(thread: &mut Thread, row: &Fields<'_>) {
    let named = row.text(&["active_tab_key", "activeTabKey"]);
    if let Some(key) = named.filter(|key| thread.tabs.iter().any(|tab| tab.key == *key)) {
        thread.active_tab_key = Some(key);
        return;
    }
    let Some(path) = row.text(&["active_path", "activePath"]) else { return };
    thread.active_tab_key = destination_in(&path, &thread.tabs).map(|tab| tab.key.clone());
}

/// The tab whose destination the path names first, after the workspace's own part.
fn destination_in<'a>(path: &str, tabs: &'a [Tab]) -> Option<&'a Tab> {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let path =
        path.split_once("://").map_or(path, |(_, rest)| rest.split_once('/').map_or("", |(_, path)| path));
    let mut segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    if segments.first() == Some(&"workspaces") {
        segments.drain(..segments.len().min(2));
    }
    let same = |segment: &str, destination: &str| {
        segment == destination || segment.replace('-', "_") == destination.replace('-', "_")
    };
    segments.into_iter().find_map(|segment| tabs.iter().find(|tab| same(segment, &tab.destination_id)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn source_of(record: &Value) -> Option<Surface> {
        let text = record.to_string();
        let fields = Fields::read(&text).unwrap_or_else(|_| panic!("an object: {text}"));
        read(&fields, 50).unwrap_or_else(|refusal| panic!("{}: {text}", refusal.0)).source
    }

    #[test]
    fn a_row_without_a_source_gets_it_by_its_path() {
        const ID: &str = "c7e1a2f3-88d4-4b9e-9c6a-3f0e1d2b5a01";
        let keyed = json!([{ "key": "invoices", "destinationId": "invoices" }]);
        let (web, extension) = (Some(Surface::Web), Some(Surface::Extension));
        for (members, expected) in [
            (json!({ "page_path": "/mail/inbox" }), extension),
            (json!({ "source": null, "page_path": "/mail/inbox" }), extension),
            (json!({ "source": null, "page_path": "/mail/inbox", "tabs": keyed }), extension),
            (json!({ "source": null, "page_path": "/workspaces/9f3e/records" }), web),
            (json!({ "source": null, "page_path": null }), None),
            (json!({ "source": null }), None),
            (json!({ "page_path": null }), web),
            (json!({ "source": null, "page_path": null, "tabs": ["invoices"] }), web),
            (json!({ "source": "web", "page_path": "/mail/inbox" }), web),
        ] {
            let mut row = members.clone();
            row["thread_id"] = ID.into();
            assert_eq!(source_of(&row), expected, "{row}");
        }
        let resource = json!({ "type": "chat_conversation", "id": ID,
            "attributes": { "source": null, "page_path": "/mail/inbox" } });
        assert_eq!(source_of(&resource), None);
    }
}
