//! Workspaces, their members and the API keys bound to them.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::conversation::Visibility;
use crate::scope::Role;
use crate::secret::Secret;

#[derive(Debug, Clone, PartialEq)]
pub struct Workspace {
    pub id: Uuid,
    pub org: String,
    pub name: String,
    pub default_visibility: Visibility,
    pub created_at: Timestamp,
}

/// A workspace as one of its members sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Membership {
    pub workspace: Workspace,
    pub role: Role,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    pub user: String,
    pub role: Role,
    pub added_at: Timestamp,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct WorkspacePatch {
    pub name: Option<String>,
    pub default_visibility: Option<Visibility>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ApiKey {
    pub id: Uuid,
    pub name: String,
    pub role: Role,
    /// The user who made it, and as whom a member or admin key acts.
    pub created_by: String,
    pub created_at: Timestamp,
}

/// What a presented key stands for: the key's row and the workspace it is bound to.
#[derive(Debug, Clone, PartialEq)]
pub struct KeyGrant {
    pub key: ApiKey,
    pub workspace: Workspace,
    /// What the key's maker may do there today; `None` once the maker is no longer a member.
    pub maker_role: Option<Role>,
}

impl KeyGrant {
    /// The role the key gives now: never more than its maker has, and nothing once the maker left.
    /// A service key acts for the workspace and outlives its maker's membership.
    pub fn role(&self) -> Option<Role> {
        match (self.key.role, self.maker_role) {
            (Role::Service, _) => Some(Role::Service),
            (Role::Admin, Some(Role::Admin)) => Some(Role::Admin),
            (_, Some(_)) => Some(Role::Member),
            (_, None) => None,
        }
    }
}

const KEY_PREFIX: &str = "tk_";

/// A new API key's text. It carries its workspace, so that looking it up is a question to that
/// workspace alone, and 256 random bits.
pub fn new_key(workspace: Uuid, random: [u8; 32]) -> Secret {
    let mut bytes = Vec::with_capacity(48);
    bytes.extend_from_slice(workspace.as_bytes());
    bytes.extend_from_slice(&random);
    Secret::new(format!("{KEY_PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes)))
}

/// Whether a bearer credential is meant as an API key at all.
pub fn looks_like_key(text: &str) -> bool {
    text.starts_with(KEY_PREFIX)
}

/// The workspace a key names and the hash under which it is stored; `None` if it cannot be a key.
pub fn read_key(text: &str) -> Option<(Uuid, [u8; 32])> {
    let body = text.strip_prefix(KEY_PREFIX)?;
    let bytes = URL_SAFE_NO_PAD.decode(body).ok()?;
    let workspace: [u8; 16] = bytes.get(..16)?.try_into().ok()?;
    if bytes.len() != 48 {
        return None;
    }
    Some((Uuid::from_bytes(workspace), Sha256::digest(text.as_bytes()).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_names_its_workspace_and_hashes_whole() {
        let workspace = Uuid::from_u128(7);
        let key = new_key(workspace, [9; 32]);
        let (named, hash) = read_key(key.expose()).unwrap();
        assert_eq!(named, workspace);
        assert_ne!(hash, read_key(new_key(workspace, [8; 32]).expose()).unwrap().1);
        for bad in ["", "tk_", "tk_abc", "sk_abcdef", &key.expose()[..66], &format!("{}A", key.expose())] {
            assert_eq!(read_key(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_key_never_gives_more_than_its_maker_has() {
        let grant = |key_role, maker_role| KeyGrant {
            key: ApiKey {
                id: Uuid::nil(),
                name: String::new(),
                role: key_role,
                created_by: "u".into(),
                created_at: Timestamp::UNIX_EPOCH,
            },
            workspace: Workspace {
                id: Uuid::nil(),
                org: String::new(),
                name: String::new(),
                default_visibility: Visibility::Private,
                created_at: Timestamp::UNIX_EPOCH,
            },
            maker_role,
        };
        for (key, maker, role) in [
            (Role::Admin, Some(Role::Admin), Some(Role::Admin)),
            (Role::Admin, Some(Role::Member), Some(Role::Member)),
            (Role::Member, Some(Role::Admin), Some(Role::Member)),
            (Role::Admin, None, None),
            (Role::Member, None, None),
            (Role::Service, None, Some(Role::Service)),
        ] {
            assert_eq!(grant(key, maker).role(), role, "{key:?} made by {maker:?}");
        }
    }
}
