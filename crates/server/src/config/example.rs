//! The text of `config.example.toml`: every setting with its default, commented out. Prose lines begin
//! with `# `, settings with `#` alone, so that uncommenting one is deleting one character.

use std::fmt::Write;

use super::Config;
use super::settings::all;

const HEAD: &str = "\
# Every setting of Threadkeep with its default. Name this file with --config or THREADKEEP_CONFIG.
# A flag (--listen) goes before its environment variable (in brackets), that before this file.
# A secret may also be in a file of its own, named by its variable with _FILE appended.
";

const TOOL_SERVERS: &str = r#"
## Tool servers (MCP): any number of tables, each with a url or with a command and its arguments

# An address, and the bearer token for it if it wants one.
#[mcp.calendar]
#url = "https://tools.example.org/mcp"
#token = "a-token"

# A program that speaks MCP on its standard input and output. Of the environment it gets PATH, HOME and the like,
# and the variables named here.
#[mcp.notes]
#command = "notes-mcp"
#args = ["--folder", "/srv/notes"]
#env = ["NOTES_PASSWORD"]
"#;

pub fn example() -> String {
    let mut defaults = Config::default();
    let mut out = HEAD.to_owned();
    let mut group = "";
    for setting in all() {
        if setting.group != group {
            group = setting.group;
            let _ = write!(out, "\n## {group}\n");
        }
        let otherwise = match setting.otherwise {
            "" => String::new(),
            otherwise => format!("\n# Default: {otherwise}"),
        };
        let value = setting.toml(&mut defaults).unwrap_or_else(|| "\"\"".to_owned());
        let _ =
            write!(out, "\n# {} [{}]{otherwise}\n#{} = {value}\n", setting.help, setting.env, setting.key);
    }
    out + TOOL_SERVERS
}

#[cfg(test)]
mod tests {
    use super::super::settings::all;
    use super::*;

    const COMMITTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../config.example.toml");

    #[test]
    fn the_committed_example_is_current() {
        if std::env::var_os("UPDATE_GENERATED").is_some() {
            std::fs::write(COMMITTED, example()).expect("config.example.toml is writable");
        }
        let committed = std::fs::read_to_string(COMMITTED).expect("config.example.toml at the root");
        assert!(
            committed == example(),
            "config.example.toml is out of date: run the tests once with UPDATE_GENERATED=1"
        );
    }

    #[test]
    fn uncommented_it_is_toml_with_every_key() {
        let text: String = example()
            .lines()
            .map(|line| line.strip_prefix('#').filter(|l| !l.starts_with([' ', '#'])).unwrap_or(line))
            .map(|line| format!("{line}\n"))
            .collect();
        let table: toml::Table = text.parse().expect("valid TOML");
        let expected: Vec<&str> = all().map(|s| s.key).chain(["mcp"]).collect();
        assert_eq!(table.len(), expected.len());
        for key in expected {
            assert!(table.contains_key(key), "{key}");
        }
    }
}
