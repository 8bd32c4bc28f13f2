//! Set-up, demo, tests and benchmarks: `cargo xtask <act>`.
//!
//! A thin dispatcher; every act is one module. It is compiled before anything else on a fresh machine, so it
//! depends on few and light crates and on none of the workspace's own.
#![allow(clippy::print_stdout, reason = "a command line tool talks through its standard output")]

mod setup;

use clap::Parser;

#[derive(Parser)]
#[command(name = "xtask", about = "Set-up, demo, tests and benchmarks of coswitch.")]
enum Act {
    /// Install what is missing on this machine: packages, CRIU, the MPI library. Upgrades nothing.
    Setup(setup::Args),
}

fn main() -> anyhow::Result<()> {
    match Act::parse() {
        Act::Setup(args) => setup::run(&args),
    }
}
