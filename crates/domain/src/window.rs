//! What a sandbox is told of the thread so far: which of the messages before the new one.

use crate::message::{Message, MessageRole};

/// The last `limit` of the messages before the new one, oldest first: one turn each, also where nothing was said (an
/// answer that failed before its first word). A system message is nobody's turn and does not count.
pub fn replayed(before: &[Message], limit: usize) -> Vec<&Message> {
    let turns = before.iter().rev().filter(|message| message.role != MessageRole::System);
    let mut turns: Vec<&Message> = turns.take(limit).collect();
    turns.reverse();
    turns
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::time::from_ms;

    fn message(seq: i64, role: MessageRole, text: &str) -> Message {
        Message {
            id: Uuid::from_u128(seq as u128),
            seq,
            role,
            text: text.into(),
            content: "[]".into(),
            file_attachments: "[]".into(),
            sources: "[]".into(),
            token_count: 0,
            metadata: "{}".into(),
            created_at: from_ms(1_700_000_000_000 + seq),
        }
    }

    fn texts(messages: &[Message], limit: usize) -> Vec<String> {
        replayed(messages, limit).into_iter().map(|message| message.text.clone()).collect()
    }

    #[test]
    fn the_last_turns_oldest_first() {
        let thread: Vec<Message> =
            (1..=25).map(|n| message(n, MessageRole::User, &format!("m{n}"))).collect();
        assert_eq!(texts(&thread, 20), (6..=25).map(|n| format!("m{n}")).collect::<Vec<_>>());
        assert_eq!(texts(&thread[..3], 20), ["m1", "m2", "m3"]);
        assert!(texts(&thread, 0).is_empty() && texts(&[], 20).is_empty());
    }

    #[test]
    fn a_message_is_a_turn_also_without_words() {
        use MessageRole::{Assistant, System, User};
        let thread = [
            message(1, User, "a"),
            message(2, System, "rules"),
            message(3, Assistant, ""),
            message(4, User, " \n"),
            message(5, Assistant, " b"),
        ];
        assert_eq!(texts(&thread, 3), ["", " \n", " b"]);
        assert_eq!(texts(&thread, 20), ["a", "", " \n", " b"]);
    }
}
