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
        let (newest, is_late) = (self.newest(), self.has_taken_over);
        let is_void = |(node, newcomer): &(&NodeId, &Newcomer)| {
            let Some(report) = &newcomer.report else { return false };
            let has_missed = report.roster.generation < newest.generation
                && newest.members.get(node) != Some(&newcomer.incarnation);
            !report.is_as_new() && (has_missed || is_late)
        };
        let void: Vec<NodeId> = self.newcomers.iter().filter(is_void).map(|(node, _)| *node).collect();
        if !void.is_empty() {
            for (node, newcomer) in &mut self.newcomers {
                newcomer.report.take_if(|_| void.contains(node));
            }
            let number = self.next();
            return self.send(void, Request::Forget { number });
        }
        let newcomers = std::mem::take(&mut self.newcomers);
        let incarnation = |(node, newcomer): (&NodeId, &Newcomer)| (*node, newcomer.incarnation);
        self.roster.members.extend(newcomers.iter().map(incarnation));
        let nodes = newcomers.keys().copied().collect();
        self.forget_losses(&nodes);
        self.send(nodes, Request::Admit(self.roster.clone()));
        if !std::mem::replace(&mut self.has_taken_over, true) {
            self.settle(&newcomers);
        }
    }

    fn newest(&self) -> Roster {
        let reports = self.newcomers.values().filter_map(|newcomer| newcomer.report.as_ref());
        let mut newest = Roster::default();
        for Report { roster, .. } in reports {
            if roster.generation > newest.generation {
                newest.clone_from(roster);
            } else if roster.generation == newest.generation {
                newest.members.extend(roster.members.iter().map(|(node, incarnation)| (*node, *incarnation)));
            }
        }
        newest
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
            self.decided.insert(number, Decided { open: holders, outcome });
        }
    }
}

/// What becomes of an operation that some nodes hold, by what all that are there know.
fn is_carried_out(number: Number, nodes: &Members, reports: &BTreeMap<NodeId, Newcomer>) -> bool {
    let known = |report: &Report| report.decided.get(&number).copied();
    let all = || reports.values().filter_map(|newcomer| newcomer.report.as_ref());
    let any_knows = |decision| all().any(|report| known(report) == Some(decision));
    let mut here = nodes.iter().filter_map(|(node, incarnation)| {
        reports.get(node).filter(|newcomer| newcomer.incarnation == *incarnation)?.report.as_ref()
    });
    let is_held = |report: &Report| report.held.as_ref().is_some_and(|(held, _)| *held == number);
    any_knows(true) || !any_knows(false) && here.all(is_held)
}
