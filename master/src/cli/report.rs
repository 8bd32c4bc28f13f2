//! `coswitch report`: the report of earlier runs, from their journals.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow};
use coswitch_policies::{SimTime, local::Excerpt};
use coswitch_report::{
    Report, csv,
    decisions::{Decisions, NodeExcerpt},
    fold,
    journal::{self, Event, RunEvent},
    page, trace,
    words::span,
};
use serde::{Serialize, Serializer};

use super::{Answer, Exit, Failure, Output};

/// Show the report of earlier runs again, from their journals.
#[derive(Debug, clap::Args)]
pub(crate) struct ReportCommand {
    /// The run's directory, or its journal; several runs are compared.
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// Write a page with charts, tables and text to this file; it needs no network.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write a trace to this file, for ui.perfetto.dev and Chrome's tracing.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Write the table of jobs to this file as comma-separated values, times in seconds.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

impl ReportCommand {
    /// Prints the reports, or writes the requested files instead.
    pub(crate) fn carry_out(self, output: Output) -> Result<Exit, Failure> {
        let journals: Vec<_> = self.runs.iter().map(|run| read(run)).collect::<Result<_, _>>()?;
        let reports: Vec<Report> = journals.iter().map(fold).collect();
        let mut written = Written { files: Vec::new() };
        if let Some(path) = self.html {
            let decisions = self.runs.iter().zip(&reports).map(|(run, report)| decisions(run, report));
            written.write(path, page::page_with(&journals, decisions.collect()).as_bytes())?;
        }
        if let Some(path) = self.trace {
            written.write(path, trace::trace(&journals).as_bytes())?;
        }
        if let Some(path) = self.csv {
            written.write(path, &csv::csv(&reports))?;
        }
        let printed = match written.files.is_empty() {
            true => output.print(&Reports(reports)),
            false => output.print(&written),
        };
        printed.context("failed to print")?;
        Ok(Exit::Done)
    }
}

fn read(run: &Path) -> Result<Vec<RunEvent>, Failure> {
    let path = if run.is_dir() { run.join(journal::FILE_NAME) } else { run.into() };
    let events = journal::read(&path).map_err(|error| Failure::Run(error.into()))?;
    if let Some((archive, at)) = journal::missing_archive(&events) {
        let archive = journal::archive(&path, archive);
        tracing::warn!(
            "{} is not there: the first {} of the run are in its report, and on no page and in no trace",
            archive.display(),
            span(at.since(SimTime(0)))
        );
    }
    match events.first() {
        Some(RunEvent { kind: Event::RunStarted { .. }, .. }) => Ok(events),
        _ => Err(Failure::Run(anyhow!("{} does not begin as the journal of a run", path.display()))),
    }
}

/// What node schedulers have left beside the outputs of a run's jobs, of the job during which most was
/// decided. A report is possible without it.
fn decisions(run: &Path, report: &Report) -> Option<Decisions> {
    let dir = if run.is_dir() { run } else { run.parent()? };
    let counted = report.jobs.iter().filter(|job| job.tasks.is_some());
    let all = counted.map(|job| {
        let of_node = |node| {
            let path = dir.join(&job.name).join(Excerpt::file_name(node));
            let text = fs::read(&path).ok()?;
            let read = serde_json::from_slice(&text);
            let excerpt = read.inspect_err(|error| tracing::warn!("{} is damaged: {error}", path.display()));
            Some(NodeExcerpt { node, excerpt: excerpt.ok()? })
        };
        let nodes = report.nodes_scheduled.iter().filter_map(|node| of_node(node.node)).collect();
        Decisions { job: job.job, nodes }
    });
    Decisions::busiest(all.filter(|decisions| !decisions.nodes.is_empty()).collect())
}

/// One report is serialised as it is, several as a list.
struct Reports(Vec<Report>);

impl Serialize for Reports {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [one] => one.serialize(serializer),
            several => several.serialize(serializer),
        }
    }
}

impl Answer for Reports {
    fn tell(&self, out: &mut dyn io::Write) -> io::Result<()> {
        for (number, report) in self.0.iter().enumerate() {
            if number > 0 {
                writeln!(out)?;
            }
            report.write_tables(out)?;
        }
        Ok(())
    }
}

#[derive(Serialize)]
struct Written {
    files: Vec<File>,
}

#[derive(Serialize)]
struct File {
    path: PathBuf,
    bytes: usize,
}

impl Written {
    fn write(&mut self, path: PathBuf, bytes: &[u8]) -> anyhow::Result<()> {
        fs::write(&path, bytes).with_context(|| format!("failed to write {}", path.display()))?;
        self.files.push(File { path, bytes: bytes.len() });
        Ok(())
    }
}

impl Answer for Written {
    fn tell(&self, out: &mut dyn io::Write) -> io::Result<()> {
        let line =
            |file: &File| (file.path.display().to_string(), coswitch_policies::Bytes(file.bytes as u64));
        self.files.iter().map(line).try_for_each(|(path, bytes)| writeln!(out, "wrote {path}: {bytes}"))
    }
}
