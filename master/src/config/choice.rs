//! The values of a run file that are one of a few words.

use coswitch_dispatcher::{
    protocol::{Delivery, Wait},
    watch::Heartbeats,
};
use coswitch_policies::{
    Alternate, ConfigError, Estimate, Oracle, Packing, Policy, Residency, Rotation, ShortOfMemory,
    SwitchOrder,
    local::{Technique, explicit::Filling},
    spaceshare::choice::{AllocatorName, QueueName},
};
use schemars::{Schema, json_schema};
use serde::{Deserialize, Serialize};

use super::{
    leaf::{Misread, Quantity},
    problem::nearest,
};

/// A type whose values are named by words.
trait Choice: Copy + 'static {
    /// The name of the choice in messages: "is not a …".
    const WHAT: &'static str;
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
        read(text).map_err(|misread| only_simulated(text).unwrap_or(misread))
    }
    fn schema() -> Schema {
        schema::<Self>()
    }
}

impl Choice for QueueName {
    const WHAT: &'static str = "queue";
    const WORDS: &'static [(&'static str, Self)] = &Self::ALL;
}

impl Quantity for QueueName {
    const NAME: &'static str = "QueueName";
    fn read(text: &str) -> Result<Self, Misread> {
        read(text).map_err(|misread| only_simulated(text).unwrap_or(misread))
    }
    fn schema() -> Schema {
        schema::<Self>()
    }
}

choice!(AllocatorName, "allocator", {
    "first-fit" => AllocatorName::FirstFit,
    "contiguous" => AllocatorName::Contiguous,
    "buddy" => AllocatorName::Buddy,
    "buddy-2d" => AllocatorName::Buddy2d,
    "m2db" => AllocatorName::M2db,
});

fn only_simulated(text: &str) -> Option<Misread> {
    (text.trim() == "rms").then(|| Misread {
        message: "`rms` is only simulated".into(),
        help: Some("use `coswitch simulate --queue rms`, or here `policy: gang`".into()),
    })
}

choice!(Delivery, "way of a program to its nodes", {
    "shared" => Delivery::Shared,
    "sent" => Delivery::Sent,
});

choice!(SwitchOrder, "way of switching", {
    "sequential" => SwitchOrder::Sequential,
    "overlapped" => SwitchOrder::Overlapped,
    "prefetch" => SwitchOrder::Prefetch,
});

choice!(ShortOfMemory, "way out where memory is short", {
    "sequential" => ShortOfMemory::Sequential,
    "swap" => ShortOfMemory::Swap,
});

choice!(Oracle, "oracle", {
    "exact" => Oracle::Exact,
    "greedy" => Oracle::Greedy,
});

/// The scheduler of a node; none: the kernel's own.
#[derive(Clone, Copy, Debug)]
pub struct Local(pub Option<Technique>);

choice!(Local, "node scheduler", {
    "none" => Local(None),
    "dcs" => Local(Some(Technique::DCS)),
    "ics" => Local(Some(Technique::ICS)),
    "predictive" => Local(Some(Technique::PREDICTIVE)),
    "dynamic" => Local(Some(Technique::DYNAMIC)),
    "hpdt" => Local(Some(Technique::HPDT)),
    "dts" => Local(Some(Technique::DTS)),
    "dts-static" => Local(Some(Technique::DTS_STATIC)),
    "dts-balanced" => Local(Some(Technique::DTS_BALANCED)),
    "dts-stop" => Local(Some(Technique::DTS_STOP)),
    "fcs" => Local(Some(Technique::FCS)),
    "bcs" => Local(Some(Technique::BCS)),
    "round-robin" => Local(Some(Technique::ROUND_ROBIN)),
});

/// How DTS sets its slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DtsWord {
    Static,
    Balanced,
    Distributed,
}

impl DtsWord {
    /// As it is written.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Balanced => "balanced",
            Self::Distributed => "distributed",
        }
    }
}

choice!(DtsWord, "mode of DTS", {
    "static" => DtsWord::Static,
    "balanced" => DtsWord::Balanced,
    "distributed" => DtsWord::Distributed,
});

choice!(Filling, "way to fill a slice", {
    "both" => Filling::Both,
    "stop" => Filling::DistributedStopped,
});

choice!(Residency, "residency", {
    "planned" => Residency::Planned,
    "none" => Residency::None,
});

choice!(Estimate, "way to know what a job needs", {
    "measured" => Estimate::Measured,
    "declared" => Estimate::Declared,
});

/// How a job leaves memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ParkMethod {
    /// Into images.
    Criu,
    /// Into the swap space of its nodes.
    PageOut,
    /// Never: where jobs do not fit in memory together, the kernel swaps.
    Suspend,
}

choice!(ParkMethod, "way of parking", {
    "criu" => ParkMethod::Criu,
    "pageout" => ParkMethod::PageOut,
    "suspend" => ParkMethod::Suspend,
});

/// The steps of the search for the fewest slots, about a second of work.
const EXACT_VISITS: u32 = 200_000;

choice!(Packing, "way of packing", {
    "first-fit" => Packing::FirstFit,
    "best-fit" => Packing::BestFit,
    "buddy" => Packing::Buddy,
    "exact" => Packing::Exact { visits_max: EXACT_VISITS },
});

choice!(Rotation, "kind of rotation", {
    "set" => Rotation::Set,
    "job" => Rotation::Job,
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

/// Whether what goes over a link is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encryption {
    On,
    Off,
}

choice!(Encryption, "setting of encryption", {
    "on" => Encryption::On,
    "off" => Encryption::Off,
});

choice!(Heartbeats, "way of heartbeats", {
    "sessions" => Heartbeats::Sessions,
    "tree" => Heartbeats::Tree,
});

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
    fn the_message_on_a_misspelt_word_proposes_the_nearest() {
        let misread = Policy::read("hibrid").unwrap_err();
        assert_eq!(misread.message, "`hibrid` is not a policy");
        assert_eq!(
            misread.help.unwrap(),
            "did you mean `hybrid`? known are batch, cosched, gang, hybrid, paired"
        );
        assert_eq!(Policy::read("rms").unwrap_err().message, "`rms` is only simulated");
    }
}
