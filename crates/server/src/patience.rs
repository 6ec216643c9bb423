//! A connection that has to begin: hyper's patience for a head starts only once it knows whether HTTP/1 or
//! HTTP/2 is spoken, so whoever sends nothing, or part of HTTP/2's preface, is timed here.

use std::io::{Error, ErrorKind, Result};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub struct Patience {
    stream: TcpStream,
    /// Until the version is known: how much of the preface has come, and when it has to be whole.
    waiting: Option<(usize, Pin<Box<Sleep>>)>,
}

impl Patience {
    pub fn new(stream: TcpStream, patience: Duration) -> Self {
        Self { stream, waiting: Some((0, Box::pin(sleep(patience)))) }
    }
}

impl AsyncRead for Patience {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        if let Some((_, deadline)) = &mut self.waiting
            && deadline.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Err(Error::new(ErrorKind::TimedOut, "no request was begun")));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        if let Some((seen, _)) = &mut self.waiting {
            let come = &buf.filled()[before..];
            let rest = &PREFACE[*seen..];
            *seen += come.len();
            if come.len() >= rest.len() || !rest.starts_with(come) {
                self.waiting = None;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Patience {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[std::io::IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
