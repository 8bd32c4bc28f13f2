//! Simulation of space sharing: a log or the model under a queue and an allocator.

use std::{borrow::Cow, fs, path::Path, time::Duration};

use anyhow::Context;
use coswitch_policies::spaceshare::{
    allocate::{Mesh, Request},
    machine::GroupId,
    queue::{QueueId, rms::Rms},
};
use coswitch_sim::{
    parallel::each,
    spaceshare::{
        self, AllocatorName, Blocks, Execution, JobClass, Jobs, Layout, MeanFragmentation, QueueName,
        SpaceError, Summary, csv, layout, mesh_of, picture,
    },
    workload::{
        LogStart, Skipped,
        swf::{Log, LogMachine, Record},
    },
};

use super::{
    Queue, Simulate,
    answer::{Simulated, figures},
    workload::{self, AsRead, Source},
};
use crate::cli::Failure;

/// The most processors of a node that is divided; the limit of `--cpus`.
const CPUS_MAX: u32 = 64;
/// Default timeslice of RMS.
const TIMESLICE: Duration = Duration::from_secs(60);

struct Run {
    summary: Summary,
    jobs: Jobs,
    executions: Vec<Execution>,
    /// None under RMS, whose jobs are suspended and resumed.
    observed: Option<(MeanFragmentation, Blocks)>,
}

pub(super) fn simulate(arguments: &Simulate) -> Result<Simulated, Failure> {
    check(arguments)?;
    let layout = arguments.machine.as_deref().map(read_layout).transpose().map_err(Failure::Workload)?;
    let given = layout.as_ref().map(Layout::nodes).or(arguments.nodes);
    let drawn_for = given.map(|nodes| nodes.saturating_mul(arguments.cpus()));
    let source = Source::of(arguments, drawn_for)?.expect("a run file is simulated by turns");
    let random = matches!(source, Source::Lublin(_));
    if arguments.seeds > 1 && !random {
        let text = "every seed of this simulation is the same: nothing in a log is random; leave --seeds out";
        return Err(Failure::Workload(anyhow::anyhow!(text)));
    }
    let shape = Shape::of(arguments, given, &source)?;
    let begin = source.log(arguments.seed);
    if let Some(number) = layout.as_ref().and_then(|layout| layout.partition)
        && !begin.records.is_empty()
        && begin.records.iter().all(|record| record.partition != Some(number))
    {
        let text = format!("no job is in partition {number}, the only one that the machine takes");
        return Err(Failure::Workload(anyhow::anyhow!(text)));
    }
    let log_of = |seed| match &layout {
        Some(layout) => Cow::Owned(layout::records(layout, &source.log(seed))),
        None => source.log(seed),
    };
    let left_out = |seed| source.log(seed).records.len() - log_of(seed).records.len();
    let seeds = arguments.seeds();
    let one = |seed: &u64| run(arguments, layout.as_ref(), &log_of(*seed), shape);
    let runs = each(&seeds, arguments.threads(), one);
    let runs = runs.into_iter().collect::<Result<Vec<Run>, Failure>>()?;
    let all: Vec<_> = runs.iter().map(|run| run.figures(layout.as_ref())).collect();
    let first = &runs[0];
    let log = log_of(seeds[0]);
    let skipped = Skipped {
        other_partition: u32::try_from(left_out(seeds[0])).unwrap_or(u32::MAX),
        ..first.jobs.skipped
    };
    super::require_jobs(!first.jobs.jobs.is_empty(), skipped)?;
    let months = LogStart::of(&log)
        .map(|start| spaceshare::by_month(start, &first.jobs.jobs, &first.executions, shape.units))
        .unwrap_or_default();
    let policy = match arguments.queue() {
        Queue::Order(queue) => {
            format!("queue {}, allocator {}", serial_name(&queue), serial_name(&arguments.allocator()))
        }
        Queue::Rms => format!("rms, timeslices of {:?}", arguments.quantum.unwrap_or(TIMESLICE)),
    };
    let as_read = as_read(arguments, layout.is_some(), &source, shape);
    let answer = Simulated {
        log: source.read(&log, shape.nodes, shape.units, as_read),
        workload: source.name(),
        nodes: shape.nodes,
        policy,
        skipped,
        figures: figures(&all),
        classes: spaceshare::classes(&first.jobs.jobs, &first.executions, |job| {
            Some(SizeClass::of(job.queued.request.units()))
        }),
        queues: layout.as_ref().map(|layout| of_queues(layout, first)).unwrap_or_default(),
        // Months count suspended jobs as running, which is wrong under RMS.
        months: if first.observed.is_some() { months } else { Vec::new() },
        seeds,
        notes: source.note().into_iter().collect(),
    };
    write_files(arguments, layout.as_ref(), &answer, &log, first, shape)?;
    Ok(answer)
}

/// The simulated machine in numbers.
#[derive(Clone, Copy)]
struct Shape {
    nodes: u32,
    /// The processors that an allocator of boxes sees in a node; 1 for the others, which see `units` alike.
    cpus: u32,
    units: u32,
}

impl Shape {
    /// That of the command line, else of the log.
    fn of(arguments: &Simulate, given: Option<u32>, source: &Source) -> Result<Self, Failure> {
        let of_nodes = |nodes: u32, cpus: u32| Self { nodes, cpus, units: nodes.saturating_mul(cpus) };
        if let (Some(nodes), cpus) = (given, arguments.cpus()) {
            return Ok(of_nodes(nodes, cpus));
        }
        match source.machine().filter(|_| arguments.cpus.is_none()) {
            Some(machine) if divides_nodes(arguments) => {
                let cpus = machine.per_node();
                if cpus <= CPUS_MAX {
                    return Ok(of_nodes(machine.equal_nodes(), cpus));
                }
                let text = format!(
                    "nodes are divided up to {CPUS_MAX} processors, and those of the log have {cpus}: give \
                     --nodes and --cpus, or leave `boxes` and `rms` out"
                );
                Err(Failure::Workload(anyhow::anyhow!(text)))
            }
            Some(machine) => Ok(Self { nodes: machine.nodes, cpus: 1, units: machine.processors }),
            None => Ok(of_nodes(source.nodes()?, arguments.cpus())),
        }
    }

    /// The mesh of the nodes; nodes × CPUs for an allocator that divides nodes.
    fn mesh(self, arguments: &Simulate) -> Mesh {
        match (arguments.mesh, arguments.allocator()) {
            (Some(mesh), _) => mesh,
            (None, AllocatorName::Boxes) => Mesh { width: self.nodes, height: self.cpus },
            (None, _) => mesh_of(self.units),
        }
    }
}

fn divides_nodes(arguments: &Simulate) -> bool {
    arguments.allocator() == AllocatorName::Boxes || arguments.queue() == Queue::Rms
}

fn as_read(arguments: &Simulate, by_layout: bool, source: &Source, shape: Shape) -> AsRead {
    let Shape { nodes, cpus, units } = shape;
    let several = if cpus > 1 { format!("{cpus} processors") } else { "one processor".to_owned() };
    if by_layout {
        return AsRead::Part(format!("{nodes} nodes of one processor, as in the machine file"));
    }
    if arguments.nodes.is_some() || arguments.cpus.is_some() {
        return AsRead::Given(format!("{nodes} nodes of {several}, as given"));
    }
    let plain = source.machine().is_none_or(LogMachine::is_plain);
    AsRead::Own(match (plain, divides_nodes(arguments)) {
        (true, _) => String::new(),
        (false, true) => format!(", divided as {nodes} nodes of {cpus}, {units} in all"),
        (false, false) => ", each allocated by itself".to_owned(),
    })
}

fn check(arguments: &Simulate) -> Result<(), Failure> {
    let rms = arguments.queue() == Queue::Rms;
    let boxes = arguments.allocator() == AllocatorName::Boxes;
    let wrong = match () {
        () if arguments.cpus.is_some() && !rms && !boxes => {
            "only the allocator `boxes` and the queue `rms` divide nodes: leave --cpus out"
        }
        () if rms && arguments.machine.is_some() => "`rms` runs on one node set: leave --machine out",
        () if rms && arguments.svg.is_some() => {
            "there is no picture of jobs that are suspended: leave --svg out"
        }
        () if !rms && arguments.usage_limit.is_some() => "only `--queue rms` has a usage limit",
        () => return Ok(()),
    };
    Err(Failure::Workload(anyhow::anyhow!(wrong)))
}

fn read_layout(path: &Path) -> anyhow::Result<Layout> {
    let failed = || format!("failed to read {}", path.display());
    let text = fs::read_to_string(path).with_context(failed)?;
    let layout: Layout = serde_yaml::from_str(&text).with_context(failed)?;
    layout.check().with_context(failed)?;
    Ok(layout)
}

fn run(arguments: &Simulate, layout: Option<&Layout>, log: &Log, shape: Shape) -> Result<Run, Failure> {
    let internal =
        |error: SpaceError| Failure::Internal(anyhow::Error::new(error).context("failed to simulate"));
    let Shape { nodes, cpus, units } = shape;
    // A single queue: the log does not record the priorities of its queues.
    let home = |_: &Record| (QueueId(0), GroupId(0));
    let (jobs, executions, observed) = match (arguments.queue(), layout) {
        (Queue::Rms, _) => {
            let holds = |_, _, request: Request| request.nodes <= nodes && request.cpus <= cpus;
            let jobs = Jobs::in_boxes(log, cpus, holds, home);
            let rms = Rms::new(nodes, cpus, arguments.usage_limit.unwrap_or(units));
            let timeslice = arguments.quantum.unwrap_or(TIMESLICE);
            let executions = spaceshare::run_rms(&jobs.jobs, rms, timeslice).map_err(internal)?;
            (jobs, executions, None)
        }
        (Queue::Order(queue), None) => {
            let mut machine = spaceshare::machine(shape.mesh(arguments), arguments.allocator());
            let holds = |_, group, request| machine.can_ever_hold(group, request);
            let jobs = Jobs::in_boxes(log, cpus, holds, home);
            let mut observer = (MeanFragmentation::default(), Blocks::default());
            let executions = spaceshare::run(&jobs.jobs, &mut machine, &mut *queue.order(), &mut observer);
            (jobs, executions.map_err(internal)?, Some(observer))
        }
        (Queue::Order(queue), Some(layout)) => in_sets(arguments.allocator(), queue, layout, log)?,
    };
    let summary = spaceshare::summarise(&jobs.jobs, &executions, units);
    Ok(Run { summary, jobs, executions, observed })
}

type Ran = (Jobs, Vec<Execution>, Option<(MeanFragmentation, Blocks)>);

/// Runs on a machine of several node sets.
fn in_sets(allocator: AllocatorName, queue: QueueName, layout: &Layout, log: &Log) -> Result<Ran, Failure> {
    let wrong = |error: spaceshare::LayoutError| Failure::Workload(error.into());
    let start = LogStart::of(log).unwrap_or(LogStart { day: 0, second: 0 });
    let mut machine = layout.machine(allocator, layout::daytime(start)).map_err(wrong)?;
    let mut order = layout.order(queue).map_err(wrong)?;
    let holds = |queue, group, request: Request| {
        layout.admits(queue, request.nodes) && machine.can_ever_hold(group, request)
    };
    let mut jobs = Jobs::in_boxes(log, 1, holds, layout::homes(layout, log).map_err(wrong)?);
    layout::limit(layout, &mut jobs);
    let mut observer = (MeanFragmentation::default(), Blocks::default());
    let executions = spaceshare::run(&jobs.jobs, &mut machine, &mut *order, &mut observer)
        .map_err(|error| Failure::Internal(anyhow::Error::new(error).context("failed to simulate")))?;
    Ok((jobs, executions, Some(observer)))
}

impl Run {
    fn figures(&self, layout: Option<&Layout>) -> Vec<(Cow<'static, str>, f64)> {
        let mut all: Vec<_> = self.summary.figures().into();
        if let Some((fragmentation, _)) = &self.observed {
            all.extend([
                ("external_fragmentation", fragmentation.external()),
                ("internal_fragmentation_nodes", fragmentation.internal_nodes()),
                ("scatter", fragmentation.scatter()),
                ("idle_while_waiting_nodes", fragmentation.idle_while_waiting()),
                ("blocks_per_job", fragmentation.blocks_per_job()),
            ]);
        }
        let mut all: Vec<_> = all.into_iter().map(|(name, value)| (name.into(), value)).collect();
        if let (Some(layout), Some((_, blocks))) = (layout, &self.observed) {
            let by_set =
                layout::utilisation(layout, &self.jobs, &self.executions, blocks, self.summary.makespan_s);
            let names = layout.sets.iter().map(|set| format!("utilisation_{}", set.name).into());
            all.splice(2..2, names.zip(by_set));
        }
        all
    }
}

/// Figures by queue, in the order of the file.
fn of_queues(layout: &Layout, run: &Run) -> Vec<JobClass> {
    spaceshare::classes(&run.jobs.jobs, &run.executions, |job| {
        let number = job.queued.queue.0;
        Some(QueueClass(number, layout.queues.get(usize::from(number))?.name.clone()))
    })
}

/// Writes the requested files, for the first seed.
fn write_files(
    arguments: &Simulate,
    layout: Option<&Layout>,
    answer: &Simulated,
    log: &Log,
    run: &Run,
    shape: Shape,
) -> Result<(), Failure> {
    if let Some(path) = &arguments.csv {
        super::write(path, &csv::jobs_csv(log, &run.jobs, &run.executions))?;
    }
    if let (Some(path), Some((_, blocks))) = (&arguments.svg, &run.observed) {
        let title = format!("{}: {}", answer.workload, answer.policy);
        let (jobs, executions, summary) = (&run.jobs.jobs, &run.executions, &run.summary);
        let meshes = layout.map_or_else(|| vec![shape.mesh(arguments)], Layout::meshes);
        let number = |job: usize| log.records[run.jobs.records[job] as usize].number;
        let few = picture::gantt(&title, &meshes, jobs, executions, blocks, summary, number);
        let picture = few.unwrap_or_else(|| picture::load(&title, shape.units, jobs, executions, summary));
        super::write(path, &picture)?;
    }
    if let Some(path) = &arguments.swf {
        let mut done = log.clone();
        for ((job, record), execution) in run.jobs.jobs.iter().zip(&run.jobs.records).zip(&run.executions) {
            let wait = execution.started.since(job.queued.submitted).as_secs();
            done.records[*record as usize].wait = Some(wait);
        }
        workload::write(path, &done)?;
    }
    Ok(())
}

/// The name of a policy in files and on the command line.
pub(super) fn serial_name(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(Into::into)).unwrap_or_default()
}

/// Sizes between powers of two, named by the upper one, as in paper 002, Table 3.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct SizeClass(u32);

impl SizeClass {
    fn of(nodes: u32) -> Self {
        Self(nodes.next_power_of_two())
    }
}

impl std::fmt::Display for SizeClass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            0..=2 => write!(f, "{}", self.0),
            most => write!(f, "{}-{most}", most / 2 + 1),
        }
    }
}

/// A queue, ordered by number and printed by name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct QueueClass(u16, String);

impl std::fmt::Display for QueueClass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.1)
    }
}
