//! `coswitch images`: what is in the stores of nodes, whether it is good, and away with it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::PathBuf,
};

use anyhow::Context;
use comfy_table::{Cell, CellAlignment, Table};
use coswitch_ckpt::{Store, store::StoredSnapshot};
use coswitch_daemon::{
    cgroup::Hierarchies,
    node::{self, Tier},
};
use coswitch_dispatcher::provisioning::STORE;
use serde::Serialize;

use super::{Answer, Exit, Failure, Output, check::plural};
use crate::run_name::RunName;

/// What the directory of a node's store begins with.
const PREFIX: &str = "coswitch-";

/// List, verify or remove the images of parked jobs.
#[derive(Debug, clap::Args)]
pub(crate) struct Images {
    /// A directory that holds images, as `cluster.store` in the run file; may be given again. Without any: /var/tmp, and
    /// wherever nodes that are on this machine have theirs.
    #[arg(long, global = true, value_name = "DIR")]
    store: Vec<PathBuf>,
    #[command(subcommand)]
    act: Act,
}

#[derive(Debug, clap::Subcommand)]
enum Act {
    /// What there is.
    List,
    /// Read every byte, and compare it with what was sealed; exits with 1 where one is damaged.
    Verify(Which),
    /// Remove images; those of runs that are alive only with --force.
    Remove {
        #[command(flatten)]
        which: Which,
        /// Also of runs that are alive, which will miss them.
        #[arg(long)]
        force: bool,
    },
}

#[derive(Debug, clap::Args)]
struct Which {
    /// Of this node only, as `list` names it.
    #[arg(long)]
    node: Option<String>,
    /// Of this job only.
    #[arg(long)]
    job: Option<String>,
    /// Of this epoch only.
    #[arg(long)]
    epoch: Option<u64>,
}

/// The images of all nodes.
#[derive(Debug, Default, Serialize)]
struct Found {
    images: Vec<Image>,
}

#[derive(Debug, Serialize)]
struct Image {
    node: String,
    job: String,
    epoch: u64,
    /// The directory that `cluster.store` names.
    store: PathBuf,
    bytes: u64,
    /// `sealed`, or why it cannot be restored; after `remove`: `removed`, or why not.
    state: String,
}

impl Images {
    /// Does as it is told with all that is meant.
    pub(crate) fn carry_out(self, output: Output) -> Result<Exit, Failure> {
        let mut found = Found::default();
        let mut is_good = true;
        for (node, store) in stores(&self.store)? {
            let entries = store.list().with_context(|| format!("failed to list the images of {node}"))?;
            for entry in entries.into_iter().filter(|entry| self.act.means(&node, entry)) {
                let (state, good) = self.act.carry_out(&node, &store, &entry);
                is_good &= good;
                let StoredSnapshot { application: job, epoch, root, bytes, .. } = entry;
                let store = root.parent().unwrap_or(&root).to_owned();
                found.images.push(Image { node: node.clone(), job, epoch, store, bytes, state });
            }
        }
        output.print(&found).context("failed to print")?;
        Ok(if is_good { Exit::Done } else { Exit::JobFailed })
    }
}

impl Act {
    fn means(&self, node: &str, entry: &StoredSnapshot) -> bool {
        let (Act::Verify(which) | Act::Remove { which, .. }) = self else { return true };
        which.node.as_deref().is_none_or(|wanted| wanted == node)
            && which.job.as_ref().is_none_or(|wanted| *wanted == entry.application)
            && which.epoch.is_none_or(|wanted| wanted == entry.epoch)
    }

    /// How the image stands after it, and whether that is good.
    fn carry_out(&self, node: &str, store: &Store, entry: &StoredSnapshot) -> (String, bool) {
        let done = match self {
            Act::List => return (state(entry), true),
            Act::Verify(_) if entry.problem.is_some() => return (state(entry), !entry.is_damaged()),
            Act::Verify(_) => store.verify(&entry.application, entry.epoch).map(|()| "intact"),
            Act::Remove { force: false, .. } if is_alive(node) => {
                return ("kept: its run is alive".into(), false);
            }
            Act::Remove { .. } => store.remove_one(&entry.application, entry.epoch).map(|()| "removed"),
        };
        done.map_or_else(|error| (error.to_string(), false), |state| (state.into(), true))
    }
}

fn state(entry: &StoredSnapshot) -> String {
    entry.problem.as_ref().map_or_else(|| "sealed".into(), ToString::to_string)
}

fn is_alive(node: &str) -> bool {
    node.parse::<RunName>().is_ok_and(|run| run.is_alive())
}

/// The stores below those directories, by the names of their nodes.
fn stores(dirs: &[PathBuf]) -> Result<BTreeMap<String, Store>, anyhow::Error> {
    let mut tiers: BTreeMap<String, Vec<Tier>> = BTreeMap::new();
    let usual = if dirs.is_empty() { usual() } else { BTreeSet::new() };
    for dir in dirs.iter().chain(&usual) {
        let entries = fs::read_dir(dir).with_context(|| format!("failed to list {}", dir.display()))?;
        for entry in entries.flatten() {
            let name = entry.file_name();
            let node = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
            // Others than nodes may use the prefix.
            if let Some(node) = node.filter(|node| node.parse::<RunName>().is_ok()) {
                tiers.entry(node.into()).or_default().push(Tier::unbounded(entry.path()));
            }
        }
    }
    Ok(tiers.into_iter().map(|(node, tiers)| (node, Store::existing(tiers))).collect())
}

/// Where there may be images, as far as can be known.
fn usual() -> BTreeSet<PathBuf> {
    let nodes = Hierarchies::find().map(|hierarchies| node::leftovers(&hierarchies)).unwrap_or_default();
    let noted = nodes.iter().flat_map(|name| node::listed_stores(name));
    let dirs = noted.filter_map(|root| root.parent().map(Into::into)).chain([STORE.into()]);
    dirs.filter(|dir: &PathBuf| dir.is_dir()).collect()
}

impl Answer for Found {
    fn tell(&self, out: &mut dyn io::Write) -> io::Result<()> {
        if !self.images.is_empty() {
            let mut table = Table::new();
            table.load_style(crate::report::table::STYLE);
            table.set_header(["node", "job", "epoch", "MiB", "store", "state"]);
            for image in &self.images {
                let right = |number: u64| Cell::new(number).set_alignment(CellAlignment::Right);
                let names = [&image.node, &image.job].map(Cell::new);
                let numbers = [right(image.epoch), right(image.bytes.div_ceil(1 << 20))];
                let last = [Cell::new(image.store.display()), Cell::new(&image.state)];
                table.add_row(names.into_iter().chain(numbers).chain(last));
            }
            writeln!(out, "{table}")?;
        }
        writeln!(out, "{}", plural(self.images.len(), "image"))
    }
}
