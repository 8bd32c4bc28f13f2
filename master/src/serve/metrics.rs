//! What a site's monitoring reads: counters and gauges of the cluster, in OpenMetrics, from its events.

use std::{collections::BTreeSet, sync::atomic::AtomicU64};

use axum::{
    http::StatusCode,
    response::{IntoResponse, Response},
};
use coswitch_policies::{
    JobId, NodeId,
    local::{ByKind, ProcessClass, Used},
};
use coswitch_report::journal::Event;
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::{Registry, Unit},
};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type Seconds = Counter<f64, AtomicU64>;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct State {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Node {
    node: String,
}

/// The time of tasks on a node, as its scheduler counts it; the states overlap.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NodeState {
    node: String,
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NodeClass {
    node: String,
    class: &'static str,
}

/// The numbers, kept up to date event by event.
#[derive(Debug, Default)]
pub(super) struct Metrics {
    jobs: Family<State, Gauge>,
    submitted: Counter,
    ended: Family<Outcome, Counter>,
    switches: Counter,
    exposed: Seconds,
    dumped: Counter,
    restored: Counter,
    used: Family<Node, Gauge>,
    capacity: Family<Node, Gauge>,
    tasks: Family<NodeState, Seconds>,
    slots: Family<NodeClass, Counter>,
    local_ready: Family<Node, Seconds>,
    warnings: Counter,
    living: BTreeSet<JobId>,
    running: BTreeSet<JobId>,
}

impl Metrics {
    /// The numbers, and the registry that writes them.
    pub(super) fn new() -> (Self, Registry) {
        let metrics = Self::default();
        let mut all = Registry::with_prefix("coswitch");
        all.register("jobs", "Jobs that have not ended, by whether they run", metrics.jobs.clone());
        all.register("jobs_submitted", "Jobs that were submitted", metrics.submitted.clone());
        all.register("jobs_ended", "Jobs that have ended", metrics.ended.clone());
        all.register("switches", "Switches that have ended", metrics.switches.clone());
        let exposed = "Time in which no job computed because of a switch";
        all.register_with_unit("switch_exposed", exposed, Unit::Seconds, metrics.exposed.clone());
        all.register_with_unit("dumped", "Written by dumps", Unit::Bytes, metrics.dumped.clone());
        all.register_with_unit("restored", "Read by restores", Unit::Bytes, metrics.restored.clone());
        let used = "Memory that the jobs of a node hold";
        all.register_with_unit("node_memory_used", used, Unit::Bytes, metrics.used.clone());
        let capacity = "Memory that a node offers to jobs";
        all.register_with_unit("node_memory_capacity", capacity, Unit::Bytes, metrics.capacity.clone());
        let tasks = "Time of the tasks of a node by its scheduler: with a processor, ready without one, \
                     overtaken for the sake of coscheduling; coscheduled, and not although that was possible";
        all.register_with_unit("node_tasks", tasks, Unit::Seconds, metrics.tasks.clone());
        let slots = "Slots of their own that the tasks of a node have begun, by class, under fcs";
        all.register("node_task_slots", slots, metrics.slots.clone());
        let ready = "Time in which local tasks of a node were ready; its rate is the load index";
        all.register_with_unit("node_local_ready", ready, Unit::Seconds, metrics.local_ready.clone());
        all.register("warnings", "Warnings of the master", metrics.warnings.clone());
        metrics.show_jobs();
        (metrics, all)
    }

    pub(super) fn on_event(&mut self, event: &Event) {
        match event {
            Event::RunStarted { capacity, nodes, .. } => {
                for node in (0..*nodes).map(NodeId) {
                    let offered = gauge(capacity.on(node).0);
                    self.capacity.get_or_create(&Node { node: node.to_string() }).set(offered);
                }
            }
            Event::JobSubmitted { job, .. } => {
                self.submitted.inc();
                self.living.insert(*job);
            }
            Event::JobRunning { job } => drop(self.running.insert(*job)),
            Event::SwitchStarted { outgoing, .. } => {
                self.running.retain(|job| !outgoing.contains(job));
            }
            Event::SwitchEnded { exposed, bytes_out, bytes_in, .. } => {
                self.switches.inc();
                self.exposed.inc_by(exposed.as_secs_f64());
                self.dumped.inc_by(bytes_out.0);
                self.restored.inc_by(bytes_in.0);
            }
            Event::JobFinished { job, outcome, .. } => {
                let outcome = if outcome.is_success() { "succeeded" } else { "failed" };
                self.ended.get_or_create(&Outcome { outcome }).inc();
                self.living.remove(job);
                self.running.remove(job);
            }
            Event::MemorySample { node, used, .. } => {
                self.used.get_or_create(&Node { node: node.to_string() }).set(gauge(used.0));
            }
            Event::JobScheduled { node, counted: ByKind { distributed, local }, .. } => {
                self.on_counted(*node, distributed);
                self.on_counted(*node, local);
                let ready = local.account.ready().as_secs_f64();
                self.local_ready.get_or_create(&Node { node: node.to_string() }).inc_by(ready);
            }
            Event::Warning { .. } => drop(self.warnings.inc()),
            _ => return,
        }
        self.show_jobs();
    }

    fn on_counted(&self, node: NodeId, Used { account, slots, .. }: &Used) {
        for class in ProcessClass::ALL.into_iter().filter(|class| slots.of(*class) > 0) {
            let labels = NodeClass { node: node.to_string(), class: class.word() };
            self.slots.get_or_create(&labels).inc_by(slots.of(class));
        }
        let states = [
            ("executed", account.executed),
            ("ready", account.waited),
            ("delayed", account.delayed),
            ("coscheduled", account.coscheduled),
            ("thrashed", account.thrashed),
        ];
        for (state, time) in states {
            let labels = NodeState { node: node.to_string(), state };
            self.tasks.get_or_create(&labels).inc_by(time.as_secs_f64());
        }
    }

    fn show_jobs(&self) {
        let (running, living) = (self.running.len() as u64, self.living.len() as u64);
        self.jobs.get_or_create(&State { state: "running" }).set(gauge(running));
        self.jobs.get_or_create(&State { state: "not-running" }).set(gauge(living.saturating_sub(running)));
    }
}

/// The numbers as an answer to a request.
pub(super) fn answer(registry: &Registry) -> Response {
    let mut text = String::new();
    match encode(&mut text, registry) {
        Ok(()) => ([("content-type", OPEN_METRICS)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

fn gauge(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use coswitch_policies::{
        Bytes, SwitchId,
        local::{Account, ClassSlots},
    };
    use coswitch_report::journal::JobOutcome;

    use super::*;

    #[test]
    fn the_numbers_follow_the_events() {
        let (mut metrics, registry) = Metrics::new();
        let (name, memory) = (String::new(), Bytes(1));
        for job in [JobId(0), JobId(1)] {
            let name = name.clone();
            metrics.on_event(&Event::JobSubmitted { job, name, ranks: 1, memory, alone: None });
            metrics.on_event(&Event::JobRunning { job });
        }
        metrics.on_event(&Event::MemorySample {
            node: NodeId(1),
            used: Bytes(77),
            by_job: vec![],
            looks: 1,
            peak: Bytes(77),
        });
        metrics.on_event(&Event::SwitchEnded {
            switch: SwitchId(0),
            restore: None,
            exposed: Duration::from_millis(250),
            bytes_out: Bytes(10),
            bytes_in: Bytes(20),
            misplaced: vec![],
        });
        let seconds = Duration::from_secs;
        let account = Account { executed: seconds(4), waited: seconds(2), ..Account::default() };
        let slots = ClassSlots { coscheduled: 3, frustrated: 0, dont_care: 1 };
        let used = Used { account, slots, ..Used::default() };
        let counted = ByKind { distributed: used, local: used };
        metrics.on_event(&Event::JobScheduled { job: JobId(0), node: NodeId(1), counted });
        let (outcome, last_output) = (JobOutcome::Exit(0), String::new());
        metrics.on_event(&Event::JobFinished { job: JobId(0), outcome, last_output });
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            "coswitch_jobs{state=\"running\"} 1",
            "coswitch_jobs{state=\"not-running\"} 0",
            "coswitch_jobs_submitted_total 2",
            "coswitch_jobs_ended_total{outcome=\"succeeded\"} 1",
            "coswitch_switch_exposed_seconds_total 0.25",
            "coswitch_dumped_bytes_total 10",
            "coswitch_node_memory_used_bytes{node=\"node-1\"} 77",
            "coswitch_node_tasks_seconds_total{node=\"node-1\",state=\"executed\"} 8.0",
            "coswitch_node_tasks_seconds_total{node=\"node-1\",state=\"thrashed\"} 0.0",
            "coswitch_node_task_slots_total{node=\"node-1\",class=\"CS\"} 6",
            "coswitch_node_task_slots_total{node=\"node-1\",class=\"DC\"} 2",
            "coswitch_node_local_ready_seconds_total{node=\"node-1\"} 6.0",
            "# EOF",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
    }
}
