//! Resolves how a cluster is divided: node sets, groups, queues and hours, by the layout that machine files
//! of the simulator have as well.

use std::fmt::Display;

use coswitch_policies::{
    ConfigError, NodeId, Policy,
    spaceshare::{
        layout::{Layout, LayoutError, QueueLayout, QueueUser},
        machine::MachineError,
        sharing::{NodeSets, SpaceSharing},
    },
};
use coswitch_report::words::span;
use miette::SourceSpan;
use nix::unistd::{Uid, User};
use serde_yaml::Spanned;

use super::{Context, Reader};
use crate::config::{
    file::{JobPart, SchedulerPart},
    job_set::{ClusterConfig, Job, Settings},
    leaf::{Leaf, Priority},
    problem::Problem,
    tree::span_at,
};

impl SchedulerPart {
    /// The fields that divide the cluster, as far as the file has them.
    pub(super) fn divided(&self) -> Vec<(&'static str, SourceSpan)> {
        fn at<T>(part: Option<&Spanned<T>>) -> Option<SourceSpan> {
            part.map(|part| span_at(&part.referenced))
        }
        let all = [
            ("scheduler.sets", at(self.sets.as_ref())),
            ("scheduler.groups", at(self.groups.as_ref())),
            ("scheduler.prime_time", at(self.prime_time.as_ref())),
            ("scheduler.queues", at(self.queues.as_ref())),
            ("scheduler.partitions", at(self.partitions.as_ref())),
            ("scheduler.age_factor", at(self.age_factor.as_ref())),
            ("scheduler.block_priority", at(self.block_priority.as_ref())),
        ];
        all.into_iter().filter_map(|(field, span)| Some((field, span?))).collect()
    }

    /// The layout; `None` where the file has none, or only a part of one.
    fn layout(&self) -> Option<Layout> {
        fn values<T: Clone>(list: &Spanned<Vec<Spanned<T>>>) -> Vec<T> {
            list.value.iter().map(|part| part.value.clone()).collect()
        }
        if let Some(partitions) = &self.partitions {
            let named =
                partitions.value.iter().map(|part| (part.value.name.clone(), part.value.nodes.clone()));
            return Some(Layout::of_partitions(&named.collect::<Vec<_>>()));
        }
        let (sets, groups) = (values(self.sets.as_ref()?), values(self.groups.as_ref()?));
        let of_groups = || groups.iter().map(QueueLayout::of_group).collect();
        Some(Layout {
            partition: None,
            queues: self.queues.as_ref().map_or_else(of_groups, values),
            sets,
            groups,
            prime_time: self.prime_time.as_ref().map(|part| part.value).unwrap_or_default(),
            age_factor: self.age_factor.as_ref().map_or(1, |part| part.value),
            block_priority: self.block_priority.as_ref().map(|part| part.value),
        })
    }
}

impl Reader {
    /// How the file divides the cluster.
    pub(super) fn sets(
        &mut self,
        part: &SchedulerPart,
        settings: &Settings,
        cluster: &ClusterConfig,
        context: &Context<'_>,
    ) -> Option<Box<NodeSets>> {
        let (first, span) = *part.divided().first()?;
        if settings.policy != Policy::Batch {
            // Which is reported.
            return None;
        }
        let Some(mut layout) = part.layout() else {
            let has_sets = part.sets.is_some();
            let missing = if has_sets { "groups" } else { "sets" };
            let problem = Problem::new(first, span, format!("there is no `scheduler.{missing}` with it"));
            self.refuse(problem.help(match has_sets {
                true => "name the groups of jobs and their sets: `groups: [{name: all, sets: [thin, fat]}]`",
                false => "divide the nodes into sets: `sets: [{name: thin, width: 4}]`",
            }));
            return None;
        };
        self.read_partitions(part, &mut layout)?;
        if !cluster.capacities().is_uniform() {
            self.refuse(Problem::new(first, span, ConfigError::UnequalNodes.to_string()));
            return None;
        }
        let find = |name: &str| cluster.find(name);
        let nodes = layout.check().and_then(|()| layout.nodes_by_unit(cluster.nodes, find));
        let sets = nodes.and_then(|nodes| {
            let sets = NodeSets { layout: layout.clone(), nodes, start: context.start };
            let space = SpaceSharing { sets: Some(Box::new(sets)), ..settings.undivided() };
            space.check(&cluster.capacities()).map(|()| space.sets)
        });
        match sets {
            Ok(sets) => sets,
            Err(error) => {
                let (field, span) = place(part, &layout, &error);
                let problem = Problem::new(field, span, error.to_string());
                self.refuse(match help(&layout, cluster, &error) {
                    Some(help) => problem.help(help),
                    None => problem,
                });
                None
            }
        }
    }

    /// Time limits, priorities and users of partitions; `None` where something else divides the cluster as
    /// well.
    fn read_partitions(&mut self, part: &SchedulerPart, layout: &mut Layout) -> Option<()> {
        let Some(partitions) = &part.partitions else { return Some(()) };
        let mut others = part.divided().into_iter();
        if let Some((field, span)) = others.find(|(field, _)| *field != "scheduler.partitions") {
            let problem = Problem::new(field, span, "`scheduler.partitions` divide the cluster already");
            self.refuse(problem.help("leave it out, or write `sets`, `groups` and `queues` alone"));
            return None;
        }
        for ((index, partition), queue) in partitions.value.iter().enumerate().zip(&mut layout.queues) {
            let (part, path) = (&partition.value, format!("scheduler.partitions[{index}]"));
            queue.time_limit = self.limit(&format!("{path}.time_limit"), part.time_limit.as_ref());
            let priority = self.optional(&format!("{path}.priority"), part.priority.as_ref());
            let Priority(priority) = priority.unwrap_or_default();
            (queue.rank, queue.priority) = (priority, priority.into());
            let users = part.users.as_ref();
            queue.users = users.map(|users| self.users(&format!("{path}.users"), users));
        }
        Some(())
    }

    /// The users of a partition.
    fn users(&mut self, field: &str, users: &Spanned<Vec<Leaf<String>>>) -> Vec<QueueUser> {
        if users.value.is_empty() {
            let problem = Problem::new(field, span_at(&users.referenced), "it takes jobs of no user");
            self.refuse(problem.help("name a user, or leave `users` out: then it takes jobs of all"));
        }
        let mut found = Vec::new();
        for (place, leaf) in users.value.iter().enumerate() {
            match user(leaf.text().trim()) {
                Some(user) => found.push(user),
                None => {
                    let why = format!("this machine has no user `{}`", leaf.text());
                    let problem = Problem::new(format!("{field}[{place}]"), leaf.span(), why);
                    self.refuse(problem.help("name users as `getent passwd` lists them, or by number"));
                }
            }
        }
        found
    }

    /// Checks the queue and the group that a job names, and gives it the time limit of its queue.
    pub(super) fn check_home(&mut self, path: &str, part: &JobPart, job: &mut Job, space: &SpaceSharing) {
        let named = part.group.as_ref().map(|leaf| ("group", leaf.span()));
        let named = part.queue.as_ref().map(|leaf| ("queue", leaf.span())).or(named);
        if let Some(leaf) = &part.partition
            && !self.check_partition(&format!("{path}.partition"), leaf, named, space)
        {
            return;
        }
        if let (Err(why), Some((field, span))) = (job.home(space), named) {
            let problem = Problem::new(format!("{path}.{field}"), span, why);
            self.refuse(match space.sets {
                Some(_) => problem.help("write one of these, or leave it out: then the first queue takes it"),
                None => problem.help("leave it out, or write `scheduler.sets` and `scheduler.groups`"),
            });
        }
        let Some(longest) = job.longest(space) else { return };
        if let (Some(limit), Some(leaf)) = (job.time_limit, &part.time_limit)
            && limit > longest
        {
            let longest = span(longest);
            let message = format!("its queue lets a job run for {longest} at most");
            let problem = Problem::new(format!("{path}.time_limit"), leaf.span(), message);
            self.refuse(problem.help("write a shorter time, leave it out, or name another queue"));
        }
        job.time_limit.get_or_insert(longest);
    }

    /// Whether the partition that a job names is there, and the job names nothing else.
    fn check_partition(
        &mut self,
        field: &str,
        leaf: &Leaf<String>,
        named: Option<(&str, SourceSpan)>,
        space: &SpaceSharing,
    ) -> bool {
        let problem = |why: String| Problem::new(field, leaf.span(), why);
        let known: Vec<&str> = space
            .sets
            .iter()
            .flat_map(|sets| sets.layout.queues.iter().map(|queue| queue.name.as_str()))
            .collect();
        let problem = match named {
            Some((other, _)) => {
                problem(format!("the job names a {other} as well")).help("leave one of both out")
            }
            None if known.is_empty() => problem("the cluster has no partitions".into())
                .help("leave it out, or write `scheduler.partitions`"),
            None if !known.contains(&leaf.text()) => {
                let why = format!("there is no partition `{}`; there are {}", leaf.text(), known.join(", "));
                problem(why).help("write one of these, or leave it out: then the job runs in the first")
            }
            None => return true,
        };
        self.refuse(problem);
        false
    }
}

/// The user of this name or number.
fn user(text: &str) -> Option<QueueUser> {
    let known = match text.parse() {
        Ok(number) => User::from_uid(Uid::from_raw(number)),
        Err(_) => User::from_name(text),
    };
    let known = known.ok().flatten().map(|user| QueueUser { name: user.name, number: user.uid.as_raw() });
    // A number need not have a name.
    known.or_else(|| Some(QueueUser { name: text.into(), number: text.parse().ok()? }))
}

impl ClusterConfig {
    /// The node of this name: a host, or a number as in `node-3`.
    fn find(&self, name: &str) -> Option<NodeId> {
        let of_slurm = self.allocation.iter().flat_map(|allocation| allocation.hosts.iter());
        let mut hosts = self.hosts.iter().map(|host| &host.name).chain(of_slurm);
        let place = hosts.position(|host| host == name).and_then(|place| u32::try_from(place).ok());
        let number = || name.strip_prefix("node-").unwrap_or(name).parse().ok();
        place.or_else(number).map(NodeId).filter(|node| node.0 < self.nodes)
    }
}

/// The field that an error is about, and where it is.
fn place(part: &SchedulerPart, layout: &Layout, error: &LayoutError) -> (String, SourceSpan) {
    fn entry<T>(
        list: Option<&Spanned<Vec<Spanned<T>>>>,
        name: &str,
        is_it: impl Fn(&T) -> bool,
    ) -> Option<(String, SourceSpan)> {
        // Of two alike the second is wrong.
        let place = list?.value.iter().rposition(|part| is_it(&part.value))?;
        Some((format!("scheduler.{name}[{place}]"), span_at(&list?.value[place].referenced)))
    }
    let partition =
        |name: &str| entry(part.partitions.as_ref(), "partitions", |partition| partition.name == *name);
    let set =
        |name: &str| entry(part.sets.as_ref(), "sets", |set| set.name == *name).or_else(|| partition(name));
    let group = |name: &str| entry(part.groups.as_ref(), "groups", |group| group.name == *name);
    let queue = |name: &str| entry(part.queues.as_ref(), "queues", |queue| queue.name == *name);
    let field = |name: &str| {
        let field = part.divided().into_iter().find(|(field, _)| field.ends_with(name));
        field.map(|(field, span)| (field.to_owned(), span))
    };
    let found = match error {
        LayoutError::Unknown { from, what: "set", .. } => group(from),
        LayoutError::Unknown { from, .. } => queue(from),
        LayoutError::Twice("node set", name) => set(name),
        LayoutError::Twice("group", name) => group(name),
        LayoutError::Twice(_, name) => queue(name),
        LayoutError::Range("prime_time.to", ..) => field("prime_time"),
        LayoutError::Range("priority", value, _) => {
            entry(part.queues.as_ref(), "queues", |queue| queue.priority == *value)
        }
        LayoutError::Range("running", ..) => {
            entry(part.queues.as_ref(), "queues", |queue| queue.running == Some(0))
        }
        LayoutError::Range(name, ..) => field(name),
        LayoutError::IgnoredLimit(name) => queue(name),
        LayoutError::NoNodes(name) => group(name),
        LayoutError::Mesh { set: name, .. }
        | LayoutError::UnknownNode { set: name, .. }
        | LayoutError::NodeTwice { set: name, .. } => set(name),
        LayoutError::Machine(
            MachineError::UnknownSet { group: name, .. } | MachineError::SetTwice { group: name, .. },
        ) => group(name),
        LayoutError::Empty if layout.queues.is_empty() => field("queues").or_else(|| field("groups")),
        LayoutError::Empty => {
            entry(part.sets.as_ref(), "sets", |set| set.mesh().width == 0 || set.height == 0)
        }
        LayoutError::Nodes { .. } | LayoutError::Machine(MachineError::TooManySets(_)) => field("sets"),
    };
    let all = || field("sets").or_else(|| field("partitions"));
    found.or_else(all).expect("an error is about sets that are there")
}

/// What would be right.
fn help(layout: &Layout, cluster: &ClusterConfig, error: &LayoutError) -> Option<String> {
    fn listed<T: Display>(what: &str, all: impl Iterator<Item = T>) -> String {
        format!("{what} {}", all.map(|one| format!("`{one}`")).collect::<Vec<_>>().join(", "))
    }
    let sets = || listed("there are the sets", layout.sets.iter().map(|set| &set.name));
    Some(match error {
        LayoutError::Unknown { what: "set", .. } => sets(),
        LayoutError::Unknown { .. } => {
            listed("there are the groups", layout.groups.iter().map(|group| &group.name))
        }
        LayoutError::NoNodes(_) => format!("name at least one set in `sets` or `prime`; {}", sets()),
        LayoutError::IgnoredLimit(_) => "write `queue: aging`, or leave `running` out".into(),
        LayoutError::Empty => {
            "give each set a `width`, or its `nodes`; without `queues` each group has one".into()
        }
        LayoutError::UnknownNode { .. } if cluster.is_virtual() => {
            format!("the nodes are 0 to {}", cluster.nodes - 1)
        }
        LayoutError::UnknownNode { .. } => "name nodes as `cluster.nodes` does, or by number from 0".into(),
        LayoutError::Nodes { .. } if layout.sets.iter().all(|set| set.nodes.is_some()) => {
            "name each node of `cluster.nodes` in one of them".into()
        }
        LayoutError::Nodes { .. } => {
            "`width` × `height` of all sets, or their `nodes`, are all nodes of `cluster.nodes`".into()
        }
        LayoutError::Twice(..) | LayoutError::NodeTwice { .. } => "leave one of both out".into(),
        LayoutError::Mesh { .. } => "leave `width` and `height` out, or name as many nodes".into(),
        LayoutError::Range(..) | LayoutError::Machine(_) => return None,
    })
}
