//! Power weight of a node: its speed by that of the fastest node (thesis §2.1.2, formula 2.3).

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Time that the fastest node takes for a serial program by the time that this node takes: above 0, and 1 for
/// the fastest one.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct PowerWeight(f64);

#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[error("{0} is no power weight, which lies above 0 and not above 1")]
pub struct WeightError(f64);

impl PowerWeight {
    /// Of the fastest node, and of all in a cluster of equals.
    pub const FASTEST: Self = Self(1.0);

    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl Default for PowerWeight {
    fn default() -> Self {
        Self::FASTEST
    }
}

impl TryFrom<f64> for PowerWeight {
    type Error = WeightError;

    fn try_from(weight: f64) -> Result<Self, WeightError> {
        if weight > 0.0 && weight <= 1.0 { Ok(Self(weight)) } else { Err(WeightError(weight)) }
    }
}

impl From<PowerWeight> for f64 {
    fn from(weight: PowerWeight) -> Self {
        weight.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_lies_above_0_and_not_above_1() {
        for wrong in [0.0, -0.5, 1.001, f64::NAN, f64::INFINITY] {
            assert!(PowerWeight::try_from(wrong).is_err(), "{wrong}");
        }
        for right in [f64::MIN_POSITIVE, 0.5, 1.0] {
            assert_eq!(PowerWeight::try_from(right).map(PowerWeight::get), Ok(right));
        }
    }

    #[test]
    fn what_was_written_down_is_checked_when_it_is_read() {
        let half = PowerWeight::try_from(0.5).unwrap();
        let text = serde_json::to_string(&half).unwrap();
        assert_eq!((text.as_str(), serde_json::from_str(&text).ok()), ("0.5", Some(half)));
        assert!(serde_json::from_str::<PowerWeight>("1.5").is_err());
    }
}
