//! The built-in model: no network, no key, no intelligence, and it says so. It follows the words that a message begins
//! with, and does what they ask through the tools it is offered, like any other model.

use std::time::Duration;

use domain::model::{Answer, Ask, CallPart, Finish, ModelEvent, ModelFault, ModelFaultKind, Said};
use domain::run::Usage;
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};

use super::{LanguageModel, ModelStream};

pub const NAME: &str = "assistant";
/// The whole name of it.
pub const MODEL: &str = "demo/assistant";
/// The tools that it searches with.
pub const SEARCHES: [&str; 2] = ["search_pages", "search_user_tables"];

/// Between two words: fast, but a reader sees it stream.
const PACE: Duration = Duration::from_millis(5);
const MOST_WORDS: usize = 100_000;
/// There is no tokenizer here: a token is taken for so many characters, as is usual.
const TOKEN_CHARS: usize = 4;

const ABOUT: &str = "I am Threadkeep's built-in demo model. I am not an AI: I follow fixed rules, offline, so that you can \
see everything else work. Begin a message with one of these words:\n\n\
- `list files`\n- `read <name>`\n- `write <name>: <text>`\n- `run <shell command>` (agent mode)\n- `search <words>`\n\
- `plan <goal>`\n- `think <n> words`\n- `fail`\n\n\
To talk to a real model, set `OPENAI_API_KEY` or `ANTHROPIC_API_KEY` and start the server again.";

#[derive(Debug, Clone, Copy, Default)]
pub struct Demo;

impl LanguageModel for Demo {
    fn stream(&self, ask: Ask) -> ModelStream {
        let mut events = answer(&ask);
        let cut = ask.max_tokens.is_some_and(|most| cut(&mut events, most));
        let usage = usage(&ask, &events);
        let end = match events.pop_if(|event| matches!(event, ModelEvent::End(_))) {
            Some(end) => vec![end],
            None => {
                let calls = events.iter().any(|event| matches!(event, ModelEvent::Call(_)));
                let finish = match cut {
                    true => Finish::Length,
                    false if calls => Finish::Calls,
                    false => Finish::Stop,
                };
                vec![ModelEvent::Usage(usage), ModelEvent::End(Ok(finish))]
            }
        };
        let words = stream::iter(events).then(|event| async move {
            tokio::time::sleep(PACE).await;
            vec![event]
        });
        Box::pin(words.chain(stream::iter([end])))
    }
}

/// What the demo model was asked to do.
#[derive(Debug, PartialEq, Eq)]
enum Order<'a> {
    List,
    Read(&'a str),
    Write(&'a str, &'a str),
    Run(&'a str),
    Search(&'a str),
    Plan(&'a str),
    Think(usize),
    Fail,
}

impl<'a> Order<'a> {
    fn read(message: &'a str) -> Option<Self> {
        let message = message.trim();
        let after = |words: &str| -> Option<&'a str> {
            let (head, rest) = message.split_at_checked(words.len())?;
            let ends = rest.is_empty() || rest.starts_with(|c: char| !c.is_alphanumeric());
            (head.eq_ignore_ascii_case(words) && ends).then(|| rest.trim())
        };
        let said = |rest: &&str| !rest.is_empty();
        if after("list files").is_some() {
            return Some(Self::List);
        }
        if let Some(name) = after("read").filter(said) {
            return Some(Self::Read(name));
        }
        if let Some((name, text)) = after("write").and_then(|rest| rest.split_once(':')) {
            return Some(Self::Write(name.trim(), text.trim_start())).filter(|_| !name.trim().is_empty());
        }
        if let Some(command) = after("run").filter(said) {
            return Some(Self::Run(command));
        }
        if let Some(words) = after("search").filter(said) {
            return Some(Self::Search(words));
        }
        if let Some(goal) = after("plan").filter(said) {
            return Some(Self::Plan(goal));
        }
        if let Some(rest) = after("think") {
            let mut words = rest.split_whitespace();
            let count = words.next()?.parse().ok()?;
            let unit = words.next()?.trim_end_matches(['.', '!']);
            return matches!(unit, "word" | "words").then_some(Self::Think(count));
        }
        after("fail").map(|_| Self::Fail)
    }
}

/// What was said, without the note on attached files that ends it.
fn without_note(message: &str) -> &str {
    match message.rsplit_once("\n\n[Attached files: ") {
        Some((said, note)) if note.ends_with(']') && !note.contains("\n\n") => said,
        _ => message,
    }
}

/// What the newest message says, without what is said about attached files, and what calls since then came to.
fn newest(ask: &Ask) -> (String, Vec<&Answer>) {
    let messages = &ask.prompt.messages;
    let at = messages.iter().rposition(|said| matches!(said, Said::User(_)));
    let asked = match at.map(|at| &messages[at]) {
        Some(Said::User(words)) => without_note(&words.text),
        _ => "",
    };
    let answers = messages[at.unwrap_or(0)..]
        .iter()
        .filter_map(|said| if let Said::Answers(answers) = said { Some(answers) } else { None })
        .flatten()
        .collect();
    let paragraphs = asked.split("\n\n").filter(|text| !is_note(text));
    (paragraphs.collect::<Vec<_>>().join("\n\n"), answers)
}

/// Messages that were sent one after the other arrive as one: the newest is the last paragraph.
fn order(asked: &str) -> Option<Order<'_>> {
    Order::read(asked).or_else(|| Order::read(asked.rsplit("\n\n").next()?))
}

/// The words that are to be searched for, where no tool for it is offered: whoever asks may look for them, and add
/// what was found as answers of `SEARCHES`.
pub fn searches(ask: &Ask) -> Option<String> {
    let (asked, answers) = newest(ask);
    let offered = ask.tools.iter().any(|tool| SEARCHES.contains(&tool.name.as_str()));
    match order(&asked) {
        Some(Order::Search(words)) if answers.is_empty() && !offered => Some(words.to_owned()),
        _ => None,
    }
}

/// The whole answer; without an `End` it ends well.
fn answer(ask: &Ask) -> Vec<ModelEvent> {
    let (asked, answers) = newest(ask);
    let order = order(&asked);
    if !answers.is_empty() {
        return say(&report(&answers));
    }
    match order {
        None => say(ABOUT),
        Some(Order::List) => call(ask, "list files", &[(&["list_files"], json!({}))]),
        Some(Order::Read(name)) => {
            call(ask, "read files", &[(&["read_file"], json!({ "name": name, "path": name }))])
        }
        // Beside the folder it would be written, and gone with the run.
        Some(Order::Write(name, _)) if name.split('/').any(|part| part == "..") => say(&format!(
            "I cannot write `{name}`: it leads out of `assets/`, and only what is there is kept."
        )),
        Some(Order::Write(name, text)) => {
            let path = if name.starts_with("assets/") { name.to_owned() } else { format!("assets/{name}") };
            call(ask, "write files", &[(&["write_file"], json!({ "path": path, "content": text }))])
        }
        Some(Order::Run(command)) => call(
            ask,
            "run commands",
            &[(&["run_shell", "shell", "bash", "run_command", "run"], json!({ "command": command }))],
        ),
        Some(Order::Search(words)) => call(
            ask,
            "search pages and tables",
            &[(&[SEARCHES[0]], json!({ "query": words })), (&[SEARCHES[1]], json!({ "query": words }))],
        ),
        Some(Order::Plan(goal)) => say(&plan(goal)),
        Some(Order::Think(count)) => think(count),
        Some(Order::Fail) => vec![ModelEvent::End(Err(ModelFault::new(
            ModelFaultKind::Error,
            "The demo model failed, as it was asked to.",
        )))],
    }
}

/// Which files came with a message, as `domain::part` tells it.
fn is_note(paragraph: &str) -> bool {
    paragraph.starts_with("[Attached files: ") && paragraph.ends_with(']')
}

/// The words of a text, one event each.
fn say(text: &str) -> Vec<ModelEvent> {
    text.split_inclusive(' ').map(|word| ModelEvent::Text(word.to_owned())).collect()
}

fn think(count: usize) -> Vec<ModelEvent> {
    const WORDS: [&str; 8] = ["one", "thought", "leads", "to", "the", "next", "and", "so"];
    let count = count.min(MOST_WORDS);
    let mut events: Vec<ModelEvent> = WORDS
        .iter()
        .cycle()
        .take(count)
        .enumerate()
        .map(|(at, word)| {
            ModelEvent::Reasoning(if at == 0 { (*word).to_owned() } else { format!(" {word}") })
        })
        .collect();
    let unit = if count == 1 { "word" } else { "words" };
    events.extend(say(&format!("I thought {count} {unit}.")));
    events
}

fn plan(goal: &str) -> String {
    format!(
        "A plan for: {goal}\n\n1. Look at what is there.\n2. Do what is asked: {goal}.\n3. Check the outcome and report.\n\n\
         (I am the demo model: the steps are always these three.)"
    )
}

/// Calls to those of the wanted tools that are offered, each under the first of its names that is.
fn call(ask: &Ask, what: &str, wanted: &[(&[&str], Value)]) -> Vec<ModelEvent> {
    let found = wanted.iter().filter_map(|(names, args)| {
        let spec = names.iter().find_map(|name| ask.tools.iter().find(|spec| spec.name == *name))?;
        Some((spec, args))
    });
    let events: Vec<ModelEvent> = (0..)
        .zip(found)
        .map(|(index, (spec, args))| {
            let schema: Value = serde_json::from_str(spec.schema.get()).unwrap_or_default();
            let name = Some(spec.name.clone());
            let id = Some(format!("demo_{}_{}", ask.prompt.messages.len(), index));
            ModelEvent::Call(CallPart { index, id, name, args: fitting(args, &schema).to_string() })
        })
        .collect();
    if events.is_empty() {
        let searches = wanted.iter().any(|(names, _)| SEARCHES.contains(&names[0]));
        let elsewhere = if searches {
            "In a conversation without an agent of its own I can, in every mode."
        } else {
            "In agent mode there is a sandbox with more tools."
        };
        return say(&format!("I cannot {what} here: no tool for it is offered to me. {elsewhere}"));
    }
    events
}

/// The arguments that the tool's schema knows; all of them where it does not say.
fn fitting(args: &Value, schema: &Value) -> Value {
    let Some(known) = schema.get("properties").and_then(Value::as_object) else { return args.clone() };
    let args = args.as_object().into_iter().flatten();
    args.filter(|(name, _)| known.contains_key(*name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

fn report(answers: &[&Answer]) -> String {
    let each = answers.iter().map(|answer| {
        let text = answer.text.trim();
        match answer.name.as_str() {
            // Not every dialect has a word for a failure.
            name if answer.failed || text.starts_with("Error: ") => format!("`{name}` failed: {text}"),
            "list_files" => format!("The files here:\n\n{text}"),
            "read_file" => format!("The file says:\n\n{text}"),
            "write_file" => format!("Written. {text}"),
            "search_pages" if text.starts_with("1. ") => format!("In the pages I found:\n\n{text}"),
            "search_user_tables" if text.starts_with("1. ") => format!("In the tables I found:\n\n{text}"),
            "search_pages" | "search_user_tables" => text.to_owned(),
            name => format!("`{name}` answered:\n\n```\n{text}\n```"),
        }
    });
    each.collect::<Vec<_>>().join("\n\n")
}

/// Leaves of the words what so many tokens are, and answers whether it took any away. A call is made whole or not at all.
fn cut(events: &mut Vec<ModelEvent>, most: u64) -> bool {
    let mut left = usize::try_from(most).unwrap_or(usize::MAX).saturating_mul(TOKEN_CHARS);
    for at in 0..events.len() {
        let end = match &mut events[at] {
            ModelEvent::Text(text) | ModelEvent::Reasoning(text) => {
                let chars = text.chars().count();
                if chars > left {
                    *text = text.chars().take(left).collect();
                    at + usize::from(left > 0)
                } else {
                    left -= chars;
                    continue;
                }
            }
            ModelEvent::Call(part) if part.args.chars().count() > left => at,
            ModelEvent::Call(part) => {
                left -= part.args.chars().count();
                continue;
            }
            _ => continue,
        };
        events.truncate(end);
        return true;
    }
    false
}

fn usage(ask: &Ask, events: &[ModelEvent]) -> Usage {
    let said = |said: &Said| match said {
        Said::User(words) => {
            words.text.chars().count() + words.parts.iter().map(|part| part.chars).sum::<usize>()
        }
        Said::Assistant { text, .. } => text.chars().count(),
        Said::Answers(answers) => answers.iter().map(|answer| answer.text.chars().count()).sum(),
    };
    let input = ask.prompt.system.chars().count() + ask.prompt.messages.iter().map(said).sum::<usize>();
    let output: usize = events
        .iter()
        .map(|event| match event {
            ModelEvent::Text(text) | ModelEvent::Reasoning(text) => text.chars().count(),
            ModelEvent::Call(part) => part.args.chars().count(),
            ModelEvent::Blocks(_)
            | ModelEvent::Usage(_)
            | ModelEvent::Details(_)
            | ModelEvent::Own(_)
            | ModelEvent::End(_) => 0,
        })
        .sum();
    let tokens = |chars: usize| i64::try_from(chars.div_ceil(TOKEN_CHARS)).unwrap_or(i64::MAX);
    Usage { input_tokens: tokens(input), output_tokens: tokens(output) }
}

#[cfg(test)]
#[path = "demo_tests.rs"]
mod tests;
