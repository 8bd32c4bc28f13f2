//! Checkpoints of running jobs, which the scheduler decides. A job runs on meanwhile, for all others.

use std::time::Duration;

use coswitch_dispatcher::protocol::{Order, StayCause};
use coswitch_policies::{Bytes, Epoch, JobId, SchedulerEvent};
use coswitch_report::journal::Event;

use super::Run;

impl Run {
    pub(super) fn checkpoint(&mut self, job: JobId) {
        let now = self.now;
        let record = self.records.entry(job).or_default();
        record.ran_at_checkpoint = Some(record.ran(now));
        self.order(job, Order::Checkpoint);
    }

    pub(super) fn on_checkpointed(&mut self, job: JobId, epoch: Epoch, bytes: Bytes, stood_still: Duration) {
        self.records.entry(job).or_default().ran_at_checkpoint = None;
        self.tell(Event::JobCheckpointed { job, epoch, bytes, stood_still });
        self.schedule(SchedulerEvent::Checkpointed { job, stood_still });
    }

    pub(super) fn on_not_checkpointed(&mut self, job: JobId, cause: &StayCause) {
        self.records.entry(job).or_default().ran_at_checkpoint = None;
        self.tell(Event::JobNotCheckpointed { job, reason: cause.to_string() });
        self.schedule(SchedulerEvent::NotCheckpointed { job });
    }
}
