//! Uploads that would run in a page, opened by their own address in a real browser: nothing of them runs.

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::caller::content_path;
use crate::world::{Home, World, tell};

/// Says aloud that something cannot be shown here; where it must be, that is a failure.
pub fn skipped(what: &str) {
    assert!(std::env::var_os("CI").is_none(), "{what} is missing: run scripts/setup test");
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let _ = writeln!(std::io::stderr(), "SKIPPED: {test} ({what} is missing)");
}

/// What was asked of a gate: contents, and by scripts.
#[derive(Default)]
struct Asked {
    contents: Vec<String>,
    ran: Vec<String>,
}

/// Hands requests on to the server with Ann's credential, as her browser's cookie would.
#[derive(Clone)]
struct Gate {
    server: String,
    bearer: String,
    asked: Arc<Mutex<Asked>>,
}

impl Gate {
    async fn open(self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(self.clone().answer(socket));
            }
        });
        address
    }

    async fn answer(self, mut socket: TcpStream) {
        let mut head = Vec::new();
        while !head.windows(4).any(|window| window == b"\r\n\r\n") {
            if socket.read_buf(&mut head).await.unwrap_or(0) == 0 {
                return;
            }
        }
        let text = String::from_utf8_lossy(&head).into_owned();
        let target = text.split(' ').nth(1).unwrap_or_default().to_owned();
        let page = if target.starts_with("/ran") {
            self.asked.lock().unwrap().ran.push(target);
            String::new()
        } else if target.starts_with("/control") {
            "<!DOCTYPE html><script>fetch('/ran?control')</script>".to_owned()
        } else if let Some(paths) = target.strip_prefix("/framed?") {
            let framed = |path: &str| {
                format!(
                    "<iframe src='{path}'></iframe><embed src='{path}'><object data='{path}'></object><img src='{path}'>"
                )
            };
            paths.split('&').map(framed).collect()
        } else {
            return self.forward(&target, socket).await;
        };
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{page}",
            page.len()
        );
        let _ = socket.write_all(answer.as_bytes()).await;
    }

    async fn forward(&self, target: &str, mut socket: TcpStream) {
        let mut upstream = TcpStream::connect(&self.server).await.unwrap();
        let (server, bearer) = (&self.server, &self.bearer);
        let request = format!(
            "GET {target} HTTP/1.1\r\nHost: {server}\r\nAuthorization: Bearer {bearer}\r\nConnection: close\r\n\r\n"
        );
        upstream.write_all(request.as_bytes()).await.unwrap();
        let _ = tokio::io::copy(&mut upstream, &mut socket).await;
        let _ = socket.shutdown().await;
        self.asked.lock().unwrap().contents.push(target.to_owned());
    }
}

/// Opens an address and gives the page time to do what it would. A download never ends by itself.
async fn open(chromium: &'static str, url: String) {
    let opened = tokio::task::spawn_blocking(move || {
        let profile = tempfile::tempdir().unwrap();
        let mut command = Command::new("timeout");
        command.args(["-k", "1", "12", chromium, "--headless=new", "--no-sandbox", "--disable-gpu"]);
        command.args([
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-extensions",
            "--no-proxy-server",
        ]);
        command.args(["--disable-background-networking", "--virtual-time-budget=2000", "--dump-dom"]);
        command.arg(format!("--user-data-dir={}", profile.path().display())).arg(url);
        command.output().unwrap();
    });
    opened.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_an_upload_runs() {
    let found = ["chromium", "chromium-browser", "google-chrome"];
    let found = found.into_iter().find(|name| Command::new(name).arg("--version").output().is_ok());
    let Some(chromium) = found else { return skipped("chromium") };
    tell(Home::Sqlite, async |home| nothing_runs(home, chromium).await).await;
}

async fn nothing_runs(home: Home, chromium: &'static str) -> Option<()> {
    let world = World::start(home).await?;
    let ann = &world.ann;
    let chat = ann.conversation().await;
    let asked = Arc::new(Mutex::new(Asked::default()));
    let server = ann.url().trim_start_matches("http://").to_owned();
    let gate = Gate { server, bearer: ann.bearer().to_owned(), asked: Arc::clone(&asked) }.open().await;
    let script = |name: &str| format!("<script>new Image().src='/ran?{name}';fetch('/ran?{name}')</script>");
    let svg = |name: &str| {
        let call = format!("fetch('/ran?{name}')");
        format!("<svg xmlns='http://www.w3.org/2000/svg' onload=\"{call}\"><script>{call}</script></svg>")
    };
    let xhtml = "<?xml version='1.0'?><html xmlns='http://www.w3.org/1999/xhtml'>";
    let pages = [
        ("page.html", format!("<!DOCTYPE html><body onload=\"fetch('/ran?load')\">{}", script("html"))),
        ("page.txt", format!("<html>{}", script("txt"))),
        ("pic.svg", svg("svg")),
        ("pic.png", svg("png")),
        ("page.xhtml", format!("{xhtml}{}</html>", script("xhtml"))),
        ("both.html", format!("GIF89a/*<html>*/=1;/*{}*/", script("gif"))),
        ("both.svg", format!("\u{0}\u{0}{}", svg("nul"))),
        (
            "doc.pdf",
            "%PDF-1.4\n1 0 obj<</OpenAction<</S/JavaScript/JS(app.launchURL('/ran?pdf'))>>>>endobj"
                .to_owned(),
        ),
    ];
    // The browser works, and would tell.
    open(chromium, format!("http://{gate}/control")).await;
    if asked.lock().unwrap().ran.is_empty() {
        skipped("a chromium that runs a page");
        return Some(());
    }
    asked.lock().unwrap().ran.clear();
    let mut paths = Vec::new();
    for (name, body) in &pages {
        paths.push(content_path(&ann.put(&chat, name, body.as_bytes()).await));
    }
    // By themselves, and within a page of the same place.
    let framed = format!("/framed?{}", paths.join("&"));
    for some in [paths.clone(), vec![framed]].concat().chunks(3) {
        futures_util::future::join_all(
            some.iter().map(|path| open(chromium, format!("http://{gate}{path}"))),
        )
        .await;
    }
    let asked = asked.lock().unwrap();
    assert_eq!(asked.ran, Vec::<String>::new());
    for path in &paths {
        assert!(asked.contents.contains(path), "{path} was opened");
    }
    Some(())
}
