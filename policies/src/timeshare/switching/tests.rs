//! Tests of the switch executor: stories, and a property over random answers.

use std::{collections::BTreeMap, time::Duration};

use proptest::prelude::*;

use super::*;
use crate::Incoming;
use crate::{SlotId, SwitchId};

const NOW: SimTime = SimTime(0);

fn out(job: u32, running: bool, to: Residence) -> Outgoing {
    Outgoing { job: JobId(job), running, to }
}

fn plan(
    outgoing: &[Outgoing],
    incoming: &[(u32, Start)],
    order: SwitchOrder,
    purpose: Purpose,
) -> SwitchPlan {
    let comes =
        |(job, start): &(u32, Start)| Incoming { job: JobId(*job), start: *start, placement: <_>::default() };
    SwitchPlan {
        switch: SwitchId(0),
        slot: SlotId(0),
        purpose,
        outgoing: outgoing.to_vec(),
        incoming: incoming.iter().map(comes).collect(),
        order,
    }
}

fn switching(outgoing: &[Outgoing], incoming: &[(u32, Start)], order: SwitchOrder) -> Switching {
    Switching::new(plan(outgoing, incoming, order, Purpose::Turn))
}

fn seconds(seconds: u64) -> SimTime {
    SimTime::from(Duration::from_secs(seconds))
}

/// A job reports where it is, without a failure.
fn at(switch: &mut Switching, job: u32, residence: Residence) -> SwitchAction {
    switch.on_residence(NOW, JobId(job), residence, Cause::Failed)
}

fn give(orders: &[(u32, Order)]) -> SwitchAction {
    SwitchAction::Give(orders.iter().map(|(job, order)| (JobId(*job), *order)).collect())
}

fn misplaced(action: SwitchAction) -> Vec<(u32, Residence, Cause)> {
    let SwitchAction::Over(outcome) = action else { panic!("the switch goes on: {action:?}") };
    outcome.misplaced.into_iter().map(|there| (there.job.0, there.at, there.cause)).collect()
}

#[test]
fn no_job_comes_in_before_all_have_left() {
    let outgoing = [out(1, true, Residence::Parked), out(2, false, Residence::Parked)];
    let mut switch = switching(&outgoing, &[(3, Start::Restore)], SwitchOrder::Sequential);
    assert_eq!(switch.begin(NOW), give(&[(1, Order::Park), (2, Order::Park)]));
    assert_eq!(at(&mut switch, 1, Residence::Parked), SwitchAction::Wait);
    assert_eq!(at(&mut switch, 2, Residence::Parked), give(&[(3, Order::Restore)]));
    assert_eq!(misplaced(at(&mut switch, 3, Residence::Running)), []);
}

#[test]
fn overlapped_jobs_stop_first_and_are_dumped_while_others_come() {
    let mut switch =
        switching(&[out(1, true, Residence::Parked)], &[(3, Start::Restore)], SwitchOrder::Overlapped);
    assert_eq!(switch.begin(seconds(1)), give(&[(1, Order::Suspend)]));
    let stopped = switch.on_residence(seconds(2), JobId(1), Residence::Suspended, Cause::Failed);
    assert_eq!(stopped, give(&[(1, Order::Park), (3, Order::Restore)]));
    let came = switch.on_residence(seconds(5), JobId(3), Residence::Running, Cause::Failed);
    assert_eq!(came, SwitchAction::Wait);
    let dumped = switch.on_residence(seconds(9), JobId(1), Residence::Parked, Cause::Failed);
    let SwitchAction::Over(outcome) = dumped else { panic!("all have answered") };
    assert_eq!(outcome.exposed, Some(Span { from: seconds(1), to: seconds(5) }), "the later dump is hidden");
    assert_eq!(outcome.restore, Some(Span { from: seconds(2), to: seconds(5) }));
}

#[test]
fn a_full_store_is_told_from_a_failure() {
    let outgoing = [out(1, true, Residence::Parked), out(2, true, Residence::Parked)];
    let mut switch = switching(&outgoing, &[], SwitchOrder::Sequential);
    switch.begin(NOW);
    switch.on_residence(NOW, JobId(1), Residence::Running, Cause::NoRoom);
    let over = at(&mut switch, 2, Residence::Running);
    let (full, failed) = ((1, Residence::Running, Cause::NoRoom), (2, Residence::Running, Cause::Failed));
    assert_eq!(misplaced(over), [full, failed]);
}

#[test]
fn a_job_that_stays_keeps_the_others_out() {
    let incoming = [(3, Start::Restore), (4, Start::Launch), (5, Start::Resume)];
    let mut switch = switching(&[out(1, true, Residence::Parked)], &incoming, SwitchOrder::Sequential);
    switch.begin(NOW);
    let expected = [
        (1, Residence::Running),
        (3, Residence::Parked),
        (4, Residence::Unlaunched),
        (5, Residence::Suspended),
    ];
    let expected = expected.map(|(job, at)| (job, at, Cause::Failed));
    assert_eq!(misplaced(at(&mut switch, 1, Residence::Running)), expected);
}

#[test]
fn an_activation_begins_with_bringing_in_and_an_empty_switch_is_over_at_once() {
    let order = SwitchOrder::Sequential;
    assert_eq!(switching(&[], &[(3, Start::Launch)], order).begin(NOW), give(&[(3, Order::Launch)]));
    assert_eq!(misplaced(switching(&[], &[], order).begin(NOW)), []);
    let mut stops = switching(&[out(1, true, Residence::Suspended)], &[], order);
    assert_eq!(stops.begin(NOW), give(&[(1, Order::Suspend)]));
    assert_eq!(misplaced(at(&mut stops, 1, Residence::Suspended)), []);
}

#[test]
fn work_beside_a_turn_leaves_its_jobs_suspended_and_is_not_exposed() {
    let outgoing = [out(1, false, Residence::Parked)];
    let ahead = plan(&outgoing, &[(2, Start::Restore)], SwitchOrder::Sequential, Purpose::Ahead);
    let mut switch = Switching::new(ahead);
    assert_eq!(switch.begin(NOW), give(&[(1, Order::Park)]));
    assert_eq!(at(&mut switch, 1, Residence::Parked), give(&[(2, Order::Prefetch)]));
    let SwitchAction::Over(outcome) = at(&mut switch, 2, Residence::Suspended) else {
        panic!("all have answered")
    };
    assert_eq!((outcome.misplaced, outcome.exposed), (vec![], None));
}

fn starts() -> impl Strategy<Value = Start> {
    prop_oneof![Just(Start::Launch), Just(Start::Restore), Just(Start::Resume)]
}

fn orders() -> impl Strategy<Value = SwitchOrder> {
    use SwitchOrder::{Overlapped, Prefetch, Sequential};
    prop_oneof![Just(Sequential), Just(Overlapped), Just(Prefetch)]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever jobs answer and whenever they end: each order is given to a living job that has answered the
    /// one before, no job comes in while an outgoing one holds its memory unplanned, and the switch ends when
    /// all have answered.
    #[test]
    fn every_order_is_answered_and_every_switch_ends(
        stops in prop::collection::vec((any::<bool>(), any::<bool>()), 0..4),
        comes in prop::collection::vec(starts(), 0..4),
        order in orders(),
        ahead in any::<bool>(),
        answers in prop::collection::vec((0_usize..8, 0_u8..8), 60),
    ) {
        let outgoing: Vec<Outgoing> = (0..).zip(&stops).map(|(job, (running, parks))| {
            out(job, *running, if *parks || !running { Residence::Parked } else { Residence::Suspended })
        }).collect();
        let incoming: Vec<(u32, Start)> = (10..).zip(comes).collect();
        let purpose = if ahead { Purpose::Ahead } else { Purpose::Turn };
        let mut switch = Switching::new(plan(&outgoing, &incoming, order, purpose));
        let mut given: BTreeMap<JobId, Order> = BTreeMap::new();
        let mut residence: BTreeMap<JobId, Residence> = outgoing.iter()
            .map(|out| (out.job, if out.running { Residence::Running } else { Residence::Suspended }))
            .chain(incoming.iter().map(|(job, start)| (JobId(*job), start.origin()))).collect();
        let mut action = switch.begin(NOW);
        for (pick, answer) in answers {
            match action {
                SwitchAction::Over(ref outcome) => {
                    prop_assert!(given.is_empty(), "no order is left without an answer");
                    for (job, at) in residence.iter().filter(|(_, at)| !at.is_ended()) {
                        let told = outcome.misplaced.iter().find(|there| there.job == *job);
                        let planned = outgoing.iter().find(|out| out.job == *job).map(|out| out.to);
                        let planned = planned.unwrap_or(purpose.incoming_to());
                        prop_assert_eq!(told.map_or(planned, |there| there.at), *at, "{} is told right", job);
                    }
                    return Ok(());
                }
                SwitchAction::Give(ref orders) => {
                    for (job, order) in orders {
                        prop_assert!(!residence[job].is_ended(), "{job} has ended");
                        prop_assert_eq!(given.insert(*job, *order), None, "one order at a time");
                        let comes = job.0 >= 10;
                        let stuck = outgoing.iter().any(|out| residence[&out.job] == Residence::Running);
                        prop_assert!(!comes || !stuck, "no job comes in while another still runs");
                    }
                }
                SwitchAction::Wait => {}
            }
            let job = *given.keys().nth(pick % given.len()).expect("the switch waits for an answer");
            let wanted = match given.remove(&job).expect("it was just seen") {
                Order::Launch | Order::Resume | Order::Restore => Residence::Running,
                Order::Suspend | Order::Prefetch => Residence::Suspended,
                Order::Park => Residence::Parked,
                Order::End | Order::Checkpoint => unreachable!("a switch ends no job, and checkpoints none"),
            };
            let now = residence[&job];
            let at = match answer { 0 => Residence::Finished, 1 => Residence::Failed, 2 => now, _ => wanted };
            residence.insert(job, at);
            action = switch.on_residence(NOW, job, at, Cause::Failed);
        }
        prop_assert!(matches!(action, SwitchAction::Over(_)), "sixty answers are enough");
    }
}
