//! Operations without a network: each message arrives, one after the other.

use proptest::prelude::*;

use super::*;

const X: Address = Address(1);
const Y: Address = Address(2);
const EVENT: Address = Address(3);

fn node(number: u32) -> NodeId {
    NodeId(number)
}

fn nodes(numbers: impl IntoIterator<Item = u32>) -> BTreeSet<NodeId> {
    numbers.into_iter().map(NodeId).collect()
}

fn put(to: Address, word: i64) -> Operation {
    Operation::Transfer { to, value: Value::Word(word), signal: None }
}

fn compare(variable: Address, value: i64, write: Option<(Address, i64)>) -> Operation {
    Operation::Compare { variable, comparison: Comparison::AtLeast, value, write }
}

/// Nodes and their master.
struct Cluster {
    memories: BTreeMap<NodeId, Memory>,
    master: Operations,
    /// Answers that have not arrived.
    answers: Vec<(NodeId, Answer)>,
    /// Nodes that are not heard.
    silent: BTreeSet<NodeId>,
}

impl Cluster {
    fn new(count: u32) -> Self {
        let memories = nodes(0..count).into_iter().map(|node| (node, Memory::default())).collect();
        let master = Operations::new(1);
        let mut cluster = Self { memories, master, answers: Vec::new(), silent: BTreeSet::new() };
        cluster.follow(1);
        cluster
    }

    /// Another master comes to all nodes.
    fn follow(&mut self, generation: u64) {
        self.master = Operations::new(generation);
        let all: Vec<NodeId> = self.memories.keys().copied().collect();
        for node in all {
            let sent = self.master.on_daemon(node, 1);
            self.post(sent);
        }
        let sent = self.master.on_all_known();
        self.post(sent);
        self.run();
    }

    fn post(&mut self, sent: Vec<Sent>) {
        for (nodes, message) in sent {
            for node in nodes {
                let memory = self.memories.get_mut(&node).expect("there is such a node");
                self.answers.extend(memory.on_message(message.clone()).map(|answer| (node, answer)));
            }
        }
    }

    fn run(&mut self) {
        loop {
            let is_heard = |(node, _): &(NodeId, Answer)| !self.silent.contains(node);
            let Some(index) = self.answers.iter().position(is_heard) else { break };
            let (node, answer) = self.answers.remove(index);
            let sent = self.master.on_answer(node, answer);
            self.post(sent);
        }
    }

    fn start(&mut self, on: impl IntoIterator<Item = u32>, operation: Operation) -> Number {
        let (number, sent) = self.master.start(nodes(on), operation);
        self.post(sent);
        self.run();
        number
    }

    fn outcome(&mut self, on: impl IntoIterator<Item = u32>, operation: Operation) -> Outcome {
        let number = self.start(on, operation);
        self.master.test_event(number).expect("it is over")
    }

    fn words(&self, address: Address) -> Vec<Option<i64>> {
        self.memories.values().map(|memory| memory.word(address)).collect()
    }
}

fn carried_out() -> Outcome {
    Outcome::CarriedOut { lost: BTreeSet::new() }
}

fn refused_by(numbers: impl IntoIterator<Item = u32>) -> Outcome {
    Outcome::Dropped { refused: nodes(numbers), lost: BTreeSet::new(), late: BTreeSet::new() }
}

#[test]
fn a_transfer_puts_a_block_on_its_nodes_and_signals_there_and_at_the_caller() {
    let mut cluster = Cluster::new(3);
    let value = Value::Block(b"program".to_vec().into());
    let transfer = Operation::Transfer { to: X, value: value.clone(), signal: Some(EVENT) };
    let number = cluster.start([0, 2], transfer);
    assert_eq!(cluster.master.test_event(number), Some(carried_out()));
    assert_eq!(cluster.master.test_event(number), None, "an event is taken once");
    assert!(!cluster.master.is_on_its_way(number), "nothing is to be waited for");
    for (node, memory) in &mut cluster.memories {
        let is_asked = node.0 != 1;
        assert_eq!(memory.value(X) == Some(&value), is_asked);
        assert_eq!(memory.test_event(EVENT), is_asked);
        assert!(!memory.test_event(EVENT));
    }
}

#[test]
fn a_comparison_writes_where_it_holds_on_all_nodes_and_nowhere_otherwise() {
    let mut cluster = Cluster::new(3);
    assert_eq!(cluster.outcome(0..3, compare(X, 0, None)), refused_by(0..3), "there is no such word");
    assert_eq!(cluster.outcome(0..3, put(X, 5)), carried_out());
    cluster.memories.get_mut(&node(1)).unwrap().set(X, 7);
    assert_eq!(cluster.outcome(0..3, compare(X, 6, Some((Y, 1)))), refused_by([0, 2]));
    assert_eq!(cluster.words(Y), [None; 3]);
    assert_eq!(cluster.outcome(0..3, compare(X, 5, Some((Y, 1)))), carried_out());
    assert_eq!(cluster.words(Y), [Some(1); 3]);
    assert_eq!(cluster.outcome([1], compare(X, 6, Some((X, 0)))), carried_out());
    assert_eq!(cluster.words(X), [Some(5), Some(0), Some(5)], "a single node is a set, too");
}

#[test]
fn a_node_keeps_its_changes_of_a_compared_word_back_until_all_are_decided() {
    let mut cluster = Cluster::new(2);
    cluster.outcome(0..2, put(X, 5));
    cluster.silent.insert(node(1));
    let number = cluster.start(0..2, compare(X, 5, Some((Y, 1))));
    let first = cluster.memories.get_mut(&node(0)).unwrap();
    first.set(X, 4);
    assert!(!first.test_event(X), "nor is a signal taken");
    assert_eq!(first.word(X), Some(5));
    first.set(Y, 9);
    assert_eq!(first.word(Y), Some(9), "other words are free");
    cluster.silent.clear();
    cluster.run();
    assert_eq!(cluster.master.test_event(number), Some(carried_out()));
    assert_eq!(cluster.words(X), [Some(4), Some(5)]);
    assert_eq!(cluster.words(Y), [Some(1); 2]);
}

#[test]
fn a_node_that_does_not_answer_is_late_or_lost_and_no_node_carries_the_operation_out() {
    let mut cluster = Cluster::new(3);
    cluster.outcome(0..3, put(X, 5));
    cluster.silent.insert(node(1));
    let number = cluster.start(0..3, compare(X, 5, None));
    assert_eq!(cluster.master.test_event(number), None);
    let sent = cluster.master.give_up(number);
    assert!(sent.is_empty(), "nodes hold nothing");
    let (refused, lost, late) = (BTreeSet::new(), BTreeSet::new(), nodes([1]));
    assert_eq!(cluster.master.test_event(number), Some(Outcome::Dropped { refused, lost, late }));

    let number = cluster.start(0..3, put(X, 6));
    let sent = cluster.master.on_lost(node(1));
    cluster.post(sent);
    cluster.run();
    let (refused, lost, late) = (BTreeSet::new(), nodes([1]), BTreeSet::new());
    let dropped = Outcome::Dropped { refused, lost, late };
    assert_eq!(cluster.master.test_event(number), Some(dropped.clone()));
    assert_eq!(cluster.words(X)[0], Some(5));
    assert_eq!(cluster.outcome(0..3, put(X, 6)), dropped, "it is still lost");
    assert_eq!(cluster.outcome([0, 2], put(X, 6)), carried_out());
}

#[test]
fn a_block_without_room_is_refused() {
    let mut cluster = Cluster::new(2);
    let block =
        |bytes| Operation::Transfer { to: X, value: Value::Block(vec![0; bytes].into()), signal: None };
    assert_eq!(cluster.outcome([0], block(BLOCKS_MAX)), carried_out());
    assert_eq!(cluster.outcome(0..2, put(Y, 1)), carried_out(), "a word needs none");
    let other = Operation::Transfer { to: EVENT, value: Value::Block(vec![0].into()), signal: None };
    assert_eq!(cluster.outcome(0..2, other), refused_by([0]));
    assert_eq!(cluster.outcome(0..2, block(1)), carried_out(), "it takes the place of the other one");
}

#[test]
fn the_next_master_finds_the_memory_and_ends_what_the_one_before_has_begun() {
    let mut cluster = Cluster::new(3);
    cluster.outcome(0..3, put(X, 5));
    cluster.silent.insert(node(2));
    cluster.start(0..3, put(X, 6));
    assert_eq!(cluster.words(X), [Some(5); 3], "all hold it, and one has not said so");
    (cluster.answers, cluster.silent) = (Vec::new(), BTreeSet::new());
    cluster.follow(2);
    assert_eq!(cluster.words(X), [Some(6); 3]);
    assert_eq!(cluster.outcome(0..3, compare(X, 6, None)), carried_out());
}

fn operations() -> impl Strategy<Value = Vec<(BTreeSet<NodeId>, Operation)>> {
    let address = || (0u32..3).prop_map(Address);
    let operation = prop_oneof![
        (address(), -2i64..3, prop::option::of(address()))
            .prop_map(|(to, word, signal)| { Operation::Transfer { to, value: Value::Word(word), signal } }),
        (address(), -2i64..3, prop::option::of((address(), -2i64..3)), 0usize..6).prop_map(
            |(variable, value, write, which)| {
                use Comparison::{AtLeast, AtMost, Equal, Greater, Less, NotEqual};
                let comparison = [AtLeast, AtMost, Equal, Greater, Less, NotEqual][which];
                Operation::Compare { variable, comparison, value, write }
            }
        ),
    ];
    let set = prop::collection::btree_set((0u32..5).prop_map(NodeId), 0..6);
    prop::collection::vec((set, operation), 0..60)
}

proptest! {
    /// All callers at once, answers in any order: as if one operation ran after the other.
    #[test]
    fn without_faults_operations_are_those_of_one_memory_for_each_node(
        operations in operations(),
        order in prop::collection::vec(any::<prop::sample::Index>(), 2000),
    ) {
        let mut cluster = Cluster::new(5);
        let mut model: Vec<BTreeMap<Address, i64>> = vec![BTreeMap::new(); 5];
        let mut expected = Vec::new();
        for (set, operation) in &operations {
            let (number, sent) = cluster.master.start(set.clone(), operation.clone());
            cluster.post(sent);
            let set: Vec<usize> = set.iter().map(|node| node.0 as usize).collect();
            let holds = |node: &usize| match operation {
                Operation::Transfer { .. } => true,
                Operation::Compare { variable, comparison, value, .. } => {
                    model[*node].get(variable).is_some_and(|word| comparison.holds(*word, *value))
                }
            };
            let is_carried_out = set.iter().all(holds);
            expected.push((number, is_carried_out));
            for node in set.iter().filter(|_| is_carried_out) {
                match operation {
                    Operation::Transfer { to, value: Value::Word(word), signal } => {
                        model[*node].insert(*to, *word);
                        signal.iter().for_each(|event| *model[*node].entry(*event).or_default() += 1);
                    }
                    Operation::Compare { write: Some((address, word)), .. } => {
                        model[*node].insert(*address, *word);
                    }
                    _ => {}
                }
            }
        }
        for which in order.iter().cycle() {
            if cluster.answers.is_empty() {
                break;
            }
            let (node, _) = cluster.answers[which.index(cluster.answers.len())];
            let first = cluster.answers.iter().position(|(other, _)| *other == node).expect("itself");
            let (node, answer) = cluster.answers.remove(first);
            let sent = cluster.master.on_answer(node, answer);
            cluster.post(sent);
        }
        for (number, is_carried_out) in expected {
            let outcome = cluster.master.test_event(number).expect("it is over");
            prop_assert_eq!(outcome.is_carried_out(), is_carried_out);
        }
        for (memory, model) in cluster.memories.values().zip(&model) {
            for address in (0..3).map(Address) {
                prop_assert_eq!(memory.word(address), model.get(&address).copied());
            }
        }
    }
}

#[test]
fn a_master_asks_all_nodes_at_once_whether_they_follow_it() {
    let mut cluster = Cluster::new(3);
    assert_eq!(cluster.outcome(0..3, Operation::follows(1)), carried_out());
    cluster.follow(2);
    assert_eq!(cluster.outcome(0..3, Operation::follows(2)), carried_out());
    assert_eq!(cluster.outcome(0..3, Operation::follows(1)), refused_by(0..3), "that was the one before");
    // One that does not answer holds nothing up for longer than the caller waits.
    cluster.silent.insert(node(1));
    let number = cluster.start(0..3, Operation::follows(2));
    assert_eq!(cluster.master.test_event(number), None);
    let sent = cluster.master.give_up(number);
    assert!(sent.is_empty(), "there is nothing to decide");
    let late = Outcome::Dropped { refused: BTreeSet::new(), lost: BTreeSet::new(), late: nodes([1]) };
    assert_eq!(cluster.master.test_event(number), Some(late));
    assert_eq!(cluster.outcome([0, 2], put(X, 1)), carried_out());
}
