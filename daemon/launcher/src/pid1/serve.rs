//! The life of PID 1 once the ranks may run: one loop that serves, relays and reaps until no rank is left.

use std::{collections::BTreeMap, io, sync::Arc, time::Duration};

use coswitch_launcher::{
    LaunchSpec,
    pmi::{Effect, Server},
    protocol::{Assembler, ExitStatus, LauncherCommand, LauncherEvent, ProtocolError},
};
use coswitch_ring::{Corrupt, Segment};
use nix::unistd::Pid;
use thiserror::Error;

use super::{clients::Clients, outbox::Outbox, ranks, wake::Wake};

/// How long the last events wait for a daemon that takes none.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Why PID 1 cannot go on; all ranks end with it.
#[derive(Debug, Error)]
pub(super) enum ServeError {
    #[error("wait for news: {0}")]
    Wait(#[source] io::Error),
    #[error("read what the daemon says: {0}")]
    Ring(#[from] Corrupt),
    #[error("understand what the daemon says: {0}")]
    Protocol(#[from] ProtocolError),
}

struct Launcher {
    pmi: Server,
    clients: Clients,
    /// Ranks that have not been reaped.
    running: BTreeMap<Pid, u32>,
    outbox: Outbox,
    commands: Assembler<LauncherCommand>,
    /// Everything has been told to end: what ranks say any more means nothing.
    ending: bool,
}

/// Starts the ranks and stays until all have ended.
pub(super) fn run(spec: LaunchSpec, segment: Arc<Segment>) -> Result<(), ServeError> {
    let wake = Wake::new().map_err(ServeError::Wait)?;
    let mut launcher = Launcher {
        pmi: Server::new(spec.key_space(), spec.world_size, spec.ranks.iter().map(|rank| rank.rank)),
        clients: Clients::default(),
        running: BTreeMap::new(),
        outbox: Outbox::new(Arc::clone(&segment)),
        commands: Assembler::default(),
        ending: false,
    };
    launcher.start(&spec);
    drop(spec);
    wake.listen(segment).map_err(ServeError::Wait)?;
    while !launcher.running.is_empty() {
        launcher.turn(&wake)?;
    }
    launcher.outbox.push(&LauncherEvent::AllExited);
    launcher.outbox.finish(LAST_WORDS);
    Ok(())
}

impl Launcher {
    fn start(&mut self, spec: &LaunchSpec) {
        for rank in &spec.ranks {
            let started = ranks::start(spec, rank).and_then(|(pid, stream)| {
                self.running.insert(pid, rank.rank);
                self.clients.add(rank.rank, stream).map_err(|error| format!("serve its PMI socket: {error}"))
            });
            if let Err(reason) = started {
                let status = ExitStatus::ExecFailed(reason);
                self.outbox.push(&LauncherEvent::RankExited { rank: rank.rank, status });
                return self.end();
            }
        }
        self.outbox.push(&LauncherEvent::Ready);
    }

    fn turn(&mut self, wake: &Wake) -> Result<(), ServeError> {
        let news = wake.wait(self.clients.interests()).map_err(ServeError::Wait)?;
        if news.terminate {
            self.end();
        }
        for rank in news.clients {
            self.listen(rank);
        }
        for (pid, status) in ranks::reap() {
            // Whoever is no rank is an orphan of one.
            if let Some(rank) = self.running.remove(&pid) {
                self.on_exit(rank, status);
            }
        }
        self.obey()?;
        self.outbox.flush();
        Ok(())
    }

    fn listen(&mut self, rank: u32) {
        for line in self.clients.exchange(rank) {
            let effects = self.pmi.on_line(rank, &line);
            self.carry_out(effects);
        }
    }

    fn on_exit(&mut self, rank: u32, status: ExitStatus) {
        // An abort is said and not waited for: hear it before its consequence.
        self.listen(rank);
        let left_others_waiting = self.pmi.is_inside(rank);
        let well = status == ExitStatus::Exited(0);
        self.outbox.push(&LauncherEvent::RankExited { rank, status });
        if well && left_others_waiting && !self.ending {
            self.abort(rank, 1, "ended without MPI_Finalize".into());
        } else if !well {
            self.end();
        }
    }

    fn obey(&mut self) -> Result<(), ServeError> {
        let mut message = Vec::new();
        while self.outbox.recv(&mut message)? {
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
                Effect::Reply { rank, line } => self.clients.say(rank, &line),
                Effect::Fence { sequence, puts } => {
                    self.outbox.push(&LauncherEvent::Fence { sequence, puts })
                }
                Effect::Abort { rank, code, message } => self.abort(rank, code, message),
            }
        }
    }

    fn abort(&mut self, rank: u32, code: i32, message: String) {
        self.outbox.push(&LauncherEvent::Abort { rank, code, message });
        self.end();
    }

    fn end(&mut self) {
        self.ending = true;
        ranks::end_all();
    }
}
