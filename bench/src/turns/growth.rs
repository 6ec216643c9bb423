//! One more turn on a thread that is already long: it must cost what it costs on a short one.

use anyhow::Context as _;
use serde_json::json;

use super::client::{self, Target};
use super::peers::{Kind, NODE, Rows, Subject};
use super::{Plan, upstream};
use crate::measure::interleaved;
use crate::place::Database;
use crate::report::{Row, Tables, thousands};
use crate::{note, threads};

const DELTAS: usize = 20;
const LENGTHS: [usize; 4] = [10, 1_000, 10_000, 100_000];
/// Of the typical app's, beyond which nobody would wait.
const NODE_LENGTHS: [usize; 4] = [10, 1_000, 5_000, 10_000];
const GOAL: f64 = 1.2;

pub async fn print(databases: &[Database], sandbox: &str, plan: &Plan<'_>) -> anyhow::Result<()> {
    let columns: Vec<String> = LENGTHS.iter().map(|length| thousands(*length)).collect();
    let mut tables = Tables::new();
    tables.begin("One more turn of 20 deltas, by messages already in the thread", &columns)?;
    for database in databases {
        note(&format!("{}: making long threads", database.name));
        let grown = threads::grow(std::slice::from_ref(database), &LENGTHS).await?;
        let subject = Subject::start(&Kind::Threadkeep(database), sandbox, plan.server).await?;
        let targets: Vec<Vec<Target>> = grown
            .iter()
            .map(|grown| {
                let body = |id: &uuid::Uuid| format!(r#"{{"conversation":"{id}","message":"{{ask}}"}}"#);
                grown.ids.iter().map(|id| Target { body: body(id), ..subject.target.clone() }).collect()
            })
            .collect();
        note(&format!("{}: one more turn", database.name));
        tables.row(&row(database.name, "Threadkeep", &targets, Some(GOAL), plan).await?)?;
        subject.stop().await?;
    }
    if let Some(folder) = plan.node {
        note("Node: making long chats");
        let subject = Subject::start(&Kind::Node(folder, Rows::Sqlite), sandbox, plan.server).await?;
        let mut targets = Vec::new();
        for length in NODE_LENGTHS {
            targets.push(vec![fill(&subject.target, length).await?]);
        }
        let what = format!("{NODE}, {} messages", NODE_LENGTHS.map(thousands).join(" / "));
        tables.row(&row("SQLite", &what, &targets, None, plan).await?)?;
        subject.stop().await?;
    }
    // Each row says whether it reached its goal; a last line would speak of this table alone.
    Ok(())
}

async fn row(
    database: &'static str,
    what: &str,
    targets: &[Vec<Target>],
    goal: Option<f64>,
    plan: &Plan<'_>,
) -> anyhow::Result<Row> {
    let ask = &upstream::ask(DELTAS, 0);
    let figures = interleaved(targets, plan.pace, |targets, round| async move {
        let target = targets.get(round % targets.len()).context("there is no thread")?;
        client::one(target, ask).await.map(|_| ())
    });
    Ok(Row { what: what.to_owned(), database, figures: figures.await?, goal, work: None })
}

async fn fill(target: &Target, count: usize) -> anyhow::Result<Target> {
    let id = format!("long-{count}");
    let text = "A fairly ordinary sentence of a chat, said once more. ".repeat(5);
    let body = json!({ "id": id, "count": count, "text": text }).to_string();
    let client = reqwest::Client::builder().no_proxy().build()?;
    let url = format!("http://{}/fill", target.address);
    client.post(url).body(body).send().await?.error_for_status()?;
    Ok(Target { body: format!(r#"{{"id":"{id}","text":"{{ask}}"}}"#), ..target.clone() })
}
