//! A way to a server that can be cut and mended: while it is closed, its connections are gone and new ones are
//! closed at once; while it is silent they are all there, and nothing passes. One answer can be lost on it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Silent,
    Closed,
}

/// In front of one server; gone with the value.
#[derive(Debug)]
pub struct Gate {
    address: SocketAddr,
    state: Arc<watch::Sender<State>>,
    lost: Arc<Mutex<Lost>>,
    task: JoinHandle<()>,
}

/// Of which request the answer is to be lost.
#[derive(Debug, Default)]
struct Lost {
    /// What was said on a connection before it, and the request itself.
    said: Option<[String; 2]>,
    times: usize,
}

impl Gate {
    /// An open gate to `server`, a `host:port`.
    ///
    /// # Errors
    /// Where there is no port to listen at.
    #[expect(clippy::disallowed_methods, reason = "its tasks end with the value")]
    pub async fn to(server: String) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let state = Arc::new(watch::Sender::new(State::Open));
        let (kept, lost) = (Arc::clone(&state), Arc::<Mutex<Lost>>::default());
        let losing = Arc::clone(&lost);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (mut state, passing) = (kept.subscribe(), kept.subscribe());
                if *state.borrow() != State::Closed {
                    let (server, losing) = (server.clone(), Arc::clone(&losing));
                    tokio::spawn(async move {
                        tokio::select! {
                            () = pass(client, &server, passing, &losing) => {}
                            _ = state.wait_for(|state| *state == State::Closed) => {}
                        }
                    });
                }
            }
        });
        Ok(Self { address, state, lost, task })
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    pub fn close(&self) {
        self.state.send_replace(State::Closed);
    }

    pub fn open(&self) {
        self.state.send_replace(State::Open);
    }

    /// The connection that says `before` and then `request` is cut when the server has answered: it was done, and
    /// whoever asked does not hear of it. Once.
    pub fn lose_answer(&self, before: &str, request: &str) {
        lock(&self.lost).said = Some([before.to_owned(), request.to_owned()]);
    }

    /// How many answers were lost.
    #[must_use]
    pub fn lost(&self) -> usize {
        lock(&self.lost).times
    }

    pub fn fall_silent(&self) {
        self.state.send_replace(State::Silent);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.close();
        self.task.abort();
    }
}

fn lock(lost: &Mutex<Lost>) -> std::sync::MutexGuard<'_, Lost> {
    lost.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn pass(mut client: TcpStream, server: &str, mut state: watch::Receiver<State>, lost: &Mutex<Lost>) {
    let mut back = state.clone();
    let _ = state.wait_for(|state| *state == State::Open).await;
    let Ok(mut server) = TcpStream::connect(server).await else { return };
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let heard = Heard { lost, before: AtomicBool::new(false), losing: AtomicBool::new(false) };
    // Either side's end is the end of both.
    tokio::select! {
        _ = pump(from_client, to_server, &mut state, |bytes| { heard.asked(bytes); false }) => {}
        _ = pump(from_server, to_client, &mut back, |_| heard.losing.load(Ordering::SeqCst)) => {}
    }
}

/// What a connection has said of the answer that is to be lost.
struct Heard<'a> {
    lost: &'a Mutex<Lost>,
    before: AtomicBool,
    losing: AtomicBool,
}

impl Heard<'_> {
    fn asked(&self, bytes: &[u8]) {
        let mut lost = lock(self.lost);
        let Some([before, request]) = &lost.said else { return };
        let says = |text: &str| bytes.windows(text.len()).any(|part| part == text.as_bytes());
        if says(before) {
            self.before.store(true, Ordering::SeqCst);
        }
        if self.before.load(Ordering::SeqCst) && says(request) {
            self.losing.store(true, Ordering::SeqCst);
            *lost = Lost { said: None, times: lost.times + 1 };
        }
    }
}

/// What was read while it is silent goes on when it no longer is; what is lost does not, and ends it.
async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    state: &mut watch::Receiver<State>,
    is_lost: impl Fn(&[u8]) -> bool,
) -> std::io::Result<()> {
    let mut bytes = vec![0; 16 * 1024];
    loop {
        let read = from.read(&mut bytes).await?;
        if is_lost(bytes.get(..read).unwrap_or_default()) {
            return Ok(());
        }
        let _ = state.wait_for(|state| *state == State::Open).await;
        if read == 0 {
            return to.shutdown().await;
        }
        to.write_all(bytes.get(..read).unwrap_or_default()).await?;
    }
}
