//! Words of many scripts, queries for both indexes, highlights and order; then properties of all of it.

use proptest::prelude::*;
use uuid::Uuid;

use super::*;

fn query(text: &str) -> Query {
    Query::parse(text).expect(text)
}

#[test]
fn words_of_many_scripts() {
    for (text, expected) in [
        ("", ""),
        (" \t--… ", ""),
        ("Hello, World!", "hello world"),
        ("foo_bar e-mail can't a.b.c 3.14", "foo bar e mail can t a b c 3 14"),
        ("Café cafe\u{301} CAFÉ", "cafe cafe cafe"),
        ("Straße STRASSE GROẞ", "strasse strasse gross"),
        ("ΣΊΣΥΦΟΣ Σίσυφος", "σισυφοσ σισυφοσ"),
        ("İstanbul ISTANBUL", "istanbul istanbul"),
        ("Ёлка Йод", "елка иод"),
        ("日本語です", "日 本 語 で す"),
        ("東京tower", "東 京 tower"),
        ("データベース ﾃﾞｰﾀﾍﾞｰｽ", "データベース データベース"),
        ("が か\u{3099}", "が が"),
        ("한국어 \u{1112}\u{1161}\u{11ab}국어", "한국어 한국어"),
        ("हिन्दी", "हिन्दी"),
        ("ไทย", "ไ ท ย"),
        ("ﬁne Ⅳ ½ ①", "fine iv 1 2 1"),
        ("ＦＵＬＬ　ｗｉｄｔｈ", "full width"),
        ("so\u{ad}ft می\u{200c}خواهم", "soft میخواهم"),
        ("🙂 x🙂y 👨\u{200d}👩\u{200d}👧", "x y"),
        ("\u{301}a -\u{301}b", "a b"),
        ("hóa đơn Smørrebrød ŁADNY Ħamrun", "hoa don smorrebrod ladny hamrun"),
        ("ılık ILIK Æther cœur Þór garður ǿ", "ilik ilik aether coeur thor gardur o"),
        ("كِتَابٌ كتـــاب أَحْمَد آمال إلى مُؤمن", "كتاب كتاب احمد امال الى مومن"),
        ("שָׁלוֹם שׁלום בֵּית־סֵפֶר", "שלום שלום בית ספר"),
        ("किताब กำลัง বাংলা", "किताब ก\u{e4d} า ล\u{e31} ง বাংলা"),
    ] {
        assert_eq!(index_text(text), expected, "{text}");
    }
}

#[test]
fn words_keep_their_place() {
    let found: Vec<_> =
        words("Ein e\u{301}té-日本\u{a0}x").into_iter().map(|w| (w.folded, w.start, w.end)).collect();
    let expected = [("ein", 0, 3), ("ete", 4, 8), ("日", 9, 10), ("本", 10, 11), ("x", 12, 13)];
    assert_eq!(found, expected.map(|(folded, start, end)| (folded.to_owned(), start, end)));
}

#[test]
fn indexes_are_bounded() {
    assert_eq!(words(&"a ".repeat(20_000)).len(), MAX_INDEX_WORDS);
    assert_eq!(words(&"語".repeat(20_000)).len(), MAX_INDEX_WORDS);
    assert_eq!(words(&"x".repeat(1_000_000))[0].folded.len(), MAX_WORD_CHARS);
    // One character that folds to eighteen, in four words.
    assert!(index_text(&"\u{fdfa} ".repeat(100_000)).len() <= MAX_INDEX_BYTES);
    let vector = index_tsvector(&"a ".repeat(1_000));
    assert!(vector.starts_with("'a':1,2,") && vector.ends_with(",255"), "{vector}");
}

#[test]
fn tsvectors_list_positions() {
    assert_eq!(index_tsvector(""), "");
    assert_eq!(index_tsvector("the cat, THE 'dog'"), "'cat':2 'dog':4 'the':1,3");
}

#[test]
fn queries_become_phrases() {
    for (text, fts5, tsquery) in [
        ("Foo", r#""foo" *"#, "('foo':*)"),
        ("foo bar", r#""foo" * AND "bar" *"#, "('foo':*) & ('bar':*)"),
        ("exam-ple x", r#""exam ple" * AND "x" *"#, "('exam' <-> 'ple':*) & ('x':*)"),
        ("日本", r#""日 本" *"#, "('日' <-> '本':*)"),
        (
            r#"a" OR "b NEAR(*"#,
            r#""a" * AND "or" * AND "b" * AND "near" *"#,
            "('a':*) & ('or':*) & ('b':*) & ('near':*)",
        ),
        (r"a'\:*|!&b", r#""a b" *"#, "('a' <-> 'b':*)"),
        // As it is folded now, or as it was before.
        ("Łódź x", r#"("lodz" * OR "łodz" *) AND "x" *"#, "(('lodz':*) | ('łodz':*)) & ('x':*)"),
    ] {
        assert_eq!(query(text).fts5(), fts5);
        assert_eq!(query(text).tsquery(), tsquery);
        assert_eq!(query(text).fts5_whole(), fts5.replace(" *", ""));
        assert_eq!(query(text).tsquery_whole(), tsquery.replace(":*", ""));
    }
    for empty in ["", "  ", "*", "\"", "'--", "🙂", "\u{301}"] {
        assert_eq!(Query::parse(empty), None, "{empty:?}");
    }
    assert_eq!(query(&"a ".repeat(40)).phrases().len(), MAX_QUERY_WORDS);
    assert_eq!(query(&"語".repeat(40)).phrases(), [vec!["語".to_owned(); MAX_QUERY_WORDS]]);
}

#[test]
fn texts_match_by_phrase_and_prefix() {
    for (text, asked, expected) in [
        ("Q1 invoice reconciliation", "invoice", MatchKind::Whole),
        ("Q1 invoice reconciliation", "inv", MatchKind::Prefix),
        ("Q1 invoice reconciliation", "reconciliation q1", MatchKind::Whole),
        ("Q1 invoice reconciliation", "invoice rec", MatchKind::Prefix),
        ("Q1 invoice reconciliation", "voice", MatchKind::None),
        ("Q1 invoice reconciliation", "invoice paid", MatchKind::None),
        ("Q1 invoice reconciliation", "q1-rec", MatchKind::None),
        ("invoices, then the invoice", "invoice", MatchKind::Whole),
        ("an e-mail", "e-ma", MatchKind::Prefix),
        ("mail e", "e-mail", MatchKind::None),
        ("東京都の天気", "京都", MatchKind::Whole),
        ("東京都の天気", "京天", MatchKind::None),
        ("Crème brûlée", "creme BRULEE", MatchKind::Whole),
        ("", "a", MatchKind::None),
    ] {
        assert_eq!(matches(text, &query(asked)), expected, "{asked} in {text}");
    }
}

#[test]
fn titles_are_highlighted_whole() {
    for (title, asked, expected) in [
        ("Unpaid invoices", "inv", vec![[7, 10]]),
        ("Unpaid invoices", "invoices un", vec![[0, 2], [7, 15]]),
        ("an e-mail", "e-ma", vec![[3, 4], [5, 7]]),
        ("東京都庁", "京都", vec![[1, 3]]),
        ("cafe\u{301}s", "café", vec![[0, 5]]),
        ("cafe\u{301}s", "caf", vec![[0, 3]]),
        ("Straßen", "stras", vec![[0, 5]]),
        ("Straßen", "strasse", vec![[0, 6]]),
        ("so\u{ad}ft", "sof", vec![[0, 4]]),
        ("ﬁnd", "f", vec![[0, 1]]),
        ("㍿ x", "会社", vec![[0, 1]]),
        ("👍🏽 ok ok", "o ok", vec![[3, 5], [6, 8]]),
        ("क्षमा", "क", vec![[0, 3]]),
    ] {
        let found = highlight_title(title, &query(asked)).expect(title);
        assert_eq!(found.ranges, expected, "{asked} in {title}");
        assert_eq!((found.field, found.text.as_str()), ("title", title));
    }
    assert_eq!(highlight_title("Unpaid invoices", &query("paid")), None);
}

#[test]
fn messages_are_shown_around_the_first_match() {
    let query = query("needle");
    let id = Uuid::from_u128(7);
    let long = format!("{}Needles  and\npins {}", "lorem ipsum ".repeat(40), "dolor sit ".repeat(40));
    let found = highlight_message(id, &long, &query).unwrap();
    assert!(found.text.starts_with("lorem ipsum lorem"), "{}", found.text);
    assert!(
        found.text.contains("ipsum Needles  and\npins dolor") && found.text.ends_with("sit"),
        "{}",
        found.text
    );
    assert!((140..=160).contains(&found.text.chars().count()));
    assert_eq!(under(&found), ["Needle"]);

    let short = highlight_message(id, " a needle ", &query).unwrap();
    assert_eq!((short.text.as_str(), short.ranges), (" a needle ", vec![[3, 9]]));
    let at_end = highlight_message(id, &format!("{}needle", "ab ".repeat(100)), &query).unwrap();
    assert!(at_end.text.starts_with("ab ab") && at_end.text.ends_with("ab needle"));
    let one_word =
        highlight_message(id, &format!("{} needle{}", "x".repeat(500), "y".repeat(500)), &query).unwrap();
    assert!(one_word.text.starts_with("needleyyy") && one_word.text.chars().count() <= 160);
    assert_eq!(highlight_message(id, "hay", &query), None);

    let json = serde_json::to_value(&at_end).unwrap();
    assert_eq!(json["field"], "message");
    assert_eq!(json["message_id"], id.to_string());
    let title = serde_json::to_string(&highlight_title("needle", &query)).unwrap();
    assert_eq!(title, r#"{"field":"title","text":"needle","ranges":[[0,6]]}"#);
}

#[test]
fn hits_have_an_order() {
    let hit = |title, messages, updated_at_ms| Hit { title, messages, updated_at_ms }.score();
    let best_first = [
        hit(MatchKind::Whole, 0, 1),
        hit(MatchKind::Prefix, 9, 9),
        hit(MatchKind::Prefix, 2, 1),
        hit(MatchKind::Prefix, 1, 9),
        hit(MatchKind::None, 5, 3),
        hit(MatchKind::None, 5, 2),
        hit(MatchKind::None, 1, 9),
    ];
    assert!(best_first.is_sorted_by(|a, b| a > b));
}

fn under(found: &Highlight) -> Vec<String> {
    let piece = |[start, end]: &[usize; 2]| found.text.chars().skip(*start).take(end - start).collect();
    found.ranges.iter().map(piece).collect()
}

const PIECES: [&str; 24] = [
    "Invoice",
    "Straße",
    "Café",
    "cafe\u{301}",
    "日本語",
    "ひらが",
    "データ",
    "ﾃﾞｰﾀ",
    "สวัสดี",
    "हिन्दी",
    "क्ष",
    "한국어",
    "\u{1112}\u{1161}",
    "İstanbul",
    "ΣΑΣ",
    "foo_bar",
    "can't",
    "e-mail",
    "x\u{ad}y",
    "🙂",
    "👨\u{200d}👩",
    "שָׁלוֹם",
    "3.14",
    "\u{301}",
];

fn text() -> impl Strategy<Value = String> {
    let piece =
        prop_oneof![3 => prop::sample::select(PIECES.to_vec()).prop_map(str::to_owned), 1 => ".{0,4}"];
    let between = prop::sample::select(vec!["", " ", "  ", ", ", "-", "\n", "\u{3000}"]);
    prop::collection::vec((piece, between), 0..40)
        .prop_map(|all| all.into_iter().map(|(piece, between)| piece + between).collect())
}

proptest! {
    #[test]
    fn words_are_clean_and_in_order(text in text()) {
        let length = text.chars().count();
        let mut before = 0;
        for word in words(&text) {
            prop_assert!(before <= word.start && word.start < word.end && word.end <= length, "{:?}", word);
            before = word.start;
            prop_assert_eq!(word.ends.len(), word.folded.chars().count());
            prop_assert!(word.ends.is_sorted() && word.ends.iter().all(|end| word.start < *end && *end <= word.end));
            prop_assert!(!word.folded.contains(|c: char| c.is_whitespace() || c.is_ascii_punctuation()));
        }
    }

    #[test]
    fn folding_twice_changes_nothing(text in text()) {
        let once = index_text(&text);
        prop_assert_eq!(index_text(&once), once);
    }

    #[test]
    fn a_text_matches_the_beginnings_of_its_own_words(text in text(), pick: prop::sample::Index, cut: prop::sample::Index) {
        let words = words(&text);
        prop_assume!(!words.is_empty());
        let word = &words[pick.index(words.len())].folded;
        let typed: String = word.chars().take(1 + cut.index(word.chars().count())).collect();
        let query = query(&typed);
        prop_assert_ne!(matches(&text, &query), MatchKind::None, "{}", typed);
        prop_assert!(highlight_title(&text, &query).is_some());
        if typed == *word {
            prop_assert_eq!(matches(&text, &query), MatchKind::Whole);
        }
    }

    #[test]
    fn highlights_cover_what_matched(text in text(), pick: prop::sample::Index, cut: prop::sample::Index) {
        let all = words(&text);
        prop_assume!(!all.is_empty());
        let word = &all[pick.index(all.len())].folded;
        let typed: String = word.chars().take(1 + cut.index(word.chars().count())).collect();
        let query = query(&typed);
        for found in [highlight_title(&text, &query).unwrap(), highlight_message(Uuid::nil(), &text, &query).unwrap()] {
            let length = found.text.chars().count();
            prop_assert!(text.contains(&found.text) && !found.ranges.is_empty());
            prop_assert!(found.ranges.iter().all(|[start, end]| start < end && *end <= length));
            prop_assert!(found.ranges.is_sorted_by(|a, b| a[1] < b[0]));
            for piece in under(&found) {
                // A character such as ¼ is several words, and any of them may be the one that matched.
                let is_match = words(&piece).iter().any(|word| word.folded.starts_with(&typed));
                prop_assert!(is_match, "{} under {}", piece, typed);
            }
        }
    }

    #[test]
    fn no_text_breaks_the_query_languages(text in ".{0,60}") {
        if let Some(query) = Query::parse(&text) {
            let words = query.phrases().concat();
            let before: Vec<&Vec<String>> = query.before.iter().flatten().collect();
            prop_assert!(words.len() <= MAX_QUERY_WORDS);
            prop_assert!(words.iter().all(|word| !word.contains(|c: char| c.is_ascii() && !c.is_ascii_alphanumeric())));
            prop_assert_eq!(query.fts5().matches('"').count(), 2 * (query.phrases().len() + before.len()));
            prop_assert_eq!(query.tsquery().matches('\'').count(), 2 * (words.len() + before.iter().map(|words| words.len()).sum::<usize>()));
        }
    }
}

#[test]
fn highlights_count_the_characters_that_were_written() {
    for (title, text, ranges) in [
        ("Smørrebrød", "smorrebr", [[0, 8]]),
        ("to ræv nu", "raev", [[3, 6]]),
        ("to ræven", "raeve", [[3, 7]]),
        ("ræv", "ra", [[0, 2]]),
        ("في كِتَابٌ جديد", "كتا", [[3, 8]]),
        ("في كِتَابٌ جديد", "كتاب", [[3, 10]]),
        ("שָׁלוֹם רב", "שלום", [[0, 7]]),
    ] {
        assert_eq!(highlight_title(title, &query(text)).unwrap().ranges, ranges, "{title}: {text}");
    }
}

#[test]
fn one_phrase_can_be_enough() {
    let query = Query::parse("blue don't").unwrap();
    assert_eq!(matches("a blue whale", &query), MatchKind::None);
    let any = query.any();
    assert_eq!(any.fts5(), "\"blue\" * OR \"don t\" *");
    assert_eq!(any.tsquery(), "('blue':*) | ('don' <-> 't':*)");
    assert_eq!(matches("a blue whale", &any), MatchKind::Whole);
    assert_eq!(matches("a red whale", &any), MatchKind::None);
}
