//! Benchmark of warm gang switching (paper 004, Fig. 3): what two jobs of a rank on each node lose that take
//! slices, against each of them alone, by the length of a slice.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use coswitch_daemon::protocol::{SliceUse, Wait};
use coswitch_examples::Program;
use coswitch_policies::{Bytes, JobId, strobe::Rows};

use crate::{
    control::Neighbours,
    figure::{Bound, Figure},
    pairs::median,
    programs,
    stage::{Job, Stage, apart},
};

pub(crate) const NODES: [u32; 3] = [2, 8, 32];
const SLICES: [Duration; 8] = [
    Duration::from_micros(300),
    Duration::from_millis(1),
    Duration::from_millis(3),
    Duration::from_millis(10),
    Duration::from_millis(30),
    Duration::from_millis(100),
    Duration::from_secs(1),
    Duration::from_secs(8),
];
/// What a job has to do takes so long alone, or so many slices.
const WORK: Duration = Duration::from_secs(2);
const WORK_SLICES: f64 = 2.5;
/// Two jobs that take so many times as long as one after the other are ended.
const LONGEST: u32 = 10;
/// The aim: no more than this share is lost on so many nodes with such slices.
const AIM: (u32, Duration, f64) = (8, Duration::from_millis(10), 2.0);

/// A program whose work is a count.
struct Work {
    name: &'static str,
    program: String,
    /// Before the count.
    options: &'static str,
    /// A run for calibration takes so much of it.
    sample: u32,
}

impl Work {
    fn command(&self, count: u32) -> Vec<String> {
        let words = self.options.split(' ').map(str::to_owned);
        std::iter::once(self.program.clone()).chain(words).chain([count.to_string()]).collect()
    }
}

pub(crate) fn measure(nodes: &[u32], rounds: u32) -> Result<Vec<Figure>> {
    let _room = Neighbours::make_room().context("the kernel's table of neighbours cannot be made larger")?;
    let fine = Work {
        name: "grains of 0.5 ms",
        program: programs::example(Program::Grains)?,
        options: "--grain 0.0005 --pattern neighbour --steps",
        sample: 500,
    };
    let cg = Work {
        name: "cg",
        program: programs::example(Program::Cg)?,
        options: "--class W --repeat",
        sample: 2,
    };
    let mut figures = Vec::new();
    for nodes in nodes.iter().copied() {
        for work in [&fine, &cg] {
            let curve = apart(|| curve(work, nodes, rounds));
            figures.extend(curve.with_context(|| format!("failed to measure {} on {nodes}", work.name))?);
        }
    }
    Ok(figures)
}

fn curve(work: &Work, nodes: u32, rounds: u32) -> Result<Vec<Figure>> {
    let stage = Stage::set(nodes, Bytes::mib(256), None)?;
    let one = |count: u32| alone(&stage, work, nodes, count);
    // What both runs need to begin and end is not work.
    let (less, more) = (one(work.sample)?, one(3 * work.sample)?);
    let each = more.saturating_sub(less).as_secs_f64() / f64::from(2 * work.sample);
    let count = |slice: Duration| (WORK.max(slice.mul_f64(WORK_SLICES)).as_secs_f64() / each).ceil() as u32;
    let (mut losses, mut took, mut overlap) = (vec![Vec::new(); SLICES.len()], Vec::new(), Duration::ZERO);
    let mut ended = [false; SLICES.len()];
    for _ in 0..rounds {
        // Of each amount of work, in this round.
        let mut alone = BTreeMap::new();
        for (at, slice) in SLICES.iter().enumerate() {
            let count = count(*slice);
            if let Entry::Vacant(entry) = alone.entry(count) {
                entry.insert(one(count)? + one(count)?);
            }
            let longest = alone[&count] * LONGEST;
            let (both, slices) = both(&stage, work, nodes, count, *slice, longest)?;
            ended[at] |= both.is_none();
            let lost = (both.unwrap_or(longest).div_duration_f64(alone[&count]) - 1.0) * 100.0;
            let switch = slices.took.as_secs_f64() * 1e6 / slices.switches.max(1) as f64;
            eprintln!("  {} on {nodes} nodes, slices of {slice:?}: {lost:.1} % lost", work.name);
            losses[at].push(lost);
            took.push(switch);
            overlap += slices.overlap;
        }
    }
    stage.strike()?;
    let figures = SLICES.iter().zip(&losses).zip(ended).map(|((slice, losses), ended)| {
        let name = format!("slices of {slice:?}, {} on {nodes} nodes: lost", work.name);
        let loss = median(losses.iter().copied());
        let figure = match (nodes, *slice) == (AIM.0, AIM.1) {
            true => Figure::bounded(name, loss, "%", Bound::AtMost(AIM.2)),
            false => Figure::plain(name, loss, "%"),
        };
        if ended { figure.of("or more: the jobs were ended".to_owned()) } else { figure }
    });
    let mut figures: Vec<Figure> = figures.collect();
    let switch = format!("slices, {} on {nodes} nodes: a warm switch of a node", work.name);
    figures.push(Figure::plain(switch, median(took), "us").of(format!("{rounds} rounds")));
    let name = format!("slices, {} on {nodes} nodes: computed in slices of the other", work.name);
    figures.push(Figure::bounded(name, overlap.as_secs_f64() * 1e3, "ms", Bound::AtMost(0.0)));
    Ok(figures)
}

fn alone(stage: &Stage, work: &Work, nodes: u32, count: u32) -> Result<Duration> {
    let mut job = launch(stage, work, nodes, count);
    stage.running(&mut job)?;
    let began = Instant::now();
    stage.end_of(&mut job)?;
    Ok(began.elapsed())
}

/// As the master does it: a strobe before the jobs begin, and one when the first of them has ended. No time
/// where they had to be ended.
fn both(
    stage: &Stage,
    work: &Work,
    nodes: u32,
    count: u32,
    slice: Duration,
    longest: Duration,
) -> Result<(Option<Duration>, SliceUse)> {
    stage.slices();
    let jobs: [JobId; 2] = stage.next_jobs();
    stage.strobe(Rows { slice, rows: jobs.iter().map(|job| [*job].into()).collect() });
    let mut both = [(); 2].map(|()| launch(stage, work, nodes, count));
    for job in &mut both {
        stage.running(job)?;
    }
    let began = Instant::now();
    let [first, second] = &mut both;
    let has_ended = stage.ends_by(first, began + longest)?;
    stage.strobe(Rows { slice, rows: vec![[jobs[1]].into()] });
    let has_ended = stage.ends_by(second, began + longest)? && has_ended;
    let took = began.elapsed();
    // Nodes tell what their slices were once a second.
    std::thread::sleep(Duration::from_millis(1200));
    Ok((has_ended.then_some(took), stage.slices()))
}

fn launch(stage: &Stage, work: &Work, nodes: u32, count: u32) -> Job {
    let command = work.command(count);
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    stage.launch(&command, &(0..nodes).collect::<Vec<_>>(), Wait::SpinBlock)
}
