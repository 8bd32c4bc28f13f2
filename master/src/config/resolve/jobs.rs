//! Resolves the jobs of a run file: checks each job alone, then its name against the others and its size
//! against a node.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use coswitch_policies::{Bytes, Capacity, JobId, Policy, spaceshare::sharing::SpaceSharing};
use serde_yaml::Spanned;

use super::{Context, Purpose, Reader};
use crate::config::{
    file::JobPart,
    job_set::{ClusterConfig, JOBS_MAX, Job, NAME_HELP, RANKS_MAX, Settings, TimeLimits, is_job_name},
    leaf::{Leaf, Priority},
    owner::Owner,
    problem::{Problem, nearest},
    tree::span_at,
};

impl Reader {
    pub(super) fn jobs(
        &mut self,
        parts: &Spanned<Vec<JobPart>>,
        cluster: &ClusterConfig,
        settings: &Settings,
        context: &Context<'_>,
    ) -> Vec<Job> {
        if parts.value.is_empty() && !matches!(context.purpose, Purpose::Serve) {
            let problem = Problem::new("jobs", span_at(&parts.referenced), "there is no job to run");
            self.refuse(problem.help("list at least one, with `name`, `command`, `ranks` and `memory`"));
        }
        let mut jobs = Vec::new();
        let mut names = BTreeMap::new();
        let mut numbers: BTreeMap<&str, Vec<JobId>> = BTreeMap::new();
        for (index, part) in parts.value.iter().enumerate() {
            let path = format!("jobs[{index}]");
            let after = self.after(&path, part, &numbers);
            let mut job = Job { after, ..self.job(&path, part, context) };
            self.check_fits(&path, part, &job, cluster, settings.policy);
            // What is submitted is checked by the cluster, which knows its queues.
            if !matches!(context.purpose, Purpose::Submit(..)) {
                // Under another policy than that of the file queues and groups say nothing.
                let divided = SpaceSharing { sets: settings.sets.clone(), ..settings.undivided() };
                self.check_home(&path, part, &mut job, &divided);
                self.check_longest(&path, part, &mut job, settings.time_limits);
                if let Some(space) = settings.space() {
                    self.check_queues(&path, part, &job, cluster, &space);
                }
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
                numbers.entry(part.name.text()).or_default().push(id);
                jobs.push(Job { id, name, ..job.clone() });
            }
        }
        jobs
    }

    fn job(&mut self, path: &str, part: &JobPart, context: &Context<'_>) -> Job {
        let field = |name: &str| format!("{path}.{name}");
        let mut command = self.command(&field("command"), &part.command, context);
        let arguments = command.split_off(1.min(command.len()));
        Job {
            id: JobId(0),
            name: self.name(&field("name"), &part.name),
            program: command.pop().unwrap_or_default().into(),
            delivery: self.optional(&field("program"), part.program.as_ref()).unwrap_or_default(),
            arguments,
            ranks: self.ranks(&field("ranks"), &part.ranks),
            memory: self.memory(&field("memory"), &part.memory),
            after: Vec::new(),
            arrival: self.optional(&field("arrival"), part.arrival.as_ref()).unwrap_or_default().into(),
            env: self.env(&field("env"), part),
            cwd: self.cwd(&field("cwd"), part, context.base),
            alone: self.optional(&field("alone"), part.alone.as_ref()),
            time_limit: self.limit(&field("time_limit"), part.time_limit.as_ref()),
            owner: self.owner(&field("user"), part.user.as_ref()),
            wait: self.optional(&field("wait"), part.wait.as_ref()),
            priority: self
                .optional(&field("priority"), part.priority.as_ref())
                .map_or(0, |Priority(priority)| priority),
            group: part.group.as_ref().map(|leaf| leaf.text().to_owned()),
            // A partition is a queue of its name, and a group.
            queue: part.queue.as_ref().or(part.partition.as_ref()).map(|leaf| leaf.text().to_owned()),
        }
    }

    fn owner(&mut self, field: &str, leaf: Option<&Leaf<String>>) -> Option<Owner> {
        let leaf = leaf?;
        Owner::named(leaf.text().trim()).unwrap_or_else(|why| {
            let problem = Problem::new(field, leaf.span(), why);
            self.refuse(problem.help("name a user as `getent passwd` lists them, or by number"));
            None
        })
    }

    /// The jobs that `part` follows; `numbers` are those above it.
    fn after(&mut self, path: &str, part: &JobPart, numbers: &BTreeMap<&str, Vec<JobId>>) -> Vec<JobId> {
        let mut after = Vec::new();
        for (index, leaf) in part.after.iter().flatten().enumerate() {
            match numbers.get(leaf.text()) {
                Some(jobs) => after.extend(jobs),
                None => {
                    let message = format!("there is no job `{}` above this one", leaf.text());
                    let problem = Problem::new(format!("{path}.after[{index}]"), leaf.span(), message);
                    self.refuse(match nearest(leaf.text(), numbers.keys().copied()) {
                        Some(name) => problem.help(format!("did you mean `{name}`?")),
                        None => problem.help("name jobs that the file lists before this one"),
                    });
                }
            }
        }
        after
    }

    fn name(&mut self, field: &str, leaf: &Leaf<String>) -> String {
        let name = leaf.text();
        if !is_job_name(name) {
            let problem = Problem::new(field, leaf.span(), format!("`{name}` cannot name a job"));
            self.refuse(problem.help(NAME_HELP));
        }
        name.into()
    }

    fn command(
        &mut self,
        field: &str,
        command: &Spanned<Vec<Leaf<String>>>,
        context: &Context<'_>,
    ) -> Vec<String> {
        let Some((program, arguments)) = command.value.split_first() else {
            let problem = Problem::new(field, span_at(&command.referenced), "the command is empty");
            self.refuse(problem.help("write the program, then its arguments: `[./cg, --class, A]`"));
            return Vec::new();
        };
        let found = (context.find)(program.text()).unwrap_or_else(|error| {
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
        const RESERVED: [&str; 4] = ["COSWITCH_", "PMI_", "FI_PROVIDER", "PMIX_"];
        let mut env = BTreeMap::new();
        for (name, value) in part.env.iter().flatten() {
            let problem = |message: String| Problem::new(format!("{field}.{name}"), value.span(), message);
            if RESERVED.iter().any(|prefix| name.starts_with(prefix)) {
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
        if self.is_run_here && !path.is_dir() {
            let message = format!("there is no directory {}", path.display());
            self.refuse(
                Problem::new(field, leaf.span(), message).help("it counts from the run file's directory"),
            );
        }
        path
    }

    /// A time limit, of a job or of a partition.
    pub(super) fn limit(&mut self, field: &str, leaf: Option<&Leaf<Duration>>) -> Option<Duration> {
        let leaf = leaf?;
        let limit = self.read(field, leaf)?;
        if limit.is_zero() {
            let problem = Problem::new(field, leaf.span(), "a job that may run for no time does nothing");
            self.refuse(problem.help("write how long it may run, for example `10min`"));
        }
        Some(limit)
    }

    /// Gives a job the time limit of all jobs, where it has no other one.
    fn check_longest(&mut self, path: &str, part: &JobPart, job: &mut Job, limits: TimeLimits) {
        let Some(leaf) = &part.time_limit else {
            job.time_limit = limits.of(None, job.time_limit);
            return;
        };
        if let Err(why) = limits.check(job.time_limit) {
            let problem = Problem::new(format!("{path}.time_limit"), leaf.span(), why);
            self.refuse(problem.help("write a shorter time, or leave it out"));
        }
    }

    fn check_queues(
        &mut self,
        path: &str,
        part: &JobPart,
        job: &Job,
        cluster: &ClusterConfig,
        space: &SpaceSharing,
    ) {
        if space.queue.relies_on_limits() && job.runs_at_most().is_none() {
            let queue = space.queue;
            let message = format!("the queue `{queue}` has to know for how long each job runs at most");
            let problem = Problem::new(format!("{path}.time_limit"), part.name.span(), message);
            self.refuse(problem.help("give the job a `time_limit`, for example `10min`; or an `alone`"));
        }
        if cluster.too_small_for(job, Policy::Batch).is_some() {
            return;
        }
        if let Some(message) = cluster.too_wide_for(job, space) {
            let problem = Problem::new(format!("{path}.ranks"), part.ranks.span(), message);
            self.refuse(problem.help(match space.sets {
                Some(_) => "use fewer ranks, or a group with more nodes",
                None => "`first-fit` and `m2db` give a job any number of nodes",
            }));
        }
    }

    fn check_fits(&mut self, path: &str, part: &JobPart, job: &Job, cluster: &ClusterConfig, policy: Policy) {
        let Some(message) = cluster.too_small_for(job, policy) else { return };
        let problem = Problem::new(format!("{path}.memory"), part.memory.span(), message);
        let ranks_here = job.ranks.div_ceil(cluster.nodes);
        let needed = Bytes(job.memory.0.saturating_mul(ranks_here.into()));
        self.refuse(problem.help(match cluster.memory {
            Capacity::OfAll(_) => format!("raise `cluster.memory` to at least {needed}, or use more nodes"),
            Capacity::OfEach(_) => "use fewer ranks, or more hosts".into(),
        }));
    }
}

fn expanded(name: &str, count: u32) -> Vec<String> {
    if count == 1 { vec![name.into()] } else { (1..=count).map(|n| format!("{name}-{n}")).collect() }
}
