//! Requests of OpenAI's Responses, and the object that answers them.

use domain::conversation::Mode;
use domain::model::{Choice, Manner};
use domain::run::{OnBusy, OnDisconnect, Run};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::items::{Heard, News, read_items, read_news};
use super::tools::{read_tools, repeated};
use super::{Asked, Incoming, Options, Want, member, name};
use crate::problem::Problem;

/// What the object repeats of its request, with what each is where the request says nothing.
const REPEATED: [(&str, &str); 14] = [
    ("instructions", "null"),
    ("max_output_tokens", "null"),
    ("max_tool_calls", "null"),
    ("parallel_tool_calls", "true"),
    ("prompt_cache_key", "null"),
    ("reasoning", r#"{"effort":null,"summary":null}"#),
    ("safety_identifier", "null"),
    ("service_tier", r#""default""#),
    ("store", "true"),
    ("temperature", "1.0"),
    ("text", r#"{"format":{"type":"text"}}"#),
    ("tool_choice", r#""auto""#),
    ("top_p", "1.0"),
    ("truncation", r#""disabled""#),
];

pub struct Create {
    pub asked: Asked,
    pub stream: bool,
    pub background: bool,
    pub store: bool,
    pub previous: Option<String>,
}

/// What a setting may be, as it is told to whoever gave another.
type Setting = (&'static str, fn(&Value) -> bool, &'static str);

/// The settings that are repeated by the response, which clients read as what they are.
const SETTINGS: [Setting; 10] = [
    ("max_output_tokens", is_count, "a whole number of at least 1"),
    ("max_tool_calls", is_count, "a whole number of at least 1"),
    ("parallel_tool_calls", Value::is_boolean, "true or false"),
    ("reasoning", Value::is_object, "an object"),
    ("service_tier", Value::is_string, "a text"),
    ("temperature", |value| is_within(value, 2.0), "a number from 0 to 2"),
    ("text", is_format, "an object whose format is of the type text, json_object or json_schema"),
    ("tool_choice", is_choice, "none, auto, required or an object"),
    ("top_p", |value| is_within(value, 1.0), "a number from 0 to 1"),
    ("truncation", |value| value == "auto" || value == "disabled", "auto or disabled"),
];

fn is_count(value: &Value) -> bool {
    value.as_u64().is_some_and(|count| count > 0)
}

fn is_within(value: &Value, most: f64) -> bool {
    value.as_f64().is_some_and(|number| (0.0..=most).contains(&number))
}

fn is_choice(value: &Value) -> bool {
    value.is_object() || ["none", "auto", "required"].iter().any(|choice| value == choice)
}

fn is_format(value: &Value) -> bool {
    let kind = &value["format"]["type"];
    value.is_object()
        && (value["format"].is_null() || ["text", "json_object", "json_schema"].iter().any(|one| kind == one))
}

fn check_settings(body: &Value) -> Result<(), Problem> {
    for (name, fits, what) in SETTINGS {
        if !body[name].is_null() && !fits(&body[name]) {
            return Err(Problem::invalid_value(&format!("/{name}"), format!("{name} must be {what}.")));
        }
    }
    Ok(())
}

pub fn read(body: &Value) -> Result<Create, Problem> {
    check_settings(body)?;
    let tools = read_tools(body)?;
    let flag = |name: &str, default: bool| Ok::<_, Problem>(member(body, "", name)?.unwrap_or(default));
    let (stream, background, store) =
        (flag("stream", false)?, flag("background", false)?, flag("store", true)?);
    let previous = name(body, "", "previous_response_id")?;
    let conversation = match &body["conversation"] {
        Value::Object(named) if named.get("id").is_none_or(Value::is_null) => {
            return Err(Problem::invalid_value("/conversation/id", "conversation must have an id."));
        }
        Value::Object(_) => name(&body["conversation"], "/conversation", "id")?,
        _ => name(body, "", "conversation")?,
    };
    if previous.is_some() && conversation.is_some() {
        let detail = "previous_response_id and conversation cannot both be given.";
        return Err(Problem::invalid_value("/previous_response_id", detail));
    }
    if background && !store {
        return Err(Problem::invalid_value("/background", "background needs a response that is stored."));
    }
    if !store && (previous.is_some() || conversation.is_some()) {
        let detail = "What is said in a conversation is stored: store cannot be false here.";
        return Err(Problem::invalid_value("/store", detail));
    }
    if !store && !tools.is_empty() {
        let detail =
            "A response waits for its client's tools, and one that is not stored cannot: leave store out.";
        return Err(Problem::invalid_value("/store", detail));
    }
    let first = conversation.is_none() && previous.is_none();
    let Input { before, rules, want } = input(body, first)?;
    let mut options = options(body, background, first)?;
    // There is nothing to come back to where nothing is kept.
    options.comes_back = store;
    let mut echo = Map::new();
    for (name, _) in REPEATED {
        if let Some(value) = body.get(name).filter(|value| !value.is_null()) {
            echo.insert(name.into(), value.clone());
        }
    }
    echo.insert("tools".into(), repeated(body));
    echo.insert("metadata".into(), json!(metadata(body)?));
    echo.insert("background".into(), json!(background));
    for name in ["model", "previous_response_id"] {
        echo.insert(name.into(), body[name].clone());
    }
    let echo = Some(json!({ "response": echo, "first": first }));
    let rules = member(body, "", "instructions")?.into_iter().chain(rules).collect::<Vec<String>>();
    let instructions = (!rules.is_empty()).then(|| rules.join("\n\n"));
    let (manner, max_tokens) = (manner(body), body["max_output_tokens"].as_u64());
    let max_calls = body["max_tool_calls"].as_u64();
    let asked = Asked {
        conversation,
        before,
        want,
        options,
        echo,
        instructions,
        manner,
        max_tokens,
        max_calls,
        tools,
        ..Asked::default()
    };
    Ok(Create { asked, stream, background, store, previous })
}

/// What is asked of the answer, in the words of chat completions.
fn manner(body: &Value) -> Manner {
    let format = body["text"]["format"].clone();
    let format = match format["type"].as_str() {
        Some("json_object") => Some(format),
        Some("json_schema") => {
            let mut schema = format;
            if let Some(schema) = schema.as_object_mut() {
                schema.remove("type");
            }
            Some(json!({ "type": "json_schema", "json_schema": schema }))
        }
        _ => None,
    };
    let choice = match &body["tool_choice"] {
        Value::String(choice) if choice == "none" => Some(Choice::None),
        Value::String(choice) if choice == "required" => Some(Choice::Any),
        choice if matches!(choice["type"].as_str(), Some("function" | "custom" | "mcp")) => {
            choice["name"].as_str().map(|name| Choice::Tool(name.to_owned()))
        }
        _ => None,
    };
    Manner {
        choice,
        // Many at once are what models make by themselves; not every server knows the word.
        parallel: body["parallel_tool_calls"].as_bool().filter(|parallel| !parallel),
        temperature: body["temperature"].as_number().cloned(),
        top_p: body["top_p"].as_number().cloned(),
        effort: body["reasoning"]["effort"].as_str().map(str::to_owned),
        format,
        ..Manner::default()
    }
}

struct Input {
    before: Vec<super::Said>,
    /// For this answer alone.
    rules: Vec<String>,
    want: Want,
}

/// The items of a first response are a whole thread; those of a later one go on with what is there.
fn input(body: &Value, first: bool) -> Result<Input, Problem> {
    let empty = || {
        Problem::invalid_value(
            "/input",
            "input is empty: send a text, or items that end with a user's message.",
        )
    };
    let (before, rules, decided, message) = match &body["input"] {
        Value::String(text) if text.trim().is_empty() => return Err(empty()),
        Value::String(text) => {
            let message = Incoming { texts: vec![text.clone()], ..Incoming::default() };
            (Vec::new(), Vec::new(), Vec::new(), Some(message))
        }
        Value::Array(items) if first => {
            let Heard { mut said, decided, last, .. } = read_items(items, "/input")?.whole()?;
            // The last one is the turn itself.
            said.pop();
            (said, Vec::new(), decided, last)
        }
        Value::Array(items) => {
            let News { rules, message, decided } = read_news(items, "/input")?;
            (Vec::new(), rules, decided, message)
        }
        Value::Null => return Err(empty()),
        _ => return Err(Problem::invalid_value("/input", "input must be a text or a list of items.")),
    };
    if !decided.is_empty() {
        return Ok(Input {
            before: Vec::new(),
            rules: Vec::new(),
            want: Want::Decide { decided, last: None },
        });
    }
    let message = message.ok_or_else(|| {
        Problem::invalid_value("/input", "The last item of input must be a user's message.")
    })?;
    Ok(Input { before, rules, want: Want::Answer { message, edit: false } })
}

/// `model` is a model's name, or `agent`, `task_flow` or the id of an agent: those have what they use themselves.
fn options(body: &Value, background: bool, first: bool) -> Result<Options, Problem> {
    let model: Option<String> = name(body, "", "model")?;
    let on_disconnect = if background { OnDisconnect::Continue } else { OnDisconnect::Cancel };
    let mut options = Options { on_busy: OnBusy::Reject, on_disconnect, ..Options::default() };
    match model {
        None => options.mode = first.then_some(Mode::Ask),
        Some(model) if model == "agent" || model == "task_flow" => options.mode = Mode::parse(&model),
        Some(model) if Uuid::try_parse(&model).is_ok() => {
            (options.agent, options.mode) = (Some(model), first.then_some(Mode::Ask));
        }
        Some(model) => (options.model, options.mode) = (Some(model), Some(Mode::Ask)),
    }
    Ok(options)
}

/// Up to 16 pairs, keys of up to 64 and values of up to 512 characters.
pub fn metadata(body: &Value) -> Result<Map<String, Value>, Problem> {
    let pairs = match &body["metadata"] {
        Value::Null => return Ok(Map::new()),
        Value::Object(pairs) => pairs,
        _ => return Err(Problem::invalid_value("/metadata", "metadata must be an object.")),
    };
    if pairs.len() > 16 {
        return Err(Problem::invalid_value("/metadata", "metadata has more than 16 pairs."));
    }
    for (key, value) in pairs {
        let fits =
            key.chars().count() <= 64 && value.as_str().is_some_and(|value| value.chars().count() <= 512);
        if !fits {
            let detail = "The keys of metadata have up to 64 characters, its values are texts of up to 512.";
            return Err(Problem::invalid_value("/metadata", detail));
        }
    }
    Ok(pairs.clone())
}

/// Whether a request has begun its conversation, of its echo: then all up to its message is what it was asked with.
pub fn is_first(echo: Option<&Value>) -> bool {
    echo.is_some_and(|echo| echo["first"] == true)
}

pub fn response_id(run: Uuid) -> String {
    format!("resp_{}", run.simple())
}

pub fn conversation_name(conversation: Uuid) -> String {
    format!("conv_{}", conversation.simple())
}

/// The id behind a name of ours, with its prefix or without.
pub fn own_id(name: &str, prefix: &str) -> Result<Uuid, Problem> {
    let text = name.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('_')).unwrap_or(name);
    Uuid::try_parse(text).map_err(|_| Problem::not_found())
}

/// The object before anything has happened.
pub fn base(run: &Run, echo: Option<&Value>, model: Option<&str>) -> Value {
    let mut response = json!({ "id": response_id(run.id), "object": "response",
        "created_at": run.created_at.as_second(), "incomplete_details": null, "tools": [], "metadata": {},
        "previous_response_id": null, "background": false, "model": null,
        "conversation": run.conversation.map(|id| json!({ "id": conversation_name(id) })) });
    for (name, value) in REPEATED {
        response[name] = serde_json::from_str(value).unwrap_or_default();
    }
    for (name, value) in echo.and_then(|echo| echo["response"].as_object()).into_iter().flatten() {
        response[name.as_str()] = value.clone();
    }
    // It goes with the response.
    if response["store"] == false {
        response["conversation"] = Value::Null;
    }
    if response["model"].is_null() {
        response["model"] = json!(model.unwrap_or("threadkeep"));
    }
    response
}
