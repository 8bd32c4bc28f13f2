//! Handles what nodes report: the memory of their jobs, their pauses, and their loss.

use coswitch_dispatcher::protocol::{self as app, MemoryUse, NodeEvent, StoodStill};
use coswitch_policies::{
    NodeId, SchedulerEvent,
    timeshare::memory_monitor::{Finding, JobSample},
};
use coswitch_report::journal::{Event, JobMemory, RunOutcome};

use super::{Output, Run};

impl Run {
    pub(super) fn on_node(&mut self, event: NodeEvent) {
        match event {
            NodeEvent::Memory { node, memory } => self.on_memory(node, &memory),
            NodeEvent::Silent { node } => self.warn(format!("{node} is silent; the run waits for it")),
            NodeEvent::Heard { node, silence } => self.tell(Event::NodeWasSilent { node, silence }),
            NodeEvent::StoodStill { node, stood_still: StoodStill { silence, frozen } } => {
                let communication = &mut self.communication;
                self.running.iter().for_each(|job| communication.pause(*job));
                self.tell(Event::JobsStoodStill { node, silence, frozen });
            }
            // The jobs of a lost node cannot be taken up elsewhere yet.
            NodeEvent::Lost { node, reason } => {
                self.warn(format!("{node} was lost: {reason}; the run ends"));
                self.outputs.push(Output::Over(RunOutcome::Aborted));
            }
        }
    }

    fn on_memory(&mut self, node: NodeId, MemoryUse { used, stall, jobs, .. }: &MemoryUse) {
        let by_job = jobs.iter().map(|memory| JobMemory { job: memory.job, used: memory.used }).collect();
        self.tell(Event::MemorySample { node, used: *used, by_job });
        let sample = |memory: &app::JobMemory| JobSample {
            job: memory.job,
            resident: memory.held,
            major_faults: memory.major_faults,
            runs: self.running.contains(&memory.job),
        };
        let samples: Vec<JobSample> = jobs.iter().map(sample).collect();
        for finding in self.memory.on_sample(self.now, node, *used, *stall, &samples) {
            match finding {
                Finding::Resident { job, node, resident } => {
                    self.tell(Event::JobResident { job, node, resident });
                    self.schedule(SchedulerEvent::Resident { job, node, resident });
                }
                Finding::MemoryPressure { node, pressure } => {
                    self.tell(Event::NodeUnderPressure { node, pressure });
                    self.schedule(SchedulerEvent::MemoryPressure { node });
                }
            }
        }
    }
}
