//! OpenTelemetry traces: what was done within what, for how long, told to a collector over HTTP as protobuf. Where no
//! collector is named nothing is recorded, and a caller's own trace is passed on as it came.
//!
//! A span names what was done and never holds what people wrote, nor a secret. A collector that is slow or away costs
//! spans, nothing else.

mod export;
mod proto;

use std::sync::OnceLock;
use std::time::Instant;

use domain::time::{Clock as _, SystemClock};
use futures_util::FutureExt as _;
use futures_util::future::{Either, lazy};
use tokio::sync::mpsc;

pub use export::{Exporter, start};

tokio::task_local! {
    static CURRENT: Option<Context>;
}

/// Set once by the process that exports.
static RECORDER: OnceLock<Recorder> = OnceLock::new();

struct Recorder {
    spans: mpsc::Sender<Span>,
    /// Of new traces, the share that is recorded.
    share: f64,
    /// What the clock said when the process began, so that spans have finer times than it.
    began: (i64, Instant),
}

/// A place in a trace, as W3C's `traceparent` has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context {
    trace: [u8; 16],
    span: [u8; 8],
    sampled: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Internal = 1,
    Server = 2,
    Client = 3,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Text(String),
    Number(i64),
}

/// What is told of something that was done.
#[derive(Debug, Clone)]
pub(crate) struct Span {
    context: Context,
    parent: Option<[u8; 8]>,
    name: String,
    kind: Kind,
    from: Instant,
    start_ns: u64,
    end_ns: u64,
    attributes: Vec<(&'static str, Value)>,
    failed: bool,
}

impl Context {
    /// Of a `traceparent` header; one that is not well-formed is none.
    pub fn parse(header: &str) -> Option<Self> {
        let mut parts = header.trim().split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        // A later version may add parts; the first has four.
        let known = version.len() == 2 && version != "ff" && (version != "00" || parts.next().is_none());
        let (trace, span, [flags]) = (hex::<16>(trace)?, hex::<8>(span)?, hex::<1>(flags)?);
        hex::<1>(version)?;
        let real = trace != [0; 16] && span != [0; 8];
        (known && real).then_some(Self { trace, span, sampled: flags & 1 == 1 })
    }

    pub fn header(&self) -> String {
        let text = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        format!("00-{}-{}-{:02x}", text(&self.trace), text(&self.span), u8::from(self.sampled))
    }
}

fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let lower = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if text.len() != N * 2 || !lower {
        return None;
    }
    let mut bytes = [0; N];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[index * 2..index * 2 + 2], 16).ok()?;
    }
    Some(bytes)
}

/// Where the task is in a trace.
pub fn current() -> Option<Context> {
    CURRENT.try_with(|context| *context).ok().flatten()
}

/// Does work at a place of a trace: for a task that goes on with what another began.
///
/// Neither this nor `span` is an `async fn`: those keep a future that they are given twice over, and a run's is kept
/// for as long as the run takes.
pub fn within<T>(context: Option<Context>, work: impl Future<Output = T>) -> impl Future<Output = T> {
    match context {
        Some(_) => Either::Left(CURRENT.scope(context, work)),
        None => Either::Right(work),
    }
}

/// Does work as a span of the current trace, or of a new one. `tell` adds what the outcome says; true is a failure.
/// Where nothing is recorded it costs nothing, its name neither.
pub fn span<T>(
    name: impl FnOnce() -> String,
    kind: Kind,
    work: impl Future<Output = T>,
    tell: impl FnOnce(&T, &mut Vec<(&'static str, Value)>) -> bool,
) -> impl Future<Output = T> {
    let Some(recorder) = RECORDER.get() else { return Either::Right(work) };
    // Not before the first poll: only then it is known within what this is done.
    let recorded = lazy(move |_| {
        let parent = current();
        let context = recorder.below(parent);
        let mut recording = Recording::begin(recorder, context, parent, name(), kind);
        CURRENT.scope(Some(context), work).inspect(move |outcome| {
            if let Some(span) = &mut recording.0 {
                span.failed = tell(outcome, &mut span.attributes);
            }
        })
    });
    Either::Left(recorded.flatten())
}

impl Recorder {
    fn below(&self, parent: Option<Context>) -> Context {
        let (fresh, id) = (SystemClock.new_id().into_bytes(), SystemClock.new_id().into_bytes());
        let mut span = [0; 8];
        span.copy_from_slice(&id[8..]);
        match parent {
            Some(parent) => Context { span, ..parent },
            None => Context { trace: fresh, span, sampled: self.takes(&fresh) },
        }
    }

    /// By the end of the id, which is random.
    fn takes(&self, trace: &[u8; 16]) -> bool {
        let mut end = [0; 4];
        end.copy_from_slice(&trace[12..]);
        f64::from(u32::from_be_bytes(end)) < self.share * 4_294_967_296.0
    }

    fn now_ns(&self) -> u64 {
        let (ms, since) = self.began;
        let ns = i128::from(ms) * 1_000_000 + i128::try_from(since.elapsed().as_nanos()).unwrap_or(0);
        u64::try_from(ns).unwrap_or(0)
    }
}

/// A span under way: told when it ends, also by being dropped.
struct Recording(Option<Span>);

impl Recording {
    fn begin(
        recorder: &Recorder,
        context: Context,
        parent: Option<Context>,
        name: String,
        kind: Kind,
    ) -> Self {
        let start_ns = recorder.now_ns();
        let span = || Span {
            context,
            parent: parent.map(|parent| parent.span),
            name,
            kind,
            from: Instant::now(),
            start_ns,
            end_ns: start_ns,
            attributes: Vec::new(),
            failed: false,
        };
        Self(context.sampled.then(span))
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if let (Some(mut span), Some(recorder)) = (self.0.take(), RECORDER.get()) {
            span.end_ns = span.start_ns + u64::try_from(span.from.elapsed().as_nanos()).unwrap_or(0);
            // A full queue costs the span.
            let _ = recorder.spans.try_send(span);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_is_read_strictly_and_written_back() {
        assert_eq!(Context::parse(GOOD).map(|context| context.header()).as_deref(), Some(GOOD));
        let unsampled = GOOD.replace("-01", "-00");
        assert_eq!(Context::parse(&unsampled).map(|context| context.header()), Some(unsampled));
        assert!(Context::parse(&GOOD.replace("00-4b", "01-4b")).is_some(), "a later version");
        assert!(Context::parse(&format!("{}-more", GOOD.replace("00-4b", "01-4b"))).is_some());
        for bad in [
            "",
            "00",
            &GOOD[1..],
            &GOOD.to_uppercase(),
            &GOOD.replace("00-4b", "ff-4b"),
            &format!("{GOOD}-more"),
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-600f067aa0ba902b7-01",
        ] {
            assert_eq!(Context::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_is_traced_is_kept_once() {
        let work = || async {
            let long = [0_u8; 4096];
            tokio::task::yield_now().await;
            long.len()
        };
        let alone = size_of_val(&work());
        let spanned = span(String::new, Kind::Internal, work(), |_, _| false);
        let whole = size_of_val(&within(None, spanned));
        assert!(alone > 4096 && whole < alone + 512, "{alone} bytes became {whole}");
    }

    #[tokio::test]
    async fn without_a_collector_a_callers_trace_is_passed_on_as_it_came() {
        let context = Context::parse(GOOD);
        let seen =
            within(context, span(String::new, Kind::Internal, async { current() }, |_, _| false)).await;
        assert_eq!(seen, context);
        assert_eq!(current(), None);
    }
}
