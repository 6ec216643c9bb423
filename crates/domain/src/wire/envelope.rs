//! Threadkeep's own dialect: each event as one SSE frame with its number, its name and its data.

use crate::entry::one_line;

pub(super) fn render(seq: i64, kind: &str, data: &str, out: &mut Vec<u8>) {
    // Writing to a Vec cannot fail.
    out.extend_from_slice(b"id: ");
    let _ = serde_json::to_writer(&mut *out, &seq);
    out.extend_from_slice(b"\nevent: ");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\ndata: ");
    out.extend_from_slice(one_line(data).as_bytes());
    out.extend_from_slice(b"\n\n");
}
