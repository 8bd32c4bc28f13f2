//! A model of a job's part on one node: its processes, its steps, which take time and may fail, and its
//! snapshots. It follows `daemon/src/app`: one step after the other, each answered. Only the processes and
//! the disk are invented; the cut and the inbox are the daemon's own.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use coswitch_daemon::{
    cut::{Cut, Inbox, Input},
    protocol::{AppEvent, AppRequest, Failure, Held, Holding, LaunchRequest, PartState, Step},
};
use coswitch_policies::{Bytes, Epoch, JobId, NodeId};

use super::{
    context::{Context, Event},
    machine::Machine,
    plan::FailingStep,
    work::Ranks,
};

/// A message to the task of the part.
#[derive(Clone, Debug)]
pub(super) enum Note {
    Request(AppRequest),
    Release,
    StandStill,
    GoOn,
    Sealed(Epoch, bool),
    // From the data plane.
    Freeze(Epoch),
    Thaw,
    Flushed(Epoch),
    Aborted(Epoch),
    CutFailed(String),
}

/// For how long a checkpoint stops the ranks, as the master hears it.
const STOOD_STILL: Duration = Duration::from_millis(20);

/// A step that takes time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    Launch,
    Freeze(Epoch),
    Dump(Epoch),
    Checkpoint(Epoch),
    Restore(Epoch),
    Discard,
    GoBack(u32),
    Release,
}

/// What a dump saves.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub(super) ranks: Ranks,
    /// The channel states.
    pub(super) inbox: Vec<(NodeId, u64)>,
    pub(super) to_launcher: VecDeque<u64>,
    /// All that a new daemon needs.
    pub(super) launch: LaunchRequest,
    pub(super) reached: bool,
    pub(super) fences: BTreeMap<u64, Vec<(String, String)>>,
}

pub(super) struct Part {
    pub(super) node: NodeId,
    pub(super) job: JobId,
    /// No other part has this number.
    pub(super) number: u64,
    /// Which launch of the job this is.
    pub(super) life: u64,
    pub(super) launch: LaunchRequest,
    /// The part that it replaces, which goes first.
    pub(super) before: Option<Box<Self>>,
    /// See [`LaunchRequest::life`].
    pub(super) frame_life: u32,
    /// To be answered when nothing is being sealed.
    pub(super) went_back: Option<u32>,
    pub(super) memory: Bytes,
    pub(super) unit: Duration,
    pub(super) state: PartState,
    pub(super) ranks: Ranks,
    pub(super) cut: Cut,
    pub(super) inbox: Inbox<NodeId, u64>,
    pub(super) to_launcher: VecDeque<u64>,
    pub(super) stands_still: bool,
    /// The launcher's last message is in its ring, or has come out of it.
    pub(super) exit_in_ring: bool,
    pub(super) all_exited: bool,
    /// Of the last cut, or of the snapshot restored last.
    pub(super) epoch: Epoch,
    pub(super) cuts: Epoch,
    pub(super) flushed: Option<Epoch>,
    pub(super) sealing: BTreeSet<Epoch>,
    pub(super) reached: bool,
    pub(super) fences: BTreeMap<u64, Vec<(String, String)>>,
    pub(super) notes: VecDeque<Note>,
    pub(super) doing: Option<Doing>,
    pub(super) fails: bool,
    pub(super) unsealed: BTreeMap<Epoch, Snapshot>,
    /// Removed when they are sealed.
    unwanted: BTreeSet<Epoch>,
    pub(super) is_released: bool,
    /// New masters that ask while it is being removed.
    pub(super) asked: Vec<u64>,
    /// Numbers that make events of before void.
    pub(super) step: u64,
    pub(super) work: u64,
    pub(super) is_working: bool,
}

impl Part {
    pub(super) fn new(ctx: &mut Context, node: NodeId, job: JobId, launch: &LaunchRequest) -> Self {
        let nodes: BTreeSet<NodeId> = launch.placement.iter().copied().collect();
        let peers: BTreeSet<NodeId> = nodes.into_iter().filter(|peer| *peer != node).collect();
        let here = launch.placement.iter().filter(|there| **there == node).count() as u64;
        let of_env = |name: &str| {
            let (_, value) = launch.env.iter().find(|(key, _)| key == name).expect("the head says so");
            value.parse::<u64>().expect("a number")
        };
        let memory = Bytes(of_env("MEMORY") * here * ctx.plan.held / 100);
        Self {
            node,
            job,
            number: ctx.audit.number(),
            life: of_env("LIFE"),
            launch: launch.clone(),
            before: None,
            frame_life: launch.life,
            went_back: None,
            memory,
            unit: Duration::from_micros(of_env("UNIT")),
            state: PartState::Absent,
            ranks: Ranks::new(of_env("UNITS"), &peers),
            cut: Cut::new(peers),
            inbox: Inbox::default(),
            to_launcher: VecDeque::new(),
            stands_still: false,
            exit_in_ring: false,
            all_exited: false,
            epoch: Epoch(0),
            cuts: Epoch(0),
            flushed: None,
            sealing: BTreeSet::new(),
            reached: false,
            fences: BTreeMap::new(),
            notes: VecDeque::new(),
            doing: None,
            fails: false,
            unsealed: BTreeMap::new(),
            unwanted: BTreeSet::new(),
            is_released: false,
            asked: Vec::new(),
            step: 0,
            work: 0,
            is_working: false,
        }
    }

    /// A part of an earlier daemon, parked since the cut of its newest snapshot.
    pub(super) fn taken_up(ctx: &mut Context, node: NodeId, job: JobId, of: (Epoch, Snapshot)) -> Self {
        let (epoch, saved) = of;
        let mut part = Self::new(ctx, node, job, &saved.launch);
        (part.state, part.frame_life) = (PartState::Parked, 0);
        (part.epoch, part.cuts) = (epoch, epoch);
        (part.reached, part.fences) = (saved.reached, saved.fences);
        part.cut = Cut::restored(part.ranks.sent.keys().copied(), Epoch(0));
        part
    }

    /// What it takes of the node's memory.
    pub(super) fn listed(&self) -> Held {
        Held::by(self.job, &self.launch)
    }

    pub(super) fn held(&self) -> Bytes {
        self.before.as_ref().map_or(Bytes(0), |before| before.held()).saturating_add(self.held_now())
    }

    fn held_now(&self) -> Bytes {
        let moves = matches!(self.doing, Some(Doing::Launch | Doing::Restore(_)));
        let is_there =
            matches!(self.state, PartState::Running | PartState::Frozen { .. } | PartState::Stopped);
        if moves || is_there { self.memory } else { Bytes(0) }
    }

    /// Tells the master, unless a release was ordered: until that is done, nothing is told.
    pub(super) fn tell(&self, ctx: &mut Context, machine: &mut Machine, event: AppEvent) {
        if !self.is_released {
            machine.tell_of(ctx, self.job, event);
        }
    }

    pub(super) fn note(&mut self, ctx: &mut Context, machine: &mut Machine, note: Note) {
        if let Note::Release = note
            && !std::mem::replace(&mut self.is_released, true)
        {
            ctx.audit.void(self);
            // Its processes are killed now and then until the step under way has failed.
            self.stop_working();
            if self.doing.is_some() {
                self.fails = true;
                self.step = ctx.audit.number();
                ctx.soon(100, 200_000, Event::Step(self.node, self.job, self.step));
            }
        }
        self.notes.push_back(note);
        self.proceed(ctx, machine);
    }

    /// Takes notes until one begins a step.
    pub(super) fn proceed(&mut self, ctx: &mut Context, machine: &mut Machine) {
        while self.doing.is_none()
            && self.before.is_none()
            && let Some(note) = self.notes.pop_front()
        {
            self.on_note(ctx, machine, note);
            self.pump(ctx, machine);
        }
    }

    fn on_note(&mut self, ctx: &mut Context, machine: &mut Machine, note: Note) {
        match note {
            Note::Request(request) => self.on_request(ctx, machine, request),
            Note::Release => self.begin(ctx, machine, Doing::Release, None),
            Note::StandStill => {
                self.stands_still = true;
                self.stop_working();
            }
            Note::GoOn => self.stands_still = false,
            Note::Sealed(epoch, _) if self.unwanted.remove(&epoch) => {
                self.sealing.remove(&epoch);
                machine.remove_one(self.job, epoch);
                self.answer_went_back(ctx, machine);
            }
            Note::Sealed(epoch, true) => {
                self.sealing.remove(&epoch);
                let (seal, tier, bytes) = (Duration::from_millis(1), "/store/0".into(), self.memory);
                let sealed = machine.sealed(self.job).collect();
                self.tell(ctx, machine, AppEvent::Sealed { epoch, seal, tier, bytes, sealed });
                self.answer_went_back(ctx, machine);
            }
            Note::Sealed(epoch, false) => {
                self.sealing.remove(&epoch);
                self.tell(ctx, machine, AppEvent::SealFailed { epoch, reason: "a test".into() });
                self.answer_went_back(ctx, machine);
            }
            Note::Freeze(epoch) => {
                self.begin_cut(epoch);
                self.flushed = None;
                self.begin(ctx, machine, Doing::Freeze(epoch), Some(FailingStep::Freeze));
            }
            Note::Thaw => {
                if let PartState::Frozen { .. } = self.state {
                    self.state = PartState::Running;
                }
            }
            Note::Flushed(epoch) => {
                self.flushed = Some(epoch);
                if self.all_exited {
                    return self.fail(ctx, machine, Step::Cut, Failure::Ending);
                }
                let zero = Duration::ZERO;
                let event = AppEvent::Flushed { epoch, freeze: zero, flush: zero, drained: Bytes(0) };
                self.tell(ctx, machine, event);
            }
            Note::Aborted(epoch) => self.tell(ctx, machine, aborted(epoch)),
            Note::CutFailed(reason) => self.fail(ctx, machine, Step::Cut, Failure::alive(reason)),
        }
    }

    fn begin_cut(&mut self, epoch: Epoch) {
        self.cuts = self.cuts.max(epoch);
        self.epoch = self.cuts;
    }

    fn on_request(&mut self, ctx: &mut Context, machine: &mut Machine, request: AppRequest) {
        let is_parked = self.state == PartState::Parked;
        match request {
            AppRequest::Launch(_) if self.state != PartState::Absent => {
                self.fail(ctx, machine, Step::Launch, Failure::alive("it has been launched already"));
            }
            AppRequest::Launch(_) => self.begin(ctx, machine, Doing::Launch, None),
            AppRequest::Cut(epoch) => {
                self.begin_cut(epoch);
                self.on_cut(ctx, machine, Input::Begin { epoch });
            }
            AppRequest::AbortCut(epoch) => self.on_cut(ctx, machine, Input::Abort { epoch }),
            AppRequest::Dump(epoch) | AppRequest::Checkpoint(epoch) => {
                let stays = matches!(request, AppRequest::Checkpoint(_));
                let doing = if stays { Doing::Checkpoint(epoch) } else { Doing::Dump(epoch) };
                let is_frozen = matches!(self.state, PartState::Frozen { .. });
                if self.all_exited {
                    self.fail(ctx, machine, Step::Dump, Failure::Ending);
                } else if !is_frozen {
                    self.fail(ctx, machine, Step::Dump, Failure::alive("its ranks are not frozen"));
                } else if machine.is_full {
                    ctx.audit.wound(self.job);
                    self.fail(ctx, machine, Step::Dump, Failure::store_full("the disk is full"));
                } else {
                    ctx.audit.check_flushed(self, epoch);
                    let failing = machine.next_failure(&[FailingStep::DumpAlive, FailingStep::DumpDead]);
                    self.begin(ctx, machine, doing, failing);
                    if failing == Some(FailingStep::DumpDead) {
                        self.state = PartState::Parked;
                    }
                }
            }
            AppRequest::DropSnapshot(epoch) if self.sealing.contains(&epoch) => {
                self.unwanted.insert(epoch);
            }
            AppRequest::DropSnapshot(epoch) => machine.remove_one(self.job, epoch),
            AppRequest::Restore(_) if !is_parked => {
                self.fail(ctx, machine, Step::Restore, Failure::dead("it is not parked"));
            }
            AppRequest::Restore(epoch) => {
                self.begin(ctx, machine, Doing::Restore(epoch), Some(FailingStep::Restore));
            }
            AppRequest::Discard => self.begin(ctx, machine, Doing::Discard, None),
            AppRequest::Resume(epoch) => self.resume(ctx, machine, epoch),
            AppRequest::GoBack { life, .. } if self.state == PartState::Absent => {
                self.tell(ctx, machine, AppEvent::WentBack { life, sealed: Vec::new() });
            }
            AppRequest::GoBack { life, .. } => self.begin(ctx, machine, Doing::GoBack(life), None),
            AppRequest::FenceDone { sequence, puts, .. } => {
                self.reached = false;
                self.fences.entry(sequence).or_insert(puts);
                self.to_launcher.push_back(sequence);
            }
            AppRequest::Describe { generation } => {
                let holding = self.holding(machine, generation);
                self.tell(ctx, machine, AppEvent::Holds(Box::new(holding)));
            }
            AppRequest::Release { .. } => unreachable!("a note of its own"),
            AppRequest::Receive(_) => unreachable!("all nodes of the simulation see the programs"),
            AppRequest::Copy { .. } | AppRequest::FetchCopy(_) | AppRequest::DropCopies { .. } => {
                unreachable!("copies are not simulated")
            }
        }
    }

    fn resume(&mut self, ctx: &mut Context, machine: &mut Machine, epoch: Epoch) {
        if self.lacks_link(ctx, machine, Step::Resume) {
            return;
        }
        self.on_cut(ctx, machine, Input::Resumed { epoch });
        if matches!(self.state, PartState::Frozen { .. } | PartState::Stopped) {
            self.state = PartState::Running;
        }
        ctx.audit.resumed.push((self.job, self.node, epoch));
        self.tell(
            ctx,
            machine,
            AppEvent::Resumed { epoch, thaw: Some(Duration::ZERO), stood_still: STOOD_STILL },
        );
    }

    fn holding(&self, machine: &Machine, generation: u64) -> Holding {
        let state = match self.state {
            PartState::Frozen { .. } => PartState::Frozen { flushed: self.flushed == Some(self.epoch) },
            state => state,
        };
        Holding {
            generation,
            state,
            epoch: self.epoch,
            cuts: self.cuts.max(self.epoch),
            sealed: machine.sealed(self.job).collect(),
            sealing: self.sealing.iter().copied().collect(),
            life: self.frame_life,
            reached: self.reached.then(|| (0, Vec::new())),
            fences: self.fences.clone().into_iter().collect(),
            ..Holding::default()
        }
    }

    pub(super) fn fail(&self, ctx: &mut Context, machine: &mut Machine, during: Step, failure: Failure) {
        ctx.say(|| format!("{} of {} fails: {during:?}, {failure}", self.node, self.job));
        self.tell(ctx, machine, AppEvent::Failed { during, failure });
    }
}

fn aborted(epoch: Epoch) -> AppEvent {
    AppEvent::Resumed { epoch, thaw: None, stood_still: Duration::ZERO }
}
