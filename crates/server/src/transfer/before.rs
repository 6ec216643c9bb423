//! Lines of an export of ours that stand before the one that they belong to: rows of a table, logs of runs, parts of a
//! conversation. Few are held in memory; more are in a file without a name.

use std::collections::HashMap;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::sync::{Arc, Mutex, PoisonError};

use domain::table::{Row, Table};
use domain::transfer::conversation_line::ConversationLine;
use domain::transfer::own::{self, Line};
use domain::transfer::{Archive, Refusal, Trace};
use store::transfer::Pieces;
use tempfile::SpooledTempFile;
use uuid::Uuid;

/// Bytes of one thing's lines that are held in memory.
const HELD: usize = 64 * 1024;
/// A conversation is put together in memory: its parts have no more than this.
const MAX_PARTS_BYTES: usize = 1024 * 1024 * 1024;

/// Lines, each to be read again by its number.
struct Lines(Mutex<Spooled>);

struct Spooled {
    file: SpooledTempFile,
    /// Where each line ends.
    ends: Vec<u64>,
}

impl Default for Lines {
    fn default() -> Self {
        Self(Mutex::new(Spooled { file: SpooledTempFile::new(HELD), ends: Vec::new() }))
    }
}

impl Lines {
    fn push(&self, line: &str) -> io::Result<()> {
        let Spooled { file, ends } = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let end = file.seek(SeekFrom::Start(ends.last().copied().unwrap_or(0)))?;
        file.write_all(line.as_bytes())?;
        ends.push(end + line.len() as u64);
        Ok(())
    }

    fn read(&self, at: usize) -> io::Result<Option<Line>> {
        let Spooled { file, ends } = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(end) = ends.get(at) else { return Ok(None) };
        let start = at.checked_sub(1).and_then(|before| ends.get(before)).copied().unwrap_or(0);
        file.seek(SeekFrom::Start(start))?;
        let mut line = String::new();
        (&mut *file).take(end - start).read_to_string(&mut line)?;
        own::read_line(&line).map(Some).map_err(io::Error::other)
    }
}

impl Pieces<Trace> for Lines {
    fn piece(&self, at: usize) -> io::Result<Option<Trace>> {
        match self.read(at)? {
            Some(Line::Trace(trace)) => Ok(Some(trace)),
            Some(_) => Err(io::ErrorKind::InvalidData.into()),
            None => Ok(None),
        }
    }
}

impl Pieces<Vec<Row>> for Lines {
    fn piece(&self, at: usize) -> io::Result<Option<Vec<Row>>> {
        match self.read(at)? {
            Some(Line::Rows(_, rows)) => Ok(Some(rows)),
            Some(_) => Err(io::ErrorKind::InvalidData.into()),
            None => Ok(None),
        }
    }
}

/// What was read since the last thing that such lines belong to.
#[derive(Default)]
pub struct Before {
    rows: Lines,
    /// The table that the rows are of.
    table: Option<Uuid>,
    traces: Lines,
    /// The number of each run's newest entry.
    traced: HashMap<Uuid, i64>,
    parts: Lines,
    parts_bytes: usize,
    /// Why what they belong to cannot be taken.
    fault: Option<Refusal>,
}

impl Before {
    pub fn add_rows(&mut self, table: Uuid, line: &str) -> io::Result<()> {
        if *self.table.get_or_insert(table) != table {
            *self = Self { table: Some(table), ..Self::default() };
        }
        self.rows.push(line)
    }

    pub fn add_trace(&mut self, trace: &Trace, line: &str) -> io::Result<()> {
        let newest = self.traced.entry(trace.run).or_insert(0);
        if *newest + 1 != trace.first {
            self.refuse(Refusal(format!("the trace of the run {} goes on where it was not", trace.run)));
            return Ok(());
        }
        *newest += trace.entries.len() as i64;
        self.traces.push(line)
    }

    pub fn add_part(&mut self, line: &str) -> io::Result<()> {
        self.parts_bytes += line.len();
        if self.parts_bytes > MAX_PARTS_BYTES {
            let most = MAX_PARTS_BYTES / (1024 * 1024);
            self.refuse(Refusal(format!("it has more than {most} MiB in its parts")));
            return Ok(());
        }
        self.parts.push(line)
    }

    pub fn has_trace(&self, run: Uuid) -> bool {
        self.traced.contains_key(&run)
    }

    /// The next thing cannot be taken.
    pub fn refuse(&mut self, fault: Refusal) {
        self.fault.get_or_insert(fault);
    }

    /// The logs of the runs of what comes now.
    pub fn take_traces(&mut self) -> Result<Arc<dyn Pieces<Trace>>, Refusal> {
        let Self { traces, fault, .. } = std::mem::take(self);
        fault.map_or_else(|| Ok(Arc::new(traces) as Arc<dyn Pieces<Trace>>), Err)
    }

    /// The conversation that comes now, put together, and the logs of its runs.
    pub fn take_conversation(
        &mut self,
        line: ConversationLine,
    ) -> Result<(Archive, Arc<dyn Pieces<Trace>>), Refusal> {
        let Self { traces, traced, parts, fault, .. } = std::mem::take(self);
        if let Some(fault) = fault {
            return Err(fault);
        }
        let part = |at| match parts.read(at) {
            Ok(Some(Line::Part(part))) => Some(Ok(part)),
            Ok(None) => None,
            Ok(Some(_)) => Some(Err(Refusal::new("a part of it is none"))),
            Err(error) => Some(Err(Refusal(error.to_string()))),
        };
        let mut archive = line.join((0..).map_while(part))?;
        archive.without_logs(|run| !traced.contains_key(&run));
        Ok((archive, Arc::new(traces)))
    }

    /// The rows of the table that comes now: all of them, in the order of their ids, each with cells of its columns.
    pub fn take_rows(&mut self, table: &Table) -> Result<Arc<dyn Pieces<Vec<Row>>>, Refusal> {
        let Self { rows, table: of, fault, .. } = std::mem::take(self);
        if let Some(fault) = fault {
            return Err(fault);
        }
        let (rows, mut count, mut last) = (Arc::new(rows), 0, Uuid::nil());
        let pieces: Arc<dyn Pieces<Vec<Row>>> = rows;
        if of.is_none_or(|of| of == table.id) {
            for at in 0.. {
                let read = pieces.piece(at).map_err(|error| Refusal(error.to_string()))?;
                let Some(rows) = read else { break };
                for row in &rows {
                    if std::mem::replace(&mut last, row.id) >= row.id {
                        return Err(Refusal(format!("the row {} is not in the order of the ids", row.id)));
                    }
                    table.check_row(row).map_err(|fault| Refusal(fault.detail))?;
                    count += 1;
                }
            }
        }
        if count == table.row_count {
            return Ok(pieces);
        }
        Err(Refusal(format!("{count} of its {} rows are in the export", table.row_count)))
    }
}
