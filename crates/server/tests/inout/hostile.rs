//! Files that are broken, cut, or made to do harm: a clear report, everything else in, nothing half, bounded memory.

use std::io::Write as _;

use serde_json::{Value, json};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use crate::formats::{conversations, fixture};
use crate::house::House;

fn chatgpt(id: &str, text: &str) -> Value {
    let message = json!({ "id": "m", "author": { "role": "user" }, "create_time": 1700000000, "content": { "content_type": "text", "parts": [text] } });
    json!({ "id": id, "title": id, "create_time": 1700000000, "update_time": 1700000000, "current_node": "n",
        "mapping": { "n": { "id": "n", "message": message, "parent": null, "children": [] } } })
}

fn zip(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut zip = ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, bytes) in entries {
        let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
        zip.start_file(*name, options).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

/// Imports what has something wrong with it: the counts, and the report's lines about refusals.
async fn import(house: &House, paths: &[&str]) -> (Value, Vec<Value>) {
    let report = house.path("report.jsonl");
    let args = [&["import", "--json", "--report", report.to_str().unwrap()], paths].concat();
    let ran = house.run(&args).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let lines = std::fs::read_to_string(&report).unwrap();
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    (ran.json(), lines.filter(|line| line["outcome"] == "refused").collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_is_refused_where_it_stands_and_the_rest_comes_in() {
    let house = House::sqlite();
    let circle = json!({ "id": "circle", "mapping": { "a": { "parent": "b", "children": ["b"] }, "b": { "parent": "a", "children": ["a"] } } });
    let wrong = json!({ "id": "wrong", "mapping": [1, 2] });
    let strange = json!({ "what": "is this" });
    let deep = format!("{{\"id\":\"deep\",\"mapping\":{}1{}}}", "[".repeat(5000), "]".repeat(5000));
    let good = [chatgpt("one", "1"), chatgpt("two", "2"), chatgpt("three", "\u{0}\u{fffe}")];
    let array = format!("[{},{circle},\n{wrong},{strange},{deep},{},7,\"x\",{}]", good[0], good[1], good[2]);
    let whole = house.write("odd.json", &array);
    let (told, refused) = import(&house, &[&whole]).await;
    assert_eq!(
        (&told["imported"]["conversations"], &told["refused"]),
        (&json!(3), &json!(6)),
        "{told} {refused:?}"
    );
    let reasons: Vec<&str> = refused.iter().map(|line| line["reason"].as_str().unwrap()).collect();
    for (reason, part) in
        reasons.iter().zip(["circle", "mapping", "no format", "mapping", "object", "object"])
    {
        assert!(reason.contains(part), "{part}: {reasons:?}");
    }
    assert_eq!(
        (&refused[1]["line"], &refused[1]["number"], &refused[0]["source_id"]),
        (&json!(2), &json!(3), &json!("circle"))
    );

    // Cut anywhere, what is whole before it comes in, and going on with the whole file gives the whole.
    let cut = house.write("cut.json", &array.as_bytes()[..array.len() - 40]);
    let fresh = House::sqlite();
    let (told, _) = import(&fresh, &[&cut]).await;
    assert_eq!(told["imported"]["conversations"], 2, "{told}");
    import(&fresh, &[&whole]).await;
    assert_eq!(conversations(&fresh).await, conversations(&house).await);

    // Files that are nothing of the kind.
    let before = house.export().await;
    for (name, bytes) in [
        ("empty.json", &b""[..]),
        ("noise.json", b"\x00\xff\xfe{"),
        ("half.json", b"{\"id\": "),
        ("no.csv", b"a,b\n1,\"2"),
        ("list.json", b"[1,2"),
    ] {
        let path = house.write(name, bytes);
        let ran = house.run(&["import", &path]).await;
        assert!(
            name == "empty.json" || (ran.code == Some(1) && ran.stderr.contains(name)),
            "{name}: {ran:?}"
        );
    }
    let missing = house.run(&["import", "/nowhere/at/all.json"]).await;
    assert!(missing.code == Some(1) && missing.stderr.contains("/nowhere/at/all.json"), "{missing:?}");
    assert_eq!(house.export().await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn archives_that_no_exporter_makes_are_refused_whole() {
    let house = House::sqlite();
    let good = serde_json::to_vec(&json!([chatgpt("one", "1")])).unwrap();
    let bomb = vec![b' '; 100 * 1024 * 1024];
    for (name, bytes, reason) in [
        ("slip.zip", zip(&[("conversations.json", &good), ("../../evil.json", b"[]")]), "leads out"),
        ("root.zip", zip(&[("conversations.json", &good), ("/etc/evil.json", b"[]")]), "leads out"),
        ("bomb.zip", zip(&[("conversations.json", &good), ("bomb.json", &bomb)]), "would grow"),
        ("none.zip", zip(&[("readme.txt", b"hello")]), "no JSON"),
        ("strange.zip", zip(&[("user.json", b"{\"id\":\"u\"}")]), "no conversations"),
        ("cut.zip", zip(&[("conversations.json", &good)])[..60].to_vec(), "zip"),
    ] {
        let path = house.write(name, bytes);
        let (told, refused) = import(&house, &[&path]).await;
        assert_eq!(
            (&told["imported"]["conversations"], &told["refused"]),
            (&json!(0), &json!(1)),
            "{name}: {refused:?}"
        );
        assert!(refused[0]["reason"].as_str().unwrap().contains(reason), "{name}: {refused:?}");
    }
    assert!(!house.path("../evil.json").exists() && !house.path("../../evil.json").exists());
    // What lies beside the conversations is passed over; a picture is found.
    let tree = std::fs::read(fixture("chatgpt.json")).unwrap();
    let png = b"\x89PNG\r\n\x1a\n picture";
    let path = house.write(
        "good.zip",
        zip(&[
            ("conversations.json", &tree),
            ("user.json", b"{\"id\":\"u\"}"),
            ("file-Abc123-sketch.png", png),
            ("chat.html", b"<html>"),
        ]),
    );
    let told = house.import(&[&path]).await;
    assert_eq!(
        (&told["imported"]["conversations"], &told["imported"]["files"]),
        (&json!(3), &json!(1)),
        "{told}"
    );
    let all = conversations(&house).await;
    let found = all.iter().find(|of| of["title"] == "Plot a sine 🌊").unwrap();
    assert_eq!(found["files"][0]["name"], "sketch.png");
    assert_eq!(found["branches"][0]["messages"][0]["fileAttachments"][0]["fileId"], "file 0");
}

/// Lines about pages, tables and executions that do not hold together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_hold_together_is_refused_as_a_whole() {
    let house = House::sqlite();
    let id = |n: u32| format!("0192f0c1-0000-7000-8000-{n:012}");
    let at = "\"created_at\":\"2026-01-01T00:00:00Z\",\"updated_at\":\"2026-01-01T00:00:00Z\"";
    let table = |rows: u32| {
        format!(
            r#"{{"type":"table","id":"{}","name":"T","columns":[{{"name":"n","type":"number"}}],"row_count":{rows},{at}}}"#,
            id(1)
        )
    };
    let rows = |table: u32, row: u32, cells: &str| {
        format!(
            r#"{{"type":"rows","table":"{}","rows":[{{"id":"{}","cells":{cells}}}]}}"#,
            id(table),
            id(row)
        )
    };
    let run = r#""status":"succeeded","message":null,"assistant_message":null,"user_id":"u","usage":{"input_tokens":0,"output_tokens":0},"error":null,"last_event":0,"on_disconnect":"cancel","created_at":"2026-01-01T00:00:00Z","started_at":null,"ended_at":null"#;
    let execution = |more: &str| {
        let run = format!(r#"{{"id":"{}",{run}{more}}}"#, id(6));
        format!(r#"{{"type":"execution","id":"{}","response":"r","run":{run},"files":[]}}"#, id(5))
    };
    let trace = |n: u32, kind: &str| {
        let entry = format!(r#"{{"n":{n},"seq":null,"ts":1,"kind":"{kind}","data":{{"text":"t"}}}}"#);
        format!(r#"{{"type":"trace","run":"{}","entries":[{entry}]}}"#, id(6))
    };
    for (lines, refused, reason) in [
        (vec![table(2), rows(1, 2, "[1]")], 1, "0 of its 2 rows"),
        (vec![rows(1, 2, "[1]"), table(2)], 1, "1 of its 2 rows"),
        (vec![rows(9, 2, "[1]"), table(1)], 1, "0 of its 1 rows"),
        (vec![rows(1, 2, "[1]"), rows(1, 2, "[1]"), table(2)], 1, "order of the ids"),
        (vec![rows(1, 2, "[\"x\"]"), table(1)], 1, "must be a number"),
        (vec![rows(1, 2, "[1,2]"), table(1)], 1, "more cells than columns"),
        (vec![rows(1, 2, "[{}]"), table(1)], 2, "scalar"),
        (vec![table(0).replace("\"T\"", "\"\"")], 1, "name must be"),
        (
            vec![format!(r#"{{"type":"page","id":"{}","title":"","body":"","url":null,{at}}}"#, id(3))],
            1,
            "title must be",
        ),
        (
            vec![format!(
                r#"{{"type":"page","id":"{}","title":"t","body":"\u0000","url":null,{at}}}"#,
                id(3)
            )],
            1,
            "U+0000",
        ),
        (vec![trace(2, "note"), execution("")], 1, "goes on where it was not"),
        (vec![trace(1, "virus"), execution("")], 2, "virus"),
        (vec![execution(r#","asked":{"what":"is this"}"#)], 1, "no turn is"),
        (vec![execution("").replace("succeeded", "running")], 1, "has not ended"),
        (vec![execution(r#","approvals":[{}]"#)], 1, "missing field"),
        (
            vec![r#"{"type":"workspace","default_visibility":"all","model":null}"#.to_owned()],
            1,
            "unknown variant",
        ),
    ] {
        let path = house.write("lines.jsonl", lines.join("\n"));
        let (told, found) = import(&house, &[&path]).await;
        assert_eq!(told["refused"], refused, "{lines:?}: {found:?}");
        let said = found.iter().any(|line| line["reason"].as_str().is_some_and(|said| said.contains(reason)));
        assert!(said, "{reason}: {found:?}");
        let none = json!({ "conversations": 0, "messages": 0, "files": 0, "agents": 0, "pages": 0, "tables": 0, "executions": 0 });
        assert_eq!(told["imported"], none, "{lines:?}");
    }
    // And those that do.
    let lines =
        [rows(1, 2, "[1.0]"), rows(1, 3, "[]"), table(2), trace(1, "note"), trace(2, "note"), execution("")];
    let told = house.import(&[&house.write("lines.jsonl", lines.join("\n"))]).await;
    assert_eq!(
        (&told["imported"]["tables"], &told["imported"]["executions"]),
        (&json!(1), &json!(1)),
        "{told}"
    );
    let out = house.export().await;
    assert!(
        out.contains("\"cells\":[1.0]") && out.contains("\"row_count\":2") && out.contains("\"n\":2"),
        "{out}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_export_of_ours_is_refused_conversation_by_conversation() {
    let house = House::sqlite();
    house.import(&[fixture("claude.json").to_str().unwrap()]).await;
    let lines = house.export().await;
    let line =
        lines.lines().find(|line| line.contains("notes.txt") && line.contains("\"conversation\"")).unwrap();
    let blob = lines.lines().find(|line| line.contains("\"blob\"")).unwrap();
    // The last of them: files stand after the messages that name them.
    let changed = |from: &str, to: &str| {
        let at = line.rfind(from).unwrap_or_else(|| panic!("{from}"));
        let changed = format!("{}{to}{}", &line[..at], &line[at + from.len()..]);
        assert_ne!(changed, line, "{from}");
        format!("{blob}\n{changed}\n")
    };
    for (text, reason) in [
        (format!("{line}\n"), "are not in the export"),
        (format!("{}\n{line}\n", blob.replacen("\"data\":\"", "\"data\":\"AAAA", 1)), "not those"),
        (changed("notes.txt\",\"mimeType", "../notes.txt\",\"mimeType"), "unsafe name"),
        (changed("\"type\":\"text\"", "\"type\":\"video\""), "not known"),
        (changed("\"user_id\":\"local\",\"title\"", "\"user_id\":\"\",\"title\""), "owner"),
        (changed("\"current_branch\":\"", "\"current_branch\":\"0"), "UUID"),
        (changed("\"kind\":", "\"extra\":1,\"kind\":"), "unknown field"),
        (changed("\"metadata\":{}", "\"metadata\":[]"), "metadata"),
    ] {
        let fresh = House::sqlite();
        let path = fresh.write("changed.jsonl", text);
        let (told, refused) = import(&fresh, &[&path]).await;
        assert_eq!(
            (&told["imported"]["conversations"], &told["refused"]),
            (&json!(0), &json!(1)),
            "{refused:?}"
        );
        let said = refused[0]["reason"].as_str().unwrap();
        assert!(said.contains(reason), "{reason}: {said}");
    }
}

/// The most memory that a process had, in MiB.
fn peak(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib / 1024)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_file_takes_little_memory() {
    let house = House::sqlite();
    let path = house.path("large.json");
    let mut file = std::io::BufWriter::new(std::fs::File::create(&path).unwrap());
    file.write_all(b"[").unwrap();
    // 105 MB: mostly text that is passed over once the same conversations are there.
    let text = "lorem ipsum ".repeat(8_000);
    let threads: Vec<String> =
        (0..40).map(|number| chatgpt(&format!("c{number}"), &text).to_string()).collect();
    for number in 0..1_100 {
        let comma = if number == 0 { "" } else { "," };
        write!(file, "{comma}{}", threads[number % 40]).unwrap();
    }
    file.write_all(b"]").unwrap();
    file.flush().unwrap();
    assert!(std::fs::metadata(&path).unwrap().len() > 105_000_000);
    let most = run_measured(&house, &["import", "--json", path.to_str().unwrap()]).await;
    assert!(most > 0 && most < 150, "{most} MiB");
    assert_eq!(conversations(&house).await.len(), 40);
}

/// Runs a command that must end well; the most memory that it had, in MiB.
async fn run_measured(house: &House, args: &[&str]) -> u64 {
    let mut child = house.command(args).stdout(std::process::Stdio::null()).spawn().unwrap();
    let (pid, mut most) = (child.id().unwrap(), 0);
    let status = loop {
        most = most.max(peak(pid).unwrap_or(0));
        tokio::select! {
            status = child.wait() => break status.unwrap(),
            () = tokio::time::sleep(std::time::Duration::from_millis(20)) => {}
        }
    };
    assert_eq!(status.code(), Some(0));
    most
}

/// A file of so many threads; its path.
fn many(house: &House, threads: u32) -> String {
    let path = house.path("many.jsonl");
    let mut file = std::io::BufWriter::new(std::fs::File::create(&path).unwrap());
    for number in 0..threads {
        let message = r#"{"uuid":"m","sender":"human","text":"hi"}"#;
        writeln!(
            file,
            r#"{{"uuid":"3f2b9a10-0000-4000-8000-{number:012}","name":"n","chat_messages":[{message}]}}"#
        )
        .unwrap();
    }
    file.flush().unwrap();
    path.to_str().unwrap().to_owned()
}

/// As many threads as a debug build reads in a few seconds; the million is measured by the bench.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_threads_take_as_little_memory_as_few() {
    let house = House::sqlite();
    let few = run_measured(&house, &["import", "--dry-run", &many(&house, 5_000)]).await;
    let most = run_measured(&house, &["import", "--dry-run", &many(&house, 50_000)]).await;
    assert!(few > 0 && most < few + 10, "{few} MiB for a few, {most} MiB for many");
    // Not as many that really come in, on both databases, the second time without a change.
    for house in House::both().await {
        let path = many(&house, 2_000);
        for (came, told) in
            [("imported", house.import(&[&path]).await), ("already_there", house.import(&[&path]).await)]
        {
            let counts = (&told[came]["conversations"], &told[came]["messages"], &told["refused"]);
            assert_eq!(counts, (&json!(2_000), &json!(2_000), &json!(0)), "{told}");
        }
    }
}
