//! What an S3 server's refusal means to the caller, or to whoever starts this server.

use std::error::Error as _;

use super::error::BlobError;

/// An error as the server put it: its code where it said one, and a short text.
#[derive(Debug)]
pub(super) struct Fault {
    code: String,
    text: String,
    missing: bool,
}

impl Fault {
    pub(super) fn of(error: &object_store::Error) -> Self {
        let whole = error.to_string();
        let code = element(&whole, "Code").unwrap_or_default().to_owned();
        let text = match element(&whole, "Message") {
            Some(message) => format!("{code}: {message}"),
            None if code.is_empty() => root_cause(error),
            None => code.clone(),
        };
        let missing = matches!(error, object_store::Error::NotFound { .. }) && code != "NoSuchBucket";
        Self { code, text: text.split_whitespace().collect::<Vec<_>>().join(" "), missing }
    }
}

impl From<Fault> for BlobError {
    fn from(fault: Fault) -> Self {
        match fault.code.as_str() {
            _ if fault.missing => Self::Missing,
            "XMinioStorageFull" | "QuotaExceeded" => Self::Full(fault.text),
            "InvalidRange" | "KeyTooLongError" | "EntityTooLarge" => Self::Internal(fault.text),
            _ => Self::Unavailable(fault.text),
        }
    }
}

/// What to do about a bucket that cannot be used.
pub(super) fn advice(deed: &str, error: &object_store::Error) -> String {
    let fault = Fault::of(error);
    let Fault { code, text, .. } = &fault;
    match code.as_str() {
        "NoSuchBucket" => "there is no such bucket: create it, or correct THREADKEEP_BLOB_URL".into(),
        "InvalidAccessKeyId" | "SignatureDoesNotMatch" | "InvalidToken" | "ExpiredToken" => format!(
            "the credentials are refused ({code}): check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN"
        ),
        "AccessDenied" => format!("the credentials may not {deed} objects there: grant it ({text})"),
        "PermanentRedirect" | "AuthorizationHeaderMalformed" => another_region(text),
        // S3 names the region in the body only, and the client does not read it.
        _ if text.contains("redirect without LOCATION") => another_region(text),
        _ => format!("cannot {deed} an object: {text}"),
    }
}

fn another_region(text: &str) -> String {
    format!("the bucket is in another region: set AWS_REGION ({text})")
}

/// The text of an element of S3's error document.
fn element<'a>(document: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = document.split_once(&format!("<{name}>"))?;
    Some(rest.split_once(&format!("</{name}>"))?.0)
}

fn root_cause(error: &object_store::Error) -> String {
    let mut cause = error.source();
    let mut text = error.to_string();
    while let Some(error) = cause {
        text = error.to_string();
        cause = error.source();
    }
    text.chars().take(300).collect()
}
