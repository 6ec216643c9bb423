//! What a dialect that only adds has told of a run so far. A sandbox's step is a call to it, and the text of a result
//! is told as far as it is new. To go on in the middle of a run, the events before are read and not written.

use std::collections::hash_map::{DefaultHasher, Entry};
use std::collections::{HashMap, HashSet};
use std::hash::{Hash as _, Hasher as _};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::json;
use crate::run::UsageDetails;

/// What a call that never ended has for its error.
pub(super) const INTERRUPTED: &str = "interrupted";

/// An event as such a dialect needs it.
pub(super) enum Word {
    Begin {
        run: String,
        conversation: Option<String>,
    },
    Text(String),
    Reasoning(String),
    /// Calls to announce, and the end of the one where it is known already.
    Calls {
        round: u64,
        calls: Vec<Value>,
        ended: Option<Value>,
    },
    /// What a step that was announced before is given, `{ id, name, args }`, and its end where the same line has it.
    Args {
        call: Value,
        ended: Option<Value>,
    },
    /// `{ id, name, result, error, truncated, round }`.
    Ended(Value),
    /// What only some dialects can say: the event's own data.
    Other(Value),
    /// The end of a run that succeeded, and the text not yet told; `whole` when it does not go on from what was.
    Closing {
        rest: String,
        whole: bool,
    },
    Failure {
        code: String,
        message: String,
    },
    Done,
    Nothing,
}

/// Why an answer has less than the model would have said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Short {
    #[default]
    No,
    /// It was stopped by a limit.
    Cut,
    /// It refused, or a filter of its provider did.
    Refused,
}

impl Short {
    /// As an answer's metadata say it.
    fn of(finish: &Value) -> Self {
        match finish.as_str() {
            Some("length") => Self::Cut,
            Some("content_filter") => Self::Refused,
            _ => Self::No,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Told {
    /// The text since the last other block.
    text: String,
    /// What each step was given, as a hash: a reader may hold many steps.
    steps: HashMap<String, Option<u64>>,
    /// Calls that have a block, by their round and id.
    calls: HashSet<(u64, String)>,
    /// Calls without an end, by their round and id: each with its place among them, and the end that it has where the run
    /// says no more.
    unended: HashMap<(u64, String), (usize, Value)>,
    begun: usize,
    pub(super) failed: bool,
    /// Of the finished message, as is its time.
    pub(super) tokens: i64,
    pub(super) created: Option<i64>,
    /// What went in, where it is known.
    pub(super) input_tokens: Option<i64>,
    pub(super) short: Short,
    pub(super) details: UsageDetails,
    /// How the run ended, once it has.
    pub(super) status: String,
}

#[derive(Deserialize)]
struct Ending {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
}

impl Told {
    pub(super) fn read(&mut self, kind: &str, data: &str) -> Word {
        let data = json::value(data);
        let text = || data["text"].as_str().unwrap_or_default().to_owned();
        match kind {
            "turn" => Word::Begin {
                run: data["run"].as_str().unwrap_or_default().to_owned(),
                conversation: data["conversation"].as_str().map(str::to_owned),
            },
            "delta" => {
                self.text.push_str(&text());
                Word::Text(text())
            }
            "reasoning" => {
                self.text.clear();
                Word::Reasoning(text())
            }
            "step" => self.step(data),
            "tool_calls" => {
                self.text.clear();
                let calls = data["calls"].as_array().cloned().unwrap_or_default();
                let round = data["round"].as_u64().unwrap_or(0);
                self.calls.extend(calls.iter().map(|call| (round, id_of(call))));
                calls.iter().for_each(|call| self.unended(round, call));
                Word::Calls { round, calls, ended: None }
            }
            "tool_result" => {
                // One that was never announced has its block here.
                if self.calls.insert((data["round"].as_u64().unwrap_or(0), id_of(&data))) {
                    self.text.clear();
                }
                self.ended(&data);
                Word::Ended(data)
            }
            "sources" | "file" => {
                self.text.clear();
                Word::Other(data)
            }
            "approval" => Word::Other(data),
            "result" => self.closing(&data),
            "error" => {
                self.failed = true;
                self.details = details(&data);
                self.created = data["assistant"]["createdAt"].as_i64();
                let Ending { code, message } = serde_json::from_value(data)
                    .unwrap_or(Ending { code: "internal".into(), message: String::new() });
                Word::Failure { code, message }
            }
            "done" => {
                data["status"].as_str().unwrap_or_default().clone_into(&mut self.status);
                Word::Done
            }
            _ => Word::Nothing,
        }
    }

    /// Whether a text that comes now is one of its own, and goes on from none.
    pub(super) fn begins(&self) -> bool {
        self.text.is_empty()
    }

    /// The ends of the calls that had none, each as a `tool_result`.
    pub(super) fn take_unended(&mut self) -> Vec<Value> {
        let mut unended: Vec<(usize, Value)> = std::mem::take(&mut self.unended).into_values().collect();
        unended.sort_unstable_by_key(|(place, _)| *place);
        unended.into_iter().map(|(_, end)| end).collect()
    }

    fn unended(&mut self, round: u64, call: &Value) {
        let end = json!({ "id": call["id"], "name": call["name"], "result": null, "error": INTERRUPTED,
            "truncated": false, "round": round });
        self.begun += 1;
        self.unended.insert((round, id_of(call)), (self.begun, end));
    }

    fn ended(&mut self, ended: &Value) {
        self.unended.remove(&(ended["round"].as_u64().unwrap_or(0), id_of(ended)));
    }

    fn step(&mut self, step: Value) -> Word {
        let id = id_of(&step);
        let over = step["status"] != "running";
        let ended = over.then(|| {
            let error = match (step["status"].as_str(), &step["error"]) {
                // A failure without a word of its own is still one.
                (Some("failed"), Value::Null) => json!("failed"),
                (Some("failed" | "interrupted"), error) => error.clone(),
                // One that went well after all still has the word of an earlier line.
                _ => Value::Null,
            };
            json!({ "id": id, "name": step["name"], "result": step["result"], "error": error, "truncated": false,
                "round": 0 })
        });
        let given = (!step["args"].is_null()).then(|| hash(&step["args"]));
        let call = json!({ "id": id, "name": step["name"], "args": step["args"] });
        match &ended {
            Some(ended) => self.ended(ended),
            // Begun, or begun again after its end.
            None => self.unended(0, &call),
        }
        match self.steps.entry(id) {
            Entry::Vacant(new) => {
                new.insert(given);
                self.text.clear();
                Word::Calls { round: 0, calls: vec![call], ended }
            }
            // One that only repeats them says nothing new.
            Entry::Occupied(known) if given.is_none() || *known.get() == given => {
                ended.map_or(Word::Nothing, Word::Ended)
            }
            Entry::Occupied(mut known) => {
                known.insert(given);
                Word::Args { call, ended }
            }
        }
    }

    fn closing(&mut self, data: &Value) -> Word {
        let metadata = &data["assistant"]["metadata"];
        self.created = data["assistant"]["createdAt"].as_i64();
        let tokens = metadata["usage"]["output_tokens"].as_i64();
        self.tokens = tokens.or(data["assistant"]["tokenCount"].as_i64()).unwrap_or(0);
        self.input_tokens = metadata["usage"]["input_tokens"].as_i64();
        self.short = Short::of(&metadata["finish"]);
        self.details = details(data);
        let message = data["message"].as_str().unwrap_or_default();
        match message.strip_prefix(self.text.as_str()) {
            _ if message.is_empty() => Word::Closing { rest: String::new(), whole: false },
            Some(rest) => Word::Closing { rest: rest.to_owned(), whole: false },
            None => Word::Closing { rest: message.to_owned(), whole: true },
        }
    }
}

fn hash(args: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    args.to_string().hash(&mut hasher);
    hasher.finish()
}

fn details(data: &Value) -> UsageDetails {
    serde_json::from_value(data["assistant"]["metadata"]["usage"].clone()).unwrap_or_default()
}

pub(super) fn id_of(call: &Value) -> String {
    call["id"].as_str().unwrap_or_default().to_owned()
}
