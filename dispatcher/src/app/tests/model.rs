//! Property tests: random orders, and simulated daemons that succeed, fail or stay silent, each at its own
//! speed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{sending::sent, *};

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

struct Daemon {
    part: Part,
    /// The cut that its ranks were at last.
    line: Epoch,
    sealing: BTreeSet<Epoch>,
    sealed: BTreeSet<Epoch>,
    /// The newest epoch of a cut.
    cuts: Epoch,
    last_word: Option<String>,
    inbox: VecDeque<AppRequest>,
    life: u32,
    /// The life that its part's launch began.
    launched: u32,
    /// Of the other node's snapshots: epoch, and the launch that it is of.
    copies: BTreeMap<Epoch, u32>,
    is_down: bool,
    /// How many requests in the inbox are older than the last loss of a node.
    stale: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Luck {
    Well,
    FailsAlive,
    FailsDead,
    Silent,
}

struct Model {
    story: Story,
    daemons: Vec<Daemon>,
    last: Option<Report>,
    generation: u64,
}

impl Daemon {
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
    fn new(park: Park) -> Self {
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

    fn feed(&mut self, input: Input) {
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
    fn step(&mut self, node: u32, luck: Luck) {
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
                AppEvent::Released
            }
            AppRequest::GoBack { life, .. } => {
                while let Some(epoch) = daemon.sealing.pop_first() {
                    daemon.sealed.insert(epoch);
                    while daemon.sealed.len() > SNAPSHOTS_KEPT {
                        daemon.sealed.pop_first();
                    }
                }
                daemon.life = life;
                if !matches!(daemon.part, Part::Absent | Part::Released) {
                    daemon.part = Part::Parked;
                }
                AppEvent::WentBack { life, sealed: daemon.sealed.iter().copied().collect() }
            }
            AppRequest::Copy { epoch, scatter } => {
                let reason = "no".to_owned();
                if !well || other_is_down || !daemon.sealed.contains(&epoch) {
                    AppEvent::CopyFailed { epoch, reason }
                } else {
                    let launched = daemon.launched;
                    self.daemons[1 - node as usize].copies.insert(epoch, launched);
                    AppEvent::Copied { epoch, scatter, bytes: Bytes(1), took: MS }
                }
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

    fn seal(&mut self, node: u32, well: bool) {
        let daemon = &mut self.daemons[node as usize];
        let Some(epoch) = daemon.sealing.pop_first() else { return };
        let event = if well {
            daemon.sealed.insert(epoch);
            sealed(epoch.0)
        } else {
            AppEvent::SealFailed { epoch, reason: "no".into() }
        };
        while daemon.sealed.len() > SNAPSHOTS_KEPT {
            daemon.sealed.pop_first();
        }
        self.feed(Input::Event(NodeId(node), event));
    }

    /// The daemon is killed: its processes end, what it was told is forgotten, what it has sealed stays.
    fn lose(&mut self, node: u32) {
        let park = self.story.app.launch.park;
        let daemon = &mut self.daemons[node as usize];
        if daemon.is_down {
            return;
        }
        daemon.inbox.clear();
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
    fn lose_daemon(&mut self, node: u32) {
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
    fn lose_disk(&mut self, node: u32) {
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

    fn regain(&mut self, node: u32) {
        if std::mem::take(&mut self.daemons[node as usize].is_down) {
            self.feed(Input::HoldsCopies(NodeId(node), self.held_copies(node)));
            self.feed(Input::NodeBack(NodeId(node)));
        }
    }

    /// The master is replaced. Its last requests have reached the daemons, or have not; its dispatcher is
    /// forgotten.
    fn replace(&mut self, arrived: [usize; 2]) {
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
    fn drain(&mut self) {
        self.feed(Input::Continue);
        for _ in 0..1000 {
            for node in 0..2 {
                self.regain(node);
                self.step(node, Luck::Well);
                self.seal(node, true);
            }
            if self.daemons.iter().all(|daemon| daemon.inbox.is_empty() && daemon.sealing.is_empty()) {
                if !self.story.armed {
                    return;
                }
                self.feed(Input::TimedOut);
            }
        }
        panic!("it never comes to rest: {:?}", self.story.app.state);
    }

    fn assert_reported_where_it_rests(&self) {
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

#[derive(Clone, Copy, Debug)]
enum Act {
    Order(Order),
    Step(u32, Luck),
    Seal(u32, bool),
    Replace([usize; 2]),
    Lose(u32),
    /// Without its processes.
    LoseDaemon(u32),
    /// With its disk.
    LoseDisk(u32),
    Regain(u32),
    /// For the replacement of a daemon.
    Settle,
    Pause,
    Continue,
}

/// `losses`: whether nodes are lost as well; `disks`: and their disks.
fn act(failures: u32, losses: u32, disks: u32) -> impl Strategy<Value = Act> {
    let bad = prop::sample::select(vec![Luck::FailsAlive, Luck::FailsDead, Luck::Silent]);
    let luck = prop_oneof![30 => Just(Luck::Well), failures => bad];
    let seal = prop_oneof![30 => Just(true), failures => Just(false)];
    prop_oneof![
        2 => prop::sample::select(ORDERS.to_vec()).prop_map(Act::Order),
        1 => Just(Act::Order(Order::Checkpoint)),
        8 => (0..2u32, luck).prop_map(|(node, luck)| Act::Step(node, luck)),
        3 => (0..2u32, seal).prop_map(|(node, well)| Act::Seal(node, well)),
        1 => prop::array::uniform2(0..3usize).prop_map(Act::Replace),
        losses => (0..2u32).prop_map(Act::Lose),
        losses => (0..2u32).prop_map(Act::LoseDaemon),
        losses.min(disks) => (0..2u32).prop_map(Act::LoseDisk),
        2 * losses => (0..2u32).prop_map(Act::Regain),
        1 => prop::sample::select(vec![Act::Settle, Act::Settle, Act::Pause, Act::Continue]),
    ]
}

fn play(park: Park, acts: Vec<Act>) -> Model {
    let mut model = Model::new(park);
    model.feed(Input::Order(Order::Launch));
    for act in acts {
        match act {
            Act::Order(order) => model.feed(Input::Order(order)),
            Act::Step(node, luck) => model.step(node, luck),
            Act::Seal(node, well) => model.seal(node, well),
            Act::Replace(arrived) => model.replace(arrived),
            Act::Lose(node) => model.lose(node),
            Act::LoseDaemon(node) => model.lose_daemon(node),
            Act::LoseDisk(node) => model.lose_disk(node),
            Act::Regain(node) => model.regain(node),
            Act::Settle => model.feed(Input::Settle),
            Act::Pause => model.feed(Input::Pause),
            Act::Continue => model.feed(Input::Continue),
        }
    }
    model.drain();
    model.assert_reported_where_it_rests();
    model
}

fn parks() -> impl Strategy<Value = Park> {
    prop::sample::select(vec![Park::Criu, Park::PageOut])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// For all orders, failures and replaced masters: the application comes to rest in the state it has
    /// reported, all nodes are in that state, and a gang never runs in part.
    #[test]
    fn it_rests_in_the_state_it_reports_whatever_fails(
        park in parks(),
        acts in prop::collection::vec(act(2, 0, 0), 0..150),
    ) {
        play(park, acts);
    }

    /// The same, where daemons are killed as well: and no node hears messages of another life.
    #[test]
    fn it_rests_in_the_state_it_reports_whatever_nodes_are_lost(
        park in parks(),
        acts in prop::collection::vec(act(1, 1, 1), 0..150),
    ) {
        play(park, acts);
    }

    /// An application that has a snapshot on all nodes is not launched again because nodes were lost.
    #[test]
    fn what_is_sealed_everywhere_is_not_lost_with_nodes(
        before in prop::collection::vec(act(0, 0, 0), 0..60),
        losses in prop::collection::vec(act(0, 1, 0), 0..60),
    ) {
        let mut model = play(Park::Criu, before);
        let common = model.daemons[0].sealed.intersection(&model.daemons[1].sealed).next().is_some();
        if !common || model.story.app.has_ended() {
            return Ok(());
        }
        for act in losses {
            match act {
                Act::Lose(node) => model.lose(node),
                Act::LoseDaemon(node) => model.lose_daemon(node),
                Act::Regain(node) => model.regain(node),
                Act::Step(node, luck) => model.step(node, luck),
                Act::Seal(node, well) => model.seal(node, well),
                Act::Order(order) => model.feed(Input::Order(order)),
                _ => {}
            }
        }
        model.drain();
        model.assert_reported_where_it_rests();
        prop_assert!(!model.story.app.has_ended(), "{:?}", model.last);
    }

    /// Nor because the disk of a node is lost, where another one has the copy of what it had sealed.
    #[test]
    fn what_is_copied_is_not_lost_with_a_disk(
        before in prop::collection::vec(act(0, 0, 0), 0..60),
        lost in 0..2u32,
        meanwhile in prop::collection::vec(act(0, 0, 0), 0..10),
    ) {
        let mut model = play(Park::Criu, before);
        let common = model.daemons[0].sealed.intersection(&model.daemons[1].sealed).next().is_some();
        if !common || model.story.app.has_ended() {
            return Ok(());
        }
        model.lose_disk(lost);
        for act in meanwhile {
            if let Act::Step(node, luck) = act {
                model.step(node, luck);
            }
        }
        model.drain();
        model.assert_reported_where_it_rests();
        prop_assert!(!model.story.app.has_ended(), "{:?}", model.last);
    }

    #[test]
    fn the_last_order_is_obeyed_where_nothing_fails(
        park in parks(),
        acts in prop::collection::vec(act(0, 0, 0), 0..150),
        last in prop::sample::select(ORDERS.to_vec()),
    ) {
        let mut model = play(park, acts);
        let before = model.story.app.state.clone();
        if model.last == Some(Report::Unlaunched) {
            return Ok(());
        }
        model.feed(Input::Order(last));
        model.drain();
        model.assert_reported_where_it_rests();
        let state = &model.story.app.state;
        let obeyed = match (last, before) {
            (Order::Park, _) | (Order::Suspend | Order::Resume | Order::Launch, State::Parked) => {
                matches!(state, State::Parked)
            }
            (Order::Restore | Order::Resume, _) | (Order::Prefetch | Order::Launch, State::Running) => {
                matches!(state, State::Running)
            }
            _ => matches!(state, State::Suspended),
        };
        prop_assert!(obeyed, "{last:?} led to {state:?}: {:?}", model.last);
    }
}
