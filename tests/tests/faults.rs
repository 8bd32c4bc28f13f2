//! Faults: a killed process or a damaged snapshot ends only the job concerned, and leaves nothing behind.

use std::{fs, path::PathBuf, time::Duration};

use coswitch_daemon::protocol::Exit;
use coswitch_dispatcher::protocol::{AppOutcome, Order};
use coswitch_examples::Program;
use coswitch_policies::{JobId, NodeId};
use coswitch_tests::{
    cluster::{JobStatus, RUN_LIMIT, STEP_LIMIT, TestCluster, run_on},
    job::TestJob,
    parts,
    seed::{seed, span},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// Four ranks on two nodes that run until they are ended.
fn endless() -> TestJob {
    TestJob::program(Program::RingCheck, &["--rounds", "100000000", "--max-bytes", "256KiB"]).on(4, 2)
}

/// A job that must not be affected by the failure of the other one.
fn bystander() -> TestJob {
    TestJob::program(Program::Cg, &["--class", "W", "--seconds", "1"]).on(2, 2)
}

fn launch(cluster: &mut TestCluster, spec: TestJob) -> JobId {
    let job = cluster.launch(spec);
    assert_eq!(*cluster.wait_for_order(job), JobStatus::Running);
    job
}

fn kill_one(pids: &[u32]) {
    let victim = pids.first().expect("there is such a process");
    kill(Pid::from_raw(victim.cast_signed()), Signal::SIGKILL).expect("it runs");
}

/// Waits until there are `ranks` processes of the job named `name`, or the job has ended.
fn wait_for_ranks(cluster: &mut TestCluster, job: JobId, name: &str, ranks: usize) -> Vec<u32> {
    cluster.wait_until("the ranks to start", STEP_LIMIT, |cluster| {
        matches!(cluster.jobs[&job].status, JobStatus::Ended(_))
            || cluster.processes(job, name).len() == ranks
    });
    cluster.processes(job, name)
}

/// It would wait 15 s for the link: longer, after some launches, than the head node waits for a release.
#[test]
fn a_part_that_waits_for_another_node_is_released_at_once() {
    run_on(2, |cluster| {
        let daemon = Pid::from_raw(cluster.daemon(NodeId(0)).cast_signed());
        kill(daemon, Signal::SIGSTOP).expect("it runs");
        let job = cluster.launch(endless());
        let part = cluster.shared_memory(NodeId(1), job);
        cluster.poll_until("the part on the other node", STEP_LIMIT, |_| part.exists());
        cluster.order(job, Order::End);
        cluster.poll_until("the release", Duration::from_secs(8), |_| !part.exists());
        kill(daemon, Signal::SIGCONT).expect("it stands still");
        assert_eq!(cluster.wait_for_end(job, RUN_LIMIT), AppOutcome::Stopped);
    });
}

#[test]
fn killed_rank_fails_only_its_job() {
    run_on(2, |cluster| {
        let (victim, other) = (launch(cluster, endless()), launch(cluster, bystander()));
        let ranks = wait_for_ranks(cluster, victim, "ring-check", 4);
        cluster.run_for(Duration::from_millis(500));
        kill_one(&ranks);
        let outcome = cluster.wait_for_end(victim, STEP_LIMIT);
        assert!(matches!(outcome, AppOutcome::RankFailed { exit: Exit::Signal(9), .. }), "{outcome:?}");
        cluster.verify(other, RUN_LIMIT);
    });
}

#[test]
fn killed_launcher_fails_only_its_job() {
    run_on(2, |cluster| {
        let (victim, other) = (launch(cluster, endless()), launch(cluster, bystander()));
        cluster.run_for(Duration::from_millis(500));
        kill_one(&cluster.processes(victim, "coswitch-launch"));
        let outcome = cluster.wait_for_end(victim, STEP_LIMIT);
        assert!(matches!(outcome, AppOutcome::Lost { .. }), "{outcome:?}");
        cluster.verify(other, RUN_LIMIT);
    });
}

#[test]
fn rank_killed_after_a_restore_fails_its_job() {
    run_on(2, |cluster| {
        let job = launch(cluster, endless());
        cluster.run_for(Duration::from_millis(500));
        assert!(cluster.park(job) && cluster.restore(job));
        kill_one(&wait_for_ranks(cluster, job, "ring-check", 4));
        let outcome = cluster.wait_for_end(job, STEP_LIMIT);
        assert!(matches!(outcome, AppOutcome::RankFailed { exit: Exit::Signal(9), .. }), "{outcome:?}");
    });
}

#[test]
fn job_can_be_ended_while_its_restore_hangs_after_a_rank_was_killed() {
    let mut seed = seed();
    run_on(2, |cluster| {
        for _ in 0..4 {
            let job = launch(cluster, endless());
            cluster.run_for(Duration::from_millis(500));
            assert!(cluster.park(job));
            cluster.order(job, Order::Restore);
            cluster.wait_until("a rank to appear", STEP_LIMIT, |cluster| {
                cluster.jobs[&job].status == JobStatus::Running
                    || !cluster.processes(job, "ring-check").is_empty()
            });
            cluster.run_for(span(&mut seed, Duration::from_millis(60)));
            let ranks = cluster.processes(job, "ring-check");
            ranks.first().into_iter().for_each(|_| kill_one(&ranks));
            cluster.run_for(Duration::from_secs(2));
            cluster.order(job, Order::End);
            cluster.wait_for_end(job, STEP_LIMIT);
            assert!(
                !cluster.jobs[&job].mended.iter().any(|what| what.contains("no answer")),
                "it was left behind"
            );
        }
    });
}

#[test]
fn failed_rank_is_reported_with_its_status_and_last_output() {
    run_on(1, |cluster| {
        let job = cluster.launch(TestJob::new("sh", "/bin/sh", &["-c", "echo no luck >&2; exit 3"], None));
        let AppOutcome::RankFailed { rank: 0, exit, last_output } = cluster.wait_for_end(job, STEP_LIMIT)
        else {
            panic!("a rank has failed: {:?}", cluster.jobs[&job].status)
        };
        assert_eq!((exit, last_output.as_str()), (Exit::Status(3), "no luck"));
    });
}

#[test]
fn rank_that_aborts_ends_its_job() {
    const ABORT: &str = "from mpi4py import MPI; import time\n\
                         MPI.COMM_WORLD.Abort(7) if MPI.COMM_WORLD.rank == 1 else time.sleep(600)";
    run_on(2, |cluster| {
        let python = parts::python().display().to_string();
        let job = cluster.launch(TestJob::new("abort", &python, &["-c", ABORT], None).on(3, 2));
        let outcome = cluster.wait_for_end(job, STEP_LIMIT);
        assert!(
            matches!(outcome, AppOutcome::RankFailed { rank: 1, exit: Exit::Aborted(7), .. }),
            "{outcome:?}"
        );
    });
}

#[test]
fn missing_program_is_reported() {
    run_on(2, |cluster| {
        let job = cluster.launch(TestJob::new("nothing", "/nowhere/program", &[], None).on(2, 2));
        let outcome = cluster.wait_for_end(job, STEP_LIMIT);
        assert!(matches!(outcome, AppOutcome::RankFailed { exit: Exit::NotStarted(_), .. }), "{outcome:?}");
    });
}

#[test]
fn killed_daemon_concerns_only_the_jobs_of_its_node() {
    run_on(3, |cluster| {
        let spanning = launch(cluster, endless());
        let elsewhere = TestJob { placement: vec![NodeId(2); 2], ..bystander() };
        let elsewhere = launch(cluster, elsewhere);
        cluster.run_for(Duration::from_millis(500));
        kill_one(&[cluster.daemon(NodeId(1))]);
        // It was never parked, and is to be launched again.
        cluster.wait_until("the spanning job to be removed", STEP_LIMIT, |cluster| {
            cluster.jobs[&spanning].status == JobStatus::Unlaunched
        });
        assert!(cluster.lost.contains_key(&NodeId(1)) && cluster.lost.len() == 1, "{:?}", cluster.lost);
        cluster.verify(elsewhere, RUN_LIMIT);
    });
}

#[test]
fn foreign_text_in_the_output_of_a_parked_job_is_kept_elsewhere() {
    run_on(2, |cluster| {
        let job =
            launch(cluster, TestJob::program(Program::Cg, &["--class", "A", "--seconds", "2"]).on(2, 2));
        cluster.run_for(Duration::from_millis(800));
        assert!(cluster.park(job));
        let output = cluster.jobs[&job].output.clone();
        let before = fs::read(output.join("rank-0.out")).unwrap();
        fs::write(output.join("rank-0.out"), [&before[..], b"a stranger was here\n"].concat()).unwrap();
        assert!(cluster.restore(job));
        cluster.verify(job, RUN_LIMIT);
        let own = fs::read_to_string(output.join("rank-0.out")).unwrap();
        assert!(!own.contains("stranger"), "{own}");
        let kept =
            fs::read_dir(&output).unwrap().map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
        assert_eq!(
            kept.filter(|text| text.contains("a stranger was here")).count(),
            1,
            "the foreign text is kept elsewhere"
        );
    });
}

/// The largest image of the last snapshot except pages, which may be restored from memory.
fn an_image(cluster: &TestCluster, node: NodeId, job: JobId) -> PathBuf {
    let epochs = fs::read_dir(cluster.snapshots(node, job)).unwrap().map(|entry| entry.unwrap().path());
    let images =
        fs::read_dir(epochs.max().unwrap().join("images")).unwrap().map(|entry| entry.unwrap().path());
    let is_pages = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with("pages");
    images.filter(|path| !is_pages(path)).max_by_key(|path| path.metadata().unwrap().len()).unwrap()
}

/// Flips one bit of an image and returns its path.
fn damage(cluster: &TestCluster, job: JobId) -> PathBuf {
    let image = an_image(cluster, NodeId(1), job);
    let mut bytes = fs::read(&image).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    fs::write(&image, bytes).unwrap();
    image
}

fn wait_for_seals(cluster: &mut TestCluster, job: JobId) {
    let nodes = [NodeId(0), NodeId(1)];
    cluster
        .wait_until("the seal", STEP_LIMIT, |cluster| nodes.iter().all(|node| cluster.is_sealed(*node, job)));
}

#[test]
fn job_with_a_damaged_snapshot_is_restored_from_the_one_before_and_verifies() {
    run_on(2, |cluster| {
        let job = launch(cluster, TestJob::program(Program::RingCheck, &["--seconds", "3"]).on(4, 2));
        cluster.run_for(Duration::from_millis(400));
        assert!(cluster.park(job) && cluster.restore(job));
        cluster.run_for(Duration::from_millis(400));
        assert!(cluster.park(job));
        wait_for_seals(cluster, job);
        damage(cluster, job);
        assert!(cluster.restore(job), "the snapshot before the damaged one is restored");
        cluster.run_for(Duration::from_millis(200));
        assert!(cluster.park(job) && cluster.restore(job), "the job can be switched again");
        let mended = std::mem::take(&mut cluster.jobs.get_mut(&job).unwrap().mended);
        assert!(mended.iter().any(|what| what.contains("the snapshot before it is used")), "{mended:?}");
        cluster.verify(job, RUN_LIMIT);
    });
}

#[test]
fn damaged_image_ends_only_its_job_before_any_rank_runs() {
    run_on(2, |cluster| {
        let (victim, other) = (launch(cluster, endless()), launch(cluster, bystander()));
        cluster.run_for(Duration::from_millis(800));
        assert!(cluster.park(victim) && cluster.park(other));
        wait_for_seals(cluster, victim);
        let image = damage(cluster, victim);
        let output = cluster.jobs[&victim].output.join("rank-0.out");
        let said = fs::read(&output).unwrap();
        cluster.order(victim, Order::Restore);
        let AppOutcome::Lost { reason } = cluster.wait_for_end(victim, STEP_LIMIT) else {
            panic!("the damage was not noticed: {:?}", cluster.jobs[&victim].status)
        };
        let name = image.file_name().unwrap().to_str().unwrap();
        assert!(reason.contains("node-1") && reason.contains(name), "{reason}");
        assert_eq!(fs::read(&output).unwrap(), said, "a gang that was not fully restored has computed");
        assert!(cluster.restore(other));
        cluster.verify(other, RUN_LIMIT);
    });
}

#[test]
fn restore_with_a_killed_rank_is_given_up_and_tried_again() {
    run_on(2, |cluster| {
        let job = launch(cluster, endless());
        cluster.run_for(Duration::from_millis(300));
        assert!(cluster.park(job));
        wait_for_seals(cluster, job);
        cluster.order(job, Order::Prefetch);
        cluster.poll_until("a rank to appear", STEP_LIMIT, |cluster| {
            cluster.jobs[&job].status == JobStatus::Suspended
                || !cluster.processes(job, "ring-check").is_empty()
        });
        let ranks = cluster.processes(job, "ring-check");
        ranks.first().into_iter().for_each(|_| kill_one(&ranks));
        // A rank that was killed after its restore is found dead when the job is resumed.
        cluster.wait_for_order(job);
        cluster.order_and_wait(job, Order::Resume);
        let status = &cluster.jobs[&job].status;
        let told = matches!(
            status,
            JobStatus::Running | JobStatus::Ended(AppOutcome::RankFailed { exit: Exit::Signal(9), .. })
        );
        assert!(told, "{status:?}");
    });
}

#[test]
fn dump_that_fails_on_one_node_leaves_the_job_suspended_and_is_completed_later() {
    run_on(2, |cluster| {
        let job = launch(cluster, TestJob::program(Program::RingCheck, &["--seconds", "2"]).on(4, 2));
        cluster.run_for(Duration::from_millis(300));
        // A file has the name of the directory for the images.
        let in_the_way = cluster.snapshots(NodeId(1), job).join("epoch-1");
        fs::create_dir_all(in_the_way.parent().unwrap()).unwrap();
        fs::write(&in_the_way, "").unwrap();
        assert_eq!(*cluster.order_and_wait(job, Order::Suspend), JobStatus::Suspended);
        assert_eq!(*cluster.order_and_wait(job, Order::Park), JobStatus::Suspended);
        let stayed = std::mem::take(&mut cluster.jobs.get_mut(&job).unwrap().stayed);
        assert!(stayed.len() == 1 && stayed[0].contains("node-1"), "{stayed:?}");
        fs::remove_file(&in_the_way).unwrap();
        assert!(cluster.park(job), "node 0 already has an image of this cut, and node 1 writes one");
        assert!(cluster.restore(job));
        cluster.verify(job, RUN_LIMIT);
    });
}

#[test]
fn job_whose_dump_is_killed_is_restored_from_the_snapshot_before_and_verifies() {
    run_on(2, |cluster| {
        let job = launch(cluster, TestJob::program(Program::RingCheck, &["--seconds", "3"]).on(4, 2));
        cluster.run_for(Duration::from_millis(300));
        assert!(cluster.park(job));
        wait_for_seals(cluster, job);
        assert!(cluster.restore(job));
        cluster.run_for(Duration::from_millis(200));
        cluster.order(job, Order::Park);
        cluster.poll_until("the dump to begin", STEP_LIMIT, |cluster| {
            !cluster.processes_of_run("criu").is_empty()
                || !matches!(cluster.jobs[&job].status, JobStatus::Ordered(_))
        });
        for criu in cluster.processes_of_run("criu").into_iter().take(1) {
            // An error means that it has ended meanwhile, so that nothing needs to be repaired.
            let _ = kill(Pid::from_raw(criu.cast_signed()), Signal::SIGKILL);
        }
        let status = cluster.wait_for_order(job).clone();
        let mended = std::mem::take(&mut cluster.jobs.get_mut(&job).unwrap().mended);
        cluster.jobs.get_mut(&job).unwrap().stayed.clear();
        match status {
            JobStatus::Running => {
                assert!(mended.iter().all(|what| what.contains("the snapshot before")), "{mended:?}")
            }
            JobStatus::Parked => assert!(cluster.restore(job)),
            status => panic!("{status:?}"),
        }
        cluster.verify(job, RUN_LIMIT);
    });
}
