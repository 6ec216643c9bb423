//! Zips as two strangers read them, and the long fields of zip64 one by one.

use std::io::{Cursor, Read as _, Write as _};
use std::process::{Command, Stdio};

use super::*;

const GIB: u64 = 1 << 30;

/// A whole zip around these contents.
fn zipped(files: &[(&str, &[u8])]) -> Vec<u8> {
    let layout = layout(files);
    let mut out = Vec::new();
    for (index, (_, bytes)) in files.iter().enumerate() {
        out.extend(layout.local_header(index));
        out.extend(*bytes);
    }
    out.extend(layout.central_directory());
    assert_eq!(out.len() as u64, layout.total_len());
    out
}

fn layout(files: &[(&str, &[u8])]) -> ZipLayout {
    let entry = |(name, bytes): &(&str, &[u8])| ZipEntry {
        name: (*name).to_owned(),
        size: bytes.len() as u64,
        crc32: crc32fast::hash(bytes),
    };
    ZipLayout::new(files.iter().map(entry).collect()).unwrap()
}

fn pretended(entries: &[(&str, u64)]) -> ZipLayout {
    let entry = |&(name, size): &(&str, u64)| ZipEntry { name: name.to_owned(), size, crc32: 0x1234_5678 };
    ZipLayout::new(entries.iter().map(entry).collect()).unwrap()
}

/// What Python's zipfile says of it, after it checked every CRC.
fn python(zip: &[u8]) -> String {
    let script = r#"
import io, sys, zipfile
z = zipfile.ZipFile(io.BytesIO(sys.stdin.buffer.read()))
assert z.testzip() is None
for i in z.infolist():
    print(ascii(i.filename), i.file_size, i.date_time, i.compress_type, oct(i.external_attr >> 16), i.create_system)
"#;
    let mut child = Command::new("python3")
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 reads zips in these tests");
    child.stdin.take().unwrap().write_all(zip).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    bytes[at..at + len].iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

#[test]
fn two_strangers_read_what_was_written() {
    let big = vec![7; 300_000];
    let name = "x".repeat(255);
    let files: [(&str, &[u8]); 6] = [
        ("b.txt", b"second letter first"),
        ("a.txt", b"first letter second"),
        ("日本語 ❤.txt", b"\xff\x00PK\x03\x04PK\x05\x06"),
        ("empty", b""),
        (&name, b"long name"),
        ("big.bin", &big),
    ];
    let zip = zipped(&files);
    let mut archive = zip::ZipArchive::new(Cursor::new(&zip)).unwrap();
    assert_eq!(archive.len(), files.len());
    for (index, (name, bytes)) in files.iter().enumerate() {
        let mut file = archive.by_index(index).unwrap();
        assert_eq!((file.name().unwrap().as_ref(), file.size()), (*name, bytes.len() as u64));
        assert_eq!(file.unix_mode(), Some(0o100_644));
        let mut read = Vec::new();
        file.read_to_end(&mut read).unwrap();
        assert_eq!(&read, bytes, "{name}");
    }
    let seen = python(&zip);
    let lines: Vec<_> = seen.lines().collect();
    assert_eq!(lines.len(), files.len());
    assert_eq!(lines[0], "'b.txt' 19 (1980, 1, 1, 0, 0, 0) 0 0o100644 3");
    assert_eq!(lines[2], r"'\u65e5\u672c\u8a9e \u2764.txt' 10 (1980, 1, 1, 0, 0, 0) 0 0o100644 3");
    assert_eq!(zipped(&files), zip, "the same files give the same bytes");
}

#[test]
fn no_files_make_an_empty_zip() {
    let zip = zipped(&[]);
    assert_eq!(zip.len(), 22);
    assert_eq!(python(&zip), "");
}

#[test]
fn many_files_need_a_long_count() {
    let names: Vec<String> = (0..65_535).map(|n| format!("{n}")).collect();
    let files: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &b"x"[..])).collect();
    for (count, is_zip64) in [(65_534, false), (65_535, true)] {
        let out = layout(&files[..count]).central_directory();
        assert_eq!(out[out.len() - 42..].starts_with(b"PK\x06\x07"), is_zip64, "{count}");
        assert_eq!(number(&out, out.len() - 12, 2), count as u64);
    }
    let zip = zipped(&files);
    assert_eq!(zip::ZipArchive::new(Cursor::new(&zip)).unwrap().len(), files.len());
    assert_eq!(python(&zip).lines().count(), files.len());
}

#[test]
fn a_long_file_has_its_sizes_in_zip64_fields() {
    let size = 5 * GIB;
    let local = pretended(&[("long", size)]).local_header(0);
    assert_eq!(&local[..4], b"PK\x03\x04");
    let fields = [(4, 2, 45), (6, 2, 0x800), (8, 2, 0), (10, 2, 0), (12, 2, 0x21), (14, 4, 0x1234_5678)];
    let sizes = [(18, 4, 0xffff_ffff), (22, 4, 0xffff_ffff), (26, 2, 4), (28, 2, 20)];
    let extra = [(34, 2, 1), (36, 2, 16), (38, 8, size), (46, 8, size)];
    for (at, len, expected) in fields.into_iter().chain(sizes).chain(extra) {
        assert_eq!(number(&local, at, len), expected, "at {at}");
    }
    assert_eq!((&local[30..34], local.len()), (&b"long"[..], 54));
}

#[test]
fn the_directory_has_long_sizes_and_offsets_where_they_are() {
    let size = 5 * GIB;
    let layout = pretended(&[("long", size), ("late", 3)]);
    let out = layout.central_directory();
    let second_at = 54 + size;
    let directory_at = second_at + 34 + 3;
    let first = 46 + 4 + 20;
    let second = first + 46 + 4 + 12;
    for (at, len, expected) in [
        // The long file at the start: sizes long, offset short.
        (4, 2, 0x032d),
        (6, 2, 45),
        (20, 4, 0xffff_ffff),
        (24, 4, 0xffff_ffff),
        (28, 2, 4),
        (30, 2, 20),
        (38, 4, 0o100_644 << 16),
        (42, 4, 0),
        (50, 2, 1),
        (52, 2, 16),
        (54, 8, size),
        (62, 8, size),
        // The short file after it: sizes short, offset long.
        (first + 6, 2, 45),
        (first + 20, 4, 3),
        (first + 24, 4, 3),
        (first + 30, 2, 12),
        (first + 42, 4, 0xffff_ffff),
        (first + 50, 2, 1),
        (first + 52, 2, 8),
        (first + 54, 8, second_at),
        // The long end.
        (second + 4, 8, 44),
        (second + 12, 2, 0x032d),
        (second + 14, 2, 45),
        (second + 16, 8, 0),
        (second + 24, 8, 2),
        (second + 32, 8, 2),
        (second + 40, 8, second as u64),
        (second + 48, 8, directory_at),
        // Its locator.
        (second + 60, 4, 0),
        (second + 64, 8, directory_at + second as u64),
        (second + 72, 4, 1),
        // The short end: what fits is as it is.
        (second + 84, 2, 2),
        (second + 86, 2, 2),
        (second + 88, 4, second as u64),
        (second + 92, 4, 0xffff_ffff),
    ] {
        assert_eq!(number(&out, at, len), expected, "at {at}");
    }
    let signatures = [(0, b"PK\x01\x02"), (first, b"PK\x01\x02"), (second, b"PK\x06\x06")];
    for (at, signature) in
        signatures.into_iter().chain([(second + 56, b"PK\x06\x07"), (second + 76, b"PK\x05\x06")])
    {
        assert_eq!(&out[at..at + 4], signature);
    }
    assert_eq!(out.len(), second + 98);
    assert_eq!(layout.total_len(), directory_at + out.len() as u64);
}

#[test]
fn the_mark_for_zip64_is_never_a_true_value() {
    let mark = u64::from(u32::MAX);
    for (size, is_zip64) in [(mark - 1, false), (mark, true), (mark + 1, true)] {
        let local = pretended(&[("f", size)]).local_header(0);
        assert_eq!(local.len(), if is_zip64 { 51 } else { 31 }, "{size}");
    }
    // The second header and the directory begin right at, before and after the mark.
    for (start, is_zip64) in [(mark - 1, false), (mark, true), (mark + 1, true)] {
        let out = pretended(&[("f", start - 31), ("g", 0)]).central_directory();
        assert_eq!(number(&out, 47 + 30, 2), if is_zip64 { 12 } else { 0 }, "{start}");
        let out = pretended(&[("f", start - 31)]).central_directory();
        assert_eq!(out.len(), 47 + 22 + if is_zip64 { 76 } else { 0 }, "{start}");
    }
}

#[test]
fn what_no_zip_can_hold_is_refused() {
    let entry = |name: String, size| ZipEntry { name, size, crc32: 0 };
    assert_eq!(ZipLayout::new(vec![entry("x".repeat(65_536), 0)]).err(), Some(ZipTooBig::Name(65_536)));
    assert_eq!(ZipLayout::new(vec![entry("x".into(), u64::MAX)]).err(), Some(ZipTooBig::Total));
    let half = || entry("x".into(), u64::MAX / 2);
    assert_eq!(ZipLayout::new(vec![half(), half()]).err(), Some(ZipTooBig::Total));
    assert!(ZipLayout::new(vec![half()]).is_ok());
    // Room for the file, none for the directory.
    assert_eq!(ZipLayout::new(vec![entry("x".into(), u64::MAX - 60)]).err(), Some(ZipTooBig::Total));
}
