//! `simulate local`: compares all node schedulers of local coscheduling and computes Table 4.1 of paper 001,
//! or runs one scheduler with its metrics of system, nodes and tasks.

use std::{io, num::NonZeroUsize, path::Path};

use anyhow::anyhow;
use comfy_table::Cell;
use coswitch_policies::NodeId;
use coswitch_report::decisions::{NodeExcerpt, svg};
use coswitch_sim::{
    local::{
        Crowding, LocalModel, Peers, Shape, ShapeError,
        compare::{Compared, Contestant, compare, contestants},
        markdown::{comparison_as_markdown, table_as_markdown},
        measures::{NodeMeasures, of_nodes, of_system, tasks_csv},
        simulate_local, simulate_local_drawn,
        table_4_1::{Table, TableOptions, table_4_1},
    },
    parallel::each,
};
use serde::Serialize;

use super::{
    Simulate,
    answer::{Figure, figure_csv, figure_table, figures, right, table},
};
use crate::cli::{Answer, Exit, Failure, Output};

/// Default number of distributed tasks that a run serves (`--jobs`).
const SERVED: u32 = 1000;
/// So many mean service times at the end of a run are drawn: long enough for several communications of a
/// task, and short enough to tell its slices apart.
const DRAWN: u32 = 8;

/// The options of `local` besides `--nodes`, `--jobs` (distributed tasks a run serves), the seeds, `--csv`
/// and `--svg`.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Of `local`")]
pub(super) struct Local {
    /// Only this node scheduler, with its metrics of each node, and of each task with --csv: lin, imp, ics,
    /// exp, exp-balanced, exp-distributed, hpdt, dyn, dyn-as-pre, pre, dcs, fcs or bcs.
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Tasks in the ready queue of a node on average, if each only computed [default: 2].
    #[arg(long, value_name = "TASKS")]
    mrql: Option<f64>,
    /// Probability that an arriving task is distributed [default: 0.5].
    #[arg(long, value_name = "P")]
    pdt: Option<f64>,
    /// Distributed applications [default: 3].
    #[arg(long, value_name = "N")]
    maxm: Option<u32>,
    /// Requests that a task sends at a time: from 0 to this number [default: from 0 to the number of its
    /// application].
    #[arg(long, value_name = "N")]
    cf: Option<u32>,
    /// How often a task may be overtaken, under `dyn` and `pre` [default: as mrql].
    #[arg(long, value_name = "N", requires = "model")]
    mco: Option<u32>,
    /// Mean computation between two communications, in mean service times [default: 0.5].
    #[arg(long, value_name = "TIMES")]
    grain: Option<f64>,
    /// A node has one place for each application; a task without a place becomes a local task.
    #[arg(long)]
    turn_local: bool,
    /// Tasks send to the next node only.
    #[arg(long)]
    ring: bool,
}

impl Local {
    /// The options by name, and whether each is given.
    pub(super) const fn given(&self) -> [(&'static str, bool); 9] {
        [
            ("--model", self.model.is_some()),
            ("--mrql", self.mrql.is_some()),
            ("--pdt", self.pdt.is_some()),
            ("--maxm", self.maxm.is_some()),
            ("--cf", self.cf.is_some()),
            ("--mco", self.mco.is_some()),
            ("--grain", self.grain.is_some()),
            ("--turn-local", self.turn_local),
            ("--ring", self.ring),
        ]
    }
}

/// Table 4.1 varies these parameters itself: a value for one of them asks for a single cluster.
const fn names_a_cluster(arguments: &Simulate) -> bool {
    let Local { mrql, pdt, maxm, .. } = &arguments.local;
    arguments.nodes.is_some() || arguments.cpus.is_some() || mrql.is_some() || pdt.is_some() || maxm.is_some()
}

pub(super) const fn answers_with_a_table(arguments: &Simulate) -> bool {
    arguments.local.model.is_some() || names_a_cluster(arguments)
}

fn shape(arguments: &Simulate) -> Shape {
    let (local, shape) = (&arguments.local, Shape::default());
    Shape {
        served: arguments.jobs.map_or(SERVED, |jobs| u32::try_from(jobs).unwrap_or(u32::MAX)),
        stations: arguments.nodes.unwrap_or(shape.stations),
        processors: NonZeroUsize::new(arguments.cpus() as usize).unwrap_or(shape.processors),
        queue_length: local.mrql.unwrap_or(shape.queue_length),
        distributed: local.pdt.unwrap_or(shape.distributed),
        applications: local.maxm.unwrap_or(shape.applications),
        frequency: local.cf,
        grain: local.grain.unwrap_or(shape.grain),
        crowding: if local.turn_local { Crowding::TurnLocal } else { Crowding::Share },
        peers: if local.ring { Peers::Ring } else { Peers::Any },
        ..shape
    }
}

pub(super) fn simulate(arguments: &Simulate, output: Output) -> Result<Exit, Failure> {
    let shape = shape(arguments);
    shape.check().map_err(failed)?;
    let printed = if let Some(name) = &arguments.local.model {
        output.print(&one(arguments, shape, name)?)
    } else if arguments.csv.is_some() {
        return Err(Failure::Workload(anyhow!("--csv is of the tasks of one node scheduler: give --model")));
    } else if arguments.svg.is_some() {
        return Err(Failure::Workload(anyhow!("--svg draws what one node scheduler decides: give --model")));
    } else {
        output.print(&all(arguments, shape)?)
    };
    printed.map_err(|error| Failure::Internal(anyhow::Error::new(error).context("failed to print")))?;
    Ok(Exit::Done)
}

fn failed(error: ShapeError) -> Failure {
    Failure::Workload(anyhow::Error::new(error).context("failed to simulate"))
}

/// The comparison of all node schedulers, and Table 4.1, which has its own clusters.
#[derive(Serialize)]
struct Studied {
    shape: Shape,
    seeds: Vec<u64>,
    table_4_1: Option<Table>,
    schedulers: Vec<Compared>,
}

fn all(arguments: &Simulate, shape: Shape) -> Result<Studied, Failure> {
    let (seeds, threads) = (arguments.seeds(), arguments.threads());
    let options = TableOptions { shape: shape.clone(), seeds: seeds.clone(), threads };
    let table_4_1 = (!names_a_cluster(arguments)).then(|| table_4_1(&options));
    let table_4_1 = table_4_1.transpose().map_err(failed)?;
    let schedulers = compare(&shape, &seeds, threads).map_err(failed)?;
    Ok(Studied { shape, seeds, table_4_1, schedulers })
}

impl Answer for Studied {
    fn tell(&self, out: &mut dyn io::Write) -> io::Result<()> {
        let (served, seeds) = (self.shape.served, self.seeds.len());
        if let Some(table) = &self.table_4_1 {
            let text = table_as_markdown(table);
            writeln!(
                out,
                "Table 4.1 of paper 001, {} runs of {served} distributed tasks, {seeds} seed(s)\n\n{text}",
                table.runs
            )?;
            if seeds < 2 {
                writeln!(
                    out,
                    "One seed has no interval, and what may be none counts as C: give --seeds 5.\n"
                )?;
            }
        }
        writeln!(out, "All node schedulers: {}\n", shape_text(&self.shape))?;
        writeln!(out, "{}", comparison_as_markdown(&self.schedulers))
    }

    fn csv(&self) -> Option<String> {
        let mut csv = String::from("scheduler,metric,mean,half_width_95,seeds\n");
        for row in &self.schedulers {
            for (metric, estimate) in row.figures() {
                let half = estimate.half_width.map(|half| half.to_string()).unwrap_or_default();
                csv += &format!("\"{}\",{metric},{},{half},{}\n", row.name, estimate.mean, self.seeds.len());
            }
        }
        Some(csv)
    }
}

fn shape_text(shape: &Shape) -> String {
    let Shape { stations, processors, queue_length, distributed, applications, grain, .. } = shape;
    let of = if processors.get() == 1 { String::new() } else { format!(" of {processors} processors") };
    format!(
        "{stations} nodes{of}, MRQL {queue_length}, pdt {distributed}, maxm {applications}, grain {grain}"
    )
}

#[derive(Serialize)]
struct One {
    model: &'static str,
    shape: Shape,
    seeds: Vec<u64>,
    /// Times in time units.
    figures: Vec<Figure>,
    /// Of the first seed.
    nodes: Vec<NodeMeasures>,
}

fn one(arguments: &Simulate, shape: Shape, name: &str) -> Result<One, Failure> {
    let known = contestants(&shape);
    let Some(Contestant { name: called, model, .. }) = known.iter().find(|one| one.key == name).copied()
    else {
        let keys: Vec<_> = known.iter().map(|one| one.key).collect();
        return Err(Failure::Workload(anyhow!(
            "there is no node scheduler `{name}`; there are {}",
            keys.join(", ")
        )));
    };
    let model = match arguments.local.mco {
        None => model,
        Some(mco) => model.overtaking_at_most(mco).ok_or_else(|| {
            Failure::Workload(anyhow!("--mco bounds `dyn` and `pre`, not `{name}`: leave --mco out"))
        })?,
    };
    let seeds = arguments.seeds();
    let runs = each(&seeds, arguments.threads(), |seed| simulate_local(&shape, &model, *seed));
    let runs = runs.into_iter().collect::<Result<Vec<_>, _>>().map_err(failed)?;
    if let Some(path) = &arguments.csv {
        super::write(path, &tasks_csv(&runs[0]))?;
    }
    if let Some(path) = &arguments.svg {
        draw(path, called, &shape, &model, seeds[0])?;
    }
    let all: Vec<_> = runs.iter().map(of_system).collect();
    Ok(One { model: called, figures: figures(&all), nodes: of_nodes(&runs[0]), shape, seeds })
}

/// The end of the run of one seed, in which the node schedulers have much to decide.
fn draw(path: &Path, called: &str, shape: &Shape, model: &LocalModel, seed: u64) -> Result<(), Failure> {
    let (_, excerpts) = simulate_local_drawn(shape, model, seed, DRAWN * shape.service()).map_err(failed)?;
    let nodes = (0..).map(NodeId).zip(excerpts).map(|(node, excerpt)| NodeExcerpt { node, excerpt });
    let nodes: Vec<NodeExcerpt> = nodes.collect();
    super::write(path, &svg(called, &nodes, &|job| format!("application {}", job.0)))
}

impl Answer for One {
    fn tell(&self, out: &mut dyn io::Write) -> io::Result<()> {
        writeln!(out, "{} on {}; times in time units", self.model, shape_text(&self.shape))?;
        writeln!(out, "{}", figure_table(&self.figures, self.seeds.len()))?;
        let first = format!("node, seed {}", self.seeds[0]);
        let mut nodes = table(&first, &["tasks ended", "NodeCoDe", "NodeThDe", "NodeD"]);
        for node in &self.nodes {
            let degree = |degree: Option<f64>| degree.map_or_else(|| "-".into(), |x| format!("{x:.4}"));
            nodes.add_row(vec![
                Cell::new(node.node),
                right(node.tasks),
                right(degree(node.coscheduling)),
                right(degree(node.thrashing)),
                right(format!("{:.1}", node.delay)),
            ]);
        }
        writeln!(out, "{nodes}")
    }

    fn csv(&self) -> Option<String> {
        Some(figure_csv(&self.figures, self.seeds.len()))
    }
}
