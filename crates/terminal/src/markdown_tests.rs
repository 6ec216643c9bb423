//! Markdown as a terminal shows it.

use proptest::prelude::*;

use super::*;
use crate::wrap::texts;

fn shown(text: &str, width: usize) -> String {
    texts(&markdown(text, width)).join("\n")
}

#[test]
fn blocks_stand_apart_and_lists_together() {
    let text =
        "# Title\n\nOne *two* **three**\nfour\n\n- a\n- b\n  - c\n\n1. x\n2. y\n\n> quoted\n\n---\nend";
    let wanted = "Title\n\nOne two three four\n\n• a\n• b\n  • c\n\n1. x\n2. y\n\n│ quoted\n\n\
                  ────────────────────────────────────────\n\nend";
    assert_eq!(shown(text, 60), wanted);
}

#[test]
fn long_lines_wrap_behind_their_margins() {
    assert_eq!(shown("- one two three\n- four", 9), "• one two\n  three\n• four");
    assert_eq!(shown("> one two three", 9), "│ one two\n│ three");
}

#[test]
fn code_keeps_its_spaces_and_may_be_unfinished() {
    assert_eq!(shown("```rust\nfn main() {\n    a();\n}\n```", 40), "  fn main() {\n      a();\n  }");
    assert_eq!(shown("Look:\n```py\nprint(", 40), "Look:\n\n  print(");
    assert_eq!(shown("`a  b`", 40), "a  b");
}

#[test]
fn tables_have_columns_that_fit() {
    let table = "| name | n |\n|---|---|\n| alpha | 1 |\n| b | 22 |";
    assert_eq!(shown(table, 40), "name  │ n\n──────┼───\nalpha │ 1\nb     │ 22");
    assert_eq!(
        shown("| a | b |\n|---|---|\n| one two three | x |", 12),
        "a        │ b\n─────────┼──\none two  │ x\nthree    │ "
    );
}

#[test]
fn a_link_says_where_it_leads() {
    assert_eq!(shown("[here](https://a.example/b)", 60), "here (https://a.example/b)");
    assert_eq!(shown("<https://a.example>", 60), "https://a.example");
    assert_eq!(shown("![cat](http://a.example/c.png)", 60), "cat (http://a.example/c.png)");
}

#[test]
fn nothing_steers_the_terminal_however_it_is_written() {
    for text in [
        "\u{1b}[2J",
        "&#27;[2J",
        "&#x9b;2J",
        "`\u{1b}]0;x\u{7}`",
        "```\n\u{1b}c\n```",
        "[a](b\u{1b}c)",
        "<b>\u{8}</b>",
    ] {
        let shown = shown(text, 40);
        assert!(!shown.contains(|c: char| c.is_control() && c != '\n'), "{text:?}: {shown:?}");
    }
    assert_eq!(shown("<script>x</script>", 40), "<script>x</script>");
}

proptest! {
    #[test]
    fn any_text_gives_harmless_lines(text in "[ -~\\n*_`#>|\\-é日]{0,300}", width in 8..80_usize) {
        for line in markdown(&text, width) {
            prop_assert!(line.spans.iter().all(|span| !span.content.contains(char::is_control)));
        }
        // Whatever was cut anywhere is shown as far as it goes.
        if let Some((cut, _)) = text.char_indices().nth(text.chars().count() / 2) {
            markdown(&text[..cut], width);
        }
    }
}
