//! A client that does nothing but move bytes, so that it does not cost what is measured.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use anyhow::Context as _;
use reqwest::Client;
use serde_json::Value;

const CHUNK: usize = 256 * 1024;

#[derive(Clone)]
pub struct Target {
    url: String,
    host: String,
    key: String,
    client: Client,
}

impl Target {
    pub fn new(url: &str, key: &str) -> anyhow::Result<Self> {
        let host = url.strip_prefix("http://").context("no http address")?.to_owned();
        let client = Client::builder().no_proxy().build()?;
        Ok(Self { url: url.to_owned(), host, key: key.to_owned(), client })
    }

    pub async fn post(&self, path: &str, kind: &str, body: &Value) -> anyhow::Result<Value> {
        let request = self.client.post(format!("{}{path}", self.url)).bearer_auth(&self.key);
        let answer = request.header("content-type", kind).body(body.to_string()).send().await?;
        Ok(answer.error_for_status()?.json().await?)
    }

    pub async fn begin(&self, turn: &Value) -> anyhow::Result<()> {
        let request = self.client.post(format!("{}/v1/turns", self.url)).bearer_auth(&self.key);
        let request = request.header("prefer", "respond-async").header("content-type", "application/json");
        request.body(turn.to_string()).send().await?.error_for_status()?;
        Ok(())
    }

    fn head(&self, method: &str, path: &str, more: &str) -> String {
        let Self { host, key, .. } = self;
        format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\nConnection: close\r\n{more}\r\n"
        )
    }

    /// Sends a body and reads the answer, which has no body itself where there is nothing to say.
    pub fn send(&self, method: &str, path: &str, kind: &str, body: &[u8]) -> anyhow::Result<Value> {
        let mut stream = TcpStream::connect(&self.host)?;
        let more = format!("Content-Type: {kind}\r\nContent-Length: {}\r\n", body.len());
        stream.write_all(self.head(method, path, &more).as_bytes())?;
        stream.write_all(body)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        anyhow::ensure!(answer.starts_with("HTTP/1.1 20"), "{answer}");
        let (_, body) = answer.split_once("\r\n\r\n").context("no body")?;
        if body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_str(body).with_context(|| body.to_owned())
    }

    /// The path of an address of this server.
    pub fn path<'a>(&self, url: &'a str) -> anyhow::Result<&'a str> {
        url.strip_prefix(&self.url).context("another address")
    }

    /// Reads an answer of at least so many bytes, and keeps nothing.
    pub fn download(&self, path: &str, least: usize) -> anyhow::Result<()> {
        let mut stream = TcpStream::connect(&self.host)?;
        stream.write_all(self.head("GET", path, "").as_bytes())?;
        let mut reader = BufReader::with_capacity(CHUNK, stream);
        let mut status = String::new();
        reader.read_line(&mut status)?;
        anyhow::ensure!(status.starts_with("HTTP/1.1 200"), "{status}");
        let read = discard(&mut reader)?;
        anyhow::ensure!(read >= least, "{read} of {least} bytes came");
        Ok(())
    }
}

pub fn discard(reader: &mut impl std::io::Read) -> anyhow::Result<usize> {
    let (mut chunk, mut total) = (vec![0; CHUNK], 0);
    loop {
        match reader.read(&mut chunk)? {
            0 => return Ok(total),
            read => total += read,
        }
    }
}
