//! Where each job is, when it runs next, and why: for users, and for the journal.

use std::{collections::BTreeMap, time::Duration};

use coswitch_policies::{
    JobId, NodeId, NodeWait, Outlook, Present, Residence, SimTime, Wanted, timeshare::explain,
};
use coswitch_report::{
    journal::Event,
    words::{plural, span},
};

use super::{
    Run,
    records::{Ending, Record},
    switches::SwitchUnderWay,
};
use crate::api::{JobState, JobStatus, Queue, Reason, Refusal, Reply, Timetable, User};

/// How far a forecast looks ahead for one user's question.
const FORESEEN_EVENTS_MAX: u32 = 2000;

/// How far each forecast looks ahead that is told to the journal.
const TURN_EVENTS_MAX: u32 = 200;

/// How far a timetable looks ahead at most.
const AHEAD_MAX: Duration = Duration::from_secs(3600);

impl Run {
    pub(super) fn queue(&self, user: User, all: bool) -> Reply {
        let outlooks = self.forecast(FORESEEN_EVENTS_MAX);
        let own = self.records.iter().filter(|(_, record)| record.user == user || user == User::ROOT);
        let asked = own.filter(|(_, record)| all || record.ended.is_none());
        let status = |job: JobId| self.status(job, outlooks.get(&job).copied().unwrap_or_default());
        Reply::Jobs(Queue {
            now: self.now,
            jobs: asked.map(|(job, _)| status(*job)).collect(),
            lost: self.down.keys().copied().collect(),
            drained: self.drained.keys().copied().collect(),
        })
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
        self.scheduler.forecast(self.present(events_max))
    }

    pub(super) fn timetable(&self, ahead: Duration) -> Reply {
        let until = self.now.after(ahead.min(AHEAD_MAX));
        Reply::Timetable(Timetable {
            now: self.now,
            turns: self.scheduler.timetable(self.present(FORESEEN_EVENTS_MAX), until),
            switch: self.switch.as_ref().map(SwitchUnderWay::status),
            memory: self.node_memory.values().cloned().collect(),
        })
    }

    fn present(&self, events_max: u32) -> Present {
        let left = |(job, record): (&JobId, &Record)| {
            let ran = record.ran(self.now);
            // A job that runs for longer than it does alone may end at any time, or not.
            let alone = self.jobs.get(job)?.alone.filter(|alone| *alone > ran);
            Some((*job, alone.or(record.time_limit)?.saturating_sub(ran)))
        };
        let living = self.records.iter().filter(|(_, record)| record.ended.is_none());
        Present {
            now: self.now,
            timers: self.timers.clone(),
            switch_began: self.switch.as_ref().map(SwitchUnderWay::began),
            left: living.filter_map(left).collect(),
            events_max,
        }
    }

    pub(super) fn status(&self, job: JobId, outlook: Outlook) -> JobStatus {
        let (spec, record) = (&self.jobs[&job], &self.records[&job]);
        JobStatus {
            job,
            name: spec.name.clone(),
            user: record.user,
            state: self.state(job, record),
            ranks: spec.ranks,
            memory: spec.memory,
            priority: spec.priority,
            submitted: record.submitted,
            began: record.began,
            ended: record.ended.as_ref().map(|(at, _)| *at),
            outcome: record.ended.as_ref().map(|(_, outcome)| outcome.clone()),
            ran: record.ran(self.now),
            time_limit: record.time_limit,
            after: record.after.clone(),
            outlook,
            group: self.group_of(job),
            opens: self.scheduler.node_wait(self.now, job).and_then(|wait| wait.hours()),
            output: self.output_of(spec),
        }
    }

    /// The group whose nodes the job gets.
    pub(super) fn group_of(&self, job: JobId) -> Option<String> {
        let space = self.scheduler.config().space.as_ref()?;
        space.group_name(self.jobs[&job].home(space).ok()?).map(Into::into)
    }

    /// The queue in which the job waits.
    pub(super) fn queue_of(&self, job: JobId) -> Option<String> {
        let space = self.scheduler.config().space.as_ref()?;
        space.queue_name(self.jobs[&job].home(space).ok()?).map(Into::into)
    }

    fn state(&self, job: JobId, record: &Record) -> JobState {
        match &record.ended {
            Some((_, outcome)) if outcome.is_success() => return JobState::Done,
            Some(_) if record.ending == Some(Ending::Cancelled) => return JobState::Cancelled,
            Some(_) => return JobState::Failed,
            None if self.running.contains(&job) => return JobState::Running,
            None => {}
        }
        if record.held && (self.scheduler.job(job).is_none() || self.scheduler.is_held_out(job)) {
            return JobState::Held;
        }
        match self.scheduler.job(job).map(|state| state.observed) {
            Some(Residence::Parked) => JobState::Parked,
            // On its way out of a turn, or into one.
            Some(Residence::Suspended | Residence::Running) => JobState::Suspended,
            _ => JobState::Waiting,
        }
    }

    pub(super) fn why(&self, user: User, job: JobId) -> Result<Reply, Refusal> {
        let record = self.record_of(user, job)?;
        let name = self.jobs[&job].name.clone();
        let text = match &record.ended {
            Some((_, outcome)) => format!("it has ended: {outcome}"),
            None => self.why_living(job, record),
        };
        Ok(Reply::Why(Reason { job, name, text }))
    }

    /// Why a job waits for nodes of its own.
    fn why_queued(&self, wait: NodeWait) -> String {
        let hours = wait.hours().map_or(String::new(), |hours| format!("{hours}: "));
        let NodeWait { queue, group, needs, free, ahead, starts_by, .. } = wait;
        let own = group.map_or("of its own".into(), |group| format!("of the group `{group}`"));
        let (nodes, jobs) = (plural(needs as usize, "node"), plural(ahead as usize, "job"));
        let are = if free == 1 { "is" } else { "are" };
        let ahead = match ahead {
            0 => "it is the first".into(),
            _ => format!("{jobs} came before it"),
        };
        let starts =
            starts_by.map(|at| format!("; it starts within {} at the latest", span(at.since(self.now))));
        let starts = starts.unwrap_or_default();
        format!(
            "{hours}it needs {nodes} {own}, and {free} {are} free; in the queue `{queue}` {ahead}{starts}"
        )
    }

    fn why_it_waits_for(&self, job: JobId, nodes: &[NodeId]) -> String {
        let (lost, drained): (Vec<NodeId>, Vec<NodeId>) =
            nodes.iter().partition(|node| self.down.contains_key(node));
        let listed = |nodes: &[NodeId], what: &str| {
            let names: Vec<String> = nodes.iter().map(ToString::to_string).collect();
            let are = if nodes.len() > 1 { "are" } else { "is" };
            (!nodes.is_empty()).then(|| format!("{}, which {are} {what}", names.join(" and ")))
        };
        let nodes = [listed(&lost, "down"), listed(&drained, "drained")];
        let nodes: Vec<String> = nodes.into_iter().flatten().collect();
        let snapshot = self.scheduler.job(job).is_some_and(|state| state.observed == Residence::Parked);
        let why = if snapshot { "its snapshot lies there" } else { "it is too large for the others" };
        format!("it waits for {}: {why}", nodes.join(", and for "))
    }

    fn why_living(&self, job: JobId, record: &Record) -> String {
        if self.state(job, record) == JobState::Held {
            return format!("its user holds it; `coswitch resume {}` lets it go on", job.0);
        }
        let awaited = self.scheduler.awaited_nodes(job);
        if !awaited.is_empty() {
            return self.why_it_waits_for(job, &awaited);
        }
        if self.followers.contains(&job) {
            let ended = |job: &&JobId| self.records.get(job).is_none_or(|record| record.ended.is_none());
            let open: Vec<String> = record.after.iter().filter(ended).map(ToString::to_string).collect();
            return format!("it waits until {} has succeeded", open.join(" and "));
        }
        if let Some(wait) = self.scheduler.node_wait(self.now, job) {
            return self.why_queued(wait);
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
        if let Some(priority) = self.scheduler.outranked(job) {
            let own = self.scheduler.priority(job);
            return format!(
                "it is {state}, with priority {own}: jobs of priority {priority} have all turns, and it fits \
                 beside none of them ({place})"
            );
        }
        match (state, wanted, others) {
            (JobState::Running, ..) => format!("it has its turn ({place})"),
            (_, Some(Wanted::In { .. }), _) => format!("its turn begins ({place})"),
            (_, Some(Wanted::Out { .. }), Some(others)) => {
                format!("it is {state}: now is the turn of {others} ({place})")
            }
            (JobState::Parked, Some(Wanted::Queued), _) => {
                "it is parked, and comes back when the nodes that have its snapshot are free".into()
            }
            (_, Some(Wanted::Queued), _) => format!("no set has room for it; it {place}"),
            (_, Some(Wanted::Gone), _) => "it is being ended".into(),
            _ => format!("it is {state} ({place})"),
        }
    }
}
