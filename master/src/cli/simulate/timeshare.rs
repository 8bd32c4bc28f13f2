//! Simulation of time sharing: the scheduler of `coswitch run` against a cost model.

use coswitch_policies::{
    Alternate, Bytes, Capacity, Cluster, JobId, JobSpec, Packing, Policy, Residency, Rotation,
    SchedulerConfig, SimTime,
    spaceshare::{queue::QueueId, sharing::SpaceSharing},
    timeshare::short_quantum::{QuantumWatch, ShortQuantum},
};
use coswitch_sim::{
    CostFile, CostModel, Faults, SimError, SimJob, SimReport,
    parallel::each,
    timeshare::{by_month, csv, picture},
    workload::{
        LogStart, Skipped,
        memory::MemoryDistribution,
        swf::{Comment, Log, LogMachine, Record},
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    Simulate,
    answer::{LogRead, Simulated, figures},
    spaceshare::serial_name,
    workload::{self, AsRead, Source},
};
use crate::{
    cli::Failure,
    config::{
        self, JobSet,
        advice::{AUTO_BOUNDS, AUTO_QUANTUM_MIN},
    },
};

/// After this many events a simulation is given up: the scheduler must be at fault.
const STEPS_MAX: usize = 50_000_000;
/// Default quantum: that of the paper's experiments (paper 003, §5.3).
const QUANTUM: Duration = Duration::from_secs(900);
/// Default memory of a node for each of its processors: that of the paper's machines.
const NODE_MEMORY: Bytes = Bytes::mib(1024);

/// Default memory of a job on a node.
const MEMORY: MemoryDistribution = MemoryDistribution::Constant(Bytes::mib(64));

struct Setup {
    name: String,
    cluster: Cluster,
    config: SchedulerConfig,
    cost: CostModel,
    /// Communication of jobs, by name.
    known: CostFile,
    jobs: Vec<SimJob>,
    /// `None` where the scheduler chooses the quantum.
    quantum: Option<QuantumWatch>,
    /// About the run file.
    warnings: Vec<String>,
    /// Processors of a node, by the log.
    processors: u32,
}

pub(super) fn simulate(arguments: &Simulate, is_run_file: bool) -> Result<Simulated, Failure> {
    let set = arguments.file.as_deref().filter(|_| is_run_file).map(config::load_to_plan).transpose()?;
    let nodes = arguments.nodes.or(set.as_ref().map(|set| set.cluster.nodes));
    let source = Source::of(arguments, nodes)?;
    let setup = setup(arguments, set, source.as_ref())?;
    let random = match &source {
        None => false,
        Some(Source::Lublin(_)) => true,
        Some(Source::Log { log, .. }) => {
            let is_drawn = !matches!(arguments.memory, None | Some(MemoryDistribution::Constant(_)));
            is_drawn && log.records.iter().any(|record| record.memory().is_none())
        }
    };
    if arguments.seeds > 1 && !random {
        let text = "every seed of this simulation is the same: nothing in it is random; leave --seeds out";
        return Err(Failure::Workload(anyhow::anyhow!(text)));
    }
    let workload = |seed: u64| match &source {
        None => (setup.jobs.clone(), Skipped::default()),
        Some(source) => jobs_of(arguments, &source.log(seed), seed, &setup),
    };
    let seeds = arguments.seeds();
    let runs = each(&seeds, arguments.threads(), |seed| {
        let (jobs, skipped) = workload(*seed);
        let report = coswitch_sim::simulate(
            &setup.cluster,
            &setup.config,
            &jobs,
            &setup.cost,
            Faults::default(),
            STEPS_MAX,
        );
        report.map(|report| (jobs, skipped, report))
    });
    let runs = runs.into_iter().collect::<Result<Vec<_>, _>>();
    let runs = runs.map_err(|error| match error {
        SimError::Config(error) => Failure::Workload(error.into()),
        error => Failure::Internal(anyhow::Error::new(error).context("failed to simulate")),
    })?;
    let all: Vec<_> = runs.iter().map(|(jobs, _, report)| figures_of(&setup, jobs, report)).collect();
    let (jobs, skipped, report) = &runs[0];
    super::require_jobs(!jobs.is_empty(), *skipped)?;
    let answer = Simulated {
        log: source.as_ref().and_then(|source| read(arguments, source, &setup)),
        workload: source.as_ref().map_or_else(|| setup.name.clone(), Source::name),
        nodes: u32::try_from(setup.cluster.len()).unwrap_or(u32::MAX),
        policy: policy_text(&setup),
        seeds,
        skipped: *skipped,
        figures: figures(&all),
        classes: Vec::new(),
        queues: Vec::new(),
        months: source
            .as_ref()
            .and_then(|source| LogStart::of(&source.log(arguments.seed)))
            .map(|start| by_month(start, &report.times))
            .unwrap_or_default(),
        notes: source.as_ref().and_then(Source::note).into_iter().chain(notes(&setup, report)).collect(),
    };
    write_files(arguments, &answer, &setup, source.as_ref(), jobs, report)?;
    Ok(answer)
}

/// The figures of a run, on nodes of several processors with their use by processor.
fn figures_of(setup: &Setup, jobs: &[SimJob], report: &SimReport) -> Vec<(&'static str, f64)> {
    let mut figures = report.figures();
    let behind = figures.iter().position(|(name, _)| *name == "utilisation");
    if let (Some(behind), true) = (behind, setup.processors > 1) {
        let ended: BTreeSet<JobId> = report.times.jobs.iter().map(|job| job.job).collect();
        let work = |job: &SimJob| f64::from(job.spec.ranks * job.processors) * job.work.as_secs_f64();
        let used: f64 = jobs.iter().filter(|job| ended.contains(&job.spec.id)).map(work).sum();
        let all = setup.cluster.len() as f64 * f64::from(setup.processors);
        let use_of = used / (all * report.metrics.makespan.as_secs_f64());
        figures.insert(behind + 1, ("utilisation_processors", use_of));
    }
    figures
}

/// How the log was read.
fn read(arguments: &Simulate, source: &Source, setup: &Setup) -> Option<LogRead> {
    let nodes = u32::try_from(setup.cluster.len()).unwrap_or(u32::MAX);
    let processors = nodes.saturating_mul(setup.processors);
    let as_read = match source.machine() {
        Some(machine) if is_logs(arguments, source) && machine.is_plain() => AsRead::Own(String::new()),
        Some(_) if is_logs(arguments, source) => {
            let of = setup.processors;
            AsRead::Own(format!(
                ", as {nodes} nodes of {of}; a job takes as many nodes as hold its processors"
            ))
        }
        _ => AsRead::Given(format!("{nodes} nodes, as given, and a rank for each processor")),
    };
    source.read(&source.log(arguments.seed), nodes, processors, as_read)
}

/// Whether the simulated machine is that of the log.
fn is_logs(arguments: &Simulate, source: &Source) -> bool {
    let has_run_file = arguments.workload.is_some() || arguments.file.is_none();
    arguments.nodes.is_none() && !has_run_file && source.machine().is_some()
}

/// The policy and the settings that differ from the default.
fn policy_text(setup: &Setup) -> String {
    let SchedulerConfig {
        policy,
        quantum,
        switching,
        residency,
        packing,
        rotation,
        alternate,
        max_per_cell,
        space,
        ..
    } = &setup.config;
    let mut words = vec![
        format!("policy {policy}, quantum {quantum:?}, switching {}", serial_name(switching)),
        format!("nodes of {}", setup.cluster.largest()),
    ];
    words.extend(space.as_ref().map(|SpaceSharing { queue, allocator, sets }| {
        let sets =
            sets.as_ref().map_or(String::new(), |sets| format!(", {} node sets", sets.layout.sets.len()));
        format!("queue {queue}, {allocator}{sets}")
    }));
    words.extend(max_per_cell.map(|most| format!("at most {most} in a cell")));
    words.extend((*packing != Packing::FirstFit).then(|| format!("packing {}", packing_name(*packing))));
    words.extend((*rotation != Rotation::Set).then(|| "one job exchanged at a time".to_owned()));
    words.extend((*alternate != Alternate::None).then(|| format!("alternate {}", serial_name(alternate))));
    words.extend((*residency != Residency::None).then(|| "resident".to_owned()));
    words.join(", ")
}

fn packing_name(packing: Packing) -> String {
    if matches!(packing, Packing::Exact { .. }) { "exact".to_owned() } else { serial_name(&packing) }
}

/// From the run file and the command line, which takes precedence.
fn setup(arguments: &Simulate, set: Option<JobSet>, source: Option<&Source>) -> Result<Setup, Failure> {
    let (cost, known) = super::costs::load(arguments.costs.as_deref())?;
    let Some(set) = set else {
        let source = source.expect("there is a run file or a workload");
        let machine = source.machine().filter(|_| is_logs(arguments, source));
        let nodes = match (arguments.nodes, machine) {
            (Some(nodes), _) => nodes,
            (None, Some(machine)) => machine.equal_nodes(),
            (None, None) => source.nodes()?,
        };
        let processors = machine.map_or(1, LogMachine::per_node);
        let cores = if processors > 1 { processors } else { cost.cores };
        let policy = arguments.policy.unwrap_or(Policy::Hybrid);
        let quantum = arguments.quantum.unwrap_or(QUANTUM);
        return Ok(Setup {
            name: String::new(),
            cluster: Cluster::uniform(nodes, arguments.node_memory.unwrap_or(NODE_MEMORY.times(processors))),
            config: arguments.with_switching(SchedulerConfig::new(policy, quantum)),
            cost: CostModel { cores, ..cost },
            known,
            jobs: Vec::new(),
            quantum: Some(QuantumWatch::new(quantum, AUTO_BOUNDS, AUTO_QUANTUM_MIN)),
            warnings: Vec::new(),
            processors,
        });
    };
    let nodes = arguments.nodes.unwrap_or(set.cluster.nodes);
    if let (Capacity::OfEach(all), None) = (&set.cluster.memory, arguments.node_memory)
        && all.len() != nodes as usize
    {
        let text = "the nodes of the run file differ in memory: with `--nodes`, give `--node-memory` as well";
        return Err(Failure::Workload(anyhow::anyhow!(text)));
    }
    let memory = arguments.node_memory.map_or(set.cluster.memory.clone(), Capacity::OfAll);
    let mut set = set;
    set.scheduler.policy = arguments.policy.unwrap_or(set.scheduler.policy);
    let mut config = set.scheduler_config();
    config.quantum = arguments.quantum.unwrap_or(config.quantum);
    let config = arguments.with_switching(config);
    let follows = set.jobs.iter().find(|job| !job.after.is_empty()).map(|job| {
        format!("`{}` follows others, which is not simulated: jobs are submitted at their arrivals", job.name)
    });
    let mut jobs = Vec::new();
    let queues = set.queues();
    for job in &set.jobs {
        let Some(work) = job.alone.filter(|_| source.is_none()).or(source.map(|_| Duration::ZERO)) else {
            let text = format!("job `{}` has no time alone: give it a field `alone`", job.name);
            return Err(Failure::Workload(anyhow::anyhow!(text)));
        };
        jobs.push(SimJob {
            spec: job.spec(),
            work,
            communication: known.communication_of(&job.name),
            memory: None,
            processors: 1,
            priority: job.priority,
            limit: job.runs_at_most(),
            queue: queues[&job.id],
        });
    }
    Ok(Setup {
        name: set.name.clone(),
        cluster: memory.cluster(nodes),
        quantum: config
            .auto
            .is_none()
            .then(|| QuantumWatch::new(config.quantum, set.scheduler.auto_bounds, AUTO_QUANTUM_MIN)),
        warnings: set.warnings().into_iter().chain(follows).collect(),
        config,
        cost: CostModel { slice: set.scheduler.warm_slice(), ..cost },
        known,
        jobs,
        processors: 1,
    })
}

/// The jobs of a log: a rank for each processor, or on nodes of several for each node that the job needs;
/// memory as in the log, or drawn.
fn jobs_of(arguments: &Simulate, log: &Log, seed: u64, setup: &Setup) -> (Vec<SimJob>, Skipped) {
    let (mut jobs, mut skipped) = (Vec::new(), Skipped::default());
    for record in &log.records {
        let id = u32::try_from(jobs.len()).unwrap_or(u32::MAX);
        match job_of(arguments, record, seed, id, setup.processors) {
            Err(reason) => *reason(&mut skipped) += 1,
            Ok(job) if job.spec.ranks as usize > setup.cluster.len() => skipped.too_large += 1,
            Ok(job) => {
                let communication = setup.known.communication_of(&job.spec.name);
                jobs.push(SimJob { communication, ..job });
            }
        }
    }
    (jobs, skipped)
}

fn job_of(
    arguments: &Simulate,
    record: &Record,
    seed: u64,
    id: u32,
    per_node: u32,
) -> Result<SimJob, fn(&mut Skipped) -> &mut u32> {
    let run = record.run.ok_or((|s| &mut s.no_run_time) as fn(&mut Skipped) -> &mut u32)?;
    let size = record.size().ok_or((|s| &mut s.no_size) as fn(&mut Skipped) -> &mut u32)?;
    let ranks = size.div_ceil(per_node);
    let processors = size.div_ceil(ranks);
    let memory = arguments.memory.as_ref().unwrap_or(&MEMORY);
    let logged = record.memory().map(|kib| Bytes(kib.saturating_mul(1024)));
    let memory = logged.unwrap_or_else(|| memory.draw(seed, record.number));
    let memory_per_rank = memory.times(processors);
    let name = name_of(record).into();
    let arrival = SimTime::from(Duration::from_secs(record.submit));
    let spec = JobSpec { id: JobId(id), name, ranks, memory_per_rank, arrival };
    let work = Duration::from_secs(run).max(Duration::from_millis(1));
    let (communication, memory, limit, queue) = (None, None, None, QueueId::default());
    Ok(SimJob { spec, work, communication, memory, processors, priority: 0, limit, queue })
}

fn notes(setup: &Setup, report: &SimReport) -> Vec<String> {
    let mut notes = Vec::new();
    if !report.rejected.is_empty() {
        notes.push(format!(
            "{} jobs were refused: their working sets exceed the empty cluster",
            report.rejected.len()
        ));
    }
    notes.extend(setup.warnings.iter().map(|warning| format!("warning: {warning}")));
    notes.extend(short_quantum(setup, report).map(|short| format!("warning: {short}")));
    notes
}

/// A given quantum that is short for the simulated switches.
fn short_quantum(setup: &Setup, report: &SimReport) -> Option<ShortQuantum> {
    let mut watch = setup.quantum.clone()?;
    for step in &report.journal {
        watch.on_event(&step.event);
        step.decisions.iter().for_each(|decision| watch.on_decision(decision));
    }
    watch.judge()
}

/// Writes the requested files, for the first seed.
fn write_files(
    arguments: &Simulate,
    answer: &Simulated,
    setup: &Setup,
    source: Option<&Source>,
    jobs: &[SimJob],
    report: &SimReport,
) -> Result<(), Failure> {
    if let Some(path) = &arguments.csv {
        super::write(path, &csv::jobs_csv(jobs, report))?;
    }
    if let Some(path) = &arguments.svg {
        let title = format!("{}: {}", answer.workload, answer.policy);
        super::write(path, &picture::turns(&title, &setup.cluster, jobs, report))?;
    }
    if let Some(path) = &arguments.swf {
        let log = source.map(|source| source.log(arguments.seed));
        workload::write(path, &as_log(setup, log.as_deref(), jobs, report))?;
    }
    Ok(())
}

/// The jobs as a log: the fields of the records they came from, with the memory and the wait of the
/// simulation.
fn as_log(setup: &Setup, of: Option<&Log>, jobs: &[SimJob], report: &SimReport) -> Log {
    let mut came_from = of.into_iter().flat_map(|log| &log.records);
    let waits: BTreeMap<JobId, u64> =
        report.metrics.jobs.iter().map(|job| (job.job, job.wait.as_secs())).collect();
    let record = |job: &SimJob| {
        let SimJob { spec, work, processors, .. } = job;
        // Jobs are in the order of their records; some records are left out.
        let came_from = came_from.find(|record| *spec.name == *name_of(record));
        Record {
            wait: waits.get(&spec.id).copied(),
            memory_kib: Some((spec.memory_per_rank.0 / u64::from(*processors)).div_ceil(1024)),
            ..came_from.cloned().unwrap_or_else(|| Record {
                number: u64::from(spec.id.0) + 1,
                submit: spec.arrival.0 / 1_000_000_000,
                run: Some(work.as_secs()),
                processors: Some(spec.ranks),
                requested_processors: Some(spec.ranks),
                ..Record::default()
            })
        }
    };
    let records = jobs.iter().map(record).collect();
    let header = [format!("; Computer: {}", setup.name), format!("; MaxNodes: {}", setup.cluster.len())];
    let comments = header.map(|text| Comment { before: 0, text }).into();
    Log { comments: of.map_or(comments, |log| log.comments.clone()), records }
}

fn name_of(record: &Record) -> String {
    format!("job-{}", record.number)
}
