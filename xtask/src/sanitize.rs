//! `cargo xtask sanitize`: the tests of the shared memory under Miri, and those of the driver with
//! AddressSanitizer. Both need a nightly compiler, which this installs by rustup; nothing else uses that.

use crate::command;
use crate::setup;
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(3600);
const TOOLCHAIN: &str = "nightly";
/// Miri runs a thousand times slower: few cases of each property.
const CASES: &str = "4";
/// Tests that need no MPI program: those cannot load what AddressSanitizer needs.
const ALONE: [&str; 9] =
    ["--lib", "--test", "ports", "--test", "hostile", "-p", "coswitch-provider", "-p", "coswitch-ring"];
/// Bus errors are part of what is tested, and some leases are forgotten on purpose.
const OPTIONS: &str = "handle_sigbus=0:detect_leaks=0";

pub(crate) fn run(args: &setup::Args) -> Result<()> {
    let workspace = Workspace::new(args)?;
    let mut install = workspace.here("rustup");
    install.args(["toolchain", "install", TOOLCHAIN, "--profile", "minimal", "-c", "miri", "-c", "rust-src"]);
    command::show(&mut install, LIMIT).context("there is no nightly compiler")?;

    let mut miri = nightly(&workspace, &["miri", "test", "-p", "coswitch-ring"], "miri");
    miri.env("MIRIFLAGS", "-Zmiri-disable-isolation").env("PROPTEST_CASES", CASES);
    command::show(&mut miri, LIMIT).context("Miri has found something")?;

    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    // Build scripts and macros are built without it only where a target is named.
    let mut address = nightly(&workspace, &["test", "--target", &triple], "sanitize");
    address.args(ALONE).env("RUSTFLAGS", "-Zsanitizer=address").env("ASAN_OPTIONS", OPTIONS);
    command::show(&mut address, LIMIT).context("AddressSanitizer has found something")
}

fn nightly(workspace: &Workspace, arguments: &[&str], directory: &str) -> Command {
    let mut cargo = workspace.here("rustup");
    cargo.args(["run", TOOLCHAIN, "cargo"]).args(arguments);
    cargo.env("CARGO_TARGET_DIR", workspace.target().join(directory));
    // Those of the compiler that runs us.
    for name in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN"] {
        cargo.env_remove(name);
    }
    cargo
}
