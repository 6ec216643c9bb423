//! The same turn through the model runner: Threadkeep calls the upstream's OpenAI-like model instead of its sandbox.
//! Beside a relay that reads the same deltas of the same model and keeps two rows, taken in turns.

use anyhow::Context as _;

use super::peers::{Kind, Subject};
use super::report::Board;
use super::{BURST, DELTAS, Plan, ROUNDS, WARM_UP, attempt, load, middle, report, upstream};
use crate::place::Database;

const AT_ONCE: usize = 16;
const BODY: &str = r#"{"message":"{ask}","mode":"ask","model":"openai/bench"}"#;

pub async fn print(databases: &[Database], sandbox: &str, plan: &Plan<'_>) -> anyhow::Result<()> {
    let kinds = std::iter::once(Kind::ModelRelay).chain(databases.iter().map(Kind::Threadkeep));
    let mut subjects = Vec::new();
    for kind in kinds {
        let mut subject = Subject::start(&kind, sandbox, plan.server).await.with_context(|| kind.name())?;
        if subject.is_ours() {
            subject.target.body = BODY.to_owned();
            subject.name = format!("{}, by a model", subject.name);
        }
        subjects.push(subject);
    }
    let burst = upstream::ask(DELTAS, 0);
    for subject in &subjects {
        attempt(subject, "warm-up", load(subject, &burst, 4, (WARM_UP, std::time::Duration::ZERO))).await;
    }
    let mut reached: Vec<Vec<_>> = subjects.iter().map(|_| Vec::new()).collect();
    for _ in 0..ROUNDS {
        for (subject, reached) in subjects.iter().zip(&mut reached) {
            let measuring = load(subject, &burst, AT_ONCE, (BURST, std::time::Duration::ZERO));
            reached.extend(attempt(subject, "16 at once", measuring).await);
        }
    }
    let mut board = Board::begin(&subjects)?;
    let column = |what: fn(&super::Reached) -> f64| {
        reached.iter().map(|rounds| middle(rounds.iter().map(what))).collect::<Vec<_>>()
    };
    board.row(&report::turns(AT_ONCE), column(|reached| reached.per_second))?;
    board.row(&report::cpu(AT_ONCE), column(|reached| reached.cpu_ms))?;
    board.row(&report::first_byte(AT_ONCE), column(|reached| reached.first_byte_ms))?;
    board.finish()?;
    for subject in subjects {
        subject.stop().await?;
    }
    Ok(())
}
