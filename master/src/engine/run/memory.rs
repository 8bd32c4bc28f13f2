//! Handles what nodes report: the memory of their jobs, and their pauses.

use coswitch_dispatcher::protocol::{self as app, MemoryUse, NodeEvent, SliceUse, StoodStill};
use coswitch_policies::{
    Bytes, JobId, NodeId,
    timeshare::memory_monitor::{Finding, JobSample, Stage},
};
use coswitch_report::journal::{Event, JobMemory};

use super::Run;
use crate::api::NodeMemory;

impl Run {
    pub(super) fn on_node(&mut self, event: NodeEvent) {
        match event {
            NodeEvent::Memory { node, memory } => self.on_memory(node, &memory),
            NodeEvent::Slices { node, slices: SliceUse { switches, took, overlap } } => {
                self.tell(Event::SlicesUsed { node, switches, took, overlap });
            }
            NodeEvent::Load { node, index } => self.on_load(node, index),
            NodeEvent::Allowed { node, exceeded } => self.on_allowed(node, exceeded),
            NodeEvent::Silent { node } => self.warn(format!("{node} is silent; the run waits for it")),
            NodeEvent::Heard { node, silence } => self.tell(Event::NodeWasSilent { node, silence }),
            NodeEvent::StoodStill { node, stood_still: StoodStill { silence, frozen } } => {
                let communication = &mut self.communication;
                self.running.iter().for_each(|job| communication.pause(*job));
                self.tell(Event::JobsStoodStill { node, silence, frozen });
            }
            NodeEvent::Lost { node, reason } => self.on_node_lost(node, reason),
            NodeEvent::Back { node } => {
                self.strobe_again();
                self.on_node_back(node);
            }
            NodeEvent::NotBack { node, reason } => self.on_node_not_back(node, &reason),
            NodeEvent::Replaced { node, replaced } => {
                self.strobe_again();
                self.on_replaced(node, replaced);
            }
            NodeEvent::NotReplaced { node, reason } => self.on_not_replaced(node, reason),
        }
    }

    fn on_memory(&mut self, node: NodeId, memory: &MemoryUse) {
        let MemoryUse { used, stall, stopped, jobs, looks, peak } = memory;
        self.parking.on_memory(node, *used);
        let told = |memory: &app::JobMemory| JobMemory {
            job: memory.job,
            used: memory.used,
            swapped: memory.swapped,
            major_faults: memory.major_faults,
        };
        let by_job: Vec<JobMemory> = jobs.iter().map(told).collect();
        let seen = NodeMemory { node, used: *used, by_job: by_job.clone() };
        self.node_memory.insert(node, seen);
        // Once is enough that a node is empty: a cluster may stand idle for days.
        let was_empty =
            if by_job.is_empty() { !self.empty_nodes.insert(node) } else { self.empty_nodes.remove(&node) };
        if !(was_empty && by_job.is_empty()) {
            self.tell(Event::MemorySample { node, used: *used, by_job, looks: *looks, peak: *peak });
        }
        let sample = |memory: &app::JobMemory| JobSample {
            job: memory.job,
            resident: memory.held,
            major_faults: memory.major_faults,
            stage: self.stage(memory.job),
        };
        let samples: Vec<JobSample> = jobs.iter().map(sample).collect();
        let found = self.memory.on_sample(self.now, node, *used, *stall, &samples);
        let stopped = self.memory.on_look(self.now, node, *stopped);
        found.into_iter().chain(stopped).for_each(|finding| self.on_finding(finding));
    }

    fn stage(&self, job: JobId) -> Stage {
        match self.running.contains(&job) {
            true => Stage::Runs,
            false if self.resting.contains(&job) => Stage::Rests,
            false => Stage::Moves,
        }
    }

    /// A job left memory, and its images have so many bytes.
    pub(super) fn on_dumped(&mut self, job: JobId, node: NodeId, image: Bytes) {
        let found = self.memory.on_dumped(job, node, image);
        found.into_iter().for_each(|finding| self.on_finding(finding));
    }

    fn on_finding(&mut self, finding: Finding) {
        self.tell(match finding {
            Finding::Resident { job, node, resident } => Event::JobResident { job, node, resident },
            Finding::MemoryPressure { node, pressure } => Event::NodeUnderPressure { node, pressure },
            Finding::Footprint { job, node, resident, growth, exact } => {
                Event::JobFootprint { job, node, resident, growth, exact }
            }
            Finding::RunningStopped { node } => Event::RunningStopped { node },
        });
        self.schedule(finding.into());
    }
}
