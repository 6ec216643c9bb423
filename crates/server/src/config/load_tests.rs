use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use clap::{ArgMatches, Command};
use tempfile::NamedTempFile;

use super::super::settings::Kind;
use super::super::{McpServer, flags};
use super::*;

const SECRET: &str = "0123456789abcdef0123456789abcdef";

fn matches(args: &[String]) -> ArgMatches {
    let args = std::iter::once("threadkeep".to_owned()).chain(args.iter().cloned());
    flags(Command::new("threadkeep")).try_get_matches_from(args).expect("known flags")
}

fn file(text: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().expect("a temporary file");
    file.write_all(text.as_bytes()).expect("written");
    file
}

fn loaded(args: &[&str], env: &[(&str, &str)], toml: &str) -> Result<Config, String> {
    let file = file(toml);
    let mut args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
    args.push(format!("--config={}", file.path().display()));
    let env = env.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    load(&matches(&args), env).map_err(|error| error.to_string())
}

fn refused(args: &[&str], env: &[(&str, &str)], toml: &str) -> String {
    loaded(args, env, toml).expect_err("a refusal")
}

/// The `n`th of three good texts, with the TOML spelling of the same.
fn sample(setting: &Setting, n: usize) -> (String, String) {
    let text = match &setting.kind {
        Kind::Text(_) => format!("text{n}"),
        Kind::Model(_) => format!("provider/model{n}"),
        Kind::Path(_) => format!("/srv/{n}"),
        Kind::Address(_) => format!("127.0.0.1:900{n}"),
        Kind::Url(_) | Kind::BaseUrl(_) => format!("https://h{n}.example.org/x"),
        Kind::Database(_) => format!("sqlite:/srv/{n}.db"),
        Kind::Blobs(_) => format!("file:///srv/{n}"),
        Kind::Secret(_) => format!("{SECRET}-{n}"),
        Kind::List { of, .. } => {
            let word = of[n % of.len()];
            return (word.to_owned(), format!("[{word:?}]"));
        }
        Kind::LogFormat(_) => ["json", "text", "json"][n].to_owned(),
        Kind::Switch(_) => {
            let text = ["true", "false", "true"][n].to_owned();
            return (text.clone(), text);
        }
        Kind::Number { min, .. } => {
            let number = min + 7 + n as u64;
            return (number.to_string(), number.to_string());
        }
    };
    let toml = format!("{text:?}");
    (text, toml)
}

/// What the configuration really holds, secrets too.
fn held(setting: &Setting, config: &mut Config) -> Option<String> {
    if let Kind::Secret(place) = &setting.kind {
        return place(config).as_ref().map(|secret| secret.expose().to_owned());
    }
    match setting.shown(config)? {
        toml::Value::String(text) => Some(text),
        toml::Value::Array(items) => items.first()?.as_str().map(str::to_owned),
        other => Some(other.to_string()),
    }
}

#[test]
fn flag_goes_before_environment_before_file_for_every_setting() {
    for setting in all() {
        let [(flag, _), (env_value, _), (_, toml)] = [0, 1, 2].map(|n| sample(setting, n));
        for present in 0..8 {
            let (has_flag, has_env, has_file) = (present & 4 > 0, present & 2 > 0, present & 1 > 0);
            // What the checks between settings ask for, so that each setting can be set alone.
            let mut env = vec![("THREADKEEP_SECRET", SECRET), ("THREADKEEP_JWT_SECRET", SECRET)];
            env.retain(|(name, _)| *name != setting.env);
            if has_env {
                env.push((setting.env, &env_value));
            }
            let arg = format!("--{}={flag}", setting.flag());
            let args = if has_flag { vec![arg.as_str()] } else { vec![] };
            let mut text = if has_file { format!("{} = {toml}\n", setting.key) } else { String::new() };
            if setting.key == "secret" && present == 0 {
                env.clear();
            }
            if setting.key == "jwt_secret" && present == 0 {
                text.push_str("jwks_url = \"https://id.example.org/keys\"\n");
            }
            let mut config = loaded(&args, &env, &text).expect(setting.key);
            let (expected, source) = match (has_flag, has_env, has_file) {
                (true, _, _) => (Some(sample(setting, 0).0), Source::Flag),
                (false, true, _) => (Some(sample(setting, 1).0), Source::Environment),
                (false, false, true) => (Some(sample(setting, 2).0), Source::File),
                _ => (held(setting, &mut Config::default()), Source::Default),
            };
            assert_eq!(held(setting, &mut config), expected, "{} with {present:03b}", setting.key);
            assert_eq!(config.source(setting.key), source, "{} with {present:03b}", setting.key);
        }
    }
}

#[test]
fn names_follow_one_rule_and_are_distinct() {
    let mut seen = std::collections::BTreeSet::new();
    for setting in all() {
        let upper = setting.key.to_uppercase();
        assert!(setting.env == upper || setting.env == format!("THREADKEEP_{upper}"), "{}", setting.env);
        assert!(seen.insert(setting.key) && seen.insert(setting.env), "{}", setting.key);
        assert!(!setting.help.is_empty(), "{}", setting.key);
    }
    flags(Command::new("threadkeep")).debug_assert();
}

#[test]
fn nothing_set_is_the_local_default() {
    let none = ArgMatches::default();
    let config = load(&none, std::iter::empty()).expect("the default");
    assert!(config.is_local());
    assert_eq!(config.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(config.database, Database::Sqlite(PathBuf::from("./threadkeep-data/threadkeep.db")));
    assert_eq!(config.blobs, Blobs::Folder(PathBuf::from("./threadkeep-data/blobs")));
    assert_eq!(config.limits, Limits::default());
    assert!(config.sources.is_empty());
}

#[test]
fn dependent_defaults_follow_what_they_depend_on() {
    let config = loaded(&["--data=/srv/tk"], &[("THREADKEEP_RUN_TIMEOUT_SECONDS", "10")], "").expect("good");
    assert_eq!(config.database, Database::Sqlite(PathBuf::from("/srv/tk/threadkeep.db")));
    assert_eq!(config.blobs, Blobs::Folder(PathBuf::from("/srv/tk/blobs")));
    assert_eq!(config.limits.upload_otp_ttl_seconds, 70);
    let config = loaded(&["--run-timeout-seconds=10"], &[("THREADKEEP_UPLOAD_OTP_TTL_SECONDS", "9")], "");
    assert_eq!(config.expect("good").limits.upload_otp_ttl_seconds, 9);
}

#[test]
fn an_empty_variable_is_unset() {
    let env = [
        ("THREADKEEP_LISTEN", ""),
        ("OPENAI_API_KEY", ""),
        ("THREADKEEP_CONFIG", ""),
        ("SANDBOX_TOKEN_FILE", ""),
    ];
    let config = loaded(&[], &env, "listen = \"127.0.0.1:1\"").expect("good");
    assert_eq!(config.source("listen"), Source::File);
    assert!(config.openai.api_key.is_none() && config.sandbox.token.is_none());
}

#[test]
fn the_addresses_that_kubernetes_tells_are_no_settings() {
    let env = [
        ("THREADKEEP_SERVICE_HOST", "10.96.0.11"),
        ("THREADKEEP_SERVICE_PORT", "8080"),
        ("THREADKEEP_SERVICE_PORT_HTTP", "8080"),
        ("THREADKEEP_PORT", "tcp://10.96.0.11:8080"),
        ("THREADKEEP_PORT_8080_TCP", "tcp://10.96.0.11:8080"),
        ("THREADKEEP_PORT_8080_TCP_PROTO", "tcp"),
        ("THREADKEEP_PORT_8080_TCP_PORT", "8080"),
        ("THREADKEEP_PORT_8080_TCP_ADDR", "10.96.0.11"),
        ("THREADKEEP_POSTGRES_SERVICE_HOST", "fd00::7"),
    ];
    assert!(loaded(&[], &env, "").is_ok());
    for (name, _) in env {
        refused(&[], &[(name, "x")], "");
    }
}

#[test]
fn unknown_names_are_refused_with_the_nearest_one() {
    for (name, expected) in [
        ("THREADKEEP_LISTN", "did you mean THREADKEEP_LISTEN?"),
        ("THREADKEEP_DATABASE_URL", "did you mean DATABASE_URL?"),
        ("THREADKEEP_OPENAI_APIKEY", "did you mean OPENAI_API_KEY?"),
        ("THREADKEEP_MAX_FILE_SIZE", "did you mean THREADKEEP_MAX_FILE_BYTES?"),
        ("THREADKEEP_SECRET_FIL", "did you mean THREADKEEP_SECRET_FILE?"),
        ("THREADKEEP_CONFG", "did you mean THREADKEEP_CONFIG?"),
        ("THREADKEEP_TEST_SPEED", "threadkeep serve --help"),
        ("THREADKEEP_", "threadkeep serve --help"),
    ] {
        let error = refused(&[], &[(name, "x-value-x")], "");
        assert!(error.starts_with(&format!("{name} in the environment is not a setting")), "{error}");
        assert!(error.contains(expected), "{error}");
        assert!(!error.contains("x-value-x"), "{error}");
    }
    // An unknown one is unknown when empty too, and only secrets have a variant for files.
    refused(&[], &[("THREADKEEP_LISTN", "")], "");
    refused(&[], &[("THREADKEEP_LISTEN_FILE", "/dev/null")], "");

    refused(&[], &[("THREADKEEP_PORT", "8080")], "");

    for (toml, expected) in [
        ("listn = \"x\"", "\"listn\" in the file"),
        ("listn = \"x\"", "did you mean listen?"),
        ("max-body-bytes = 5", "did you mean max_body_bytes?"),
        ("THREADKEEP_DATA = \"x\"", "did you mean data?"),
        ("[server]\nlisten = \"127.0.0.1:1\"", "\"server\" in the file"),
    ] {
        let error = refused(&[], &[], toml);
        assert!(error.contains(expected), "{error}");
    }
    let unknown = flags(Command::new("threadkeep")).try_get_matches_from(["threadkeep", "--listn=x"]);
    assert!(unknown.expect_err("unknown flag").to_string().contains("--listen"));
}

#[test]
fn variables_of_others_are_left_alone() {
    let env =
        [("RUST_LOG", "debug"), ("AWS_REGION", "eu"), ("THREADKEEPER", "x"), ("LISTEN", "x"), ("PATH", "")];
    assert!(loaded(&[], &env, "").expect("good").sources.is_empty());
}

#[test]
fn a_bad_value_names_setting_origin_and_wish() {
    let flag = refused(&["--lease-seconds=0"], &[("THREADKEEP_LEASE_SECONDS", "5")], "");
    assert_eq!(
        flag,
        "THREADKEEP_LEASE_SECONDS, set by the flag --lease-seconds, is \"0\": \
         it must be a whole number of seconds from 1 to 1000000000"
    );
    let env = refused(&[], &[("DATABASE_URL", "mysql://u:hidden@h")], "");
    assert!(
        env.starts_with("DATABASE_URL, set by the environment, is not valid: it must be sqlite:"),
        "{env}"
    );
    let file = refused(&[], &[], "log_format = \"xml\"");
    assert!(file.starts_with("LOG_FORMAT, set by the file /"), "{file}");
    assert!(file.ends_with("(key log_format), is \"xml\": it must be text or json"), "{file}");
    let kind = refused(&[], &[], "lease_seconds = \"5\"");
    assert!(kind.contains("THREADKEEP_LEASE_SECONDS") && kind.contains("without quotes"), "{kind}");
}

#[test]
fn a_variable_that_is_not_utf8_is_named() {
    let bad = OsString::from_vec(vec![b'/', 0xff]);
    let error = load(&ArgMatches::default(), [("THREADKEEP_DATA".into(), bad.clone())].into_iter());
    assert!(error.expect_err("a refusal").to_string().starts_with("THREADKEEP_DATA, set by the environment"));
    assert!(load(&ArgMatches::default(), [("EDITOR".into(), bad)].into_iter()).is_ok());
}

#[test]
fn files_that_were_named_must_be_there_and_be_toml() {
    let absent = [("THREADKEEP_CONFIG".into(), "/absent/tk.toml".into())];
    let error = load(&ArgMatches::default(), absent.into_iter()).expect_err("a refusal").to_string();
    assert!(
        error.starts_with("THREADKEEP_CONFIG names \"/absent/tk.toml\", which cannot be read"),
        "{error}"
    );
    let flag = load(&matches(&["--config=/absent/tk.toml".to_owned()]), std::iter::empty());
    assert!(flag.expect_err("a refusal").to_string().starts_with("--config names"));
    let broken = refused(&[], &[], "data = \"/srv\"\nsecret = \"hidden-hidden\n");
    assert!(broken.contains("not valid TOML at line 2") && !broken.contains("hidden-hidden"), "{broken}");
    let twice = refused(&[], &[], "secret = \"hidden-1\"\nsecret = \"hidden-2\"\n");
    assert!(twice.contains("at line 2") && !twice.contains("hidden"), "{twice}");
    let bare = refused(&[], &[], "secret = hidden");
    assert!(bare.contains("at line 1") && !bare.contains("hidden"), "{bare}");

    let by_env = file("listen = \"127.0.0.1:1\"");
    let env = [("THREADKEEP_CONFIG".into(), by_env.path().into())];
    let config = load(&ArgMatches::default(), env.into_iter()).expect("good");
    assert_eq!(config.listen.port(), 1);
}

#[test]
fn secrets_may_come_from_files() {
    for setting in all().filter(|setting| setting.is_secret()) {
        let name = setting.env_file().expect("secrets have one");
        let (value, _) = sample(setting, 0);
        let secret = file(&format!("\n {value}\n\n"));
        let path = secret.path().display().to_string();
        let mut env = vec![("THREADKEEP_SECRET", SECRET)];
        env.retain(|(name, _)| *name != setting.env);
        env.push((&name, &path));
        let mut config = loaded(&[], &env, "").expect(setting.key);
        assert_eq!(held(setting, &mut config), Some(value.clone()), "{name}");
        assert_eq!(config.source(setting.key), Source::Environment);

        let both = refused(&[], &[(setting.env, &value), (&name, &path)], "");
        assert_eq!(both, format!("{} and {name} are both set: keep one of them", setting.env));
        let absent = refused(&[], &[(&name, "/absent/secret")], "");
        assert!(absent.starts_with(&format!("{name} names \"/absent/secret\"")), "{absent}");
        let empty = file("\n");
        let empty = refused(&[], &[(&name, &empty.path().display().to_string())], "");
        assert!(empty.contains(setting.env) && empty.contains(&name), "{empty}");
    }
}

#[test]
fn local_mode_listens_on_loopback_only() {
    for listen in ["0.0.0.0:8080", "[::]:8080", "192.168.1.5:8080", "[::ffff:10.0.0.1]:80"] {
        let error = refused(&["--listen", listen], &[], "");
        for name in ["THREADKEEP_LISTEN", "THREADKEEP_JWT_SECRET", "THREADKEEP_JWKS_URL"] {
            assert!(error.contains(name), "{error}");
        }
    }
    for listen in ["127.0.0.1:0", "127.8.8.8:1", "[::1]:8080", "localhost:8080", "[::ffff:127.0.0.1]:80"] {
        assert!(loaded(&["--listen", listen], &[], "").expect(listen).is_local());
    }
}

#[test]
fn outside_local_mode_a_secret_is_needed() {
    let jwks = ("THREADKEEP_JWKS_URL", "https://id.example.org/keys");
    let jwt = ("THREADKEEP_JWT_SECRET", SECRET);
    let own = ("THREADKEEP_SECRET", SECRET);
    let listen = "--listen=0.0.0.0:8080";
    for verify in [vec![jwks], vec![jwt], vec![jwks, jwt]] {
        assert!(refused(&[listen], &verify, "").starts_with("THREADKEEP_SECRET must be set"));
        let config = loaded(&[listen], &[verify, vec![own]].concat(), "").expect("good");
        assert!(!config.is_local());
    }
    for name in ["THREADKEEP_JWT_AUDIENCE", "THREADKEEP_JWT_ISSUER"] {
        let error = refused(&[], &[(name, "x")], "");
        assert!(error.starts_with(name) && error.contains("THREADKEEP_JWKS_URL"), "{error}");
    }
}

#[test]
fn tool_servers_come_from_the_file() {
    let config = loaded(
        &[],
        &[],
        "[mcp.web]\nurl = \"https://h/mcp?key=1\"\ntoken = \"t\"\n[mcp.notes]\ncommand = \"npx\"\nargs = [\"-y\", \"notes\"]\n\
         env = [\"NOTES\"]\n[mcp.bare]\ncommand = \"x\"",
    )
    .expect("good");
    let McpServer::Http { url, token } = &config.mcp["web"] else { panic!("{:?}", config.mcp) };
    assert_eq!((url.expose(), token.as_ref().unwrap().expose()), ("https://h/mcp?key=1", "t"));
    let McpServer::Stdio { command, args, env } = &config.mcp["notes"] else { panic!("{:?}", config.mcp) };
    assert_eq!((command.as_str(), args[1].expose(), env[0].as_str()), ("npx", "notes", "NOTES"));
    assert_eq!(config.mcp["bare"], McpServer::Stdio { command: "x".to_owned(), args: vec![], env: vec![] });

    for bad in [
        "mcp = 1",
        "[mcp]\nurl = \"https://hidden\"",
        "[mcp.a]",
        "[mcp.a]\nurl = \"ftp://hidden\"",
        "[mcp.a]\nurl = \"https://hidden\"\ncommand = \"x\"",
        "[mcp.a]\ncommand = \"\"",
        "[mcp.a]\ncommand = \"x\"\nargs = \"hidden\"",
        "[mcp.a]\ncommand = \"x\"\nargs = [1]",
        "[mcp.a]\ncommand = \"x\"\nenv = \"hidden\"",
        "[mcp.a]\ncommand = \"x\"\nenv = [\"OPENAI_API_KEY\"]",
        "[mcp.a]\ncommand = \"x\"\nenv = [\"THREADKEEP_SECRET_FILE\"]",
        "[mcp.a]\ncommand = \"x\"\ntoken = \"hidden\"",
        "[mcp.a]\nurl = \"https://hidden\"\ntoken = \"hidden words\"",
        "[mcp.a]\nurl = \"https://hidden\"\nargs = []",
        "[mcp.a]\nargs = [\"hidden\"]",
        "[mcp.\"a b\"]\nurl = \"https://hidden\"",
    ] {
        let error = refused(&[], &[], bad);
        assert!(error.contains("mcp") && !error.contains("hidden"), "{bad}: {error}");
    }
}
