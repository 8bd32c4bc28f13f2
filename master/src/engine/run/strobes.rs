//! Slices for the jobs that are in memory together, where the run file asks for them: each change of who has
//! which is a strobe to all nodes.
//!
//! Under DTS in balanced mode also the slices of ranks and local tasks: the console of the simulator sets
//! them by the loads that the nodes report, and goes on without a node that is lost.

use std::collections::BTreeSet;

use coswitch_policies::{JobId, NodeId, local::explicit::Console, strobe::Rows};
use coswitch_report::journal::Event;

use super::{Output, Run, switches::SwitchUnderWay};

impl Run {
    /// Strobes where the jobs that run, are about to, or have not left yet are others than before. It comes
    /// before the orders of this call: a job has its slice when it begins to run.
    pub(super) fn strobe(&mut self) {
        // Until all jobs of an earlier master are found, they have the slices that it gave them.
        let Some(slice) = self.slice.filter(|_| self.adoption.is_none()) else { return };
        let switch = self.switch.as_ref().map(SwitchUnderWay::switching);
        let moved = switch.into_iter().flat_map(|switching| {
            let plan = switching.plan();
            let outgoing = plan.outgoing.iter().map(|outgoing| outgoing.job);
            outgoing.chain(plan.incoming.iter().map(|incoming| incoming.job))
        });
        let jobs: BTreeSet<JobId> = self.running.iter().copied().chain(moved).collect();
        let placed = jobs.iter().filter_map(|job| Some((*job, self.scheduler.placement_of(*job)?)));
        let rows = Rows::of(slice, placed);
        if self.rows.as_ref() != Some(&rows) {
            let begun = Event::SlicesBegun { slice, rows: rows.rows.clone() };
            self.rows = Some(rows.clone());
            self.outputs.insert(0, Output::Strobe(rows));
            self.tell(begun);
        }
    }

    /// Nodes have daemons that know of no slices.
    pub(super) fn strobe_again(&mut self) {
        self.rows = None;
        self.console.iter_mut().for_each(Console::tell_again);
    }

    /// Tells the nodes the slices that the console has set, where they know others.
    pub(super) fn balance(&mut self) {
        let Some(console) = self.console.as_mut().filter(|_| self.adoption.is_none()) else { return };
        let Some(slices) = console.to_tell() else { return };
        let thousandths = |load: f64| (load * 1000.0).round() as u32;
        let loads = console.loads().map(|(node, load)| (node, thousandths(load))).collect();
        let load = thousandths(console.relative_load());
        self.outputs.push(Output::SetSlices(slices));
        self.tell(Event::SlicesBalanced { loads, load, slices });
    }

    pub(super) fn on_load(&mut self, node: NodeId, index: f64) {
        // Daemons of a run that had another technique report as well.
        if let Some(console) = &mut self.console {
            let _ = console.on_load(node, index);
        }
    }

    pub(super) fn forget_load(&mut self, node: NodeId) {
        if let Some(console) = &mut self.console {
            let _ = console.on_lost(node);
        }
    }
}
