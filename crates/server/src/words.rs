//! Words of closed sets, and texts that may be blocks, as the API's description shows them; `jsonapi/schema.rs` has those
//! of conversations. Nothing is built from these types; a test holds them to the domain's own.

use serde::Serialize;
use utoipa::ToSchema;

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "described for clients")]
pub enum Role {
    Member,
    Admin,
    Service,
}

/// What a person may be in a workspace.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "described for clients")]
pub enum MemberRole {
    Member,
    Admin,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "described for clients")]
pub enum RunStatus {
    Queued,
    Running,
    Succeeded,
    Failed,
    Cancelled,
    Interrupted,
}

/// What to do when the conversation has a run under way.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "described for clients")]
pub enum OnBusy {
    Reject,
    Enqueue,
    Interrupt,
    Rollback,
}

/// What becomes of a run when nobody reads it any more.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "described for clients")]
pub enum OnDisconnect {
    Cancel,
    Continue,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "described for clients")]
pub enum Runner {
    Model,
    Sandbox,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "described for clients")]
pub enum ColumnType {
    Text,
    Number,
    Boolean,
    Date,
}

/// A text, or blocks of text.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "described for clients")]
pub enum SaidText {
    Text(String),
    Blocks(Vec<TextBlock>),
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[expect(dead_code, reason = "described for clients")]
pub enum TextBlock {
    Text { text: String },
}

#[cfg(test)]
mod tests {
    use serde::Serialize;
    use serde_json::{Value, json};
    use utoipa::PartialSchema;

    use super::*;

    fn check<S: PartialSchema>(words: &[impl Serialize]) {
        let schema: Value = serde_json::to_value(S::schema()).unwrap();
        assert_eq!(schema["enum"], json!(words));
    }

    #[test]
    fn words_are_those_of_the_domain() {
        use domain::{agent, run, scope, table};
        check::<Role>(&[scope::Role::Member, scope::Role::Admin, scope::Role::Service]);
        check::<MemberRole>(&[scope::Role::Member, scope::Role::Admin]);
        check::<OnBusy>(&[
            run::OnBusy::Reject,
            run::OnBusy::Enqueue,
            run::OnBusy::Interrupt,
            run::OnBusy::Rollback,
        ]);
        check::<OnDisconnect>(&[run::OnDisconnect::Cancel, run::OnDisconnect::Continue]);
        check::<Runner>(&[agent::Runner::Model, agent::Runner::Sandbox]);
        check::<RunStatus>(&[
            run::RunStatus::Queued,
            run::RunStatus::Running,
            run::RunStatus::Succeeded,
            run::RunStatus::Failed,
            run::RunStatus::Cancelled,
            run::RunStatus::Interrupted,
        ]);
        check::<ColumnType>(&[
            table::ColumnType::Text,
            table::ColumnType::Number,
            table::ColumnType::Boolean,
            table::ColumnType::Date,
        ]);
    }
}
