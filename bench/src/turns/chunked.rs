//! HTTP's chunked coding, read from bytes that may be cut anywhere.

use anyhow::bail;

#[derive(Debug, Default)]
pub struct Chunked {
    state: State,
    /// Of the chunk under way: its size as read so far, then what is left of it.
    left: usize,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Size,
    Data,
    /// The line end after a chunk's data.
    AfterData,
    /// The empty line at the very end; trailers are not expected.
    Last,
}

impl Chunked {
    /// Hands the body's bytes on; true once the body is whole.
    pub fn take(&mut self, mut bytes: &[u8], mut body: impl FnMut(&[u8])) -> anyhow::Result<bool> {
        while let Some(&byte) = bytes.first() {
            if self.state == State::Data {
                let (data, rest) = bytes.split_at(self.left.min(bytes.len()));
                body(data);
                self.left -= data.len();
                bytes = rest;
                if self.left == 0 {
                    self.state = State::AfterData;
                }
                continue;
            }
            bytes = &bytes[1..];
            match (self.state, byte) {
                (_, b'\r') => {}
                (State::AfterData, b'\n') => self.state = State::Size,
                (State::Last, b'\n') => return Ok(true),
                (State::Size, b'\n') => {
                    self.state = if self.left == 0 { State::Last } else { State::Data };
                }
                (State::Size, digit) => match (digit as char).to_digit(16) {
                    Some(digit) => self.left = self.left * 16 + digit as usize,
                    None => bail!("not the size of a chunk: {:?}", digit as char),
                },
                (_, byte) => bail!("{:?} where a line should end", byte as char),
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_cut_gives_the_same_body() {
        let sent = b"5\r\nhello\r\n10\r\n, chunked coding\r\n0\r\n\r\n";
        for size in 1..sent.len() {
            let (mut chunked, mut got, mut over) = (Chunked::default(), Vec::new(), false);
            for piece in sent.chunks(size) {
                over = chunked.take(piece, |body| got.extend_from_slice(body)).unwrap();
            }
            assert_eq!((got.as_slice(), over), (&b"hello, chunked coding"[..], true), "{size}");
        }
        assert!(Chunked::default().take(b"xyz\r\n", |_| {}).is_err());
    }
}
