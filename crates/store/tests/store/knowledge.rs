//! Pages, tables and rows: what is written is read, found by its words, and gone when it is removed.

use domain::page::Page;
use domain::scope::Scope;
use domain::search::Query;
use domain::table::{Cell, Column, ColumnType, Row, Table};
use store::knowledge::{Listed, TextSearch};
use uuid::Uuid;

use crate::setup::{Behind, TestStore, fails, member, rusqlite, superuser};

on_both!(
    pages_are_kept_changed_and_removed,
    pages_are_found_in_any_language_best_first,
    a_list_of_long_pages_is_short,
    tables_are_kept_changed_and_removed,
    rows_are_kept_counted_changed_and_removed,
    rows_are_found_in_their_table_or_in_all,
    an_import_is_seen_all_at_once_or_not_at_all,
    a_removed_workspace_leaves_nothing_of_them,
    words_of_a_query_are_never_a_command,
    many_matches_are_bounded,
);

pub fn page(store: &TestStore, title: &str, body: &str) -> Page {
    let (id, now) = (store.new_id(), store.now());
    Page { id, title: title.into(), body: body.into(), url: None, created_at: now, updated_at: now }
}

pub fn table(store: &TestStore, name: &str) -> Table {
    let column = |name: &str, kind| Column { name: name.into(), kind };
    let columns = vec![column("name", ColumnType::Text), column("size", ColumnType::Number)];
    let (id, now) = (store.new_id(), store.now());
    Table { id, name: name.into(), columns, row_count: 0, created_at: now, updated_at: now }
}

pub fn row(store: &TestStore, name: &str, size: i64) -> Row {
    Row { id: store.new_id(), cells: vec![Cell::Text(name.into()), Cell::Number(size.to_string())] }
}

fn search(words: &str, offset: usize, limit: usize) -> TextSearch {
    TextSearch { query: Query::parse(words).unwrap(), offset, limit }
}

async fn make(store: &TestStore, scope: &Scope, title: &str, body: &str) -> Uuid {
    let page = page(store, title, body);
    store.create_page(scope, &page).await.unwrap();
    page.id
}

/// The titles of what is found.
async fn found(store: &TestStore, scope: &Scope, words: &str) -> Vec<String> {
    let found = store.search_pages(scope, &search(words, 0, 50)).await.unwrap();
    found.items.into_iter().map(|page| page.title).collect()
}

async fn names(store: &TestStore, scope: &Scope, table: Option<Uuid>, words: &str) -> Vec<String> {
    let found = store.search_rows(scope, table, &search(words, 0, 50)).await.unwrap();
    found.items.into_iter().map(|found| found.row.cells[0].text().to_owned()).collect()
}

async fn pages_are_kept_changed_and_removed(store: TestStore) {
    let (ann, elsewhere) = (store.workspace("ann").await, store.workspace("bob").await);
    let first = Page { url: Some("https://a.example".into()), ..page(&store, "First", "# One\n\n\u{1F600}") };
    store.create_page(&ann, &first).await.unwrap();
    assert_eq!(store.find_page(&member(&ann, "mel"), first.id).await.unwrap().as_ref(), Some(&first));
    assert_eq!(store.find_page(&elsewhere, first.id).await.unwrap(), None);
    let second = make(&store, &ann, "Second", "").await;
    let listed = store.list_pages(&ann, None, 1).await.unwrap();
    assert_eq!(listed, Listed { items: vec![first.clone()], more: true });
    let listed = store.list_pages(&ann, Some(first.id), 1).await.unwrap();
    assert_eq!((listed.items[0].id, listed.more), (second, false));
    store.clock.advance_ms(5);
    let changed =
        Page { title: "Other".into(), body: "two".into(), url: None, updated_at: store.now(), ..first };
    assert_eq!(fails(store.update_page(&elsewhere, &changed).await), "not found");
    store.update_page(&ann, &changed).await.unwrap();
    assert_eq!(store.find_page(&ann, changed.id).await.unwrap().as_ref(), Some(&changed));
    assert!(found(&store, &ann, "first").await.is_empty() && found(&store, &ann, "one").await.is_empty());
    assert_eq!(found(&store, &ann, "other two").await, ["Other"]);
    assert_eq!(fails(store.remove_page(&elsewhere, changed.id).await), "not found");
    store.remove_page(&ann, changed.id).await.unwrap();
    assert_eq!(fails(store.remove_page(&ann, changed.id).await), "not found");
    assert_eq!(fails(store.update_page(&ann, &changed).await), "not found");
    assert!(found(&store, &ann, "other").await.is_empty());
}

async fn pages_are_found_in_any_language_best_first(store: TestStore) {
    let (ann, elsewhere) = (store.workspace("ann").await, store.workspace("bob").await);
    let filler = "lorem ipsum ".repeat(200);
    make(&store, &ann, "Straße und Füße", "Über größere Schuhe").await;
    make(&store, &ann, "東京の報告", "今日は良い天気です").await;
    make(&store, &ann, "Отчёт", "Москва и область").await;
    make(&store, &ann, "Mentioned", &format!("{filler} blueprint {filler}")).await;
    make(&store, &ann, "Blueprints", "of houses").await;
    make(&store, &ann, "Blueprint", "of a house").await;
    make(&store, &ann, "Much of it", &"blueprint ".repeat(50)).await;
    make(&store, &elsewhere, "Blueprint", "of another").await;
    for (words, title) in [
        ("strasse", "Straße und Füße"),
        ("FUSSE", "Straße und Füße"),
        ("grösser", "Straße und Füße"),
        ("東京", "東京の報告"),
        ("天気", "東京の報告"),
        ("отчет моск", "Отчёт"),
    ] {
        assert_eq!(found(&store, &ann, words).await, [title], "{words}");
    }
    // A whole word of the title, its beginning, then what the words fit best.
    assert_eq!(
        found(&store, &ann, "blueprint").await,
        ["Blueprint", "Blueprints", "Much of it", "Mentioned"]
    );
    let part = store.search_pages(&ann, &search("blueprint", 1, 2)).await.unwrap();
    assert_eq!((part.items[0].title.as_str(), part.items.len(), part.more), ("Blueprints", 2, true));
    // All words, or any of them.
    assert!(found(&store, &ann, "house москва").await.is_empty());
    let query = Query::parse("house москва").unwrap().any();
    let any = store.search_pages(&ann, &TextSearch { query, offset: 0, limit: 9 }).await.unwrap();
    assert_eq!(any.items.len(), 3);
}

async fn a_list_of_long_pages_is_short(store: TestStore) {
    let ann = store.workspace("ann").await;
    for n in 0..4 {
        make(&store, &ann, &format!("Long {n}"), &"word ".repeat(600_000)).await;
    }
    let (mut all, mut after, mut parts) = (0, None, 0);
    loop {
        let listed = store.list_pages(&ann, after, 50).await.unwrap();
        (all, parts) = (all + listed.items.len(), parts + 1);
        after = listed.items.last().map(|page| page.id);
        if !listed.more {
            break;
        }
    }
    assert_eq!((all, parts), (4, 2));
    let found = store.search_pages(&ann, &search("long", 0, 50)).await.unwrap();
    assert_eq!((found.items.len(), found.more), (2, true));
}

async fn tables_are_kept_changed_and_removed(store: TestStore) {
    let (ann, elsewhere) = (store.workspace("ann").await, store.workspace("bob").await);
    let made = table(&store, "Leads");
    store.create_table(&ann, &made).await.unwrap();
    assert_eq!(store.find_table(&ann, made.id).await.unwrap().as_ref(), Some(&made));
    assert_eq!(store.find_table(&elsewhere, made.id).await.unwrap(), None);
    assert_eq!(store.list_tables(&ann, None, 9).await.unwrap(), std::slice::from_ref(&made));
    assert!(store.list_tables(&elsewhere, None, 9).await.unwrap().is_empty());
    let now = store.write().now;
    let renamed = store.update_table(&ann, made.id, Some("Customers"), None, now).await.unwrap();
    assert_eq!(renamed, Table { name: "Customers".into(), updated_at: now, ..made.clone() });
    let mut wider = made.columns.clone();
    wider.push(Column { name: "since".into(), kind: ColumnType::Date });
    let widened = store.update_table(&ann, made.id, None, Some(&wider), now).await.unwrap();
    assert_eq!((widened.name.as_str(), &widened.columns), ("Customers", &wider));
    let refused = store.update_table(&ann, made.id, Some("No"), Some(&made.columns[..1]), now).await;
    assert_eq!(fails(refused), "bad table /columns");
    assert_eq!(store.find_table(&ann, made.id).await.unwrap(), Some(widened));
    let foreign = store.update_table(&elsewhere, made.id, Some("Mine"), None, now).await;
    assert_eq!(fails(foreign), "not found");
    assert_eq!(fails(store.remove_table(&elsewhere, made.id).await), "not found");
    store.add_rows(&ann, made.id, &[row(&store, "word", 1)], now).await.unwrap();
    store.remove_table(&ann, made.id).await.unwrap();
    assert_eq!(fails(store.remove_table(&ann, made.id).await), "not found");
    assert!(names(&store, &ann, None, "word").await.is_empty());
    assert_eq!(fails(store.list_rows(&ann, made.id, None, 9).await), "not found");
    assert_eq!(left(&store).await, 0);
}

async fn rows_are_kept_counted_changed_and_removed(store: TestStore) {
    let (ann, elsewhere) = (store.workspace("ann").await, store.workspace("bob").await);
    let (made, other) = (table(&store, "Leads"), table(&store, "Other"));
    store.create_table(&ann, &made).await.unwrap();
    store.create_table(&ann, &other).await.unwrap();
    let now = store.write().now;
    let hostile = vec![Cell::Text("'); DROP TABLE pages;-- \"\\ 報告".into()), Cell::Number("1e-3".into())];
    let rows = [
        row(&store, "one", 1),
        Row { id: store.new_id(), cells: hostile },
        Row { id: store.new_id(), cells: vec![Cell::Null] },
    ];
    store.add_rows(&ann, made.id, &rows, now).await.unwrap();
    assert_eq!(fails(store.add_rows(&elsewhere, made.id, &rows, now).await), "not found");
    let counted = store.find_table(&ann, made.id).await.unwrap().unwrap();
    assert_eq!((counted.row_count, counted.updated_at), (3, now));
    let listed = store.list_rows(&ann, made.id, None, 9).await.unwrap();
    assert_eq!(listed, Listed { items: rows.to_vec(), more: false });
    let part = store.list_rows(&ann, made.id, Some(rows[0].id), 1).await.unwrap();
    assert_eq!(part, Listed { items: vec![rows[1].clone()], more: true });
    assert_eq!(store.find_row(&ann, made.id, rows[1].id).await.unwrap().as_ref(), Some(&rows[1]));
    // Under another table, or from elsewhere, it is not there.
    let changed = Row { cells: vec![Cell::Text("changed".into())], ..rows[0].clone() };
    for (scope, table) in [(&ann, other.id), (&elsewhere, made.id)] {
        assert_eq!(store.find_row(scope, table, rows[0].id).await.unwrap(), None);
        assert_eq!(fails(store.update_row(scope, table, &changed, now).await), "not found");
        assert_eq!(fails(store.remove_row(scope, table, rows[0].id, now).await), "not found");
    }
    assert_eq!(store.find_table(&ann, other.id).await.unwrap().unwrap().row_count, 0);
    store.update_row(&ann, made.id, &changed, now).await.unwrap();
    assert!(names(&store, &ann, None, "one").await.is_empty());
    assert_eq!(names(&store, &ann, None, "changed").await, ["changed"]);
    store.remove_row(&ann, made.id, changed.id, now).await.unwrap();
    assert_eq!(fails(store.remove_row(&ann, made.id, changed.id, now).await), "not found");
    assert!(names(&store, &ann, None, "changed").await.is_empty());
    assert_eq!(store.find_table(&ann, made.id).await.unwrap().unwrap().row_count, 2);
}

async fn rows_are_found_in_their_table_or_in_all(store: TestStore) {
    let (ann, elsewhere) = (store.workspace("ann").await, store.workspace("bob").await);
    let (one, two, theirs) = (table(&store, "One"), table(&store, "Two"), table(&store, "Theirs"));
    for (scope, table) in [(&ann, &one), (&ann, &two), (&elsewhere, &theirs)] {
        store.create_table(scope, table).await.unwrap();
        let rows = [row(&store, &format!("blue {}", table.name), 42), row(&store, "Grüße", 7)];
        store.add_rows(scope, table.id, &rows, store.now()).await.unwrap();
    }
    assert_eq!(names(&store, &ann, Some(one.id), "blue").await, ["blue One"]);
    assert_eq!(names(&store, &ann, Some(one.id), "grusse").await, ["Grüße"]);
    let mut all = names(&store, &ann, None, "blu 42").await;
    all.sort();
    assert_eq!(all, ["blue One", "blue Two"]);
    assert!(names(&store, &ann, Some(one.id), "two").await.is_empty());
    for table in [theirs.id, store.new_id()] {
        assert_eq!(fails(store.search_rows(&ann, Some(table), &search("blue", 0, 9)).await), "not found");
    }
}

async fn an_import_is_seen_all_at_once_or_not_at_all(store: TestStore) {
    let (ann, elsewhere) = (store.workspace("ann").await, store.workspace("bob").await);
    let made = table(&store, "Leads");
    store.create_table(&ann, &made).await.unwrap();
    let (kept, dropped, forgotten) = (store.new_id(), store.new_id(), store.new_id());
    let stage = async |import, name: &str| {
        let rows: Vec<Row> = (0..3).map(|n| row(&store, name, n)).collect();
        store.stage_rows(&ann, made.id, import, &rows, store.now()).await.unwrap();
    };
    stage(forgotten, "word").await;
    store.clock.advance_ms(3 * 60 * 60 * 1000);
    stage(kept, "word").await;
    stage(kept, "word").await;
    stage(dropped, "word").await;
    assert!(store.list_rows(&ann, made.id, None, 99).await.unwrap().items.is_empty());
    assert!(names(&store, &ann, None, "word").await.is_empty());
    assert_eq!(store.find_table(&ann, made.id).await.unwrap().unwrap().row_count, 0);
    let now = store.now();
    let rows = [row(&store, "x", 1)];
    assert_eq!(fails(store.stage_rows(&elsewhere, made.id, kept, &rows, now).await), "not found");
    for (scope, staged) in [(&ann, 5), (&ann, 7), (&elsewhere, 6)] {
        assert_eq!(fails(store.keep_import(scope, made.id, kept, staged, now).await), "not found");
    }
    store.drop_import(&elsewhere, made.id, dropped).await.unwrap();
    assert_eq!(left(&store).await, 12);
    store.drop_import(&ann, made.id, dropped).await.unwrap();
    // What an import that died left goes with the next one.
    store.keep_import(&ann, made.id, kept, 6, now).await.unwrap();
    assert_eq!(left(&store).await, 6);
    assert_eq!(names(&store, &ann, None, "word").await.len(), 6);
    assert_eq!(store.find_table(&ann, made.id).await.unwrap().unwrap().row_count, 6);
    assert_eq!(fails(store.keep_import(&ann, made.id, kept, 6, now).await), "not found");
}

/// How many rows of tables there are, seen or not.
async fn left(store: &TestStore) -> i64 {
    let text = "SELECT count(*) FROM table_rows";
    match &store.behind {
        Behind::Sqlite(folder) => rusqlite(folder).query_row(text, [], |row| row.get(0)).unwrap(),
        Behind::Postgres(database) => superuser(database).await.query_one(text, &[]).await.unwrap().get(0),
    }
}

async fn a_removed_workspace_leaves_nothing_of_them(store: TestStore) {
    let (ann, elsewhere) = (store.workspace("ann").await, store.workspace("bob").await);
    for scope in [&ann, &elsewhere] {
        make(&store, scope, "word", "word").await;
        let made = table(&store, "Leads");
        store.create_table(scope, &made).await.unwrap();
        store.add_rows(scope, made.id, &[row(&store, "word", 1)], store.now()).await.unwrap();
    }
    store.remove_workspace(&ann, false, store.now()).await.unwrap();
    assert_eq!(left(&store).await, 1);
    assert!(
        found(&store, &ann, "word").await.is_empty() && names(&store, &ann, None, "word").await.is_empty()
    );
    assert_eq!(found(&store, &elsewhere, "word").await, ["word"]);
    assert_eq!(fails(store.create_page(&ann, &page(&store, "t", "")).await), "not found");
    assert_eq!(fails(store.create_table(&ann, &table(&store, "t")).await), "not found");
}

async fn words_of_a_query_are_never_a_command(store: TestStore) {
    let ann = store.workspace("ann").await;
    make(&store, &ann, "Plain", "AND OR NOT NEAR place words a b").await;
    let made = table(&store, "Leads");
    store.create_table(&ann, &made).await.unwrap();
    store.add_rows(&ann, made.id, &[row(&store, "AND", 1)], store.now()).await.unwrap();
    for words in [
        "AND",
        "a OR b",
        "NOT plain",
        "\"",
        "a\" OR \"b",
        "place : x",
        "words:*",
        "a:*",
        "NEAR(a b)",
        "^a",
        "a & b | c",
        "'a':*",
        "!a",
        "a <-> b",
        "@x",
        "#x",
        "(",
        "a)",
        "\\",
        "'; DROP TABLE pages",
        "{place} : a",
        "-place : a",
    ] {
        let Some(query) = Query::parse(words) else { continue };
        for query in [query.clone(), query.any()] {
            let search = TextSearch { query, offset: 0, limit: 5 };
            store.search_pages(&ann, &search).await.unwrap_or_else(|error| panic!("{words}: {error}"));
            store.search_rows(&ann, None, &search).await.unwrap_or_else(|error| panic!("{words}: {error}"));
        }
    }
    // The words of a place are not found by typing them.
    let place = format!("w{}", ann.workspace.simple());
    assert!(found(&store, &ann, &place).await.is_empty());
}

async fn many_matches_are_bounded(store: TestStore) {
    let ann = store.workspace("ann").await;
    let made = table(&store, "Leads");
    store.create_table(&ann, &made).await.unwrap();
    let rows: Vec<Row> = (0..2500).map(|n| row(&store, "word", n)).collect();
    store.add_rows(&ann, made.id, &rows, store.now()).await.unwrap();
    let last = rows.last().unwrap().id;
    for table in [None, Some(made.id)] {
        let found = store.search_rows(&ann, table, &search("word", 0, 10)).await.unwrap();
        assert_eq!((found.items.len(), found.more, found.items[0].row.id), (10, true, last));
        let end = store.search_rows(&ann, table, &search("word", 990, 50)).await.unwrap();
        assert_eq!((end.items.len(), end.more), (10, false), "the newest 1,000 take part");
    }
}
