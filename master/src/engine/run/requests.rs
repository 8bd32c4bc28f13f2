//! Answers users: takes their jobs, tells of them, ends them.

use coswitch_dispatcher::protocol::Order;
use coswitch_policies::{JobId, Outlook, SchedulerEvent, SimTime};
use coswitch_report::{
    journal::{Event, JobOutcome},
    words::span,
};

use super::{
    Asked, Output, Run,
    records::{Ending, Record},
};
use crate::{
    api::{ClusterStatus, Refusal, Reply, Request, Submission, Submitted, User},
    config::{Job, job_set::JOBS_MAX},
};

impl Run {
    pub(super) fn on_asked(&mut self, Asked { ticket, user, request }: Asked) {
        let reply = match request {
            Request::Cluster => Ok(self.cluster_status()),
            Request::Submit(jobs) => self.submit(user, jobs),
            Request::Jobs { all } => Ok(self.queue(user, all)),
            Request::Cancel(job) => self.cancel(user, job),
            Request::Resume(job) => self.resume(user, job),
            Request::Why(job) => self.why(user, job),
            Request::Upgrade { nodes, dry_run } => return self.upgrade(ticket, user, &nodes, dry_run),
            Request::Drain(node) => match self.drain(user, node, ticket) {
                // When it is empty.
                Ok(()) => return,
                Err(refusal) => Err(refusal),
            },
            Request::Undrain(node) => self.undrain(user, node),
            Request::Timetable { ahead } => Ok(self.timetable(ahead)),
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
    pub(super) fn record_of(&self, user: User, job: JobId) -> Result<&Record, Refusal> {
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
            for (number, Submission { job, .. }) in (1..).zip(&jobs) {
                may_bring(user, job).map_err(|why| {
                    let name = job.name.clone();
                    Refusal::BadJob { number, name, why }
                })?;
            }
            if let Some(closed) = self.closed_to(user, &jobs) {
                return Err(closed);
            }
        }
        let (living, most) = (self.living_jobs(), JOBS_MAX as usize);
        if living + jobs.len() > most {
            return Err(Refusal::Full { living, most });
        }
        if let (waiting, Some(most)) = (self.waiting_jobs(), self.max_queued)
            && waiting + jobs.len() > most
        {
            return Err(Refusal::QueueFull { waiting, jobs: jobs.len(), most });
        }
        let (waiting, most) = (self.waiting_jobs_of(user), self.max_queued_per_user);
        if user != User::ROOT && waiting + jobs.len() > most {
            return Err(Refusal::OwnQueueFull { waiting, jobs: jobs.len(), most });
        }
        for (number, submission) in (1..).zip(&jobs) {
            let later = submission.job.after.iter().find(|place| place.0 as usize >= number - 1);
            let check = match later {
                Some(later) => Err(format!("{later}, which it is to follow, does not come before it")),
                None => self.check(user, submission),
            };
            check.map_err(|why| {
                let name = submission.job.name.clone();
                Refusal::BadJob { number, name, why }
            })?;
        }
        let mut accepted: Vec<JobId> = Vec::new();
        for mut submission in jobs {
            // In the file the job names others by their places in it.
            let before = std::mem::take(&mut submission.job.after);
            submission.after.extend(before.iter().map(|place| accepted[place.0 as usize]));
            accepted.push(self.accept(user, submission));
        }
        let named = |job: &JobId| Submitted { job: *job, name: self.jobs[job].name.clone() };
        let submitted = accepted.iter().map(named).collect();
        let (later, now): (Vec<JobId>, Vec<JobId>) =
            accepted.into_iter().partition(|job| self.jobs[job].arrival > self.now);
        for job in later {
            self.arrivals.entry(self.jobs[&job].arrival).or_default().push(job);
        }
        self.release(&now);
        Ok(Reply::Submitted(submitted))
    }

    /// The first of these jobs whose partition takes none of this user.
    fn closed_to(&self, user: User, jobs: &[Submission]) -> Option<Refusal> {
        let divided = self.scheduler.config().space.as_ref()?;
        (1..).zip(jobs).find_map(|(number, Submission { job, .. })| {
            let why = divided.refuses(job.home(divided).ok()?, user.0)?;
            Some(Refusal::BadJob { number, name: job.name.clone(), why })
        })
    }

    fn living_jobs(&self) -> usize {
        self.records.values().filter(|record| record.ended.is_none()).count()
    }

    /// The jobs that have not begun: for room, for others to end, or because they are held.
    fn waiting_jobs(&self) -> usize {
        self.records.iter().filter(|(job, record)| self.waits(**job, record)).count()
    }

    fn waiting_jobs_of(&self, user: User) -> usize {
        self.records.iter().filter(|(job, record)| record.user == user && self.waits(**job, record)).count()
    }

    fn waits(&self, job: JobId, record: &Record) -> bool {
        record.ended.is_none() && record.began.is_none() && !self.launched.contains(&job)
    }

    fn check(&self, user: User, submission: &Submission) -> Result<(), String> {
        let Submission { job, after, .. } = submission;
        job.check()?;
        if let Some(why) = self.cluster.too_small_for(job, self.scheduler.config().policy) {
            return Err(why);
        }
        self.time_limits.check(submission.limit())?;
        let divided = self.scheduler.config().space.clone().unwrap_or_default();
        job.home(&divided)?;
        let longest = job.longest(&divided);
        if let Some(longest) = longest
            && submission.limit().is_some_and(|limit| limit > longest)
        {
            let longest = span(longest);
            return Err(format!(
                "its queue lets a job run for {longest} at most, which its time limit exceeds"
            ));
        }
        if let Some(space) = &self.scheduler.config().space {
            let limit = self.time_limits.of(submission.limit(), longest);
            let is_limited = limit.is_some() || job.alone.is_some();
            if space.queue.relies_on_limits() && !is_limited {
                let queue = space.queue;
                return Err(format!(
                    "the queue `{queue}` has to know for how long each job runs at most: give it \
                     `--time-limit`, or `time_limit` in its file"
                ));
            }
            if let Some(why) = self.cluster.too_wide_for(job, space) {
                return Err(why);
            }
        }
        let unknown = after.iter().find(|before| self.record_of(user, **before).is_err());
        unknown.map_or(Ok(()), |before| Err(format!("there is no {before}, which it is to follow")))
    }

    fn accept(&mut self, user: User, submission: Submission) -> JobId {
        let last = self.jobs.keys().next_back().copied().max(self.numbered);
        let id = JobId(last.map_or(0, |last| last.0 + 1));
        let of_queue = |space| submission.job.longest(space);
        let of_queue = self.scheduler.config().space.as_ref().and_then(of_queue);
        let time_limit = self.time_limits.of(submission.limit(), of_queue);
        let Submission { job, after, .. } = submission;
        let name = self.free_name(&job.name, id);
        let arrival = self.now.after(job.arrival.since(SimTime(0)));
        self.jobs.insert(id, Job { id, name, arrival, ..job });
        let user = User::of(&self.jobs[&id], user);
        let record = Record { user, submitted: self.now, time_limit, after, ..Record::default() };
        self.records.insert(id, record);
        self.keep(id);
        self.tell_accepted(id);
        id
    }

    /// A name that no other job has, as like `name` as can be.
    fn free_name(&self, name: &str, id: JobId) -> String {
        let is_free = |name: &String| self.jobs.values().all(|other| other.name != *name);
        // The directory of a job that is forgotten may have the name.
        let first = Some(name.to_owned()).filter(|_| self.forgotten.is_none());
        let numbered = (1..).map(|time| match time {
            1 => format!("{name}-{}", id.0),
            _ => format!("{name}-{}-{time}", id.0),
        });
        first.into_iter().chain(numbered).find(is_free).expect("there are more names than jobs")
    }

    /// Hands jobs to the scheduler: those that are to follow others when these have succeeded, held ones when
    /// they are resumed.
    pub(super) fn release(&mut self, jobs: &[JobId]) {
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
    pub(super) fn end_early(&mut self, job: JobId, ending: Ending) {
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
        if !std::mem::replace(&mut record.held, true) {
            self.tell(Event::JobHeld { job });
            // The scheduler knows no job that waits for others, or that is being adopted.
            self.schedule(SchedulerEvent::Held { job });
        }
        Ok(())
    }

    fn resume(&mut self, user: User, job: JobId) -> Result<Reply, Refusal> {
        self.living(user, job)?;
        if std::mem::take(&mut self.records.entry(job).or_default().held) {
            self.answer_not_parked(job, "it was resumed before it had left memory");
            self.tell_limits(vec![job]);
            self.tell(Event::JobReleased { job });
            if self.scheduler.job(job).is_some() {
                self.schedule(SchedulerEvent::Released { job });
            } else if self.followers.contains(&job) {
                self.release(&[job]);
            }
        }
        Ok(Reply::Job(Box::new(self.status(job, Outlook::default()))))
    }

    /// The job could not leave memory, and goes on.
    pub(super) fn on_not_held(&mut self, job: JobId) {
        self.on_stuck(job);
        if std::mem::take(&mut self.records.entry(job).or_default().held) {
            self.tell(Event::JobReleased { job });
        }
        self.answer_not_parked(job, "it could not leave memory; the log of the cluster says why");
    }

    fn answer_not_parked(&mut self, job: JobId, why: &str) {
        for ticket in std::mem::take(&mut self.records.entry(job).or_default().parking) {
            let refusal = Refusal::CannotPark { job, why: why.into() };
            self.outputs.push(Output::Answer(ticket, Reply::Refused(refusal)));
        }
    }

    /// Answers who waits until nothing of the job is in memory, where that is so.
    pub(super) fn answer_parked(&mut self, job: JobId) {
        // A job that the scheduler has not seen is nowhere, unless it is being adopted.
        if self.adoption.is_some() {
            return;
        }
        if self.scheduler.job(job).is_some() && !self.scheduler.is_held_out(job) {
            return;
        }
        let parking = std::mem::take(&mut self.records.entry(job).or_default().parking);
        self.answer_status(job, parking);
    }

    /// Submits jobs that were to follow others, now that these have ended.
    pub(super) fn release_followers(&mut self) {
        while std::mem::take(&mut self.any_ended) {
            let followers: Vec<JobId> = self.followers.iter().copied().collect();
            self.release(&followers);
        }
    }
}

/// Whether an ordinary user may bring that job, and why not.
fn may_bring(user: User, job: &Job) -> Result<(), String> {
    if job.owner.is_none() || User::of(job, user) != user {
        return Err(format!("user {} submits jobs of their own alone", user.0));
    }
    // Jobs of a higher priority end the turns of others.
    if job.priority > 0 { Err("only root gives a priority above 0".into()) } else { Ok(()) }
}
