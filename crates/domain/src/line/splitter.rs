//! Bytes to lines, however the bytes are cut. Only `\n` ends a line: a lone `\r`, U+2028 and the like are
//! data. Holds at most one line of the allowed length and the piece that was pushed last.

use memchr::memchr;

const BOM: &[u8] = b"\xEF\xBB\xBF";

/// ```
/// # use domain::line::LineSplitter;
/// let mut splitter = LineSplitter::new(1024);
/// splitter.push(b"{}\r\n\n{");
/// assert_eq!(splitter.next_line(), Ok(Some(&b"{}"[..])));
/// assert_eq!(splitter.next_line(), Ok(None));
/// assert_eq!(splitter.finish(), Ok(Some(&b"{"[..])));
/// ```
#[derive(Debug)]
pub struct LineSplitter {
    max: usize,
    held: Vec<u8>,
    /// Where the next line begins in `held`.
    start: usize,
    /// Up to here `held` is known to have no line end after `start`.
    searched: usize,
    /// Nothing was read yet, so a BOM may come.
    fresh: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a line is longer than {max} bytes")]
pub struct LineTooLong {
    pub max: usize,
}

impl LineSplitter {
    /// `max` counts a line's bytes without a BOM and its line end, `\n` or `\r\n`.
    pub fn new(max: usize) -> Self {
        Self { max, held: Vec::new(), start: 0, searched: 0, fresh: true }
    }

    /// Takes more bytes. Before more are pushed, `next_line` is called until it gives none.
    pub fn push(&mut self, bytes: &[u8]) {
        self.held.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
        self.held.extend_from_slice(bytes);
    }

    /// The next whole line that is not blank. An error stands for good: what follows is of no use.
    pub fn next_line(&mut self) -> Result<Option<&[u8]>, LineTooLong> {
        if !self.skip_bom() {
            return Ok(None);
        }
        loop {
            let rest = self.held.get(self.searched..).unwrap_or_default();
            let Some(found) = memchr(b'\n', rest) else {
                self.searched = self.held.len();
                // A `\r` may yet turn out to be of the line's end.
                self.check(&self.held[self.start..])?;
                return Ok(None);
            };
            let (start, end) = (self.start, self.searched + found);
            // Before anything moves: a line that is too long is too long at every call.
            self.check(&self.held[start..end])?;
            self.start = end + 1;
            self.searched = end + 1;
            if !is_blank(&self.held[start..end]) {
                let line = &self.held[start..end];
                return Ok(Some(line.strip_suffix(b"\r").unwrap_or(line)));
            }
        }
    }

    /// What is left after the last `\n`, once there is nothing more to push and `next_line` gives none.
    pub fn finish(&mut self) -> Result<Option<&[u8]>, LineTooLong> {
        let start = self.start;
        if self.held.len() - start > self.max {
            return Err(LineTooLong { max: self.max });
        }
        self.start = self.held.len();
        self.searched = self.start;
        let line = &self.held[start..];
        Ok((!is_blank(line)).then_some(line))
    }

    fn check(&self, line: &[u8]) -> Result<(), LineTooLong> {
        let length = line.strip_suffix(b"\r").unwrap_or(line).len();
        if length > self.max { Err(LineTooLong { max: self.max }) } else { Ok(()) }
    }

    /// False while the first bytes may still turn out to be a BOM.
    fn skip_bom(&mut self) -> bool {
        if self.fresh {
            if self.held.len() < BOM.len() && BOM.starts_with(&self.held) {
                return false;
            }
            self.fresh = false;
            if self.held.starts_with(BOM) {
                self.start = BOM.len();
                self.searched = BOM.len();
            }
        }
        true
    }
}

fn is_blank(line: &[u8]) -> bool {
    line.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split(max: usize, pieces: &[&[u8]]) -> (Vec<Vec<u8>>, bool) {
        let mut splitter = LineSplitter::new(max);
        let mut lines = Vec::new();
        for piece in pieces {
            splitter.push(piece);
            loop {
                match splitter.next_line() {
                    Ok(Some(line)) => lines.push(line.to_vec()),
                    Ok(None) => break,
                    Err(LineTooLong { .. }) => return (lines, true),
                }
            }
            let bound = max + 1 + piece.len() + BOM.len();
            assert!(splitter.held.len() <= bound, "{} > {bound}", splitter.held.len());
        }
        match splitter.finish() {
            Ok(last) => lines.extend(last.map(<[u8]>::to_vec)),
            Err(LineTooLong { .. }) => return (lines, true),
        }
        assert_eq!(splitter.finish(), Ok(None));
        (lines, false)
    }

    #[test]
    fn only_a_line_feed_ends_a_line() {
        let cases: &[(&str, &[&str])] = &[
            ("", &[]),
            ("\n\n \n\t\r\n", &[]),
            ("a\nb", &["a", "b"]),
            ("a\r\nb\r\n", &["a", "b"]),
            ("a\rb\n", &["a\rb"]),
            ("a\r\r\n", &["a\r"]),
            ("a\u{2028}b\u{85}c\u{b}d\u{c}\n", &["a\u{2028}b\u{85}c\u{b}d\u{c}"]),
            ("\u{feff}a\n\u{feff}b\n", &["a", "\u{feff}b"]),
            ("\u{feff}", &[]),
            ("\u{feff}\u{feff}a", &["\u{feff}a"]),
            ("\n\u{feff}a", &["\u{feff}a"]),
            (" a \n", &[" a "]),
            ("a\r", &["a\r"]),
        ];
        for (bytes, lines) in cases {
            let expected: Vec<Vec<u8>> = lines.iter().map(|line| line.as_bytes().to_vec()).collect();
            assert_eq!(split(64, &[bytes.as_bytes()]), (expected, false), "{bytes:?}");
        }
    }

    #[test]
    fn half_a_bom_is_data() {
        assert_eq!(split(9, &[b"\xEF", b"\xBB"]), (vec![b"\xEF\xBB".to_vec()], false));
        assert_eq!(split(9, &[b"\xEF", b"\xBB", b"\xBFa"]), (vec![b"a".to_vec()], false));
        assert_eq!(split(9, &[b"\xEF", b"a\n"]), (vec![b"\xEFa".to_vec()], false));
    }

    #[test]
    fn a_line_too_long_is_known_before_its_end() {
        let line = |text: &str| text.as_bytes().to_vec();
        assert_eq!(split(3, &[b"abc\nabc"]), (vec![line("abc"), line("abc")], false));
        assert_eq!(split(3, &[b"abc\nabcd"]), (vec![line("abc")], true));
        assert_eq!(split(3, &[b"\xEF\xBB\xBFabc\n"]), (vec![line("abc")], false));
        assert_eq!(split(3, &[b"abc\r\nabc\r", b"\n"]), (vec![line("abc"), line("abc")], false));
        assert_eq!(split(3, &[b"abc\r\r\n"]), (vec![], true));
        assert_eq!(split(3, &[b"abc\r"]), (vec![], true));
        let mut splitter = LineSplitter::new(3);
        splitter.push(b"abcd");
        assert_eq!(splitter.next_line(), Err(LineTooLong { max: 3 }));
        splitter.push(b"\nx\n");
        assert_eq!(splitter.next_line(), Err(LineTooLong { max: 3 }));
        // Blank, but who sends it means no good.
        assert_eq!(split(3, &[b"    \n"]), (vec![], true));
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same_lines(
            bytes in prop::collection::vec(
                prop::sample::select(b"ab{}\n\n\r \xEF\xBB\xBF".to_vec()), 0..200),
            cuts in prop::collection::vec(1usize..20, 0..60),
            max in 1usize..40,
            bom in any::<bool>(),
        ) {
            let bytes = if bom { [BOM, &bytes].concat() } else { bytes };
            let mut pieces = Vec::new();
            let mut rest = &bytes[..];
            for cut in cuts {
                let (piece, after) = rest.split_at(cut.min(rest.len()));
                pieces.push(piece);
                rest = after;
            }
            pieces.push(rest);
            prop_assert_eq!(split(max, &pieces), split(max, &[&bytes]));
        }
    }
}
