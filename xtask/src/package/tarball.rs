//! The tarball: the tree, with an installer, and the sums of all of its files.

use super::tree::{put, write, write_as};
use super::{LIMIT, Release, TEXTS, deb, files, remove};
use crate::command;
use crate::setup::pins;
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Packs the tree; returns the tarball.
pub(super) fn make(root: &Path, release: &Release, tree: &Path, home: &Path) -> Result<PathBuf> {
    let name = format!("coswitch-{}-{}-linux", release.version, release.machine);
    let content = home.join(&name);
    remove(&content)?;
    let listed = files(tree)?;
    for file in &listed {
        let mode = fs::metadata(tree.join(file))?.permissions().mode() & 0o777;
        put(&tree.join(file), &content.join(file), mode)?;
    }
    let parts = deb::parts_name(release, tree)?;
    for script in ["install.sh", "uninstall.sh"] {
        let text = fs::read_to_string(root.join(TEXTS).join(script))?;
        write_as(&content.join(script), text.replace("@PARTS@", &parts).as_bytes(), 0o755)?;
    }
    let lines: String = listed.iter().map(|file| format!("{}\n", file.display())).collect();
    write(&content.join("FILES"), &lines)?;
    let sums = files(&content)?
        .into_iter()
        .map(|file| Ok(format!("{}  {}\n", pins::sha256(&content.join(&file))?, file.display())));
    write(&content.join("SHA256SUMS"), &sums.collect::<Result<String>>()?)?;
    let archive = home.join(format!("{name}.tar"));
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--owner=root:0", "--group=root:0", "--numeric-owner", "--format=gnu"]);
    tar.arg(format!("--mtime=@{}", release.time)).arg("-C").arg(home).arg("-cf").arg(&archive).arg(&name);
    command::run(&mut tar, LIMIT).context("cannot make the tarball")?;
    command::run(Command::new("zstd").args(["-9", "--force", "--quiet", "--rm"]).arg(&archive), LIMIT)?;
    remove(&content)?;
    Ok(home.join(format!("{name}.tar.zst")))
}
