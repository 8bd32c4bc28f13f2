//! Set-up, demo, tests, packages, conformance and benchmarks: `cargo xtask <act>`.
//!
//! Every act is one module. This crate is compiled before anything else on a fresh machine, so it depends on
//! few and light crates and on none of the workspace's own.
#![allow(clippy::print_stdout, reason = "a command line tool talks through its standard output")]

mod bench;
mod check;
mod command;
mod conformance;
mod demo;
mod fuzz;
mod package;
mod sanitize;
mod setup;
mod soak;
mod suites;
mod test;
mod workspace;

use clap::Parser;
use std::process::ExitCode;

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    about = "Set-up, demo, tests and benchmarks of coswitch.",
    max_term_width = 110
)]
enum Act {
    /// Install what is missing on this machine: packages, CRIU, the MPI library. Upgrades nothing.
    Setup(setup::Args),
    /// Set up, build, and run jobs that do not fit into memory together, or show a cluster that stays; check
    /// the results.
    Demo(demo::Args),
    /// Set up, build, and run every test.
    Test(test::Args),
    /// Simulate the control plane with fresh seeds for a time; a failing seed prints itself.
    Soak(soak::Args),
    /// Search for inputs that the readers of foreign bytes do not survive.
    Fuzz(fuzz::Args),
    /// Run the tests of the shared memory under Miri, and those of the driver with AddressSanitizer.
    Sanitize(setup::Args),
    /// Check format, lints, texts, commit subjects and the sources of dependencies.
    Check(setup::Args),
    /// Measure, and print each figure with its bound and whether it is met.
    Bench(bench::Args),
    /// Run MPICH's own tests over tcp and under coswitch and write docs/conformance.md.
    Conformance(conformance::Args),
    /// Build a release and pack it: a Debian package and a tarball, with a bill of materials.
    Package(package::Args),
    /// Repeat the experiments of paper 003 and write docs/paper-results.md.
    Paper(bench::Args),
}

fn main() -> ExitCode {
    let done = match Act::parse() {
        Act::Setup(args) => setup::run(&args),
        Act::Demo(args) => demo::run(&args),
        Act::Test(args) => test::run(&args),
        Act::Soak(args) => soak::run(&args),
        Act::Fuzz(args) => fuzz::run(&args),
        Act::Sanitize(args) => sanitize::run(&args),
        Act::Check(args) => check::run(&args),
        Act::Bench(args) => bench::run(&args, "coswitch-bench"),
        Act::Conformance(args) => conformance::run(&args),
        Act::Package(args) => package::run(&args),
        Act::Paper(args) => bench::run(&args, "coswitch-paper"),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_consistent() {
        <super::Act as clap::CommandFactory>::command().debug_assert();
    }
}
