use coswitch_policies::local::{
    Buffering, DtsMode,
    explicit::{Filling, LoadRule},
};

use super::*;

const MS: Duration = Duration::from_millis(1);

fn mix(jobs: &[MixJob]) -> Mix {
    let (latency, context_switch) = (Duration::from_micros(10), Duration::from_micros(2));
    Mix { nodes: 2, jobs: jobs.to_vec(), local: None, hogs: 0, limit: None, latency, context_switch }
}

fn job(grain: Duration, pattern: Pattern, steps: u64) -> MixJob {
    MixJob { grain, imbalance: 0.0, pattern, steps, on_each: 1 }
}

const ALL: [Option<Technique>; 13] = [
    None,
    Some(Technique::DCS),
    Some(Technique::ICS),
    Some(Technique::PREDICTIVE),
    Some(Technique::DYNAMIC),
    Some(Technique::HPDT),
    Some(Technique::DTS),
    Some(Technique::DTS_STATIC),
    Some(Technique::DTS_BALANCED),
    Some(Technique::DTS_STOP),
    Some(Technique::FCS),
    Some(Technique::BCS),
    Some(Technique::ROUND_ROBIN),
];

#[test]
fn a_job_alone_takes_its_grains_and_messages() {
    let alone = mix(&[job(MS, Pattern::Neighbour, 100)]);
    let took = simulate_mix(&alone, None, 1).jobs[0].ended;
    assert!(took >= 101 * MS && took < 102 * MS, "{took:?}");
}

/// Whatever is decided, all work is done: each job ends, not before its processor time has passed, and
/// local tasks end as well.
#[test]
fn under_every_technique_all_jobs_end_and_no_work_is_lost() {
    let fine = job(MS / 5, Pattern::Neighbour, 1000);
    let uneven = MixJob { imbalance: 0.8, ..job(5 * MS, Pattern::All, 40) };
    let both = Mix {
        local: Some(LocalLoad { every: 50 * MS, work: 5 * MS, lasts: 300 * MS }),
        ..mix(&[fine, uneven, job(5 * MS, Pattern::None, 40)])
    };
    for technique in ALL {
        let report = simulate_mix(&both, technique, 3);
        let last = report.jobs.iter().map(|job| job.ended).max().unwrap();
        assert!(report.jobs.iter().all(|job| job.ended >= 180 * MS), "{technique:?}: {report:?}");
        // Under BCS each of the thousand fine steps takes two slots of 2 ms.
        let most = if technique.and_then(Technique::buffering).is_some() { 5000 } else { 3000 };
        assert!(last >= 560 * MS && last < most * MS, "{technique:?}: {report:?}");
        let alone = simulate_mix(&Mix { jobs: vec![], ..both.clone() }, technique, 3);
        assert!(alone.local_tasks > 0 && alone.local_tasks == report.local_tasks, "{technique:?}");
        assert!(alone.local_response <= report.local_response, "{technique:?}: {alone:?}, {report:?}");
        assert_eq!(report, simulate_mix(&both, technique, 3), "{technique:?}");
    }
}

#[test]
fn messages_that_wait_for_a_slot_make_fine_grains_slow() {
    let fine = mix(&[job(MS / 5, Pattern::Neighbour, 500)]);
    let [none, bcs] =
        [None, Some(Technique::BCS)].map(|technique| simulate_mix(&fine, technique, 1).jobs[0].ended);
    let slot = Technique::BCS.slot().unwrap();
    assert!(none < 110 * MS && bcs >= 499 * slot, "{none:?} {bcs:?}");
}

#[test]
fn more_exchanges_and_the_dedicated_mode_shorten_the_way_of_a_message() {
    let fine = job(MS / 5, Pattern::Neighbour, 200);
    let alone = mix(std::slice::from_ref(&fine));
    let shared = mix(&[fine, fine]);
    let ended = |mix: &Mix, exchanges, dedicated| {
        let buffering = Buffering { exchanges, dedicated };
        let technique = Technique::Bcs { slice: 10 * MS, buffering };
        simulate_mix(mix, Some(technique), 1).jobs[0].ended
    };
    let slots = |count: u32| count * Technique::BCS.slot().unwrap();
    let (one, four) = (ended(&alone, 1, false), ended(&alone, 4, false));
    assert!(one >= slots(199) && four < slots(110) && four >= slots(50), "{one:?} {four:?}");
    assert!(ended(&alone, 1, true) < 50 * MS, "nobody shares a node: no message waits");
    assert!(ended(&shared, 1, true) >= slots(199), "two jobs share them");
}

/// The console hears of local tasks that pile up in their short slices, and gives them longer ones.
#[test]
fn balanced_slices_follow_the_load_of_a_mix() {
    let load = LoadRule { sample_every: 50 * MS, samples: 4, past_weight: 0.0, threshold: 0.5 };
    let balanced = |load| {
        let mode = DtsMode::Balanced { period: 100 * MS, load };
        Some(Technique::Dts { slice: 10 * MS, mode, filling: Filling::Both })
    };
    let busy = LocalLoad { every: 40 * MS, work: 20 * MS, lasts: 2000 * MS };
    let beside = Mix { local: Some(busy), ..mix(&[job(5 * MS, Pattern::None, 600)]) };
    let [quick, slow] = [load, LoadRule { sample_every: 1000 * MS, samples: 100, ..load }]
        .map(|load| simulate_mix(&beside, balanced(load), 1));
    assert_eq!(slow.slices_set, 0, "its first load would come after 100 s");
    assert!(quick.slices_set > 1 && quick.local_response * 2 < slow.local_response, "{quick:?}, {slow:?}");
}

/// Also where ranks spin until their slices are over.
#[test]
fn two_fine_jobs_make_their_steps_and_no_more() {
    let fine = job(MS / 5, Pattern::Neighbour, 5000);
    for technique in ALL {
        let report = simulate_mix(&mix(&[fine, fine]), technique, 1);
        let last = report.jobs.iter().map(|job| job.ended).max().unwrap();
        assert!(last >= 2000 * MS && last < 60_000 * MS, "{technique:?}: {report:?}");
    }
}

/// A rank whose neighbour is some steps ahead has more messages than those of the next step.
#[test]
fn uneven_ranks_of_a_long_ring_lose_no_message() {
    let uneven = MixJob { imbalance: 1.0, on_each: 3, ..job(MS, Pattern::Neighbour, 200) };
    let ring = Mix { nodes: 4, hogs: 1, ..mix(&[uneven, uneven]) };
    for technique in ALL {
        let report = simulate_mix(&ring, technique, 5);
        for job in &report.jobs {
            assert!(job.ended > 600 * MS, "{technique:?}: {report:?}");
            let executed = job.used.account.executed;
            assert!(executed >= 12 * 150 * MS, "{technique:?}: {executed:?}");
        }
    }
}

/// Of a closed load: all tasks want the processor all the time, and it is never idle.
#[test]
fn up_to_its_limit_a_closed_load_shares_the_processor_and_counts_it() {
    let endless = job(MS, Pattern::None, MixJob::ENDLESS);
    let limit = Some(1000 * MS);
    let closed = Mix { hogs: 2, limit, ..mix(&[endless, endless]) };
    let report = simulate_mix(&closed, Some(Technique::ROUND_ROBIN), 1);
    for job in &report.jobs {
        let account = job.used.account;
        let share = account.executed.as_secs_f64() / account.ready().as_secs_f64();
        assert!((share - 0.25).abs() < 0.02, "{report:?}");
        assert_eq!((job.ended, account.degrees()), (Duration::ZERO, None));
    }
    let longer = simulate_mix(&Mix { limit: Some(2000 * MS), ..closed.clone() }, Some(Technique::FCS), 1);
    let shorter = simulate_mix(&closed, Some(Technique::FCS), 1);
    // Three slots of 50 ms take turns, one of them for others; trials are over after the first second.
    let later = longer.jobs[0].used.since(&shorter.jobs[0].used).slots;
    assert_eq!((later.coscheduled, later.frustrated), (0, 0), "{later:?}");
    assert!((12..=14).contains(&later.dont_care), "{later:?}");
}
