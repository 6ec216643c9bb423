//! From flags, environment and file to a `Config`: the first of them that has a setting decides it, and
//! what remains has its default. Reads nothing but its arguments and the files they name.

use std::ffi::OsString;

use clap::ArgMatches;
use domain::limits::Limits;

use super::settings::{Setting, all};
use super::sources::{Environment, File, Found, in_flags};
use super::{Blobs, Config, ConfigError, Database, Source};

pub fn load(
    flags: &ArgMatches,
    env: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Config, ConfigError> {
    let env = Environment::read(env)?;
    let file = File::read(flags, &env)?;
    let mut config = Config { mcp: file.mcp()?, ..Config::default() };
    for setting in all() {
        let found = match in_flags(flags, setting) {
            Some(found) => Some(found),
            None => match env.find(setting)? {
                Some(found) => Some(found),
                None => file.find(setting)?,
            },
        };
        if let Some(found) = found {
            take(&mut config, setting, &found)?;
        }
    }
    follow_defaults(&mut config);
    check(&config)?;
    Ok(config)
}

fn take(config: &mut Config, setting: &'static Setting, found: &Found) -> Result<(), ConfigError> {
    setting.set(config, &found.raw).map_err(|wanted| {
        let Found { raw, origin, .. } = found;
        // Whatever it was put under, a URL may have a password before its `@` or a key behind its `?`.
        let is = if setting.is_secret() || raw.contains(['@', '?']) {
            "is not valid".to_owned()
        } else {
            format!("is {:?}", raw.chars().take(80).collect::<String>())
        };
        ConfigError(format!("{}, set by {origin}, {is}: it must be {wanted}", setting.env))
    })?;
    config.sources.insert(setting.key, found.source);
    Ok(())
}

/// The defaults that depend on other settings.
fn follow_defaults(config: &mut Config) {
    if config.source("database_url") == Source::Default {
        config.database = Database::within(&config.data);
    }
    if config.source("blob_url") == Source::Default {
        config.blobs = Blobs::within(&config.data);
    }
    if config.source("upload_otp_ttl_seconds") == Source::Default {
        let limits = &mut config.limits;
        limits.upload_otp_ttl_seconds = Limits::upload_otp_ttl_for(limits.run_timeout_seconds);
    }
}

/// What must hold between settings.
fn check(config: &Config) -> Result<(), ConfigError> {
    const VERIFY: &str = "set THREADKEEP_JWT_SECRET or THREADKEEP_JWKS_URL";
    let refuse = |message: String| Err(ConfigError(message));
    if !config.is_local() {
        if config.secret.is_none() {
            return refuse(
                "THREADKEEP_SECRET must be set when user tokens are verified: \
                 give it at least 32 random bytes, the same on every node"
                    .to_owned(),
            );
        }
        return Ok(());
    }
    if !config.listen.ip().to_canonical().is_loopback() {
        let listen = config.listen;
        return refuse(format!(
            "THREADKEEP_LISTEN is {listen}, but local mode listens on a loopback address only: \
             {VERIFY} to listen there"
        ));
    }
    let idle =
        [("THREADKEEP_JWT_AUDIENCE", &config.auth.audience), ("THREADKEEP_JWT_ISSUER", &config.auth.issuer)];
    match idle.iter().find(|(_, value)| value.is_some()) {
        Some((name, _)) => {
            refuse(format!("{name} is set, but nothing verifies user tokens: {VERIFY} as well"))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
