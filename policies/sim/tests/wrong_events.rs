//! Robustness of the scheduler: after impossible events it neither panics, nor breaks the matrix, nor names
//! jobs that have ended.

use std::{collections::BTreeSet, time::Duration};

use coswitch_policies::{
    Bytes, Cluster, Decision, JobId, JobSpec, Misplaced, NodeId, Policy, Residence, Scheduler,
    SchedulerConfig, SchedulerEvent, SimTime, SwitchId, TimerId,
    spaceshare::{choice::QueueName, sharing::SpaceSharing},
};
use proptest::prelude::*;

fn jobs() -> impl Strategy<Value = JobId> {
    (0_u32..6).prop_map(JobId)
}

fn nodes() -> impl Strategy<Value = NodeId> {
    (0_u32..3).prop_map(NodeId)
}

fn specs() -> impl Strategy<Value = JobSpec> {
    (jobs(), 0_u32..5, 0_u64..700).prop_map(|(id, ranks, mib)| JobSpec {
        id,
        name: id.to_string().into(),
        ranks,
        memory_per_rank: Bytes::mib(mib),
        arrival: SimTime(0),
    })
}

fn misplaced() -> impl Strategy<Value = Misplaced> {
    let left = prop_oneof![
        Just(Residence::Unlaunched),
        Just(Residence::Running),
        Just(Residence::Parked),
        Just(Residence::Failed)
    ];
    (jobs(), left).prop_map(|(job, left)| Misplaced::new(job, left))
}

fn events() -> impl Strategy<Value = SchedulerEvent> {
    let switches = || (0_u32..12).prop_map(SwitchId);
    prop_oneof![
        prop::collection::vec(specs(), 0..4).prop_map(|jobs| SchedulerEvent::Submitted { jobs }),
        jobs().prop_map(|job| SchedulerEvent::Finished { job }),
        jobs().prop_map(|job| SchedulerEvent::Failed { job }),
        jobs().prop_map(|job| SchedulerEvent::Held { job }),
        jobs().prop_map(|job| SchedulerEvent::Released { job }),
        (0_u32..12).prop_map(|timer| SchedulerEvent::TimerFired { timer: TimerId(timer) }),
        switches().prop_map(|switch| SchedulerEvent::SwitchDone { switch }),
        (switches(), prop::collection::vec(misplaced(), 0..4))
            .prop_map(|(switch, misplaced)| SchedulerEvent::SwitchFailed { switch, misplaced }),
        nodes().prop_map(|node| SchedulerEvent::NodeDown { node }),
        nodes().prop_map(|node| SchedulerEvent::NodeUp { node }),
        nodes().prop_map(|node| SchedulerEvent::Drained { node }),
        nodes().prop_map(|node| SchedulerEvent::Undrained { node }),
        jobs().prop_map(|job| SchedulerEvent::Checkpointed { job, stood_still: Duration::from_millis(9) }),
        jobs().prop_map(|job| SchedulerEvent::NotCheckpointed { job }),
        (jobs(), nodes(), nodes()).prop_map(|(job, from, to)| SchedulerEvent::Moved { job, from, to }),
        misplaced().prop_map(|Misplaced { job, at, .. }| SchedulerEvent::Displaced { job, at }),
    ]
}

fn policies() -> impl Strategy<Value = Policy> {
    prop_oneof![Just(Policy::Batch), Just(Policy::Cosched), Just(Policy::Gang), Just(Policy::Hybrid)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn wrong_events_do_no_harm(
        policy in policies(),
        queue in prop::option::of(0..QueueName::ALL.len()),
        events in prop::collection::vec((0_u64..5_000_000_000, events()), 0..80),
    ) {
        let queue = queue.filter(|_| policy == Policy::Batch).map(|queue| QueueName::ALL[queue].1);
        let space = queue.map(|queue| SpaceSharing { queue, ..SpaceSharing::default() });
        let mean_time_between_failures = Some(Duration::from_secs(1));
        let config = SchedulerConfig::new(policy, Duration::from_secs(1));
        let config = SchedulerConfig { space, mean_time_between_failures, ..config };
        let mut scheduler = Scheduler::new(Cluster::uniform(2, Bytes::mib(1000)), config).unwrap();
        for (at, event) in events {
            let ended: BTreeSet<JobId> = scheduler
                .jobs()
                .filter(|state| state.observed.is_ended())
                .map(|state| state.spec.id)
                .collect();
            let decisions = scheduler.on_event(SimTime(at), event);
            prop_assert_eq!(scheduler.matrix().check(), Ok(()));
            let mut placed = scheduler.matrix().rows().flat_map(|row| row.jobs()).chain(scheduler.queue());
            prop_assert!(placed.all(|job| !ended.contains(&job)));
            let plans = decisions.iter().filter_map(|decision| match decision {
                Decision::Switch(plan) => Some(plan),
                _ => None,
            });
            prop_assert!(plans.clone().count() <= 1);
            for plan in plans {
                let named = plan.outgoing.iter().map(|o| o.job).chain(plan.incoming.iter().map(|i| i.job));
                prop_assert!(named.collect::<BTreeSet<_>>().is_disjoint(&ended));
            }
        }
    }
}
