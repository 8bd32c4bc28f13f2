//! Daemons that die or are cut off, masters that are replaced, messages that are late, repeated or lost, in
//! any order.
//!
//! Each operation leaves a mark at an address of its own, so that the test sees where it was carried out.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

const NODES: u32 = 4;
/// Words that operations and nodes share.
const WORDS: u32 = 3;
/// The mark of an operation lies here and at later addresses.
const MARKS: u32 = 1000;

#[derive(Clone, Debug)]
enum Step {
    /// The first message to a node, or the first from it, arrives.
    Down(u32),
    Up(u32),
    /// A message comes once more, of whatever master.
    Repeat(usize),
    /// The daemon dies, and the node has another one.
    Dies(u32),
    /// The session breaks when the node has got so many more messages. The daemon lives, or it dies.
    CutOff(u32, Option<usize>),
    /// A session with the daemon begins.
    Joins(u32),
    /// Another master, which reaches the nodes with these bits, one after the other. Meanwhile the others
    /// hear so many messages of the one before.
    Master(u32, usize),
    Starts(u32, Act),
    GivesUp(usize),
    Sets(u32, u32, i64),
    Tests(u32, u32),
}

/// An operation without its mark.
#[derive(Clone, Copy, Debug)]
enum Act {
    Puts(u32, i64),
    /// Writes its mark where the word is at least that.
    Marks(u32, i64),
    /// Writes a shared word.
    Writes(u32, i64, u32),
    Reads(u32, i64),
}

fn steps(is_cut_off: bool) -> impl Strategy<Value = Vec<Step>> {
    let node = || 0..NODES;
    let word = || 0..WORDS;
    let act = prop_oneof![
        4 => (word(), -1i64..3).prop_map(|(word, value)| Act::Puts(word, value)),
        4 => (word(), -1i64..3).prop_map(|(word, value)| Act::Marks(word, value)),
        1 => (word(), -1i64..3, word()).prop_map(|(word, value, to)| Act::Writes(word, value, to)),
        1 => (word(), -1i64..3).prop_map(|(word, value)| Act::Reads(word, value)),
    ];
    // No node is out of reach otherwise.
    let more = if is_cut_off { (0usize..4).prop_map(Some).boxed() } else { Just(None).boxed() };
    let late = if is_cut_off { 4usize } else { 1 };
    let masters = if is_cut_off { any::<u32>().boxed() } else { Just(u32::MAX).boxed() };
    let step = prop_oneof![
        30 => node().prop_map(Step::Down),
        30 => node().prop_map(Step::Up),
        3 => any::<usize>().prop_map(Step::Repeat),
        2 => node().prop_map(Step::Dies),
        2 => (node(), more).prop_map(|(node, more)| Step::CutOff(node, more)),
        4 => node().prop_map(Step::Joins),
        2 => (masters, 0..late).prop_map(|(bits, more)| Step::Master(bits, more)),
        8 => (prop_oneof![any::<u32>(), Just(u32::MAX)], act).prop_map(|(bits, act)| Step::Starts(bits, act)),
        1 => any::<usize>().prop_map(Step::GivesUp),
        2 => (node(), word(), -1i64..3).prop_map(|(node, word, value)| Step::Sets(node, word, value)),
        1 => (node(), word()).prop_map(|(node, word)| Step::Tests(node, word)),
    ];
    prop::collection::vec(step, 0..250)
}

/// A daemon, and the times that it had to forget everything.
type Life = (u64, u32);

struct Daemon {
    incarnation: u64,
    forgot: u32,
    memory: Memory,
    /// Of the last master that has had a session with it.
    followed: u64,
    is_connected: bool,
    inbox: VecDeque<Message>,
    outbox: VecDeque<Answer>,
    marks: BTreeSet<u32>,
}

impl Daemon {
    fn new(incarnation: u64) -> Self {
        Self {
            incarnation,
            forgot: 0,
            memory: Memory::default(),
            followed: 0,
            is_connected: false,
            inbox: VecDeque::new(),
            outbox: VecDeque::new(),
            marks: BTreeSet::new(),
        }
    }

    const fn life(&self) -> Life {
        (self.incarnation, self.forgot)
    }

    /// A node that was never admitted joins with nothing to forget.
    fn begins_anew(&mut self) {
        assert!(self.report().is_as_new() && self.marks.is_empty());
        self.forgot += 1;
    }

    fn hang_up(&mut self) {
        (self.inbox, self.outbox) = (VecDeque::new(), VecDeque::new());
        self.is_connected = false;
    }

    fn report(&self) -> Report {
        let message = Message { generation: u64::MAX, request: Request::Describe };
        match self.memory.clone().on_message(message) {
            Some(Answer::Holds(report)) => *report,
            other => unreachable!("{other:?}"),
        }
    }
}

/// What is known of an operation.
struct Known {
    number: Number,
    operation: Operation,
    nodes: BTreeSet<NodeId>,
    /// Those that were asked, as they were then.
    asked: BTreeMap<NodeId, Life>,
    /// Some node has carried it out.
    was_carried_out: bool,
    outcome: Option<Outcome>,
    /// The nodes that knew of the decision when the caller saw the outcome; only where a node was lost.
    known_to: Option<BTreeMap<NodeId, Life>>,
    /// None of them was there when some later master took over.
    is_unknown: bool,
}

struct World {
    daemons: Vec<Daemon>,
    master: Operations,
    generation: u64,
    operations: Vec<Known>,
    /// What nodes have got before.
    old: Vec<(NodeId, Message)>,
    is_cut_off: bool,
    /// The last master that has taken over.
    taken_over: u64,
}

impl World {
    fn new(is_cut_off: bool) -> Self {
        let daemons = (0..NODES).map(|_| Daemon::new(1)).collect();
        let (operations, old) = (Vec::new(), Vec::new());
        let master = Operations::new(1);
        let mut world = Self { daemons, master, generation: 0, operations, old, is_cut_off, taken_over: 0 };
        world.next_master(u32::MAX);
        world
    }

    fn at(&mut self, node: NodeId) -> &mut Daemon {
        &mut self.daemons[node.0 as usize]
    }

    fn next_master(&mut self, bits: u32) {
        self.daemons.iter_mut().for_each(Daemon::hang_up);
        self.generation += 1;
        self.master = Operations::new(self.generation);
        for node in (0..NODES).filter(|node| bits >> node & 1 == 1) {
            self.connect(NodeId(node));
        }
        let sent = self.master.on_all_known();
        self.post(sent);
    }

    fn connect(&mut self, node: NodeId) {
        let generation = self.generation;
        let daemon = self.at(node);
        (daemon.is_connected, daemon.followed) = (true, generation);
        if self.master.has_taken_over && self.at(node).report().is_as_new() {
            self.at(node).begins_anew();
        }
        let sent = self.master.on_daemon(node, self.daemons[node.0 as usize].incarnation);
        self.post(sent);
    }

    fn post(&mut self, sent: Vec<Sent>) {
        for (nodes, message) in sent {
            if let Request::Ask { number, nodes, .. } = &message.request {
                let life = |node: &NodeId| (*node, self.daemons[node.0 as usize].life());
                let asked = nodes.keys().map(life).collect();
                self.known(*number).asked = asked;
            }
            let is_first = matches!(&message.request, Request::Admit(roster) if roster.generation > 0)
                && self.taken_over < self.generation;
            if is_first {
                self.taken_over = self.generation;
                self.on_taken_over();
            }
            for node in nodes {
                self.at(node).inbox.push_back(message.clone());
            }
        }
        self.look();
    }

    fn on_taken_over(&mut self) {
        for daemon in self.daemons.iter_mut().filter(|daemon| daemon.is_connected) {
            if daemon.report().is_as_new() {
                daemon.begins_anew();
            }
        }
        for known in &mut self.operations {
            let is_here = |(node, life): (&NodeId, &Life)| {
                let daemon = &self.daemons[node.0 as usize];
                daemon.is_connected && daemon.life() == *life
            };
            if known.known_to.as_ref().is_some_and(|nodes| !nodes.iter().any(is_here)) {
                known.is_unknown = true;
            }
        }
    }

    fn known(&mut self, number: Number) -> &mut Known {
        self.operations.iter_mut().find(|known| known.number == number).expect("it was started")
    }

    /// Callers look for the ends of their operations.
    fn look(&mut self) {
        for index in 0..self.operations.len() {
            let Known { number, .. } = self.operations[index];
            let Some(outcome) = self.master.test_event(number) else { continue };
            let members = self.master.members().keys().map(|node| (*node, &self.daemons[node.0 as usize]));
            // One that has joined since then knows nothing of it.
            let knowing = members.filter(|(_, daemon)| daemon.report().decided.contains_key(&number));
            let knowing = knowing.map(|(node, daemon)| (node, daemon.life())).collect();
            let known = &self.operations[index];
            let mark = MARKS + index as u32;
            let leaves_mark = leaves_mark(&known.operation);
            for (node, life) in &known.asked {
                let daemon = &self.daemons[node.0 as usize];
                if daemon.life() != *life || !leaves_mark {
                    continue;
                }
                let has = daemon.marks.contains(&mark);
                match &outcome {
                    Outcome::CarriedOut { lost } => {
                        assert!(has || lost.contains(node), "{node} has {number:?}")
                    }
                    Outcome::Dropped { .. } => assert!(!has, "{node} has not carried {number:?} out"),
                }
            }
            let has_lost = match &outcome {
                Outcome::CarriedOut { lost } | Outcome::Dropped { lost, .. } => !lost.is_empty(),
            };
            let known = &mut self.operations[index];
            assert!(known.outcome.is_none(), "an outcome is seen once");
            known.known_to = has_lost.then_some(knowing);
            known.outcome = Some(outcome);
        }
    }

    fn start(&mut self, bits: u32, act: Act) {
        let nodes = (0..NODES).filter(|node| bits >> node & 1 == 1).map(NodeId).collect::<BTreeSet<_>>();
        let mark = Address(MARKS + self.operations.len() as u32);
        let compare = |variable, value, write| {
            let variable = Address(variable);
            Operation::Compare { variable, comparison: Comparison::AtLeast, value, write }
        };
        let operation = match act {
            Act::Puts(to, word) => {
                Operation::Transfer { to: Address(to), value: Value::Word(word), signal: Some(mark) }
            }
            Act::Marks(variable, value) => compare(variable, value, Some((mark, 1))),
            Act::Writes(variable, value, to) => compare(variable, value, Some((Address(to), 2))),
            Act::Reads(variable, value) => compare(variable, value, None),
        };
        let (number, sent) = self.master.start(nodes.clone(), operation.clone());
        self.operations.push(Known {
            number,
            operation,
            nodes,
            asked: BTreeMap::new(),
            was_carried_out: false,
            outcome: None,
            known_to: None,
            is_unknown: false,
        });
        self.post(sent);
    }

    fn hears(&mut self, node: NodeId, message: Message) {
        let is_forget = matches!(message.request, Request::Forget { .. });
        let carried_out = match message.request {
            Request::Decide { number, carries_out: true } => Some(number),
            _ => None,
        };
        let held = self.at(node).report().held;
        if let Some(number) = carried_out
            && held.is_some_and(|(held, _)| held == number)
        {
            self.check_condition(node, number);
        }
        let daemon = self.at(node);
        let before = daemon.report();
        if let Some(answer) = daemon.memory.on_message(message)
            && daemon.is_connected
        {
            daemon.outbox.push_back(answer);
        }
        if is_forget && before != daemon.report() {
            daemon.forgot += 1;
            daemon.marks.clear();
        }
        for index in 0..self.operations.len() {
            let (address, mark) = (Address(MARKS + index as u32), MARKS + index as u32);
            match self.at(node).memory.word(address) {
                None => assert!(!self.at(node).marks.contains(&mark), "what was written stays"),
                Some(1) if self.at(node).marks.insert(mark) => self.on_carried_out(node, index),
                Some(1) => {}
                Some(other) => panic!("it was carried out {other} times"),
            }
        }
    }

    /// The condition holds, here and wherever else the operation is held.
    fn check_condition(&mut self, node: NodeId, number: Number) {
        let Known { operation, .. } = self.known(number);
        let Operation::Compare { variable, comparison, value, .. } = operation.clone() else { return };
        let holders = self.daemons.iter().enumerate().filter(|(other, daemon)| {
            let held = daemon.report().held;
            *other == node.0 as usize || daemon.is_connected && held.is_some_and(|(held, _)| held == number)
        });
        for (_, daemon) in holders {
            let word = daemon.memory.word(variable).expect("it was compared");
            assert!(comparison.holds(word, value), "the condition holds until all have written");
        }
    }

    fn on_carried_out(&mut self, node: NodeId, index: usize) {
        let daemon = &self.daemons[node.0 as usize];
        let known = &mut self.operations[index];
        assert!(known.nodes.contains(&node), "{node} was asked");
        let later = daemon.marks.range(MARKS + index as u32 + 1..).next();
        assert!(later.is_none(), "{node} carries out in order");
        known.was_carried_out = true;
        if let Some(Outcome::Dropped { .. }) = known.outcome {
            assert!(known.is_unknown, "{node} carries out what a caller has seen dropped");
        }
    }

    fn answers(&mut self, node: NodeId) {
        if let Some(answer) = self.at(node).outbox.pop_front() {
            let sent = self.master.on_answer(node, answer);
            self.post(sent);
        }
    }

    fn takes(&mut self, node: NodeId) {
        if let Some(message) = self.at(node).inbox.pop_front() {
            self.old.push((node, message.clone()));
            self.hears(node, message);
        }
    }

    fn lose(&mut self, node: NodeId) {
        let was_connected = self.at(node).is_connected;
        self.at(node).hang_up();
        if was_connected {
            let sent = self.master.on_lost(node);
            self.post(sent);
        }
    }

    fn on(&mut self, step: Step) {
        match step {
            Step::Down(node) => self.takes(NodeId(node)),
            Step::Up(node) => self.answers(NodeId(node)),
            Step::Repeat(which) if !self.old.is_empty() => {
                let (node, message) = self.old[which % self.old.len()].clone();
                self.hears(node, message);
            }
            Step::Repeat(_) => {}
            Step::Dies(node) | Step::CutOff(node, None) => {
                let node = NodeId(node);
                let next = self.at(node).incarnation + 1;
                self.lose(node);
                *self.at(node) = Daemon::new(next);
                self.old.retain(|(other, _)| *other != node);
            }
            Step::CutOff(node, Some(more)) => {
                (0..more).for_each(|_| self.takes(NodeId(node)));
                self.lose(NodeId(node));
            }
            Step::Joins(node) => {
                let generation = self.generation;
                let daemon = self.at(NodeId(node));
                if !daemon.is_connected && daemon.followed < generation {
                    self.connect(NodeId(node));
                }
            }
            Step::Master(bits, more) => {
                for node in (0..NODES).map(NodeId) {
                    self.lose(node);
                    for other in (node.0 + 1..NODES).map(NodeId) {
                        (0..more).for_each(|_| self.takes(other));
                        (0..more).for_each(|_| self.answers(other));
                    }
                }
                self.next_master(bits);
            }
            Step::Starts(bits, act) => self.start(bits, act),
            Step::GivesUp(which) if !self.operations.is_empty() => {
                let number = self.operations[which % self.operations.len()].number;
                let sent = self.master.give_up(number);
                self.post(sent);
            }
            Step::GivesUp(_) => {}
            Step::Sets(node, address, word) => self.at(NodeId(node)).memory.set(Address(address), word),
            Step::Tests(node, event) => drop(self.at(NodeId(node)).memory.test_event(Address(event))),
        }
    }

    /// All that is on its way arrives.
    fn drain(&mut self) {
        while self.daemons.iter().any(|daemon| !daemon.inbox.is_empty() || !daemon.outbox.is_empty()) {
            for node in (0..NODES).map(NodeId) {
                self.takes(node);
                self.answers(node);
            }
        }
    }

    /// All or none.
    fn check(&self) {
        for (index, known) in self.operations.iter().enumerate() {
            let mark = MARKS + index as u32;
            let there = known.asked.iter().filter_map(|(node, life)| {
                let daemon = &self.daemons[node.0 as usize];
                (daemon.is_connected && daemon.life() == *life).then(|| daemon.marks.contains(&mark))
            });
            let there: Vec<bool> = there.collect();
            let is_one = there.iter().all(|has| *has == there[0]);
            assert!(is_one, "all or none carry {:?} out: {there:?} {:?}", known.number, known.asked);
            if known.was_carried_out && !self.is_cut_off {
                assert!(there.iter().all(|has| *has), "a node that has died has carried it out");
            }
            if known.number.generation == self.generation {
                assert!(known.outcome.is_some(), "{:?} ends: {:?}", known.number, self.master);
            }
        }
        for daemon in self.daemons.iter().filter(|daemon| daemon.is_connected) {
            assert!(daemon.report().held.is_none(), "nothing is left undecided");
        }
    }
}

fn leaves_mark(operation: &Operation) -> bool {
    match operation {
        Operation::Transfer { .. } => true,
        Operation::Compare { write, .. } => write.is_some_and(|(address, _)| address.0 >= MARKS),
    }
}

fn live(is_cut_off: bool, steps: Vec<Step>) {
    let mut world = World::new(is_cut_off);
    for step in steps {
        world.on(step);
    }
    world.drain();
    world.check();
    world.next_master(u32::MAX);
    world.drain();
    world.check();
    world.start(u32::MAX, Act::Puts(0, 7));
    world.drain();
    let last = world.operations.last().expect("it was started");
    assert!(last.outcome.as_ref().is_some_and(Outcome::is_carried_out), "the cluster is whole again");
    let holds = |daemon: &Daemon| daemon.memory.word(Address(0)) == Some(7);
    assert!(world.daemons.iter().all(holds));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    /// Daemons die, and masters are replaced, and each reaches all nodes: what one node has carried out, all
    /// others do, also where that node has died.
    #[test]
    fn all_nodes_or_none_carry_an_operation_out_where_daemons_and_masters_die(steps in steps(false)) {
        live(false, steps);
    }

    /// Masters also lose daemons that live and come back to later masters.
    #[test]
    fn all_nodes_or_none_carry_an_operation_out_where_nodes_are_cut_off(steps in steps(true)) {
        live(true, steps);
    }
}
