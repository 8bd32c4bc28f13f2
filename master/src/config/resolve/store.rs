//! Resolves where images go: checks arena and directories alone, then against the jobs.

use std::path::Path;

use coswitch_ckpt::private;
use coswitch_daemon::node::{SNAPSHOT_OVERHEAD, Tier};
use coswitch_dispatcher::provisioning::STORE;
use coswitch_policies::{Bytes, Policy};
use miette::SourceSpan;
use serde_yaml::Spanned;

use super::Reader;
use crate::config::{
    choice::ParkMethod,
    file::{ClusterPart, StorePart, TierPart},
    job_set::{Job, JobSet},
    problem::Problem,
    tree::span_at,
};

pub(super) const FIELD: &str = "cluster.store";
/// The numbers of file systems that machines share: NFS, Lustre, GPFS, Ceph, BeeGFS, SMB.
const SHARED: [i64; 6] = [0x6969, 0x0bd0_0bd0, 0x4750_4653, 0x00c3_6400, 0x1983_0326, 0xfe53_4d42];

/// Whether the directory, where it is on this machine too, is on a file system that machines share.
pub(super) fn is_shared(dir: &Path) -> bool {
    nix::sys::statfs::statfs(dir).is_ok_and(|found| SHARED.contains(&found.filesystem_type().0))
}

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

    /// The directories of `field`.
    pub(super) fn store(&mut self, field: &str, store: &Spanned<StorePart>, base: &Path) -> Vec<Tier> {
        let whole = span_at(&store.referenced);
        match &store.value {
            StorePart::Directory(directory) => {
                let tier = Tier::unbounded(base.join(directory));
                self.check_directory(&tier, field, whole);
                vec![tier]
            }
            StorePart::Tiers(parts) if parts.is_empty() => {
                let problem = Problem::new(field, whole, "a store without directories holds no image");
                self.refuse(problem.help("name at least one, or leave `store` out"));
                Vec::new()
            }
            StorePart::Tiers(parts) => self.tiers(field, parts, base),
        }
    }

    fn tiers(&mut self, path: &str, parts: &[TierPart], base: &Path) -> Vec<Tier> {
        let mut tiers: Vec<Tier> = Vec::new();
        for (index, part) in parts.iter().enumerate() {
            let field = |name: &str| format!("{path}[{index}].{name}");
            let size = self.optional(&field("size"), part.size.as_ref());
            let tier =
                Tier { bytes_max: size.map(|Bytes(size)| size), root: base.join(part.directory.text()) };
            if let (Some(Bytes(0)), Some(leaf)) = (size, &part.size) {
                let problem = Problem::new(field("size"), leaf.span(), "a directory that may hold nothing");
                self.refuse(problem.help("remove it, or write for example `20GiB`"));
            }
            self.check_directory(&tier, &field("directory"), part.directory.span());
            if let Some(first) = tiers.iter().position(|other| is_same(&other.root, &tier.root)) {
                let message = format!("it is the directory of {path}[{first}] as well");
                let problem = Problem::new(field("directory"), part.directory.span(), message);
                self.refuse(problem.help("name each directory once"));
            }
            tiers.push(tier);
        }
        tiers
    }

    /// Checks that the directory exists, and that nobody else could replace the images in it.
    fn check_directory(&mut self, tier: &Tier, field: &str, span: SourceSpan) {
        if !self.is_run_here {
            return;
        }
        if !tier.root.is_dir() {
            let message = format!("there is no directory {}", tier.root.display());
            let problem = Problem::new(field, span, message);
            return self.refuse(problem.help("make it; it counts from the run file's directory"));
        }
        if let Err(untrusted) = private::check_trusted(&tier.root) {
            let problem = Problem::new(field, span, untrusted.to_string());
            let help = format!("{}, or leave `store` out: then {STORE} is used", untrusted.remedy());
            self.refuse(problem.help(help));
        }
    }

    /// Checks that an empty tier takes the largest image of a job on a node, where jobs are parked by images.
    pub(super) fn check_store_takes_each(&mut self, set: &JobSet, store: &Spanned<StorePart>) {
        let is_parked = set.scheduler.park == ParkMethod::Criu
            && !matches!(set.scheduler.policy, Policy::Batch | Policy::Cosched);
        let sizes = set.cluster.store.iter().map(|tier| tier.bytes_max.unwrap_or(u64::MAX));
        let (Some(most), true) = (sizes.max(), is_parked) else { return };
        let declared = |job: &Job| job.memory.0.saturating_mul(job.ranks.div_ceil(set.cluster.nodes).into());
        let Some(largest) = set.jobs.iter().max_by_key(|job| declared(job)) else { return };
        let needed = Bytes(declared(largest)).saturating_add(SNAPSHOT_OVERHEAD);
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

fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.into());
    real(one) == real(other)
}
