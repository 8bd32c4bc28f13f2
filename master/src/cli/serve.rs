//! `coswitch serve`: holds a cluster for jobs that users bring.

use std::{path::PathBuf, time::Duration};

use anyhow::Context;
use coswitch_report::{
    fold,
    journal::{FILE_NAME, RunEvent, read},
};

use super::{
    Exit, Failure, Output,
    jobs::with_environment,
    runs::{self, Runs},
};
use crate::{
    config::{self, ParkMethod, Purpose},
    doctor, engine,
    engine::EventSink,
    journal::Journal,
    live::Live,
    serve::{DEFAULT_SOCKET, Server},
};

/// The longest wait for the disk of the journal at the end.
const JOURNAL_LIMIT: Duration = Duration::from_secs(60);

/// Hold a cluster, and run the jobs that users bring (`coswitch submit`), until SIGTERM or Ctrl-C.
///
/// The end of the command is the end of the cluster: jobs that have not ended by then are ended.
#[derive(Debug, clap::Args)]
pub(crate) struct ServeCommand {
    /// The run file. Its jobs, if it has any, are the first.
    file: PathBuf,
    /// The directory for journal, logs and outputs [default: coswitch-runs/RUN].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The socket on which the cluster is served.
    #[arg(long, value_name = "PATH", env = "COSWITCH_SOCKET", default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
    /// Show nothing.
    #[arg(short, long)]
    quiet: bool,
    /// Say what would be served, and start nothing.
    #[arg(long)]
    dry_run: bool,
}

/// Where the events of the cluster go.
struct Standing {
    journal: Journal,
    live: Live,
    server: Server,
}

impl EventSink for Standing {
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
        let findings = doctor::examine(&job_set.jobs, pages_out, &job_set.cluster.store);
        if !findings.is_fit() {
            return Err(Failure::Lacking(findings));
        }
        let runs = Runs::new(self.quiet, None, umask)?;
        runs.prepare(&findings, &mut job_set.jobs);
        job_set.jobs.iter_mut().for_each(with_environment);
        let out = runs::directory(self.out.as_deref(), &runs.name);
        let config::ClusterConfig { nodes, memory, .. } = job_set.cluster;
        let (socket, policy) = (self.socket.display(), job_set.scheduler.policy);
        let what = format!("{nodes} nodes of {memory} under {policy} at {socket}");
        if self.dry_run {
            eprintln!("would serve {what}; journal and outputs in {}", out.display());
            return Ok(Exit::Done);
        }
        let (server, mut asks) = Server::start(self.socket.clone())?;
        let out = runs::new_directory(&out)?;
        let journal = Journal::create(&out.join(FILE_NAME)).map_err(anyhow::Error::from)?;
        let live = Live::new(self.quiet, &out).context("failed to start the live view")?;
        if !self.quiet {
            eprintln!("serving {what}; journal and outputs in {}", out.display());
        }
        let mut standing = Standing { journal, live, server };
        let options = runs.options("", &out);
        let outcome = engine::serve(job_set, options, &mut asks, &mut standing);
        let Standing { journal, live, server } = standing;
        drop((live, server));
        let written = journal.finish(JOURNAL_LIMIT);
        outcome?;
        written.map_err(anyhow::Error::from)?;
        let events = read(&out.join(FILE_NAME)).map_err(anyhow::Error::from)?;
        output.print(&fold(&events)).context("failed to print the report")?;
        Ok(Exit::Done)
    }
}
