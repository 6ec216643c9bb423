//! Types: what real files are, what a lying name cannot make of them, and that no bytes are too strange.

use proptest::prelude::*;

use super::*;

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0";
const GIF: &[u8] = b"GIF89a\x01\0\x01\0\x80\0\0\xff\xff\xff\0\0\0;";
const BMP: &[u8] = b"BM:\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\x18\0";
const WEBP: &[u8] = b"RIFF\x1a\0\0\0WEBPVP8L\x0d\0\0\0";
const AVIF: &[u8] = b"\0\0\0\x1cftypavif\0\0\0\0avifmif1miaf";
const JPEG: &[u8] = b"\xff\xd8\xff\xe0\0\x10JFIF\0\x01";

/// A zip whose entries have these names and no bytes.
fn zip(names: &[&str]) -> Vec<u8> {
    names
        .iter()
        .flat_map(|name| [b"PK\x03\x04", &[0; 26][..], name.as_bytes(), b"\x01\x02"].concat())
        .collect()
}

#[test]
fn bytes_tell_whatever_the_name() {
    let tar = [&[1; 257][..], b"ustar\0", &[0; 250]].concat();
    for (head, mime) in [
        (PNG, "image/png"),
        (JPEG, "image/jpeg"),
        (GIF, "image/gif"),
        (WEBP, "image/webp"),
        (AVIF, "image/avif"),
        (BMP, "image/bmp"),
        (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj", "application/pdf"),
        (b"%PDF-1.4\nall of it ASCII", "application/pdf"),
        (b"{\\rtf1\\ansi hello}", "application/rtf"),
        (b"ID3\x03\0\0\0\0\0\x21", "audio/mpeg"),
        (b"RIFF\x24\0\0\0WAVEfmt ", "audio/x-wav"),
        (b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom", "video/mp4"),
        (b"\x1f\x8b\x08\0\0\0\0\0", "application/gzip"),
        (b"\x28\xb5\x2f\xfd\x04\0\0\0", "application/zstd"),
        (&tar, "application/x-tar"),
        (&zip(&["a.txt", "word/x"]), "application/zip"),
        (&zip(&["[Content_Types].xml", "_rels/.rels", "docProps/app.xml", "word/document.xml"]), WORD),
        (&zip(&["docProps/app.xml", "docProps/core.xml", "xl/theme/theme1.xml"]), SHEET),
        (&zip(&["_rels/.rels", "ppt/presentation.xml"]), SLIDES),
        (b"MZ\x90\0\x03\0\0\0", "application/vnd.microsoft.portable-executable"),
        (&[b"\x7fELF\x02\x01\x01\0", &[0; 60][..]].concat(), "application/x-executable"),
        (b"\0\x01\x02\x03 nothing known", UNKNOWN),
        (b"caf\xe9 in Latin-1", UNKNOWN),
    ] {
        for name in ["x", "x.txt", "x.png", "x.html", "x.svg", "x.exe", "image/png"] {
            assert_eq!(sniff(head, name), mime, "{:?} as {name}", String::from_utf8_lossy(head));
        }
    }
}

#[test]
fn among_texts_the_name_tells_and_never_makes_a_picture_of_one() {
    for (text, name, mime) in [
        ("hello", "a.txt", "text/plain"),
        ("hello", "a", "text/plain"),
        ("", "a", "text/plain"),
        ("", "a.png", "text/plain"),
        ("a,b\n1,2\n", "a.csv", "text/csv"),
        ("# hi", "README.md", "text/markdown"),
        ("<div align=center>\n# hi", "README.md", "text/markdown"),
        ("{}", "a.json", "application/json"),
        ("fn main() {}", "a.rs", "text/x-rust"),
        ("#!/bin/sh\n", "run", "text/x-shellscript"),
        ("#!/bin/sh\n", "run.sh", "application/x-sh"),
        ("\u{1b}[31mred", "a.log", "text/plain"),
        ("hello", "a.png", "text/plain"),
        ("hello", "a.svg", "text/plain"),
        ("hello", "a.pdf", "text/plain"),
        ("hello", "a.mp4", "text/plain"),
        ("hello", "a.docx", "text/plain"),
        ("hello", "a.exe", "text/plain"),
        ("BMW and GIF are words", "a.bmp", "text/plain"),
        ("GIF89a=1;alert(1)//", "a.gif", "text/plain"),
        ("how %PDF- files begin", "a.txt", "text/plain"),
        ("<!DOCTYPE html><p>", "a.png", "text/html"),
        ("<!doctype HTML>", "a.txt", "text/html"),
        ("\u{feff} \n<!-- x --><html>", "a.jpg", "text/html"),
        ("<script>alert(1)</script>", "a.png", "text/html"),
        ("<html xmlns='x'>", "a.xhtml", "application/xhtml+xml"),
        ("<svg xmlns='http://www.w3.org/2000/svg' onload='x()'/>", "a.png", "text/xml"),
        ("<svg xmlns='http://www.w3.org/2000/svg'/>", "a.svg", "image/svg+xml"),
        ("<?xml version='1.0'?><!-- x --><s:svg/>", "a.svg", "image/svg+xml"),
        ("<!DOCTYPE svg PUBLIC 'x' [<!ENTITY a '>'>]><svg/>", "a.svg", "image/svg+xml"),
        ("<?xml version='1.0'?><svg/>", "a.gif", "text/xml"),
        ("<?xml version='1.0'?><a/>", "a.png", "text/xml"),
        ("<?xml version='1.0'?><a/>", "a.svg", "text/xml"),
        ("<?xml version='1.0'?><rss/>", "a.rss", "application/rss+xml"),
        ("<?xml version='1.0'?><html/>", "a.txt", "text/html"),
        ("<svgx/>", "a.svg", "text/plain"),
    ] {
        assert_eq!(sniff(text.as_bytes(), name), mime, "{text:?} as {name}");
    }
}

/// A text in UTF-16 with its byte order mark, the lower byte first or last.
fn utf16(text: &str) -> [Vec<u8>; 2] {
    let units = || std::iter::once(0xfeff).chain(text.encode_utf16());
    [units().flat_map(u16::to_le_bytes).collect(), units().flat_map(u16::to_be_bytes).collect()]
}

#[test]
fn utf16_with_its_mark_is_text() {
    let long = "\u{1f600}".repeat(SNIFF_BYTES);
    for (text, name, mime) in [
        ("Größe;Maß\r\n1;2", "a.txt", "text/plain"),
        ("Größe;Maß\r\n1;2", "a.csv", "text/csv"),
        ("", "a.png", "text/plain"),
        (&long, "a.txt", "text/plain"),
        ("a\u{1}b", "a.txt", UNKNOWN),
    ] {
        for bytes in utf16(text) {
            assert_eq!(sniff(&bytes, name), mime, "{text:?} as {name}");
            assert_eq!(decoded(&bytes, true).as_deref(), Some(text));
        }
    }
    let [cut, _] = utf16("a\u{1f600}");
    for (bytes, whole, text) in [
        (&cut[..6], true, None),
        (&cut[..6], false, Some("a")),
        (&cut[..7], false, Some("a")),
        (&cut[..5], true, None),
        (b"\xff\xfe\0\xdc", false, None),
        (b"a\xc3", false, Some("a")),
        (b"a\xc3", true, None),
    ] {
        assert_eq!(decoded(bytes, whole).as_deref(), text, "{bytes:?}");
    }
    // UTF-32 begins as it does.
    assert_eq!(sniff(b"\xff\xfe\0\0a\0\0\0", "a.txt"), UNKNOWN);
}

#[test]
fn letters_at_the_start_of_bytes_make_no_picture() {
    for head in
        [&b"BM\0\0 not a bitmap, but long enough to be"[..], b"GIF\0\0\0", b"abcd\0\0\0\0WEBP", b"BM\x01"]
    {
        assert_eq!(sniff(head, "x.png"), UNKNOWN, "{head:?}");
    }
}

#[test]
fn what_old_office_files_are_stands_in_their_name() {
    let head = [OLE, &[0; 600]].concat();
    assert_eq!(sniff(&head, "a.doc"), "application/msword");
    assert_eq!(sniff(&head, "a.XLS"), "application/vnd.ms-excel");
    assert_eq!(sniff(&head, "a.ppt"), "application/vnd.ms-powerpoint");
    for name in ["a", "a.png", "a.txt", "a.pdf"] {
        assert_eq!(sniff(&head, name), "application/x-ole-storage", "{name}");
    }
    let far = zip(&["[Content_Types].xml", &"x".repeat(SNIFF_BYTES), "word/"]);
    assert_eq!(sniff(&far, "a.docx"), WORD);
    assert_eq!(sniff(&far, "a.png"), "application/zip");
}

#[test]
fn a_character_may_be_cut_where_the_look_ends_and_nowhere_else() {
    let long = "é".repeat(SNIFF_BYTES);
    assert_eq!(sniff(&long.as_bytes()[..SNIFF_BYTES], "x"), "text/plain");
    assert_eq!(sniff(format!("a{long}").as_bytes(), "x"), "text/plain");
    assert_eq!(sniff(&long.as_bytes()[..99], "x"), UNKNOWN);
    let mut late = vec![b'a'; SNIFF_BYTES];
    late.extend(b"\0\xff");
    assert_eq!(sniff(&late, "x"), "text/plain");
}

#[test]
fn families() {
    for (mime, expected) in [
        ("image/png", Some(Family::Image)),
        ("image/svg+xml", Some(Family::Image)),
        ("application/pdf", Some(Family::Pdf)),
        ("text/plain", Some(Family::Text)),
        ("text/html", Some(Family::Text)),
        ("application/json", Some(Family::Text)),
        ("application/x-sh", Some(Family::Text)),
        ("application/rss+xml", Some(Family::Text)),
        (WORD, Some(Family::Office)),
        ("application/msword", Some(Family::Office)),
        ("application/rtf", Some(Family::Office)),
        ("application/vnd.oasis.opendocument.text", Some(Family::Office)),
        ("audio/mpeg", Some(Family::Audio)),
        ("video/mp4", Some(Family::Video)),
        ("application/zip", Some(Family::Archive)),
        ("application/x-tar", Some(Family::Archive)),
        ("application/vnd.rar", Some(Family::Archive)),
        ("application/vnd.microsoft.portable-executable", None),
        (UNKNOWN, None),
        ("", None),
        ("image", None),
    ] {
        assert_eq!(family(mime), expected, "{mime}");
    }
    for family in Family::ALL {
        assert_eq!(Family::parse(family.as_str()), Some(family));
    }
    for text in ["", "Image", "images", "pdf "] {
        assert_eq!(Family::parse(text), None, "{text}");
    }
}

#[test]
fn only_pictures_made_of_dots_show_inline() {
    for head in [PNG, JPEG, GIF, WEBP, AVIF, BMP] {
        assert!(shows_inline(&sniff(head, "x.html")));
    }
    for mime in ["image/svg+xml", "image/tiff", "text/html", "text/plain", "application/pdf", "", "image/PNG"]
    {
        assert!(!shows_inline(mime), "{mime}");
    }
}

proptest! {
    #[test]
    fn any_bytes_have_a_type(
        magic in prop::sample::select(vec![
            &b""[..], PNG, OLE, b"PK\x03\x04", b"\x28\xb5\x2f\xfd", b"\x50\x2a\x4d\x18\xff\xff\xff\xff", b"ustar",
            b"\0\0\0\x18ftyp", b"RIFF", b"<", b"<?xml", b"<!doctype", b"<!--", b"\x7fELF", b"MZ", b"BOOKMOBI",
        ]),
        rest in prop::collection::vec(any::<u8>(), 0..400),
        name in ".{0,12}\\.(png|svg|docx|html|txt|doc)",
    ) {
        let mime = sniff(&[magic, &rest].concat(), &name);
        prop_assert!(mime.contains('/'));
    }

    #[test]
    fn no_text_is_shown_inline(text in "(<|!|-|\\?|svg|html|xml|GIF89a|BM|RIFFabcdWEBP|\\PC|\n){0,60}", name in ".{0,9}\\.png") {
        let mime = sniff(text.as_bytes(), &name);
        prop_assert!(!mime.starts_with("image/"), "{mime}");
    }
}
