//! `cargo xtask setup`: prepares a fresh Debian-like machine for coswitch.
//!
//! Four steps install what is missing, so that a second run costs milliseconds: tools from the distribution,
//! a CRIU that works with this kernel, the MPI library, and its Fortran binding. Nothing of the system is
//! upgraded or removed: newer versions than the distribution's go to a private prefix.

pub(crate) mod apt;
mod cargo_deny;
mod criu;
mod fortran;
mod kerndat;
mod mpi;
pub(crate) mod pins;
mod prefix;
pub(crate) mod private_apt;
mod private_criu;
mod self_test;
mod slurm;
mod sshd;
mod stamp;
mod unpacked;
mod version;

use anyhow::{Result, ensure};
use prefix::Prefix;
use std::path::PathBuf;

/// Options of `cargo xtask setup`, and of every act that begins with it.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// Directory for CRIU, the MPI library and tools where the distribution's are too old.
    #[arg(long, env = "COSWITCH_PREFIX", default_value = prefix::DEFAULT)]
    pub(crate) prefix: PathBuf,
    /// Run CRIU's self-test (dump and restore of a process) even where it has passed before.
    #[arg(long)]
    self_test: bool,
}

/// Runs the four steps in order and prints what each found or did.
pub(crate) fn run(args: &Args) -> Result<()> {
    ensure!(nix::unistd::geteuid().is_root(), "set-up installs packages and tests CRIU: run it as root");
    let prefix = Prefix::new(&args.prefix)?;
    let tools = apt::ensure_tools(apt::TOOLS)?;
    report("tools", &tools);
    let criu = criu::ensure(&prefix, args.self_test)?;
    report("criu", &criu.to_string());
    report("mpi", &mpi::ensure(&prefix)?);
    report("fortran", &fortran::ensure(&prefix)?);
    Ok(())
}

/// The program that checks dependencies, installed on first use because it takes a minute to build.
pub(crate) fn cargo_deny(args: &Args) -> Result<PathBuf> {
    cargo_deny::ensure(&Prefix::new(&args.prefix)?)
}

/// What only the tests need: the browser of the report's page, the sshd of hosts, a Slurm.
pub(crate) fn for_tests(args: &Args) -> Result<()> {
    report("browser", &apt::ensure_tools(apt::BROWSER)?);
    let prefix = Prefix::new(&args.prefix)?;
    report("sshd", &sshd::ensure(&prefix)?);
    report("slurm", &slurm::ensure(&prefix)?);
    Ok(())
}

fn report(what: &str, state: &str) {
    eprintln!("{what:>7}  {state}");
}
