//! Resolves a typed run file into a job set: parses every value, checks values against each other, expands
//! counts.
//!
//! A wrong value is reported and replaced by a default, so that the check continues; the result is used only
//! where there is no problem. The only inputs besides the file are whether programs and directories exist,
//! the swap space of the machine, and the memory of hosts where the file does not say it.

mod jobs;
mod nodes;
mod sets;
mod store;
mod technique;

use std::{
    collections::BTreeSet,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    time::Duration,
};

use coswitch_daemon::session::QUIET_AFTER;
use coswitch_dispatcher::provisioning::{
    hosts::Host,
    slurm::{Allocation, AllocationError},
};
use coswitch_policies::{
    AutoQuantum, Bytes, Capacity, ConfigError, Estimate, NodeId, Policy, Residency, Rotation, ShortOfMemory,
    local::Technique, spaceshare::layout::Daytime,
};

use super::{
    advice::{AUTO_BOUNDS, AUTO_QUANTUM_MIN, Overfull},
    choice::ParkMethod,
    file::{ClusterPart, RunFile, SchedulerPart},
    job_set::{
        ClusterConfig, JobSet, Settings, TimeLimits, lost_after, mean_time_between_failures, stop_after,
    },
    leaf::{BetweenFailures, Leaf, Percent, Quantity},
    problem::Problem,
    program::ProgramError,
};

/// What a run file is read for, which says what it must have.
#[derive(Clone, Copy, Debug)]
pub enum Purpose<'a> {
    /// A run: cluster and jobs.
    Run,
    /// A cluster to which users bring their jobs.
    Serve,
    /// Jobs for this cluster and policy, which stand for those of the file.
    Submit(&'a ClusterConfig, Policy),
}

/// What `slice` may be: below that, stopping and thawing takes more than the slice.
const SLICES: RangeInclusive<Duration> = Duration::from_micros(300)..=Duration::from_secs(10);

impl Purpose<'_> {
    /// Fields of the schema that such a file need not have.
    pub const fn optional(self) -> &'static str {
        match self {
            Self::Run => "",
            Self::Serve => "jobs",
            Self::Submit(..) => "cluster",
        }
    }
}

/// What each of some hosts has free; or why it is not known.
pub type AskForMemory = dyn Fn(&[&Host]) -> Result<Vec<Bytes>, String>;

/// The path of a run file, and how its programs are found.
pub struct Context<'a> {
    pub purpose: Purpose<'a>,
    pub file: &'a Path,
    /// The directory of the file, absolute.
    pub base: &'a Path,
    /// The machine that will run the set, if it is this one: then programs and directories must exist.
    pub machine: Option<Machine>,
    /// Finds a program.
    pub find: &'a dyn Fn(&str) -> Result<PathBuf, ProgramError>,
    /// Replaces the file's policy.
    pub policy: Option<Policy>,
    /// The allocation of Slurm that this process runs in.
    pub allocation: &'a dyn Fn() -> Result<Allocation, AllocationError>,
    /// Asks hosts for the memory that each has free.
    pub free_memory: &'a AskForMemory,
    /// The time of the day at time 0.
    pub start: Daytime,
}

/// What is known of a machine that will run a job set.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// The size of its swap space.
    pub swap: Bytes,
}

/// The job set of `file`.
///
/// # Errors
/// With all problems of its values.
pub fn resolve(
    file: &RunFile,
    defaults: &SchedulerPart,
    context: &Context<'_>,
) -> Result<JobSet, Vec<Problem>> {
    let mut reader = Reader { problems: Vec::new(), is_run_here: context.machine.is_some() };
    let cluster = match (context.purpose, &file.cluster) {
        (Purpose::Submit(cluster, _), _) => cluster.clone(),
        (_, Some(part)) => reader.cluster(part, context),
        // The shape of the file is wrong, which is told elsewhere.
        (_, None) => return Err(reader.problems),
    };
    let mut scheduler = reader.scheduler(file.scheduler.as_ref(), defaults);
    let own = file.scheduler.as_ref().filter(|_| !matches!(context.purpose, Purpose::Submit(..)));
    scheduler.sets = own.and_then(|part| reader.sets(part, &scheduler, &cluster, context));
    scheduler.policy = match context.purpose {
        Purpose::Submit(_, policy) => policy,
        _ => context.policy.unwrap_or(scheduler.policy),
    };
    let jobs = file.jobs.as_ref();
    let jobs = jobs.map(|jobs| reader.jobs(jobs, &cluster, &scheduler, context));
    let jobs = jobs.unwrap_or_default();
    let name = context.file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let set = JobSet { name, file: context.file.into(), cluster, scheduler, jobs };
    let own = file.cluster.as_ref().filter(|_| !matches!(context.purpose, Purpose::Submit(..)));
    if let Some(store) = own.and_then(|cluster| cluster.store.as_ref()) {
        reader.check_store_takes_each(&set, store);
    }
    if let Some(part) = file.scheduler.as_ref().filter(|_| own.is_some()) {
        let machine = context.machine.filter(|_| set.cluster.is_virtual());
        reader.check_swapping(&set, part, machine);
    }
    if reader.problems.is_empty() { Ok(set) } else { Err(reader.problems) }
}

struct Reader {
    problems: Vec<Problem>,
    /// Directories of images are on this machine.
    is_run_here: bool,
}

impl Reader {
    fn read<T: Quantity>(&mut self, field: &str, leaf: &Leaf<T>) -> Option<T> {
        leaf.read(field).map_err(|problem| self.problems.push(problem)).ok()
    }

    fn optional<T: Quantity>(&mut self, field: &str, leaf: Option<&Leaf<T>>) -> Option<T> {
        leaf.and_then(|leaf| self.read(field, leaf))
    }

    fn refuse(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    fn cluster(&mut self, part: &ClusterPart, context: &Context<'_>) -> ClusterConfig {
        let network = part.network.as_ref();
        let rate_leaf = network.and_then(|network| network.rate.as_ref());
        let rate = self.optional("cluster.network.rate", rate_leaf);
        if let (Some(leaf), Some(rate)) = (rate_leaf, rate)
            && rate.0 < 1_000_000
        {
            let problem = Problem::new("cluster.network.rate", leaf.span(), format!("{rate} is too slow"));
            self.refuse(problem.help("the slowest link that can be made is 1Mbit"));
        }
        let encryption = network.and_then(|network| network.encryption.as_ref());
        let (nodes, hosts, allocation) = self.nodes(&part.nodes, context);
        let memory = self.node_memory(part, &hosts, allocation.as_ref(), context);
        let each = memory.as_ref().map(|(memory, _)| (0..nodes).map(|node| memory.on(NodeId(node))));
        let least = each.and_then(Iterator::min);
        if !hosts.is_empty() || allocation.is_some() {
            self.is_run_here = false;
            self.refuse_rate(rate_leaf);
        }
        let arena = match &allocation {
            Some(allocation) if part.arena.is_none() => Some(nodes::usual_arena(allocation)),
            _ => self.arena(part, least),
        };
        // Where it cannot be read, no job is reported as too large for it.
        let unknown = || (Capacity::OfAll(Bytes(u64::MAX)), BTreeSet::new());
        let (memory, memory_asked) = memory.unwrap_or_else(unknown);
        let store = part
            .store
            .as_ref()
            .map(|store| self.store(store::FIELD, store, context.base))
            .unwrap_or_default();
        let is_shared = allocation.is_some() && store.iter().all(|tier| store::is_shared(&tier.root));
        let are_machines = self::nodes::are_machines(&hosts, allocation.as_ref());
        let usual = u32::from(are_machines && nodes > 1 && (store.is_empty() || !is_shared));
        let copies = self.copies(part, nodes).unwrap_or(usual);
        ClusterConfig {
            nodes,
            hosts,
            allocation,
            memory,
            memory_asked,
            power: self.power(&part.nodes.value),
            rate,
            encryption: self.optional("cluster.network.encryption", encryption),
            arena,
            store,
            copies,
            lost_after: self.patience("cluster.lost_after", part.lost_after.as_ref()).unwrap_or(lost_after()),
            heartbeats: self.optional("cluster.heartbeats", part.heartbeats.as_ref()).unwrap_or_default(),
            stop_after: self.patience("cluster.stop_after", part.stop_after.as_ref()).unwrap_or(stop_after()),
            mean_time_between_failures: self
                .optional("cluster.mean_time_between_failures", part.mean_time_between_failures.as_ref())
                .map_or_else(mean_time_between_failures, |BetweenFailures(time)| time),
        }
    }

    fn patience(&mut self, field: &'static str, leaf: Option<&Leaf<Duration>>) -> Option<Duration> {
        let patience = self.optional(field, leaf)?;
        if patience <= QUIET_AFTER {
            let message = format!("a silence is noticed only after {} s", QUIET_AFTER.as_secs());
            let span = leaf.expect("it was read from there").span();
            self.refuse(Problem::new(field, span, message).help("write a longer time, for example `10min`"));
        }
        Some(patience)
    }

    fn scheduler(&mut self, part: Option<&SchedulerPart>, defaults: &SchedulerPart) -> Settings {
        let none = SchedulerPart::default();
        let part = part.unwrap_or(&none);
        macro_rules! setting {
            ($field:ident) => {
                self.optional(
                    concat!("scheduler.", stringify!($field)),
                    part.$field.as_ref().or(defaults.$field.as_ref()),
                )
            };
        }
        let (quantum, is_auto) = self.quantum(part, defaults);
        let Percent(overhead) = setting!(overhead).unwrap_or(Percent(0.02));
        let longest = setting!(quantum_max).unwrap_or(AUTO_BOUNDS.longest).max(AUTO_QUANTUM_MIN);
        let overhead = ((overhead * 1e6).round() as u32).max(1);
        let auto_bounds = AutoQuantum { overhead, longest };
        let local = part.local.as_ref().or(defaults.local.as_ref()).and_then(|part| self.local(part));
        let settings = Settings {
            policy: setting!(policy).unwrap_or(Policy::Hybrid),
            queue: setting!(queue).unwrap_or_default(),
            allocator: setting!(allocator).unwrap_or_default(),
            sets: None,
            quantum,
            auto: is_auto.then_some(auto_bounds),
            auto_bounds,
            switching: setting!(switching).unwrap_or_default(),
            short_of_memory: setting!(short_of_memory).unwrap_or_default(),
            oracle: setting!(oracle).unwrap_or_default(),
            residency: setting!(residency).unwrap_or(Residency::Planned),
            needs: setting!(needs).unwrap_or_default(),
            park: setting!(park).unwrap_or(ParkMethod::Criu),
            max_per_cell: setting!(max_per_cell),
            max_queued: setting!(max_queued),
            max_queued_per_user: setting!(max_queued_per_user),
            time_limits: TimeLimits {
                usual: setting!(time_limit_default),
                longest: setting!(time_limit_max),
            },
            packing: setting!(packing).unwrap_or_default(),
            rotation: setting!(rotation).unwrap_or_default(),
            alternate: setting!(alternate).unwrap_or_default(),
            slice: setting!(slice).or(local.and_then(Technique::slot)),
            local,
            wait: setting!(wait)
                .unwrap_or_else(|| local.map(|technique| technique.wait().into()).unwrap_or_default()),
        };
        if settings.max_per_cell == Some(0) {
            let span = part.max_per_cell.as_ref().expect("it was read from there").span();
            self.refuse(Problem::new("scheduler.max_per_cell", span, "a cell must hold at least 1 job"));
        }
        let queued = [
            ("scheduler.max_queued", &part.max_queued, settings.max_queued),
            ("scheduler.max_queued_per_user", &part.max_queued_per_user, settings.max_queued_per_user),
        ];
        for (field, written, most) in queued {
            if let (Some(written), Some(0)) = (written, most) {
                let problem = Problem::new(field, written.span(), "no job could be submitted");
                self.refuse(problem.help("write how many jobs may wait, for example `100`, or leave it out"));
            }
        }
        self.check_time_limits(settings.time_limits, part);
        self.check_rotation(&settings, part);
        self.check_slice(&settings, part);
        self.check_exchanges(&settings, part);
        self.check_own_nodes(&settings, part);
        settings
    }

    fn check_time_limits(&mut self, limits: TimeLimits, part: &SchedulerPart) {
        let fields =
            [("time_limit_default", &part.time_limit_default), ("time_limit_max", &part.time_limit_max)];
        for ((name, leaf), limit) in fields.into_iter().zip([limits.usual, limits.longest]) {
            if let (Some(leaf), Some(Duration::ZERO)) = (leaf, limit) {
                let message = "a job that may run for no time does nothing";
                let problem = Problem::new(format!("scheduler.{name}"), leaf.span(), message);
                self.refuse(problem.help("write how long jobs may run, for example `12h`, or leave it out"));
            }
        }
        if let (Some(leaf), Err(why)) = (&part.time_limit_default, limits.check(limits.usual)) {
            let problem = Problem::new("scheduler.time_limit_default", leaf.span(), why);
            self.refuse(problem.help("write a shorter time, or leave it out"));
        }
    }

    fn check_slice(&mut self, settings: &Settings, part: &SchedulerPart) {
        let (Some(leaf), Some(slice)) = (part.slice.as_ref(), settings.slice) else { return };
        let policy = settings.policy;
        let (message, help) = match policy {
            Policy::Batch | Policy::Gang => (
                format!("under `{policy}` no two jobs are on a node in the same turn"),
                "write `policy: hybrid`, or leave it out".to_owned(),
            ),
            _ if !SLICES.contains(&slice) => (
                format!("a slice has {:?} to {:?}", SLICES.start(), SLICES.end()),
                "write for example `20ms`".to_owned(),
            ),
            _ if settings.local.is_some_and(|technique| technique.slot().is_none()) => (
                "jobs that take slices are alone on their nodes: `local` has nothing to decide".to_owned(),
                "leave one of the two out, or write `local: fcs` or `bcs`".to_owned(),
            ),
            _ => return,
        };
        self.refuse(Problem::new("scheduler.slice", leaf.span(), message).help(help));
    }

    /// An exchange is as long as a slice may be short.
    fn check_exchanges(&mut self, settings: &Settings, part: &SchedulerPart) {
        let Some((leaf, technique)) = part.local.as_ref().and_then(technique::exchanges).zip(settings.local)
        else {
            return;
        };
        let Some((buffering, slot)) = technique.buffering().zip(settings.slice.or(technique.slot())) else {
            return;
        };
        let most = (slot.as_nanos() / SLICES.start().as_nanos()).max(1);
        if u128::from(buffering.exchanges) > most {
            let message = format!(
                "{} exchanges in a slot of {slot:?} would have less than {:?} each",
                buffering.exchanges,
                SLICES.start()
            );
            let problem = Problem::new("scheduler.local.bcs.exchanges", leaf.span(), message);
            self.refuse(problem.help(format!("write {most} or fewer, or a longer `slice` of the scheduler")));
        }
    }

    fn check_rotation(&mut self, settings: &Settings, part: &SchedulerPart) {
        let Some(leaf) = part.rotation.as_ref().filter(|_| settings.rotation == Rotation::Job) else {
            return;
        };
        let error = match (settings.policy, settings.auto) {
            (Policy::Hybrid, None) => return,
            (Policy::Hybrid, Some(_)) => ConfigError::AutoRing,
            _ => ConfigError::NoRing,
        };
        self.refuse(Problem::new("scheduler.rotation", leaf.span(), error.to_string()));
    }

    /// Only `batch` gives jobs nodes of their own, for which they queue.
    fn check_own_nodes(&mut self, settings: &Settings, part: &SchedulerPart) {
        if settings.policy == Policy::Batch {
            return;
        }
        let queue = part.queue.as_ref().map(|leaf| ("scheduler.queue", leaf.span()));
        let allocator = part.allocator.as_ref().map(|leaf| ("scheduler.allocator", leaf.span()));
        for (field, span) in queue.into_iter().chain(allocator).chain(part.divided()) {
            let problem = Problem::new(field, span, ConfigError::SharedNodes.to_string());
            let policy = settings.policy;
            self.refuse(problem.help(format!("write `policy: batch`; under `{policy}`, leave it out")));
        }
    }

    /// Checks jobs that may exceed memory together: swap has to hold the rest.
    fn check_swapping(&mut self, set: &JobSet, part: &SchedulerPart, machine: Option<Machine>) {
        let settings = &set.scheduler;
        let park = part.park.as_ref().filter(|_| settings.park == ParkMethod::Suspend);
        if let (Some(_), Some(leaf), Residency::None) = (park, &part.residency, settings.residency) {
            let message = "`none` takes each job out of memory, and `park: suspend` never does";
            let problem = Problem::new("scheduler.residency", leaf.span(), message);
            self.refuse(problem.help("leave `residency` out, or write `park: criu`"));
        }
        let short = part.short_of_memory.as_ref();
        let short = short.filter(|_| settings.short_of_memory == ShortOfMemory::Swap);
        if let (Some(leaf), Estimate::Measured) = (short, settings.needs) {
            let problem = ConfigError::GuardedSwap.to_string();
            let problem = Problem::new("scheduler.short_of_memory", leaf.span(), problem);
            self.refuse(problem.help("write `needs: declared` as well"));
        }
        let (field, span, jobs, advice) = match (park, short) {
            (Some(leaf), _) => {
                ("scheduler.park", leaf.span(), "all jobs", "`criu`, so that jobs may leave memory")
            }
            (_, Some(leaf)) => {
                ("scheduler.short_of_memory", leaf.span(), "a set and the next", "`sequential`")
            }
            _ => return,
        };
        let (Some(Machine { swap }), true) = (machine, self.problems.is_empty()) else { return };
        let overfull = set.overfull();
        let excess: Bytes = overfull.iter().map(|node| Bytes(node.needed.0 - node.capacity.0)).sum();
        let Some(Overfull { node, needed, capacity }) = overfull.first().filter(|_| excess > swap) else {
            return;
        };
        let swap = if swap == Bytes(0) { "no swap".into() } else { format!("only {swap} of swap") };
        let message = format!(
            "{jobs} together need {needed} on {node}, which has {capacity}, and this machine has {swap} \
             for the {excess} too much on all nodes"
        );
        let help = format!("write {advice}; or add swap: {}", coswitch_daemon::swap::ADVICE);
        self.refuse(Problem::new(field, span, message).help(help));
    }

    /// The quantum, and whether coswitch chooses it; then it is the shortest.
    fn quantum(&mut self, part: &SchedulerPart, defaults: &SchedulerPart) -> (Duration, bool) {
        const FIELD: &str = "scheduler.quantum";
        let Some(leaf) = part.quantum.as_ref().or(defaults.quantum.as_ref()) else {
            return (Duration::MAX, false);
        };
        if leaf.text().trim() == "auto" {
            return (AUTO_QUANTUM_MIN, true);
        }
        let quantum = self.read(FIELD, leaf).unwrap_or(Duration::MAX);
        if quantum < Duration::from_millis(10) {
            let problem = Problem::new(FIELD, leaf.span(), "the quantum is shorter than any switch");
            self.refuse(problem.help("write at least `10ms`; a few seconds are usual"));
        }
        (quantum, false)
    }
}
