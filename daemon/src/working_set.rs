//! What of a job's cgroup is its working set: what is charged to it but for caches of files, which the kernel drops before it swaps,
//! and what it has in swap already.

use std::{fs, path::Path, time::Duration};

use coswitch_policies::{Bytes, JobId};

use crate::{cgroup::charged, protocol::JobMemory};

/// Of the memory group `dir`; `None` where it has gone.
pub(crate) fn of(job: JobId, dir: &Path, version_1: bool) -> Option<JobMemory> {
    let used = charged(dir, version_1).ok()?;
    let stat = fs::read_to_string(dir.join("memory.stat")).ok()?;
    let swapped = if version_1 {
        field(&stat, "swap")
    } else {
        let current = fs::read_to_string(dir.join("memory.swap.current"));
        current.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    };
    Some(JobMemory { job, used, held: held(used, &stat, swapped), major_faults: field(&stat, "pgmajfault") })
}

/// How long some process of the group `dir`, of version 2, has stalled for memory so far.
pub(crate) fn stall(dir: &Path) -> Option<Duration> {
    total(&fs::read_to_string(dir.join("memory.pressure")).ok()?)
}

fn held(used: Bytes, stat: &str, swapped: u64) -> Bytes {
    // Shared memory is on the other lists.
    let caches = field(stat, "inactive_file") + field(stat, "active_file");
    Bytes(used.0.saturating_sub(caches) + swapped)
}

fn field(stat: &str, name: &str) -> u64 {
    let value = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.and_then(|value| value.parse().ok()).unwrap_or(0)
}

fn total(pressure: &str) -> Option<Duration> {
    let some = pressure.lines().find(|line| line.starts_with("some "))?;
    some.rsplit_once("total=")?.1.parse().ok().map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_of_files_are_no_working_set_and_what_is_in_swap_is() {
        let stat =
            "cache 700\nswap 40\npgmajfault 3\ninactive_file 100\nactive_file 200\ntotal_active_file 900\n";
        assert_eq!(held(Bytes(1000), stat, field(stat, "swap")), Bytes(740));
        assert_eq!((field(stat, "pgmajfault"), field(stat, "pgmajfaul")), (3, 0));
        assert_eq!(held(Bytes(250), stat, 0), Bytes(0), "counters are not read at one instant");
    }

    #[test]
    fn stalls_are_told_by_their_sum() {
        let pressure = "some avg10=0.00 avg60=0.00 avg300=0.00 total=45\nfull avg10=0.00 total=7\n";
        assert_eq!(total(pressure), Some(Duration::from_micros(45)));
        assert_eq!(total(""), None);
    }
}
