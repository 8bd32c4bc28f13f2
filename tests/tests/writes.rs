//! Disk errors: each call by which a program changes files fails, is cut short, takes long, or is the last
//! one before the program is killed. No snapshot is left half written, no journal has a gap, and no failure
//! is reported as success.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::Command,
    time::{Duration, SystemTime},
};

use coswitch::journal::Journal;
use coswitch_ckpt::{ClusterKey, Origin, Sealing, SnapshotError, SnapshotWriter, Store, store::Tier};
use coswitch_policies::{JobId, SimTime};
use coswitch_report::journal::{Event, JobOutcome, RunEvent, salvage};
use coswitch_tests::{
    cluster::RUN_LIMIT,
    faulty::{Act, FAULTS, Fault, calls},
    master::{Ended, Master},
    seed::seed,
    serving::{CLEAN_LIMIT, VERIFIED},
};

/// Told by a process that does the writing: the directory.
const WRITES_IN: &str = "COSWITCH_WRITES_IN";
const DONE: &str = "it is done";
const FAILED: &str = "it has failed";
const LIMIT: Duration = Duration::from_secs(60);

/// Where this process is the one that writes, it does, and says how that went.
#[expect(clippy::print_stdout, reason = "that is how it is told")]
fn is_writer(write: impl FnOnce(&Path) -> Result<(), String>) -> bool {
    let Some(dir) = std::env::var_os(WRITES_IN) else { return false };
    match write(Path::new(&dir)) {
        Ok(()) => println!("{DONE}"),
        Err(reason) => println!("{FAILED}: {reason}"),
    }
    true
}

/// What a process has said that does the writing of this test: `None` where it was killed.
fn writer(test: &str, dir: &Path, fault: &Fault) -> Option<Result<(), String>> {
    let own = std::env::current_exe().expect("a path");
    let mut command = Command::new(own);
    fault.load(command.args(["--exact", test, "--nocapture"]).env(WRITES_IN, dir));
    let ended = command.output().expect("it starts");
    let said = String::from_utf8_lossy(&ended.stdout);
    let failed = said.lines().find_map(|line| line.split_once(FAILED));
    let said = match failed {
        Some((_, reason)) => Some(Err(reason.to_owned())),
        None => said.lines().any(|line| line.ends_with(DONE)).then_some(Ok(())),
    };
    let was_killed = fault.act == Act::Kill && fault.has_happened();
    assert_eq!(said.is_none(), was_killed, "{fault:?}: {ended:?}");
    said
}

/// Has each write of a test fail in each way, in a directory that was prepared for it.
fn each_write_fails(
    test: &str,
    place: &str,
    prepare: impl Fn(&Path),
    check: impl Fn(&Path, &Fault, Option<Result<(), String>>),
) {
    let own = std::env::current_exe().expect("a path");
    let program = own.file_name().expect("a name").to_string_lossy().into_owned();
    let with = |act, at| {
        let scratch = tempfile::tempdir().expect("a directory");
        let dir = scratch.path().join("writes");
        fs::create_dir(&dir).expect("a directory");
        prepare(&dir);
        let place = format!("{}{place}", dir.display());
        let list = scratch.path().join("calls");
        let fault = Fault { program: program.clone(), place, act, at, list };
        let said = writer(test, &dir, &fault);
        assert_eq!(fault.has_happened(), act != Act::List, "{fault:?}");
        check(&dir, &fault, said);
        calls(&fault.list)
    };
    let all = with(Act::List, 0);
    assert!(all.len() > 10, "{all:?}");
    for at in 1..=all.len() {
        for act in FAULTS {
            with(act, at);
        }
    }
    eprintln!("{} calls failed in {} ways: {all:?}", all.len(), FAULTS.len());
}

static SEGMENT: [u8; 150_000] = [7; 150_000];
const IN_FLIGHT: &[u8] = b"in flight";

/// A store in one or two directories.
fn store(dir: &Path) -> Result<Store, String> {
    let key = ClusterKey::from(*b"the key of the cluster of tests.");
    let sealing = Sealing::new(key, "r1-2-n0".to_owned(), dir.join("plain"));
    let second = dir.join("second");
    let roots = [dir.join("store")].into_iter().chain(second.exists().then_some(second));
    Store::with_tiers(roots.map(Tier::unbounded).collect(), sealing).map_err(|error| error.to_string())
}

fn take(dir: &Path, epoch: u64) -> Result<(), String> {
    let origin = Origin { criu: "4.2".into(), kernel: "6.18".into(), root: 1, ..Origin::default() };
    let store = store(dir).map_err(|why| format!("{BEFORE}: {why}"))?;
    let begin = || {
        let mut writer = store.begin("job", epoch, SystemTime::now()).map_err(|error| error.to_string())?;
        // In place of CRIU.
        for image in ["core-1.img", "mm-1.img"] {
            fs::write(writer.images_dir().join(image), image).map_err(|error| error.to_string())?;
        }
        let text = |error: SnapshotError| error.to_string();
        writer.save_channels(IN_FLIGHT).map_err(text)?;
        writer.save_part(b"{}").map_err(text)?;
        writer.save_segment(&dir.join("segment")).map_err(text)?;
        Ok(writer)
    };
    let writer: SnapshotWriter = begin().map_err(|why: String| format!("{BEFORE}: {why}"))?;
    writer.seal(origin).map_err(|error| error.to_string())?;
    // What fails here costs no snapshot.
    let _ = store.prune("job", &BTreeSet::new());
    Ok(())
}

/// Begins the reason where that was before the seal: the ranks are still there.
const BEFORE: &str = "it was not written";

fn check_whole(dir: &Path, epoch: u64) {
    let snapshot = store(dir).expect("a store").snapshot("job", epoch).expect("it opens");
    snapshot.verify().expect("it is whole");
    assert_eq!(snapshot.channels().expect("they open").as_deref(), Some(IN_FLIGHT));
    let copy = dir.join("segment-again");
    fs::write(&copy, vec![0; SEGMENT.len()]).expect("a file");
    snapshot.load_segment(&copy).expect("it is read");
    assert_eq!(fs::read(copy).expect("it is there"), SEGMENT);
}

#[test]
fn a_snapshot_is_whole_or_not_there_whichever_write_fails() {
    const TEST: &str = "a_snapshot_is_whole_or_not_there_whichever_write_fails";
    if !is_writer(|dir| take(dir, 2)) {
        take_with_faults(TEST, "/", |_| ());
    }
}

/// Pages and images are still in memory.
#[test]
fn a_seal_that_fails_goes_on_in_the_next_directory() {
    const TEST: &str = "a_seal_that_fails_goes_on_in_the_next_directory";
    if !is_writer(|dir| take(dir, 2)) {
        let second = |dir: &Path| fs::create_dir(dir.join("second")).expect("a directory");
        take_with_faults(TEST, "/store/", second);
    }
}

/// A second snapshot beside one that stays. A seal that fails once is tried again: the processes are gone.
fn take_with_faults(test: &str, place: &str, prepare: impl Fn(&Path)) {
    let prepare = |dir: &Path| {
        prepare(dir);
        fs::create_dir(dir.join("plain")).expect("a directory");
        fs::write(dir.join("segment"), SEGMENT).expect("a file");
        take(dir, 1).expect("nothing fails");
    };
    each_write_fails(test, place, prepare, |dir, fault, said| {
        check_whole(dir, 1);
        let store = store(dir).expect("a store");
        let sealed = store.sealed_epochs("job").expect("a list");
        match said {
            Some(Ok(())) => assert_eq!(sealed, [2, 1], "{fault:?}"),
            Some(Err(reason)) => {
                assert_eq!(sealed, [1], "{fault:?}: {reason}");
                assert!(reason.contains(BEFORE), "{fault:?}: {reason}");
            }
            None => {}
        }
        assert!(
            !fault.act.is_harmless() || sealed == [2, 1],
            "{fault:?}: a short or slow write is no failure"
        );
        sealed.iter().for_each(|epoch| check_whole(dir, *epoch));
        // What a failed attempt has left does not hinder the next one.
        take(dir, if sealed.contains(&2) { 3 } else { 2 }).expect("nothing fails any more");
        store.prune("job", &BTreeSet::new()).expect("nothing fails any more");
        let entries = |root: &str| fs::read_dir(dir.join(root).join("job")).map_or(0, Iterator::count);
        assert_eq!(entries("store") + entries("second"), 2, "{fault:?}");
    });
}

fn events() -> impl Iterator<Item = RunEvent> {
    let finished =
        |at| Event::JobFinished { job: JobId(at), outcome: JobOutcome::Exit(0), last_output: String::new() };
    let warning = |at: u32| Event::Warning { text: at.to_string().repeat(40) };
    (0..24u32).map(move |at| RunEvent {
        at: SimTime(u64::from(at)),
        kind: if at % 8 == 7 { finished(at) } else { warning(at) },
    })
}

#[test]
fn a_journal_has_no_gap_and_its_end_is_true_whichever_write_fails() {
    const TEST: &str = "a_journal_has_no_gap_and_its_end_is_true_whichever_write_fails";
    let write = |dir: &Path| {
        let mut journal = Journal::create(&dir.join("journal"), None).map_err(|error| error.to_string())?;
        events().for_each(|event| journal.tell(event));
        // So long it waits for room.
        std::thread::sleep(Duration::from_millis(300));
        journal.finish(LIMIT).map_err(|error| error.to_string())
    };
    if is_writer(write) {
        return;
    }
    each_write_fails(
        TEST,
        "/journal",
        |_| (),
        |dir, fault, said| {
            let all: Vec<RunEvent> = events().collect();
            let read = salvage(&dir.join("journal")).map(|(events, _)| events).unwrap_or_default();
            assert!(all.starts_with(&read), "{fault:?}: {read:?}");
            let is_whole = read.len() == all.len();
            assert!(is_whole || said != Some(Ok(())), "{fault:?}: {} of {}", read.len(), all.len());
            assert!(is_whole || !fault.act.is_harmless(), "{fault:?}: a short or slow write is no failure");
        },
    );
}

/// Two jobs that do not fit together take turns, whose images go to the store.
const TURNS: &str = r#"
cluster: {nodes: 2, memory: 150MiB, arena: 32MiB, store: "{store}"}
scheduler: {policy: gang, quantum: 400ms, residency: none}
jobs:
  - {name: heat, count: 2, ranks: 2, memory: 90MiB, command: ["{bin}/heat", --memory, 40MiB, --seconds, "1"]}
"#;

/// Runs it with that fault; both jobs are right.
fn run(fault: &Fault) -> Ended {
    let master = Master::in_environment(&fault.environment(), &["run"], TURNS);
    let out = master.out();
    let ended = master.end_with(RUN_LIMIT, CLEAN_LIMIT, || {
        for job in ["heat-1", "heat-2"] {
            let said = fs::read_to_string(out.join(job).join("rank-0.out")).unwrap_or_default();
            assert!(said.contains(VERIFIED), "{fault:?}: {job}: {said}");
        }
    });
    assert_eq!(ended.code, Some(0), "{fault:?}: {}", ended.stderr);
    ended
}

/// How many calls of the daemon fail in CI; `COSWITCH_FAULTS` sets another number, or `all`.
const FAULTS_IN_CI: usize = 5;

#[test]
fn jobs_lose_no_work_to_a_write_of_the_daemon_that_fails() {
    let scratch = tempfile::tempdir().expect("a directory");
    let fault = |act, at| {
        let list = scratch.path().join(format!("calls-{act}-{at}"));
        Fault { program: "coswitchd".into(), place: "store/".into(), act, at, list }
    };
    let list = fault(Act::List, 0);
    run(&list);
    // Both nodes list theirs, and each counts its own.
    let most = calls(&list.list).len() / 2;
    assert!(most > 20, "{:?}", calls(&list.list));
    let number = std::env::var("COSWITCH_FAULTS").unwrap_or_else(|_| FAULTS_IN_CI.to_string());
    let mut seed = seed();
    let chosen: Vec<(usize, Act)> = match number.as_str() {
        "all" => (1..=most).flat_map(|at| FAULTS.map(|act| (at, act))).collect(),
        number => (0..number.parse().expect("a number"))
            .map(|index| (seed.between(1, most as u64) as usize, FAULTS[index % FAULTS.len()]))
            .collect(),
    };
    for (at, act) in chosen {
        let fault = fault(act, at);
        let ended = run(&fault);
        eprintln!("{act} at {at}, happened: {}, {} events", fault.has_happened(), ended.events.len());
    }
}
