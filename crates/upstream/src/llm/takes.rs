//! What a model takes beside text: as the operator says, else by its name. Wrong only to one side or the other: a model
//! that is not shown a picture is told of it in words, one that cannot see refuses with its provider's own error.

use domain::model::Takes;

/// What an operator says of a provider's models: any of these, or nothing for going by the name.
pub const INPUTS: &[&str] = &["image", "pdf", "none"];

/// Beginnings of the names of OpenAI's models that see, PDF files too.
const OPENAI: &[&str] = &["gpt-4o", "gpt-4.1", "gpt-4.5", "gpt-5", "gpt-6", "chatgpt-", "o1", "o3", "o4"];
/// Those of them that do not.
const BLIND: &[&str] = &["o1-mini", "o1-preview", "o3-mini", "gpt-4o-audio", "gpt-4o-mini-audio"];
/// What the names of others that see have in them.
const SEEING: &[&str] = &[
    "vision",
    "-vl",
    "vl-",
    "2.5vl",
    "3vl",
    "llava",
    "pixtral",
    "gemma-3",
    "gemma3",
    "gemini",
    "claude-3",
    "claude-opus",
    "claude-sonnet",
    "claude-haiku",
    "llama-4",
    "llama4",
    "minicpm-v",
    "moondream",
    "internvl",
    "gpt-4-turbo",
    "smolvlm",
    "grok-4",
    "mistral-small3",
    "mistral-medium-3",
];
/// Anthropic's own that do not.
const OLD_CLAUDES: &[&str] = &["claude-1", "claude-2", "claude-instant"];

pub fn takes(provider: &str, model: &str, said: &[String]) -> Takes {
    if !said.is_empty() {
        let has = |input: &str| said.iter().any(|said| said == input);
        return Takes { images: has("image"), pdf: has("pdf") };
    }
    let name = model.to_lowercase();
    let begins = |names: &[&str]| names.iter().any(|start| name.starts_with(start));
    let sees = SEEING.iter().any(|part| name.contains(part));
    match provider {
        "anthropic" if name.starts_with("claude-") => {
            let current = !begins(OLD_CLAUDES);
            Takes { images: current, pdf: current }
        }
        "openai" if begins(OPENAI) && !begins(BLIND) => Takes { images: true, pdf: true },
        "demo" => Takes::default(),
        _ => Takes { images: sees, pdf: false },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_name_unless_the_operator_says() {
        let none: &[String] = &[];
        for (provider, model, images, pdf) in [
            ("openai", "gpt-5-mini", true, true),
            ("openai", "gpt-4o-2024-08-06", true, true),
            ("openai", "gpt-3.5-turbo", false, false),
            ("openai", "o3-mini", false, false),
            ("openai", "Qwen2.5-VL-7B-Instruct", true, false),
            ("openai", "SmolLM2-135M", false, false),
            ("ollama", "llama3.2-vision:11b", true, false),
            ("ollama", "llama3.2:3b", false, false),
            ("anthropic", "claude-sonnet-4-5", true, true),
            ("anthropic", "claude-2.1", false, false),
            ("anthropic", "something-else", false, false),
            ("demo", "assistant", false, false),
        ] {
            assert_eq!(takes(provider, model, none), Takes { images, pdf }, "{provider}/{model}");
        }
        let said = |inputs: &[&str]| inputs.iter().map(|input| (*input).to_owned()).collect::<Vec<_>>();
        assert_eq!(takes("openai", "m", &said(&["image"])), Takes { images: true, pdf: false });
        assert_eq!(takes("openai", "gpt-5", &said(&["none"])), Takes::default());
    }
}
