//! Runs an MPI program over the driver without a daemon, to measure and debug the driver alone:
//!
//! ```text
//! cargo run --release -p coswitch-provider --example local -- RANKS NODES POLICY PROGRAM [ARGUMENT...]
//! ```
//!
//! POLICY is `spin`, `yield`, `block` or `spin-block`. With several nodes a thread of this process relays
//! between them. The program prints the output and the counters of each rank, and the time that the job took.

#[path = "../tests/support/mod.rs"]
#[allow(dead_code, reason = "the tests use more of this module")]
mod support;

use coswitch_ring::{SegmentSpec, WaitPolicy};
use std::io::Write;
use std::path::Path;
use std::time::Instant;
use support::{Job, run};

fn policy(name: &str) -> Option<Shape> {
    match name {
        "spin" => Some(|spec| spec.wait = WaitPolicy::Spin),
        "yield" => Some(|spec| spec.wait = WaitPolicy::Yield),
        "block" => Some(|spec| spec.wait = WaitPolicy::Block),
        "spin-block" => Some(|spec| spec.wait = WaitPolicy::SpinBlock),
        _ => None,
    }
}

/// Changes the segment before it is created.
type Shape = fn(&mut SegmentSpec);

fn parse<'a>(args: &'a [String], rest: &'a mut Vec<&'a str>) -> Option<Job<'a>> {
    let [ranks, nodes, policy_name, program, arguments @ ..] = args else { return None };
    let (ranks, nodes): (u32, u32) = (ranks.parse().ok()?, nodes.parse().ok()?);
    rest.extend(arguments.iter().map(String::as_str));
    let sensible = ranks > 0 && nodes > 0 && nodes <= ranks;
    let job = Job { shape: policy(policy_name)?, ..Job::new(ranks, nodes, Path::new(program), rest) };
    sensible.then_some(job)
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mut rest = Vec::new();
    let Some(job) = parse(&args, &mut rest) else {
        eprintln!("usage: local RANKS NODES spin|yield|block|spin-block PROGRAM [ARGUMENT...]");
        std::process::exit(2);
    };
    let start = Instant::now();
    let outcome = run(&job);
    let mut out = std::io::stdout().lock();
    for ((output, counters), status) in outcome.outputs.iter().zip(&outcome.counters).zip(&outcome.statuses) {
        // An error means that stdout is closed, which cannot be reported.
        let _ = writeln!(out, "{output}[{status}] {counters:?}");
    }
    let _ = writeln!(
        out,
        "{:.3} s{}",
        start.elapsed().as_secs_f64(),
        if outcome.timed_out { ", timed out" } else { "" }
    );
    std::process::exit(i32::from(!outcome.is_success()));
}
