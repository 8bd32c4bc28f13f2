//! Two simulated daemons around the state machine, and what must hold where it rests.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::super::{sending::sent, *};

/// State of the application on one node.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    Absent,
    Running,
    Frozen,
    Stopped,
    Parked,
    /// A failed dump has ended its processes.
    Ruined,
    Released,
}

pub(super) struct Daemon {
    part: Part,
    /// The cut that its ranks were at last.
    line: Epoch,
    sealing: BTreeSet<Epoch>,
    pub(super) sealed: BTreeSet<Epoch>,
    /// The newest epoch of a cut.
    cuts: Epoch,
    last_word: Option<String>,
    inbox: VecDeque<AppRequest>,
    life: u32,
    /// The life that its part's launch began.
    launched: u32,
    /// Of the other node's snapshots: epoch, and the launch that it is of.
    copies: BTreeMap<Epoch, u32>,
    /// Its own snapshots on their way to the other node.
    outgoing: VecDeque<(Epoch, Scatter)>,
    /// Its own snapshots that stay for that.
    needed: BTreeSet<Epoch>,
    is_down: bool,
    /// How many requests in the inbox are older than the last loss of a node.
    stale: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Luck {
    Well,
    FailsAlive,
    FailsDead,
    Silent,
}

pub(super) struct Model {
    pub(super) story: Story,
    pub(super) daemons: Vec<Daemon>,
    pub(super) last: Option<Report>,
    generation: u64,
}

impl Daemon {
    fn is_idle(&self) -> bool {
        self.inbox.is_empty() && self.sealing.is_empty() && self.outgoing.is_empty()
    }

    /// A snapshot is sealed; older ones go that nothing needs.
    fn keep(&mut self, epoch: Epoch) {
        self.sealed.insert(epoch);
        let newest: BTreeSet<Epoch> = self.sealed.iter().rev().take(SNAPSHOTS_KEPT).copied().collect();
        self.sealed.retain(|epoch| newest.contains(epoch) || self.needed.contains(epoch));
    }

    fn holding(&self, park: Park) -> Holding {
        let state = match self.part {
            Part::Absent | Part::Released => PartState::Absent,
            Part::Running => PartState::Running,
            Part::Frozen => PartState::Frozen { flushed: true },
            Part::Stopped => PartState::Stopped,
            Part::Parked if park == Park::PageOut => PartState::PagedOut,
            Part::Parked | Part::Ruined => PartState::Parked,
        };
        Holding {
            state,
            epoch: self.line,
            cuts: self.cuts,
            sealed: self.sealed.iter().copied().collect(),
            sealing: self.sealing.iter().copied().collect(),
            life: self.life,
            launched: self.launched,
            ..Holding::default()
        }
    }
}

impl Model {
    pub(super) fn new(park: Park) -> Self {
        let daemon = || Daemon {
            part: Part::Absent,
            line: Epoch(0),
            sealing: BTreeSet::new(),
            sealed: BTreeSet::new(),
            cuts: Epoch(0),
            last_word: None,
            inbox: VecDeque::new(),
            life: 0,
            launched: 0,
            copies: BTreeMap::new(),
            outgoing: VecDeque::new(),
            needed: BTreeSet::new(),
            is_down: false,
            stale: 0,
        };
        let mut story = Story::new(2);
        story.app.launch.park = park;
        // Each way of parking with one way of the program.
        story.app.launch.delivery = if park == Park::Criu { Delivery::Sent } else { Delivery::Shared };
        story.app.timeouts = Timeouts::standing();
        story.app.launch.copies = CopyRule { nodes: 2, copies: 1 };
        story.app.copies = Copies::new(story.app.launch.copies);
        Self { story, daemons: vec![daemon(), daemon()], last: None, generation: 1 }
    }

    pub(super) fn feed(&mut self, input: Input) {
        self.story.feed(input);
        for (node, request) in std::mem::take(&mut self.story.asked) {
            let daemon = &mut self.daemons[node.0 as usize];
            assert!(!daemon.is_down, "a lost node is asked {request:?}");
            daemon.inbox.push_back(request);
        }
        for report in self.story.told() {
            let is_aside = matches!(
                report,
                Report::Checkpointed { .. }
                    | Report::NotCheckpointed { .. }
                    | Report::Copied { .. }
                    | Report::NotCopied { .. }
            );
            let is_news = matches!(
                report,
                Report::Sent { .. }
                    | Report::Mended { .. }
                    | Report::WentBack { .. }
                    | Report::Survived { .. }
            );
            if !is_aside && !is_news {
                self.last = Some(report);
            }
        }
    }

    /// The daemon takes its next request, if there is one; the program comes first.
    pub(super) fn step(&mut self, node: u32, luck: Luck) {
        if self.story.app.is_sending() {
            return self.feed(match luck {
                Luck::Well => Input::Sent(Ok(sent())),
                Luck::Silent => Input::MoreSent,
                Luck::FailsAlive | Luck::FailsDead => Input::Sent(Err("it was changed".into())),
            });
        }
        let park = self.story.app.launch.park;
        let lines: Vec<(Part, Epoch)> =
            self.daemons.iter().map(|daemon| (daemon.part, daemon.line)).collect();
        let other = &self.daemons[1 - node as usize];
        let (copied, other_is_down) = (other.copies.clone(), other.is_down);
        let lives: BTreeSet<u32> = self.daemons.iter().map(|daemon| daemon.life).collect();
        let daemon = &mut self.daemons[node as usize];
        let Some(request) = daemon.inbox.pop_front() else { return };
        let is_stale = daemon.stale > 0;
        daemon.stale = daemon.stale.saturating_sub(1);
        let (well, alive) = (luck == Luck::Well, luck != Luck::FailsDead);
        let event = match request {
            _ if luck == Luck::Silent
                && !matches!(
                    request,
                    AppRequest::Discard
                        | AppRequest::Describe { .. }
                        | AppRequest::GoBack { .. }
                        | AppRequest::FetchCopy(_)
                ) =>
            {
                return;
            }
            AppRequest::Launch(launch) => {
                (daemon.part, daemon.life) = (Part::Running, launch.life);
                daemon.launched = launch.life;
                AppEvent::Launched
            }
            AppRequest::Cut(_) if !well => failed(Step::Cut, true),
            AppRequest::Cut(epoch) => {
                assert_eq!(daemon.part, Part::Running);
                (daemon.part, daemon.line, daemon.cuts) = (Part::Frozen, epoch, epoch);
                flushed(epoch.0)
            }
            AppRequest::AbortCut(epoch) => {
                assert!(matches!(daemon.part, Part::Running | Part::Frozen), "{:?}", daemon.part);
                daemon.part = Part::Running;
                AppEvent::Resumed { epoch, thaw: None, stood_still: Duration::ZERO }
            }
            AppRequest::Dump(epoch) => {
                assert_eq!((daemon.part, daemon.line), (Part::Frozen, epoch));
                if well {
                    daemon.part = Part::Parked;
                    daemon.sealing.extend((park == Park::Criu).then_some(epoch));
                    dumped(epoch.0)
                } else {
                    daemon.part = if alive { Part::Frozen } else { Part::Ruined };
                    failed(Step::Dump, alive)
                }
            }
            AppRequest::Restore(epoch) => {
                assert_eq!(daemon.part, Part::Parked);
                if well && (park == Park::PageOut || daemon.sealed.contains(&epoch)) {
                    daemon.sealed.retain(|sealed| *sealed <= epoch);
                    daemon.part = if park == Park::PageOut { Part::Frozen } else { Part::Stopped };
                    daemon.line = epoch;
                    restored(epoch.0)
                } else {
                    failed(Step::Restore, false)
                }
            }
            AppRequest::Discard => {
                assert_eq!(park, Park::Criu, "a paged-out job has no snapshot");
                daemon.part = Part::Parked;
                AppEvent::Discarded
            }
            AppRequest::Resume(epoch) => {
                let in_memory = |(part, line): &(Part, Epoch)| {
                    *line == epoch && matches!(part, Part::Running | Part::Frozen | Part::Stopped)
                };
                // Where it was on the way when a node was lost, what it lets run is about to end.
                if !is_stale {
                    assert!(lines.iter().all(in_memory), "half a gang would run: {lines:?}");
                    assert_eq!(lives.len(), 1, "nodes would not understand each other");
                }
                daemon.part = Part::Running;
                resumed(epoch.0)
            }
            AppRequest::FenceDone { .. } => return,
            AppRequest::Checkpoint(epoch) => {
                assert_eq!((daemon.part, daemon.line, park), (Part::Frozen, epoch, Park::Criu));
                if well {
                    daemon.sealing.insert(epoch);
                    checkpointed(epoch.0)
                } else {
                    daemon.part = if alive { Part::Frozen } else { Part::Ruined };
                    failed(Step::Dump, alive)
                }
            }
            AppRequest::DropSnapshot(epoch) => {
                daemon.sealing.remove(&epoch);
                daemon.sealed.remove(&epoch);
                return;
            }
            AppRequest::Release { last_word } => {
                daemon.part = if last_word.is_some() { Part::Released } else { Part::Absent };
                daemon.last_word = last_word;
                daemon.outgoing.clear();
                if luck == Luck::FailsDead { failed(Step::Release, false) } else { AppEvent::Released }
            }
            AppRequest::GoBack { life, .. } => {
                while let Some(epoch) = daemon.sealing.pop_first() {
                    daemon.keep(epoch);
                }
                daemon.life = life;
                if !matches!(daemon.part, Part::Absent | Part::Released) {
                    daemon.part = Part::Parked;
                }
                AppEvent::WentBack { life, sealed: daemon.sealed.iter().copied().collect() }
            }
            AppRequest::Copy { epoch, scatter, needed } => {
                daemon.needed = needed.into_iter().chain([epoch]).collect();
                return daemon.outgoing.push_back((epoch, scatter));
            }
            AppRequest::FetchCopy(request) => {
                assert_eq!(request.owner, NodeId(node));
                let is_there = copied.get(&request.epoch) == Some(&request.launched);
                daemon.life = request.life;
                if is_there && !other_is_down && well {
                    daemon.sealed.insert(request.epoch);
                    (daemon.part, daemon.launched) = (Part::Parked, request.launched);
                } else {
                    let failed = AppEvent::FetchFailed { epoch: request.epoch, reason: "no".into() };
                    self.feed(Input::Event(NodeId(node), failed));
                }
                let sealed = self.daemons[node as usize].sealed.iter().copied().collect();
                AppEvent::WentBack { life: request.life, sealed }
            }
            AppRequest::DropCopies { from, to } => {
                return daemon.copies.retain(|epoch, _| !(from..=to).contains(epoch));
            }
            AppRequest::Receive(_) => unreachable!("that is asked beside the application"),
            AppRequest::Describe { generation } => {
                AppEvent::Holds(Box::new(Holding { generation, ..daemon.holding(park) }))
            }
        };
        self.feed(Input::Event(NodeId(node), event));
    }

    pub(super) fn seal(&mut self, node: u32, well: bool) {
        let daemon = &mut self.daemons[node as usize];
        let Some(epoch) = daemon.sealing.pop_first() else { return };
        let event = if well {
            daemon.keep(epoch);
            sealed_of(epoch, daemon.sealed.iter().copied().collect())
        } else {
            AppEvent::SealFailed { epoch, reason: "no".into() }
        };
        self.feed(Input::Event(NodeId(node), event));
    }

    /// A snapshot arrives at the other node.
    pub(super) fn copy(&mut self, node: u32, well: bool) {
        let other_is_down = self.daemons[1 - node as usize].is_down;
        let daemon = &mut self.daemons[node as usize];
        let Some((epoch, scatter)) = daemon.outgoing.pop_front() else { return };
        let event = if !well || other_is_down || !daemon.sealed.contains(&epoch) {
            AppEvent::CopyFailed { epoch, reason: "no".into() }
        } else {
            let launched = daemon.launched;
            self.daemons[1 - node as usize].copies.insert(epoch, launched);
            AppEvent::Copied { epoch, scatter, bytes: Bytes(1), took: MS }
        };
        self.feed(Input::Event(NodeId(node), event));
    }

    /// The daemon is killed: its processes end, requests are forgotten, and sealed snapshots stay.
    pub(super) fn lose(&mut self, node: u32) {
        let park = self.story.app.launch.park;
        let daemon = &mut self.daemons[node as usize];
        if daemon.is_down {
            return;
        }
        daemon.inbox.clear();
        daemon.outgoing.clear();
        daemon.needed.clear();
        daemon.sealing.clear();
        daemon.last_word = None;
        (daemon.is_down, daemon.life) = (true, 0);
        let last = daemon.sealed.last().copied().filter(|_| park == Park::Criu);
        daemon.part = if last.is_some() { Part::Parked } else { Part::Absent };
        daemon.line = last.unwrap_or_default();
        daemon.cuts = daemon.line;
        self.daemons.iter_mut().for_each(|daemon| daemon.stale = daemon.inbox.len());
        self.feed(Input::NodeLost(NodeId(node), "gone".into()));
    }

    /// The daemon is killed, and its processes are not: the next daemon adopts what is at rest.
    pub(super) fn lose_daemon(&mut self, node: u32) {
        let daemon = &self.daemons[node as usize];
        let is_whole = daemon.part == Part::Frozen && daemon.sealing.is_empty() && daemon.inbox.is_empty();
        let left = (daemon.part, daemon.line, daemon.cuts, daemon.life);
        if daemon.is_down {
            return;
        }
        self.lose(node);
        let daemon = &mut self.daemons[node as usize];
        if is_whole {
            (daemon.part, daemon.line, daemon.cuts, daemon.life) = left;
        }
    }

    /// The same, and its disk is lost, too.
    pub(super) fn lose_disk(&mut self, node: u32) {
        let daemon = &mut self.daemons[node as usize];
        daemon.sealed.clear();
        daemon.copies.clear();
        (daemon.part, daemon.line, daemon.cuts) = (Part::Absent, Epoch(0), Epoch(0));
        daemon.is_down = false;
        daemon.inbox.clear();
        self.lose(node);
    }

    fn held_copies(&self, node: u32) -> Vec<HeldCopy> {
        let owner = NodeId(1 - node);
        let copies = self.daemons[node as usize].copies.iter();
        let held = copies.map(|(epoch, launched)| {
            let scatter = Scatter { ring: vec![NodeId(node)], copies: 1 };
            HeldCopy { owner, epoch: *epoch, launched: *launched, scatter }
        });
        held.collect()
    }

    pub(super) fn regain(&mut self, node: u32) {
        if std::mem::take(&mut self.daemons[node as usize].is_down) {
            self.feed(Input::HoldsCopies(NodeId(node), self.held_copies(node)));
            self.feed(Input::NodeBack(NodeId(node)));
        }
    }

    /// The master is replaced. Its last requests have reached the daemons, or have not; its dispatcher is
    /// forgotten.
    pub(super) fn replace(&mut self, arrived: [usize; 2]) {
        for (daemon, arrived) in self.daemons.iter_mut().zip(arrived) {
            daemon.inbox.truncate(arrived);
            daemon.stale = daemon.stale.min(arrived);
            // Daemons note a release at once.
            for request in &daemon.inbox {
                if let AppRequest::Release { last_word: Some(word) } = request {
                    daemon.last_word = Some(word.clone());
                }
            }
        }
        let ended = self.daemons.iter().find_map(|daemon| daemon.last_word.clone());
        let ended = ended.map(|word| serde_json::from_str(&word).unwrap());
        let launch = self.story.app.launch.clone();
        self.generation += 1;
        let adoption = Adoption { generation: self.generation, ended };
        let first_life = self.generation as u32 * 1000;
        self.story.app = App::adopted(launch, Timeouts::standing(), adoption).in_life(first_life);
        for node in 0..2 {
            self.feed(Input::HoldsCopies(NodeId(node), self.held_copies(node)));
            if self.daemons[node as usize].is_down {
                self.feed(Input::NodeLost(NodeId(node), "gone".into()));
            }
        }
        self.feed(Input::Adopt);
    }

    /// Lets all daemons succeed until the application rests.
    pub(super) fn drain(&mut self) {
        self.feed(Input::Continue);
        for _ in 0..1000 {
            for node in 0..2 {
                self.regain(node);
                self.step(node, Luck::Well);
                self.seal(node, true);
                self.copy(node, true);
            }
            if self.daemons.iter().all(Daemon::is_idle) {
                if !self.story.armed {
                    return;
                }
                self.feed(Input::TimedOut);
            }
        }
        panic!("it never comes to rest: {:?}", self.story.app.state);
    }

    pub(super) fn assert_reported_where_it_rests(&self) {
        let app = &self.story.app;
        let parts: Vec<Part> = self.daemons.iter().map(|daemon| daemon.part).collect();
        let told = |told: bool| assert!(told, "in {:?} the last word was {:?}", app.state, self.last);
        match app.state {
            State::Idle => return told(self.last.is_none()),
            State::Running => told(matches!(self.last, Some(Report::Running | Report::StillRunning { .. }))),
            State::Suspended => {
                told(matches!(self.last, Some(Report::Suspended | Report::StillSuspended { .. })));
            }
            State::Parked => told(matches!(self.last, Some(Report::Parked | Report::Displaced { .. }))),
            State::Ended => told(matches!(self.last, Some(Report::Ended(_) | Report::Unlaunched))),
            _ => panic!("it waits without a time-out in {:?}", app.state),
        }
        let fits = |part: &Part| match app.state {
            State::Running => *part == Part::Running,
            State::Suspended => matches!(part, Part::Frozen | Part::Stopped),
            State::Parked => *part == Part::Parked,
            _ => true,
        };
        assert!(parts.iter().all(fits), "in {:?} nodes have {parts:?}", app.state);
        assert_eq!(app.next, None, "an order was forgotten");
        assert!(app.checkpoint.is_none(), "{:?}", app.checkpoint);
    }
}
