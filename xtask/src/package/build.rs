//! The build of a release, in a directory of its own: its flags are not those of `cargo build --release`.

use crate::command;
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use std::path::PathBuf;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(3600);
/// The packages of the programs and of the libraries. The launcher is linked for itself.
const PACKAGES: [&str; 5] =
    ["coswitch", "coswitch-daemon", "coswitch-provider", "coswitch-criu-preload", "coswitch-manual"];

/// Builds the programs and returns their directory.
///
/// The launcher is linked statically: it is PID 1 of every job, a part of each image, and is copied to hosts.
/// It can be, because it asks for no names: a static program of glibc that looks up a user or a host crashes
/// where the modules of the machine's name service are of another glibc. coswitch and coswitchd do ask. The
/// driver is loaded into programs that have a C library already.
pub(super) fn release(workspace: &Workspace) -> Result<PathBuf> {
    let target = workspace.target().join("package/build");
    let cargo_home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let cargo_home = cargo_home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let cargo_home = cargo_home.context("neither CARGO_HOME nor HOME is set")?;
    let remaps = [
        format!("{}=/usr/src/coswitch", workspace.root().display()),
        format!("{}=/usr/src/cargo", cargo_home.display()),
    ];
    let flags = remaps.each_ref().map(|remap| format!("--remap-path-prefix={remap}")).join("\x1f");
    let of_c = remaps.map(|remap| format!("-ffile-prefix-map={remap}")).join(" ");
    let cargo = |arguments: &[&str]| {
        let mut cargo = workspace.cargo(arguments);
        cargo.env("CARGO_TARGET_DIR", &target).env("CARGO_ENCODED_RUSTFLAGS", &flags).env("CFLAGS", &of_c);
        cargo.args(["--release", "--locked"]);
        cargo
    };
    let mut build = cargo(&["build"]);
    build.args(PACKAGES.iter().flat_map(|package| ["-p", package]));
    command::show(&mut build, LIMIT).context("the release build failed")?;
    let mut launcher = cargo(&["rustc"]);
    launcher.args([
        "-p",
        "coswitch-launcher",
        "--bin",
        "coswitch-launcher",
        "--",
        "-C",
        "target-feature=+crt-static",
    ]);
    command::show(&mut launcher, LIMIT).context("the launcher cannot be linked statically")?;
    Ok(target.join("release"))
}
