//! An allocation of Slurm, as its environment describes it to a job's script: pure, but for its end, which
//! earlier versions do not describe.

use std::{collections::BTreeMap, time::Duration};

use coswitch_policies::Bytes;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{host_list, step};

/// Memory of a node that coswitch takes for itself, besides the arena: its daemon, and CRIU during a switch.
pub const OWN: Bytes = Bytes::mib(128);

/// The nodes that Slurm has given to this job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocation {
    /// The job's number.
    pub job: u32,
    /// The nodes by Slurm's names for them.
    pub hosts: Vec<String>,
    /// The processors on each of them.
    pub processors: Vec<u32>,
    /// What the job may use on each node; `None` where Slurm does not share memory out.
    pub memory: Option<Bytes>,
    /// When Slurm ends the job, since 1970; `None` where it has no limit, or does not say.
    pub ends: Option<Duration>,
}

/// Why there is no allocation to be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AllocationError {
    #[error("this is no allocation of Slurm")]
    None,
    #[error("Slurm's {name} is not understood: `{value}`")]
    Variable { name: &'static str, value: String },
    #[error("Slurm names {hosts} hosts in SLURM_JOB_NODELIST and {nodes} nodes in {name}")]
    Differs { hosts: usize, nodes: usize, name: &'static str },
}

impl Allocation {
    /// The allocation that `environment`, of a process in it, describes.
    ///
    /// # Errors
    /// Where there is none, or Slurm describes it in an unknown way.
    pub fn of(environment: &BTreeMap<String, String>) -> Result<Self, AllocationError> {
        let get = |name: &str| environment.get(name).map(String::as_str).filter(|value| !value.is_empty());
        let bad = |name, value: &str| AllocationError::Variable { name, value: value.to_owned() };
        let job = get("SLURM_JOB_ID").ok_or(AllocationError::None)?;
        let job = job.parse().map_err(|_| bad("SLURM_JOB_ID", job))?;
        let list = get("SLURM_JOB_NODELIST").or_else(|| get("SLURM_NODELIST"));
        let list = list.ok_or_else(|| bad("SLURM_JOB_NODELIST", ""))?;
        let hosts = host_list::expand(list).ok_or_else(|| bad("SLURM_JOB_NODELIST", list))?;
        let check = |name, nodes| match nodes == hosts.len() {
            true => Ok(()),
            false => Err(AllocationError::Differs { hosts: hosts.len(), nodes, name }),
        };
        if let Some(nodes) = get("SLURM_NNODES") {
            check("SLURM_NNODES", nodes.parse().map_err(|_| bad("SLURM_NNODES", nodes))?)?;
        }
        let processors = get("SLURM_JOB_CPUS_PER_NODE").unwrap_or_default();
        let processors = repeated(processors).ok_or_else(|| bad("SLURM_JOB_CPUS_PER_NODE", processors))?;
        check("SLURM_JOB_CPUS_PER_NODE", processors.len())?;
        let number = |name| match get(name) {
            None => Ok(None),
            Some(value) => value.parse::<u64>().map(Some).map_err(|_| bad(name, value)),
        };
        let fewest = processors.iter().copied().min().unwrap_or(1);
        // Zero stands for all of the machine's memory, whose size Slurm does not say here.
        let per_node = number("SLURM_MEM_PER_NODE")?.filter(|mib| *mib > 0);
        let per_cpu = number("SLURM_MEM_PER_CPU")?.map(|mib| mib.saturating_mul(fewest.into()));
        let memory = per_node.or(per_cpu).map(|mib| Bytes(mib.saturating_mul(1 << 20)));
        let ends = number("SLURM_JOB_END_TIME")?.map(Duration::from_secs);
        Ok(Self { job, hosts, processors, memory, ends })
    }

    /// What a node can offer to jobs with an arena of this size; `None` where Slurm does not say.
    #[must_use]
    pub fn memory_for_jobs(&self, arena: Bytes) -> Option<Bytes> {
        let taken = arena.saturating_add(OWN);
        self.memory.map(|memory| Bytes(memory.0.saturating_sub(taken.0)))
    }

    /// When Slurm ends the job, since 1970, at the time `now`. Slurm before 23 is asked for it.
    #[must_use]
    pub fn end(&self, now: Duration) -> Option<Duration> {
        self.ends.or_else(|| Some(now + step::time_left(self.job)?))
    }

    /// The processors of the node with the fewest.
    #[must_use]
    pub fn processors_of_a_node(&self) -> Option<u32> {
        self.processors.iter().copied().min()
    }
}

/// `2(x3),1`: two, two, two, one.
fn repeated(text: &str) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let (number, times) = match part.split_once("(x") {
            Some((number, times)) => (number, times.strip_suffix(')')?.parse::<u16>().ok()?),
            None => (part, 1),
        };
        let number: u32 = number.parse().ok()?;
        all.extend(std::iter::repeat_n(number, times.into()));
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Slurm 22.05 sets it for `sbatch -N3 -c2 --mem=4000 -t 10`.
    const USUAL: [(&str, &str); 7] = [
        ("SLURM_JOB_ID", "17"),
        ("SLURM_JOB_NODELIST", "n[0-1],big"),
        ("SLURM_NNODES", "3"),
        ("SLURM_JOB_CPUS_PER_NODE", "2(x2),4"),
        ("SLURM_MEM_PER_NODE", "4000"),
        ("SLURM_JOB_END_TIME", "1795555555"),
        ("PATH", "/bin"),
    ];

    fn read(change: &[(&str, Option<&str>)]) -> Result<Allocation, AllocationError> {
        let mut all: BTreeMap<String, String> =
            USUAL.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        for (name, value) in change {
            match value {
                Some(value) => drop(all.insert((*name).to_owned(), (*value).to_owned())),
                None => drop(all.remove(*name)),
            }
        }
        Allocation::of(&all)
    }

    #[test]
    fn an_allocation_is_read_from_the_environment() {
        let allocation = read(&[]).unwrap();
        let expected = Allocation {
            job: 17,
            hosts: ["n0", "n1", "big"].map(str::to_owned).to_vec(),
            processors: vec![2, 2, 4],
            memory: Some(Bytes::mib(4000)),
            ends: Some(Duration::from_secs(1_795_555_555)),
        };
        assert_eq!(allocation, expected);
        assert_eq!(allocation.memory_for_jobs(Bytes::mib(256)), Some(Bytes::mib(4000 - 256 - 128)));
        assert_eq!(allocation.processors_of_a_node(), Some(2));
    }

    #[test]
    fn memory_may_be_shared_out_by_processor_or_not_at_all() {
        let by_processor = read(&[("SLURM_MEM_PER_NODE", None), ("SLURM_MEM_PER_CPU", Some("1000"))]);
        assert_eq!(by_processor.unwrap().memory, Some(Bytes::mib(2000)), "of the node with the fewest");
        for none in [None, Some("0")] {
            assert_eq!(read(&[("SLURM_MEM_PER_NODE", none)]).unwrap().memory, None);
        }
        assert_eq!(
            read(&[("SLURM_MEM_PER_NODE", Some("100"))]).unwrap().memory_for_jobs(Bytes::mib(256)),
            Some(Bytes(0))
        );
        assert_eq!(read(&[("SLURM_JOB_END_TIME", None)]).unwrap().ends, None);
    }

    #[test]
    fn what_is_not_understood_is_named() {
        assert_eq!(read(&[("SLURM_JOB_ID", None)]), Err(AllocationError::None));
        for (name, value) in [
            ("SLURM_JOB_ID", "x"),
            ("SLURM_JOB_NODELIST", "n[0-"),
            ("SLURM_NNODES", "many"),
            ("SLURM_NNODES", "4"),
            ("SLURM_JOB_CPUS_PER_NODE", "2(x2)"),
            ("SLURM_JOB_CPUS_PER_NODE", "2(x2"),
            ("SLURM_MEM_PER_NODE", "4G"),
            ("SLURM_JOB_END_TIME", "soon"),
        ] {
            let error = read(&[(name, Some(value))]).unwrap_err().to_string();
            assert!(error.contains(name), "{name}={value}: {error}");
        }
    }
}
