//! What all parties of the simulation share: the clock, the events to come, chance, the network, the trace.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, VecDeque},
    time::{Duration, Instant},
};

use coswitch_policies::{Epoch, JobId, NodeId, SimTime};
use coswitch_sim::Seed;

use super::{audit::Audit, network::Network, plan::Plan, primitives::Ledger};

/// How many lines of the trace a failure prints.
const LINES_MAX: usize = 120;

/// Something that is going to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// The first message of a wire arrives.
    Arrives(super::network::Wire),
    /// One end of a session sends its heartbeat.
    Beats(super::network::Wire),
    /// The receiver of a wire has heard nothing for long, perhaps.
    Lull(super::network::Wire),
    /// A fault begins, or is over.
    Fault(usize),
    Mended(usize),
    /// A user acts.
    User(usize),
    /// Somebody starts a master where there is none.
    Operator,
    /// The master of this generation gives a lost node another daemon.
    Restart(u64, NodeId),
    /// The master of this generation connects to its next node, or has waited for that for too long.
    TooLate(u64, u32),
    /// It has waited for long that this node welcomes it.
    NotReached(u64, NodeId, super::network::Wire),
    /// The master of this generation starts an operation on the global memory.
    Operation(u64),
    /// It asks all nodes whether they follow it, by the tree.
    Period(u64),
    /// The time for their answers is over.
    Answers(u64),
    /// A timer of its run core.
    Due(u64),
    /// It reads the next report of its dispatchers.
    Report(u64),
    /// The dispatcher of a job reads its next note.
    Note(u64, JobId),
    /// Its time-out has passed, perhaps.
    Deadline(u64, JobId),
    /// The daemon (of this life) has had no master for long, perhaps.
    Alone(NodeId, u64),
    /// Answers have waited long enough at it, perhaps.
    Gathered(NodeId, u64),
    /// It measures memory.
    Sample(NodeId, u64),
    /// The part of a job has carried out its step.
    Step(NodeId, JobId, u64),
    /// Its snapshot is sealed, or cannot be.
    Sealed(NodeId, JobId, u64, Epoch),
    /// Its ranks have computed for one unit of work.
    Worked(NodeId, JobId, u64),
}

/// Shared by all parties.
pub(super) struct Context {
    pub(super) now: SimTime,
    pub(super) plan: Plan,
    pub(super) dice: Seed,
    pub(super) net: Network,
    pub(super) audit: Audit,
    pub(super) ledger: Ledger,
    queue: BinaryHeap<Reverse<(SimTime, u64, Event)>>,
    next: u64,
    /// For the cores that take instants.
    base: Instant,
    /// `None`: nobody reads it.
    trace: Option<VecDeque<String>>,
    /// A node that opens links, and the daemons to which it does.
    pub(super) joining: Option<(NodeId, Vec<(NodeId, u64)>)>,
    /// How long steps take on each node, in per cent.
    pub(super) slowness: BTreeMap<NodeId, u64>,
}

impl Context {
    pub(super) fn new(plan: Plan, traced: bool) -> Self {
        Self {
            now: SimTime(0),
            dice: Seed::new(plan.seed ^ 0x5eed),
            net: Network::default(),
            audit: Audit::default(),
            ledger: Ledger::default(),
            queue: BinaryHeap::new(),
            next: 0,
            base: Instant::now(),
            trace: traced.then(VecDeque::new),
            joining: None,
            slowness: BTreeMap::new(),
            plan,
        }
    }

    pub(super) fn instant(&self) -> Instant {
        self.base + self.now.since(SimTime(0))
    }

    pub(super) fn at(&mut self, at: SimTime, event: Event) {
        self.queue.push(Reverse((at.max(self.now), self.next, event)));
        self.next += 1;
    }

    pub(super) fn at_instant(&mut self, at: Instant, event: Event) {
        let at = SimTime::from(at.saturating_duration_since(self.base));
        self.at(at, event);
    }

    pub(super) fn after(&mut self, wait: Duration, event: Event) {
        self.at(self.now.after(wait), event);
    }

    /// After a time between these bounds.
    pub(super) fn soon(&mut self, low_us: u64, high_us: u64, event: Event) {
        let wait = Duration::from_micros(self.dice.between(low_us, high_us));
        self.after(wait, event);
    }

    /// The next event, whose time is now.
    pub(super) fn pop(&mut self) -> Option<Event> {
        let Reverse((at, _, event)) = self.queue.pop()?;
        self.now = at;
        Some(event)
    }

    /// Adds a line to the trace.
    pub(super) fn say(&mut self, line: impl FnOnce() -> String) {
        let now = self.now.since(SimTime(0)).as_secs_f64();
        if let Some(lines) = &mut self.trace {
            if lines.len() == LINES_MAX {
                lines.pop_front();
            }
            lines.push_back(format!("{now:10.4}  {}", line()));
        }
    }

    pub(super) fn lines(&self) -> String {
        let lines = self.trace.iter().flatten();
        lines.map(|line| format!("{line}\n")).collect()
    }
}
