//! The tree that both packages have: what lies where below the prefix.

use super::{LIMIT, Release, TEXTS, files, licenses, sbom};
use crate::command;
use crate::setup::pins;
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Programs and libraries, with their place and mode.
pub(super) const PROGRAMS: [(&str, &str, u32); 5] = [
    ("coswitch", "bin/coswitch", 0o755),
    ("coswitchd", "lib/coswitch/coswitchd", 0o755),
    ("coswitch-launcher", "lib/coswitch/coswitch-launcher", 0o755),
    ("libcoswitch_fi.so", "lib/coswitch/libcoswitch_fi.so", 0o644),
    ("libcoswitch_criu.so", "lib/coswitch/libcoswitch_criu.so", 0o644),
];
/// Files of the source tree.
const TEXT_FILES: [(&str, &str); 6] = [
    ("README.md", "share/doc/coswitch/README.md"),
    ("CHANGELOG.md", "share/doc/coswitch/changelog"),
    ("LICENSE-MIT", "share/doc/coswitch/LICENSE-MIT"),
    ("LICENSE-APACHE", "share/doc/coswitch/LICENSE-APACHE"),
    ("xtask/package/copyright", "share/doc/coswitch/copyright"),
    ("examples/cluster.yaml", "share/doc/coswitch/examples/cluster.yaml"),
];
const UNIT: &str = "master/units/coswitch@.service";

/// Lays the tree out in `home` and returns its directory.
pub(super) fn lay_out(
    workspace: &Workspace,
    release: &Release,
    programs: &Path,
    manual: &Path,
    home: &Path,
) -> Result<PathBuf> {
    let (root, tree) = (workspace.root(), home.join("tree"));
    for (name, place, mode) in PROGRAMS {
        put(&programs.join(name), &tree.join(place), mode)?;
        // Symbols of the dynamic linker stay, and with them what the loader needs.
        command::run(Command::new("strip").arg("--strip-unneeded").arg(tree.join(place)), LIMIT)?;
    }
    for (from, place) in TEXT_FILES {
        put(&root.join(from), &tree.join(place), 0o644)?;
    }
    for file in files(manual)? {
        put(&manual.join(&file), &tree.join("share").join(&file), 0o644)?;
    }
    put(&root.join(TEXTS).join("install-mpi"), &tree.join("lib/coswitch/install-mpi"), 0o755)?;
    write(&tree.join("share/coswitch/mpi-requirements.txt"), pins::REQUIREMENTS)?;
    let unit = fs::read_to_string(root.join(UNIT)).with_context(|| format!("cannot read {UNIT}"))?;
    write(&tree.join("lib/systemd/system/coswitch@.service"), &unit)?;
    write(&tree.join("lib/systemd/system/coswitch.service"), &only_cluster(&unit))?;
    let crates = sbom::Crates::of(workspace)?;
    let documents = tree.join("share/doc/coswitch");
    write(&documents.join("THIRD-PARTY-LICENSES"), &licenses::collect(root, &crates)?)?;
    let bill = sbom::bill(&crates, release, &tree)?;
    write(&documents.join("coswitch.cdx.json"), &format!("{bill:#}\n"))?;
    for file in files(&tree)? {
        let path = tree.join(&file);
        if file.starts_with("share/man")
            || file.ends_with("changelog")
            || file.ends_with("THIRD-PARTY-LICENSES")
        {
            command::run(Command::new("gzip").args(["-9", "--no-name"]).arg(&path), LIMIT)?;
        }
    }
    Ok(tree)
}

/// The unit of a machine's only cluster, from that of one among several: it is served at the usual socket.
fn only_cluster(unit: &str) -> String {
    unit.replace("/run/coswitch/%i.sock", "/run/coswitch/serve.sock")
        .replace("coswitch@NAME", "coswitch")
        .replace("/etc/coswitch/NAME.yaml", "/etc/coswitch/cluster.yaml")
        .replace("/run/coswitch/NAME.sock; users set COSWITCH_SOCKET to that.", "the usual socket.")
        .replace("/etc/coswitch/%i.yaml", "/etc/coswitch/cluster.yaml")
        .replace("coswitch cluster %i", "coswitch cluster")
}

/// Copies a file, whatever its owner and mode.
pub(super) fn put(from: &Path, to: &Path, mode: u32) -> Result<()> {
    let bytes = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
    write_as(to, &bytes, mode)
}

pub(super) fn write(to: &Path, text: &str) -> Result<()> {
    write_as(to, text.as_bytes(), 0o644)
}

/// Modes do not depend on the umask, also of directories.
pub(super) fn write_as(to: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let write = || {
        let directory = to.parent().unwrap_or(Path::new("/"));
        let made: Vec<&Path> = directory.ancestors().take_while(|above| !above.exists()).collect();
        fs::create_dir_all(directory)?;
        for directory in made {
            fs::set_permissions(directory, fs::Permissions::from_mode(0o755))?;
        }
        fs::write(to, bytes)?;
        fs::set_permissions(to, fs::Permissions::from_mode(mode))
    };
    write().with_context(|| format!("cannot write {}", to.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_of_the_only_cluster_names_no_instance_and_the_usual_places() {
        let unit = fs::read_to_string(Path::new("..").join(UNIT)).unwrap();
        let only = only_cluster(&unit);
        for left in ["%i", "NAME", "@"] {
            assert!(!only.contains(left), "{left} in\n{only}");
        }
        let start =
            "/bin/coswitch serve --quiet --socket /run/coswitch/serve.sock /etc/coswitch/cluster.yaml\n";
        assert!(only.contains(start), "{only}");
        assert_eq!(unit.lines().count(), only.lines().count());
    }
}
