//! A cluster that stays (`coswitch serve`), and what its users do.

use std::time::Duration;

use coswitch_report::journal::{Event, RunEvent};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::{
    cluster::{RUN_LIMIT, STEP_LIMIT},
    master::{Answered, Ended, Master},
    parts,
};

/// A program that computes for two seconds, and checks its results.
pub const HEAT: &[&str] = &["{bin}/heat", "--memory", "40MiB", "--seconds", "2"];
/// A program that ends when it is ended.
pub const ENDLESS: &[&str] = &["{bin}/ring-check", "--rounds", "100000000", "--max-bytes", "64KiB"];
/// For the end of all that a cluster has left.
pub const CLEAN_LIMIT: Duration = Duration::from_secs(8);
/// What a program prints whose results are right.
pub const VERIFIED: &str = "VERIFICATION SUCCESSFUL";

/// A cluster that answers.
pub fn serve(run_file: &str) -> Master {
    serve_with(&[], run_file)
}

/// As [`serve`], with more options.
pub fn serve_with(options: &[&str], run_file: &str) -> Master {
    let arguments = [&["serve", "--socket", "serve.sock"], options].concat();
    let mut master = Master::with_arguments(&arguments, run_file);
    wait_served(&mut master);
    master
}

/// The same from programs of its own ([`Master::parts`]).
pub fn serve_from_own_parts(run_file: &str) -> Master {
    let mut master = Master::with_own_parts(&["serve", "--socket", "serve.sock"], run_file);
    wait_served(&mut master);
    master
}

/// Waits until the present master answers.
pub fn wait_served(master: &mut Master) {
    master.wait_until("the cluster to be served", STEP_LIMIT, |master| {
        master.user(&["queue"]).code == Some(0) && !master.events().is_empty()
    });
}

/// Submits a command with two ranks, which says it needs 90 MiB on each node.
pub fn submit(master: &Master, options: &[&str], command: &[&str]) -> Answered {
    let bin = parts::program_directory();
    let command: Vec<String> = command.iter().map(|word| word.replace("{bin}", &bin)).collect();
    let command = command.iter().map(String::as_str);
    let first = ["submit", "--ranks", "2", "--memory", "90MiB"].into_iter();
    let all: Vec<&str> = first.chain(options.iter().copied()).chain(["--"]).chain(command).collect();
    master.user(&all)
}

/// The names of the jobs of a submission.
///
/// # Panics
/// If it was refused.
pub fn accepted(answer: &Answered) -> Vec<String> {
    assert_eq!(answer.code, Some(0), "{answer:?}");
    let jobs = answer.json["jobs"].as_array().expect("a list of jobs");
    jobs.iter().map(|job| job["name"].as_str().expect("a name").to_owned()).collect()
}

/// All jobs of the cluster.
///
/// # Panics
/// If it does not answer.
#[must_use]
pub fn queue(master: &Master) -> Vec<Value> {
    let queue = master.user(&["queue", "--all"]);
    assert_eq!(queue.code, Some(0), "{queue:?}");
    queue.json["jobs"].as_array().expect("a list of jobs").clone()
}

/// The state of a job.
///
/// # Panics
/// If there is no such job.
#[must_use]
pub fn state(master: &Master, name: &str) -> String {
    let jobs = queue(master);
    let job = jobs.iter().find(|job| job["name"] == name).unwrap_or_else(|| panic!("{name} in {jobs:?}"));
    job["state"].as_str().expect("a word").to_owned()
}

/// Checks that a job has ended and its results are right.
///
/// # Panics
/// If not.
pub fn check_right(master: &Master, name: &str) {
    assert_eq!(state(master, name), "done", "{name}: {}", master.user(&["why", name]).stdout);
    let said = master.user(&["cat", name]).stdout;
    assert_eq!(said.matches(VERIFIED).count(), 1, "{name}: {said}");
}

/// Ends the cluster as an administrator does.
///
/// # Panics
/// If it does not end well, or leaves something behind.
pub fn end(master: Master) -> Ended {
    master.signal(Signal::SIGTERM);
    let ended = master.end(RUN_LIMIT, CLEAN_LIMIT);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    ended
}

/// How many switches have taken jobs out of memory.
#[must_use]
pub fn switches(events: &[RunEvent]) -> usize {
    let took_out =
        |event: &&RunEvent| matches!(event.kind, Event::SwitchEnded { bytes_out, .. } if bytes_out.0 > 0);
    events.iter().filter(took_out).count()
}
