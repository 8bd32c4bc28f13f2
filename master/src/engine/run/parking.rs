//! Parks all jobs before the nodes are taken away: at the end of an allocation, at a time that the user has
//! named, or when a signal warns of it.
//!
//! A job that is to be parked is held, as its user would hold it: it leaves by a switch, and has no turn
//! until the run is resumed. The run is over when nothing of it is in memory and every snapshot is sealed.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use coswitch_dispatcher::protocol::{StepDone, SwitchStep};
use coswitch_policies::{Bytes, JobId, NodeId, SchedulerEvent, SimTime};
use coswitch_report::journal::{Event, RunOutcome};

use super::{Output, Run, records::Ending};

/// Besides what parking was measured to cost.
const MARGIN: Duration = Duration::from_secs(10);
/// The time for a MiB that is assumed for a dump, and for a seal, until one was measured.
const UNMEASURED: Duration = Duration::from_millis(16);
/// A job that could not be parked so often is given up.
const TRIES: u32 = 3;
const MIB: u64 = 1 << 20;

/// What is known of parking, and whether it is under way.
#[derive(Debug, Default)]
pub(super) struct Parking {
    /// When the nodes are taken away.
    ends: Option<SimTime>,
    cost: ParkingCost,
    /// Snapshots that are being made durable.
    unsealed: BTreeSet<(JobId, NodeId)>,
    /// The attempts at each job, while parking is under way.
    tries: Option<BTreeMap<JobId, u32>>,
}

/// How long it takes to park what is in memory, as it was measured in this run.
#[derive(Debug, Default)]
struct ParkingCost {
    /// What all jobs hold of a node.
    used: BTreeMap<NodeId, Bytes>,
    /// Of the last dumps.
    dumped: BTreeMap<(JobId, NodeId), Bytes>,
    /// The longest times for a MiB.
    dump: Option<Duration>,
    seal: Option<Duration>,
    longest_switch: Duration,
}

impl ParkingCost {
    fn on_step(&mut self, job: JobId, StepDone { node, step, took, bytes }: StepDone) {
        let per_mib = |bytes: Bytes| took / u32::try_from((bytes.0 / MIB).max(1)).unwrap_or(u32::MAX);
        match step {
            SwitchStep::Dump => {
                self.dumped.insert((job, node), bytes);
                self.dump = self.dump.max(Some(per_mib(bytes)));
            }
            SwitchStep::Seal => {
                if let Some(bytes) = self.dumped.get(&(job, node)) {
                    self.seal = self.seal.max(Some(per_mib(*bytes)));
                }
            }
            _ => {}
        }
    }

    /// Half as much again as it took at worst, after a switch that may be under way. All nodes work at the
    /// same time.
    fn estimate(&self) -> Duration {
        let most = self.used.values().max().map_or(0, |used| used.0.div_ceil(MIB));
        let per_mib = self.dump.unwrap_or(UNMEASURED) + self.seal.unwrap_or(UNMEASURED);
        let all = per_mib.saturating_mul(u32::try_from(most).unwrap_or(u32::MAX));
        self.longest_switch + all.saturating_add(all / 2)
    }
}

impl Parking {
    pub(super) fn before(ends: Option<SimTime>) -> Self {
        Self { ends, ..Self::default() }
    }

    pub(super) fn on_memory(&mut self, node: NodeId, used: Bytes) {
        self.cost.used.insert(node, used);
    }

    pub(super) fn on_switch_ended(&mut self, took: Duration) {
        self.cost.longest_switch = self.cost.longest_switch.max(took);
    }

    pub(super) fn on_step(&mut self, job: JobId, step: StepDone) {
        self.cost.on_step(job, step);
        if step.step == SwitchStep::Dump {
            self.unsealed.insert((job, step.node));
        }
    }

    pub(super) fn on_sealed(&mut self, job: JobId, node: NodeId) {
        self.unsealed.remove(&(job, node));
    }

    /// Its last snapshot does not count any more.
    pub(super) fn forget(&mut self, job: JobId) {
        self.unsealed.retain(|(other, _)| *other != job);
    }

    pub(super) const fn is_under_way(&self) -> bool {
        self.tries.is_some()
    }

    /// When parking has to begin; `None` where there is no end, or it has begun.
    fn due(&self) -> Option<SimTime> {
        let ends = self.ends.filter(|_| self.tries.is_none())?;
        Some(ends.before(self.cost.estimate() + MARGIN))
    }
}

impl Run {
    /// When the jobs have to begin to leave.
    pub(super) fn park_due(&self) -> Option<SimTime> {
        self.parking.due().filter(|_| self.scheduler.can_hold())
    }

    pub(super) fn park_in_time(&mut self) {
        if self.park_due().is_some_and(|at| at <= self.now) {
            let ends = self.parking.ends.map_or(Duration::ZERO, |ends| ends.since(self.now));
            self.warn(format!(
                "the nodes are taken away in {:.0} s: all jobs are parked now",
                ends.as_secs_f64()
            ));
            self.park_all();
        }
    }

    /// Somebody warns that the nodes will be taken away.
    pub(super) fn on_warned(&mut self) {
        if self.parking.is_under_way() {
            return;
        }
        if self.settings.standing {
            // The end of a run keeps what is parked; the end of a cluster removes it.
            let text = "a signal asks to park all jobs, which a cluster that stays does not do: `drain` \
                        empties nodes";
            self.warn(text.into());
        } else if self.scheduler.can_hold() {
            self.warn("a signal says that the nodes will be taken away: all jobs are parked now".into());
            self.park_all();
        } else {
            self.outputs.push(Output::Over(RunOutcome::Interrupted));
        }
    }

    fn park_all(&mut self) {
        self.parking.tries = Some(BTreeMap::new());
        self.hold_the_rest();
    }

    /// Holds the jobs that are not, some of them again.
    fn hold_the_rest(&mut self) {
        let is_free = |job: &JobId| {
            let record = &self.records[job];
            record.ended.is_none() && !record.held && record.ending.is_none()
        };
        let mut free: Vec<JobId> = self.records.keys().copied().filter(is_free).collect();
        // Those that run come last: else the place of the first would be given to a job that is to leave,
        // too.
        free.sort_by_key(|job| (self.running.contains(job), self.resting.contains(job)));
        for job in free {
            let Some(tries) = &mut self.parking.tries else { return };
            let tried = tries.entry(job).or_default();
            *tried += 1;
            if *tried > TRIES {
                self.end_early(job, Ending::NotParked);
                continue;
            }
            self.records.entry(job).or_default().held = true;
            self.tell(Event::JobHeld { job });
            self.schedule(SchedulerEvent::Held { job });
        }
    }

    /// Ends the run when all jobs are parked.
    pub(super) fn finish_parking(&mut self) {
        if !self.parking.is_under_way() || self.adoption.is_some() {
            return;
        }
        if self.records.values().all(|record| record.ended.is_some()) {
            return;
        }
        self.hold_the_rest();
        let is_parked = |(job, record): (&JobId, &super::Record)| {
            let job = *job;
            let is_out = self.scheduler.job(job).is_none() || self.scheduler.is_held_out(job);
            record.ended.is_some() || (record.held && is_out)
        };
        let is_over = self.switch.is_none() && self.parking.unsealed.is_empty();
        if is_over && self.records.iter().all(is_parked) {
            self.outputs.push(Output::Over(RunOutcome::Parked));
        }
    }
}
