//! Programs that are sent over the primitives, with nodes that write at any time and may be lost.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::{
    NodeId,
    primitives::{
        Answer, Comparison, Memory, Message, Number, Operation, Operations, Sent, SharedBytes, Value,
    },
};

struct Node {
    memory: Memory,
    receiving: Receiving,
    /// Fragments that were taken and are not written.
    writing: VecDeque<SharedBytes>,
    file: Vec<u8>,
    /// Messages that have not arrived.
    come: VecDeque<Message>,
    most: usize,
}

impl Node {
    /// A message of the master arrives.
    fn hear(&mut self) -> Option<Answer> {
        let answer = self.memory.on_message(self.come.pop_front()?);
        while let Some(fragment) = self.receiving.take(&mut self.memory) {
            self.writing.push_back(fragment);
        }
        self.most = self.most.max(self.writing.len());
        answer
    }

    fn write(&mut self) {
        if let Some(fragment) = self.writing.pop_front() {
            self.file.extend_from_slice(&fragment);
            self.receiving.on_written(&mut self.memory);
        }
    }
}

struct Cluster {
    nodes: BTreeMap<NodeId, Node>,
    lost: BTreeSet<NodeId>,
    master: Operations,
    sending: Sending,
    /// Operations that were started, in order; true: transfers.
    started: VecDeque<(Number, bool)>,
    program: Vec<u8>,
}

impl Cluster {
    /// A small program has as many fragments as a large one would: each byte is one.
    fn new(count: u32, length: u32) -> Self {
        let program: Vec<u8> = (0..length).map(|byte| byte.to_le_bytes()[0]).collect();
        let begin = |number| {
            let mut memory = Memory::default();
            let receiving = Receiving::begin(u64::from(length) * FRAGMENT_BYTES, &mut memory);
            let (writing, come) = (VecDeque::new(), VecDeque::new());
            (NodeId(number), Node { memory, receiving, writing, file: Vec::new(), come, most: 0 })
        };
        let mut cluster = Self {
            nodes: (0..count).map(begin).collect(),
            lost: BTreeSet::new(),
            master: Operations::new(1),
            sending: Sending::new(length),
            started: VecDeque::new(),
            program,
        };
        for node in (0..count).map(NodeId) {
            let sent = cluster.master.on_daemon(node, 1);
            cluster.post(sent);
        }
        let sent = cluster.master.on_all_known();
        cluster.post(sent);
        while cluster.nodes.values().any(|node| !node.come.is_empty()) {
            (0..count).for_each(|node| cluster.deliver(NodeId(node)));
        }
        cluster
    }

    fn post(&mut self, sent: Vec<Sent>) {
        for (nodes, message) in sent {
            for node in nodes {
                self.nodes.get_mut(&node).expect("there is such a node").come.push_back(message.clone());
            }
        }
    }

    fn deliver(&mut self, node: NodeId) {
        let answer = self.nodes.get_mut(&node).and_then(Node::hear);
        if let Some(answer) = answer.filter(|_| !self.lost.contains(&node)) {
            let sent = self.master.on_answer(node, answer);
            self.post(sent);
        }
    }

    fn lose(&mut self, node: NodeId) {
        self.lost.insert(node);
        let sent = self.master.on_lost(node);
        self.post(sent);
    }

    /// The master does what it can; true where all nodes have the program.
    fn go_on(&mut self) -> Result<bool, Refused> {
        loop {
            let (operation, is_transfer) = match self.sending.step() {
                Next::Done => return Ok(true),
                Next::Transfer(fragment) => {
                    let value = Value::Block(vec![self.program[fragment as usize]].into());
                    (Operation::Transfer { to: slot(fragment), value, signal: Some(ARRIVED) }, true)
                }
                Next::Compare(taken) => {
                    let (variable, comparison, value) = (TAKEN, Comparison::AtLeast, i64::from(taken));
                    (Operation::Compare { variable, comparison, value, write: None }, false)
                }
                Next::Wait => {
                    let (number, is_transfer) =
                        *self.started.front().expect("what is waited for was started");
                    let Some(outcome) = self.master.test_event(number) else { return Ok(false) };
                    self.started.pop_front();
                    match is_transfer {
                        true => self.sending.on_transferred(outcome)?,
                        false => self.sending.on_compared(outcome)?,
                    }
                    continue;
                }
                Next::Pause => {
                    self.sending.on_pause_over();
                    return Ok(false);
                }
            };
            let (number, sent) = self.master.start(self.nodes.keys().copied().collect(), operation);
            self.started.push_back((number, is_transfer));
            self.post(sent);
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Deliver(u32),
    Write(u32),
    Lose(u32),
}

fn act(nodes: u32, may_lose: bool) -> impl Strategy<Value = Act> {
    let lose = if may_lose { 1 } else { 0 };
    prop_oneof![
        40 => (0..nodes).prop_map(Act::Deliver),
        20 => (0..nodes).prop_map(Act::Write),
        lose => (0..nodes).prop_map(Act::Lose),
    ]
}

fn carry_out(cluster: &mut Cluster, act: Act) {
    match act {
        Act::Deliver(node) => cluster.deliver(NodeId(node)),
        Act::Write(node) => cluster.nodes.get_mut(&NodeId(node)).expect("there is such a node").write(),
        Act::Lose(node) => cluster.lose(NodeId(node)),
    }
}

/// Whatever was to come comes, and is written.
fn settle(cluster: &mut Cluster, count: u32) -> Result<bool, Refused> {
    for _ in 0..10_000 {
        if cluster.go_on()? {
            return Ok(true);
        }
        for node in 0..count {
            cluster.deliver(NodeId(node));
            carry_out(cluster, Act::Write(node));
        }
    }
    Ok(false)
}

proptest! {
    #[test]
    fn every_node_gets_every_fragment_once_in_order_and_holds_a_window_at_most(
        length in 1..60u32,
        acts in prop::collection::vec(act(4, false), 0..600),
    ) {
        let mut cluster = Cluster::new(4, length);
        for act in acts {
            if cluster.go_on().expect("no node is lost, and all have room") {
                prop_assert!(cluster.nodes.values().all(|node| node.file == cluster.program));
            }
            carry_out(&mut cluster, act);
        }
        prop_assert_eq!(settle(&mut cluster, 4), Ok(true));
        for node in cluster.nodes.values() {
            prop_assert_eq!(&node.file, &cluster.program);
            prop_assert!(node.most <= WINDOW as usize, "{} fragments were held", node.most);
        }
    }

    #[test]
    fn the_loss_of_a_node_ends_it_and_is_named(
        length in 1..60u32,
        acts in prop::collection::vec(act(4, true), 0..600),
        last in 0..4u32,
    ) {
        let mut cluster = Cluster::new(4, length);
        let mut outcome = cluster.go_on();
        for act in acts {
            if !matches!(outcome, Ok(false)) {
                break;
            }
            carry_out(&mut cluster, act);
            outcome = cluster.go_on();
        }
        if outcome == Ok(false) {
            cluster.lose(NodeId(last));
            outcome = settle(&mut cluster, 4);
        }
        match outcome {
            // All had written it before.
            Ok(done) => {
                prop_assert!(done);
                prop_assert!(cluster.nodes.values().all(|node| node.file == cluster.program));
            }
            Err(Refused::Lost(lost)) => prop_assert!(lost.iter().all(|node| cluster.lost.contains(node))),
            Err(refused) => prop_assert!(false, "{refused:?}"),
        }
    }
}

#[test]
fn a_node_that_writes_nothing_stops_the_master_after_a_window() {
    let mut cluster = Cluster::new(2, 30);
    for _ in 0..200 {
        assert_eq!(cluster.go_on(), Ok(false));
        (0..2).for_each(|node| cluster.deliver(NodeId(node)));
        carry_out(&mut cluster, Act::Write(0));
    }
    let [one, other] = [0, 1].map(|node| &cluster.nodes[&NodeId(node)]);
    assert_eq!((one.file.len(), other.file.len()), (WINDOW as usize, 0));
    assert_eq!(other.writing.len(), WINDOW as usize);
}

#[test]
fn nothing_of_a_program_that_was_given_up_is_in_the_way_of_the_next() {
    let mut cluster = Cluster::new(1, 3);
    assert_eq!(cluster.go_on(), Ok(false));
    cluster.deliver(NodeId(0));
    let Node { memory, .. } = cluster.nodes.get_mut(&NodeId(0)).expect("it is there");
    let mut next = Receiving::begin(FRAGMENT_BYTES, memory);
    assert_eq!((memory.word(TAKEN), memory.word(ARRIVED).unwrap_or_default()), (Some(0), 0));
    assert_eq!(next.take(memory), None);
    assert_eq!(memory.value(slot(0)), None);
}

#[test]
fn a_program_has_as_many_fragments_as_it_takes() {
    let sizes = [1, FRAGMENT_BYTES, FRAGMENT_BYTES + 1, 12 << 20];
    assert_eq!(sizes.map(fragments), [1, 1, 2, 24]);
}
