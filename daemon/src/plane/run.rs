//! The loop of the data plane's thread.
//!
//! It looks at commands, rings and links in turn. When nothing moved it goes on looking for about as long as a sleep and
//! a wake-up would cost, giving the core away in between, and then sleeps until a rank, a peer or the control side
//! rings. A sleep is bounded, so that nothing depends on a single wake-up.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc,
        mpsc::{Receiver, TryRecvError},
    },
    time::{Duration, Instant},
};

use coswitch_policies::NodeId;
use coswitch_ring::{Bell, wait_any};
use tokio::sync::mpsc::UnboundedSender;

use super::{Command, PlaneEvent, apps::Apps, link::Link, moved::Moved, watch::Watch};
use crate::{
    cut::Input,
    processors::{Turns, ask_for},
};

/// Competitive: about what going to sleep and being woken costs.
const LOOK_ON: Duration = Duration::from_micros(200);
/// A yield that takes longer has met somebody who computes, and the next ones would: chunks then move without yields for
/// a while.
const BUSY: Duration = Duration::from_micros(100);
const BUSY_FOR: Duration = Duration::from_millis(10);
const SLEEP_MAX: Duration = Duration::from_millis(250);

pub(crate) struct Loop {
    commands: Receiver<Command>,
    bell: Arc<Bell>,
    watch: Watch,
    links: BTreeMap<NodeId, Link>,
    apps: Apps,
    events: UnboundedSender<PlaneEvent>,
    /// Until when somebody computes on this core, as far as is known.
    busy_until: Instant,
    /// Short ones while it sleeps, the usual ones from its first yield on: yields would be in vain.
    turns: Turns,
}

impl Loop {
    pub(crate) fn new(
        own: NodeId,
        commands: Receiver<Command>,
        bell: Arc<Bell>,
        events: UnboundedSender<PlaneEvent>,
    ) -> io::Result<Self> {
        let watch = Watch::start(Arc::clone(&bell))?;
        let apps = Apps::new(own, events.clone());
        let (links, busy_until, turns) = (BTreeMap::new(), Instant::now(), Turns::Usual);
        Ok(Self { commands, bell, watch, links, apps, events, busy_until, turns })
    }

    pub(crate) fn run(mut self) {
        let mut last_moved = Instant::now();
        while let Some(moved) = self.turn() {
            match moved {
                Moved::Nothing if last_moved.elapsed() < LOOK_ON => self.yield_core(),
                Moved::Nothing => {
                    if self.sleep().is_none() {
                        return;
                    }
                    last_moved = Instant::now();
                }
                Moved::Something => last_moved = Instant::now(),
                Moved::Chunk => {
                    last_moved = Instant::now();
                    self.share_core(last_moved);
                }
            }
        }
    }

    /// Lets a rank on this core have its turn.
    fn yield_core(&mut self) {
        self.take_turns(Turns::Usual);
        std::thread::yield_now();
    }

    fn take_turns(&mut self, turns: Turns) {
        if std::mem::replace(&mut self.turns, turns) != turns {
            ask_for(turns);
        }
    }

    /// Lets a rank on this core fill or empty the next chunk while the peer works on the last one.
    fn share_core(&mut self, now: Instant) {
        if now < self.busy_until {
            return;
        }
        self.yield_core();
        if now.elapsed() > BUSY {
            self.busy_until = now + BUSY_FOR;
        }
    }

    /// Looks at everything once; `None` once told to stop.
    fn turn(&mut self) -> Option<Moved> {
        let mut moved = Moved::Nothing;
        loop {
            match self.commands.try_recv() {
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return None,
                Ok(command) => self.on_command(command),
                Err(TryRecvError::Empty) => break,
            }
            moved = Moved::Something;
        }
        moved.note(self.links_turn());
        // Only writing to a link fails in here; the next turn's look at the links finds out which.
        moved.note(self.apps.pump(&mut self.links).unwrap_or(Moved::Something));
        self.post();
        Some(moved)
    }

    fn links_turn(&mut self) -> Moved {
        let mut moved = Moved::Nothing;
        let mut lost = Vec::new();
        for (peer, link) in &mut self.links {
            match link.flush().and_then(|out| Ok(Moved::some_if(out).max(link.receive(&mut self.apps)?))) {
                Ok(some) => moved.note(some),
                Err(error) => lost.push((*peer, error.to_string())),
            }
        }
        for (peer, reason) in lost {
            self.links.remove(&peer);
            self.apps.on_link_lost(peer);
            let _ = self.events.send(PlaneEvent::LinkLost { peer, reason });
        }
        moved
    }

    /// Sends the markers and credits that the turn has called for.
    fn post(&mut self) {
        for (to, job, frame) in self.apps.outbox.drain(..) {
            if let Some(link) = self.links.get_mut(&to) {
                // As above: a broken link is found, and reported, by the next look at it.
                let _ = link.send_control(job, frame);
            }
        }
    }

    /// Draws a ticket of every bell, looks once more, and only then sleeps. `None` once told to stop.
    fn sleep(&mut self) -> Option<()> {
        let bell = Arc::clone(&self.bell);
        let segments: Vec<_> = self.apps.segments().cloned().collect();
        let bells = std::iter::once(&*bell).chain(segments.iter().map(|segment| segment.daemon_bell()));
        let tickets: Vec<_> = bells.map(|bell| (bell, bell.ticket())).collect();
        for link in self.links.values() {
            // A socket that cannot be armed only costs up to one bounded sleep.
            let _ = self.watch.arm(link.fd(), !link.has_room());
        }
        if self.turn()? == Moved::Nothing {
            // Whoever computes meanwhile makes way at once.
            self.take_turns(Turns::Short);
            wait_any(&tickets, SLEEP_MAX);
        }
        Some(())
    }

    fn on_command(&mut self, command: Command) {
        match command {
            Command::AddLink(peer, stream) => {
                let link = Link::new(peer, stream);
                match self.watch.add(link.fd()) {
                    Ok(()) => drop(self.links.insert(peer, link)),
                    Err(error) => {
                        let _ = self.events.send(PlaneEvent::LinkLost { peer, reason: error.to_string() });
                    }
                }
            }
            Command::AddApp(job, segment, placement) => self.apps.add(job, segment, placement),
            Command::RemoveApp(job, done) => {
                self.apps.remove(job);
                let _ = done.send(());
            }
            Command::BeginCut(job, epoch) => self.apps.on_cut(job, Input::Begin { epoch }),
            Command::Frozen(job, epoch, true) => self.apps.on_cut(job, Input::Frozen { epoch }),
            Command::Frozen(job, epoch, false) => self.apps.on_cut(job, Input::FreezeFailed { epoch }),
            Command::AbortCut(job, epoch) => self.apps.on_cut(job, Input::Abort { epoch }),
            Command::Resume(job, epoch) => self.apps.on_cut(job, Input::Resumed { epoch }),
            Command::ToLauncher(job, message) => self.apps.tell_launcher(job, message),
            Command::ChannelStates(job, epoch, reply) => {
                let _ = reply.send(self.apps.channel_states(job, epoch));
            }
            Command::Settle(job, epoch, states, reply) => {
                let _ = reply.send(self.apps.settle(job, epoch, &states));
            }
            Command::Stop => unreachable!("taken by the turn"),
        }
    }
}
