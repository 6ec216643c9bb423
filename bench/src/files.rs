//! Files: uploads, downloads and zips beside what this machine can do with the same bytes in the same seconds. Every
//! round takes each of them once, ours and the ceiling by turns, over loopback and the same disk.

mod ceiling;
mod client;

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use testkit::agent::Agent;
use testkit::form::Form;
use testkit::process::ServerProcess;
use testkit::sandbox::{Action, ScriptedSandbox};
use tokio::task::spawn_blocking;

use self::client::Target;
use crate::note;

/// As large as a file may be by default, nearly.
const FILE: usize = 48 * 1024 * 1024;
/// How many of them are in the bag that is zipped.
const BAG: usize = 4;
const ROUNDS: usize = 9;

/// What one thing took, ours and the ceiling, by round.
struct Measured {
    what: &'static str,
    goal: f64,
    bytes: usize,
    ours: Vec<Duration>,
    ceiling: Vec<Duration>,
}

impl Measured {
    fn new(what: &'static str, goal: f64, bytes: usize) -> Self {
        Self { what, goal, bytes, ours: Vec::new(), ceiling: Vec::new() }
    }

    /// Megabytes in a second, in the middle of the rounds.
    fn speed(&self, samples: &[Duration]) -> f64 {
        let mut samples = samples.to_vec();
        samples.sort_unstable();
        let middle = samples.get(samples.len() / 2).copied().unwrap_or_default();
        self.bytes as f64 / 1e6 / middle.as_secs_f64()
    }
}

pub async fn run(server: &Path) -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let head = Action::Headers("200 OK", vec![("content-type", "application/x-ndjson".to_owned())]);
    let sandbox = ScriptedSandbox::start(vec![head, Action::Hang]).await?;
    let url = sandbox.url();
    let env = [("SANDBOX_URL", url.as_str()), ("THREADKEEP_MAX_BAG_BYTES", "1099511627776")];
    let process = ServerProcess::start(server, &env, data.path()).await?;
    let key = std::fs::read_to_string(data.path().join("local.key"))?.trim().to_owned();
    let target = Target::new(process.url(), &key)?;

    let body: Vec<u8> = (0..FILE as u64).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let form = Form::of("large.bin", &body).end();
    let bag = conversation(&target).await?;
    let uploads = format!("/v1/chat-conversations/{bag}/files");
    let mut stored = Vec::new();
    for _ in 0..BAG {
        let (path, form, target) = (uploads.clone(), form.clone(), target.clone());
        stored.push(spawn_blocking(move || target.send("POST", &path, &Form::kind(), &form)).await??);
    }
    let content = format!("{uploads}/{}/content", stored.first().and_then(file_id).context("no file")?);
    let zip = zip_path(&target, &sandbox, &bag).await?;
    let elsewhere = conversation(&target).await?;
    let uploads = format!("/v1/chat-conversations/{elsewhere}/files");
    let hex: String = Sha256::digest(&body).iter().map(|byte| format!("{byte:02x}")).collect();
    let promise = json!({ "name": "direct.bin", "size": FILE, "sha256": hex });
    let (files, scratch) = (walk(&data.path().join("blobs"))?, data.path().join("ceiling"));
    std::fs::create_dir(&scratch)?;
    let plan = Arc::new(Plan { target, body, form, promise, uploads, content, zip, files, scratch });

    let mut measured = [
        Measured::new("upload", 0.60, FILE),
        Measured::new("direct upload", 0.60, FILE),
        Measured::new("download", 0.70, FILE),
        Measured::new("zip", 0.60, FILE * BAG),
    ];
    for round in 0..=ROUNDS {
        note(&format!("files: round {round} of {ROUNDS}"));
        let plan = Arc::clone(&plan);
        let times = spawn_blocking(move || one_round(&plan, round)).await??;
        // The first is for warming up.
        for (measured, (ours, ceiling)) in measured.iter_mut().zip(times).filter(|_| round > 0) {
            measured.ours.push(ours);
            measured.ceiling.push(ceiling);
        }
    }
    report(&measured)
}

/// What every round works with.
struct Plan {
    target: Target,
    body: Vec<u8>,
    /// The body as a form, and what a promise of it says.
    form: Vec<u8>,
    promise: Value,
    uploads: String,
    content: String,
    zip: String,
    /// The files of the bag that is zipped.
    files: Vec<PathBuf>,
    scratch: PathBuf,
}

/// Each thing once: what it took us, and what it takes at best.
fn one_round(plan: &Plan, round: usize) -> anyhow::Result<[(Duration, Duration); 4]> {
    let Plan { target, form, uploads, content, zip, files, scratch, .. } = plan;
    let receive = || ceiling::receive(form, scratch);
    let upload = both(round, || target.send("POST", uploads, &Form::kind(), form).map(drop), receive)?;
    let direct = both(round, || direct_upload(plan), receive)?;
    let one = files.get(..1).context("no file")?;
    let download = both(round, || target.download(content, FILE), || ceiling::send(one))?;
    let zip = both(round, || target.download(zip, FILE * BAG), || ceiling::send(files))?;
    Ok([upload, direct, download, zip])
}

/// All three calls: the promise, the bytes by the signed link, and the completion, which reads them once more.
fn direct_upload(Plan { target, body, promise, uploads, .. }: &Plan) -> anyhow::Result<()> {
    let promised = target.send(
        "POST",
        &format!("{uploads}/uploads"),
        "application/json",
        promise.to_string().as_bytes(),
    )?;
    let link = promised["url"].as_str().context("no link")?;
    target.send("PUT", target.path(link)?, "application/octet-stream", body)?;
    let id = promised["id"].as_str().context("no upload")?;
    target.send("POST", &format!("{uploads}/uploads/{id}/complete"), "application/json", b"")?;
    Ok(())
}

/// Nobody always comes first.
fn both(
    round: usize,
    mut ours: impl FnMut() -> anyhow::Result<()>,
    mut ceiling: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<(Duration, Duration)> {
    let timed = |work: &mut dyn FnMut() -> anyhow::Result<()>| {
        let begun = Instant::now();
        work().map(|()| begun.elapsed())
    };
    if round.is_multiple_of(2) {
        let first = timed(&mut ours)?;
        Ok((first, timed(&mut ceiling)?))
    } else {
        let first = timed(&mut ceiling)?;
        Ok((timed(&mut ours)?, first))
    }
}

async fn conversation(target: &Target) -> anyhow::Result<String> {
    let document = json!({ "data": { "type": "chat_conversation", "attributes": {} } });
    let made = target.post("/v1/chat-conversations", "application/vnd.api+json", &document).await?;
    made["data"]["id"].as_str().map(str::to_owned).with_context(|| format!("no conversation: {made}"))
}

/// A run that has the bag, and the address of its zip.
async fn zip_path(target: &Target, sandbox: &ScriptedSandbox, bag: &str) -> anyhow::Result<String> {
    target.begin(&json!({ "conversation": bag, "message": "go" })).await?;
    let config = Agent::new(sandbox.request(0).await?.body).config().await?;
    let url = config.body["assets"]["url"].as_str().context("no zip")?;
    Ok(target.path(url)?.to_owned())
}

fn file_id(answer: &Value) -> Option<&str> {
    answer["files"][0]["id"].as_str()
}

fn walk(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(walk(&path)?);
        } else {
            found.push(path);
        }
    }
    Ok(found)
}

fn report(measured: &[Measured]) -> anyhow::Result<()> {
    let mut text =
        String::from("\n## Files\n\nMegabytes per second over loopback, median; durable on disk.\n\n");
    text.push_str("| | Threadkeep | ceiling | ratio | goal |\n|---|---|---|---|---|\n");
    for one in measured {
        let (ours, ceiling) = (one.speed(&one.ours), one.speed(&one.ceiling));
        let ratio = ours / ceiling;
        let met = if ratio >= one.goal {
            format!("{}: met", one.goal)
        } else {
            format!("**{}: missed**", one.goal)
        };
        let _ = writeln!(text, "| {} | {ours:.0} | {ceiling:.0} | {ratio:.2} | at least {met} |", one.what);
    }
    Ok(writeln!(std::io::stdout(), "{text}")?)
}
