//! A way to a server that can be cut and mended: while it is closed, its connections are gone and new ones are
//! closed at once.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// In front of one server; gone with the value.
#[derive(Debug)]
pub struct Gate {
    address: SocketAddr,
    open: Arc<watch::Sender<bool>>,
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
        let open = Arc::new(watch::Sender::new(true));
        let state = Arc::clone(&open);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let mut state = state.subscribe();
                if *state.borrow() {
                    let server = server.clone();
                    tokio::spawn(async move {
                        tokio::select! {
                            () = pass(client, &server) => {}
                            _ = state.wait_for(|open| !open) => {}
                        }
                    });
                }
            }
        });
        Ok(Self { address, open, task })
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    pub fn close(&self) {
        self.open.send_replace(false);
    }

    pub fn open(&self) {
        self.open.send_replace(true);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.close();
        self.task.abort();
    }
}

async fn pass(mut client: TcpStream, server: &str) {
    if let Ok(mut server) = TcpStream::connect(server).await {
        // Either side's end is the end of both.
        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
    }
}
