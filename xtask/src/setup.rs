//! `cargo xtask setup`: brings a fresh Debian-like machine to where coswitch runs.
//!
//! Three steps, each of which looks first and acts only on what is missing, so that a second run costs
//! milliseconds: tools from the distribution, a CRIU that works with this kernel, and the MPI library. Nothing of
//! the system is upgraded or removed: what the distribution has too old goes to a private prefix.

mod apt;
mod cargo_deny;
mod criu;
mod kerndat;
mod mpi;
mod prefix;
mod private_criu;
mod self_test;
mod stamp;
mod version;

use anyhow::{Result, ensure};
use prefix::Prefix;
use std::path::PathBuf;

/// Options of `cargo xtask setup`, and of every act that begins with it.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// Where CRIU, the MPI library and tools are installed when the distribution's do not do.
    #[arg(long, env = "COSWITCH_PREFIX", default_value = prefix::DEFAULT)]
    pub(crate) prefix: PathBuf,
    /// Run CRIU's self-test (dump and restore of a process) even where it has passed before.
    #[arg(long)]
    self_test: bool,
}

/// Runs the three steps in order and says what each found or did.
pub(crate) fn run(args: &Args) -> Result<()> {
    ensure!(nix::unistd::geteuid().is_root(), "set-up installs packages and tests CRIU: run it as root");
    let prefix = Prefix::new(&args.prefix)?;
    let tools = apt::ensure_tools(apt::TOOLS)?;
    report("tools", &tools);
    let criu = criu::ensure(&prefix, args.self_test)?;
    report("criu", &criu.to_string());
    report("mpi", &mpi::ensure(&prefix)?);
    Ok(())
}

/// The program that checks dependencies: installed by the one act that needs it, because it takes a minute to build.
pub(crate) fn cargo_deny(args: &Args) -> Result<PathBuf> {
    cargo_deny::ensure(&Prefix::new(&args.prefix)?)
}

/// The browser of the test that looks at the report's page: installed by the one act that needs it.
pub(crate) fn browser() -> Result<()> {
    report("browser", &apt::ensure_tools(apt::BROWSER)?);
    Ok(())
}

fn report(what: &str, state: &str) {
    eprintln!("{what:>6}  {state}");
}
