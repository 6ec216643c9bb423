//! The lines of our own export: one JSON object each, in a fixed order and spelling, so that the same store gives
//! the same bytes. The first says what it is; bytes of files that come in the same stream stand before the line
//! that names them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::Refusal;
use super::archive::{Archive, ArchivedExecution, ArchivedFile, Settings, Trace, check_file};
use super::conversation_line::{ConversationLine, PartLine};
use super::file_line::FileLine;
use super::knowledge_line::{PageLine, RowsLine, TableLine};
use super::run_line::{ExecutionLine, TraceLine};
use crate::agent::{Agent, AgentSettings};
use crate::event::Raw;
use crate::file::Bag;
use crate::page::Page;
use crate::table::{Row, Table};
use crate::time::from_ms;

/// What the first line of an export says.
pub const VERSION: u32 = 1;

/// How many bytes of a file one line holds.
pub const BLOB_CHUNK: usize = 512 * 1024;

/// How much of a conversation goes into one line, but for a single message or run that is larger.
const PART_BYTES: usize = 8 * 1024 * 1024;

/// One line of an export.
#[derive(Debug)]
pub enum Line {
    Header,
    Workspace(Settings),
    Agent(Agent),
    Page(Page),
    /// Rows of the table with this id, which is told of after them.
    Rows(Uuid, Vec<Row>),
    Table(Table),
    /// A file that the workspace keeps.
    File(ArchivedFile),
    /// The bytes of a file, from `offset` on.
    Blob {
        sha256: String,
        offset: u64,
        bytes: Vec<u8>,
    },
    /// A part of the log of a run, which is told of after it.
    Trace(Trace),
    Execution(Box<ArchivedExecution>),
    /// A part of a conversation, which is told of after it.
    Part(PartLine),
    Conversation(Box<ConversationLine>),
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Small {
    Threadkeep { version: u32 },
    Workspace(Settings),
    Agent(AgentLine),
    Page(PageLine),
    Table(TableLine),
    File(FileLine),
    Blob { sha256: String, offset: u64, data: String },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentLine {
    id: Uuid,
    name: String,
    settings: AgentSettings,
    created_at: Timestamp,
    updated_at: Timestamp,
}

/// One line, without its end. JSON text of someone else's making may hold line breaks between its parts, never
/// within a string; they become spaces.
pub(super) fn line(value: &impl Serialize) -> Result<String, Refusal> {
    let text = serde_json::to_string(value).map_err(|error| Refusal(error.to_string()))?;
    Ok(if text.contains(['\n', '\r']) { text.replace(['\n', '\r'], " ") } else { text })
}

pub fn header_line() -> Result<String, Refusal> {
    line(&Small::Threadkeep { version: VERSION })
}

pub fn workspace_line(settings: &Settings) -> Result<String, Refusal> {
    line(&Small::Workspace(settings.clone()))
}

pub fn page_line(page: &Page) -> Result<String, Refusal> {
    line(&Small::Page(PageLine::of(page)))
}

pub fn rows_line(table: Uuid, rows: &[Row]) -> Result<String, Refusal> {
    line(&RowsLine::of(table, rows))
}

pub fn table_line(table: &Table) -> Result<String, Refusal> {
    line(&Small::Table(TableLine::of(table)))
}

pub fn trace_line(trace: &Trace) -> Result<String, Refusal> {
    line(&TraceLine::of(trace)?)
}

pub fn execution_line(execution: &ArchivedExecution) -> Result<String, Refusal> {
    line(&ExecutionLine::of(execution)?)
}

pub fn agent_line(agent: &Agent) -> Result<String, Refusal> {
    let Agent { id, name, settings, created_at, updated_at } = agent.clone();
    line(&Small::Agent(AgentLine { id, name, settings, created_at, updated_at }))
}

pub fn file_line(file: &ArchivedFile) -> Result<String, Refusal> {
    line(&Small::File(FileLine::of(file)))
}

pub fn blob_line(sha256: &str, offset: u64, bytes: &[u8]) -> Result<String, Refusal> {
    line(&Small::Blob { sha256: sha256.to_owned(), offset, data: BASE64.encode(bytes) })
}

/// A conversation in a line, or where that would be too long for one, with parts of it before.
pub fn conversation_lines(archive: &Archive) -> Result<Vec<String>, Refusal> {
    let (parts, whole) = ConversationLine::of(archive, PART_BYTES)?;
    parts.iter().map(line).chain([line(&whole)]).collect()
}

pub(super) fn raw(text: &str) -> Result<Raw, Refusal> {
    RawValue::from_string(text.to_owned()).map_err(|error| Refusal(error.to_string()))
}

pub(super) fn parse<T: for<'de> Deserialize<'de>>(text: &str) -> Result<T, Refusal> {
    serde_json::from_str(text).map_err(|error| Refusal(error.to_string()))
}

#[derive(Deserialize)]
struct Tag {
    r#type: String,
}

/// Whether a line is the first of an export: what is wrong with it is wrong with all of them.
pub fn is_header(text: &str) -> bool {
    parse::<Tag>(text).is_ok_and(|tag| tag.r#type == "threadkeep")
}

/// Reads one line. What a conversation holds is checked when it is joined with its parts, and by `Archive::check`.
pub fn read_line(text: &str) -> Result<Line, Refusal> {
    let Tag { r#type } = parse(text).map_err(|_| Refusal::new("a line is a JSON object with a type"))?;
    // What holds JSON as it was spelled must be read as what it is at once.
    match &*r#type {
        "conversation" => return Ok(Line::Conversation(parse(text)?)),
        "part" => return Ok(Line::Part(parse(text)?)),
        "execution" => return Ok(Line::Execution(Box::new(parse::<ExecutionLine>(text)?.read()?))),
        "trace" => return Ok(Line::Trace(parse::<TraceLine>(text)?.read()?)),
        "rows" => {
            let (table, rows) = parse::<RowsLine>(text)?.read();
            return Ok(Line::Rows(table, rows));
        }
        _ => {}
    }
    match parse(text)? {
        Small::Threadkeep { version: VERSION } => Ok(Line::Header),
        Small::Threadkeep { version } => Err(Refusal(format!(
            "the export has version {version}, this Threadkeep reads version {VERSION}: use a newer one"
        ))),
        Small::Workspace(settings) => Ok(Line::Workspace(settings)),
        Small::Page(page) => Ok(Line::Page(page.read()?)),
        Small::Table(table) => Ok(Line::Table(table.read()?)),
        Small::Agent(AgentLine { id, name, settings, created_at, updated_at }) => {
            Ok(Line::Agent(Agent { id, name, settings, created_at, updated_at }))
        }
        Small::File(file) => {
            let file = file.read(Bag::Workspace)?;
            check_file(&file.file)?;
            Ok(Line::File(file))
        }
        Small::Blob { sha256, offset, data } => {
            let bytes = BASE64.decode(data).map_err(|_| Refusal::new("the data of a blob is not base64"))?;
            Ok(Line::Blob { sha256, offset, bytes })
        }
    }
}

pub(super) fn time(text: &str) -> Result<Timestamp, Refusal> {
    let at: Timestamp = text.parse().map_err(|_| Refusal(format!("{text:?} is not a time")))?;
    Ok(from_ms(at.as_millisecond()))
}
