//! Checks whether this machine can run job sets, before anything is started.
//!
//! [`facts`] reads the machine, [`verdict`] judges the facts (pure), and each [`Check`] is one verdict. `run`
//! and `doctor` make the same checks, and `doctor` [one more](try_criu).

mod check;
pub(crate) mod command;
mod facts;
mod mpi;
mod verdict;

use coswitch_ckpt::Criu;
use coswitch_daemon::{node::Tier, serve};
use nix::unistd::geteuid;

use crate::{
    config::Job,
    install::{self, Installation},
};
pub use check::{Check, Findings, Verdict};

/// Checks this machine, the directories for images (the default one if there are none), and the programs of
/// `jobs`.
pub fn examine(jobs: &[Job], pages_out: bool, stores: &[Tier]) -> Findings {
    let mut stores: Vec<_> = stores.iter().map(|tier| tier.root.clone()).collect();
    if stores.is_empty() {
        stores.push(coswitch_dispatcher::provisioning::STORE.into());
    }
    let checks = verdict::judge(&facts::Facts::gather(&stores), pages_out);
    Findings::new(checks, mpi::judge_programs(jobs, &install::prefix().join("mpi/lib")))
}

/// Whether a hostile process can run in the place of CRIU, where that can be tried. A daemon tries it itself
/// where the version of CRIU leaves it open.
pub fn try_criu() -> Option<Check> {
    let (criu, parts) = (Criu::locate().ok()?, Installation::find().ok()?);
    geteuid().is_root().then(|| verdict::trial(&serve::try_criu(&criu, &parts.launcher)))
}

/// Checks the programs of `jobs` alone, for a cluster that is there.
pub fn examine_programs(jobs: &[Job]) -> Findings {
    Findings::new(Vec::new(), mpi::judge_programs(jobs, &install::prefix().join("mpi/lib")))
}
