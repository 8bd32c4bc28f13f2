//! From what is written to what it means: reads every value, checks one against the other, expands counts.
//!
//! Pure but for `find`, which looks programs up. A value that is wrong is noted and stood in for, so that the check
//! goes on; the result is used only where nothing was noted.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use coswitch_policies::{Bytes, JobId, Policy, SwitchOrder};
use serde_yaml::Spanned;

use super::{
    choice::Wait,
    file::{ClusterPart, JobPart, Nodes, RunFile, SchedulerPart},
    job_set::{Cluster, Job, JobSet, Settings},
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

/// Where a run file lies and how its programs are found.
pub struct Surroundings<'a> {
    /// The file.
    pub file: &'a Path,
    /// Its directory, absolute.
    pub base: &'a Path,
    /// Looks a program up.
    pub find: &'a dyn Fn(&str) -> Result<PathBuf, ProgramError>,
}

/// What `file` means, or everything that is wrong with its values.
pub fn resolve(
    file: &RunFile,
    defaults: &SchedulerPart,
    around: &Surroundings<'_>,
) -> Result<JobSet, Vec<Problem>> {
    let mut reader = Reader { problems: Vec::new() };
    let cluster = reader.cluster(&file.cluster, around.base);
    let (scheduler, wait) = reader.scheduler(file.scheduler.as_ref(), defaults);
    let jobs = reader.jobs(&file.jobs, &cluster, scheduler.policy, wait, around);
    if !reader.problems.is_empty() {
        return Err(reader.problems);
    }
    let name = around.file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(JobSet { name, file: around.file.into(), cluster, scheduler, jobs })
}

struct Reader {
    problems: Vec<Problem>,
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
            store: self.optional("cluster.store", part.store.as_ref()).map(|path| base.join(path)),
            cpus: self.optional("cluster.cpus", part.cpus.as_ref()),
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
        let quantum = self.quantum(part, defaults);
        let settings = Settings {
            policy: setting!(policy).unwrap_or(Policy::Hybrid),
            quantum,
            overhead: setting!(overhead).map_or(0.02, |Percent(share)| share),
            switching: setting!(switching).unwrap_or(SwitchOrder::Sequential),
            max_per_cell: setting!(max_per_cell),
        };
        if settings.max_per_cell == Some(0) {
            let span = part.max_per_cell.as_ref().expect("it was read from there").span();
            self.refuse(Problem::new("scheduler.max_per_cell", span, "a cell must hold at least 1 job"));
        }
        (settings, setting!(wait).unwrap_or(Wait::SpinBlock))
    }

    fn quantum(&mut self, part: &SchedulerPart, defaults: &SchedulerPart) -> Duration {
        const FIELD: &str = "scheduler.quantum";
        let Some(leaf) = part.quantum.as_ref().or(defaults.quantum.as_ref()) else { return Duration::MAX };
        if leaf.text().trim() == "auto" {
            let problem = Problem::new(FIELD, leaf.span(), "the quantum `auto` comes later");
            self.refuse(problem.help("write a length of time, for example `10s`"));
            return Duration::MAX;
        }
        let quantum = self.read(FIELD, leaf).unwrap_or(Duration::MAX);
        if quantum < Duration::from_millis(10) {
            let problem = Problem::new(FIELD, leaf.span(), "the quantum is shorter than any switch");
            self.refuse(problem.help("write at least `10ms`; a few seconds are usual"));
        }
        quantum
    }

    fn jobs(
        &mut self,
        parts: &Spanned<Vec<JobPart>>,
        cluster: &Cluster,
        policy: Policy,
        wait: Wait,
        around: &Surroundings<'_>,
    ) -> Vec<Job> {
        if parts.value.is_empty() {
            let problem = Problem::new("jobs", span_at(&parts.referenced), "there is no job to run");
            self.refuse(problem.help("list at least one, with `name`, `command`, `ranks` and `memory`"));
        }
        let mut jobs = Vec::new();
        let mut names = BTreeMap::new();
        for (index, part) in parts.value.iter().enumerate() {
            let path = format!("jobs[{index}]");
            let job = self.job(&path, part, wait, around);
            if policy != Policy::Cosched {
                self.check_fits(&path, part, &job, cluster);
            }
            let count = self.count(&path, part);
            if jobs.len() + count as usize > JOBS_MAX as usize {
                let message = format!("the run would have more than {JOBS_MAX} jobs");
                let span = part.count.as_ref().map_or_else(|| part.name.span(), Leaf::span);
                self.refuse(Problem::new(format!("{path}.count"), span, message));
                break;
            }
            for name in expanded(&job.name, count) {
                if let Some(first) = names.insert(name.clone(), index) {
                    let message = format!("the name `{name}` is taken by jobs[{first}]");
                    let problem = Problem::new(format!("{path}.name"), part.name.span(), message);
                    self.refuse(problem.help("give every job its own name; for several alike use `count`"));
                    break;
                }
                let id = JobId(u32::try_from(jobs.len()).expect("bounded by JOBS_MAX"));
                jobs.push(Job { id, name, ..job.clone() });
            }
        }
        jobs
    }

    fn job(&mut self, path: &str, part: &JobPart, wait: Wait, around: &Surroundings<'_>) -> Job {
        let field = |name: &str| format!("{path}.{name}");
        let mut command = self.command(&field("command"), &part.command, around);
        let arguments = command.split_off(1.min(command.len()));
        Job {
            id: JobId(0),
            name: self.name(&field("name"), &part.name),
            program: command.pop().unwrap_or_default().into(),
            arguments,
            ranks: self.ranks(&field("ranks"), &part.ranks),
            memory: self.memory(&field("memory"), &part.memory),
            arrival: self.optional(&field("arrival"), part.arrival.as_ref()).unwrap_or_default().into(),
            env: self.env(&field("env"), part),
            cwd: self.cwd(&field("cwd"), part, around.base),
            alone: self.optional(&field("alone"), part.alone.as_ref()),
            wait: self.optional(&field("wait"), part.wait.as_ref()).unwrap_or(wait),
        }
    }

    fn name(&mut self, field: &str, leaf: &Leaf<String>) -> String {
        let name = leaf.text();
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let starts_well = name.starts_with(|c: char| c.is_ascii_alphanumeric());
        if !starts_well || name.len() > 64 || !name.chars().all(plain) {
            // The name becomes part of paths: directories, cgroups, shared memory.
            let problem = Problem::new(field, leaf.span(), format!("`{name}` cannot name a job"));
            self.refuse(
                problem.help("begin with a letter or digit; then letters, digits, `-`, `_`, `.`; up to 64"),
            );
        }
        name.into()
    }

    fn command(
        &mut self,
        field: &str,
        command: &Spanned<Vec<Leaf<String>>>,
        around: &Surroundings<'_>,
    ) -> Vec<String> {
        let Some((program, arguments)) = command.value.split_first() else {
            let problem = Problem::new(field, span_at(&command.referenced), "the command is empty");
            self.refuse(problem.help("write the program, then its arguments: `[./cg, --class, A]`"));
            return Vec::new();
        };
        let found = (around.find)(program.text()).unwrap_or_else(|error| {
            let problem = Problem::new(format!("{field}[0]"), program.span(), error.to_string());
            self.refuse(problem.help(error.help()));
            PathBuf::new()
        });
        let arguments = arguments.iter().map(|argument| argument.text().to_owned());
        std::iter::once(found.to_string_lossy().into_owned()).chain(arguments).collect()
    }

    fn ranks(&mut self, field: &str, leaf: &Leaf<u32>) -> u32 {
        match self.read(field, leaf) {
            Some(0) => self.refuse(
                Problem::new(field, leaf.span(), "a job has at least 1 rank").help("write for example `2`"),
            ),
            Some(ranks) if ranks > RANKS_MAX => {
                self.refuse(Problem::new(field, leaf.span(), format!("a job has at most {RANKS_MAX} ranks")));
            }
            Some(ranks) => return ranks,
            None => {}
        }
        1
    }

    fn memory(&mut self, field: &str, leaf: &Leaf<Bytes>) -> Bytes {
        let memory = self.read(field, leaf);
        if memory == Some(Bytes(0)) {
            let problem = Problem::new(field, leaf.span(), "a rank without memory cannot run");
            self.refuse(problem.help("write what one rank needs, for example `300MiB`"));
        }
        memory.unwrap_or_default()
    }

    fn count(&mut self, path: &str, part: &JobPart) -> u32 {
        let field = format!("{path}.count");
        let Some(leaf) = &part.count else { return 1 };
        let count = self.read(&field, leaf);
        if count == Some(0) {
            let problem = Problem::new(field, leaf.span(), "0 jobs are none");
            self.refuse(problem.help("remove the job, or comment it out"));
        }
        count.unwrap_or(1)
    }

    fn env(&mut self, field: &str, part: &JobPart) -> BTreeMap<String, String> {
        const OURS: [&str; 4] = ["COSWITCH_", "PMI_", "FI_PROVIDER", "PMIX_"];
        let mut env = BTreeMap::new();
        for (name, value) in part.env.iter().flatten() {
            let problem = |message: String| Problem::new(format!("{field}.{name}"), value.span(), message);
            if OURS.iter().any(|prefix| name.starts_with(prefix)) {
                self.refuse(problem(format!("`{name}` is set by coswitch itself")).help("remove it"));
            } else if name.is_empty() || name.contains(['=', '\0']) || value.text().contains('\0') {
                self.refuse(problem(format!("`{name}` cannot be an environment variable")));
            }
            env.insert(name.clone(), value.text().to_owned());
        }
        env
    }

    fn cwd(&mut self, field: &str, part: &JobPart, base: &Path) -> PathBuf {
        let Some(leaf) = &part.cwd else { return base.into() };
        let path = base.join(leaf.text());
        if !path.is_dir() {
            let message = format!("there is no directory {}", path.display());
            self.refuse(
                Problem::new(field, leaf.span(), message).help("it counts from the run file's directory"),
            );
        }
        path
    }

    fn check_fits(&mut self, path: &str, part: &JobPart, job: &Job, cluster: &Cluster) {
        let ranks_here = job.ranks.div_ceil(cluster.nodes);
        let needs = Bytes(job.memory.0.saturating_mul(ranks_here.into()));
        if needs <= cluster.memory {
            return;
        }
        let message = format!(
            "the job is larger than a node: {ranks_here} rank(s) of {} on one node need {needs}, a node holds {}",
            job.memory, cluster.memory
        );
        let problem = Problem::new(format!("{path}.memory"), part.memory.span(), message);
        self.refuse(problem.help(format!("raise `cluster.memory` to at least {needs}, or use more nodes")));
    }
}

fn expanded(name: &str, count: u32) -> Vec<String> {
    if count == 1 { vec![name.into()] } else { (1..=count).map(|n| format!("{name}-{n}")).collect() }
}
