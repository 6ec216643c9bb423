//! Rows of two tables put together: a conversation, and the messages that name it.

use serde_json::value::RawValue;

use super::fields::Fields;
use super::format::Format;
use super::thread::Thread;
use super::{Refusal, assistants, conversations};

/// The thread of a conversation's row and the rows of its messages, or of those alone where it has none.
pub fn read(
    format: Format,
    id: &str,
    conversation: Option<&str>,
    messages: &[&RawValue],
) -> Result<Thread, Refusal> {
    if format == Format::Assistants {
        let about = conversation.map(Fields::read).transpose()?.unwrap_or_default();
        return assistants::read_messages(id.to_owned(), &about, messages, &[]);
    }
    let Some(row) = conversation else {
        return Err(Refusal(format!(
            "no conversation has the id {:?}",
            id.chars().take(80).collect::<String>()
        )));
    };
    conversations::read(&Fields::read(row)?, messages)
}
