//! What the node scheduler has counted of each job: the accounts of its tasks, of those that are there and of
//! those that have left. Told piece by piece, so that nothing counts twice.

use std::collections::{BTreeMap, VecDeque};

use coswitch_policies::{
    JobId,
    local::{ByKind, TaskId, Used},
};

/// Of so many tasks that have left it is known whose they were.
const LEFT_MAX: usize = 1024;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Counting {
    tasks: BTreeMap<TaskId, (JobId, Kind)>,
    left: VecDeque<(TaskId, JobId)>,
    jobs: BTreeMap<JobId, Counted>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Rank,
    Local,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    /// By tasks that have left.
    left: ByKind,
    told: ByKind,
}

impl Counting {
    pub(super) fn on_arrived(&mut self, task: TaskId, job: JobId, kind: Kind) {
        self.tasks.insert(task, (job, kind));
    }

    pub(super) fn on_left(&mut self, task: TaskId, used: Used) {
        let Some((job, kind)) = self.tasks.remove(&task) else { return };
        self.jobs.entry(job).or_default().left += of_kind(kind, used);
        if self.left.len() >= LEFT_MAX {
            self.left.pop_front();
        }
        self.left.push_back((task, job));
    }

    /// The job of a task that is there, or has left not long ago.
    pub(super) fn job_of(&self, task: TaskId) -> Option<JobId> {
        let left = || self.left.iter().rev().find(|(of, _)| *of == task).map(|(_, job)| *job);
        self.tasks.get(&task).map(|(job, _)| *job).or_else(left)
    }

    /// What has been added to a job's accounts since this was asked last; `used` says it of a task that is
    /// there.
    pub(super) fn take(&mut self, job: JobId, used: impl Fn(TaskId) -> Option<Used>) -> ByKind {
        let here = self.tasks.iter().filter(|(_, (of, _))| *of == job);
        let here: Vec<ByKind> =
            here.map(|(task, (_, kind))| of_kind(*kind, used(*task).unwrap_or_default())).collect();
        let is_there = !here.is_empty();
        let counted = self.jobs.entry(job).or_default();
        let mut all = counted.left;
        here.into_iter().for_each(|of_task| all += of_task);
        let news = all.since(&std::mem::replace(&mut counted.told, all));
        if !is_there {
            self.jobs.remove(&job);
        }
        news
    }
}

fn of_kind(kind: Kind, used: Used) -> ByKind {
    match kind {
        Kind::Rank => ByKind { distributed: used, ..ByKind::default() },
        Kind::Local => ByKind { local: used, ..ByKind::default() },
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use coswitch_policies::local::{Account, ClassSlots, Usage};

    use super::*;

    const JOB: JobId = JobId(3);

    fn used(ms: u64) -> Used {
        let executed = Duration::from_millis(ms);
        let usage = Usage { processor_time: executed / 2, ..Usage::default() };
        let slots = ClassSlots { frustrated: ms, ..ClassSlots::default() };
        Used { account: Account { executed, ..Account::default() }, usage, slots }
    }

    fn executed(news: ByKind) -> [u128; 2] {
        [news.distributed, news.local].map(|used| {
            assert_eq!(used.usage.processor_time, used.account.executed / 2);
            assert_eq!(u128::from(used.slots.frustrated), used.account.executed.as_millis());
            used.account.executed.as_millis()
        })
    }

    #[test]
    fn what_tasks_have_counted_is_told_once_also_where_they_leave_and_others_come() {
        let mut counting = Counting::default();
        counting.on_arrived(TaskId(0), JOB, Kind::Rank);
        counting.on_arrived(TaskId(1), JOB, Kind::Rank);
        counting.on_arrived(TaskId(2), JobId(4), Kind::Local);
        assert_eq!(executed(counting.take(JOB, |task| Some(used(5 + u64::from(task.0))))), [11, 0]);
        assert_eq!(executed(counting.take(JOB, |_| Some(used(6)))), [1, 0]);
        // The job rests: all of its tasks leave, and come back under other names.
        counting.on_left(TaskId(0), used(8));
        counting.on_left(TaskId(1), used(9));
        assert_eq!(executed(counting.take(JOB, |_| None)), [5, 0]);
        counting.on_arrived(TaskId(5), JOB, Kind::Local);
        assert_eq!(executed(counting.take(JOB, |_| Some(used(2)))), [0, 2]);
        assert_eq!((counting.job_of(TaskId(5)), counting.job_of(TaskId(1))), (Some(JOB), Some(JOB)));
        assert_eq!(counting.job_of(TaskId(9)), None);
    }

    #[test]
    fn nothing_is_kept_of_a_job_that_has_left_and_was_told() {
        let mut counting = Counting::default();
        counting.on_arrived(TaskId(0), JOB, Kind::Rank);
        counting.on_left(TaskId(0), used(8));
        assert_eq!(executed(counting.take(JOB, |_| None)), [8, 0]);
        assert!(counting.jobs.is_empty());
        assert_eq!(executed(counting.take(JOB, |_| None)), [0, 0]);
        assert!(counting.jobs.is_empty());
    }
}
