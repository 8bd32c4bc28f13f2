//! Control loop of a daemon: gives requests of the head node and events of the data plane to the
//! applications, and reports memory and traffic.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use coswitch_policies::{Epoch, JobId, primitives};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::JoinHandle,
    time::{MissedTickBehavior, interval, sleep_until, timeout},
};
use tracing::{error, info, warn};

use crate::{
    answers::{Gathering, Said},
    app::{AppHandle, NodeServices, Note, Written},
    cgroup::Patience,
    following::{Following, Then},
    memory_news::MemoryNews,
    multicast::{Asked, InOrder},
    node,
    pass_on::{Passed, Room},
    plane::{Command, PlaneEvent},
    protocol::{
        AppEvent, AppRequest, DaemonEvent, Failure, Held, Holding, Inventory, Member, MemoryUse, Request,
        SliceUse, Step, StoodStill,
    },
    session::{Heard, SessionError},
};

mod hand_over;
mod in_order;
mod programs;
mod taking_up;

pub(crate) use self::{hand_over::HandedOver, taking_up::job_of};

const RELEASE_LIMIT: Duration = Duration::from_secs(30);
const SAMPLE_EVERY: Duration = Duration::from_millis(100);
/// Number of memory samples for each report of traffic.
const TRAFFIC_EVERY: u32 = 10;
/// For the last answers.
const HANG_UP_LIMIT: Duration = Duration::from_millis(200);
/// How many released applications are remembered for a new master.
const RELEASED_MAX: usize = 4096;

/// A session with the head node.
pub(crate) struct Master {
    pub(crate) generation: u64,
    pub(crate) requests: UnboundedReceiver<Heard<Request>>,
    pub(crate) events: UnboundedSender<DaemonEvent>,
    pub(crate) carried: JoinHandle<Result<(), SessionError>>,
    /// See [`DaemonEvent::Alive`].
    pub(crate) heard: Arc<AtomicU64>,
    /// See [`Request::Alive`].
    pub(crate) every: Arc<AtomicU32>,
}

struct App {
    handle: AppHandle,
    task: JoinHandle<()>,
    held: Held,
    is_released: bool,
}

/// What a daemon leaves of its applications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remains {
    Nothing,
    /// The snapshots of parked applications, for another daemon.
    Snapshots,
    /// All that is sealed, of any application.
    Sealed,
}

/// How a daemon ends.
pub(crate) enum Ending {
    Leaves(Remains),
    /// Another program goes on with everything.
    HandsOver(Box<HandedOver>),
}

pub(crate) struct Control {
    node: Arc<NodeServices>,
    apps: BTreeMap<JobId, App>,
    /// Released applications and the last word on each.
    released: VecDeque<(JobId, String)>,
    following: Following,
    /// Of the master that is followed.
    generation: u64,
    /// What it has asked.
    asked: InOrder<Asked>,
    heard: Arc<AtomicU64>,
    every: Arc<AtomicU32>,
    /// Answers on their way up the tree.
    gathering: Gathering,
    /// The room of answers of other daemons that were sent on since the master was heard last.
    on_their_way: Vec<Room>,
    /// Of the primitives. It outlives a master, but not the daemon.
    global: primitives::Memory,
    program: Option<programs::Program>,
    /// To this loop, which [`Control::run`] gives it.
    written: UnboundedSender<Written>,
    /// The first event of a daemon that goes on with the parts of another program.
    took_over: Option<DaemonEvent>,
    memory: MemoryNews,
    /// What the master knows of the load of local tasks.
    load: Option<f64>,
    patience: Patience,
    /// The sessions that have ended, and the last one.
    carried: Option<JoinHandle<Result<(), SessionError>>>,
    /// Nothing was asked yet of the applications that an earlier daemon has left.
    is_untouched: bool,
}

impl Control {
    pub(crate) fn new(node: Arc<NodeServices>) -> Self {
        let memory = MemoryNews::new(node.config.memory);
        let following = Following::new(node.config.standing, node.config.stop_after, Instant::now());
        let (apps, released) = (BTreeMap::new(), VecDeque::new());
        let is_untouched = node.config.resumes;
        let gathering = Gathering::new(node.config.node);
        Self {
            node,
            apps,
            released,
            following,
            generation: 0,
            asked: InOrder::default(),
            heard: Arc::default(),
            every: Arc::default(),
            gathering,
            on_their_way: Vec::new(),
            global: primitives::Memory::default(),
            program: None,
            written: unbounded_channel().0,
            took_over: None,
            memory,
            load: None,
            patience: Patience::default(),
            carried: None,
            is_untouched,
        }
    }

    /// What is left where the daemon ends without an order.
    pub(crate) const fn remains(&self) -> Remains {
        if self.is_untouched { Remains::Snapshots } else { Remains::Nothing }
    }

    /// An orderly shutdown of a machine sends SIGTERM to each of its processes. The deliberate end of a
    /// cluster that stays is [`Request::Shutdown`].
    fn remains_where_terminated(&self) -> Remains {
        if self.node.config.standing { Remains::Sealed } else { self.remains() }
    }

    /// Follows one master after the other. A daemon that is not standing ends with the first, or with the
    /// process that started it; a standing one outlives both once it has had a master.
    ///
    /// `accepting` is the task that sends the masters, and `said` what goes up the tree of daemons.
    ///
    /// # Errors
    /// Where no master comes in time.
    pub(crate) async fn run(
        &mut self,
        mut masters: UnboundedReceiver<Master>,
        mut plane: UnboundedReceiver<PlaneEvent>,
        (mut passed_on, mut said): (UnboundedReceiver<(Passed, Room)>, UnboundedReceiver<Said>),
        mut starter: JoinHandle<()>,
        mut accepting: JoinHandle<()>,
    ) -> anyhow::Result<Ending> {
        let mut sample = interval(SAMPLE_EVERY);
        sample.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut terminate = signal(SignalKind::terminate()).context("signals cannot be handled")?;
        let mut ticks = 0;
        let (_, nobody) = unbounded_channel();
        let mut requests = nobody;
        let (to_loop, mut written) = unbounded_channel();
        self.written = to_loop;
        loop {
            let (give_up, gathered) = (self.following.due(), self.gathering.due());
            tokio::select! {
                heard = requests.recv(), if self.following.is_followed() => match heard {
                    Some(Heard::Message(Request::Shutdown)) => {
                        info!("the head node has ended the session");
                        return Ok(Ending::Leaves(Remains::Nothing));
                    }
                    Some(Heard::Message(Request::Replace(programs))) => {
                        if let Some(handed) = self.hand_over(programs, &mut requests, &mut accepting).await {
                            return Ok(Ending::HandsOver(Box::new(handed)));
                        }
                    }
                    Some(Heard::Message(Request::Leave)) => {
                        info!("the head node has ended the session and goes on later");
                        return Ok(Ending::Leaves(Remains::Snapshots));
                    }
                    Some(Heard::Message(request)) => self.on_message(request),
                    Some(Heard::Silence) => self.on_silence(),
                    Some(Heard::Again(silence)) => self.on_heard_again(silence),
                    None => match self.following.on_session_end(Instant::now()) {
                        Then::End => {
                            info!("the head node is gone");
                            return Ok(Ending::Leaves(self.remains()));
                        }
                        then => {
                            warn!("the head node is gone: its jobs go on, and a new master is waited for");
                            self.on_head_lost(then);
                            self.note_master(node::note_no_master);
                        }
                    },
                },
                Some(master) = masters.recv() => {
                    let then = self.following.on_master(Instant::now());
                    self.on_head_lost(then);
                    self.node.events.direct(Some(master.events));
                    // Answers to the master before: this one would take them for its own, by their numbers.
                    while said.try_recv().is_ok() {}
                    if let Some(took_over) = self.took_over.take() {
                        self.node.tell(took_over);
                    }
                    self.generation = master.generation;
                    (self.asked, self.heard, self.every) = (InOrder::default(), master.heard, master.every);
                    self.gathering = Gathering::new(self.node.config.node);
                    self.on_their_way.clear();
                    self.memory.forget();
                    self.load = None;
                    (requests, self.carried) = (master.requests, Some(master.carried));
                    self.note_master(node::note_master);
                }
                _ = &mut starter, if self.following.needs_starter() => {
                    warn!("the process that started this daemon has ended");
                    if self.following.on_starter_end(Instant::now()) == Then::End {
                        return Ok(Ending::Leaves(self.remains()));
                    }
                }
                Some(event) = plane.recv() => self.on_plane(event),
                Some(passed) = passed_on.recv() => self.on_passed_on(passed),
                Some(fragment) = written.recv() => self.on_written(fragment),
                Some(said) = said.recv() => {
                    let onward = self.gathering.on_answers(Instant::now(), vec![said]);
                    self.send_on(onward);
                }
                () = sleep_until(gathered.unwrap_or_else(Instant::now).into()), if gathered.is_some() => {
                    let onward = self.gathering.on_due(Instant::now());
                    self.send_on(onward);
                }
                _ = sample.tick() => {
                    ticks += 1;
                    self.sample(ticks % TRAFFIC_EVERY == 0);
                }
                () = sleep_until(give_up.unwrap_or_else(Instant::now).into()), if give_up.is_some() => {
                    if self.following.needs_starter() {
                        bail!("no master came in time");
                    }
                    if self.following.is_followed() {
                        warn!("its master has not ended the session");
                        return Ok(Ending::Leaves(self.remains()));
                    }
                    warn!("no master has come for {:?}: what is sealed stays", self.node.config.stop_after);
                    return Ok(Ending::Leaves(Remains::Sealed));
                }
                _ = terminate.recv() => {
                    let remains = self.remains_where_terminated();
                    info!(?remains, "terminated");
                    return Ok(Ending::Leaves(remains));
                }
            }
        }
    }

    /// A master on another machine cannot note itself here, for a clean-up of this machine.
    fn note_master(&self, note: fn(&str) -> io::Result<()>) {
        let config = &self.node.config;
        if config.is_host()
            && let Err(error) = note(&config.name())
        {
            warn!(%error, "who the master is could not be noted");
        }
    }

    /// Ranks that stood still for a silent master go on without one.
    fn on_head_lost(&mut self, then: Then) {
        self.node.events.direct(None);
        if let Then::Thaw { .. } = then {
            self.apps.values().for_each(|app| app.handle.note(Note::GoOn));
        }
    }

    /// Ends the session, once the last answers are sent.
    pub(crate) async fn hang_up(&mut self) {
        self.node.events.direct(None);
        if let Some(carried) = self.carried.take() {
            let _ = timeout(HANG_UP_LIMIT, carried).await;
        }
    }

    fn on_message(&mut self, request: Request) {
        match request {
            Request::Join { members } => self.join(&members),
            Request::Inventory => {
                let inventory = self.inventory();
                self.node.tell(DaemonEvent::Inventory(inventory));
            }
            Request::NumbersFrom { number, key } => {
                self.node.events.set_key(key);
                self.asked.begin(number);
                self.carry_out();
            }
            Request::Ask { number, asked } => {
                self.asked.push(number, asked);
                self.carry_out();
            }
            Request::PassOn(multicast) => self.on_multicast(*multicast, &Room::NOT_LIMITED),
            Request::Allow { allowance } => {
                let exceeded = self.node.guard.allow(allowance);
                self.node.tell(DaemonEvent::Allowed { exceeded });
            }
            Request::Examine { program } => self.examine(program),
            Request::Alive { heard, clock, every } => {
                self.on_their_way.clear();
                self.node.events.on_heard(heard);
                self.node.slices.on_reading(&clock);
                self.on_rate(every);
            }
            Request::Hello { .. } | Request::Shutdown | Request::Leave | Request::Replace(_) => {}
        }
    }

    /// The ranks wait for the head node: it may have stopped, and cannot switch them.
    fn on_silence(&mut self) {
        warn!("the head node is silent: the ranks stand still until it is heard again");
        self.following.on_silence(Instant::now());
        self.apps.values().for_each(|app| app.handle.note(Note::StandStill));
    }

    fn on_heard_again(&mut self, silence: Duration) {
        let Then::Thaw { frozen } = self.following.on_heard_again(Instant::now()) else { return };
        self.apps.values().for_each(|app| app.handle.note(Note::GoOn));
        let stood_still = StoodStill { silence, frozen };
        warn!(?stood_still, "the head node is heard again");
        self.node.tell(DaemonEvent::StoodStill(stood_still));
    }

    fn on_request(&mut self, job: JobId, request: AppRequest) {
        self.forget_ended();
        self.is_untouched &= matches!(request, AppRequest::Describe { .. });
        if let AppRequest::DropCopies { from, to } = request {
            return self.drop_copies(job, from, to);
        }
        if let AppRequest::FetchCopy(fetch) = &request
            && !self.apps.contains_key(&job)
        {
            self.begin_part(Held { job, launched: None, placement: fetch.placement.clone() });
        }
        match &request {
            AppRequest::Launch(launch) if !self.has_begun(job, launch.life) => {
                self.begin_part(Held::by(job, launch));
            }
            AppRequest::Receive(receive) => {
                let placement = receive.placement.clone();
                self.begin_part(Held { job, launched: Some(receive.life), placement });
                self.begin_receiving(job, receive);
            }
            AppRequest::Release { .. } => self.end_receiving(job),
            _ => {}
        }
        if let (AppRequest::GoBack { placement, .. }, Some(app)) = (&request, self.apps.get_mut(&job)) {
            app.held.placement.clone_from(placement);
        }
        let app = self.apps.get_mut(&job);
        let answer = match (app, request) {
            (app, AppRequest::Release { last_word }) => {
                self.released.extend(last_word.map(|word| (job, word)));
                if self.released.len() > RELEASED_MAX {
                    self.released.pop_front();
                }
                match app {
                    Some(app) => {
                        app.is_released = true;
                        return app.handle.release(Arc::clone(&self.node), job);
                    }
                    None => AppEvent::Released,
                }
            }
            (Some(app), AppRequest::Describe { generation }) if app.is_released => {
                return self.describe_released(job, generation);
            }
            (Some(app), request) => return app.handle.note(Note::Request(request)),
            (None, AppRequest::Describe { generation }) => nothing(generation),
            (None, AppRequest::GoBack { life, .. }) => AppEvent::WentBack { life, sealed: Vec::new() },
            (None, AppRequest::Copy { epoch, .. }) => {
                AppEvent::CopyFailed { epoch, reason: "there is no such application here".into() }
            }
            (None, _) => {
                let failure = Failure::dead("there is no such application here");
                AppEvent::Failed { during: Step::Run, failure }
            }
        };
        self.node.tell(DaemonEvent::App { job, event: answer });
    }

    /// A part from before, which the head node has given up, goes first.
    fn begin_part(&mut self, held: Held) {
        let job = held.job;
        let before = self.apps.remove(&job).map(|app| {
            app.handle.release(Arc::clone(&self.node), job);
            app.task
        });
        let (handle, task) = AppHandle::start(Arc::clone(&self.node), job, before);
        self.apps.insert(job, App { handle, task, held, is_released: false });
    }

    /// Whether the program of this launch has come, or is on its way.
    fn has_begun(&self, job: JobId, life: u32) -> bool {
        self.apps.get(&job).is_some_and(|app| app.held.launched == Some(life) && !app.is_released)
    }

    fn drop_copies(&self, job: JobId, from: Epoch, to: Epoch) {
        let node = Arc::clone(&self.node);
        tokio::task::spawn_blocking(move || {
            if let Err(error) = node.store.drop_copies(&job.to_string(), from.0, to.0) {
                warn!(%job, %error, "old copies could not be removed");
            }
        });
    }

    /// Nothing is left of the application when its task has ended.
    fn describe_released(&self, job: JobId, generation: u64) {
        let (node, handle) = (Arc::clone(&self.node), self.apps[&job].handle.clone());
        tokio::spawn(async move {
            handle.ended().await;
            node.tell(DaemonEvent::App { job, event: nothing(generation) });
        });
    }

    fn forget_ended(&mut self) {
        self.apps.retain(|_, app| !app.task.is_finished());
    }

    fn inventory(&mut self) -> Inventory {
        self.forget_ended();
        let held = self.apps.values().map(|app| app.held.clone()).collect();
        let (released, copies) = (self.released.iter().cloned().collect(), self.node.held_copies());
        Inventory { held, released, copies }
    }

    fn on_plane(&mut self, event: PlaneEvent) {
        match event {
            PlaneEvent::LinkLost { peer, reason, jobs, .. } if jobs.is_empty() => {
                info!(%peer, reason, "data link lost; it is opened again when an application needs it");
            }
            PlaneEvent::LinkLost { peer, incarnation, reason, jobs } => {
                warn!(%peer, reason, ?jobs, "data link lost");
                self.node.tell(DaemonEvent::LinkLost { peer, incarnation, reason, jobs });
            }
            PlaneEvent::App { job, event } => {
                if let Some(app) = self.apps.get(&job) {
                    app.handle.note(Note::Plane(event));
                }
            }
        }
    }

    fn sample(&mut self, traffic: bool) {
        self.node.cgroup.be_patient(&mut self.patience);
        // A head node that reads nothing would find hours of samples.
        if self.following.is_silent() {
            return;
        }
        if let Ok(memory) = self.node.cgroup.memory_use() {
            let stopped = self.node.running.is_over();
            let has_news = self.node.has_news.swap(false, Ordering::Relaxed);
            if let Some(news) = self.memory.on_look(MemoryUse { stopped, ..memory }, has_news) {
                self.node.tell(DaemonEvent::Memory(news));
            }
        }
        if let Some(index) = self.node.scheduling.load().filter(|index| self.load != Some(*index)) {
            self.load = Some(index);
            self.node.tell(DaemonEvent::Load { index });
        }
        if traffic {
            let slices = self.node.running.take_use_of_slices();
            if slices != SliceUse::default() {
                self.node.tell(DaemonEvent::Slices(slices));
            }
            self.apps.values().for_each(|app| app.handle.note(Note::Sample));
        }
    }

    /// Links outlive a master, but not the daemon at their other end.
    fn join(&self, members: &[Member]) {
        self.node.links.on_members(members);
        for member in members.iter().filter(|member| member.node != self.node.config.node) {
            self.node.plane.tell(Command::DropOtherLink(member.node, member.incarnation));
        }
        self.node.tell(DaemonEvent::Joined);
    }

    /// Ends all applications.
    pub(crate) async fn end_all(&mut self, remains: Remains) {
        let apps = std::mem::take(&mut self.apps);
        apps.iter().for_each(|(job, app)| match remains {
            Remains::Nothing => app.handle.release(Arc::clone(&self.node), *job),
            Remains::Snapshots => app.handle.note(Note::Leave),
            Remains::Sealed => app.handle.note(Note::LeaveSealed),
        });
        for (job, app) in apps {
            if timeout(RELEASE_LIMIT, app.task).await.is_err() {
                error!(%job, "the application could not be ended in time");
            }
        }
    }
}

/// The answer of a node that holds nothing of an application.
fn nothing(generation: u64) -> AppEvent {
    AppEvent::Holds(Box::new(Holding { generation, ..Holding::default() }))
}
