//! Benchmarks of a cluster that stays, with real masters and daemons: how soon its daemons are up, what a
//! planned restart of a daemon and the loss of a node cost jobs, what copies of snapshots cost them, and how
//! good the forecasts of next turns are.

use std::{
    fs, thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, ensure};
use coswitch_policies::SimTime;
use coswitch_report::journal::{Event, RunEvent};
use coswitch_tests::{
    cluster::{RUN_LIMIT, STEP_LIMIT},
    hosts,
    master::{Ended, Master},
    parts,
    serving::{CLEAN_LIMIT, accepted, end, serve, serve_from_own_parts, state, wait_served},
    slurm,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    figure::{Bound, Figure},
    pairs::{Pairs, median, take_turns},
};

/// As many daemons as the figures of a start have.
const NODES: usize = 8;
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Seconds.
const ASKED_UP: f64 = 0.5;
/// Seconds beyond the time after which a silent node counts as lost. A daemon that dies is noticed at once.
const ASKED_BACK: f64 = 2.0;
const COMPUTES: &str = "{bin}/heat --memory 512MiB --seconds 600";

pub(crate) fn measure(rounds: u32) -> Result<Vec<Figure>> {
    Ok([up(rounds)?, vec![restart(rounds)?], lost(rounds)?, vec![copies(rounds.min(3))?, forecasts()?]]
        .concat())
}

/// From the start of the master until its daemons are up.
fn up(rounds: u32) -> Result<Vec<Figure>> {
    let cluster = |nodes: &str| {
        format!("cluster: {{nodes: {nodes}, memory: 64MiB, arena: 16MiB, store: \"{{store}}\"}}\n")
    };
    let serving = &["serve", "--socket", "serve.sock"];
    let once = |start: &dyn Fn() -> Master| {
        let began = Instant::now();
        let mut master = start();
        wait_for("the daemons", || !master.events().is_empty())?;
        let took = began.elapsed().as_secs_f64();
        wait_served(&mut master);
        end(master);
        Ok(took)
    };
    let all = |start: &dyn Fn() -> Master| (0..rounds).map(|_| once(start)).collect::<Result<Vec<f64>>>();
    let on_this = all(&|| Master::with_arguments(serving, &cluster(&NODES.to_string())))?;

    let names: Vec<String> = (0..NODES).map(|number| format!("host{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let by_ssh = hosts::beside(&names, |hosts| {
        let run_file = cluster(&format!("[{}]", names.join(", ")));
        let start = || Master::on_hosts(hosts, serving, &run_file);
        // The first one copies the programs.
        let copied = once(&start)?;
        anyhow::Ok((copied, all(&start)?))
    });
    let (copied, by_ssh) = by_ssh?;
    let by_slurm = slurm_up(rounds)?;

    let figure = |how: &str, all: &[f64], detail: String| {
        let name = format!("{NODES} daemons up, {how}");
        Figure::bounded(name, median(all.iter().copied()), "s", Bound::AtMost(ASKED_UP))
            .of(format!("{}{detail}", spread(all)))
    };
    Ok(vec![
        figure("virtual nodes", &on_this, String::new()),
        figure("by ssh", &by_ssh, format!("; {copied:.2} s where the hosts had no programs")),
        figure("in an allocation of Slurm", &by_slurm, String::new()),
    ])
}

fn slurm_up(rounds: u32) -> Result<Vec<f64>> {
    let jobs = "cluster: {nodes: slurm, arena: 16MiB}\n\
        jobs: [{name: one, ranks: 1, memory: 16MiB, command: [/bin/true]}]\n";
    let options = [&format!("--nodes={NODES}"), "--ntasks-per-node=1", "--mem=300", "--time=10"];
    slurm::with_nodes(NODES, |slurm| {
        slurm.write("jobs.yaml", jobs);
        let once = |round| {
            let name = format!("batch{round}");
            let script = format!(
                "date +%s%N > {{dir}}/{name}.began; \
                 exec {{coswitch}} run --quiet --out {{out}} {{dir}}/jobs.yaml"
            );
            let batch = slurm.submit(&name, &options, &script);
            wait_for("the daemons in Slurm", || !batch.events().is_empty()).with_context(|| {
                fs::read_to_string(slurm.path(&format!("{name}.log"))).unwrap_or_default()
            })?;
            let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
            let began = fs::read_to_string(slurm.path(&format!("{name}.began")))?;
            let took = now - began.trim().parse::<f64>()? / 1e9;
            let (how, log) = slurm.ended(&batch, &name, RUN_LIMIT);
            ensure!(how == "COMPLETED 0:0", "{how}: {log}");
            slurm.assert_nothing_left(&batch, CLEAN_LIMIT);
            Ok(took)
        };
        (0..rounds).map(once).collect()
    })
}

/// For how long a job stands still while a daemon of its nodes is replaced.
fn restart(rounds: u32) -> Result<Figure> {
    let mut master = serve("cluster: {nodes: 2, memory: 700MiB, store: \"{store}\"}\n");
    submit(&master, "one", &["--ranks", "2"], COMPUTES);
    running(&mut master, "one", 1)?;
    for _ in 0..rounds {
        let answer = master.user(&["upgrade"]);
        ensure!(answer.code == Some(0), "{answer:?}");
    }
    let pauses: Vec<f64> = end(master).events.iter().filter_map(pause).collect();
    ensure!(pauses.len() == 2 * rounds as usize, "{} daemons were replaced", pauses.len());
    let name = "a job of 2 x 512 MiB stands still for a planned restart of a daemon";
    Ok(Figure::bounded(name, median(pauses.iter().copied()), "ms", Bound::AtMost(100.0)).of(spread(&pauses)))
}

fn pause(event: &RunEvent) -> Option<f64> {
    match &event.kind {
        Event::DaemonReplaced { pause, .. } => Some(pause.as_secs_f64() * 1e3),
        _ => None,
    }
}

/// From a daemon's death until its job of two ranks of 512 MiB computes again.
fn lost(rounds: u32) -> Result<Vec<Figure>> {
    let cluster = "cluster: {nodes: 3, memory: 700MiB, store: \"{store}\", copies: 1}\n";
    let mut all = [const { Vec::new() }; 2];
    for round in 0..2 * rounds {
        let stays_away = round % 2 == 1;
        let mut master = serve_from_own_parts(cluster);
        submit(&master, "one", &["--ranks", "2"], COMPUTES);
        running(&mut master, "one", 1)?;
        ensure!(master.user(&["park", "one"]).code == Some(0), "it cannot be parked");
        master.wait_until("the copies", RUN_LIMIT, |master| {
            count(&master.events(), |event| matches!(event, Event::JobCopied { .. })) >= 2
        });
        ensure!(master.user(&["resume", "one"]).code == Some(0), "it cannot be resumed");
        running(&mut master, "one", 2)?;
        let program = master.parts().join("coswitchd");
        if stays_away {
            fs::rename(&program, program.with_extension("away"))?;
        }
        let daemon = daemon_of(&master, 1)?;
        kill(Pid::from_raw(daemon), Signal::SIGKILL)?;
        running(&mut master, "one", 3)?;
        if stays_away {
            fs::rename(program.with_extension("away"), &program)?;
        }
        let events = end(master).events;
        let moved = count(&events, |event| matches!(event, Event::JobMoved { .. }));
        ensure!(moved == usize::from(stays_away), "{moved} parts have moved");
        let lost =
            time_of(&events, |event| matches!(event, Event::NodeLost { .. })).context("no node was lost")?;
        let runs = events.iter().filter(|event| matches!(event.kind, Event::JobRunning { .. }));
        let runs = runs.map(|event| event.at).find(|at| *at > lost).context("it has not gone on")?;
        all[usize::from(stays_away)].push(runs.since(lost).as_secs_f64());
    }
    let [same, moved] = all;
    let figure = |what: &str, all: &[f64]| {
        let name = format!("from a lost node to running again, 2 x 512 MiB, {what}");
        Figure::bounded(name, median(all.iter().copied()), "s", Bound::AtMost(ASKED_BACK)).of(spread(all))
    };
    Ok(vec![
        figure("with another daemon on the node", &same),
        figure("moved to a third node by its copy", &moved),
    ])
}

/// Two jobs take turns; each snapshot is copied, or none.
fn copies(rounds: u32) -> Result<Figure> {
    let run = |copies: u32| {
        let run_file = format!(
            "cluster: {{nodes: 2, memory: 700MiB, store: \"{{store}}\", copies: {copies}}}\n\
             scheduler: {{policy: gang, quantum: 5s, residency: none}}\n\
             jobs: [{{name: heat, count: 2, ranks: 2, memory: 600MiB, \
             command: [\"{{bin}}/heat\", --memory, 512MiB, --steps, \"300\"]}}]\n"
        );
        let ended = Master::run(&run_file).end(RUN_LIMIT, CLEAN_LIMIT);
        ensure!(ended.code == Some(0), "{}", ended.stderr);
        let made = count(&ended.events, |event| matches!(event, Event::JobCopied { .. }));
        ensure!((made > 0) == (copies > 0), "{made} copies were made");
        makespan(&ended)
    };
    let (with, without) = take_turns(rounds, || run(1), || run(0))?.into_iter().unzip();
    let pairs = Pairs::new(with, without);
    let name = "makespan of 2 jobs of 2 x 512 MiB in turns, snapshots copied, by not copied";
    Ok(Figure::bounded(name, pairs.ratio(), "x", Bound::AtMost(1.05))
        .of(pairs.detail("copied", "not", 1.0, "s")))
}

/// Forecasts of next turns against those that came.
fn forecasts() -> Result<Figure> {
    let run_file = "cluster: {nodes: 2, memory: 400MiB, store: \"{store}\"}\n\
        scheduler: {policy: gang, quantum: 3s, residency: none}\n\
        jobs: [{name: heat, count: 3, ranks: 2, memory: 300MiB, \
        command: [\"{bin}/heat\", --memory, 200MiB, --seconds, \"20\"]}]\n";
    let ended = Master::run(run_file).end(RUN_LIMIT, CLEAN_LIMIT);
    ensure!(ended.code == Some(0), "{}", ended.stderr);
    let report = ended.report.context("there is no report")?;
    let of =
        |field: &str| report["forecasts"][field].as_f64().with_context(|| format!("no {field}: {report}"));
    let name = "median error of the forecasts of next turns, of a quantum of 3 s";
    let detail = format!("{} forecasts, {:.2} s", of("count")?, of("median_error_s")?);
    Ok(Figure::bounded(name, 100.0 * of("share")?, "%", Bound::AtMost(10.0)).of(detail))
}

fn submit(master: &Master, name: &str, options: &[&str], command: &str) {
    let command = command.replace("{bin}", &parts::program_directory());
    let first = ["submit", "--name", name, "--memory", "600MiB"];
    let words: Vec<&str> = command.split(' ').collect();
    accepted(&master.user(&[&first[..], options, &["--"], &words].concat()));
}

/// Waits until the job computes for the `nth` time.
fn running(master: &mut Master, name: &str, nth: usize) -> Result<()> {
    let times = |master: &Master| count(&master.events(), |event| matches!(event, Event::JobRunning { .. }));
    master.wait_until("it to run", RUN_LIMIT, |master| times(master) >= nth);
    ensure!(state(master, name) == "running", "{name} does not run");
    // Its memory is touched by then.
    thread::sleep(Duration::from_secs(2));
    Ok(())
}

fn daemon_of(master: &Master, node: u32) -> Result<i32> {
    let ending = format!("-n{node}");
    let names = fs::read_dir(master.store())?.flatten().map(|entry| entry.file_name());
    let name = names.map(|name| name.to_string_lossy().into_owned()).find(|name| name.ends_with(&ending));
    let name = name.context("the node has no store")?;
    let name = name.strip_prefix("coswitch-").context("it is none of coswitch")?;
    let daemon = coswitch_daemon::node::standing_daemon(name).context("the node has no daemon")?;
    Ok(daemon.pid.cast_signed())
}

fn count(events: &[RunEvent], is: impl Fn(&Event) -> bool) -> usize {
    events.iter().filter(|event| is(&event.kind)).count()
}

fn time_of(events: &[RunEvent], is: impl Fn(&Event) -> bool) -> Option<SimTime> {
    events.iter().find(|event| is(&event.kind)).map(|event| event.at)
}

fn makespan(ended: &Ended) -> Result<f64> {
    let report = ended.report.as_ref().context("there is no report")?;
    report["set"]["makespan_s"].as_f64().context("the report has no makespan")
}

/// The least and the most.
fn spread(all: &[f64]) -> String {
    let least = all.iter().copied().fold(f64::INFINITY, f64::min);
    let most = all.iter().copied().fold(0.0, f64::max);
    format!("{least:.2} to {most:.2} in {}", all.len())
}

fn wait_for(what: &str, done: impl Fn() -> bool) -> Result<()> {
    let began = Instant::now();
    while !done() {
        ensure!(began.elapsed() < STEP_LIMIT, "waited {STEP_LIMIT:?} for {what}");
        thread::sleep(LOOK_EVERY);
    }
    Ok(())
}
