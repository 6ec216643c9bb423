//! A table of Markdown for a terminal: columns as wide as they need, or as the width allows, cells wrapped. Pure.

use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};

use crate::wrap::{Run, words};

const GAP: &str = " │ ";

/// Rows of cells; the first row is the head.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<Vec<Vec<Run>>>,
}

impl Table {
    pub fn row(&mut self) {
        self.rows.push(Vec::new());
    }

    pub fn cell(&mut self, runs: Vec<Run>) {
        if let Some(row) = self.rows.last_mut() {
            row.push(runs);
        }
    }
}

pub fn table_lines(table: &Table, width: usize) -> Vec<Line<'static>> {
    let columns = table.rows.iter().map(Vec::len).max().unwrap_or(0);
    let natural = (0..columns).map(|column| {
        table
            .rows
            .iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell_width(cell))
            .max()
            .unwrap_or(1)
            .max(1)
    });
    let widths = fit(natural.collect(), width.saturating_sub(columns.saturating_sub(1) * 3));
    let dim = Style::default().fg(Color::DarkGray);
    let mut lines = Vec::new();
    for (index, row) in table.rows.iter().enumerate() {
        let cells: Vec<Vec<Line<'static>>> = widths
            .iter()
            .enumerate()
            .map(|(column, width)| row.get(column).map(|cell| words(cell, *width)).unwrap_or_default())
            .collect();
        for at in 0..cells.iter().map(Vec::len).max().unwrap_or(0) {
            let mut spans = Vec::new();
            for (column, (cell, width)) in cells.iter().zip(&widths).enumerate() {
                if column > 0 {
                    spans.push(Span::styled(GAP, dim));
                }
                let line = cell.get(at).cloned().unwrap_or_default();
                let filled = line.width();
                spans.extend(line.spans);
                if column + 1 < widths.len() {
                    spans.push(Span::raw(" ".repeat(width.saturating_sub(filled))));
                }
            }
            lines.push(Line::from(spans));
        }
        if index == 0 {
            let rule: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
            lines.push(Line::styled(rule.join("─┼─"), dim));
        }
    }
    lines
}

fn cell_width(cell: &[Run]) -> usize {
    let text: String = cell.iter().map(|(text, _)| text.as_str()).collect();
    text.lines().map(crate::wrap::width).max().unwrap_or(0)
}

/// The widest columns give way until all fit.
fn fit(mut widths: Vec<usize>, room: usize) -> Vec<usize> {
    while widths.iter().sum::<usize>() > room {
        match widths.iter_mut().max() {
            Some(widest) if *widest > 2 => *widest -= 1,
            _ => break,
        }
    }
    widths
}
