//! A `multipart/form-data` body, byte by byte: what a browser would send, and what none would.

use std::fmt::Write as _;

const BOUNDARY: &str = "----a-boundary-of-the-tests";

/// The parts so far. Cloning copies them.
#[derive(Debug, Clone, Default)]
pub struct Form {
    body: Vec<u8>,
}

impl Form {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One file alone.
    #[must_use]
    pub fn of(name: &str, bytes: &[u8]) -> Self {
        Self::new().file(name, bytes)
    }

    /// A file; a name that no header can hold is percent-encoded.
    #[must_use]
    pub fn file(self, name: &str, bytes: &[u8]) -> Self {
        let name = if name.contains(|c: char| c.is_control()) {
            format!("filename*=UTF-8''{}", percent(name))
        } else {
            format!("filename=\"{}\"", name.replace('"', "\\\""))
        };
        let kind = "application/octet-stream";
        self.part(
            &format!("Content-Disposition: form-data; name=\"files\"; {name}\r\nContent-Type: {kind}"),
            bytes,
        )
    }

    /// A part that is no file.
    #[must_use]
    pub fn field(self, name: &str, text: &str) -> Self {
        self.part(&format!("Content-Disposition: form-data; name=\"{name}\""), text.as_bytes())
    }

    /// Headers, without the empty line after them, and a body.
    #[must_use]
    pub fn part(mut self, headers: &str, bytes: &[u8]) -> Self {
        self.body.extend_from_slice(format!("--{BOUNDARY}\r\n{headers}\r\n\r\n").as_bytes());
        self.body.extend_from_slice(bytes);
        self.body.extend_from_slice(b"\r\n");
        self
    }

    /// The whole body.
    #[must_use]
    pub fn end(&self) -> Vec<u8> {
        [&self.body, format!("--{BOUNDARY}--\r\n").as_bytes()].concat()
    }

    /// The value of `Content-Type`.
    #[must_use]
    pub fn kind() -> String {
        format!("multipart/form-data; boundary={BOUNDARY}")
    }
}

/// Every byte but letters and digits as `%XX`.
#[must_use]
pub fn percent(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() {
            out.push(byte.into());
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}
