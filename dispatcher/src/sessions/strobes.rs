//! What begins on all nodes at the same instant, by the clock of this machine.

use std::time::{Duration, Instant};

use coswitch_daemon::{
    node_clock,
    protocol::{AppRequest, Asked},
};
use coswitch_policies::{
    NodeId,
    local::explicit::{CommonSlices, Slices},
    strobe::{Rows, Strobe},
};

use super::Sessions;

/// For a message to reach all nodes before that instant.
const LEAD: Duration = Duration::from_millis(20);

impl Sessions {
    /// Gives jobs their slices.
    pub fn strobe(&self, rows: Rows) {
        self.ask_all(&Asked::Strobe(Strobe { rows, begin: soon() }));
    }

    /// Sets the slices of DTS, of which the parallel one begins then.
    pub fn set_slices(&self, slices: Slices) {
        self.ask_all(&Asked::Slices(CommonSlices { slices, begin: soon() }));
    }

    /// The ranks of a job leave a fence on all nodes at that instant, where messages wait for exchanges.
    pub(super) fn with_time(mut request: AppRequest) -> AppRequest {
        if let AppRequest::FenceDone { begin, .. } = &mut request {
            *begin = soon();
        }
        request
    }

    fn ask_all(&self, asked: &Asked) {
        let nodes: Vec<NodeId> = self.inboxes().living().iter().map(|member| member.node).collect();
        self.outgoing().by_ways(|ways| ways.send(Instant::now(), &nodes, asked));
    }
}

fn soon() -> i64 {
    node_clock::now() + i64::try_from(LEAD.as_nanos()).expect("milliseconds")
}
