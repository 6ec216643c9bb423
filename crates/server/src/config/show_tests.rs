use std::ffi::OsString;

use clap::ArgMatches;

use super::super::{Database, load};
use super::*;

const HIDDEN: &str = "hidden-hidden-hidden-hidden-hidden";

/// A configuration in which every secret there can be is `HIDDEN`.
fn full_of_secrets() -> Config {
    let toml = format!(
        "[mcp.web]\nurl = \"https://h/{HIDDEN}\"\n[mcp.notes]\ncommand = \"npx\"\nargs = [\"{HIDDEN}\"]"
    );
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), toml).expect("written");
    let mut env: Vec<(OsString, OsString)> = vec![("THREADKEEP_CONFIG".into(), file.path().into())];
    for setting in all().filter(|setting| setting.is_secret()) {
        let value = match setting.kind {
            Kind::Database(_) => format!("postgres://u:{HIDDEN}@h/n"),
            _ => HIDDEN.to_owned(),
        };
        env.push((setting.env.into(), value.into()));
    }
    load(&ArgMatches::default(), env.into_iter()).expect("good")
}

#[test]
fn secrets_are_never_shown() {
    let config = full_of_secrets();
    assert!(matches!(&config.database, Database::Postgres(url) if url.expose().contains(HIDDEN)));
    for text in
        [config.to_toml(), config.to_json().to_string(), format!("{config:?}"), format!("{config:#?}")]
    {
        assert!(!text.contains("hidden"), "{text}");
    }
    let toml = config.to_toml();
    for setting in all().filter(|setting| setting.is_secret()) {
        assert!(toml.contains(&format!("{} = \"****\"  # from env\n", setting.key)), "{toml}");
    }
    assert!(toml.contains("[mcp.web]  # from file\nurl = \"****\"\n"), "{toml}");
    assert!(toml.contains("command = \"npx\"\nargs = [\"****\"]\n"), "{toml}");
}

#[test]
fn of_a_key_sets_address_the_query_is_not_shown() {
    let url = format!("https://h/keys?token={HIDDEN}");
    let env = [("THREADKEEP_JWKS_URL", url.as_str()), ("THREADKEEP_SECRET", HIDDEN)];
    let env = env.map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let config = load(&ArgMatches::default(), env.into_iter()).expect("good");
    assert_eq!(config.auth.jwks_url, Some(url));
    assert!(config.to_toml().contains("jwks_url = \"https://h/keys?****\"  # from env\n"));
    assert_eq!(config.to_json()["jwks_url"]["value"], "https://h/keys?****");
}

#[test]
fn secrets_are_in_no_error() {
    for setting in all().filter(|setting| setting.is_secret()) {
        // Each is bad for every secret: a control character, or no database at all.
        for bad in ["hidden\u{7}hidden-hidden-hidden-hidden", "\u{1}hidden"] {
            let env = [(OsString::from(setting.env), OsString::from(bad))];
            let error = load(&ArgMatches::default(), env.into_iter()).expect_err(setting.key);
            assert!(error.to_string().contains(setting.env), "{error}");
            assert!(!format!("{error} {error:?} {error:#?}").contains("hidden"), "{error}");
        }
    }
    for bad in ["https://u:hidden@h", "https://h/?key=hidden"] {
        for setting in all().filter(|setting| matches!(setting.kind, Kind::BaseUrl(_) | Kind::Blobs(_))) {
            let env = [(OsString::from(setting.env), OsString::from(bad))];
            let error = load(&ArgMatches::default(), env.into_iter()).expect_err(setting.key).to_string();
            assert!(error.starts_with(setting.env) && !error.contains("hidden"), "{error}");
        }
    }
}

#[test]
fn the_default_is_shown_line_by_line() {
    let toml = Config::default().to_toml();
    for line in [
        "data = \"./threadkeep-data\"  # from default",
        "listen = \"127.0.0.1:8080\"  # from default",
        "# public_url is not set: derived from the address",
        "database_url = \"sqlite:./threadkeep-data/threadkeep.db\"  # from default",
        "blob_url = \"file:./threadkeep-data/blobs\"  # from default",
        "upload_types = []  # from default",
        "lease_seconds = 15  # from default",
        "max_file_bytes = 52428800  # from default: 50 MiB",
        "upload_otp_ttl_seconds = 1860  # from default",
    ] {
        assert!(toml.lines().any(|l| l == line), "{line} is not in\n{toml}");
    }
    assert_eq!(toml.lines().count(), all().count());
}

#[test]
fn what_is_printed_can_be_loaded() {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), Config::default().to_toml()).expect("written");
    let env = [("THREADKEEP_CONFIG".into(), file.path().into())];
    let again = load(&ArgMatches::default(), env.into_iter()).expect("good");
    assert_eq!(again.to_toml(), Config::default().to_toml().replace("# from default", "# from file"));
}

#[test]
fn json_has_value_and_origin() {
    let json = full_of_secrets().to_json();
    assert_eq!(json["listen"], json!({ "value": "127.0.0.1:8080", "from": "default" }));
    assert_eq!(json["secret"], json!({ "value": "****", "from": "env" }));
    assert_eq!(json["public_url"], json!({ "value": null, "from": "default" }));
    assert_eq!(json["max_file_bytes"]["value"], json!(52_428_800));
    assert_eq!(json["mcp"]["web"], json!({ "url": "****" }));
    assert_eq!(json.as_object().expect("an object").len(), all().count() + 1);
}
