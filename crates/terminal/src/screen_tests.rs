//! The screen as a person has it: keys in, what is shown and what is to be done out.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use domain::entry::decode_event;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::{Value, json};

use super::*;
use crate::api::Listed;
use crate::draw::draw;

fn press(screen: &mut Screen, text: &str) -> Option<Effect> {
    let mut effect = None;
    for c in text.chars() {
        let code = if c == '\n' { KeyCode::Enter } else { KeyCode::Char(c) };
        effect = screen.key(KeyEvent::from(code));
    }
    effect
}

fn ctrl(screen: &mut Screen, c: char) -> Option<Effect> {
    screen.key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL))
}

fn event(screen: &mut Screen, kind: &str, data: Value) -> bool {
    let event = decode_event(kind, &data.to_string()).unwrap();
    screen.item(Item::Event(Box::new(Seen { seq: 1, event, data: data.to_string() })))
}

/// A run from its turn event on.
fn begin(screen: &mut Screen, message: u128) -> Uuid {
    let run = Uuid::from_u128(99);
    screen.item(Item::Run(run));
    let turn = json!({ "conversation": null, "run": run, "message": Uuid::from_u128(message), "conversation_id": null });
    event(screen, "turn", turn);
    run
}

fn shown(screen: &mut Screen, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, screen, "http://127.0.0.1:8080")).unwrap();
    let buffer = terminal.backend().buffer().clone();
    let rows = buffer.content.chunks(usize::from(width));
    rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned() + "\n")
        .collect()
}

#[test]
fn a_turn_from_the_first_key_to_the_answer() {
    let mut screen = Screen::new(Vec::new());
    let asked = press(&mut screen, "Good morning\n");
    assert_eq!(asked, Some(Effect::Ask(Ask::Message("Good morning".into()), vec![])));
    begin(&mut screen, 1);
    event(
        &mut screen,
        "step",
        json!({ "type": "step", "id": "s", "name": "count", "status": "running", "ts": 1 }),
    );
    event(&mut screen, "delta", json!({ "text": "Two **wo" }));
    let page = shown(&mut screen, 40, 12);
    assert!(page.contains("› Good morning\n\n… count\n\nTwo **wo\n"), "{page}");
    assert!(page.contains("Working… Ctrl-C stops"), "{page}");
    event(
        &mut screen,
        "step",
        json!({ "type": "step", "id": "s", "name": "count", "status": "succeeded", "ts": 2 }),
    );
    event(&mut screen, "result", json!({ "message": "Two **words**.", "assistant": null }));
    event(&mut screen, "done", json!({ "status": "succeeded" }));
    screen.run_over(None);
    let page = shown(&mut screen, 40, 12);
    assert!(page.contains("✓ count\n\nTwo words.\n"), "{page}");
    assert!(page.contains("/help"), "{page}");
}

#[test]
fn a_screen_of_any_size_can_be_drawn() {
    let mut screen = Screen::new(Vec::new());
    press(&mut screen, "Tell me something long, with wörds and 日本語\n");
    begin(&mut screen, 1);
    event(
        &mut screen,
        "delta",
        json!({ "text": "# A\n\n- b c d e f g h\n\n| a | b |\n|---|---|\n| c | d |\n\n```\ncode\n```" }),
    );
    screen.editor.insert("a draft\nof two lines");
    for width in 1..60 {
        for height in [1, 2, 3, 4, 5, 8, 20] {
            shown(&mut screen, width, height);
        }
    }
}

#[test]
fn an_interrupt_stops_the_turn_and_at_the_prompt_leaves() {
    let mut screen = Screen::new(Vec::new());
    press(&mut screen, "Hi\n");
    let run = begin(&mut screen, 1);
    assert_eq!(ctrl(&mut screen, 'c'), Some(Effect::Cancel(run)));
    assert!(shown(&mut screen, 40, 8).contains("Stopping…"));
    let error = json!({ "code": "cancelled", "message": "the run was cancelled", "assistant": null });
    event(&mut screen, "error", error);
    event(&mut screen, "done", json!({ "status": "cancelled" }));
    screen.run_over(None);
    let page = shown(&mut screen, 40, 8);
    assert!(page.contains("\nStopped\n") && !page.contains('✗') && !page.contains("cancelled"), "{page}");
    press(&mut screen, "a draft");
    assert_eq!(ctrl(&mut screen, 'c'), None, "the draft goes first");
    assert_eq!(ctrl(&mut screen, 'c'), Some(Effect::Quit));
    assert_eq!(ctrl(&mut screen, 'd'), Some(Effect::Quit));
}

#[test]
fn an_interrupt_before_the_turn_is_heard_of_stops_it_when_it_is() {
    let mut screen = Screen::new(Vec::new());
    press(&mut screen, "Hi\n");
    assert_eq!(ctrl(&mut screen, 'c'), None, "it does not leave");
    assert_eq!(screen.turn, Turn::Recalled);
    assert!(shown(&mut screen, 40, 8).contains("Stopping…"));
    let run = begin(&mut screen, 1);
    assert_eq!(screen.turn, Turn::Stopping(run));
    let mut screen = Screen::new(Vec::new());
    press(&mut screen, "Hi\n");
    ctrl(&mut screen, 'c');
    assert_eq!(ctrl(&mut screen, 'c'), Some(Effect::Quit), "the second one leaves");
}

#[test]
fn a_turn_that_was_not_taken_gives_its_text_back() {
    let mut screen = Screen::new(Vec::new());
    press(&mut screen, "Hi there\n");
    let refused =
        Failure::Refused { status: 422, code: "invalid_value".into(), detail: "No such model.".into() };
    screen.run_over(Some(&refused));
    assert_eq!((screen.editor.text(), &screen.turn), ("Hi there", &Turn::Idle));
    let page = shown(&mut screen, 60, 8);
    assert!(page.contains("No such model.") && !page.contains("› Hi there\n\n"), "{page}");
}

#[test]
fn the_last_message_is_changed_or_answered_again() {
    let mut screen = Screen::new(Vec::new());
    assert!(press(&mut screen, "/edit\n").is_none() && screen.status.is_some());
    press(&mut screen, "Firts\n");
    begin(&mut screen, 5);
    event(&mut screen, "result", json!({ "message": "Answer", "assistant": null }));
    event(&mut screen, "done", json!({ "status": "succeeded" }));
    screen.run_over(None);
    let id = Uuid::from_u128(5);
    assert_eq!(press(&mut screen, "/regenerate\n"), Some(Effect::Ask(Ask::Again(id), vec![])));
    assert!(!shown(&mut screen, 40, 10).contains("Answer"));
    screen.run_over(None);
    press(&mut screen, "/edit\n");
    assert_eq!(screen.editor.text(), "Firts");
    screen.editor.set("First");
    let edited = screen.key(KeyEvent::from(KeyCode::Enter));
    assert_eq!(edited, Some(Effect::Ask(Ask::Edit(id, "First".into()), vec![])));
    let page = shown(&mut screen, 40, 10);
    assert!(page.contains("› First\n") && !page.contains("Firts"), "{page}");
}

#[test]
fn history_is_searched_and_opened() {
    let mut screen = Screen::new(Vec::new());
    assert_eq!(press(&mut screen, "/history\n"), Some(Effect::List(String::new())));
    let listed = |n: u128, title: &str, group: &str| Listed {
        id: Uuid::from_u128(n),
        title: title.into(),
        preview: String::new(),
        group: group.into(),
    };
    let all = vec![listed(1, "May\u{1b}[2J", "today"), listed(2, "June", "yesterday")];
    let picker = screen.picker.as_mut().unwrap();
    picker.found("another question", vec![]);
    picker.found("", all);
    let page = shown(&mut screen, 40, 10);
    assert!(page.contains("today\n› May␛[2J\nyesterday\n  June\n"), "{page}");
    assert_eq!(press(&mut screen, "j"), Some(Effect::List("j".into())));
    let picker = screen.picker.as_mut().unwrap();
    picker.found("j", vec![listed(2, "June", "yesterday"), listed(3, "July", "today")]);
    screen.key(KeyEvent::from(KeyCode::Down));
    assert_eq!(screen.key(KeyEvent::from(KeyCode::Enter)), Some(Effect::Open(Uuid::from_u128(3))));
    assert!(screen.picker.is_none());
}

#[test]
fn a_call_that_waits_is_decided_on() {
    let mut screen = Screen::new(Vec::new());
    press(&mut screen, "Hi\n");
    let run = begin(&mut screen, 1);
    event(
        &mut screen,
        "approval",
        json!({ "id": "a1", "call": { "id": "c", "name": "drop_table", "args": {} } }),
    );
    assert!(shown(&mut screen, 80, 8).contains("drop_table {} waits for you: /approve or /deny"));
    let decided = press(&mut screen, "/deny no thanks\n");
    let why = Some("no thanks".to_owned());
    assert_eq!(decided, Some(Effect::Decide { run, approval: "a1".into(), approve: false, why }));
    assert_eq!(press(&mut screen, "/approve\n"), None, "it is decided");
}

/// Calls of a round ask one after the other, whatever becomes of the others.
#[test]
fn each_call_that_waits_is_asked_about() {
    let mut screen = Screen::new(Vec::new());
    press(&mut screen, "Hi\n");
    let run = begin(&mut screen, 1);
    for name in ["one", "two", "three"] {
        let call = json!({ "id": name, "name": name, "args": {} });
        event(&mut screen, "approval", json!({ "id": format!("a-{name}"), "call": call }));
    }
    let ended = |id: &str| json!({ "id": id, "name": id, "result": 1, "error": null, "truncated": false, "round": 1 });
    event(&mut screen, "tool_result", ended("free"));
    assert!(shown(&mut screen, 80, 8).contains("one {} waits for you"));
    let decide = |id: &str| Some(Effect::Decide { run, approval: id.into(), approve: true, why: None });
    assert_eq!(press(&mut screen, "/approve\n"), decide("a-one"));
    // The second was decided in another window.
    event(&mut screen, "tool_result", ended("two"));
    assert!(shown(&mut screen, 80, 8).contains("three {} waits for you"));
    assert_eq!(press(&mut screen, "/approve\n"), decide("a-three"));
    assert_eq!(press(&mut screen, "/approve\n"), None);
}

#[test]
fn files_are_chosen_before_they_are_sent() {
    let mut screen = Screen::new(Vec::new());
    press(&mut screen, "/attach Cargo.toml /not/there\n");
    assert_eq!(screen.attached.len(), 1);
    assert!(shown(&mut screen, 60, 8).contains("/not/there"));
    let Some(Effect::Ask(_, files)) = press(&mut screen, "Look\n") else { panic!("a turn") };
    assert_eq!(files[0].name, "Cargo.toml");
    assert!(shown(&mut screen, 60, 8).contains("+ Cargo.toml"));
    begin(&mut screen, 1);
    assert!(screen.attached.is_empty());
    assert_eq!(
        press(&mut screen, "/save a.txt\n"),
        Some(Effect::Save { name: "a.txt".into(), to: ".".into() })
    );
}

#[test]
fn a_notice_goes_with_the_turn_it_is_about() {
    let mut screen = Screen::new(Vec::new());
    press(&mut screen, "Hi\n");
    begin(&mut screen, 1);
    assert_eq!(press(&mut screen, "/new\n"), None);
    assert!(shown(&mut screen, 60, 8).contains("a turn is under way"));
    event(&mut screen, "done", json!({ "status": "succeeded" }));
    screen.run_over(None);
    assert!(!shown(&mut screen, 60, 8).contains("under way"));
    // An interrupt that came too late takes nothing that cannot be had again.
    assert_eq!(ctrl(&mut screen, 'c'), None);
    screen.key(KeyEvent::from(KeyCode::Up));
    assert_eq!(screen.editor.text(), "/new");
}

#[test]
fn a_call_waits_no_longer_when_its_turn_is_stopped() {
    let mut screen = Screen::new(Vec::new());
    press(&mut screen, "Hi\n");
    let run = begin(&mut screen, 1);
    let call = json!({ "id": "a1", "call": { "id": "c", "name": "drop_table", "args": {} } });
    event(&mut screen, "approval", call);
    press(&mut screen, "/nonsense\n");
    screen.key(KeyEvent::from(KeyCode::Esc));
    assert!(
        shown(&mut screen, 60, 8).contains("/approve or /deny"),
        "another notice does not hide it for good"
    );
    assert_eq!(ctrl(&mut screen, 'c'), Some(Effect::Cancel(run)));
    let page = shown(&mut screen, 60, 8);
    assert!(page.contains("Stopping…") && !page.contains("/approve"), "{page}");
    event(&mut screen, "done", json!({ "status": "cancelled" }));
    screen.run_over(None);
    assert!(!shown(&mut screen, 60, 8).contains("waits for you"));
}

#[test]
fn a_message_during_a_turn_waits_for_its_own() {
    let mut screen = Screen::new(Vec::new());
    press(&mut screen, "One\n");
    assert_eq!(press(&mut screen, "Two\n"), None);
    assert_eq!(screen.forward(), None, "the first is not heard of yet");
    begin(&mut screen, 1);
    press(&mut screen, "/attach Cargo.toml\n");
    let page = shown(&mut screen, 80, 10);
    assert!(page.contains("Working… 1 message waits · Up takes it back · Attached: Cargo.toml ("), "{page}");
    press(&mut screen, "Three\n");
    assert_eq!(screen.forward(), Some(Effect::Queue("Two".into(), vec![])));
    assert_eq!(screen.forward(), None, "one after the other");
    let second = Uuid::from_u128(98);
    assert!(screen.thread.queue.taken(second));
    let Some(Effect::Queue(text, files)) = screen.forward() else { panic!("the third") };
    assert_eq!((text.as_str(), files.len(), screen.attached.len()), ("Three", 1, 0));
    event(&mut screen, "delta", json!({ "text": "First answer" }));
    let page = shown(&mut screen, 60, 14);
    assert!(page.contains("First answer\n\n› Two\n\n› Three\n  + Cargo.toml\n"), "{page}");
    assert!(page.contains("Working… 2 messages wait · Up takes one back · Ctrl-C stops"), "{page}");
    event(&mut screen, "done", json!({ "status": "succeeded" }));
    screen.run_over(None);
    assert_eq!(screen.next_turn(), Some(Effect::Follow(second)));
    assert_eq!(screen.turn, Turn::Running(second));
    screen.run_over(None);
    assert_eq!(screen.next_turn(), None, "it is under way to the queue");
    assert!(!screen.thread.queue.taken(Uuid::from_u128(97)), "and is followed once it is there");
    assert_eq!(screen.turn, Turn::Sent);
}

#[test]
fn a_message_that_waits_is_taken_back_to_be_changed_or_dropped() {
    let up = |screen: &mut Screen| screen.key(KeyEvent::from(KeyCode::Up));
    let mut screen = Screen::new(Vec::new());
    press(&mut screen, "One\n");
    begin(&mut screen, 1);
    press(&mut screen, "//two\n");
    screen.forward();
    assert_eq!(up(&mut screen), None);
    assert_eq!(screen.editor.text(), "", "it is on its way");
    let second = Uuid::from_u128(98);
    screen.thread.queue.taken(second);
    press(&mut screen, "/attach Cargo.toml\n");
    press(&mut screen, "Three\n");
    // The newest first: this one has not been sent.
    assert_eq!(up(&mut screen), None);
    assert_eq!((screen.editor.text(), screen.attached.len(), screen.thread.queue.len()), ("Three", 1, 1));
    // With words in the line Up is what was sent before.
    assert_eq!(up(&mut screen), None);
    assert_eq!(screen.thread.queue.len(), 1);
    ctrl(&mut screen, 'u');
    // The server's queue has the other one.
    assert_eq!(up(&mut screen), Some(Effect::TakeBack(second)));
    press(&mut screen, "!");
    screen.taken_back(State::Taken(second));
    assert_eq!((screen.editor.text(), screen.thread.queue.len()), ("//two\n!", 0));
    screen.taken_back(State::Taken(second));
    assert_eq!(screen.editor.text(), "//two\n!", "once");
    screen.run_over(None);
    assert_eq!(screen.next_turn(), None);
}

#[test]
fn a_message_that_never_reached_the_queue_is_sent_when_its_turn_comes() {
    let mut screen = Screen::new(Vec::new());
    press(&mut screen, "One\n");
    press(&mut screen, "Two\n");
    begin(&mut screen, 1);
    screen.run_over(None);
    assert_eq!(screen.next_turn(), Some(Effect::Ask(Ask::Message("Two".into()), vec![])));
}

#[test]
fn messages_that_the_queue_refuses_are_given_back() {
    let refused = || Failure::Refused { status: 429, code: "too_many_runs".into(), detail: "Full.".into() };
    let mut screen = Screen::new(Vec::new());
    press(&mut screen, "One\n");
    begin(&mut screen, 1);
    press(&mut screen, "//two\n");
    screen.forward();
    press(&mut screen, "/attach Cargo.toml\n");
    press(&mut screen, "Three\n");
    press(&mut screen, "a draft");
    screen.not_queued(&refused());
    assert_eq!((screen.editor.text(), screen.attached.len()), ("//two\nThree\na draft", 1));
    let page = shown(&mut screen, 60, 14);
    assert!(page.contains("Full.") && !page.contains("wait"), "{page}");
    // The same when the first one is refused, or the second after its turn has come.
    let mut screen = Screen::new(Vec::new());
    press(&mut screen, "One\n");
    press(&mut screen, "Two\n");
    screen.run_over(Some(&refused()));
    assert_eq!(screen.next_turn(), None);
    assert_eq!(screen.editor.text(), "One\nTwo");
    let mut screen = Screen::new(Vec::new());
    press(&mut screen, "One\n");
    begin(&mut screen, 1);
    press(&mut screen, "Two\n");
    screen.forward();
    screen.run_over(None);
    screen.next_turn();
    screen.not_queued(&refused());
    assert_eq!((screen.editor.text(), &screen.turn), ("Two", &Turn::Idle));
}

#[test]
fn what_is_to_be_done_is_said_on_a_narrow_screen_too() {
    let mut screen = Screen::new(Vec::new());
    let failure =
        Failure::Unreachable { base: "http://127.0.0.1:8080".into(), reason: "Connection refused".into() };
    screen.failed(&failure);
    let page = shown(&mut screen, 60, 10);
    assert!(
        page.ends_with("--server\n›\n") && page.contains("no server answers at http://127.0.0.1:8080"),
        "{page}"
    );
    press(&mut screen, "Hi\n");
    begin(&mut screen, 1);
    let call = json!({ "id": "a", "call": { "id": "c", "name": "drop_table", "args": { "name": "x".repeat(900) } } });
    event(&mut screen, "approval", call);
    for (width, height) in [(40, 10), (80, 10), (40, 5), (200, 10)] {
        let page = shown(&mut screen, width, height);
        let status = page.lines().skip_while(|line| !line.contains("drop_table")).collect::<Vec<_>>();
        assert!(status.len() <= 4 && status.concat().ends_with("/approve or /deny›"), "{page}");
    }
    assert!(shown(&mut screen, 40, 4).contains("/approve or /deny\n"), "one line is enough for that");
}
