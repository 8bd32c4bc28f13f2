//! The control loop's side of requests that come by several ways, and of answers that go up the tree.

use std::{sync::atomic::Ordering, time::Instant};

use coswitch_policies::{control_tree::Place, primitives};
use tracing::warn;

use super::Control;
use crate::{
    answers::{Answers, Onward},
    multicast::Forged,
    pass_on::{Passed, Room},
    protocol::{Asked, DaemonEvent, Multicast},
};

impl Control {
    /// What another daemon has passed on. Only the master that is followed, and heard, is obeyed, and answers
    /// to another one go nowhere: what is dropped here comes again by a session.
    pub(super) fn on_passed_on(&mut self, (passed, room): (Passed, Room)) {
        let (is_followed, own) = (self.following.is_followed(), self.generation);
        match passed {
            Passed::Down(multicast) if is_followed && multicast.generation == own => {
                if !self.following.is_silent() {
                    self.on_multicast(*multicast, &room);
                }
            }
            Passed::Up(Answers { generation, said }) if is_followed && generation == own => {
                let onward = self.gathering.on_answers(Instant::now(), said);
                self.send_on(onward);
                self.on_their_way.push(room);
            }
            Passed::Down(_) | Passed::Up(_) => {}
        }
    }

    /// The session has one in so many of its heartbeats from now on. Where that is more often than before,
    /// the master has not got an answer by the tree, and asks by the session.
    pub(super) fn on_rate(&self, every: u32) {
        if self.every.swap(every, Ordering::Relaxed) > every {
            self.node.events.beat(self.heard.load(Ordering::Relaxed));
        }
    }

    /// Sends answers to the daemon above, or to the master.
    pub(super) fn send_on(&self, onward: impl IntoIterator<Item = Onward>) {
        for (place, said) in onward {
            match place {
                Place::Master => self.node.events.pass(said),
                Place::Node(up) => {
                    let answers = Passed::Up(Answers { generation: self.generation, said });
                    self.node.pass_on(up, answers, Room::NOT_LIMITED);
                }
            }
        }
    }

    /// Passes the request on first, because the nodes below have a longer way.
    pub(super) fn on_multicast(&mut self, multicast: Multicast, room: &Room) {
        let own = self.node.config.node;
        // Before the master has sent the key of this session, it sends the request again by the session.
        let Some(key) = self.node.events.key() else { return };
        let number = match multicast.number_for(own, self.node.incarnation, &key) {
            Ok(number) => number,
            Err(Forged) => {
                return warn!("a request that was passed on is not the head node's: it is dropped");
            }
        };
        // An attacker may name many nodes that do not exist: no copy is made for these.
        let mut below = multicast.shares_below(Place::Node(own));
        below.retain(|next, _| self.node.links.member(*next).is_some());
        for (next, nodes) in below {
            let Some(room) = room.for_copy() else {
                warn!(%next, "more than can be passed on: the sessions carry it");
                break;
            };
            self.node.pass_on(next, Passed::Down(Box::new(multicast.part_for(&nodes))), room);
        }
        let before = self.gathering.on_request(&multicast);
        self.send_on(before);
        if let Some(number) = number {
            for subject in multicast.asked.subjects() {
                self.node.events.on_asked(subject);
            }
            self.asked.push(number, multicast.asked);
            self.carry_out();
        }
    }

    fn on_primitive(&mut self, message: primitives::Message) {
        if let Some(answer) = self.global.on_message(message) {
            self.node.tell(DaemonEvent::Primitive(answer));
        }
        self.take_fragments();
    }

    /// Carries out the requests before which none is missing.
    pub(super) fn carry_out(&mut self) {
        while let Some(asked) = self.asked.pop() {
            match asked {
                Asked::App { job, request } => self.on_request(job, request),
                Asked::Primitive(message) => self.on_primitive(message),
                Asked::Strobe(strobe) => self.node.slices.on_strobe(strobe),
                Asked::Slices(common) => self.node.slices.on_common(common),
            }
        }
        self.heard.store(self.asked.heard(), Ordering::Relaxed);
    }
}
