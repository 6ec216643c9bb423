//! Which HTTP a connection speaks, told by its first bytes, which are left where they are.

use std::io::{Error, ErrorKind, Result};
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::TcpStream;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// How soon it is looked again at a preface that came in parts; each time later, as nobody has a good reason for it.
const AGAIN: Duration = Duration::from_millis(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Http1,
    Http2,
}

impl Protocol {
    /// Fails when nothing, or nothing whole, has come in time.
    pub async fn of(stream: &TcpStream, patience: Duration) -> Result<Self> {
        let late = |_| Error::new(ErrorKind::TimedOut, "no request was begun");
        tokio::time::timeout(patience, spoken(stream)).await.map_err(late)?
    }
}

async fn spoken(stream: &TcpStream) -> Result<Protocol> {
    let (mut begun, mut again) = ([0; PREFACE.len()], AGAIN);
    loop {
        let come = stream.peek(&mut begun).await?;
        match &begun[..come] {
            [] => return Err(ErrorKind::UnexpectedEof.into()),
            PREFACE => return Ok(Protocol::Http2),
            part if PREFACE.starts_with(part) => {
                if stream.ready(Interest::READABLE).await?.is_read_closed() {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                tokio::time::sleep(again).await;
                again *= 2;
            }
            _ => return Ok(Protocol::Http1),
        }
    }
}
