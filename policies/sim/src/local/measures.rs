//! Metrics of a run by name: those of the CMC model (thesis §2.2.2, formulas 2.4-2.9) and the times of the
//! TIMES figures (ch. 4), of the system, of each node, of each task. All times are in time units.

use std::{fmt::Write, time::Duration};

use coswitch_policies::local::Account;
use serde::{Deserialize, Serialize};

use super::{LocalReport, Times, UNIT};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeMeasures {
    pub node: u32,
    /// Tasks that ended on it.
    pub tasks: usize,
    /// *NodeCoDe*; none where no task communicated.
    pub coscheduling: Option<f64>,
    /// *NodeThDe*.
    pub thrashing: Option<f64>,
    /// *NodeD*.
    pub delay: f64,
}

/// Every metric of the system by name, for tables and for means over seeds. Degrees are 0 where no task
/// communicated.
#[must_use]
pub fn of_system(report: &LocalReport) -> Vec<(&'static str, f64)> {
    let (all, degrees) = (report.system(), report.degrees());
    let (distributed, local) = (report.distributed(), report.local());
    let nodes = report.nodes.len().max(1) as f64;
    let spun = units(report.spun) / (units(Duration::from_nanos(report.end.0)) * nodes);
    let times = |names: [&'static str; 4], times: Times| {
        let of = [times.count.into(), units(times.returned), units(times.waited), units(times.blocked)];
        names.into_iter().zip(of)
    };
    let system = [
        ("SystemCoDe", degrees.map_or(0.0, |degrees| degrees.coscheduling)),
        ("SystemThDe", degrees.map_or(0.0, |degrees| degrees.thrashing)),
        ("SystemD", units(all.delayed)),
        ("SystemD_per_task", units(all.delayed) / report.tasks.len().max(1) as f64),
    ];
    system
        .into_iter()
        .chain(times(["distributed_tasks", "Dret", "Dwait", "Dblocked"], distributed))
        .chain(times(["local_tasks", "Lret", "Lwait", "Lblocked"], local))
        .chain([("ready_tasks_mean", report.ready), ("spinning", spun)])
        .collect()
}

#[must_use]
pub fn of_nodes(report: &LocalReport) -> Vec<NodeMeasures> {
    let measures = |(node, account): (u32, &Account)| NodeMeasures {
        node,
        tasks: report.tasks.iter().filter(|task| task.node.0 == node).count(),
        coscheduling: account.degrees().map(|degrees| degrees.coscheduling),
        thrashing: account.degrees().map(|degrees| degrees.thrashing),
        delay: units(account.delayed),
    };
    (0..).zip(&report.nodes).map(measures).collect()
}

/// The tasks in the order of their ends, as comma-separated values. A task that never communicated has no
/// degrees.
#[must_use]
pub fn tasks_csv(report: &LocalReport) -> String {
    let mut out =
        String::from("node,task,application,TaskCoDe,TaskThDe,TaskD,executed,returned,waited,blocked\n");
    for task in &report.tasks {
        let degrees = task.account.degrees().map_or_else(
            || ",".to_owned(),
            |degrees| format!("{:.4},{:.4}", degrees.coscheduling, degrees.thrashing),
        );
        let application = task.application.map(|job| job.0.to_string()).unwrap_or_default();
        let [delay, executed, returned, waited, blocked] =
            [task.account.delayed, task.account.executed, task.returned, task.waited, task.blocked]
                .map(units);
        let (node, task) = (task.node.0, task.task.0);
        let _ = writeln!(
            out,
            "{node},{task},{application},{degrees},{delay},{executed},{returned},{waited},{blocked}"
        );
    }
    out
}

pub(super) fn units(span: Duration) -> f64 {
    span.as_secs_f64() / UNIT.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::{LocalModel, Shape, models::Column, simulate_local};

    #[test]
    fn tasks_add_up_to_nodes_and_nodes_to_the_system() {
        let shape = Shape { served: 300, ..Shape::default() };
        let report = simulate_local(&shape, &LocalModel::of_thesis(Column::Pre, &shape, 0), 3).unwrap();
        let system = of_system(&report);
        let of = |name| system.iter().find(|(other, _)| *other == name).unwrap().1;
        assert!((of("SystemCoDe") + of("SystemThDe") - 1.0).abs() < 1e-12);
        let nodes = of_nodes(&report);
        let delays: f64 = nodes.iter().map(|node| node.delay).sum();
        assert!(delays > 0.0 && (delays - of("SystemD")).abs() < 1e-6);
        let csv = tasks_csv(&report);
        assert_eq!(nodes.iter().map(|node| node.tasks).sum::<usize>(), csv.lines().count() - 1);
        // Tasks that have not ended count in the nodes' accounts only.
        let of_tasks: f64 = csv.lines().skip(1).map(|line| line.split(',').nth(5).unwrap()).map(number).sum();
        assert!(of_tasks <= delays + 1e-6 && of_tasks > 0.9 * delays, "{of_tasks} of {delays}");
    }

    fn number(text: &str) -> f64 {
        text.parse().unwrap()
    }
}
