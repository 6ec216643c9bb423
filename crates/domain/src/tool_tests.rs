//! What is done with a model's answer, case by case.

use serde_json::json;

use super::*;
use crate::model::ModelFaultKind;

fn spec(name: &str) -> ToolSpec {
    let schema = json!({ "type": "object", "required": ["name"], "additionalProperties": false, "properties": {
        "name": { "type": "string" }, "n": { "type": ["integer", "null"] }, "kind": { "enum": ["a", "b"] },
        "list": { "type": "array", "items": { "type": "number" } } } });
    ToolSpec { name: name.into(), description: String::new(), schema: to_raw_value(&schema).unwrap() }
}

fn gathered(text: &str, calls: &[(&str, &str, &str)], end: Option<Result<Finish, ModelFault>>) -> Gathered {
    let calls = calls
        .iter()
        .map(|(id, name, args)| Call { id: (*id).into(), name: (*name).into(), args: (*args).into() })
        .collect();
    let mut gathered = Gathered::default();
    (gathered.text, gathered.calls, gathered.end) = (text.into(), calls, end);
    gathered
}

fn word(next: &Next) -> String {
    match next {
        Next::Answer(text) => format!("answer {text}"),
        Next::GoOn(text) => format!("go on {text}"),
        Next::Round(calls) => format!("round {}", calls.len()),
        Next::Exhausted => "exhausted".into(),
        Next::Failed(fault) => format!("failed {}", fault.kind.code()),
    }
}

#[test]
fn what_comes_next() {
    let fault = || Some(Err(ModelFault::new(ModelFaultKind::Timeout, "late")));
    let one = [("1", "f", "{}")];
    for (text, calls, end, offered, expected) in [
        ("hi", &[][..], Some(Ok(Finish::Stop)), true, "answer hi"),
        ("", &[], Some(Ok(Finish::Stop)), true, "answer "),
        ("hi", &one, Some(Ok(Finish::Calls)), true, "round 1"),
        // Some servers end with `stop` though they call.
        ("hi", &one, Some(Ok(Finish::Stop)), true, "round 1"),
        ("hi", &one, Some(Ok(Finish::Length)), true, "answer hi"),
        ("hi", &one, Some(Ok(Finish::Refused)), true, "answer hi"),
        ("hi", &one, Some(Ok(Finish::Calls)), false, "answer hi"),
        (" ", &one, Some(Ok(Finish::Calls)), false, "exhausted"),
        ("hi", &[], Some(Ok(Finish::Paused)), false, "go on hi"),
        ("hi", &one, Some(Ok(Finish::Paused)), true, "round 1"),
        ("hi", &one, fault(), true, "failed model_timeout"),
        ("hi", &[], None, true, "failed model_error"),
    ] {
        let offered = if offered { vec![spec("f")] } else { Vec::new() };
        assert_eq!(word(&next(gathered(text, calls, end), &offered, 1)), expected);
    }
}

fn planned(calls: &[(&str, &str, &str)]) -> Vec<(String, String, Result<Value, String>)> {
    let gathered = gathered("", calls, Some(Ok(Finish::Calls)));
    let Next::Round(planned) = next(gathered, &[spec("f"), spec("g")], 2) else { panic!("no round") };
    planned.into_iter().map(|one| (one.call.id, one.call.args.get().to_owned(), one.args)).collect()
}

#[test]
fn calls_are_checked_before_they_are_made() {
    let good = json!({ "name": "a", "n": 1 });
    for (name, args, shown, expected) in [
        ("f", "{\"name\":\"a\",\"n\":1}", "{\"name\":\"a\",\"n\":1}", Ok(good.clone())),
        ("g", " {\"name\":\"a\",\"n\":1} ", "{\"name\":\"a\",\"n\":1}", Ok(good)),
        ("f", "", "{}", Err("name is missing")),
        ("f", "{\"name\":", "\"{\\\"name\\\":\"", Err("not valid JSON")),
        ("f", "[1]", "\"[1]\"", Err("JSON object")),
        ("f", "{\"a\":1,\"a\":2}", "\"{\\\"a\\\":1,\\\"a\\\":2}\"", Err("more than once")),
        ("f", "{\"name\":1}", "{\"name\":1}", Err("name must be string")),
        ("f", "{\"name\":\"a\",\"n\":1.5}", "{\"name\":\"a\",\"n\":1.5}", Err("n must be integer or null")),
        ("f", "{\"name\":\"a\",\"kind\":\"c\"}", "{\"name\":\"a\",\"kind\":\"c\"}", Err("one of")),
        (
            "f",
            "{\"name\":\"a\",\"list\":[1,\"x\"]}",
            "{\"name\":\"a\",\"list\":[1,\"x\"]}",
            Err("list.1 must be number"),
        ),
        ("f", "{\"name\":\"a\",\"x\":1}", "{\"name\":\"a\",\"x\":1}", Err("x is not known")),
        ("h", "{}", "{}", Err("there are: f, g")),
    ] {
        let one = planned(&[("1", name, args)]).remove(0);
        assert_eq!(one.1, shown, "{args}");
        match (one.2, expected) {
            (Ok(got), Ok(expected)) => assert_eq!(got, expected),
            (Err(reason), Err(words)) => assert!(reason.contains(words), "{args}: {reason}"),
            (got, _) => panic!("{args}: {got:?}"),
        }
    }
    let nul = planned(&[("a\0", "f", "{\"name\":\"\\u0000\"}")]).remove(0);
    assert!(nul.0 == "a\u{FFFD}" && nul.2.unwrap_err().contains("U+0000"));
}

#[test]
fn every_call_of_a_round_has_an_id_of_its_own() {
    let ids: Vec<String> = planned(&[("a", "f", ""), ("a", "f", ""), ("", "f", ""), ("call_2_1", "f", "")])
        .into_iter()
        .map(|p| p.0)
        .collect();
    assert_eq!(ids, ["a", "call_2_1", "call_2_2", "call_2_3"]);
    let many = vec![("a", "f", "{\"name\":\"a\"}"); MAX_CALLS + 1];
    let many = planned(&many);
    assert!(many[MAX_CALLS - 1].2.is_ok() && many[MAX_CALLS].2.is_err());
}

#[test]
fn a_result_is_cut_with_its_marker_within_the_limit() {
    let long = "é".repeat(5000);
    let (cut, was) = clip(&long, 4000);
    assert!(was && cut.chars().count() == 4000 && cut.ends_with("é\n[cut: 5000 characters in all]"), "{cut}");
    assert_eq!(clip(&long, 5000), (long.clone(), false));
    assert_eq!(clip("abc", 3), ("abc".into(), false));
    assert_eq!(clip("abcd", 3).0.chars().count(), 3);
    assert_eq!(clip("abcd", 0), (String::new(), true));
}
