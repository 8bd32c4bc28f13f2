//! `coswitch images`: what is in the stores of nodes, whether it is good, and away with it.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::Context;
use comfy_table::{Cell, CellAlignment, Table};
use coswitch_ckpt::{Store, store::Entry};
use serde::Serialize;

use super::{Answer, Exit, Failure, Output, check::plural};
use crate::run_name::RunName;

/// What the directory of a node's store begins with.
const PREFIX: &str = "coswitch-";

/// List, verify or remove the images of parked jobs.
#[derive(Debug, clap::Args)]
pub(crate) struct Images {
    /// The directory that holds the stores, `cluster.store` in the run file.
    #[arg(long, global = true, value_name = "DIR", default_value = "/var/tmp")]
    store: PathBuf,
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
                let Entry { application: job, epoch, bytes, .. } = entry;
                found.images.push(Image { node: node.clone(), job, epoch, bytes, state });
            }
        }
        output.print(&found).context("failed to print")?;
        Ok(if is_good { Exit::Done } else { Exit::JobFailed })
    }
}

impl Act {
    fn means(&self, node: &str, entry: &Entry) -> bool {
        let (Act::Verify(which) | Act::Remove { which, .. }) = self else { return true };
        which.node.as_deref().is_none_or(|wanted| wanted == node)
            && which.job.as_ref().is_none_or(|wanted| *wanted == entry.application)
            && which.epoch.is_none_or(|wanted| wanted == entry.epoch)
    }

    /// How the image stands after it, and whether that is good.
    fn carry_out(&self, node: &str, store: &Store, entry: &Entry) -> (String, bool) {
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

fn state(entry: &Entry) -> String {
    entry.problem.as_ref().map_or_else(|| "sealed".into(), ToString::to_string)
}

fn is_alive(node: &str) -> bool {
    node.parse::<RunName>().is_ok_and(|run| run.is_alive())
}

/// The stores below that directory, by the names of their nodes.
fn stores(dir: &Path) -> Result<Vec<(String, Store)>, anyhow::Error> {
    let entries = fs::read_dir(dir).with_context(|| format!("failed to list {}", dir.display()))?;
    let named = entries.filter_map(|entry| {
        let entry = entry.ok()?;
        let node = entry.file_name().to_str()?.strip_prefix(PREFIX)?.to_owned();
        // Others than nodes may use the prefix.
        node.parse::<RunName>().ok()?;
        Some((node, Store::existing(&entry.path())))
    });
    let mut stores: Vec<_> = named.collect();
    stores.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(stores)
}

impl Answer for Found {
    fn tell(&self, out: &mut dyn io::Write) -> io::Result<()> {
        if !self.images.is_empty() {
            let mut table = Table::new();
            table.load_style(crate::report::table::STYLE);
            table.set_header(["node", "job", "epoch", "MiB", "state"]);
            for image in &self.images {
                let right = |number: u64| Cell::new(number).set_alignment(CellAlignment::Right);
                let names = [&image.node, &image.job].map(Cell::new);
                let numbers = [right(image.epoch), right(image.bytes.div_ceil(1 << 20))];
                table.add_row(names.into_iter().chain(numbers).chain([Cell::new(&image.state)]));
            }
            writeln!(out, "{table}")?;
        }
        writeln!(out, "{}", plural(self.images.len(), "image"))
    }
}
