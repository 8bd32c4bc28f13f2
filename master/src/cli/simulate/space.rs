//! Space sharing: a log or the model under a queue and an allocator.

use coswitch_policies::{machine::GroupId, queue::QueueId};
use coswitch_sim::{
    picture,
    space::{self, Blocks, Cut, Jobs, Lived, LogStart, Summary},
    study::each_seed,
    table,
    workload::swf::{Log, Record},
};

use super::{
    Simulate,
    answer::{Simulated, figures},
    workload::Source,
};
use crate::cli::Failure;

/// One seed.
struct Run {
    summary: Summary,
    cut: Cut,
    jobs: Jobs,
    lived: Vec<Lived>,
    blocks: Blocks,
}

pub(super) fn simulate(arguments: &Simulate) -> Result<Simulated, Failure> {
    let source = Source::of(arguments)?.expect("a run file is simulated by turns");
    let random = matches!(source, Source::Lublin(_));
    if arguments.seeds > 1 && !random {
        let text = "every seed of this simulation is the same: the log says everything; leave --seeds out";
        return Err(Failure::Workload(anyhow::anyhow!(text)));
    }
    let Some(nodes) = arguments.nodes.or_else(|| source.nodes()) else {
        return Err(Failure::Workload(anyhow::anyhow!(
            "the log does not say how many nodes there are: give --nodes"
        )));
    };
    let seeds = arguments.seeds();
    let runs = each_seed(&seeds, arguments.threads(), |seed| run(arguments, &source.log(seed), nodes));
    let runs = runs.into_iter().collect::<Result<Vec<Run>, Failure>>()?;
    let all: Vec<_> = runs.iter().map(Run::figures).collect();
    let first = &runs[0];
    let log = source.log(seeds[0]);
    let months = LogStart::of(&log)
        .map(|start| space::by_month(start, &first.jobs.jobs, &first.lived, nodes))
        .unwrap_or_default();
    let answer = Simulated {
        workload: source.name(),
        nodes,
        policy: format!("queue {}, allocator {}", word(&arguments.queue), word(&arguments.allocator)),
        skipped: first.jobs.skipped,
        figures: figures(&all),
        classes: space::classes(&first.jobs.jobs, &first.lived, |job| {
            Some(SizeClass::of(job.queued.request.nodes))
        }),
        months,
        seeds,
        notes: Vec::new(),
    };
    keep(arguments, &answer, &log, first, nodes)?;
    Ok(answer)
}

fn run(arguments: &Simulate, log: &Log, nodes: u32) -> Result<Run, Failure> {
    let mut machine = space::machine(arguments.mesh_of(nodes), arguments.allocator);
    // One queue: those of the log had priorities that it does not tell.
    let home = |_: &Record| (QueueId(0), GroupId(0));
    let jobs = Jobs::of_log(log, &machine, home);
    let mut watch = (Cut::default(), Blocks::default());
    let mut order = arguments.queue.order();
    let lived = space::run(&jobs.jobs, &mut machine, &mut *order, &mut watch)
        .map_err(|error| Failure::Internal(anyhow::Error::new(error).context("failed to simulate")))?;
    let summary = space::summarise(&jobs.jobs, &lived, nodes);
    let (cut, blocks) = watch;
    Ok(Run { summary, cut, jobs, lived, blocks })
}

impl Run {
    fn figures(&self) -> Vec<(&'static str, f64)> {
        let mut all = self.summary.figures().to_vec();
        all.extend([
            ("external_fragmentation", self.cut.external()),
            ("internal_fragmentation_nodes", self.cut.internal_nodes()),
            ("scatter", self.cut.scatter()),
            ("idle_while_waiting_nodes", self.cut.idle_while_waiting()),
            ("blocks_per_job", self.cut.blocks_per_job()),
        ]);
        all
    }
}

/// Writes the files that were asked for, of the first seed.
fn keep(arguments: &Simulate, answer: &Simulated, log: &Log, run: &Run, nodes: u32) -> Result<(), Failure> {
    if let Some(path) = &arguments.csv {
        super::write(path, &table::space_csv(log, &run.jobs, &run.lived))?;
    }
    if let Some(path) = &arguments.svg {
        let title = format!("{}: {}", answer.workload, answer.policy);
        let (jobs, lived, summary) = (&run.jobs.jobs, &run.lived, &run.summary);
        let few = picture::gantt(&title, &[arguments.mesh_of(nodes)], jobs, lived, &run.blocks, summary);
        let picture = few.unwrap_or_else(|| picture::load(&title, nodes, jobs, lived, summary));
        super::write(path, &picture)?;
    }
    Ok(())
}

/// The name a policy has in files and on the command line.
pub(super) fn word(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(Into::into)).unwrap_or_default()
}

/// Sizes between powers of two, named by the upper one, as in paper 002, Table 3.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct SizeClass(u32);

impl SizeClass {
    fn of(nodes: u32) -> Self {
        Self(nodes.next_power_of_two())
    }
}

impl std::fmt::Display for SizeClass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            0..=2 => write!(f, "{}", self.0),
            most => write!(f, "{}-{most}", most / 2 + 1),
        }
    }
}
