//! Markdown tables of what was measured, each row with its growth and its goal.

use std::fmt::Write as _;
use std::io::Write as _;

use crate::measure::Figures;

/// What the largest may cost, as a multiple of the smallest.
pub const FLAT: f64 = 1.5;
pub const SEARCH: f64 = 5.0;

pub struct Row {
    pub what: String,
    pub database: &'static str,
    /// One per column, smallest size first.
    pub figures: Vec<Figures>,
    pub goal: Option<f64>,
    /// How many messages a column's answer has, where the columns differ. The growth is then taken per
    /// message and from the second column on: in the first the fixed cost of a call hides the rest.
    pub work: Option<Vec<f64>>,
}

impl Row {
    fn growth(&self) -> f64 {
        let cost = |index: usize| {
            let work = self.work.as_ref().and_then(|work| work.get(index)).copied().unwrap_or(1.0);
            self.figures.get(index).map_or(f64::NAN, |figures| figures.p50 / work)
        };
        cost(self.figures.len().saturating_sub(1)) / cost(usize::from(self.work.is_some()))
    }

    fn missed(&self) -> Option<String> {
        let (goal, growth) = (self.goal?, self.growth());
        let line = || format!("{}: {} grows {growth:.2} x, goal {goal} x", self.database, self.what);
        // A ratio that cannot be computed is a miss as well.
        (growth.is_nan() || growth > goal).then(line)
    }
}

#[derive(Default)]
pub struct Tables {
    misses: Vec<String>,
    /// The name of the second column of the table under way.
    second: String,
}

impl Tables {
    pub fn new() -> Self {
        Self::default()
    }

    /// Prints a table as soon as it is known.
    pub fn add(&mut self, title: &str, columns: &[String], rows: Vec<Row>) -> anyhow::Result<()> {
        self.begin(title, columns)?;
        rows.iter().try_for_each(|row| self.row(row))
    }

    /// The head of a table whose rows are printed as they are measured.
    pub fn begin(&mut self, title: &str, columns: &[String]) -> anyhow::Result<()> {
        let mut text = format!("\n## {title}\n\nMicroseconds, p50 / p95.\n\n| | database |");
        for column in columns {
            let _ = write!(text, " {column} |");
        }
        let _ = write!(text, " growth | goal |\n|---|---|{}---|---|", "---|".repeat(columns.len()));
        self.second = columns.get(1).cloned().unwrap_or_default();
        say(&text)
    }

    pub fn row(&mut self, row: &Row) -> anyhow::Result<()> {
        let mut text = format!("| {} | {} |", row.what, row.database);
        for Figures { p50, p95 } in &row.figures {
            let (p50, p95) = (thousands(p50.round() as usize), thousands(p95.round() as usize));
            let _ = write!(text, " {p50} / {p95} |");
        }
        let per_unit = match row.work {
            Some(_) => format!(" per message from {} on", self.second),
            None => String::new(),
        };
        let goal = match (row.goal, row.missed()) {
            (None, _) => "–".to_owned(),
            (Some(goal), None) => format!("{goal} x: reached"),
            (Some(goal), Some(_)) => format!("**{goal} x: missed**"),
        };
        let _ = write!(text, " {:.2} x{per_unit} | {goal} |", row.growth());
        self.misses.extend(row.missed());
        say(&text)
    }

    pub fn finish(self) -> anyhow::Result<()> {
        if self.misses.is_empty() {
            return say("\nEvery goal is reached.");
        }
        say(&format!("\nMissed goals:\n- {}", self.misses.join("\n- ")))
    }
}

fn say(text: &str) -> anyhow::Result<()> {
    Ok(writeln!(std::io::stdout(), "{text}")?)
}

/// 12345 as `12,345`.
pub fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(thousands(number), text);
        }
    }

    #[test]
    fn growth_is_the_largest_by_the_smallest() {
        let figures = [10.0, 90.0, 16.0].map(|p50| Figures { p50, p95: 0.0 }).to_vec();
        let mut row = Row { what: "x".into(), database: "y", figures, goal: Some(1.5), work: None };
        assert_eq!(row.missed().unwrap(), "y: x grows 1.60 x, goal 1.5 x");
        row.work = Some(vec![1.0, 10.0, 1.0]);
        assert_eq!(row.missed().unwrap(), "y: x grows 1.78 x, goal 1.5 x");
    }
}
