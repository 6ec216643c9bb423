//! For any thread: what is sent is accepted, fits, keeps what must stay, and begins as before unless the cut moved.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::message::MessageRole::{Assistant, User};
use crate::model::{Answer, Call, Part, PartKind};
use crate::prompt::of_message;
use crate::prompt::tests::{accepted, message};

fn block() -> impl Strategy<Value = Value> {
    let text = prop_oneof![Just(String::new()), "[a-zé ]{0,40}", "x{200,600}"];
    let id = prop_oneof![Just("a"), Just("b"), Just("")];
    let outcome = prop_oneof![
        Just((json!(null), json!("interrupted"))),
        Just((json!(null), json!(null))),
        "y{0,400}".prop_map(|text| (json!(text), json!(null))),
        "z{1,20}".prop_map(|text| (json!(null), json!(text))),
    ];
    let args =
        prop_oneof![Just(json!({})), Just(json!(null)), Just(json!("{bad")), Just(json!({ "k": [1, "v"] }))];
    let call = (id, "[a-z.]{0,8}", args, outcome, 1u32..4).prop_map(|(id, name, args, (result, error), round)| {
        json!({ "type": "tool_call", "id": id, "name": name, "args": args, "result": result, "error": error,
            "truncated": false, "round": round })
    });
    prop_oneof![3 => text.prop_map(|text| json!({ "type": "text", "text": text })), 2 => call,
        1 => Just(json!({ "type": "error", "code": "c", "message": "m" }))]
}

/// A thread: each turn a question and perhaps an answer, of whatever blocks.
fn turns() -> impl Strategy<Value = Vec<(String, Vec<Part>, Option<Vec<Value>>)>> {
    let question = prop_oneof!["[a-zé]{1,50}", "q{300,900}"];
    let answer = prop::option::weighted(0.8, prop::collection::vec(block(), 0..6));
    let part = (1usize..300).prop_map(|chars| {
        let (name, mime_type) = ("f.png".to_owned(), "image/png".to_owned());
        Part { file: Uuid::nil(), name, mime_type, kind: PartKind::Image, chars, at: 0, data: "".into() }
    });
    let files = prop_oneof![3 => Just(Vec::new()), 1 => prop::collection::vec(part, 1..4)];
    prop::collection::vec((question, files, answer), 1..30)
}

fn own() -> impl Strategy<Value = Vec<Said>> {
    let round = (1usize..6, 0usize..900).prop_map(|(calls, size)| (calls, "r".repeat(size)));
    prop::collection::vec(round, 0..6).prop_map(|rounds| {
        let pairs = rounds.into_iter().enumerate().flat_map(|(round, (calls, text))| {
            let id = move |n: usize| format!("own_{round}_{n}");
            let made = (0..calls).map(|n| Call { id: id(n), name: "f".into(), args: "{}".into() }).collect();
            let name = || "f".to_owned();
            let answer = |n| Answer { id: id(n), name: name(), text: format!("{text}."), failed: false };
            let answers = (0..calls).map(answer).collect();
            [Said::Assistant { text: "t".into(), calls: made }, Said::Answers(answers)]
        });
        pairs.collect()
    })
}

/// Characters as a provider would count them.
fn counted(prompt: &Prompt) -> usize {
    let count = |text: &str| text.chars().count();
    let each = prompt.messages.iter().map(|said| match said {
        Said::User(words) => count(&words.text) + words.parts.iter().map(|part| part.chars).sum::<usize>(),
        Said::Assistant { text, calls } => {
            count(text) + calls.iter().map(|call| count(&call.name) + count(&call.args)).sum::<usize>()
        }
        Said::Answers(answers) => answers.iter().map(|answer| count(&answer.text)).sum(),
    });
    count(&prompt.system) + each.sum::<usize>()
}

/// Whether the second prompt goes on from the first: the same but that its last message may have grown.
fn goes_on(first: &Prompt, second: &Prompt) -> bool {
    let Some((last, same)) = first.messages.split_last() else { return true };
    let grown = match (last, second.messages.get(same.len())) {
        (Said::User(before), Some(Said::User(after))) => {
            after.text.starts_with(&before.text) && after.parts.starts_with(&before.parts)
        }
        (before, Some(after)) => before == after,
        (_, None) => false,
    };
    second.messages.starts_with(same) && grown
}

proptest! {
    #[test]
    fn any_thread_is_sent_within_the_budget(turns in turns(), own in own(), budget in 1000usize..4000) {
        let system = "s".repeat(40);
        let (mut before, mut from, mut seq) = (Vec::new(), 0, 0);
        let mut last: Option<Prompt> = None;
        for (question, files, answer) in turns {
            seq += 1;
            let newest = question.clone();
            let (newest, bare) = (Words { text: newest.clone(), parts: files.clone() }, newest);
            let material = Material { system: system.clone(), before: before.clone(), summary: None, newest, bare, own: Vec::new() };
            let fitted = fit(material.clone(), from, budget);
            accepted(&fitted.prompt);
            prop_assert!(counted(&fitted.prompt) <= budget, "{} > {budget}", counted(&fitted.prompt));
            prop_assert_eq!(&fitted.prompt.system, &system);
            let Some(Said::User(said)) = fitted.prompt.messages.last() else { panic!("the newest is the last") };
            prop_assert!(said.text.ends_with(&question));
            match &last {
                Some(last) if fitted.from == from => prop_assert!(goes_on(last, &fitted.prompt)),
                _ => {}
            }
            if fitted.from > from {
                // Far enough that it need not move again at once, unless the newest message alone is that long.
                let room = budget / 4 * 3;
                let own: usize = files.iter().map(|part| part.chars).sum();
                let alone = system.chars().count() + question.chars().count() + own;
                prop_assert!(counted(&fitted.prompt) <= room.max(alone));
            }
            // Whatever the run does, it stays within, and only its own oldest calls go.
            let more = fit(Material { own: own.clone(), ..material.clone() }, fitted.from, budget);
            accepted(&more.prompt);
            prop_assert!(counted(&more.prompt) <= budget);
            prop_assert!(more.prompt.messages.iter().any(|m| matches!(m, Said::User(w) if w.text.ends_with(&question))));
            if more.from == fitted.from && more.dropped_calls == 0 {
                prop_assert!(goes_on(&fitted.prompt, &more.prompt));
            }
            from = more.from;
            // The run's calls are its own; what the thread is told as goes on from there.
            last = Some(fit(material, from, budget).prompt);
            let asked = message(seq, User, &json!([]));
            let words = Words { text: question, parts: files };
            before.push(Unit { id: asked.id, said: vec![Said::User(words)] });
            if let Some(blocks) = answer {
                seq += 1;
                let answered = message(seq, Assistant, &Value::Array(blocks));
                before.push(Unit { id: answered.id, said: of_message(&answered) });
            }
        }
    }
}

#[test]
fn the_cut_moves_far_and_then_stays() {
    let unit = |n: u128, said| Unit { id: Uuid::from_u128(n), said: vec![said] };
    let thread = |turns: u128| -> Vec<Unit> {
        (0..turns)
            .flat_map(|n| {
                let answer = Said::Assistant { text: "a".repeat(48), calls: vec![] };
                [unit(2 * n, Said::User("u".repeat(48).into())), unit(2 * n + 1, answer)]
            })
            .collect()
    };
    let mut from = 0;
    let mut moves = Vec::new();
    for turns in 0..40 {
        let material =
            Material { before: thread(turns), newest: "n".repeat(48).into(), ..Material::default() };
        let fitted = fit(material, from, 1000);
        if fitted.from != from {
            moves.push((turns, fitted.from));
        }
        from = fitted.from;
    }
    // Ten turns of a hundred fill it; each move makes room for two or three more.
    assert_eq!(moves[..3], [(10, 6), (13, 12), (16, 18)]);
}

#[test]
fn a_message_that_cannot_fit_is_known_before() {
    assert!(takes("ab", "cdé", 5));
    assert!(!takes("ab", "cdé", 4));
}

#[test]
fn the_budget_may_be_used_to_its_last_character() {
    let fitted = |before: &[&str], newest: &str| {
        let said = |text: &&str| Unit { id: Uuid::nil(), said: vec![Said::User((*text).to_owned().into())] };
        let material = Material {
            system: "s".repeat(40),
            before: before.iter().map(said).collect(),
            summary: None,
            newest: newest.to_owned().into(),
            bare: newest.to_owned(),
            own: Vec::new(),
        };
        let fitted = fit(material, 0, 100);
        (counted(&fitted.prompt), fitted.from)
    };
    assert_eq!(fitted(&[], &"n".repeat(60)), (100, 0));
    // Two of the user's in a row are one, with a blank line between them.
    assert_eq!(fitted(&["1234567890"], &"n".repeat(48)), (100, 0));
    assert_eq!(fitted(&["1234567890"], &"n".repeat(49)), (89, 1));
}

#[test]
fn a_summary_that_leaves_the_newest_message_no_room_is_not_sent() {
    let fitted = |summary: usize, files: usize| {
        let part = Part {
            file: Uuid::nil(),
            name: "f.png".into(),
            mime_type: "image/png".into(),
            kind: PartKind::Image,
            chars: files,
            at: 0,
            data: "".into(),
        };
        let newest = Words { text: "n".repeat(50), parts: vec![part] };
        let material = Material {
            system: "s".repeat(40),
            before: Vec::new(),
            summary: Some("m".repeat(summary)),
            bare: newest.text.clone(),
            newest,
            own: Vec::new(),
        };
        fit(material, 0, 100).prompt
    };
    for (summary, files, sent) in
        [(8, 0, true), (8, 80, true), (9, 0, false), (900, 0, false), (900, 900, false)]
    {
        let prompt = fitted(summary, files);
        accepted(&prompt);
        let Some(Said::User(words)) = prompt.messages.first() else { panic!("the user is asked") };
        assert_eq!(words.text.starts_with('m'), sent, "{summary} {files}");
        assert!(words.text.ends_with(&"n".repeat(50)));
        assert!(counted(&prompt) <= 100, "{summary} {files}: {}", counted(&prompt));
    }
}
