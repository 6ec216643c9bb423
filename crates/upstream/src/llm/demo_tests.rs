//! The demo model word by word, and through its stream.

use domain::model::{Call, Gathered, Prompt, ToolSpec};
use serde_json::value::RawValue;

use super::*;

fn tool(name: &str) -> ToolSpec {
    let schema =
        r#"{"type":"object","properties":{"name":{},"path":{},"content":{},"command":{},"query":{}}}"#;
    let schema = RawValue::from_string(schema.into()).unwrap();
    ToolSpec { name: name.into(), description: String::new(), schema }
}

fn ask(message: &str, tools: &[&str]) -> Ask {
    Ask {
        prompt: Prompt { system: String::new(), messages: vec![Said::User(message.into())] },
        tools: tools.iter().map(|name| tool(name)).collect(),
        ..Ask::default()
    }
}

fn gathered(ask: &Ask) -> Gathered {
    let mut gathered = Gathered::default();
    answer(ask).iter().for_each(|event| gathered.push(event));
    gathered
}

#[test]
fn the_words_that_drive_it() {
    use Order::{Fail, List, Plan, Read, Run, Search, Think, Write};
    for (message, order) in [
        ("list files", Some(List)),
        ("List files, please", Some(List)),
        ("list filesystem", None),
        ("read report.pdf", Some(Read("report.pdf"))),
        ("read", None),
        ("reading is fun", None),
        ("write a.txt: hello: world", Some(Write("a.txt", "hello: world"))),
        ("write a.txt:\nline\nline", Some(Write("a.txt", "line\nline"))),
        ("write a.txt hello", None),
        ("run ls -la | wc", Some(Run("ls -la | wc"))),
        ("search blue whale", Some(Search("blue whale"))),
        ("plan a party", Some(Plan("a party"))),
        ("think 12 words", Some(Think(12))),
        ("think 1 word", Some(Think(1))),
        ("think hard", None),
        ("think -1 words", None),
        ("fail", Some(Fail)),
        ("failure", None),
        ("é", None),
        ("", None),
    ] {
        assert_eq!(Order::read(message), order, "{message:?}");
    }
}

#[test]
fn nothing_is_written_beside_the_folder_that_is_kept() {
    for name in ["../x.txt", "assets/../x.txt", "a/../../x.txt", ".."] {
        let got = gathered(&ask(&format!("write {name}: hi"), &["write_file"]));
        assert!(got.calls.is_empty() && got.text.contains("leads out of `assets/`"), "{name}: {}", got.text);
    }
    for name in ["/tmp/x.txt", "a..b", "..x/y"] {
        let got = gathered(&ask(&format!("write {name}: hi"), &["write_file"]));
        assert_eq!(got.calls.len(), 1, "{name}");
    }
}

#[test]
fn orders_become_calls_of_the_tools_that_are_offered() {
    let all = ["list_files", "read_file", "write_file", "run_shell", "search_pages", "search_user_tables"];
    for (message, calls) in [
        ("list files", vec![("list_files", json!({}))]),
        ("read a b.txt", vec![("read_file", json!({ "name": "a b.txt", "path": "a b.txt" }))]),
        (
            "read a.txt\n\n[Attached files: a.txt (text/plain, 3 bytes)]",
            vec![("read_file", json!({ "name": "a.txt", "path": "a.txt" }))],
        ),
        ("write a.txt: hi", vec![("write_file", json!({ "path": "assets/a.txt", "content": "hi" }))]),
        ("run echo hi", vec![("run_shell", json!({ "command": "echo hi" }))]),
        (
            "search x",
            vec![("search_pages", json!({ "query": "x" })), ("search_user_tables", json!({ "query": "x" }))],
        ),
    ] {
        let got = gathered(&ask(message, &all));
        let expected: Vec<(String, Value)> = calls.into_iter().map(|(n, a)| (n.to_owned(), a)).collect();
        let made: Vec<(String, Value)> = got
            .calls
            .iter()
            .map(|call| (call.name.clone(), serde_json::from_str(&call.args).unwrap()))
            .collect();
        assert_eq!((made, got.text.as_str()), (expected, ""), "{message}");
        let without = gathered(&ask(message, &[]));
        assert!(without.calls.is_empty() && without.text.contains("no tool"), "{message}: {}", without.text);
    }
}

#[test]
fn results_are_reported_and_not_asked_for_again() {
    let mut ask = ask("read a.txt", &["read_file"]);
    let call = Call { id: "c".into(), name: "read_file".into(), args: "{}".into() };
    let result =
        |text: &str, failed| Answer { id: "c".into(), name: "read_file".into(), text: text.into(), failed };
    ask.prompt.messages.push(Said::Assistant { text: String::new(), calls: vec![call] });
    ask.prompt.messages.push(Said::Answers(vec![result("the text", false), result("gone", true)]));
    let got = gathered(&ask);
    assert_eq!(got.text, "The file says:\n\nthe text\n\n`read_file` failed: gone");
    assert!(got.calls.is_empty());
    // A new message is a new order.
    ask.prompt.messages.push(Said::User("list files".into()));
    assert!(gathered(&ask).text.contains("no tool"));
}

#[tokio::test(start_paused = true)]
async fn it_streams_counts_and_ends_once() {
    for (message, end, words, thoughts) in
        [("hello", true, ABOUT.split(' ').count(), 0), ("think 40 words", true, 4, 40), ("fail", false, 0, 0)]
    {
        let batches: Vec<Vec<ModelEvent>> = Demo.stream(ask(message, &[])).collect().await;
        let events = batches.concat();
        assert_eq!(
            events.iter().filter(|event| matches!(event, ModelEvent::Text(_))).count(),
            words,
            "{message}"
        );
        let thought: String = events
            .iter()
            .filter_map(|e| if let ModelEvent::Reasoning(t) = e { Some(t.as_str()) } else { None })
            .collect();
        assert_eq!(thought.split_whitespace().count(), thoughts);
        assert_eq!(events.iter().filter(|event| matches!(event, ModelEvent::End(_))).count(), 1);
        let mut gathered = Gathered::default();
        events.iter().for_each(|event| gathered.push(event));
        assert_eq!(gathered.end.unwrap().is_ok(), end);
        assert_eq!(gathered.usage.output_tokens > 0, end);
    }
}

#[test]
fn a_plan_is_not_about_the_note_of_attached_files() {
    let said = gathered(&ask("plan a party\n\n[Attached files: a.txt (text/plain, 3 bytes)]", &[])).text;
    assert!(said.starts_with("A plan for: a party\n") && !said.contains("Attached"), "{said}");
}

#[test]
fn a_failure_is_one_where_only_its_words_say_so() {
    let mut ask = ask("read a.txt", &["read_file"]);
    let call = Call { id: "c".into(), name: "read_file".into(), args: "{}".into() };
    let (id, name, text) = ("c".into(), "read_file".into(), "Error: there is no file".into());
    let answers = vec![Answer { id, name, text, failed: false }];
    let made = Said::Assistant { text: String::new(), calls: vec![call] };
    ask.prompt.messages.extend([made, Said::Answers(answers)]);
    assert_eq!(gathered(&ask).text, "`read_file` failed: Error: there is no file");
}

#[test]
fn what_it_would_search_for_is_told_where_it_has_no_tool_for_it() {
    assert_eq!(searches(&ask("search blue whale", &["shell"])).as_deref(), Some("blue whale"));
    assert_eq!(searches(&ask("search blue whale", &["search_pages"])), None);
    assert_eq!(searches(&ask("read a.txt", &[])), None);
    let mut found = ask("search whale", &[]);
    let text = "1. Whales".to_owned();
    let answer = Answer { id: String::new(), name: SEARCHES[0].into(), text, failed: false };
    found.prompt.messages.push(Said::Answers(vec![answer]));
    assert_eq!(searches(&found), None);
    assert_eq!(gathered(&found).text, "In the pages I found:\n\n1. Whales");
}

#[tokio::test]
async fn it_stops_at_its_limit() {
    let told = async |message: &str, max_tokens: Option<u64>, tools: &[&str]| {
        let ask = Ask { max_tokens, ..ask(message, tools) };
        let mut gathered = Gathered::default();
        let events: Vec<ModelEvent> =
            Demo.stream(ask).collect::<Vec<_>>().await.into_iter().flatten().collect();
        events.iter().for_each(|event| gathered.push(event));
        (gathered.text, gathered.usage.output_tokens, gathered.end.unwrap().unwrap())
    };
    for (max, expected) in [
        (Some(2), ("".to_owned(), 2, Finish::Length)),
        (Some(13), ("I th".to_owned(), 13, Finish::Length)),
        (Some(1000), ("I thought 10 words.".to_owned(), 17, Finish::Stop)),
        (None, ("I thought 10 words.".to_owned(), 17, Finish::Stop)),
    ] {
        assert_eq!(told("think 10 words", max, &[]).await, expected, "{max:?}");
    }
    // Half a call is none.
    let (read, tools) = ("read report.pdf", ["read_file"]);
    assert_eq!(told(read, Some(3), &tools).await, (String::new(), 0, Finish::Length));
    assert_eq!(told(read, Some(100), &tools).await.2, Finish::Calls);
}
