//! A simulation of the whole control plane, by seed: the run core of a master with its scheduler, the
//! dispatchers, the rules of the sessions and the cuts of the daemons are the real ones; the network, the
//! processes, the disks, the users and the clock are invented, and go wrong as the seed says.
//!
//! ```text
//!   plan (seed) ─▶ world: one event after the other ─▶ head ⇄ network ⇄ daemons ─▶ parts
//!                     └──────── after each: audit
//! ```
//! A failing seed prints itself, the smallest part of its faults that still fails, and what happened last;
//! `COSWITCH_SEED` repeats it. See docs/decisions/0010.

mod audit;
mod channels;
mod context;
mod daemon;
mod dispatchers;
mod head;
mod heartbeats;
mod links;
mod machine;
mod network;
mod part;
mod plan;
mod primitives;
mod sessions;
mod settings;
mod steps;
mod work;
mod world;

use std::{
    env,
    panic::{self, AssertUnwindSafe},
    time::{Duration, Instant},
};

use coswitch_daemon::{protocol::HEARTBEAT, session::QUIET_AFTER};

use self::{plan::Plan, world::World};

/// How many seeds CI runs.
const SEEDS: u64 = 10_000;

thread_local! {
    /// Where the code panicked last, if that is wanted.
    static PANICKED: std::cell::RefCell<Option<String>> = const { std::cell::RefCell::new(None) };
}

/// Runs a plan; what went wrong, and the last events.
fn run(plan: &Plan, traced: bool) -> Result<u64, (String, String)> {
    let mut world = World::new(plan.clone(), traced);
    let result = panic::catch_unwind(AssertUnwindSafe(|| world.run()));
    result.map(|()| world.events).map_err(|cause| {
        let text = cause.downcast_ref::<String>().cloned();
        let text = text.or_else(|| cause.downcast_ref::<&str>().map(ToString::to_string));
        (text.unwrap_or_default(), world.ctx.lines())
    })
}

/// Leaves out whatever the failure does not need.
fn shrink(mut plan: Plan) -> Plan {
    let mut is_smaller = true;
    while std::mem::take(&mut is_smaller) {
        let without = |plan: &Plan| {
            let faults = (0..plan.faults.len()).map(|index| {
                let mut smaller = plan.clone();
                smaller.faults.remove(index);
                smaller
            });
            let wishes = (0..plan.wishes.len()).map(|index| {
                let mut smaller = plan.clone();
                smaller.wishes.remove(index);
                smaller
            });
            faults.chain(wishes).collect::<Vec<_>>()
        };
        if let Some(smaller) = without(&plan).into_iter().find(|plan| run(plan, false).is_err()) {
            (plan, is_smaller) = (smaller, true);
        }
    }
    plan
}

/// Runs one seed; a report of what went wrong.
fn try_seed(seed: u64) -> Result<u64, String> {
    let plan = Plan::of(seed);
    run(&plan, false).map_err(|_| {
        let plan = shrink(plan);
        PANICKED.set(Some(String::new()));
        let (why, lines) = run(&plan, true).expect_err("the same plan fails again");
        let at = PANICKED.take().unwrap_or_default();
        let ours = at.lines().filter(|line| line.contains("coswitch")).collect::<Vec<_>>().join("\n");
        format!("{lines}\n{plan:#?}\n{ours}\n\n{why}\nrepeat with COSWITCH_SEED={seed}")
    })
}

fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a number, not `{text}`")))
}

/// Whatever dies, pauses, is cut off, slow or full: each gang runs as a whole or not at all, no node holds
/// more than it has, nothing sealed is lost, every job has an end and has done its work by then, every user
/// has an answer, and nothing is left on any node.
#[test]
fn never_both_never_neither() {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {
        PANICKED.with_borrow_mut(|at| {
            if let Some(at) = at {
                *at = std::backtrace::Backtrace::force_capture().to_string();
            }
        });
    }));
    let began = Instant::now();
    let limit = number("COSWITCH_SOAK").map(Duration::from_secs);
    let first = number("COSWITCH_SEED");
    let fresh = limit.map(|_| {
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |age| age.as_nanos() as u64)
    });
    let (mut seed, mut runs, mut events) = (first.or(fresh).unwrap_or(0), 0, 0);
    let failure = loop {
        match try_seed(seed) {
            Ok(count) => events += count,
            Err(report) => break Some(report),
        }
        (seed, runs) = (seed + 1, runs + 1);
        let is_over = match limit {
            Some(limit) => began.elapsed() >= limit,
            None => first.is_some() || runs == SEEDS,
        };
        if is_over {
            break None;
        }
    };
    panic::set_hook(hook);
    eprintln!("{runs} seeds, {events} events, {:.1} s", began.elapsed().as_secs_f64());
    if let Some(report) = failure {
        panic!("{report}");
    }
}
