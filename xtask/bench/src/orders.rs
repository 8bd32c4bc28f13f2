//! Benchmarks of switching in whole runs of `coswitch run`: the orders of a switch (paper 003, §3.3.2.2 and
//! Fig. 8), residency, and the ways of parking. The arms of a comparison run in turns.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use coswitch_examples::Program;
use coswitch_policies::Bytes;
use coswitch_tests::swap::SwapFile;
use serde_json::Value;

use crate::{
    figure::{Bound, Figure},
    pairs::median,
    programs,
};

/// Enough for the jobs of one node, and more.
const SWAP: Bytes = Bytes::mib(4096);

/// Seconds after which a run is given up.
const LIMIT: u32 = 150;
/// All jobs at once, without regard to memory.
const SWAPPING: &str = "policy: cosched";
/// The exit codes of `coswitch run` where jobs failed, for want of memory, and where it took too long.
const GIVEN_UP: [i32; 2] = [1, 5];

/// A job set of `heat` on one rank a node, and how it is scheduled.
struct Set<'a> {
    nodes: u32,
    /// MiB of a node.
    memory: u32,
    jobs: u32,
    /// MiB of a rank: `takes` by the program, `says` in the run file.
    takes: u32,
    says: u32,
    steps: u32,
    scheduler: &'a str,
}

/// The results of a run.
struct Ran {
    makespan: f64,
    /// Seconds, of each switch that took one running set out and brought another one back.
    exposed: Vec<f64>,
    /// GiB out and in.
    moved: f64,
    switches: f64,
    sequential: f64,
    /// It took longer than [`LIMIT`], or jobs failed: the other fields tell what it had done by then.
    given_up: bool,
}

/// 2 nodes, 1 GiB out and 1 GiB in on each, both in memory at once.
pub(crate) fn orders(rounds: u32) -> Result<Vec<Figure>> {
    let run = |order| {
        let scheduler = format!("policy: gang, quantum: 5s, residency: none, switching: {order}");
        Set { nodes: 2, memory: 2400, jobs: 2, takes: 1024, says: 1100, steps: 80, scheduler: &scheduler }
            .run()
    };
    let names = ["sequential", "overlapped", "prefetch"];
    let mut exposed = [const { Vec::new() }; 3];
    for _ in 0..rounds {
        for (name, all) in names.iter().zip(&mut exposed) {
            all.extend(run(name)?.exposed);
        }
    }
    let [sequential, overlapped, prefetch] = exposed.map(median);
    let detail = format!(
        "exposed by a switch: {sequential:.3}, {overlapped:.3} and {prefetch:.3} s; \
         {rounds} runs of each order"
    );
    Ok(vec![
        Figure::bounded(
            "overlapped by sequential, 2 nodes, 1 GiB out and in",
            overlapped / sequential,
            "x",
            Bound::AtMost(1.0),
        )
        .of(&detail),
        Figure::bounded(
            "prefetch by sequential, 2 nodes, 1 GiB out and in",
            prefetch / sequential,
            "x",
            Bound::AtMost(0.25),
        )
        .of(&detail),
    ])
}

/// Memory does not hold both sets: prefetch is asked for, and forced on a run with jobs declared at half
/// their size.
pub(crate) fn near_out_of_core(rounds: u32) -> Result<Vec<Figure>> {
    let _swap = SwapFile::of(SWAP);
    let with = |says| {
        let scheduler = "policy: gang, quantum: 5s, residency: none, switching: prefetch, needs: declared";
        Set { nodes: 2, memory: 1400, jobs: 2, takes: 1024, says, steps: 80, scheduler }
    };
    let (mut chosen, mut forced) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        chosen.push(with(1100).run()?);
        forced.push(with(600).attempt()?);
    }
    let of = |runs: &[Ran], what: fn(&Ran) -> f64| median(runs.iter().map(what));
    let given_up = forced.iter().filter(|ran| ran.given_up).count();
    let ratio = of(&chosen, |ran| ran.makespan) / of(&forced, |ran| ran.makespan);
    let detail = format!(
        "makespan {:.1} s, {:.0} of {:.0} switches sequential; \
         forced into swap {:.1} s, {given_up} of {rounds} given up",
        of(&chosen, |ran| ran.makespan),
        of(&chosen, |ran| ran.sequential),
        of(&chosen, |ran| ran.switches),
        of(&forced, |ran| ran.makespan),
    );
    let name = "near out of core: sequential as chosen, by prefetch forced";
    Ok(vec![Figure::bounded(name, ratio, "x", Bound::AtMost(1.0)).of(detail)])
}

/// 5 jobs of 1 GiB on a node of 3.
pub(crate) fn rotations() -> Result<Vec<Figure>> {
    let run = |residency| {
        let scheduler = format!("policy: gang, quantum: 2s, switching: sequential, residency: {residency}");
        Set { nodes: 1, memory: 3 << 10, jobs: 5, takes: 1000, says: 1024, steps: 40, scheduler: &scheduler }
            .run()
    };
    let (none, planned) = (run("none")?, run("planned")?);
    let per_switch = |ran: &Ran| ran.moved / ran.switches;
    let detail = format!(
        "moved by a rotation of five turns: none {:.1} GiB, planned {:.1} GiB; {:.0} and {:.0} switches",
        5.0 * per_switch(&none),
        5.0 * per_switch(&planned),
        none.switches,
        planned.switches
    );
    let ratio = per_switch(&planned) / per_switch(&none);
    let name = "bytes moved with planned residency, by none: 5 x 1 GiB in 3 GiB";
    Ok(vec![Figure::bounded(name, ratio, "x", Bound::AtMost(0.6)).of(detail)])
}

/// The same three jobs of 600 MiB under every way of parking, on nodes of 1400 MiB; `suspend` needs a larger
/// node.
pub(crate) fn parks(rounds: u32) -> Result<Vec<Figure>> {
    let _swap = SwapFile::of(SWAP);
    let run = |memory, scheduler| {
        let set = Set { nodes: 1, memory, jobs: 3, takes: 560, says: 600, steps: 40, scheduler };
        if scheduler == SWAPPING { set.attempt() } else { set.run() }
    };
    let arms = [
        ("criu", 1400, "policy: gang, quantum: 3s, park: criu"),
        ("pageout", 1400, "policy: gang, quantum: 3s, park: pageout"),
        ("suspend, on a node of 2000 MiB where all fit", 2000, "policy: gang, quantum: 3s, park: suspend"),
        ("no switching: all at once, the kernel swaps", 1400, SWAPPING),
    ];
    let mut runs: [Vec<Ran>; 4] = std::array::from_fn(|_| Vec::new());
    for _ in 0..rounds {
        for ((_, memory, scheduler), runs) in arms.iter().zip(&mut runs) {
            runs.push(run(*memory, scheduler)?);
        }
    }
    let figure = |((name, ..), runs): (&(&str, u32, &str), Vec<Ran>)| {
        let of = |what: fn(&Ran) -> f64| median(runs.iter().map(what));
        let given_up = runs.iter().filter(|ran| ran.given_up).count();
        let detail = format!(
            "{:.0} switches, {:.1} GiB moved; {given_up} of {} runs given up",
            of(|ran| ran.switches),
            of(|ran| ran.moved),
            runs.len()
        );
        Figure::plain(format!("makespan of 3 x 600 MiB, park: {name}"), of(|ran| ran.makespan), "s")
            .of(detail)
    };
    Ok(arms.iter().zip(runs).map(figure).collect())
}

impl Set<'_> {
    /// A run that must end in time.
    fn run(&self) -> Result<Ran> {
        let ran = self.attempt()?;
        ensure!(!ran.given_up, "jobs failed, or were not done within {LIMIT} s, under {}", self.scheduler);
        Ok(ran)
    }

    /// A run that may not end in time.
    fn attempt(&self) -> Result<Ran> {
        let dir = tempfile::tempdir_in("/var/tmp").context("failed to make a directory")?;
        let Self { nodes, memory, jobs, takes, says, steps, scheduler } = self;
        let program = programs::example(Program::Heat)?;
        let text = format!(
            "cluster: {{nodes: {nodes}, memory: {memory}MiB}}\nscheduler: {{{scheduler}}}\njobs:\n  \
             - {{name: heat, command: [{program}, --memory, {takes}MiB, --steps, '{steps}'], \
             ranks: {nodes}, memory: {says}MiB, count: {jobs}}}\n"
        );
        let (file, out) = (dir.path().join("set.yaml"), dir.path().join("run"));
        fs::write(&file, text).context("failed to write a run file")?;
        let mut command = Command::new(programs::built("coswitch")?);
        command.args(["run", "--quiet", "--output", "json", "--limit", &format!("{LIMIT}s"), "--out"]);
        let output = command.arg(&out).arg(&file).stderr(Stdio::inherit()).output();
        let output = output.context("failed to start coswitch")?;
        let given_up = output.status.code().is_some_and(|code| GIVEN_UP.contains(&code));
        ensure!(given_up || output.status.success(), "coswitch run ended with {}", output.status);
        let report: Value = serde_json::from_slice(&output.stdout).context("the report is no JSON")?;
        let number =
            |field: &str| report["set"][field].as_f64().with_context(|| format!("no {field} in the report"));
        Ok(Ran {
            makespan: if given_up { f64::from(LIMIT) } else { number("makespan_s")? },
            exposed: exposed(&out.join("journal.jsonl"))?,
            moved: (number("bytes_out")? + number("bytes_in")?) / f64::from(1 << 30),
            switches: number("switches")?,
            sequential: number("fallbacks")?,
            given_up,
        })
    }
}

/// Seconds exposed by each switch that took running jobs out and brought others back.
fn exposed(journal: &Path) -> Result<Vec<f64>> {
    let file = File::open(journal).with_context(|| format!("failed to open {}", journal.display()))?;
    let (mut launched, mut exposed) = (Vec::new(), Vec::new());
    let mut counts = None;
    for line in BufReader::new(file).lines() {
        let event: Value = serde_json::from_str(&line?).context("a line of the journal is no JSON")?;
        let jobs = |field: &str| event[field].as_array().cloned().unwrap_or_default();
        match event["kind"].as_str() {
            Some("job-launched") => launched.push(event["job"].clone()),
            Some("switch-started") => {
                let back = jobs("incoming").iter().any(|job| launched.contains(job));
                let turn = event["purpose"] == "turn" && !jobs("outgoing").is_empty();
                counts = (turn && back).then(|| event["switch"].clone());
            }
            Some("switch-ended") if counts.as_ref() == Some(&event["switch"]) => {
                let part = |field: &str| event["exposed"][field].as_f64().unwrap_or_default();
                exposed.push(part("secs") + part("nanos") / 1e9);
            }
            _ => {}
        }
    }
    Ok(exposed)
}
