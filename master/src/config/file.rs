//! The fields of the run file, as a user writes them. The JSON Schema is generated from these types, and
//! their descriptions are part of it.

use std::{borrow::Cow, collections::BTreeMap, fmt, time::Duration};

use coswitch_dispatcher::{
    protocol::{Delivery, Wait},
    watch::Heartbeats,
};
use coswitch_policies::{
    Alternate, Bytes, Estimate, Oracle, Packing, Policy, Rate, Residency, Rotation, ShortOfMemory,
    SwitchOrder,
    local::explicit::PowerWeight,
    spaceshare::{
        choice::{AllocatorName, QueueName},
        layout::{GroupLayout, PrimeTime, QueueLayout, SetLayout},
    },
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};
use serde_yaml::Spanned;

use super::{
    choice::{Encryption, ParkMethod},
    job_set::NODES_MAX,
    leaf::{BetweenFailures, Copies, Leaf, Percent, Priority, Processors},
    technique::LocalPart,
};

/// A coswitch run file: the machines, how they are shared, and the jobs.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct RunFile {
    /// The machines the jobs run on.
    #[schemars(required, with = "ClusterPart")]
    pub cluster: Option<ClusterPart>,
    /// How the machines are shared between the jobs.
    #[serde(default)]
    pub scheduler: Option<SchedulerPart>,
    /// The jobs, at least one.
    #[schemars(required, with = "Vec<JobPart>", length(min = 1))]
    pub jobs: Option<Spanned<Vec<JobPart>>>,
}

/// The machines.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct ClusterPart {
    /// The number of virtual nodes on this machine; or a list of hosts, which are the nodes; or `slurm`:
    /// those of the allocation that coswitch runs in.
    #[schemars(with = "Nodes")]
    pub nodes: Spanned<Nodes>,
    /// The memory that one node offers to jobs, where a host of `nodes` says no other. With `nodes: slurm`
    /// it may be left out: the allocation's, less what coswitch takes; and with hosts: what each has free
    /// when the file is read, less what coswitch takes.
    #[serde(default)]
    pub memory: Option<Leaf<Bytes>>,
    /// The links between the nodes; full speed if left out.
    #[serde(default)]
    pub network: Option<NetworkPart>,
    /// Memory of each node, in addition to `memory`, for pages on their way to the store; 256MiB or `memory`,
    /// whichever is less, if left out.
    #[serde(default)]
    pub arena: Option<Leaf<Bytes>>,
    /// Where the images of parked jobs go; `/var/lib/coswitch` if left out.
    #[serde(default)]
    #[schemars(with = "Option<StorePart>")]
    pub store: Option<Spanned<StorePart>>,
    /// On how many other nodes each sealed snapshot is copied, so that a node may lose its disk, at most the
    /// other nodes there are; if left out 1 between machines, and 0 between virtual nodes and where the
    /// nodes of an allocation of Slurm share the store.
    #[serde(default)]
    pub copies: Option<Leaf<Copies>>,
    /// How long a node may be silent, with its connection open, before it counts as lost; 10min if left out.
    #[serde(default)]
    pub lost_after: Option<Leaf<Duration>>,
    /// How the master hears that its nodes live. `sessions`: each has a heartbeat a second. `tree`: where
    /// there are more than eight, one question a second to all of them, by the tree of daemons, and few
    /// heartbeats; `sessions` if left out.
    #[serde(default)]
    pub heartbeats: Option<Leaf<Heartbeats>>,
    /// How long the jobs of a node wait for a master that is silent, with its connection open; 24h if left
    /// out.
    #[serde(default)]
    pub stop_after: Option<Leaf<Duration>>,
    /// How long a node runs on average until it is lost, or `never`; 7d if left out. With the measured cost
    /// of a checkpoint it says how often jobs that stay in memory are checkpointed.
    #[serde(default)]
    pub mean_time_between_failures: Option<Leaf<BetweenFailures>>,
}

/// Where images go: a directory, or several, used in their order.
#[derive(Debug)]
pub enum StorePart {
    Directory(String),
    /// An image goes to the first directory with enough space.
    Tiers(Vec<TierPart>),
}

/// A directory for images.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct TierPart {
    /// The directory.
    pub directory: Leaf<String>,
    /// The most that the images of one node take there; no limit if left out.
    #[serde(default)]
    pub size: Option<Leaf<Bytes>>,
}

/// The links between nodes.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct NetworkPart {
    /// The rate of a node's link, of virtual nodes; full speed if left out.
    #[serde(default)]
    pub rate: Option<Leaf<Rate>>,
    /// Whether messages are encrypted and authenticated on their way to another node; `on` between machines
    /// and `off` between virtual nodes if left out.
    #[serde(default)]
    pub encryption: Option<Leaf<Encryption>>,
}

/// How the machines are shared. Fields that are left out have their defaults.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct SchedulerPart {
    /// The policy that fills the matrix.
    #[serde(default)]
    pub policy: Option<Leaf<Policy>>,
    /// The order in which waiting jobs start (policy `batch`). `fcfs`: in the order of their arrival. `easy`
    /// and `conservative` backfill: a job starts earlier where that delays no reservation, which the first
    /// waiting job has, or every one; each job needs a `time_limit`, or an `alone`. `aging`: every job that
    /// fits starts, until one has waited for a day.
    #[serde(default)]
    pub queue: Option<Leaf<QueueName>>,
    /// The nodes that a job gets (policy `batch`).
    #[serde(default)]
    pub allocator: Option<Leaf<AllocatorName>>,
    /// The node sets into which the cluster is divided (policy `batch`), as in a machine file of `simulate`.
    /// Each node is in one set.
    #[serde(default)]
    #[schemars(with = "Option<Vec<SetLayout>>")]
    pub sets: Option<Spanned<Vec<Spanned<SetLayout>>>>,
    /// The node groups: which sets their jobs get, in prime time and outside of it.
    #[serde(default)]
    #[schemars(with = "Option<Vec<GroupLayout>>")]
    pub groups: Option<Spanned<Vec<Spanned<GroupLayout>>>>,
    /// The hours of prime time, by the clock of this machine; from 9 to 17 on each day if left out.
    #[serde(default)]
    #[schemars(with = "Option<PrimeTime>")]
    pub prime_time: Option<Spanned<PrimeTime>>,
    /// The queues of the groups; one for each group, of its name, if left out.
    #[serde(default)]
    #[schemars(with = "Option<Vec<QueueLayout>>")]
    pub queues: Option<Spanned<Vec<Spanned<QueueLayout>>>>,
    /// The partitions into which the cluster is divided (policy `batch`), in the place of `sets`, `groups`
    /// and `queues`. Each node is in one partition; a job that names none runs in the first.
    #[serde(default)]
    #[schemars(with = "Option<Vec<PartitionPart>>")]
    pub partitions: Option<Spanned<Vec<Spanned<PartitionPart>>>>,
    /// With the queue `aging` and `sets`: the points that a waiting job gains in an hour; 1 if left out.
    #[serde(default)]
    #[schemars(with = "Option<i64>")]
    pub age_factor: Option<Spanned<i64>>,
    /// With the queue `aging` and `sets`: above so many points no job overtakes one that does not fit; never
    /// if left out.
    #[serde(default)]
    #[schemars(with = "Option<i64>")]
    pub block_priority: Option<Spanned<i64>>,
    /// How long a slot stays active: a length of time, or `auto`, the shortest that keeps switching within
    /// `overhead`.
    #[serde(default)]
    pub quantum: Option<Leaf<Duration>>,
    /// The share of time that switching may cost, with the quantum `auto`.
    #[serde(default)]
    pub overhead: Option<Leaf<Percent>>,
    /// The longest quantum that `auto` chooses. Where even that costs more than `overhead`, fewer slots take
    /// turns.
    #[serde(default)]
    pub quantum_max: Option<Leaf<Duration>>,
    /// The order of the steps of a switch, where memory holds what that needs.
    #[serde(default)]
    pub switching: Option<Leaf<SwitchOrder>>,
    /// What a switch does where memory does not hold what its order needs: it is `sequential`, or it keeps
    /// its order and the kernel swaps (`swap`).
    #[serde(default)]
    pub short_of_memory: Option<Leaf<ShortOfMemory>>,
    /// How early `prefetch` begins: the mean of the measured restores before the turn (`exact`), or earlier
    /// by their deviation (`greedy`).
    #[serde(default)]
    pub oracle: Option<Leaf<Oracle>>,
    /// Where jobs wait for their turns: in memory while it has free capacity (`planned`), or out of memory
    /// (`none`).
    #[serde(default)]
    pub residency: Option<Leaf<Residency>>,
    /// The estimate of a job's memory: the declared size, corrected by measurements (`measured`), or always
    /// the declared size (`declared`).
    #[serde(default)]
    pub needs: Option<Leaf<Estimate>>,
    /// How a job leaves memory: into images, into swap space, or not at all.
    #[serde(default)]
    pub park: Option<Leaf<ParkMethod>>,
    /// The most jobs that may share a node in one slot (policy `hybrid`).
    #[serde(default)]
    pub max_per_cell: Option<Leaf<u32>>,
    /// The most jobs that wait to begin in a cluster that `serve` holds: what is submitted beyond them is
    /// refused. Only the limit of all jobs, 1000, if left out.
    #[serde(default)]
    pub max_queued: Option<Leaf<u32>>,
    /// The most of them that one user may have, other than root; half of `max_queued`, or 500, if left out.
    #[serde(default)]
    pub max_queued_per_user: Option<Leaf<u32>>,
    /// The time limit of a job that has none of its own and none by its queue; none if left out, or
    /// `time_limit_max`.
    #[serde(default)]
    pub time_limit_default: Option<Leaf<Duration>>,
    /// The longest time limit of a job: one that asks for a longer one is refused.
    #[serde(default)]
    pub time_limit_max: Option<Leaf<Duration>>,
    /// How jobs that are submitted together get their slots.
    #[serde(default)]
    pub packing: Option<Leaf<Packing>>,
    /// What is exchanged at the end of a turn: the whole set or one job of it (policy `hybrid`).
    #[serde(default)]
    pub rotation: Option<Leaf<Rotation>>,
    /// Which jobs are backfilled into the slots of other jobs where their nodes are idle.
    #[serde(default)]
    pub alternate: Option<Leaf<Alternate>>,
    /// How a rank waits for a message.
    #[serde(default)]
    pub wait: Option<Leaf<Wait>>,
    /// The time for which a job computes before the others that are in memory with it have their turn, on all
    /// nodes at once and without a cut; all at the same time if left out (policies `hybrid`, `paired` and
    /// `cosched`).
    #[serde(default)]
    pub slice: Option<Leaf<Duration>>,
    /// Which of the processes that want a processor of a node the kernel favours: the receiver of a message
    /// (`dcs`), one that has just been woken (`ics`), those that communicate more (`predictive`), or receive
    /// more (`dynamic`), MPI ranks before other processes (`hpdt`), or either kind in its turn (`dts`,
    /// `dts-static`, `dts-balanced`, `dts-stop`), the job whose slot it is, by what slots do for it (`fcs`),
    /// or in any case, with messages that go at the end of a slot (`bcs`), or none before another, as a
    /// baseline for comparisons (`round-robin`); `none` leaves all to the kernel and counts nothing. It also
    /// says how ranks wait. A technique can also be written with its parameters, such as `dcs: {share:
    /// 1ms}`.
    #[serde(default)]
    #[schemars(with = "Option<LocalPart>")]
    pub local: Option<Spanned<LocalPart>>,
}

/// A partition: nodes of its own, how long jobs run there, and whose.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct PartitionPart {
    /// Its name, which jobs use.
    pub name: String,
    /// Its nodes, by the names or numbers of `cluster.nodes`.
    #[schemars(schema_with = "names_or_numbers")]
    pub nodes: Vec<String>,
    /// The longest time limit of a job there, and that of a job that gives none; as the job says if left out.
    #[serde(default)]
    pub time_limit: Option<Leaf<Duration>>,
    /// Its jobs are taken before those of partitions with a lower one; 0 if left out.
    #[serde(default)]
    pub priority: Option<Leaf<Priority>>,
    /// The users who may submit to it, by name or number, besides root; all if left out.
    #[serde(default)]
    #[schemars(with = "Option<Vec<Leaf<String>>>")]
    pub users: Option<Spanned<Vec<Leaf<String>>>>,
}

fn names_or_numbers(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": { "type": ["string", "integer"] } })
}

/// One job, or several alike.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct JobPart {
    /// The name of the job; with `count` above 1 the jobs are called `name-1`, `name-2` and so on.
    pub name: Leaf<String>,
    /// The program and its arguments. A program with a `/` is looked up from the directory of this file,
    /// others in PATH.
    #[schemars(with = "Vec<Leaf<String>>", length(min = 1))]
    pub command: Spanned<Vec<Leaf<String>>>,
    /// How the nodes get the program: they see it at its path (`shared`), or it is sent to them, each time
    /// that the job is launched (`sent`); `shared` if left out.
    #[serde(default)]
    pub program: Option<Leaf<Delivery>>,
    /// The number of MPI ranks.
    pub ranks: Leaf<u32>,
    /// The working set of one rank.
    pub memory: Leaf<Bytes>,
    /// How many such jobs there are; 1 if left out.
    #[serde(default)]
    pub count: Option<Leaf<u32>>,
    /// When the job is submitted, from the start of the run; at once if left out.
    #[serde(default)]
    pub arrival: Option<Leaf<Duration>>,
    /// Jobs above this one, by their names, that have to end well before it is submitted; each of them where
    /// `count` makes several. If one of them fails, so does this job.
    #[serde(default)]
    pub after: Option<Vec<Leaf<String>>>,
    /// Environment variables for the ranks.
    #[serde(default)]
    pub env: Option<BTreeMap<String, Leaf<String>>>,
    /// The working directory of the ranks; the directory of this file if left out.
    #[serde(default)]
    pub cwd: Option<Leaf<String>>,
    /// How long the job takes alone, where known; the trade-off metric needs it.
    #[serde(default)]
    pub alone: Option<Leaf<Duration>>,
    /// The job is ended when it has run for so long; the time in which it is parked does not count. The
    /// queues `easy` and `conservative` rely on it.
    #[serde(default)]
    pub time_limit: Option<Leaf<Duration>>,
    /// The node group whose nodes the job gets, where `scheduler.groups` has some: the first of its queues.
    #[serde(default)]
    pub group: Option<Leaf<String>>,
    /// The queue in which the job waits, where `scheduler.queues` has some; the first one if neither it nor
    /// `group` is given.
    #[serde(default)]
    pub queue: Option<Leaf<String>>,
    /// The partition in which the job runs, where `scheduler.partitions` has some; the first one if left out.
    #[serde(default)]
    pub partition: Option<Leaf<String>>,
    /// The user whose job it is, by name or number: its ranks have the rights of that user alone. Root's if
    /// left out.
    #[serde(default)]
    pub user: Option<Leaf<String>>,
    /// How a rank of this job waits for a message.
    #[serde(default)]
    pub wait: Option<Leaf<Wait>>,
    /// Jobs of the highest priority take turns; jobs of a lower one run beside them where they fit, and else
    /// wait, in memory or parked, until no job of a higher one is left. 0 if left out.
    #[serde(default)]
    pub priority: Option<Leaf<Priority>>,
}

/// The field `nodes` as written.
#[derive(Debug)]
pub enum Nodes {
    /// A number of virtual nodes, or a word: `slurm`.
    Word(String),
    Hosts(Vec<Spanned<HostEntry>>),
}

/// A host of the list `nodes`: only its name, or its name and what is special about it.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct HostPart {
    /// The host, as `ssh` takes it.
    pub host: String,
    /// The name or IP address at which the other nodes and the master reach the host; if left out, the one
    /// that `ssh` uses.
    #[serde(default)]
    pub address: Option<String>,
    /// The memory that this host offers to jobs; `cluster.memory` if left out.
    #[serde(default)]
    pub memory: Option<Leaf<Bytes>>,
    /// The processors of this host that coswitch and the ranks use, as the kernel writes a list: `0-7,16-23`;
    /// all if left out.
    #[serde(default)]
    pub processors: Option<Leaf<Processors>>,
    /// How fast this host is by the fastest one (power weight): time of that one for a serial program by the
    /// time of this one, above 0 to 1; 1 if left out. DTS in balanced mode weighs the load of the host by it.
    #[serde(default)]
    pub power: Option<Leaf<PowerWeight>>,
    /// Where this host keeps images; `cluster.store` if left out.
    #[serde(default)]
    #[schemars(with = "Option<StorePart>")]
    pub store: Option<Spanned<StorePart>>,
}

impl Nodes {
    /// Whether the nodes are on this machine.
    #[must_use]
    pub fn are_virtual(&self) -> bool {
        matches!(self, Self::Word(_)) && !self.are_slurms()
    }

    /// Whether the nodes are those of an allocation of Slurm.
    #[must_use]
    pub fn are_slurms(&self) -> bool {
        matches!(self, Self::Word(word) if word == "slurm")
    }
}

/// A host as written: a name, or the fields of [`HostPart`].
#[derive(Debug)]
pub struct HostEntry(pub HostPart);

impl<'de> Deserialize<'de> for HostEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct HostVisitor;

        impl<'de> Visitor<'de> for HostVisitor {
            type Value = HostEntry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a host")
            }

            fn visit_str<E>(self, host: &str) -> Result<HostEntry, E> {
                Ok(HostEntry(HostPart { host: host.into(), ..HostPart::default() }))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<HostEntry, A::Error> {
                HostPart::deserialize(MapAccessDeserializer::new(map)).map(HostEntry)
            }
        }

        deserializer.deserialize_any(HostVisitor)
    }
}

impl JsonSchema for Nodes {
    fn schema_name() -> Cow<'static, str> {
        "Nodes".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let host = generator.subschema_for::<HostPart>();
        json_schema!({ "anyOf": [
            { "type": "integer", "minimum": 1, "maximum": NODES_MAX },
            { "type": "string", "const": "slurm" },
            { "type": "array", "minItems": 1, "maxItems": NODES_MAX,
              "items": { "anyOf": [{ "type": "string" }, host] } },
        ] })
    }
}

impl<'de> Deserialize<'de> for Nodes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NodesVisitor;

        impl<'de> Visitor<'de> for NodesVisitor {
            type Value = Nodes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of virtual nodes, `slurm` or a list of hosts")
            }

            fn visit_u64<E>(self, number: u64) -> Result<Nodes, E> {
                Ok(Nodes::Word(number.to_string()))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Nodes, E> {
                Ok(Nodes::Word(number.to_string()))
            }

            fn visit_f64<E>(self, number: f64) -> Result<Nodes, E> {
                Ok(Nodes::Word(number.to_string()))
            }

            fn visit_bool<E>(self, value: bool) -> Result<Nodes, E> {
                Ok(Nodes::Word(value.to_string()))
            }

            fn visit_str<E>(self, word: &str) -> Result<Nodes, E> {
                Ok(Nodes::Word(word.into()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut hosts: A) -> Result<Nodes, A::Error> {
                let mut parts = Vec::new();
                while let Some(part) = hosts.next_element()? {
                    parts.push(part);
                }
                Ok(Nodes::Hosts(parts))
            }
        }

        deserializer.deserialize_any(NodesVisitor)
    }
}

impl JsonSchema for StorePart {
    fn schema_name() -> Cow<'static, str> {
        "Store".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let tiers = generator.subschema_for::<Vec<TierPart>>();
        json_schema!({ "anyOf": [{ "type": "string" }, tiers] })
    }
}

impl<'de> Deserialize<'de> for StorePart {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct StoreVisitor;

        impl<'de> Visitor<'de> for StoreVisitor {
            type Value = StorePart;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a directory or a list of directories")
            }

            fn visit_str<E>(self, directory: &str) -> Result<StorePart, E> {
                Ok(StorePart::Directory(directory.into()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut tiers: A) -> Result<StorePart, A::Error> {
                let mut parts = Vec::new();
                while let Some(part) = tiers.next_element()? {
                    parts.push(part);
                }
                Ok(StorePart::Tiers(parts))
            }
        }

        deserializer.deserialize_any(StoreVisitor)
    }
}
