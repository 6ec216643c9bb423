//! Search: what is found, in which order, what is highlighted, and that no query can break it.

use domain::message::MessageRole;
use serde_json::{Value, json};

use crate::world::{CONVERSATIONS, World, encoded, id_of, ids, message, stories, titles};

stories!(
    words_are_found_while_they_are_typed,
    accents_case_and_scripts_do_not_matter,
    the_best_come_first,
    highlights_are_character_offsets,
    the_index_follows_every_write,
    only_the_visible_is_found,
    results_have_pages,
    no_query_breaks_it,
);

async fn find(world: &World, words: &str) -> Value {
    world.list(&format!("filter[query]={}", encoded(words))).await
}

async fn words_are_found_while_they_are_typed(world: World) {
    let id = id_of(&world.create(json!({ "title": "Q1 invoice reconciliation" })).await);
    world.ask(&id, "Which supplier-payments are overdue?").await;
    let typed = "invoice reconciliation";
    for end in 1..=typed.len() {
        assert_eq!(ids(&find(&world, &typed[..end]).await), std::slice::from_ref(&id), "{}", &typed[..end]);
    }
    for hit in ["rec inv", "q1 over", "INVOICE", "supplier-pay", "suppl pay", "overdue?", "  q1  "] {
        let found = !hit.contains("q1 over");
        assert_eq!(!ids(&find(&world, hit).await).is_empty(), found, "{hit}");
    }
    for miss in ["nvoice", "invoices", "reconciliation2", "payments-supplier", "invoice unicorn"] {
        assert_eq!(find(&world, miss).await["data"], json!([]), "{miss}");
    }
}

async fn accents_case_and_scripts_do_not_matter(world: World) {
    for title in [
        "Café Zürich",
        "Straße 7",
        "東京の天気予報",
        "Привет мир",
        "مرحبا بالعالم",
        "naïve ﬁle",
        "ΣΊΣΥΦΟΣ",
        "안녕하세요",
    ] {
        world.create(json!({ "title": title })).await;
    }
    for (query, title) in [
        ("cafe", "Café Zürich"),
        ("CAFÉ zur", "Café Zürich"),
        ("cafe\u{301}", "Café Zürich"),
        ("strasse", "Straße 7"),
        ("東京", "東京の天気予報"),
        ("天気", "東京の天気予報"),
        ("天", "東京の天気予報"),
        ("привет", "Привет мир"),
        ("ПРИВ", "Привет мир"),
        ("مرحبا", "مرحبا بالعالم"),
        ("NAIVE file", "naïve ﬁle"),
        ("σισυφος", "ΣΊΣΥΦΟΣ"),
        ("안녕", "안녕하세요"),
    ] {
        assert_eq!(titles(&find(&world, query).await), [title], "{query}");
    }
    assert_eq!(find(&world, "気天").await["data"], json!([]), "the characters of a phrase keep their order");
}

async fn the_best_come_first(world: World) {
    let many = id_of(&world.create(json!({ "title": "three messages" })).await);
    let one = id_of(&world.create(json!({ "title": "one message" })).await);
    let prefix = id_of(&world.create(json!({ "title": "budgets" })).await);
    let title = id_of(&world.create(json!({ "title": "the budget" })).await);
    for text in ["budget", "a budget", "our budget now"] {
        world.ask(&many, text).await;
    }
    // Written to last, and still behind.
    world.say(&one, &[message(MessageRole::Assistant, "the budget again")]).await;
    assert_eq!(ids(&find(&world, "budget").await), [title, prefix, many, one], "title, then more messages");
    let sorted = world.list("filter[query]=budget&sort=title").await;
    assert_eq!(titles(&sorted), ["budgets", "one message", "the budget", "three messages"]);
    let sorted = world.list("filter[query]=budget&sort=-title&page[size]=2").await;
    assert_eq!(titles(&sorted), ["three messages", "the budget"]);
    assert_eq!(titles(&world.follow(&sorted["links"]["next"]).await.body), ["one message", "budgets"]);
}

async fn highlights_are_character_offsets(world: World) {
    let id = id_of(&world.create(json!({ "title": "😀 <b>Été</b> & Éternité" })).await);
    let long = format!("{} 𝕏 the été was <i>long</i> {}", "avant ".repeat(80), "après ".repeat(80));
    let said = world.ask(&id, &long).await;
    let found = find(&world, "ete").await;
    let highlights = found["data"][0]["meta"]["highlights"].as_array().unwrap();
    assert_eq!(highlights.len(), 2, "{found}");
    assert_eq!(
        (&highlights[0]["field"], &highlights[0]["text"]),
        (&json!("title"), &json!("😀 <b>Été</b> & Éternité"))
    );
    assert_eq!(highlights[0].get("message_id"), None);
    assert_eq!(matched(&highlights[0]), ["Été", "Éte"]);
    assert_eq!(highlights[1]["field"], "message");
    assert_eq!(highlights[1]["message_id"], said.to_string());
    assert_eq!(matched(&highlights[1]), ["été"]);
    let text = highlights[1]["text"].as_str().unwrap();
    assert!(long.contains(text) && text.chars().count() < 250, "a piece of it as it is: {text}");
    assert!(text.contains("<i>long</i>"), "what was written, no markup of ours: {text}");
    for (query, expected) in [("été was", vec!["été", "was"]), ("avant", vec!["avant"]), ("𝕏", vec!["𝕏"])]
    {
        let found = find(&world, query).await;
        let highlights = found["data"][0]["meta"]["highlights"].as_array().unwrap();
        let of_message = highlights.iter().find(|highlight| highlight["field"] == "message").unwrap();
        let mut words = matched(of_message);
        words.dedup();
        assert_eq!(words, expected, "{query}");
    }
    // Without a search there is nothing to highlight.
    assert_eq!(world.list("").await["data"][0].get("meta"), None);
}

/// The characters that the ranges of a highlight name.
fn matched(highlight: &Value) -> Vec<String> {
    let text: Vec<char> = highlight["text"].as_str().unwrap().chars().collect();
    let mut last = 0;
    let ranges = highlight["ranges"].as_array().unwrap();
    assert!(!ranges.is_empty());
    ranges
        .iter()
        .map(|range| {
            let [start, end] = [0, 1].map(|side| range[side].as_u64().unwrap() as usize);
            assert!(last <= start && start < end && end <= text.len(), "{highlight}");
            last = end;
            text[start..end].iter().collect()
        })
        .collect()
}

async fn the_index_follows_every_write(world: World) {
    let id = id_of(&world.create(json!({ "title": "alpha" })).await);
    let found = async |words: &str| !ids(&find(&world, words).await).is_empty();
    assert!(found("alpha").await);
    world.patch(&id, &json!({ "title": "beta" })).await;
    assert!(found("beta").await && !found("alpha").await, "found under the new name only");
    world.patch(&id, &json!({ "title": null })).await;
    assert!(!found("beta").await);
    assert!(!found("gamma").await);
    world.ask(&id, "gamma delta").await;
    assert!(found("gamma").await && found("delt").await);
    // The first message became the title as well.
    let highlights = find(&world, "gamma").await["data"][0]["meta"]["highlights"].clone();
    assert_eq!(highlights.as_array().unwrap().len(), 2, "{highlights}");
    // A refused write is not indexed.
    assert_eq!(world.patch(&id, &json!({ "title": "epsilon", "mode": "x" })).await.status, 422);
    assert!(!found("epsilon").await);
    world.delete(&id).await;
    assert!(!found("gamma").await);
    world.restore(&id).await;
    assert!(found("gamma").await);
}

async fn only_the_visible_is_found(world: World) {
    let bob = world.other("bob", "acme").await;
    let id = id_of(&bob.create(json!({ "title": "secret plan" })).await);
    bob.ask(&id, "hidden treasure").await;
    for words in ["secret", "hidden", "treasure"] {
        assert_eq!(find(&world, words).await["data"], json!([]), "{words}");
        assert_eq!(ids(&find(&bob, words).await), std::slice::from_ref(&id), "{words}");
    }
}

async fn results_have_pages(world: World) {
    for n in 0..13 {
        let id = id_of(&world.create(json!({ "title": format!("topic {n}") })).await);
        if n % 3 == 0 {
            world.ask(&id, "topic").await;
        }
    }
    let whole = ids(&world.list("filter[query]=topic&page[size]=100").await);
    assert_eq!(whole.len(), 13);
    for size in [1, 4, 13] {
        let mut page = world.list(&format!("filter[query]=topic&page[size]={size}")).await;
        assert_eq!(page["links"]["prev"], Value::Null);
        let mut forwards = ids(&page);
        while !page["links"]["next"].is_null() {
            page = world.follow(&page["links"]["next"]).await.body;
            forwards.extend(ids(&page));
        }
        assert_eq!(forwards, whole, "{size}");
        let mut backwards = vec![ids(&page)];
        while !page["links"]["prev"].is_null() {
            page = world.follow(&page["links"]["prev"]).await.body;
            backwards.push(ids(&page));
        }
        backwards.reverse();
        assert_eq!(backwards.concat(), whole, "{size}");
    }
}

async fn no_query_breaks_it(world: World) {
    let id = id_of(&world.create(json!({ "title": "a plain title, b:c d*e near(f)" })).await);
    world.ask(&id, "AND OR NOT 'quoted' \"double\" back\\slash 100%").await;
    for none in ["!!!", "***", "\"", "'", "😀", "- -", ":*", "()", "\\"] {
        let answer = find(&world, none).await;
        assert_eq!((&answer["data"], &answer["links"]["next"]), (&json!([]), &Value::Null), "{none}");
    }
    let (many, long) = ("a b c d e f g h i j k l m n o p q r s t".repeat(20), "x".repeat(1000));
    for hostile in [
        "\"plain",
        "plain\"",
        "\"plain title\"",
        "NEAR(plain title)",
        "NEAR(",
        "plain*",
        "*plain",
        "title:plain",
        "words:plain",
        "-plain",
        "plain -title",
        "plain AND",
        "AND",
        "OR plain",
        "NOT",
        "^plain",
        "{plain} : title",
        "plain & title",
        "plain | title",
        "!plain",
        "plain <-> title",
        "plain:*",
        "plain:A",
        "'plain'",
        "''",
        "plain'",
        "'; DROP TABLE messages; --",
        "\\plain",
        "plain\\",
        "100%",
        "%",
        "_",
        "plain;",
        "(plain",
        "plain)",
        "a\u{301}",
        "\u{202e}nialp",
        "\u{feff}plain",
        "👨‍👩‍👧 plain",
        "plain +title",
        "$1",
        "?1",
        "{{x}}",
        "\u{fffd}",
        &many,
        &long,
        &"ﷺ".repeat(300),
        &"é".repeat(999),
        "near(f)",
        "b:c",
        "d*e",
        "back\\slash",
        "not",
        "and or",
    ] {
        let answer = world.get(&format!("{CONVERSATIONS}?filter[query]={}", encoded(hostile))).await;
        assert_eq!(answer.status, 200, "{hostile}: {}", answer.text);
    }
    for found in ["near(f)", "b:c", "d*e", "back\\slash", "not", "AND OR", "'quoted'", "\"double\"", "100%"] {
        assert_eq!(ids(&find(&world, found).await), std::slice::from_ref(&id), "{found}");
    }
}
