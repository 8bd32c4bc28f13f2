//! Life of a daemon: sets up the node, follows its masters, removes everything.

use std::{
    fs,
    io::{self, BufRead},
    os::fd::OwnedFd,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use anyhow::{Context, bail};
use coswitch_ckpt::{Arena, Criu, Store, forker, trial::TrialError};
use coswitch_launcher::bait;
use coswitch_policies::NodeId;
use tokio::{
    net::TcpListener,
    sync::mpsc::{UnboundedSender, unbounded_channel},
};
use tracing::{debug, error, warn};

use crate::{
    answers::{Said, Saying},
    app::NodeServices,
    cgroup::{Hierarchies, NodeCgroup, daemons},
    control::{self, Control, Ending, Master, Remains},
    copies::Copies,
    guard::Guard,
    handover::{self, Handover, Kept, Programs, Successor},
    hold,
    home::{Home, HomeLine},
    links::Links,
    listeners::{Listeners, accept_links},
    mounts,
    node::{self, NodeConfig, VirtualLink},
    outbox::Outbox,
    pass_on::PassingOn,
    plane::Plane,
    proc_text, processors,
    protocol::DaemonEvent,
    running::Running,
    scheduling::Scheduling,
    session::{self, SessionThread},
    slices::{Meaning, Slices},
    starter::{Starter, say},
    survival::{self, Survivors},
    virtual_net,
};

pub use crate::starter::Ready;

/// The exit code of a daemon that failed.
pub const FAILED: u8 = 2;
/// A line on the daemon's standard output: its network namespace exists.
pub const NAMESPACE: &str = "namespace";

/// Of the kernel's choice where the memory of the machine is out.
const NEVER: &str = "-1000";
/// For the end of the processes of a node's jobs.
pub const DESTROY_LIMIT: Duration = Duration::from_secs(10);

/// Runs a daemon; the configuration is the first line of standard input. Returns the program that is to be
/// executed in its place, if there is one. Called on the main thread, as are the others here.
///
/// # Errors
/// Where the node cannot be set up; the parts that were made are removed. Where snapshots stay on the node,
/// for the next daemon.
pub fn run() -> anyhow::Result<Option<Successor>> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).context("failed to read the configuration")?;
    let config: NodeConfig = serde_json::from_str(&line).context("failed to understand the configuration")?;
    follow(config, Starter::Stdio)
}

/// Runs a daemon that a batch system has started on `host`; its master configures it.
///
/// # Errors
/// As [`run`].
pub fn run_for(home: &Home, host: String) -> anyhow::Result<Option<Successor>> {
    let (line, config) = HomeLine::connect(home, host)?;
    follow(config, Starter::Home(Box::new(line)))
}

/// Goes on with what the program before has left in the file with the number `file`. `given_up`: another one
/// has not been able to, and why; this is the one before that. Returns the program to execute instead.
///
/// # Errors
/// Where it cannot go on, and neither can the program before.
pub fn adopt(file: &str, given_up: Option<&str>) -> anyhow::Result<Option<Successor>> {
    let (left, kept, handover) = handover::take(file)?;
    let again = [&kept.control, &kept.data].map(OwnedFd::try_clone);
    let [control, data] = again;
    let head = kept.head.as_ref().map(OwnedFd::try_clone).transpose()?;
    let config = handover.config.clone();
    let listeners = Some((control?, data?));
    let given_up = given_up.map(str::to_owned);
    let is_back = given_up.is_some();
    let begin = Begin::HandedOver(Box::new(HandedOver { handover, listeners, given_up }));
    match beside_forks(config, begin, head)? {
        Served::Ended => Ok(None),
        Served::HandsOver(successor) => Ok(Some(successor)),
        Served::GivesUp(error) if is_back => Err(error),
        Served::GivesUp(error) => Ok(Some(Successor::back(left, kept, format!("{error:#}")))),
    }
}

/// How a daemon comes about.
enum Begin {
    Started(Starter, Survivors),
    HandedOver(Box<HandedOver>),
}

/// From the program before.
struct HandedOver {
    handover: Handover,
    /// For the head node, and for other daemons.
    listeners: Option<(OwnedFd, OwnedFd)>,
    /// Why a third program has not gone on.
    given_up: Option<String>,
}

/// How the work of a daemon ends.
enum Outcome {
    Leaves(Remains),
    HandsOver(Successor),
    /// The program before is to go on: nothing has changed.
    GivesUp(anyhow::Error),
    /// Nobody goes on; the next daemon of the node ends what is left, and keeps what is sealed.
    Fails(anyhow::Error),
}

/// How a daemon has ended.
enum Served {
    Ended,
    HandsOver(Successor),
    GivesUp(anyhow::Error),
}

fn follow(config: NodeConfig, starter: Starter) -> anyhow::Result<Option<Successor>> {
    if !config.processors.is_empty() {
        let there = processors::allowed().context("failed to ask for the machine's processors")?;
        if let Some(lacking) = config.processors.iter().find(|cpu| !there.contains(cpu)) {
            bail!("there is no processor {lacking} on this machine: it has {}", processors::list(&there));
        }
        processors::keep_to(&config.processors).context("failed to use the node's processors")?;
    }
    if config.standing && config.returns {
        hold::take(&config.name(), DESTROY_LIMIT, || starter.has_ended())?;
    }
    // Without the capability for it the daemon is as any process. A rank has a score of its own.
    if let Err(error) = fs::write("/proc/self/oom_score_adj", NEVER) {
        debug!(%error, "the kernel may end this daemon where memory is out");
    }
    let survivors = Survivors::find(&config);
    if let Err(error) = mounts::enter(survivors.anyone()) {
        warn!(%error, "users see each other's processes on this node");
    }
    let survivors = survivors.proven(&config);
    // Before this process leaves it.
    let head = (config.standing && config.link.is_some()).then(virtual_net::hold_namespace);
    let head = head.transpose().context("failed to hold the head node's network open")?;
    if let Some(link) = config.link {
        join_virtual_net(config.node, link, survivors.anyone())?;
    }
    match beside_forks(config, Begin::Started(starter, survivors), head.map(Into::into))? {
        Served::Ended => Ok(None),
        Served::HandsOver(successor) => Ok(Some(successor)),
        Served::GivesUp(error) => Err(error),
    }
}

/// This thread forks from now on, and another one serves.
fn beside_forks(config: NodeConfig, begin: Begin, head: Option<OwnedFd>) -> anyhow::Result<Served> {
    // A rank can cut its segment, which this process has mapped.
    coswitch_ring::survive_missing_pages().context("failed to handle bus errors")?;
    forker::lead(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let result = runtime.block_on(serve(config, begin, head));
        // The thread that waits for the starter may still be blocked; all other work has ended.
        runtime.shutdown_background();
        result
    })
}

/// Must run before any thread is started: namespaces belong to threads.
fn join_virtual_net(node: NodeId, link: VirtualLink, survivor: Option<u32>) -> anyhow::Result<()> {
    // One that has ended meanwhile needs no network.
    if survivor.is_none_or(|pid| virtual_net::enter_that_of(pid).is_err()) {
        virtual_net::enter_namespace()?;
    }
    say(NAMESPACE)?;
    let mut plugged = String::new();
    io::stdin().lock().read_line(&mut plugged).context("failed to be plugged in")?;
    Ok(virtual_net::configure_link(node, link.rate)?)
}

async fn serve(config: NodeConfig, begin: Begin, head: Option<OwnedFd>) -> anyhow::Result<Served> {
    let is_first = matches!(begin, Begin::Started(..));
    let hierarchies = match Hierarchies::find() {
        Err(error) if !is_first => return Ok(Served::GivesUp(error.into())),
        hierarchies => hierarchies?,
    };
    let (name, returns, resumes, standing) = (config.name(), config.returns, config.resumes, config.standing);
    if !is_first
        && standing
        && let Err(error) = hold::take_again(&name)
    {
        return Ok(Served::GivesUp(error));
    }
    let store = config.existing_store();
    let processors = processors::allowed().unwrap_or_default();
    // A batch system finds the daemon by its group, to end it.
    let is_free = !fs::read_to_string("/proc/self/cgroup").is_ok_and(|text| is_kept_in_group(&text));
    if is_free
        && is_first
        && let Err(error) = daemons::enter(&hierarchies, &processors)
    {
        warn!(%error, "ranks and data plane are in different scheduling groups: messages will be slow");
    }
    if returns && is_first {
        let survivors = match &begin {
            Begin::Started(_, survivors) => survivors.jobs(),
            Begin::HandedOver(_) => Vec::new(),
        };
        node::end_running_but(&hierarchies, &name, &survivors, DESTROY_LIMIT)?;
    }
    let result = set_up_and_serve(config, hierarchies.clone(), begin, head).await;
    let result = match result {
        Ok(Outcome::HandsOver(successor)) => return Ok(Served::HandsOver(successor)),
        Ok(Outcome::GivesUp(error)) => return Ok(Served::GivesUp(error)),
        Ok(Outcome::Fails(error)) => return Err(error),
        Ok(Outcome::Leaves(remains)) => Ok(remains),
        Err(error) => Err(error),
    };
    if is_free && let Err(error) = daemons::leave(&hierarchies) {
        warn!(%error, "the daemons' scheduling group stays behind");
    }
    let remains = match &result {
        Ok(remains) => *remains,
        // Another daemon may: what is there is of that one.
        Err(_) if standing && !hold::is_held() => return result.map(|_| Served::Ended),
        Err(_) if resumes => Remains::Snapshots,
        Err(_) if returns || !is_first => {
            // What an earlier daemon has sealed is for the next one.
            node::end_running(&hierarchies, &name, DESTROY_LIMIT).context("failed to end what is left")?;
            return result.map(|_| Served::Ended);
        }
        Err(_) => Remains::Nothing,
    };
    // Also after a failed set-up or a failed release.
    let removed = match remains {
        Remains::Nothing => node::destroy(&hierarchies, &name, DESTROY_LIMIT),
        Remains::Snapshots => node::leave(&hierarchies, &name, DESTROY_LIMIT),
        Remains::Sealed if !has_sealed(&store) => node::destroy(&hierarchies, &name, DESTROY_LIMIT),
        // The notes, too: a clean-up finds the store by them. A daemon that ends well leaves nothing.
        Remains::Sealed => {
            node::end_running(&hierarchies, &name, DESTROY_LIMIT).context("failed to end what is left")?;
            bail!("what is sealed stays on the node");
        }
    };
    removed.context("failed to remove what is left")?;
    result.map(|_| Served::Ended)
}

/// A store that cannot be read may hold something.
fn has_sealed(store: &Store) -> bool {
    let any = |name: String| store.sealed_epochs(&name).map_or(true, |epochs| !epochs.is_empty());
    let has_own = store.applications().map_or(true, |applications| applications.into_iter().any(any));
    has_own || !store.copies().is_empty()
}

/// Whether `text`, of `/proc/self/cgroup`, names a group in which Slurm follows the processes of a step.
fn is_kept_in_group(text: &str) -> bool {
    text.lines().filter_map(|line| line.rsplit(':').next()).any(|group| {
        group
            .split('/')
            .any(|part| part == "slurm" || part.ends_with("slurmstepd.scope") || part.starts_with("slurm_"))
    })
}

async fn set_up_and_serve(
    config: NodeConfig,
    hierarchies: Hierarchies,
    begin: Begin,
    head: Option<OwnedFd>,
) -> anyhow::Result<Outcome> {
    let (plane_events, from_plane) = unbounded_channel();
    let (passing, passed_on) = PassingOn::new();
    let (to_tree, said) = unbounded_channel();
    let (starter, survivors, mut handed) = match begin {
        Begin::Started(starter, survivors) => (Some(starter), survivors, None),
        Begin::HandedOver(handed) => (None, Survivors::default(), Some(handed)),
    };
    let plane = match Plane::start(config.node, plane_events) {
        Ok(plane) => plane,
        Err(error) => return gives_up(starter, error.into()),
    };
    let criu = handed.as_ref().map(|handed| handed.handover.criu.clone());
    let node = match set_up(config, hierarchies, plane, (passing, to_tree), criu) {
        Ok(node) => Arc::new(node),
        Err(error) => return gives_up(starter, error),
    };
    let mut control = Control::new(Arc::clone(&node));
    let sessions = match SessionThread::start() {
        Ok(sessions) => sessions,
        Err(error) => return gives_up(starter, error.into()),
    };
    if node.config.returns && handed.is_none() {
        let adopted = control.adopt_survivors(survivors.take()).await;
        if let Err(error) = adopted.and_then(|()| control.take_up()) {
            control.end_all(Remains::Snapshots).await;
            return gives_up(starter, error);
        }
    }
    let listeners = handed.as_mut().and_then(|handed| handed.listeners.take());
    let Listeners { control: listener, data, kept } =
        match Listeners::open(&node, listeners, head, &sessions).await {
            Ok(listeners) => listeners,
            Err(error) => return gives_up(starter, error),
        };
    let generation = handed.as_ref().map_or(0, |handed| handed.handover.generation.saturating_sub(1));
    if let Some(handed) = handed {
        let HandedOver { handover: Handover { released, parts, allowance, .. }, given_up, .. } = *handed;
        if let Err(error) = control.go_on(released, parts, given_up).await {
            return Ok(Outcome::GivesUp(error));
        }
        node.guard.allow(allowance);
    }
    let ready = Ready { control: listener.local_addr()?.port(), data: accept_links(&node, data)? };
    let starter = starter.map(|starter| starter.tell_ready(ready)).transpose()?;
    let (masters, new_masters) = unbounded_channel();
    let accepted = accept_masters(
        listener,
        sessions.clone(),
        node.config.clone(),
        node.incarnation,
        generation,
        masters,
    );
    let accepting = sessions.spawn(accepted);
    let starter = tokio::task::spawn_blocking(|| starter.map_or((), Starter::wait_for_end));
    let followed = control.run(new_masters, from_plane, (passed_on, said), starter, accepting).await;
    let remains = match followed {
        Ok(Ending::HandsOver(handed)) => {
            let successor = hand_over(&node, *handed, kept);
            // The next program ends the data plane's threads at once; to wait for them takes 0.2 s.
            std::mem::forget(node);
            return Ok(successor.map_or_else(Outcome::Fails, Outcome::HandsOver));
        }
        Ok(Ending::Leaves(remains)) => Ok(remains),
        Err(error) => Err(error),
    };
    control.end_all(*remains.as_ref().unwrap_or(&control.remains())).await;
    node.copies.end();
    control.hang_up().await;
    remains.map(Outcome::Leaves)
}

/// A daemon that has just been started says why it ends. Where another program has handed over, nothing has
/// changed yet.
fn gives_up(starter: Option<Starter>, error: anyhow::Error) -> anyhow::Result<Outcome> {
    match starter {
        Some(starter) => Err(starter.tell_failure(error)),
        None => Ok(Outcome::GivesUp(error)),
    }
}

fn hand_over(node: &NodeServices, handed: control::HandedOver, kept: Kept) -> anyhow::Result<Successor> {
    let control::HandedOver { programs, generation, released, parts } = handed;
    let Programs { daemon, launcher, provider } = programs;
    let config = NodeConfig { launcher, provider, ..node.config.clone() };
    let (files, allowance, criu) = (kept.numbers(), node.guard.allowance(), node.criu.clone());
    let handover = Handover { config, generation, files, criu, allowance, released, parts };
    Successor::new(daemon, &handover, kept).context("failed to leave the state behind")
}

/// Accepts masters, each of a later generation than the one before, until the daemon ends.
async fn accept_masters(
    listener: TcpListener,
    sessions: SessionThread,
    config: NodeConfig,
    incarnation: u64,
    mut generation: u64,
    masters: UnboundedSender<Master>,
) {
    let mut door = session::Door::new(listener);
    loop {
        let (identity, node) = (&config.identity, config.node);
        let accepted = door.accept(identity, node, incarnation, &mut generation).await;
        let stream = match accepted {
            Ok(stream) => stream,
            Err(error) => return error!(%error, "no further master can be accepted"),
        };
        let (events, to_head) = unbounded_channel();
        let (incoming, requests) = unbounded_channel();
        let (heard, every) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU32::new(1)));
        let (so_far, in_so_many, mut beats) = (Arc::clone(&heard), Arc::clone(&every), 0);
        let alive = move || {
            beats += 1;
            let is_due = beats >= in_so_many.load(Ordering::Relaxed);
            is_due.then(|| {
                beats = 0;
                DaemonEvent::Alive { heard: so_far.load(Ordering::Relaxed) }
            })
        };
        let carried = session::carry(stream, to_head, incoming, alive, config.stop_after);
        let carried = sessions.spawn(carried);
        if masters.send(Master { generation, requests, events, carried, heard, every }).is_err() {
            return;
        }
    }
}

/// `criu`: the program before has left it, as everything else of the node.
fn set_up(
    config: NodeConfig,
    hierarchies: Hierarchies,
    plane: Plane,
    (passing, to_tree): (PassingOn, UnboundedSender<Said>),
    criu: Option<Criu>,
) -> anyhow::Result<NodeServices> {
    if config.local.is_some() {
        check_weights(&hierarchies)?;
    }
    let (criu, store) = match criu {
        Some(criu) => (criu, config.existing_store()),
        None => {
            if config.is_host() {
                check_host(&config)?;
            }
            let criu = Criu::locate()?;
            criu.prepare()?;
            if !criu.is_closed() {
                try_criu(&criu, &config.launcher)
                    .with_context(|| format!("failed to use criu {}", criu.version()))?;
            }
            let store = config.open_store().context("failed to make the store")?;
            if config.standing {
                survival::start_watcher(&config)?;
            }
            (criu, store)
        }
    };
    let cgroup = NodeCgroup::create(hierarchies, &config.name(), config.memory)?;
    let criu = criu.with_workers_in(cgroup.checkpointers()).with_library_of(&config.provider);
    let arena = Arena::new(config.arena.0).context("failed to map the arena")?;
    let count = processors::allowed().unwrap_or_default().len();
    let running = Arc::new(Running::default());
    let scheduling = Scheduling::start(config.local, count, Arc::clone(&running))
        .context("failed to start the node scheduler")?;
    let guard = Guard::start(Arc::clone(&running)).context("failed to start the guard of memory")?;
    let meaning = Meaning::of(config.local, scheduling.teller(), Arc::clone(&running), plane.teller());
    let slices = Slices::start(meaning).context("failed to start the thread of slices")?;
    // Since 1970, in nanoseconds: no two daemons of a node have the same.
    let incarnation = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
    let incarnation = u64::try_from(incarnation).unwrap_or(u64::MAX);
    let events = Outbox::new(Saying::new(config.node, incarnation), to_tree);
    let links = Links::default();
    let has_news = AtomicBool::new(false);
    Ok(NodeServices {
        config,
        incarnation,
        plane,
        links,
        copies: Copies::default(),
        passing,
        criu,
        store,
        arena,
        cgroup,
        running,
        guard,
        slices,
        scheduling,
        events,
        has_news,
    })
}

/// Tries whether a process can run in the place of this CRIU; needs root.
///
/// # Errors
/// Where one can, and where that cannot be found out.
pub fn try_criu(criu: &Criu, launcher: &Path) -> Result<(), TrialError> {
    criu.try_bait(bait::command(launcher), bait::TAKEN_OVER.into())
}

/// A node scheduler weighs ranks against each other, which the kernel does inside one scheduling group, and
/// gives them their weight back, for which root needs a capability.
fn check_weights(hierarchies: &Hierarchies) -> anyhow::Result<()> {
    // Only the weight of this thread changes, which ends at once.
    let thread = std::thread::Builder::new().spawn(|| {
        let own = nix::unistd::Pid::from_raw(0);
        [1, 0].into_iter().try_for_each(|nice| processors::set_nice(libc::PRIO_PROCESS, own, nice).map(drop))
    });
    let tried = thread?.join().expect("two system calls do not panic");
    tried.context("`scheduler.local` changes the weight of ranks, for which root lacks CAP_SYS_NICE")?;
    if daemons::is_in_group(hierarchies) {
        return Ok(());
    }
    let advice = match fs::read_to_string("/proc/self/cgroup").is_ok_and(|text| is_kept_in_group(&text)) {
        true => "they are in the group of their allocation: leave it out",
        false => {
            "each of them has a group of its own: give the node one processor, or use a kernel without the \
             fault of 6.13 to 6.18.44 and 6.19"
        }
    };
    bail!("`scheduler.local` needs ranks in one scheduling group, and {advice}")
}

/// Finds out before any job does that the machine lacks something.
fn check_host(config: &NodeConfig) -> anyhow::Result<()> {
    let offered = config.memory.unwrap_or_default().saturating_add(config.arena);
    let text = fs::read_to_string("/proc/meminfo").context("failed to ask for the machine's memory")?;
    if let Some(machine) = proc_text::size(&text, "MemTotal").filter(|machine| offered > *machine) {
        bail!("jobs and arena are to have {offered} together, and this machine has {machine}");
    }
    match config.needed.iter().find(|file| !file.exists()) {
        Some(file) => bail!(
            "there is no {} on this machine: it has to lie on a file system that all nodes share",
            file.display()
        ),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_of_slurm_is_known_in_both_hierarchies() {
        for text in [
            "0::/system.slice/slurmstepd.scope/job_17/step_0/user/task_0\n",
            "0::/system.slice/n0_slurmstepd.scope/job_17/step_0\n",
            "4:memory:/slurm/uid_0/job_17/step_0\n0::/\n",
            "4:freezer:/slurm_n0/uid_0/job_17/step_0\n",
        ] {
            assert!(is_kept_in_group(text), "{text}");
        }
        for text in ["0::/\n", "0::/user.slice/session-1.scope\n", "0::/system.slice/slurmd.service\n", ""] {
            assert!(!is_kept_in_group(text), "{text}");
        }
    }
}
