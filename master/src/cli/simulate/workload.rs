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
    swf::{Comment, Log, LogMachine, Record, Status},
    testbed,
};
use flate2::{Compression, read::MultiGzDecoder, write::GzEncoder};

use super::{Simulate, answer::LogRead};
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
        /// By its header, if that says anything.
        machine: Option<LogMachine>,
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
        log.records.truncate(arguments.jobs.unwrap_or(usize::MAX));
        let machine = LogMachine::of(&log);
        if let (None, Some(machine)) = (processors, machine.filter(|of| of.processors > NODES_MAX)) {
            let text = anyhow!(
                "{} says that there are {machine}, and at most {NODES_MAX} are simulated: give --nodes",
                path.display()
            );
            return Err(Failure::Workload(text));
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let note = is_testbed.then(|| {
            format!("a testbed workload does not say how long a job runs: {run:?} each (--run-time)")
        });
        Ok(Some(Self::Log { name, log, machine, note }))
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

    /// The machine of the log; none of the model.
    pub(super) const fn machine(&self) -> Option<&LogMachine> {
        match self {
            Self::Log { machine, .. } => machine.as_ref(),
            Self::Lublin(_) => None,
        }
    }

    /// The number of nodes that it was made for.
    ///
    /// # Errors
    /// Where a log does not say.
    pub(super) fn nodes(&self) -> Result<u32, Failure> {
        match self {
            Self::Log { log, machine, .. } => {
                machine.map(|machine| machine.nodes).ok_or_else(|| unknown_machine(log))
            }
            Self::Lublin(shape) => Ok(shape.nodes),
        }
    }

    /// How a log was read for a machine of these nodes and processors. `jobs` are those of its records that
    /// are meant for this machine.
    pub(super) fn read(&self, jobs: &Log, nodes: u32, processors: u32, as_read: AsRead) -> Option<LogRead> {
        let Self::Log { machine, .. } = self else { return None };
        let own = match (&as_read, machine) {
            (AsRead::Part(_), _) | (_, None) => processors,
            (_, Some(machine)) => machine.processors,
        };
        let text = match (as_read, machine) {
            (AsRead::Own(more), Some(machine)) => format!("{machine}{more}"),
            (AsRead::Given(given) | AsRead::Part(given), Some(machine)) => {
                format!("{given} (the log's header: {})", machine.header())
            }
            (AsRead::Own(given) | AsRead::Given(given) | AsRead::Part(given), None) => {
                format!("{given} (the log's header gives neither MaxNodes nor MaxProcs)")
            }
        };
        let utilisation = jobs.utilisation(own);
        Some(LogRead { machine: text, nodes, processors, utilisation })
    }
}

/// Whose machine is simulated.
pub(super) enum AsRead {
    /// That of the log, with these words more.
    Own(String),
    /// Another, in these words.
    Given(String),
    /// A part of that of the log, in these words.
    Part(String),
}

/// The error for a log whose header does not say how large the machine was.
fn unknown_machine(log: &Log) -> Failure {
    let sizes = log.records.iter().filter(|record| record.run.is_some()).filter_map(Record::size);
    let text = "the log does not give the number of nodes or processors (no MaxNodes or MaxProcs in its \
                header): give --nodes";
    Failure::Workload(match sizes.max() {
        Some(most) => anyhow!("{text}; its largest job had {most} processors"),
        None => anyhow!("{text}; no job says how many processors it had, either"),
    })
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
