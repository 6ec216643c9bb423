//! Tables and cells by example, files by example, and every table through every format and back.

use proptest::prelude::*;

use super::*;

fn column(name: &str, kind: ColumnType) -> Column {
    Column { name: name.into(), kind }
}

fn columns() -> Vec<Column> {
    use ColumnType::{Boolean, Date, Number, Text};
    vec![column("name", Text), column("age", Number), column("member", Boolean), column("since", Date)]
}

fn table(columns: Vec<Column>) -> Table {
    let at = Timestamp::UNIX_EPOCH;
    Table { id: Uuid::nil(), name: "T".into(), columns, row_count: 0, created_at: at, updated_at: at }
}

fn text(text: &str) -> Cell {
    Cell::Text(text.into())
}

/// A whole file, in pieces of that many bytes.
fn read(columns: &[Column], format: Format, file: &[u8], pieces: usize) -> Result<Vec<Vec<Cell>>, RowFaults> {
    let (mut reader, mut rows) = (RowReader::new(columns, format), Vec::new());
    file.chunks(pieces.max(1)).for_each(|piece| reader.push(piece, &mut rows));
    reader.finish(&mut rows).map(|()| rows)
}

/// The faults of a file as (row, column).
fn faults(format: Format, file: &str) -> Vec<(u64, Option<String>)> {
    let found = read(&columns(), format, file.as_bytes(), 7).expect_err(file);
    assert_eq!(found.count, found.first.len() as u64);
    found.first.into_iter().map(|fault| (fault.row, fault.column)).collect()
}

#[test]
fn what_a_table_may_be() {
    use ColumnType::{Number, Text};
    assert_eq!(check_columns(&columns()), Ok(()));
    let many = |count: usize| (0..count).map(|n| column(&format!("c{n}"), Text)).collect::<Vec<_>>();
    assert_eq!(check_columns(&many(100)), Ok(()));
    for (bad, pointer) in [
        (vec![], "/columns"),
        (many(101), "/columns"),
        (vec![column("", Text)], "/columns/0/name"),
        (vec![column("a", Text), column(" b", Text)], "/columns/1/name"),
        (vec![column("a\nb", Text)], "/columns/0/name"),
        (vec![column("_id", Text)], "/columns/0/name"),
        (vec![column("a", Text), column("a", Number)], "/columns/1/name"),
        (vec![column(&"é".repeat(129), Text)], "/columns/0/name"),
    ] {
        assert_eq!(check_columns(&bad).unwrap_err().pointer, pointer, "{bad:?}");
    }
    assert!(check_name("Leads").is_ok() && check_name(" ").is_err() && check_name("a\u{0}").is_err());
}

#[test]
fn columns_are_added_and_never_taken_away() {
    use ColumnType::{Number, Text};
    let own = table(vec![column("a", Text), column("b", Number)]);
    let wider = own.extended(&[column("c", Text), column("b", Number), column("a", Text)]).unwrap();
    let names: Vec<&str> = wider.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"], "those that are there keep their places");
    for (wanted, pointer) in [
        (vec![column("a", Text)], "/columns"),
        (vec![column("a", Number), column("b", Number)], "/columns/0/type"),
        (vec![], "/columns"),
    ] {
        assert_eq!(own.extended(&wanted).unwrap_err().pointer, pointer);
    }
}

#[test]
fn json_values_have_their_columns_type() {
    use ColumnType::{Boolean, Date, Number, Text};
    let read = |json: &str, kind| {
        let raw = serde_json::value::RawValue::from_string(json.into()).unwrap();
        Cell::from_json(&raw, kind).ok()
    };
    for (json, kind, cell) in [
        ("null", Number, Some(Cell::Null)),
        (r#""a\u00e9""#, Text, Some(text("aé"))),
        (r#""""#, Text, Some(text(""))),
        ("1", Text, None),
        ("12345678901234567890.10", Number, Some(Cell::Number("12345678901234567890.10".into()))),
        ("-1e-3", Number, Some(Cell::Number("-1e-3".into()))),
        (r#""1""#, Number, None),
        ("true", Boolean, Some(Cell::Boolean(true))),
        (r#""true""#, Boolean, None),
        ("0", Boolean, None),
        (r#""2024-02-29""#, Date, Some(text("2024-02-29"))),
        (r#""2026-05-14T09:12:36.5+02:00""#, Date, Some(text("2026-05-14T09:12:36.5+02:00"))),
        (r#""2023-02-29""#, Date, None),
        (r#""14.05.2026""#, Date, None),
        (r#""2026-05-14T09:12:36""#, Date, None),
        (r#""2026-05-14T09:12:36Z[UTC]""#, Date, None),
        (r#""2026-05-14T25:00:00Z""#, Date, None),
        (r#""""#, Date, None),
        ("[]", Text, None),
        ("{}", Text, None),
    ] {
        assert_eq!(read(json, kind), cell, "{json} as {kind:?}");
    }
    let long = serde_json::to_string(&"é".repeat(MAX_CELL_CHARS)).unwrap();
    assert!(read(&long, Text).is_some());
    let longer = serde_json::to_string(&"é".repeat(MAX_CELL_CHARS + 1)).unwrap();
    assert_eq!(read(&longer, Text), None);
    assert_eq!(read(&"9".repeat(101), Number), None);
}

#[test]
fn texts_of_a_file_become_what_their_column_is() {
    use ColumnType::{Boolean, Date, Number, Text};
    for (given, quoted, kind, cell) in [
        ("", false, Text, Some(Cell::Null)),
        ("", true, Text, Some(text(""))),
        (" a ", false, Text, Some(text(" a "))),
        ("a\0b", false, Text, None),
        (" ", true, Number, Some(Cell::Null)),
        ("+007.50", false, Number, Some(Cell::Number("7.50".into()))),
        (".5", false, Number, Some(Cell::Number("0.5".into()))),
        ("5.", false, Number, Some(Cell::Number("5".into()))),
        ("-0", false, Number, Some(Cell::Number("-0".into()))),
        ("1E+3", false, Number, Some(Cell::Number("1e+3".into()))),
        ("1,5", false, Number, None),
        ("1e400", false, Number, None),
        ("NaN", false, Number, None),
        ("inf", false, Number, None),
        ("0x10", false, Number, None),
        (".", false, Number, None),
        ("1e", false, Number, None),
        ("--1", false, Number, None),
        ("Yes", false, Boolean, Some(Cell::Boolean(true))),
        ("FALSE", false, Boolean, Some(Cell::Boolean(false))),
        ("maybe", false, Boolean, None),
        (" 2026-05-14 ", false, Date, Some(text("2026-05-14"))),
        ("2026-13-01", false, Date, None),
    ] {
        assert_eq!(Cell::from_text(given.into(), quoted, kind).ok(), cell, "{given:?} as {kind:?}");
    }
}

#[test]
fn csv_as_the_world_writes_it() {
    let ada = vec![text("Ada"), Cell::Number("36".into()), Cell::Boolean(true), text("2026-05-14")];
    for file in [
        "name,age,member,since\nAda,36,true,2026-05-14",
        "name,age,member,since\r\nAda,36,true,2026-05-14\r\n",
        "\u{feff}name,age,member,since\rAda,36,true,2026-05-14\r",
        "\n\nname,age,member,since\n\nAda,36,true,2026-05-14\n\n\n",
        " name , age,member,since\n\"Ada\",\"36\",yes,2026-05-14\n",
        "since,member,age,name\n2026-05-14,1,036,Ada\n",
    ] {
        for pieces in [1, 2, 3, 1000] {
            assert_eq!(
                read(&columns(), Format::Csv, file.as_bytes(), pieces),
                Ok(vec![ada.clone()]),
                "{file:?}"
            );
        }
    }
    let file = "name\n\"a, \"\"b\"\"\r\nc\"\n5\" pipe\n\"\"\n\n'=1+1\n";
    let names: Vec<Cell> = read(&columns(), Format::Csv, file.as_bytes(), 1)
        .unwrap()
        .into_iter()
        .map(|mut row| row.remove(0))
        .collect();
    let expected = [text("a, \"b\"\r\nc"), text("5\" pipe"), text(""), Cell::Null, text("=1+1")];
    assert_eq!(names, expected);
}

#[test]
fn what_is_wrong_with_a_file_is_told_by_row_and_column() {
    let at = |row, column: &str| (row, Some(column.to_owned()));
    for (file, expected) in [
        ("", vec![(0, None)]),
        ("name,age\nAda,x\nBob,2,3\nCyd,1\nDot,y\n", vec![at(1, "age"), (2, None), at(4, "age")]),
        ("name,size\nAda,1\n", vec![at(0, "size")]),
        ("name;age\nAda;1\n", vec![at(0, "name;age")]),
        ("name,name\na,b\n", vec![at(0, "name")]),
        ("name\n\"Ada\" Lovelace\nBob\n", vec![(1, None)]),
        ("name\nAda\n\"Bob\n", vec![(2, None)]),
        ("name\na\0b\n", vec![at(1, "name")]),
        ("\"name", vec![(0, None)]),
    ] {
        assert_eq!(faults(Format::Csv, file), expected, "{file:?}");
    }
    for (file, expected) in [
        ("", vec![(1, None)]),
        ("[", vec![(1, None)]),
        ("null", vec![(1, None)]),
        (r#"[{"name":"a"},{"age":"x","size":1},3]"#, vec![at(2, "age"), at(2, "size"), (3, None)]),
        (r#"[{"name":"a"}{"name":"b"}]"#, vec![(2, None)]),
        (r#"[{"name":"a"},]"#, vec![(2, None)]),
        (r#"[{"name":"a"}] {}"#, vec![(2, None)]),
        (
            r#"[{"name":"a","name":"b"},{"name":"\u0000"},{"name":"\ud800"},{x}]"#,
            (1..5).map(|n| (n, None)).collect(),
        ),
        ("{\"name\":\"a\"}\n{\"name\":", vec![(2, None)]),
        (r#"{"rows":[{"name":"a"}]"#, vec![(2, None)]),
        (r#"{"rows":[{"name":"a"}],"more":1}"#, vec![(2, None)]),
        (r#"{"rows":[{"name":"a"}]} {}"#, vec![(2, None)]),
        (r#"{"rows":[[]]}"#, vec![(1, None)]),
        (r#"{"rows":{"name":"a"}}"#, vec![at(1, "rows")]),
        (r#"{"row":[{"name":"a"}]}"#, vec![at(1, "row")]),
    ] {
        assert_eq!(faults(Format::Json, file), expected, "{file:?}");
    }
    let invalid = [b"name\n\xff\nAda\n".as_slice(), b"{\"name\":\"\xff\"}"];
    assert_eq!(read(&columns(), Format::Csv, invalid[0], 1).unwrap_err().first[0].row, 1);
    assert!(read(&columns(), Format::Json, invalid[1], 1).is_err());
    // Many are counted, few are told.
    let many = format!("age\n{}", "x\n".repeat(1000));
    let found = read(&columns(), Format::Csv, many.as_bytes(), 100).unwrap_err();
    assert_eq!((found.first.len(), found.count), (100, 1000));
    let endless = format!("name\n\"{}", "a".repeat(2 * MAX_RECORD_BYTES));
    assert_eq!(read(&columns(), Format::Csv, endless.as_bytes(), 1000).unwrap_err().count, 1);
}

#[test]
fn json_comes_as_an_array_in_an_object_or_as_lines() {
    let rows = vec![vec![text("}{\\\""), Cell::Null, Cell::Null, Cell::Null], vec![Cell::Null; 4]];
    for file in [
        r#"[{"name":"}{\\\""},{}]"#,
        "\u{feff} [ {\"name\" : \"}{\\\\\\\"\"} ,\n{} ] \n",
        r#"{"rows":[{"name":"}{\\\""},{}]}"#,
        "\u{feff} { \"rows\" :\n[ {\"name\" : \"}{\\\\\\\"\"} ,\n{} ] } \n",
        "{\"name\":\"}{\\\\\\\"\"}\n{}\n",
        "{\"name\":\"}{\\\\\\\"\"}\r\n\r\n{}",
    ] {
        assert_eq!(read(&columns(), Format::Json, file.as_bytes(), 1).as_ref(), Ok(&rows), "{file}");
    }
    for file in ["[]", r#"{"rows":[]}"#] {
        assert_eq!(read(&columns(), Format::Json, file.as_bytes(), 1), Ok(vec![]), "{file}");
    }
}

#[test]
fn a_spreadsheet_runs_nothing_of_what_is_written() {
    let own = vec![column("=a", ColumnType::Text), column("n", ColumnType::Number)];
    let hostile = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "'=1", "＝1"];
    let rows: Vec<Row> = hostile
        .iter()
        .map(|cell| Row { id: Uuid::nil(), cells: vec![text(cell), Cell::Number("-1".into())] })
        .collect();
    let mut writer = RowWriter::new(&own, Format::Csv);
    let file = format!("{}{}", writer.begin(), writer.rows(&rows));
    for line in file.split("\r\n").filter(|line| !line.is_empty()) {
        assert!(line.starts_with('\'') || line.starts_with("\"'"), "{line:?}");
        assert!(line.ends_with(",-1") || line.ends_with(",n"), "a number stays one: {line:?}");
    }
    let back: Vec<Vec<Cell>> = rows.into_iter().map(|row| row.cells).collect();
    assert_eq!(read(&own, Format::Csv, file.as_bytes(), 1), Ok(back));
}

#[test]
fn a_row_in_words_and_as_an_object() {
    let own = table(columns());
    let row =
        Row { id: Uuid::from_u128(7), cells: vec![text("Ada \"L\""), Cell::Number("36".into()), Cell::Null] };
    assert_eq!(own.describe(&row), "name: Ada \"L\"; age: 36");
    assert_eq!(row_text(&row.cells), "Ada \"L\"\n36");
    let expected = r#"{"_id":"00000000-0000-0000-0000-000000000007","name":"Ada \"L\"","age":36,"member":null,"since":null}"#;
    assert_eq!(row_json(&own.columns, &row, true), expected);
    let stored = serde_json::to_string(&row.cells).unwrap();
    assert_eq!(serde_json::from_str::<Vec<Cell>>(&stored).unwrap(), row.cells);
}

fn any_column() -> impl Strategy<Value = Column> {
    use ColumnType::{Boolean, Date, Number, Text};
    let kind = prop_oneof![Just(Text), Just(Number), Just(Boolean), Just(Date)];
    let name = prop_oneof!["[a-c]{1,3}", "[=+@',\" é\u{feff}-]{1,4}"];
    (name, kind).prop_map(|(name, kind)| Column { name, kind })
}

fn any_cell(kind: ColumnType) -> BoxedStrategy<Cell> {
    let some = match kind {
        ColumnType::Text => {
            prop_oneof!["[=+@',\"\r\n\t é\u{feff}-]{0,6}", "\\PC{0,12}"].prop_map(Cell::Text).boxed()
        }
        ColumnType::Number => prop_oneof![
            any::<i64>().prop_map(|n| n.to_string()),
            any::<f64>()
                .prop_filter("finite", |n| n.is_finite() && n.abs() < 1e90)
                .prop_map(|n| format!("{n:?}")),
        ]
        .prop_map(Cell::Number)
        .boxed(),
        ColumnType::Boolean => any::<bool>().prop_map(Cell::Boolean).boxed(),
        ColumnType::Date => (1970..2100_u32, 1..13_u32, 1..29_u32)
            .prop_map(|(year, month, day)| Cell::Text(format!("{year}-{month:02}-{day:02}")))
            .boxed(),
    };
    prop_oneof![1 => Just(Cell::Null), 4 => some].boxed()
}

fn any_table() -> impl Strategy<Value = (Vec<Column>, Vec<Vec<Cell>>)> {
    let columns = prop::collection::vec(any_column(), 1..5)
        .prop_filter("columns that a table may have", |columns| check_columns(columns).is_ok());
    columns.prop_flat_map(|columns| {
        let row: Vec<BoxedStrategy<Cell>> = columns.iter().map(|column| any_cell(column.kind)).collect();
        (Just(columns), prop::collection::vec(row, 0..6))
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read_back((columns, cells) in any_table(), pieces in 1..40_usize) {
        let rows: Vec<Row> = cells.iter().map(|cells| Row { id: Uuid::nil(), cells: cells.clone() }).collect();
        for format in [Format::Csv, Format::Json, Format::Ndjson] {
            let mut writer = RowWriter::new(&columns, format);
            let (first, rest) = rows.split_at(rows.len() / 2);
            let file = [writer.begin(), writer.rows(first), writer.rows(rest), writer.end().to_owned()].concat();
            prop_assert_eq!(read(&columns, format, file.as_bytes(), pieces), Ok(cells.clone()), "{}", file);
        }
    }

    #[test]
    fn no_file_is_too_much(file in prop::collection::vec(prop_oneof![
        Just(b'"'), Just(b','), Just(b'\n'), Just(b'\r'), Just(b'['), Just(b']'), Just(b'{'), Just(b'}'),
        Just(b':'), Just(b'\\'), any::<u8>()], 0..60), pieces in 1..9_usize) {
        for format in [Format::Csv, Format::Json] {
            let whole = read(&columns(), format, &file, 1000);
            prop_assert_eq!(read(&columns(), format, &file, pieces), whole);
        }
    }
}
