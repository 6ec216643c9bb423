//! Which models there are, and which one is taken where nobody chose.

use domain::limits::Limits;
use domain::secret::Secret;
use testkit::sandbox::{Action, ScriptedSandbox};
use upstream::llm::models::{LocalServer, ModelSettings, Models, ProviderSettings};

use crate::vendor::{KEY, refusal};

fn models(settings: ModelSettings) -> Models {
    Models::new(settings, &Limits::default(), upstream::http::client().unwrap()).unwrap()
}

fn at(url: &str) -> ProviderSettings {
    let (key, base_url) = (Some(Secret::new(KEY)), Some(url.to_owned()));
    ProviderSettings { key, base_url, ..ProviderSettings::default() }
}

fn listing(ids: &str) -> Vec<Action> {
    refusal("200 OK", vec![], &format!("{{\"data\":[{ids}]}}"))
}

#[tokio::test]
async fn without_any_setting_there_is_the_demo_model() {
    let models = models(ModelSettings::default());
    assert_eq!(models.default_model().await, "demo/assistant");
    assert_eq!(models.list().await, ["demo/assistant"]);
    assert!(models.find("demo/assistant").is_ok());
    for (name, words) in [
        ("openai/gpt", "OPENAI_API_KEY"),
        ("anthropic/claude", "ANTHROPIC_API_KEY"),
        ("demo/other", "demo/assistant"),
        ("other/x", "provider"),
        ("gpt", "provider/model"),
        ("openai/", "provider/model"),
        ("", "provider/model"),
    ] {
        let fault = models.find(name).err().unwrap();
        assert!(fault.message.contains(words), "{name}: {}", fault.message);
    }
}

#[tokio::test]
async fn a_server_of_ones_own_says_what_it_has() {
    let openai = ScriptedSandbox::start(listing(r#"{"id":"llama-3"},{"id":"org/model"},{}"#)).await.unwrap();
    let anthropic = ScriptedSandbox::start(listing(r#"{"id":"claude"}"#)).await.unwrap();
    let models = models(ModelSettings {
        openai: at(&format!("{}/v1", openai.url())),
        anthropic: at(&anthropic.url()),
        ..ModelSettings::default()
    });
    let all = ["openai/llama-3", "openai/org/model", "anthropic/claude", "demo/assistant"];
    assert_eq!(models.list().await, all);
    assert_eq!(models.default_model().await, "openai/llama-3");
    assert_eq!(models.find("openai/org/model").ok().unwrap().name, "org/model");
    let asked = openai.request(0).await.unwrap();
    assert_eq!(
        (asked.path.as_str(), asked.header("authorization")),
        ("/v1/models", Some(format!("Bearer {KEY}").as_str()))
    );
    let asked = anthropic.request(0).await.unwrap();
    assert_eq!((asked.path.as_str(), asked.header("x-api-key")), ("/v1/models", Some(KEY)));
}

#[tokio::test]
async fn servers_on_this_machine_are_offered_while_they_are_there() {
    let ollama =
        ScriptedSandbox::start(listing(r#"{"id":"llama3.2:3b","owned_by":"library"}"#)).await.unwrap();
    let other = ScriptedSandbox::start(listing(r#"{"id":"x","owned_by":"somebody"}"#)).await.unwrap();
    let llamacpp =
        ScriptedSandbox::start(listing(r#"{"id":"smol.gguf","owned_by":"llamacpp"}"#)).await.unwrap();
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let server =
        |provider, url: &str, owner| LocalServer { provider, title: "A server", url: url.to_owned(), owner };
    let local = |url: &str| {
        let servers = vec![server("ollama", &ollama.url(), None), server("llamacpp", url, Some("llamacpp"))];
        models(ModelSettings { local: servers, ..ModelSettings::default() })
    };
    let found = local(&llamacpp.url());
    assert_eq!(found.list().await, ["ollama/llama3.2:3b", "llamacpp/smol.gguf", "demo/assistant"]);
    assert_eq!(found.default_model().await, "demo/assistant", "they are offered, not chosen");
    assert_eq!(found.find("llamacpp/smol.gguf").ok().unwrap().name, "smol.gguf");
    assert_eq!(ollama.request(0).await.unwrap().path, "/v1/models");
    // Something else on that port is not taken for it.
    assert_eq!(local(&other.url()).list().await, ["ollama/llama3.2:3b", "demo/assistant"]);
    assert_eq!(local(&format!("http://{gone}")).list().await, ["ollama/llama3.2:3b", "demo/assistant"]);
}

#[tokio::test]
async fn what_the_operator_chose_comes_first_and_a_dead_list_is_no_failure() {
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let settings = ModelSettings { openai: at(&format!("http://{gone}/v1")), ..ModelSettings::default() };
    assert_eq!(models(settings.clone()).list().await, ["demo/assistant"]);
    assert!(models(settings.clone()).default_model().await.starts_with("openai/"));
    let chosen = ModelSettings { default_model: Some("anthropic/x".into()), ..settings };
    assert_eq!(models(chosen).default_model().await, "anthropic/x");
}
