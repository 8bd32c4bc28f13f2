//! Runs an MPI program over the driver without any daemon, for measuring and debugging the driver alone:
//!
//! ```text
//! cargo run --release -p coswitch-provider --example local -- RANKS NODES POLICY PROGRAM [ARGUMENT...]
//! ```
//!
//! POLICY is `spin`, `yield`, `block` or `spin-block`. With several nodes a thread of this process relays between them.
//! It prints what each rank wrote, how long the job took and what each rank counted.

#[path = "../tests/support/mod.rs"]
mod support;

use coswitch_ring::{SegmentSpec, WaitPolicy};
use std::io::Write;
use std::path::Path;
use std::time::Instant;
use support::{Job, run};

fn policy(name: &str) -> Option<fn(&mut SegmentSpec)> {
    match name {
        "spin" => Some(|spec| spec.wait = WaitPolicy::Spin),
        "yield" => Some(|spec| spec.wait = WaitPolicy::Yield),
        "block" => Some(|spec| spec.wait = WaitPolicy::Block),
        "spin-block" => Some(|spec| spec.wait = WaitPolicy::SpinBlock),
        _ => None,
    }
}

fn parse(args: &[String]) -> Option<(u32, u32, fn(&mut SegmentSpec), &str, Vec<&str>)> {
    let [ranks, nodes, policy_name, program, rest @ ..] = args else { return None };
    let (ranks, nodes): (u32, u32) = (ranks.parse().ok()?, nodes.parse().ok()?);
    let sensible = ranks > 0 && nodes > 0 && nodes <= ranks;
    sensible.then_some((
        ranks,
        nodes,
        policy(policy_name)?,
        program,
        rest.iter().map(String::as_str).collect(),
    ))
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some((ranks, nodes, shape, program, rest)) = parse(&args) else {
        eprintln!("usage: local RANKS NODES spin|yield|block|spin-block PROGRAM [ARGUMENT...]");
        std::process::exit(2);
    };
    let job = Job { shape, ..Job::new(ranks, nodes, Path::new(program), &rest) };
    let start = Instant::now();
    let outcome = run(&job);
    let mut out = std::io::stdout().lock();
    for ((output, counters), status) in outcome.outputs.iter().zip(&outcome.counters).zip(&outcome.statuses) {
        // Nobody to tell if stdout is closed.
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
