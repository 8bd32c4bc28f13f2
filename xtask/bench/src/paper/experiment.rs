//! The experiments, and what they are to show.

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::{
    compared::{Arm, Call},
    page::{Claim, Row, Section},
};

/// A part of the paper's evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Fig. 8: the orders of a switch, in core and near out of core
    Switching,
    /// Fig. 9 and Table 1: n co-scheduled jobs, as n passes memory
    Cosched,
    /// Fig. 10 (b), Table 2: co-scheduling, gang and hybrid of jobs that compute
    Compute,
    /// Fig. 10 (a), Table 2: the same of jobs that communicate
    Communicate,
    /// Fig. 11: sets of jobs alike, and of jobs that go well together
    Pairs,
    /// What ranks do while they wait (not in the paper)
    Waiting,
}

/// Jobs of `compute.yaml` and `communication.yaml` that fit on a node.
const FIT: u32 = 3;
/// And so many that they do not.
const TOO_MANY: u32 = 6;

impl Part {
    pub(crate) fn carry_out(self, repeat: u32, limit: &str) -> Result<Section> {
        match self {
            Part::Switching => switching(repeat, limit),
            Part::Cosched => cosched(repeat, limit),
            Part::Compute => compute(repeat, limit),
            Part::Communicate => communicate(repeat, limit),
            Part::Pairs => pairs(repeat, limit),
            Part::Waiting => waiting(repeat, limit),
        }
    }
}

fn of<'a>(arms: &'a [Arm], policy: &str, switching: &str) -> Result<&'a Arm> {
    let is_it = |arm: &&Arm| {
        arm.policy == policy && (switching.is_empty() || arm.switching.as_deref() == Some(switching))
    };
    arms.iter().find(is_it).with_context(|| format!("{policy} {switching} was not compared"))
}

fn rows(label: &str, arms: &[Arm]) -> Vec<Row> {
    arms.iter().map(|arm| Row::new(label, arm)).collect()
}

fn switching(repeat: u32, limit: &str) -> Result<Section> {
    let at = |memory| {
        let replaced = &[("memory: 1200MiB", memory)];
        Call {
            file: "switching.yaml",
            replaced,
            policies: "gang",
            switching: "sequential,overlapped,prefetch",
        }
        .compare(repeat, limit)
    };
    let (inside, near) = (at("memory: 1200MiB")?, at("memory: 700MiB")?);
    let exposed = |arms: &[Arm], order| -> Result<f64> {
        of(arms, "gang", order)?.exposed_s.context("no run was done")
    };
    let in_core =
        [exposed(&inside, "sequential")?, exposed(&inside, "overlapped")?, exposed(&inside, "prefetch")?];
    let makespans = [of(&near, "gang", "sequential")?.makespan(), of(&near, "gang", "prefetch")?.makespan()];
    Ok(Section {
        title: "Fig. 8: orders of a switch",
        about: "Two jobs of which one runs at a time. (a) memory holds both, (b) it does not: there coswitch falls back to \
                the sequential order by itself, whatever was asked for.",
        rows: [rows("(a) in core", &inside), rows("(b) near out of core", &near)].concat(),
        claims: vec![
            Claim::new("in core, overlapped exposes less than sequential", in_core[1] / in_core[0], "<", 1.0),
            Claim::new("in core, prefetch exposes less than overlapped", in_core[2] / in_core[1], "<", 1.0),
            Claim::new(
                "near out of core, asking for prefetch costs nothing (the paper's did, dramatically): makespan by sequential",
                makespans[1] / makespans[0],
                "<",
                1.1,
            ),
        ],
    })
}

fn cosched(repeat: u32, limit: &str) -> Result<Section> {
    let mut all = Vec::new();
    for count in 1..=TOO_MANY {
        let replaced = &[("count: 6", &*format!("count: {count}"))];
        let call = Call { file: "compute.yaml", replaced, policies: "cosched", switching: "" };
        all.push((count, of(&call.compare(repeat, limit)?, "cosched", "")?.clone()));
    }
    let slowdown = |count: u32| all[count as usize - 1].1.slowdown();
    Ok(Section {
        title: "Fig. 9, Table 1: n co-scheduled jobs as n passes memory",
        about: "Three fit on a node; a fourth, fifth and sixth go to swap.",
        rows: all.iter().map(|(count, arm)| Row::new(&format!("n = {count}"), arm)).collect(),
        claims: vec![
            Claim::new("in core, n at once take less than n after the other: n = 3", slowdown(FIT), "<", 1.0),
            Claim::new(
                "out of core they take far longer (the paper's nine: 20 times): n = 6 by n = 3",
                slowdown(TOO_MANY) / slowdown(FIT),
                ">",
                1.5,
            ),
        ],
    })
}

/// Table 2: in core and out of core, against the jobs one after the other.
fn table(file: &str, repeat: u32, limit: &str) -> Result<(Vec<Arm>, Vec<Arm>)> {
    let with = |count: u32| {
        let replaced = &[("count: 6", &*format!("count: {count}"))];
        Call { file, replaced, policies: "batch,cosched,gang,hybrid", switching: "" }.compare(repeat, limit)
    };
    Ok((with(FIT)?, with(TOO_MANY)?))
}

fn compute(repeat: u32, limit: &str) -> Result<Section> {
    let (inside, outside) = table("compute.yaml", repeat, limit)?;
    let ratio = |arms: &[Arm], one: &str, other: &str| -> Result<f64> {
        Ok(of(arms, one, "")?.makespan() / of(arms, other, "")?.makespan())
    };
    let by_cosched = ratio(&inside, "hybrid", "cosched")?;
    Ok(Section {
        title: "Fig. 10 (b), Table 2: jobs that mostly compute",
        about: "The paper's slowdowns by ideal sequential scheduling, for BT: in core co-scheduling 0.90, gang 1.02, hybrid \
                0.90; out of core 1.9, 1.07 and 0.90.",
        rows: [rows("in core, n = 3", &inside), rows("out of core, n = 6", &outside)].concat(),
        claims: vec![
            Claim::new(
                "in core, hybrid is co-scheduling: makespans differ by",
                (by_cosched - 1.0).abs(),
                "<",
                0.1,
            ),
            Claim::new("out of core, hybrid by batch", ratio(&outside, "hybrid", "batch")?, "<", 0.9),
            Claim::new(
                "out of core, hybrid by gang (the paper: 17 % better)",
                ratio(&outside, "hybrid", "gang")?,
                "<",
                0.83,
            ),
            Claim::new(
                "out of core, co-scheduling with swap by gang",
                ratio(&outside, "cosched", "gang")?,
                ">",
                1.0,
            ),
            Claim::new(
                "out of core, co-scheduling with swap by hybrid",
                ratio(&outside, "cosched", "hybrid")?,
                ">",
                1.0,
            ),
        ],
    })
}

fn communicate(repeat: u32, limit: &str) -> Result<Section> {
    let (inside, outside) = table("communication.yaml", repeat, limit)?;
    let hybrid_by_gang = of(&outside, "hybrid", "")?.makespan() / of(&outside, "gang", "")?.makespan();
    Ok(Section {
        title: "Fig. 10 (a), Table 2: jobs that mostly communicate",
        about: "The paper's slowdowns by ideal sequential scheduling, for CG: in core co-scheduling 0.92, gang 1.02, hybrid \
                0.99; out of core 1.3, 1.02 and 0.99: hybrid gains nothing on gang, since the network is what is shared.",
        rows: [rows("in core, n = 3", &inside), rows("out of core, n = 6", &outside)].concat(),
        claims: vec![
            Claim::new(
                "in core, co-scheduling by one after the other",
                of(&inside, "cosched", "")?.slowdown(),
                "<",
                1.0,
            ),
            Claim::new("out of core, hybrid is no worse than gang: makespan", hybrid_by_gang, "<", 1.05),
        ],
    })
}

fn pairs(repeat: u32, limit: &str) -> Result<Section> {
    let call = Call { file: "pairs.yaml", replaced: &[], policies: "hybrid,paired", switching: "" };
    let arms = call.compare(repeat, limit)?;
    let paired = of(&arms, "paired", "")?.makespan() / of(&arms, "hybrid", "")?.makespan();
    Ok(Section {
        title: "Fig. 11: sets of jobs alike, and of jobs that go well together",
        about: "Two jobs run at a time: hybrid takes two alike, paired one that computes and one that communicates, as \
                measured while they run.",
        rows: rows("four of each", &arms),
        claims: vec![
            Claim::new("paired by homogeneous sets, as in the paper (2.7 % better)", paired, "<", 0.973),
            Claim::new("paired by homogeneous sets, as expected on such links", paired, "<", 0.9),
        ],
    })
}

fn waiting(repeat: u32, limit: &str) -> Result<Section> {
    let with = |wait: &str| {
        let replaced =
            &[("count: 6", "count: 3"), ("policy: hybrid", &*format!("policy: hybrid\n  wait: {wait}"))];
        Call { file: "communication.yaml", replaced, policies: "cosched", switching: "" }
            .compare(repeat, limit)
    };
    let mut all = Vec::new();
    for wait in ["spin", "block", "spin-block"] {
        all.push((wait, of(&with(wait)?, "cosched", "")?.clone()));
    }
    let by_spin = |at: usize| all[at].1.makespan() / all[0].1.makespan();
    Ok(Section {
        title: "What ranks do while they wait",
        about: "Three co-scheduled jobs that communicate. `spin` polls without pause, as stock MPICH does.",
        rows: all.iter().map(|(wait, arm)| Row::new(&format!("wait: {wait}"), arm)).collect(),
        claims: vec![
            Claim::new("sleeping while waiting by polling: block", by_spin(1), "<", 1.0),
            Claim::new("the same: spin-block", by_spin(2), "<", 1.0),
        ],
    })
}
