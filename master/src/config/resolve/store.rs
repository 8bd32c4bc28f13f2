//! Where images go: the arena and the tiers of the store, each by itself, then against the jobs.

use std::path::Path;

use coswitch_daemon::node::{SNAPSHOT_OVERHEAD, Tier};
use coswitch_policies::{Bytes, Policy};
use serde_yaml::Spanned;

use super::Reader;
use crate::config::{
    choice::Park,
    file::{ClusterPart, StorePart, TierPart},
    job_set::{Job, JobSet},
    problem::Problem,
    tree::span_at,
};

const FIELD: &str = "cluster.store";

impl Reader {
    pub(super) fn arena(&mut self, part: &ClusterPart, memory: Option<Bytes>) -> Option<Bytes> {
        let leaf = part.arena.as_ref()?;
        let arena = self.read("cluster.arena", leaf)?;
        if let Some(memory) = memory.filter(|memory| arena > *memory) {
            let message = format!("the arena is larger than a node, which has {memory}");
            let problem = Problem::new("cluster.arena", leaf.span(), message);
            self.refuse(problem.help("it is memory besides the jobs'; `256MiB` does, `0B` is none"));
        }
        Some(arena)
    }

    pub(super) fn store(&mut self, store: &Spanned<StorePart>, base: &Path) -> Vec<Tier> {
        let whole = span_at(&store.referenced);
        match &store.value {
            StorePart::Directory(directory) => {
                let tier = Tier::unbounded(base.join(directory));
                self.must_be_there(&tier, Problem::new(FIELD, whole, ""));
                vec![tier]
            }
            StorePart::Tiers(parts) if parts.is_empty() => {
                let problem = Problem::new(FIELD, whole, "a store without directories holds no image");
                self.refuse(problem.help("name at least one, or leave `store` out"));
                Vec::new()
            }
            StorePart::Tiers(parts) => self.tiers(parts, base),
        }
    }

    fn tiers(&mut self, parts: &[TierPart], base: &Path) -> Vec<Tier> {
        let mut tiers: Vec<Tier> = Vec::new();
        for (index, part) in parts.iter().enumerate() {
            let field = |name: &str| format!("{FIELD}[{index}].{name}");
            let size = self.optional(&field("size"), part.size.as_ref());
            let tier =
                Tier { bytes_max: size.map(|Bytes(size)| size), root: base.join(part.directory.text()) };
            if let (Some(Bytes(0)), Some(leaf)) = (size, &part.size) {
                let problem = Problem::new(field("size"), leaf.span(), "a directory that may hold nothing");
                self.refuse(problem.help("remove it, or write for example `20GiB`"));
            }
            let problem = |message: String| Problem::new(field("directory"), part.directory.span(), message);
            self.must_be_there(&tier, problem(String::new()));
            let is_same = |other: &Tier| same(&other.root, &tier.root);
            if let Some(first) = tiers.iter().position(is_same) {
                let problem = problem(format!("it is the directory of {FIELD}[{first}] as well"));
                self.refuse(problem.help("name each directory once"));
            }
            tiers.push(tier);
        }
        tiers
    }

    /// `problem` has its place and lacks words.
    fn must_be_there(&mut self, tier: &Tier, problem: Problem) {
        if self.here && !tier.root.is_dir() {
            let message = format!("there is no directory {}", tier.root.display());
            self.refuse(
                Problem { message, ..problem }.help("make it; it counts from the run file's directory"),
            );
        }
    }

    /// The largest part that a job has on a node must find room in an empty tier, where jobs leave by images.
    pub(super) fn must_take_each(&mut self, set: &JobSet, store: &Spanned<StorePart>) {
        let is_parked = set.scheduler.park == Park::Criu
            && !matches!(set.scheduler.policy, Policy::Batch | Policy::Cosched);
        let sizes = set.cluster.store.iter().map(|tier| tier.bytes_max.unwrap_or(u64::MAX));
        let (Some(most), true) = (sizes.max(), is_parked) else { return };
        let held = |job: &Job| job.memory.0.saturating_mul(job.ranks.div_ceil(set.cluster.nodes).into());
        let Some(largest) = set.jobs.iter().max_by_key(|job| held(job)) else { return };
        let needed = Bytes(held(largest)).saturating_add(SNAPSHOT_OVERHEAD);
        if needed.0 > most {
            let message = format!(
                "no directory takes `{}`, which needs {needed} on a node; the largest takes {}",
                largest.name,
                Bytes(most)
            );
            let problem = Problem::new(FIELD, span_at(&store.referenced), message);
            self.refuse(problem.help("raise a `size`, or add a directory without one"));
        }
    }
}

fn same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.into());
    real(one) == real(other)
}
