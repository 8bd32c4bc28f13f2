//! Memory use: jobs that need more than twice the nodes' memory stay within it, and coswitch itself takes
//! little.

use std::{fs, os::unix::fs::MetadataExt, time::Duration};

use coswitch_daemon::protocol::Wait;
use coswitch_policies::{Bytes, NodeId};
use coswitch_report::journal::Event;
use coswitch_ring::SegmentSpec;
use coswitch_tests::{
    cluster::{RUN_LIMIT, STEP_LIMIT, TestCluster, run_on},
    job::TestJob,
    master::{Ended, Master},
    parts,
};

/// Five jobs of which at most two fit together; `{policy}` is replaced.
const OVERSIZED: &str = r#"
cluster: {nodes: 2, memory: 256MiB}
scheduler: {policy: "{policy}", quantum: 500ms, switching: sequential, residency: none}
jobs:
  - name: heat
    command: ["{bin}/heat", --memory, 72MiB, --seconds, "2"]
    ranks: 2
    memory: 125MiB
    count: 3
  - name: cg
    command: ["{bin}/cg", --class, A, --seconds, "2"]
    ranks: 2
    memory: 70MiB
  - name: traffic
    command: ["{bin}/ring-check", --seconds, "1", --max-bytes, 1MiB]
    ranks: 2
    memory: 90MiB
"#;

fn run(policy: &str) {
    let master = Master::run(&OVERSIZED.replace("{policy}", policy));
    let out = master.out();
    let ended = master.end_with(RUN_LIMIT, Duration::ZERO, || {
        for job in ["heat-1", "heat-2", "heat-3", "cg", "traffic"] {
            let said = fs::read_to_string(out.join(job).join("rank-0.out")).unwrap_or_default();
            assert!(said.contains("VERIFICATION SUCCESSFUL"), "{job} said {said:?}");
        }
    });
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let capacity = capacity(&ended);
    let working_sets = ended.events.iter().filter_map(|event| match &event.kind {
        Event::JobSubmitted { ranks, memory, .. } => Some(memory.0 * u64::from(*ranks)),
        _ => None,
    });
    assert!(working_sets.sum::<u64>() >= 2 * 2 * capacity.0, "the jobs need twice the memory of the nodes");
    assert!(ended.report.as_ref().unwrap()["set"]["switches"].as_u64().unwrap() >= 2, "{ended:?}");
    check_samples(&ended, capacity);
}

fn capacity(ended: &Ended) -> Bytes {
    match &ended.events[0].kind {
        Event::RunStarted { capacity, .. } => capacity.largest(),
        other => panic!("a run begins with RunStarted, not {other:?}"),
    }
}

fn check_samples(ended: &Ended, capacity: Bytes) {
    let mut nodes = [0; 2];
    for event in &ended.events {
        if let Event::MemorySample { node, peak, by_job, looks, .. } = &event.kind {
            let jobs: Bytes = by_job.iter().map(|job| job.used).sum();
            assert!(*peak <= capacity && jobs <= capacity, "{event:?}");
            nodes[node.0 as usize] += looks;
        }
    }
    assert!(nodes.iter().all(|samples| *samples >= 20), "{nodes:?} samples are too few");
}

#[test]
fn jobs_of_twice_the_memory_stay_within_it_under_hybrid() {
    run("hybrid");
}

#[test]
fn jobs_of_twice_the_memory_stay_within_it_under_gang() {
    run("gang");
}

/// Resident memory of a process in MiB.
fn resident_mib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let kib = |name: &str| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("the kernel reports it");
        line.split_whitespace().next().unwrap().parse().unwrap()
    };
    (kib("RssAnon:") + kib("RssFile:") + kib("RssShmem:")) / 1024
}

/// Launches sixteen ranks on node 0 and one on node 1, which pass a barrier and then wait.
fn gathered(cluster: &mut TestCluster) -> coswitch_policies::JobId {
    const MEET: &str = "from mpi4py import MPI; import time\n\
                        MPI.COMM_WORLD.Barrier(); print('met', flush=True); time.sleep(600)";
    let python = parts::python().display().to_string();
    let mut spec = TestJob::new("meet", &python, &["-c", MEET], None).on(17, 1).waiting(Wait::Block);
    spec.placement[16] = NodeId(1);
    let job = cluster.launch(spec);
    let output = cluster.jobs[&job].output.clone();
    let met = move |rank: u32| {
        fs::read_to_string(output.join(format!("rank-{rank}.out"))).is_ok_and(|said| said == "met\n")
    };
    cluster.wait_until("all ranks to meet", RUN_LIMIT, |_| (0..17).all(&met));
    job
}

#[test]
fn daemon_with_sixteen_idle_ranks_takes_little_memory_and_so_do_their_rings() {
    run_on(2, |cluster| {
        let job = gathered(cluster);
        cluster.run_for(Duration::from_secs(2));
        let resident = resident_mib(cluster.daemon(NodeId(0)));
        assert!(resident <= 50, "the daemon takes {resident} MiB");
        let segment = cluster.segment(NodeId(0), job).metadata().unwrap().len();
        let spec = SegmentSpec::new(17, (0..16).collect());
        let slabs = 16 * 2 * u64::from(spec.chunk_bytes) * u64::from(spec.chunks_per_rank);
        let rings = (segment - slabs) / 16;
        assert!((64 << 10..=8 << 20).contains(&rings), "{rings} bytes of rings per rank");
        cluster.order(job, coswitch_dispatcher::protocol::Order::End);
        cluster.wait_for_end(job, STEP_LIMIT);
    });
}

#[test]
fn segment_of_a_parked_job_takes_no_memory() {
    run_on(2, |cluster| {
        let job = gathered(cluster);
        let nodes = [NodeId(0), NodeId(1)];
        let held =
            |cluster: &TestCluster, node| cluster.segment(node, job).metadata().unwrap().blocks() * 512;
        let before = held(cluster, NodeId(0));
        assert!(cluster.park(job));
        for node in nodes {
            // The daemon still reads its bell.
            assert!(
                held(cluster, node) <= 64 << 10,
                "{} bytes of {before} stay on {node}",
                held(cluster, node)
            );
        }
        assert!(cluster.restore(job));
        cluster.order(job, coswitch_dispatcher::protocol::Order::End);
        cluster.wait_for_end(job, STEP_LIMIT);
    });
}
