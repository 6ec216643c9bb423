use proptest::prelude::*;

use super::super::settings::all;
use super::*;

fn setting(key: &str) -> &'static Setting {
    all().find(|setting| setting.key == key).expect("a known key")
}

/// What the setting shows after it took `raw`, or what it wanted.
fn taken(key: &str, raw: &str) -> Result<String, String> {
    let mut config = Config::default();
    setting(key).set(&mut config, raw)?;
    let shown = setting(key).shown(&mut config).expect("set, so shown");
    Ok(shown.as_str().map_or_else(|| shown.to_string(), str::to_owned))
}

#[test]
fn good_texts_are_taken() {
    for (key, raw, shown) in [
        ("listen", "localhost:9000", "127.0.0.1:9000"),
        ("listen", "[::1]:0", "[::1]:0"),
        ("public_url", "https://chat.example.org/", "https://chat.example.org"),
        ("public_url", "http://[::1]:8080/base/", "http://[::1]:8080/base"),
        ("jwks_url", "https://id.example.org/keys?p=one", "https://id.example.org/keys?****"),
        ("database_url", "sqlite:a/b.db", "sqlite:a/b.db"),
        ("database_url", "sqlite://b.db", "sqlite:b.db"),
        ("database_url", "sqlite:///srv/b.db", "sqlite:/srv/b.db"),
        ("database_url", "postgres://u:pw@h/n", "****"),
        ("database_url", "postgresql://u:pw@h/n?sslmode=require", "****"),
        ("blob_url", "file:///srv/blobs", "file:///srv/blobs"),
        ("blob_url", "file:blobs", "file:blobs"),
        ("blob_url", "s3://bucket", "s3://bucket"),
        ("blob_url", "s3://bucket/a/b/", "s3://bucket/a/b"),
        ("secret", "x", "****"),
        ("jwt_secret", "short", "****"),
        ("upload_types", " image, pdf ,image", r#"["image", "pdf"]"#),
        ("upload_types", "", "[]"),
        ("log_format", "json", "json"),
        ("default_org", " acme ", "acme"),
        ("lease_seconds", "1", "1"),
        ("replay_turn_limit", "0", "0"),
        ("max_persisted_tabs", "0", "0"),
        ("context_budget_chars", "500", "500"),
        ("max_line_bytes", "200", "200"),
        ("max_body_bytes", "512", "512"),
        ("requests_per_second", "0", "0"),
        ("max_body_bytes", "1024", "1024"),
        ("max_body_bytes", "50 MiB", "52428800"),
        ("max_body_bytes", "1gib", "1073741824"),
        ("max_body_bytes", " 1024 TiB ", "1125899906842624"),
    ] {
        assert_eq!(taken(key, raw).as_deref(), Ok(shown), "{key} = {raw:?}");
    }
}

#[test]
fn bad_texts_are_refused_with_what_is_wanted() {
    for (key, raw, wanted) in [
        ("data", "", "a path"),
        ("listen", "8080", "with a port"),
        ("listen", ":8080", "with a port"),
        ("listen", "localhost", "with a port"),
        ("listen", "localhost:70000", "with a port"),
        ("listen", "example.org:80", "an IP address or localhost"),
        ("public_url", "chat.example.org", "http://"),
        ("public_url", "ftp://chat.example.org", "http://"),
        ("public_url", "https://", "with a host"),
        ("public_url", "https://:8080", "with a host"),
        ("public_url", "https://h:99999", "with a host"),
        ("public_url", "https://h:x", "with a host"),
        ("public_url", "https://h:0", "with a host"),
        ("public_url", "https://u:pw@h", "without user name"),
        ("public_url", "https://h/#top", "fragment"),
        ("public_url", "https://h/?a=1", "without a query"),
        ("public_url", "https://h/a b", "http://"),
        ("jwks_url", "/keys", "http://"),
        ("database_url", "mysql://h/n", "sqlite:PATH"),
        ("database_url", "threadkeep.db", "sqlite:PATH"),
        ("database_url", "sqlite:", "sqlite:PATH"),
        ("database_url", "sqlite://", "sqlite:PATH"),
        ("database_url", "sqlite::memory:", "sqlite:PATH"),
        ("database_url", "sqlite:folder/", "sqlite:PATH"),
        ("database_url", "sqlite:a.db?mode=rwc", "without options"),
        ("database_url", "postgres://", "postgres://USER"),
        ("blob_url", "/srv/blobs", "file:///PATH"),
        ("blob_url", "file:", "file:///PATH"),
        ("blob_url", "file://host/blobs", "file:///PATH"),
        ("blob_url", "file:///a%20b", "a plain path"),
        ("blob_url", "s3://", "s3://BUCKET"),
        ("blob_url", "s3://b/p", "3 to 63"),
        ("model", "zork", "provider/model"),
        ("model", "/zork", "provider/model"),
        ("blob_url", "s3://No_Bucket", "s3://BUCKET"),
        ("blob_url", "s3://bucket/a//b", "s3://BUCKET"),
        ("blob_url", "s3://bucket/../b", "s3://BUCKET"),
        ("upload_types", "image,exe", "a list of image, pdf"),
        ("upload_types", "image,", "a list of image, pdf"),
        ("log_format", "JSON", "text or json"),
        ("default_org", " ", "not empty"),
        ("jwt_issuer", "a\nb", "control characters"),
        ("secret", "", "not blank"),
        ("jwt_secret", " ", "not blank"),
        ("openai_api_key", "", "not blank"),
        ("openai_api_key", " ", "not blank"),
        ("openai_api_key", "a\r\nb", "control characters"),
        ("lease_seconds", "0", "seconds from 1 to"),
        ("lease_seconds", "-1", "a whole number"),
        ("lease_seconds", "+5", "a whole number"),
        ("lease_seconds", "5.0", "a whole number"),
        ("lease_seconds", "", "a whole number"),
        ("lease_seconds", "1000000001", "to 1000000000"),
        ("requests_per_second", "many", "a whole number from 0"),
        ("max_tool_rounds", "0", "from 1 to"),
        ("max_body_bytes", "0", "from 1 to"),
        ("max_body_bytes", "50 MB", "MiB"),
        ("max_body_bytes", "1.5 MiB", "MiB"),
        ("max_body_bytes", "MiB", "bytes"),
        ("max_body_bytes", "1025 TiB", "to 1024 TiB"),
        ("max_body_bytes", "99999999999999999 TiB", "to 1024 TiB"),
        ("sandbox_memory_bytes", "1 MiB", "from 16 MiB"),
    ] {
        let error = taken(key, raw).expect_err(raw);
        assert!(error.contains(wanted), "{key} = {raw:?}: {error}");
    }
}

#[test]
fn toml_values_must_have_the_kind_s_own_type() {
    for (key, toml, expected) in [
        ("lease_seconds", "5", Ok("5")),
        ("lease_seconds", "\"5\"", Err("without quotes")),
        ("lease_seconds", "5.0", Err("without quotes")),
        ("max_body_bytes", "5000", Ok("5000")),
        ("max_body_bytes", "\"5 MiB\"", Ok("5 MiB")),
        ("max_body_bytes", "true", Err("50 MiB")),
        ("upload_types", "[\"pdf\", \"text\"]", Ok("pdf,text")),
        ("upload_types", "[]", Ok("")),
        ("upload_types", "\"pdf\"", Err("a list")),
        ("upload_types", "[1]", Err("a list")),
        ("default_org", "\"acme\"", Ok("acme")),
        ("default_org", "7", Err("in quotes")),
    ] {
        let table: toml::Table = format!("value = {toml}").parse().expect("TOML");
        let got = toml_text(&setting(key).kind, &table["value"]);
        match (got, expected) {
            (Ok(got), Ok(expected)) => assert_eq!(got, expected, "{key} = {toml}"),
            (Err(got), Err(expected)) => assert!(got.contains(expected), "{key} = {toml}: {got}"),
            (got, expected) => panic!("{key} = {toml}: {got:?}, expected {expected:?}"),
        }
    }
}

proptest! {
    #[test]
    fn bytes_read_back_as_they_are_written(n in 0..=MAX_BYTES, shift in 0u32..50) {
        let n = n >> shift << shift.min(40);
        prop_assume!(n <= MAX_BYTES);
        prop_assert_eq!(bytes(&bytes_text(n)), Some(n));
    }

    /// Whatever is taken is shown in a form that is taken again as the same.
    #[test]
    fn what_is_shown_is_taken_again(raw in "(sqlite:|file:|s3://|https?://|)[a-z0-9./:?@% -]{0,24}") {
        for setting in all().filter(|setting| !setting.is_secret() && !matches!(setting.kind, Kind::List { .. })) {
            let mut config = Config::default();
            if setting.set(&mut config, &raw).is_ok() {
                let shown = setting.shown(&mut config).expect("set, so shown");
                let again = toml_text(&setting.kind, &shown).expect("its own type");
                prop_assert_eq!(setting.set(&mut config, &again), Ok(()), "{} {:?}", setting.key, again);
                prop_assert_eq!(setting.shown(&mut config), Some(shown));
            }
        }
    }
}
