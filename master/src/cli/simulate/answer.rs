//! Answer of `coswitch simulate` as tables, JSON and comma-separated values.

use std::io;

use comfy_table::{Cell, CellAlignment, LineStyle, Table, TableStyle};
use coswitch_policies::Bytes;
use coswitch_sim::{
    spaceshare::JobClass,
    stats::SampleMean,
    workload::{Month, Skipped},
};
use serde::Serialize;

use crate::cli::Answer;

/// One metric over all seeds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figure {
    pub(super) name: String,
    #[serde(flatten)]
    pub(super) estimate: SampleMean,
}

/// Estimates each metric over several runs.
pub(super) fn figures<N: ToString>(runs: &[Vec<(N, f64)>]) -> Vec<Figure> {
    let Some(first) = runs.first() else { return Vec::new() };
    let figure = |(index, (name, _)): (usize, &(N, f64))| {
        let samples: Vec<f64> = runs.iter().map(|run| run[index].1).collect();
        Figure { name: name.to_string(), estimate: SampleMean::of(&samples) }
    };
    first.iter().enumerate().map(figure).collect()
}

/// How a log was read.
#[derive(Clone, Debug, Serialize)]
pub(super) struct LogRead {
    /// The machine that is simulated, and where that comes from.
    pub(super) machine: String,
    pub(super) nodes: u32,
    pub(super) processors: u32,
    /// By the log's own schedule, if it says when jobs ran.
    pub(super) utilisation: Option<f64>,
}

/// Empty parts are left out of the tables.
#[derive(Debug, Serialize)]
pub(super) struct Simulated {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) log: Option<LogRead>,
    pub(super) workload: String,
    pub(super) nodes: u32,
    pub(super) policy: String,
    pub(super) seeds: Vec<u64>,
    /// Records of the log that are left out; of the first seed.
    pub(super) skipped: Skipped,
    pub(super) figures: Vec<Figure>,
    /// By job size, of the first seed.
    pub(super) classes: Vec<JobClass>,
    /// By queue, of the first seed, on a machine that has several.
    pub(super) queues: Vec<JobClass>,
    /// Of the first seed, where the log says when it began.
    pub(super) months: Vec<Month>,
    pub(super) notes: Vec<String>,
}

impl Answer for Simulated {
    fn tell(&self, out: &mut dyn io::Write) -> io::Result<()> {
        if let Some(LogRead { machine, .. }) = &self.log {
            writeln!(out, "{}: {machine}", self.workload)?;
        }
        writeln!(out, "{} on {} nodes: {}", self.workload, self.nodes, self.policy)?;
        if self.skipped.total() > 0 {
            writeln!(out, "left out: {}", self.skipped)?;
        }
        let own = self.log.as_ref().and_then(|log| log.utilisation);
        writeln!(out, "{}", figure_table(&with_own(&self.figures, own), self.seeds.len()))?;
        for (by, classes) in [("job size", &self.classes), ("queue", &self.queues)] {
            if !classes.is_empty() {
                let first =
                    if self.seeds.len() > 1 { format!("{by}, seed {}", self.seeds[0]) } else { by.into() };
                writeln!(out, "{}", class_table(&first, classes))?;
            }
        }
        if !self.months.is_empty() {
            writeln!(out, "{}", month_table(&self.months))?;
        }
        self.notes.iter().try_for_each(|note| writeln!(out, "{note}"))
    }

    /// One line for each figure of the tables, with all digits.
    fn csv(&self) -> Option<String> {
        let month = |month: &Month| format!("utilisation_{},{},,1\n", month_name(month), month.utilisation);
        let class = |by: &'static str| {
            move |class: &JobClass| {
                let JobClass { name, jobs, usage, wait_mean_s, execution_mean_s, expansion_factor } = class;
                let of = format!("{by}_{}", name.replace([',', '"', '\n'], "_"));
                format!(
                    "jobs_{of},{jobs},,1\nusage_{of},{usage},,1\nwait_mean_s_{of},{wait_mean_s},,1\n\
                     execution_mean_s_{of},{execution_mean_s},,1\n\
                     expansion_factor_{of},{expansion_factor},,1\n"
                )
            }
        };
        let parts = self.classes.iter().map(class("size")).chain(self.queues.iter().map(class("queue")));
        let parts = parts.chain(self.months.iter().map(month));
        Some(figure_csv(&self.figures, self.seeds.len()) + &parts.collect::<String>())
    }
}

/// The figures, with the log's own utilisation beside the simulated one.
fn with_own(figures: &[Figure], own: Option<f64>) -> Vec<Figure> {
    let mut all = figures.to_vec();
    let behind = all.iter().rposition(|figure| OF_MACHINE.contains(&&*figure.name));
    if let (Some(behind), Some(own)) = (behind, own) {
        let estimate = SampleMean::of(&[own]);
        all.insert(behind + 1, Figure { name: "utilisation_of_log".to_owned(), estimate });
    }
    all
}

/// The figures of the whole machine's use: by node or processor, and by processor where the first is by node.
const OF_MACHINE: [&str; 2] = ["utilisation", "utilisation_processors"];

pub(super) fn figure_csv(figures: &[Figure], seeds: usize) -> String {
    let line = |Figure { name, estimate }: &Figure| {
        let half = estimate.half_width.map(|half| half.to_string()).unwrap_or_default();
        format!("{name},{},{half},{seeds}\n", estimate.mean)
    };
    let header = "metric,mean,half_width_95,seeds\n".to_owned();
    header + &figures.iter().map(line).collect::<String>()
}

const RULE: LineStyle = LineStyle::none().fill('─').junction('─');
const STYLE: TableStyle = TableStyle::new().top_border(RULE).header_separator(RULE).bottom_border(RULE);

pub(super) fn table(first: &str, others: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(STYLE);
    table.set_header(std::iter::once(Cell::new(first)).chain(others.iter().map(|title| right(*title))));
    table
}

pub(super) fn right(text: impl ToString) -> Cell {
    Cell::new(text.to_string()).set_alignment(CellAlignment::Right)
}

pub(super) fn figure_table(figures: &[Figure], seeds: usize) -> Table {
    let many = format!("95 % of {seeds} seeds");
    let mut table = if seeds > 1 { table("metric", &["mean", &many]) } else { table("metric", &["value"]) };
    for figure in figures {
        let mut row = vec![Cell::new(&figure.name), right(value_text(&figure.name, figure.estimate.mean))];
        if seeds > 1 {
            row.push(right(format!(
                "± {}",
                value_text(&figure.name, figure.estimate.half_width.unwrap_or_default())
            )));
        }
        table.add_row(row);
    }
    table
}

fn class_table(first: &str, classes: &[JobClass]) -> Table {
    let mut table = table(first, &["jobs", "usage %", "mean wait h", "mean execution h", "expansion factor"]);
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
        table.add_row(vec![
            Cell::new(month_name(month)),
            right(month.jobs),
            right(format!("{:.1}", 100.0 * month.utilisation)),
        ]);
    }
    table
}

fn month_name(month: &Month) -> String {
    format!("{}-{:02}", month.year, month.month)
}

/// A value for people: sizes in their unit, other numbers with four digits.
fn value_text(name: &str, value: f64) -> String {
    if name.starts_with("bytes_") { Bytes(value as u64).to_string() } else { number(value) }
}

/// Four significant digits, and no more zeros than needed.
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
