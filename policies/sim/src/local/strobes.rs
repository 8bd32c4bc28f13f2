//! The master's strobes, for FCS and BCS: slots of all applications in turn and one of nobody; and the communication
//! phase of BCS, which serves what was buffered before the strobe.

use std::collections::BTreeMap;

use coswitch_policies::local::{
    NodeEvent,
    buffered::{Pending, plan},
};
use coswitch_policies::{Bytes, JobId, NodeId};

use super::{
    LocalModel,
    messages::Message,
    node::Address,
    run::{Scheduled, World},
};

impl World<'_> {
    /// Slot `number` begins everywhere.
    pub(super) fn on_strobe(&mut self, number: u32) {
        let turn = number % (self.shape.applications + 1);
        let application = (turn > 0).then_some(JobId(turn));
        self.begin_communication_phase();
        for node in (0..self.shape.stations).map(NodeId) {
            self.tell(node, NodeEvent::Strobe { application });
        }
        let slot = self.model.slot().expect("only models with slots are strobed");
        self.schedule(self.now.after(slot), Scheduled::Strobe(number.wrapping_add(1)));
    }

    /// Plans what was buffered and delivers each message when its transfer ends. All of a pair's messages in one
    /// transfer arrive with its end; one that is cut off goes whole in a later phase.
    fn begin_communication_phase(&mut self) {
        let LocalModel::Buffered { slot, message, rate } = *self.model else { return };
        let mut pending = Pending::default();
        for (from, to, _) in &self.outbox.waiting {
            pending.add(from.node, to.node, message);
        }
        let phase = plan(self.shape.stations, &pending, rate, slot, self.outbox.phases);
        self.outbox.phases += 1;
        let mut room: BTreeMap<(NodeId, NodeId), (Bytes, _)> = phase
            .transfers
            .iter()
            .map(|transfer| ((transfer.from, transfer.to), (transfer.bytes, transfer.ends)))
            .collect();
        let mut left = std::collections::VecDeque::new();
        let waiting: Vec<(Address, Address, Message)> = self.outbox.waiting.drain(..).collect();
        for (from, to, content) in waiting {
            match room.get_mut(&(from.node, to.node)) {
                Some((bytes, ends)) if *bytes >= message => {
                    bytes.0 -= message.0;
                    let at = self.now.after(*ends);
                    self.schedule(at, Scheduled::Delivery(to, content));
                }
                _ => left.push_back((from, to, content)),
            }
        }
        self.outbox.waiting = left;
    }
}
