//! The applications of this node as the data plane sees them: rings, channels, credits, inboxes, cuts.
//!
//! Only the plane's thread is in here, so nothing is locked. This file finds the application that something is about
//! and carries out what it calls for; [`super::app`] is one application.

use std::{collections::BTreeMap, io, sync::Arc};

use coswitch_policies::{Bytes, Epoch, JobId, NodeId};
use coswitch_ring::{HEADER_BYTES, Header, Segment};
use tokio::sync::mpsc::UnboundedSender;

use super::{
    PlaneEvent,
    app::{App, Fault},
    frame::Frame,
    incoming::Incoming,
    link::Link,
    moved::Moved,
};
use crate::cut::{Input, Output, Report};

/// All applications of this node.
pub(crate) struct Apps {
    own: NodeId,
    apps: BTreeMap<JobId, App>,
    /// Control frames that handling the last input has called for.
    pub(crate) outbox: Vec<(NodeId, JobId, Frame)>,
    events: UnboundedSender<PlaneEvent>,
}

impl Apps {
    pub(crate) fn new(own: NodeId, events: UnboundedSender<PlaneEvent>) -> Self {
        Self { own, apps: BTreeMap::new(), outbox: Vec::new(), events }
    }

    /// The control side may have gone; then there is nobody left to tell.
    fn tell(&self, event: PlaneEvent) {
        let _ = self.events.send(event);
    }

    pub(crate) fn segments(&self) -> impl Iterator<Item = &Arc<Segment>> {
        self.apps.values().map(App::segment)
    }

    pub(crate) fn add(&mut self, job: JobId, segment: Arc<Segment>, placement: Vec<NodeId>) {
        self.apps.insert(job, App::new(self.own, segment, placement));
    }

    pub(crate) fn remove(&mut self, job: JobId) {
        self.apps.remove(&job);
    }

    /// Moves what can be moved between rings, inboxes and links.
    pub(crate) fn pump(&mut self, links: &mut BTreeMap<NodeId, Link>) -> io::Result<Moved> {
        let mut moved = Moved::Nothing;
        let mut broken = Vec::new();
        for (job, app) in &mut self.apps {
            let launcher = |message| drop(self.events.send(PlaneEvent::FromLauncher { job: *job, message }));
            match app.pump(*job, links, launcher) {
                Ok(some) => moved.note(some),
                Err(Fault::Link(error)) => return Err(error),
                Err(Fault::Corrupt(reason)) => broken.push((*job, reason)),
            }
            self.outbox.extend(app.credit_due().map(|(peer, bytes)| (peer, *job, Frame::Credit { bytes })));
        }
        for (job, reason) in broken {
            self.fail(job, reason);
        }
        Ok(moved)
    }

    /// A rank has broken its segment: nothing of it is touched any more, and its job is reported.
    fn fail(&mut self, job: JobId, reason: String) {
        if let Some(app) = self.apps.get_mut(&job) {
            app.set_broken();
        }
        self.tell(PlaneEvent::Corrupt { job, reason });
    }

    /// Where to receive the payload of a large record.
    pub(crate) fn place(&mut self, from: NodeId, job: JobId, header: &Header) -> Incoming {
        let leased = self.apps.get_mut(&job).and_then(|app| app.lease(from, header));
        leased.unwrap_or_else(|| Incoming::heap(header.len as usize))
    }

    /// A record has come in whole.
    pub(crate) fn on_record(&mut self, from: NodeId, job: JobId, header: Header, payload: Incoming) {
        let Some(app) = self.apps.get_mut(&job) else { return };
        if let Err(reason) = app.on_record(from, header, payload) {
            self.fail(job, reason);
        }
    }

    /// A record has come in whole whose payload lies in the receive buffer.
    pub(crate) fn on_small_record(&mut self, from: NodeId, job: JobId, header: Header, payload: &[u8]) {
        let Some(app) = self.apps.get_mut(&job) else { return };
        if let Err(reason) = app.on_small_record(from, header, payload) {
            self.fail(job, reason);
        }
    }

    pub(crate) fn on_credit(&mut self, from: NodeId, job: JobId, bytes: u64) {
        if let Some(app) = self.apps.get_mut(&job) {
            app.on_credit(from, bytes);
        }
    }

    pub(crate) fn on_marker(&mut self, from: NodeId, job: JobId, epoch: Epoch) {
        self.on_cut(job, Input::Marker { from, epoch });
    }

    pub(crate) fn on_link_lost(&mut self, peer: NodeId) {
        for job in self.apps.keys().copied().collect::<Vec<_>>() {
            self.on_cut(job, Input::PeerLost { node: peer });
        }
    }

    /// Feeds the cut of an application and carries out what it says.
    pub(crate) fn on_cut(&mut self, job: JobId, input: Input) {
        let Some(app) = self.apps.get_mut(&job) else { return };
        for output in app.on_cut(input) {
            let event = match output {
                Output::SendMarker { to, epoch } => {
                    self.outbox.push((to, job, Frame::Marker { epoch }));
                    continue;
                }
                Output::FreezeRanks { epoch } => PlaneEvent::Freeze { job, epoch },
                Output::ThawRanks { epoch } => PlaneEvent::Thaw { job, epoch },
                Output::Report(Report::Flushed { epoch }) => {
                    PlaneEvent::Flushed { job, epoch, drained: Bytes(app.drained()) }
                }
                Output::Report(Report::Aborted { epoch }) => PlaneEvent::Aborted { job, epoch },
                Output::Report(Report::Failed { epoch, reason }) => {
                    PlaneEvent::CutFailed { job, epoch, reason: reason.to_string() }
                }
            };
            let _ = self.events.send(event);
        }
    }

    pub(crate) fn tell_launcher(&mut self, job: JobId, message: Vec<u8>) {
        if let Some(app) = self.apps.get_mut(&job) {
            app.tell_launcher(message);
        }
    }

    /// The channel states of a flushed application, for its snapshot; they stay in place as well.
    pub(crate) fn channel_states(&mut self, job: JobId, epoch: Epoch) -> Vec<u8> {
        self.apps.get_mut(&job).map(|app| app.channel_states(epoch)).unwrap_or_default()
    }

    /// The segment holds again what it held at the cut of `epoch`; now the channels do too. False where they cannot.
    pub(crate) fn settle(&mut self, job: JobId, epoch: Epoch, states: &[u8]) -> bool {
        self.apps.get_mut(&job).is_some_and(|app| app.settle(epoch, states).is_ok())
    }
}

/// What a record takes of its channel's credit.
pub(crate) fn cost(header: &Header) -> u64 {
    u64::from(header.len) + HEADER_BYTES as u64
}
