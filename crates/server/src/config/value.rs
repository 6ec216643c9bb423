//! One setting's value: from the text a person wrote into its place in `Config`, and back to text that
//! may be shown. What is wrong with a text is said as what was wanted instead.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use axum::http::Uri;
use domain::secret::Secret;

use super::settings::{Kind, Setting, Unit};
use super::{Blobs, Config, Database, LogFormat};

pub(super) const MASK: &str = "****";

/// Fits the 32-bit counters of the databases, and time arithmetic in milliseconds.
const MAX_NUMBER: u64 = 1_000_000_000;
const MAX_BYTES: u64 = 1 << 50;
const UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

impl Setting {
    /// Puts `raw` in its place, or says what was wanted.
    pub(super) fn set(&self, config: &mut Config, raw: &str) -> Result<(), String> {
        match &self.kind {
            Kind::Text(place) => *place(config) = Some(text(raw)?),
            Kind::Model(place) => *place(config) = Some(model(raw)?),
            Kind::Path(place) => *place(config) = path(raw)?,
            Kind::Address(place) => *place(config) = address(raw)?,
            Kind::Url(place) => *place(config) = Some(url(raw)?),
            Kind::BaseUrl(place) => *place(config) = Some(base_url(raw)?),
            Kind::Database(place) => *place(config) = database(raw)?,
            Kind::Blobs(place) => *place(config) = blobs(raw)?,
            Kind::Secret(place) => *place(config) = Some(secret(raw)?),
            Kind::List { of, place } => *place(config) = list(raw, of)?,
            Kind::LogFormat(place) => *place(config) = log_format(raw)?,
            Kind::Switch(place) => *place(config) = switch(raw)?,
            Kind::Number { unit, min, place } => *place(&mut config.limits) = number(raw, *unit, *min)?,
        }
        Ok(())
    }

    /// The value as it may be seen by anyone; `None` where nothing is set. Takes the configuration
    /// mutably only because that is how places are named; it changes nothing.
    pub(super) fn shown(&self, config: &mut Config) -> Option<toml::Value> {
        let text = match &self.kind {
            Kind::Text(place) | Kind::Model(place) | Kind::BaseUrl(place) => place(config).clone()?,
            // A key may stand behind the `?`.
            Kind::Url(place) => match place(config).as_ref()?.split_once('?') {
                Some((path, _)) => format!("{path}?{MASK}"),
                None => place(config).clone()?,
            },
            Kind::Path(place) => place(config).display().to_string(),
            Kind::Address(place) => place(config).to_string(),
            Kind::Database(place) => match place(config) {
                Database::Sqlite(path) => format!("sqlite:{}", path.display()),
                Database::Postgres(_) => MASK.to_owned(),
            },
            Kind::Blobs(place) => match place(config) {
                Blobs::Folder(path) if path.is_absolute() => format!("file://{}", path.display()),
                Blobs::Folder(path) => format!("file:{}", path.display()),
                Blobs::S3 { bucket, prefix } if prefix.is_empty() => format!("s3://{bucket}"),
                Blobs::S3 { bucket, prefix } => format!("s3://{bucket}/{prefix}"),
            },
            Kind::Secret(place) => place(config).as_ref().map(|_| MASK.to_owned())?,
            Kind::List { place, .. } => return Some(place(config).clone().into()),
            Kind::LogFormat(place) => match place(config) {
                LogFormat::Text => "text".to_owned(),
                LogFormat::Json => "json".to_owned(),
            },
            Kind::Switch(place) => return Some((*place(config)).into()),
            Kind::Number { place, .. } => {
                return Some(i64::try_from(*place(&mut config.limits)).unwrap_or(i64::MAX).into());
            }
        };
        Some(text.into())
    }
}

/// The text a TOML value stands for, or the type that this kind is written in.
pub(super) fn toml_text(kind: &Kind, value: &toml::Value) -> Result<String, &'static str> {
    match (kind, value) {
        (Kind::Number { .. }, toml::Value::Integer(n)) => Ok(n.to_string()),
        (Kind::Number { unit: Unit::Bytes, .. }, toml::Value::String(text)) => Ok(text.clone()),
        (Kind::Number { unit: Unit::Bytes, .. }, _) => {
            Err("a whole number of bytes or a string such as \"50 MiB\"")
        }
        (Kind::Number { .. }, _) => Err("a whole number without quotes"),
        (Kind::List { .. }, toml::Value::Array(items)) => {
            let items: Option<Vec<&str>> = items.iter().map(toml::Value::as_str).collect();
            items.map(|items| items.join(",")).ok_or("a list of strings")
        }
        (Kind::List { .. }, _) => Err("a list of strings"),
        (Kind::Switch(_), toml::Value::Boolean(on)) => Ok(on.to_string()),
        (Kind::Switch(_), _) => Err("true or false without quotes"),
        (_, toml::Value::String(text)) => Ok(text.clone()),
        _ => Err("a string in quotes"),
    }
}

/// `50 MiB` where that is exact, the plain number otherwise.
pub(super) fn bytes_text(bytes: u64) -> String {
    match UNITS.iter().find(|(_, size)| bytes >= *size && bytes.is_multiple_of(*size)) {
        Some((name, size)) => format!("{} {name}", bytes / size),
        None => bytes.to_string(),
    }
}

fn text(raw: &str) -> Result<String, String> {
    let trimmed = raw.trim();
    if trimmed.is_empty() || trimmed.contains(char::is_control) {
        return Err("text without control characters, not empty".to_owned());
    }
    Ok(trimmed.to_owned())
}

fn switch(raw: &str) -> Result<bool, String> {
    match raw.trim().to_ascii_lowercase().as_str() {
        "on" | "true" | "yes" | "1" => Ok(true),
        "off" | "false" | "no" | "0" => Ok(false),
        _ => Err("on or off".to_owned()),
    }
}

fn path(raw: &str) -> Result<PathBuf, String> {
    if raw.trim().is_empty() || raw.contains('\0') {
        return Err("a path, not empty".to_owned());
    }
    Ok(PathBuf::from(raw))
}

fn address(raw: &str) -> Result<SocketAddr, String> {
    let raw = raw.trim();
    let parsed = match raw.strip_prefix("localhost:") {
        Some(port) => port.parse().ok().map(|port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
        None => raw.parse().ok(),
    };
    parsed.ok_or_else(|| "an IP address or localhost with a port, such as 127.0.0.1:8080".to_owned())
}

/// Checks an http or https URL. One with a user name or password in it is refused: URLs are shown.
pub(super) fn url(raw: &str) -> Result<String, String> {
    let raw = raw.trim();
    let wanted =
        || "an http:// or https:// address with a host, without user name, password or fragment".to_owned();
    let uri: Uri = raw.parse().map_err(|_| wanted())?;
    let authority = uri.authority().map_or("", |a| a.as_str());
    let host = uri.host().unwrap_or("");
    let port_is_good = authority == host || uri.port_u16().is_some_and(|port| port > 0);
    let scheme_is_good = matches!(uri.scheme_str(), Some("http" | "https"));
    if !scheme_is_good || host.is_empty() || authority.contains('@') || !port_is_good || raw.contains('#') {
        return Err(wanted());
    }
    Ok(raw.to_owned())
}

/// As `url`, for an address that paths are put behind.
pub fn base_url(raw: &str) -> Result<String, String> {
    let url = url(raw)?;
    if url.contains('?') {
        return Err("an http:// or https:// address without a query".to_owned());
    }
    Ok(url.trim_end_matches('/').to_owned())
}

fn database(raw: &str) -> Result<Database, String> {
    let raw = raw.trim();
    let wanted =
        || "sqlite:PATH (a plain path without options) or postgres://USER:PASSWORD@HOST/NAME".to_owned();
    if let Some(rest) = raw.strip_prefix("postgres://").or_else(|| raw.strip_prefix("postgresql://")) {
        let good = !rest.is_empty() && !rest.contains(char::is_whitespace);
        return if good { Ok(Database::Postgres(Secret::new(raw))) } else { Err(wanted()) };
    }
    let path = raw.strip_prefix("sqlite://").or_else(|| raw.strip_prefix("sqlite:")).ok_or_else(wanted)?;
    // `:memory:` would lose everything at the end; `?mode=` and `%20` would end up in the file's name.
    if path.is_empty() || path.starts_with(':') || path.ends_with('/') || path.contains(['?', '%', '\0']) {
        return Err(wanted());
    }
    Ok(Database::Sqlite(PathBuf::from(path)))
}

fn model(raw: &str) -> Result<String, String> {
    let text = text(raw)?;
    match text.split_once('/') {
        Some((provider, model)) if !provider.is_empty() && !model.is_empty() => Ok(text),
        _ => Err("provider/model, like demo/assistant".to_owned()),
    }
}

fn blobs(raw: &str) -> Result<Blobs, String> {
    let raw = raw.trim();
    let wanted = || "file:///PATH (a plain path) or s3://BUCKET/PREFIX".to_owned();
    if let Some(rest) = raw.strip_prefix("s3://") {
        let wanted = || {
            "s3://BUCKET/PREFIX with a bucket of 3 to 63 small letters, digits, - and ., and a prefix of letters, \
             digits, -, _, ., = and /"
                .to_owned()
        };
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        let bucket_is_good = (3..=63).contains(&bucket.len())
            && bucket.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.'));
        let prefix_is_good = prefix.is_empty()
            || prefix.split('/').all(|part| {
                !matches!(part, "" | "." | "..")
                    && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.=".contains(&b))
            });
        let good = bucket_is_good && prefix_is_good;
        return if good {
            Ok(Blobs::S3 { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
        } else {
            Err(wanted())
        };
    }
    let path = raw.strip_prefix("file:").ok_or_else(wanted)?;
    let path = match path.strip_prefix("//") {
        // What follows two slashes up to the third is a host, and there is none to ask.
        Some(rest) if !rest.starts_with('/') => return Err(wanted()),
        Some(rest) => rest,
        None => path,
    };
    if path.is_empty() || path.contains(['?', '%', '#', '\0']) {
        return Err(wanted());
    }
    Ok(Blobs::Folder(PathBuf::from(path)))
}

fn secret(raw: &str) -> Result<Secret, String> {
    if raw.trim().is_empty() || raw.contains(char::is_control) {
        return Err("text without control characters, not blank".to_owned());
    }
    Ok(Secret::new(raw))
}

/// Comma-separated; the empty text is the empty list.
fn list(raw: &str, of: &[&str]) -> Result<Vec<String>, String> {
    let mut items: Vec<String> = Vec::new();
    for item in raw.split(',').map(str::trim).filter(|_| !raw.trim().is_empty()) {
        if !of.contains(&item) {
            return Err(format!("a list of {}", of.join(", ")));
        }
        if !items.iter().any(|known| known == item) {
            items.push(item.to_owned());
        }
    }
    Ok(items)
}

fn log_format(raw: &str) -> Result<LogFormat, String> {
    match raw.trim() {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err("text or json".to_owned()),
    }
}

fn number(raw: &str, unit: Unit, min: u64) -> Result<u64, String> {
    let (max, parsed) = match unit {
        Unit::Bytes => (MAX_BYTES, bytes(raw)),
        Unit::Count | Unit::Seconds => (MAX_NUMBER, digits(raw.trim())),
    };
    parsed.filter(|n| (min..=max).contains(n)).ok_or_else(|| match unit {
        Unit::Count => format!("a whole number from {min} to {max}"),
        Unit::Seconds => format!("a whole number of seconds from {min} to {max}"),
        Unit::Bytes => {
            let (min, max) = (bytes_text(min), bytes_text(max));
            format!("a number of bytes from {min} to {max}, plain or with KiB, MiB, GiB or TiB")
        }
    })
}

fn bytes(raw: &str) -> Option<u64> {
    let raw = raw.trim();
    let (count, unit) = raw.split_at(raw.find(|c: char| !c.is_ascii_digit()).unwrap_or(raw.len()));
    let size = match unit.trim_start() {
        "" => 1,
        unit => UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?.1,
    };
    digits(count)?.checked_mul(size)
}

/// Digits alone: `parse` by itself would take `+5`.
fn digits(raw: &str) -> Option<u64> {
    if raw.bytes().all(|b| b.is_ascii_digit()) { raw.parse().ok() } else { None }
}

#[cfg(test)]
#[path = "value_tests.rs"]
mod tests;
