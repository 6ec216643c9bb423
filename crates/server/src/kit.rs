//! What the operator gives to every agent in a sandbox: `recipes/*.sh` and `skills/*.md` of the data folder, as a run's
//! configuration has them. Read anew for each run, so that a change counts from the next one on.

use std::fs;
use std::path::Path;

use domain::recipe::interface;
use serde_json::{Value, json};

use crate::routes::planning::TASK_FLOW;

const MAX_BYTES: u64 = 256 * 1024;
const MAX_FILES: usize = 100;

#[derive(Debug, Default, PartialEq)]
pub struct Kit {
    /// `{ name, content, description, parameters }`
    pub recipes: Vec<Value>,
    /// `{ name, content }`
    pub skills: Vec<Value>,
    /// What could not be taken, and why.
    pub refused: Vec<String>,
}

impl Kit {
    pub fn read(data: &Path) -> Self {
        let mut kit = Self::default();
        for (name, content) in kit.texts(&data.join("recipes"), ".sh") {
            let (description, parameters) = interface(&content);
            let description = if description.is_empty() { Value::Null } else { json!(description) };
            kit.recipes.push(json!({ "name": name, "content": content, "description": description,
                "parameters": parameters }));
        }
        for (name, content) in kit.texts(&data.join("skills"), ".md") {
            match name.trim_end_matches(".md") {
                TASK_FLOW => kit.refused.push(format!("skills/{name}: that name is the planning prompt's")),
                name => kit.skills.push(json!({ "name": name, "content": content })),
            }
        }
        kit
    }

    /// The files of a folder that end so, by name. A folder that is not there has none.
    fn texts(&mut self, folder: &Path, ending: &str) -> Vec<(String, String)> {
        let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> =
            names.filter(|name| name.ends_with(ending) && !name.starts_with('.')).collect();
        names.sort();
        if names.len() > MAX_FILES {
            self.refused.push(format!("{}: more than {MAX_FILES} files", folder.display()));
            names.truncate(MAX_FILES);
        }
        let mut texts = Vec::new();
        for name in names {
            let path = folder.join(&name);
            match text(&path) {
                Ok(content) => texts.push((name, content)),
                Err(why) => self.refused.push(format!("{}: {why}", path.display())),
            }
        }
        texts
    }
}

fn text(path: &Path) -> Result<String, String> {
    let about = path.metadata().map_err(|error| error.to_string())?;
    if !about.is_file() {
        return Err("it is not a file".into());
    }
    if about.len() > MAX_BYTES {
        return Err(format!("it has more than {MAX_BYTES} bytes"));
    }
    fs::read_to_string(path).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_read_is_taken_and_the_rest_is_told() {
        let data = tempfile::tempdir().unwrap();
        assert_eq!(Kit::read(data.path()), Kit::default());
        for (name, content) in [
            ("recipes/b.sh", b"echo b".as_slice()),
            ("recipes/a.sh", b"#!/bin/sh\n# Adds.\n# @param kind  which\n"),
            ("recipes/.hidden.sh", b""),
            ("recipes/notes.txt", b""),
            ("recipes/bad.sh", b"\xff"),
            ("recipes/big.sh", &[b'#'; MAX_BYTES as usize + 1]),
            ("skills/tone.md", b"Speak plainly."),
            ("skills/task_flow.md", b"x"),
        ] {
            let path = data.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        fs::create_dir(data.path().join("recipes/folder.sh")).unwrap();
        let kit = Kit::read(data.path());
        let kind = json!({ "type": "string", "description": "which" });
        let recipes = [
            json!({ "name": "a.sh", "content": "#!/bin/sh\n# Adds.\n# @param kind  which\n", "description": "Adds.",
                "parameters": { "type": "object", "properties": { "kind": kind } } }),
            json!({ "name": "b.sh", "content": "echo b", "description": null,
                "parameters": { "type": "object", "properties": {} } }),
        ];
        assert_eq!(kit.recipes, recipes);
        assert_eq!(kit.skills, [json!({ "name": "tone", "content": "Speak plainly." })]);
        for (refused, words) in
            kit.refused.iter().zip(["bad.sh", "big.sh: it has more", "folder.sh: it is not", "task_flow"])
        {
            assert!(refused.contains(words), "{:?}", kit.refused);
        }
        assert_eq!(kit.refused.len(), 4);
    }
}
