//! Applications of this node in the data plane: finds the application that a frame or command names, and
//! carries out the outputs of its cut.
//!
//! Only the plane's thread runs this code, so there are no locks.

use std::{collections::BTreeMap, io, sync::Arc};

use coswitch_policies::{Bytes, Epoch, JobId, NodeId};
use coswitch_ring::{Bell, Header, Segment};
use tokio::sync::mpsc::UnboundedSender;
use tracing::warn;

use super::{
    app_channels::{AppChannels, Fault},
    backlog::{Backlog, Unread},
    frame::{AppLife, Frame},
    incoming::Incoming,
    link::{FrameHandler, Link},
    messages::{AppPlaneEvent, PlaneEvent},
    moved::Moved,
};
use crate::cut::{CutReport, Input, Output};

pub(crate) struct Apps {
    own: NodeId,
    apps: BTreeMap<JobId, AppChannels>,
    /// Control frames to send.
    pub(crate) outbox: Vec<(NodeId, AppLife, Frame)>,
    /// Whether messages wait for exchanges.
    is_buffered: bool,
    /// Of the data plane.
    bell: Arc<Bell>,
    events: UnboundedSender<PlaneEvent>,
}

impl Apps {
    pub(crate) fn new(own: NodeId, bell: Arc<Bell>, events: UnboundedSender<PlaneEvent>) -> Self {
        Self { own, apps: BTreeMap::new(), outbox: Vec::new(), is_buffered: false, bell, events }
    }

    /// Ignores a control side that has ended.
    fn tell(&self, job: JobId, event: AppPlaneEvent) {
        let _ = self.events.send(PlaneEvent::App { job, event });
    }

    /// Those whose rings are in use: nobody rings for the others, and to look at their bells would need
    /// memory.
    pub(crate) fn segments(&self) -> impl Iterator<Item = &Arc<Segment>> {
        self.apps.values().filter_map(AppChannels::heard_segment)
    }

    pub(crate) fn add(&mut self, job: JobId, segment: Arc<Segment>, placement: Vec<NodeId>) {
        let backlog = Backlog::new(Arc::clone(&self.bell));
        let mut app = AppChannels::new(self.own, segment, placement, backlog);
        if self.is_buffered {
            app.await_exchange();
        }
        self.apps.insert(job, app);
    }

    pub(crate) fn set_life(&mut self, job: JobId, life: u32) {
        if let Some(app) = self.apps.get_mut(&job) {
            app.set_life(life);
        }
    }

    /// Buffered coscheduling: what the ranks have sent so far goes now, what has come in the slot before goes
    /// to them, and no more until the next exchange. All nodes know an exchange by its time, which the clock
    /// of the master gives.
    pub(crate) fn exchange(&mut self, begin: i64) {
        self.is_buffered = true;
        self.apps.values_mut().for_each(|app| app.exchange(begin));
    }

    /// Messages go without an exchange from now on.
    pub(crate) fn send_at_once(&mut self) {
        self.is_buffered = false;
        self.apps.values_mut().for_each(AppChannels::send_at_once);
    }

    /// The application's present life ends: nothing of it is delivered any more, and its rings are left alone
    /// until they are restored. Returns that life.
    pub(crate) fn rewind(&mut self, job: JobId, life: u32) -> Option<AppLife> {
        let before = self.apps.get_mut(&job).map(|app| {
            let before = AppLife { job, life: app.life() };
            app.rewind(life);
            before
        });
        self.tell(job, AppPlaneEvent::Rewound { life });
        before
    }

    /// The application, where this is its present life.
    fn living(&mut self, AppLife { job, life }: AppLife) -> Option<&mut AppChannels> {
        self.apps.get_mut(&job).filter(|app| app.life() == life)
    }

    pub(crate) fn remove(&mut self, job: JobId) {
        self.apps.remove(&job);
    }

    /// Moves records between rings, inboxes and links.
    pub(crate) fn pump(&mut self, links: &mut BTreeMap<NodeId, Link>) -> io::Result<Moved> {
        let mut moved = Moved::Nothing;
        let mut broken = Vec::new();
        for (job, app) in &mut self.apps {
            let life = AppLife { job: *job, life: app.life() };
            match app.pump(life, links, from_launcher(&self.events, *job)) {
                Ok(some) => moved.note(some),
                Err(Fault::Link(error)) => return Err(error),
                Err(Fault::Corrupt(reason)) => broken.push((*job, reason)),
            }
            self.outbox.extend(app.credit_due().map(|(peer, bytes)| (peer, life, Frame::Credit { bytes })));
        }
        for (job, reason) in broken {
            self.fail(job, reason);
        }
        Ok(moved)
    }

    /// The ranks are frozen for a cut. What their launcher sent before the freeze is read now, before the cut
    /// ends: the last message may say that all ranks have ended.
    pub(crate) fn on_frozen(&mut self, job: JobId, epoch: Epoch) {
        let Some(app) = self.apps.get_mut(&job) else { return };
        if let Err(corrupt) = app.hear_frozen_launcher(epoch, from_launcher(&self.events, job)) {
            return self.fail(job, corrupt.to_string());
        }
        self.on_cut(job, Input::Frozen { epoch });
    }

    /// A rank has damaged its segment: reports the job, whose segment is not touched any more.
    fn fail(&mut self, job: JobId, reason: String) {
        if let Some(app) = self.apps.get_mut(&job) {
            app.set_broken();
        }
        self.tell(job, AppPlaneEvent::Corrupt { reason });
    }

    /// The link to `peer` is gone, with all that was in it. Returns the applications that it may have held
    /// messages for; the others can go on over another link.
    pub(crate) fn on_link_lost(&mut self, peer: NodeId) -> Vec<JobId> {
        let apps = self.apps.iter_mut();
        let used: Vec<JobId> = apps.filter_map(|(job, app)| app.on_link_lost(peer).then_some(*job)).collect();
        for job in &used {
            self.on_cut(*job, Input::PeerLost { node: peer });
        }
        used
    }

    /// Feeds the cut of an application and carries out its outputs.
    pub(crate) fn on_cut(&mut self, job: JobId, input: Input) {
        let Some(app) = self.apps.get_mut(&job) else { return };
        let life = AppLife { job, life: app.life() };
        for output in app.on_cut(input) {
            let event = match output {
                Output::SendMarker { to, epoch } => {
                    self.outbox.push((to, life, Frame::Marker { epoch }));
                    continue;
                }
                Output::FreezeRanks { epoch } => AppPlaneEvent::Freeze { epoch },
                Output::ThawRanks { epoch } => AppPlaneEvent::Thaw { epoch },
                Output::Report(CutReport::Flushed { epoch }) => {
                    AppPlaneEvent::Flushed { epoch, drained: Bytes(app.drained()) }
                }
                Output::Report(CutReport::Aborted { epoch }) => AppPlaneEvent::Aborted { epoch },
                Output::Report(CutReport::Failed { epoch, reason }) => {
                    AppPlaneEvent::CutFailed { epoch, reason: reason.to_string() }
                }
            };
            let _ = self.events.send(PlaneEvent::App { job, event });
        }
    }

    pub(crate) fn tell_launcher(&mut self, job: JobId, message: Vec<u8>, due: i64) {
        if let Some(app) = self.apps.get_mut(&job) {
            app.tell_launcher(message, due);
        }
    }

    pub(crate) fn channel_states(&mut self, job: JobId, epoch: Epoch) -> Vec<u8> {
        self.apps.get_mut(&job).map(|app| app.channel_states(epoch)).unwrap_or_default()
    }

    /// Restores the channels to the cut of `epoch`, after the segment; false where the states do not decode.
    pub(crate) fn restore(&mut self, job: JobId, epoch: Epoch, states: &[u8]) -> bool {
        let restored = self.apps.get_mut(&job).map(|app| app.restore(epoch, states));
        if let Some(Err(error)) = &restored {
            warn!(%job, %error, "its channel states cannot be used");
        }
        matches!(restored, Some(Ok(())))
    }
}

impl FrameHandler for Apps {
    fn place(&mut self, from: NodeId, app: AppLife, header: &Header) -> Incoming {
        let leased = self.living(app).and_then(|app| app.lease(from, header));
        leased.unwrap_or_else(|| Incoming::heap(header.len as usize))
    }

    fn on_record(&mut self, from: NodeId, app: AppLife, header: Header, payload: Incoming) {
        let life = app;
        let Some(app) = self.living(life) else { return };
        if let Err(reason) = app.on_record(from, header, payload) {
            self.fail(life.job, reason);
        }
    }

    fn on_small_record(&mut self, from: NodeId, app: AppLife, header: Header, payload: &[u8]) {
        let life = app;
        let Some(app) = self.living(life) else { return };
        if let Err(reason) = app.on_small_record(from, header, payload) {
            self.fail(life.job, reason);
        }
    }

    fn on_credit(&mut self, from: NodeId, app: AppLife, bytes: u64) {
        if let Some(app) = self.living(app) {
            app.on_credit(from, bytes);
        }
    }

    fn on_marker(&mut self, from: NodeId, app: AppLife, epoch: Epoch) {
        if self.living(app).is_some() {
            self.on_cut(app.job, Input::Marker { from, epoch });
        }
    }
}

/// Tells what the launcher of an application says.
fn from_launcher(events: &UnboundedSender<PlaneEvent>, job: JobId) -> impl FnMut(Vec<u8>, u64, Unread) {
    move |message, read_to, unread| {
        let event = AppPlaneEvent::FromLauncher { message, read_to, unread };
        let _ = events.send(PlaneEvent::App { job, event });
    }
}
