//! The database against all that can happen to it.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, thread, time::Duration};

use coswitch_policies::{Bytes, Capacity, JobId, NodeId, Placement, Policy, SimTime};
use coswitch_report::{
    AccountState, Folder, JobAccount,
    journal::{Event, FILE_NAME, JobMemory, JobOutcome, RunEvent, RunOutcome, VERSION, record},
};
use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
};
use rusqlite::Connection;

use super::*;
use crate::{
    compaction::{Compaction, Sums},
    journal::Journal,
};

const LIMIT: Duration = Duration::from_secs(60);
const RETRY: Duration = Duration::from_millis(20);
const JOBS: u32 = 6;
const USERS: [u32; 2] = [1_000_001, 1_000_002];

/// Jobs of two users, one after the other. Each runs for as many seconds as its number.
fn events(jobs: u32) -> Vec<RunEvent> {
    let started = Event::RunStarted {
        version: VERSION,
        run: "r1-2".into(),
        name: "n".into(),
        policy: Policy::Gang,
        nodes: 2,
        capacity: Capacity::OfAll(Bytes::mib(1)),
        quantum: Duration::from_secs(1),
        scheduler: None,
        local: None,
    };
    let time_0 = Duration::from_secs(1_000_000);
    let mut events = vec![(0, started), (0, Event::DateKnown { time_0 })];
    let mut now = 0;
    for number in 0..jobs {
        let (job, name, node) = (JobId(number), format!("job-{number}"), NodeId(0));
        let (user, submitted) = (USERS[number as usize % 2], SimTime(now * 1_000_000_000));
        let used = Bytes::mib(number.into());
        let by_job = vec![JobMemory { job, used, swapped: Bytes(0), major_faults: 0 }];
        let end = now + u64::from(number);
        let outcome = JobOutcome::Exit(i32::from(number == 3));
        let (group, queue) = (None, None);
        events.extend([
            (now, Event::JobAccepted { job, name: name.clone(), user, ranks: 3, group, queue, submitted }),
            (now, Event::JobSubmitted { job, name, ranks: 3, memory: used, alone: None }),
            (now, Event::JobLaunched { job, placement: Placement::from_shares(&[2, 1]) }),
            (now, Event::JobRunning { job }),
            (end, Event::MemorySample { node, used, by_job, looks: 1, peak: used }),
            (end, Event::JobFinished { job, outcome, last_output: String::new() }),
        ]);
        now = end;
    }
    let event = |(second, kind)| RunEvent { at: SimTime(second * 1_000_000_000), kind };
    events.into_iter().map(event).collect()
}

fn accounts_of(events: &[RunEvent]) -> Vec<JobAccount> {
    let mut folder = Folder::default();
    events.iter().for_each(|event| folder.on_event(event.at, &event.kind));
    folder.accounts().collect()
}

fn write_journal(directory: &Path, events: &[RunEvent]) {
    let lines: Vec<u8> = events.iter().flat_map(record::write).collect();
    fs::write(directory.join(FILE_NAME), lines).unwrap();
}

/// All that the database has, as text.
fn rows(directory: &Path) -> Vec<String> {
    let listing = View::of_database(directory).unwrap().listing(&Filter::default()).unwrap();
    listing.jobs.iter().map(|job| format!("{job:?}")).collect()
}

/// All that a new database of these events has.
fn expected(events: &[RunEvent]) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let mut database = Database::open(directory.path()).unwrap();
    database.write(&accounts_of(events)).unwrap();
    database.close();
    rows(directory.path())
}

fn keeper(directory: &Path) -> Keeper {
    Keeper::start_with(directory, RETRY).unwrap()
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let began = std::time::Instant::now();
    while !done() {
        assert!(began.elapsed() < LIMIT, "waited for {what}");
        thread::sleep(RETRY);
    }
}

#[test]
fn each_job_has_one_row_however_often_it_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let accounts = accounts_of(&events(JOBS));
    let mut database = Database::open(directory.path()).unwrap();
    let early = JobAccount { name: "early".into(), uses: Vec::new(), ..accounts[2].clone() };
    database.write(&[early]).unwrap();
    for _ in 0..3 {
        database.write(&accounts).unwrap();
    }
    for entry in fs::read_dir(directory.path()).unwrap() {
        assert_eq!(entry.unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
    database.close();
    let names: Vec<_> = fs::read_dir(directory.path()).unwrap().collect();
    assert_eq!(names.len(), 1, "a database that is closed is one file: {names:?}");
    assert_eq!(rows(directory.path()), expected(&events(JOBS)));
}

#[test]
fn what_was_used_is_found_by_user_date_job_and_state_and_summed_up() {
    let directory = tempfile::tempdir().unwrap();
    write_journal(directory.path(), &events(JOBS));
    let (view, left_out) = View::of_directory(directory.path()).unwrap();
    assert!(left_out.is_none());
    let found = |filter: Filter| -> Vec<u32> {
        view.listing(&filter).unwrap().jobs.iter().map(|job| job.job).collect()
    };
    let all = Filter::default;
    assert_eq!(found(all()), [0, 1, 2, 3, 4, 5]);
    assert_eq!(found(Filter { own: Some(USERS[1]), ..all() }), [1, 3, 5]);
    let others = Filter { own: Some(USERS[1]), user: Some(USERS[0].to_string()), ..all() };
    assert_eq!(found(others), [] as [u32; 0], "a user asks for jobs of another one");
    assert_eq!(found(Filter { user: Some(USERS[0].to_string()), ..all() }), [0, 2, 4]);
    // They end at 0, 1, 3, 6, 10 and 15 s.
    let second = |second: u32| Some(1_000_000.0 + f64::from(second));
    assert_eq!(found(Filter { since: second(3), until: second(10), ..all() }), [2, 3]);
    for word in ["4", "job-4"] {
        assert_eq!(found(Filter { job: Some(word.into()), ..all() }), [4], "{word}");
    }
    assert_eq!(found(Filter { state: Some(AccountState::Failed), ..all() }), [3]);
    assert_eq!(found(Filter { job: Some("' OR 1 --".into()), ..all() }), [] as [u32; 0]);
    let sums = view.sums(&all(), By::User).unwrap();
    let short = |sum: &Sum| (sum.of.clone(), sum.jobs, sum.running_s, sum.rank_s, sum.node_s);
    let of = |user: u32| Some(user.to_string());
    assert_eq!(
        sums.sums.iter().map(short).collect::<Vec<_>>(),
        [(of(USERS[1]), 3, 9.0, 27.0, 18.0), (of(USERS[0]), 3, 6.0, 18.0, 12.0)]
    );
    assert_eq!(short(&sums.total), (None, 6, 15.0, 45.0, 30.0));
    let uses = view.listing(&Filter { job: Some("5".into()), ..all() }).unwrap().jobs.remove(0).uses;
    let uses: Vec<_> = uses.iter().map(|used| (used.node, used.ranks, used.memory_peak >> 20)).collect();
    assert_eq!(uses, [(0, 2, 5), (1, 1, 0)]);
}

/// A master dies after any event, when the database has the jobs up to any earlier one. The next master goes
/// on, and its journal may be compacted.
#[test]
fn wherever_a_master_dies_each_job_has_one_row() {
    let all = events(3);
    let expected = expected(&all);
    for died in 2..=all.len() {
        for written in [0, died / 2, died] {
            for max in [0, u64::MAX] {
                let directory = tempfile::tempdir().unwrap();
                let path = directory.path().join(FILE_NAME);
                write_journal(directory.path(), &all[..died]);
                if written > 0 {
                    // It is not closed: what SQLite keeps beside it stays.
                    let mut database = Database::open(directory.path()).unwrap();
                    database.write(&accounts_of(&all[..written])).unwrap();
                    std::mem::forget(database);
                }
                let (sums, _) = Sums::take_up(&path).unwrap();
                let keeper = keeper(directory.path());
                let following = Compaction::new(&path, max, sums, |_| ()).telling(keeper.told());
                let mut journal = Journal::append(&path, Some(following)).unwrap();
                all[died..].iter().for_each(|event| journal.tell(event.clone()));
                journal.finish(LIMIT).unwrap();
                keeper.finish(LIMIT);
                assert_eq!(rows(directory.path()), expected, "{died} {written} {max}");
            }
        }
    }
}

/// The database is lost with all of its rows, when the journal has been compacted as often as there are
/// events.
#[test]
fn a_database_that_is_gone_is_made_of_the_journal_and_its_archives() {
    let all = events(3);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(FILE_NAME);
    let mut journal =
        Journal::create(&path, Some(Compaction::new(&path, 0, Sums::default(), |_| ()))).unwrap();
    all.iter().for_each(|event| journal.tell(event.clone()));
    journal.finish(LIMIT).unwrap();
    assert!(fs::read_dir(directory.path()).unwrap().count() > 2, "there are archives");
    assert_eq!(rebuild(directory.path()).unwrap(), 3);
    assert_eq!(rows(directory.path()), expected(&all));
}

/// What the journal is to forget when the database cannot be written.
#[test]
fn the_journal_remembers_what_the_database_has_not() {
    let all = events(JOBS);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(FILE_NAME);
    // No database can be there.
    fs::create_dir(directory.path().join(FILE)).unwrap();
    let keeper = keeper(directory.path());
    let mut sums = Sums::default();
    let told = keeper.told();
    all.iter().for_each(|event| sums.on_event(event));
    told.tell(sums.report.accounts());
    sums.report.sum_up(0);
    sums.report.keep_accounts(|job| told.waiting().contains(&job));
    assert_eq!(sums.report.accounts().count(), JOBS as usize);
    write_journal(directory.path(), &all[..1]);
    let following = Compaction::new(&path, u64::MAX, sums, |_| ()).telling(told.clone());
    let journal = Journal::append(&path, Some(following)).unwrap();
    fs::remove_dir(directory.path().join(FILE)).unwrap();
    wait_until("the database to be there", || told.waiting().is_empty());
    journal.finish(LIMIT).unwrap();
    keeper.finish(LIMIT);
    assert_eq!(rows(directory.path()), expected(&all));
}

/// `COSWITCH_CUTS` says how many files are cut, and as many have a byte changed.
#[test]
fn a_database_that_is_cut_or_changed_at_any_byte_is_made_anew() {
    let cuts: usize = std::env::var("COSWITCH_CUTS").map_or(40, |text| text.parse().expect("a number"));
    let all = events(JOBS);
    let expected = expected(&all);
    let whole = {
        let directory = tempfile::tempdir().unwrap();
        let mut database = Database::open(directory.path()).unwrap();
        database.write(&accounts_of(&all)).unwrap();
        database.close();
        fs::read(directory.path().join(FILE)).unwrap()
    };
    let mut damaged = 0;
    for number in 0..=2 * cuts {
        let at = (number / 2) * whole.len() / cuts;
        let mut file = whole.clone();
        match number % 2 {
            0 => file.truncate(at),
            _ => file[at.min(whole.len() - 1)] ^= 0x55,
        }
        let directory = tempfile::tempdir().unwrap();
        write_journal(directory.path(), &all);
        fs::write(directory.path().join(FILE), &file).unwrap();
        // A reader tells the truth, whatever the file says.
        let (view, _) = View::of_directory(directory.path()).unwrap();
        let listing = view.listing(&Filter::default()).unwrap();
        let read: Vec<String> = listing.jobs.iter().map(|job| format!("{job:?}")).collect();
        assert_eq!(read, expected, "{number}, read");
        drop(view);
        let keeper = keeper(directory.path());
        keeper.told().tell(accounts_of(&all));
        keeper.finish(LIMIT);
        assert_eq!(rows(directory.path()), expected, "{number}, written");
        damaged += usize::from(directory.path().join(format!("{FILE}.damaged")).exists());
    }
    assert!(damaged > cuts / 2, "{damaged}");
}

/// Jobs of which no journal tells any more.
#[test]
fn what_can_be_read_of_a_damaged_database_is_kept() {
    let (all, directory) = (events(400), tempfile::tempdir().unwrap());
    let mut database = Database::open(directory.path()).unwrap();
    database.write(&accounts_of(&all)).unwrap();
    database.close();
    let path = directory.path().join(FILE);
    let whole = fs::read(&path).unwrap();
    // The last page is missing, and one in the middle is wrong.
    let mut damaged = whole[..whole.len() - 4096].to_vec();
    let middle = damaged.len() / 4096 / 2 * 4096;
    damaged[middle..middle + 4096].fill(0x55);
    fs::write(&path, &damaged).unwrap();
    Database::open(directory.path()).unwrap().close();
    let kept = rows(directory.path()).len();
    assert!((200..400).contains(&kept), "{kept}");
    assert!(directory.path().join(format!("{FILE}.damaged")).exists());
}

#[test]
fn a_locked_database_is_written_later() {
    let (all, directory) = (events(JOBS), tempfile::tempdir().unwrap());
    Database::open(directory.path()).unwrap().close();
    let other = Connection::open(directory.path().join(FILE)).unwrap();
    other.execute_batch("BEGIN IMMEDIATE; CREATE TABLE own (a)").unwrap();
    let keeper = keeper(directory.path());
    let told = keeper.told();
    let began = std::time::Instant::now();
    told.tell(accounts_of(&all));
    assert!(began.elapsed() < Duration::from_millis(50), "who tells does not wait");
    thread::sleep(Duration::from_millis(500));
    assert_eq!(told.waiting().len(), JOBS as usize);
    other.execute_batch("ROLLBACK").unwrap();
    wait_until("the rows", || told.waiting().is_empty());
    // A reader that stays does not keep it from being written.
    other.execute_batch("BEGIN; SELECT count(*) FROM jobs").unwrap();
    told.tell(accounts_of(&events(JOBS + 1)));
    wait_until("one more row", || told.waiting().is_empty());
    keeper.finish(LIMIT);
    assert_eq!(rows(directory.path()), expected(&events(JOBS + 1)));
}

/// Root can write everywhere but to a file system that is read-only, or full.
#[test]
fn a_directory_that_cannot_be_written_or_is_full_stops_nothing() {
    let (all, directory) = (events(JOBS), tempfile::tempdir().unwrap());
    let path = directory.path().to_path_buf();
    let expected = expected(&all);
    // The mounts of this thread, and of those that it starts, are its own.
    let mounted = move || {
        unshare(CloneFlags::CLONE_NEWNS).expect("this test needs root");
        let none = None::<&str>;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
        let remount = |flags, options| {
            mount(Some("tmpfs"), &path, Some("tmpfs"), flags, Some(options)).unwrap();
        };
        remount(MsFlags::empty(), "size=16k");
        write_journal(&path, &all[..1]);
        let keeper = keeper(&path);
        let told = keeper.told();
        told.tell(accounts_of(&all));
        thread::sleep(10 * RETRY);
        assert_eq!(told.waiting().len(), JOBS as usize, "it is full");
        remount(MsFlags::MS_REMOUNT, "size=8m");
        wait_until("room", || told.waiting().is_empty());
        keeper.finish(LIMIT);
        assert_eq!(rows(&path), expected);
        remount(MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY, "size=8m");
        assert_eq!(rows(&path), expected, "it can be read");
        let keeper = self::keeper(&path);
        let told = keeper.told();
        told.tell(accounts_of(&all));
        thread::sleep(10 * RETRY);
        assert_eq!(told.waiting().len(), JOBS as usize, "it is read-only");
        keeper.finish(LIMIT);
    };
    thread::spawn(mounted).join().unwrap();
}

#[test]
fn a_database_of_a_later_version_is_left_alone() {
    let (all, directory) = (events(JOBS), tempfile::tempdir().unwrap());
    Database::open(directory.path()).unwrap().close();
    let path = directory.path().join(FILE);
    let later = Connection::open(&path).unwrap();
    later.execute_batch("PRAGMA user_version = 99").unwrap();
    drop(later);
    let before = fs::read(&path).unwrap();
    let keeper = keeper(directory.path());
    keeper.told().tell(accounts_of(&all));
    keeper.finish(LIMIT);
    assert!(matches!(Database::open(directory.path()), Err(AccountsError::Later { found: 99, .. })));
    assert_eq!(fs::read(&path).unwrap(), before);
    // A reader has the journal.
    write_journal(directory.path(), &all);
    let (view, left_out) = View::of_directory(directory.path()).unwrap();
    assert!(matches!(left_out, Some(AccountsError::Later { .. })));
    assert_eq!(view.listing(&Filter::default()).unwrap().jobs.len(), JOBS as usize);
}

#[test]
fn jobs_that_end_with_their_cluster_have_a_row() {
    let mut all = events(JOBS);
    all.pop();
    let outcome = RunOutcome::Interrupted;
    all.push(RunEvent { at: all.last().unwrap().at, kind: Event::RunEnded { outcome } });
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(FILE_NAME);
    let keeper = keeper(directory.path());
    let following = Compaction::never(&path, Sums::default()).telling(keeper.told());
    let mut journal = Journal::create(&path, Some(following)).unwrap();
    all.iter().for_each(|event| journal.tell(event.clone()));
    journal.finish(LIMIT).unwrap();
    keeper.finish(LIMIT);
    let view = View::of_database(directory.path()).unwrap();
    let last = view.listing(&Filter { job: Some("5".into()), ..Filter::default() }).unwrap().jobs.remove(0);
    assert_eq!((last.state, last.running_s), (AccountState::Interrupted, 5.0));
    assert_eq!(rows(directory.path()).len(), JOBS as usize);
}
