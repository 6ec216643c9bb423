//! The attributes of `chat_conversation` and of the `workspace` it may include: their names, who writes them,
//! and the sparse fieldset that says which ones an answer shows.

/// Who may set an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writer {
    Client,
    /// The client, when it creates the conversation; never again.
    ClientOnce,
    System,
}

/// One table gives an enum its names, their parsing and the order in which answers show them.
macro_rules! names {
    ($(#[$meta:meta])* $name:ident { $($variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name { $($variant),+ }

        impl $name {
            /// Every one, in the order in which answers show them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            pub fn parse(name: &str) -> Option<Self> {
                match name { $($text => Some(Self::$variant),)+ _ => None }
            }
        }
    };
}

names!(
    /// An attribute of `chat_conversation`.
    Field {
        ThreadId = "thread_id",
        Title = "title",
        Mode = "mode",
        Source = "source",
        PagePath = "page_path",
        TotalTokens = "total_tokens",
        Messages = "messages",
        Context = "context",
        Tabs = "tabs",
        ActiveTabKey = "active_tab_key",
        DeletedAt = "deleted_at",
        CreatedAt = "created_at",
        UpdatedAt = "updated_at",
        Kind = "kind",
        WorkflowId = "workflow_id",
        AgentId = "agent_id",
        Model = "model",
        UserId = "user_id",
        OrgId = "org_id",
        Preview = "preview",
        MessageCount = "message_count",
        ConversationId = "conversation_id",
        Visibility = "visibility",
    }
);

names!(
    /// An attribute of the included `workspace`.
    WorkspaceField {
        Name = "name",
        OrgId = "org_id",
        Role = "role",
        DefaultVisibility = "default_visibility",
    }
);

impl Field {
    pub fn writer(self) -> Writer {
        match self {
            Self::ThreadId | Self::Source => Writer::ClientOnce,
            Self::Title
            | Self::Mode
            | Self::PagePath
            | Self::Context
            | Self::Tabs
            | Self::ActiveTabKey
            | Self::AgentId
            | Self::Model
            | Self::Visibility => Writer::Client,
            Self::TotalTokens
            | Self::Messages
            | Self::DeletedAt
            | Self::CreatedAt
            | Self::UpdatedAt
            | Self::Kind
            | Self::WorkflowId
            | Self::UserId
            | Self::OrgId
            | Self::Preview
            | Self::MessageCount
            | Self::ConversationId => Writer::System,
        }
    }

    const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// Which fields of a `chat_conversation` an answer shows: attributes, and the `workspace` relationship.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldSet(u32);

impl FieldSet {
    const RELATIONSHIP: u32 = 1 << Field::ALL.len();

    pub const NONE: Self = Self(0);
    /// What a retrieve shows.
    pub const ALL: Self = Self((Self::RELATIONSHIP << 1) - 1);
    /// What a list shows: all but the two that can be large.
    pub const LIST: Self = Self(Self::ALL.0 & !(Field::Messages.bit() | Field::Context.bit()));

    #[must_use]
    pub const fn with(self, field: Field) -> Self {
        Self(self.0 | field.bit())
    }

    #[must_use]
    pub const fn with_workspace(self) -> Self {
        Self(self.0 | Self::RELATIONSHIP)
    }

    pub const fn has(self, field: Field) -> bool {
        self.0 & field.bit() != 0
    }

    /// Whether `relationships.workspace` is shown.
    pub const fn has_workspace(self) -> bool {
        self.0 & Self::RELATIONSHIP != 0
    }

    pub fn iter(self) -> impl Iterator<Item = Field> {
        Field::ALL.iter().copied().filter(move |field| self.has(*field))
    }

    /// The attributes as `write` takes them.
    pub fn named(self) -> impl Iterator<Item = (&'static str, Field)> {
        self.iter().map(|field| (field.name(), field))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back() {
        assert_eq!(Field::ALL.len(), 23);
        for field in Field::ALL {
            assert_eq!(Field::parse(field.name()), Some(*field));
        }
        for field in WorkspaceField::ALL {
            assert_eq!(WorkspaceField::parse(field.name()), Some(*field));
        }
        for bad in ["", "Title", "id", "type", "workspace", "title "] {
            assert_eq!(Field::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn sets_hold_what_was_put_in() {
        assert_eq!(FieldSet::ALL.iter().collect::<Vec<_>>(), Field::ALL);
        assert_eq!(FieldSet::NONE.iter().count(), 0);
        let hidden: Vec<_> = Field::ALL.iter().filter(|f| !FieldSet::LIST.has(**f)).collect();
        assert_eq!(hidden, [&Field::Messages, &Field::Context]);
        assert!(FieldSet::LIST.has_workspace() && !FieldSet::NONE.has_workspace());
        let set = FieldSet::NONE.with(Field::Visibility).with(Field::Title).with_workspace();
        assert_eq!(set.iter().collect::<Vec<_>>(), [Field::Title, Field::Visibility]);
        assert!(set.has_workspace());
    }
}
