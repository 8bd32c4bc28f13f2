//! Trend of a figure with a parameter, in the five classes of thesis Table 4.1.
//!
//! | class | rule |
//! | --- | --- |
//! | C | the 95 % interval of the effect includes 0, or the effect is smaller than [`NOTICEABLE`] |
//! | SI, SD | else, smaller than [`LARGE`] |
//! | I, D | else |
//!
//! The thesis judged by eye and gives no limits; these were set before the first run.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::stats::SampleMean;

/// Smaller effects on the degree count as none.
pub const NOTICEABLE: f64 = 0.02;
/// Effects on the degree from this size on are not scarce.
pub const LARGE: f64 = 0.10;

/// The reaction of the degree when the parameter increases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trend {
    Constant,
    Increases,
    ScarcelyIncreases,
    ScarcelyDecreases,
    Decreases,
}

impl Trend {
    /// The class of an effect.
    #[must_use]
    pub fn of(effect: SampleMean) -> Self {
        let size = effect.mean.abs();
        let may_be_none = effect.half_width.is_none_or(|half| size <= half);
        match (may_be_none || size < NOTICEABLE, size < LARGE, effect.mean > 0.0) {
            (true, ..) => Self::Constant,
            (_, true, true) => Self::ScarcelyIncreases,
            (_, true, false) => Self::ScarcelyDecreases,
            (_, false, true) => Self::Increases,
            (_, false, false) => Self::Decreases,
        }
    }

    /// Whether it differs from `other` in sign, not only in strength: `I` and `SI` do not.
    #[must_use]
    pub const fn is_other_way(self, other: Self) -> bool {
        self.sign() != other.sign()
    }

    const fn sign(self) -> i8 {
        match self {
            Self::Constant => 0,
            Self::Increases | Self::ScarcelyIncreases => 1,
            Self::Decreases | Self::ScarcelyDecreases => -1,
        }
    }
}

impl fmt::Display for Trend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Constant => "C",
            Self::Increases => "I",
            Self::ScarcelyIncreases => "SI",
            Self::ScarcelyDecreases => "SD",
            Self::Decreases => "D",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn effect(mean: f64, half_width: f64) -> SampleMean {
        SampleMean { mean, half_width: Some(half_width) }
    }

    #[test]
    fn an_effect_is_classed_by_its_size_if_its_interval_excludes_none() {
        assert_eq!(Trend::of(effect(0.3, 0.1)), Trend::Increases);
        assert_eq!(Trend::of(effect(0.3, 0.4)), Trend::Constant);
        assert_eq!(Trend::of(effect(0.019, 0.001)), Trend::Constant);
        assert_eq!(Trend::of(effect(0.05, 0.01)), Trend::ScarcelyIncreases);
        assert_eq!(Trend::of(effect(-0.05, 0.01)), Trend::ScarcelyDecreases);
        assert_eq!(Trend::of(effect(-0.1, 0.01)), Trend::Decreases);
        assert_eq!(
            Trend::of(SampleMean { mean: 0.5, half_width: None }),
            Trend::Constant,
            "one seed shows nothing"
        );
    }

    #[test]
    fn strength_is_not_direction() {
        assert!(!Trend::Increases.is_other_way(Trend::ScarcelyIncreases));
        assert!(Trend::Constant.is_other_way(Trend::ScarcelyDecreases));
    }
}
