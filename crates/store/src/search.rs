//! Ranking what the databases' word indexes found. The index says which documents match; the order is
//! a pure rule of `domain::search`, so that both databases answer alike.

use std::collections::HashMap;

use domain::conversation::{Conversation, ConversationSearch, Position, Sort};
use domain::search::{Hit, MatchKind, matches};
use uuid::Uuid;

/// How many conversations, the newest, take part in a search by their titles, and how many by their messages. By whole
/// words of their titles as many more, where longer words that begin like these would keep them out.
pub(crate) const CANDIDATES: usize = 1000;
/// How many matching messages, the newest, are looked at in a round. A long thread may have them all: while they are of few
/// conversations there is another round, for the others.
pub(crate) const MESSAGES: usize = 2500;
pub(crate) const ROUNDS: usize = 4;
const FEW: usize = 250;

/// How many matching messages of a conversation are shown.
const SHOWN: usize = 3;

pub(crate) struct Ranked {
    pub(crate) conversation: Conversation,
    /// The newest matching messages.
    pub(crate) messages: Vec<Uuid>,
}

/// Adds a round of matching messages, newest first and of other conversations than those before. Answers whether there is
/// to be another round.
pub(crate) fn gather<M>(gathered: &mut HashMap<Uuid, Vec<M>>, round: Vec<(Uuid, M)>) -> bool {
    let more = round.len() == MESSAGES;
    for (conversation, message) in round {
        if gathered.len() < CANDIDATES || gathered.contains_key(&conversation) {
            gathered.entry(conversation).or_default().push(message);
        }
    }
    more && gathered.len() < FEW
}

/// One page of the candidates in order, and whether there is more after it.
pub(crate) fn page(
    conversations: Vec<Conversation>,
    mut messages: HashMap<Uuid, Vec<Uuid>>,
    search: &ConversationSearch,
) -> (Vec<Ranked>, bool) {
    let mut scored: Vec<(Hit, Conversation)> = conversations
        .into_iter()
        .map(|conversation| {
            let hit = Hit {
                title: conversation.title.as_deref().map_or(MatchKind::None, |t| matches(t, &search.query)),
                messages: messages.get(&conversation.id).map_or(0, |m| m.len() as u32),
                updated_at_ms: conversation.updated_at.as_millisecond(),
            };
            (hit, conversation)
        })
        .collect();
    scored.sort_by(|(a_hit, a), (b_hit, b)| match search.sort {
        None => b_hit.score().cmp(&a_hit.score()).then(b.id.cmp(&a.id)),
        Some(sort) => by_key(a, b, sort),
    });
    let more = scored.len() > search.offset.saturating_add(search.limit);
    let page = scored
        .into_iter()
        .skip(search.offset)
        .take(search.limit)
        .map(|(_, conversation)| {
            let mut messages = messages.remove(&conversation.id).unwrap_or_default();
            messages.truncate(SHOWN);
            Ranked { conversation, messages }
        })
        .collect();
    (page, more)
}

fn by_key(a: &Conversation, b: &Conversation, sort: Sort) -> std::cmp::Ordering {
    let (a, b) = (Position::of(a, sort.key), Position::of(b, sort.key));
    let ascending = a.value.cmp(&b.value).then(a.id.cmp(&b.id));
    if sort.descending { ascending.reverse() } else { ascending }
}
