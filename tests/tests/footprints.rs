//! Jobs that declare more than they hold: they stay in memory between their turns, and where one grows into
//! what others hold, these leave before the node is full.

use std::{fs, time::Duration};

use coswitch_policies::{Bytes, JobId, SwitchOrder};
use coswitch_report::journal::{Event, JobOutcome};
use coswitch_tests::{
    cluster::RUN_LIMIT,
    master::{Ended, Master},
    parts,
};

/// Runs for `steps` fiftieths of a second. After half of them it holds `mib` more, 8 MiB at a time with
/// `pause` between. It begins with that when it has just got its turn, which a long step tells it: where a
/// turn ended amid the growth, the job would leave memory with the turn and need not be stopped.
const PROGRAM: &str = "import sys, time\\n\
    from mpi4py import MPI\\n\
    steps, mib, pause = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])\\n\
    world, kept, began, grows = MPI.COMM_WORLD, [], time.monotonic(), False\\n\
    for step in range(steps):\\n\
    \x20   assert world.allreduce(step) == step * world.size\\n\
    \x20   now = time.monotonic()\\n\
    \x20   lasted, began = world.allreduce(now - began, MPI.MAX), now\\n\
    \x20   grows = grows or step >= steps // 2 and lasted > 0.5\\n\
    \x20   time.sleep(0.02)\\n\
    \x20   while grows and len(kept) < mib // 8:\\n\
    \x20       kept.append(bytes([len(kept) % 255 + 1]) * (8 << 20))\\n\
    \x20       time.sleep(pause)\\n\
    assert len(kept) == mib // 8\\n\
    assert all(part.count(n % 255 + 1) == 8 << 20 for n, part in enumerate(kept))\\n\
    print('VERIFICATION SUCCESSFUL', flush=True)";

const OUT: &str = "VERIFICATION SUCCESSFUL";

fn run(run_file: &str) -> Ended {
    let python = parts::python().display().to_string();
    let master = Master::run(&run_file.replace("{python}", &python).replace("{program}", PROGRAM));
    let out = master.out();
    let mut said = Vec::new();
    let ended = master.end_with(RUN_LIMIT, Duration::ZERO, || {
        let jobs = fs::read_dir(&out).expect("the run's directory").flatten().map(|entry| entry.path());
        for job in jobs.filter(|path| path.is_dir() && path.join("rank-0.out").exists()) {
            let output = |rank| fs::read_to_string(job.join(format!("rank-{rank}.out"))).unwrap_or_default();
            said.extend([output(0), output(1)]);
        }
    });
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(!said.is_empty() && said.iter().all(|said| said.contains(OUT)), "{said:?}");
    let jobs = ended.events.iter().filter_map(|event| match &event.kind {
        Event::JobFinished { outcome, .. } => Some(outcome),
        _ => None,
    });
    assert!(jobs.clone().count() > 1 && jobs.clone().all(JobOutcome::is_success), "{ended:?}");
    ended
}

/// Four jobs of about 60 MiB a rank that declare 250: two of them share a slot, and all four fit in memory.
const DECLARE_TOO_MUCH: &str = r#"
cluster: {nodes: 2, memory: 500MiB, store: "{store}"}
scheduler: {policy: hybrid, quantum: 3s}
jobs:
  - name: job
    command: ["{python}", "-c", "{program}", "600", "0", "0"]
    ranks: 2
    memory: 250MiB
    count: 4
"#;

#[test]
fn jobs_that_hold_a_fourth_of_what_they_declare_stay_in_memory_between_their_turns() {
    let ended = run(DECLARE_TOO_MUCH);
    let (mut launched, mut turns, mut moved) = (0, 0, Vec::new());
    for event in &ended.events {
        match &event.kind {
            Event::JobLaunched { .. } => launched += 1,
            Event::SwitchStarted { outgoing, incoming, parked, order, .. } if launched == 4 => {
                turns += u32::from(!outgoing.is_empty() && !incoming.is_empty());
                assert_ne!(*order, SwitchOrder::Overlapped);
                moved.extend(parked.clone().unwrap_or_default());
            }
            _ => {}
        }
    }
    // A job that has never run needs what it declares, so that those of the first turn leave once.
    assert!(turns >= 3 && moved.is_empty(), "{turns} turns, {moved:?} left memory");
    check_samples(&ended, Bytes::mib(500));
}

/// Two jobs that take turns, begin with about 60 MiB a rank and grow to about 300; a node holds 380.
const GROW: &str = r#"
cluster: {nodes: 2, memory: 380MiB, store: "{store}"}
scheduler: {policy: gang, quantum: 2s}
jobs:
  - name: job
    command: ["{python}", "-c", "{program}", "500", "232", "{pause}"]
    ranks: 2
    memory: 330MiB
    count: 2
"#;

fn check_samples(ended: &Ended, limit: Bytes) {
    let mut samples = 0;
    for event in &ended.events {
        if let Event::MemorySample { peak, looks, .. } = &event.kind {
            assert!(*peak <= limit, "{event:?}");
            samples += looks;
        }
    }
    assert!(samples >= 40, "{samples} samples are too few");
}

/// Turns in which a job was suspended in memory and not parked, and jobs that left beside a turn.
fn suspended_and_evicted(ended: &Ended) -> (usize, Vec<JobId>) {
    let (mut suspended, mut evicted) = (0, Vec::new());
    for event in &ended.events {
        if let Event::SwitchStarted { outgoing, incoming, parked, .. } = &event.kind {
            let parked = parked.clone().unwrap_or_default();
            suspended += outgoing.iter().filter(|job| !parked.contains(job)).count();
            evicted.extend(parked.into_iter().filter(|_| incoming.is_empty()));
        }
    }
    (suspended, evicted)
}

fn check_growth(pause: &str) -> Ended {
    let ended = run(&GROW.replace("{pause}", pause));
    check_samples(&ended, Bytes::mib(380));
    let (suspended, evicted) = suspended_and_evicted(&ended);
    assert!(suspended > 0, "both fitted at first: {ended:?}");
    assert!(!evicted.is_empty(), "one left for the other that grew: {ended:?}");
    ended
}

fn was_stopped(ended: &Ended) -> bool {
    ended.events.iter().any(|event| matches!(event.kind, Event::RunningStopped { .. }))
}

#[test]
fn suspended_jobs_leave_while_a_running_one_grows_slowly_into_what_they_hold() {
    check_growth("0.3");
}

#[test]
fn a_job_that_grows_at_once_is_stopped_until_suspended_ones_have_left() {
    let ended = check_growth("0");
    assert!(was_stopped(&ended), "{ended:?}");
}
