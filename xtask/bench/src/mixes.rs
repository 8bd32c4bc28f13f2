//! Benchmark of the node schedulers by mixes of jobs, on real ranks and in the simulator, which runs the same
//! schedulers: the time until all jobs have ended, and the response of local tasks.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use coswitch_daemon::protocol::Wait;
use coswitch_examples::Program;
use coswitch_policies::{Bytes, local::Technique, strobe::Rows};
use coswitch_sim::local::mix::{LocalLoad, Mix, MixJob, MixReport, Pattern, simulate_mix};
use serde::Deserialize;

use crate::{
    figure::Figure,
    pairs::median,
    programs,
    stage::{Job, Stage, apart, said_by},
};

const NODES: u32 = 2;

/// Technique and way of waiting.
const WAYS: [(&str, Option<Technique>, Wait); 12] = [
    ("none", None, Wait::SpinBlock),
    ("dcs", Some(Technique::DCS), Wait::Spin),
    ("dcs, spin-block", Some(Technique::DCS), Wait::SpinBlock),
    ("ics", Some(Technique::ICS), Wait::SpinBlock),
    ("predictive", Some(Technique::PREDICTIVE), Wait::Block),
    ("dynamic", Some(Technique::DYNAMIC), Wait::Block),
    ("hpdt", Some(Technique::HPDT), Wait::Block),
    ("dts", Some(Technique::DTS), Wait::Block),
    ("dts-static", Some(Technique::DTS_STATIC), Wait::Block),
    ("dts-stop", Some(Technique::DTS_STOP), Wait::Block),
    ("fcs", Some(Technique::FCS), Wait::SpinBlock),
    ("bcs", Some(Technique::BCS), Wait::Block),
];

/// The work of each job is a second of processor time of each rank.
const FINE: MixJob =
    MixJob { grain: Duration::from_micros(200), imbalance: 0.0, pattern: Pattern::Neighbour, steps: 5000 };
const COMPUTE: MixJob =
    MixJob { grain: Duration::from_millis(5), imbalance: 0.0, pattern: Pattern::None, steps: 200 };
const IMBALANCED: MixJob = MixJob { imbalance: 0.8, pattern: Pattern::All, ..COMPUTE };
/// A quarter of a processor.
const LOCAL: LocalLoad = LocalLoad { every: Duration::from_millis(80), work: Duration::from_millis(20) };

const MIXES: [(&str, &[MixJob], Option<LocalLoad>); 4] = [
    ("fine + fine", &[FINE, FINE], None),
    ("fine + compute", &[FINE, COMPUTE], None),
    ("imbalanced + compute", &[IMBALANCED, COMPUTE], None),
    ("fine + local", &[MixJob { steps: 3 * FINE.steps, ..FINE }], Some(LOCAL)),
];
/// Local tasks come for so long; the job beside them needs no less.
const LOCAL_SECONDS: &str = "3";

/// What one run shows.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// Seconds until the first job has ended, and until all have.
    first: f64,
    all: f64,
    /// Of local tasks, in milliseconds; 0 without any.
    response: f64,
}

/// A line of the program `local-load`.
#[derive(Deserialize)]
struct Responses {
    response_ms: f64,
}

pub(crate) fn measure(rounds: u32) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (name, jobs, local) in MIXES {
        let mut runs: [Vec<Seen>; WAYS.len()] = std::array::from_fn(|_| Vec::new());
        for round in 0..rounds as usize {
            for at in (0..WAYS.len()).map(|at| (at + round) % WAYS.len()) {
                let (way, technique, wait) = WAYS[at];
                let seen = apart(|| live(jobs, local, technique, wait));
                let seen = seen.with_context(|| format!("failed to run {name} under {way}"))?;
                eprintln!("  {name}, {way}: {:.2} s, {:.1} ms", seen.all, seen.response);
                runs[at].push(seen);
            }
        }
        let simulated = WAYS.map(|(_, technique, _)| simulated(jobs, local, technique));
        let live: Vec<Seen> = runs.iter().map(|runs| middle(runs)).collect();
        for (at, (way, ..)) in WAYS.iter().enumerate() {
            let (seen, model) = (live[at], simulated[at]);
            let detail = format!(
                "{:.2} s, the first job {:.2} s; simulated {:.2} x, {:.2} s, {:.2} s; {rounds} runs in turns",
                seen.all,
                seen.first,
                model.all / simulated[0].all,
                model.all,
                model.first,
            );
            let ratio = seen.all / live[0].all;
            figures.push(Figure::plain(format!("{name}, {way}: all jobs, by none"), ratio, "x").of(detail));
            if local.is_some() {
                let detail = format!("simulated {:.1} ms", model.response);
                let response = format!("{name}, {way}: response of a local task of 20 ms");
                figures.push(Figure::plain(response, seen.response, "ms").of(detail));
            }
        }
    }
    Ok(figures)
}

fn middle(runs: &[Seen]) -> Seen {
    let of = |value: fn(&Seen) -> f64| median(runs.iter().map(value));
    Seen { first: of(|seen| seen.first), all: of(|seen| seen.all), response: of(|seen| seen.response) }
}

fn simulated(jobs: &[MixJob], local: Option<LocalLoad>, technique: Option<Technique>) -> Seen {
    let (latency, context_switch) = (Duration::from_micros(20), Duration::from_micros(2));
    let mix = Mix { nodes: NODES, jobs: jobs.to_vec(), local, latency, context_switch };
    let MixReport { jobs, local_response, .. } = simulate_mix(&mix, technique, 1);
    let ends = || jobs.iter().map(|job| job.ended);
    let [first, all] = [ends().min(), ends().max()].map(|end| end.unwrap_or_default().as_secs_f64());
    Seen { first, all, response: local_response.as_secs_f64() * 1e3 }
}

fn command(job: &MixJob) -> Vec<String> {
    let pattern = match job.pattern {
        Pattern::None => "none",
        Pattern::Neighbour => "neighbour",
        Pattern::All => "all",
    };
    let options = [
        ("--grain", job.grain.as_secs_f64().to_string()),
        ("--imbalance", (job.imbalance * 100.0).to_string()),
        ("--pattern", pattern.to_owned()),
        ("--steps", job.steps.to_string()),
    ];
    options.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
}

fn live(jobs: &[MixJob], local: Option<LocalLoad>, technique: Option<Technique>, wait: Wait) -> Result<Seen> {
    let program = programs::example(Program::Grains)?;
    let stage = Stage::favouring(technique, NODES, Bytes::mib(512))?;
    let slot = technique.and_then(Technique::slot);
    let mut left: Vec<_> = (0..).map(coswitch_policies::JobId).take(jobs.len()).collect();
    let strobe = |left: &[coswitch_policies::JobId]| {
        if let Some(slice) = slot {
            stage.strobe(Rows { slice, rows: left.iter().map(|job| [*job].into()).collect() });
        }
    };
    strobe(&left);
    let began = Instant::now();
    let launch = |job: &MixJob| -> Job {
        let words = command(job);
        let command: Vec<&str> =
            [program.as_str()].into_iter().chain(words.iter().map(String::as_str)).collect();
        stage.launch(&command, &[0, 1], wait)
    };
    let mut launched: Vec<Job> = jobs.iter().map(launch).collect();
    let mut beside = local.map(|load| -> Result<Job> {
        let load_program = programs::example(Program::LocalLoad)?;
        let [every, work] = [load.every, load.work].map(|time| time.as_secs_f64().to_string());
        let command = [&load_program, "--every", &every, "--work", &work, "--seconds", LOCAL_SECONDS]
            .map(str::to_owned);
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        Ok(stage.launch(&command, &[0, 1], wait))
    });
    let mut first = None;
    for job in &mut launched {
        stage.end_of(job)?;
        first.get_or_insert_with(|| began.elapsed());
        left.remove(0);
        strobe(&left);
    }
    let all = began.elapsed().as_secs_f64();
    let mut response = 0.0;
    if let Some(beside) = beside.take() {
        let mut beside = beside?;
        stage.end_of(&mut beside)?;
        for rank in 0..NODES {
            let text = said_by(&beside.output, rank)?;
            let line = text.lines().find(|line| line.starts_with('{')).context("local tasks say nothing")?;
            response += serde_json::from_str::<Responses>(line)?.response_ms / f64::from(NODES);
        }
    }
    stage.strike()?;
    Ok(Seen { first: first.unwrap_or_default().as_secs_f64(), all, response })
}
