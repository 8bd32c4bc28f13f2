//! Properties of the RMS scheduler in every timeslice.

use std::collections::{BTreeMap, BTreeSet};

use coswitch_policies::{
    JobId, SimTime,
    spaceshare::{
        allocate::{Allocation, Mesh, Request},
        queue::rms::{Rms, RmsJob, RmsState},
    },
};
use proptest::prelude::*;

fn units(extent: Mesh, allocation: &Allocation) -> Vec<u32> {
    allocation.blocks.iter().flat_map(|block| extent.numbers(*block)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_cpu_is_shared_in_a_timeslice_no_job_is_moved_and_each_gets_its_turn(
        nodes in 1u32..9, cpus in 1u32..5,
        requests in prop::collection::vec((1u32..9, 1u32..5, 0u32..60), 1..12),
    ) {
        let extent = Mesh { width: nodes, height: cpus };
        let mut rms = Rms::new(nodes, cpus, u32::MAX);
        let mut last_ran: BTreeMap<JobId, u32> = BTreeMap::new();
        let mut place: BTreeMap<JobId, Allocation> = BTreeMap::new();
        let jobs = u32::try_from(requests.len()).unwrap();
        for slice in 0..120 {
            for (id, (width, height, at)) in (0..).zip(&requests) {
                let request = Request { nodes: (*width).min(nodes), cpus: (*height).min(cpus) };
                let submitted = SimTime(u64::from(*at));
                let job = RmsJob { job: JobId(id), root: false, priority: 0, request, submitted };
                if *at == slice {
                    prop_assert!(rms.submit(job));
                    last_ran.insert(job.job, slice);
                } else if at + 60 == slice {
                    rms.on_end(job.job);
                    last_ran.remove(&job.job);
                }
            }
            rms.schedule(true);
            let mut taken = BTreeSet::new();
            for (&job, last) in &mut last_ran {
                if rms.state(job) == Some(RmsState::Running) {
                    let cpus = rms.cpus_of(job).unwrap();
                    prop_assert_eq!(place.entry(job).or_insert_with(|| cpus.clone()), cpus, "never moved");
                    let units = units(extent, cpus);
                    prop_assert!(units.into_iter().all(|unit| taken.insert(unit)), "never shared");
                    *last = slice;
                }
                // The job that has waited longest goes first, and all others restart at zero when they run.
                prop_assert!(slice - *last <= jobs, "{job} waits {} slices", slice - *last);
            }
        }
    }
}
