//! Every command as somebody meets it who does something wrong: one sentence that names the input, and nothing made.

use std::path::Path;
use std::process::Stdio;

use testkit::process::command;

use crate::house::{BINARY, House, Ran};

const NOBODY: &str = "01a1de95-4808-7263-ba89-ffcd7dae3033";

/// A house with a store that has one conversation.
async fn lived_in() -> (House, String) {
    let house = House::sqlite();
    let source = house.data().with_extension("json");
    let row = r#"{"uuid":"3f2b9a10-0000-4000-8000-000000000001","name":"One","created_at":"2025-01-01T00:00:00Z","chat_messages":[{"uuid":"m","sender":"human","text":"Hi","created_at":"2025-01-01T00:00:00Z"}]}"#;
    std::fs::write(&source, row).expect("written");
    let source = source.to_str().expect("a path").to_owned();
    let told = house.run(&["import", &source], &[]).await;
    let said = "Imported 1 conversation with 1 message; 0 conversations were there already; 0 refused.\n";
    assert_eq!((told.code, told.stdout.as_str()), (Some(0), said), "{told:?}");
    (house, source)
}

#[tokio::test]
async fn what_is_wrong_with_a_command_line_is_said_and_nothing_is_made() {
    let house = House::sqlite();
    let table: [(&[&str], i32, &str); 14] = [
        (&["import"], 2, "<FILE>"),
        (&["import", "/nowhere/a.json"], 1, "/nowhere/a.json is not there"),
        (&["import", "/dev/null", "--report", "/nowhere/r.jsonl"], 1, "--report /nowhere/r.jsonl"),
        (&["import", "/dev/null", "--owner", ""], 2, "--owner <USER>"),
        (&["import", "/dev/null", "--format", "word"], 2, "'word'"),
        (&["export", "--conversation", "x"], 2, "it must be a UUID"),
        (&["export", "--workspace", "x"], 2, "'--workspace <ID>'"),
        (&["keys", "remove", "x"], 2, "'x' for '<ID>': it must be a UUID"),
        (&["keys", "create", "--name", "a", "--role", "boss"], 2, "'boss'"),
        (&["locks", "clear", "x"], 2, "it must be a UUID"),
        (&["purge", "--older-than-days", "-1"], 2, "'-1' for '--older-than-days <DAYS>'"),
        (&["purge", "--older-than-days", "999999999"], 2, "999999999"),
        (&["restore", "/nowhere/backup"], 1, "/nowhere/backup is not a backup"),
        (&["backup", "/nowhere/backup"], 1, "there is no database"),
    ];
    for (args, code, said) in table {
        let ran = house.run(args, &[]).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(code), ""), "{args:?}: {ran:?}");
        assert!(ran.stderr.contains(said), "{args:?}: {ran:?}");
        let made: Vec<_> = std::fs::read_dir(house.data()).expect("a folder").flatten().collect();
        assert!(made.is_empty() || args[0] == "restore" || args[0] == "backup", "{args:?}: {made:?}");
    }
}

#[tokio::test]
async fn a_store_that_cannot_be_used_is_named_by_every_command() {
    let (house, source) = lived_in().await;
    let place = tempfile::tempdir().expect("a folder");
    let (file, other) = (place.path().join("a-file"), place.path().join("other"));
    std::fs::write(&file, "plain").expect("written");
    std::fs::create_dir(&other).expect("a folder");
    std::fs::write(other.join("threadkeep.db"), "hello, this is no database at all").expect("written");
    let backup = place.path().join("backup");
    let backup = backup.to_str().expect("a path");
    let commands: [&[&str]; 7] = [
        &["keys", "list"],
        &["locks"],
        &["import", &source],
        &["export"],
        &["purge"],
        &["serve"],
        &["backup", backup],
    ];
    for args in commands {
        for (data, said) in [(&file, "a-file"), (&other, "threadkeep.db: file is not a database")] {
            let ran = house.run(args, &[("THREADKEEP_DATA", data.to_str().expect("a path"))]).await;
            assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{args:?}: {ran:?}");
            assert!(ran.stderr.contains(said) && ran.stderr.lines().count() == 1, "{args:?}: {ran:?}");
        }
    }
    let left: Vec<_> = std::fs::read_dir(place.path()).expect("a folder").flatten().collect();
    assert_eq!(left.len(), 2, "a backup that failed leaves nothing: {left:?}");
    for (args, said) in [
        (&["export", "--conversation", NOBODY][..], NOBODY),
        (&["locks", "clear", NOBODY], NOBODY),
        (&["keys", "remove", NOBODY], NOBODY),
        (&["export", "--workspace", NOBODY], NOBODY),
        (&["export", "--user", "bob"], "bob is in no workspace"),
        (&["export", "-o", "/nowhere/a.zip"], "/nowhere/a.zip cannot be written"),
        (&["export", "--format", "html", "-o", "/nowhere/a.zip"], "one text, and no zip"),
    ] {
        let ran = house.run(args, &[]).await;
        assert!(ran.code == Some(1) && ran.stderr.contains(said), "{args:?}: {ran:?}");
    }
}

async fn run_into(house: &House, args: &[&str], stdout: Stdio) -> Ran {
    let child = command(Path::new(BINARY), &[], house.data()).args(args).stdout(stdout).spawn();
    let output = child.expect("the binary runs").wait_with_output().await.expect("an end");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Ran { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

#[tokio::test]
async fn output_that_cannot_be_written_is_a_failure_and_a_reader_that_has_seen_enough_is_none() {
    let (house, _) = lived_in().await;
    for args in [
        &["export"][..],
        &["export", "--format", "markdown"],
        &["export", "--format", "html"],
        &["keys", "list"],
        &["config"],
        &["completions", "bash"],
        &["man"],
    ] {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("/dev/full");
        let ran = run_into(&house, args, full.into()).await;
        let said = "threadkeep: standard output cannot be written: No space left on device (os error 28)\n";
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(1), said), "{args:?}");
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let ran = run_into(&house, args, writer.into()).await;
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{args:?}");
    }
}

/// What a command about the store shows of the settings is what tells it where the store is; it takes the others too.
#[tokio::test]
async fn help_tells_what_a_command_is_about() {
    let house = House::sqlite();
    for command in ["import", "export", "backup", "restore", "purge", "keys", "locks", "migrate"] {
        let help = house.run(&[command, "--help"], &[]).await;
        assert_eq!(help.code, Some(0), "{help:?}");
        let shown = |name: &&str| help.stdout.contains(&format!("--{name} <"));
        assert!(["data", "database-url", "blob-url", "config"].iter().all(shown), "{help:?}");
        assert!(!["listen", "openai-api-key", "lease-seconds"].iter().any(shown), "{help:?}");
        assert!(help.stdout.lines().count() < 70, "{command}: {}", help.stdout);
    }
    let ran = house.run(&["migrate", "--lease-seconds", "20"], &[]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

/// The script that is printed, read by the shell itself.
#[tokio::test]
async fn bash_completes_commands_flags_and_values() {
    let house = House::sqlite();
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("complete.sh");
    let printed = house.run(&["completions", "bash"], &[]).await.stdout;
    let ask = r#"
ask() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _threadkeep threadkeep "${@: -1}" "${@: -2:1}"; echo "${COMPREPLY[*]}"; }
ask threadkeep expo
ask threadkeep keys cr
ask threadkeep import --dry
ask threadkeep import --format chatg
"#;
    std::fs::write(&script, printed + ask).expect("written");
    let Ok(ran) = std::process::Command::new("bash").arg("--norc").arg(&script).output() else { return };
    let said = String::from_utf8(ran.stdout).expect("UTF-8");
    assert_eq!(said, "export\ncreate\n--dry-run\nchatgpt\n", "{}", String::from_utf8_lossy(&ran.stderr));
}
