//! The log lines of a run, for a standard error that is not a terminal.

use std::time::Duration;

use super::view::{JobState, View, rate};
use crate::{
    journal::{Event, RunEvent, SwitchStep},
    memory,
    pauses::{
        back_in_words, drained_in_words, lost_in_words, moved_in_words, not_checkpointed_in_words,
        repeats_in_words, replaced_in_words, silence_in_words, standstill_in_words, survived_in_words,
        undrained_in_words, upgraded_in_words,
    },
};

/// The log line of an event, if it has one; `view` has applied the event already.
pub fn line(view: &View, event: &RunEvent) -> Option<String> {
    let at = Duration::from_nanos(event.at.0).as_secs_f64();
    text(view, event).map(|text| format!("[{at:8.2}s] {text}"))
}

/// The same without the time.
pub(crate) fn text(view: &View, RunEvent { at, kind }: &RunEvent) -> Option<String> {
    Some(match kind {
        Event::RunStarted { run, policy, nodes, capacity, .. } => {
            format!("run {run} started: policy {policy}, {nodes} nodes of {capacity}")
        }
        Event::JobSubmitted { name, ranks, memory, .. } => {
            format!("{name} submitted: {ranks} ranks of {memory}")
        }
        Event::SlotStarted { slot, jobs, ends } => {
            let until = ends.map_or_else(String::new, |ends| format!(", {} to go", seconds(ends.since(*at))));
            format!("{slot} runs: {}{until}", view.names(jobs))
        }
        Event::SwitchStarted { switch, outgoing, incoming, .. } => {
            format!("{switch}: out {}; in {}", view.names(outgoing), view.names(incoming))
        }
        Event::StepDone {
            job,
            node,
            step: step @ (SwitchStep::Dump | SwitchStep::Restore),
            began,
            ended,
            bytes,
            ..
        } => {
            let took = ended.since(*began);
            let (name, rate) = (view.name(*job), rate(*bytes, took));
            format!("{} {name} on {node}: {bytes} in {}{rate}", step.doing(), seconds(took))
        }
        Event::JobCopied { job, node, to, bytes, took } => {
            let to: Vec<String> = to.iter().map(ToString::to_string).collect();
            let (name, to, rate) = (view.name(*job), to.join(", "), rate(*bytes, *took));
            format!("copy {name} of {node} to {to}: {bytes} in {}{rate}", seconds(*took))
        }
        Event::SwitchEnded { switch, exposed, bytes_out, bytes_in, .. } => {
            format!("{switch} done: {bytes_out} out, {bytes_in} in, {} exposed", seconds(*exposed))
        }
        Event::JobFinished { job, .. } => {
            let state = view.jobs.get(job).map_or(&JobState::Waiting, |job| &job.state);
            format!("{} ended: {}", view.name(*job), in_words(state))
        }
        Event::SetSplit(split) => memory::split_in_words(split, |job| view.name(job)),
        Event::JobOutgrew { job, node, resident, capacity } => {
            memory::outgrew_in_words(&view.name(*job), *node, *resident, *capacity)
        }
        Event::NodeLost { node, reason } => lost_in_words(*node, reason),
        Event::DaemonReplaced { node, version, pause, jobs } => {
            upgraded_in_words(*node, version, *pause, jobs.len())
        }
        Event::NodeBack { node } => back_in_words(*node),
        Event::NodeDrained { node } => drained_in_words(*node),
        Event::NodeUndrained { node } => undrained_in_words(*node),
        Event::JobMoved { job, from, to, .. } => moved_in_words(&view.name(*job), *from, *to),
        Event::ProgramSent { job, bytes, took } => {
            format!("the nodes of {} have its program: {bytes} in {}", view.name(*job), seconds(*took))
        }
        Event::JobSurvived { job, node } => survived_in_words(&view.name(*job), *node),
        Event::JobRepeats { job, work } => repeats_in_words(&view.name(*job), *work),
        Event::JobCheckpointed { job, bytes, stood_still, .. } => {
            format!(
                "{} is checkpointed: {bytes}, it stood still for {}",
                view.name(*job),
                seconds(*stood_still)
            )
        }
        Event::JobNotCheckpointed { job, reason } => not_checkpointed_in_words(&view.name(*job), reason),
        Event::NodeWasSilent { node, silence } => silence_in_words(*node, *silence),
        Event::JobsStoodStill { node, silence, frozen } => standstill_in_words(*node, *silence, *frozen),
        Event::Warning { text } => format!("warning: {text}"),
        Event::RunningStopped { node } => {
            format!("the running jobs of {node} are stopped until suspended ones have left memory")
        }
        Event::MasterReplaced { generation, jobs, .. } => replaced_in_words(*generation, jobs.len()),
        Event::JobHeld { job } => format!("{} is held by its user", view.name(*job)),
        Event::JobReleased { job } => format!("{} is held no more", view.name(*job)),
        Event::RunEnded { .. } => "run ended".into(),
        Event::DateKnown { .. }
        | Event::JobProcessed { .. }
        | Event::JobScheduled { .. }
        | Event::JobAccepted { .. }
        | Event::JobLaunched { .. }
        | Event::JobDisplaced { .. }
        | Event::JobRunning { .. }
        | Event::JobMeasured { .. }
        | Event::JobCommunicated { .. }
        | Event::SnapshotStored { .. }
        | Event::JobResident { .. }
        | Event::JobFootprint { .. }
        | Event::NodeUnderPressure { .. }
        | Event::SlicesBegun { .. }
        | Event::SlicesUsed { .. }
        | Event::SlicesBalanced { .. }
        | Event::MachineUsed(_)
        | Event::StepDone { .. }
        | Event::TurnsForeseen { .. }
        | Event::JobsPrioritized { .. }
        | Event::JobsLimited { .. }
        | Event::JobsGrouped { .. }
        | Event::TimerFired { .. }
        | Event::Progress { .. }
        | Event::Output { .. }
        | Event::MemorySample { .. }
        | Event::Summed { .. } => return None,
    })
}

fn in_words(state: &JobState) -> String {
    match state {
        JobState::Ended(outcome) if !outcome.is_success() => format!("{outcome}"),
        other => other.word().into(),
    }
}

fn seconds(span: Duration) -> String {
    format!("{:.2}s", span.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use coswitch_policies::{Bytes, JobId, NodeId, SimTime, SlotId, SwitchId};

    use super::*;

    fn line_of(kind: Event) -> Option<String> {
        let mut view = View::default();
        let name = Event::JobSubmitted {
            job: JobId(0),
            name: "cg".into(),
            ranks: 2,
            memory: Bytes::mib(30),
            alone: None,
        };
        view.on_event(&RunEvent { at: SimTime(0), kind: name });
        let event = RunEvent { at: Duration::from_millis(1500).into(), kind };
        view.on_event(&event);
        line(&view, &event)
    }

    #[test]
    fn the_line_of_a_slot_names_its_jobs_and_its_time() {
        let ends = Some(Duration::from_secs(11).into());
        let slot = Event::SlotStarted { slot: SlotId(1), jobs: vec![JobId(0)], ends };
        assert_eq!(line_of(slot).unwrap(), "[    1.50s] slot-1 runs: cg, 9.50s to go");
    }

    #[test]
    fn the_line_of_a_dump_has_its_rate() {
        let dump = Event::StepDone {
            switch: SwitchId(0),
            job: JobId(0),
            node: NodeId(1),
            step: SwitchStep::Dump,
            began: SimTime(0),
            ended: Duration::from_millis(500).into(),
            bytes: Bytes::mib(100),
        };
        assert_eq!(line_of(dump).unwrap(), "[    1.50s] dumping cg on node-1: 100MiB in 0.50s at 200MiB/s");
    }
}
