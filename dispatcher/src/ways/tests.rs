use std::collections::VecDeque;

use coswitch_daemon::{
    answers::{Saying, Way},
    multicast::{InOrder, Subject},
    protocol::AppEvent,
};
use coswitch_policies::JobId;
use proptest::prelude::*;

use super::*;

const JOB: JobId = JobId(7);

/// A request that is known by its number.
fn request(number: u64) -> AppRequest {
    AppRequest::FenceDone { sequence: number, puts: Vec::new(), begin: 0 }
}

fn asked(number: u64) -> Asked {
    Asked::App { job: JOB, request: request(number) }
}

fn list(nodes: impl IntoIterator<Item = u32>) -> Vec<NodeId> {
    nodes.into_iter().map(NodeId).collect()
}

fn secret() -> TagKey {
    TagKey::from([7; 32])
}

/// As the daemon of the node reads it, in its first incarnation.
fn number_for(multicast: &Multicast, node: NodeId) -> Option<u64> {
    multicast.number_for(node, 1, &secret().for_node(node)).expect("its master has asked it")
}

/// All daemons pass on, in their first incarnation.
fn ways(radix: u32, nodes: u32) -> Ways {
    let mut ways = Ways::new(radix, 1, secret());
    for node in list(0..nodes) {
        ways.listen(node);
        assert!(matches!(ways.begin(node), Request::NumbersFrom { number: 1, .. }));
        ways.open(node, 1);
    }
    ways
}

/// The node of each message, and whether its daemon has to pass the request on.
fn shape(sent: &Sent) -> Vec<(u32, bool)> {
    sent.iter().map(|(node, request)| (node.0, matches!(request, Request::PassOn(_)))).collect()
}

#[test]
fn few_are_asked_one_by_one_and_many_by_the_tree() {
    let (now, mut ways) = (Instant::now(), ways(2, 7));
    assert_eq!(shape(&ways.send(now, &list([3, 6]), &asked(0))), [(3, false), (6, false)]);
    assert_eq!(shape(&ways.send(now, &list(0..7), &asked(1))), [(0, true), (1, true)]);
    let Request::PassOn(part) = &ways.send(now, &list(0..7), &asked(2))[0].1 else { panic!() };
    assert_eq!(number_for(part, NodeId(6)), Some(3), "numbers count both ways");
    assert_eq!(number_for(part, NodeId(2)), Some(2));
}

#[test]
fn what_a_node_has_not_heard_in_time_goes_by_its_session() {
    let (now, mut ways) = (Instant::now(), ways(2, 7));
    for number in 0..3 {
        let _ = ways.send(now, &list(0..7), &asked(number));
    }
    assert!(ways.on_heard(now, NodeId(6), 1).is_empty(), "it may be on its way");
    let again = ways.on_heard(now + AGAIN_AFTER, NodeId(6), 2);
    assert!(matches!(again[..], [(NodeId(6), Request::Ask { number: 3, .. })]), "{again:?}");
    assert!(ways.on_heard(now + 2 * AGAIN_AFTER, NodeId(6), 2).is_empty(), "a session loses nothing");
}

#[test]
fn what_passes_a_lost_a_silent_or_an_unreached_node_goes_by_the_sessions_at_once() {
    let now = Instant::now();
    let around = |act: fn(&mut Ways) -> Sent| {
        let mut ways = ways(2, 7);
        let _ = ways.send(now, &list(0..7), &asked(0));
        let around = shape(&act(&mut ways));
        (around, shape(&ways.send(now, &list(1..7), &asked(1))))
    };
    let by_tree = vec![(1, true), (2, true), (3, true)];
    assert_eq!(
        around(|ways| ways.on_lost(NodeId(0))),
        (vec![(2, false), (3, false), (6, false)], by_tree.clone())
    );
    let itself_too = vec![(0, false), (2, false), (3, false), (6, false)];
    assert_eq!(around(|ways| ways.on_silent(NodeId(0))), (itself_too.clone(), by_tree.clone()));
    assert_eq!(around(|ways| ways.on_not_passed(NodeId(0), 1)), (itself_too, by_tree));
    let (none, as_before) = around(|ways| ways.on_not_passed(NodeId(0), 0));
    assert_eq!((none, as_before), (vec![], vec![(0, true), (1, true)]), "of a daemon before");
}

#[test]
fn a_daemon_that_ends_is_asked_all_by_its_session_and_the_next_one_counts_on() {
    let (now, mut ways) = (Instant::now(), ways(1, 2));
    let _ = ways.send(now, &list(0..2), &asked(0));
    assert_eq!(shape(&ways.close(NodeId(1))), [(1, false)]);
    assert!(matches!(ways.begin(NodeId(1)), Request::NumbersFrom { number: 2, .. }));
    let later = ways.send(now, &list(0..2), &asked(1));
    assert_eq!(shape(&later), [(0, false), (1, false)], "one node that passes on is no tree");
    ways.open(NodeId(1), 2);
    assert_eq!(shape(&ways.send(now, &list(0..2), &asked(2))), [(0, true)]);
}

#[test]
fn what_another_daemon_brings_counts_only_as_it_was_said() {
    let ways = ways(2, 3);
    let mut saying = Saying::new(NodeId(2), 1);
    saying.set_key(secret().for_node(NodeId(2)));
    saying.on_asked(Subject::Job(JOB));
    let event = DaemonEvent::App { job: JOB, event: AppEvent::Discarded };
    let Way::Tree(said) = saying.say(Instant::now(), event) else { panic!("it was asked by the tree") };
    assert!(ways.is_genuine(NodeId(0), &said));
    let forged = Said { number: 2, ..said.clone() };
    assert!(!ways.is_genuine(NodeId(0), &forged));
    assert!(!ways.is_genuine(NodeId(0), &Said { node: NodeId(1), ..said }), "of another node");
    assert!(ways.is_genuine(NodeId(2), &forged), "by its own session");
}

#[test]
fn what_a_daemon_says_by_several_ways_is_read_once_and_in_order() {
    let mut ways = ways(2, 7);
    let mut says = |number: u64, node: u32| {
        let event = DaemonEvent::Refused { reason: number.to_string() };
        let read = ways.on_said(NodeId(node), number, event).into_iter();
        let numbers = read.map(|event| match event {
            DaemonEvent::Refused { reason } => reason,
            other => unreachable!("{other:?}"),
        });
        (numbers.collect::<String>(), ways.heard_of(NodeId(node)))
    };
    assert_eq!(says(1, 6), ("1".into(), 1));
    assert_eq!(says(3, 6), (String::new(), 1), "the second is on its way up the tree");
    assert_eq!(says(2, 6), ("23".into(), 3));
    assert_eq!(says(2, 6), (String::new(), 3), "said again");
    assert_eq!(says(1, 5), ("1".into(), 1), "each node counts for itself");
    ways.listen(NodeId(6));
    assert_eq!(ways.heard_of(NodeId(6)), 0, "the next daemon counts anew");
}

#[test]
fn a_node_is_heard_by_its_heartbeats_and_a_lost_one_is_not_waited_for() {
    let (now, mut ways) = (Instant::now(), ways(2, 2));
    let later = now + Duration::from_secs(1);
    for node in list(0..2) {
        let _ = ways.on_heard(now, node, 0);
    }
    assert!(ways.are_heard(&list(0..2), now));
    let _ = ways.on_heard(later, NodeId(0), 0);
    assert!(ways.are_heard(&list([0]), later) && !ways.are_heard(&list(0..2), later));
    let _ = ways.on_lost(NodeId(1));
    assert!(ways.are_heard(&list(0..2), later));
}

#[test]
fn an_answer_is_as_good_as_a_heartbeat_of_the_time_of_its_question() {
    let (now, mut ways) = (Instant::now(), ways(2, 4));
    let (asked, later) = (now + Duration::from_secs(1), now + Duration::from_secs(2));
    let all: BTreeSet<NodeId> = list(0..4).into_iter().collect();
    ways.on_answered(&all, asked);
    assert!(ways.are_heard(&all, later), "there was no heartbeat yet");
    for node in &all {
        let _ = ways.on_heard(now, *node, 0);
    }
    ways.on_answered(&all, asked);
    assert!(ways.are_heard(&all, asked) && !ways.are_heard(&all, later));
    assert_eq!(ways.on_tree(), all);
    let _ = ways.on_silent(NodeId(1));
    assert_eq!(ways.on_tree(), list([0, 2, 3]).into_iter().collect());
    let _ = ways.on_lost(NodeId(3));
    assert_eq!(ways.on_tree(), BTreeSet::new(), "two are asked one by one");
}

#[test]
fn equal_requests_in_a_row_are_one() {
    let ask = |node, number| Output::Ask(NodeId(node), request(number));
    let mut outputs = vec![ask(1, 5), ask(2, 5), ask(3, 6), ask(4, 5)].into_iter().peekable();
    assert_eq!(asked_as_well(NodeId(0), &request(5), &mut outputs), list(0..3));
    assert_eq!(outputs.count(), 2);
}

/// What happens to a cluster.
#[derive(Clone, Debug)]
enum Step {
    /// The nodes with these bits are asked.
    Ask(u32),
    /// The first message of a session arrives.
    Session(u32),
    /// One that is passed on arrives, any of them, or is lost.
    Arrives(usize),
    Lost(usize),
    /// The daemon dies, and the master hears of it at once or only by heartbeats of others.
    Dies(u32),
    Silent(u32),
    Again(u32),
    NotPassed(u32),
    Beats(u32),
    Waits,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let node = || 0u32..12;
    let step = prop_oneof![
        4 => any::<u32>().prop_map(Step::Ask),
        8 => node().prop_map(Step::Session),
        8 => any::<usize>().prop_map(Step::Arrives),
        2 => any::<usize>().prop_map(Step::Lost),
        1 => node().prop_map(Step::Dies),
        1 => node().prop_map(Step::Silent),
        1 => node().prop_map(Step::Again),
        1 => node().prop_map(Step::NotPassed),
        3 => node().prop_map(Step::Beats),
        1 => Just(Step::Waits),
    ];
    prop::collection::vec(step, 0..120)
}

#[derive(Default)]
struct Daemon {
    is_dead: bool,
    session: VecDeque<Request>,
    order: InOrder<Asked>,
    /// What it has been asked, and what it has carried out.
    asked: Vec<u64>,
    done: Vec<u64>,
}

struct Cluster {
    ways: Ways,
    daemons: Vec<Daemon>,
    /// Between daemons: no order is kept.
    passed: Vec<(NodeId, Multicast)>,
    now: Instant,
    sent: u64,
}

impl Cluster {
    fn new(radix: u32, nodes: u32) -> Self {
        let mut ways = Ways::new(radix, 1, secret());
        let begin = |node| {
            let session = VecDeque::from([ways.begin(node)]);
            ways.open(node, 1);
            Daemon { session, ..Daemon::default() }
        };
        let daemons = list(0..nodes).into_iter().map(begin).collect();
        Self { ways, daemons, passed: Vec::new(), now: Instant::now(), sent: 0 }
    }

    fn post(&mut self, sent: Sent) {
        sent.into_iter().for_each(|(node, request)| self.daemons[node.0 as usize].session.push_back(request));
    }

    fn hears(&mut self, node: u32, request: Request) {
        let daemon = &mut self.daemons[node as usize];
        match request {
            Request::NumbersFrom { number, .. } => daemon.order.begin(number),
            Request::Ask { number, asked } => daemon.order.push(number, asked),
            Request::PassOn(multicast) => return self.takes(NodeId(node), *multicast),
            other => unreachable!("{other:?}"),
        }
        self.carry_out(node);
    }

    fn takes(&mut self, node: NodeId, multicast: Multicast) {
        self.passed.extend(multicast.parts_below(Place::Node(node)));
        if let Some(number) = number_for(&multicast, node) {
            self.daemons[node.0 as usize].order.push(number, multicast.asked);
            self.carry_out(node.0);
        }
    }

    fn carry_out(&mut self, node: u32) {
        let Daemon { order, done, .. } = &mut self.daemons[node as usize];
        while let Some(Asked::App { request: AppRequest::FenceDone { sequence, .. }, .. }) = order.pop() {
            done.push(sequence);
        }
    }

    fn beats(&mut self, node: u32) {
        let heard = self.daemons[node as usize].order.heard();
        let again = self.ways.on_heard(self.now, NodeId(node), heard);
        self.post(again);
    }

    fn on(&mut self, step: Step) {
        let count = self.daemons.len() as u32;
        let lives = |cluster: &Self, node: u32| node < count && !cluster.daemons[node as usize].is_dead;
        match step {
            Step::Ask(bits) => {
                self.sent += 1;
                let nodes: Vec<u32> =
                    (0..count).filter(|node| bits >> node & 1 == 1 && lives(self, *node)).collect();
                nodes.iter().for_each(|node| self.daemons[*node as usize].asked.push(self.sent));
                let sent = self.ways.send(self.now, &list(nodes), &asked(self.sent));
                self.post(sent);
            }
            Step::Session(node) if lives(self, node) => {
                if let Some(request) = self.daemons[node as usize].session.pop_front() {
                    self.hears(node, request);
                }
            }
            Step::Arrives(which) if !self.passed.is_empty() => {
                let (node, multicast) = self.passed.swap_remove(which % self.passed.len());
                if lives(self, node.0) {
                    self.takes(node, multicast);
                }
            }
            Step::Lost(which) if !self.passed.is_empty() => {
                self.passed.swap_remove(which % self.passed.len());
            }
            Step::Dies(node) if lives(self, node) => {
                self.daemons[node as usize].is_dead = true;
                let around = self.ways.on_lost(NodeId(node));
                self.post(around);
            }
            Step::Silent(node) if lives(self, node) => {
                let around = self.ways.on_silent(NodeId(node));
                self.post(around);
            }
            Step::Again(node) if lives(self, node) => self.ways.on_heard_again(NodeId(node)),
            Step::NotPassed(node) if lives(self, node) => {
                let around = self.ways.on_not_passed(NodeId(node), 1);
                self.post(around);
            }
            Step::Beats(node) if lives(self, node) => self.beats(node),
            Step::Waits => self.now += AGAIN_AFTER,
            _ => {}
        }
    }

    /// Nothing that is passed on arrives any more; sessions and heartbeats go on.
    fn come_to_rest(&mut self) {
        self.now += AGAIN_AFTER;
        for _ in 0..2 {
            for node in 0..self.daemons.len() as u32 {
                while !self.daemons[node as usize].is_dead
                    && let Some(request) = self.daemons[node as usize].session.pop_front()
                {
                    self.hears(node, request);
                }
            }
            (0..self.daemons.len() as u32).for_each(|node| self.beats(node));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn each_living_node_carries_out_each_request_once_and_in_order(
        radix in 1u32..4,
        nodes in 1u32..12,
        steps in steps(),
    ) {
        let mut cluster = Cluster::new(radix, nodes);
        for step in steps {
            cluster.on(step);
            for daemon in &cluster.daemons {
                prop_assert!(daemon.asked.starts_with(&daemon.done), "{:?} {:?}", daemon.asked, daemon.done);
            }
        }
        cluster.come_to_rest();
        for daemon in cluster.daemons.iter().filter(|daemon| !daemon.is_dead) {
            prop_assert_eq!(&daemon.asked, &daemon.done);
        }
    }
}

proptest! {
    /// The nodes of a job are a group of the control multicast (ParPar, paper 000 §2.7): each of them has the
    /// request once, no other node carries it out, and one passes it on only where it lies on the way.
    #[test]
    fn a_request_to_the_nodes_of_a_job_is_for_these_alone(
        radix in 1u32..9,
        nodes in 1u32..200,
        job in prop::collection::btree_set(0u32..200, 1..60),
    ) {
        let job: Vec<NodeId> = job.into_iter().filter(|node| *node < nodes).map(NodeId).collect();
        let mut ways = ways(radix, nodes);
        let (mut reached, mut on_the_way) = (Vec::new(), ways.send(Instant::now(), &job, &asked(0)));
        prop_assert!(on_the_way.len() <= radix as usize, "as many messages of the master as it has children");
        while let Some((node, request)) = on_the_way.pop() {
            let Request::PassOn(part) = request else {
                reached.push(node);
                continue;
            };
            let tree = ControlTree::new(radix, nodes, BTreeSet::new());
            prop_assert!(part.to.keys().all(|target| tree.passes(node, *target)));
            prop_assert!(!part.to.is_empty());
            reached.extend(number_for(&part, node).map(|_| node));
            let parts = part.parts_below(Place::Node(node)).into_iter();
            on_the_way.extend(parts.map(|(next, part)| (next, Request::PassOn(Box::new(part)))));
        }
        reached.sort_unstable();
        prop_assert_eq!(reached, job);
    }
}
