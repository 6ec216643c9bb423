//! The tree of a thread as branches, and what a store keeps of them beside the messages.

use std::collections::VecDeque;

use super::super::archive::{Archive, ArchivedBranch};
use super::super::{Refusal, derived_id, one_line};
use super::{Setting, Thread};
use crate::conversation::Conversation;
use crate::message::{Message, MessageRole};

/// The deepest tree of branches that is taken.
const MAX_BRANCHES: usize = 10_000;

/// The tree as branches: the first follows the first child from the first root on, every other goes on from a message
/// of one before it.
pub(super) fn grow(
    thread: &Thread,
    conversation: &Conversation,
    mut messages: Vec<Option<Message>>,
    of: &Setting<'_>,
) -> Result<(Vec<ArchivedBranch>, usize), Refusal> {
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); thread.nodes.len()];
    let mut roots = Vec::new();
    for (at, node) in thread.nodes.iter().enumerate() {
        match node.parent {
            Some(parent) => children
                .get_mut(parent)
                .filter(|_| parent < at)
                .ok_or_else(|| Refusal::new("a message comes before the one it answers"))?
                .push(at),
            None => roots.push(at),
        }
    }
    let mut branches = vec![ArchivedBranch {
        id: conversation.id,
        parent: 0,
        fork_seq: 0,
        created_at: conversation.created_at,
        messages: Vec::new(),
    }];
    let mut current = 0;
    // What is still to be followed: the node, the branch it came from, and the number of the message before it.
    let mut open: VecDeque<(usize, usize, i64)> = roots.iter().map(|root| (*root, 0, 0)).collect();
    let mut first = true;
    while let Some((start, parent, shared)) = open.pop_front() {
        let branch = if first { 0 } else { branches.len() };
        if !std::mem::take(&mut first) {
            if branches.len() >= MAX_BRANCHES {
                return Err(Refusal(format!("it has more than {MAX_BRANCHES} branches")));
            }
            let first = messages.get(start).and_then(Option::as_ref);
            let created_at = first.map_or(conversation.created_at, |message| message.created_at);
            let first = first.map_or_else(|| start.to_string(), |message| message.id.to_string());
            let id = derived_id(&[of.format, &conversation.id.to_string(), "branch", &first]);
            branches.push(ArchivedBranch { id, parent, fork_seq: shared, created_at, messages: Vec::new() });
        }
        let (mut at, mut seq) = (Some(start), shared);
        while let Some(node) = at {
            seq += 1;
            if let (Some(mut message), Some(branch)) =
                (messages.get_mut(node).and_then(Option::take), branches.get_mut(branch))
            {
                message.seq = seq;
                branch.messages.push(message);
            }
            if thread.current == Some(node) {
                current = branch;
            }
            let next = children.get(node).map(Vec::as_slice).unwrap_or_default();
            open.extend(next.iter().skip(1).map(|child| (*child, branch, seq)));
            at = next.first().copied();
        }
    }
    Ok((branches, current))
}

/// Counters, preview and title, as a store keeps them.
pub(super) fn settle(archive: &mut Archive) {
    let thread = archive.thread(archive.current);
    let count = thread.len() as i64;
    let first = thread.into_iter().find(|message| message.role == MessageRole::User);
    let first = first.map(|message| (message.id, message.text.clone()));
    let tokens: i64 =
        archive.branches.iter().flat_map(|branch| &branch.messages).map(|of| of.token_count).sum();
    let of = &mut archive.conversation;
    of.message_count = count;
    of.total_tokens = of.total_tokens.max(tokens);
    if let Some((id, text)) = first {
        of.first_message = Some(id);
        let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
        of.preview = one_line(line, 255);
        if of.title.is_none() {
            of.title = one_line(line, 80);
        }
    }
}
