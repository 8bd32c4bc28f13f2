//! The suites in `tests/`: each is a program, and finds only what it has left itself.
//!
//! They take most of the time of `cargo xtask test`. Some of them mostly wait, for time-outs or for a Slurm:
//! they run one after the other in a lane beside those that work, and then that lane takes of those as well.
//! Suites that measure the processors, or use what a machine has once, run alone at the end.

use crate::command;
use crate::test::PROFILE;
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The package of the suites, and its directory.
pub(crate) const PACKAGE: &str = "coswitch-tests";
const DIR: &str = "tests";
/// Of the longest one, twice what it takes on two processors.
const LIMIT: Duration = Duration::from_secs(700);

/// They wait for nine tenths of their time.
const WAITING: [&str; 4] = ["slurm", "pauses", "silence", "heartbeats"];
/// The longest of the others, which begin first.
const LONG: [&str; 2] = ["switching", "programs"];
/// They compare processor times or orders of decisions, fill swap or need that there is none, or end whatever
/// has no master.
const ALONE: [&str; 10] =
    ["local", "memory", "outgrow", "pageout", "paired", "queues", "replay", "slices", "survive", "takeover"];

/// What suites use of their own build and find beside themselves.
const THEIR_OWN: [&str; 2] = ["coswitch-conformance", "libcoswitch_faulty.so"];

/// A suite, and its program.
#[derive(Debug)]
struct Suite {
    name: String,
    program: PathBuf,
}

/// A suite that has failed: why, and what it printed.
type Failure = (String, String);

/// Runs the suites that `messages` of cargo name, all of them whatever fails.
pub(crate) fn run(workspace: &Workspace, messages: &str) -> Result<()> {
    run_suites(workspace, messages.lines().filter_map(of_message).collect())
}

/// The same beside the `programs` of another build, which the suites find and try then.
pub(crate) fn run_beside(workspace: &Workspace, messages: &str, programs: &Path) -> Result<()> {
    let own = workspace.target().join(PROFILE);
    THEIR_OWN.iter().try_for_each(|name| put(&own.join(name), &programs.join(name)))?;
    let mut suites: Vec<Suite> = messages.lines().filter_map(of_message).collect();
    for Suite { name, program } in &mut suites {
        let beside = programs.join(format!("suite-{name}"));
        put(program, &beside)?;
        *program = beside;
    }
    run_suites(workspace, suites)
}

fn put(file: &Path, at: &Path) -> Result<()> {
    fs::copy(file, at).map(drop).with_context(|| format!("cannot copy {}", file.display()))
}

fn run_suites(workspace: &Workspace, mut suites: Vec<Suite>) -> Result<()> {
    suites.sort_by(|one, other| one.name.cmp(&other.name));
    for name in WAITING.iter().chain(&LONG).chain(&ALONE) {
        ensure!(suites.iter().any(|suite| suite.name == *name), "no suite is called {name}");
    }
    let mut take = |names: &[&str]| -> Vec<Suite> {
        suites.extract_if(.., |suite| names.contains(&suite.name.as_str())).collect()
    };
    let (waiting, long, alone) = (take(&WAITING), take(&LONG), take(&ALONE));
    let [waiting, others] = [waiting, long.into_iter().chain(suites).collect()].map(Mutex::new);
    let mut failed: Vec<Failure> = thread::scope(|scope| {
        let lanes = [vec![&waiting, &others], vec![&others]].map(|lane| {
            let run = |suites| run_all(workspace, suites);
            scope.spawn(move || lane.into_iter().flat_map(run).collect::<Vec<_>>())
        });
        lanes.into_iter().flat_map(|lane| lane.join().expect("a lane does not panic")).collect()
    });
    failed.extend(run_all(workspace, &Mutex::new(alone)));
    failed.iter().for_each(|(why, printed)| eprintln!("\n{printed}\n{why}"));
    ensure!(failed.is_empty(), "{} suites failed", failed.len());
    Ok(())
}

/// One of the suites' programs, where cargo says that it has built one.
fn of_message(line: &str) -> Option<Suite> {
    let message: Value = serde_json::from_str(line).ok()?;
    let is_ours = message["package_id"].as_str()?.contains(&format!("#{PACKAGE}@"));
    let program = message["executable"].as_str().filter(|_| is_ours)?.into();
    Some(Suite { name: message["target"]["name"].as_str()?.into(), program })
}

/// Runs suites one after another, of which other lanes take too.
fn run_all(workspace: &Workspace, suites: &Mutex<Vec<Suite>>) -> Vec<Failure> {
    let next = || {
        let mut left = suites.lock().unwrap_or_else(PoisonError::into_inner);
        (!left.is_empty()).then(|| left.remove(0))
    };
    std::iter::from_fn(next).filter_map(|suite| run_one(workspace, &suite).err()).collect()
}

/// Runs a suite. It prints how that ended in one piece, because other lanes print too.
fn run_one(workspace: &Workspace, suite: &Suite) -> Result<(), Failure> {
    let began = Instant::now();
    let mut program = workspace.here(&suite.program);
    program.current_dir(workspace.root().join(DIR));
    let ended = command::output(&mut program, LIMIT);
    let (printed, ended) = ended.unwrap_or_else(|error| (String::new(), Err(format!("{error:#}"))));
    let took = began.elapsed().as_secs();
    match ended {
        Ok(()) => eprintln!("     Suite {}: right, {took} s\n{printed}", suite.name),
        Err(why) => {
            eprintln!("     Suite {}: failed, {took} s. Its output follows at the end.\n", suite.name);
            return Err((why, printed));
        }
    }
    Ok(())
}
