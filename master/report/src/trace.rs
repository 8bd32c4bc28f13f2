//! Runs in the trace event format, which Perfetto and Chrome's tracing read.
//!
//! Each run has one process for its jobs (a thread for the life of each job), one process for each node (for
//! each job a thread for the steps of its switches and another for its seals, which overlap them), and
//! counters of the nodes' memory. Times are in microseconds.

use coswitch_policies::{JobId, NodeId, SimTime, metrics::Span};
use serde_json::{Value, json};

use crate::{
    history::{History, Sample, StepHistory},
    journal::{Event, RunEvent, SwitchStep},
};

const PROCESSES_PER_RUN: u32 = 10_000;

#[must_use]
pub fn trace(journals: &[Vec<RunEvent>]) -> String {
    let events: Vec<Value> =
        (0..).zip(journals).flat_map(|(number, events)| run(number * PROCESSES_PER_RUN, events)).collect();
    json!({"displayTimeUnit": "ms", "traceEvents": events}).to_string()
}

fn run(base: u32, events: &[RunEvent]) -> Vec<Value> {
    let history = History::of(events);
    let name = events.iter().find_map(|event| match &event.kind {
        Event::RunStarted { name, .. } => Some(name.clone()),
        _ => None,
    });
    let name = name.unwrap_or_else(|| "run".into());
    let mut trace = vec![process(base, &format!("{name}: jobs"))];
    for (job, life) in &history.lives.jobs {
        trace.push(thread(base, job.0, &history.name(*job)));
        let stays = life
            .stays
            .iter()
            .map(|stay| slice(base, job.0, &json!(stay.stage), "job", stay.span, &json!({})));
        trace.extend(stays);
    }
    for node in (0..history.nodes).map(NodeId) {
        trace.push(process(pid(base, node), &format!("{name}: {node}")));
        for job in history.jobs.keys() {
            let name = history.name(*job);
            trace.push(thread(pid(base, node), tid(*job, false), &name));
            trace.push(thread(pid(base, node), tid(*job, true), &format!("{name} seal")));
        }
    }
    trace.extend(history.steps.iter().map(|step| step_slice(base, step)));
    for (node, samples) in &history.samples {
        trace.extend(samples.iter().map(|sample| counter(&history, pid(base, *node), sample)));
    }
    trace
}

fn pid(base: u32, node: NodeId) -> u32 {
    base + 1 + node.0
}

fn tid(job: JobId, seals: bool) -> u32 {
    2 * job.0 + u32::from(seals)
}

fn step_slice(base: u32, step: &StepHistory) -> Value {
    let arguments = json!({"switch": step.switch.0, "bytes": step.bytes.0});
    let thread = tid(step.job, step.step == SwitchStep::Seal);
    slice(pid(base, step.node), thread, &json!(step.step), "switch", step.span, &arguments)
}

fn process(pid: u32, name: &str) -> Value {
    json!({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}})
}

fn thread(pid: u32, tid: u32, name: &str) -> Value {
    json!({"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}})
}

fn slice(pid: u32, tid: u32, name: &Value, category: &str, span: Span, arguments: &Value) -> Value {
    let (from, length) = (micros(span.from), micros(span.to) - micros(span.from));
    json!({
        "ph": "X", "name": name, "cat": category, "pid": pid, "tid": tid,
        "ts": from, "dur": length, "args": arguments,
    })
}

fn counter(history: &History, pid: u32, sample: &Sample) -> Value {
    // A job that holds no memory is written as 0: a counter keeps its last value.
    let used = |job: &JobId| {
        let used = sample.by_job.iter().find(|memory| memory.job == *job).map_or(0, |memory| memory.used.0);
        (history.name(*job), json!(used))
    };
    let arguments: serde_json::Map<String, Value> = history.jobs.keys().map(used).collect();
    json!({"ph": "C", "name": "memory (bytes)", "pid": pid, "ts": micros(sample.at), "args": arguments})
}

fn micros(at: SimTime) -> f64 {
    at.0 as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fold::tests::two_jobs_in_turn;

    #[test]
    fn each_stay_and_sample_is_an_event() {
        let trace: Value = serde_json::from_str(&trace(&[two_jobs_in_turn()])).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let of = |phase: &str| events.iter().filter(|event| event["ph"] == phase).count();
        assert_eq!(of("C"), 2);
        let running: f64 = events
            .iter()
            .filter(|event| event["name"] == "running" && event["tid"] == 0)
            .map(|event| event["dur"].as_f64().unwrap())
            .sum();
        assert!((running - 15e6).abs() < 1.0, "{running} µs");
    }
}
