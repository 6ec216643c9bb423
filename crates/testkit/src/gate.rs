//! A way to a server that can be cut and mended: while it is closed, its connections are gone and new ones are
//! closed at once; while it is silent they are all there, and nothing passes.

use std::net::SocketAddr;
use std::sync::Arc;

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
    task: JoinHandle<()>,
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
        let kept = Arc::clone(&state);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (mut state, passing) = (kept.subscribe(), kept.subscribe());
                if *state.borrow() != State::Closed {
                    let server = server.clone();
                    tokio::spawn(async move {
                        tokio::select! {
                            () = pass(client, &server, passing) => {}
                            _ = state.wait_for(|state| *state == State::Closed) => {}
                        }
                    });
                }
            }
        });
        Ok(Self { address, state, task })
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

async fn pass(mut client: TcpStream, server: &str, mut state: watch::Receiver<State>) {
    let mut back = state.clone();
    let _ = state.wait_for(|state| *state == State::Open).await;
    let Ok(mut server) = TcpStream::connect(server).await else { return };
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    // Either side's end is the end of both.
    tokio::select! {
        _ = pump(from_client, to_server, &mut state) => {}
        _ = pump(from_server, to_client, &mut back) => {}
    }
}

/// What was read while it is silent goes on when it no longer is.
async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    state: &mut watch::Receiver<State>,
) -> std::io::Result<()> {
    let mut bytes = vec![0; 16 * 1024];
    loop {
        let read = from.read(&mut bytes).await?;
        let _ = state.wait_for(|state| *state == State::Open).await;
        if read == 0 {
            return to.shutdown().await;
        }
        to.write_all(bytes.get(..read).unwrap_or_default()).await?;
    }
}
