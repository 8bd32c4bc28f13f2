//! Classes of jobs by how much they communicate, with hysteresis: `paired` acts on them, and reports show
//! them.
//!
//! ```text
//!             ≥ 600            ≥ 600
//!   compute ────────▶ mixed ─────────▶ communication
//!           ◀────────       ◀─────────
//!             ≤ 300            < 500
//!      (and > 400: mixed)
//! ```
//! The thresholds are thousandths of its time that a job waits for messages; between two of them it keeps its
//! class.
//! A job that was never measured counts as mixed.

use serde::{Deserialize, Serialize};

use super::pairing::Communication;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// It mostly computes.
    Compute,
    /// It does both.
    #[default]
    Mixed,
    /// It mostly waits for messages.
    Communication,
}

/// A job becomes `compute` at the first threshold and stays so up to the second.
const COMPUTE: (u16, u16) = (300, 400);
/// A job becomes `communication` at the first threshold and stays so down to the second.
const COMMUNICATION: (u16, u16) = (600, 500);

impl Class {
    /// The next class of a job of this class, given its measured communication.
    #[must_use]
    pub const fn after(self, share: Communication) -> Self {
        let share = share.get();
        let compute = if matches!(self, Self::Compute) { COMPUTE.1 } else { COMPUTE.0 };
        let communication =
            if matches!(self, Self::Communication) { COMMUNICATION.1 } else { COMMUNICATION.0 };
        if share <= compute {
            Self::Compute
        } else if share >= communication {
            Self::Communication
        } else {
            Self::Mixed
        }
    }

    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Mixed => "mixed",
            Self::Communication => "communication",
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn classes(shares: &[u16]) -> Vec<Class> {
        let after_each = shares.iter().scan(Class::default(), |class, share| {
            *class = class.after(Communication::per_mille(*share));
            Some(*class)
        });
        after_each.collect()
    }

    #[test]
    fn a_class_is_kept_between_its_two_thresholds() {
        use Class::{Communication as Talks, Compute, Mixed};
        assert_eq!(classes(&[500, 600, 550, 500, 499, 599]), [Mixed, Talks, Talks, Talks, Mixed, Mixed]);
        assert_eq!(classes(&[301, 300, 400, 401, 350, 700]), [Mixed, Compute, Compute, Mixed, Mixed, Talks]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_share_that_wavers_by_less_than_a_tenth_changes_the_class_once_at_most(
            around in 0u16..=1000,
            wavers in prop::collection::vec(0u16..100, 2..50),
        ) {
            let shares: Vec<u16> = wavers.iter().map(|more| (around + more).min(1000)).collect();
            let classes = classes(&shares);
            let changes = classes.windows(2).filter(|pair| pair[0] != pair[1]).count();
            prop_assert!(changes <= 1, "{:?}", classes);
        }
    }
}
