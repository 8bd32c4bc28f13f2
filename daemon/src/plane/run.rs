//! Loop of the data plane's thread.
//!
//! Each pass serves commands, rings and links. After passes that moved no message the loop polls on, yielding
//! the core in between, for about the cost of a sleep and a wake-up; then it sleeps until a rank, a peer or
//! the control side rings. A sleep is bounded, so a lost wake-up does no harm.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{
        Arc,
        mpsc::{Receiver, TryRecvError},
    },
    time::{Duration, Instant},
};

use coswitch_policies::NodeId;
use coswitch_ring::{Bell, wait_any};
use tokio::sync::{mpsc::UnboundedSender, oneshot};
use tracing::warn;

use super::{
    apps::Apps,
    connect::Connection,
    link::Link,
    messages::{Command, PlaneEvent},
    moved::Moved,
    socket_watcher::SocketWatcher,
};
use crate::{
    cut::Input,
    processors::{TimeSlice, set_time_slice},
};

/// About the cost of a sleep and a wake-up, so that polling at most doubles the cost of a wait.
const POLL_FOR: Duration = Duration::from_micros(200);
/// A yield that takes longer has given the core to a computing thread, as the next ones would: after it,
/// chunks move without yields for [`BUSY_FOR`].
const BUSY: Duration = Duration::from_micros(100);
const BUSY_FOR: Duration = Duration::from_millis(10);
const SLEEP_MAX: Duration = Duration::from_millis(250);

pub(crate) struct Loop {
    commands: Receiver<Command>,
    bell: Arc<Bell>,
    watcher: SocketWatcher,
    links: BTreeMap<NodeId, Link>,
    /// Those that wait for links to these nodes. They give up by themselves.
    waiting: Vec<(BTreeSet<NodeId>, oneshot::Sender<()>)>,
    apps: Apps,
    events: UnboundedSender<PlaneEvent>,
    /// Another thread is assumed to compute on this core until then.
    busy_until: Instant,
    /// Short during a sleep, the default from the first yield on: a thread with a short slice yields in vain.
    slice: TimeSlice,
}

impl Loop {
    pub(crate) fn new(
        own: NodeId,
        commands: Receiver<Command>,
        bell: Arc<Bell>,
        events: UnboundedSender<PlaneEvent>,
    ) -> io::Result<Self> {
        let watcher = SocketWatcher::start(Arc::clone(&bell))?;
        let apps = Apps::new(own, Arc::clone(&bell), events.clone());
        Ok(Self {
            commands,
            bell,
            watcher,
            links: BTreeMap::new(),
            waiting: Vec::new(),
            apps,
            events,
            busy_until: Instant::now(),
            slice: TimeSlice::Default,
        })
    }

    pub(crate) fn run(mut self) {
        let mut last_moved = Instant::now();
        while let Some(moved) = self.pass() {
            match moved {
                Moved::Nothing if last_moved.elapsed() < POLL_FOR => self.yield_core(),
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

    /// Lets a rank on this core run.
    fn yield_core(&mut self) {
        self.change_slice(TimeSlice::Default);
        std::thread::yield_now();
    }

    fn change_slice(&mut self, slice: TimeSlice) {
        if std::mem::replace(&mut self.slice, slice) != slice {
            set_time_slice(slice);
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

    /// Serves everything once; `None` after [`Command::Stop`].
    fn pass(&mut self) -> Option<Moved> {
        let mut moved = Moved::Nothing;
        loop {
            match self.commands.try_recv() {
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return None,
                Ok(command) => self.on_command(command),
                Err(TryRecvError::Empty) => break,
            }
            moved = Moved::Something;
        }
        moved.note(self.serve_links());
        // Only a write to a link fails here; the next pass over the links finds the broken one.
        moved.note(self.apps.pump(&mut self.links).unwrap_or(Moved::Something));
        self.send_control();
        Some(moved)
    }

    fn serve_links(&mut self) -> Moved {
        let mut moved = Moved::Nothing;
        let mut lost = Vec::new();
        for (peer, link) in &mut self.links {
            match link.flush().and_then(|out| Ok(Moved::some_if(out).max(link.receive(&mut self.apps)?))) {
                Ok(some) => moved.note(some),
                Err(error) => lost.push((*peer, link.reason(&error))),
            }
        }
        lost.into_iter().for_each(|(peer, reason)| self.lose(peer, reason));
        moved
    }

    /// Gives up a link, if it is there.
    fn lose(&mut self, peer: NodeId, reason: String) {
        if let Some(Link { incarnation, .. }) = self.links.remove(&peer) {
            let jobs = self.apps.on_link_lost(peer);
            let _ = self.events.send(PlaneEvent::LinkLost { peer, incarnation, reason, jobs });
        }
    }

    fn add_link(&mut self, connection: Connection) {
        let peer = connection.peer;
        self.lose(peer, "its daemon has made another one".to_owned());
        let link = Link::new(connection);
        match self.watcher.add(link.fd()) {
            Ok(()) => drop(self.links.insert(peer, link)),
            // Nobody has used it, and those that wait for it give up in time.
            Err(error) => warn!(%peer, %error, "a data link could not be watched"),
        }
        self.answer_waiting();
    }

    /// Answers those that wait for links which are all there.
    fn answer_waiting(&mut self) {
        let Self { waiting, links, .. } = self;
        for (_, reply) in
            waiting.extract_if(.., |(peers, _)| peers.iter().all(|peer| links.contains_key(peer)))
        {
            let _ = reply.send(());
        }
    }

    /// Sends the markers and credits of the outbox.
    fn send_control(&mut self) {
        for (to, app, frame) in self.apps.outbox.drain(..) {
            if let Some(link) = self.links.get_mut(&to) {
                // The next pass finds and reports a broken link.
                let _ = link.send_control(app, frame);
            }
        }
    }

    /// Takes a ticket of every bell, makes one more pass, then sleeps. `None` after [`Command::Stop`].
    fn sleep(&mut self) -> Option<()> {
        let bell = Arc::clone(&self.bell);
        let segments: Vec<_> = self.apps.segments().cloned().collect();
        let bells = std::iter::once(&*bell).chain(segments.iter().map(|segment| segment.daemon_bell()));
        let tickets: Vec<_> = bells.map(|bell| (bell, bell.ticket())).collect();
        for link in self.links.values() {
            // A socket that cannot be armed costs at most one bounded sleep.
            let _ = self.watcher.arm(link.fd(), !link.may_send_record());
        }
        if self.pass()? == Moved::Nothing {
            // So that this thread runs as soon as it wakes, before threads that compute.
            self.change_slice(TimeSlice::Short);
            wait_any(&tickets, SLEEP_MAX);
        }
        Some(())
    }

    fn on_command(&mut self, command: Command) {
        match command {
            Command::AddLink(connection) => self.add_link(connection),
            Command::DropOtherLink(peer, incarnation) => {
                if self.links.get(&peer).is_some_and(|link| link.incarnation != incarnation) {
                    self.lose(peer, "its daemon was started again".to_owned());
                }
            }
            Command::MissingLinks(mut peers, reply) => {
                peers.retain(|peer| !self.links.contains_key(peer));
                let _ = reply.send(peers);
            }
            Command::AwaitLinks(peers, reply) => {
                self.waiting.push((peers, reply));
                self.answer_waiting();
            }
            Command::SetLife(job, life) => self.apps.set_life(job, life),
            Command::Rewind(job, life) => {
                if let Some(before) = self.apps.rewind(job, life) {
                    self.links.values_mut().for_each(|link| link.let_go_of(before));
                }
            }
            Command::AddApp(job, segment, placement) => self.apps.add(job, segment, placement),
            Command::AddAtCut(job, segment, placement, life, epoch, states, reply) => {
                self.apps.add(job, segment, placement);
                self.apps.set_life(job, life);
                let _ = reply.send(self.apps.restore(job, epoch, &states));
            }
            Command::RemoveApp(job, done) => {
                self.apps.remove(job);
                let _ = done.send(());
            }
            Command::BeginCut(job, epoch) => self.apps.on_cut(job, Input::Begin { epoch }),
            Command::Frozen(job, epoch, true) => self.apps.on_frozen(job, epoch),
            Command::Frozen(job, epoch, false) => self.apps.on_cut(job, Input::FreezeFailed { epoch }),
            Command::AbortCut(job, epoch) => self.apps.on_cut(job, Input::Abort { epoch }),
            Command::Resume(job, epoch) => self.apps.on_cut(job, Input::Resumed { epoch }),
            Command::ToLauncher(job, message, due) => self.apps.tell_launcher(job, message, due),
            Command::ChannelStates(job, epoch, reply) => {
                let _ = reply.send(self.apps.channel_states(job, epoch));
            }
            Command::RestoreChannels(job, epoch, states, reply) => {
                let _ = reply.send(self.apps.restore(job, epoch, &states));
            }
            Command::Exchange(begin) => self.apps.exchange(begin),
            Command::SendAtOnce => self.apps.send_at_once(),
            Command::Stop => unreachable!("ends the pass"),
        }
    }
}
