//! The runs of one command, each in its own directory with its journal.

use std::{
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow};
use coswitch_ckpt::private;
use coswitch_daemon::processors;
use coswitch_policies::SimTime;
use coswitch_report::{
    JobReport, Known, fold,
    journal::{Event, FILE_NAME, JobOutcome, RunEvent, RunOutcome, salvage},
};

use crate::{
    accounts::Keeper,
    api::Accepted,
    compaction::{Compaction, Sums},
    config::{ClusterConfig, Job, JobSet},
    costs,
    doctor::Findings,
    engine::{self, EngineOptions, EventSink, Resumed},
    interrupt::Interrupt,
    journal::Journal,
    live::Live,
    parked::{self, Parked},
    past::Past,
    run_name::RunName,
};

/// The longest wait for the disk of the journal, after all jobs and daemons have ended.
const JOURNAL_LIMIT: Duration = Duration::from_secs(60);
/// The same for the database of accounts, which can be made of the journal at any time.
pub(super) const ACCOUNTS_LIMIT: Duration = Duration::from_secs(20);

pub(super) struct Runs {
    pub(super) name: RunName,
    pub(super) quiet: bool,
    pub(super) limit: Option<Duration>,
    /// The umask of the ranks.
    pub(super) umask: u32,
    pub(super) interrupt: Interrupt,
    /// When the nodes are taken away, since 1970.
    pub(super) ends: Option<Duration>,
}

/// How long the jobs ran alone is measured, or not because the user stopped it.
pub(super) enum Alone {
    Measured {
        /// How long nodes took to come and go, in the mean; `None` where no job had to run.
        setup: Option<Duration>,
    },
    Interrupted,
}

/// The record of a run: all its events, in the journal, in the live view and in memory.
struct Record {
    journal: Journal,
    accounts: Keeper,
    live: Live,
    events: Vec<RunEvent>,
}

impl EventSink for Record {
    fn tell(&mut self, event: RunEvent) {
        self.live.on_event(&event);
        if !event.kind.is_live_only() {
            self.journal.tell(event.clone());
            self.events.push(event);
        }
    }

    fn keep(&mut self, _: &[&Accepted]) -> io::Result<()> {
        // The run ends with this process.
        Ok(())
    }

    fn has_room(&self) -> bool {
        self.journal.has_room()
    }

    async fn room(&mut self) {
        self.journal.room().await;
    }
}

/// The cores of the node with the fewest; `None` where the kernel does not tell.
pub(super) fn cores_of_a_node(cluster: &ClusterConfig) -> Option<u32> {
    if let Some(allocation) = &cluster.allocation {
        return allocation.processors_of_a_node();
    }
    if !cluster.is_virtual() {
        return None;
    }
    let all = u32::try_from(processors::allowed().ok()?.len()).ok()?;
    Some((all / cluster.nodes.max(1)).max(1))
}

impl Runs {
    /// From now on Ctrl-C and SIGTERM end the run under way, or the next one as it begins.
    pub(super) fn new(quiet: bool, limit: Option<Duration>, umask: u32) -> anyhow::Result<Self> {
        let interrupt = Interrupt::watch()?;
        Ok(Self { name: RunName::of_this_process(), quiet, limit, umask, interrupt, ends: None })
    }

    /// Gives jobs coswitch's MPI library where their own cannot be used, and says so.
    pub(super) fn prepare(&self, findings: &Findings, jobs: &mut [Job]) {
        let told = findings.prepare(jobs);
        if !self.quiet {
            told.iter().for_each(|check| eprintln!("{check}"));
        }
    }

    pub(super) fn options(&self, suffix: &str, out: &Path) -> EngineOptions {
        EngineOptions {
            run: self.name.with_suffix(suffix),
            out: out.into(),
            limit: self.limit,
            umask: self.umask,
            interrupt: self.interrupt.clone(),
            ends: self.ends,
        }
    }

    /// Runs `job_set` and writes its journal to the directory `out`. `suffix` makes the run's name unique.
    pub(super) fn run(
        &self,
        job_set: JobSet,
        out: &Path,
        suffix: &str,
    ) -> anyhow::Result<(RunOutcome, Vec<RunEvent>)> {
        let out = new_directory(out)?;
        let (path, accounts) = (out.join(FILE_NAME), accounts(&out)?);
        let following = Compaction::never(&path, Sums::default()).telling(accounts.told());
        let journal = Journal::create(&path, Some(following))?;
        let record = Record { journal, accounts, live: Live::new(self.quiet, &out)?, events: Vec::new() };
        self.record(job_set, self.options(suffix, &out), None, record)
    }

    /// Goes on with the run that is parked in the directory `out`.
    pub(super) fn resume(&self, parked: Parked, out: &Path) -> anyhow::Result<(RunOutcome, Vec<RunEvent>)> {
        let path = out.join(FILE_NAME);
        let (events, _) = salvage(&path)?;
        let (sums, _) = Sums::take_up(&path)?;
        let accounts = accounts(out)?;
        let following = Compaction::never(&path, sums).telling(accounts.told());
        let journal = Journal::append(&path, Some(following))?;
        let mut record = Record { journal, accounts, live: Live::new(self.quiet, out)?, events };
        let at = record.events.last().map_or(SimTime(0), |event| event.at);
        // They were held because their nodes were taken away.
        for job in parked::held(&record.events) {
            record.tell(RunEvent { at, kind: Event::JobReleased { job } });
        }
        let accepted = parked.job_set.jobs.iter().map(Accepted::of_file).collect();
        let resumed = Resumed {
            sealing_key: parked.sealing_key,
            generation: parked.generation,
            age: parked.age,
            past: Past::of(accepted, Known::of(&record.events)),
            expected: parked::expected(&record.events),
        };
        let options = EngineOptions { run: parked.run, ..self.options("", out) };
        self.record(parked.job_set, options, Some(resumed), record)
    }

    fn record(
        &self,
        job_set: JobSet,
        options: EngineOptions,
        resumed: Option<Resumed>,
        mut record: Record,
    ) -> anyhow::Result<(RunOutcome, Vec<RunEvent>)> {
        let (cores, out) = (cores_of_a_node(&job_set.cluster), options.out.clone());
        let outcome = engine::run(job_set, options, resumed, &mut record);
        let Record { journal, accounts, live, events } = record;
        drop(live);
        // A full disk below the journal must not end the jobs; the run fails at its end instead.
        let written = journal.finish(JOURNAL_LIMIT);
        accounts.finish(ACCOUNTS_LIMIT);
        let outcome = outcome?;
        costs::store(&out, &events, cores)?;
        written?;
        Ok((outcome.run, events))
    }

    /// Runs one job of each kind alone, in directories below `out`, and sets how long it ran.
    pub(super) fn measure_alone(&self, job_set: &mut JobSet, out: &Path) -> anyhow::Result<Alone> {
        let (kinds, mut setups) = (kinds_to_measure(job_set), Vec::new());
        for (number, index) in (1..).zip(&kinds) {
            let job = job_set.jobs[*index].clone();
            if !self.quiet {
                eprintln!("alone {number} of {}: {}", kinds.len(), job.name);
            }
            let began = Instant::now();
            let Some(alone) = self.time_alone(&job, job_set, &out.join(&job.name))? else {
                return Ok(Alone::Interrupted);
            };
            setups.push(began.elapsed().saturating_sub(alone));
            for like in job_set.jobs.iter_mut().filter(|other| is_alike(&job, other)) {
                like.alone.get_or_insert(alone);
            }
        }
        let count = u32::try_from(setups.len()).unwrap_or(u32::MAX);
        Ok(Alone::Measured { setup: setups.iter().sum::<Duration>().checked_div(count) })
    }

    /// How long the job runs alone; `None` where the user stopped it.
    fn time_alone(&self, job: &Job, job_set: &JobSet, out: &Path) -> anyhow::Result<Option<Duration>> {
        let mut only = job_set.clone();
        only.jobs = vec![Job { arrival: Duration::ZERO.into(), after: Vec::new(), ..job.clone() }];
        let (outcome, events) = self
            .run(only, out, &format!("-a{}", job.id.0))
            .with_context(|| format!("failed to run {} alone", job.name))?;
        let report = fold(&events);
        let succeeded = |job: &&JobReport| job.outcome.as_ref().is_some_and(JobOutcome::is_success);
        let times = report.jobs.iter().find(succeeded).and_then(|job| job.times.as_ref());
        match (times, outcome) {
            (_, RunOutcome::Interrupted) => Ok(None),
            (Some(times), _) => Ok(Some(times.run)),
            (None, RunOutcome::TimedOut) => {
                Err(anyhow!("{} did not end within the limit when it ran alone", job.name))
            }
            (None, _) => Err(anyhow!("{} failed when it ran alone", job.name)),
        }
    }
}

/// The first job of each kind whose time alone is not known.
pub(super) fn kinds_to_measure(job_set: &JobSet) -> Vec<usize> {
    let mut kinds: Vec<usize> = Vec::new();
    for (index, job) in job_set.jobs.iter().enumerate() {
        if job.alone.is_none() && !kinds.iter().any(|kind| is_alike(&job_set.jobs[*kind], job)) {
            kinds.push(index);
        }
    }
    kinds
}

/// Keeps the accounts of the directory of a run, or of a cluster.
pub(super) fn accounts(out: &Path) -> anyhow::Result<Keeper> {
    Keeper::start(out).context("failed to start a thread")
}

/// The directory of a run, by default `coswitch-runs/RUN`.
pub(super) fn directory(out: Option<&Path>, name: &RunName) -> PathBuf {
    out.map_or_else(|| Path::new("coswitch-runs").join(name.to_string()), Path::to_path_buf)
}

/// Whether two jobs do the same work.
fn is_alike(a: &Job, b: &Job) -> bool {
    (&a.program, a.delivery, &a.arguments, a.ranks, &a.env, &a.cwd, a.wait)
        == (&b.program, b.delivery, &b.arguments, b.ranks, &b.env, &b.cwd, b.wait)
}

/// Makes the directory of a run. A directory with a journal belongs to another run.
pub(super) fn new_directory(path: &Path) -> anyhow::Result<PathBuf> {
    private::create_dir_all(path).with_context(|| format!("failed to make {}", path.display()))?;
    let path = path.canonicalize().with_context(|| format!("failed to find {}", path.display()))?;
    if path.join(FILE_NAME).symlink_metadata().is_ok() {
        return Err(anyhow!("{} holds another run; name a new directory", path.display()));
    }
    Ok(path)
}
