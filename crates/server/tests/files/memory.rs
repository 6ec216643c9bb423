//! Files pass through: however large and however many, the process does not grow with them.

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use reqwest::Method;
use serde_json::json;
use testkit::form::Form;

use crate::caller::{Caller, ask, bag, content_path, files, id};
use crate::scripts;
use crate::uploading::noise;
use crate::world::{Home, World, tell};

const MIB: usize = 1024 * 1024;
const FILE: usize = 49 * MIB;

/// Bodies that never begin a part: refused, and not gathered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_makes_no_sense_is_not_gathered() {
    tell(Home::Sqlite, nonsense).await;
}

async fn nonsense(home: Home) -> Option<()> {
    let world = World::start(home).await?;
    let (ann, pid) = (&world.ann, world.process.pid().expect("a process"));
    let chat = ann.conversation().await;
    ann.put(&chat, "first", b"x").await;
    forget(pid);
    let (before, _) = resident(pid);
    let part =
        Form::new().part("Content-Disposition: form-data; name=\"f\"; filename=\"a\"\r\nX: ", b"").end();
    let open_header = part.split(|byte| *byte == b'X').next().expect("a part").to_vec();
    let fields = (0..30).fold(Form::new(), |form, n| form.field(&n.to_string(), &"x".repeat(4 * MIB)));
    let bodies = [
        (b"a preamble without end ".to_vec(), 400),
        ([open_header, b"X: a header without end ".to_vec()].concat(), 400),
        (fields.end(), 413),
    ];
    for (begin, status) in bodies {
        let filler = bytes::Bytes::from(vec![b'y'; MIB]);
        let chunks = std::iter::once(bytes::Bytes::from(begin)).chain(std::iter::repeat_n(filler, 150));
        let body =
            reqwest::Body::wrap_stream(futures_util::stream::iter(chunks.map(Ok::<_, std::io::Error>)));
        let request = ann.request(Method::POST, &bag(&chat)).header("content-type", Form::kind()).body(body);
        // A sender that goes on for long may be cut off before it reads why.
        if let Ok(answer) = request.send().await {
            assert_eq!(answer.status(), status);
        }
        grew_little("a body without sense", pid, before);
    }
    ann.put(&chat, "next", b"x").await;
    Some(())
}

/// Resident now, and at most since the last `forget`, in KiB.
fn resident(pid: u32) -> (u64, u64) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let value = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).expect("a line");
        line.split_whitespace().nth(1).expect("a number").parse::<u64>().expect("a number")
    };
    (value("VmRSS:"), value("VmHWM:"))
}

/// The most is counted from now on.
fn forget(pid: u32) {
    std::fs::write(format!("/proc/{pid}/clear_refs"), "5").expect("the counter is set back");
}

/// Reads an answer to its end and keeps nothing; how many bytes it had.
async fn drained(caller: &Caller, url: &str) -> usize {
    let response = caller.request(Method::GET, url).send().await.expect("an answer");
    assert_eq!(response.status(), 200);
    let mut bytes = response.bytes_stream();
    let mut read = 0;
    while let Some(chunk) = bytes.next().await {
        read += chunk.expect("a whole answer").len();
    }
    read
}

#[track_caller]
fn grew_little(what: &str, pid: u32, before: u64) {
    let (_, most) = resident(pid);
    let grown = most.saturating_sub(before) / 1024;
    assert!(grown < 64, "{what}: the process grew by {grown} MiB");
    forget(pid);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_process_does_not_grow_with_its_files() {
    tell(Home::Sqlite, grow).await;
}

/// moto keeps what it is given in memory, as the test does; s3rver has a disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_with_files_that_are_on_s3() {
    tell(Home::PostgresS3rver, grow).await;
}

async fn grow(home: Home) -> Option<()> {
    let world = World::start_with(home, &[("THREADKEEP_MAX_BAG_BYTES", "2147483648")]).await?;
    let (ann, pid) = (&world.ann, world.process.pid().expect("a process"));
    let chats = join_all((0..10).map(|_| ann.conversation())).await;
    // The first of everything may take what stays.
    ann.put(&chats[0], "first", b"x").await;
    forget(pid);
    let (before, _) = resident(pid);

    let body = bytes::Bytes::from(Form::of("large.bin", &noise(1, FILE)).end());
    let up = |chat: &str| {
        ann.request(Method::POST, &bag(chat)).header("content-type", Form::kind()).body(body.clone())
    };
    let stored = join_all(chats.iter().map(|chat| ask(up(chat)))).await;
    grew_little("ten uploads", pid, before);
    let stored: Vec<_> = stored.iter().map(|answer| files(answer).remove(0)).collect();

    let paths: Vec<String> = stored.iter().map(content_path).collect();
    let read = join_all(paths.iter().map(|path| drained(ann, path))).await;
    grew_little("ten downloads", pid, before);
    assert_eq!(read, [FILE; 10]);

    let mut links = Vec::new();
    for chat in &chats {
        let (_, agent) = world.hanging(chat).await;
        links.push(agent.config().await.unwrap().body["assets"]["url"].as_str().unwrap().to_owned());
    }
    let read = join_all(links.iter().map(|url| drained(ann, url))).await;
    grew_little("ten zips", pid, before);
    assert!(read.iter().all(|read| *read > FILE), "{read:?}");

    // A bag of a gibibyte: one large file, given over and over.
    let kept = files(&ann.post("/v1/files", &json!({ "from": stored[0]["id"] })).await).remove(0);
    let number = world.sandbox.requests().len();
    world.sandbox.play(scripts::hang_after(vec![]));
    let assets: Vec<&str> = (0..22).map(|_| id(&kept)).collect();
    let request = ann.request(Method::POST, "/v1/executions").header("content-type", "application/json");
    let going = request.body(json!({ "prompt": "x", "assets": assets }).to_string()).send().await.unwrap();
    assert_eq!(going.status(), 200);
    let url =
        world.agent(number).await.config().await.unwrap().body["assets"]["url"].as_str().unwrap().to_owned();
    forget(pid);
    let read = drained(ann, &url).await;
    grew_little("a zip of a gibibyte", pid, before);
    assert!(read > 1024 * MIB, "{read}");
    Some(())
}
