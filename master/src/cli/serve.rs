//! `coswitch serve`: holds a cluster for jobs that users bring.

use std::{
    io::{self, IsTerminal},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use coswitch_policies::Bytes;
use coswitch_report::{
    journal::{FILE_NAME, RunEvent},
    words::plural,
};

use super::{
    Exit, Failure, Output,
    jobs::with_environment,
    runs::{self, Runs},
};
use crate::{
    api::Accepted,
    compaction::{Compaction, Sums},
    config::{self, JobSet, ParkMethod, Purpose},
    doctor, engine,
    engine::EventSink,
    journal::Journal,
    live::Live,
    past::{self, JobFile, Past},
    serve::{Bound, DEFAULT_HTTP, DEFAULT_SOCKET, HttpAddress, LivePage, Server},
    shutdown::Left,
    standing::{self, Standing},
};

/// The longest wait for the disk of the journal at the end.
const JOURNAL_LIMIT: Duration = Duration::from_secs(60);

/// Hold a cluster, and run the jobs that users bring (`coswitch submit`), until SIGTERM or Ctrl-C.
///
/// SIGTERM and Ctrl-C end the cluster, and the jobs that have not ended by then. Where this process dies
/// otherwise, the nodes and their jobs go on for `cluster.stop_after`: the same command takes them over.
#[derive(Debug, clap::Args)]
pub(crate) struct ServeCommand {
    /// The run file. Its jobs, if it has any, are the first.
    file: PathBuf,
    /// The directory of the cluster: journal, logs, outputs [default: that of the cluster that was served at
    /// this socket and was not ended, or coswitch-runs/RUN].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The socket on which the cluster is served.
    #[arg(long, value_name = "PATH", env = "COSWITCH_SOCKET", default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
    /// Show the cluster as a live page in a browser, also to monitoring at /metrics, for whoever holds the
    /// token that is told with its address. A port alone is of this machine; 0 takes any that is free. It is
    /// not encrypted: reach it from elsewhere through `ssh -L`.
    #[arg(long, value_name = "ADDR", num_args = 0..=1, default_missing_value = DEFAULT_HTTP)]
    http: Option<HttpAddress>,
    /// The journal is compacted when it is larger: what happened before is summed up, and goes to an archive,
    /// of which three are kept.
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    journal_max: Bytes,
    /// Show nothing.
    #[arg(short, long)]
    quiet: bool,
    /// Say what would be served, and start nothing.
    #[arg(long)]
    dry_run: bool,
}

/// Where the events of the cluster go.
struct Sink {
    journal: Journal,
    jobs: JobFile,
    live: Live,
    server: Server,
}

impl EventSink for Sink {
    fn keep(&mut self, jobs: &[&Accepted]) -> io::Result<()> {
        self.jobs.keep(jobs)
    }

    fn tell(&mut self, event: RunEvent) {
        self.live.on_event(&event);
        self.server.tell(&event);
        if !event.kind.is_live_only() {
            self.journal.tell(event);
        }
    }

    fn has_room(&self) -> bool {
        self.journal.has_room()
    }

    async fn room(&mut self) {
        self.journal.room().await;
    }
}

impl ServeCommand {
    pub(crate) fn carry_out(self, output: Output, umask: u32) -> Result<Exit, Failure> {
        let mut job_set = config::load_as(&self.file, Purpose::Serve)?;
        let pages_out = job_set.scheduler.park == ParkMethod::PageOut;
        let findings = doctor::examine(&job_set.jobs, pages_out, job_set.cluster.stores_here());
        if !findings.is_fit() {
            return Err(Failure::Lacking(findings));
        }
        let runs = Runs::new(self.quiet, None, umask)?;
        runs.prepare(&findings, &mut job_set.jobs);
        job_set.jobs.iter_mut().for_each(with_environment);
        let noted = self.out.is_none().then(|| standing::noted(&self.socket)).flatten();
        let out = noted.unwrap_or_else(|| runs::directory(self.out.as_deref(), &runs.name));
        let standing = Standing::read(&out)?;
        if let Some(standing) = &standing {
            job_set.cluster.remember_memory(&standing.cluster);
            check_same(standing, &job_set, &self.file, &out)?;
        }
        let config::ClusterConfig { nodes, memory, .. } = &job_set.cluster;
        let (socket, policy) = (self.socket.display(), job_set.scheduler.policy);
        let what = format!("{nodes} nodes of {memory} under {policy} at {socket}");
        // A port that is taken is found before anything is started.
        let bound = self.http.clone().map(Bound::bind).transpose().map_err(anyhow::Error::from)?;
        if self.dry_run {
            let verb = if standing.is_some() { "take over" } else { "serve" };
            let page = self.http.map_or_else(String::new, |at| format!("; live page at {at}"));
            eprintln!("would {verb} {what}; journal and outputs in {}{page}", out.display());
            return Ok(Exit::Done);
        }
        let (server, mut asks) = Server::start(self.socket.clone(), &out)?;
        let mut options = runs.options("", &out);
        let (journal, jobs, accounts, past, _lock) = match standing {
            None => {
                options.out = runs::new_directory(&out)?;
                let lock = standing::lock(&options.out)?;
                let jobs = open_jobs(&options.out)?;
                let path = options.out.join(FILE_NAME);
                let accounts = runs::accounts(&options.out)?;
                let compaction = self.compaction(&path, Sums::default(), &jobs).telling(accounts.told());
                let journal = Journal::create(&path, Some(compaction)).map_err(anyhow::Error::from)?;
                (journal, jobs, accounts, None, lock)
            }
            Some(standing) => {
                options.out = out.canonicalize().context("failed to find the directory of the cluster")?;
                options.run.clone_from(&standing.run);
                // Reading cuts a torn end off, which may be what a living master is writing.
                let lock = standing::lock(&options.out)?;
                let (sums, past) = read_past(&options.out)?;
                let jobs = open_jobs(&options.out)?;
                let path = options.out.join(FILE_NAME);
                let accounts = runs::accounts(&options.out)?;
                let compaction = self.compaction(&path, sums, &jobs).telling(accounts.told());
                let journal = Journal::append(&path, Some(compaction)).map_err(anyhow::Error::from)?;
                (journal, jobs, accounts, Some((standing, past)), lock)
            }
        };
        let out = options.out.clone();
        let live = Live::new(self.quiet, &out).context("failed to start the live view")?;
        if !self.quiet {
            match &past {
                None => eprintln!("serving {what}; journal and outputs in {}", out.display()),
                Some((standing, past)) => eprintln!(
                    "taking over {what} as its master {}: {} have not ended; journal and outputs in {}",
                    standing.generation + 1,
                    plural(past.living(), "job"),
                    out.display()
                ),
            }
        }
        let page = bound.map(|bound| server.show(bound, &out, &job_set)).transpose()?;
        page.iter().for_each(|page| tell_page(page, self.quiet));
        standing::note(&self.socket, &out).context("failed to note which cluster is served")?;
        let mut sink = Sink { journal, jobs, live, server };
        let outcome = engine::serve(job_set, options, past, &mut asks, &mut sink);
        let Sink { journal, live, server, .. } = sink;
        drop((page, live, server));
        let written = journal.finish(JOURNAL_LIMIT);
        accounts.finish(runs::ACCOUNTS_LIMIT);
        if let Err(error) = &outcome
            && error.is::<Left>()
        {
            tracing::warn!("{error}");
            return Ok(Exit::Done);
        }
        outcome?;
        standing::forget_note(&self.socket);
        written.map_err(anyhow::Error::from)?;
        let (sums, _) = Sums::read(&out.join(FILE_NAME)).map_err(anyhow::Error::from)?;
        output.print(&sums.report.finish()).context("failed to print the report")?;
        Ok(Exit::Done)
    }

    fn compaction(&self, path: &Path, sums: Sums, jobs: &JobFile) -> Compaction {
        Compaction::new(path, self.journal_max.0, sums, jobs.shortened())
    }
}

fn open_jobs(out: &Path) -> anyhow::Result<JobFile> {
    JobFile::open(out).with_context(|| format!("failed to open {}", past::JOBS))
}

/// Tells where the live page is. The token goes to a terminal, and to no log that others may read.
fn tell_page(page: &LivePage, quiet: bool) {
    if page.is_beyond_this_machine() {
        tracing::warn!("the live page can be reached from other machines, and is not encrypted");
    }
    let file = page.url_file().display();
    match (quiet, io::stderr().is_terminal()) {
        (true, _) => {}
        (false, true) => eprintln!("live page at {}", page.url()),
        (false, false) => {
            eprintln!("live page at {}; the address with its token is in {file}", page.bare_url())
        }
    }
}

/// What the masters before have written down.
fn read_past(out: &Path) -> anyhow::Result<(Sums, Past)> {
    let (sums, damaged_events) = Sums::take_up(&out.join(FILE_NAME))?;
    let (jobs, damaged_jobs) = past::read_jobs(out).context("failed to read the accepted jobs")?;
    for (name, damaged) in [(FILE_NAME, damaged_events), (past::JOBS, damaged_jobs)] {
        if damaged > 0 {
            tracing::warn!("{} of {name} cannot be read and are passed over", plural(damaged, "line"));
        }
    }
    let past = Past::of(jobs, sums.known.clone());
    Ok((sums, past))
}

/// A run file that describes another cluster than the one that stands.
fn check_same(standing: &Standing, job_set: &JobSet, file: &Path, out: &Path) -> Result<(), Failure> {
    if standing.cluster == job_set.cluster && standing.park == job_set.scheduler.park {
        return Ok(());
    }
    let (file, out, run) = (file.display(), out.display(), &standing.run);
    Err(Failure::Standing(anyhow::anyhow!(
        "{file} describes another cluster than the one that stands in {out}: its `cluster` and \
         `scheduler.park` have to be the same, or `coswitch clean --standing` has to end {run} first"
    )))
}
