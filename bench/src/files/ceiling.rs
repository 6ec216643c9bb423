//! What this machine can do with the same bytes at best: two threads, one socket, one file.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::thread::scope;

use anyhow::{Context as _, anyhow};
use sha2::{Digest as _, Sha256};

use super::client::discard;

const CHUNK: usize = 256 * 1024;

/// A pair of connected sockets over loopback.
fn sockets() -> anyhow::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let sender = TcpStream::connect(listener.local_addr()?)?;
    Ok((sender, listener.accept()?.0))
}

/// Bytes from a socket, hashed, written and synced. The file stays, as an uploaded one does: removing it would have the
/// disk discard its blocks in the seconds of whoever comes next.
pub fn receive(body: &[u8], folder: &Path) -> anyhow::Result<()> {
    let (mut sender, mut receiver) = sockets()?;
    scope(|threads| {
        let sending =
            threads.spawn(move || sender.write_all(body).and_then(|()| sender.shutdown(Shutdown::Write)));
        let mut out = tempfile::NamedTempFile::new_in(folder)?;
        let (mut hash, mut chunk) = (Sha256::new(), vec![0; CHUNK]);
        loop {
            let read = receiver.read(&mut chunk)?;
            let bytes = chunk.get(..read).context("more than was asked for")?;
            if bytes.is_empty() {
                break;
            }
            hash.update(bytes);
            out.write_all(bytes)?;
        }
        hash.finalize();
        out.as_file().sync_data()?;
        out.keep()?;
        sending.join().map_err(|_| anyhow!("the sender failed"))??;
        Ok(())
    })
}

/// Files read, and written to a socket.
pub fn send(files: &[PathBuf]) -> anyhow::Result<()> {
    let (mut sender, mut receiver) = sockets()?;
    scope(|threads| {
        let reading = threads.spawn(move || discard(&mut receiver));
        let mut chunk = vec![0; CHUNK];
        for file in files {
            let mut file = File::open(file)?;
            loop {
                let read = file.read(&mut chunk)?;
                let bytes = chunk.get(..read).context("more than was asked for")?;
                if bytes.is_empty() {
                    break;
                }
                sender.write_all(bytes)?;
            }
        }
        sender.shutdown(Shutdown::Write)?;
        reading.join().map_err(|_| anyhow!("the reader failed"))??;
        Ok(())
    })
}
