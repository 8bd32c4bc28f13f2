//! Jobs of the program `grains`, live and simulated.

use std::time::Duration;

use coswitch_daemon::protocol::Wait;
use coswitch_policies::{
    JobId,
    local::{Technique, Waiting},
    strobe::Rows,
};
use coswitch_sim::local::mix::{LocalLoad, Mix, MixJob, Pattern};

use crate::stage::Stage;

/// The work of each job is a second of processor time of each rank.
pub(crate) const FINE: MixJob = MixJob {
    grain: Duration::from_micros(200),
    imbalance: 0.0,
    pattern: Pattern::Neighbour,
    steps: 5000,
    on_each: 1,
};
pub(crate) const COMPUTE: MixJob = MixJob {
    grain: Duration::from_millis(5),
    imbalance: 0.0,
    pattern: Pattern::None,
    steps: 200,
    on_each: 1,
};
pub(crate) const IMBALANCED: MixJob = MixJob { imbalance: 0.8, pattern: Pattern::All, ..COMPUTE };

/// More than a benchmark has, in seconds.
const NEVER: &str = "1000000";

/// What an endless job says when all of its ranks are there.
pub(crate) const BEGINS: &str = "begins";

/// The program and its options for a job.
pub(crate) fn command(program: &str, job: &MixJob) -> Vec<String> {
    let pattern = match job.pattern {
        Pattern::None => "none",
        Pattern::Neighbour => "neighbour",
        Pattern::All => "all",
    };
    let end = match job.steps {
        MixJob::ENDLESS => ("--seconds", NEVER.to_owned()),
        steps => ("--steps", steps.to_string()),
    };
    let options = [
        ("--grain", job.grain.as_secs_f64().to_string()),
        ("--imbalance", (job.imbalance * 100.0).to_string()),
        ("--pattern", pattern.to_owned()),
        end,
    ];
    let options = options.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
    let options = options.chain((job.steps == MixJob::ENDLESS).then(|| "--announce".to_owned()));
    std::iter::once(program.to_owned()).chain(options).collect()
}

/// The node of each rank of a job with so many on each: as in the simulator, dealt out node by node.
pub(crate) fn placement(nodes: u32, on_each: u32) -> Vec<u32> {
    (0..nodes * on_each).map(|rank| rank % nodes).collect()
}

/// How ranks wait under a technique where nothing else is asked for.
pub(crate) const fn wait_under(technique: Technique) -> Wait {
    match technique.wait() {
        Waiting::Spins => Wait::Spin,
        Waiting::SpinsThenBlocks => Wait::SpinBlock,
        Waiting::Blocks => Wait::Block,
    }
}

/// Gives each of these jobs its slots, where the technique knows slots.
pub(crate) fn strobe(stage: &Stage, technique: Option<Technique>, jobs: &[JobId]) {
    if let Some(slice) = technique.and_then(Technique::slot) {
        stage.strobe(Rows { slice, rows: jobs.iter().map(|job| [*job].into()).collect() });
    }
}

/// These jobs in the simulator, on nodes about as fast as these.
pub(crate) fn simulated(nodes: u32, jobs: &[MixJob], local: Option<LocalLoad>) -> Mix {
    let (latency, context_switch) = (Duration::from_micros(20), Duration::from_micros(2));
    Mix { nodes, jobs: jobs.to_vec(), local, hogs: 0, limit: None, latency, context_switch }
}
