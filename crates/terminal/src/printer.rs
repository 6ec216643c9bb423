//! Events to plain output that only grows: the answer, and beside it what is done on the way. Pure.

use std::collections::HashMap;

use domain::event::{RunEvent, Step, StepStatus};

use crate::clean::one_line;
use crate::files::size;

const SHOWN: usize = 200;

/// A piece of output. A piece of the answer is others' text as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    Answer(String),
    /// A whole line for standard error.
    Aside(String),
}

#[derive(Debug, Default)]
pub struct Printer {
    /// The text since the last other block.
    text: String,
    any: bool,
    /// The answer so far ends with its line.
    whole: bool,
    steps: HashMap<String, StepStatus>,
}

impl Printer {
    pub fn push(&mut self, event: &RunEvent) -> Vec<Piece> {
        match event {
            RunEvent::Turn(_) | RunEvent::Log(_) | RunEvent::Done(_) => Vec::new(),
            // Its client makes the call: there is nothing to decide.
            RunEvent::Approval(approval) if approval.client => Vec::new(),
            RunEvent::Delta(delta) => self.answer(&delta.text),
            RunEvent::Reasoning(_) => self.block(None),
            RunEvent::Step(step) => self.step(step),
            RunEvent::ToolCalls(calls) => {
                let told = calls.calls.iter().map(|call| {
                    format!("… {} {}", one_line(&call.name, SHOWN), one_line(call.args.get(), SHOWN))
                });
                told.collect::<Vec<_>>().into_iter().flat_map(|line| self.block(Some(line))).collect()
            }
            RunEvent::ToolResult(result) => {
                let name = one_line(&result.name, SHOWN);
                vec![Piece::Aside(match &result.error {
                    Some(error) => format!("✗ {name}: {}", one_line(error, SHOWN)),
                    None => format!("✓ {name}"),
                })]
            }
            RunEvent::Approval(approval) => {
                vec![Piece::Aside(format!(
                    "? {} {} waits for approval {}",
                    one_line(&approval.call.name, SHOWN),
                    one_line(approval.call.args.get(), SHOWN),
                    one_line(&approval.id, SHOWN)
                ))]
            }
            RunEvent::Sources(found) => {
                let line = |source: &domain::event::Source| {
                    let at = source.url.as_deref().or(source.locator.as_deref()).unwrap_or_default();
                    format!(
                        "[{}] {} {}",
                        one_line(&source.id, 20),
                        one_line(&source.title, SHOWN),
                        one_line(at, SHOWN)
                    )
                };
                found.sources.iter().flat_map(|source| self.block(Some(line(source)))).collect()
            }
            RunEvent::File(file) => {
                self.block(Some(format!("+ {} ({})", one_line(&file.name, SHOWN), size(file.size))))
            }
            RunEvent::Result(result) => self.result(&result.message),
            RunEvent::Error(error) => {
                let end = self.end();
                let line = format!("✗ {}: {}", one_line(&error.code, SHOWN), one_line(&error.message, 2000));
                end.into_iter().chain([Piece::Aside(line)]).collect()
            }
        }
    }

    /// A block that is no text: what comes after it is a new paragraph.
    fn block(&mut self, line: Option<String>) -> Vec<Piece> {
        self.text.clear();
        line.map(Piece::Aside).into_iter().collect()
    }

    fn answer(&mut self, delta: &str) -> Vec<Piece> {
        if delta.is_empty() {
            return Vec::new();
        }
        let mut pieces = Vec::new();
        if self.text.is_empty() && self.any {
            pieces.push(Piece::Answer("\n\n".to_owned()));
        }
        self.any = true;
        self.whole = delta.ends_with('\n');
        self.text.push_str(delta);
        pieces.push(Piece::Answer(delta.to_owned()));
        pieces
    }

    /// What was said cannot be taken back: a result that goes on from it adds the rest, another comes whole.
    fn result(&mut self, message: &str) -> Vec<Piece> {
        let rest = match message.strip_prefix(self.text.as_str()) {
            _ if message.is_empty() => String::new(),
            Some(rest) => rest.to_owned(),
            None => {
                self.text.clear();
                message.to_owned()
            }
        };
        let mut pieces = self.answer(&rest);
        pieces.extend(self.end());
        pieces
    }

    fn end(&mut self) -> Vec<Piece> {
        let open = std::mem::take(&mut self.any);
        self.text.clear();
        if open && !self.whole { vec![Piece::Answer("\n".to_owned())] } else { Vec::new() }
    }

    fn step(&mut self, step: &Step) -> Vec<Piece> {
        let before = self.steps.insert(step.id.clone(), step.status);
        if before == Some(step.status) {
            return Vec::new();
        }
        let line = step_line(
            step.status,
            &step.name,
            step.duration_ms.as_deref().map(|ms| ms.get()),
            step.error.as_deref(),
        );
        match before {
            // The end of a step further up tears no paragraph.
            Some(_) => vec![Piece::Aside(line)],
            None => self.block(Some(line)),
        }
    }
}

/// `✓ read_file (12 ms)`.
pub fn step_line(status: StepStatus, name: &str, duration_ms: Option<&str>, error: Option<&str>) -> String {
    let mark = match status {
        StepStatus::Running => "…",
        StepStatus::Succeeded => "✓",
        StepStatus::Failed => "✗",
        StepStatus::Interrupted => "⊘",
    };
    let mut line = format!("{mark} {}", one_line(name, SHOWN));
    if let Some(ms) = duration_ms.and_then(|ms| ms.parse::<f64>().ok()) {
        line.push_str(&if ms < 1000.0 {
            format!(" ({ms:.0} ms)")
        } else {
            format!(" ({:.1} s)", ms / 1000.0)
        });
    }
    if let Some(error) = error {
        line.push_str(": ");
        line.push_str(&one_line(error, SHOWN));
    }
    line
}

#[cfg(test)]
mod tests {
    use domain::entry::decode_event;

    use super::*;

    /// What stands on standard output and on standard error after these events.
    fn printed(events: &[(&str, &str)]) -> (String, Vec<String>) {
        let (mut printer, mut answer, mut asides) = (Printer::default(), String::new(), Vec::new());
        for (kind, data) in events {
            for piece in printer.push(&decode_event(kind, data).unwrap()) {
                match piece {
                    Piece::Answer(text) => answer.push_str(&text),
                    Piece::Aside(line) => asides.push(line),
                }
            }
        }
        (answer, asides)
    }

    const RUNNING: (&str, &str) = ("step", r#"{"type":"step","id":"s","name":"look","status":"running"}"#);
    const ENDED: (&str, &str) =
        ("step", r#"{"type":"step","id":"s","name":"look","status":"succeeded","durationMs":1500}"#);

    fn delta(text: &str) -> (&'static str, String) {
        ("delta", serde_json::json!({ "text": text }).to_string())
    }

    fn result(text: &str) -> (&'static str, String) {
        ("result", serde_json::json!({ "message": text, "assistant": null }).to_string())
    }

    #[test]
    fn the_answer_is_told_once_whatever_its_result_says() {
        for (deltas, message, shown) in [
            (vec!["Hel", "lo"], "Hello", "Hello\n"),
            (vec!["Hel"], "Hello there", "Hello there\n"),
            (vec![], "Hello", "Hello\n"),
            (vec!["Hello\n"], "", "Hello\n"),
            (vec!["Draft"], "Final", "Draft\n\nFinal\n"),
            (vec![], "", ""),
        ] {
            let events: Vec<_> = deltas.iter().map(|text| delta(text)).chain([result(message)]).collect();
            let events: Vec<_> = events.iter().map(|(kind, data)| (*kind, data.as_str())).collect();
            assert_eq!(printed(&events).0, shown, "{deltas:?} {message:?}");
        }
    }

    #[test]
    fn steps_stand_beside_the_answer_and_make_paragraphs() {
        let (first, second, last) = (delta("One."), delta("Two."), result("Two."));
        let events =
            [(first.0, first.1.as_str()), RUNNING, RUNNING, (second.0, &second.1), ENDED, (last.0, &last.1)];
        let (answer, asides) = printed(&events);
        assert_eq!(answer, "One.\n\nTwo.\n");
        assert_eq!(asides, ["… look", "✓ look (1.5 s)"]);
    }

    #[test]
    fn a_failure_ends_the_line_and_is_told_beside_it() {
        let (said, error) = (delta("Half"), r#"{"code":"x","message":"a\u001b[2J\nb","assistant":null}"#);
        let (answer, asides) = printed(&[(said.0, &said.1), ("error", error)]);
        assert_eq!((answer.as_str(), asides), ("Half\n", vec!["✗ x: a␛[2J b".to_owned()]));
    }
}
