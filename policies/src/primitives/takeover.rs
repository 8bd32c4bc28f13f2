//! How daemons come to count: those of before, when a master takes over, with what they have left undecided,
//! and new ones later.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Members, Number, Operations, Outcome, Report, Request, Roster,
    operations::{Decided, Newcomer},
};
use crate::NodeId;

impl Operations {
    /// Puts newcomers on the roster, once all of them that are waited for have answered.
    pub(super) fn welcome(&mut self) {
        if !self.all_are_known || self.newcomers.values().any(|newcomer| newcomer.report.is_none()) {
            return;
        }
        // Later ones were not on the roster of this master.
        let newest = if self.has_taken_over { self.roster.clone() } else { self.newest() };
        let is_void = |(node, newcomer): &(&NodeId, &Newcomer)| {
            let is_as_new = newcomer.report.as_ref().is_some_and(Report::is_as_new);
            !is_as_new && newest.members.get(node) != Some(&newcomer.incarnation)
        };
        let void: Vec<NodeId> = self.newcomers.iter().filter(is_void).map(|(node, _)| *node).collect();
        if !void.is_empty() {
            for (node, newcomer) in &mut self.newcomers {
                newcomer.report.take_if(|_| void.contains(node));
            }
            return self.send(void, Request::Forget);
        }
        let newcomers = std::mem::take(&mut self.newcomers);
        let is_change = !newcomers.is_empty() || !self.has_taken_over;
        let incarnation = |(node, newcomer): (&NodeId, &Newcomer)| (*node, newcomer.incarnation);
        self.roster.members.extend(newcomers.iter().map(incarnation));
        if is_change {
            self.tell_roster();
        }
        if !std::mem::replace(&mut self.has_taken_over, true) {
            self.settle(&newcomers);
        }
    }

    fn newest(&self) -> Roster {
        let reports = self.newcomers.values().filter_map(|newcomer| newcomer.report.as_ref());
        reports.map(|report| &report.roster).max().cloned().unwrap_or_default()
    }

    /// Decides the operations that the master before has not decided everywhere.
    fn settle(&mut self, reports: &BTreeMap<NodeId, Newcomer>) {
        let mut undecided: BTreeMap<Number, (BTreeSet<NodeId>, &Members)> = BTreeMap::new();
        for (node, newcomer) in reports {
            if let Some((number, nodes)) = newcomer.report.as_ref().and_then(|report| report.held.as_ref()) {
                undecided.entry(*number).or_insert((BTreeSet::new(), nodes)).0.insert(*node);
            }
        }
        for (number, (holders, nodes)) in undecided {
            let carries_out = is_carried_out(number, nodes, reports);
            self.send(holders.clone(), Request::Decide { number, carries_out });
            let none = BTreeSet::new;
            let outcome = match carries_out {
                true => Outcome::CarriedOut { lost: none() },
                false => Outcome::Dropped { refused: none(), lost: none(), late: none() },
            };
            self.decided.insert(number, Decided { open: holders, outcome, version: 0 });
        }
    }
}

/// What becomes of an operation that some nodes hold, by what all of its set that are there know.
fn is_carried_out(number: Number, nodes: &Members, reports: &BTreeMap<NodeId, Newcomer>) -> bool {
    let here = nodes.iter().filter_map(|(node, incarnation)| {
        reports.get(node).filter(|newcomer| newcomer.incarnation == *incarnation)?.report.as_ref()
    });
    let known = here.map(|report| match report.decided.get(&number) {
        Some(decided) => Some(*decided),
        // It waits for the decision, or it has never been asked.
        None => (!report.held.as_ref().is_some_and(|(held, _)| *held == number)).then_some(false),
    });
    let known: Vec<bool> = known.flatten().collect();
    known.contains(&true) || known.is_empty()
}
