//! JSON objects one after the other, as one array, as `{ "rows": [...] }` or as lines: bytes in as they come, the text of
//! each object out. Whether that text is JSON is for its reader to say.

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum At {
    #[default]
    Start,
    /// In the array: before its first object, after one, after a comma.
    First,
    After,
    Next,
    /// Between lines.
    Lines,
    Object,
    /// After the array that an object holds: the object's end is missing.
    Wrapped,
    /// After the array.
    End,
}

/// How a document begins that holds its rows in a member, blanks aside. No row does: a cell is never an array.
const WRAPPER: &[u8] = b"{\"rows\":[";
/// Where it ends at the latest: blanks are not gone through again and again.
const WRAPPER_ENDS: usize = 256;

#[derive(Default)]
pub(super) struct Records {
    /// Lines may be none; an array has at least its brackets.
    may_be_none: bool,
    at: At,
    in_array: bool,
    /// The array is a member of an object.
    wrapped: bool,
    object: Vec<u8>,
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl Records {
    pub(super) fn new(may_be_none: bool) -> Self {
        Self { may_be_none, ..Self::default() }
    }

    pub(super) fn push(
        &mut self,
        bytes: &[u8],
        max: usize,
        each: &mut impl FnMut(Vec<u8>),
    ) -> Result<(), String> {
        for &byte in bytes {
            if self.at == At::Object {
                self.inside(byte);
                if byte == b'[' && self.unwrap_rows() {
                    continue;
                }
                if self.object.len() > max {
                    return Err(format!("is over {max} bytes"));
                }
                if self.depth == 0 {
                    self.at = if self.in_array { At::After } else { At::Lines };
                    each(std::mem::take(&mut self.object));
                }
            } else if !byte.is_ascii_whitespace() {
                self.between(byte)?;
            }
        }
        Ok(())
    }

    pub(super) fn finish(&self) -> Result<(), String> {
        match self.at {
            At::Lines | At::End => Ok(()),
            At::Start if self.may_be_none => Ok(()),
            At::Start => Err("is missing: the file is empty".into()),
            At::Object => Err("breaks off".into()),
            At::Wrapped => Err("is missing: the object around the array has no end".into()),
            At::First | At::After | At::Next => Err("is missing: the array has no end".into()),
        }
    }

    fn between(&mut self, byte: u8) -> Result<(), String> {
        match (self.at, byte) {
            (At::Start, b'[') => (self.at, self.in_array) = (At::First, true),
            (At::Start | At::First | At::Next | At::Lines, b'{') => {
                self.at = At::Object;
                self.inside(byte);
            }
            (At::First | At::After, b']') => self.at = if self.wrapped { At::Wrapped } else { At::End },
            (At::Wrapped, b'}') => self.at = At::End,
            (At::Wrapped, _) => {
                return Err("comes after the rows: the object around them has nothing else".into());
            }
            (At::After, b',') => self.at = At::Next,
            (At::Start, _) => {
                return Err("must be an object: send an array of objects, or one on each line".into());
            }
            (At::After, _) => return Err("must come after a comma".into()),
            (At::End, _) => return Err("comes after the end of the array".into()),
            _ => return Err("must be an object".into()),
        }
        Ok(())
    }

    /// Goes on in the array where that is the document's only member.
    fn unwrap_rows(&mut self) -> bool {
        let bare = self.object.iter().filter(|byte| !byte.is_ascii_whitespace());
        let wraps = !self.in_array && self.object.len() <= WRAPPER_ENDS && bare.eq(WRAPPER);
        if wraps {
            self.object.clear();
            (self.at, self.depth, self.in_array, self.wrapped) = (At::First, 0, true, true);
        }
        wraps
    }

    fn inside(&mut self, byte: u8) {
        self.object.push(byte);
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' if self.in_string => self.escaped = true,
            b'"' => self.in_string = !self.in_string,
            _ if self.in_string => {}
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth -= 1,
            _ => {}
        }
    }
}
