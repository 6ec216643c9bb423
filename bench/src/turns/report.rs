//! The figures as a table, one row as soon as it is known, one column for each subject; then each goal with what was
//! reached. Goals are ratios within the run.

use std::io::Write as _;

use super::AT_ONCE;
use super::peers::{Role, Subject};
use crate::report::thousands;

pub const READY: &str = "ready after, ms";
pub const IDLE: &str = "idle, MiB resident";
pub const HELD: &str = "KiB per held stream, 1,000 open";
pub const ADDED: &str = "paced: added per delta p50, ms";
pub const PACED_BYTE: &str = "paced: first byte p50, ms";
pub const PACED_DELTA: &str = "paced: first delta p50, ms";
pub const PACED_CPU: &str = "paced: CPU ms per turn";

pub fn turns(at_once: usize) -> String {
    format!("turns/s @{at_once}")
}

pub fn cpu(at_once: usize) -> String {
    format!("CPU ms per turn @{at_once}")
}

pub fn first_byte(at_once: usize) -> String {
    format!("first byte p50 @{at_once}, ms")
}

pub fn first_delta(at_once: usize) -> String {
    format!("first delta p50 @{at_once}, ms")
}

pub fn most_held(streams: usize) -> String {
    format!("KiB per held stream, {} open", thousands(streams))
}

struct Column {
    name: String,
    role: Role,
    database: &'static str,
}

pub struct Board {
    columns: Vec<Column>,
    /// Figures by column; one that could not be taken is none.
    rows: Vec<(String, Vec<Option<f64>>)>,
}

impl Board {
    pub fn begin(subjects: &[Subject]) -> anyhow::Result<Self> {
        let column = |subject: &Subject| Column {
            name: subject.name.clone(),
            role: subject.role,
            database: subject.database,
        };
        let columns: Vec<Column> = subjects.iter().map(column).collect();
        let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        say(&format!("\n## One turn of {} deltas\n\n| | {} |", super::DELTAS, names.join(" | ")))?;
        say(&format!("|---{}|", "|---".repeat(columns.len())))?;
        Ok(Self { columns, rows: Vec::new() })
    }

    pub fn row(&mut self, what: &str, figures: Vec<Option<f64>>) -> anyhow::Result<()> {
        let cells: Vec<String> = figures.iter().map(|figure| figure.map_or("–".into(), shown)).collect();
        say(&format!("| {what} | {} |", cells.join(" | ")))?;
        self.rows.push((what.to_owned(), figures));
        Ok(())
    }

    /// Prints the goals.
    pub fn finish(self) -> anyhow::Result<()> {
        say("\n| goal | by | figure | |\n|---|---|---|---|")?;
        for (index, column) in self.columns.iter().enumerate().filter(|(_, column)| column.role == Role::Ours)
        {
            for goal in self.goals(index) {
                let figure = goal.figure.map_or("–".into(), |figure| format!("{figure:.2}"));
                let verdict = if goal.is_reached() { "reached" } else { "**missed**" };
                say(&format!("| {}, {} | {} | {figure} | {verdict} |", goal.what, goal.bound, column.name))?;
            }
        }
        Ok(())
    }

    /// Goals are for the rows that were meant to be taken.
    fn has(&self, what: &str) -> bool {
        self.rows.iter().any(|(name, _)| name == what)
    }

    fn figure(&self, what: &str, column: usize) -> Option<f64> {
        let (_, figures) = self.rows.iter().find(|(name, _)| name == what)?;
        figures.get(column).copied().flatten()
    }

    /// One of ours beside the peers that have a role: those on SQLite, which the goals mean, and those on its own
    /// database. Each with what the goal is called and the figure as a multiple of theirs.
    fn beside(&self, what: &str, ours: usize, role: Role) -> Vec<(String, Option<f64>)> {
        let own = self.columns.get(ours).map_or("", |column| column.database);
        let peers = self.columns.iter().enumerate().filter(|(_, column)| {
            column.role == role && (column.database == "SQLite" || column.database == own)
        });
        let ratio = |peer| Some(self.figure(what, ours)? / self.figure(what, peer)?);
        peers.map(|(peer, column)| (format!("{what} by that of the {}", column.name), ratio(peer))).collect()
    }

    fn goals(&self, ours: usize) -> Vec<Goal> {
        let beside = |what: &str, role| self.beside(what, ours, role).into_iter();
        let mut goals = Vec::new();
        for at_once in AT_ONCE {
            let (turns, cpu) = (turns(at_once), cpu(at_once));
            if at_once > 1 && self.has(&turns) {
                goals.extend(beside(&turns, Role::Node).map(|(what, figure)| at_least(8.0, what, figure)));
                goals.extend(beside(&turns, Role::Relay).map(|(what, figure)| at_least(0.6, what, figure)));
            }
            if self.has(&cpu) {
                goals.extend(beside(&cpu, Role::Relay).map(|(what, figure)| at_most(1.75, what, figure)));
            }
        }
        for (what, most) in [(ADDED, 3.0), (PACED_BYTE, 2.0)].into_iter().filter(|(what, _)| self.has(what)) {
            goals.extend(beside(what, Role::Relay).map(|(what, figure)| at_most(most, what, figure)));
        }
        if self.has(PACED_BYTE) {
            let accepted = beside(PACED_BYTE, Role::Accepting);
            goals.extend(accepted.map(|(what, figure)| at_most(2.0, what, figure)));
        }
        let held = self.rows.iter().filter(|(what, _)| what.starts_with("KiB per held stream"));
        let held = held.map(|(what, _)| (what.as_str(), 48.0));
        for (what, most) in
            held.chain([(IDLE, 48.0), (READY, 500.0)].into_iter().filter(|(what, _)| self.has(what)))
        {
            goals.push(at_most(most, what.to_owned(), self.figure(what, ours)));
        }
        goals
    }
}

fn shown(figure: f64) -> String {
    match figure {
        large if large >= 100.0 => thousands(large.round() as usize),
        middling if middling >= 10.0 => format!("{middling:.1}"),
        small => format!("{small:.2}"),
    }
}

fn say(line: &str) -> anyhow::Result<()> {
    Ok(writeln!(std::io::stdout(), "{line}")?)
}

#[derive(Clone, Copy)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AtLeast(least) => write!(f, "at least {least}"),
            Self::AtMost(most) => write!(f, "at most {most}"),
        }
    }
}

struct Goal {
    what: String,
    figure: Option<f64>,
    bound: Bound,
}

impl Goal {
    /// A figure that is missing reaches nothing.
    fn is_reached(&self) -> bool {
        self.figure.is_some_and(|figure| match self.bound {
            Bound::AtLeast(least) => figure >= least,
            Bound::AtMost(most) => figure <= most,
        })
    }
}

fn at_least(least: f64, what: String, figure: Option<f64>) -> Goal {
    Goal { what, figure, bound: Bound::AtLeast(least) }
}

fn at_most(most: f64, what: String, figure: Option<f64>) -> Goal {
    Goal { what, figure, bound: Bound::AtMost(most) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_reached_at_its_bound_and_never_without_a_figure() {
        let goals = |figure| [at_least(8.0, String::new(), figure), at_most(8.0, String::new(), figure)];
        let reached = |figure| goals(figure).map(|goal| goal.is_reached());
        assert_eq!(reached(Some(8.0)), [true, true]);
        assert_eq!(reached(Some(7.9)), [false, true]);
        assert_eq!(reached(Some(8.1)), [true, false]);
        assert_eq!(reached(None), [false, false]);
        assert_eq!(reached(Some(f64::NAN)), [false, false]);
    }

    #[test]
    fn ours_stands_beside_the_peers_on_sqlite_and_on_its_own_database() {
        let column = |role, database| Column { name: format!("{role:?} on {database}"), role, database };
        let columns = vec![
            column(Role::Beside, "SQLite"),
            column(Role::Relay, "SQLite"),
            column(Role::Relay, "PostgreSQL"),
            column(Role::Ours, "SQLite"),
            column(Role::Ours, "PostgreSQL"),
        ];
        let figures = [1.0, 100.0, 50.0, 80.0, 40.0].map(Some).to_vec();
        let board = Board { columns, rows: vec![("turns".into(), figures)] };
        let on_sqlite = ("turns by that of the Relay on SQLite".to_owned(), Some(0.8));
        assert_eq!(board.beside("turns", 3, Role::Relay), [on_sqlite]);
        let ratios = board.beside("turns", 4, Role::Relay).into_iter().map(|(_, ratio)| ratio);
        assert_eq!(ratios.collect::<Vec<_>>(), [Some(0.4), Some(0.8)]);
    }

    #[test]
    fn figures_keep_three_digits() {
        assert_eq!([1234.4, 56.78, 0.123].map(shown), ["1,234", "56.8", "0.12"]);
    }
}
