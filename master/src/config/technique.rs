//! `scheduler.local` as a user writes it: a word, or a technique with its parameters.

use std::{borrow::Cow, fmt, time::Duration};

use coswitch_policies::local::explicit::Filling;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor, value::MapAccessDeserializer},
};

use super::{
    choice::{DtsWord, Local},
    leaf::{Leaf, Quantity},
};

/// The field `local` as written.
#[derive(Debug)]
pub enum LocalPart {
    Word(String),
    Parameters(Box<TechniquePart>),
}

/// One technique with its parameters. Those that are left out have their defaults.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields, extend("minProperties" = 1, "maxProperties" = 1))]
pub struct TechniquePart {
    /// A message calls its receiver (paper 000, §2.2).
    #[serde(default)]
    pub dcs: Option<DcsPart>,
    /// A rank that waits spins, then blocks (paper 000, §2.2; paper 001, §3.4).
    #[serde(default)]
    pub ics: Option<IcsPart>,
    /// Ranks that communicate more overtake (PCA; paper 001, §2.2.4).
    #[serde(default)]
    pub predictive: Option<OvertakingPart>,
    /// Ranks that receive more overtake (DCA; paper 001, §2.3).
    #[serde(default)]
    pub dynamic: Option<OvertakingPart>,
    /// MPI ranks run before local tasks (paper 001, §3.3).
    #[serde(default)]
    pub hpdt: Option<SlicePart>,
    /// MPI ranks and local tasks have slices that take turns (paper 001, §2.1).
    #[serde(default)]
    pub dts: Option<DtsPart>,
    /// Slots are used by the measured class of a rank (paper 000, §2.4). How long they are says
    /// `scheduler.slice`.
    #[serde(default)]
    pub fcs: Option<FcsPart>,
    /// Messages go by slots (paper 000, §2.3). How long they are says `scheduler.slice`.
    #[serde(default)]
    pub bcs: Option<BcsPart>,
    /// No process before another; for comparisons with the others (LIN; paper 001, ch. 4).
    #[serde(default, rename = "round-robin")]
    pub round_robin: Option<SlicePart>,
}

/// The parameters of `dcs`.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct DcsPart {
    /// How long a task runs while others wait; 10ms if left out.
    #[serde(default)]
    pub slice: Option<Leaf<Duration>>,
    /// How much more processor time than the receiver of a message the running task must have had before the
    /// receiver may take its place; 200us if left out.
    #[serde(default)]
    pub share: Option<Leaf<Duration>>,
    /// How much processor time beyond its equal share of the node a task may take by messages, after a time
    /// in which it has had less; 20ms if left out. A long one, such as 1h, lets every message call.
    #[serde(default)]
    pub credit_max: Option<Leaf<Duration>>,
}

/// The parameters of `ics`.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct IcsPart {
    /// How long a task runs while others wait; 10ms if left out.
    #[serde(default)]
    pub slice: Option<Leaf<Duration>>,
    /// How long a rank that waits spins before it blocks; as `switches` says if left out.
    #[serde(default)]
    pub spin: Option<Leaf<Duration>>,
    /// The same in context switches, whose cost each daemon measures as it starts; 2 if left out (paper 001,
    /// formula 3.5).
    #[serde(default)]
    pub switches: Option<Leaf<u32>>,
    /// Whether a task that is woken runs at once; true if left out, false as in paper 001.
    #[serde(default)]
    pub woken_first: Option<Leaf<bool>>,
}

/// The parameters of `predictive` and `dynamic`.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct OvertakingPart {
    /// How long a task runs while others wait; 10ms if left out.
    #[serde(default)]
    pub slice: Option<Leaf<Duration>>,
    /// How often a task may be overtaken between two runs (*MCO*); 2 if left out.
    #[serde(default)]
    pub overtakes_max: Option<Leaf<u32>>,
    /// The weight of the past in the frequency of messages, from 0 to 1 (*P*); 0 if left out.
    #[serde(default)]
    pub past_weight: Option<Leaf<f64>>,
}

/// The parameters of `bcs`.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct BcsPart {
    /// How long a task runs while others wait; 10ms if left out.
    #[serde(default)]
    pub slice: Option<Leaf<Duration>>,
    /// How often messages are exchanged in a slot; 1 if left out. Each exchange has 300us or more.
    #[serde(default)]
    pub exchanges: Option<Leaf<u32>>,
    /// Whether messages go at once, in no fixed order, while no node has processes of two jobs; false if left
    /// out.
    #[serde(default)]
    pub dedicated: Option<Leaf<bool>>,
}

/// The parameters of `hpdt` and `round-robin`.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct SlicePart {
    /// How long a task runs while others wait; 10ms if left out.
    #[serde(default)]
    pub slice: Option<Leaf<Duration>>,
}

/// The parameters of `dts`.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct DtsPart {
    /// How long a task runs while others of its kind wait; 10ms if left out.
    #[serde(default)]
    pub slice: Option<Leaf<Duration>>,
    /// What sets the slices: this file (`static`), the mean load of all nodes (`balanced`), or the load of
    /// each node (`distributed`); `distributed` if left out.
    #[serde(default)]
    pub mode: Option<Leaf<DtsWord>>,
    /// The slice of MPI ranks (*PS*), in mode `static`; 50ms if left out.
    #[serde(default)]
    pub parallel: Option<Leaf<Duration>>,
    /// The slice of local tasks (*LS*), in mode `static`; 50ms if left out.
    #[serde(default)]
    pub local: Option<Leaf<Duration>>,
    /// What both slices take together (*IP*), in the other modes; 100ms if left out.
    #[serde(default)]
    pub period: Option<Leaf<Duration>>,
    /// Whether either kind uses the slice of the other one where none of that kind is ready (`both`), or MPI
    /// ranks stand still in the slice of local tasks (`stop`); `both` if left out.
    #[serde(default)]
    pub filling: Option<Leaf<Filling>>,
    /// The time between two looks at how many local tasks are ready, not in mode `static`; 1s if left out.
    #[serde(default)]
    pub sample_every: Option<Leaf<Duration>>,
    /// Looks whose mean goes into the load index, not in mode `static`; 10 if left out.
    #[serde(default)]
    pub samples: Option<Leaf<u32>>,
    /// The weight of the past in the load index, from 0 to 1, not in mode `static`; 0.846 if left out, which
    /// smooths over a minute.
    #[serde(default)]
    pub past_weight: Option<Leaf<f64>>,
    /// By how many tasks the load index changes before a node reports it, in mode `balanced`; 1 if left out.
    #[serde(default)]
    pub threshold: Option<Leaf<f64>>,
}

/// The parameters of `fcs`.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct FcsPart {
    /// How long a task runs while others wait and no slot is its own; 10ms if left out.
    #[serde(default)]
    pub slice: Option<Leaf<Duration>>,
    /// Slots of its own in which a new rank counts as coscheduled (CS), and then as many in which it counts
    /// as one that needs no slots (DC), before it is classed; 2 if left out.
    #[serde(default)]
    pub trial_slots: Option<Leaf<u32>>,
    /// Slots of its own after which the counts of a rank are halved; 8 if left out.
    #[serde(default)]
    pub forget_after: Option<Leaf<u32>>,
    /// A rank that has sent and received fewer messages communicates rarely; 10 if left out.
    #[serde(default)]
    pub rare: Option<Leaf<u32>>,
    /// A rank that waits longer for a message, on average, waits long; 500us if left out.
    #[serde(default)]
    pub long_wait: Option<Leaf<Duration>>,
    /// A rank that communicates more often by this factor in slots of its own needs them; 2 if left out.
    #[serde(default)]
    pub high_ratio: Option<Leaf<f64>>,
}

impl JsonSchema for LocalPart {
    fn schema_name() -> Cow<'static, str> {
        "Local".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let parameters = generator.subschema_for::<TechniquePart>();
        json_schema!({ "anyOf": [<Local as Quantity>::schema(), parameters] })
    }
}

impl<'de> Deserialize<'de> for LocalPart {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct LocalVisitor;

        macro_rules! words {
            ($($visit:ident: $type:ty),*) => {
                $(fn $visit<E>(self, word: $type) -> Result<LocalPart, E> {
                    Ok(LocalPart::Word(word.to_string()))
                })*
            };
        }

        impl<'de> Visitor<'de> for LocalVisitor {
            type Value = LocalPart;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a node scheduler")
            }

            words!(visit_str: &str, visit_bool: bool, visit_u64: u64, visit_i64: i64, visit_f64: f64);

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<LocalPart, A::Error> {
                let part = TechniquePart::deserialize(MapAccessDeserializer::new(map))?;
                Ok(LocalPart::Parameters(Box::new(part)))
            }
        }

        deserializer.deserialize_any(LocalVisitor)
    }
}
