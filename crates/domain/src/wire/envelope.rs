//! Threadkeep's own dialect: each event as one SSE frame with its number, its name and its data.

use std::io::Write as _;

use crate::entry::one_line;

pub(super) fn render(seq: i64, kind: &str, data: &str, out: &mut Vec<u8>) {
    // Writing to a Vec cannot fail.
    let _ = write!(out, "id: {seq}\nevent: {kind}\ndata: ");
    out.extend_from_slice(one_line(data).as_bytes());
    out.extend_from_slice(b"\n\n");
}
