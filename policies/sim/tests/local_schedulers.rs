//! Properties of each node scheduler under random histories of events.

use std::{collections::BTreeMap, num::NonZeroUsize, time::Duration};

use coswitch_policies::local::{
    LocalScheduler, Model, NodeDecision, NodeScheduler, Task, TaskEvent, TaskId,
    buffered::{Pending, plan_phase},
    demand::Demand,
    dynamic::Dynamic,
    explicit::{Explicit, Filling, SliceKind, Slices},
    flexible::{Counters, Flexible, FlexibleRule, ProcessClass, Thresholds, counters::Tally},
    high_priority::HighPriority,
    implicit::Implicit,
    linux::Linux,
    predictive::Predictive,
};
use coswitch_policies::{Bytes, JobId, NodeId, Rate, SimTime};
use proptest::prelude::*;

const SLICE: Duration = Duration::from_millis(10);

/// An event that may happen next; numbers choose one of the tasks that it can happen to.
#[derive(Clone, Copy, Debug)]
enum Happening {
    Arrive { application: u32 },
    WaitPolicy,
    Block,
    Finish,
    QuantumEnd,
    Message(usize),
    Sent,
    Take,
    Wake(usize),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        3 => (0..4u32).prop_map(|application| Happening::Arrive { application }),
        2 => Just(Happening::WaitPolicy),
        1 => Just(Happening::Block),
        1 => Just(Happening::Finish),
        4 => Just(Happening::QuantumEnd),
        4 => any::<usize>().prop_map(Happening::Message),
        3 => Just(Happening::Sent),
        2 => Just(Happening::Take),
        3 => any::<usize>().prop_map(Happening::Wake),
    ]
}

fn history() -> impl Strategy<Value = Vec<(u64, Happening)>> {
    proptest::collection::vec((0..20u64, happening()), 1..200)
}

/// A node and the state of its shell.
struct Node<M> {
    scheduler: LocalScheduler<M>,
    now: SimTime,
    away: Vec<TaskId>,
    arrived: u32,
    decisions: Vec<NodeDecision>,
}

impl<M: Model> Node<M> {
    fn new(model: M) -> Self {
        Self::on(model, 1)
    }

    fn on(model: M, processors: usize) -> Self {
        let scheduler = LocalScheduler::on(model, NonZeroUsize::new(processors).expect("at least one"));
        Self { scheduler, now: SimTime(0), away: Vec::new(), arrived: 0, decisions: Vec::new() }
    }

    /// Applies it if possible; returns the event.
    fn play(&mut self, after_ms: u64, happening: Happening) -> Option<TaskEvent> {
        self.now = self.now.after(Duration::from_millis(after_ms));
        self.decisions.clear();
        let event = self.event(happening)?;
        self.scheduler.on_event(self.now, event, &mut self.decisions).expect("the history is possible");
        match event {
            TaskEvent::Waits { task } if !self.spins() => self.away.push(task),
            TaskEvent::Blocked { task } => self.away.push(task),
            TaskEvent::Unblocked { task } => self.away.retain(|away| *away != task),
            _ => {}
        }
        Some(event)
    }

    fn fire(&mut self, at: SimTime) {
        self.now = at;
        self.decisions.clear();
        self.scheduler.on_event(at, TaskEvent::TimerFired, &mut self.decisions).expect("a timer may fire");
    }

    fn spins(&self) -> bool {
        self.decisions.iter().any(|decision| matches!(decision, NodeDecision::Spin { .. }))
    }

    fn event(&mut self, happening: Happening) -> Option<TaskEvent> {
        let running = self.scheduler.running();
        let chosen = (self.now.0 / 1_000_000) as usize % running.len().max(1);
        let running = running.get(chosen).map(|task| task.id);
        let all: Vec<_> = self.ready().into_iter().chain(self.away.iter().copied()).collect();
        Some(match happening {
            Happening::Arrive { application } => {
                self.arrived += 1;
                let application = (application > 0).then_some(JobId(application));
                TaskEvent::Arrived { task: TaskId(self.arrived), application }
            }
            Happening::WaitPolicy => TaskEvent::Waits { task: running? },
            Happening::Block => TaskEvent::Blocked { task: running? },
            Happening::Finish => TaskEvent::Finished { task: running? },
            Happening::QuantumEnd => TaskEvent::QuantumEnd { task: running? },
            Happening::Message(choice) if !all.is_empty() => {
                TaskEvent::MessageArrived { task: all[choice % all.len()] }
            }
            Happening::Sent => TaskEvent::MessageSent { task: running? },
            Happening::Take => TaskEvent::MessagesTaken { task: running? },
            Happening::Wake(choice) if !self.away.is_empty() => {
                TaskEvent::Unblocked { task: self.away[choice % self.away.len()] }
            }
            Happening::Message(_) | Happening::Wake(_) => return None,
        })
    }

    /// The only task that runs, on a node of one processor.
    fn running(&self) -> Option<TaskId> {
        self.scheduler.running().first().map(|task| task.id)
    }

    fn ready(&self) -> Vec<TaskId> {
        self.scheduler.ready().iter().map(|task| task.id).collect()
    }
}

/// The bound of PCA and DCA: no task is overtaken more than `overtakes_max` times before it runs. The
/// dispatches of other tasks before it are at most those ahead of it, one for each overtaking, and one more
/// for each overtaking that took the processor from a running task, which then runs again first.
fn no_task_starves<M: Model>(model: M, processors: usize, overtakes_max: u32, history: &[(u64, Happening)]) {
    let mut node = Node::on(model, processors);
    let mut patience = BTreeMap::<TaskId, i64>::new();
    for (after, happening) in history {
        let before = node.ready();
        let event = node.play(*after, *happening);
        for decision in &node.decisions {
            if let NodeDecision::Run { task, .. } = decision {
                patience.remove(task);
                patience.values_mut().for_each(|left| *left -= 1);
            }
        }
        let ended = match event {
            Some(TaskEvent::QuantumEnd { task }) => Some(task),
            _ => None,
        };
        for (place, task) in node.ready().into_iter().enumerate() {
            if !before.contains(&task) || ended == Some(task) {
                patience.remove(&task);
            }
            if !node.scheduler.ready()[place].runs() {
                let bound = place as i64 + 2 * i64::from(overtakes_max);
                patience.entry(task).or_insert(bound);
            }
        }
        let ready = node.ready();
        patience.retain(|task, _| ready.contains(task));
        assert!(patience.values().all(|left| *left >= 0), "a task starves: {patience:?}");
        assert!(node.scheduler.ready().iter().all(|task| task.overtaken <= overtakes_max));
    }
}

/// No processor is idle while a task waits for one, the shell hears of each change, and no account exceeds
/// the time that passed, for it counts once.
fn processors_are_used<M: Model>(model: M, processors: usize, history: &[(u64, Happening)]) {
    let mut node = Node::on(model, processors);
    let mut on_processors: Vec<TaskId> = Vec::new();
    for (after, happening) in history {
        let left = node.play(*after, *happening).and_then(|event| match event {
            TaskEvent::Waits { .. } if node.spins() => None,
            TaskEvent::Waits { task } | TaskEvent::Blocked { task } | TaskEvent::Finished { task } => {
                Some(task)
            }
            TaskEvent::QuantumEnd { task } => Some(task),
            _ => None,
        });
        on_processors.retain(|task| Some(*task) != left);
        for decision in &node.decisions {
            match decision {
                NodeDecision::Preempt { task } => on_processors.retain(|other| other != task),
                NodeDecision::Run { task, .. } => on_processors.push(*task),
                _ => {}
            }
        }
        let running = node.scheduler.running();
        assert_eq!(running.len(), processors.min(node.scheduler.ready().len()));
        assert_eq!(running.len(), node.scheduler.ready().iter().filter(|task| task.runs()).count());
        on_processors.sort_unstable();
        let mut run: Vec<TaskId> = running.iter().map(|task| task.id).collect();
        run.sort_unstable();
        assert_eq!(on_processors, run);
        let passed = node.now.since(SimTime(0));
        let account = node.scheduler.node_account();
        assert!(account.executed <= passed * u32::try_from(processors).unwrap());
        assert!(account.coscheduled <= account.executed);
        for task in node.scheduler.ready() {
            assert!(task.total.executed + task.total.thrashed.max(task.total.delayed) <= passed, "{task:?}");
        }
    }
}

/// A node under DCS whose shell honours its timers, and the tasks that messages call there, derived from the
/// events alone.
struct Demanded {
    node: Node<Demand>,
    timer: Option<SimTime>,
    running_since: SimTime,
    called: BTreeMap<TaskId, SimTime>,
}

impl Demanded {
    fn new(share: Duration) -> Self {
        let node = Node::new(Demand { slice: SLICE, share, credit_max: None });
        Self { node, timer: None, running_since: SimTime(0), called: BTreeMap::new() }
    }

    fn play(&mut self, after_ms: u64, happening: Happening) {
        let now = self.node.now.after(Duration::from_millis(after_ms));
        while let Some(at) = self.timer.take_if(|at| *at <= now) {
            let ready = self.node.ready();
            self.node.fire(at);
            self.check(ready, TaskEvent::TimerFired);
        }
        let ready = self.node.ready();
        assert!(
            self.first_called(&ready).is_none() || !self.had_its_share(now),
            "a call was not honoured in time"
        );
        self.node.now = now;
        if let Some(event) = self.node.play(0, happening) {
            self.check(ready, event);
        }
    }

    fn had_its_share(&self, now: SimTime) -> bool {
        now.since(self.running_since) > self.node.scheduler.model().share
    }

    fn first_called(&self, ready: &[TaskId]) -> Option<TaskId> {
        let called = ready.iter().copied().filter(|task| self.called.contains_key(task));
        called.min_by_key(|task| self.called[task])
    }

    /// Before `event` these tasks were ready, and the first of them ran. Now the task that was called first
    /// runs if that is fair, else the task that ran. If the processor was left and no task is called, any
    /// task may run.
    fn check(&mut self, mut ready: Vec<TaskId>, event: TaskEvent) {
        let now = self.node.now;
        match event {
            TaskEvent::MessageArrived { task } if ready.first() != Some(&task) => {
                self.called.entry(task).or_insert(now);
            }
            TaskEvent::Unblocked { task } => ready.push(task),
            _ => {}
        }
        let is_left = matches!(
            event,
            TaskEvent::Blocked { .. } | TaskEvent::Finished { .. } | TaskEvent::QuantumEnd { .. }
        );
        let called = self.first_called(&ready).filter(|_| is_left || self.had_its_share(now));
        let ran = ready.first().copied().filter(|_| !is_left);
        if let Some(expected) = called.or(ran) {
            assert_eq!(self.node.running(), Some(expected), "after {event:?}");
        }
        for decision in &self.node.decisions {
            if let NodeDecision::Run { task, .. } = decision {
                self.running_since = now;
                self.called.remove(task);
            }
        }
        self.timer = next_timer(&self.node.decisions).or(self.timer);
    }
}

fn slices() -> Slices {
    Slices { parallel: Duration::from_millis(60), local: Duration::from_millis(40) }
}

proptest! {
    #[test]
    fn pre_and_dyn_never_starve_anybody_beyond_mco(
        processors in 1..4usize, mco in 0..5u32, past in 0..2u8, history in history(),
    ) {
        let past_weight = f64::from(past) / 2.0;
        let model = Predictive { slice: SLICE, overtakes_max: mco, past_weight };
        no_task_starves(model, processors, mco, &history);
        let model = Dynamic { slice: SLICE, overtakes_max: mco, past_weight, is_judged_by_sent: false };
        no_task_starves(model, processors, mco, &history);
    }

    #[test]
    fn without_overtaking_pre_is_round_robin(processors in 1..4usize, history in history()) {
        let mut lin = Node::on(Linux { slice: SLICE }, processors);
        let model = Predictive { slice: SLICE, overtakes_max: 0, past_weight: 0.0 };
        let mut pre = Node::on(model, processors);
        for (after, happening) in history {
            lin.play(after, happening);
            pre.play(after, happening);
            prop_assert_eq!(&lin.decisions, &pre.decisions);
        }
    }

    #[test]
    fn the_processors_are_used_while_a_task_is_ready(processors in 1..4usize, history in history()) {
        processors_are_used(Linux { slice: SLICE }, processors, &history);
        processors_are_used(HighPriority { slice: SLICE }, processors, &history);
        let model = Predictive { slice: SLICE, overtakes_max: 2, past_weight: 0.0 };
        processors_are_used(model, processors, &history);
        let model = Demand { slice: SLICE, share: SLICE / 4, credit_max: None };
        processors_are_used(model, processors, &history);
        processors_are_used(Explicit::fixed(SLICE, slices(), Filling::Both), processors, &history);
    }

    #[test]
    fn under_dcs_no_task_is_preempted_before_its_share_and_no_call_waits_longer(
        history in history(), share_ms in 0..15u64,
    ) {
        let mut node = Demanded::new(Duration::from_millis(share_ms));
        for (after, happening) in history {
            node.play(after, happening);
        }
    }

    #[test]
    fn under_hpdt_no_local_task_runs_while_a_distributed_one_is_ready(
        processors in 1..4usize, history in history(),
    ) {
        let mut node = Node::on(HighPriority { slice: SLICE }, processors);
        for (after, happening) in history {
            node.play(after, happening);
            let waits = node.scheduler.ready().iter().any(|task| task.is_distributed() && !task.runs());
            prop_assert!(!waits || node.scheduler.running().iter().all(Task::is_distributed));
        }
    }

    #[test]
    fn under_dts_a_stopped_distributed_task_never_runs_in_the_local_slice(history in history()) {
        let mut node = Node::new(Explicit::fixed(SLICE, slices(), Filling::DistributedStopped));
        let mut timer = None;
        for (after, happening) in history {
            while let Some(at) = timer.filter(|at| *at <= node.now.after(Duration::from_millis(after))) {
                node.fire(at);
                timer = next_timer(&node.decisions);
                prop_assert!(timer.is_some(), "the slices never stop");
            }
            node.play(after, happening);
            timer = next_timer(&node.decisions).or(timer);
            let is_local = node.scheduler.model().current() == SliceKind::Local;
            let runs = node.scheduler.running().iter().any(Task::is_distributed);
            prop_assert!(!(is_local && runs));
        }
    }

    #[test]
    fn a_task_spins_for_no_longer_than_it_is_allowed_and_then_blocks(spin_ms in 1..50u64, others in 0..3u32) {
        let spin = Duration::from_millis(spin_ms);
        let mut node = Node::new(Implicit { slice: SLICE, spin, is_woken_first: false });
        for _ in 0..=others {
            node.play(0, Happening::Arrive { application: 1 });
        }
        let task = node.running().unwrap();
        node.play(1, Happening::WaitPolicy);
        prop_assert_eq!(&node.decisions[..], &[NodeDecision::Spin { task, at_most: Some(spin) }]);
        node.decisions.clear();
        let over = node.now.after(spin);
        node.scheduler.on_event(over, TaskEvent::SpinOver { task }, &mut node.decisions).unwrap();
        prop_assert!(!node.ready().contains(&task));
        prop_assert_eq!(node.running().is_none(), others == 0);
    }

    #[test]
    fn under_fcs_the_slot_of_a_coscheduled_process_is_its_own(history in history(), slots in 1..5usize) {
        // With this many trial slots every process is CS all the time.
        let rule = FlexibleRule {
            slice: SLICE,
            trial_slots: u32::MAX / 2,
            forget_after: None,
            thresholds: Thresholds { rare: 1, long_wait: SLICE, high_ratio: 1.0 },
            context_switch: Duration::from_millis(1),
        };
        let mut node = Node::new(Flexible::new(rule));
        for (number, (after, happening)) in history.into_iter().enumerate() {
            let slot = JobId(u32::try_from(number / (10 * slots) % 3 + 1).unwrap());
            node.decisions.clear();
            node.scheduler
                .on_event(node.now, TaskEvent::Strobe { application: Some(slot) }, &mut node.decisions)
                .unwrap();
            node.play(after, happening);
            let ready = node.scheduler.ready();
            let has_slot = ready.iter().any(|task| task.application == Some(slot));
            prop_assert!(!has_slot || ready[0].application == Some(slot));
            let has_local = ready.iter().any(|task| !task.is_distributed());
            let is_local = ready.first().is_some_and(|task| !task.is_distributed());
            prop_assert!(has_slot || !has_local || is_local, "idle intervals go to DC processes");
        }
    }

    #[test]
    fn the_classes_of_fcs_are_those_of_table_2_1(
        cs in 0..100u32, dc in 0..100u32, cs_wait_ms in 0..1000u64, dc_wait_ms in 0..1000u64,
    ) {
        let thresholds = Thresholds { rare: 10, long_wait: Duration::from_millis(10), high_ratio: 2.0 };
        let tally = |attempts, wait| Tally { attempts, waited: Duration::from_millis(wait) };
        let class = thresholds.classify(&Counters::of(tally(cs, cs_wait_ms), tally(dc, dc_wait_ms)));
        let is_rare = cs < 10 && dc < 10;
        let is_long = cs_wait_ms + dc_wait_ms > 10 * u64::from(cs + dc);
        let is_high = cs > 2 * dc;
        let expected = match (is_long, is_high) {
            _ if is_rare => ProcessClass::DontCare,
            (false, false) => ProcessClass::DontCare,
            (false, true) => ProcessClass::Coscheduled,
            (true, _) => ProcessClass::Frustrated,
        };
        prop_assert_eq!(class, expected);
    }

    #[test]
    fn a_communication_phase_never_overlaps_two_transfers_on_a_link_and_loses_nothing(
        nodes in 2..12u32,
        loads in proptest::collection::vec((0..12u32, 0..12u32, 0..5000u64), 0..60),
        length_us in 1..20_000u64,
        first_round in 0..40usize,
    ) {
        let mut pending = Pending::default();
        for (from, to, bytes) in loads {
            pending.add(NodeId(from % nodes), NodeId(to % nodes), Bytes(bytes));
        }
        let length = Duration::from_micros(length_us);
        let phase = plan_phase(nodes, &pending, Rate(8_000_000), length, first_round);
        let sent: u64 = phase.transfers.iter().map(|transfer| transfer.bytes.0).sum();
        prop_assert_eq!(sent + phase.left_over.total().0, pending.total().0);
        for (place, one) in phase.transfers.iter().enumerate() {
            prop_assert!(one.begins <= one.ends && one.ends <= length);
            for other in &phase.transfers[place + 1..] {
                let shares_link = one.from == other.from || one.to == other.to;
                prop_assert!(!shares_link || one.ends <= other.begins);
            }
        }
    }
}

fn next_timer(decisions: &[NodeDecision]) -> Option<SimTime> {
    decisions.iter().rev().find_map(|decision| match decision {
        NodeDecision::SetTimer { at } => Some(*at),
        _ => None,
    })
}
