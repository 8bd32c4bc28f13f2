//! Benchmark of buffered coscheduling (BCS-MPI; paper 004, §4.5, Fig. 5 and 6): programs with the patterns of
//! Sweep3D and SAGE, whose messages go by slots, against the same at any time; and the order in which
//! messages of any sender come, in many runs.

use std::{collections::BTreeSet, fmt, time::Duration};

use anyhow::{Context, Result};
use coswitch_daemon::protocol::Wait;
use coswitch_examples::Program;
use coswitch_policies::{
    Bytes,
    local::{Buffering, Technique},
    strobe::Rows,
};
use serde::Deserialize;

use crate::{
    figure::{Bound, Figure},
    pairs::median,
    programs,
    stage::{Stage, apart, said},
};

const NODES: [u32; 2] = [2, 4];
/// A step of Sweep3D has four waves; one of SAGE is long, and its messages go while it computes. Both are a
/// second of processor time of each rank.
const KERNELS: [(&str, &str); 2] = [
    ("sweep", "--pattern sweep --grain 0.02 --steps 50 --bytes 8KiB"),
    ("overlap", "--pattern overlap --grain 0.05 --steps 20 --bytes 8KiB"),
];
const SLOTS: [Way; 4] = [
    Way { slot: Duration::from_micros(500), buffering: Buffering::USUAL },
    Way { slot: Duration::from_millis(2), buffering: Buffering::USUAL },
    Way { slot: Duration::from_millis(2), buffering: Buffering { exchanges: 4, dedicated: false } },
    Way { slot: Duration::from_millis(2), buffering: Buffering { exchanges: 1, dedicated: true } },
];
/// Of a task that runs while others wait for its processor.
const PROCESSOR_SLICE: Duration = Duration::from_millis(10);
/// For the order: a slot in which all senders are done, even beside other work.
const LONG_SLOT: Way = Way { slot: Duration::from_millis(50), buffering: Buffering::USUAL };
const RUNS: u32 = 100;

/// When messages go.
#[derive(Clone, Copy)]
struct Way {
    slot: Duration,
    buffering: Buffering,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { slot, buffering: Buffering { exchanges, dedicated } } = self;
        write!(f, "by slots of {slot:?}")?;
        if *exchanges > 1 {
            write!(f, " with {exchanges} exchanges")?;
        }
        if *dedicated { write!(f, " in the dedicated mode") } else { Ok(()) }
    }
}

#[derive(Deserialize)]
struct Grains {
    seconds: f64,
}

#[derive(Deserialize)]
struct Ordered {
    order: String,
}

pub(crate) fn measure(rounds: u32) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for nodes in NODES {
        for (name, options) in KERNELS {
            let ways: Vec<Option<Way>> = [None].into_iter().chain(SLOTS.map(Some)).collect();
            let mut runs = vec![Vec::new(); ways.len()];
            for round in 0..rounds as usize {
                for at in (0..ways.len()).map(|at| (at + round) % ways.len()) {
                    let seconds = apart(|| kernel(options, nodes, ways[at]));
                    runs[at].push(seconds.with_context(|| format!("failed to run {name} on {nodes} nodes"))?);
                }
            }
            let usual = median(runs[0].iter().copied());
            for (way, runs) in SLOTS.iter().zip(&runs[1..]) {
                let seconds = median(runs.iter().copied());
                let figure = format!("{name} on {nodes} nodes, messages {way}, by any time");
                let detail = format!("{seconds:.2} s; {usual:.2} s; {rounds} runs in turns");
                figures.push(Figure::plain(figure, seconds / usual, "x").of(detail));
            }
        }
    }
    for way in [None, Some(LONG_SLOT)] {
        let orders = apart(|| orders(way)).context("failed to run the order of messages")?;
        let how = way.map_or("at any time".to_owned(), |way| way.to_string());
        let name = format!("orders in which messages of any sender came in {RUNS} runs, messages {how}");
        let count = orders.len() as f64;
        figures.push(match way {
            Some(_) => Figure::bounded(name, count, "", Bound::AtMost(1.0)),
            None => Figure::plain(name, count, ""),
        });
    }
    Ok(figures)
}

fn stage(nodes: u32, way: Option<Way>) -> Result<Stage> {
    let bcs = |Way { buffering, .. }| Technique::Bcs { slice: PROCESSOR_SLICE, buffering };
    let stage = Stage::favouring(way.map(bcs), nodes, Bytes::mib(512))?;
    if let Some(Way { slot: slice, .. }) = way {
        stage.strobe(Rows { slice, rows: vec![[stage.next_jobs::<1>()[0]].into()] });
    }
    Ok(stage)
}

/// The seconds of its steps.
fn kernel(options: &str, nodes: u32, way: Option<Way>) -> Result<f64> {
    let program = programs::example(Program::Grains)?;
    let command: Vec<&str> = [program.as_str()].into_iter().chain(options.split(' ')).collect();
    let stage = stage(nodes, way)?;
    let mut job = stage.launch(&command, &(0..nodes).collect::<Vec<_>>(), Wait::SpinBlock);
    stage.end_of(&mut job)?;
    let seconds = line::<Grains>(&said(&job.output)?)?.seconds;
    stage.strike()?;
    Ok(seconds)
}

/// The different orders in so many runs.
fn orders(way: Option<Way>) -> Result<BTreeSet<String>> {
    let program = programs::example(Program::Order)?;
    let command = [&program, "--rounds", "5", "--work", "0.002"];
    let stage = stage(4, way)?;
    let mut orders = BTreeSet::new();
    for _ in 0..RUNS {
        let mut job = stage.launch(&command, &[0, 1, 2, 3], Wait::SpinBlock);
        stage.end_of(&mut job)?;
        orders.insert(line::<Ordered>(&said(&job.output)?)?.order);
    }
    stage.strike()?;
    Ok(orders)
}

fn line<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T> {
    let line = text.lines().find(|line| line.starts_with('{')).context("a rank says nothing")?;
    Ok(serde_json::from_str(line)?)
}
