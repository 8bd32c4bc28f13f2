//! Requests and replies: how messages travel, and how their receivers handle them.

use std::collections::VecDeque;

use coswitch_policies::{Bytes, NodeId, local::TaskEvent};

use super::{
    LocalModel, Peers,
    node::{Activity, Address, Busy, TaskState},
    run::{World, index},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// The sender waits for a reply.
    Request {
        from: Address,
    },
    Reply,
}

/// The messages that BCS buffers, in the order in which they were sent.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    pub(super) waiting: VecDeque<Buffered>,
    pub(super) phases: usize,
}

/// A message that waits for a communication phase, or is partly sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffered {
    pub(super) from: NodeId,
    pub(super) to: Address,
    pub(super) message: Message,
    /// The bytes not yet sent.
    pub(super) left: Bytes,
}

impl World<'_> {
    /// The running task has computed its burst: it sends its requests, and waits unless the replies come at
    /// once.
    pub(super) fn communicate(&mut self, task: Address) {
        let shape = self.shape;
        let state = self.nodes[index(task.node)].tasks.get_mut(&task.task).expect("the task runs");
        state.burst = state.program.burst(shape);
        for _ in 0..state.frequency {
            let Some(peer) = self.choose_peer(task) else { break };
            self.task_mut(task).replies_missing += 1;
            self.send(task, peer, Message::Request { from: task });
        }
        self.waits.push_back(task);
    }

    /// A task of the same application on another node.
    fn choose_peer(&mut self, task: Address) -> Option<Address> {
        let application = self.task_mut(task).application?;
        let residents = self.residents.get(&application)?;
        let may_be_peer = |peer: &Address| match self.shape.peers {
            Peers::Any => true,
            Peers::Ring => peer.node.0 == (task.node.0 + 1) % self.shape.stations,
        };
        let others = residents.iter().copied().filter(|peer| peer.node != task.node);
        let peers: Vec<_> = others.filter(may_be_peer).collect();
        if peers.is_empty() {
            return None;
        }
        Some(peers[self.task_mut(task).program.choose(peers.len())])
    }

    fn send(&mut self, from: Address, to: Address, message: Message) {
        self.tell(from.node, TaskEvent::MessageSent { task: from.task });
        if let LocalModel::Buffered { message: left, .. } = *self.model {
            self.outbox.waiting.push_back(Buffered { from: from.node, to, message, left });
        } else {
            self.sent.push_back((to, message));
        }
    }

    pub(super) fn deliver(&mut self, to: Address, message: Message) {
        self.measured.messages += 1;
        if self.nodes[index(to.node)].state(to.task).is_none() {
            // The receiver ended before it saw the request (only buffered messages take time): its node
            // replies.
            if let Message::Request { from } = message {
                self.sent.push_back((from, Message::Reply));
            }
            return;
        }
        let task = self.task_mut(to);
        task.has_messages = true;
        let wakes = match message {
            Message::Request { from } => {
                task.requests.push(from);
                true
            }
            Message::Reply => {
                task.replies_missing -= 1;
                task.replies_missing == 0
            }
        };
        let has_all = wakes && message == Message::Reply;
        self.tell(to.node, TaskEvent::MessageArrived { task: to.task });
        if has_all {
            self.tell(to.node, TaskEvent::WaitOver { task: to.task });
        }
        match self.nodes[index(to.node)].state(to.task) {
            Some(TaskState::Running) => self.on_message_while_running(to),
            Some(TaskState::Blocked) if wakes => {
                self.nodes[index(to.node)].set_state(self.now, to.task, TaskState::Ready);
                self.tell(to.node, TaskEvent::Unblocked { task: to.task });
            }
            _ => {}
        }
    }

    /// A running task takes a message at once, and computes again when no reply is missing.
    fn on_message_while_running(&mut self, task: Address) {
        self.take_messages(task);
        let replies_missing = self.task_mut(task).replies_missing;
        let busy = self.nodes[index(task.node)].busy_with(task.task);
        if let Some(busy) = busy.filter(|_| replies_missing == 0) {
            busy.activity = Activity::Computing;
        }
    }

    /// The running task takes its messages and answers the requests.
    pub(super) fn take_messages(&mut self, task: Address) {
        let state = self.task_mut(task);
        if !std::mem::take(&mut state.has_messages) {
            return;
        }
        let requests = std::mem::take(&mut state.requests);
        self.tell(task.node, TaskEvent::MessagesTaken { task: task.task });
        for from in requests {
            self.send(task, from, Message::Reply);
        }
    }

    /// The running task waits for replies: its scheduler decides whether it spins or leaves. It may meanwhile
    /// have been preempted, or have the replies.
    pub(super) fn begin_wait(&mut self, task: Address) {
        let computes = Busy { task: task.task, activity: Activity::Computing };
        let state = &self.nodes[index(task.node)];
        if !state.busy.contains(&computes) || state.tasks[&task.task].replies_missing == 0 {
            return;
        }
        // It blocks, unless the scheduler decides `Spin`.
        self.nodes[index(task.node)].advance(self.now);
        self.leave(task, TaskState::Blocked);
        self.tell(task.node, TaskEvent::Waits { task: task.task });
    }

    pub(super) fn task_mut(&mut self, task: Address) -> &mut super::node::Task {
        self.nodes[index(task.node)].tasks.get_mut(&task.task).expect("the task is on its node")
    }
}
