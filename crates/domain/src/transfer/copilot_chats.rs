//! Rows of `copilotChats`: a conversation with its messages in one column.

use super::Refusal;
use super::fields::Fields;
use super::row::{add_messages, read_attributes};
use super::thread::Thread;
use crate::conversation::Kind;

pub fn read(of: &Fields<'_>) -> Result<Thread, Refusal> {
    let mut thread = read_attributes(of)?;
    thread.kind = thread.kind.or(Some(Kind::AssistantSandbox));
    add_messages(&mut thread, &of.list(&["messages"])?)?;
    Ok(thread)
}
