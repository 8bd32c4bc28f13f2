//! Checks whether this machine can run job sets, before anything is started.
//!
//! [`facts`] reads the machine, [`verdict`] judges the facts (pure), and each [`Check`] is one verdict. `run`
//! and `doctor` make the same checks.

mod check;
mod command;
mod facts;
mod mpi;
mod verdict;

use coswitch_daemon::node::Tier;

use crate::{config::Job, install};
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

/// Checks the programs of `jobs` alone, for a cluster that is there.
pub fn examine_programs(jobs: &[Job]) -> Findings {
    Findings::new(Vec::new(), mpi::judge_programs(jobs, &install::prefix().join("mpi/lib")))
}
