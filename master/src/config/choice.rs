//! The values of a run file that are one word out of a few.

use coswitch_policies::{Alternate, ConfigError, Estimate, Oracle, Packing, Policy, Residency, SwitchOrder};
use schemars::{Schema, json_schema};
use serde::{Deserialize, Serialize};

use super::{
    leaf::{Misread, Quantity},
    problem::nearest,
};

/// A type whose values are named by words.
trait Choice: Copy + 'static {
    /// What is chosen, as in "is not a …".
    const WHAT: &'static str;
    /// The words that can be written now.
    const WORDS: &'static [(&'static str, Self)];
}

fn read<T: Choice>(text: &str) -> Result<T, Misread> {
    let text = text.trim();
    if let Some((_, value)) = T::WORDS.iter().find(|(word, _)| *word == text) {
        return Ok(*value);
    }
    let words: Vec<_> = T::WORDS.iter().map(|(word, _)| *word).collect();
    let known = format!("known are {}", words.join(", "));
    let help = match nearest(text, words.iter().copied()) {
        Some(word) => format!("did you mean `{word}`? {known}"),
        None => known,
    };
    Err(Misread { message: format!("`{text}` is not a {}", T::WHAT), help: Some(help) })
}

fn schema<T: Choice>() -> Schema {
    let words: Vec<_> = T::WORDS.iter().map(|(word, _)| *word).collect();
    json_schema!({ "enum": words })
}

macro_rules! choice {
    ($name:ident, $what:literal, { $($word:literal => $value:expr),* $(,)? }) => {
        impl Choice for $name {
            const WHAT: &'static str = $what;
            const WORDS: &'static [(&'static str, Self)] = &[$(($word, $value)),*];
        }

        impl Quantity for $name {
            const NAME: &'static str = stringify!($name);
            fn read(text: &str) -> Result<Self, Misread> {
                read(text)
            }
            fn schema() -> Schema {
                schema::<Self>()
            }
        }
    };
}

impl Choice for Policy {
    const WHAT: &'static str = "policy";
    const WORDS: &'static [(&'static str, Self)] = &[
        ("batch", Self::Batch),
        ("cosched", Self::Cosched),
        ("gang", Self::Gang),
        ("hybrid", Self::Hybrid),
        ("paired", Self::Paired),
    ];
}

impl Quantity for Policy {
    const NAME: &'static str = "Policy";
    fn read(text: &str) -> Result<Self, Misread> {
        read(text).map_err(|misread| match text.trim() {
            "rms" => Misread {
                message: "`rms` is only simulated".into(),
                help: Some("use `coswitch simulate --queue rms`, or here `gang`".into()),
            },
            _ => misread,
        })
    }
    fn schema() -> Schema {
        schema::<Self>()
    }
}

choice!(SwitchOrder, "way of switching", {
    "sequential" => SwitchOrder::Sequential,
    "overlapped" => SwitchOrder::Overlapped,
    "prefetch" => SwitchOrder::Prefetch,
});

choice!(Oracle, "oracle", {
    "exact" => Oracle::Exact,
    "greedy" => Oracle::Greedy,
});

choice!(Residency, "residency", {
    "planned" => Residency::Planned,
    "none" => Residency::None,
});

choice!(Estimate, "way to know what a job needs", {
    "measured" => Estimate::Measured,
    "declared" => Estimate::Declared,
});

/// How a job leaves memory where it has to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Park {
    /// Into images.
    Criu,
    /// Into the swap space of its nodes.
    PageOut,
    /// Never: all jobs have to fit in memory together.
    Suspend,
}

choice!(Park, "way of parking", {
    "criu" => Park::Criu,
    "pageout" => Park::PageOut,
    "suspend" => Park::Suspend,
});

/// Steps of the search for the fewest slots: a second of work at the most.
const EXACT_VISITS: u32 = 200_000;

choice!(Packing, "way of packing", {
    "first-fit" => Packing::FirstFit,
    "best-fit" => Packing::BestFit,
    "buddy" => Packing::Buddy,
    "exact" => Packing::Exact { visits_max: EXACT_VISITS },
});

impl Choice for Alternate {
    const WHAT: &'static str = "way of alternating";
    const WORDS: &'static [(&'static str, Self)] = &[("none", Self::None), ("whole", Self::Whole)];
}

impl Quantity for Alternate {
    const NAME: &'static str = "Alternate";
    fn read(text: &str) -> Result<Self, Misread> {
        if text.trim() == "partial" {
            return Err(ConfigError::SplitGang.into());
        }
        read(text)
    }
    fn schema() -> Schema {
        schema::<Self>()
    }
}

/// What a rank does while it waits for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// Poll without pause, as stock MPICH does.
    Spin,
    /// Poll, giving up the processor between polls.
    Yield,
    /// Sleep at once.
    Block,
    /// Poll for a moment, then sleep.
    SpinBlock,
}

choice!(Wait, "way of waiting", {
    "spin" => Wait::Spin,
    "yield" => Wait::Yield,
    "block" => Wait::Block,
    "spin-block" => Wait::SpinBlock,
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_word_is_answered_with_the_nearest() {
        let misread = Policy::read("hibrid").unwrap_err();
        assert_eq!(misread.message, "`hibrid` is not a policy");
        assert_eq!(
            misread.help.unwrap(),
            "did you mean `hybrid`? known are batch, cosched, gang, hybrid, paired"
        );
        assert_eq!(Policy::read("rms").unwrap_err().message, "`rms` is only simulated");
    }
}
