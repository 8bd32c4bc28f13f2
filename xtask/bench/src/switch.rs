//! Benchmark of a switch: of two jobs of 512 MiB on one node one leaves and the other comes, sequentially,
//! against `criu dump` of one tree and `criu restore` of another by hand.
//!
//! Only the side that is measured is in memory: the other one is dumped. A switch of ours includes what the
//! one by hand leaves out: the cut, hashes of the restored pages, the segment and the cgroup.
//!
//! Memory is warm: on a virtual machine the host backs a page when it is first touched, ten times slower than
//! the copy into it. By hand images are removed at once and their pages used again; our images stay, and
//! would measure the host.

use std::{
    io::Write,
    mem::swap,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use coswitch_daemon::protocol::Wait;
use coswitch_dispatcher::protocol::{Order, StepDone, SwitchStep};
use coswitch_examples::Program;
use coswitch_policies::Bytes;

use crate::{
    figure::{Bound, Figure},
    hand::{STORE, Tree},
    pairs::{Pairs, median, take_turns},
    programs,
    stage::{self, Job, Stage, apart},
};

const NODE: Bytes = Bytes::mib(1024);
const JOB: Bytes = Bytes::mib(512);
pub(crate) const STARTED: &str = "heat: step";
/// Between a restore and the dump that is measured, and for disks to become quiet.
pub(crate) const SETTLING: Duration = Duration::from_millis(1500);

/// One switch of ours: seconds, and steps.
struct Switch {
    took: f64,
    steps: Vec<StepDone>,
}

/// One switch by hand, in seconds.
struct ByHand {
    dump: f64,
    restore: f64,
}

pub(crate) fn measure(rounds: u32) -> Result<Vec<Figure>> {
    let program = programs::example(Program::Heat)?;
    let command = [program.as_str(), "--memory", "512MiB", "--steps", "100000000"];
    apart(|| {
        let stage = Stage::set(1, NODE, None)?;
        let mut jobs = (parked(&stage, &command)?, parked(&stage, &command)?);
        let mut trees = (dumped(&command)?, dumped(&command)?);
        let samples = take_turns(rounds, || ours(&stage, &mut jobs), || by_hand(&mut trees))?;
        stage.obey(&mut jobs.0, Order::End)?;
        stage.obey(&mut jobs.1, Order::End)?;
        stage.strike()?;
        Ok(figures(&samples))
    })
}

fn parked(stage: &Stage, command: &[&str]) -> Result<Job> {
    let mut job = stage.launch(command, &[0], Wait::default());
    stage.running(&mut job)?;
    stage::until_said(&job.output, STARTED)?;
    stage.obey(&mut job, Order::Park)?;
    Ok(job)
}

fn dumped(command: &[&str]) -> Result<Tree> {
    let mut tree = Tree::start(command, STARTED)?;
    tree.dump()?;
    Ok(tree)
}

fn ours(stage: &Stage, (out, into): &mut (Job, Job)) -> Result<Switch> {
    stage.obey(out, Order::Restore)?;
    std::thread::sleep(SETTLING);
    warm_memory()?;
    let began = Instant::now();
    let mut steps = stage.obey(out, Order::Park)?;
    steps.extend(stage.obey(into, Order::Restore)?);
    let took = began.elapsed().as_secs_f64();
    stage.obey(into, Order::Park)?;
    std::thread::sleep(SETTLING);
    swap(out, into);
    Ok(Switch { took, steps })
}

fn by_hand((out, into): &mut (Tree, Tree)) -> Result<ByHand> {
    out.restore()?;
    out.forget_images();
    std::thread::sleep(SETTLING);
    warm_memory()?;
    let began = Instant::now();
    out.dump()?;
    let dump = began.elapsed().as_secs_f64();
    into.restore()?;
    let restore = began.elapsed().as_secs_f64() - dump;
    into.forget_images();
    into.dump()?;
    std::thread::sleep(SETTLING);
    swap(out, into);
    Ok(ByHand { dump, restore })
}

/// Touches the free pages that the kernel hands out next, enough for a dump and a restore.
pub(crate) fn warm_memory() -> Result<()> {
    let mut file = tempfile::tempfile_in(STORE).context("failed to make a file")?;
    let piece = vec![1; 1 << 20];
    for _ in 0..(3 * JOB.0) >> 20 {
        file.write_all(&piece).context("failed to fill a file")?;
    }
    Ok(())
}

fn figures(samples: &[(Switch, ByHand)]) -> Vec<Figure> {
    let (ours, theirs) =
        samples.iter().map(|(ours, theirs)| (ours.took, theirs.dump + theirs.restore)).unzip();
    let pairs = Pairs::new(ours, theirs);
    let part = |kind| {
        median(samples.iter().map(|(ours, _)| {
            ours.steps.iter().filter(|step| step.step == kind).map(|step| step.took.as_secs_f64()).sum()
        }))
    };
    let detail = format!(
        "{}; of ours freeze {:.2}, flush {:.2}, dump {:.2}, release {:.2}, restore {:.2} s; \
         by hand dump {:.2}, restore {:.2} s",
        pairs.detail("coswitch", "by hand", 1.0, "s"),
        part(SwitchStep::Freeze),
        part(SwitchStep::Flush),
        part(SwitchStep::Dump),
        part(SwitchStep::Release),
        part(SwitchStep::Restore),
        median(samples.iter().map(|(_, theirs)| theirs.dump)),
        median(samples.iter().map(|(_, theirs)| theirs.restore)),
    );
    let name = "sequential switch of 2 x 512 MiB, by criu by hand";
    vec![Figure::bounded(name, pairs.ratio(), "x", Bound::AtMost(1.25)).of(detail)]
}
