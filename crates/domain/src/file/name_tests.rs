//! Names: those the rules speak of one by one, a thousand hostile ones, and any at all.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;
use unicode_normalization::is_nfc;

use super::*;

const DEVICES: [&str; 32] = [
    "con", "prn", "aux", "nul", "com0", "com1", "com2", "com3", "com4", "com5", "com6", "com7", "com8",
    "com9", "com¹", "com²", "com³", "lpt0", "lpt1", "lpt2", "lpt3", "lpt4", "lpt5", "lpt6", "lpt7", "lpt8",
    "lpt9", "lpt¹", "lpt²", "lpt³", "conin$", "conout$",
];

/// Written apart from the rule it checks: what no name that leaves here may be.
fn fault(name: &str) -> Option<&'static str> {
    let unseen = |c: char| {
        matches!(u32::from(c), 0..=0x1f | 0x7f..=0x9f | 0x61c | 0x200b..=0x200f | 0x2028..=0x202e
            | 0x2060..=0x206f | 0xfeff | 0xe0001..=0xe007f)
    };
    let stem = name.split('.').next().unwrap().trim_end().to_lowercase();
    [
        (name.is_empty(), "empty"),
        (name == "." || name == "..", "a folder"),
        (name.len() > 255, "too long"),
        (name.contains(['/', '\\', '\0']), "a separator"),
        (name.contains(unseen), "an invisible character"),
        (name.ends_with(['.', ' ']), "a dot or space at the end"),
        (!is_nfc(name), "not NFC"),
        (DEVICES.contains(&stem.as_str()), "a device"),
        (name.to_lowercase() == "assets", "a run's folder"),
    ]
    .into_iter()
    .find_map(|(bad, what)| bad.then_some(what))
}

fn check(sent: &str) {
    let name = safe_name(sent);
    assert_eq!(fault(&name), None, "{sent:?} became {name:?}");
    assert_eq!(safe_name(&name), name, "{sent:?} is not stable");
    assert_eq!(name_key(&name_key(&name)), name_key(&name), "the key of {name:?} is not stable");
    let mut keys = HashSet::from([name_key(&name)]);
    for n in [1, 10, u32::MAX] {
        let next = numbered(&name, n);
        assert_eq!(fault(&next), None, "{name:?} number {n} is {next:?}");
        assert_eq!(safe_name(&next), next, "{name:?} number {n} is not stable");
        assert!(keys.insert(name_key(&next)), "{name:?} number {n} is {next:?} again");
    }
}

#[test]
fn a_name_keeps_what_is_safe() {
    for same in [
        "report.pdf",
        "a.tar.gz",
        ".bashrc",
        "noext",
        "Quarterly report (final) #2.xlsx",
        "日本語.txt",
        "naïve.md",
        "❤\u{fe0f}.txt",
        " leading.txt",
        "a:b.txt",
        "..a",
        "a..b",
        "-rf",
        "~",
        "%2e%2e%2f",
        "con-1",
        "console.txt",
        "com10",
        "assets.txt",
        "assets-1",
        "com",
        "'; drop table files; --",
        "<img src=x>",
        "a?b*c|d\"e",
    ] {
        assert_eq!(safe_name(same), same);
    }
    for (sent, name) in [
        ("a/b.txt", "b.txt"),
        ("a\\b.txt", "b.txt"),
        ("C:\\Users\\me\\x.doc", "x.doc"),
        ("../../etc/passwd", "passwd"),
        ("folder/", "folder"),
        ("", "file"),
        (".", "file"),
        ("..", "file"),
        ("...", "file"),
        ("/", "file"),
        ("a/..", "file"),
        (" ", "file"),
        ("\0", "file"),
        ("\u{200b}", "file"),
        (" . .", "file"),
        ("a.png\0.exe", "a.png.exe"),
        ("a\r\nb.txt", "ab.txt"),
        ("gpj.\u{202e}exe", "gpj.exe"),
        ("x. . ", "x"),
        ("e\u{301}.txt", "é.txt"),
        ("e\u{200d}\u{301}.txt", "é.txt"),
        ("CON", "_CON"),
        ("nul.tar.gz", "_nul.tar.gz"),
        ("Com1 .txt", "_Com1 .txt"),
        ("lpt¹", "_lpt¹"),
        ("aux:x", "_aux:x"),
        ("n\u{200b}ul", "_nul"),
        ("assets", "_assets"),
        ("Assets.", "_Assets"),
        ("x/ASSETS", "_ASSETS"),
        ("aſſets", "_aſſets"),
    ] {
        assert_eq!(safe_name(sent), name, "{sent:?}");
    }
}

#[test]
fn a_name_from_before_one_was_reserved_can_be_read_back() {
    for name in ["a.txt", "_assets", "assets", "Assets"] {
        assert!(is_safe_name(name), "{name}");
    }
    for name in ["", "..", "a/b", "con", "assets.", "a\u{200b}"] {
        assert!(!is_safe_name(name), "{name}");
    }
}

#[test]
fn a_long_name_is_cut_before_its_extension_and_between_graphemes() {
    let long = |stem: &str, times: usize, rest: &str| safe_name(&format!("{}{rest}", stem.repeat(times)));
    assert_eq!(long("a", 300, ".pdf"), format!("{}.pdf", "a".repeat(251)));
    assert_eq!(long("a", 300, ".tar.gz"), format!("{}.tar.gz", "a".repeat(248)));
    assert_eq!(long("é", 200, ".txt"), format!("{}.txt", "é".repeat(125)));
    assert_eq!(long("👩🏽", 40, ".txt"), format!("{}.txt", "👩🏽".repeat(31)));
    assert_eq!(long("a", 255, ""), "a".repeat(255));
    assert_eq!(long("x.", 1, &"y".repeat(300)), format!("x.{}", "y".repeat(253)));
    assert_eq!(long(" ", 300, "x"), "file");
    assert_eq!(safe_name(&format!("con{}x", " ".repeat(300))), "_con");
    assert_eq!(safe_name(&format!("q{}", "\u{301}".repeat(300))).len(), 255);
}

#[test]
fn a_number_goes_before_the_extension() {
    for (name, expected) in [
        ("report.pdf", "report-1.pdf"),
        ("a.tar.gz", "a-1.tar.gz"),
        ("A.TAR.XZ", "A-1.TAR.XZ"),
        (".bashrc", ".bashrc-1"),
        ("noext", "noext-1"),
        ("v1.2.pdf", "v1.2-1.pdf"),
        (".tar.gz", ".tar-1.gz"),
        ("tar.gz", "tar-1.gz"),
        ("..a", ".-1.a"),
        ("Dr. No", "Dr. No-1"),
        ("日本語.txt", "日本語-1.txt"),
        ("a.日本語", "a-1.日本語"),
        ("étar.gz", "étar-1.gz"),
    ] {
        assert_eq!(numbered(name, 1), expected);
    }
    let long = format!("{}.pdf", "a".repeat(251));
    assert_eq!(numbered(&long, 12), format!("{}-12.pdf", "a".repeat(248)));
}

#[test]
fn names_that_differ_in_case_width_or_composition_share_a_key() {
    for (one, other) in [
        ("Report.PDF", "report.pdf"),
        ("STRASSE", "straße"),
        ("STRAẞE", "straße"),
        ("ΣΊΣΥΦΟΣ", "σίσυφος"),
        ("ÉTÉ", "e\u{301}te\u{301}"),
        ("ｆｕｌｌ", "FULL"),
        ("ﬁle", "FILE"),
        ("K", "\u{212a}"),
        ("ᾳ", "ΑΙ"),
        ("ꭰ", "Ꭰ"),
        ("İ", "i\u{307}"),
    ] {
        assert_eq!(name_key(one), name_key(other), "{one} {other}");
    }
    for (one, other) in [("a", "b"), ("a", "a-1"), ("é", "e"), ("a b", "ab"), ("1", "l")] {
        assert_ne!(name_key(one), name_key(other), "{one} {other}");
    }
    for c in '\0'..=char::MAX {
        let (upper, lower): (String, String) = (c.to_uppercase().collect(), c.to_lowercase().collect());
        if upper != lower {
            let key = name_key(&upper);
            assert_eq!(name_key(&lower), key, "{c:?} in both cases");
            assert_eq!(name_key(&String::from(c)), key, "{c:?} and its upper case");
            assert_eq!(name_key(&key), key, "{c:?} and its key");
        }
    }
}

/// Every bad piece in every place it could do harm.
fn hostile() -> Vec<String> {
    let paths = [
        "../",
        "..\\",
        "/",
        "\\\\server\\share\\",
        "C:\\",
        "a/../../",
        "./",
        "....//",
        "..%2f",
        "/proc/self/",
    ];
    let pieces = [
        "",
        ".",
        "..",
        "...",
        " ",
        "\0",
        "\n",
        "\r\n",
        "\t",
        "\u{1b}[31m",
        "\u{7f}",
        "\u{85}",
        "\u{a0}",
        "\u{200b}",
        "\u{200d}",
        "\u{200e}",
        "\u{202e}",
        "\u{2028}",
        "\u{2066}",
        "\u{2060}",
        "\u{feff}",
        "\u{3164}",
        "\u{fffd}",
        "\u{ffff}",
        "\u{e0041}",
        "\u{301}",
        "\u{345}",
        "\u{fe0f}",
        "👨‍👩‍👧‍👦",
        "🏴",
        "Å",
        "ﷺ",
        "⁄",
        "／",
        "＼",
        "․",
        "‥",
        "…",
        "$(id)",
        "`id`",
        "; rm -rf ~",
        "| nc",
        "&&",
        "<script>",
        "\"",
        "'",
        "*",
        "?",
        "%00",
        "%2e%2e",
        "~",
        "-",
        "--",
        "{{7*7}}",
        "${x}",
        "=cmd()",
        "@SUM(1)",
        "desktop.ini",
        ".htaccess",
        ".git",
        "index.html",
    ];
    let mut names = Vec::new();
    for piece in pieces.into_iter().chain(DEVICES) {
        let many = piece.repeat(300);
        names.extend(paths.map(|path| format!("{path}{piece}")));
        names.extend([
            piece.to_owned(),
            piece.to_uppercase(),
            format!("{piece}.txt"),
            format!("a{piece}"),
            format!("{piece}a"),
            format!("a{piece}.tar.gz"),
            format!("a.{piece}"),
            format!("{piece} ."),
            format!("{piece}/"),
            format!("{piece}\0"),
            format!("\u{202e}{piece}\u{200b}.exe"),
            format!("{many}.pdf"),
            format!("a.{many}"),
            format!("{piece}.{}", "x".repeat(300)),
            format!("{piece}{}x", " ".repeat(300)),
            many,
        ]);
    }
    names
}

#[test]
fn hostile_names_come_out_safe_and_stay_so() {
    let names = hostile();
    assert!(names.len() >= 500, "{}", names.len());
    names.iter().for_each(|name| check(name));
    // As a bag fills: no two names share a key, whatever was sent.
    let (mut taken, mut counts) = (HashSet::new(), HashMap::new());
    for name in &names {
        let name = safe_name(name);
        let n = counts.entry(name_key(&name)).or_insert(0);
        if !taken.insert(name_key(&name)) {
            while !taken.insert(name_key(&numbered(&name, *n + 1))) {
                *n += 1;
            }
        }
    }
    assert_eq!(taken.len(), names.len());
}

proptest! {
    #[test]
    fn any_name_comes_out_safe(sent in any::<String>()) {
        check(&sent);
    }

    #[test]
    fn any_mixture_of_what_matters_comes_out_safe(
        sent in "([./\\\\: ]|con|NUL|lpt1|\u{301}|\u{345}|\u{200d}|\u{202e}|é|ß|👩🏽|\\.tar|\\.gz|[a-z]{1,90}|\\PC){0,40}"
    ) {
        check(&sent);
    }
}
