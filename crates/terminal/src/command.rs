//! What was typed: a message, or one of the commands that begin with a slash. Pure.

use std::path::PathBuf;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    Say(String),
    Attach(Vec<PathBuf>),
    Save {
        name: String,
        to: Option<PathBuf>,
    },
    Files,
    History(String),
    New,
    /// The last message again, to be changed.
    Edit,
    Regenerate,
    Approve,
    Deny(Option<String>),
    Help,
    Quit,
}

pub const HELP: [(&str, &str); 12] = [
    ("/attach PATH…", "attach files to the next message; /attach alone forgets them"),
    ("/files", "list the conversation's files"),
    ("/save NAME [PATH]", "save a file of the conversation here, or at a path"),
    ("/history [WORDS]", "choose another conversation, or search"),
    ("/new", "begin a new conversation"),
    ("/edit", "change your last message and send it again"),
    ("/regenerate", "have your last message answered again"),
    ("/approve, /deny [WHY]", "decide on a call that waits for you"),
    ("/quit", "leave; a turn under way goes on at the server"),
    ("Enter, Alt-Enter", "send; a new line (a message that begins with a slash begins with two)"),
    ("Up", "what you sent before; on an empty line, the last message that waits, to change or drop it"),
    ("PageUp, PageDown, Ctrl-C", "scroll; stop the turn, or leave"),
];

/// The command, or what is wrong with it.
pub fn parse(typed: &str) -> Result<Command, String> {
    let Some(rest) = typed.trim_start().strip_prefix('/') else { return Ok(Command::Say(typed.to_owned())) };
    if rest.starts_with('/') {
        return Ok(Command::Say(rest.to_owned()));
    }
    let (name, rest) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let rest = rest.trim();
    let alone = |command: Command| match rest {
        "" => Ok(command),
        _ => Err(format!("/{name} takes nothing after it")),
    };
    match name {
        "attach" => Ok(Command::Attach(words(rest)?.into_iter().map(path).collect())),
        "save" => {
            let mut words = words(rest)?.into_iter();
            let name = words.next().ok_or("say which file: /save NAME [PATH]; /files lists them")?;
            let to = words.next().map(path);
            match words.next() {
                Some(_) => Err("/save takes one name and one path; put quotes around spaces".to_owned()),
                None => Ok(Command::Save { name, to }),
            }
        }
        "history" => Ok(Command::History(rest.to_owned())),
        "deny" => Ok(Command::Deny((!rest.is_empty()).then(|| rest.to_owned()))),
        "files" => alone(Command::Files),
        "new" => alone(Command::New),
        "edit" => alone(Command::Edit),
        "regenerate" => alone(Command::Regenerate),
        "approve" => alone(Command::Approve),
        "help" => alone(Command::Help),
        "quit" | "exit" => alone(Command::Quit),
        _ => Err(format!(
            "there is no /{name}; /help lists the commands, and // begins a message with a slash"
        )),
    }
}

/// A message as it is typed.
pub fn typed(message: &str) -> String {
    let slash = if message.starts_with('/') { "/" } else { "" };
    format!("{slash}{message}")
}

/// Words as a shell would cut them: quotes and backslashes hold spaces.
fn words(text: &str) -> Result<Vec<String>, String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            ('\\', open) if open != Some('\'') => {
                word.get_or_insert_default().push(chars.next().unwrap_or('\\'))
            }
            (c, None) if c.is_whitespace() => words.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    match quote {
        Some(open) => Err(format!("the quote {open} is not closed")),
        None => {
            words.extend(word);
            Ok(words)
        }
    }
}

/// `~/` is the home folder, as in a shell.
fn path(word: String) -> PathBuf {
    match (word.strip_prefix("~/"), std::env::home_dir()) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_is_understood() {
        let save =
            |name: &str, to: Option<&str>| Command::Save { name: name.into(), to: to.map(PathBuf::from) };
        for (typed, command) in [
            ("hello", Command::Say("hello".into())),
            (" a /b", Command::Say(" a /b".into())),
            ("//etc is a folder", Command::Say("/etc is a folder".into())),
            ("/attach a.txt 'b c' d\\ e", Command::Attach(vec!["a.txt".into(), "b c".into(), "d e".into()])),
            ("/attach", Command::Attach(vec![])),
            ("/save a.txt", save("a.txt", None)),
            ("/save \"a b\" /tmp/x", save("a b", Some("/tmp/x"))),
            ("/history may invoices ", Command::History("may invoices".into())),
            ("/history", Command::History(String::new())),
            (" /new ", Command::New),
            ("/deny not now", Command::Deny(Some("not now".into()))),
            ("/exit", Command::Quit),
        ] {
            assert_eq!(parse(typed), Ok(command), "{typed}");
        }
    }

    #[test]
    fn a_message_is_typed_so_that_it_is_one() {
        for message in ["hello", "/etc is a folder", "//b"] {
            assert_eq!(parse(&typed(message)), Ok(Command::Say(message.to_owned())));
        }
    }

    #[test]
    fn what_is_not_understood_says_why() {
        for (typed, why) in [
            ("/etc/passwd", "no /etc/passwd"),
            ("/", "no /"),
            ("/new x", "takes nothing"),
            ("/save", "which file"),
            ("/save a b c", "one name"),
            ("/attach 'a", "not closed"),
        ] {
            let error = parse(typed).expect_err(typed);
            assert!(error.contains(why), "{typed}: {error}");
        }
    }
}
