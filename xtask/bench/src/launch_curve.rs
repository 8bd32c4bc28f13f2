//! Benchmark of launches whose program is sent (paper 004, Fig. 1 and 2): a program of 4, 8 and 12 MB that
//! does nothing, on 1 to 64 virtual nodes, idle and beside programs that take the processors; the time to
//! send it and the rest of the launch; mpiexec, which finds the program in the file system, and srun, which
//! sends it as well (`--bcast`) or finds it; a model, its error, and what it says of 16,384 nodes.
//!
//! All nodes share the processors of this machine, so times grow with the nodes in another way than they
//! would on machines of their own: see [`model`].

mod model;

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use coswitch_daemon::protocol::Wait;
use coswitch_dispatcher::protocol::Order;
use coswitch_policies::Bytes;
use coswitch_tests::{cluster::RUN_LIMIT, slurm};
use tempfile::TempDir;

use self::model::Model;
use crate::{
    control::Neighbours,
    figure::Figure,
    mpiexec,
    pairs::median,
    stage::{Job, Stage, apart},
};

pub(crate) const NODES: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
/// As in the paper, in MB.
const SIZES: [u64; 3] = [4, 8, 12];
/// Nodes of the sample that the model has to predict.
const HELD_OUT: [u32; 2] = [32, 64];
/// Nodes whose links to all before them are opened together.
const LINKED_AT_ONCE: u32 = 4;
const NODE_MEMORY: Bytes = Bytes::mib(16);
/// Never ends, and never sleeps.
const HOG: [&str; 3] = ["/bin/sh", "-c", "while :; do :; done"];

/// Medians of a size on a number of nodes, in seconds.
#[derive(Clone, Copy, Debug)]
struct Point {
    nodes: u32,
    megabytes: u64,
    /// From the turn of the program until all nodes have it.
    send: f64,
    /// All the rest: the command, the processes from birth to end, the report.
    execute: f64,
}

pub(crate) fn measure(nodes: &[u32], rounds: u32) -> Result<Vec<Figure>> {
    let _room = Neighbours::make_room().context("the kernel's table of neighbours cannot be made larger")?;
    let programs = Programs::make()?;
    let (idle, loaded) = (curve(&programs, nodes, rounds, false)?, curve(&programs, nodes, rounds, true)?);
    let mut figures = shown(&idle, "idle");
    figures.extend(shown(&loaded, "loaded"));
    figures.extend(by_mpiexec(&programs.path(12), nodes, rounds)?);
    figures.extend(by_srun(&programs.path(12), nodes, rounds)?);
    figures.extend(modelled(&idle));
    Ok(figures)
}

/// Programs that do nothing, each of a size.
struct Programs(TempDir);

impl Programs {
    /// Bytes after the end of an ELF file are none of the loader's business.
    fn make() -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let real = fs::read("/bin/true").context("there is no /bin/true")?;
        for megabytes in SIZES {
            let wanted = usize::try_from(megabytes * 1_000_000)?;
            let mut seed = 0x9e37_79b9_u32;
            let mut next = || {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                seed.to_be_bytes()[0]
            };
            let bytes: Vec<u8> =
                real.iter().copied().chain(std::iter::from_fn(|| Some(next()))).take(wanted).collect();
            let path = path_of(dir.path(), megabytes);
            fs::write(&path, bytes)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        }
        Ok(Self(dir))
    }

    fn path(&self, megabytes: u64) -> PathBuf {
        path_of(self.0.path(), megabytes)
    }
}

fn path_of(dir: &Path, megabytes: u64) -> PathBuf {
    dir.join(format!("nothing-{megabytes}-mb"))
}

fn curve(programs: &Programs, nodes: &[u32], rounds: u32, is_loaded: bool) -> Result<Vec<Point>> {
    let mut points = Vec::new();
    for nodes in nodes.iter().copied() {
        let on_nodes = apart(|| on_nodes(programs, nodes, rounds, is_loaded));
        match on_nodes.with_context(|| format!("failed to launch on {nodes} nodes")) {
            Ok(on_nodes) => points.extend(on_nodes),
            // Many nodes beside other load may be more than this machine can start in time.
            Err(error) if is_loaded => {
                eprintln!("  {error:#}");
                break;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(points)
}

fn on_nodes(programs: &Programs, nodes: u32, rounds: u32, is_loaded: bool) -> Result<Vec<Point>> {
    let stage = Stage::set(nodes, NODE_MEMORY, None)?;
    // A launch opens the links between its nodes: not those of all at once.
    for some in (1..=nodes).filter(|some| some % LINKED_AT_ONCE == 0 || *some == nodes) {
        launch(&stage, &programs.path(SIZES[0]), some)?;
    }
    let hogs = if is_loaded { Some(hogs(&stage, nodes)?) } else { None };
    let mut points = Vec::new();
    for megabytes in SIZES {
        let program = programs.path(megabytes);
        let times: Vec<(f64, f64)> =
            (0..rounds).map(|_| launch(&stage, &program, nodes)).collect::<Result<_>>()?;
        let (send, execute) = (times.iter().map(|times| times.0), times.iter().map(|times| times.1));
        let point = Point { nodes, megabytes, send: median(send), execute: median(execute) };
        eprintln!("  {point:?}, {}", if is_loaded { "loaded" } else { "idle" });
        points.push(point);
    }
    if let Some(mut hogs) = hogs {
        stage.obey(&mut hogs, Order::End)?;
    }
    stage.strike()?;
    Ok(points)
}

/// One rank on each node; the times to send the program, and of the rest.
fn launch(stage: &Stage, program: &Path, nodes: u32) -> Result<(f64, f64)> {
    let placement: Vec<u32> = (0..nodes).collect();
    let (sent, all) = stage.send_and_run(&program.display().to_string(), &placement)?;
    Ok((sent.as_secs_f64(), all.saturating_sub(sent).as_secs_f64()))
}

/// As many programs as the machine has processors, which are those of the nodes.
fn hogs(stage: &Stage, nodes: u32) -> Result<Job> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let placement: Vec<u32> = (0..nodes).cycle().take(processors).collect();
    let mut hogs = stage.launch(&HOG, &placement, Wait::default());
    stage.running(&mut hogs)?;
    std::thread::sleep(Duration::from_millis(300));
    Ok(hogs)
}

/// All ranks are on this machine, and one proxy of mpiexec starts them.
fn by_mpiexec(program: &Path, nodes: &[u32], rounds: u32) -> Result<Vec<Figure>> {
    let program = program.display().to_string();
    let on = |ranks: u32| {
        let times = (0..rounds).map(|_| Ok(mpiexec::run(ranks, &[&program])?.1.as_secs_f64()));
        let times: Vec<f64> = times.collect::<Result<_>>()?;
        let name = format!("mpiexec, 12 MB in the file system, {ranks} ranks");
        Ok(Figure::plain(name, median(times) * 1e3, "ms"))
    };
    nodes.iter().copied().map(on).collect()
}

/// As a step of an allocation, which is there already, as coswitch's nodes are. Each `slurmd` has an address
/// and a disk in memory of its own on this machine.
fn by_srun(program: &Path, nodes: &[u32], rounds: u32) -> Result<Vec<Figure>> {
    let script = format!(
        "step() {{ began=$(date +%s%N); srun $2 {program} || exit 1; ended=$(date +%s%N); \
           echo $1 $((ended - began)); }}\n\
         for round in $(seq {rounds}); do step found; step sent --bcast={{dir}}/own/$round; done",
        program = program.display()
    );
    let mut figures = Vec::new();
    for nodes in nodes.iter().copied() {
        let log = slurm::with_nodes(nodes as usize, |slurm| {
            let options = [&format!("--nodes={nodes}"), "--ntasks-per-node=1", "--time=10"];
            let batch = slurm.submit("steps", &options, &script);
            let (how, log) = slurm.ended(&batch, "steps", RUN_LIMIT);
            ensure!(how == "COMPLETED 0:0", "{how}: {log}");
            Ok(log)
        });
        let log = log.with_context(|| format!("srun failed on {nodes} nodes"))?;
        for (word, way) in [("sent", "--bcast, 12 MB"), ("found", "12 MB in the file system")] {
            let of = log.lines().filter_map(|line| line.strip_prefix(word)?.trim().parse::<f64>().ok());
            let name = format!("srun {way}, {nodes} nodes");
            figures.push(Figure::plain(name, median(of) / 1e6, "ms"));
        }
    }
    Ok(figures)
}

fn shown(points: &[Point], which: &str) -> Vec<Figure> {
    let shown = points.iter().map(|Point { nodes, megabytes, send, execute }| {
        let name = format!("launch of {megabytes} MB on {nodes} nodes, {which}");
        let parts = format!("send {:.1} ms, execute {:.1} ms", send * 1e3, execute * 1e3);
        Figure::plain(name, (send + execute) * 1e3, "ms").of(parts)
    });
    shown.collect()
}

/// The model's parameters and errors, and what it says of larger clusters.
fn modelled(points: &[Point]) -> Vec<Figure> {
    let few: Vec<Point> = points.iter().filter(|point| !HELD_OUT.contains(&point.nodes)).copied().collect();
    let held_out: Vec<Point> =
        points.iter().filter(|point| HELD_OUT.contains(&point.nodes)).copied().collect();
    let (of_few, of_all) = (Model::fit(&few), Model::fit(points));
    let error = |name: &str, model: &Model, points: &[Point]| {
        let (mean, most) = model.error(points);
        Figure::plain(name, mean * 100.0, "%").of(format!("at most {:.1} %; {model}", most * 100.0))
    };
    let mut figures = vec![
        error("model of a launch: mean error on all points", &of_all, points),
        error("model fitted to 16 nodes and fewer: mean error there", &of_few, &few),
        error("the same: mean error on 32 and 64 nodes", &of_few, &held_out),
    ];
    for nodes in [64, 256, 1024, 4096, 16_384] {
        let name = format!("model: 12 MB on {nodes} nodes with as many machines");
        let (send, execute) = of_all.on_machines(nodes, 12);
        let parts = format!("send {:.1} ms, execute {:.1} ms", send * 1e3, execute * 1e3);
        figures.push(Figure::plain(name, (send + execute) * 1e3, "ms").of(parts));
    }
    figures
}
