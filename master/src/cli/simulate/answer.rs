//! What `coswitch simulate` answers, for people and for programs.

use std::io;

use comfy_table::{Cell, CellAlignment, LineStyle, Table, TableStyle};
use coswitch_sim::{
    space::{Class, Month, Skipped},
    stats::Estimate,
};
use serde::Serialize;

use crate::cli::Answer;

/// One metric over all seeds.
#[derive(Debug, Serialize)]
pub(super) struct Figure {
    pub(super) name: &'static str,
    #[serde(flatten)]
    pub(super) estimate: Estimate,
}

/// The metrics of several runs, each under its name.
pub(super) fn figures(runs: &[Vec<(&'static str, f64)>]) -> Vec<Figure> {
    let Some(first) = runs.first() else { return Vec::new() };
    let figure = |(index, (name, _)): (usize, &(&'static str, f64))| {
        let samples: Vec<f64> = runs.iter().map(|run| run[index].1).collect();
        Figure { name, estimate: Estimate::of(&samples) }
    };
    first.iter().enumerate().map(figure).collect()
}

/// What a simulation answers. Empty parts are left out for people.
#[derive(Debug, Serialize)]
pub(super) struct Simulated {
    /// Of the jobs.
    pub(super) workload: String,
    pub(super) nodes: u32,
    /// What decided.
    pub(super) policy: String,
    pub(super) seeds: Vec<u64>,
    /// Records of the log that are not jobs here; of the first seed.
    pub(super) skipped: Skipped,
    pub(super) figures: Vec<Figure>,
    /// By job size, of the first seed.
    pub(super) classes: Vec<Class>,
    /// Of the first seed, where the log says when it began.
    pub(super) months: Vec<Month>,
    pub(super) notes: Vec<String>,
}

impl Answer for Simulated {
    fn tell(&self, out: &mut dyn io::Write) -> io::Result<()> {
        writeln!(out, "{} on {} nodes: {}", self.workload, self.nodes, self.policy)?;
        if self.skipped.total() > 0 {
            let Skipped { no_run_time, no_size, too_large } = self.skipped;
            writeln!(
                out,
                "left out: {no_run_time} without a run time, {no_size} without a size, {too_large} too large"
            )?;
        }
        writeln!(out, "{}", figure_table(&self.figures, self.seeds.len()))?;
        if !self.classes.is_empty() {
            writeln!(out, "{}", class_table(&self.classes))?;
        }
        if !self.months.is_empty() {
            writeln!(out, "{}", month_table(&self.months))?;
        }
        self.notes.iter().try_for_each(|note| writeln!(out, "{note}"))
    }

    /// A line a figure: what the table says, with all digits.
    fn csv(&self) -> Option<String> {
        let line = |Figure { name, estimate }: &Figure| {
            let half = estimate.half_width.map(|half| half.to_string()).unwrap_or_default();
            format!("{name},{},{half},{}\n", estimate.mean, self.seeds.len())
        };
        let header = "metric,mean,half_width_95,seeds\n".to_owned();
        Some(header + &self.figures.iter().map(line).collect::<String>())
    }
}

const RULE: LineStyle = LineStyle::none().fill('─').junction('─');
const STYLE: TableStyle = TableStyle::new().top_border(RULE).header_separator(RULE).bottom_border(RULE);

fn table(first: &str, others: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(STYLE);
    table.set_header(std::iter::once(Cell::new(first)).chain(others.iter().map(|title| right(*title))));
    table
}

fn right(text: impl ToString) -> Cell {
    Cell::new(text.to_string()).set_alignment(CellAlignment::Right)
}

fn figure_table(figures: &[Figure], seeds: usize) -> Table {
    let many = format!("95 % of {seeds} seeds");
    let mut table = if seeds > 1 { table("metric", &["mean", &many]) } else { table("metric", &["value"]) };
    for figure in figures {
        let mut row = vec![Cell::new(figure.name), right(number(figure.estimate.mean))];
        if seeds > 1 {
            row.push(right(format!("± {}", number(figure.estimate.half_width.unwrap_or_default()))));
        }
        table.add_row(row);
    }
    table
}

fn class_table(classes: &[Class]) -> Table {
    let mut table =
        table("job size", &["jobs", "usage %", "mean wait h", "mean execution h", "expansion factor"]);
    for class in classes {
        table.add_row(vec![
            Cell::new(&class.name),
            right(class.jobs),
            right(format!("{:.1}", 100.0 * class.usage)),
            right(format!("{:.2}", class.wait_mean_s / 3600.0)),
            right(format!("{:.2}", class.execution_mean_s / 3600.0)),
            right(format!("{:.2}", class.expansion_factor)),
        ]);
    }
    table
}

fn month_table(months: &[Month]) -> Table {
    let mut table = table("month", &["jobs", "utilisation %"]);
    for month in months {
        let name = format!("{}-{:02}", month.year, month.month);
        table.add_row(vec![
            Cell::new(name),
            right(month.jobs),
            right(format!("{:.1}", 100.0 * month.utilisation)),
        ]);
    }
    table
}

/// Four digits that count, and no more noughts than needed.
fn number(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 1000.0 => 0,
        size if size >= 100.0 => 1,
        size if size >= 10.0 => 2,
        size if size >= 1.0 => 3,
        _ => 4,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_show_four_digits() {
        assert_eq!(
            [12_345.6, 123.45, 12.345, 1.2345, 0.123_45, 0.0].map(number),
            ["12346", "123.5", "12.35", "1.234", "0.1235", "0.0000"]
        );
    }
}
