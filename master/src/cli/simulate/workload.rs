//! Workload of a simulation: reads and unzips files, or draws from the model.

use std::{
    fs::File,
    io::{self, BufWriter, Read, Write},
    path::Path,
    time::Duration,
};

use anyhow::{Context, anyhow};
use coswitch_policies::Bytes;
use coswitch_sim::workload::{
    lublin,
    swf::{Comment, Log, Record, Status},
    testbed,
};
use flate2::{Compression, read::MultiGzDecoder, write::GzEncoder};

use super::Simulate;
use crate::cli::Failure;

/// The largest workload file, unzipped: fifty million jobs.
const BYTES_MAX: u64 = 4 << 30;
/// Default number of processors of the model.
const PROCESSORS: u32 = 128;
/// The limit of `--nodes`.
const NODES_MAX: u32 = 1 << 24;
/// Default run time of a job of a testbed file, whose format has no run times.
const TESTBED_RUN: Duration = Duration::from_secs(60);

/// A workload that may differ from seed to seed.
pub(super) enum Source {
    /// The same for every seed.
    Log {
        name: String,
        log: Log,
        note: Option<String>,
    },
    Lublin(lublin::Settings),
}

pub(super) fn is_run_file(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "yaml" || end == "yml")
}

impl Source {
    /// The workload that the command line asks for; `None` if it is the jobs of the run file. The model draws
    /// for this many `processors`.
    pub(super) fn of(arguments: &Simulate, processors: Option<u32>) -> Result<Option<Self>, Failure> {
        if let Some(jobs) = arguments.lublin {
            let nodes = processors.unwrap_or(PROCESSORS);
            let (load, interactive) = (arguments.load, true);
            return Ok(Some(Self::Lublin(lublin::Settings { jobs, nodes, interactive, load })));
        }
        let file = arguments.file.as_ref().filter(|file| !is_run_file(file));
        let Some(path) = arguments.workload.as_ref().or(file) else { return Ok(None) };
        let is_testbed = path.extension().is_some_and(|end| end == "workload");
        if arguments.run_time.is_some() && !is_testbed {
            return Err(Failure::Workload(anyhow!(
                "--run-time is for testbed workloads: a log says how long jobs run"
            )));
        }
        let run = arguments.run_time.unwrap_or(TESTBED_RUN);
        if run.subsec_nanos() > 0 || run.is_zero() {
            return Err(Failure::Workload(anyhow!("--run-time is in whole seconds, one or more")));
        }
        let mut log = read(path, is_testbed.then_some(run)).map_err(Failure::Workload)?;
        if let (None, Some(nodes)) = (processors, log.nodes().filter(|nodes| *nodes > NODES_MAX)) {
            let text = anyhow!(
                "{} says that there are {nodes} nodes, and at most {NODES_MAX} are simulated: give --nodes",
                path.display()
            );
            return Err(Failure::Workload(text));
        }
        log.records.truncate(arguments.jobs.unwrap_or(usize::MAX));
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let note = is_testbed.then(|| {
            format!("a testbed workload does not say how long a job runs: {run:?} each (--run-time)")
        });
        Ok(Some(Self::Log { name, log, note }))
    }

    pub(super) fn name(&self) -> String {
        match self {
            Self::Log { name, .. } => name.clone(),
            Self::Lublin(shape) => {
                format!(
                    "Lublin-Feitelson, {} jobs for {} nodes, load {}",
                    shape.jobs, shape.nodes, shape.load
                )
            }
        }
    }

    /// A remark for the answer.
    pub(super) fn note(&self) -> Option<String> {
        match self {
            Self::Log { note, .. } => note.clone(),
            Self::Lublin(_) => None,
        }
    }

    pub(super) fn log(&self, seed: u64) -> std::borrow::Cow<'_, Log> {
        match self {
            Self::Log { log, .. } => std::borrow::Cow::Borrowed(log),
            Self::Lublin(shape) => std::borrow::Cow::Owned(lublin::generate(seed, shape)),
        }
    }

    /// The number of nodes that it was made for.
    pub(super) fn nodes(&self) -> Option<u32> {
        match self {
            Self::Log { log, .. } => log.nodes(),
            Self::Lublin(shape) => Some(shape.nodes),
        }
    }
}

/// The memory of the jobs of a log, where it records memory.
pub(super) fn memories(path: &Path) -> anyhow::Result<Vec<Bytes>> {
    let log = read(path, None)?;
    let memory = |record: &Record| Some(Bytes(record.memory()?.saturating_mul(1024)));
    let found: Vec<Bytes> = log.records.iter().filter_map(memory).collect();
    anyhow::ensure!(!found.is_empty(), "no job of {} says what memory it took", path.display());
    Ok(found)
}

/// Writes a log, zipped if its name ends in `.gz`.
pub(super) fn write(path: &Path, log: &Log) -> Result<(), Failure> {
    let written = || -> io::Result<()> {
        let file = BufWriter::new(File::create(path)?);
        let zipped = path.extension().is_some_and(|end| end == "gz");
        let mut out: Box<dyn Write> =
            if zipped { Box::new(GzEncoder::new(file, Compression::default())) } else { Box::new(file) };
        write!(out, "{log}")?;
        out.flush()
    };
    written().with_context(|| format!("failed to write {}", path.display())).map_err(Failure::Workload)
}

/// Jobs of a testbed workload get the run time `testbed`.
fn read(path: &Path, testbed: Option<Duration>) -> anyhow::Result<Log> {
    let failed = || format!("failed to read {}", path.display());
    let file = File::open(path).with_context(failed)?;
    let zipped = path.extension().is_some_and(|end| end == "gz");
    let mut text = String::new();
    let mut source: Box<dyn Read> = if zipped { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) };
    source.by_ref().take(BYTES_MAX).read_to_string(&mut text).with_context(failed)?;
    anyhow::ensure!((text.len() as u64) < BYTES_MAX, "{} has more than {BYTES_MAX} bytes", path.display());
    if let Some(run) = testbed {
        let starts = testbed::parse(&text, Duration::from_secs(1)).with_context(failed)?;
        return Ok(of_testbed(&starts, run));
    }
    text.parse().with_context(failed)
}

/// Converts a testbed file, which has no run times.
fn of_testbed(starts: &[testbed::Entry], run: Duration) -> Log {
    let record = |(number, start): (u64, &testbed::Entry)| Record {
        number,
        submit: start.at.0 / 1_000_000_000,
        run: Some(run.as_secs()),
        processors: Some(start.elements),
        requested_processors: Some(start.elements),
        status: Some(Status::Completed),
        ..Record::default()
    };
    let note = format!("; Note: a testbed workload does not say how long a job runs; {run:?} are assumed");
    Log {
        comments: vec![Comment { before: 0, text: note }],
        records: (1..).zip(starts).map(record).collect(),
    }
}
