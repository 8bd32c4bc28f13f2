//! Checks whether an MPI library can load coswitch's driver: it must be MPICH with the device `ch4:ofi`, over
//! a libfabric that loads providers from files. The library's file and its links are read; nothing of it is
//! run.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use super::loader::Linked;
use crate::doctor::check::Check;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Library {
    pub(crate) path: PathBuf,
    /// Whether it has MPICH's device for libfabric.
    pub(crate) has_ofi: bool,
    /// The libfabric that it is linked to, and whether that loads providers.
    pub(crate) fabric: Option<(PathBuf, bool)>,
}

const REMEDY: &str = "build the program with the MPI wrappers that `cargo xtask setup` installs \
                      (mpi/bin/mpicc and mpi/bin/mpifort of its prefix)";

/// Reads the library at `path`.
///
/// # Errors
/// Where it cannot be read.
pub(crate) fn inspect(path: &Path) -> io::Result<Library> {
    let has_ofi = contains(&fs::read(path)?, b"ch4:ofi");
    let linked = Linked::of(path, &BTreeMap::new()).unwrap_or_default();
    let fabric = linked.libraries.into_iter().find(|library| library.name.starts_with("libfabric.so"));
    let fabric = fabric.and_then(|fabric| {
        let loads = contains(&fs::read(&fabric.path).ok()?, b"provider_path");
        Some((fabric.path, loads))
    });
    Ok(Library { path: path.into(), has_ofi, fabric })
}

pub(crate) fn judge(name: &str, library: io::Result<Library>, path: &Path) -> Check {
    let at = path.display();
    match library {
        Err(error) => {
            Check::lacking(name, format!("{at} cannot be read: {error}"), "run `cargo xtask setup`")
        }
        Ok(Library { has_ofi: false, .. }) => Check::lacking(
            name,
            format!("{at} has no loadable providers: it was built without the device ch4:ofi"),
            REMEDY,
        ),
        Ok(Library { fabric: None, .. }) => Check::lacking(
            name,
            format!("{at} has no loadable providers: it is not linked to libfabric"),
            REMEDY,
        ),
        Ok(Library { fabric: Some((fabric, false)), .. }) => {
            let found =
                format!("{at} has no loadable providers: {} was built without them", fabric.display());
            Check::lacking(name, found, REMEDY)
        }
        Ok(Library { .. }) => {
            Check::ok(name, format!("{at}: MPICH, ch4:ofi, providers are loaded from files"))
        }
    }
}

/// Whether it can load the driver.
pub(crate) fn is_usable(library: &Library) -> bool {
    library.has_ofi && matches!(library.fabric, Some((_, true)))
}

fn contains(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|window| window == text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    fn library(has_ofi: bool, fabric: Option<bool>) -> Check {
        let fabric = fabric.map(|loads| (PathBuf::from("/f/libfabric.so.1"), loads));
        let path = PathBuf::from("/m/libmpi.so.12");
        judge("MPI", Ok(Library { path: path.clone(), has_ofi, fabric }), &path)
    }

    #[test]
    fn only_a_library_that_loads_providers_is_accepted() {
        assert_eq!(library(true, Some(true)).verdict, Verdict::Ok);
        for lacking in [library(false, Some(true)), library(true, None), library(true, Some(false))] {
            assert_eq!(lacking.verdict, Verdict::Lacking);
            assert!(lacking.found.contains("no loadable providers"), "{lacking}");
        }
    }
}
