//! Interface between nodes and their schedulers: reports events and carries out decisions.

use coswitch_policies::NodeId;
use coswitch_policies::local::{NodeDecision, TaskEvent};

use super::{
    node::{Activity, Address, Busy, TaskState},
    run::{Scheduled, World, index},
};

impl World<'_> {
    /// A task leaves its processor, if it has one.
    pub(super) fn leave(&mut self, Address { node, task }: Address, state: TaskState) {
        let node = &mut self.nodes[index(node)];
        let before = node.busy.len();
        node.busy.retain(|busy| busy.task != task);
        if node.busy.len() < before {
            node.set_state(self.now, task, state);
        }
    }

    fn take_processor(&mut self, Address { node, task }: Address, activity: Activity) {
        let node = &mut self.nodes[index(node)];
        node.set_state(self.now, task, TaskState::Running);
        node.busy.push(Busy { task, activity });
    }

    /// Reports an event to a node's scheduler and carries out its decisions.
    pub(super) fn tell(&mut self, node: NodeId, event: TaskEvent) {
        self.nodes[index(node)].advance(self.now);
        self.touched.insert(node);
        let mut decisions = Vec::new();
        let result = self.nodes[index(node)].scheduler.on_event(self.now, event, &mut decisions);
        if let Err(error) = result {
            panic!("node and scheduler agree on what runs, yet {node} failed to {error}");
        }
        if let Some(moments) = self.moments.get_mut(index(node)) {
            moments.note(self.now, &event, &decisions);
        }
        for decision in decisions {
            self.carry_out(node, decision);
        }
    }

    fn carry_out(&mut self, node: NodeId, decision: NodeDecision) {
        match decision {
            NodeDecision::Run { task, slice } => {
                let address = Address { node, task };
                self.take_processor(address, Activity::Computing);
                self.task_mut(address).slice_ends = self.now.after(slice);
                self.measured.dispatches += 1;
                self.on_dispatched(address);
            }
            NodeDecision::Preempt { task } => self.leave(Address { node, task }, TaskState::Ready),
            NodeDecision::Spin { task, at_most } => {
                let until = at_most.map(|span| self.now.after(span));
                self.take_processor(Address { node, task }, Activity::Spinning { until });
            }
            NodeDecision::SetTimer { at } => {
                let key = self.schedule(at, Scheduled::Timer(node));
                if let Some(old) = self.timer_keys[index(node)].replace(key) {
                    self.agenda.remove(&old);
                }
            }
            NodeDecision::ReportLoad { index } => {
                let console = self.console.as_mut().expect("only balanced nodes report their load");
                let news = console.on_load(node, index).expect("the console knows all nodes");
                self.broadcast = news.or(self.broadcast);
            }
            NodeDecision::Left { used, .. } => {
                let record = self.measured.tasks.last_mut().expect("a task that left was recorded");
                record.account = used.account;
            }
        }
    }

    fn on_dispatched(&mut self, task: Address) {
        self.take_messages(task);
        if self.nodes[index(task.node)].tasks[&task.task].replies_missing > 0 {
            self.waits.push_back(task);
        }
    }
}
