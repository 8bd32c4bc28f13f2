//! What must hold at every moment of the simulation, and at its end.

use std::collections::{BTreeMap, BTreeSet};

use coswitch_daemon::protocol::PartState;
use coswitch_dispatcher::protocol::AppOutcome;
use coswitch_policies::{Bytes, Epoch, JobId, NodeId, SimTime};
use coswitch_report::journal::JobOutcome;

use super::{
    daemon::Daemon,
    part::{Doing, Part},
    plan::{CAPACITY, Wish, Work},
};
use crate::api::Reply;

/// Who waits for an answer.
#[derive(Clone, Debug)]
pub(super) struct Asker {
    pub(super) at: SimTime,
    pub(super) wish: Wish,
}

/// What the simulation knows and no party does.
#[derive(Default)]
pub(super) struct Audit {
    parts: u64,
    pub(super) works: BTreeMap<JobId, Work>,
    /// How often each job was launched.
    lives: BTreeMap<JobId, u64>,
    /// Jobs of which a step was made to fail: these may be lost.
    wounded: BTreeSet<JobId>,
    /// Snapshots that some node failed to restore.
    pub(super) bad: BTreeSet<(JobId, Epoch)>,
    cancelled: BTreeSet<JobId>,
    /// How each job has ended, by the word of a run.
    pub(super) finished: BTreeMap<JobId, JobOutcome>,
    /// The generation that each daemon has followed last.
    followed: BTreeMap<(NodeId, u64), u64>,
    /// Since the last look.
    pub(super) resumed: Vec<(JobId, NodeId, Epoch)>,
    pub(super) restored: Vec<(JobId, Epoch)>,
    ended_well: Vec<JobId>,
    /// Gangs of which a part has gone back, is released or is lost: by job, launch and life. Behind a late
    /// order to resume comes that to go back, or to end.
    void: BTreeSet<(JobId, u64, u32)>,
    flushed: Vec<(JobId, NodeId, Epoch)>,
}

impl Audit {
    pub(super) fn number(&mut self) -> u64 {
        self.parts += 1;
        self.parts
    }

    /// The job is launched once more.
    pub(super) fn next_life(&mut self, job: JobId) -> u64 {
        let life = self.lives.entry(job).or_default();
        *life += 1;
        *life
    }

    pub(super) fn void(&mut self, part: &Part) {
        self.void.insert((part.job, part.life, part.frame_life));
    }

    pub(super) fn wound(&mut self, job: JobId) {
        self.wounded.insert(job);
    }

    pub(super) fn on_followed(&mut self, node: NodeId, life: u64, generation: u64) {
        let before = self.followed.insert((node, life), generation);
        assert!(before < Some(generation), "{node} follows only later masters");
    }

    pub(super) fn on_answer(&mut self, asker: &Asker, now: SimTime, reply: &Reply) {
        let at_once = !matches!(asker.wish, Wish::Park(_) | Wish::Wait(_) | Wish::Drain(_));
        assert!(!at_once || now == asker.at, "{asker:?} is answered at once");
        match (asker.wish, reply) {
            (_, Reply::Refused(_)) => {}
            (Wish::Submit(work), Reply::Submitted(jobs)) => {
                for submitted in jobs {
                    self.works.insert(submitted.job, work);
                }
            }
            (Wish::Cancel(job), Reply::Job(_)) => drop(self.cancelled.insert(JobId(job))),
            _ => {}
        }
    }

    pub(super) fn on_finished(&mut self, job: JobId, outcome: &JobOutcome) {
        self.finished.insert(job, outcome.clone());
    }

    /// A dispatcher says how its application has ended.
    pub(super) fn on_ended(&mut self, job: JobId, outcome: &AppOutcome) {
        match outcome {
            AppOutcome::Succeeded => self.ended_well.push(job),
            AppOutcome::Stopped => {}
            AppOutcome::RankFailed { .. } | AppOutcome::Lost { .. } => {
                assert!(self.wounded.contains(&job), "{job} is lost without a cause: {outcome:?}");
            }
        }
    }

    /// A dump begins: the whole gang has flushed, and is checked at the next look.
    pub(super) fn check_flushed(&mut self, part: &Part, epoch: Epoch) {
        self.flushed.push((part.job, part.node, epoch));
    }

    /// Looks at all nodes after each event.
    pub(super) fn look(&mut self, daemons: &[Daemon]) {
        for daemon in daemons {
            let held = daemon.held();
            assert!(held <= Bytes(CAPACITY), "{held} on {}", daemon.node);
        }
        for (job, node, epoch) in std::mem::take(&mut self.resumed) {
            self.check_resume(daemons, job, node, epoch);
        }
        for (job, epoch) in std::mem::take(&mut self.restored) {
            self.check_restore(daemons, job, epoch);
        }
        for (job, node, epoch) in std::mem::take(&mut self.flushed) {
            check_line(daemons, job, node, epoch);
        }
        for job in std::mem::take(&mut self.ended_well) {
            let units = self.works[&job].units;
            // A node that is down may have what it sealed of an earlier launch. One that was lost after the
            // end may have taken up a snapshot, which is released when the node is back.
            let life = self.lives[&job];
            let is_taken_up =
                |daemon: &Daemon, part: &Part| daemon.life > 1 && part.state == PartState::Parked;
            let held = daemons.iter().filter_map(|daemon| Some((daemon, daemon.parts.get(&job)?)));
            let of_the_end = held.filter(|(daemon, part)| part.life == life && !is_taken_up(daemon, part));
            for (_, part) in of_the_end {
                assert_eq!(part.ranks.done(), units, "{job} has done its work on {}", part.node);
            }
        }
    }

    /// A gang runs as a whole: when one part resumes, every other one is in memory on the same line.
    fn check_resume(&self, daemons: &[Daemon], job: JobId, node: NodeId, epoch: Epoch) {
        let Some(own) = daemons[node.0 as usize].parts.get(&job) else { return };
        if self.void.contains(&(job, own.life, own.frame_life)) {
            return;
        }
        for peer in own.launch.placement.iter().collect::<BTreeSet<_>>() {
            let other = daemons[peer.0 as usize].parts.get(&job);
            let Some(other) = other else { panic!("{job} resumes on {node} and is not on {peer}") };
            assert_eq!(own.life, other.life, "{job} on {node} and {peer} is of one launch");
            let is_there = !matches!(other.state, PartState::Absent | PartState::Parked);
            assert!(is_there, "{job} resumes {epoch} on {node}, on {peer} it is {:?}", other.state);
        }
    }

    /// Work that every node has sealed is not repeated.
    fn check_restore(&self, daemons: &[Daemon], job: JobId, epoch: Epoch) {
        let nodes: BTreeSet<NodeId> =
            parts(daemons, job).flat_map(|part| part.launch.placement.iter().copied()).collect();
        let on_all = |epoch: &Epoch| {
            let has = |node: &NodeId| daemons[node.0 as usize].machine.snapshot(job, *epoch).is_some();
            nodes.iter().all(has)
        };
        let Some(first) = nodes.first() else { return };
        let sealed = daemons[first.0 as usize].machine.sealed(job);
        let newest = sealed.filter(|epoch| on_all(epoch) && !self.bad.contains(&(job, *epoch))).max();
        assert!(newest.is_none_or(|newest| epoch >= newest), "{job} goes back to {epoch}, not to {newest:?}");
    }

    /// At the end of a run in which nothing went wrong for good.
    pub(super) fn check_end(&self) {
        for (job, outcome) in &self.finished {
            let may_fail = self.wounded.contains(job) || self.cancelled.contains(job);
            assert!(outcome.is_success() || may_fail, "{job} has ended without a cause: {outcome}");
        }
        let lost: Vec<&JobId> = self.works.keys().filter(|job| !self.finished.contains_key(job)).collect();
        assert!(lost.is_empty(), "jobs that were accepted have no end: {lost:?}");
    }

    /// Jobs that have no end yet.
    pub(super) fn open(&self) -> Vec<JobId> {
        self.works.keys().filter(|job| !self.finished.contains_key(job)).copied().collect()
    }
}

fn parts(daemons: &[Daemon], job: JobId) -> impl Iterator<Item = &Part> {
    daemons.iter().filter_map(move |daemon| daemon.parts.get(&job))
}

/// Before anything is dumped: on every channel, what was sent is what was received and what the inbox has.
fn check_line(daemons: &[Daemon], job: JobId, node: NodeId, epoch: Epoch) {
    let Some(own) = daemons[node.0 as usize].parts.get(&job) else { return };
    for (peer, received) in &own.ranks.received {
        let Some(other) = daemons[peer.0 as usize].parts.get(&job) else { continue };
        // It may have left already; or it was ended.
        let is_there = matches!(other.state, PartState::Frozen { .. }) && other.epoch == epoch;
        if !is_there
            || other
                .doing
                .is_some_and(|doing| ![Doing::Dump(epoch), Doing::Checkpoint(epoch)].contains(&doing))
        {
            continue;
        }
        let waiting = own.inbox.before(epoch).filter(|(from, _)| *from == peer).count() as u64;
        assert_eq!(received + waiting, other.ranks.sent[&node], "messages of {job} from {peer} to {node}");
    }
}
