//! Benchmark of a checkpoint: for how long a job of 512 MiB on one node stands still, against `criu dump` of
//! the same program by hand, and the share of its time that checkpoints take at Daly's interval.
//!
//! The pause has the cut, the dump and the way back; the snapshot is made durable beside the job that runs
//! on. Memory is warm, as in [`crate::switch`].

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::Result;
use coswitch_daemon::protocol::Wait;
use coswitch_dispatcher::protocol::Order;
use coswitch_examples::Program;
use coswitch_policies::{Bytes, timeshare::checkpoint_interval::interval};

use crate::{
    figure::{Bound, Figure},
    hand::Tree,
    pairs::{Pairs, median, take_turns},
    programs,
    stage::{self, Stage, apart},
    switch::{SETTLING, STARTED, warm_memory},
};

const NODE: Bytes = Bytes::mib(1024);
/// The default of `cluster.mean_time_between_failures`.
const BETWEEN_FAILURES: Duration = Duration::from_secs(7 * 24 * 60 * 60);

pub(crate) fn measure(rounds: u32) -> Result<Vec<Figure>> {
    let program = programs::example(Program::Heat)?;
    let command = [program.as_str(), "--memory", "512MiB", "--steps", "100000000"];
    apart(|| {
        let stage = Stage::set(1, NODE, None)?;
        let mut job = stage.launch(&command, &[0], Wait::default());
        stage.running(&mut job)?;
        stage::until_said(&job.output, STARTED)?;
        let ours = || {
            warm_memory()?;
            let (stood_still, _) = stage.checkpoint(&mut job)?;
            sleep(SETTLING);
            Ok(stood_still.as_secs_f64())
        };
        let mut tree = Tree::start(&command, STARTED)?;
        tree.dump()?;
        let by_hand = || {
            tree.restore()?;
            tree.forget_images();
            sleep(SETTLING);
            warm_memory()?;
            let began = Instant::now();
            tree.dump()?;
            Ok(began.elapsed().as_secs_f64())
        };
        let samples = take_turns(rounds, ours, by_hand)?;
        stage.obey(&mut job, Order::End)?;
        stage.strike()?;
        Ok(figures(samples))
    })
}

fn figures(samples: Vec<(f64, f64)>) -> Vec<Figure> {
    let (ours, theirs): (Vec<f64>, Vec<f64>) = samples.into_iter().unzip();
    let pause = median(ours.iter().copied());
    let work = interval(Duration::from_secs_f64(pause), BETWEEN_FAILURES).as_secs_f64();
    let pairs = Pairs::new(ours, theirs);
    let name = "pause of a checkpoint of 512 MiB, by criu dump by hand";
    let share = 100.0 * pause / (work + pause);
    let often = format!("one of {pause:.2} s every {:.1} min, on one node", work / 60.0);
    vec![
        Figure::bounded(name, pairs.ratio(), "x", Bound::AtMost(1.25))
            .of(pairs.detail("coswitch", "by hand", 1.0, "s")),
        Figure::bounded("share of the time, a failure in 7 days", share, "%", Bound::AtMost(0.2)).of(often),
    ]
}
