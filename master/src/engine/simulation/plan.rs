//! What a seed means: the cluster, its jobs, what goes wrong, and what users ask.

use std::time::Duration;

use coswitch_dispatcher::watch::Heartbeats;
use coswitch_policies::{NodeId, Residency, Rotation, SwitchOrder};
use coswitch_sim::Seed;

pub(super) const MIB: u64 = 1 << 20;
/// What a node offers to jobs.
pub(super) const CAPACITY: u64 = 100 * MIB;

/// Where a fault may hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// `kill -9`, at any moment.
    MasterDies,
    /// The process stands still.
    MasterPauses,
    DaemonPauses(NodeId),
    /// The daemon is killed, and its jobs with it; its disk stays.
    DaemonDies(NodeId),
    /// Nothing arrives at the node from the head node, or the other way: which is lost first.
    NodeCutOff {
        node: NodeId,
        hears: bool,
    },
    /// The same between two nodes.
    NodesCutOff {
        from: NodeId,
        to: NodeId,
    },
    /// A daemon takes so many times as long.
    Slow {
        node: NodeId,
        times: u64,
    },
    /// No snapshot finds room.
    DiskFull(NodeId),
    /// The next step of this kind fails.
    StepFails(NodeId, FailingStep),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailingStep {
    Freeze,
    DumpAlive,
    DumpDead,
    Seal,
    Restore,
}

/// A fault and its time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planned {
    pub(super) at: Duration,
    pub(super) fault: Fault,
    /// When it is over.
    pub(super) until: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Submit(Work),
    Park(u32),
    Resume(u32),
    Cancel(u32),
    Wait(u32),
    Why(u32),
    Drain(u32),
    Undrain(u32),
}

/// What a job is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) ranks: u32,
    pub(super) mib: u64,
    /// Units of work, after each of which the ranks exchange messages.
    pub(super) units: u64,
    /// Time of one unit.
    pub(super) unit: Duration,
    pub(super) arrival: Duration,
}

/// A run of the simulation.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) nodes: u32,
    /// Of the tree of daemons; with the greatest, requests go to each node by its session.
    pub(super) radix: u32,
    pub(super) heartbeats: Heartbeats,
    pub(super) quantum: Duration,
    pub(super) order: SwitchOrder,
    pub(super) residency: Residency,
    pub(super) rotation: Rotation,
    /// What jobs hold of what they declare, in per cent.
    pub(super) held: u64,
    pub(super) lost_after: Duration,
    pub(super) stop_after: Duration,
    /// Of a node, for the checkpoints of its running jobs.
    pub(super) mean_time_between_failures: Option<Duration>,
    pub(super) jobs: Vec<Work>,
    pub(super) faults: Vec<Planned>,
    pub(super) wishes: Vec<(Duration, Wish)>,
    /// From then on nothing goes wrong, and nobody holds a job.
    pub(super) calm: Duration,
}

impl Plan {
    pub(super) fn of(seed: u64) -> Self {
        let mut dice = Seed::new(seed);
        let dice = &mut dice;
        let nodes = dice.between(1, 4) as u32;
        let calm = millis(dice.between(5_000, 40_000));
        let jobs = (0..dice.between(1, 4)).map(|_| work(dice, nodes)).collect();
        // Other faults lie deeper where no daemon is replaced.
        let daemons_die = !seed.is_multiple_of(4);
        // Long enough that no silence of the faults below ends anything, or not.
        let patient = dice.chance(900);
        let long = Duration::from_secs(if patient { 120 } else { 12 });
        let steps_fail = dice.chance(400);
        let mut faults: Vec<Planned> =
            (0..dice.between(0, 6)).map(|_| planned(dice, nodes, calm, steps_fail)).collect();
        faults.retain(|planned| daemons_die || !matches!(planned.fault, Fault::DaemonDies(_)));
        let wishes = (0..dice.between(0, 6)).map(|_| (within(dice, calm), wish(dice, nodes))).collect();
        Self {
            seed,
            nodes,
            radix: [1, 2, 16][(seed / 4 % 3) as usize],
            heartbeats: [Heartbeats::Tree, Heartbeats::Sessions][(seed / 12 % 2) as usize],
            quantum: millis(dice.between(300, 3000)),
            order: [SwitchOrder::Sequential, SwitchOrder::Overlapped, SwitchOrder::Prefetch]
                [dice.between(0, 2) as usize],
            residency: [Residency::None, Residency::Planned][dice.between(0, 1) as usize],
            rotation: [Rotation::Set, Rotation::Job][dice.between(0, 1) as usize],
            held: dice.between(50, 100),
            lost_after: long,
            stop_after: long,
            // Drawn last, so that the rest of a plan does not depend on it.
            mean_time_between_failures: dice.chance(600).then(|| millis(dice.between(1000, 20_000))),
            jobs,
            faults,
            wishes,
            calm,
        }
    }
}

pub(super) const fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn within(dice: &mut Seed, end: Duration) -> Duration {
    millis(dice.between(0, end.as_millis() as u64))
}

fn work(dice: &mut Seed, nodes: u32) -> Work {
    let ranks = dice.between(1, u64::from(nodes) * 2) as u32;
    // The most that fits on a node where the ranks are spread evenly.
    let most = 100 / u64::from(ranks.div_ceil(nodes));
    Work {
        ranks,
        mib: dice.between(10, 90).min(most),
        units: dice.between(3, 30),
        unit: millis(dice.between(20, 300)),
        arrival: if dice.chance(500) { Duration::ZERO } else { millis(dice.between(0, 4000)) },
    }
}

fn planned(dice: &mut Seed, nodes: u32, calm: Duration, steps_fail: bool) -> Planned {
    let node = NodeId(dice.between(0, u64::from(nodes) - 1) as u32);
    let to = NodeId(dice.between(0, u64::from(nodes) - 1) as u32);
    let steps = [
        FailingStep::Freeze,
        FailingStep::DumpAlive,
        FailingStep::DumpDead,
        FailingStep::Seal,
        FailingStep::Restore,
    ];
    let fault = match dice.between(0, if steps_fail { 13 } else { 8 }) {
        0..=1 => Fault::MasterDies,
        2 => Fault::DaemonDies(node),
        3 => Fault::MasterPauses,
        4 => Fault::DaemonPauses(node),
        5 => Fault::NodeCutOff { node, hears: dice.chance(500) },
        6 => Fault::NodesCutOff { from: node, to },
        7 => Fault::Slow { node, times: dice.between(2, 40) },
        8 => Fault::DiskFull(node),
        _ => Fault::StepFails(node, steps[dice.between(0, 4) as usize]),
    };
    let at = within(dice, calm);
    // Some are shorter than a heartbeat, some end only with the calm.
    let long = if dice.chance(500) { dice.between(50, 3000) } else { dice.between(3000, 15_000) };
    Planned { at, fault, until: (at + millis(long)).min(calm) }
}

fn wish(dice: &mut Seed, nodes: u32) -> Wish {
    let job = dice.between(0, 5) as u32;
    match dice.between(0, 11) {
        0..=2 => Wish::Submit(work(dice, nodes)),
        3..=4 => Wish::Park(job),
        5..=6 => Wish::Resume(job),
        7 => Wish::Cancel(job),
        8 => Wish::Wait(job),
        9 => Wish::Drain(dice.between(0, u64::from(nodes) - 1) as u32),
        10 => Wish::Undrain(dice.between(0, u64::from(nodes) - 1) as u32),
        _ => Wish::Why(job),
    }
}
