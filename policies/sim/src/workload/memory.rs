//! Memory distributions for the jobs of a log that does not record memory.
//!
//! The Paragon's log, and most logs of its time, do not record memory. A study that packs by memory draws it
//! from a distribution that is *stated with the result*, by seed and job number: the memory of a job does not
//! depend on the other jobs of the study.

use std::str::FromStr;

use coswitch_policies::{Bytes, UnitError};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::Seed;

/// The distribution of a job's memory on a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryDistribution {
    /// The same for all jobs.
    Constant(Bytes),
    /// Uniform between the two.
    Uniform(Bytes, Bytes),
    /// Uniform in the logarithm: as many jobs between 1 and 2 MiB as between 512 and 1024.
    LogUniform(Bytes, Bytes),
    /// One of these values, for example those of another log.
    Empirical(Vec<Bytes>),
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MemoryDistributionError {
    #[error(
        "`{0}` is not a memory distribution; write `64MiB`, `uniform:16MiB..64MiB` or \
         `log-uniform:1MiB..1GiB`"
    )]
    Form(String),
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// The first quantity is zero or exceeds the second.
    #[error("in `{0}` the first quantity is not between 1B and the second")]
    Range(String),
}

impl MemoryDistribution {
    /// The memory of the job numbered `job` on one node, at least one byte.
    #[must_use]
    pub fn draw(&self, seed: u64, job: u64) -> Bytes {
        // Two steps of SplitMix64 keep neighbouring numbers apart.
        let mut seed = Seed::new(Seed::new(seed).next_u64() ^ Seed::new(job).next_u64());
        let bytes = match self {
            Self::Constant(bytes) => *bytes,
            Self::Uniform(low, high) => Bytes(seed.between(low.0, high.0)),
            Self::LogUniform(low, high) => log_uniform(&mut seed, *low, *high),
            Self::Empirical(values) if values.is_empty() => Bytes(1),
            Self::Empirical(values) => {
                let index = seed.between(0, values.len() as u64 - 1);
                values[usize::try_from(index).expect("an index of a vector")]
            }
        };
        bytes.max(Bytes(1))
    }
}

fn log_uniform(seed: &mut Seed, low: Bytes, high: Bytes) -> Bytes {
    let (from, to) = (libm::log(low.0.max(1) as f64), libm::log(high.0.max(1) as f64));
    let drawn = libm::exp(from + (to - from) * seed.unit());
    Bytes((drawn as u64).clamp(low.0, high.0.max(low.0)))
}

impl FromStr for MemoryDistribution {
    type Err = MemoryDistributionError;
    fn from_str(text: &str) -> Result<Self, MemoryDistributionError> {
        let Some((name, range)) = text.split_once(':') else { return Ok(Self::Constant(text.parse()?)) };
        let form = || MemoryDistributionError::Form(text.to_owned());
        let (low, high) = range.split_once("..").ok_or_else(form)?;
        let (low, high): (Bytes, Bytes) = (low.parse()?, high.parse()?);
        if low > high || low.0 == 0 {
            return Err(MemoryDistributionError::Range(text.to_owned()));
        }
        match name.trim() {
            "uniform" => Ok(Self::Uniform(low, high)),
            "log-uniform" => Ok(Self::LogUniform(low, high)),
            _ => Err(form()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_job_does_not_depend_on_other_jobs() {
        let model: MemoryDistribution = "log-uniform:1MiB..1GiB".parse().unwrap();
        let drawn: Vec<Bytes> = (0..10_000).map(|job| model.draw(3, job)).collect();
        assert_eq!(model.draw(3, 77), drawn[77]);
        assert!(drawn.iter().all(|bytes| (Bytes::mib(1)..=Bytes::mib(1024)).contains(bytes)));
        let small = drawn.iter().filter(|bytes| **bytes < Bytes::mib(32)).count();
        assert!((4800..5200).contains(&small), "half of them lie below the geometric middle: {small}");
        assert_ne!(model.draw(4, 77), drawn[77]);
    }

    #[test]
    fn a_distribution_is_written_as_its_name_and_its_bounds() {
        assert_eq!("64MiB".parse(), Ok(MemoryDistribution::Constant(Bytes::mib(64))));
        assert_eq!(
            "uniform:1MiB..2MiB".parse(),
            Ok(MemoryDistribution::Uniform(Bytes::mib(1), Bytes::mib(2)))
        );
        assert!(matches!(
            "zipf:1MiB..2MiB".parse::<MemoryDistribution>(),
            Err(MemoryDistributionError::Form(_))
        ));
        assert!(matches!(
            "uniform:3MiB..2MiB".parse::<MemoryDistribution>(),
            Err(MemoryDistributionError::Range(_))
        ));
        let of_a_log = MemoryDistribution::Empirical(vec![Bytes(5), Bytes(7)]);
        assert!((0..50).all(|job| [5, 7].contains(&of_a_log.draw(1, job).0)));
    }
}
