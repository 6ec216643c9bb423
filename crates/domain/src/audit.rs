//! The audit log: who changed who may do what. Each entry's hash covers the one before it, so a
//! changed or removed entry shows.

use jiff::Timestamp;
use serde::Serialize;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::scope::Scope;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Action {
    #[serde(rename = "workspace.create")]
    WorkspaceCreate,
    #[serde(rename = "workspace.update")]
    WorkspaceUpdate,
    #[serde(rename = "workspace.remove")]
    WorkspaceRemove,
    #[serde(rename = "member.add")]
    MemberAdd,
    #[serde(rename = "member.remove")]
    MemberRemove,
    #[serde(rename = "key.create")]
    KeyCreate,
    #[serde(rename = "key.remove")]
    KeyRemove,
    #[serde(rename = "conversation.visibility")]
    ConversationVisibility,
    #[serde(rename = "tool_server.add")]
    ToolServerAdd,
    #[serde(rename = "tool_server.remove")]
    ToolServerRemove,
    #[serde(rename = "tool_server.approve")]
    ToolServerApprove,
}

impl Action {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WorkspaceCreate => "workspace.create",
            Self::WorkspaceUpdate => "workspace.update",
            Self::WorkspaceRemove => "workspace.remove",
            Self::MemberAdd => "member.add",
            Self::MemberRemove => "member.remove",
            Self::KeyCreate => "key.create",
            Self::KeyRemove => "key.remove",
            Self::ConversationVisibility => "conversation.visibility",
            Self::ToolServerAdd => "tool_server.add",
            Self::ToolServerRemove => "tool_server.remove",
            Self::ToolServerApprove => "tool_server.approve",
        }
    }
}

/// One stored entry. `detail` says what became of the target (a role, a visibility), never content.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditEntry {
    pub seq: i64,
    pub at: Timestamp,
    pub user: String,
    pub key: Option<Uuid>,
    pub action: String,
    pub target: String,
    pub detail: String,
    pub hash: Vec<u8>,
}

impl AuditEntry {
    /// The entry that follows `previous` (its number and hash) in a workspace's log.
    pub fn next(
        previous: Option<(i64, Vec<u8>)>,
        scope: &Scope,
        at: Timestamp,
        action: Action,
        target: &str,
        detail: &str,
    ) -> Self {
        let (seq, before) = previous.unwrap_or((0, Vec::new()));
        let mut entry = Self {
            seq: seq + 1,
            at,
            user: scope.user.clone(),
            key: scope.key,
            action: action.as_str().to_owned(),
            target: target.to_owned(),
            detail: detail.to_owned(),
            hash: Vec::new(),
        };
        entry.hash = entry.chained(&before);
        entry
    }

    fn chained(&self, before: &[u8]) -> Vec<u8> {
        let mut hash = Sha256::new();
        let key = self.key.map(|key| key.to_string()).unwrap_or_default();
        let (seq, at) = (self.seq.to_string(), self.at.as_millisecond().to_string());
        for part in [before, seq.as_bytes(), at.as_bytes(), self.user.as_bytes(), key.as_bytes()]
            .into_iter()
            .chain([self.action.as_bytes(), self.target.as_bytes(), self.detail.as_bytes()])
        {
            // Length before content, so that no two entries share an encoding.
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        hash.finalize().to_vec()
    }
}

/// The number of the first entry that does not follow from the one before it. `entries` is a whole
/// log, oldest first.
pub fn first_broken(entries: &[AuditEntry]) -> Option<i64> {
    let mut before: &[u8] = &[];
    for (index, entry) in entries.iter().enumerate() {
        if entry.seq != index as i64 + 1 || entry.chained(before) != entry.hash {
            return Some(entry.seq);
        }
        before = &entry.hash;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scope::Role;

    fn log() -> Vec<AuditEntry> {
        let scope = Scope {
            workspace: Uuid::nil(),
            org: "o".into(),
            user: "ann".into(),
            role: Role::Admin,
            key: None,
            administers: true,
        };
        let mut log: Vec<AuditEntry> = Vec::new();
        for user in ["a", "b", "c"] {
            let previous = log.last().map(|e| (e.seq, e.hash.clone()));
            log.push(AuditEntry::next(
                previous,
                &scope,
                Timestamp::UNIX_EPOCH,
                Action::MemberAdd,
                user,
                "member",
            ));
        }
        log
    }

    #[test]
    fn an_untouched_log_holds_and_every_change_shows() {
        assert_eq!(first_broken(&log()), None);
        let changes: [fn(&mut Vec<AuditEntry>); 6] = [
            |log| log[1].target = "x".into(),
            |log| log[1].detail = "admin".into(),
            |log| log[1].user = "eve".into(),
            |log| log[1].at = Timestamp::MAX,
            |log| log[1].key = Some(Uuid::from_u128(1)),
            |log| {
                log.remove(1);
            },
        ];
        for change in changes {
            let mut changed = log();
            change(&mut changed);
            assert!(first_broken(&changed).is_some());
        }
    }
}
