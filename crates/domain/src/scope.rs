//! Who is asking, and for which workspace. Every store verb that touches a tenant's rows takes a
//! `Scope`, so no query can forget it.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    Member,
    Admin,
    Service,
}

impl Role {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Member => "member",
            Self::Admin => "admin",
            Self::Service => "service",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "member" => Some(Self::Member),
            "admin" => Some(Self::Admin),
            "service" => Some(Self::Service),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    pub workspace: Uuid,
    /// The workspace's org.
    pub org: String,
    /// Whose conversations are "own": a user id, or `key:<id>` for a service key acting for itself.
    pub user: String,
    pub role: Role,
    /// The API key that carried the request, if one did.
    pub key: Option<Uuid>,
    /// Whether this caller may change members, keys and the workspace itself: a service key only where it acts as an
    /// admin.
    pub administers: bool,
}

impl Scope {
    /// Admins and service keys see every conversation of their workspace.
    pub fn sees_all(&self) -> bool {
        matches!(self.role, Role::Admin | Role::Service)
    }

    /// Deleting, restoring and sharing are for the owner and for those who see all.
    pub fn owns(&self, owner: &str) -> bool {
        self.sees_all() || self.user == owner
    }
}
