//! The report as text tables.

use std::{io, time::Duration};

use comfy_table::{Cell, CellAlignment, LineStyle, Table, TableStyle};

use crate::{
    coscheduling::{LOCAL_TASKS, Tasks},
    journal::{JobOutcome, RunOutcome},
    report::{JobReport, JobTimes, NodeMemory, Report},
};

impl Report {
    /// Writes the report as tables.
    ///
    /// # Errors
    /// Where `out` cannot be written.
    pub fn write_tables(&self, out: &mut dyn io::Write) -> io::Result<()> {
        let policy = self.policy.map_or_else(|| "?".into(), |policy| policy.to_string());
        let space = self.space.as_ref().map(|space| format!(", queue {}", space.queue)).unwrap_or_default();
        writeln!(out, "{}: policy {policy}{space}, {} nodes of {}", self.name, self.nodes, self.capacity)?;
        writeln!(out, "{}\n", jobs_table(&self.jobs))?;
        if self.unlisted > 0 {
            writeln!(out, "{} jobs ended before these, and are not listed\n", self.unlisted)?;
        }
        writeln!(out, "{}", set_table(self))?;
        if !self.steps.is_empty() {
            writeln!(out, "\n{}", steps_table(self))?;
        }
        if !self.nodes_scheduled.is_empty() {
            writeln!(out, "\n{}", tasks_table(self))?;
        }
        for job in self.jobs.iter().filter(|job| !job.last_output.is_empty()) {
            writeln!(out, "\nlast output of {}:\n{}", job.name, indented(&job.last_output))?;
        }
        if let Some(forecasts) = &self.forecasts {
            writeln!(out, "{}", forecasts.in_words())?;
        }
        if let Some(slices) = &self.slices {
            writeln!(out, "{}", slices.in_words())?;
        }
        if let Some(checkpoints) = &self.checkpoints {
            writeln!(out, "{}", checkpoints.in_words())?;
        }
        if let Some(copies) = &self.copies {
            writeln!(out, "{}", copies.in_words())?;
        }
        self.outgrown.iter().try_for_each(|text| writeln!(out, "{text}"))?;
        self.warnings.iter().try_for_each(|text| writeln!(out, "warning: {text}"))?;
        notes(self).iter().try_for_each(|note| writeln!(out, "{note}"))
    }
}

const RULE: LineStyle = LineStyle::none().fill('─').junction('─');
const STYLE: TableStyle = TableStyle::new().top_border(RULE).header_separator(RULE).bottom_border(RULE);

/// An empty table in the style of all text tables.
#[must_use]
pub fn table() -> Table {
    let mut table = Table::new();
    table.load_style(STYLE);
    table
}

/// A cell aligned to the right.
pub fn right(text: impl ToString) -> Cell {
    Cell::new(text.to_string()).set_alignment(CellAlignment::Right)
}

fn jobs_table(jobs: &[JobReport]) -> Table {
    let mut table = table();
    let titles =
        ["ranks", "wait", "run", "suspended", "parked", "turnaround", "alone", "slowdown", "restores"];
    let titles = titles.into_iter().map(right);
    let texts = ["class", "outcome"].map(Cell::new);
    table.set_header(std::iter::once(Cell::new("job")).chain(titles).chain(texts));
    for job in jobs {
        table.add_row(job_row(job));
    }
    table
}

fn job_row(job: &JobReport) -> Vec<Cell> {
    let times = job.times.as_ref();
    let span = |of: fn(&JobTimes) -> Duration| right(times.map_or_else(none, |times| seconds(of(times))));
    let alone = times.and_then(|times| times.alone);
    let slowdown = times.and_then(|times| times.slowdown);
    let by_run = if alone.is_none() { "*" } else { "" };
    vec![
        Cell::new(&job.name),
        right(job.ranks),
        span(|times| times.wait),
        span(|times| times.run),
        span(|times| times.suspended),
        span(|times| times.parked),
        span(|times| times.turnaround),
        right(alone.map_or_else(none, seconds)),
        right(slowdown.map_or_else(none, |slowdown| format!("{slowdown:.2}{by_run}"))),
        right(job.restores),
        Cell::new(job.communication.as_ref().map_or("-", |communication| communication.class.word())),
        Cell::new(outcome(job.outcome.as_ref())),
    ]
}

fn outcome(outcome: Option<&JobOutcome>) -> String {
    outcome.map_or_else(|| "not ended".into(), ToString::to_string)
}

fn set_table(report: &Report) -> Table {
    let set = &report.set;
    let optional = |number: Option<f64>| number.map_or_else(none, |number| format!("{number:.3}"));
    let mut table = table();
    table.set_header(["set", ""]);
    let mut row = |name: &str, value: String| {
        table.add_row([Cell::new(name), Cell::new(value)]);
    };
    let has_ended = report.jobs.iter().any(|job| job.times.is_some());
    let of_ended = |text: String| if has_ended { text } else { none() };
    row("makespan", of_ended(seconds(set.makespan)));
    row("utilisation", of_ended(percent(set.utilisation)));
    let fallbacks = match set.fallbacks {
        0 => String::new(),
        n => format!(", {n} of them sequential: memory did not hold both sets"),
    };
    row("switches", format!("{}{fallbacks}", set.switches));
    row("moved", format!("{} out, {} in", set.bytes_out, set.bytes_in));
    for (root, bytes) in &report.stored {
        row(&format!("stored in {}", root.display()), bytes.to_string());
    }
    row("exposed", format!("{} ({} of the makespan)", seconds(set.exposed), of_ended(percent(set.overhead))));
    row("relative makespan", optional(set.relative_makespan));
    row("spread", of_ended(format!("{:.3}", set.spread)));
    row("trade-off metric", optional(set.tradeoff));
    row("job memory", format!("{} on nodes of {}", set.memory_total, report.capacity));
    for memory in &report.memory {
        row(&format!("memory peak {}", memory.node), peak(memory));
    }
    table
}

/// The steps of switches; each step on each node counts.
fn steps_table(report: &Report) -> Table {
    let mut table = table();
    let titles = ["times", "in all", "longest", "hidden", "moved"].into_iter().map(right);
    table.set_header(std::iter::once(Cell::new("step")).chain(titles));
    for (step, total) in &report.steps {
        let share = total.hidden.as_secs_f64() / total.total.as_secs_f64().max(f64::MIN_POSITIVE);
        let moved = if total.bytes.0 > 0 { total.bytes.to_string() } else { none() };
        table.add_row([
            Cell::new(step.doing()),
            right(total.count),
            right(seconds(total.total)),
            right(seconds(total.longest)),
            right(percent(share)),
            right(moved),
        ]);
    }
    table
}

/// What node schedulers have counted, by job and by node.
fn tasks_table(report: &Report) -> Table {
    let mut table = table();
    let titles =
        ["executed", "processor", "ready", "delay", "CoDe", "ThDe", "CS/F/DC", "response", "local load"];
    let titles = titles.into_iter().map(right);
    table.set_header(std::iter::once(Cell::new("node schedulers")).chain(titles));
    for job in &report.jobs {
        for (kind, tasks) in job.tasks.iter().flat_map(|tasks| tasks.kinds()) {
            let response = job.times.as_ref().filter(|_| kind == LOCAL_TASKS);
            let response = response.map_or_else(none, |times| seconds(times.turnaround));
            table.add_row(tasks_row(&format!("{}: {kind}", job.name), tasks, response, none()));
        }
    }
    for node in &report.nodes_scheduled {
        let load = format!("{:.2}", node.local_load);
        table.add_row(tasks_row(&node.node.to_string(), &node.tasks, none(), load));
    }
    table
}

fn tasks_row(of: &str, tasks: &Tasks, response: String, load: String) -> Vec<Cell> {
    let degree = |degree: Option<f64>| right(degree.map_or_else(none, |degree| format!("{degree:.3}")));
    vec![
        Cell::new(of),
        right(seconds(tasks.executed)),
        right(seconds(tasks.processor)),
        right(seconds(tasks.waited)),
        right(seconds(tasks.delayed)),
        degree(tasks.coscheduling),
        degree(tasks.thrashing),
        right(tasks.classes().unwrap_or_else(none)),
        right(response),
        right(load),
    ]
}

fn peak(memory: &NodeMemory) -> String {
    let NodeMemory { peak, capacity, samples, .. } = memory;
    match memory.is_within() {
        true => format!("{peak}, within its {capacity} at each of {samples} samples"),
        false => format!("{peak}, ABOVE its {capacity}"),
    }
}

fn notes(report: &Report) -> Vec<&'static str> {
    let mut notes = Vec::new();
    let by_run = |job: &JobReport| job.times.as_ref().is_some_and(|times| times.alone.is_none());
    if report.jobs.iter().any(by_run) {
        notes.push(
            "* by run: the time alone is not known; give `alone:` in the run file or run with \
             --measure-alone",
        );
    }
    match report.outcome {
        Some(RunOutcome::Interrupted) => notes.push("interrupted: numbers are of the jobs that had ended"),
        Some(RunOutcome::TimedOut) => notes.push("not done in time: numbers are of the jobs that had ended"),
        Some(RunOutcome::Parked) => {
            notes.push("parked until it is resumed: numbers are of the jobs that had ended")
        }
        Some(RunOutcome::Aborted) | None => notes.push("the run did not come to its end"),
        Some(RunOutcome::Done | RunOutcome::JobsFailed) => {}
    }
    notes
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
}

pub(crate) fn none() -> String {
    "-".into()
}

pub(crate) fn seconds(span: Duration) -> String {
    format!("{:.1}s", span.as_secs_f64())
}

pub(crate) fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        coscheduling::tests::with_counts,
        fold::{fold, tests::two_jobs_in_turn},
    };

    #[test]
    fn an_empty_journal_makes_an_empty_report() {
        let mut text = Vec::new();
        fold(&[]).write_tables(&mut text).unwrap();
        assert!(String::from_utf8(text).unwrap().contains("the run did not come to its end"));
    }

    #[test]
    fn what_node_schedulers_count_has_a_row_for_each_job_and_node() {
        let mut text = Vec::new();
        fold(&with_counts()).write_tables(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let row = |of: &str| {
            let line = text.lines().find(|line| line.trim_start().starts_with(of)).unwrap();
            line.trim_start()[of.len()..].split_whitespace().collect::<Vec<_>>()
        };
        assert_eq!(
            row("job-0: ranks"),
            ["12.0s", "9.0s", "6.0s", "3.0s", "0.600", "0.400", "6/0/15", "-", "-"]
        );
        assert_eq!(row("job-1: local tasks"), ["5.0s", "0.0s", "10.0s", "0.0s", "-", "-", "-", "30.0s", "-"]);
        assert_eq!(row("node-0")[4..], ["0.750", "0.250", "4/0/10", "-", "0.50"]);
        let mut without = Vec::new();
        fold(&two_jobs_in_turn()).write_tables(&mut without).unwrap();
        assert!(!String::from_utf8(without).unwrap().contains("node schedulers"));
    }

    #[test]
    fn outcomes_are_written_in_words() {
        assert_eq!(outcome(Some(&JobOutcome::Exit(0))), "ok");
        assert_eq!(outcome(Some(&JobOutcome::Signal(11))), "killed by signal 11");
        assert_eq!(outcome(None), "not ended");
    }
}
