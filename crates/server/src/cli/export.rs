//! `threadkeep export`: a workspace, or one conversation, into a file, a folder or a zip.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::json;
use store::StoreError;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::{admin_scope, open_beside, say};
use crate::boot::open_blobs;
use crate::config::{Config, store_flags};
use crate::progress::{Progress, counted};
use crate::transfer::export::{Export, ExportError, Exported, Format, Origin, Part};
use crate::transfer::output::{write_file, write_folder, write_text, write_zip_file};

pub(super) fn command() -> Command {
    let conversation = Arg::new("conversation")
        .long("conversation")
        .value_name("ID")
        .value_parser(super::uuid)
        .help("This conversation alone, and its files");
    let format = Arg::new("format")
        .long("format")
        .value_name("FORMAT")
        .value_parser(["jsonl", "markdown", "html"])
        .default_value("jsonl")
        .help("JSON Lines with everything, or the conversations alone to read");
    let output = Arg::new("output")
        .long("output")
        .short('o')
        .value_name("PATH")
        .value_parser(value_parser!(PathBuf))
        .help("A file, NAME.zip, or a new folder for lines and files apart [default: standard output]");
    let json = Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print what was done as JSON");
    store_flags(
        Command::new("export")
            .about("Write everything of a workspace, or one conversation, into a file or a folder")
            .long_about(
                "Write conversations with all branches, messages, settled runs and files, and the workspace's agents, \
                 pages, tables, executions, settings and own files. Keys, members, tool servers and what is deleted \
                 stay out. What `threadkeep import` makes of it is the same again. Works beside a \
                 running server.",
            )
            .args(super::whose())
            .args([conversation, format, output, json]),
    )
}

pub(super) async fn run(config: Config, matches: ArgMatches) -> Result<ExitCode> {
    let store = open_beside(&config).await?;
    let blobs = open_blobs(&config, &TaskTracker::new()).await?;
    let scope = admin_scope(&config, &*store, &matches).await?;
    let conversation = matches.get_one::<Uuid>("conversation").copied();
    let output = matches.get_one::<PathBuf>("output").cloned();
    let json = matches.get_flag("json");
    let to_read = match matches.get_one::<String>("format").map(String::as_str) {
        Some("markdown") => Some(Format::Markdown),
        Some("html") => Some(Format::Html),
        _ => None,
    };
    let place = Place::of(output, to_read.is_some())?;
    if let Some(id) = conversation
        && let Err(StoreError::NotFound) = store.list_message_ids(&scope, id).await
    {
        bail!("there is no conversation {id} in workspace {}", scope.workspace);
    }
    let to_stdout = place.path().is_none();
    let origin = Origin { store: store.clone(), blobs, scope, conversation };
    let done = write(origin, place, to_read).await;
    store.close().await;
    let (done, place) = match done {
        // A reader of standard output that has seen enough is no failure.
        Err(error) if to_stdout && is_broken_pipe(&error) => return Ok(ExitCode::SUCCESS),
        done => done?,
    };
    if let Some(path) = place {
        say(&told(json, done, &path));
    }
    Ok(ExitCode::SUCCESS)
}

enum Place {
    Stdout,
    File(PathBuf),
    Zip(PathBuf),
    Folder(PathBuf),
}

impl Place {
    /// What is to be read is one file.
    fn of(path: Option<PathBuf>, to_read: bool) -> Result<Self> {
        let Some(path) = path else { return Ok(Self::Stdout) };
        if path.file_name().is_none() && !path.is_dir() {
            bail!("-o {} names no file and no folder", path.display());
        }
        Ok(match path.extension().and_then(|ending| ending.to_str()) {
            _ if to_read && path.is_dir() => bail!("-o {} is a folder: name a file", path.display()),
            Some("zip") if to_read => {
                bail!("-o {} would be one text, and no zip: name a file such as export.md", path.display())
            }
            _ if to_read => Self::File(path),
            _ if path.is_dir() => Self::Folder(path),
            Some("zip") => Self::Zip(path),
            Some(_) => Self::File(path),
            None => Self::Folder(path),
        })
    }

    fn format(&self) -> Format {
        match self {
            Self::Stdout | Self::File(_) => Format::Lines,
            Self::Zip(_) | Self::Folder(_) => Format::LinesThenBlobs,
        }
    }

    fn path(&self) -> Option<&Path> {
        match self {
            Self::Stdout => None,
            Self::File(path) | Self::Zip(path) | Self::Folder(path) => Some(path),
        }
    }

    /// Takes all parts. Blocks.
    fn take(self, parts: mpsc::Receiver<Part>) -> Result<()> {
        match self {
            Self::Stdout => {
                let written = write_text(&mut std::io::stdout().lock(), parts);
                written.context("standard output cannot be written")
            }
            Self::File(path) => write_file(&path, parts),
            Self::Zip(path) => write_zip_file(&path, parts),
            Self::Folder(path) => write_folder(&path, parts),
        }
    }
}

/// Writes all of it, and answers how much and where.
async fn write(origin: Origin, place: Place, to_read: Option<Format>) -> Result<(Exported, Option<PathBuf>)> {
    let (path, format) = (place.path().map(Path::to_owned), to_read.unwrap_or(place.format()));
    let (out, parts) = mpsc::channel(32);
    let writer = tokio::task::spawn_blocking(move || place.take(parts));
    let mut progress = Progress::new("exported");
    let exported = Export::new(origin, format, out)
        .run(|done| progress.count(done.conversations, "conversations"))
        .await;
    // Why the writer stopped says more than that it did.
    let written = writer.await.context("the writer ended early")?;
    progress.end();
    match exported {
        Err(ExportError::Gone) => {
            written?;
            Err(ExportError::Gone.into())
        }
        exported => {
            let done = exported?;
            written?;
            Ok((done, path))
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn told(json: bool, done: Exported, path: &Path) -> String {
    let Exported { conversations, messages, files, executions, pages, tables } = done;
    if json {
        let counts = json!({ "conversations": conversations, "messages": messages, "files": files,
            "executions": executions, "pages": pages, "tables": tables });
        return json!({ "exported": counts, "path": path.display().to_string() }).to_string();
    }
    let more = [(executions, "execution"), (pages, "page"), (tables, "table")]
        .map(|(count, one)| if count > 0 { format!(", {}", counted(count, one)) } else { String::new() })
        .concat();
    format!(
        "Exported {} with {} and {}{more} to {}.",
        counted(conversations, "conversation"),
        counted(messages, "message"),
        counted(files, "file"),
        path.display()
    )
}
