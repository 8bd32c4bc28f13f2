//! A run as plain lines, for logs and where standard error is no terminal.

use std::time::Duration;

use super::view::{JobState, View, rate};
use crate::{
    journal::{Event, Phase, RunEvent},
    report::memory,
};

/// The line for what happened, where it deserves one; `view` has taken it in already.
pub(crate) fn tell(view: &View, RunEvent { at, kind }: &RunEvent) -> Option<String> {
    let text = match kind {
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
        Event::PhaseDone {
            job,
            node,
            phase: phase @ (Phase::Dump | Phase::Restore),
            began,
            ended,
            bytes,
            ..
        } => {
            let took = ended.since(*began);
            let (name, rate) = (view.name(*job), rate(*bytes, took));
            format!("{} {name} on {node}: {bytes} in {}{rate}", phase.doing(), seconds(took))
        }
        Event::SwitchEnded { switch, exposed, bytes_out, bytes_in, .. } => {
            format!("{switch} done: {bytes_out} out, {bytes_in} in, {} exposed", seconds(*exposed))
        }
        Event::JobFinished { job, .. } => {
            let state = view.jobs.get(job).map_or(&JobState::Waiting, |job| &job.state);
            format!("{} ended: {}", view.name(*job), in_words(state))
        }
        Event::SetSplit(split) => memory::split_in_words(split, |job| view.name(job)),
        Event::JobOutgrew { job, node, held, capacity } => {
            memory::outgrew_in_words(&view.name(*job), *node, *held, *capacity)
        }
        Event::Warning { text } => format!("warning: {text}"),
        Event::RunEnded { .. } => "run ended".into(),
        Event::JobLaunched { .. }
        | Event::JobRunning { .. }
        | Event::JobMeasured { .. }
        | Event::JobCommunicated { .. }
        | Event::SnapshotStored { .. }
        | Event::JobHeld { .. }
        | Event::NodePressed { .. }
        | Event::MachineUsed(_)
        | Event::PhaseDone { .. }
        | Event::TimerFired { .. }
        | Event::Progress { .. }
        | Event::Output { .. }
        | Event::MemorySample { .. } => return None,
    };
    let at = Duration::from_nanos(at.0).as_secs_f64();
    Some(format!("[{at:8.2}s] {text}"))
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
    use super::*;
    use coswitch_policies::{Bytes, JobId, NodeId, SimTime, SlotId, SwitchId};

    fn line(kind: Event) -> Option<String> {
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
        tell(&view, &event)
    }

    #[test]
    fn a_slot_says_who_runs_and_how_long() {
        let ends = Some(Duration::from_secs(11).into());
        let slot = Event::SlotStarted { slot: SlotId(1), jobs: vec![JobId(0)], ends };
        assert_eq!(line(slot).unwrap(), "[    1.50s] slot-1 runs: cg, 9.50s to go");
    }

    #[test]
    fn a_dump_says_how_fast_it_was() {
        let dump = Event::PhaseDone {
            switch: SwitchId(0),
            job: JobId(0),
            node: NodeId(1),
            phase: Phase::Dump,
            began: SimTime(0),
            ended: Duration::from_millis(500).into(),
            bytes: Bytes::mib(100),
        };
        assert_eq!(line(dump).unwrap(), "[    1.50s] dumping cg on node-1: 100MiB in 0.50s at 200MiB/s");
    }
}
