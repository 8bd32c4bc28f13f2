//! Carries out switches: orders to dispatchers, and the journal's account of them.

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use coswitch_dispatcher::protocol::{LaunchSpec, Order, StepDone, SwitchStep};
use coswitch_policies::{
    Bytes, Cause, CopyRule, JobId, Placement, Residence, SchedulerEvent, SimTime, SwitchAction,
    SwitchOutcome, SwitchPlan, Switching, metrics::Span,
};
use coswitch_report::journal::Event;

use super::{Output, Run};
use crate::{api::SwitchStatus, config::Job};

/// A switch under way, and the bytes it has moved so far.
pub(super) struct SwitchUnderWay {
    began: SimTime,
    switching: Switching,
    bytes_out: Bytes,
    bytes_in: Bytes,
}

impl SwitchUnderWay {
    pub(super) const fn switching(&self) -> &Switching {
        &self.switching
    }

    pub(super) fn on_displaced(&mut self, now: SimTime, job: JobId, at: Residence) -> Option<SwitchAction> {
        self.switching.on_displaced(now, job, at)
    }

    pub(super) const fn began(&self) -> SimTime {
        self.began
    }

    pub(super) fn status(&self) -> SwitchStatus {
        let SwitchPlan { switch, purpose, outgoing, incoming, .. } = self.switching.plan();
        SwitchStatus {
            switch: *switch,
            purpose: *purpose,
            began: self.began,
            outgoing: outgoing.iter().map(|outgoing| outgoing.job).collect(),
            incoming: incoming.iter().map(|incoming| incoming.job).collect(),
        }
    }

    pub(super) fn on_step(&mut self, step: &StepDone) {
        match step.step {
            SwitchStep::Dump => self.bytes_out = self.bytes_out.saturating_add(step.bytes),
            SwitchStep::Restore => self.bytes_in = self.bytes_in.saturating_add(step.bytes),
            _ => {}
        }
    }
}

impl Run {
    pub(super) fn begin_switch(&mut self, plan: SwitchPlan) {
        self.last_switch = plan.switch;
        let parked = plan.outgoing.iter().filter(|outgoing| outgoing.to == Residence::Parked);
        self.tell(Event::SwitchStarted {
            switch: plan.switch,
            purpose: plan.purpose,
            order: plan.order,
            outgoing: plan.outgoing.iter().map(|outgoing| outgoing.job).collect(),
            parked: Some(parked.map(|outgoing| outgoing.job).collect()),
            incoming: plan.incoming.iter().map(|incoming| incoming.job).collect(),
        });
        for outgoing in &plan.outgoing {
            self.running.remove(&outgoing.job);
            self.on_stopped_running(outgoing.job);
            self.communication.pause(outgoing.job);
        }
        let mut switching = Switching::new(plan);
        let action = switching.begin(self.now);
        self.switch =
            Some(SwitchUnderWay { began: self.now, switching, bytes_out: Bytes(0), bytes_in: Bytes(0) });
        self.act(action);
    }

    /// Passes the residence of a job on to the switch under way.
    pub(super) fn on_residence(&mut self, job: JobId, at: Residence, cause: Cause) {
        let Some(switch) = &mut self.switch else { return };
        let action = switch.switching.on_residence(self.now, job, at, cause);
        self.act(action);
    }

    pub(super) fn act(&mut self, action: SwitchAction) {
        match action {
            SwitchAction::Wait => {}
            SwitchAction::Give(orders) => self.admit(orders),
            SwitchAction::Over(outcome) => self.end_switch(outcome),
        }
    }

    pub(super) fn give(&mut self, orders: Vec<(JobId, Order)>) {
        orders.into_iter().for_each(|(job, order)| match order {
            Order::Launch => self.launch(job),
            _ => self.order(job, order),
        });
    }

    fn end_switch(&mut self, SwitchOutcome { misplaced, restore, exposed }: SwitchOutcome) {
        let Some(SwitchUnderWay { began, switching, bytes_out, bytes_in }) = self.switch.take() else {
            return;
        };
        self.parking.on_switch_ended(self.now.since(began));
        let plan = switching.plan();
        let switch = plan.switch;
        let moved: BTreeSet<JobId> = plan.incoming.iter().map(|incoming| incoming.job).collect();
        let others_run = self.running.iter().any(|job| !moved.contains(job));
        let exposed = exposed.filter(|_| !others_run).as_ref().map_or(Duration::ZERO, Span::length);
        let restore = restore.as_ref().map(Span::length);
        let kept = misplaced.clone();
        self.tell(Event::SwitchEnded { switch, restore, exposed, bytes_out, bytes_in, misplaced: kept });
        self.schedule(SchedulerEvent::SwitchTimed { switch, restore, exposed });
        self.schedule(if misplaced.is_empty() {
            SchedulerEvent::SwitchDone { switch }
        } else {
            SchedulerEvent::SwitchFailed { switch, misplaced }
        });
    }

    fn launch(&mut self, job: JobId) {
        let placement = self.switch.as_ref().and_then(|switch| switch.switching.placement_of(job));
        let Some(placement) = placement.cloned() else { return };
        self.tell(Event::JobLaunched { job, placement: placement.clone() });
        self.memory.on_launched(job, &placement, self.jobs[&job].memory);
        let launch = self.launch_spec(job, &placement);
        self.launched.insert(job);
        self.outputs.push(Output::Launch(job, Box::new(launch)));
    }

    /// The directory of what a job writes: of the run, or, where users bring jobs, a user's own.
    pub(super) fn output_of(&self, job: &Job) -> PathBuf {
        match &job.owner {
            Some(_) if self.settings.standing => job.cwd.join(format!("coswitch-{}", job.name)),
            _ => self.settings.out.join(&job.name),
        }
    }

    /// A rank has the environment and umask of `coswitch run`, as under any MPI launcher, and what the run
    /// file adds.
    pub(super) fn launch_spec(&self, job: JobId, placement: &Placement) -> LaunchSpec {
        let job = &self.jobs[&job];
        let mut env = self.settings.environment.clone();
        if let Some(owner) = job.owner.as_ref().filter(|_| !self.settings.standing) {
            env = owner.environment(env);
        }
        env.extend(job.env.clone());
        let mut command = vec![job.program.display().to_string()];
        command.extend(job.arguments.iter().cloned());
        LaunchSpec {
            name: job.name.clone(),
            placement: placement.by_rank().collect(),
            command,
            env: env.into_iter().collect(),
            cwd: job.cwd.clone(),
            umask: self.settings.umask,
            user: job.owner.as_ref().map(|owner| owner.ids.clone()),
            memory: job.memory,
            output: self.output_of(job),
            wait: job.wait.unwrap_or(self.wait),
            park: self.park,
            delivery: job.delivery,
            copies: CopyRule { nodes: self.cluster.nodes, copies: self.cluster.copies },
        }
    }
}
