//! Other people's text before it reaches a terminal: what would move the cursor, change colours or turn the
//! writing around is replaced by something that can be seen.

/// Line breaks and tabs stay; all else that steers a terminal becomes visible.
pub fn clean(text: &str) -> String {
    text.chars().filter(|c| *c != '\r').map(visible).collect()
}

/// As `clean`, on one line, cut to a number of characters.
pub fn one_line(text: &str, most: usize) -> String {
    let mut words = text.split(|c: char| c.is_whitespace()).filter(|word| !word.is_empty());
    let mut line = clean(words.next().unwrap_or_default());
    for word in words {
        line.push(' ');
        line.push_str(&clean(word));
        // Enough to cut; the rest is not looked at.
        if line.len() > most * 4 {
            break;
        }
    }
    if line.chars().count() > most {
        line = line.chars().take(most.saturating_sub(1)).chain(['…']).collect();
    }
    line
}

fn visible(c: char) -> char {
    match c {
        '\n' | '\t' => c,
        // The pictures of the control characters, in their order.
        '\0'..='\u{1f}' => char::from_u32(0x2400 + c as u32).unwrap_or('\u{fffd}'),
        '\u{7f}' => '\u{2421}',
        '\u{80}'..='\u{9f}' => '\u{fffd}',
        // Embeddings, overrides and isolates, marks, and the line ends of Unicode.
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{61c}' => '\u{fffd}',
        '\u{2028}' | '\u{2029}' => '\n',
        // Tags, which nobody sees.
        '\u{e0000}'..='\u{e007f}' | '\u{feff}' => '\u{fffd}',
        _ => c,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_steers_a_terminal_is_shown_instead() {
        for (raw, shown) in [
            ("plain é 🙂 日本", "plain é 🙂 日本"),
            ("a\tb\nc", "a\tb\nc"),
            ("a\r\nb", "a\nb"),
            ("\u{1b}[31mred", "␛[31mred"),
            ("\u{1b}]0;title\u{7}", "␛]0;title␇"),
            ("\u{9b}2J\u{7f}", "\u{fffd}2J␡"),
            ("abc\u{202e}fed", "abc\u{fffd}fed"),
        ] {
            assert_eq!(clean(raw), shown);
        }
        assert_eq!(one_line("  a\n b\u{1b}\tc ", 20), "a b␛ c");
        assert_eq!(one_line("abcdef", 4), "abc…");
    }

    proptest! {
        #[test]
        fn nothing_that_is_cleaned_has_a_control_character(text in ".*") {
            prop_assert!(clean(&text).chars().all(|c| matches!(c, '\n' | '\t') || !c.is_control()));
            prop_assert!(!one_line(&text, 40).contains(char::is_control));
        }
    }
}
