//! Report of a run: the metrics of the CMC model (thesis §2.2.2) and the times of the TIMES figures (ch. 4).

use std::time::Duration;

use coswitch_policies::{
    JobId, NodeId, SimTime,
    local::{Account, Degrees, TaskId},
};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRecord {
    pub node: NodeId,
    pub task: TaskId,
    /// None for a local task.
    pub application: Option<JobId>,
    /// *TaskD*, and the base of *TaskCoDe* and *TaskThDe*.
    pub account: Account,
    /// From arrival to end.
    pub returned: Duration,
    /// In the ready queue without the processor.
    pub waited: Duration,
    /// Blocked for a message.
    pub blocked: Duration,
}

/// Mean times of one kind of task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    pub count: u32,
    /// *Dret* or *Lret*: mean time from arrival to end.
    pub returned: Duration,
    /// *Dwait* or *Lwait*: mean time in the ready queue without the processor.
    pub waited: Duration,
    /// Mean time blocked for messages.
    pub blocked: Duration,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LocalReport {
    /// Of each node: *NodeD*, *NodeCoDe*, *NodeThDe*.
    pub nodes: Vec<Account>,
    /// Every task that ended, in the order of ends.
    pub tasks: Vec<TaskRecord>,
    pub end: SimTime,
    /// How often a processor was given to a task, the previous one included.
    pub dispatches: u64,
    /// Requests and replies.
    pub messages: u64,
    /// Processor time spent spinning.
    pub spun: Duration,
    /// Mean number of ready tasks on a node over time.
    pub ready: f64,
}

impl LocalReport {
    /// *SystemD* in `delayed`, and the base of the degrees.
    #[must_use]
    pub fn system(&self) -> Account {
        self.nodes.iter().copied().sum()
    }

    /// *SystemCoDe* and *SystemThDe*; none where no task ever communicated.
    #[must_use]
    pub fn degrees(&self) -> Option<Degrees> {
        self.system().degrees()
    }

    #[must_use]
    pub fn distributed(&self) -> Times {
        mean_times(self.tasks.iter().filter(|task| task.application.is_some()))
    }

    #[must_use]
    pub fn local(&self) -> Times {
        mean_times(self.tasks.iter().filter(|task| task.application.is_none()))
    }
}

fn mean_times<'a>(tasks: impl Iterator<Item = &'a TaskRecord>) -> Times {
    let sum = tasks.fold(Times::default(), |sum, task| Times {
        count: sum.count + 1,
        returned: sum.returned + task.returned,
        waited: sum.waited + task.waited,
        blocked: sum.blocked + task.blocked,
    });
    let mean = |total: Duration| total.checked_div(sum.count).unwrap_or_default();
    Times {
        count: sum.count,
        returned: mean(sum.returned),
        waited: mean(sum.waited),
        blocked: mean(sum.blocked),
    }
}
