//! The primitives of STORM (paper 004) for all that runs at the master: [`coswitch_policies::primitives`] by
//! the sessions and the tree of daemons.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use coswitch_daemon::session::awake;
use coswitch_policies::{
    NodeId,
    primitives::{Address, Comparison, Number, Operation, Outcome, Value},
};

use super::Sessions;

/// What COMPARE-AND-WRITE asks and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompareAndWrite {
    pub variable: Address,
    pub comparison: Comparison,
    pub value: i64,
    /// Where the condition holds on all nodes.
    pub write: Option<(Address, i64)>,
}

impl Sessions {
    /// XFER-AND-SIGNAL: puts a value at an address of all of these nodes, or of none, and signals an event
    /// there. Does not wait: the number is the local event.
    #[must_use]
    pub fn xfer_and_signal(
        &self,
        nodes: BTreeSet<NodeId>,
        to: Address,
        value: Value,
        signal: Option<Address>,
    ) -> Number {
        self.start(nodes, Operation::Transfer { to, value, signal })
    }

    /// TEST-EVENT: takes the local event of an operation, if it is signalled, with the outcome.
    #[must_use]
    pub fn test_event(&self, event: Number) -> Option<Outcome> {
        self.outgoing().operations.test_event(event)
    }

    /// The same, and waits for it. An operation that is not decided after `limit` is dropped on all nodes; it
    /// is over when the nodes that were late know of that, or are lost. `None` where the event was taken
    /// before, or forgotten.
    pub async fn wait_for_event(&self, event: Number, limit: Duration) -> Option<Outcome> {
        if let Some(outcome) = awake::timeout(limit, self.signalled(event)).await {
            return outcome;
        }
        self.give_up(event);
        self.signalled(event).await
    }

    /// An operation that is not decided is dropped on all nodes.
    pub(super) fn give_up(&self, event: Number) {
        self.outgoing().by_operations(|operations| operations.give_up(event));
    }

    /// COMPARE-AND-WRITE, which waits; see [`Sessions::wait_for_event`].
    pub async fn compare_and_write(
        &self,
        nodes: BTreeSet<NodeId>,
        CompareAndWrite { variable, comparison, value, write }: CompareAndWrite,
        limit: Duration,
    ) -> Option<Outcome> {
        let event = self.start(nodes, Operation::Compare { variable, comparison, value, write });
        self.wait_for_event(event, limit).await
    }

    pub(super) fn start(&self, nodes: BTreeSet<NodeId>, operation: Operation) -> Number {
        let mut outgoing = self.outgoing();
        let mut number = Number::default();
        outgoing.by_operations(|operations| {
            let (started, sent) = operations.start(nodes, operation);
            number = started;
            sent
        });
        number
    }

    pub(super) async fn signalled(&self, event: Number) -> Option<Outcome> {
        let over = Arc::clone(&self.outgoing().over);
        loop {
            let next = over.notified();
            {
                let operations = &mut self.outgoing().operations;
                let outcome = operations.test_event(event);
                if outcome.is_some() || !operations.is_on_its_way(event) {
                    return outcome;
                }
            }
            next.await;
        }
    }
}
