//! What dies, is killed or damaged takes its job with it and nothing else, and nothing is left of it.

use std::{fs, path::PathBuf, time::Duration};

use coswitch_daemon::protocol::Exit;
use coswitch_dispatcher::protocol::{AppOutcome, Order};
use coswitch_examples::Program;
use coswitch_policies::{JobId, NodeId};
use coswitch_tests::{
    act::Act,
    parts,
    seed::{seed, span},
    stage::{Life, PATIENCE, RUN_LIMIT, Stage, play},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// Four ranks on two nodes that go on until somebody ends them.
fn endless() -> Act {
    Act::program(Program::RingCheck, &["--rounds", "100000000", "--max-bytes", "256KiB"]).on(4, 2)
}

/// The job that must not notice what happens to the other one.
fn bystander() -> Act {
    Act::program(Program::Cg, &["--class", "W", "--repeat", "5"]).on(2, 2)
}

fn launch(stage: &mut Stage, act: Act) -> JobId {
    let job = stage.launch(act);
    assert_eq!(*stage.settle(job), Life::Running);
    job
}

fn kill_one(pids: &[u32]) {
    let victim = pids.first().expect("it has such a process");
    kill(Pid::from_raw(victim.cast_signed()), Signal::SIGKILL).expect("it runs");
}

/// Waits for the job's ranks to be there, whose name that is.
fn wait_for_ranks(stage: &mut Stage, job: JobId, name: &str, ranks: usize) -> Vec<u32> {
    stage.until("the ranks to start", PATIENCE, |stage| {
        matches!(stage.actors[&job].life, Life::Ended(_)) || stage.processes(job, name).len() == ranks
    });
    stage.processes(job, name)
}

#[test]
fn a_killed_rank_fails_its_job_and_no_other() {
    play(2, |stage| {
        let (victim, other) = (launch(stage, endless()), launch(stage, bystander()));
        let ranks = wait_for_ranks(stage, victim, "ring-check", 4);
        stage.run_for(Duration::from_millis(500));
        kill_one(&ranks);
        let outcome = stage.end_of(victim, PATIENCE);
        assert!(matches!(outcome, AppOutcome::RankFailed { exit: Exit::Signal(9), .. }), "{outcome:?}");
        stage.verify(other, RUN_LIMIT);
    });
}

#[test]
fn a_killed_launcher_fails_its_job_and_no_other() {
    play(2, |stage| {
        let (victim, other) = (launch(stage, endless()), launch(stage, bystander()));
        stage.run_for(Duration::from_millis(500));
        kill_one(&stage.processes(victim, "coswitch-launch"));
        let outcome = stage.end_of(victim, PATIENCE);
        assert!(matches!(outcome, AppOutcome::Lost { .. }), "{outcome:?}");
        stage.verify(other, RUN_LIMIT);
    });
}

#[test]
fn a_rank_killed_after_a_restore_fails_its_job_all_the_same() {
    play(2, |stage| {
        let job = launch(stage, endless());
        stage.run_for(Duration::from_millis(500));
        assert!(stage.park(job) && stage.restore(job));
        kill_one(&wait_for_ranks(stage, job, "ring-check", 4));
        let outcome = stage.end_of(job, PATIENCE);
        assert!(matches!(outcome, AppOutcome::RankFailed { exit: Exit::Signal(9), .. }), "{outcome:?}");
    });
}

#[test]
fn a_job_ends_when_told_to_even_if_its_restore_hangs_because_a_rank_was_killed_in_it() {
    let mut seed = seed();
    play(2, |stage| {
        for _ in 0..4 {
            let job = launch(stage, endless());
            stage.run_for(Duration::from_millis(500));
            assert!(stage.park(job));
            stage.order(job, Order::Restore);
            stage.until("a rank to appear", PATIENCE, |stage| {
                stage.actors[&job].life == Life::Running || !stage.processes(job, "ring-check").is_empty()
            });
            stage.run_for(span(&mut seed, Duration::from_millis(60)));
            let ranks = stage.processes(job, "ring-check");
            ranks.first().into_iter().for_each(|_| kill_one(&ranks));
            stage.run_for(Duration::from_secs(2));
            stage.order(job, Order::End);
            stage.end_of(job, PATIENCE);
            assert!(
                !stage.actors[&job].mended.iter().any(|what| what.contains("no answer")),
                "it was left behind"
            );
        }
    });
}

#[test]
fn a_rank_that_fails_is_reported_with_its_status_and_last_words() {
    play(1, |stage| {
        let job = stage.launch(Act::new("sh", "/bin/sh", &["-c", "echo no luck >&2; exit 3"], None));
        let AppOutcome::RankFailed { rank: 0, exit, last_output } = stage.end_of(job, PATIENCE) else {
            panic!("a rank has failed: {:?}", stage.actors[&job].life)
        };
        assert_eq!((exit, last_output.as_str()), (Exit::Status(3), "no luck"));
    });
}

#[test]
fn a_rank_that_aborts_ends_the_whole_job() {
    const ABORT: &str = "from mpi4py import MPI; import time\n\
                         MPI.COMM_WORLD.Abort(7) if MPI.COMM_WORLD.rank == 1 else time.sleep(600)";
    play(2, |stage| {
        let python = parts::python().display().to_string();
        let job = stage.launch(Act::new("abort", &python, &["-c", ABORT], None).on(3, 2));
        let outcome = stage.end_of(job, PATIENCE);
        assert!(
            matches!(outcome, AppOutcome::RankFailed { rank: 1, exit: Exit::Aborted(7), .. }),
            "{outcome:?}"
        );
    });
}

#[test]
fn a_program_that_is_not_there_is_reported_as_such() {
    play(2, |stage| {
        let job = stage.launch(Act::new("nothing", "/nowhere/program", &[], None).on(2, 2));
        let outcome = stage.end_of(job, PATIENCE);
        assert!(matches!(outcome, AppOutcome::RankFailed { exit: Exit::NotStarted(_), .. }), "{outcome:?}");
    });
}

#[test]
fn a_killed_daemon_ends_the_jobs_of_its_node_and_no_other() {
    play(3, |stage| {
        let spanning = launch(stage, endless());
        let elsewhere = Act { placement: vec![NodeId(2); 2], ..bystander() };
        let elsewhere = launch(stage, elsewhere);
        stage.run_for(Duration::from_millis(500));
        kill_one(&[stage.daemon(NodeId(1))]);
        let outcome = stage.end_of(spanning, PATIENCE);
        assert!(matches!(outcome, AppOutcome::Lost { .. }), "{outcome:?}");
        assert!(stage.lost.contains_key(&NodeId(1)) && stage.lost.len() == 1, "{:?}", stage.lost);
        stage.verify(elsewhere, RUN_LIMIT);
    });
}

#[test]
fn what_a_stranger_writes_into_a_parked_jobs_output_is_set_aside() {
    play(2, |stage| {
        let job = launch(stage, Act::program(Program::Cg, &["--class", "A", "--repeat", "3"]).on(2, 2));
        stage.run_for(Duration::from_millis(800));
        assert!(stage.park(job));
        let output = stage.actors[&job].output.clone();
        let before = fs::read(output.join("rank-0.out")).unwrap();
        fs::write(output.join("rank-0.out"), [&before[..], b"a stranger was here\n"].concat()).unwrap();
        assert!(stage.restore(job));
        stage.verify(job, RUN_LIMIT);
        let own = fs::read_to_string(output.join("rank-0.out")).unwrap();
        assert!(!own.contains("stranger"), "{own}");
        let kept =
            fs::read_dir(&output).unwrap().map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
        assert_eq!(
            kept.filter(|text| text.contains("a stranger was here")).count(),
            1,
            "it is kept elsewhere"
        );
    });
}

/// The largest image of the last snapshot, but for the pages: those may come from memory.
fn an_image(stage: &Stage, node: NodeId, job: JobId) -> PathBuf {
    let epochs = fs::read_dir(stage.snapshots(node, job)).unwrap().map(|entry| entry.unwrap().path());
    let images =
        fs::read_dir(epochs.max().unwrap().join("images")).unwrap().map(|entry| entry.unwrap().path());
    let is_pages = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with("pages");
    images.filter(|path| !is_pages(path)).max_by_key(|path| path.metadata().unwrap().len()).unwrap()
}

/// Turns one bit of it; says which file it is in.
fn damage(stage: &Stage, job: JobId) -> PathBuf {
    let image = an_image(stage, NodeId(1), job);
    let mut bytes = fs::read(&image).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    fs::write(&image, bytes).unwrap();
    image
}

fn wait_for_seals(stage: &mut Stage, job: JobId) {
    let nodes = [NodeId(0), NodeId(1)];
    stage.until("the seal", PATIENCE, |stage| nodes.iter().all(|node| stage.is_sealed(*node, job)));
}

#[test]
fn a_job_whose_last_snapshot_is_damaged_goes_back_to_the_one_before_it_and_verifies() {
    play(2, |stage| {
        let job = launch(stage, Act::program(Program::RingCheck, &["--rounds", "3000"]).on(4, 2));
        stage.run_for(Duration::from_millis(400));
        assert!(stage.park(job) && stage.restore(job));
        stage.run_for(Duration::from_millis(400));
        assert!(stage.park(job));
        wait_for_seals(stage, job);
        damage(stage, job);
        assert!(stage.restore(job), "the snapshot before the damaged one is restored");
        stage.run_for(Duration::from_millis(200));
        assert!(stage.park(job) && stage.restore(job), "and the job can be switched as before");
        let mended = std::mem::take(&mut stage.actors.get_mut(&job).unwrap().mended);
        assert!(mended.iter().any(|what| what.contains("the snapshot before it is used")), "{mended:?}");
        stage.verify(job, RUN_LIMIT);
    });
}

#[test]
fn a_damaged_image_ends_its_job_before_any_rank_runs_and_no_other_job() {
    play(2, |stage| {
        let (victim, other) = (launch(stage, endless()), launch(stage, bystander()));
        stage.run_for(Duration::from_millis(800));
        assert!(stage.park(victim) && stage.park(other));
        wait_for_seals(stage, victim);
        let image = damage(stage, victim);
        let output = stage.actors[&victim].output.join("rank-0.out");
        let said = fs::read(&output).unwrap();
        stage.order(victim, Order::Restore);
        let AppOutcome::Lost { reason } = stage.end_of(victim, PATIENCE) else {
            panic!("the damage was not noticed: {:?}", stage.actors[&victim].life)
        };
        let name = image.file_name().unwrap().to_str().unwrap();
        assert!(reason.contains("node-1") && reason.contains(name), "{reason}");
        assert_eq!(fs::read(&output).unwrap(), said, "a half-restored gang has computed");
        assert!(stage.restore(other));
        stage.verify(other, RUN_LIMIT);
    });
}

#[test]
fn a_restore_in_which_a_rank_is_killed_is_given_up_soon_and_tried_again() {
    play(2, |stage| {
        let job = launch(stage, endless());
        stage.run_for(Duration::from_millis(300));
        assert!(stage.park(job));
        wait_for_seals(stage, job);
        stage.order(job, Order::Prefetch);
        stage.until_some_time("a rank to appear", PATIENCE, |stage| {
            stage.actors[&job].life == Life::Suspended || !stage.processes(job, "ring-check").is_empty()
        });
        let ranks = stage.processes(job, "ring-check");
        ranks.first().into_iter().for_each(|_| kill_one(&ranks));
        // One that was killed after its restore is found dead when it is to run.
        stage.settle(job);
        stage.obey(job, Order::Resume);
        let life = &stage.actors[&job].life;
        let told =
            matches!(life, Life::Running | Life::Ended(AppOutcome::RankFailed { exit: Exit::Signal(9), .. }));
        assert!(told, "{life:?}");
    });
}

#[test]
fn a_dump_that_fails_on_one_node_leaves_a_suspended_job_suspended_and_is_completed_later() {
    play(2, |stage| {
        let job = launch(stage, Act::program(Program::RingCheck, &["--rounds", "2000"]).on(4, 2));
        stage.run_for(Duration::from_millis(300));
        // Where the images are to go, there is a file.
        let in_the_way = stage.snapshots(NodeId(1), job).join("epoch-1");
        fs::create_dir_all(in_the_way.parent().unwrap()).unwrap();
        fs::write(&in_the_way, "").unwrap();
        assert_eq!(*stage.obey(job, Order::Suspend), Life::Suspended);
        assert_eq!(*stage.obey(job, Order::Park), Life::Suspended);
        let stayed = std::mem::take(&mut stage.actors.get_mut(&job).unwrap().stayed);
        assert!(stayed.len() == 1 && stayed[0].contains("node-1"), "{stayed:?}");
        fs::remove_file(&in_the_way).unwrap();
        assert!(stage.park(job), "node 0 has an image of this line already, node 1 writes one");
        assert!(stage.restore(job));
        stage.verify(job, RUN_LIMIT);
    });
}

#[test]
fn a_job_whose_dump_is_killed_goes_back_to_the_snapshot_before_and_verifies() {
    play(2, |stage| {
        let job = launch(stage, Act::program(Program::RingCheck, &["--rounds", "3000"]).on(4, 2));
        stage.run_for(Duration::from_millis(300));
        assert!(stage.park(job));
        wait_for_seals(stage, job);
        assert!(stage.restore(job));
        stage.run_for(Duration::from_millis(200));
        stage.order(job, Order::Park);
        stage.until_some_time("the dump to begin", PATIENCE, |stage| {
            !stage.processes_of_run("criu").is_empty() || !matches!(stage.actors[&job].life, Life::Asked(_))
        });
        for criu in stage.processes_of_run("criu").into_iter().take(1) {
            // It may have ended meanwhile; then nothing has to be mended.
            let _ = kill(Pid::from_raw(criu.cast_signed()), Signal::SIGKILL);
        }
        let life = stage.settle(job).clone();
        let mended = std::mem::take(&mut stage.actors.get_mut(&job).unwrap().mended);
        stage.actors.get_mut(&job).unwrap().stayed.clear();
        match life {
            Life::Running => {
                assert!(mended.iter().all(|what| what.contains("the snapshot before")), "{mended:?}")
            }
            Life::Parked => assert!(stage.restore(job)),
            life => panic!("{life:?}"),
        }
        stage.verify(job, RUN_LIMIT);
    });
}
