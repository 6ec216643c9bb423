//! `threadkeep config`: what holds and where it came from, and no secret in any of it.

use std::fs;

use serde_json::{Value, json};

use crate::house::{Env, House};

const SECRETS: [&str; 6] = [
    "THREADKEEP_SECRET",
    "THREADKEEP_JWT_SECRET",
    "SANDBOX_TOKEN",
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "COMPOSIO_API_KEY",
];

async fn shown(house: &House, args: &[&str], env: &[(&str, &str)]) -> (String, Value) {
    let args = |more: &[&'static str]| [&["config"], args, more].concat();
    let text = house.run(&args(&[]), env).await;
    let json = house.run(&args(&["--json"]), env).await;
    for ran in [&text, &json] {
        assert!(ran.code == Some(0) && ran.stderr.is_empty(), "{ran:?}");
    }
    (text.stdout, serde_json::from_str(&json.stdout).expect("JSON"))
}

#[tokio::test]
async fn a_flag_goes_before_the_environment_before_the_file_before_the_default() {
    let house = House::sqlite();
    let file = house.data().join("config.toml");
    fs::write(&file, "listen = \"127.0.0.1:7001\"\nmax_body_bytes = \"3 MiB\"\nlog_format = \"json\"\n")
        .expect("written");
    let file = file.to_str().expect("a path");
    let args = ["--config", file, "--listen", "127.0.0.1:7003"];
    let env = [("THREADKEEP_LISTEN", "127.0.0.1:7002"), ("LOG_FORMAT", "text")];
    let (text, json) = shown(&house, &args, &env).await;
    let mut expected = vec![
        ("listen", json!("127.0.0.1:7003"), "flag"),
        ("log_format", json!("text"), "env"),
        ("max_body_bytes", json!(3 << 20), "file"),
        ("blob_url", json!(format!("file://{}/blobs", house.data().display())), "default"),
        ("secret", Value::Null, "default"),
    ];
    expected.push(("data", json!(house.data()), "env"));
    for (key, value, from) in expected {
        assert_eq!(json[key], json!({ "value": value, "from": from }), "{key}");
    }
    for line in [
        "listen = \"127.0.0.1:7003\"  # from flag",
        "log_format = \"text\"  # from env",
        "max_body_bytes = 3145728  # from file: 3 MiB",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in:\n{text}");
    }

    let (_, json) = shown(&house, &["--config", file], &[("THREADKEEP_LISTEN", "")]).await;
    assert_eq!(json["listen"], json!({ "value": "127.0.0.1:7001", "from": "file" }));
    let (_, json) = shown(&house, &[], &[("THREADKEEP_LISTEN", "")]).await;
    assert_eq!(json["listen"], json!({ "value": "127.0.0.1:8080", "from": "default" }));
    // What it prints can be read back.
    fs::write(house.data().join("back.toml"), text).expect("written");
    let back = house.run(&["config", "--config", "back.toml"], &[("THREADKEEP_LISTEN", "")]).await;
    assert!(
        back.code == Some(0) && back.stdout.contains("listen = \"127.0.0.1:7003\"  # from file"),
        "{back:?}"
    );
}

#[tokio::test]
async fn secrets_are_masked_wherever_they_come_from() {
    const CANARY: &str = "canary-0123456789-0123456789-0123456789";
    let house = House::sqlite();
    let database = format!("postgres://me:{CANARY}@db.example.org/x");
    let in_env: Vec<_> =
        SECRETS.iter().map(|name| (*name, CANARY)).chain([("DATABASE_URL", &*database)]).collect();
    let mut toml = String::new();
    let mut flags = Vec::new();
    for (name, value) in &in_env {
        let key = name.trim_start_matches("THREADKEEP_").to_lowercase();
        toml.push_str(&format!("{key} = {value:?}\n"));
        flags.push(format!("--{}={value}", key.replace('_', "-")));
    }
    toml.push_str(&format!("[mcp.a]\nurl = \"https://x.example.org/?key={CANARY}\"\n"));
    toml.push_str(&format!("[mcp.b]\ncommand = \"tool\"\nargs = [\"--key\", \"{CANARY}\"]\n"));
    fs::write(house.data().join("config.toml"), toml).expect("written");
    let file = house.data().join("secret.txt");
    fs::write(&file, CANARY).expect("written");
    let names: Vec<_> = SECRETS.iter().map(|name| format!("{name}_FILE")).collect();
    let in_files: Vec<_> = names.iter().map(|name| (name.as_str(), file.to_str().expect("a path"))).collect();
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();

    let ways: [(&str, &[&str], &Env); 4] = [
        ("env", &[], &in_env),
        ("env", &[], &in_files),
        ("file", &["--config", "config.toml"], &[]),
        ("flag", &flags, &[]),
    ];
    for (from, args, env) in ways {
        let (text, json) = shown(&house, args, env).await;
        let both = format!("{text}{json}");
        assert!(!both.contains("canary"), "{from}: {both}");
        for name in SECRETS {
            let key = name.trim_start_matches("THREADKEEP_").to_lowercase();
            assert_eq!(json[&key], json!({ "value": "****", "from": from }), "{key}");
        }
        if from == "file" {
            assert_eq!(json["mcp"]["a"]["url"], "****");
        }
    }
}

#[tokio::test]
async fn help_lists_every_setting_with_its_variable() {
    let house = House::sqlite();
    let (_, json) = shown(&house, &[], &[]).await;
    let keys: Vec<&String> =
        json.as_object().expect("an object").keys().filter(|key| *key != "mcp").collect();
    assert!(keys.len() > 30, "{keys:?}");
    for command in ["serve", "config", "sandbox", "doctor"] {
        let ran = house.run(&[command, "--help"], &[]).await;
        assert_eq!(ran.code, Some(0));
        let help = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        for key in &keys {
            let (flag, upper) = (format!("--{} ", key.replace('_', "-")), key.to_uppercase());
            let variable = [format!("[env: THREADKEEP_{upper}]"), format!("[env: {upper}]")];
            assert!(
                help.contains(&flag) && variable.iter().any(|v| help.contains(v)),
                "{key} in {command} --help"
            );
        }
    }
}
