//! Samples of one operation on several subjects, taken in turn: all of them see the same seconds of a
//! noisy machine, so that their ratio means something.

use std::future::Future;
use std::time::{Duration, Instant};

const WARM_UP: usize = 30;
const MOST: usize = 500;
const LEAST: usize = 12;

/// How long a row may be measured.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    longest: Duration,
}

impl Pace {
    pub fn new(seconds: u32) -> Self {
        Self { longest: Duration::from_secs(seconds.into()) }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Figures {
    /// Microseconds.
    pub p50: f64,
    pub p95: f64,
}

fn figures(mut samples: Vec<Duration>) -> Figures {
    samples.sort_unstable();
    let at = |share: f64| {
        let index = ((samples.len() as f64 - 1.0) * share).round() as usize;
        samples.get(index).map_or(f64::NAN, |sample| sample.as_secs_f64() * 1e6)
    };
    Figures { p50: at(0.50), p95: at(0.95) }
}

/// Runs `operation(subject, round)` for every subject in every round. Answers figures by subject.
pub async fn interleaved<'a, S, F>(
    subjects: &'a [S],
    pace: Pace,
    operation: impl Fn(&'a S, usize) -> F,
) -> anyhow::Result<Vec<Figures>>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let begun = Instant::now();
    for round in 0..WARM_UP {
        for subject in subjects {
            operation(subject, round).await?;
        }
        if begun.elapsed() > pace.longest / 4 && round >= LEAST / 2 {
            break;
        }
    }
    let mut samples: Vec<Vec<Duration>> = subjects.iter().map(|_| Vec::with_capacity(MOST)).collect();
    for round in WARM_UP..WARM_UP + MOST {
        for place in 0..subjects.len() {
            // Nobody always comes after the same neighbour, whose work may still occupy the disk.
            let index = turn(place, round, subjects.len());
            if let (Some(subject), Some(samples)) = (subjects.get(index), samples.get_mut(index)) {
                let started = Instant::now();
                operation(subject, round).await?;
                samples.push(started.elapsed());
            }
        }
        if begun.elapsed() > pace.longest && round >= WARM_UP + LEAST {
            break;
        }
    }
    Ok(samples.into_iter().map(figures).collect())
}

/// Whose turn it is at a place of a round: forwards and backwards by turns, from another start each time.
fn turn(place: usize, round: usize, subjects: usize) -> usize {
    let along = if round.is_multiple_of(2) { place } else { subjects - 1 - place };
    (along + round / 2) % subjects
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_gives_every_subject_one_turn() {
        for round in 0..20 {
            let mut seen: Vec<usize> = (0..6).map(|place| turn(place, round, 6)).collect();
            seen.sort_unstable();
            assert_eq!(seen, [0, 1, 2, 3, 4, 5]);
        }
    }

    #[test]
    fn figures_are_the_middle_and_the_slow_end() {
        let Figures { p50, p95 } = figures((0..=100).rev().map(Duration::from_micros).collect());
        assert!((p50 - 50.0).abs() < 0.01 && (p95 - 95.0).abs() < 0.01, "{p50} {p95}");
    }
}
