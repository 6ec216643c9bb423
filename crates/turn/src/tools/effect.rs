//! A tool with an effect that tests can count, beyond the death of the process: it adds a line to the file that
//! `EFFECT_FILE` names. Only in builds with the feature `failpoints`, which no release has.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use domain::model::ToolSpec;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::{Output, Place, Tool};

struct Effect(PathBuf);

/// The tool, where a test wants it.
pub(crate) fn wanted() -> Option<Arc<dyn Tool>> {
    let file = std::env::var_os("EFFECT_FILE").filter(|file| !file.is_empty())?;
    Some(Arc::new(Effect(file.into())))
}

#[async_trait]
impl Tool for Effect {
    fn spec(&self) -> ToolSpec {
        let schema = to_raw_value(&json!({ "type": "object" })).unwrap_or_else(|_| RawValue::NULL.to_owned());
        let (name, description) = ("note_effect".to_owned(), "Has an effect.".to_owned());
        ToolSpec { name, description, schema }
    }

    fn is_read_only(&self) -> bool {
        false
    }

    async fn call(&self, _: &Place, _: Value) -> Result<Output, String> {
        let file = std::fs::File::options().create(true).append(true).open(&self.0);
        let noted = file.and_then(|mut file| writeln!(file, "once"));
        noted.map(|()| Output::text("noted")).map_err(|error| error.to_string())
    }
}
