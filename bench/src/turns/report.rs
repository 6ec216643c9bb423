//! The figures as Markdown, and each goal with what was reached. Goals are ratios within the run.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

use super::{AT_ONCE, Held, Reached};
use crate::report::thousands;

pub struct Measured {
    pub name: String,
    pub ours: bool,
    pub started: Duration,
    pub idle_kib: f64,
    /// By `AT_ONCE`.
    pub bursts: Vec<Reached>,
    pub paced: Option<Reached>,
    pub held: Option<Held>,
    pub most: Option<Held>,
}

const COLUMNS: [&str; 10] = [
    "turns/s @1",
    "@16",
    "@64",
    "CPU ms per turn @1",
    "@16",
    "@64",
    "first delta p50 @16",
    "paced: added per delta p50",
    "KiB per held stream",
    "idle MiB / ready in",
];

pub fn print(measured: &[Measured]) -> anyhow::Result<()> {
    let mut text = format!("\n## One turn of 200 deltas\n\n| | {} |\n", COLUMNS.join(" | "));
    let _ = writeln!(text, "|---{}|", "|---".repeat(COLUMNS.len()));
    for subject in measured {
        let _ = write!(text, "| {} |", subject.name);
        for burst in &subject.bursts {
            let _ = write!(text, " {:.0} |", burst.per_second);
        }
        for burst in &subject.bursts {
            let _ = write!(text, " {:.2} |", burst.cpu_ms);
        }
        let first = subject.bursts.get(1).map_or(f64::NAN, |burst| burst.first_ms);
        let added = subject.paced.as_ref().map_or(f64::NAN, |paced| paced.added_ms);
        let held = subject.held.as_ref().map_or(f64::NAN, |held| held.kib_each);
        let (idle, started) = (subject.idle_kib / 1024.0, subject.started.as_millis());
        let _ = writeln!(text, " {first:.1} ms | {added:.2} ms | {held:.0} | {idle:.0} / {started} ms |");
    }
    let _ = write!(text, "\n| goal | by | reached | |\n|---|---|---|---|\n");
    let (relay, node) = (measured.first(), measured.iter().find(|subject| subject.name.starts_with("Node")));
    for subject in measured.iter().filter(|subject| subject.ours) {
        for goal in goals(subject, relay, node) {
            let _ = writeln!(
                text,
                "| {} | {} | {:.2} | {} |",
                goal.what,
                subject.name,
                goal.reached,
                goal.verdict()
            );
        }
    }
    Ok(writeln!(std::io::stdout(), "{text}")?)
}

struct Goal {
    what: String,
    reached: f64,
    least: Option<f64>,
    most: Option<f64>,
}

impl Goal {
    fn verdict(&self) -> &'static str {
        // A figure that is missing compares as a miss.
        let met = self.least.is_none_or(|least| self.reached >= least)
            && self.most.is_none_or(|most| self.reached <= most);
        if met { "met" } else { "**missed**" }
    }
}

fn at_least(least: f64, what: String, reached: f64) -> Goal {
    Goal { what: format!("{what}, at least {least}"), reached, least: Some(least), most: None }
}

fn at_most(most: f64, what: String, reached: f64) -> Goal {
    Goal { what: format!("{what}, at most {most}"), reached, least: None, most: Some(most) }
}

fn goals(ours: &Measured, relay: Option<&Measured>, node: Option<&Measured>) -> Vec<Goal> {
    let mut goals = Vec::new();
    if let Some(relay) = relay {
        for ((at_once, ours), relay) in AT_ONCE.iter().zip(&ours.bursts).zip(&relay.bursts) {
            if *at_once > 1 {
                let ratio = ours.per_second / relay.per_second;
                goals.push(at_least(0.6, format!("turns/s @{at_once} by the relay's"), ratio));
            }
            let ratio = ours.cpu_ms / relay.cpu_ms;
            goals.push(at_most(1.75, format!("CPU per turn @{at_once} by the relay's"), ratio));
        }
        if let (Some(ours), Some(relay)) = (&ours.paced, &relay.paced) {
            let added = ours.added_ms / relay.added_ms;
            goals.push(at_most(3.0, "paced: added latency per delta by the relay's".into(), added));
            let first = ours.first_ms / relay.first_ms;
            goals.push(at_most(2.0, "paced: first delta by the relay's".into(), first));
        }
    }
    for ((at_once, ours), node) in
        AT_ONCE.iter().zip(&ours.bursts).zip(node.iter().flat_map(|node| &node.bursts))
    {
        if *at_once > 1 {
            let ratio = ours.per_second / node.per_second;
            goals.push(at_least(8.0, format!("turns/s @{at_once} by the Node app's"), ratio));
        }
    }
    for held in ours.held.iter().chain(&ours.most) {
        goals.push(at_most(
            48.0,
            format!("KiB each of {} held streams", thousands(held.streams)),
            held.kib_each,
        ));
    }
    goals.push(at_most(48.0, "idle MiB resident".into(), ours.idle_kib / 1024.0));
    goals.push(at_most(0.5, "seconds until ready".into(), ours.started.as_secs_f64()));
    goals
}
