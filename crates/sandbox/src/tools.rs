//! What the model may call: a shell, files, and recipes. Each call is a step that begins, is done in the room, and
//! ends with its result or its error.

use domain::model::{Answer as Said, Call, ToolSpec, keepable};
use domain::recipe::interface;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use crate::agent_loop::Agent;
use crate::emit::cut;
use crate::envelope::Recipe;
use crate::frame::{Answer, Ask};
use crate::plan::Plan;
use crate::room::{Room, RoomError};
use crate::run::Failure;

/// What is read of a file at most; the model sees less.
const READ_BYTES: u64 = 256 * 1024;
const RECIPES: &str = "recipes";

pub struct Toolbox {
    recipes: Vec<Script>,
}

/// A recipe as the model may call it.
struct Script {
    /// As a tool's name may be.
    tool: String,
    /// Its place in the workspace, which names its steps.
    path: String,
    description: String,
    parameters: Value,
}

/// What a call came to.
struct Outcome {
    result: Value,
    error: Option<String>,
}

impl Outcome {
    fn ok(text: String) -> Self {
        Self { result: json!(text), error: None }
    }

    fn failed(error: impl Into<String>) -> Self {
        Self { result: Value::Null, error: Some(error.into()) }
    }
}

impl Toolbox {
    /// Puts the given recipes into the workspace, and finds those that came with its files.
    pub async fn furnish(room: &mut Room, given: &[Recipe]) -> Result<Self, Failure> {
        let gone = |error: RoomError| Failure::new("sandbox_room", error.to_string());
        let mut recipes = Vec::new();
        for recipe in given {
            let name = recipe.name.trim_start_matches("recipes/");
            if name.is_empty() || name.contains(['/', '\0']) || name.starts_with('.') {
                let message = format!("the recipe {:?} is not named like a file", recipe.name);
                return Err(Failure::new("sandbox_config", message));
            }
            let path = format!("{RECIPES}/{name}");
            let put = Ask::Put { path: path.clone(), append: false, executable: true };
            if let (Answer::Failed { message }, _) =
                room.ask(&put, recipe.content.as_bytes()).await.map_err(gone)?
            {
                return Err(Failure::new("sandbox_config", message));
            }
            let described = (recipe.description.clone(), recipe.parameters.clone());
            recipes.push(Script::new(path, &recipe.content, described));
        }
        for (path, content) in found(room, RECIPES, ".sh").await? {
            if !recipes.iter().any(|script| script.path == path) {
                recipes.push(Script::new(path, &content, (None, None)));
            }
        }
        Ok(Self { recipes })
    }

    pub fn recipes(&self) -> usize {
        self.recipes.len()
    }

    pub fn specs(&self, plan: &Plan) -> Vec<ToolSpec> {
        let text = |about: &str| json!({ "type": "string", "description": about });
        let object = |properties: Value, required: &[&str]| json!({ "type": "object", "properties": properties, "required": required });
        let mut all = vec![
            (
                "shell",
                "Runs a command in the workspace and gives its output. There is no network.".to_owned(),
                object(json!({ "command": text("The command, for sh") }), &["command"]),
            ),
            (
                "read_file",
                "Reads a text file.".to_owned(),
                object(json!({ "path": text("Within the workspace") }), &["path"]),
            ),
            (
                "write_file",
                "Writes a text file. What is in assets/ at the end is given to the user.".to_owned(),
                object(
                    json!({ "path": text("Within the workspace"), "content": text("The whole text") }),
                    &["path", "content"],
                ),
            ),
            (
                "list_files",
                "Lists files with their sizes.".to_owned(),
                object(json!({ "path": text("A folder; the workspace if left out") }), &[]),
            ),
        ];
        if !plan.is_empty() {
            let number = json!({ "type": "integer", "description": "Its number in the plan" });
            all.push((
                "complete_step",
                "Marks a step of the plan as done.".to_owned(),
                object(json!({ "number": number }), &["number"]),
            ));
        }
        let recipes = self
            .recipes
            .iter()
            .map(|one| (one.tool.as_str(), one.description.clone(), one.parameters.clone()));
        let spec = |(name, description, schema): (&str, String, Value)| {
            Some(ToolSpec { name: name.to_owned(), description, schema: to_raw_value(&schema).ok()? })
        };
        all.into_iter().chain(recipes).filter_map(spec).collect()
    }
}

impl Script {
    fn new(path: String, content: &str, (description, parameters): (Option<String>, Option<Value>)) -> Self {
        let stem = path.rsplit('/').next().unwrap_or(&path).trim_end_matches(".sh");
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let tool: String = "recipe_".chars().chain(stem.chars().map(plain)).take(64).collect();
        let (said, schema) = interface(content);
        let description = description.unwrap_or(if said.is_empty() { format!("Runs {path}.") } else { said });
        Self { tool, description, parameters: parameters.unwrap_or(schema), path }
    }
}

/// The files of a folder of the workspace that end so, with what is in them.
pub async fn found(room: &mut Room, folder: &str, ending: &str) -> Result<Vec<(String, String)>, Failure> {
    let gone = |error: RoomError| Failure::new("sandbox_room", error.to_string());
    let (answer, listed) = room.ask(&Ask::List { path: folder.into() }, &[]).await.map_err(gone)?;
    if !matches!(answer, Answer::Done) {
        return Ok(Vec::new());
    }
    let listed = String::from_utf8_lossy(&listed).into_owned();
    let names = listed.lines().filter_map(|line| line.rsplit_once(" (").map(|(name, _)| name));
    let mut files = Vec::new();
    for name in names.filter(|name| name.ends_with(ending) && !name.contains('/')).take(100) {
        let path = format!("{folder}/{name}");
        let read = Ask::Read { path: path.clone(), limit: READ_BYTES };
        if let (Answer::Done, bytes) = room.ask(&read, &[]).await.map_err(gone)? {
            files.push((path, String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
    Ok(files)
}

impl Agent<'_> {
    /// Does one call, as a step; what the model is told of it.
    pub async fn call(&mut self, call: &Call) -> Result<Said, Failure> {
        let args = serde_json::from_str::<Value>(if call.args.trim().is_empty() { "{}" } else { &call.args });
        let args = args.ok().filter(Value::is_object);
        let recipe = self.tools.recipes.iter().find(|one| one.tool == call.name);
        let name = recipe.map_or(call.name.clone(), |one| one.path.clone());
        let shown = args.clone().unwrap_or_else(|| json!(call.args));
        let step = self.emit.begin(&name, shown).await?;
        let outcome = match args {
            Some(args) => self.carry_out(&call.name, &args).await?,
            None => Outcome::failed("the arguments are not a JSON object"),
        };
        let limit = usize::try_from(self.service.limits.tool_result_chars).unwrap_or(usize::MAX);
        let told = match &outcome.result {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            value => value.to_string(),
        };
        let failed = outcome.error.is_some();
        let told = match &outcome.error {
            Some(error) if told.is_empty() => format!("Error: {error}"),
            Some(error) => format!("Error: {error}\n{told}"),
            None => told,
        };
        match outcome.error {
            Some(error) => self.emit.fail(step, &error, outcome.result).await?,
            None => self.emit.succeed(step, outcome.result).await?,
        }
        Ok(Said { id: call.id.clone(), name: call.name.clone(), text: cut(&keepable(&told), limit), failed })
    }

    async fn carry_out(&mut self, name: &str, args: &Value) -> Result<Outcome, Failure> {
        let text = |field: &str| args[field].as_str();
        let missing =
            |field: &str| Ok(Outcome::failed(format!("the argument {field:?} is missing, or no text")));
        match name {
            "shell" => match text("command") {
                Some(command) => self.program(vec!["/bin/sh".into(), "-c".into(), command.into()], &[]).await,
                None => missing("command"),
            },
            "read_file" => match text("path") {
                Some(path) => {
                    self.ask_text(Ask::Read { path: path.into(), limit: READ_BYTES }, &[], "").await
                }
                None => missing("path"),
            },
            "list_files" => {
                self.ask_text(Ask::List { path: text("path").unwrap_or(".").into() }, &[], "").await
            }
            "write_file" => match (text("path"), text("content")) {
                (Some(path), Some(content)) => self.write(path, content).await,
                (None, _) => missing("path"),
                (_, None) => missing("content"),
            },
            "complete_step" if !self.plan.is_empty() => {
                let done = self.plan.complete(args["number"].as_u64().unwrap_or(0), self.emit).await?;
                Ok(done.map_or_else(Outcome::failed, Outcome::ok))
            }
            name => match self.tools.recipes.iter().find(|one| one.tool == name) {
                Some(recipe) => {
                    let path = format!("./{}", recipe.path);
                    self.program(vec!["/bin/sh".into(), path], args.to_string().as_bytes()).await
                }
                None => Ok(Outcome::failed(format!("there is no tool {name:?}"))),
            },
        }
    }

    async fn write(&mut self, path: &str, content: &str) -> Result<Outcome, Failure> {
        let done = format!("{path} ({} bytes)", content.len());
        // A frame holds so much; more goes in pieces.
        let mut rest = content.as_bytes();
        let mut append = false;
        loop {
            let (piece, after) = rest.split_at(rest.len().min(1024 * 1024));
            let put = Ask::Put { path: path.into(), append, executable: false };
            let outcome = self.ask_text(put, piece, &done).await?;
            if after.is_empty() || outcome.error.is_some() {
                return Ok(outcome);
            }
            (rest, append) = (after, true);
        }
    }

    /// Asks for a text; where the answer has none it is `otherwise`.
    async fn ask_text(&mut self, ask: Ask, payload: &[u8], otherwise: &str) -> Result<Outcome, Failure> {
        let (answer, bytes) = self.room.ask(&ask, payload).await.map_err(gone)?;
        Ok(match answer {
            Answer::Failed { message } => Outcome::failed(message),
            _ if bytes.is_empty() => Outcome::ok(otherwise.to_owned()),
            _ => Outcome::ok(String::from_utf8_lossy(&bytes).into_owned()),
        })
    }

    async fn program(&mut self, argv: Vec<String>, input: &[u8]) -> Result<Outcome, Failure> {
        let timeout_ms = self.service.limits.tool_timeout_seconds.saturating_mul(1000);
        let (answer, output) = self.room.ask(&Ask::Run { argv, timeout_ms }, input).await.map_err(gone)?;
        let output = String::from_utf8_lossy(&output).into_owned();
        let result = serde_json::from_str::<Value>(&output)
            .ok()
            .filter(|value| !input.is_empty() && value.is_object());
        let result = result.unwrap_or_else(|| json!(output));
        let error = match answer {
            Answer::Ended { limit: Some(limit), .. } => Some(format!("ended: {limit}")),
            Answer::Ended { code: Some(0), .. } => None,
            Answer::Ended { code: Some(code), .. } => Some(format!("exit code {code}")),
            Answer::Ended { signal: Some(signal), .. } => Some(format!("ended by {}", signal_name(signal))),
            Answer::Failed { message } => Some(message),
            _ => Some("it ended in an unknown way".into()),
        };
        Ok(Outcome { result, error })
    }
}

fn gone(error: RoomError) -> Failure {
    Failure::new("sandbox_room", error.to_string())
}

fn signal_name(signal: i32) -> String {
    use nix::sys::signal::Signal;
    match Signal::try_from(signal) {
        Ok(Signal::SIGXCPU) => {
            "SIGXCPU: it used more processor time than may be (SANDBOX_CPU_SECONDS)".into()
        }
        Ok(Signal::SIGXFSZ) => "SIGXFSZ: a file grew larger than may be (SANDBOX_DISK_BYTES)".into(),
        Ok(known) => known.as_str().to_owned(),
        Err(_) => format!("signal {signal}"),
    }
}
