//! What a sandbox's body means, without the network: bytes go in as they arrive, out come lines that were
//! taken or rejected, and in the end exactly one outcome. Whatever is sent, memory stays bounded.

use bytes::Bytes;
use domain::line::{Line, LineSplitter, LineTooLong, parse};

use crate::room::{MAX_STEPS, MAX_STEPS_BYTES, MAX_TEXT_BYTES, Room, Taken};

/// Body bytes a run may send.
pub const MAX_RUN_BYTES: u64 = 64 * 1024 * 1024;
/// This many rejected lines in a row end the run.
pub const MAX_REJECTED_IN_A_ROW: u32 = 100;
/// Of the lines after the terminal one, how many are kept, and how much of each.
const IGNORED_KEPT: usize = 3;
const IGNORED_BYTES: usize = 1024;
const USE_FILES: &str = "Large results belong into files.";

#[derive(Debug, Clone)]
pub enum Received {
    /// A good line; of an execution, with its bytes as they came.
    Line { line: Line, raw: Option<Bytes> },
    /// Not forwarded; for the trace.
    Rejected { raw: Bytes, reason: String },
    /// What came after the terminal line: how many lines, and the beginnings of the first of them.
    Ignored { count: u64, first: Vec<Bytes> },
    /// Once, and nothing after it.
    End(Outcome),
}

#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    Result {
        message: String,
        ts: Option<i64>,
    },
    /// The sandbox's own error.
    Error {
        code: String,
        message: String,
        ts: Option<i64>,
    },
    /// An error of ours.
    Failed {
        code: FailureCode,
        message: String,
    },
    Cancelled,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureCode {
    Unreachable,
    Timeout,
    Protocol,
    NoResult,
}

impl FailureCode {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "sandbox_unreachable",
            Self::Timeout => "sandbox_timeout",
            Self::Protocol => "sandbox_protocol",
            Self::NoResult => "sandbox_no_result",
        }
    }
}

/// How the body came to its end.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ending<'a> {
    Whole,
    /// With the reason.
    Broken(&'a str),
}

pub(crate) struct Intake {
    splitter: LineSplitter,
    bytes: u64,
    /// A limit was passed: nothing more is taken, whatever the outcome is.
    over: bool,
    tally: Tally,
}

#[derive(Default)]
struct Tally {
    /// Whether the bytes of good lines are wanted.
    keeps: bool,
    valid: u64,
    rejected: u64,
    rejected_in_a_row: u32,
    room: Room,
    ignored: u64,
    ignored_first: Vec<Bytes>,
    outcome: Option<Outcome>,
}

impl Intake {
    pub(crate) fn new(max_line: usize, keeps: bool) -> Self {
        let tally = Tally { keeps, ..Tally::default() };
        Self { splitter: LineSplitter::new(max_line), bytes: 0, over: false, tally }
    }

    /// The outcome is known; more bytes would only be ignored.
    pub(crate) fn is_decided(&self) -> bool {
        self.tally.outcome.is_some()
    }

    /// More bytes would not even be looked at.
    pub(crate) fn is_over(&self) -> bool {
        self.over || self.tally.has_failed()
    }

    pub(crate) fn take(&mut self, chunk: &[u8], out: &mut Vec<Received>) {
        if self.is_over() {
            return;
        }
        let room = usize::try_from(MAX_RUN_BYTES - self.bytes).unwrap_or(usize::MAX);
        let taken = &chunk[..chunk.len().min(room)];
        self.bytes += taken.len() as u64;
        self.splitter.push(taken);
        loop {
            match self.splitter.next_line() {
                Ok(Some(line)) => self.tally.line(line, out),
                Ok(None) => break,
                Err(too_long) => {
                    self.over = true;
                    return self.tally.too_long(too_long);
                }
            }
        }
        if taken.len() < chunk.len() {
            self.over = true;
            let limit = MAX_RUN_BYTES / (1024 * 1024);
            self.tally.fail(format!("The sandbox sent more than {limit} MiB in one run. {USE_FILES}"));
        }
    }

    /// The body is over, or nobody reads on: the last line counts without its newline.
    pub(crate) fn end(&mut self, ending: Ending<'_>, out: &mut Vec<Received>) {
        if !self.is_over() {
            match self.splitter.finish() {
                Ok(Some(line)) => self.tally.line(line, out),
                Ok(None) => {}
                Err(too_long) => self.tally.too_long(too_long),
            }
        }
        self.tally.end(ending, out);
    }
}

impl Tally {
    fn has_failed(&self) -> bool {
        matches!(self.outcome, Some(Outcome::Failed { .. }))
    }

    /// The first outcome stands.
    fn fail(&mut self, message: String) {
        self.outcome.get_or_insert(Outcome::Failed { code: FailureCode::Protocol, message });
    }

    fn too_long(&mut self, LineTooLong { max }: LineTooLong) {
        if self.outcome.is_some() && !self.has_failed() {
            self.ignore(b"a line over the limit");
        }
        self.fail(format!("The sandbox sent a line of more than {max} bytes (MAX_LINE_BYTES). {USE_FILES}"));
    }

    fn line(&mut self, line: &[u8], out: &mut Vec<Received>) {
        match self.outcome {
            None => {}
            Some(Outcome::Failed { .. }) => return,
            Some(_) => return self.ignore(line),
        }
        match parse(line) {
            Ok(good) => self.good(good, line, out),
            Err(rejection) => self.reject(line, rejection.to_string(), out),
        }
    }

    fn good(&mut self, mut line: Line, raw: &[u8], out: &mut Vec<Received>) {
        self.valid += 1;
        self.rejected_in_a_row = 0;
        // The lines of an execution make no answer.
        if !self.keeps && !self.has_room(&mut line, raw, out) {
            return;
        }
        match &line {
            Line::Result { message, ts } => {
                self.outcome = Some(Outcome::Result { message: message.clone(), ts: *ts });
            }
            Line::Error { code, message, ts } => {
                let (code, message, ts) = (code.clone(), message.clone(), *ts);
                self.outcome = Some(Outcome::Error { code, message, ts });
            }
            _ => {}
        }
        let raw = self.keeps.then(|| Bytes::copy_from_slice(raw));
        out.push(Received::Line { line, raw });
    }

    /// Whether the line is taken. A step too many is left out like a rejected line, or what is long in it, yet the sandbox
    /// speaks the protocol: it does not count towards giving up on it. Text is not left out, for nobody would see that.
    fn has_room(&mut self, line: &mut Line, raw: &[u8], out: &mut Vec<Received>) -> bool {
        match line {
            Line::Delta { text, .. } if !self.room.takes_text(text) => {
                let limit = MAX_TEXT_BYTES / (1024 * 1024);
                self.fail(format!("The sandbox's answer has more than {limit} MiB of text. {USE_FILES}"));
                false
            }
            Line::Step(step) => {
                let taken = self.room.take_step(step);
                if taken != Taken::Whole {
                    let limit = MAX_STEPS_BYTES / (1024 * 1024);
                    let reason = format!("no room: a run may have {MAX_STEPS} steps of {limit} MiB together");
                    self.rejected += 1;
                    out.push(Received::Rejected { raw: Bytes::copy_from_slice(raw), reason });
                    (step.args, step.result, step.error, step.sent) = (None, None, None, None);
                }
                taken != Taken::Nothing
            }
            _ => true,
        }
    }

    fn reject(&mut self, raw: &[u8], reason: String, out: &mut Vec<Received>) {
        self.rejected += 1;
        self.rejected_in_a_row += 1;
        if self.rejected_in_a_row >= MAX_REJECTED_IN_A_ROW {
            self.fail(format!(
                "The sandbox sent {MAX_REJECTED_IN_A_ROW} lines in a row that are not of its protocol; \
                 the last one: {reason}."
            ));
        }
        out.push(Received::Rejected { raw: Bytes::copy_from_slice(raw), reason });
    }

    fn ignore(&mut self, raw: &[u8]) {
        self.ignored += 1;
        if self.ignored_first.len() < IGNORED_KEPT {
            let kept = raw.len().min(IGNORED_BYTES);
            self.ignored_first.push(Bytes::copy_from_slice(&raw[..kept]));
        }
    }

    fn end(&mut self, ending: Ending<'_>, out: &mut Vec<Received>) {
        if self.ignored > 0 {
            let first = std::mem::take(&mut self.ignored_first);
            out.push(Received::Ignored { count: self.ignored, first });
        }
        let outcome = self.outcome.take().unwrap_or_else(|| self.without_terminal(ending));
        out.push(Received::End(outcome));
    }

    fn without_terminal(&self, ending: Ending<'_>) -> Outcome {
        let how = match ending {
            Ending::Whole => "ended its answer".to_owned(),
            Ending::Broken(reason) => format!("broke off its answer ({reason})"),
        };
        let (code, what) = match (self.valid, self.rejected) {
            (0, 0) => (FailureCode::Protocol, "without sending a line".to_owned()),
            (0, bad) => (
                FailureCode::Protocol,
                format!("without one line of its protocol ({bad} rejected). Is this address a sandbox?"),
            ),
            (good, _) => (FailureCode::NoResult, format!("after {good} lines, before a result or an error")),
        };
        Outcome::Failed { code, message: format!("The sandbox {how} {what}") }
    }
}
