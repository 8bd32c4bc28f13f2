//! Benchmark of two tables of the papers on node schedulers, on real ranks and in the simulator, which runs
//! the same schedulers under the same load: the classes of FCS (paper 000, Table 2.1), and what the
//! coscheduling degree of the system depends on (paper 001, Table 4.1).
//!
//! The load of a run is closed: local tasks are there before the ranks, and all stay until they are ended,
//! after the same time in each run.

mod classes;
mod effects;

use std::{thread, time::Duration};

use anyhow::Result;
use coswitch_daemon::protocol::Wait;
use coswitch_dispatcher::protocol::Order;
use coswitch_examples::Program;
use coswitch_policies::{
    Bytes, JobId,
    local::{Technique, Used},
};
use coswitch_sim::local::mix::{Mix, MixJob, simulate_mix};

use crate::{
    figure::Figure,
    grain_jobs, programs,
    stage::{Job, Stage, until_said},
};

/// The node schedulers know local tasks after a second.
const KNOWN_AFTER: Duration = Duration::from_millis(1300);
/// A local task that wants the processor all the time.
const HOG: [&str; 3] = ["/bin/sh", "-c", "while :; do :; done"];

pub(crate) fn measure(rounds: u32) -> Result<Vec<Figure>> {
    let mut figures = classes::measure(rounds)?;
    figures.extend(effects::measure(rounds)?);
    Ok(figures)
}

/// Tasks that are there as long as they are measured.
struct Load {
    nodes: u32,
    jobs: Vec<MixJob>,
    /// On each node.
    hogs: u32,
}

impl Load {
    /// What the ranks of each job have had by the reports of their dispatchers, where they compute for a span
    /// of time.
    fn live(&self, technique: Technique, span: Duration) -> Result<Vec<Used>> {
        let program = programs::example(Program::Grains)?;
        let stage = Stage::favouring(Some(technique), self.nodes, Bytes::mib(512))?;
        let hogs = grain_jobs::placement(self.nodes, self.hogs);
        let mut hogs = (!hogs.is_empty()).then(|| stage.launch(&HOG, &hogs, Wait::Block));
        if let Some(hogs) = &mut hogs {
            stage.running(hogs)?;
            thread::sleep(KNOWN_AFTER);
        }
        let [JobId(first)] = stage.next_jobs();
        let ids: Vec<JobId> = (first..).map(JobId).take(self.jobs.len()).collect();
        grain_jobs::strobe(&stage, Some(technique), &ids);
        let launch = |job: &MixJob| -> Job {
            let words = grain_jobs::command(&program, job);
            let command: Vec<&str> = words.iter().map(String::as_str).collect();
            let placement = grain_jobs::placement(self.nodes, job.on_each);
            stage.launch(&command, &placement, grain_jobs::wait_under(technique))
        };
        let mut jobs: Vec<Job> = self.jobs.iter().map(launch).collect();
        jobs.iter_mut().try_for_each(|job| stage.running(job).map(drop))?;
        jobs.iter().try_for_each(|job| until_said(&job.output, grain_jobs::BEGINS))?;
        thread::sleep(span);
        jobs.iter().for_each(|job| job.order(Order::End));
        let counted = jobs.iter_mut().map(|job| Ok(stage.counted(job)?.distributed));
        let counted = counted.collect::<Result<Vec<Used>>>()?;
        hogs.iter_mut().try_for_each(|job| stage.obey(job, Order::End).map(drop))?;
        stage.strike()?;
        Ok(counted)
    }

    /// The same in the simulator.
    fn simulated(&self, technique: Technique, span: Duration, seed: u64) -> Vec<Used> {
        let mix = grain_jobs::simulated(self.nodes, &self.jobs, None);
        let mix = Mix { hogs: self.hogs, limit: Some(span), ..mix };
        simulate_mix(&mix, Some(technique), seed).jobs.iter().map(|job| job.used).collect()
    }
}
