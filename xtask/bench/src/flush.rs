//! Benchmark of the flush: time to empty the network, by the bytes in flight when the ranks froze.
//!
//! A stream of messages of one size between two nodes on a link of 1 Gbit/s is parked at instants independent
//! of the messages. Bytes in flight are those that daemons took from channels after their ranks had been
//! frozen.

use std::time::Duration;

use anyhow::Result;
use coswitch_daemon::protocol::Wait;
use coswitch_dispatcher::protocol::{Order, StepDone, SwitchStep};
use coswitch_examples::Program;
use coswitch_policies::{Bytes, Rate};

use crate::{
    figure::Figure,
    pairs::median,
    programs,
    stage::{Stage, apart},
};

const SIZES: [&str; 3] = ["1KiB", "64KiB", "4MiB"];
const LINK: Rate = Rate(1_000_000_000);
const MEMORY: Bytes = Bytes::mib(2048);

struct Flush {
    bytes: f64,
    took: Duration,
}

pub(crate) fn measure(rounds: u32) -> Result<Vec<Figure>> {
    let program = programs::example(Program::Pingpong)?;
    apart(|| {
        let stage = Stage::set(2, MEMORY, Some(LINK))?;
        let figures = SIZES.iter().map(|size| Ok(figure(size, &flushes(&stage, &program, size, rounds)?)));
        let figures = figures.collect::<Result<Vec<_>>>()?;
        stage.strike()?;
        Ok(figures)
    })
}

fn flushes(stage: &Stage, program: &str, size: &str, rounds: u32) -> Result<Vec<Flush>> {
    let endless = [program, "--stream", "--size", size, "--iterations", "100000000"];
    let mut job = stage.launch(&endless, &[0, 1], Wait::default());
    stage.running(&mut job)?;
    std::thread::sleep(Duration::from_secs(1));
    let mut flushes = Vec::new();
    for round in 0..rounds {
        std::thread::sleep(Duration::from_millis(150 + 37 * u64::from(round % 7)));
        flushes.push(slowest(&stage.obey(&mut job, Order::Park)?));
        stage.obey(&mut job, Order::Restore)?;
    }
    stage.obey(&mut job, Order::End)?;
    Ok(flushes)
}

/// The flush is over when the last node has all markers; receivers count the bytes in flight.
fn slowest(steps: &[StepDone]) -> Flush {
    let flushes = steps.iter().filter(|step| step.step == SwitchStep::Flush);
    let took = flushes.clone().map(|step| step.took).max().unwrap_or_default();
    Flush { bytes: flushes.map(|step| step.bytes.0 as f64).sum(), took }
}

fn figure(size: &str, flushes: &[Flush]) -> Figure {
    let bytes = median(flushes.iter().map(|flush| flush.bytes));
    let took = median(flushes.iter().map(|flush| flush.took.as_secs_f64()));
    let on_the_link = bytes * 8.0 / LINK.0 as f64;
    let each = flushes
        .iter()
        .map(|flush| format!("{:.0} KiB {:.1} ms", flush.bytes / 1024.0, flush.took.as_secs_f64() * 1e3));
    let each: Vec<String> = each.collect();
    Figure::plain(format!("flush of a stream of {size} messages at 1 Gbit/s"), took * 1e3, "ms").of(format!(
        "median {:.0} KiB in flight, which the link alone needs {:.2} ms for; each: {}",
        bytes / 1024.0,
        on_the_link * 1e3,
        each.join(", ")
    ))
}
