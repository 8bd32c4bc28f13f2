//! Cost file: written by a measured run, and edited by hand for studies.
//!
//! ```yaml
//! dump: {fixed_s: 0.04, bytes_per_s: 1.4e9}
//! restore: {fixed_s: 0.03, bytes_per_s: 1.6e9}
//! flush_s: 0.002
//! launch_s: 0.05
//! cores: 1
//! swap_slowdown: 35
//! communication: {cg: 0.82, ep: 0.01}
//! ```
//!
//! Missing fields are as in [`CostModel::default`]; an unknown field is an error.

use std::{collections::BTreeMap, time::Duration};

use coswitch_policies::{Bytes, Communication};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{CostModel, Sample, Transfer, fit::CostStep};

/// The file, in any format that serde reads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostFile {
    /// Moving a node's jobs out of memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dump: Option<Moving>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore: Option<Moving>,
    /// Seconds from the request to the last marker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flush_s: Option<f64>,
    /// Seconds to start all ranks of a job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launch_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
    /// How many times slower jobs run on a node whose memory is exceeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap_slowdown: Option<u32>,
    /// The share of its time in which a job communicates, by name; `cg` also stands for `cg-1` and `cg-2`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub communication: BTreeMap<String, f64>,
}

/// `fixed + bytes ÷ rate`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Moving {
    /// Seconds for no bytes at all.
    pub fixed_s: f64,
    /// Bytes a second beyond that.
    pub bytes_per_s: f64,
}

#[derive(Clone, Debug, PartialEq, Error)]
pub enum CostFileError {
    #[error("`{0}` is {1}, which is not a length of time")]
    Time(&'static str, f64),
    #[error("`{0}.bytes_per_s` is {1}, which is not a rate above zero")]
    Rate(&'static str, f64),
    #[error("`{0}` is zero; it is at least one")]
    Zero(&'static str),
    #[error("`communication.{0}` is {1}, which is not a share from 0 to 1")]
    Share(String, f64),
}

impl CostFile {
    /// The steps that the samples measured; see [`CostModel::fitted`].
    #[must_use]
    pub fn fitted(samples: &[Sample]) -> Self {
        let model = CostModel::default().fitted(samples);
        let measured = |step: CostStep| samples.iter().any(|sample| sample.step == step);
        let moves = |step: CostStep| samples.iter().any(|sample| sample.step == step && sample.bytes.0 > 0);
        Self {
            dump: moves(CostStep::Dump).then(|| Moving::of(model.dump)),
            restore: moves(CostStep::Restore).then(|| Moving::of(model.restore)),
            flush_s: measured(CostStep::Flush).then_some(model.flush.as_secs_f64()),
            launch_s: measured(CostStep::Launch).then_some(model.launch.as_secs_f64()),
            ..Self::default()
        }
    }

    /// The model.
    ///
    /// # Errors
    /// Where a number is out of its range.
    pub fn model(&self) -> Result<CostModel, CostFileError> {
        let mut model = CostModel::default();
        let mut shares = self.communication.iter();
        if let Some((job, share)) = shares.find(|(_, share)| !(0.0..=1.0).contains(*share)) {
            return Err(CostFileError::Share(job.clone(), *share));
        }
        if let Some(dump) = self.dump {
            model.dump = dump.transfer("dump")?;
        }
        if let Some(restore) = self.restore {
            model.restore = restore.transfer("restore")?;
        }
        model.flush = self.flush_s.map_or(Ok(model.flush), |seconds| time("flush_s", seconds))?;
        model.launch = self.launch_s.map_or(Ok(model.launch), |seconds| time("launch_s", seconds))?;
        model.cores = at_least_one("cores", self.cores.unwrap_or(model.cores))?;
        model.swap_slowdown =
            at_least_one("swap_slowdown", self.swap_slowdown.unwrap_or(model.swap_slowdown))?;
        Ok(model)
    }

    /// The share of communication of the job called `name`, if known.
    #[must_use]
    pub fn communication_of(&self, name: &str) -> Option<Communication> {
        let kind = || name.rsplit_once('-').filter(|(_, n)| n.bytes().all(|digit| digit.is_ascii_digit()));
        let share = self.communication.get(name).or_else(|| self.communication.get(kind()?.0))?;
        Some(Communication::per_mille((share * 1000.0).round() as u16))
    }
}

impl Moving {
    fn of(transfer: Transfer) -> Self {
        Self { fixed_s: transfer.fixed.as_secs_f64(), bytes_per_s: transfer.per_second.0 as f64 }
    }

    fn transfer(self, name: &'static str) -> Result<Transfer, CostFileError> {
        let rate = self.bytes_per_s;
        if !(rate.is_finite() && rate >= 1.0) {
            return Err(CostFileError::Rate(name, rate));
        }
        Ok(Transfer { fixed: time(name, self.fixed_s)?, per_second: Bytes(rate as u64) })
    }
}

fn time(name: &'static str, seconds: f64) -> Result<Duration, CostFileError> {
    Duration::try_from_secs_f64(seconds).map_err(|_| CostFileError::Time(name, seconds))
}

fn at_least_one(name: &'static str, value: u32) -> Result<u32, CostFileError> {
    if value == 0 { Err(CostFileError::Zero(name)) } else { Ok(value) }
}

impl From<&CostModel> for CostFile {
    fn from(model: &CostModel) -> Self {
        let moving = |transfer: &Transfer| Moving {
            fixed_s: transfer.fixed.as_secs_f64(),
            bytes_per_s: transfer.per_second.0 as f64,
        };
        Self {
            dump: Some(moving(&model.dump)),
            restore: Some(moving(&model.restore)),
            flush_s: Some(model.flush.as_secs_f64()),
            launch_s: Some(model.launch.as_secs_f64()),
            cores: Some(model.cores),
            swap_slowdown: Some(model.swap_slowdown),
            communication: BTreeMap::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_read_back_from_its_file() {
        let model = CostModel { cores: 3, ..CostModel::default() };
        assert_eq!(CostFile::from(&model).model(), Ok(model));
        assert_eq!(CostFile::default().model(), Ok(CostModel::default()));
    }

    #[test]
    fn the_share_of_a_kind_of_job_holds_for_each() {
        let communication = [("cg".to_owned(), 0.9), ("cg-2".to_owned(), 0.7)].into();
        let file = CostFile { communication, ..CostFile::default() };
        let of = |name| file.communication_of(name).map(Communication::get);
        assert_eq!(
            ["cg", "cg-1", "cg-2", "cg-x", "ep"].map(of),
            [Some(900), Some(900), Some(700), None, None]
        );
    }

    #[test]
    fn costs_that_make_no_sense_are_named() {
        let rate = Moving { fixed_s: 0.0, bytes_per_s: 0.0 };
        let say = |file: CostFile| file.model().unwrap_err().to_string();
        assert_eq!(
            say(CostFile { dump: Some(rate), ..CostFile::default() }),
            "`dump.bytes_per_s` is 0, which is not a rate above zero"
        );
        assert_eq!(
            say(CostFile { flush_s: Some(-1.0), ..CostFile::default() }),
            "`flush_s` is -1, which is not a length of time"
        );
        assert_eq!(
            say(CostFile { cores: Some(0), ..CostFile::default() }),
            "`cores` is zero; it is at least one"
        );
        let communication = [("cg".to_owned(), 1.5)].into();
        assert_eq!(
            say(CostFile { communication, ..CostFile::default() }),
            "`communication.cg` is 1.5, which is not a share from 0 to 1"
        );
    }
}
