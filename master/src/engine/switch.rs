//! One switch under way: which jobs have done their part, and how it ended. Bookkeeping only; the orders are given by
//! [`super::execute`].
//!
//! ```text
//!   Stop: all outgoing stop; those that leave memory at once are dumped ─▶ In: incoming come ─▶ over
//!           │                         overlapped: the outgoing are dumped meanwhile ──┘
//!           └ a job stayed: nobody comes in ─▶ over
//! ```

use std::{collections::BTreeSet, time::Duration};

use coswitch_dispatcher::protocol::Order;
use coswitch_policies::{
    Bytes, Incoming, JobId, Left, Misplaced, Outgoing, Purpose, Rest, SimTime, Start, SwitchOrder, SwitchPlan,
};

/// See the module's description.
#[derive(Debug)]
pub(super) struct Switching {
    pub(super) plan: SwitchPlan,
    began: SimTime,
    waiting: BTreeSet<JobId>,
    /// Whoever has ended does nothing any more.
    ended: BTreeSet<JobId>,
    stage: Stage,
    /// Whoever did not find room.
    no_room: BTreeSet<JobId>,
    misplaced: Vec<Misplaced>,
    /// When the incoming were ordered to come.
    called: Option<SimTime>,
    /// When the last of them was there.
    came: Option<SimTime>,
    pub(super) bytes_out: Bytes,
    pub(super) bytes_in: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Stop,
    In,
}

/// What is to be done after a job has done its part.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Others are still at it.
    Wait,
    /// The outgoing have stopped: give these orders, and bring these in.
    Go(Vec<(JobId, Order)>, Vec<Incoming>),
    /// The switch is over; these jobs are elsewhere than planned.
    Over(Vec<Misplaced>),
}

impl Switching {
    pub(super) fn new(plan: SwitchPlan, began: SimTime) -> Self {
        Self {
            waiting: plan.outgoing.iter().map(|outgoing| outgoing.job).collect(),
            plan,
            began,
            ended: BTreeSet::new(),
            stage: Stage::Stop,
            no_room: BTreeSet::new(),
            misplaced: Vec::new(),
            called: None,
            came: None,
            bytes_out: Bytes(0),
            bytes_in: Bytes(0),
        }
    }

    /// The first orders, and what is to be done at once where nobody has to stop.
    pub(super) fn begin(&mut self, now: SimTime) -> (Vec<(JobId, Order)>, Next) {
        let order = |outgoing: &Outgoing| {
            let parks = outgoing.rest == Rest::Parked && !self.parks_meanwhile(outgoing);
            (outgoing.job, if parks { Order::Park } else { Order::Suspend })
        };
        let orders = self.plan.outgoing.iter().map(order).collect();
        (orders, self.next(now))
    }

    /// Whether the job is dumped while others come in.
    fn parks_meanwhile(&self, outgoing: &Outgoing) -> bool {
        self.plan.order == SwitchOrder::Overlapped && outgoing.running && outgoing.rest == Rest::Parked
    }

    /// How an incoming job is to come; one that never ran is launched instead.
    pub(super) fn call(&self, start: Start) -> Order {
        match (start, self.plan.purpose) {
            (Start::Launch, _) => Order::Launch,
            (Start::Restore, Purpose::Turn) => Order::Restore,
            (Start::Restore, Purpose::Ahead) => Order::Prefetch,
            (Start::Resume, _) => Order::Resume,
        }
    }

    /// The job is over, wherever it was.
    pub(super) fn on_ended(&mut self, now: SimTime, job: JobId) -> Next {
        self.ended.insert(job);
        if self.waiting.remove(&job) { self.next(now) } else { Next::Wait }
    }

    /// A node has no room for what the job holds: it will be at rest where it was.
    pub(super) fn on_no_room(&mut self, job: JobId) {
        self.no_room.insert(job);
    }

    /// The job rests there, as planned or not.
    pub(super) fn on_at(&mut self, now: SimTime, job: JobId, left: Left) -> Next {
        if !self.waiting.contains(&job) {
            return Next::Wait;
        }
        if self.goes_to(job) != Some(left) {
            let had_no_room = self.no_room.contains(&job);
            self.misplaced.push(Misplaced { had_no_room, ..Misplaced::new(job, left) });
        }
        self.waiting.remove(&job);
        self.next(now)
    }

    /// Where the last order takes the job.
    fn goes_to(&self, job: JobId) -> Option<Left> {
        match self.plan.outgoing.iter().find(|outgoing| outgoing.job == job) {
            Some(outgoing) if outgoing.rest == Rest::Suspended => Some(Left::Suspended),
            Some(outgoing) if self.stage == Stage::Stop && self.parks_meanwhile(outgoing) => {
                Some(Left::Suspended)
            }
            Some(_) => Some(Left::Parked),
            None => self
                .plan
                .incoming
                .iter()
                .find(|incoming| incoming.job == job)
                .map(|_| if self.plan.purpose == Purpose::Turn { Left::Active } else { Left::Suspended }),
        }
    }

    fn next(&mut self, now: SimTime) -> Next {
        let incoming = &self.plan.incoming;
        if self.stage == Stage::In && !incoming.iter().any(|incoming| self.waiting.contains(&incoming.job)) {
            self.came.get_or_insert(now);
        }
        match self.stage {
            _ if !self.waiting.is_empty() => Next::Wait,
            Stage::In => Next::Over(std::mem::take(&mut self.misplaced)),
            // A job that did not leave still holds its memory: nobody may come in.
            Stage::Stop if !self.misplaced.is_empty() => {
                let stay =
                    incoming.iter().map(|incoming| Misplaced::new(incoming.job, left_by(incoming.start)));
                let meanwhile = self.plan.outgoing.iter().filter(|outgoing| self.parks_meanwhile(outgoing));
                let stopped = meanwhile.map(|outgoing| Misplaced::new(outgoing.job, Left::Suspended));
                let named: BTreeSet<JobId> = self.misplaced.iter().map(|misplaced| misplaced.job).collect();
                let others: Vec<Misplaced> =
                    stay.chain(stopped).filter(|misplaced| !named.contains(&misplaced.job)).collect();
                Next::Over([std::mem::take(&mut self.misplaced), others].concat())
            }
            Stage::Stop => {
                self.stage = Stage::In;
                self.called = Some(now);
                let lives = |job: &JobId| !self.ended.contains(job);
                let meanwhile = self.plan.outgoing.iter().filter(|outgoing| self.parks_meanwhile(outgoing));
                let parked: Vec<JobId> = meanwhile.map(|outgoing| outgoing.job).filter(lives).collect();
                let mut incoming = incoming.clone();
                incoming.retain(|incoming| lives(&incoming.job));
                self.waiting =
                    incoming.iter().map(|incoming| incoming.job).chain(parked.iter().copied()).collect();
                if self.waiting.is_empty() {
                    return self.next(now);
                }
                Next::Go(parked.into_iter().map(|job| (job, Order::Park)).collect(), incoming)
            }
        }
    }

    /// How long nobody computed because of the switch; nothing where others ran on meanwhile.
    pub(super) fn exposed(&self, now: SimTime, others_run: bool) -> Duration {
        if others_run || self.plan.purpose == Purpose::Ahead {
            return Duration::ZERO;
        }
        self.came.unwrap_or(now).since(self.began)
    }

    /// How long the restores took.
    pub(super) fn restore(&self) -> Option<Duration> {
        let restores = self.plan.incoming.iter().any(|incoming| incoming.start == Start::Restore);
        let (called, came) = (self.called?, self.came?);
        (restores && self.misplaced.is_empty()).then(|| came.since(called))
    }
}

/// Where a job is that was to come in so and did not.
fn left_by(start: Start) -> Left {
    match start {
        Start::Launch => Left::Unlaunched,
        Start::Restore => Left::Parked,
        Start::Resume => Left::Suspended,
    }
}

#[cfg(test)]
mod tests {
    use coswitch_policies::{Placement, SlotId, SwitchId};

    use super::*;

    const NOW: SimTime = SimTime(0);

    fn out(job: u32, running: bool, rest: Rest) -> Outgoing {
        Outgoing { job: JobId(job), running, rest }
    }

    fn switching(outgoing: &[Outgoing], incoming: &[(u32, Start)], order: SwitchOrder) -> Switching {
        let comes = |(job, start): &(u32, Start)| Incoming {
            job: JobId(*job),
            start: *start,
            placement: Placement::default(),
        };
        let plan = SwitchPlan {
            switch: SwitchId(0),
            slot: SlotId(0),
            purpose: Purpose::Turn,
            outgoing: outgoing.to_vec(),
            incoming: incoming.iter().map(comes).collect(),
            order,
        };
        Switching::new(plan, NOW)
    }

    #[test]
    fn nobody_comes_in_before_everybody_has_left() {
        let outgoing = [out(1, true, Rest::Parked), out(2, false, Rest::Parked)];
        let mut switch = switching(&outgoing, &[(3, Start::Restore)], SwitchOrder::Sequential);
        let (orders, next) = switch.begin(NOW);
        assert_eq!(orders, [(JobId(1), Order::Park), (JobId(2), Order::Park)]);
        assert_eq!((next, switch.on_at(NOW, JobId(1), Left::Parked)), (Next::Wait, Next::Wait));
        assert!(matches!(switch.on_at(NOW, JobId(2), Left::Parked), Next::Go(_, jobs) if jobs.len() == 1));
        assert_eq!(switch.on_at(NOW, JobId(3), Left::Active), Next::Over(vec![]));
    }

    #[test]
    fn overlapped_jobs_stop_first_and_are_dumped_while_others_come() {
        let mut switch =
            switching(&[out(1, true, Rest::Parked)], &[(3, Start::Restore)], SwitchOrder::Overlapped);
        assert_eq!(switch.begin(NOW), (vec![(JobId(1), Order::Suspend)], Next::Wait));
        let Next::Go(orders, incoming) = switch.on_at(NOW, JobId(1), Left::Suspended) else {
            panic!("it goes on")
        };
        assert_eq!((orders, incoming.len()), (vec![(JobId(1), Order::Park)], 1));
        let second = Duration::from_secs(1);
        assert_eq!(switch.on_at(SimTime::from(second), JobId(3), Left::Active), Next::Wait);
        assert_eq!(
            switch.exposed(SimTime::from(2 * second), false),
            second,
            "what is dumped later is hidden"
        );
        let stuck = Misplaced::new(JobId(1), Left::Suspended);
        assert_eq!(
            switch.on_at(SimTime::from(2 * second), JobId(1), Left::Suspended),
            Next::Over(vec![stuck])
        );
    }

    #[test]
    fn whoever_found_no_room_is_told_from_whoever_failed() {
        let outgoing = [out(1, true, Rest::Parked), out(2, true, Rest::Parked)];
        let mut switch = switching(&outgoing, &[], SwitchOrder::Sequential);
        switch.begin(NOW);
        switch.on_no_room(JobId(1));
        switch.on_at(NOW, JobId(1), Left::Active);
        let failed = Misplaced::new(JobId(2), Left::Active);
        let full = Misplaced { had_no_room: true, ..Misplaced::new(JobId(1), Left::Active) };
        assert_eq!(switch.on_at(NOW, JobId(2), Left::Active), Next::Over(vec![full, failed]));
    }

    #[test]
    fn jobs_that_end_at_any_time_are_not_waited_for() {
        for order in [SwitchOrder::Sequential, SwitchOrder::Overlapped] {
            for ends in 0..3 {
                for early in [false, true] {
                    let outgoing = [out(0, true, Rest::Parked), out(1, true, Rest::Parked)];
                    let mut switch = switching(&outgoing, &[(2, Start::Restore)], order);
                    let mut nexts = vec![switch.begin(NOW).1];
                    nexts.extend(early.then(|| switch.on_ended(NOW, JobId(ends))));
                    // Whoever was given an order and lives carries it out.
                    for _ in 0..2 {
                        for job in (0..3).map(JobId).filter(|job| !early || job.0 != ends) {
                            let goes = switch.goes_to(job).unwrap();
                            nexts.push(switch.on_at(NOW, job, goes));
                        }
                        nexts.push(switch.on_ended(NOW, JobId(ends)));
                    }
                    assert!(nexts.contains(&Next::Over(vec![])), "{order:?} {ends} {early}: {nexts:?}");
                }
            }
        }
    }

    #[test]
    fn a_job_that_stays_keeps_the_others_out() {
        let incoming = [(3, Start::Restore), (4, Start::Launch), (5, Start::Resume)];
        let mut switch = switching(&[out(1, true, Rest::Parked)], &incoming, SwitchOrder::Sequential);
        let misplaced = |job, left| Misplaced::new(JobId(job), left);
        let expected = vec![
            misplaced(1, Left::Active),
            misplaced(3, Left::Parked),
            misplaced(4, Left::Unlaunched),
            misplaced(5, Left::Suspended),
        ];
        assert_eq!(switch.on_at(NOW, JobId(1), Left::Active), Next::Over(expected));
    }

    #[test]
    fn an_activation_begins_with_bringing_in_and_an_empty_switch_is_over_at_once() {
        let order = SwitchOrder::Sequential;
        assert!(matches!(switching(&[], &[(3, Start::Launch)], order).begin(NOW).1, Next::Go(..)));
        assert_eq!(switching(&[], &[], order).begin(NOW).1, Next::Over(vec![]));
        let mut stops = switching(&[out(1, true, Rest::Suspended)], &[], order);
        assert_eq!(stops.begin(NOW).0, [(JobId(1), Order::Suspend)]);
        assert_eq!(stops.on_at(NOW, JobId(1), Left::Suspended), Next::Over(vec![]));
    }
}
