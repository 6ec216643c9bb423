//! What the tests of the sandbox client share: a client, an envelope, and reading a stream to its end.

use std::time::Duration;

use domain::secret::Secret;
use tokio_util::sync::CancellationToken;
use upstream::sandbox::{
    Accepts, ChatTurn, Envelope, EnvelopeMessage, LineStream, Outcome, Received, SandboxClient,
    SandboxLimits, Version,
};
use uuid::Uuid;

pub const TOKEN: &str = "bearer-9f1c";
pub const CONFIG_TOKEN: &str = "config-77aa";
pub const UPLOAD_OTP: &str = "otp-31d0";

/// Limits no script runs into by chance.
pub const WIDE: SandboxLimits = SandboxLimits {
    headers: Duration::from_secs(30),
    idle: Duration::from_secs(30),
    line_bytes: 1024 * 1024,
};

pub fn envelope() -> Envelope {
    Envelope {
        version: Version,
        session_id: Uuid::from_u128(1),
        agent_url: "http://127.0.0.1:1/agent/1".to_owned(),
        config_token: Secret::new(CONFIG_TOKEN),
        upload_otp: Secret::new(UPLOAD_OTP),
        workspace_id: Uuid::from_u128(2),
        chat_id: Some(Uuid::from_u128(3)),
        execution_id: None,
        workflow_id: None,
        message: EnvelopeMessage {
            id: Uuid::from_u128(4),
            content: "Hello".to_owned(),
            ts: 1_700_000_000_000,
        },
        conversation: vec![ChatTurn { role: "user".to_owned(), content: "Before".to_owned(), ts: 1 }],
        accepts: Accepts,
    }
}

pub fn client(url: &str, limits: SandboxLimits) -> SandboxClient {
    let http = upstream::http::client().unwrap();
    SandboxClient::new(url, Some(Secret::new(TOKEN)), http, limits).unwrap()
}

/// A whole run, counted; nothing of it is kept.
#[derive(Debug, Default)]
pub struct Told {
    pub lines: u64,
    pub rejected: u64,
    pub ignored: u64,
    pub batches: u64,
    pub ends: Vec<Outcome>,
}

pub async fn run(url: &str, limits: SandboxLimits) -> Told {
    listen(client(url, limits).stream(&envelope(), CancellationToken::new())).await
}

pub async fn listen(mut stream: LineStream) -> Told {
    let mut told = Told::default();
    loop {
        let batch = stream.next().await;
        if batch.is_empty() {
            return told;
        }
        told.batches += 1;
        for received in batch {
            assert!(told.ends.is_empty(), "after the end came {received:?}");
            match received {
                Received::Line { .. } => told.lines += 1,
                Received::Rejected { .. } => told.rejected += 1,
                Received::Ignored { count, .. } => told.ignored += count,
                Received::End(outcome) => told.ends.push(outcome),
            }
        }
    }
}
