//! The plan of a run that plans first: its points are steps that begin together and end one by one.

use serde_json::{Value, json};

use crate::emit::{Closed, Emitter, Step};

const MAX_POINTS: usize = 20;
const POINT_CHARS: usize = 200;

#[derive(Default)]
pub struct Plan {
    points: Vec<String>,
    open: Vec<Option<Step>>,
}

impl Plan {
    /// The points of an answer: its numbered lines, else its list, else the goal alone.
    pub fn read(text: &str, goal: &str) -> Self {
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let numbered = |line: &&str| {
            let rest = line.trim_start_matches(|c: char| c.is_ascii_digit());
            let point = rest.strip_prefix(['.', ')']).filter(|_| rest.len() < line.len())?;
            Some(point.trim().to_owned()).filter(|point| !point.is_empty())
        };
        let listed =
            |line: &&str| Some(line.strip_prefix("- ").or(line.strip_prefix("* "))?.trim().to_owned());
        let mut points: Vec<String> = lines.iter().filter_map(numbered).collect();
        if points.is_empty() {
            points = lines.iter().filter_map(listed).collect();
        }
        if points.is_empty() {
            points.push(goal.lines().next().unwrap_or_default().to_owned());
        }
        points.truncate(MAX_POINTS);
        let points = points.iter().map(|point| point.chars().take(POINT_CHARS).collect()).collect();
        Self { points, open: Vec::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    pub fn shown(&self) -> Value {
        json!({ "steps": self.points })
    }

    /// What the model is told of it.
    pub fn prompt(&self) -> String {
        let points: Vec<String> =
            self.points.iter().zip(1..).map(|(point, number)| format!("{number}. {point}")).collect();
        format!(
            "\n\n# The plan\n\nWork through these steps in order, and call complete_step after each.\n\n{}",
            points.join("\n")
        )
    }

    /// Every point as a step that has begun.
    pub async fn announce(&mut self, emit: &Emitter) -> Result<(), Closed> {
        for (point, number) in self.points.iter().zip(1..) {
            let step = emit.begin(point, json!({ "plan": number, "of": self.points.len() })).await?;
            self.open.push(Some(step));
        }
        Ok(())
    }

    /// Marks a point as done, and those before it that nobody marked.
    pub async fn complete(&mut self, number: u64, emit: &Emitter) -> Result<Result<String, String>, Closed> {
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        if at == 0 || at > self.points.len() {
            return Ok(Err(format!("the plan has the steps 1 to {}", self.points.len())));
        }
        for step in self.open.iter_mut().take(at) {
            if let Some(step) = step.take() {
                emit.succeed(step, Value::Null).await?;
            }
        }
        Ok(Ok(format!("Step {number} is done.")))
    }

    /// The answer is there: what is open is done.
    pub async fn finish(&mut self, emit: &Emitter) -> Result<(), Closed> {
        for step in self.open.drain(..).flatten() {
            emit.succeed(step, Value::Null).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_read_from_numbered_lines_or_a_list_or_are_the_goal() {
        for (text, points) in [
            ("A plan:\n\n1. Look.\n2) Do it.\n 3. Check", vec!["Look.", "Do it.", "Check"]),
            ("- one\n* two\nwords", vec!["one", "two"]),
            ("I have no idea.", vec!["the goal"]),
            ("1.\n2.", vec!["the goal"]),
            ("2026 was a year", vec!["the goal"]),
        ] {
            assert_eq!(Plan::read(text, "the goal\nmore").points, points, "{text}");
        }
    }
}
