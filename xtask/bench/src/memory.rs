//! Benchmark of memory: of a daemon while the 16 ranks on its node are silent, and of rings.

use std::{fs, time::Duration};

use anyhow::{Context, Result};
use coswitch_daemon::protocol::Wait;
use coswitch_dispatcher::protocol::Order;
use coswitch_examples::mpi_prefix;
use coswitch_policies::Bytes;
use coswitch_ring::{Segment, SegmentSpec};

use crate::{
    figure::{Bound, Figure},
    stage::{self, Stage, apart},
};

const RANKS: usize = 16;
const RANKS_MAX: u32 = 64;
/// Every rank exchanges a message with every other one before all fall silent.
const FALL_SILENT: &str = "import time; from mpi4py import MPI; c = MPI.COMM_WORLD; \
                           c.alltoall([b'x' * 1000] * c.size); c.Barrier(); \
                           print('silent', flush=True); time.sleep(3600)";

pub(crate) fn measure() -> Result<Vec<Figure>> {
    Ok(vec![apart(idle_daemon)?, rings()?])
}

fn idle_daemon() -> Result<Figure> {
    let stage = Stage::set(1, Bytes::mib(4096), None)?;
    let python = mpi_prefix().join("bin/python").display().to_string();
    let mut job = stage.launch(&[&python, "-c", FALL_SILENT], &[0; RANKS], Wait::default());
    stage.running(&mut job)?;
    stage::until_said(&job.output, "silent")?;
    std::thread::sleep(Duration::from_secs(1));
    let daemon = stage.daemons()[0];
    let status = fs::read_to_string(format!("/proc/{daemon}/status")).context("the daemon is gone")?;
    let mib = |name: &str| kibibytes(&status, name).map(|kib| kib / 1024.0);
    let (all, shared) = (mib("VmRSS:")?, mib("RssShmem:")?);
    stage.obey(&mut job, Order::End)?;
    stage.strike()?;
    let detail = format!("of it {shared:.1} MiB are pages of the segment, which are the job's");
    let name = format!("resident memory of a daemon, {RANKS} ranks idle");
    Ok(Figure::bounded(name, all, "MiB", Bound::AtMost(50.0)).of(detail))
}

/// Reads a line of `/proc/PID/status`, in KiB.
pub(crate) fn kibibytes(status: &str, name: &str) -> Result<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.with_context(|| format!("/proc does not say {name}"))
}

/// All of a segment but its slabs, which are the job's memory.
fn rings() -> Result<Figure> {
    let dir = tempfile::tempdir()?;
    let per_rank = (1..=RANKS_MAX).map(|ranks| {
        let spec = SegmentSpec::new(ranks, (0..ranks).collect());
        let segment = Segment::create(dir.path().join(ranks.to_string()), &spec)?;
        let slabs = 2 * u64::from(segment.chunks_per_rank()) * segment.chunk_bytes() as u64;
        Ok((segment.len() as f64 / f64::from(ranks) - slabs as f64) / f64::from(1 << 20))
    });
    let per_rank = per_rank.collect::<Result<Vec<f64>>>()?;
    let most = per_rank.iter().copied().fold(0.0, f64::max);
    let name = format!("rings of a rank, at most, on nodes with 1 to {RANKS_MAX}");
    let detail = format!("{:.1} MiB alone, {:.1} MiB of {RANKS}", per_rank[0], per_rank[RANKS - 1]);
    Ok(Figure::bounded(name, most, "MiB", Bound::AtMost(8.0)).of(detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_proc_status_is_read() {
        assert_eq!(kibibytes("VmPeak:\t  9 kB\nVmRSS:\t  2048 kB\n", "VmRSS:").unwrap(), 2048.0);
        assert!(kibibytes("VmRSS:\t1 kB\n", "RssShmem:").is_err());
    }
}
