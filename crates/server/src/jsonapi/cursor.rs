//! Page cursors: a place in a list as opaque text, base64url of a small versioned JSON. What comes back is
//! checked for version, shape and order, so that only typed values get through whoever wrote the text.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::conversation::{Position, Sort, SortKey, SortValue};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

const VERSION: u8 = 1;
/// Above what the longest title needs.
const MAX_CHARS: usize = 8192;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CursorFault {
    #[error("it is not a cursor of this list; use the text of a `next` or `prev` link as it is")]
    Unreadable,
    #[error("it was made for another order; start again without it, or repeat the `sort` it was made with")]
    OtherOrder,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SortedText {
    v: u8,
    sort: String,
    at: At,
    id: Uuid,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum At {
    Milliseconds(i64),
    Text(String),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SearchText {
    v: u8,
    /// Absent for the order of best first.
    sort: Option<String>,
    offset: u32,
}

/// A sort as the `sort` parameter spells it.
pub fn sort_text(sort: Sort) -> String {
    format!("{}{}", if sort.descending { "-" } else { "" }, sort.key.as_str())
}

pub fn parse_sort(text: &str) -> Option<Sort> {
    let key = text.strip_prefix('-');
    SortKey::parse(key.unwrap_or(text)).map(|found| Sort { key: found, descending: key.is_some() })
}

/// A place in a sorted list.
pub fn encode_position(sort: Sort, position: &Position) -> String {
    let at = match &position.value {
        SortValue::Time(at) => At::Milliseconds(at.as_millisecond()),
        SortValue::Text(text) => At::Text(text.clone()),
    };
    encode(&SortedText { v: VERSION, sort: sort_text(sort), at, id: position.id })
}

/// PostgreSQL knows no time before this.
const EARLIEST_MS: i64 = -210_866_803_200_000;

pub fn decode_position(text: &str, sort: Sort) -> Result<Position, CursorFault> {
    let found: SortedText = decode(text)?;
    if found.v != VERSION {
        return Err(CursorFault::Unreadable);
    }
    if parse_sort(&found.sort).ok_or(CursorFault::Unreadable)? != sort {
        return Err(CursorFault::OtherOrder);
    }
    let value = match (found.at, sort.key) {
        (At::Milliseconds(ms), SortKey::UpdatedAt | SortKey::CreatedAt) => {
            let time = Timestamp::from_millisecond(ms).ok().filter(|_| ms >= EARLIEST_MS);
            SortValue::Time(time.ok_or(CursorFault::Unreadable)?)
        }
        (At::Text(text), SortKey::Title) if !text.contains('\0') => SortValue::Text(text),
        _ => return Err(CursorFault::Unreadable),
    };
    Ok(Position { value, id: found.id })
}

/// A place in search results: how many come before it.
pub fn encode_offset(sort: Option<Sort>, offset: u32) -> String {
    encode(&SearchText { v: VERSION, sort: sort.map(sort_text), offset })
}

pub fn decode_offset(text: &str, sort: Option<Sort>) -> Result<u32, CursorFault> {
    let found: SearchText = decode(text)?;
    if found.v != VERSION {
        return Err(CursorFault::Unreadable);
    }
    let made_for = match found.sort {
        Some(text) => Some(parse_sort(&text).ok_or(CursorFault::Unreadable)?),
        None => None,
    };
    if made_for == sort { Ok(found.offset) } else { Err(CursorFault::OtherOrder) }
}

fn encode(place: &impl Serialize) -> String {
    // Plain structs of numbers and strings always serialise.
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(place).unwrap_or_default())
}

fn decode<T: DeserializeOwned>(text: &str) -> Result<T, CursorFault> {
    if text.len() > MAX_CHARS {
        return Err(CursorFault::Unreadable);
    }
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| CursorFault::Unreadable)?;
    serde_json::from_slice(&bytes).map_err(|_| CursorFault::Unreadable)
}

#[cfg(test)]
mod tests {
    use domain::time::from_ms;
    use proptest::prelude::*;

    use super::*;

    const NEWEST: Sort = Sort { key: SortKey::UpdatedAt, descending: true };
    const BY_TITLE: Sort = Sort { key: SortKey::Title, descending: false };

    fn raw(json: &str) -> String {
        URL_SAFE_NO_PAD.encode(json)
    }

    #[test]
    fn sorts_parse_back() {
        for text in ["updated_at", "-updated_at", "created_at", "-created_at", "title", "-title"] {
            assert_eq!(parse_sort(text).map(sort_text).as_deref(), Some(text));
        }
        for bad in ["", "-", "--title", "Title", "id", " title", "title,-title"] {
            assert_eq!(parse_sort(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_cursor_of_another_order_is_told_apart() {
        let id = Uuid::from_u128(5);
        let newest = encode_position(NEWEST, &Position { value: SortValue::Time(from_ms(5)), id });
        for other in ["updated_at", "-created_at", "title"].map(|s| parse_sort(s).unwrap()) {
            assert_eq!(decode_position(&newest, other), Err(CursorFault::OtherOrder));
        }
        assert_eq!(decode_offset(&encode_offset(None, 5), Some(NEWEST)), Err(CursorFault::OtherOrder));
        assert_eq!(decode_offset(&encode_offset(Some(BY_TITLE), 5), None), Err(CursorFault::OtherOrder));
        assert_eq!(decode_offset(&newest, None), Err(CursorFault::Unreadable));
        assert_eq!(decode_position(&encode_offset(None, 5), NEWEST), Err(CursorFault::Unreadable));
    }

    #[test]
    fn forged_cursors_are_refused() {
        let id = "00000000-0000-0000-0000-000000000005";
        let bad_positions = [
            String::new(),
            "%%%".into(),
            "AAAA=".into(),
            raw(""),
            raw("null"),
            raw("{}"),
            raw(&format!(r#"{{"v":2,"sort":"-updated_at","at":5,"id":"{id}"}}"#)),
            raw(&format!(r#"{{"v":1,"sort":"-updated_at; --","at":5,"id":"{id}"}}"#)),
            raw(&format!(r#"{{"v":1,"sort":"-updated_at","at":"x' OR 1=1","id":"{id}"}}"#)),
            raw(&format!(r#"{{"v":1,"sort":"-updated_at","at":null,"id":"{id}"}}"#)),
            raw(&format!(r#"{{"v":1,"sort":"-updated_at","at":5.5,"id":"{id}"}}"#)),
            raw(&format!(r#"{{"v":1,"sort":"-updated_at","at":{},"id":"{id}"}}"#, i64::MAX)),
            raw(&format!(r#"{{"v":1,"sort":"-updated_at","at":{},"id":"{id}"}}"#, EARLIEST_MS - 1)),
            raw(&format!(r#"{{"v":1,"sort":"-updated_at","at":5,"id":"{id}","x":1}}"#)),
            raw(&format!(r#"{{"v":1,"sort":"-updated_at","at":5,"at":6,"id":"{id}"}}"#)),
            raw(r#"{"v":1,"sort":"-updated_at","at":5,"id":"5"}"#),
            raw(r#"{"v":1,"sort":"-updated_at","at":5}"#),
        ];
        for text in bad_positions {
            assert_eq!(decode_position(&text, NEWEST), Err(CursorFault::Unreadable), "{text}");
        }
        let good = raw(&format!(r#"{{"v":1,"sort":"-updated_at","at":5,"id":"{id}"}}"#));
        assert!(decode_position(&good, NEWEST).is_ok());
        let nul = raw(&format!(r#"{{"v":1,"sort":"title","at":"a\u0000","id":"{id}"}}"#));
        assert_eq!(decode_position(&nul, BY_TITLE), Err(CursorFault::Unreadable));
        for offset in ["-1", "4294967296", "1.5", "\"1\"", "null"] {
            let text = raw(&format!(r#"{{"v":1,"sort":null,"offset":{offset}}}"#));
            assert_eq!(decode_offset(&text, None), Err(CursorFault::Unreadable), "{offset}");
        }
        let long = "A".repeat(MAX_CHARS + 1);
        assert_eq!(decode_offset(&long, None), Err(CursorFault::Unreadable));
    }

    proptest! {
        #[test]
        fn positions_round_trip(
            ms in EARLIEST_MS..250_000_000_000_000,
            title in "[^\\x00]{0,255}",
            id in any::<u128>(),
            descending: bool,
        ) {
            let id = Uuid::from_u128(id);
            for (key, value) in [
                (SortKey::UpdatedAt, SortValue::Time(from_ms(ms))),
                (SortKey::CreatedAt, SortValue::Time(from_ms(ms))),
                (SortKey::Title, SortValue::Text(title)),
            ] {
                let (sort, position) = (Sort { key, descending }, Position { value, id });
                prop_assert_eq!(decode_position(&encode_position(sort, &position), sort), Ok(position));
            }
        }

        #[test]
        fn offsets_round_trip(offset: u32) {
            for sort in [None, Some(NEWEST), Some(BY_TITLE)] {
                prop_assert_eq!(decode_offset(&encode_offset(sort, offset), sort), Ok(offset));
            }
        }

        #[test]
        fn no_text_panics(text in any::<String>(), bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            for text in [text, URL_SAFE_NO_PAD.encode(bytes)] {
                let _ = decode_position(&text, NEWEST);
                let _ = decode_offset(&text, None);
            }
        }
    }
}
