//! From what is written to what it means: reads every value, checks one against the other, expands counts.
//!
//! Pure but for `find`, which looks programs up, and a look whether a `cwd` is there. A value that is wrong is noted and stood in for, so that the check
//! goes on; the result is used only where nothing was noted.

mod jobs;
mod store;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use coswitch_policies::{AutoQuantum, Bytes, Policy, Residency, Scheduler, SchedulerEvent, SimTime};
use serde_yaml::Spanned;

use super::{
    choice::{Park, Wait},
    file::{ClusterPart, Nodes, RunFile, SchedulerPart},
    job_set::{Cluster, JobSet, Settings},
    leaf::{Leaf, Percent, Quantity},
    problem::Problem,
    program::ProgramError,
    tree::span_at,
};

/// The most virtual nodes of one machine.
pub const NODES_MAX: u32 = 64;
/// The most jobs of one run.
pub const JOBS_MAX: u32 = 1000;
/// The most ranks of one job.
pub const RANKS_MAX: u32 = 1024;

/// What the quantum `auto` begins with, and does not fall below.
const SHORTEST: Duration = Duration::from_secs(1);
/// What it does not exceed, where nothing is said.
const LONGEST: Duration = Duration::from_secs(600);

/// Where a run file lies and how its programs are found.
pub struct Surroundings<'a> {
    /// The file.
    pub file: &'a Path,
    /// Its directory, absolute.
    pub base: &'a Path,
    /// Whether it is to be run here: then programs and directories have to be there.
    pub here: bool,
    /// Looks a program up.
    pub find: &'a dyn Fn(&str) -> Result<PathBuf, ProgramError>,
    /// In the place of what the file says.
    pub policy: Option<Policy>,
}

/// What `file` means, or everything that is wrong with its values.
pub fn resolve(
    file: &RunFile,
    defaults: &SchedulerPart,
    around: &Surroundings<'_>,
) -> Result<JobSet, Vec<Problem>> {
    let mut reader = Reader { problems: Vec::new(), here: around.here };
    let cluster = reader.cluster(&file.cluster, around.base);
    let (mut scheduler, wait) = reader.scheduler(file.scheduler.as_ref(), defaults);
    scheduler.policy = around.policy.unwrap_or(scheduler.policy);
    let jobs = reader.jobs(&file.jobs, &cluster, scheduler.policy, wait, around);
    let name = around.file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let set = JobSet { name, file: around.file.into(), cluster, scheduler, jobs };
    if let Some(store) = &file.cluster.store {
        reader.must_take_each(&set, store);
    }
    if let Some(park) = file.scheduler.as_ref().and_then(|part| part.park.as_ref()) {
        reader.must_hold_all(&set, park);
    }
    if reader.problems.is_empty() { Ok(set) } else { Err(reader.problems) }
}

struct Reader {
    problems: Vec<Problem>,
    here: bool,
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

    fn cluster(&mut self, part: &ClusterPart, base: &Path) -> Cluster {
        let memory = self.read("cluster.memory", &part.memory);
        if memory == Some(Bytes(0)) {
            let problem =
                Problem::new("cluster.memory", part.memory.span(), "a node without memory holds no job");
            self.refuse(problem.help("write for example `1GiB`"));
        }
        let rate = part.network.as_ref().and_then(|network| self.read("cluster.network.rate", &network.rate));
        if let (Some(network), Some(rate)) = (&part.network, rate)
            && rate.0 < 1_000_000
        {
            let problem =
                Problem::new("cluster.network.rate", network.rate.span(), format!("{rate} is too slow"));
            self.refuse(problem.help("the slowest link that can be made is 1Mbit"));
        }
        Cluster {
            nodes: self.nodes(&part.nodes),
            // Where it could not be read, no job must look too large for it.
            memory: memory.unwrap_or(Bytes(u64::MAX)),
            rate,
            arena: self.arena(part, memory),
            store: part.store.as_ref().map(|store| self.store(store, base)).unwrap_or_default(),
        }
    }

    fn nodes(&mut self, nodes: &Spanned<Nodes>) -> u32 {
        let problem = |message: String| Problem::new("cluster.nodes", span_at(&nodes.referenced), message);
        let virtual_only = "write the number of virtual nodes on this machine, for example `2`";
        let refused = match &nodes.value {
            Nodes::Word(word) => match word.parse::<u32>() {
                Ok(number) if (1..=NODES_MAX).contains(&number) => return number,
                _ if word == "slurm" => problem("nodes from Slurm come later".into()).help(virtual_only),
                _ => problem(format!("`{word}` is not a number of nodes from 1 to {NODES_MAX}"))
                    .help(virtual_only),
            },
            Nodes::Hosts => problem("a list of hosts comes later".into()).help(virtual_only),
        };
        self.refuse(refused);
        1
    }

    fn scheduler(&mut self, part: Option<&SchedulerPart>, defaults: &SchedulerPart) -> (Settings, Wait) {
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
        let longest = setting!(quantum_max).unwrap_or(LONGEST).max(quantum);
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share is between 0 and 1"
        )]
        let overhead = (overhead * 1e6).round() as u32;
        let settings = Settings {
            policy: setting!(policy).unwrap_or(Policy::Hybrid),
            quantum,
            auto: is_auto.then_some(AutoQuantum { overhead: overhead.max(1), longest }),
            switching: setting!(switching).unwrap_or_default(),
            oracle: setting!(oracle).unwrap_or_default(),
            residency: setting!(residency).unwrap_or(Residency::Planned),
            needs: setting!(needs).unwrap_or_default(),
            park: setting!(park).unwrap_or(Park::Criu),
            max_per_cell: setting!(max_per_cell),
            packing: setting!(packing).unwrap_or_default(),
            alternate: setting!(alternate).unwrap_or_default(),
        };
        if settings.max_per_cell == Some(0) {
            let span = part.max_per_cell.as_ref().expect("it was read from there").span();
            self.refuse(Problem::new("scheduler.max_per_cell", span, "a cell must hold at least 1 job"));
        }
        (settings, setting!(wait).unwrap_or(Wait::SpinBlock))
    }

    /// Jobs that never leave memory have to fit there together, as they would lie if they came at once.
    fn must_hold_all(&mut self, set: &JobSet, park: &Leaf<Park>) {
        if set.scheduler.park != Park::Suspend || !self.problems.is_empty() {
            return;
        }
        let Ok(mut scheduler) = Scheduler::new(set.cluster(), set.scheduler_config()) else { return };
        scheduler.on_event(SimTime(0), SchedulerEvent::Submitted { jobs: set.specs() });
        let rows = scheduler.matrix().rows();
        for (node, has) in set.cluster().nodes() {
            let needed: Bytes = rows.clone().map(|row| row.memory_on(node)).sum();
            if needed > has {
                let message = format!("all jobs together need {needed} on {node}, which has {has}");
                let problem = Problem::new("scheduler.park", park.span(), message);
                return self.refuse(problem.help("write `criu`, so that jobs may leave memory"));
            }
        }
    }

    /// The quantum, or the shortest one where it is to be chosen.
    fn quantum(&mut self, part: &SchedulerPart, defaults: &SchedulerPart) -> (Duration, bool) {
        const FIELD: &str = "scheduler.quantum";
        let Some(leaf) = part.quantum.as_ref().or(defaults.quantum.as_ref()) else {
            return (Duration::MAX, false);
        };
        if leaf.text().trim() == "auto" {
            return (SHORTEST, true);
        }
        let quantum = self.read(FIELD, leaf).unwrap_or(Duration::MAX);
        if quantum < Duration::from_millis(10) {
            let problem = Problem::new(FIELD, leaf.span(), "the quantum is shorter than any switch");
            self.refuse(problem.help("write at least `10ms`; a few seconds are usual"));
        }
        (quantum, false)
    }
}
