//! Control characters in the headers of a form's parts, where some senders write file names as they are. The parser
//! takes a form with one for broken; a name is made safe by leaving them out, so they are left out before.

use bytes::Bytes;
use memchr::memmem::Finder;

/// The empty line that ends a part's headers, with the end of the line before it.
const END: &[u8] = b"\r\n\r\n";

pub(super) struct PartHeaders {
    /// What stands before the headers of a part.
    delimiter: Finder<'static>,
    at: Place,
}

enum Place {
    /// Outside of headers, and the last bytes that came: a delimiter may have begun in them.
    Outside(Vec<u8>),
    /// In headers, and how much of their end has come.
    Within(usize),
}

impl PartHeaders {
    pub(super) fn new(boundary: &str) -> Self {
        let delimiter = Finder::new(&format!("\r\n--{boundary}\r\n")).into_owned();
        // The first one begins no line.
        Self { delimiter, at: Place::Outside(b"\r\n".to_vec()) }
    }

    /// The next bytes of the form, without the control characters of headers.
    pub(super) fn clean(&mut self, chunk: Bytes) -> Bytes {
        let (mut kept, mut taken, mut read) = (Vec::new(), 0, 0);
        while let Some(&byte) = chunk.get(read) {
            match &mut self.at {
                Place::Outside(before) => match delimiter_end(&self.delimiter, before, &chunk[read..]) {
                    Some(end) => {
                        read += end;
                        self.at = Place::Within(2);
                    }
                    None => break,
                },
                Place::Within(ended) => {
                    if byte.is_ascii_control() && !matches!(byte, b'\r' | b'\n' | b'\t') {
                        kept.extend_from_slice(&chunk[taken..read]);
                        taken = read + 1;
                    } else if byte == END[*ended] {
                        *ended += 1;
                    } else {
                        *ended = usize::from(byte == b'\r');
                    }
                    if *ended == END.len() {
                        self.at = Place::Outside(Vec::new());
                    }
                    read += 1;
                }
            }
        }
        if taken == 0 {
            return chunk;
        }
        kept.extend_from_slice(&chunk[taken..]);
        kept.into()
    }
}

/// Where in `bytes` the first delimiter ends; it may have begun in those before. Without one the last bytes are noted.
fn delimiter_end(delimiter: &Finder<'_>, before: &mut Vec<u8>, bytes: &[u8]) -> Option<usize> {
    let length = delimiter.needle().len();
    let known = before.len();
    before.extend_from_slice(&bytes[..bytes.len().min(length - 1)]);
    if let Some(at) = delimiter.find(before) {
        return Some(at + length - known);
    }
    if bytes.len() >= length {
        if let Some(at) = delimiter.find(bytes) {
            return Some(at + length);
        }
        before.clear();
        before.extend_from_slice(&bytes[bytes.len() - (length - 1)..]);
    } else {
        before.drain(..before.len().saturating_sub(length - 1));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The form in pieces of a size.
    fn clean(form: &[u8], size: usize) -> Vec<u8> {
        let mut headers = PartHeaders::new("b");
        form.chunks(size).flat_map(|piece| headers.clean(Bytes::copy_from_slice(piece))).collect()
    }

    #[test]
    fn control_characters_go_from_headers_alone() {
        let sent = b"--b\r\nname=\"a\x01\x7f\x1bb\"\r\nx:\ty\r\n\r\n\x01\r\n--b \x02\r\n--b\x03\r\n\r\n\r\n--b\r\n\r\n\x04\r\n--b\r\n\x05n\x00: 1\r\n\r\n\x06\r\n--b--\r\n";
        let left = b"--b\r\nname=\"ab\"\r\nx:\ty\r\n\r\n\x01\r\n--b \x02\r\n--b\x03\r\n\r\n\r\n--b\r\n\r\n\x04\r\n--b\r\nn: 1\r\n\r\n\x06\r\n--b--\r\n";
        for size in 1..=sent.len() {
            assert_eq!(
                clean(sent, size).escape_ascii().to_string(),
                left.escape_ascii().to_string(),
                "{size}"
            );
        }
    }

    #[test]
    fn what_has_none_is_handed_on_as_it_is() {
        let form = Bytes::from_static(b"--b\r\nname=\"f\"\r\n\r\n\x01\x02\r\n--b--\r\n");
        assert_eq!(PartHeaders::new("b").clean(form.clone()).as_ptr(), form.as_ptr());
    }
}
