//! Providers that misbehave: every cut, slow bytes, nonsense, errors after the 200, odd calls.

use std::time::Duration;

use domain::model::{Call, Finish, ModelEvent, ModelFaultKind};
use domain::run::Usage;
use testkit::sandbox::{Action, Release, ScriptedSandbox};
use upstream::llm::ModelLimits;

use crate::vendor::{KEY, VENDORS, Vendor, WIDE, body, body_bytes, head, listen, play, refusal};

const USED: Usage = Usage { input_tokens: 7, output_tokens: 3 };

#[tokio::test]
async fn a_whole_answer_however_it_is_cut_into_packets() {
    for vendor in VENDORS {
        let hello = vendor.hello();
        for script in [
            body(&hello),
            body(&hello.replace('\n', "\r\n")),
            vec![head(), Action::Trickle(hello.clone().into_bytes(), Duration::ZERO)],
            vec![
                Action::Chunked("200 OK", Vec::new()),
                Action::Bytes(hello.clone().into_bytes()),
                Action::EndChunks,
            ],
            // It goes on after the end; nobody waits for more.
            vec![head(), Action::Bytes(hello.clone().into_bytes()), Action::Hang],
        ] {
            let got = play(vendor, script).await;
            assert_eq!((got.text.as_str(), got.end), ("Hello wörld", Some(Ok(Finish::Stop))), "{vendor:?}");
            assert_eq!(got.usage, USED);
        }
    }
}

#[tokio::test]
async fn a_stream_that_is_cut_at_any_byte_is_a_failure_with_all_that_came() {
    for vendor in VENDORS {
        let hello = vendor.hello();
        let server = ScriptedSandbox::start(body("")).await.unwrap();
        let model = vendor.model(&server.url(), WIDE);
        for at in 0..hello.len() {
            server.then(body_bytes(&hello.as_bytes()[..at]));
        }
        // The first one is the empty body that the server was started with.
        for at in std::iter::once(0).chain(0..hello.len()) {
            let (got, _) = listen(&*model).await;
            assert!("Hello wörld".starts_with(&got.text), "{vendor:?} cut at {at}: {:?}", got.text);
            match got.end.unwrap() {
                Ok(finish) => assert!(
                    at + 1 >= vendor.whole_after() && finish == Finish::Stop,
                    "{vendor:?} cut at {at}"
                ),
                Err(fault) => {
                    assert!(at < vendor.whole_after(), "{vendor:?} cut at {at}: {fault:?}");
                    let expected =
                        if got.text.is_empty() { ModelFaultKind::Unreachable } else { ModelFaultKind::Error };
                    assert_eq!(fault.kind, expected, "{vendor:?} cut at {at}: {fault:?}");
                }
            }
        }
    }
}

#[tokio::test]
async fn what_is_torn_down_or_makes_no_sense_ends_with_an_error() {
    for vendor in VENDORS {
        let half = vendor.spoken();
        let torn = vec![
            Action::Chunked("200 OK", Vec::new()),
            Action::Bytes(half.as_bytes().to_vec()),
            Action::Reset,
        ];
        for (script, words) in [
            (torn, "broke off"),
            (body(&format!("{half}data: {{\"choices\":\n\n")), "not valid JSON"),
            (body("<html>hello</html>"), "broke off"),
            (vec![head(), Action::Flood(b'a', 9 * 1024 * 1024)], "bytes"),
            (
                vec![Action::Headers("200 OK", vec![("content-type", "application/json".into())])],
                "not valid JSON",
            ),
        ] {
            let got = play(vendor, script).await;
            let fault = got.end.unwrap().unwrap_err();
            assert!(fault.message.contains(words), "{vendor:?}: {fault:?}");
        }
    }
}

#[tokio::test]
async fn an_answer_without_end_is_given_up() {
    for vendor in VENDORS {
        let spoken = vendor.spoken();
        let (before, word) = spoken.split_at(spoken.trim_end().rfind("\n\n").unwrap() + 2);
        let long = word.replace("Hello", &"many words ".repeat(6000));
        let got = play(vendor, body(&format!("{before}{}", long.repeat(90)))).await;
        let (fault, text) = (got.end.unwrap().unwrap_err(), got.text.len());
        assert!(fault.message.contains("more than 5 MiB"), "{vendor:?}: {fault:?}");
        assert!(text > 4 << 20 && text < 6 << 20, "{vendor:?}: {text}");
    }
    let whole = serde_json::json!({ "choices": [{ "message": { "content": "w".repeat(6 << 20) } }] });
    let head = Action::Headers("200 OK", vec![("content-type", "application/json".into())]);
    let got = play(Vendor::OpenAi, vec![head, Action::Bytes(whole.to_string().into_bytes())]).await;
    let fault = got.end.unwrap().unwrap_err();
    assert!(fault.message.contains("more than 5 MiB"), "{fault:?}");
}

#[tokio::test]
async fn an_error_after_the_200_is_told_in_the_providers_words() {
    for vendor in VENDORS {
        let start = vendor.spoken();
        let error = vendor.error("invalid_request_error", &format!("too long for {KEY}"));
        let got = play(vendor, body(&format!("{start}{error}"))).await;
        let fault = got.end.unwrap().unwrap_err();
        assert_eq!(fault.kind, ModelFaultKind::Error);
        assert!(fault.message.contains("too long for ****"), "{fault:?}");
    }
}

#[tokio::test]
async fn a_refusal_is_told_in_the_providers_words_and_no_redirect_is_followed() {
    for vendor in VENDORS {
        for (status, headers, text, words) in [
            (
                "401 Unauthorized",
                vec![],
                r#"{"error":{"message":"Incorrect key","type":"auth"}}"#,
                "401: Incorrect key",
            ),
            (
                "400 Bad Request",
                vec![],
                r#"{"type":"error","error":{"type":"x","message":"Bad role"}}"#,
                "400: Bad role",
            ),
            ("404 Not Found", vec![], "<h1>nope</h1>", "404: <h1>nope</h1>"),
            ("403 Forbidden", vec![], "", "403"),
            (
                "307 Temporary Redirect",
                vec![("location", "http://127.0.0.1:1/".to_owned())],
                "",
                "redirects are not",
            ),
        ] {
            let got = play(vendor, refusal(status, headers, text)).await;
            let fault = got.end.unwrap().unwrap_err();
            assert!(fault.message.contains(words), "{vendor:?}: {fault:?}");
            assert_eq!(fault.kind, ModelFaultKind::Error);
        }
    }
}

#[tokio::test]
async fn a_silent_provider_is_given_up() {
    let limits =
        ModelLimits { first_token: Duration::from_millis(200), idle: Duration::from_millis(200), ..WIDE };
    for vendor in VENDORS {
        let spoken = vendor.spoken();
        for (script, setting) in [
            (vec![Action::Hang], "MODEL_FIRST_TOKEN_SECONDS"),
            (vec![head(), Action::Hang], "MODEL_FIRST_TOKEN_SECONDS"),
            // Comments and pings are no word.
            (
                vec![head(), Action::Trickle(b": still here\n\n".repeat(100), Duration::from_millis(5))],
                "MODEL_FIRST_TOKEN_SECONDS",
            ),
            (vec![head(), Action::Bytes(spoken.as_bytes().to_vec()), Action::Hang], "MODEL_IDLE_SECONDS"),
        ] {
            let server = ScriptedSandbox::start(script).await.unwrap();
            let (got, _) = listen(&*vendor.model(&server.url(), limits)).await;
            let fault = got.end.unwrap().unwrap_err();
            assert_eq!(fault.kind, ModelFaultKind::Timeout, "{vendor:?}: {fault:?}");
            assert!(fault.message.contains(setting), "{vendor:?}: {fault:?}");
            // The provider is let go.
            server.disconnected(0).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_dropped_answer_lets_the_provider_go() {
    use futures_util::StreamExt as _;
    for vendor in VENDORS {
        let spoken = vendor.spoken().into_bytes();
        let server = ScriptedSandbox::start(vec![head(), Action::Bytes(spoken), Action::Hang]).await.unwrap();
        let mut stream = vendor.model(&server.url(), WIDE).stream(crate::vendor::ask());
        stream.next().await.unwrap();
        drop(stream);
        server.disconnected(0).await.unwrap();
    }
}

fn call(id: &str, name: &str, args: &str) -> Call {
    Call { id: id.into(), name: name.into(), args: args.into() }
}

#[tokio::test]
async fn calls_of_every_odd_kind_are_read() {
    let chunk =
        |calls: &str| format!("data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{calls}]}}}}]}}\n\n");
    let end = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n";
    let one = r#"{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":""}}"#;
    for (chunks, calls) in [
        // Two at once, in pieces; arguments that are no JSON come as they are.
        (
            vec![
                one,
                r#"{"index":0,"function":{"arguments":"{\"x\""}},{"index":1,"id":"a","function":{"name":"g","arguments":"{"}}"#,
                r#"{"index":0,"function":{"arguments":":1}"}}"#,
            ],
            vec![call("a", "f", "{\"x\":1}"), call("a", "g", "{")],
        ),
        // No index, and whole.
        (
            vec![
                r#"{"id":"a","function":{"name":"f","arguments":"{}"}},{"id":"b","function":{"name":"g","arguments":{"y":2}}}"#,
            ],
            vec![call("a", "f", "{}"), call("b", "g", "{\"y\":2}")],
        ),
        // Every one with index 0.
        (
            vec![one, r#"{"index":0,"id":"b","function":{"name":"g","arguments":"{}"}}"#],
            vec![call("a", "f", ""), call("b", "g", "{}")],
        ),
        // Neither id nor name ever comes.
        (vec![r#"{"index":4,"function":{"arguments":"{}"}}"#], vec![call("", "", "{}")]),
    ] {
        let text: String = chunks.iter().map(|calls| chunk(calls)).chain([end.to_owned()]).collect();
        let got = play(Vendor::OpenAi, body(&text)).await;
        assert_eq!((got.calls, got.end), (calls, Some(Ok(Finish::Calls))));
    }
    let block = |index: u32, id: &str, input: &str| {
        format!(
            "data: {{\"type\":\"content_block_start\",\"index\":{index},\"content_block\":{{\"type\":\"tool_use\",\"id\":\"{id}\",\"name\":\"f\",\"input\":{input}}}}}\n\n"
        )
    };
    let piece = |index: u32, json: &str| {
        format!(
            "data: {{\"type\":\"content_block_delta\",\"index\":{index},\"delta\":{{\"type\":\"input_json_delta\",\"partial_json\":{json:?}}}}}\n\n"
        )
    };
    let stop = "data: {\"type\":\"content_block_stop\"}\n\n";
    let odd = "data: {\"type\":\"content_block_start\",\"index\":9,\"content_block\":{\"type\":\"new_kind\"}}\n\ndata: {\"type\":\"news\"}\n\n";
    let end = "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"}}\n\ndata: {\"type\":\"message_stop\"}\n\n";
    let text = [
        block(0, "a", "{}"),
        piece(0, "{\"x\":"),
        piece(0, "1"),
        piece(0, "}"),
        stop.to_owned(),
        block(1, "a", "{\"y\":2}"),
        stop.to_owned(),
        block(2, "c", "{}"),
        stop.to_owned(),
        odd.to_owned(),
        end.to_owned(),
    ]
    .concat();
    let got = play(Vendor::Anthropic, body(&text)).await;
    assert_eq!(got.calls, [call("a", "f", "{\"x\":1}"), call("a", "f", "{\"y\":2}"), call("c", "f", "")]);
    assert_eq!(got.end, Some(Ok(Finish::Calls)));
}

#[tokio::test]
async fn a_server_that_does_not_stream_is_read_whole() {
    let json = |text: &str| {
        let headers = vec![("content-type", "application/json; charset=utf-8".to_owned())];
        vec![Action::Headers("200 OK", headers), Action::Bytes(text.as_bytes().to_vec())]
    };
    let openai = r#"{"choices":[{"message":{"role":"assistant","content":"Hi","reasoning_content":"hm"},"finish_reason":"length"}],
        "usage":{"prompt_tokens":7,"completion_tokens":3}}"#;
    let got = play(Vendor::OpenAi, json(openai)).await;
    assert_eq!((got.text.as_str(), got.usage, got.end), ("Hi", USED, Some(Ok(Finish::Length))));
    let anthropic = r#"{"content":[{"type":"text","text":"Hi"},{"type":"tool_use","id":"a","name":"f","input":{"x":1}}],
        "stop_reason":"tool_use","usage":{"input_tokens":7,"output_tokens":3}}"#;
    let got = play(Vendor::Anthropic, json(anthropic)).await;
    assert_eq!((got.text.as_str(), got.usage, got.end), ("Hi", USED, Some(Ok(Finish::Calls))));
    assert_eq!(got.calls, [call("a", "f", "{\"x\":1}")]);
}

/// The word for why it does not answer stands where the answer would, and the answer ends as any other.
#[tokio::test]
async fn a_refusal_that_ends_well_is_one() {
    let streamed = "data: {\"choices\":[{\"delta\":{\"refusal\":\"No\"}}]}\n\n\
        data: {\"choices\":[{\"delta\":{\"refusal\":\".\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let headers = vec![("content-type", "application/json".to_owned())];
    let whole = r#"{"choices":[{"message":{"role":"assistant","content":null,"refusal":"No."},"finish_reason":"stop"}]}"#;
    let whole = vec![Action::Headers("200 OK", headers), Action::Bytes(whole.as_bytes().to_vec())];
    for script in [body(streamed), whole] {
        let got = play(Vendor::OpenAi, script).await;
        assert_eq!((got.text.as_str(), got.end), ("No.", Some(Ok(Finish::Refused))));
    }
}

#[tokio::test]
async fn a_character_in_two_halves_is_one() {
    let delta = |text: &str| format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n");
    let all = [delta("a\\ud83d"), delta("\\ude00 b\\ud83d"), "data: [DONE]\n\n".to_owned()].concat();
    let got = play(Vendor::OpenAi, body(&all)).await;
    assert_eq!((got.text.as_str(), got.end), ("a😀 b\u{FFFD}", Some(Ok(Finish::Stop))));
}

#[tokio::test]
async fn the_indexes_of_calls_are_their_places_among_each_other() {
    let start = |index: u32, block: &str| {
        format!(
            "data: {{\"type\":\"content_block_start\",\"index\":{index},\"content_block\":{{{block}}}}}\n\n\
             data: {{\"type\":\"content_block_stop\",\"index\":{index}}}\n\n"
        )
    };
    let call =
        |id: &str| format!("\"type\":\"tool_use\",\"id\":\"{id}\",\"name\":\"f\",\"input\":{{\"x\":1}}");
    let all = [
        start(0, "\"type\":\"thinking\",\"thinking\":\"hm\""),
        start(1, &call("a")),
        start(2, "\"type\":\"text\",\"text\":\"hi\""),
        start(3, &call("b")),
        "data: {\"type\":\"message_stop\"}\n\n".to_owned(),
    ];
    let server = ScriptedSandbox::start(body(&all.concat())).await.unwrap();
    let (_, events) = listen(&*Vendor::Anthropic.model(&server.url(), WIDE)).await;
    let indexes: Vec<u64> = events
        .iter()
        .filter_map(|event| if let ModelEvent::Call(part) = event { Some(part.index) } else { None })
        .collect();
    assert_eq!(indexes, [0, 0, 1, 1]);
}

#[tokio::test]
async fn a_pause_of_ours_is_no_silence_of_the_provider() {
    let elsewhere =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    for vendor in VENDORS {
        let (hello, spoken) = (vendor.hello(), vendor.spoken());
        for (before, after) in [
            (vec![], body(&hello)),
            (vec![head()], vec![Action::Bytes(hello.clone().into())]),
            (body(&spoken), vec![Action::Bytes(hello[spoken.len()..].into())]),
        ] {
            let told = Release::default();
            let script = [before, vec![Action::WaitFor(told.clone())], after].concat();
            let server = elsewhere.spawn(ScriptedSandbox::start(script)).await.unwrap().unwrap();
            let span = Duration::from_millis(600);
            let model = vendor.model(&server.url(), ModelLimits { first_token: span, idle: span, ..WIDE });
            let pause = async {
                tokio::time::sleep(span / 3).await;
                told.open();
                // Nothing runs here for so long, as on a machine that is stopped, while the other side goes on.
                std::thread::sleep(span * 3);
            };
            let ((got, _), ()) = tokio::join!(listen(&*model), pause);
            assert_eq!((got.text.as_str(), got.end), ("Hello wörld", Some(Ok(Finish::Stop))), "{vendor:?}");
        }
    }
    elsewhere.shutdown_background();
}
