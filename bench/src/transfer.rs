//! Import and export by the real commands, on both databases: messages in a second, beside a plain read of the same
//! file and the database's own bulk insert of the same messages without an index.

use std::io::{BufWriter, Read as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use futures_util::SinkExt as _;
use rusqlite::params;
use testkit::process::command;
use uuid::Uuid;

use crate::note;

const CONVERSATIONS: u128 = 2_000;
const MESSAGES: u128 = 20;
/// The large file: its size, and how much memory its import may take.
const LARGE: u64 = 1024 * 1024 * 1024;
const LARGE_PEAK_MIB: u64 = 200;
/// The file of many: threads of one message each.
const MANY: u128 = 1_000_000;
const TEXT: &str =
    "The quick brown fox jumps over the lazy dog, and comes back to tell of it in the evening. ";

pub async fn run(server: &Path) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let source = folder.path().join("source.jsonl");
    write_source(&source, CONVERSATIONS, 3)?;
    let size = std::fs::metadata(&source)?.len();
    note(&format!("transfer: {} messages in {} MB", CONVERSATIONS * MESSAGES, size / 1_000_000));
    let read = plain_read(&source)?;
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "\n## Import and export\n\n{} messages, {} MB.\n",
        CONVERSATIONS * MESSAGES,
        size / 1_000_000
    )?;
    writeln!(out, "| | messages/s | MB/s |\n|---|---|---|")?;
    row(&mut out, "plain read of the file", read, size)?;
    row(&mut out, "SQLite: bulk insert of the same messages", bulk_sqlite(folder.path())?, size)?;
    let data = folder.path().join("sqlite");
    let (import, export) = commands(server, &data, &source, None).await?;
    row(&mut out, "SQLite: `threadkeep import`", import, size)?;
    row(&mut out, "SQLite: `threadkeep export`", export, size)?;
    if let Some(database) = testkit::postgres::database().await {
        row(&mut out, "PostgreSQL: COPY of the same messages", bulk_postgres(database.url()).await?, size)?;
        let data = folder.path().join("postgres");
        let (import, export) = commands(server, &data, &source, Some(database.url())).await?;
        row(&mut out, "PostgreSQL: `threadkeep import`", import, size)?;
        row(&mut out, "PostgreSQL: `threadkeep export`", export, size)?;
    }
    large(server, folder.path(), &mut out).await?;
    many(server, folder.path(), &mut out).await
}

/// A file that does not fit into the memory which its import may take.
async fn large(server: &Path, folder: &Path, out: &mut impl std::io::Write) -> anyhow::Result<()> {
    let source = folder.join("large.jsonl");
    // A text of 11 KB, 20 of them in a conversation.
    let repeats = 128;
    let line = u128::from(TEXT.len() as u64) * repeats as u128 * MESSAGES;
    write_source(&source, u128::from(LARGE) / line + 1, repeats)?;
    let size = std::fs::metadata(&source)?.len();
    ensure!(size >= LARGE, "only {size} bytes");
    note("transfer: 1 GiB");
    let (took, peak) = measured(server, &folder.join("large"), &source).await?;
    let met = if peak < LARGE_PEAK_MIB { "met" } else { "MISSED" };
    writeln!(
        out,
        "\nA file of {} MiB is imported in {took:.0} s with at most {peak} MiB resident; goal under {LARGE_PEAK_MIB}: {met}.",
        size / 1024 / 1024
    )?;
    Ok(())
}

/// As many threads as nobody has: what each costs must not grow with them, and memory neither.
async fn many(server: &Path, folder: &Path, out: &mut impl std::io::Write) -> anyhow::Result<()> {
    let source = folder.join("many.jsonl");
    write_threads(&source, MANY)?;
    note("transfer: a million threads");
    let (took, peak) = measured(server, &folder.join("many"), &source).await?;
    let met = if peak < LARGE_PEAK_MIB { "met" } else { "MISSED" };
    writeln!(
        out,
        "\nA file of {MANY} threads is imported in {took:.0} s ({:.0} a second) with at most {peak} MiB resident; goal \
         under {LARGE_PEAK_MIB}: {met}.",
        MANY as f64 / took
    )?;
    Ok(())
}

/// Imports into a store of its own: how many seconds it took, and how many MiB were resident at most.
async fn measured(server: &Path, data: &Path, source: &Path) -> anyhow::Result<(f64, u64)> {
    std::fs::create_dir_all(data)?;
    let began = Instant::now();
    let mut child = command(server, &[], data).arg("import").arg(source).spawn()?;
    let status = format!("/proc/{}/status", child.id().context("a process")?);
    let mut peak = 0;
    let ended = loop {
        tokio::select! {
            ended = child.wait() => break ended?,
            () = tokio::time::sleep(Duration::from_millis(50)) => {
                let now = std::fs::read_to_string(&status).unwrap_or_default();
                let line = now.lines().find_map(|line| line.strip_prefix("VmHWM:"));
                peak = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok()).unwrap_or(peak);
            }
        }
    };
    ensure!(ended.success(), "the import of {} failed", source.display());
    Ok((began.elapsed().as_secs_f64(), peak / 1024))
}

fn row(out: &mut impl std::io::Write, what: &str, took: Duration, size: u64) -> anyhow::Result<()> {
    let seconds = took.as_secs_f64();
    let (messages, bytes) = ((CONVERSATIONS * MESSAGES) as f64 / seconds, size as f64 / 1e6 / seconds);
    Ok(writeln!(out, "| {what} | {messages:.0} | {bytes:.1} |")?)
}

fn id(number: u128) -> Uuid {
    Uuid::from_u128((0x0192_0000_0000_7000_8000 << 48) | number)
}

fn text(conversation: u128, message: u128, repeats: usize) -> String {
    format!("{conversation} {message} {}", TEXT.repeat(repeats))
}

/// An export of ours.
fn write_source(path: &Path, conversations: u128, repeats: usize) -> anyhow::Result<()> {
    let mut out = BufWriter::new(std::fs::File::create(path)?);
    writeln!(out, r#"{{"type":"threadkeep","version":1}}"#)?;
    let at = "2026-01-01T00:00:00.000Z";
    for conversation in 0..conversations {
        let own = id(conversation << 16);
        let messages: Vec<String> = (0..MESSAGES)
            .map(|message| {
                let role = if message.is_multiple_of(2) { "user" } else { "assistant" };
                let (id, text) = (id((conversation << 16) | (message + 1)), text(conversation, message, repeats));
                format!(
                    r#"{{"id":"{id}","role":"{role}","content":[{{"type":"text","text":"{text}"}}],"fileAttachments":[],"sources":[],"tokenCount":0,"metadata":{{}},"createdAt":1767225600000}}"#
                )
            })
            .collect();
        writeln!(
            out,
            r#"{{"type":"conversation","id":"{own}","user_id":"local","title":"Thread {conversation}","kind":"model_chat","mode":"ask","source":null,"page_path":null,"visibility":"private","workflow_id":null,"agent_id":null,"model":null,"preview":null,"conversation_id":null,"total_tokens":0,"created_at":"{at}","updated_at":"{at}","context":null,"tabs":[],"active_tab_key":null,"current_branch":"{own}","branches":[{{"id":"{own}","parent":null,"from_message":null,"created_at":"{at}","messages":[{}]}}],"runs":[],"files":[]}}"#,
            messages.join(",")
        )?;
    }
    Ok(out.flush()?)
}

/// Somebody else's export, of threads with one message each.
fn write_threads(path: &Path, threads: u128) -> anyhow::Result<()> {
    let mut out = BufWriter::new(std::fs::File::create(path)?);
    for thread in 0..threads {
        let message = r#"{"uuid":"m","sender":"human","text":"hi"}"#;
        writeln!(
            out,
            r#"{{"uuid":"{}","name":"Thread {thread}","created_at":"2026-01-01T00:00:00Z","chat_messages":[{message}]}}"#,
            id(thread << 16)
        )?;
    }
    Ok(out.flush()?)
}

fn plain_read(path: &Path) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let (mut file, mut chunk) = (std::fs::File::open(path)?, vec![0; 256 * 1024]);
    while file.read(&mut chunk)? > 0 {}
    Ok(began.elapsed())
}

/// Import into an empty store, then export of all of it.
async fn commands(
    server: &Path,
    data: &Path,
    source: &Path,
    database: Option<&str>,
) -> anyhow::Result<(Duration, Duration)> {
    std::fs::create_dir_all(data)?;
    let env: Vec<(&str, &str)> = database.map(|url| ("DATABASE_URL", url)).into_iter().collect();
    let mut took = Vec::new();
    let target = data.join("out.jsonl");
    for (verb, path) in [("import", vec![source]), ("export", vec![Path::new("-o"), &target])] {
        let began = Instant::now();
        let ended = command(server, &env, data).arg(verb).args(path).output().await?;
        ensure!(ended.status.success(), "{verb}: {}", String::from_utf8_lossy(&ended.stderr));
        took.push(began.elapsed());
    }
    Ok((took.first().copied().context("an import")?, took.last().copied().context("an export")?))
}

#[expect(clippy::disallowed_methods, reason = "a bare table beside the store, not the store")]
fn bulk_sqlite(folder: &Path) -> anyhow::Result<Duration> {
    let db = rusqlite::Connection::open(folder.join("bare.db"))?;
    db.execute_batch(
        "PRAGMA journal_mode = WAL; CREATE TABLE messages (id BLOB, conversation BLOB, text TEXT)",
    )?;
    let began = Instant::now();
    db.execute_batch("BEGIN")?;
    {
        let mut insert = db.prepare("INSERT INTO messages VALUES (?1, ?2, ?3)")?;
        for conversation in 0..CONVERSATIONS {
            for message in 0..MESSAGES {
                let (of, id) = (id(conversation << 16), id((conversation << 16) | (message + 1)));
                insert.execute(params![id, of, text(conversation, message, 3)])?;
            }
        }
    }
    db.execute_batch("COMMIT")?;
    Ok(began.elapsed())
}

async fn bulk_postgres(url: &str) -> anyhow::Result<Duration> {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
    let work = async {
        client.batch_execute("CREATE TABLE bare_messages (id uuid, conversation uuid, text text)").await?;
        let began = Instant::now();
        let sink = client.copy_in("COPY bare_messages FROM STDIN").await?;
        let mut sink = std::pin::pin!(sink);
        for conversation in 0..CONVERSATIONS {
            let own = id(conversation << 16);
            let lines: String = (0..MESSAGES)
                .map(|message| {
                    let id = id((conversation << 16) | (message + 1));
                    format!("{id}\t{own}\t{}\n", text(conversation, message, 3))
                })
                .collect();
            sink.send(Bytes::from(lines)).await?;
        }
        sink.finish().await?;
        let took = began.elapsed();
        client.batch_execute("DROP TABLE bare_messages").await?;
        anyhow::Ok(took)
    };
    tokio::select! {
        done = work => done,
        ended = connection => {
            ended?;
            anyhow::bail!("the connection ended")
        }
    }
}
