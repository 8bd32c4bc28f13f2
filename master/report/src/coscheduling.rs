//! What node schedulers have counted, by job and by node: the accounts of the CMC model (Solsona's thesis,
//! §2.2.1-2.2.2) over real tasks, and what these were measured to use.

use std::{collections::BTreeMap, time::Duration};

use coswitch_policies::{
    Bytes, JobId, NodeId, SimTime,
    local::{ByKind, ClassSlots, Used},
};
use serde::{Deserialize, Serialize};

use crate::{pairs, report::seconds};

/// The kind of tasks that processes without MPI are.
pub(crate) const LOCAL_TASKS: &str = "local tasks";

/// The accounts of some tasks.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Tasks {
    /// Time with a processor by decision.
    #[serde(rename = "executed_s", serialize_with = "seconds")]
    pub executed: Duration,
    /// The processor time that they had by the kernel's count.
    #[serde(rename = "processor_s", serialize_with = "seconds")]
    pub processor: Duration,
    /// Ready without a processor.
    #[serde(rename = "ready_s", serialize_with = "seconds")]
    pub waited: Duration,
    /// Overtaken by others for the sake of coscheduling (*D*).
    #[serde(rename = "delayed_s", serialize_with = "seconds")]
    pub delayed: Duration,
    /// Of the time in which it was possible to coschedule them (*CoDe*); `None` where it never was.
    pub coscheduling: Option<f64>,
    /// The rest of it (*ThDe*).
    pub thrashing: Option<f64>,
    /// The most memory that one of them was seen to have.
    pub resident: Bytes,
    /// Page faults that waited for a disk.
    pub faults: u64,
    /// Slots of their own, by the class in which these found them; `None` under a scheduler without classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<ClassSlots>,
}

/// What was counted of a job on all of its nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct JobTasks {
    /// Of its ranks; `None` where the node schedulers saw none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranks: Option<Tasks>,
    /// Of its processes that do not use MPI, which are local tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local: Option<Tasks>,
}

/// What was counted on a node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeTasks {
    pub node: NodeId,
    /// Of all tasks (*NodeCoDe*, *NodeThDe*, *NodeD*).
    #[serde(flatten)]
    pub tasks: Tasks,
    /// The load index: how many local tasks were ready, mean over the run (thesis §2.1.2, there smoothed).
    pub local_load: f64,
}

impl Tasks {
    fn of(Used { account, usage, slots }: Used) -> Self {
        let degrees = account.degrees();
        Self {
            executed: account.executed,
            processor: usage.processor_time,
            resident: usage.resident,
            faults: usage.faults,
            slots: (slots.all() > 0).then_some(slots),
            waited: account.waited,
            delayed: account.delayed,
            coscheduling: degrees.map(|degrees| degrees.coscheduling),
            thrashing: degrees.map(|degrees| degrees.thrashing),
        }
    }

    /// As CS, F and DC (Table 2.1 of the testbed); `None` without slots.
    pub(crate) fn classes(&self) -> Option<String> {
        let ClassSlots { coscheduled, frustrated, dont_care } = self.slots?;
        Some(format!("{coscheduled}/{frustrated}/{dont_care}"))
    }
}

impl JobTasks {
    /// Those of ranks, then those of local tasks, each with its name.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = (&'static str, &Tasks)> {
        let kinds = [("ranks", &self.ranks), (LOCAL_TASKS, &self.local)];
        kinds.into_iter().filter_map(|(name, tasks)| Some((name, tasks.as_ref()?)))
    }
}

/// What the events so far come to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct CoschedulingFold {
    #[serde(with = "pairs")]
    jobs: BTreeMap<JobId, ByKind>,
    #[serde(with = "pairs")]
    nodes: BTreeMap<NodeId, ByKind>,
}

impl CoschedulingFold {
    pub(crate) fn on_counted(&mut self, job: JobId, node: NodeId, counted: ByKind) {
        *self.jobs.entry(job).or_default() += counted;
        *self.nodes.entry(node).or_default() += counted;
    }

    /// Forgets jobs; what they were counted with stays in the sums of their nodes.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(JobId) -> bool) {
        self.jobs.retain(|job, _| is_kept(*job));
    }

    pub(crate) fn of(&self, job: JobId) -> Option<JobTasks> {
        let counted = self.jobs.get(&job)?;
        let seen = |used: Used| (used != Used::default()).then(|| Tasks::of(used));
        Some(JobTasks { ranks: seen(counted.distributed), local: seen(counted.local) })
    }

    /// Of a run that has lasted until `last`.
    pub(crate) fn nodes(&self, last: SimTime) -> Vec<NodeTasks> {
        let lasted = last.since(SimTime(0)).as_secs_f64().max(f64::MIN_POSITIVE);
        let node = |(node, ByKind { distributed, local }): (&NodeId, &ByKind)| {
            let mut all = *distributed;
            all += *local;
            let local_load = local.account.ready().as_secs_f64() / lasted;
            NodeTasks { node: *node, tasks: Tasks::of(all), local_load }
        };
        self.nodes.iter().map(node).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use coswitch_policies::local::{Account, Usage};

    use super::*;
    use crate::{
        fold::{fold, tests::two_jobs_in_turn},
        journal::{Event, RunEvent},
    };

    const A: JobId = JobId(0);
    const B: JobId = JobId(1);

    fn counted(at: u64, job: JobId, node: u32, counted: ByKind) -> RunEvent {
        let kind = Event::JobScheduled { job, node: NodeId(node), counted };
        RunEvent { at: Duration::from_secs(at).into(), kind }
    }

    /// Of ranks of A on both nodes, and of local tasks of B on the first.
    pub(crate) fn with_counts() -> Vec<RunEvent> {
        let seconds = Duration::from_secs;
        let ranks = |coscheduled, thrashed| {
            let (coscheduled, thrashed) = (seconds(coscheduled), seconds(thrashed));
            let account = Account {
                executed: seconds(4),
                coscheduled,
                thrashed,
                delayed: seconds(1),
                waited: seconds(2),
            };
            let resident = Bytes::mib(10 * thrashed.as_secs());
            let usage = Usage { processor_time: seconds(3), bytes_sent: Bytes(8), resident, faults: 1 };
            let slots = ClassSlots { coscheduled: 2, frustrated: 0, dont_care: 5 };
            ByKind { distributed: Used { account, usage, slots }, ..ByKind::default() }
        };
        let account = Account { executed: seconds(5), waited: seconds(10), ..Account::default() };
        let local = Used { account, ..Used::default() };
        let mut events = two_jobs_in_turn();
        let news = [
            counted(10, A, 0, ranks(3, 1)),
            counted(10, A, 1, ranks(0, 2)),
            counted(23, B, 0, ByKind { local, ..ByKind::default() }),
            counted(29, A, 0, ranks(3, 1)),
        ];
        let end = events.len() - 3;
        events.splice(end..end, news);
        events.sort_by_key(|event| event.at);
        events
    }

    #[test]
    fn what_nodes_count_piece_by_piece_is_summed_by_job_and_by_node() {
        let report = fold(&with_counts());
        let [a, b] = [0, 1].map(|job: usize| report.jobs[job].tasks.clone().unwrap());
        assert_eq!(a.local, None);
        let ranks = a.ranks.unwrap();
        assert_eq!((ranks.executed.as_secs(), ranks.waited.as_secs(), ranks.delayed.as_secs()), (12, 6, 3));
        assert_eq!((ranks.processor.as_secs(), ranks.resident, ranks.faults), (9, Bytes::mib(20), 3));
        assert_eq!((ranks.coscheduling, ranks.thrashing), (Some(0.6), Some(0.4)));
        assert_eq!(ranks.classes().as_deref(), Some("6/0/15"));
        assert_eq!((b.ranks, b.local.as_ref().unwrap().coscheduling), (None, None));
        assert_eq!(b.local.unwrap().slots, None);
        let [first, second] = &report.nodes_scheduled[..] else { panic!("{:?}", report.nodes_scheduled) };
        assert_eq!((first.tasks.executed.as_secs(), first.tasks.coscheduling), (13, Some(0.75)));
        assert!((first.local_load - 0.5).abs() < 1e-12, "15 s of 30 s");
        assert_eq!((second.tasks.thrashing, second.local_load), (Some(1.0), 0.0));
    }

    #[test]
    fn a_job_that_is_forgotten_stays_in_the_sums_of_its_nodes() {
        let mut fold = CoschedulingFold::default();
        for event in with_counts() {
            if let Event::JobScheduled { job, node, counted } = event.kind {
                fold.on_counted(job, node, counted);
            }
        }
        let before = fold.nodes(SimTime(1));
        fold.retain(|job| job == B);
        assert_eq!((fold.of(A), fold.nodes(SimTime(1))), (None, before));
        assert!(fold.of(B).is_some());
    }
}
