//! The control loop's side of requests that come by several ways.

use std::sync::atomic::Ordering;

use coswitch_policies::control_tree::Place;

use super::Control;
use crate::protocol::Multicast;

impl Control {
    /// A request that another daemon has passed on. Only the master that is followed, and heard, is obeyed: a
    /// request that is dropped here comes again by the master's session.
    pub(super) fn on_passed_on(&mut self, multicast: Multicast) {
        if self.following.is_followed()
            && !self.following.is_silent()
            && multicast.generation == self.generation
        {
            self.on_multicast(multicast);
        }
    }

    /// Passes the request on first, because the nodes below have a longer way.
    pub(super) fn on_multicast(&mut self, multicast: Multicast) {
        let own = self.node.config.node;
        for (next, part) in multicast.parts_below(Place::Node(own)) {
            self.node.pass_on(next, part);
        }
        if let Some(number) = multicast.number_for(own, self.node.incarnation) {
            self.asked.push(number, (multicast.job, multicast.request));
            self.carry_out();
        }
    }

    /// Carries out the requests before which none is missing.
    pub(super) fn carry_out(&mut self) {
        while let Some((job, request)) = self.asked.pop() {
            self.on_request(job, request);
        }
        self.heard.store(self.asked.heard(), Ordering::Relaxed);
    }
}
