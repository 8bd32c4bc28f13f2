//! Simulates the Paragon of paper 002 on a log: utilisation, expansion factor and wait by queue, under each
//! allocator.
//!
//! `cargo run --release -p coswitch-sim --example paragon -- SDSC-Par-1996-3.1-cln.swf`
//!
//! The log is that of the Parallel Workloads Archive and is not part of the repository. The output is in
//! docs/simulator.md.

use std::{env, error::Error, fs, process::ExitCode, time::Duration};

use coswitch_policies::spaceshare::{
    machine::GroupId,
    queue::{Easy, Fcfs, QueueId, QueueOrder},
};
use coswitch_sim::{
    spaceshare::{self, AllocatorName, Execution, Jobs, MeanFragmentation, paragon},
    workload::{LogStart, swf::Log},
};

/// The combination that the tables by month, queue and size show.
const SHOWN: (&str, &str) = ("m2db", "aging, never blocks");

fn main() -> ExitCode {
    let Some(path) = env::args().nth(1) else {
        eprintln!("say where the log is: SDSC-Par-1996-3.1-cln.swf of the Parallel Workloads Archive");
        return ExitCode::from(2);
    };
    match fs::read_to_string(&path).map_err(Into::into).and_then(|text| study(&text)) {
        Ok(text) => {
            #[allow(clippy::print_stdout, reason = "this is what it is for")]
            {
                print!("{text}");
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("failed to simulate {path}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn study(text: &str) -> Result<String, Box<dyn Error>> {
    let log: Log = text.parse()?;
    let start = LogStart::of(&log).ok_or("the log does not say when it began")?;
    let (interactive, batch) = (paragon::partition(&log, 1), paragon::partition(&log, 2));
    let queues = paragon::queues(&log);
    let mut out = String::from(
        "allocator | order | utilisation % | mean wait h | expansion | scatter % | external % | \
         internal nodes | blocks a job | left out\n",
    );
    let mut of_m2db = None;
    // The Paragon's nodes are not divided.
    for (name, allocator) in AllocatorName::ALL.into_iter().filter(|(name, _)| *name != "boxes") {
        let orders: [(&str, Box<dyn QueueOrder>); 5] = [
            ("fcfs", Box::new(Fcfs::default())),
            ("aging, blocks above 24", Box::new(queues.order(Some(24)))),
            ("aging, blocks above 96", Box::new(queues.order(Some(96)))),
            ("aging, never blocks", Box::new(queues.order(None))),
            ("easy", Box::new(Easy::default())),
        ];
        for (order_name, mut order) in orders {
            let mut machine = paragon::batch(allocator, start)?;
            let mut jobs = Jobs::of_log(&batch, &machine, |record| queues.home(record));
            for job in &mut jobs.jobs {
                job.queued.limit = queues.limit(job.queued.queue).max(job.run);
            }
            let mut fragmentation = MeanFragmentation::default();
            let executions = spaceshare::run(&jobs.jobs, &mut machine, &mut *order, &mut fragmentation)?;
            let summary = spaceshare::summarise(&jobs.jobs, &executions, paragon::BATCH_NODES);
            out += &format!(
                "{name} | {order_name} | {:.1} | {:.2} | {:.2} | {:.1} | {:.1} | {:.1} | {:.2} | {}\n",
                100.0 * summary.utilisation,
                summary.wait_mean_s / 3600.0,
                summary.expansion_factor,
                100.0 * fragmentation.scatter(),
                100.0 * fragmentation.external(),
                fragmentation.internal_nodes(),
                fragmentation.blocks_per_job(),
                jobs.skipped.total(),
            );
            if (name, order_name) == SHOWN {
                of_m2db = Some((jobs, executions));
            }
        }
    }
    let (jobs, executions) = of_m2db.ok_or("what is shown is simulated")?;
    out += "\nmonth | utilisation of the batch partition %\n";
    for month in spaceshare::by_month(start, &jobs.jobs, &executions, paragon::BATCH_NODES) {
        out += &format!("{}-{:02} | {:.1}\n", month.year, month.month, 100.0 * month.utilisation);
    }
    let name =
        |job: &spaceshare::SpaceJob| Some(queues.table.0[usize::from(job.queued.queue.0)].name.clone());
    let recorded = recorded(&batch, &jobs);
    let whole = spaceshare::summarise(&jobs.jobs, &recorded, paragon::BATCH_NODES);
    let (wait, expansion) = (whole.wait_mean_s / 3600.0, whole.expansion_factor);
    out +=
        &format!("recorded on the machine itself, all queues: wait {wait:.2} h, expansion {expansion:.2}\n");
    out += "\nqueue | jobs | usage % | mean wait h | mean execution h | expansion | recorded wait h | \
            recorded expansion\n";
    let recorded = spaceshare::classes(&jobs.jobs, &recorded, name);
    for (class, recorded) in spaceshare::classes(&jobs.jobs, &executions, name).iter().zip(recorded) {
        let (wait, expansion) = (recorded.wait_mean_s / 3600.0, recorded.expansion_factor);
        out += &format!("{} | {wait:.2} | {expansion:.1}\n", line(class).trim_end());
    }
    out += &distributions(&jobs, &executions);
    let mut machine = paragon::interactive(AllocatorName::FirstFit);
    let jobs = Jobs::of_log(&interactive, &machine, |_| (QueueId(0), GroupId(0)));
    let executions =
        spaceshare::run(&jobs.jobs, &mut machine, &mut Fcfs::default(), &mut spaceshare::NoObserver)?;
    let summary = spaceshare::summarise(&jobs.jobs, &executions, paragon::INTERACTIVE_NODES);
    // The machine rejected these (§1.0).
    let waits =
        |(job, execution): &(&spaceshare::SpaceJob, &Execution)| execution.started > job.queued.submitted;
    let waited = jobs.jobs.iter().zip(&executions).filter(waits).count();
    out += &format!(
        "\ninteractive partition: {} jobs, {waited} of them wait, {} left out, utilisation {:.1} %, \
         mean wait {:.2} h\n",
        summary.jobs,
        jobs.skipped.total(),
        100.0 * summary.utilisation,
        summary.wait_mean_s / 3600.0
    );
    out += &distributions(&jobs, &executions);
    Ok(out)
}

/// Tables 3 and 4 of the paper, by request size and by execution time, and the number of jobs that run at a
/// time (Table 1).
fn distributions(jobs: &Jobs, executions: &[Execution]) -> String {
    let mut out =
        String::from("\nnodes up to | jobs | usage % | mean wait h | mean execution h | expansion\n");
    let size = |job: &spaceshare::SpaceJob| Some(Size(job.queued.request.nodes.next_power_of_two()));
    spaceshare::classes(&jobs.jobs, executions, size).iter().for_each(|class| out += &line(class));
    out += "\nexecution up to h | jobs | usage % | mean wait h | mean execution h | expansion\n";
    let hours = |job: &spaceshare::SpaceJob| u32::try_from(job.run.as_secs().div_ceil(3600)).ok();
    let hours = |job: &spaceshare::SpaceJob| hours(job).map(|hours| Size(hours.clamp(1, 12)));
    spaceshare::classes(&jobs.jobs, executions, hours).iter().for_each(|class| out += &line(class));
    let summary = spaceshare::summarise(&jobs.jobs, executions, 1);
    out + &format!("jobs that run at a time, in the mean: {:.1}\n", summary.relative_makespan.recip())
}

/// When the jobs ran on the machine itself.
fn recorded(log: &Log, jobs: &Jobs) -> Vec<Execution> {
    let execution = |(job, record): (&spaceshare::SpaceJob, &u32)| {
        let wait = log.records[*record as usize].wait.unwrap_or(0);
        let started = job.queued.submitted.after(Duration::from_secs(wait));
        Execution { started, finished: started.after(job.run) }
    };
    jobs.jobs.iter().zip(&jobs.records).map(execution).collect()
}

fn line(class: &spaceshare::JobClass) -> String {
    format!(
        "{} | {} | {:.1} | {:.2} | {:.2} | {:.1}\n",
        class.name,
        class.jobs,
        100.0 * class.usage,
        class.wait_mean_s / 3600.0,
        class.execution_mean_s / 3600.0,
        class.expansion_factor
    )
}

/// Sorts and prints as a number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Size(u32);

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
