//! Answers users: takes their jobs, tells of them, ends them.

use std::{collections::BTreeMap, time::Duration};

use coswitch_dispatcher::protocol::Order;
use coswitch_policies::{
    JobId, Outlook, Present, Residence, SchedulerEvent, SimTime, Wanted, timeshare::explain,
};
use coswitch_report::journal::{Event, JobOutcome};

use super::{Asked, Output, Run, Ticket};
use crate::{
    api::{
        ClusterStatus, JobState, JobStatus, Queue, Reason, Refusal, Reply, Request, Submission, Submitted,
        User,
    },
    config::{Job, job_set::JOBS_MAX},
};

/// How far a forecast looks ahead for one user's question.
const FORESEEN_EVENTS_MAX: u32 = 2000;

/// How far each forecast looks ahead that is told to the journal.
const TURN_EVENTS_MAX: u32 = 200;

/// What is known of a job besides its specification.
#[derive(Clone, Debug, Default)]
pub(super) struct Record {
    user: User,
    submitted: SimTime,
    began: Option<SimTime>,
    ended: Option<(SimTime, JobOutcome)>,
    /// Its turns before the present one.
    ran: Duration,
    runs_since: Option<SimTime>,
    time_limit: Option<Duration>,
    /// Jobs that have to succeed first.
    after: Vec<JobId>,
    /// Why it is being ended, where that was asked for.
    ending: Option<Ending>,
    waiting: Vec<Ticket>,
    /// Its user holds it.
    held: bool,
    /// Who waits until nothing of it is in memory.
    parking: Vec<Ticket>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Cancelled,
    TimeLimit(Duration),
}

impl Ending {
    fn outcome(self) -> JobOutcome {
        JobOutcome::Failed(match self {
            Self::Cancelled => "cancelled".into(),
            Self::TimeLimit(limit) => format!("it ran for its time limit of {} s", limit.as_secs_f64()),
        })
    }
}

impl Record {
    /// Of a job that the run file names.
    pub(super) fn of_file(job: &Job) -> Self {
        Self { submitted: job.arrival, ..Self::default() }
    }

    fn ran(&self, now: SimTime) -> Duration {
        self.ran + self.runs_since.map_or(Duration::ZERO, |since| now.since(since))
    }

    /// When the job will have run for its limit, where it runs.
    fn limit_at(&self) -> Option<SimTime> {
        let (since, limit) = (self.runs_since?, self.time_limit?);
        self.ending.is_none().then(|| since.after(limit.saturating_sub(self.ran)))
    }
}

impl Run {
    pub(super) fn on_asked(&mut self, Asked { ticket, user, request }: Asked) {
        let reply = match request {
            Request::Cluster => Ok(self.cluster_status()),
            Request::Submit(jobs) => self.submit(user, jobs),
            Request::Jobs { all } => Ok(self.queue(user, all)),
            Request::Cancel(job) => self.cancel(user, job),
            Request::Resume(job) => self.resume(user, job),
            Request::Why(job) => self.why(user, job),
            Request::Park(job) => match self.park(user, job) {
                Ok(()) => {
                    self.records.entry(job).or_default().parking.push(ticket);
                    return self.answer_parked(job);
                }
                Err(refusal) => Err(refusal),
            },
            Request::Wait(job) => match self.record_of(user, job) {
                Ok(Record { ended: None, .. }) => {
                    return self.records.entry(job).or_default().waiting.push(ticket);
                }
                Ok(_) => Ok(Reply::Job(Box::new(self.status(job, Outlook::default())))),
                Err(refusal) => Err(refusal),
            },
        };
        self.outputs.push(Output::Answer(ticket, reply.unwrap_or_else(Reply::Refused)));
    }

    fn cluster_status(&self) -> Reply {
        Reply::Cluster(Box::new(ClusterStatus {
            version: env!("CARGO_PKG_VERSION").into(),
            run: self.settings.run.clone(),
            policy: self.scheduler.config().policy,
            quantum: self.scheduler.config().quantum,
            cluster: self.cluster.clone(),
        }))
    }

    /// The record of a living or ended job of this user.
    fn record_of(&self, user: User, job: JobId) -> Result<&Record, Refusal> {
        let own = self.records.get(&job).filter(|record| record.user == user || user == User::ROOT);
        own.ok_or(Refusal::UnknownJob { job })
    }

    fn living(&self, user: User, job: JobId) -> Result<&Record, Refusal> {
        let record = self.record_of(user, job)?;
        match &record.ended {
            Some((_, outcome)) => Err(Refusal::Ended { job, outcome: outcome.to_string() }),
            None => Ok(record),
        }
    }

    fn submit(&mut self, user: User, jobs: Vec<Submission>) -> Result<Reply, Refusal> {
        if user != User::ROOT {
            return Err(Refusal::NotServed { user: user.0 });
        }
        let (living, most) = (self.living_jobs(), JOBS_MAX as usize);
        if living + jobs.len() > most {
            return Err(Refusal::Full { living, most });
        }
        for (number, Submission { job, after, .. }) in (1..).zip(&jobs) {
            self.check(user, job, after).map_err(|why| {
                let name = job.name.clone();
                Refusal::BadJob { number, name, why }
            })?;
        }
        let accepted: Vec<JobId> = jobs.into_iter().map(|submission| self.accept(user, submission)).collect();
        let named = |job: &JobId| Submitted { job: *job, name: self.jobs[job].name.clone() };
        let submitted = accepted.iter().map(named).collect();
        self.release(&accepted);
        Ok(Reply::Submitted(submitted))
    }

    fn living_jobs(&self) -> usize {
        self.records.values().filter(|record| record.ended.is_none()).count()
    }

    fn check(&self, user: User, job: &Job, after: &[JobId]) -> Result<(), String> {
        job.check()?;
        if let Some(why) = self.cluster.too_small_for(job, self.scheduler.config().policy) {
            return Err(why);
        }
        let unknown = after.iter().find(|before| self.record_of(user, **before).is_err());
        unknown.map_or(Ok(()), |before| Err(format!("there is no {before}, which it is to follow")))
    }

    fn accept(&mut self, user: User, submission: Submission) -> JobId {
        let id = JobId(self.jobs.keys().next_back().map_or(0, |last| last.0 + 1));
        let Submission { job, after, time_limit } = submission;
        let taken = self.jobs.values().any(|other| other.name == job.name);
        let name = if taken { format!("{}-{}", job.name, id.0) } else { job.name.clone() };
        self.jobs.insert(id, Job { id, name, arrival: self.now, ..job });
        let record = Record { user, submitted: self.now, time_limit, after, ..Record::default() };
        self.records.insert(id, record);
        id
    }

    /// Hands jobs to the scheduler; those that are to follow others when these have succeeded.
    fn release(&mut self, jobs: &[JobId]) {
        let mut ready = Vec::new();
        for job in jobs {
            let before = self.records[job].after.clone();
            let outcome = |job: &JobId| self.records.get(job).and_then(|record| record.ended.as_ref());
            let failed = before.iter().find(|job| outcome(job).is_some_and(|(_, how)| !how.is_success()));
            if let Some(failed) = failed.copied() {
                let why = format!("{failed}, which it was to follow, did not succeed");
                self.end(*job, JobOutcome::Failed(why), String::new());
            } else if !self.records[job].held && before.iter().all(|job| outcome(job).is_some()) {
                ready.push(*job);
            } else {
                self.followers.insert(*job);
            }
        }
        for job in &ready {
            self.followers.remove(job);
        }
        self.submit_now(ready);
    }

    fn cancel(&mut self, user: User, job: JobId) -> Result<Reply, Refusal> {
        self.living(user, job)?;
        self.end_early(job, Ending::Cancelled);
        Ok(Reply::Job(Box::new(self.status(job, Outlook::default()))))
    }

    /// Ends a living job: at once where nothing of it runs, else when its dispatcher has done so.
    fn end_early(&mut self, job: JobId, ending: Ending) {
        self.records.entry(job).or_default().ending.get_or_insert(ending);
        if self.launched.contains(&job) {
            self.order(job, Order::End);
        } else {
            self.arrivals.values_mut().for_each(|jobs| jobs.retain(|other| *other != job));
            self.end(job, ending.outcome(), String::new());
        }
    }

    fn park(&mut self, user: User, job: JobId) -> Result<(), Refusal> {
        self.living(user, job)?;
        if !self.scheduler.can_hold() {
            let why =
                "under this policy, or with `park: suspend`, no job leaves memory before it ends".into();
            return Err(Refusal::CannotPark { job, why });
        }
        let record = self.records.entry(job).or_default();
        if !std::mem::replace(&mut record.held, true) && self.scheduler.job(job).is_some() {
            self.tell(Event::JobHeld { job });
            self.schedule(SchedulerEvent::Held { job });
        }
        Ok(())
    }

    fn resume(&mut self, user: User, job: JobId) -> Result<Reply, Refusal> {
        self.living(user, job)?;
        if std::mem::take(&mut self.records.entry(job).or_default().held) {
            if self.scheduler.job(job).is_some() {
                self.tell(Event::JobReleased { job });
                self.schedule(SchedulerEvent::Released { job });
            } else {
                self.release(&[job]);
            }
        }
        Ok(Reply::Job(Box::new(self.status(job, Outlook::default()))))
    }

    /// The job could not leave memory, and goes on.
    pub(super) fn on_not_held(&mut self, job: JobId) {
        let record = self.records.entry(job).or_default();
        record.held = false;
        let why = "it could not leave memory; the log of the cluster says why".to_owned();
        for ticket in std::mem::take(&mut record.parking) {
            let refusal = Refusal::CannotPark { job, why: why.clone() };
            self.outputs.push(Output::Answer(ticket, Reply::Refused(refusal)));
        }
    }

    /// Answers who waits until nothing of the job is in memory, where that is so.
    pub(super) fn answer_parked(&mut self, job: JobId) {
        // A job that the scheduler has not seen is nowhere.
        if self.scheduler.job(job).is_some() && !self.scheduler.is_held_out(job) {
            return;
        }
        let parking = std::mem::take(&mut self.records.entry(job).or_default().parking);
        let status = self.status(job, Outlook::default());
        for ticket in parking {
            self.outputs.push(Output::Answer(ticket, Reply::Job(Box::new(status.clone()))));
        }
    }

    /// The outcome of a job that was ended on request, in place of how its end looked.
    pub(super) fn ending_of(&self, job: JobId) -> Option<JobOutcome> {
        self.records.get(&job)?.ending.map(Ending::outcome)
    }

    pub(super) fn on_began_running(&mut self, job: JobId) {
        let now = self.now;
        let record = self.records.entry(job).or_default();
        record.began.get_or_insert(now);
        record.runs_since.get_or_insert(now);
    }

    pub(super) fn on_stopped_running(&mut self, job: JobId) {
        let now = self.now;
        let record = self.records.entry(job).or_default();
        record.ran = record.ran(now);
        record.runs_since = None;
    }

    /// A job has ended: who waited for it is answered.
    pub(super) fn on_end_of(&mut self, job: JobId, outcome: JobOutcome) {
        self.on_stopped_running(job);
        let now = self.now;
        let record = self.records.entry(job).or_default();
        record.ended = Some((now, outcome));
        let mut waiting = std::mem::take(&mut record.waiting);
        waiting.append(&mut record.parking);
        let status = self.status(job, Outlook::default());
        for ticket in waiting {
            self.outputs.push(Output::Answer(ticket, Reply::Job(Box::new(status.clone()))));
        }
        self.followers.remove(&job);
        self.any_ended = true;
    }

    /// Submits jobs that were to follow others, now that these have ended.
    pub(super) fn release_followers(&mut self) {
        while std::mem::take(&mut self.any_ended) {
            let followers: Vec<JobId> = self.followers.iter().copied().collect();
            self.release(&followers);
        }
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

    fn queue(&self, user: User, all: bool) -> Reply {
        let outlooks = self.forecast(FORESEEN_EVENTS_MAX);
        let own = self.records.iter().filter(|(_, record)| record.user == user || user == User::ROOT);
        let asked = own.filter(|(_, record)| all || record.ended.is_none());
        let status = |job: JobId| self.status(job, outlooks.get(&job).copied().unwrap_or_default());
        Reply::Jobs(Queue { now: self.now, jobs: asked.map(|(job, _)| status(*job)).collect() })
    }

    /// Tells the journal when the jobs that wait run next, where a turn has just begun: the report compares
    /// that with what then happens.
    pub(super) fn foresee_turns(&mut self) {
        if !std::mem::take(&mut self.turn_began) {
            return;
        }
        let waits = |(job, outlook): (JobId, Outlook)| {
            let is_waiting = !self.running.contains(&job);
            Some((job, outlook.runs_from?)).filter(|_| is_waiting)
        };
        let turns: Vec<(JobId, SimTime)> =
            self.forecast(TURN_EVENTS_MAX).into_iter().filter_map(waits).collect();
        if !turns.is_empty() {
            self.tell(Event::TurnsForeseen { turns });
        }
    }

    fn forecast(&self, events_max: u32) -> BTreeMap<JobId, Outlook> {
        let left = |(job, record): (&JobId, &Record)| {
            let ran = record.ran(self.now);
            // A job that runs for longer than it does alone may end at any time, or not.
            let alone = self.jobs.get(job)?.alone.filter(|alone| *alone > ran);
            Some((*job, alone.or(record.time_limit)?.saturating_sub(ran)))
        };
        let living = self.records.iter().filter(|(_, record)| record.ended.is_none());
        self.scheduler.forecast(Present {
            now: self.now,
            timers: self.timers.clone(),
            switch_began: self.switch_began(),
            left: living.filter_map(left).collect(),
            events_max,
        })
    }

    fn status(&self, job: JobId, outlook: Outlook) -> JobStatus {
        let (spec, record) = (&self.jobs[&job], &self.records[&job]);
        JobStatus {
            job,
            name: spec.name.clone(),
            user: record.user,
            state: self.state(job, record),
            ranks: spec.ranks,
            memory: spec.memory,
            submitted: record.submitted,
            began: record.began,
            ended: record.ended.as_ref().map(|(at, _)| *at),
            outcome: record.ended.as_ref().map(|(_, outcome)| outcome.clone()),
            ran: record.ran(self.now),
            time_limit: record.time_limit,
            after: record.after.clone(),
            outlook,
            output: self.settings.out.join(&spec.name),
        }
    }

    fn state(&self, job: JobId, record: &Record) -> JobState {
        match &record.ended {
            Some((_, outcome)) if outcome.is_success() => return JobState::Done,
            Some(_) if record.ending == Some(Ending::Cancelled) => return JobState::Cancelled,
            Some(_) => return JobState::Failed,
            None if self.running.contains(&job) => return JobState::Running,
            None => {}
        }
        if record.held && (self.followers.contains(&job) || self.scheduler.is_held_out(job)) {
            return JobState::Held;
        }
        match self.scheduler.job(job).map(|state| state.observed) {
            Some(Residence::Parked) => JobState::Parked,
            // On its way out of a turn, or into one.
            Some(Residence::Suspended | Residence::Running) => JobState::Suspended,
            _ => JobState::Waiting,
        }
    }

    fn why(&self, user: User, job: JobId) -> Result<Reply, Refusal> {
        let record = self.record_of(user, job)?;
        let name = self.jobs[&job].name.clone();
        let text = match &record.ended {
            Some((_, outcome)) => format!("it has ended: {outcome}"),
            None => self.why_living(job, record),
        };
        Ok(Reply::Why(Reason { job, name, text }))
    }

    fn why_living(&self, job: JobId, record: &Record) -> String {
        if self.state(job, record) == JobState::Held {
            return format!("its user holds it; `coswitch resume {}` lets it go on", job.0);
        }
        if self.followers.contains(&job) {
            let ended = |job: &&JobId| self.records.get(job).is_none_or(|record| record.ended.is_none());
            let open: Vec<String> = record.after.iter().filter(ended).map(ToString::to_string).collect();
            return format!("it waits until {} has succeeded", open.join(" and "));
        }
        let explanation = explain::explain(&self.scheduler);
        let place = explanation.jobs.iter().find(|explained| explained.job == job);
        let place = place.map(|explained| explained.text.as_str()).unwrap_or_default();
        let turn = self.scheduler.turn();
        let wanted = self.scheduler.job(job).map(|state| state.wanted);
        let state = self.state(job, record);
        let others = turn.map(|turn| {
            let names = turn.jobs.iter().filter_map(|other| self.jobs.get(other));
            names.map(|other| other.name.as_str()).collect::<Vec<_>>().join(", ")
        });
        match (state, wanted, others) {
            (JobState::Running, ..) => format!("it has its turn ({place})"),
            (_, Some(Wanted::In { .. }), _) => format!("its turn begins ({place})"),
            (_, Some(Wanted::Out { .. }), Some(others)) => {
                format!("it is {state}: now is the turn of {others} ({place})")
            }
            (_, Some(Wanted::Queued), _) => format!("no set has room for it; it {place}"),
            (_, Some(Wanted::Gone), _) => "it is being ended".into(),
            _ => format!("it is {state} ({place})"),
        }
    }
}
