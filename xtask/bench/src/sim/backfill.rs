//! Conservative backfilling at the size of CEA-Curie: 300,000 jobs of the model of Lublin and Feitelson on
//! 93,000 processors.
//!
//! The load is more than twice the published one, so that hundreds of jobs wait. A job states up to five
//! times the time it takes, as users do, so that nearly every end frees capacity and moves reservations
//! forward.

use anyhow::Result;
use coswitch_sim::{
    spaceshare::{self, AllocatorName, Jobs, NoObserver, QueueName},
    workload::lublin,
};

use super::processor_time;
use crate::figure::{Bound, Figure};

const JOBS: u32 = 300_000;
const PROCESSORS: u32 = 93_000;
const LOAD: f64 = 2.2;
const SECONDS_MAX: f64 = 60.0;

pub(super) fn measure() -> Result<Figure> {
    let shape = lublin::Settings { jobs: JOBS, nodes: PROCESSORS, interactive: true, load: LOAD };
    let log = lublin::generate(1, &shape);
    let mut machine = spaceshare::machine(spaceshare::mesh_of(PROCESSORS), AllocatorName::FirstFit);
    let mut all = Jobs::of_log(&log, &machine, |_| Default::default());
    for job in &mut all.jobs {
        // From one to five times, by the job's number; 7919 is a prime number.
        job.queued.limit = job.run * (1 + job.queued.job.0.wrapping_mul(7919) % 5);
    }
    let began = processor_time()?;
    let mut order = QueueName::Conservative.order();
    let lived = spaceshare::run(&all.jobs, &mut machine, &mut *order, &mut NoObserver)?;
    let seconds = (processor_time()? - began).as_secs_f64();
    let summary = spaceshare::summarise(&all.jobs, &lived, PROCESSORS);
    let name = format!("conservative backfilling, {JOBS} jobs on {PROCESSORS} processors: time");
    let detail = format!(
        "utilisation {:.2}, mean wait {:.0} h, limits up to five times too long, one core",
        summary.utilisation,
        summary.wait_mean_s / 3600.0
    );
    Ok(Figure::bounded(name, seconds, "s", Bound::AtMost(SECONDS_MAX)).of(detail))
}
