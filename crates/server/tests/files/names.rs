//! Hostile names, from people and from sandboxes: kept as far as they are safe, listed, served, zipped, and unpacked
//! inside a folder by other people's programs.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use futures_util::future::join_all;
use serde_json::Value;
use testkit::form::Form;

use crate::caller::{Caller, files, names};
use crate::world::{Home, World, stories, stories_everywhere};

stories!(five_hundred_hostile_names);
stories_everywhere!(hostile_names_of_a_sandbox);

/// What people and attackers call files; with every other one in another case and with another ending.
fn hostile() -> Vec<String> {
    let stems: Vec<String> = [
        "..",
        ".",
        "...",
        "../../etc/passwd",
        "..\\..\\windows\\system32\\x.dll",
        "/etc/passwd",
        "C:\\boot.ini",
        "\\\\host\\share\\x",
        "a/b/c.txt",
        "a\\b\\c.txt",
        "./x",
        "x/.",
        "x/..",
        "~root",
        "~/x",
        "-rf",
        "--help",
        "nul",
        "NUL.txt",
        "con",
        "aux.c",
        "com1",
        "LPT9.x",
        "prn.",
        "conin$",
        "CLOCK$",
        "a\0b",
        "\0",
        "a\nb.txt",
        "a\r\nX-Evil: 1\r\n\r\nb",
        "a\tb",
        "\u{1b}[31mred",
        "a\u{7f}b",
        "trailing.",
        "trailing ",
        " leading",
        "two  spaces",
        "..hidden",
        ".bashrc",
        ".git",
        ".htaccess",
        "a\"b.txt",
        "a'b.txt",
        "a;b.txt",
        "a&b|c.txt",
        "$(reboot)",
        "`id`",
        "a%2e%2e%2fb",
        "%00",
        "%",
        "100%.txt",
        "a?b*c.txt",
        "<script>.txt",
        "a:b",
        "a:stream:$DATA",
        "invoice\u{202e}fdp.exe",
        "a\u{200b}b",
        "\u{feff}bom.txt",
        "x\u{2028}y",
        "\u{301}accent",
        "e\u{301}.txt",
        "\u{ff0e}\u{ff0e}\u{ff0f}x",
        "ﬁle.txt",
        "İstanbul.txt",
        "ß",
        "ẞ",
        "ς",
        "Σ",
        "日本語.pdf",
        "عربى.txt",
        "👩‍👩‍👧‍👦.png",
        "a\u{fe0f}",
        "\u{e0001}tag",
        "\u{ad}",
        "\u{200d}",
        "",
        " ",
        "\t",
        "x.tar.gz",
        ".tar.gz",
        "a.b.c.d.e",
        "noext",
        "UPPER.TXT",
        "upper.txt",
        "Upper.Txt",
        "desktop.ini",
        "Thumbs.db",
        "..;/x",
        "....//x",
        "assets",
        "__MACOSX",
        "PK\u{3}\u{4}",
        "a,b=c",
        "#x",
        "@x",
        "x\u{85}y",
        "x\u{2029}y",
        "\u{1f}x",
        "𝕏.txt",
        "ａ.txt",
    ]
    .map(str::to_owned)
    .into();
    let long = [
        "x".repeat(300),
        format!("{}.pdf", "长".repeat(100)),
        "👩‍👩‍👧‍👦".repeat(20),
        format!("a.{}", "e".repeat(300)),
    ];
    let stems: Vec<String> = stems.into_iter().chain(long).collect();
    let twists: [fn(&str) -> String; 5] = [
        str::to_owned,
        str::to_uppercase,
        |name| format!("{name}.txt"),
        |name| format!("dir/{name}"),
        |name| format!("{name}\u{301}"),
    ];
    twists.iter().flat_map(|twist| stems.iter().map(|stem| twist(stem))).collect()
}

#[track_caller]
fn safe(name: &str) {
    let bad = |c: char| {
        c.is_control()
            || matches!(c, '/' | '\\' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}')
    };
    assert!(!name.is_empty() && name.len() <= 255 && !name.contains(bad), "{name:?}");
    assert!(!matches!(name, "." | "..") && !name.ends_with(['.', ' ']), "{name:?}");
    let stem = name.split('.').next().unwrap().to_ascii_lowercase();
    assert!(!["con", "nul", "aux", "prn", "com1", "lpt9"].contains(&stem.trim()), "{name:?}");
    // A run's own folder is beside the bag's files.
    assert_ne!(name.to_lowercase(), "assets");
}

async fn five_hundred_hostile_names(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let chat = world.ann.conversation().await;
    let sent = hostile();
    assert!(sent.len() >= 500, "{}", sent.len());
    let body = |n: usize| format!("the body of {n}").into_bytes();
    let requests = sent.chunks(10).enumerate().map(|(at, chunk)| {
        let form =
            chunk.iter().enumerate().fold(Form::new(), |form, (n, name)| form.file(name, &body(at * 10 + n)));
        let (ann, chat) = (world.ann.clone(), chat.clone());
        async move { files(&ann.upload(&chat, &form).await) }
    });
    let mut stored: Vec<Value> = Vec::new();
    for chunk in requests.collect::<Vec<_>>() {
        stored.extend(chunk.await);
    }
    assert_eq!(stored.len(), sent.len());
    all_apart(&stored);
    assert_eq!(world.ann.list(&chat).await.len(), sent.len());
    let served = join_all(stored.iter().map(|file| world.ann.content(file))).await;
    for ((n, got), file) in served.iter().enumerate().zip(&stored) {
        assert_eq!((got.status, &got.bytes), (200, &body(n)), "{}", file["name"]);
        let disposition = got.header("content-disposition");
        assert!(disposition.is_ascii() && disposition.matches('"').count() == 2, "{disposition}");
    }
    // What needs no change is kept as it was.
    for kept in [
        "日本語.pdf",
        "a'b.txt",
        "-rf",
        "$(reboot)",
        "100%.txt",
        "x.tar.gz",
        "a\"b.txt",
        "two  spaces",
        " leading",
    ] {
        assert!(names(&stored).contains(&kept), "{kept}");
    }
    let (_, agent) = world.hanging(&chat).await;
    let (listed, zip) = agent.assets().await.unwrap();
    assert_eq!(listed.len(), sent.len());
    unpacked(&zip, &stored, &body);
    Some(())
}

/// Names differ whatever their case, and are safe.
fn all_apart(stored: &[Value]) {
    let mut seen = BTreeSet::new();
    for name in names(stored) {
        safe(name);
        assert!(seen.insert(name.to_lowercase().to_uppercase()), "{name:?} is there twice");
    }
}

/// Python's and Info-ZIP's unpackers put every file into the folder and nothing beside it.
fn unpacked(zip: &[u8], stored: &[Value], body: &dyn Fn(usize) -> Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("assets.zip");
    std::fs::write(&archive, zip).unwrap();
    let python = "import sys, zipfile; z = zipfile.ZipFile(sys.argv[1]); assert z.testzip() is None; z.extractall(sys.argv[2])";
    for program in [vec!["python3", "-c", python], vec!["unzip", "-q"]] {
        let inside = folder.path().join(program[0]).join("inside");
        std::fs::create_dir_all(&inside).unwrap();
        let mut command = Command::new(program[0]);
        command
            .args(&program[1..])
            .arg(&archive)
            .env("PYTHONUTF8", "1")
            .env("LANG", "C.UTF-8")
            .env("LC_ALL", "C.UTF-8");
        match program[0] {
            "unzip" => command.arg("-d").arg(&inside),
            _ => command.arg(&inside),
        };
        let Ok(output) = command.output() else {
            crate::browser::skipped(program[0]);
            continue;
        };
        assert!(output.status.success(), "{program:?}: {}", String::from_utf8_lossy(&output.stderr));
        let above: Vec<_> = std::fs::read_dir(folder.path().join(program[0])).unwrap().collect();
        assert_eq!(above.len(), 1, "nothing beside the folder");
        let found = std::fs::read_dir(&inside).unwrap().map(|entry| entry.unwrap());
        let found: BTreeSet<String> = found
            .map(|entry| {
                assert!(entry.file_type().unwrap().is_file());
                entry.file_name().into_string().unwrap()
            })
            .collect();
        assert_eq!(found, names(stored).into_iter().map(str::to_owned).collect(), "by {}", program[0]);
        for (n, name) in names(stored).into_iter().enumerate() {
            assert_eq!(std::fs::read(inside.join(Path::new(name))).unwrap(), body(n), "{name}");
        }
    }
}

async fn hostile_names_of_a_sandbox(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let chat = world.ann.conversation().await;
    world.ann.put(&chat, "x.dll", b"the user's").await;
    let (_, agent) = world.hanging(&chat).await;
    let form =
        ["../../x.dll", "/root/.ssh/authorized_keys", "a\r\nb", "..", "nul", "X.DLL", "\u{202e}gpj.exe", ""];
    let form = form.iter().fold(Form::new(), |form, name| form.file(name, b"from the sandbox"));
    let stored = files(&agent.send_back(&form).await.unwrap());
    all_apart(&world.ann.list(&chat).await);
    assert_eq!(names(&stored)[..2], ["x-1.dll", "authorized_keys"]);
    for file in &stored {
        safe(file["name"].as_str().unwrap());
        let key = file["storageKey"].as_str().unwrap();
        assert_eq!(
            key,
            format!("assistant-chat-bag/{}/{chat}/{}", world.workspace, file["name"].as_str().unwrap())
        );
        assert_eq!(content(&world.ann, file).await, b"from the sandbox");
    }
    Some(())
}

async fn content(caller: &Caller, file: &Value) -> Vec<u8> {
    caller.content(file).await.bytes
}
