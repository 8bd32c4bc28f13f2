//! Benchmark of control: what many daemons cost their master and their machine, idle and during a gang
//! switch.
//!
//! Virtual nodes, each with a namespace and a process of its own, and a program that sleeps on each pair of
//! them. Packets and bytes are those that reach the head node; processor time is that of the daemons, and of
//! this process, which is the master with its sessions and dispatchers.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use coswitch_daemon::protocol::Wait;
use coswitch_dispatcher::protocol::Order;
use coswitch_policies::{
    Bytes, NodeId,
    control_tree::{ControlTree, Place},
};

use crate::{
    figure::Figure,
    stage::{Job, Stage, apart},
};

/// Of each node; also the most that its arena takes.
const MEMORY: Bytes = Bytes::mib(16);
const IDLE_FOR: Duration = Duration::from_secs(20);
/// For what a start or a switch leaves to do.
const SETTLE: Duration = Duration::from_secs(3);
/// Of the tree that orders would go by.
const RADIX: u32 = 16;

pub(crate) fn measure(nodes: u32) -> Result<Vec<Figure>> {
    apart(|| {
        let began = Instant::now();
        let stage = Stage::set(nodes, MEMORY, None)?;
        let started = began.elapsed();
        let figures = on_stage(&stage, nodes)?;
        stage.strike()?;
        let name = format!("{nodes} daemons up and connected to the master");
        Ok([vec![Figure::plain(name, started.as_secs_f64(), "s")], figures].concat())
    })
}

fn on_stage(stage: &Stage, nodes: u32) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    let mut idle = |what: &str| -> Result<()> {
        thread::sleep(SETTLE);
        let before = Use::now(stage)?;
        thread::sleep(IDLE_FOR);
        let used = Use::now(stage)?.since(&before);
        let seconds = IDLE_FOR.as_secs_f64();
        figures.push(
            Figure::plain(
                format!("packets to the master, {nodes} nodes, {what}"),
                used.packets / seconds,
                "/s",
            )
            .of(format!("{:.1} KB/s", used.bytes / seconds / 1e3)),
        );
        figures.push(
            Figure::plain(
                format!("processor time of the master, {what}"),
                used.master / seconds * 1e3,
                "ms/s",
            )
            .of(format!("all {nodes} daemons together {:.0} ms/s", used.daemons / seconds * 1e3)),
        );
        Ok(())
    };
    idle("without jobs")?;
    let mut jobs: Vec<Job> = (0..nodes / 2)
        .map(|pair| stage.launch(&["/bin/sleep", "100000"], &[2 * pair, 2 * pair + 1], Wait::Block))
        .collect();
    jobs.iter_mut().try_for_each(|job| stage.running(job).map(drop))?;
    idle("with a job on each pair that sleeps")?;
    for (order, what) in [(Order::Suspend, "stops"), (Order::Resume, "goes on")] {
        let (before, began) = (Use::now(stage)?, Instant::now());
        jobs.iter().for_each(|job| job.order(order));
        jobs.iter_mut().try_for_each(|job| stage.after(job, order).map(drop))?;
        let (took, used) = (began.elapsed(), Use::now(stage)?.since(&before));
        figures.push(
            Figure::plain(format!("a set on {nodes} nodes {what}: time"), took.as_secs_f64() * 1e3, "ms").of(
                format!(
                    "processor time: master {:.0} ms, daemons {:.0} ms; {:.0} packets to the master",
                    used.master * 1e3,
                    used.daemons * 1e3,
                    used.packets
                ),
            ),
        );
    }
    let tree = ControlTree::new(RADIX, nodes, Default::default());
    let sent = tree.hand_on(Place::Master, &(0..nodes).map(NodeId).collect()).len();
    figures.push(
        Figure::plain(
            format!("messages that an order to {nodes} nodes would cost the master by a tree"),
            sent as f64,
            "",
        )
        .of(format!(
            "radix {RADIX}, {} steps; computed, not built: today it is {nodes}, in one step",
            tree.depth()
        )),
    );
    Ok(figures)
}

/// In which the kernel tells processor time.
const TICKS_PER_SECOND: f64 = 100.0;

/// What was used so far, in seconds of processor time, packets and bytes.
struct Use {
    master: f64,
    daemons: f64,
    packets: f64,
    bytes: f64,
}

impl Use {
    /// Called by a thread in the head node's namespace.
    fn now(stage: &Stage) -> Result<Self> {
        let daemons = stage.daemons().into_iter().map(|pid| processor_time(&pid.to_string()));
        let (packets, bytes) = received()?;
        let daemons: Vec<f64> = daemons.collect::<Result<_>>()?;
        Ok(Self { master: processor_time("self")?, daemons: daemons.iter().sum(), packets, bytes })
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            master: self.master - before.master,
            daemons: self.daemons - before.daemons,
            packets: self.packets - before.packets,
            bytes: self.bytes - before.bytes,
        }
    }
}

/// Of a process, without its children, in seconds. The kernel rounds it down to a hundredth, which the
/// difference of two sums over many processes does not show.
fn processor_time(pid: &str) -> Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).context("a daemon has ended")?;
    // The name before it may hold anything.
    let (_, fields) = text.rsplit_once(')').context("the kernel's line has a name")?;
    let ticks: Vec<f64> =
        fields.split_whitespace().skip(11).take(2).map(str::parse).collect::<Result<_, _>>()?;
    Ok(ticks.iter().sum::<f64>() / TICKS_PER_SECOND)
}

/// Packets and bytes that the head node's end of the bridge has received.
fn received() -> Result<(f64, f64)> {
    let table = fs::read_to_string("/proc/thread-self/net/dev")?;
    let line = table.lines().find_map(|line| line.trim().strip_prefix("br0:"));
    let numbers = line.context("the head node has no bridge")?.split_whitespace().map(str::parse);
    let numbers: Vec<f64> = numbers.take(2).collect::<Result<_, _>>()?;
    Ok((numbers[1], numbers[0]))
}
