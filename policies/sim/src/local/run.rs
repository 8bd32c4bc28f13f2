//! Event loop of the cluster. All events of an instant are handled before time advances: first the messages
//! sent are delivered, and only then a task begins to wait for the missing ones.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use coswitch_policies::{
    JobId, NodeId, SimTime,
    local::{
        Excerpt, Moments, TaskEvent,
        explicit::{Console, Slices},
    },
};

use super::{
    Crowding, LocalModel, LocalReport, Shape, ShapeError,
    messages::{Message, Outbox},
    node::{Address, Due, Node, TaskState},
    program::{Arrivals, Newcomer},
};

/// So many nodes are drawn: further ones would make a picture long, and look alike.
const DRAWN_MAX: usize = 16;
/// So many changes of each of them are remembered.
const MOMENTS: usize = 1 << 14;

/// Runs the cluster of `shape` under `model` until enough distributed tasks have ended. The same arguments
/// give the same report.
///
/// # Errors
/// Where the shape cannot be simulated.
///
/// # Panics
/// Where node and scheduler disagree about the running task, which is an error in either.
pub fn simulate_local(shape: &Shape, model: &LocalModel, seed: u64) -> Result<LocalReport, ShapeError> {
    shape.check()?;
    let mut world = World::new(shape, model, seed);
    world.run();
    Ok(world.report())
}

/// The same, with what happened on the first nodes in the last part of the run, for a picture.
///
/// # Errors
/// Where the shape cannot be simulated.
///
/// # Panics
/// As [`simulate_local`].
pub fn simulate_local_drawn(
    shape: &Shape,
    model: &LocalModel,
    seed: u64,
    last: Duration,
) -> Result<(LocalReport, Vec<Excerpt>), ShapeError> {
    shape.check()?;
    let mut world = World::new(shape, model, seed);
    let drawn = world.nodes.len().min(DRAWN_MAX);
    world.moments = vec![Moments::new(MOMENTS); drawn];
    world.run();
    let (from, to) = (world.now.before(last), world.now);
    let excerpts = world.moments.iter().map(|moments| moments.excerpt(from, to, MOMENTS)).collect();
    Ok((world.report(), excerpts))
}

/// An event in the agenda.
pub(super) enum Scheduled {
    Arrival(NodeId, Box<Newcomer>),
    Processor(Address, Due),
    Timer(NodeId),
    Strobe(u32),
    Delivery(Address, Message),
}

type Key = (SimTime, u64);

pub(super) struct World<'a> {
    pub(super) shape: &'a Shape,
    pub(super) model: &'a LocalModel,
    pub(super) nodes: Vec<Node>,
    pub(super) residents: BTreeMap<JobId, BTreeSet<Address>>,
    pub(super) agenda: BTreeMap<Key, Scheduled>,
    sequence: u64,
    processor_keys: Vec<Option<Key>>,
    pub(super) timer_keys: Vec<Option<Key>>,
    pub(super) touched: BTreeSet<NodeId>,
    /// Messages of this instant, in order; then the tasks that have to wait.
    pub(super) sent: VecDeque<(Address, Message)>,
    pub(super) waits: VecDeque<Address>,
    pub(super) outbox: Outbox,
    pub(super) console: Option<Console>,
    /// Slices that the console sends to all nodes after the present event.
    pub(super) broadcast: Option<Slices>,
    pub(super) now: SimTime,
    /// Of the nodes that are drawn.
    pub(super) moments: Vec<Moments>,
    ended: u32,
    pub(super) measured: LocalReport,
}

impl<'a> World<'a> {
    fn new(shape: &'a Shape, model: &'a LocalModel, seed: u64) -> Self {
        let node = |node| {
            Node::new(model.scheduler(shape.slice, shape.processors), Arrivals::new(seed, node), shape.memory)
        };
        let count = shape.stations as usize;
        Self {
            shape,
            model,
            nodes: (0..shape.stations).map(node).collect(),
            residents: BTreeMap::new(),
            agenda: BTreeMap::new(),
            sequence: 0,
            processor_keys: vec![None; count],
            timer_keys: vec![None; count],
            touched: BTreeSet::new(),
            sent: VecDeque::new(),
            waits: VecDeque::new(),
            outbox: Outbox::default(),
            console: model.console(shape.stations),
            broadcast: None,
            now: SimTime(0),
            moments: Vec::new(),
            ended: 0,
            measured: LocalReport::default(),
        }
    }

    fn run(&mut self) {
        self.begin();
        while self.ended < self.shape.served {
            let ((now, _), what) = self.agenda.pop_first().expect("there is always a next arrival");
            self.on_time(now, what);
        }
    }

    fn begin(&mut self) {
        let slices = match (self.model, &self.console) {
            (LocalModel::Explicit { slices, .. }, _) => Some(*slices),
            (_, Some(console)) => Some(console.slices()),
            _ => None,
        };
        for node in (0..self.shape.stations).map(NodeId) {
            self.expect_arrival(node);
            if let Some(slices) = slices {
                self.tell(node, TaskEvent::SlicesSet(slices));
            }
        }
        if self.model.slot().is_some() {
            self.schedule(SimTime(0), Scheduled::Strobe(0));
        }
    }

    fn on_time(&mut self, now: SimTime, what: Scheduled) {
        self.now = now;
        match what {
            Scheduled::Arrival(node, newcomer) => self.on_arrival(node, *newcomer),
            Scheduled::Processor(task, due) => self.on_processor(task, due),
            Scheduled::Timer(node) => {
                self.timer_keys[index(node)] = None;
                self.tell(node, TaskEvent::TimerFired);
            }
            Scheduled::Strobe(number) => self.on_strobe(number),
            Scheduled::Delivery(to, message) => self.sent.push_back((to, message)),
        }
        self.finish_instant();
        while let Some(node) = self.touched.pop_first() {
            self.replan(node);
        }
    }

    fn finish_instant(&mut self) {
        loop {
            if let Some(slices) = self.broadcast.take() {
                (0..self.shape.stations)
                    .for_each(|node| self.tell(NodeId(node), TaskEvent::SlicesSet(slices)));
            } else if let Some((to, message)) = self.sent.pop_front() {
                self.deliver(to, message);
            } else if let Some(task) = self.waits.pop_front() {
                self.begin_wait(task);
            } else {
                return;
            }
        }
    }

    fn expect_arrival(&mut self, node: NodeId) {
        let newcomer = self.nodes[index(node)].arrivals.next(self.shape);
        let at = self.now.after(newcomer.after);
        self.schedule(at, Scheduled::Arrival(node, Box::new(newcomer)));
    }

    fn on_arrival(&mut self, node: NodeId, mut newcomer: Newcomer) {
        newcomer.application = newcomer.application.and_then(|wanted| self.application_on(node, wanted));
        let application = newcomer.application;
        let frequency = application.map_or(0, |job| newcomer.program.frequency(job, self.shape));
        let burst = match application {
            Some(_) => newcomer.program.burst(self.shape),
            None => newcomer.work,
        };
        self.nodes[index(node)].advance(self.now);
        let task = self.nodes[index(node)].admit(self.now, newcomer, burst, frequency);
        if let Some(application) = application {
            self.residents.entry(application).or_default().insert(Address { node, task });
        }
        self.tell(node, TaskEvent::Arrived { task, application });
        self.expect_arrival(node);
    }

    /// The application that a newcomer of `wanted` joins on the node; none if it comes as a local task.
    fn application_on(&self, node: NodeId, wanted: JobId) -> Option<JobId> {
        let is_free = |job: &JobId| {
            let residents = self.residents.get(job).into_iter().flatten();
            residents.into_iter().all(|resident| resident.node != node)
        };
        match self.shape.crowding {
            Crowding::Share => Some(wanted),
            Crowding::TurnLocal => {
                let all = self.shape.applications;
                (0..all).map(|step| JobId((wanted.0 - 1 + step) % all + 1)).find(is_free)
            }
        }
    }

    fn on_processor(&mut self, address: Address, due: Due) {
        let Address { node, task } = address;
        self.processor_keys[index(node)] = None;
        let state = &mut self.nodes[index(node)];
        state.advance(self.now);
        self.touched.insert(node);
        match due {
            Due::Finish => self.finish(address),
            Due::Communicate => self.communicate(address),
            Due::SpinOver => {
                self.leave(address, TaskState::Blocked);
                self.tell(node, TaskEvent::SpinOver { task });
            }
            Due::QuantumEnd => {
                self.leave(address, TaskState::Ready);
                self.tell(node, TaskEvent::QuantumEnd { task });
                self.measure(address);
            }
        }
    }

    fn measure(&mut self, Address { node, task }: Address) {
        let usage = self.nodes[index(node)].usage(task);
        self.tell(node, TaskEvent::Measured { task, usage });
    }

    fn finish(&mut self, task: Address) {
        self.measure(task);
        let record = self.nodes[index(task.node)].dismiss(self.now, task.node, task.task);
        if let Some(application) = record.application {
            self.residents.entry(application).or_default().remove(&task);
            self.ended += 1;
        }
        self.measured.tasks.push(record);
        self.tell(task.node, TaskEvent::Finished { task: task.task });
    }

    pub(super) fn schedule(&mut self, at: SimTime, what: Scheduled) -> Key {
        self.sequence += 1;
        self.agenda.insert((at, self.sequence), what);
        (at, self.sequence)
    }

    fn replan(&mut self, node: NodeId) {
        let due = self.nodes[index(node)].next_due();
        let key =
            due.map(|(at, task, due)| self.schedule(at, Scheduled::Processor(Address { node, task }, due)));
        if let Some(old) = std::mem::replace(&mut self.processor_keys[index(node)], key) {
            self.agenda.remove(&old);
        }
    }

    fn report(mut self) -> LocalReport {
        let (mut ready, end) = (0, self.now);
        for node in &mut self.nodes {
            node.advance(end);
            ready += node.ready_area;
            self.measured.spun += node.spun;
            self.measured.nodes.push(node.scheduler.node_account());
        }
        let all = u128::from(end.0).max(1) * u128::from(self.shape.stations);
        LocalReport { end, ready: ready as f64 / all as f64, ..self.measured }
    }
}

pub(super) const fn index(node: NodeId) -> usize {
    node.0 as usize
}
