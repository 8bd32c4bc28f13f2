//! A private copy of a newer Debian's CRIU, with all of its libraries and its loader, in a directory of ours.
//!
//! apt resolves the packages against an empty status file, so that the closure is complete down to libc6. The
//! program is then patched to use the loader and libraries beside it. The paths are absolute, so the copy
//! must stay where it was installed.

use super::private_apt::{PrivateApt, Suite};
use super::{Prefix, apt};
use crate::command;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(300);

/// Suites with a newer CRIU. The newest first; the older ones stand in when the newest is broken on the day.
pub(super) const SUITES: [Suite; 3] = [Suite::Sid, Suite::Forky, Suite::Trixie];

/// Replaces the private copy by that of `suite`.
pub(super) fn install(prefix: &Prefix, suite: Suite) -> Result<()> {
    apt::ensure_tools(apt::PATCHELF)?;
    let home = prefix.criu();
    if home.exists() {
        fs::remove_dir_all(&home).with_context(|| format!("cannot replace {}", home.display()))?;
    }
    let root = home.join("root");
    let apt = PrivateApt::new(home.join("apt"), suite.line("deb"))?;
    apt.unpack(&apt.with_dependencies("criu")?, &root)?;
    drop(apt);
    give_own_loader(&root, &prefix.criu_binary())
}

/// Copies the program and makes it use the loader and libraries beside it.
fn give_own_loader(root: &Path, binary: &Path) -> Result<()> {
    let libraries = libc_directory(root)?;
    let original =
        [root.join("usr/sbin/criu"), root.join("usr/bin/criu")].into_iter().find(|path| path.exists());
    let original = original.context("the package holds no program criu")?;
    let wanted = command::run(Command::new("patchelf").arg("--print-interpreter").arg(&original), LIMIT)?;
    let loader_name = Path::new(wanted.trim()).file_name().context("criu names no loader")?;
    let loader = libraries.join(loader_name);
    if !loader.exists() {
        bail!("the packages hold no loader {}", loader.display());
    }
    fs::create_dir_all(binary.parent().context("a program lies in a directory")?)?;
    fs::copy(&original, binary)?;
    let mut patch = Command::new("patchelf");
    patch.arg("--set-interpreter").arg(&loader);
    // DT_RPATH, unlike DT_RUNPATH, also serves the libraries that our libraries need.
    patch.arg("--force-rpath").arg("--set-rpath").arg(&libraries).arg(binary);
    command::run(&mut patch, LIMIT)?;
    Ok(())
}

/// The directory of the machine's triplet, found by the C library in it.
fn libc_directory(root: &Path) -> Result<PathBuf> {
    let triplets = fs::read_dir(root.join("usr/lib"))?.filter_map(|entry| Some(entry.ok()?.path()));
    let mut with_libc = triplets.filter(|dir| dir.join("libc.so.6").exists());
    with_libc.next().with_context(|| format!("the packages hold no C library below {}", root.display()))
}
