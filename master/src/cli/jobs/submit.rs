//! `coswitch submit`: brings jobs to a cluster, from a run file or as a command.

use std::{io, num::NonZeroU32, path::PathBuf, time::Duration};

use anyhow::Context;
use clap::ArgGroup;
use coswitch_dispatcher::protocol::Delivery;
use coswitch_policies::{Bytes, JobId, SimTime, parse_duration};
use serde::Serialize;

use super::{Cluster, find_with_arrays, wait::wait_for, with_environment};
use crate::{
    api::{Refusal, Submission, Submitted},
    cli::{Answer, Exit, Failure, Output},
    config::{self, ClusterConfig, Job, Purpose, program},
    doctor,
};

const EXAMPLES: &str = "\
Examples:
  coswitch submit jobs.yaml
  coswitch submit --ranks 4 --memory 2GiB -- ./solver --steps 500";

/// Bring jobs to a cluster that `coswitch serve` holds: those of a run file, or a command.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, group(ArgGroup::new("what").required(true).args(["file", "command"])))]
pub(crate) struct SubmitCommand {
    /// A run file: its jobs are submitted. What it says of cluster and scheduler is not used.
    file: Option<PathBuf>,
    /// The program and its arguments.
    #[arg(last = true, requires = "ranks", requires = "memory")]
    command: Vec<String>,
    /// The number of MPI ranks.
    #[arg(short = 'n', long, value_name = "N")]
    ranks: Option<NonZeroU32>,
    /// The working set of one rank.
    #[arg(short, long, value_name = "SIZE")]
    memory: Option<Bytes>,
    /// The name of the job [default: that of the program].
    #[arg(long, requires = "command")]
    name: Option<String>,
    /// Submit one job for each number from FIRST to LAST; the job finds its number in COSWITCH_ARRAY_TASK.
    #[arg(long, value_name = "FIRST-LAST", requires = "command", value_parser = array)]
    array: Option<Array>,
    /// How long the job takes alone, where known: the forecast says then when it will be done.
    #[arg(long, value_name = "TIME", requires = "command", value_parser = parse_duration)]
    alone: Option<Duration>,
    /// Begin when this job, or every job of the array of this name, has succeeded; may be repeated.
    #[arg(long, value_name = "JOB")]
    after: Vec<String>,
    /// End each job when it has run for so long. The time in which it is parked does not count.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    time_limit: Option<Duration>,
    /// The priority of the jobs, -1000 to 1000 [default: as the run file says, or 0]. Jobs of the highest
    /// priority take turns; the others run beside them where they fit, and else wait. Nothing is lost.
    #[arg(long, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(i32).range(-1000..=1000))]
    priority: Option<i32>,
    /// Send the programs of the jobs to their nodes, which need not see them.
    #[arg(long)]
    send: bool,
    /// The node group whose nodes the jobs get, where the cluster has some [default: as the run file says, or
    /// that of the first queue].
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// The queue in which the jobs wait, where the cluster has several [default: as the run file says, or the
    /// first of the group].
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,
    /// The partition in which the jobs run, where the cluster has some [default: as the run file says, or the
    /// first].
    #[arg(long, value_name = "NAME", conflicts_with_all = ["group", "queue"])]
    partition: Option<String>,
    /// Wait until the jobs have ended; exits with 1 where one failed.
    #[arg(long)]
    wait: bool,
    /// Say what would be submitted, and submit nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    cluster: Cluster,
}

/// The first and the last number of an array.
#[derive(Clone, Copy, Debug)]
struct Array(u32, u32);

fn array(text: &str) -> Result<Array, String> {
    let bounds =
        text.split_once('-').and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
    match bounds {
        Some((first, last)) if first <= last => Ok(Array(first, last)),
        _ => Err("write the first and the last number, for example `1-8`".into()),
    }
}

/// The jobs that were submitted, or would be.
#[derive(Debug, Serialize)]
struct Accepted {
    jobs: Vec<Submitted>,
    dry_run: bool,
}

impl SubmitCommand {
    pub(crate) fn carry_out(self, output: Output) -> Result<Exit, Failure> {
        let client = self.cluster.client()?;
        let status = client.cluster()?;
        let mut jobs = match &self.file {
            Some(file) => config::load_as(file, Purpose::Submit(&status.cluster, status.policy))?.jobs,
            None => self.jobs_of_command(&status.cluster)?,
        };
        let findings = doctor::examine_programs(&jobs);
        if !findings.is_fit() {
            return Err(Failure::Lacking(findings));
        }
        findings.prepare(&mut jobs).iter().for_each(|check| eprintln!("{check}"));
        jobs.iter_mut().for_each(with_environment);
        jobs.iter_mut().for_each(|job| job.priority = self.priority.unwrap_or(job.priority));
        if self.send {
            jobs.iter_mut().for_each(|job| job.delivery = Delivery::Sent);
        }
        // A partition is a queue of its name.
        let queue = self.queue.as_ref().or(self.partition.as_ref());
        if self.group.is_some() || queue.is_some() {
            for job in &mut jobs {
                (job.group, job.queue) = (self.group.clone(), queue.cloned());
            }
        }
        let after: Vec<JobId> = match &self.after[..] {
            [] => Vec::new(),
            words => find_with_arrays(&client.jobs(true)?, words)?,
        };
        let terms = |job| Submission { job, after: after.clone(), time_limit: self.time_limit };
        let jobs: Vec<Submission> = jobs.into_iter().map(terms).collect();
        let accepted = if self.dry_run {
            let named = |one: &Submission| Submitted { job: one.job.id, name: one.job.name.clone() };
            Accepted { jobs: jobs.iter().map(named).collect(), dry_run: true }
        } else {
            Accepted { jobs: client.submit(&jobs)?, dry_run: false }
        };
        if !self.wait || self.dry_run {
            output.print(&accepted).context("failed to print")?;
            return Ok(Exit::Done);
        }
        if output == Output::Human {
            accepted.tell(&mut io::stderr()).context("failed to print")?;
        }
        wait_for(&client, &accepted.jobs.iter().map(|job| job.job).collect::<Vec<_>>(), output)
    }

    fn jobs_of_command(&self, cluster: &ClusterConfig) -> Result<Vec<Job>, Failure> {
        let bad = |why: String| Failure::Refused(Refusal::BadRequest { why });
        let cwd = std::env::current_dir().context("failed to find the present directory")?;
        let search = std::env::var_os("PATH");
        let (program, arguments) = self.command.split_first().expect("clap asks for one of file and command");
        let program = program::find(program, &cwd, search.as_deref())
            .map_err(|error| bad(format!("{error}: {}", error.help())))?;
        let own_name = || program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let job = Job {
            id: JobId(0),
            name: self.name.clone().unwrap_or_else(own_name),
            program: program.clone(),
            delivery: Delivery::default(),
            arguments: arguments.to_vec(),
            ranks: self.ranks.map_or(1, NonZeroU32::get),
            memory: self.memory.unwrap_or(cluster.memory.largest()),
            arrival: SimTime(0),
            after: Vec::new(),
            env: std::collections::BTreeMap::new(),
            cwd,
            alone: self.alone,
            time_limit: None,
            owner: None,
            wait: None,
            priority: 0,
            group: None,
            queue: None,
        };
        let Some(Array(first, last)) = self.array else { return Ok(vec![job]) };
        let most = config::job_set::JOBS_MAX;
        if last - first >= most {
            return Err(bad(format!("an array has at most {most} jobs")));
        }
        let task = |number: u32| {
            let (mut job, number) = (job.clone(), number.to_string());
            job.name = format!("{}-{number}", job.name);
            job.env.insert("COSWITCH_ARRAY_TASK".into(), number);
            job
        };
        Ok((first..=last).map(task).collect())
    }
}

impl Answer for Accepted {
    fn tell(&self, out: &mut dyn io::Write) -> io::Result<()> {
        for Submitted { job, name } in &self.jobs {
            match self.dry_run {
                true => writeln!(out, "would submit {name}")?,
                false => writeln!(out, "{job} {name}")?,
            }
        }
        Ok(())
    }
}
