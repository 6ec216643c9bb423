//! Rows into PostgreSQL by COPY, as the superuser, whom row level security lets through.

use std::fmt::Write as _;
use std::pin::pin;

use anyhow::Context as _;
use bytes::Bytes;
use domain::search::index_tsvector;
use futures_util::SinkExt as _;
use tokio_postgres::{Client, NoTls};

use super::{BATCH, Stored, store};
use crate::corpus;

pub async fn fill(superuser_url: &str, size: usize) -> anyhow::Result<()> {
    let (client, connection) = tokio_postgres::connect(superuser_url, NoTls).await?;
    tokio::select! {
        done = copy_all(&client, size) => done,
        ended = connection => {
            ended?;
            anyhow::bail!("the connection ended")
        }
    }
}

async fn copy_all(client: &Client, size: usize) -> anyhow::Result<()> {
    // Foreign keys hold by the way the rows are made; nothing here has to survive a power cut.
    client.batch_execute("SET session_replication_role = replica; SET synchronous_commit = off").await?;
    let mut drafts = corpus::drafts(size).peekable();
    while drafts.peek().is_some() {
        let mut lines = Lines::default();
        for draft in drafts.by_ref().take(BATCH) {
            lines.add(&store(draft)?)?;
        }
        lines.copy(client).await?;
    }
    // What autovacuum does a minute later, so that two runs start from the same.
    client.batch_execute("VACUUM (ANALYZE)").await.context("VACUUM")
}

/// Rows in COPY's text form. Nothing that the corpus makes has a character that would need escaping.
#[derive(Default)]
struct Lines {
    conversations: String,
    titles: String,
    messages: String,
    words: String,
}

impl Lines {
    fn add(&mut self, stored: &Stored) -> anyhow::Result<()> {
        let made = &stored.conversation;
        let (workspace, id) = (made.workspace, made.id);
        let or_null = |value: Option<String>| value.unwrap_or_else(|| "\\N".into());
        writeln!(
            self.conversations,
            "{workspace}\t{id}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}",
            made.org,
            made.owner,
            or_null(made.title.clone()),
            or_null(made.mode.map(|mode| mode.as_str().into())),
            or_null(made.source.map(|source| source.as_str().into())),
            or_null(made.page_path.clone()),
            made.kind.as_str(),
            or_null(made.preview.clone()),
            made.message_count,
            or_null(made.first_message.map(|id| id.to_string())),
            made.visibility.as_str(),
            made.created_at,
            made.updated_at,
            made.version,
        )?;
        let words = |text: &str| format!("'@{}' {}", workspace.simple(), index_tsvector(text));
        if let Some(title) = &made.title {
            writeln!(self.titles, "{workspace}\t{id}\t{}", words(title))?;
        }
        for (seq, message) in (1..).zip(&stored.messages) {
            writeln!(
                self.messages,
                "{workspace}\t{id}\t{seq}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}",
                message.id,
                message.role.as_str(),
                message.text,
                message.content,
                message.file_attachments,
                message.sources,
                message.token_count,
                message.metadata,
                message.created_at,
            )?;
            let (words, at) = (words(&message.text), message.created_at);
            writeln!(self.words, "{workspace}\t{id}\t{}\t{seq}\t{at}\t{words}", message.id)?;
        }
        Ok(())
    }

    async fn copy(self, client: &Client) -> anyhow::Result<()> {
        for (table, lines) in [
            (
                "chat_conversations (workspace_id, id, org_id, user_id, title, mode, source, page_path, kind, preview, \
                 message_count, first_message, visibility, created_at, updated_at, version)",
                self.conversations,
            ),
            ("title_search (workspace_id, conversation_id, words)", self.titles),
            (
                "messages (workspace_id, conversation_id, seq, id, role, text, content, file_attachments, sources, \
                 token_count, metadata, created_at)",
                self.messages,
            ),
            (
                "message_search (workspace_id, conversation_id, message_id, seq, created_at, words)",
                self.words,
            ),
        ] {
            let mut sink = pin!(client.copy_in::<_, Bytes>(&format!("COPY {table} FROM STDIN")).await?);
            sink.send(Bytes::from(lines)).await?;
            sink.as_mut().finish().await.context(table)?;
        }
        Ok(())
    }
}
