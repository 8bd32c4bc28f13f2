//! Benchmark of the node schedulers by mixes of jobs, on real ranks and in the simulator, which runs the same
//! schedulers: the time until all jobs have ended, how evenly they do, for how long their ranks wait for
//! messages, and the response of local tasks.
//!
//! Beside local tasks also the two figures that the thesis weighs (Fig. 5.26): distributed gain, the time of
//! the parallel job without a technique by that with it; and local overhead, the response of local tasks
//! beside the job by that on idle nodes, less 1.

use std::{
    fmt,
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use coswitch_daemon::protocol::Wait;
use coswitch_examples::Program;
use coswitch_policies::{
    Bytes, JobId,
    local::{
        DtsMode, Technique,
        explicit::{Filling, LoadRule},
    },
    metrics,
};
use coswitch_sim::local::mix::{LocalLoad, MixJob, MixReport, simulate_mix};
use serde::{Deserialize, de::DeserializeOwned};

use crate::{
    figure::Figure,
    grain_jobs::{self, COMPUTE, FINE, IMBALANCED},
    pairs::median,
    programs,
    stage::{Job, Stage, apart, said_by},
};

const NODES: u32 = 2;

/// Technique and way of waiting.
const WAYS: [(&str, Option<Technique>, Wait); 13] = [
    ("none", None, Wait::SpinBlock),
    ("dcs", Some(Technique::DCS), Wait::Spin),
    ("dcs, spin-block", Some(Technique::DCS), Wait::SpinBlock),
    ("ics", Some(Technique::ICS), Wait::SpinBlock),
    ("predictive", Some(Technique::PREDICTIVE), Wait::Block),
    ("dynamic", Some(Technique::DYNAMIC), Wait::Block),
    ("hpdt", Some(Technique::HPDT), Wait::Block),
    ("dts", Some(Technique::DTS), Wait::Block),
    ("dts-balanced", Some(BALANCED), Wait::Block),
    ("dts-static", Some(Technique::DTS_STATIC), Wait::Block),
    ("dts-stop", Some(Technique::DTS_STOP), Wait::Block),
    ("fcs", Some(Technique::FCS), Wait::SpinBlock),
    ("bcs", Some(Technique::BCS), Wait::Block),
];

/// DTS in balanced mode as usual, but with a load index that is twenty times as quick: usually the first one
/// comes after 10 s, when a mix is over.
const BALANCED: Technique = Technique::Dts {
    slice: Duration::from_millis(10),
    mode: DtsMode::Balanced {
        period: Duration::from_millis(100),
        load: LoadRule {
            sample_every: Duration::from_millis(50),
            threshold: 0.5,
            ..LoadRule::over_a_minute()
        },
    },
    filling: Filling::Both,
};

/// A quarter of a processor. The job beside them needs no less time.
const LOCAL: LocalLoad = LocalLoad {
    every: Duration::from_millis(80),
    work: Duration::from_millis(20),
    lasts: Duration::from_secs(3),
};

const MIXES: [(&str, &[MixJob], Option<LocalLoad>); 4] = [
    ("fine + fine", &[FINE, FINE], None),
    ("fine + compute", &[FINE, COMPUTE], None),
    ("imbalanced + compute", &[IMBALANCED, COMPUTE], None),
    ("fine + local", &[MixJob { steps: 3 * FINE.steps, ..FINE }], Some(LOCAL)),
];

/// What one run shows.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// Seconds until all jobs have ended.
    all: f64,
    /// How unequal their times are: [`metrics::spread`]; 0 where they end together.
    spread: f64,
    /// Seconds for which a rank lacked messages, on average.
    waited: f64,
    /// Of local tasks, in milliseconds; 0 without any.
    response: f64,
    /// How often the console of DTS has set other slices.
    slices_set: f64,
}

/// What a technique brings the parallel job and costs the local tasks beside it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Weighed {
    /// Distributed gain: above 1 the job is faster.
    gain: f64,
    /// Local overhead, in percent.
    overhead: f64,
}

impl Weighed {
    /// By the job without a technique, and by the response of the same local tasks on idle nodes.
    fn of(seen: Seen, none: Seen, idle_response: f64) -> Self {
        let overhead = (seen.response / idle_response - 1.0) * 100.0;
        Self { gain: none.all / seen.all, overhead }
    }
}

/// The line of the program `local-load`.
#[derive(Deserialize)]
struct Responses {
    response_ms: f64,
}

/// The line of the program `grains`.
#[derive(Deserialize)]
struct Steps {
    steps: f64,
    wait_us: f64,
}

pub(crate) fn measure(rounds: u32) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (name, jobs, local) in MIXES {
        let mut runs: [Vec<Seen>; WAYS.len()] = std::array::from_fn(|_| Vec::new());
        let mut idle = Vec::new();
        for round in 0..rounds as usize {
            for at in (0..WAYS.len()).map(|at| (at + round) % WAYS.len()) {
                let (way, technique, wait) = WAYS[at];
                let seen = apart(|| live(jobs, local, technique, wait));
                let seen = seen.with_context(|| format!("failed to run {name} under {way}"))?;
                eprintln!("  {name}, {way}: {seen}");
                runs[at].push(seen);
            }
            if local.is_some() {
                let seen = apart(|| live(&[], local, None, Wait::default()));
                let response = seen.context("failed to run local tasks alone")?.response;
                eprintln!("  local tasks alone: {response:.1} ms");
                idle.push(response);
            }
        }
        let simulated = WAYS.map(|(_, technique, _)| simulated(jobs, local, technique));
        let live: Vec<Seen> = runs.iter().map(|runs| middle(runs)).collect();
        for (at, (way, ..)) in WAYS.iter().enumerate() {
            let (seen, model) = (live[at], simulated[at]);
            let detail = format!("{seen}; simulated {:.2} x, {model}", model.all / simulated[0].all);
            let ratio = seen.all / live[0].all;
            figures.push(Figure::plain(format!("{name}, {way}: all jobs, by none"), ratio, "x").of(detail));
        }
        if local.is_some() {
            let (idle, model_idle) = (median(idle), simulated_idle(local));
            for (at, (way, ..)) in WAYS.iter().enumerate() {
                let weighed = Weighed::of(live[at], live[0], idle);
                let model = Weighed::of(simulated[at], simulated[0], model_idle);
                let gain = Figure::plain(format!("{name}, {way}: distributed gain"), weighed.gain, "x");
                figures.push(gain.of(format!("simulated {:.2} x", model.gain)));
                let overhead = format!("{name}, {way}: local overhead");
                let overhead = Figure::plain(overhead, weighed.overhead, "%");
                let alone = format!("alone a local task took {idle:.1} ms, simulated {model_idle:.1} ms");
                figures.push(overhead.of(format!("simulated {:.0} %; {alone}", model.overhead)));
            }
        }
    }
    Ok(figures)
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} s, spread {:.2}, ranks waited {:.2} s", self.all, self.spread, self.waited)?;
        if self.response > 0.0 {
            write!(f, ", a local task of 20 ms took {:.1} ms", self.response)?;
        }
        if self.slices_set > 0.0 {
            write!(f, ", slices were set {:.0} times", self.slices_set)?;
        }
        Ok(())
    }
}

fn middle(runs: &[Seen]) -> Seen {
    let of = |value: fn(&Seen) -> f64| median(runs.iter().map(value));
    Seen {
        all: of(|seen| seen.all),
        spread: of(|seen| seen.spread),
        waited: of(|seen| seen.waited),
        response: of(|seen| seen.response),
        slices_set: of(|seen| seen.slices_set),
    }
}

fn simulate(jobs: &[MixJob], local: Option<LocalLoad>, technique: Option<Technique>) -> MixReport {
    simulate_mix(&grain_jobs::simulated(NODES, jobs, local), technique, 1)
}

fn simulated(jobs: &[MixJob], local: Option<LocalLoad>, technique: Option<Technique>) -> Seen {
    let MixReport { jobs, local_response, slices_set, .. } = simulate(jobs, local, technique);
    let ends: Vec<f64> = jobs.iter().map(|job| job.ended.as_secs_f64()).collect();
    let waits: Vec<f64> = jobs.iter().map(|job| job.waited.as_secs_f64()).collect();
    Seen { slices_set: slices_set as f64, ..Seen::of(&ends, &waits, millis(local_response)) }
}

/// The response of local tasks without any job, in milliseconds.
fn simulated_idle(local: Option<LocalLoad>) -> f64 {
    millis(simulate(&[], local, None).local_response)
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl Seen {
    /// Of the seconds after which each job ended, and for which its ranks waited.
    fn of(ends: &[f64], waits: &[f64], response: f64) -> Self {
        let all = ends.iter().copied().fold(0.0, f64::max);
        Self { all, spread: metrics::spread(ends), waited: mean(waits), response, slices_set: 0.0 }
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn live(jobs: &[MixJob], local: Option<LocalLoad>, technique: Option<Technique>, wait: Wait) -> Result<Seen> {
    let program = programs::example(Program::Grains)?;
    let stage = Stage::favouring(technique, NODES, Bytes::mib(512))?;
    let strobe = |left: &[JobId]| grain_jobs::strobe(&stage, technique, left);
    let left = Mutex::new((0..).map(JobId).take(jobs.len()).collect::<Vec<_>>());
    strobe(&left.lock().expect("no panic while holding it"));
    let began = Instant::now();
    let launch = |job: &MixJob| -> Job {
        let words = grain_jobs::command(&program, job);
        let command: Vec<&str> = words.iter().map(String::as_str).collect();
        stage.launch(&command, &[0, 1], wait)
    };
    let launched: Vec<(JobId, Job)> = (0..).map(JobId).zip(jobs.iter().map(launch)).collect();
    let beside = local.map(|load| -> Result<Job> {
        let load_program = programs::example(Program::LocalLoad)?;
        let [every, work, lasts] =
            [load.every, load.work, load.lasts].map(|time| time.as_secs_f64().to_string());
        let command =
            [&load_program, "--every", &every, "--work", &work, "--seconds", &lasts].map(str::to_owned);
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        Ok(stage.launch(&command, &[0, 1], wait))
    });
    // They end in any order.
    let end = |id: JobId, mut job: Job| -> Result<(f64, f64)> {
        stage.end_of(&mut job)?;
        let ended = began.elapsed().as_secs_f64();
        let mut left = left.lock().expect("no panic while holding it");
        left.retain(|other| *other != id);
        strobe(&left);
        let Steps { steps, wait_us } = line_of(&job, 0)?;
        Ok((ended, steps * wait_us / 1e6))
    };
    let ended = thread::scope(|scope| -> Result<Vec<(f64, f64)>> {
        let end = &end;
        let waiting: Vec<_> =
            launched.into_iter().map(|(id, job)| scope.spawn(move || end(id, job))).collect();
        waiting.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
    })?;
    let mut response = 0.0;
    if let Some(beside) = beside {
        let mut beside = beside?;
        stage.end_of(&mut beside)?;
        for rank in 0..NODES {
            response += line_of::<Responses>(&beside, rank)?.response_ms / f64::from(NODES);
        }
    }
    let slices_set = f64::from(stage.slices_set());
    stage.strike()?;
    let (ends, waits): (Vec<f64>, Vec<f64>) = ended.into_iter().unzip();
    Ok(Seen { slices_set, ..Seen::of(&ends, &waits, response) })
}

/// The line of JSON that a rank has written.
fn line_of<Line: DeserializeOwned>(job: &Job, rank: u32) -> Result<Line> {
    let text = said_by(&job.output, rank)?;
    let line = text.lines().find(|line| line.starts_with('{')).context("a program says nothing")?;
    Ok(serde_json::from_str(line)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(all: f64, response: f64) -> Seen {
        Seen { response, ..Seen::of(&[all], &[0.0], 0.0) }
    }

    #[test]
    fn gain_is_by_the_job_without_a_technique_and_overhead_by_idle_nodes() {
        let weighed = Weighed::of(seen(4.0, 30.0), seen(6.0, 25.0), 20.0);
        assert!((weighed.gain - 1.5).abs() < 1e-9 && (weighed.overhead - 50.0).abs() < 1e-9, "{weighed:?}");
    }

    /// HPDT gives the job all and local tasks the rest, and slices lie between both (thesis §4.3).
    #[test]
    fn what_the_job_gains_in_the_simulator_local_tasks_pay() {
        let (_, jobs, local) = MIXES[3];
        let (none, idle) = (simulated(jobs, local, None), simulated_idle(local));
        let weighed = |technique| Weighed::of(simulated(jobs, local, Some(technique)), none, idle);
        let [first, slices] = [Technique::HPDT, Technique::DTS_STATIC].map(weighed);
        assert!(first.gain > slices.gain && slices.gain > 1.0, "{first:?} {slices:?}");
        assert!(first.overhead > slices.overhead && slices.overhead > 0.0, "{first:?} {slices:?}");
    }
}
