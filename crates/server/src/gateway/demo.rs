//! The demo model's `search` in a sandbox, which has no tool for it: the gateway knows whose run it is, looks for the
//! words, and hands in what it found with the question.

use domain::model::{Answer, Ask, Said};
use serde_json::json;
use turn::tools::Place;
use upstream::llm::demo::{SEARCHES, searches};

use super::Payer;
use crate::state::App;

/// Where a run asks the demo model to search, with what the run's workspace has.
pub async fn search(app: &App, payer: &Payer, ask: &mut Ask) {
    let (Some(held), Some(words)) = (&payer.run, searches(ask)) else { return };
    let place = Place {
        workspace: held.workspace,
        conversation: None,
        execution: None,
        run: held.lease.run,
        user: payer.scope.user.clone(),
    };
    let mut answers = Vec::new();
    for tool in app.turns.tools() {
        let name = tool.spec().name;
        if !SEARCHES.contains(&name.as_str()) {
            continue;
        }
        let (text, failed) = match tool.call(&place, json!({ "query": words })).await {
            Ok(found) => (found.value.as_str().map_or_else(|| found.value.to_string(), str::to_owned), false),
            Err(why) => (why, true),
        };
        answers.push(Answer { id: name.clone(), name, text, failed });
    }
    ask.prompt.messages.push(Said::Answers(answers));
}
