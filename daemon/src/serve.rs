//! A daemon from its start to its end: sets up the node, serves one control session, removes everything.

use std::{
    collections::BTreeMap,
    io::{self, BufRead, Write},
    net::TcpListener as StdListener,
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use coswitch_ckpt::{Arena, Criu};
use coswitch_policies::{JobId, NodeId};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::{MissedTickBehavior, interval, timeout},
};
use tracing::{error, info, warn};

use crate::{
    app::{App, Node, Note},
    cgroup::{Hierarchies, NodeCgroup, daemons},
    node::{self, NodeConfig, VirtualLink},
    plane::{Command, Plane, PlaneEvent, connect},
    processors,
    protocol::{AppEvent, AppRequest, DaemonEvent, Failure, Member, Request, Step},
    session, virtual_net,
};

/// What a daemon says on its standard output while it starts, a word a line.
pub const NAMESPACE: &str = "namespace";
/// See [`NAMESPACE`]: listening.
pub const READY: &str = "ready";

const FIRST_CONTACT_LIMIT: Duration = Duration::from_secs(30);
const LINK_LIMIT: Duration = Duration::from_secs(10);
const RELEASE_LIMIT: Duration = Duration::from_secs(30);
const DESTROY_LIMIT: Duration = Duration::from_secs(10);
const SAMPLE_EVERY: Duration = Duration::from_millis(100);
/// Traffic is told once in so many samples.
const TRAFFIC_EVERY: u32 = 10;

/// Runs a daemon; the configuration is the first line of standard input.
///
/// # Errors
/// Where the node cannot be set up. Whatever had been made is removed.
pub fn run() -> anyhow::Result<()> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).context("failed to read the configuration")?;
    let config: NodeConfig = serde_json::from_str(&line).context("failed to understand the configuration")?;
    if !config.processors.is_empty() {
        processors::keep_to(&config.processors).context("failed to use the node's processors")?;
    }
    if let Some(link) = config.link {
        join_virtual_net(config.node, link)?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let result = runtime.block_on(serve(config));
    // The watch on standard input may still be blocked; everything else has ended.
    runtime.shutdown_background();
    result
}

/// Before any thread is started: namespaces belong to threads.
fn join_virtual_net(node: NodeId, link: VirtualLink) -> anyhow::Result<()> {
    virtual_net::enter_namespace()?;
    say(NAMESPACE)?;
    let mut plugged = String::new();
    io::stdin().lock().read_line(&mut plugged).context("failed to be plugged in")?;
    Ok(virtual_net::configure_link(node, link.rate)?)
}

/// To the parent; one that has died meanwhile is a failure like any other, after which what was made is removed.
fn say(word: &str) -> anyhow::Result<()> {
    writeln!(io::stdout(), "{word}").context("nobody listens")
}

async fn serve(config: NodeConfig) -> anyhow::Result<()> {
    let hierarchies = Hierarchies::find()?;
    let name = config.name();
    if let Err(error) = daemons::enter(&hierarchies) {
        warn!(%error, "ranks and data plane are in different scheduling groups: messages will be slow");
    }
    let result = set_up_and_serve(config, hierarchies.clone()).await;
    if let Err(error) = daemons::leave(&hierarchies) {
        warn!(%error, "the daemons' scheduling group stays behind");
    }
    // Also what a failed set-up has left, and what a failed release could not remove.
    node::destroy(&hierarchies, &name, DESTROY_LIMIT).context("failed to remove what is left")?;
    result
}

async fn set_up_and_serve(config: NodeConfig, hierarchies: Hierarchies) -> anyhow::Result<()> {
    let (events, to_head) = unbounded_channel();
    let (plane_events, from_plane) = unbounded_channel();
    let criu = Criu::locate()?;
    criu.prepare()?;
    let store = config.open_store().context("failed to make the store")?;
    let cgroup = NodeCgroup::create(hierarchies, &config.name(), config.memory)?;
    let criu = criu.with_workers_in(cgroup.checkpointers());
    let plane = Plane::start(config.node, plane_events)?;
    let control = TcpListener::bind(config.control).await.context("failed to listen for the head node")?;
    let data = StdListener::bind(config.data).context("failed to listen for other daemons")?;
    let arena = Arena::new(config.arena.0).context("failed to map the arena")?;
    let node = Arc::new(Node { config, plane, criu, store, arena, cgroup, events });
    accept_links(Arc::clone(&node), data)?;
    say(READY)?;
    let (own, identity) = (node.config.node, node.config.identity.clone());
    let mut starter = tokio::task::spawn_blocking(wait_for_end_of_input);
    let contact = timeout(FIRST_CONTACT_LIMIT, session::accept(&control, &identity, own));
    let stream = tokio::select! {
        contact = contact => contact.context("no head node came")??,
        _ = &mut starter => anyhow::bail!("the process that started this daemon has ended"),
    };
    let (incoming, requests) = unbounded_channel();
    let carried = tokio::spawn(session::carry(stream, to_head, incoming, || DaemonEvent::Alive));
    let mut serving = Serving { node, apps: BTreeMap::new() };
    tokio::select! {
        () = serving.run(requests, from_plane) => {}
        _ = &mut starter => warn!("the process that started this daemon has ended"),
    }
    serving.release_all().await;
    // The last answers go out, unless nobody is there to take them.
    drop(serving);
    let _ = timeout(Duration::from_millis(200), carried).await;
    Ok(())
}

/// Whoever started this daemon holds its standard input open for as long as it lives.
fn wait_for_end_of_input() {
    // More input is not expected, and an error ends it as well.
    let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
}

/// Each handshake in a thread of its own: a stranger that dawdles delays nobody.
fn accept_links(node: Arc<Node>, listener: StdListener) -> anyhow::Result<()> {
    let (own, server) = (node.config.node, node.config.identity.server()?);
    let node = Arc::downgrade(&node);
    let accept = move || {
        for stream in listener.incoming().flatten() {
            let (node, server) = (node.clone(), Arc::clone(&server));
            std::thread::spawn(move || match (connect::accept(stream, own, &server), node.upgrade()) {
                (Ok((peer, stream)), Some(node)) => node.plane.tell(Command::AddLink(peer, stream)),
                (Err(error), _) => warn!(%error, "data link refused"),
                (Ok(_), None) => {}
            });
        }
    };
    std::thread::Builder::new().name("links".into()).spawn(accept)?;
    Ok(())
}

struct Serving {
    node: Arc<Node>,
    apps: BTreeMap<JobId, (App, tokio::task::JoinHandle<()>)>,
}

impl Serving {
    async fn run(
        &mut self,
        mut requests: UnboundedReceiver<Request>,
        mut plane: UnboundedReceiver<PlaneEvent>,
    ) {
        let mut sample = interval(SAMPLE_EVERY);
        sample.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut terminate = match signal(SignalKind::terminate()) {
            Ok(terminate) => terminate,
            Err(error) => return error!(%error, "signals cannot be handled"),
        };
        let mut ticks = 0;
        loop {
            tokio::select! {
                request = requests.recv() => match request {
                    Some(Request::Shutdown) | None => return info!("the head node has ended the session"),
                    Some(Request::Join { members }) => self.join(members),
                    Some(Request::App { job, request }) => self.on_request(job, request),
                    Some(Request::Hello { .. } | Request::Alive) => {}
                },
                Some(event) = plane.recv() => self.on_plane(event),
                _ = sample.tick() => {
                    ticks += 1;
                    self.sample(ticks % TRAFFIC_EVERY == 0);
                }
                _ = terminate.recv() => return info!("terminated"),
            }
        }
    }

    fn on_request(&mut self, job: JobId, request: AppRequest) {
        self.apps.retain(|_, (_, task)| !task.is_finished());
        if matches!(request, AppRequest::Launch(_)) {
            self.apps.entry(job).or_insert_with(|| App::start(Arc::clone(&self.node), job));
        }
        match (self.apps.get(&job), request) {
            (Some((app, _)), AppRequest::Release) => app.release(Arc::clone(&self.node), job),
            (Some((app, _)), request) => app.note(Note::Request(request)),
            (None, AppRequest::Release) => {
                self.node.tell(DaemonEvent::App { job, event: AppEvent::Released })
            }
            (None, _) => {
                let failure = Failure::dead("there is no such application here");
                let event = AppEvent::Failed { during: Step::Run, failure };
                self.node.tell(DaemonEvent::App { job, event });
            }
        }
    }

    fn on_plane(&self, event: PlaneEvent) {
        let job = match &event {
            PlaneEvent::LinkLost { peer, reason } => {
                warn!(%peer, reason, "data link lost");
                return self.node.tell(DaemonEvent::LinkLost { peer: *peer });
            }
            PlaneEvent::Freeze { job, .. }
            | PlaneEvent::Thaw { job, .. }
            | PlaneEvent::Flushed { job, .. }
            | PlaneEvent::Aborted { job, .. }
            | PlaneEvent::CutFailed { job, .. }
            | PlaneEvent::FromLauncher { job, .. }
            | PlaneEvent::Corrupt { job, .. } => *job,
        };
        if let Some((app, _)) = self.apps.get(&job) {
            app.note(Note::Plane(event));
        }
    }

    fn sample(&self, traffic: bool) {
        if let Ok(memory) = self.node.cgroup.memory_use() {
            self.node.tell(DaemonEvent::Memory(memory));
        }
        if traffic {
            self.apps.values().for_each(|(app, _)| app.note(Note::Sample));
        }
    }

    /// Connects to every lower node; the higher ones connect to this one.
    fn join(&self, members: Vec<Member>) {
        let node = Arc::clone(&self.node);
        tokio::task::spawn_blocking(move || {
            let own = node.config.node;
            let client = node.config.identity.client().map_err(|error| error.to_string());
            let joined = client.and_then(|client| {
                members.iter().filter(|member| member.node < own).try_for_each(|member| {
                    let (peer, stream) = connect::connect(member.data, own, &client, LINK_LIMIT)
                        .map_err(|error| format!("{}: {error}", member.node))?;
                    node.plane.tell(Command::AddLink(peer, stream));
                    Ok(())
                })
            });
            node.tell(match joined {
                Ok(()) => DaemonEvent::Joined,
                Err(reason) => DaemonEvent::JoinFailed { reason },
            });
        });
    }

    async fn release_all(&mut self) {
        let apps = std::mem::take(&mut self.apps);
        apps.iter().for_each(|(job, (app, _))| app.release(Arc::clone(&self.node), *job));
        for (job, (_, task)) in apps {
            if timeout(RELEASE_LIMIT, task).await.is_err() {
                error!(%job, "the application could not be released in time");
            }
        }
    }
}
