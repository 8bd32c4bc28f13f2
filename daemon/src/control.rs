//! Control loop of a daemon: gives requests of the head node and events of the data plane to the
//! applications, and reports memory and traffic.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use coswitch_policies::JobId;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc::UnboundedReceiver,
    task::JoinHandle,
    time::{MissedTickBehavior, interval, timeout},
};
use tracing::{error, info, warn};

use crate::{
    app::{AppHandle, NodeServices, Note},
    plane::{Command, PlaneEvent, connect},
    protocol::{AppEvent, AppRequest, DaemonEvent, Failure, Member, MemoryUse, Request, Step, StoodStill},
    session::Heard,
};

const LINK_LIMIT: Duration = Duration::from_secs(10);
const RELEASE_LIMIT: Duration = Duration::from_secs(30);
const SAMPLE_EVERY: Duration = Duration::from_millis(100);
/// Number of memory samples for each report of traffic.
const TRAFFIC_EVERY: u32 = 10;

pub(crate) struct Control {
    node: Arc<NodeServices>,
    apps: BTreeMap<JobId, (AppHandle, JoinHandle<()>)>,
    /// Since when the head node counts as silent.
    silent_since: Option<Instant>,
}

impl Control {
    pub(crate) fn new(node: Arc<NodeServices>) -> Self {
        Self { node, apps: BTreeMap::new(), silent_since: None }
    }

    pub(crate) async fn run(
        &mut self,
        mut requests: UnboundedReceiver<Heard<Request>>,
        mut plane: UnboundedReceiver<PlaneEvent>,
    ) {
        let mut sample = interval(SAMPLE_EVERY);
        sample.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut terminate = match signal(SignalKind::terminate()) {
            Ok(terminate) => terminate,
            Err(error) => return error!(%error, "signals cannot be handled"),
        };
        let mut ticks = 0;
        loop {
            tokio::select! {
                heard = requests.recv() => match heard {
                    Some(Heard::Message(Request::Shutdown)) | None => {
                        return info!("the head node has ended the session");
                    }
                    Some(Heard::Message(request)) => self.on_message(request),
                    Some(Heard::Silence) => self.on_silence(),
                    Some(Heard::Again(silence)) => self.on_heard_again(silence),
                },
                Some(event) = plane.recv() => self.on_plane(event),
                _ = sample.tick() => {
                    ticks += 1;
                    self.sample(ticks % TRAFFIC_EVERY == 0);
                }
                _ = terminate.recv() => return info!("terminated"),
            }
        }
    }

    fn on_message(&mut self, request: Request) {
        match request {
            Request::Join { members } => self.join(members),
            Request::App { job, request } => self.on_request(job, request),
            Request::Allow { allowance } => {
                let exceeded = self.node.guard.allow(allowance);
                self.node.tell(DaemonEvent::Allowed { exceeded });
            }
            Request::Hello { .. } | Request::Alive | Request::Shutdown => {}
        }
    }

    /// The ranks wait for the head node: it may have stopped, and cannot switch them.
    fn on_silence(&mut self) {
        warn!("the head node is silent: the ranks stand still until it is heard again");
        self.silent_since = Some(Instant::now());
        self.apps.values().for_each(|(app, _)| app.note(Note::StandStill));
    }

    fn on_heard_again(&mut self, silence: Duration) {
        let Some(since) = self.silent_since.take() else { return };
        self.apps.values().for_each(|(app, _)| app.note(Note::GoOn));
        let stood_still = StoodStill { silence, frozen: since.elapsed() };
        warn!(?stood_still, "the head node is heard again");
        self.node.tell(DaemonEvent::StoodStill(stood_still));
    }

    fn on_request(&mut self, job: JobId, request: AppRequest) {
        self.apps.retain(|_, (_, task)| !task.is_finished());
        if matches!(request, AppRequest::Launch(_)) {
            self.apps.entry(job).or_insert_with(|| AppHandle::start(Arc::clone(&self.node), job));
        }
        match (self.apps.get(&job), request) {
            (Some((app, _)), AppRequest::Release) => app.release(Arc::clone(&self.node), job),
            (Some((app, _)), request) => app.note(Note::Request(request)),
            (None, AppRequest::Release) => {
                self.node.tell(DaemonEvent::App { job, event: AppEvent::Released })
            }
            (None, _) => {
                let failure = Failure::dead("there is no such application here");
                let event = AppEvent::Failed { during: Step::Run, failure };
                self.node.tell(DaemonEvent::App { job, event });
            }
        }
    }

    fn on_plane(&self, event: PlaneEvent) {
        match event {
            PlaneEvent::LinkLost { peer, reason } => {
                warn!(%peer, reason, "data link lost");
                self.node.tell(DaemonEvent::LinkLost { peer });
            }
            PlaneEvent::App { job, event } => {
                if let Some((app, _)) = self.apps.get(&job) {
                    app.note(Note::Plane(event));
                }
            }
        }
    }

    fn sample(&self, traffic: bool) {
        // A head node that reads nothing would find hours of samples.
        if self.silent_since.is_some() {
            return;
        }
        if let Ok(memory) = self.node.cgroup.memory_use() {
            let stopped = self.node.guard.is_stopped();
            self.node.tell(DaemonEvent::Memory(MemoryUse { stopped, ..memory }));
        }
        if traffic {
            self.apps.values().for_each(|(app, _)| app.note(Note::Sample));
        }
    }

    /// Connects to every node with a lower number; those with a higher one connect to this node.
    fn join(&self, members: Vec<Member>) {
        let node = Arc::clone(&self.node);
        tokio::task::spawn_blocking(move || {
            node.tell(match connect_all(&node, &members) {
                Ok(()) => DaemonEvent::Joined,
                Err(reason) => DaemonEvent::JoinFailed { reason },
            });
        });
    }

    pub(crate) async fn release_all(&mut self) {
        let apps = std::mem::take(&mut self.apps);
        apps.iter().for_each(|(job, (app, _))| app.release(Arc::clone(&self.node), *job));
        for (job, (_, task)) in apps {
            if timeout(RELEASE_LIMIT, task).await.is_err() {
                error!(%job, "the application could not be released in time");
            }
        }
    }
}

fn connect_all(node: &NodeServices, members: &[Member]) -> Result<(), String> {
    let own = node.config.node;
    let client = node.config.identity.client().map_err(|error| error.to_string())?;
    for member in members.iter().filter(|member| member.node < own) {
        let (peer, stream) = connect::connect(member.data, own, &client, LINK_LIMIT)
            .map_err(|error| format!("{}: {error}", member.node))?;
        node.plane.tell(Command::AddLink(peer, stream));
    }
    Ok(())
}
