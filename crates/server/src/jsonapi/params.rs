//! A raw query string as decoded parameters: known ones once each, and an error that names every other.
//! Brackets may come plain or percent-encoded; `+` is a space, as HTML forms and URL builders write it.

use super::error::{ApiError, ErrorDocument, Source, shown};

#[derive(Debug, Default)]
pub(super) struct Params(Vec<(&'static str, String)>);

impl Params {
    pub(super) fn read(raw: &str, known: &[&'static str], errors: &mut ErrorDocument) -> Self {
        let mut seen = Vec::new();
        let mut params = Self::default();
        for piece in raw.split('&').filter(|piece| !piece.is_empty()) {
            let (raw_name, raw_value) = piece.split_once('=').unwrap_or((piece, ""));
            let name = match decode(raw_name) {
                Ok(name) => name,
                Err(reason) => {
                    let detail = format!("The parameter name {} {reason}.", shown(raw_name));
                    errors.push(ApiError::invalid_parameter(Source::parameter(raw_name), detail));
                    continue;
                }
            };
            let Some(name) = known.iter().copied().find(|known| *known == name) else {
                let detail =
                    format!("{} is not a parameter here; known are {}.", shown(&name), known.join(", "));
                errors.push(ApiError::unknown_parameter(Source::parameter(name), detail));
                continue;
            };
            if seen.contains(&name) {
                errors.push(ApiError::invalid_parameter(
                    Source::parameter(name),
                    format!("{name} is given more than once; give it once."),
                ));
                continue;
            }
            seen.push(name);
            match decode(raw_value) {
                Ok(value) => params.0.push((name, value)),
                Err(reason) => errors.push(ApiError::invalid_parameter(
                    Source::parameter(name),
                    format!("The value of {name} {reason}."),
                )),
            }
        }
        params
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }
}

/// A name or value of a query string; control characters are refused with broken escapes.
pub(crate) fn decode(raw: &str) -> Result<String, &'static str> {
    let mut decoded = Vec::with_capacity(raw.len());
    let mut bytes = raw.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'+' => b' ',
            b'%' => hex(bytes.next())
                .zip(hex(bytes.next()))
                .map(|(high, low)| high << 4 | low)
                .ok_or("has a % that is not followed by two hexadecimal digits")?,
            byte => byte,
        });
    }
    let text = String::from_utf8(decoded).map_err(|_| "is not valid UTF-8")?;
    if text.chars().any(char::is_control) { Err("has a control character") } else { Ok(text) }
}

fn hex(byte: Option<u8>) -> Option<u8> {
    char::from(byte?).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_decode() {
        let cases = [
            ("", Ok("")),
            ("a%20b+c%2B", Ok("a b c+")),
            ("%5bx%5D", Ok("[x]")),
            ("caf%C3%A9", Ok("café")),
            ("café", Ok("café")),
            ("%", Err("has a % that is not followed by two hexadecimal digits")),
            ("%4", Err("has a % that is not followed by two hexadecimal digits")),
            ("%4g", Err("has a % that is not followed by two hexadecimal digits")),
            ("%é1", Err("has a % that is not followed by two hexadecimal digits")),
            ("%ff", Err("is not valid UTF-8")),
            ("%ED%A0%80", Err("is not valid UTF-8")),
            ("%00", Err("has a control character")),
            ("%0a", Err("has a control character")),
            ("%7f", Err("has a control character")),
            ("%C2%85", Err("has a control character")),
        ];
        for (raw, expected) in cases {
            assert_eq!(decode(raw), expected.map(str::to_owned), "{raw}");
        }
    }
}
