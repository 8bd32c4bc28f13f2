//! Reproduces the curves of paper 003, Fig. 9-11 and Table 2, from the constants of its machine: one core and
//! 1 GB a node, Fast Ethernet, a local disk (assumed: 30 MB/s), slots of 900 s. `cargo run --release -p
//! coswitch-sim --example hybrid_study`
//!
//! Two constants come from the paper's Table 2: the share of communication, 10 % for BT (co-scheduled in core
//! 0.90 of the time) and 92 % for CG (0.92). So the in-core column of co-scheduling is input. Out of core the
//! slowdown by swapping is input too, and varied: co-scheduling there takes as many times as long as in core.
//! Gang and hybrid never swap. Makespans are relative to that of the same jobs one after
//! the other.

use std::{fmt::Write, time::Duration};

use coswitch_policies::{Bytes, Cluster, Communication, JobId, JobSpec, Policy, SchedulerConfig, SimTime};
use coswitch_sim::{CostModel, Faults, SimError, SimJob, Transfer, simulate};

/// A program of the paper: nodes, memory of a rank, share of communication in thousandths.
#[derive(Clone, Copy)]
struct Program {
    ranks: u32,
    mib: u64,
    communication: u16,
}

/// Five fit into a node of 1 GB.
const BT: Program = Program { ranks: 9, mib: 200, communication: 100 };
const CG: Program = Program { ranks: 9, mib: 200, communication: 920 };
/// How many times slower jobs run on a node that swaps: assumed.
const SLOWDOWNS: [u32; 4] = [2, 5, 20, 35];
const ALONE: Duration = Duration::from_secs(1800);

fn main() -> Result<(), SimError> {
    let mut out = String::from("n | BT gang | BT hybrid | CG gang | CG hybrid\n");
    for n in 1..=10 {
        write!(out, "{n}").expect("a string takes text");
        for program in [BT, CG] {
            for policy in [Policy::Gang, Policy::Hybrid] {
                write!(out, " | {:.3}", makespan(&vec![program; n], policy, None, SLOWDOWNS[0])?)
                    .expect("a string takes text");
            }
        }
        out.push('\n');
    }
    out += "\nn, co-scheduled";
    for slowdown in SLOWDOWNS {
        write!(out, " | BT and CG, swapping slows {slowdown} times").expect("a string takes text");
    }
    out.push('\n');
    for n in 1..=10 {
        write!(out, "{n}").expect("a string takes text");
        for slowdown in SLOWDOWNS {
            let of = |program| makespan(&vec![program; n], Policy::Cosched, None, slowdown);
            write!(out, " | {:.3} {:.3}", of(BT)?, of(CG)?).expect("a string takes text");
        }
        out.push('\n');
    }
    out += "\nn, half CG and half BT | hybrid, sets of four alike | paired, sets of four mixed\n";
    for n in [8, 16, 24] {
        let half = n / 2;
        let mix = [vec![CG; half], vec![BT; half]].concat();
        let of = |policy| makespan(&mix, policy, Some(4), SLOWDOWNS[0]);
        let (alike, mixed) = (of(Policy::Hybrid)?, of(Policy::Paired)?);
        writeln!(out, "{n} | {alike:.3} | {mixed:.3}").expect("a string takes text");
    }
    #[allow(clippy::print_stdout, reason = "this is what it is for")]
    {
        print!("{out}");
    }
    Ok(())
}

/// The makespan of the programs, all submitted at once, relative to the time they take one after the other.
fn makespan(
    programs: &[Program],
    policy: Policy,
    cell: Option<u32>,
    swap_slowdown: u32,
) -> Result<f64, SimError> {
    let job = |(id, program): (u32, &Program)| SimJob {
        spec: JobSpec {
            id: JobId(id),
            name: format!("job-{id}").into(),
            ranks: program.ranks,
            memory_per_rank: Bytes::mib(program.mib),
            arrival: SimTime(0),
        },
        work: ALONE,
        communication: Some(Communication::per_mille(program.communication)),
        memory: None,
        processors: 1,
        priority: 0,
        limit: None,
        queue: Default::default(),
    };
    let jobs: Vec<SimJob> = (0..).zip(programs).map(job).collect();
    let disk = Transfer::at(Bytes::mib(30));
    let cost = CostModel { dump: disk, restore: disk, swap_slowdown, ..CostModel::default() };
    let config =
        SchedulerConfig { max_per_cell: cell, ..SchedulerConfig::new(policy, Duration::from_secs(900)) };
    let cluster = Cluster::uniform(9, Bytes::mib(1024));
    let report = simulate(&cluster, &config, &jobs, &cost, Faults::default(), 1_000_000)?;
    Ok(report.metrics.tradeoff.relative_makespan.unwrap_or(f64::NAN))
}
