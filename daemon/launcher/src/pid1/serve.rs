//! The main loop of PID 1: serves PMI requests, relays fences and reaps ranks until none is left.

use std::{collections::BTreeMap, io, sync::Arc, time::Duration};

use coswitch_launcher::{
    LauncherSpec,
    pmi::{Effect, Server},
    protocol::{Assembler, ExitStatus, LauncherCommand, LauncherEvent, ProtocolError},
};
use coswitch_ring::{Corrupt, Segment};
use nix::unistd::Pid;
use thiserror::Error;

use super::{clients::Clients, ranks, uplink::Uplink, wake::Wake};

/// Time for which the last events wait for a daemon that does not receive.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);
/// How often the socket of a rank that has ended is read: enough for all that it can hold.
const LAST_ROUNDS: usize = 4096;

/// Reason why PID 1 cannot continue. All ranks end with it.
#[derive(Debug, Error)]
pub(super) enum ServeError {
    #[error("wait for events: {0}")]
    Wait(#[source] io::Error),
    #[error("read a message of the daemon: {0}")]
    Ring(#[from] Corrupt),
    #[error("decode a message of the daemon: {0}")]
    Protocol(#[from] ProtocolError),
}

struct Launcher {
    pmi: Server,
    clients: Clients,
    /// Ranks that have not been reaped.
    running: BTreeMap<Pid, u32>,
    uplink: Uplink,
    commands: Assembler<LauncherCommand>,
    /// All ranks are being ended: their requests are ignored.
    ending: bool,
}

/// Starts the ranks and serves them until all have ended.
pub(super) fn run(spec: LauncherSpec, segment: Arc<Segment>) -> Result<(), ServeError> {
    let wake = Wake::new().map_err(ServeError::Wait)?;
    let mut launcher = Launcher {
        pmi: Server::new(spec.key_space(), spec.world_size, spec.ranks.iter().map(|rank| rank.rank)),
        clients: Clients::default(),
        running: BTreeMap::new(),
        uplink: Uplink::new(Arc::clone(&segment)),
        commands: Assembler::default(),
        ending: false,
    };
    launcher.start(&spec);
    drop(spec);
    wake.listen(segment).map_err(ServeError::Wait)?;
    while !launcher.running.is_empty() {
        launcher.run_once(&wake)?;
    }
    launcher.uplink.push(&LauncherEvent::AllExited);
    launcher.uplink.finish(FLUSH_TIMEOUT);
    Ok(())
}

impl Launcher {
    fn start(&mut self, spec: &LauncherSpec) {
        for rank in &spec.ranks {
            let started = ranks::start(spec, rank).and_then(|(pid, stream)| {
                let added = self.clients.add(rank.rank, stream);
                added.map_err(|error| format!("serve its PMI socket: {error}"))?;
                self.running.insert(pid, rank.rank);
                Ok(())
            });
            if let Err(reason) = started {
                let status = ExitStatus::ExecFailed(reason);
                self.uplink.push(&LauncherEvent::RankExited { rank: rank.rank, status });
                return self.end();
            }
        }
        self.uplink.push(&LauncherEvent::Ready);
    }

    fn run_once(&mut self, wake: &Wake) -> Result<(), ServeError> {
        let waiting = self.clients.waiting();
        let woken = wake.wait(waiting, self.clients.interests()).map_err(ServeError::Wait)?;
        if woken.terminate {
            self.end();
        }
        for rank in woken.clients {
            self.serve_client(rank);
        }
        for (pid, status) in ranks::reap() {
            // A process that is no rank is an orphan of one.
            if let Some(rank) = self.running.remove(&pid) {
                self.on_exit(rank, status);
            }
        }
        self.handle_commands()?;
        self.uplink.flush();
        Ok(())
    }

    /// False where it has said nothing.
    fn serve_client(&mut self, rank: u32) -> bool {
        let lines = self.clients.exchange(rank);
        for line in &lines {
            let effects = self.pmi.on_line(rank, line);
            self.carry_out(effects);
        }
        !lines.is_empty()
    }

    fn on_exit(&mut self, rank: u32, status: ExitStatus) {
        // A rank does not wait for an answer to its abort: read it before handling the exit that it causes.
        // Children of it may still write.
        let _ = (0..LAST_ROUNDS).find(|_| !self.serve_client(rank));
        let others_may_wait = self.pmi.is_inside(rank);
        let succeeded = status == ExitStatus::Exited(0);
        self.uplink.push(&LauncherEvent::RankExited { rank, status });
        if succeeded && others_may_wait && !self.ending {
            self.abort(rank, 1, "ended without MPI_Finalize".into());
        } else if !succeeded {
            self.end();
        }
    }

    fn handle_commands(&mut self) -> Result<(), ServeError> {
        let mut message = Vec::new();
        while self.uplink.recv(&mut message)? {
            match self.commands.push(&message)? {
                Some(LauncherCommand::FenceDone { sequence, puts }) => {
                    let effects = self.pmi.on_fence_done(sequence, puts);
                    self.carry_out(effects);
                }
                Some(LauncherCommand::Kill) => self.end(),
                None => {}
            }
        }
        Ok(())
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                _ if self.ending => {}
                Effect::Send { rank, line } => self.clients.send(rank, &line),
                Effect::Fence { sequence, puts } => {
                    self.uplink.push(&LauncherEvent::Fence { sequence, puts })
                }
                Effect::Abort { rank, code, message } => self.abort(rank, code, message),
                Effect::Broke { rank, reason } => {
                    self.uplink.push(&LauncherEvent::Broke { rank, reason });
                    self.end();
                }
            }
        }
    }

    fn abort(&mut self, rank: u32, code: i32, message: String) {
        self.uplink.push(&LauncherEvent::Abort { rank, code, message });
        self.end();
    }

    fn end(&mut self) {
        self.ending = true;
        ranks::end_all();
    }
}
