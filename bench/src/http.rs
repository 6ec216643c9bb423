//! The same lists and retrieves as a client sees them: the real binary, one keep-alive connection.

use std::path::Path;

use anyhow::{Context as _, ensure};
use reqwest::Client;
use tempfile::TempDir;
use testkit::process::ServerProcess;
use testkit::server::{JWT_SECRET, token};
use uuid::Uuid;

use crate::corpus::{self, ADMIN, MEMBER, ORG};
use crate::measure::{Pace, interleaved};
use crate::note;
use crate::place::{Database, Place};
use crate::report::{FLAT, Row};

struct Subject {
    server: ServerProcess,
    _data: TempDir,
    client: Client,
    admin: String,
    member: String,
    long: Vec<Uuid>,
}

impl Subject {
    async fn start(place: &Place, binary: &Path) -> anyhow::Result<Self> {
        let data = tempfile::tempdir()?;
        let address = place.address();
        let env = [
            ("DATABASE_URL", address.as_str()),
            ("THREADKEEP_JWT_SECRET", JWT_SECRET),
            ("THREADKEEP_SECRET", "a secret for measuring, longer than thirty-two bytes"),
        ];
        let server = ServerProcess::start(binary, &env, data.path()).await?;
        let client = Client::builder().no_proxy().build()?;
        let (admin, member) = (token(ADMIN, ORG), token(MEMBER, ORG));
        Ok(Self { server, _data: data, client, admin, member, long: corpus::long(place.size) })
    }

    async fn get(&self, bearer: &str, path: &str) -> anyhow::Result<()> {
        let url = format!("{}{path}", self.server.url());
        let answer = self
            .client
            .get(url)
            .bearer_auth(bearer)
            .header("threadkeep-workspace", corpus::WORKSPACE.to_string())
            .send()
            .await?;
        let status = answer.status();
        let body = answer.bytes().await?;
        ensure!(status.is_success(), "{path}: {status} {}", String::from_utf8_lossy(&body));
        Ok(())
    }
}

#[derive(Clone, Copy)]
enum Task {
    Admin(&'static str),
    Member(&'static str),
    Retrieve(&'static str),
}

pub async fn rows(databases: &[Database], binary: &Path, pace: Pace) -> anyhow::Result<Vec<Row>> {
    // Servers start in folders of their own.
    let binary = &binary.canonicalize().with_context(|| format!("--server {}", binary.display()))?;
    let mut subjects = Vec::new();
    for place in databases.iter().flat_map(|database| &database.places) {
        subjects.push(Subject::start(place, binary).await?);
    }
    let list = "/v1/chat-conversations?page[size]=50";
    let source = "/v1/chat-conversations?page[size]=50&filter[source]=extension";
    let mut rows = Vec::new();
    for (what, task) in [
        ("list the newest 50, as admin", Task::Admin(list)),
        ("list as a member who sees 30", Task::Member(list)),
        ("list the newest 50 of one source", Task::Admin(source)),
        ("retrieve with the newest 50 of 60 messages", Task::Retrieve("?page[messages]=50")),
        ("retrieve whole, 60 messages", Task::Retrieve("")),
    ] {
        note(what);
        let figures =
            interleaved(&subjects, pace, |subject, round| run(subject, task, round)).await.context(what)?;
        let mut figures = figures.into_iter();
        for database in databases {
            let figures = figures.by_ref().take(database.places.len()).collect();
            rows.push(Row {
                what: what.into(),
                database: database.name,
                figures,
                goal: Some(FLAT),
                work: None,
            });
        }
    }
    for mut subject in subjects {
        subject.server.terminate().await?;
    }
    Ok(rows)
}

async fn run(subject: &Subject, task: Task, round: usize) -> anyhow::Result<()> {
    match task {
        Task::Admin(path) => subject.get(&subject.admin, path).await,
        Task::Member(path) => subject.get(&subject.member, path).await,
        Task::Retrieve(query) => {
            let id = subject.long.get(round % subject.long.len()).context("there are no long threads")?;
            subject.get(&subject.admin, &format!("/v1/chat-conversations/{id}{query}")).await
        }
    }
}
