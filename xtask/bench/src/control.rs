//! Benchmark of control: what many daemons cost their master and their machine, idle and during a gang
//! switch.
//!
//! Virtual nodes, each with a namespace and a process of its own, and a program that sleeps on each pair of
//! them; then one on each sixteen, whose requests go by the tree of daemons. Packets and bytes are those
//! that reach the head node, or leave it where that is said; processor time is that of the daemons, and of
//! this process, which is the master with its sessions and dispatchers.

use std::{
    fs,
    io::{Seek, Write},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use coswitch_daemon::protocol::Wait;
use coswitch_dispatcher::{protocol::Order, watch::Heartbeats, ways::RADIX};
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
/// Nodes of a job that is asked by the tree.
const WIDTH: usize = 16;
/// For what a start or a switch leaves to do.
const SETTLE: Duration = Duration::from_secs(3);

pub(crate) const NODES: u32 = 64;

pub(crate) fn measure(nodes: u32) -> Result<Vec<Figure>> {
    apart(|| {
        let _room =
            Neighbours::make_room().context("the kernel's table of neighbours cannot be made larger")?;
        let began = Instant::now();
        let stage = Stage::set(nodes, MEMORY, None)?;
        let started = began.elapsed();
        let figures = on_stage(&stage, nodes)?;
        stage.strike()?;
        let name = format!("{nodes} daemons up and connected to the master");
        Ok([vec![Figure::plain(name, started.as_secs_f64(), "s")], figures].concat())
    })
}

/// What idle daemons cost where each session has all of its heartbeats, and where one question goes to all
/// by the tree, in turns.
pub(crate) fn heartbeats(rounds: u32, nodes: u32) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for round in 1..=rounds {
        for (heartbeats, what) in [(Heartbeats::Sessions, "sessions"), (Heartbeats::Tree, "tree")] {
            let (used, resting) = apart(|| idle(heartbeats, nodes))?;
            let seconds = IDLE_FOR.as_secs_f64();
            let name =
                format!("{nodes} idle daemons heard by `{what}`, round {round}: packets to the master");
            let detail = format!(
                "{:.0} from it; {:.1} KB/s to it, {:.1} KB/s from it; processor time: master {:.1} ms/s, \
                 daemons {:.0} ms/s; {resting} sessions rest",
                used.sent_packets / seconds,
                used.bytes / seconds / 1e3,
                used.sent_bytes / seconds / 1e3,
                used.master / seconds * 1e3,
                used.daemons / seconds * 1e3
            );
            figures.push(Figure::plain(name, used.packets / seconds, "/s").of(detail));
        }
    }
    Ok(figures)
}

fn idle(heartbeats: Heartbeats, nodes: u32) -> Result<(Use, usize)> {
    let _room = Neighbours::make_room().context("the kernel's table of neighbours cannot be made larger")?;
    let stage = Stage::heard_by(heartbeats, nodes, MEMORY)?;
    thread::sleep(SETTLE);
    let before = Use::now(&stage)?;
    thread::sleep(IDLE_FOR);
    let used = Use::now(&stage)?.since(&before);
    let resting = stage.resting();
    stage.strike()?;
    Ok((used, resting))
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
    figures.extend(switches(stage, &mut jobs, &format!("a set on {nodes} nodes, a job on each pair,"))?);
    jobs.iter_mut().try_for_each(|job| stage.obey(job, Order::End).map(drop))?;
    let all: Vec<u32> = (0..nodes).collect();
    let mut wide = Vec::new();
    // One after the other, for each opens links between all of its nodes. A launch goes by the tree, and
    // opens the connections for that as well.
    for some in all.chunks(WIDTH) {
        let mut job = stage.launch(&["/bin/sleep", "100000"], some, Wait::Block);
        stage.running(&mut job)?;
        wide.push(job);
    }
    figures.extend(switches(stage, &mut wide, &format!("a set on {nodes} nodes, a job on each {WIDTH},"))?);
    let tree = ControlTree::new(RADIX, nodes, Default::default());
    let sent = tree.hand_on(Place::Master, &(0..nodes).map(NodeId).collect()).len();
    let name = format!("messages of the master for a request to {nodes} nodes");
    let by = match nodes > RADIX {
        true => format!("by the tree of radix {RADIX}, in {} steps", tree.depth()),
        false => "few enough to be asked one by one".into(),
    };
    let sent = if nodes > RADIX { sent as f64 } else { f64::from(nodes) };
    figures.push(Figure::plain(name, sent, "").of(by));
    Ok(figures)
}

/// Stops all of these jobs, and lets them go on.
fn switches(stage: &Stage, jobs: &mut [Job], which: &str) -> Result<Vec<Figure>> {
    let switch = |(order, what): (Order, &str)| {
        thread::sleep(SETTLE);
        let (before, began) = (Use::now(stage)?, Instant::now());
        jobs.iter().for_each(|job| job.order(order));
        jobs.iter_mut().try_for_each(|job| stage.after(job, order).map(drop))?;
        let (took, used) = (began.elapsed(), Use::now(stage)?.since(&before));
        let cost = format!(
            "processor time: master {:.0} ms, daemons {:.0} ms; {:.0} packets to the master, {:.1} KB; \
             {:.0} from it, {:.1} KB",
            used.master * 1e3,
            used.daemons * 1e3,
            used.packets,
            used.bytes / 1e3,
            used.sent_packets,
            used.sent_bytes / 1e3
        );
        Ok(Figure::plain(format!("{which} {what}: time"), took.as_secs_f64() * 1e3, "ms").of(cost))
    };
    [(Order::Suspend, "stops"), (Order::Resume, "goes on")].into_iter().map(switch).collect()
}

/// Room for the addresses that many nodes know of each other: the kernel keeps those of all namespaces in one
/// table, 1024 of them if nothing else is said. As it was before, when this is dropped.
pub(crate) struct Neighbours(Vec<(fs::File, String)>);

impl Neighbours {
    const ROOM: u64 = 65_536;

    /// Called in the machine's own network namespace, which alone has the limits.
    pub(crate) fn make_room() -> std::io::Result<Self> {
        let limits = ["gc_thresh3", "gc_thresh2"].into_iter().map(|limit| {
            let path = format!("/proc/sys/net/ipv4/neigh/default/{limit}");
            let before = fs::read_to_string(&path)?;
            let mut file = fs::File::options().write(true).open(path)?;
            if before.trim().parse::<u64>().unwrap_or_default() < Self::ROOM {
                file.write_all(Self::ROOM.to_string().as_bytes())?;
            }
            Ok((file, before))
        });
        limits.collect::<std::io::Result<_>>().map(Self)
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        for (file, before) in self.0.iter_mut().rev() {
            let _ = file.rewind().and_then(|()| file.write_all(before.as_bytes()));
        }
    }
}

/// In which the kernel tells processor time.
const TICKS_PER_SECOND: f64 = 100.0;

/// What was used so far, in seconds of processor time, packets and bytes.
struct Use {
    master: f64,
    daemons: f64,
    /// To the head node, and from it.
    packets: f64,
    bytes: f64,
    sent_packets: f64,
    sent_bytes: f64,
}

impl Use {
    /// Called by a thread in the head node's namespace.
    fn now(stage: &Stage) -> Result<Self> {
        let daemons = stage.daemons().into_iter().map(|pid| processor_time(&pid.to_string()));
        let [bytes, packets, sent_bytes, sent_packets] = carried()?;
        let daemons: Vec<f64> = daemons.collect::<Result<_>>()?;
        let (master, daemons) = (processor_time("self")?, daemons.iter().sum());
        Ok(Self { master, daemons, packets, bytes, sent_packets, sent_bytes })
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            master: self.master - before.master,
            daemons: self.daemons - before.daemons,
            packets: self.packets - before.packets,
            bytes: self.bytes - before.bytes,
            sent_packets: self.sent_packets - before.sent_packets,
            sent_bytes: self.sent_bytes - before.sent_bytes,
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

/// Bytes and packets that the head node's end of the bridge has received, and the same that it has sent.
fn carried() -> Result<[f64; 4]> {
    let table = fs::read_to_string("/proc/thread-self/net/dev")?;
    let line = table.lines().find_map(|line| line.trim().strip_prefix("br0:"));
    let numbers = line.context("the head node has no bridge")?.split_whitespace().map(str::parse);
    let numbers: Vec<f64> = numbers.collect::<Result<_, _>>()?;
    Ok([numbers[0], numbers[1], numbers[8], numbers[9]])
}
