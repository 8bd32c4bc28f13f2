//! Strobes of the master for FCS and BCS: the slots of all applications in turn and one without an
//! application. Also the communication phase of BCS, which sends the messages buffered before the strobe.

use std::collections::BTreeMap;

use coswitch_policies::{
    JobId, NodeId,
    local::{
        TaskEvent,
        buffered::{Pending, plan_phase},
    },
};

use super::{
    LocalModel,
    messages::Buffered,
    run::{Scheduled, World},
};

impl World<'_> {
    /// Begins slot `number` on all nodes.
    pub(super) fn on_strobe(&mut self, number: u32) {
        let turn = number % (self.shape.applications + 1);
        let application = (turn > 0).then_some(JobId(turn));
        self.begin_communication_phase();
        for node in (0..self.shape.stations).map(NodeId) {
            self.tell(node, TaskEvent::Strobe { application });
        }
        let slot = self.model.slot().expect("only models with slots are strobed");
        self.schedule(self.now.after(slot), Scheduled::Strobe(number.wrapping_add(1)));
    }

    /// Plans the buffered messages. The messages of a pair go in order: each that completes in this phase is
    /// delivered when the pair's transfer ends, and the rest of one that is cut off goes first in the next
    /// phase.
    fn begin_communication_phase(&mut self) {
        let LocalModel::Buffered { slot, rate, .. } = *self.model else { return };
        let mut pending = Pending::default();
        for buffered in &self.outbox.waiting {
            pending.add(buffered.from, buffered.to.node, buffered.left);
        }
        let phase = plan_phase(self.shape.stations, &pending, rate, slot, self.outbox.phases);
        self.outbox.phases += 1;
        let mut served: BTreeMap<_, _> = phase
            .transfers
            .iter()
            .map(|transfer| ((transfer.from, transfer.to), (transfer.bytes, transfer.ends)))
            .collect();
        for mut buffered in std::mem::take(&mut self.outbox.waiting) {
            if let Some((bytes, ends)) = served.get_mut(&(buffered.from, buffered.to.node)) {
                let goes = buffered.left.min(*bytes);
                bytes.0 -= goes.0;
                buffered.left.0 -= goes.0;
                if buffered.left.0 == 0 {
                    let Buffered { to, message, .. } = buffered;
                    self.schedule(self.now.after(*ends), Scheduled::Delivery(to, message));
                    continue;
                }
            }
            self.outbox.waiting.push_back(buffered);
        }
    }
}
