//! Scripts of sandboxes that do everything but what they should, each with the one outcome that it must have. The
//! client is held to them alone, and the server with a turn for each.

use std::time::Duration;

use serde_json::json;

use crate::sandbox::Action::{
    self, Bytes, Chunked, CloseWrite, EndChunks, Flood, Hang, Headers, Line, Lines, Raw, Reset, Trickle, Wait,
};

use Want::{Error, NoResult, Protocol, Result, Timeout, Unreachable};

const LOG: &str = r#"{"type":"log","level":"info","message":"up"}"#;
const RESULT: &str = r#"{"type":"result","message":"done"}"#;
const SHORT: Duration = Duration::from_millis(300);
/// The result line compressed, so that whoever decodes it is found out.
const GZIP: &[u8] = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xab\x56\x2a\xa9\x2c\x48\x55\xb2\x52\x2a\x4a\x2d\x2e\xcd\
    \x29\x51\xd2\x51\xca\x4d\x2d\x2e\x4e\x4c\x07\x09\x65\x64\x2a\xd5\x72\x01\x00\x41\x68\xd7\xaf\x21\x00\x00\x00";
const ZLIB: &[u8] =
    b"\x78\x9c\xab\x56\x2a\xa9\x2c\x48\x55\xb2\x52\x2a\x4a\x2d\x2e\xcd\x29\x51\xd2\x51\xca\x4d\x2d\x2e\
    \x4e\x4c\x07\x09\x65\x64\x2a\xd5\x72\x01\x00\xc0\x22\x0a\xca";

/// The beginning of a gzip body, and what may follow it any number of times: 2 KiB of zeros in 13 bytes.
const BOMB: &[u8] = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x62\x18";
const BOMB_MORE: &[u8] = b"\x05\xa3\x60\x14\x8c\x82\x51\x30\x0a\x46\xc1\x28\x18";

#[derive(Clone, Copy, Debug)]
pub enum Want {
    Result(&'static str),
    Error(&'static str),
    /// With a part of the message, as in the others of ours.
    Unreachable(&'static str),
    Timeout,
    Protocol(&'static str),
    NoResult(&'static str),
}

/// One sandbox.
pub struct Case {
    pub name: &'static str,
    pub script: Vec<Action>,
    pub want: Want,
    /// How many of its lines are taken, rejected and ignored.
    pub counts: (u64, u64, u64),
}

/// A case as the tables below have it.
type Row = (&'static str, Vec<Action>, Want, (u64, u64, u64));

fn cases(all: Vec<Row>) -> Vec<Case> {
    let case = |(name, script, want, counts)| Case { name, script, want, counts };
    all.into_iter().map(case).collect()
}

fn ok() -> Action {
    Headers("200 OK", vec![("content-type", "application/x-ndjson".to_owned())])
}

fn with(name: &'static str, value: &str) -> Action {
    Headers("200 OK", vec![(name, value.to_owned())])
}

fn text(text: impl Into<String>) -> Action {
    Bytes(text.into().into_bytes())
}

/// A 200 whose body is this, then the end.
fn body(content: impl Into<Vec<u8>>) -> Vec<Action> {
    vec![ok(), Bytes(content.into())]
}

/// A body of this line and a result.
fn before_result(line: impl AsRef<[u8]>) -> Vec<Action> {
    body([line.as_ref(), b"\n", RESULT.as_bytes(), b"\n"].concat())
}

fn garbage(number: u64) -> String {
    format!("garbage {number}")
}

fn with_status(status: &'static str) -> Action {
    Headers(status, vec![])
}

/// Silence at every place. The first four without an answer, and before the limit on that the third gives up.
#[must_use]
pub fn silence() -> Vec<Case> {
    let late = vec![Hang];
    cases(vec![
        ("no headers", late, Unreachable("did not answer within"), (0, 0, 0)),
        (
            "half the headers",
            vec![Raw(b"HTTP/1.1 200 OK\r\nx-a: b\r\n".to_vec()), Hang],
            Unreachable("did not answer within"),
            (0, 0, 0),
        ),
        (
            "headers byte by byte",
            vec![Trickle(vec![b'H'; 1], SHORT), Trickle(b"TTP/1.1 200".to_vec(), SHORT)],
            Unreachable(""),
            (0, 0, 0),
        ),
        (
            "1xx without end",
            vec![Raw(b"HTTP/1.1 103 Early Hints\r\n\r\n".repeat(50)), Hang],
            Unreachable("did not answer within"),
            (0, 0, 0),
        ),
        ("headers only", vec![ok(), Hang], Timeout, (0, 0, 0)),
        ("chunked headers only", vec![Chunked("200 OK", vec![]), Hang], Timeout, (0, 0, 0)),
        ("a line, then nothing", vec![ok(), text(format!("{LOG}\n")), Hang], Timeout, (1, 0, 0)),
        ("a line without its end", vec![ok(), text(RESULT), Hang], Timeout, (0, 0, 0)),
        ("half a chunk", vec![Chunked("200 OK", vec![]), Raw(b"ff\r\n{".to_vec()), Hang], Timeout, (0, 0, 0)),
        (
            "endless chunk size",
            vec![Chunked("200 OK", vec![]), Raw(b"0000".to_vec()), Hang],
            Timeout,
            (0, 0, 0),
        ),
        (
            "less than its length",
            vec![with("content-length", "9999"), text(format!("{LOG}\n")), Hang],
            Timeout,
            (1, 0, 0),
        ),
        (
            "an error page that hangs",
            vec![with_status("500 Oops"), text("half a pa"), Hang],
            Unreachable("500: half a pa"),
            (0, 0, 0),
        ),
    ])
}

/// Slow, and alive: the whole takes some seconds, no byte does.
#[must_use]
pub fn trickles() -> Vec<Case> {
    let slow = vec![ok(), Trickle(format!("{LOG}\n{RESULT}\n").into_bytes(), Duration::from_millis(40))];
    cases(vec![("a byte at a time", slow, Result("done"), (2, 0, 0))])
}

/// Answers that are no streams.
#[must_use]
pub fn no_streams() -> Vec<Case> {
    let location = |status| vec![Headers(status, vec![("location", "/other".to_owned())])];
    let upgrade = vec![("connection", "upgrade".to_owned()), ("upgrade", "x".to_owned())];
    cases(vec![
        ("closed at once", vec![CloseWrite], Unreachable("could not be reached"), (0, 0, 0)),
        ("reset at once", vec![Reset], Unreachable("could not be reached"), (0, 0, 0)),
        (
            "not HTTP",
            vec![Raw(b"SSH-2.0-OpenSSH_9\r\n".to_vec())],
            Unreachable("could not be reached"),
            (0, 0, 0),
        ),
        ("HTTP/0.9", vec![Raw(RESULT.into())], Unreachable("could not be reached"), (0, 0, 0)),
        (
            "endless header",
            vec![Raw(b"HTTP/1.1 200 OK\r\nx: ".to_vec()), Flood(b'a', 4 << 20)],
            Unreachable("could not"),
            (0, 0, 0),
        ),
        (
            "too many headers",
            vec![Raw([b"HTTP/1.1 200 OK\r\n", &b"a: b\r\n".repeat(5000)[..], b"\r\n"].concat())],
            Unreachable("could not"),
            (0, 0, 0),
        ),
        (
            "two lengths",
            vec![Raw(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n{}".to_vec())],
            Unreachable("could not"),
            (0, 0, 0),
        ),
        (
            "length not a number",
            vec![with("content-length", "many"), text(RESULT)],
            Unreachable("could not"),
            (0, 0, 0),
        ),
        ("301", location("301 Moved"), Unreachable("status 301 (redirects are not followed)"), (0, 0, 0)),
        ("307", location("307 Temporary"), Unreachable("status 307"), (0, 0, 0)),
        (
            "101",
            vec![Headers("101 Switching Protocols", upgrade), text(RESULT)],
            Unreachable("101"),
            (0, 0, 0),
        ),
        (
            "401",
            vec![with_status("401 Unauthorized"), text("bad token")],
            Unreachable("401: bad token"),
            (0, 0, 0),
        ),
        ("404", vec![with_status("404 Not Found")], Unreachable("status 404"), (0, 0, 0)),
        ("429", vec![with_status("429 Slow Down"), text("busy")], Unreachable("status 429: busy"), (0, 0, 0)),
        (
            "500 with a result",
            vec![with_status("500 Oops"), text(RESULT)],
            Unreachable("status 500: {"),
            (0, 0, 0),
        ),
        (
            "503 without end",
            vec![with_status("503 No"), Flood(b'n', 1 << 30)],
            Unreachable("status 503: nnn"),
            (0, 0, 0),
        ),
        (
            "599 in bad UTF-8",
            vec![with_status("599 No"), Bytes(vec![0xff, 0xfe, b'!'])],
            Unreachable("status 599: \u{fffd}\u{fffd}!"),
            (0, 0, 0),
        ),
        (
            "100 and then 200",
            [vec![Raw(b"HTTP/1.1 100 Continue\r\n\r\n".repeat(3))], body(RESULT)].concat(),
            Result("done"),
            (1, 0, 0),
        ),
    ])
}

/// Bodies without one good line.
#[must_use]
pub fn without_one_good_line() -> Vec<Case> {
    let html = "<!doctype html>\n<title>Welcome</title>\n<p>It works!\n";
    let bomb = vec![with("content-encoding", "gzip"), Bytes(GZIP[..10].to_vec()), Flood(0, 4 << 20)];
    let zeros = vec![
        with("content-encoding", "gzip"),
        Bytes([BOMB, &BOMB_MORE.repeat(1 << 19)].concat()),
        Flood(0, 9),
    ];
    cases(vec![
        ("204", vec![with_status("204 No Content")], Protocol("without sending a line"), (0, 0, 0)),
        ("empty", body(""), Protocol("without sending a line"), (0, 0, 0)),
        ("length 0", vec![with("content-length", "0")], Protocol("without sending a line"), (0, 0, 0)),
        (
            "no chunks",
            vec![Chunked("200 OK", vec![]), EndChunks],
            Protocol("without sending a line"),
            (0, 0, 0),
        ),
        ("blank lines", body("\n\r\n \n\t\n"), Protocol("without sending a line"), (0, 0, 0)),
        ("a BOM alone", body("\u{feff}"), Protocol("without sending a line"), (0, 0, 0)),
        ("reset after headers", vec![ok(), Wait(SHORT), Reset], Protocol("broke off"), (0, 0, 0)),
        (
            "HTML",
            vec![with("content-type", "text/html"), text(html)],
            Protocol("Is this address a sandbox?"),
            (0, 3, 0),
        ),
        ("a JSON array", body(format!("[{RESULT}]")), Protocol("1 rejected"), (0, 1, 0)),
        (
            "JSON over lines",
            body("{\n\"type\":\"result\",\n\"message\":\"x\"\n}\n"),
            Protocol("4 rejected"),
            (0, 4, 0),
        ),
        ("SSE", body(format!("data: {RESULT}\n\n")), Protocol("1 rejected"), (0, 1, 0)),
        (
            "UTF-16",
            body(RESULT.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>()),
            Protocol("1 rejected"),
            (0, 1, 0),
        ),
        (
            "gzip",
            vec![with("content-encoding", "gzip"), Bytes(GZIP.to_vec())],
            Protocol("1 rejected"),
            (0, 1, 0),
        ),
        (
            "deflate",
            vec![with("content-encoding", "deflate"), Bytes(ZLIB.to_vec())],
            Protocol("2 rejected"),
            (0, 2, 0),
        ),
        ("a bomb that is cut", bomb, Protocol("1048576 bytes"), (0, 0, 0)),
        ("a bomb of 1 GiB", zeros, Protocol("100 lines in a row"), (0, 100, 0)),
        (
            "bad UTF-8",
            body(b"{\"type\":\"result\",\"message\":\"\xff\"}\n"),
            Protocol("1 rejected"),
            (0, 1, 0),
        ),
        ("a cut result", body(&RESULT[..20]), Protocol("1 rejected"), (0, 1, 0)),
        ("a second BOM", body(format!("\u{feff}\u{feff}{RESULT}")), Protocol("1 rejected"), (0, 1, 0)),
        (
            "100 bad lines",
            vec![ok(), Lines(100, garbage), text(RESULT)],
            Protocol("100 lines in a row"),
            (0, 100, 0),
        ),
        (
            "a million bad lines",
            vec![ok(), Lines(1_000_000, garbage)],
            Protocol("100 lines in a row"),
            (0, 100, 0),
        ),
    ])
}

/// A bad line before a good one.
#[must_use]
pub fn bad_lines() -> Vec<Case> {
    let deep = format!(
        r#"{{"type":"step","id":"1","name":"n","status":"running","args":{}1{}}}"#,
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    let step = |rest: &str| format!(r#"{{"type":"step","id":"1","name":"n","status":{rest}}}"#);
    let rejected: Vec<(&'static str, Vec<u8>)> = vec![
        ("an unknown type", br#"{"type":"done"}"#.to_vec()),
        ("a type in capitals", br#"{"type":"RESULT","message":"x"}"#.to_vec()),
        ("no type", br#"{"message":"x"}"#.to_vec()),
        ("a result without text", br#"{"type":"result"}"#.to_vec()),
        ("a null result", br#"{"type":"result","message":null}"#.to_vec()),
        ("a result of the wrong type", br#"{"type":"result","message":{"text":"x"}}"#.to_vec()),
        ("an error without a code", br#"{"type":"error","message":"x"}"#.to_vec()),
        ("a duplicate key", br#"{"type":"result","message":"a","message":"b"}"#.to_vec()),
        ("an escaped duplicate", br#"{"type":"log","\u0074ype":"result","message":"b"}"#.to_vec()),
        ("a NUL byte", b"{\"type\":\"result\",\"message\":\"\0\"}".to_vec()),
        ("an escape that is none", br#"{"type":"result","message":"\ud80"}"#.to_vec()),
        ("deep nesting", deep.into_bytes()),
        ("half a number", step(r#""running","args":1e"#).into_bytes()),
        ("an unknown status", step(r#""done""#).into_bytes()),
        ("a status of ours", step(r#""interrupted""#).into_bytes()),
        ("two objects", format!("{RESULT}{RESULT}").into_bytes()),
        ("a trailing comma", br#"{"type":"result","message":"x",}"#.to_vec()),
        ("a string", br#""result""#.to_vec()),
        ("null", b"null".to_vec()),
        ("a log of unknown level", br#"{"type":"log","level":"fatal","message":"x"}"#.to_vec()),
        ("a delta of the wrong type", br#"{"type":"delta","text":7}"#.to_vec()),
    ];
    let case = |(name, line)| (name, before_result(line), Result("done"), (1, 1, 0));
    cases(rejected.into_iter().map(case).collect())
}

/// The first terminal line wins, whatever comes after it.
#[must_use]
pub fn terminal_lines() -> Vec<Case> {
    let error = r#"{"type":"error","code":"model_timeout","message":"late"}"#;
    let step = r#"{"type":"step","id":"1","name":"n","status":"running"}"#;
    let long = "x".repeat(3 << 20);
    cases(vec![
        ("a result", body(format!("{RESULT}\n")), Result("done"), (1, 0, 0)),
        ("no last newline", body(format!("{LOG}\n{RESULT}")), Result("done"), (2, 0, 0)),
        ("CRLF", body(format!("{LOG}\r\n{RESULT}\r\n")), Result("done"), (2, 0, 0)),
        ("a BOM", body(format!("\u{feff}{RESULT}\n")), Result("done"), (1, 0, 0)),
        (
            "two results",
            body(format!("{RESULT}\n{}\n", RESULT.replace("done", "other"))),
            Result("done"),
            (1, 0, 1),
        ),
        ("an error after a result", body(format!("{RESULT}\n{error}\n")), Result("done"), (1, 0, 1)),
        ("a result after an error", body(format!("{error}\n{RESULT}\n")), Error("model_timeout"), (1, 0, 1)),
        ("a step after a result", body(format!("{RESULT}\n{step}\n")), Result("done"), (1, 0, 1)),
        ("garbage after a result", body(format!("{RESULT}\n<p>\n\n{{")), Result("done"), (1, 0, 2)),
        (
            "a long line after a result",
            vec![Chunked("200 OK", vec![]), text(format!("{RESULT}\n{long}"))],
            Result("done"),
            (1, 0, 1),
        ),
        ("a result, then silence", vec![ok(), text(format!("{RESULT}\n")), Hang], Result("done"), (1, 0, 0)),
        (
            "a result, then a reset",
            vec![ok(), text(format!("{RESULT}\n")), Wait(SHORT), Reset],
            Result("done"),
            (1, 0, 0),
        ),
        (
            "less than its length",
            vec![with("content-length", "500"), text(RESULT)],
            Result("done"),
            (1, 0, 0),
        ),
        (
            "more than its length",
            vec![with("content-length", "35"), text(format!("{RESULT}\n{RESULT}\n"))],
            Result("done"),
            (1, 0, 0),
        ),
        (
            "a broken chunk later",
            vec![Chunked("200 OK", vec![]), text(format!("{RESULT}\n")), Raw(b"zz\r\n".to_vec())],
            Result("done"),
            (1, 0, 0),
        ),
        (
            "half-closed",
            vec![ok(), Line(json!({"type": "result", "message": "done"})), CloseWrite, Hang],
            Result("done"),
            (1, 0, 0),
        ),
        ("99 bad lines", vec![ok(), Lines(99, garbage), text(RESULT)], Result("done"), (1, 99, 0)),
        (
            "99 and 99 bad lines",
            vec![ok(), Lines(99, garbage), text(format!("{LOG}\n")), Lines(99, garbage), text(RESULT)],
            Result("done"),
            (2, 198, 0),
        ),
        ("an empty result", body(r#"{"type":"result","message":""}"#), Result(""), (1, 0, 0)),
        (
            "newlines in the text",
            body(r#"{"type":"result","message":"a\nb\u2028"}"#),
            Result("a\nb\u{2028}"),
            (1, 0, 0),
        ),
        ("a type of HTML", vec![with("content-type", "text/html"), text(RESULT)], Result("done"), (1, 0, 0)),
        ("said to be gzip", vec![with("content-encoding", "gzip"), text(RESULT)], Result("done"), (1, 0, 0)),
    ])
}

/// Streams that stop short of a result.
#[must_use]
pub fn short_streams() -> Vec<Case> {
    let log = || text(format!("{LOG}\n"));
    cases(vec![
        ("only logs", body(format!("{LOG}\n{LOG}\n")), NoResult("after 2 lines"), (2, 0, 0)),
        ("half-closed", vec![ok(), log(), CloseWrite, Hang], NoResult("ended its answer"), (1, 0, 0)),
        ("reset", vec![ok(), log(), Wait(SHORT), Reset], NoResult("broke off"), (1, 0, 0)),
        (
            "less than its length",
            vec![with("content-length", "500"), log()],
            NoResult("broke off"),
            (1, 0, 0),
        ),
        ("no last chunk", vec![Chunked("200 OK", vec![]), log()], NoResult("broke off"), (1, 0, 0)),
        (
            "a bad chunk",
            vec![Chunked("200 OK", vec![]), log(), Raw(b"xyz\r\n".to_vec())],
            NoResult("broke off"),
            (1, 0, 0),
        ),
        (
            "a chunk too large",
            vec![Chunked("200 OK", vec![]), log(), Raw(b"ffffffffffffffffff\r\n".to_vec())],
            NoResult("broke off"),
            (1, 0, 0),
        ),
        (
            "cut inside the result",
            body(format!("{LOG}\n{}", &RESULT[..20])),
            NoResult("after 1 lines"),
            (1, 1, 0),
        ),
        (
            "a line too long",
            vec![ok(), log(), Flood(b'x', 2 << 20), Hang],
            Protocol("1048576 bytes (MAX_LINE_BYTES)"),
            (1, 0, 0),
        ),
        (
            "a result too long",
            before_result(format!(r#"{{"type":"result","message":"{}"}}"#, "x".repeat(1 << 20))),
            Protocol("1048576 bytes"),
            (0, 0, 0),
        ),
        (
            "100 bad after a good",
            vec![ok(), log(), Lines(100, garbage), text(RESULT)],
            Protocol("100 lines in a row"),
            (1, 100, 0),
        ),
    ])
}

fn step(number: u64) -> String {
    format!(r#"{{"type":"step","id":"{number}","name":"n","status":"running"}}"#)
}

fn long_step(number: u64) -> String {
    let result = "word ".repeat(100_000);
    format!(r#"{{"type":"step","id":"{number}","name":"n","status":"succeeded","result":"{result}"}}"#)
}

fn delta(_: u64) -> String {
    format!(r#"{{"type":"delta","text":"{}"}}"#, "word ".repeat(200))
}

/// Sandboxes that send without end.
#[must_use]
pub fn floods() -> Vec<Case> {
    let steps = |count| vec![ok(), Lines(count, step), text(RESULT)];
    let after_result = |byte, count| vec![ok(), text(RESULT), text("\n"), Flood(byte, count)];
    cases(vec![
        ("a line of 1 GiB", vec![ok(), Flood(b'x', 1 << 30)], Protocol("1048576 bytes"), (0, 0, 0)),
        ("1 GiB of blank lines", vec![ok(), Flood(b'\n', 1 << 30)], Protocol("64 MiB"), (0, 0, 0)),
        // Short enough to stay under the limit on bytes: the steps beyond theirs are left out one by one.
        ("a million steps", steps(1_000_000), Result("done"), (10_001, 990_000, 0)),
        (
            "1 GiB of deltas",
            vec![ok(), Lines(1 << 20, delta)],
            Protocol("answer has more than 5 MiB"),
            (0, 0, 0),
        ),
        // Beyond the 10 MiB that steps have together, their results are left out.
        (
            "a hundred long steps",
            vec![ok(), Lines(100, long_step), text(RESULT)],
            Result("done"),
            (101, 80, 0),
        ),
        ("a result, then a line of 1 GiB", after_result(b'x', 1 << 30), Result("done"), (1, 0, 1)),
        ("a result, then blank lines for ever", after_result(b'\n', u64::MAX), Result("done"), (1, 0, 0)),
    ])
}
