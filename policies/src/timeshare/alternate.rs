//! Alternate scheduling: a job also runs in the slots of other rows where its nodes are idle (paper 000 §2.1,
//! Fig. 2.1-2.2).
//!
//! A *backfilled* job runs in a row that is not its own. A node is idle in a row where no job of the row has
//! ranks on it. The backfilled jobs of a row keep the limits of a cell among themselves. They are derived
//! from the matrix and never stored in it: each job still lies in one row, and every row keeps its turn.
//!
//! | rule | a job is backfilled in a row where |
//! | --- | --- |
//! | `none` | never |
//! | `whole` | all of its nodes are idle: the rule of RMS (§3.2.1), for ranks wait for each other |
//! | `partial` | some of its nodes are idle: its ranks on those run, the others wait |
//!
//! The [`Scheduler`](crate::Scheduler) knows `none` and `whole`: a gang is never split, and a switch takes a
//! job out of memory as a whole. `partial` is for studies of the matrix, as in the figures of the paper.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{Bytes, JobId, Matrix, MemoryRule, NodeId, Row};

/// Which jobs may run in the slots of other rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Alternate {
    #[default]
    None,
    /// Jobs all of whose nodes are idle there.
    Whole,
    /// Ranks whose node is idle there.
    Partial,
}

/// A job that runs in a row that is not its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackfilledJob {
    pub job: JobId,
    /// Where it runs there: all of its nodes, but for [`Alternate::Partial`].
    pub nodes: Vec<NodeId>,
}

/// The backfilled jobs of an idle node and their memory; `None` where the row itself uses the node.
type IdleNode = Option<(u32, Bytes)>;

/// The jobs of other rows that run in the row `index` places from the front, of those that `may`.
///
/// Rows that had their turn last come first: their jobs go on without a switch. Within a row the order is
/// that of numbers.
#[must_use]
pub fn backfilled(
    matrix: &Matrix,
    index: usize,
    alternate: Alternate,
    may: impl Fn(JobId) -> bool,
) -> Vec<BackfilledJob> {
    if alternate == Alternate::None || index >= matrix.rows().len() {
        return Vec::new();
    }
    let mut idle = idle_nodes(matrix, matrix.row(index));
    let rows = matrix.rows().len();
    let others = (1..rows).map(|back| matrix.row((index + rows - back) % rows));
    let mut backfilled = Vec::new();
    for assignment in others.flat_map(Row::assignments).filter(|assignment| may(assignment.spec.id)) {
        let holds = |node: &NodeId| {
            let memory = assignment.memory_on(*node);
            idle[node.0 as usize].is_some_and(|used| holds(matrix, *node, used, memory))
        };
        let nodes: Vec<NodeId> = assignment.placement.nodes().filter(holds).collect();
        let whole = nodes.len() == assignment.placement.width();
        if nodes.is_empty() || (alternate == Alternate::Whole && !whole) {
            continue;
        }
        for node in &nodes {
            let (jobs, used) = idle[node.0 as usize].expect("it is idle");
            idle[node.0 as usize] = Some((jobs + 1, used.saturating_add(assignment.memory_on(*node))));
        }
        backfilled.push(BackfilledJob { job: assignment.spec.id, nodes });
    }
    backfilled
}

/// The backfilled jobs of every turn, and all jobs that run in it. Only a job that ran in the turn before
/// goes on, so the round is gone through twice.
pub(crate) fn round(matrix: &Matrix, alternate: Alternate) -> (Vec<BTreeSet<JobId>>, Vec<BTreeSet<JobId>>) {
    let mut running: Vec<BTreeSet<JobId>> = matrix.rows().map(|row| row.jobs().collect()).collect();
    let mut backfilled_of = vec![BTreeSet::new(); running.len()];
    let turns = running.len();
    for turn in (0..turns).chain(0..turns) {
        let before = &running[(turn + turns - 1) % turns];
        let found = backfilled(matrix, turn, alternate, |job| before.contains(&job));
        backfilled_of[turn] = found.into_iter().map(|backfilled| backfilled.job).collect();
        running[turn] = matrix.row(turn).jobs().chain(backfilled_of[turn].iter().copied()).collect();
    }
    (backfilled_of, running)
}

fn idle_nodes(matrix: &Matrix, row: Row<'_>) -> Vec<IdleNode> {
    let mut idle = vec![Some((0, Bytes(0))); matrix.cluster().len()];
    for node in row.assignments().flat_map(|assignment| assignment.placement.nodes()) {
        idle[node.0 as usize] = None;
    }
    idle
}

fn holds(matrix: &Matrix, node: NodeId, (jobs, used): (u32, Bytes), memory: Bytes) -> bool {
    let limits = matrix.limits();
    let fits = used.saturating_add(memory) <= matrix.cluster().capacity(node);
    limits.max_per_cell.is_none_or(|max| jobs < max) && (limits.memory == MemoryRule::Ignored || fits)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use insta::assert_snapshot;

    use super::*;
    use crate::{Cluster, JobSpec, Policy, Scheduler, SchedulerConfig, SchedulerEvent, SimTime};

    /// Eight nodes under gang scheduling, as in the figures; jobs of these widths, with one rank on each
    /// node.
    fn matrix(widths: &[u32]) -> Matrix {
        let config = SchedulerConfig::new(Policy::Gang, Duration::from_secs(1));
        let mut scheduler = Scheduler::new(Cluster::uniform(8, Bytes::mib(100)), config).unwrap();
        let spec = |(id, ranks): (u32, &u32)| JobSpec {
            id: JobId(id),
            name: "".into(),
            ranks: *ranks,
            memory_per_rank: Bytes::mib(60),
            arrival: SimTime(0),
        };
        let jobs = (1..).zip(widths).map(spec).collect();
        scheduler.on_event(SimTime(0), SchedulerEvent::Submitted { jobs });
        scheduler.matrix().clone()
    }

    /// A line for each row and a column for each node: own jobs plain, backfilled jobs in brackets.
    fn picture(matrix: &Matrix, alternate: Alternate) -> String {
        let line = |index: usize| {
            let backfilled = backfilled(matrix, index, alternate, |_| true);
            let cell = |node: NodeId| {
                let own = matrix
                    .row(index)
                    .jobs_on(node)
                    .next()
                    .map(|assignment| format!(" {} ", assignment.spec.id.0));
                let backfilled = backfilled.iter().find(|backfilled| backfilled.nodes.contains(&node));
                own.or(backfilled.map(|backfilled| format!("({})", backfilled.job.0))).unwrap_or(" . ".into())
            };
            (0..8).map(|node| cell(NodeId(node))).collect::<String>().trim_end().to_string() + "\n"
        };
        (0..matrix.rows().len()).map(line).collect()
    }

    #[test]
    fn idle_nodes_run_whole_jobs_or_parts_as_in_figure_2_2() {
        let matrix = matrix(&[6, 7, 4, 3, 5]);
        assert_snapshot!(picture(&matrix, Alternate::None), @r"
         2  2  2  2  2  2  2  .
         1  1  1  1  1  1  .  .
         5  5  5  5  5  4  4  4
         3  3  3  3  .  .  .  .
        ");
        assert_snapshot!(picture(&matrix, Alternate::Whole), @r"
         2  2  2  2  2  2  2  .
         1  1  1  1  1  1  .  .
         5  5  5  5  5  4  4  4
         3  3  3  3  . (4)(4)(4)
        ");
        assert_snapshot!(picture(&matrix, Alternate::Partial), @r"
         2  2  2  2  2  2  2 (4)
         1  1  1  1  1  1 (2)(4)
         5  5  5  5  5  4  4  4
         3  3  3  3 (5)(4)(4)(4)
        ");
    }

    #[test]
    fn only_jobs_that_may_are_backfilled_and_none_where_no_node_is_idle() {
        let matrix = matrix(&[8, 2, 8]);
        assert_eq!(backfilled(&matrix, 0, Alternate::Partial, |_| true), []);
        let six = BackfilledJob { job: JobId(1), nodes: (2..8).map(NodeId).collect() };
        assert_eq!(backfilled(&matrix, 2, Alternate::Partial, |job| job == JobId(1)), [six]);
        assert_eq!(backfilled(&matrix, 2, Alternate::Whole, |_| true), []);
        assert_eq!(backfilled(&matrix, 3, Alternate::Whole, |_| true), []);
    }
}
