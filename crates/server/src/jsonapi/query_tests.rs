//! Query strings in, typed queries or named errors out.

use domain::conversation::{
    ConversationFilter, Kind, Mode, Position, Seek, Sort, SortKey, SortValue, Source,
};
use domain::time::from_ms;
use proptest::prelude::*;
use uuid::Uuid;

use super::cursor::{encode_offset, encode_position};
use super::error::{ErrorDocument, Source as At};
use super::field::{Field, FieldSet, WorkspaceField};
use super::query::{ListPage, ListQuery, RetrieveQuery, View, WriteQuery};

const ID: &str = "9f3e2d1a-7b4c-4e5f-8a2b-1c0d3e6f9a8b";
const OTHER: &str = "c7e1a2f3-88d4-4b9e-9c6a-3f0e1d2b5a7c";
const TITLE_DOWN: Sort = Sort { key: SortKey::Title, descending: true };

fn id() -> Uuid {
    Uuid::try_parse(ID).unwrap()
}

fn position() -> Position {
    Position { value: SortValue::Time(from_ms(1_778_749_956_007)), id: id() }
}

/// The code and parameter of every error.
fn named(document: &ErrorDocument) -> Vec<(&'static str, String)> {
    assert_eq!(document.status(), 400);
    let parameter = |source: &Option<At>| match source {
        Some(At::Parameter(name)) => name.clone(),
        other => panic!("{other:?} names no parameter"),
    };
    document.errors().iter().map(|e| (e.code, parameter(&e.source))).collect()
}

fn list(raw: &str) -> ListQuery {
    ListQuery::parse(raw).unwrap_or_else(|errors| panic!("{raw}: {errors:?}"))
}

fn plain_list() -> ListQuery {
    ListQuery {
        view: View {
            fields: FieldSet::LIST,
            workspace_fields: WorkspaceField::ALL.to_vec(),
            include_workspace: false,
        },
        workspace: None,
        filter: ConversationFilter::default(),
        page: ListPage::Sorted { sort: Sort::default(), seek: Seek::Start, limit: 50 },
        page_size: 50,
        time_zone: None,
    }
}

#[test]
fn nothing_asked_gives_the_defaults() {
    for raw in ["", "&", "&&", "include=", "filter[deleted]=false", "sort=-updated_at", "page[size]=50"] {
        assert_eq!(list(raw), plain_list(), "{raw}");
    }
    let all = View { fields: FieldSet::ALL, ..plain_list().view };
    let retrieve = RetrieveQuery {
        view: all.clone(),
        workspace: None,
        messages: None,
        messages_before: None,
        branch: None,
    };
    assert_eq!(RetrieveQuery::parse(""), Ok(retrieve));
    assert_eq!(WriteQuery::parse(""), Ok(WriteQuery { view: all, workspace: None }));
}

#[test]
fn everything_asked_is_read() {
    let after = encode_position(TITLE_DOWN, &Position { value: SortValue::Text("Zoë".into()), id: id() });
    let found = list(&format!(
        "fields%5Bchat_conversation%5D=title,messages,workspace&fields[workspace]=role,name&include=workspace\
         &sort=-title&page%5bsize%5d=100&page[after]={after}&filter[workspace]={ID}&workspace={ID}\
         &filter[source]=extension&filter[mode]=task_flow&filter[kind]=model_chat&filter[agent]=a%20b+c\
         &filter[deleted]=true&timeZone=Europe%2FBerlin"
    ));
    let expected = ListQuery {
        view: View {
            fields: FieldSet::NONE.with(Field::Title).with(Field::Messages).with_workspace(),
            workspace_fields: vec![WorkspaceField::Name, WorkspaceField::Role],
            include_workspace: true,
        },
        workspace: Some(id()),
        filter: ConversationFilter {
            source: Some(Source::Extension),
            mode: Some(Mode::TaskFlow),
            kind: Some(Kind::ModelChat),
            agent: Some("a b c".into()),
            deleted: true,
        },
        page: ListPage::Sorted {
            sort: TITLE_DOWN,
            seek: Seek::After(Position { value: SortValue::Text("Zoë".into()), id: id() }),
            limit: 100,
        },
        page_size: 100,
        time_zone: Some("Europe/Berlin".into()),
    };
    assert_eq!(found, expected);
}

#[test]
fn pages_seek_either_way() {
    let cursor = encode_position(Sort::default(), &position());
    let seek = |raw: String| match list(&raw).page {
        ListPage::Sorted { seek, .. } => seek,
        other => panic!("{other:?}"),
    };
    assert_eq!(seek(format!("page[after]={cursor}")), Seek::After(position()));
    assert_eq!(seek(format!("page[before]={cursor}")), Seek::Before(position()));
    let one = ListPage::Sorted { sort: Sort::default(), seek: Seek::Start, limit: 1 };
    assert_eq!(list("page[size]=1").page, one);
}

#[test]
fn a_search_pages_by_offset() {
    let at = |offset| encode_offset(None, offset);
    let cases = [
        ("".to_owned(), None, (0, 50)),
        (format!("&page[after]={}", at(40)), None, (40, 50)),
        (format!("&page[after]={}&page[size]=7", at(40)), None, (40, 7)),
        (format!("&page[before]={}&page[size]=7", at(40)), None, (33, 7)),
        (format!("&page[before]={}&page[size]=7", at(3)), None, (0, 3)),
        (
            format!("&sort=-title&page[after]={}", encode_offset(Some(TITLE_DOWN), 9)),
            Some(TITLE_DOWN),
            (9, 50),
        ),
    ];
    for (rest, sort, (offset, limit)) in cases {
        let found = list(&format!("filter[query]=caf%C3%A9{rest}")).page;
        assert_eq!(found, ListPage::Search { query: "café".into(), sort, offset, limit }, "{rest}");
    }
}

#[test]
fn a_retrieve_reads_its_window() {
    let found =
        RetrieveQuery::parse(&format!("page[messages]=1000000&page[messages_before]={OTHER}&workspace={ID}"));
    let found = found.unwrap();
    assert_eq!((found.messages, found.messages_before), (Some(1_000_000), Uuid::try_parse(OTHER).ok()));
    assert_eq!(found.workspace, Some(id()));
}

#[test]
fn an_empty_fieldset_shows_nothing() {
    let found = WriteQuery::parse("fields[chat_conversation]=&fields[workspace]").unwrap().view;
    assert_eq!((found.fields, found.workspace_fields), (FieldSet::NONE, vec![]));
}

#[test]
fn bad_lists_name_the_parameter() {
    let newest = encode_position(Sort::default(), &position());
    let (zero, ranked) = (encode_offset(None, 0), encode_offset(None, 5));
    let long = |name: &str, chars: usize| format!("{name}={}", "é".repeat(chars));
    let cases: Vec<(String, &str, &str)> = [
        ("nope=1", "unknown_parameter", "nope"),
        ("page[limit]=1", "unknown_parameter", "page[limit]"),
        ("page%5Bmessages%5D=1", "unknown_parameter", "page[messages]"),
        ("filter[titel]=x", "unknown_parameter", "filter[titel]"),
        ("fields[user]=name", "unknown_parameter", "fields[user]"),
        ("Sort=title", "unknown_parameter", "Sort"),
        ("=1", "unknown_parameter", ""),
        ("sort=title&sort=title", "invalid_parameter", "sort"),
        ("page[size]=1&page%5Bsize%5D=1", "invalid_parameter", "page[size]"),
        ("fields[chat_conversation]=titel", "unknown_field", "fields[chat_conversation]"),
        ("fields[chat_conversation]=title,,mode", "unknown_field", "fields[chat_conversation]"),
        ("fields[chat_conversation]=title%20", "unknown_field", "fields[chat_conversation]"),
        ("fields[workspace]=secret", "unknown_field", "fields[workspace]"),
        ("include=messages", "invalid_parameter", "include"),
        ("include=workspace.members", "invalid_parameter", "include"),
        ("include=workspace,", "invalid_parameter", "include"),
        ("sort=", "invalid_parameter", "sort"),
        ("sort=id", "invalid_parameter", "sort"),
        ("sort=--title", "invalid_parameter", "sort"),
        ("sort=title,-updated_at", "invalid_parameter", "sort"),
        ("page[size]=0", "invalid_parameter", "page[size]"),
        ("page[size]=101", "invalid_parameter", "page[size]"),
        ("page[size]=%2B5", "invalid_parameter", "page[size]"),
        ("page[size]=-1", "invalid_parameter", "page[size]"),
        ("page[size]=5.0", "invalid_parameter", "page[size]"),
        ("page[size]=99999999999999999999999", "invalid_parameter", "page[size]"),
        ("page[size]=", "invalid_parameter", "page[size]"),
        ("page[after]=", "invalid_parameter", "page[after]"),
        ("page[after]=xyz", "invalid_parameter", "page[after]"),
        ("page[before]=%25", "invalid_parameter", "page[before]"),
        ("filter[workspace]=1", "invalid_parameter", "filter[workspace]"),
        ("workspace=9f3e2d1a7b4c4e5f8a2b1c0d3e6f9a8b", "invalid_parameter", "workspace"),
        ("filter[source]=Web", "invalid_parameter", "filter[source]"),
        ("filter[source]=", "invalid_parameter", "filter[source]"),
        ("filter[mode]=chat", "invalid_parameter", "filter[mode]"),
        ("filter[kind]=x", "invalid_parameter", "filter[kind]"),
        ("filter[agent]=", "invalid_parameter", "filter[agent]"),
        ("filter[deleted]=1", "invalid_parameter", "filter[deleted]"),
        ("filter[deleted]=TRUE", "invalid_parameter", "filter[deleted]"),
        ("filter[query]=", "invalid_parameter", "filter[query]"),
        ("filter[query]=+%20", "invalid_parameter", "filter[query]"),
        ("filter[query]=a%00", "invalid_parameter", "filter[query]"),
        ("filter[query]=%ff", "invalid_parameter", "filter[query]"),
        ("filter[query]=%4", "invalid_parameter", "filter[query]"),
        ("filter[agent]=a%0Ab", "invalid_parameter", "filter[agent]"),
        ("a%zz=1", "invalid_parameter", "a%zz"),
    ]
    .into_iter()
    .map(|(raw, code, name)| (raw.to_owned(), code, name))
    .chain([
        (long("filter[agent]", 256), "invalid_parameter", "filter[agent]"),
        (long("filter[query]", 1001), "invalid_parameter", "filter[query]"),
        (format!("page[after]={newest}&page[before]={newest}"), "invalid_parameter", "page[before]"),
        (format!("page[after]={newest}&sort=updated_at"), "invalid_parameter", "page[after]"),
        (format!("page[before]={newest}&sort=title"), "invalid_parameter", "page[before]"),
        (format!("page[after]={newest}&filter[query]=a"), "invalid_parameter", "page[after]"),
        (format!("page[after]={ranked}"), "invalid_parameter", "page[after]"),
        (format!("page[after]={ranked}&filter[query]=a&sort=title"), "invalid_parameter", "page[after]"),
        (format!("page[before]={zero}&filter[query]=a"), "invalid_parameter", "page[before]"),
        (format!("workspace={ID}&filter[workspace]={OTHER}"), "invalid_parameter", "filter[workspace]"),
    ])
    .collect();
    for (raw, code, name) in cases {
        let errors = ListQuery::parse(&raw).expect_err(&raw);
        assert_eq!(named(&errors), [(code, name.to_owned())], "{raw}");
    }
    assert!(ListQuery::parse(&long("filter[agent]", 255)).is_ok());
    assert!(ListQuery::parse(&long("filter[query]", 1000)).is_ok());
}

#[test]
fn bad_retrieves_and_writes_name_the_parameter() {
    for (raw, name) in [
        ("page[messages]=0", "page[messages]"),
        ("page[messages]=1000001", "page[messages]"),
        ("page[messages_before]=x", "page[messages_before]"),
        ("sort=title", "sort"),
        ("timeZone=UTC", "timeZone"),
    ] {
        assert_eq!(named(&RetrieveQuery::parse(raw).expect_err(raw))[0].1, name);
    }
    for (raw, name) in
        [("page[messages]=5", "page[messages]"), ("workspace=", "workspace"), ("include=x", "include")]
    {
        assert_eq!(named(&WriteQuery::parse(raw).expect_err(raw))[0].1, name);
    }
}

#[test]
fn all_mistakes_are_told_together() {
    let errors = ListQuery::parse("x=1&sort=id&page[size]=0&filter[mode]=%ff").expect_err("four mistakes");
    let mut names: Vec<_> = named(&errors).into_iter().map(|(_, name)| name).collect();
    names.sort();
    assert_eq!(names, ["filter[mode]", "page[size]", "sort", "x"]);
    let several = ListQuery::parse("sort=title,mode").expect_err("two keys");
    assert_eq!(several.errors()[0].detail, "One sort key is supported; give one.");
}

proptest! {
    #[test]
    fn no_text_panics(raw in any::<String>()) {
        let _ = (ListQuery::parse(&raw), RetrieveQuery::parse(&raw), WriteQuery::parse(&raw));
    }

    #[test]
    fn no_query_like_text_panics(
        raw in "((page|filter|fields)(\\[|%5B)(size|after|query|chat_conversation|x)(\\]|%5d)|sort|[=&%,+0-9a-fé-]){0,20}"
    ) {
        let _ = (ListQuery::parse(&raw), RetrieveQuery::parse(&raw), WriteQuery::parse(&raw));
    }
}
