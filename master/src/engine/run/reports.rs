//! Handles what dispatchers report: where a job is, what it communicates, how it ended.

use coswitch_dispatcher::protocol::{
    AppOutcome, Exit, Park, RankTraffic, Report, StayCause, StepDone, SwitchStep,
};
use coswitch_policies::{Cause, JobId, Residence, SchedulerEvent};
use coswitch_report::journal::{Event, JobOutcome};

use super::Run;
use crate::engine::communication::Measured;

impl Run {
    pub(super) fn on_report(&mut self, job: JobId, report: Report) {
        let Some(report) = self.on_adoption_report(job, report) else { return };
        match report {
            Report::Unlaunched => self.on_displaced(job, Residence::Unlaunched),
            Report::Displaced { why } => {
                self.warn(format!("{job} rests at its snapshots: {why}"));
                self.on_displaced(job, Residence::Parked);
            }
            Report::Sent { bytes, took } => self.tell(Event::ProgramSent { job, bytes, took }),
            Report::Survived { node } => self.tell(Event::JobSurvived { job, node }),
            Report::WentBack { epoch, why } => {
                // What was to be sealed is void.
                self.parking.forget(job);
                self.warn(format!("{job} goes back to {epoch}: {why}"));
                self.tell_repeated(job, Some(epoch.0));
            }
            Report::Checkpointed { epoch, bytes, stood_still } => {
                self.on_checkpointed(job, epoch, bytes, stood_still);
            }
            Report::NotCheckpointed { cause } => self.on_not_checkpointed(job, &cause),
            Report::Running => self.on_running(job, Cause::Failed),
            Report::Suspended => self.on_suspended(job, Cause::Failed),
            Report::Parked => self.on_residence(job, Residence::Parked, Cause::Failed),
            Report::StillRunning { cause } => {
                self.warn(format!("{job} could not leave and runs on: {cause}"));
                self.on_running(job, cause_of(&cause));
            }
            Report::StillSuspended { cause } => {
                self.warn(format!("{job} could not leave memory and is suspended: {cause}"));
                self.on_suspended(job, cause_of(&cause));
            }
            Report::Ended(outcome) => self.on_ended(job, outcome),
            Report::StepDone(step) => self.on_step(job, &step),
            Report::Mended { what } => {
                self.parking.forget(job);
                self.warn(format!("{job}: {what}"));
            }
            Report::Progress { node, step, bytes, total } => {
                self.tell(Event::Progress { job, node, step, bytes, total });
            }
            Report::Stored { node, root, bytes, epoch } => {
                self.parking.on_sealed(job, node);
                let now = self.now;
                self.records.entry(job).or_default().saved(now, epoch.0);
                self.tell(Event::SnapshotStored { job, node, root, bytes });
            }
            Report::Copied { node, epoch: _, to, bytes, took } => self.on_copied(job, node, to, bytes, took),
            Report::NotCopied { node, epoch, reason } => self.on_not_copied(job, node, epoch, &reason),
            Report::Moved { from, to, placement } => self.on_moved(job, from, to, placement),
            Report::NotMoved { from, why } => self.on_not_moved(job, from, &why),
            Report::Traffic { ranks, .. } => self.on_traffic(job, &ranks),
            Report::Processed { node, group, used } => {
                self.tell(Event::JobProcessed { job, node, group, used });
            }
            Report::Scheduled { node, counted } => {
                self.tell(Event::JobScheduled { job, node, counted: *counted });
            }
        }
    }

    fn on_running(&mut self, job: JobId, cause: Cause) {
        self.running.insert(job);
        self.resting.remove(&job);
        self.on_began_running(job);
        self.tell(Event::JobRunning { job });
        self.on_residence(job, Residence::Running, cause);
    }

    fn on_suspended(&mut self, job: JobId, cause: Cause) {
        self.resting.insert(job);
        self.on_residence(job, Residence::Suspended, cause);
    }

    fn on_traffic(&mut self, job: JobId, ranks: &[RankTraffic]) {
        self.communication.count(job, ranks);
        if !self.running.contains(&job) {
            return self.communication.pause(job);
        }
        if let Some(measured) = self.communication.on_traffic(self.now, job, ranks) {
            let Measured { communication, bytes_per_second, ranks } = measured;
            self.tell(Event::JobMeasured { job, communication, bytes_per_second, ranks });
            self.schedule(SchedulerEvent::Measured { job, communication });
        }
    }

    fn on_ended(&mut self, job: JobId, outcome: AppOutcome) {
        self.running.remove(&job);
        self.resting.remove(&job);
        self.launched.remove(&job);
        self.moving.remove(&job);
        self.partners.retain(|(of, _), _| *of != job);
        self.memory.on_ended(job);
        self.parking.forget(job);
        let counted = self.communication.forget(job);
        self.tell(counted);
        let was_stopped = outcome == AppOutcome::Stopped;
        let (outcome, last_output) = job_outcome(outcome);
        let asked_for = self.ending_of(job).filter(|_| was_stopped);
        self.end(job, asked_for.unwrap_or(outcome), last_output);
    }

    /// Nothing of the job is left.
    pub(super) fn end(&mut self, job: JobId, outcome: JobOutcome, last_output: String) {
        let (event, at) = if outcome.is_success() {
            (SchedulerEvent::Finished { job }, Residence::Finished)
        } else {
            (SchedulerEvent::Failed { job }, Residence::Failed)
        };
        self.tell_end(job, outcome, last_output);
        // A job that was never submitted is no concern of the scheduler.
        if self.scheduler.job(job).is_some() {
            self.schedule(event);
            self.on_residence(job, at, Cause::Failed);
        } else if self.records.values().all(|record| record.ended.is_some()) {
            // Nor does it say then that this was the last one.
            self.all_done = true;
        }
    }

    pub(super) fn tell_end(&mut self, job: JobId, outcome: JobOutcome, last_output: String) {
        self.any_failed |= !outcome.is_success();
        self.tell(Event::JobFinished { job, outcome: outcome.clone(), last_output });
        self.on_end_of(job, outcome);
    }

    fn on_step(&mut self, job: JobId, step: &StepDone) {
        if let Some(switch) = &mut self.switch {
            switch.on_step(step);
        }
        if self.park == Park::Criu {
            self.parking.on_step(job, *step);
        }
        let StepDone { node, step, took, bytes } = *step;
        let (switch, step) = (self.last_switch, step);
        let (began, ended) = (self.now.before(took), self.now);
        self.tell(Event::StepDone { switch, job, node, step, began, ended, bytes });
        if step == SwitchStep::Dump {
            self.on_dumped(job, node, bytes);
        }
    }
}

const fn cause_of(cause: &StayCause) -> Cause {
    match cause {
        // Neither counts towards giving the job up.
        StayCause::StoreFull { .. } | StayCause::Ending => Cause::NoRoom,
        StayCause::Failed { .. } => Cause::Failed,
    }
}

/// The end of an application in the journal's words, and its last output.
fn job_outcome(outcome: AppOutcome) -> (JobOutcome, String) {
    let failed = |text: String| JobOutcome::Failed(text);
    match outcome {
        AppOutcome::Succeeded => (JobOutcome::Exit(0), String::new()),
        AppOutcome::RankFailed { rank, exit, last_output } => {
            let outcome = match exit {
                Exit::Status(status) => JobOutcome::Exit(status),
                Exit::Signal(signal) => JobOutcome::Signal(signal),
                Exit::OutOfMemory => failed(format!(
                    "rank {rank} was killed by the kernel: the memory of its node was used up"
                )),
                Exit::NotStarted(reason) => failed(format!("rank {rank} did not start: {reason}")),
                Exit::Aborted(code) => failed(format!("rank {rank} called MPI_Abort with code {code}")),
            };
            (outcome, last_output)
        }
        AppOutcome::Lost { reason } => (failed(reason), String::new()),
        AppOutcome::Stopped => (failed("stopped".into()), String::new()),
    }
}
