//! What is known of each job besides its specification: how long it ran, how it ended, who waits for it.

use std::{collections::BTreeMap, time::Duration};

use coswitch_policies::{JobId, Outlook, SchedulerEvent, SimTime, spaceshare::queue::QueueId};
use coswitch_report::{
    JobKnown,
    journal::{Event, JobOutcome},
};

use super::{Output, Run, Ticket};
use crate::api::{Accepted, Reply, User};

/// What is known of a job besides its specification.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    pub(super) user: User,
    pub(super) submitted: SimTime,
    pub(super) began: Option<SimTime>,
    pub(crate) ended: Option<(SimTime, JobOutcome)>,
    /// Its turns before the present one.
    pub(super) ran: Duration,
    pub(super) runs_since: Option<SimTime>,
    pub(super) time_limit: Option<Duration>,
    /// Jobs that have to succeed first.
    pub(crate) after: Vec<JobId>,
    /// Why it is being ended, where that was asked for.
    pub(super) ending: Option<Ending>,
    pub(super) waiting: Vec<Ticket>,
    /// Its user holds it.
    pub(super) held: bool,
    /// Who waits until nothing of it is in memory.
    pub(super) parking: Vec<Ticket>,
    /// How long it had run at its last snapshots, by epoch.
    pub(super) saves: BTreeMap<u64, Duration>,
    /// How long it had run when its present checkpoint was ordered.
    pub(super) ran_at_checkpoint: Option<Duration>,
    /// How long it had run when it began again.
    pub(super) repeated: Duration,
}

/// A node keeps fewer snapshots.
const SAVES_MAX: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Cancelled,
    TimeLimit(Duration),
    /// The disk has not taken it.
    NotKept,
    /// It could not leave memory, and its nodes are taken away.
    NotParked,
}

impl Ending {
    pub(super) fn outcome(self) -> JobOutcome {
        let failed = |why: &str| JobOutcome::Failed(why.into());
        match self {
            Self::Cancelled => JobOutcome::cancelled(),
            Self::NotKept => failed("the cluster could not write it down: its disk is full or broken"),
            Self::NotParked => failed("it could not be parked, and its nodes are taken away"),
            Self::TimeLimit(limit) => JobOutcome::at_time_limit(limit),
        }
    }
}

impl Record {
    pub(crate) fn of_accepted(accepted: &Accepted) -> Self {
        let Accepted { user, submitted, after, time_limit, .. } = accepted.clone();
        Self { user, submitted, after, time_limit, ..Self::default() }
    }

    /// As an earlier master has left it.
    pub(crate) fn with(self, known: JobKnown) -> Self {
        let JobKnown { began, ran, runs_since, held, ended } = known;
        Self { began, ran, runs_since, held, ended, ..self }
    }

    pub(super) fn began_running(&mut self, at: SimTime) {
        self.began.get_or_insert(at);
        self.runs_since.get_or_insert(at);
    }

    pub(super) fn ended_running(&mut self, at: SimTime) {
        self.ran = self.ran(at);
        self.runs_since = None;
    }

    pub(super) fn ran(&self, now: SimTime) -> Duration {
        self.ran + self.runs_since.map_or(Duration::ZERO, |since| now.since(since))
    }

    /// A node has sealed its snapshot of an epoch. A job does not run until it is sealed everywhere, except
    /// after a checkpoint.
    pub(super) fn saved(&mut self, now: SimTime, epoch: u64) {
        let ran = self.ran_at_checkpoint.unwrap_or_else(|| self.ran(now));
        self.saves.entry(epoch).or_insert(ran);
        while self.saves.len() > SAVES_MAX {
            self.saves.pop_first();
        }
    }

    /// How long the job has run since the snapshot of this epoch, or since it began, and repeats now.
    pub(super) fn repeats(&mut self, now: SimTime, epoch: Option<u64>) -> Duration {
        let ran = self.ran(now);
        self.ran_at_checkpoint = None;
        let repeated = ran
            .saturating_sub(epoch.and_then(|epoch| self.saves.get(&epoch)).copied().unwrap_or(self.repeated));
        match epoch {
            Some(epoch) => drop(self.saves.insert(epoch, ran)),
            None => {
                self.saves.clear();
                self.repeated = ran;
            }
        }
        repeated
    }

    /// When the job will have run for its limit, where it runs.
    fn limit_at(&self) -> Option<SimTime> {
        let (since, limit) = (self.runs_since?, self.time_limit?);
        self.ending.is_none().then(|| since.after(limit.saturating_sub(self.ran)))
    }
}

impl Run {
    /// The outcome of a job that was ended on request, in place of how its end looked.
    pub(super) fn ending_of(&self, job: JobId) -> Option<JobOutcome> {
        self.records.get(&job)?.ending.map(Ending::outcome)
    }

    pub(super) fn on_began_running(&mut self, job: JobId) {
        let now = self.now;
        self.records.entry(job).or_default().began_running(now);
    }

    pub(super) fn on_stopped_running(&mut self, job: JobId) {
        let now = self.now;
        self.records.entry(job).or_default().ended_running(now);
    }

    /// A job has ended: who waited for it is answered.
    pub(super) fn on_end_of(&mut self, job: JobId, outcome: JobOutcome) {
        self.on_stopped_running(job);
        let now = self.now;
        let record = self.records.entry(job).or_default();
        record.ended = Some((now, outcome));
        let mut waiting = std::mem::take(&mut record.waiting);
        waiting.append(&mut record.parking);
        self.answer_status(job, waiting);
        self.followers.remove(&job);
        self.any_ended = true;
    }

    /// Answers with the state of the job.
    pub(super) fn answer_status(&mut self, job: JobId, tickets: Vec<Ticket>) {
        let status = self.status(job, Outlook::default());
        let answer = |ticket| Output::Answer(ticket, Reply::Job(Box::new(status.clone())));
        self.outputs.extend(tickets.into_iter().map(answer));
    }

    /// Tells the scheduler how long jobs run yet at most, where its queue reckons with that.
    pub(super) fn tell_limits(&mut self, jobs: Vec<JobId>) {
        if !self.scheduler.config().space.as_ref().is_some_and(|space| space.queue.relies_on_limits()) {
            return;
        }
        let limited = jobs.into_iter().filter_map(|job| Some((job, self.left_at_most(job)?)));
        let left: Vec<(JobId, Duration)> = limited.collect();
        if !left.is_empty() {
            self.tell(Event::JobsLimited { left: left.clone() });
            self.schedule(SchedulerEvent::Limited { left });
        }
    }

    /// Tells the scheduler in which queues jobs wait, where the cluster is divided.
    pub(super) fn tell_queues(&mut self, jobs: &[JobId]) {
        let Some(space) = self.scheduler.config().space.clone().filter(|space| space.sets.is_some()) else {
            return;
        };
        // A later master may have another run file: there a job whose queue has gone waits in the first.
        let home = |job: &JobId| Some((*job, self.jobs[job].home(&space).ok()?));
        let queues = jobs.iter().filter_map(home).filter(|(_, queue)| *queue != QueueId::default());
        let queues: Vec<(JobId, QueueId)> = queues.collect();
        if !queues.is_empty() {
            self.tell(Event::JobsGrouped { queues: queues.clone() });
            self.schedule(SchedulerEvent::Grouped { queues });
        }
    }

    /// By its time limit, else by the time that it takes alone.
    fn left_at_most(&self, job: JobId) -> Option<Duration> {
        let record = self.records.get(&job)?;
        let ran = record.ran(self.now);
        let limit = record.time_limit.map(|limit| limit.saturating_sub(ran));
        // What it did before it began again is done again.
        let alone = || Some(self.jobs.get(&job)?.alone?.saturating_sub(ran.saturating_sub(record.repeated)));
        limit.or_else(alone)
    }

    /// When the next time limit is reached.
    pub(super) fn limit_due(&self) -> Option<SimTime> {
        self.running.iter().filter_map(|job| self.records.get(job)?.limit_at()).min()
    }

    pub(super) fn end_late_jobs(&mut self) {
        let is_late =
            |job: &JobId| self.records.get(job).and_then(Record::limit_at).is_some_and(|at| at <= self.now);
        let late: Vec<JobId> = self.running.iter().copied().filter(is_late).collect();
        for job in late {
            let limit = self.records[&job].time_limit.unwrap_or_default();
            self.end_early(job, Ending::TimeLimit(limit));
        }
    }
}
