//! A recipe's interface: what the comment at the top of a script says of it, as a model is told.

use serde_json::{Map, Value, json};

/// The sentences of the comment, and what each `@param name what it is` stands for as a JSON schema.
pub fn interface(script: &str) -> (String, Value) {
    let comment =
        script.lines().skip_while(|line| line.starts_with("#!")).map_while(|line| line.strip_prefix('#'));
    let (mut said, mut properties) = (Vec::new(), Map::new());
    for line in comment.map(str::trim) {
        match line.strip_prefix("@param ") {
            Some(param) => {
                let (name, about) = param.trim().split_once(' ').unwrap_or((param.trim(), ""));
                properties.insert(name.to_owned(), json!({ "type": "string", "description": about.trim() }));
            }
            None => said.push(line),
        }
    }
    (said.join(" ").trim().to_owned(), json!({ "type": "object", "properties": properties }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_comment_at_the_top_is_the_interface() {
        let property = |about: &str| json!({ "type": "string", "description": about });
        let of = |properties: Value| json!({ "type": "object", "properties": properties });
        for (script, said, schema) in [
            ("", "", of(json!({}))),
            ("echo\n# Not at the top.", "", of(json!({}))),
            ("#!/bin/sh\n# Adds a node.\n#\n# Twice.\necho", "Adds a node.  Twice.", of(json!({}))),
            (
                "#!/bin/sh\n#!x\n# Adds.\n# @param kind  which node\n# @param at\n\n# @param no",
                "Adds.",
                of(json!({ "kind": property("which node"), "at": property("") })),
            ),
        ] {
            assert_eq!(interface(script), (said.to_owned(), schema), "{script:?}");
        }
    }
}
