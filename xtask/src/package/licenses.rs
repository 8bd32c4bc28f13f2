//! The licences of everything that is linked into the programs, as their sources have them.

use super::files;
use super::sbom::{Crates, VENDOR};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// Begin the names of files with licences.
const NAMES: [&str; 6] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];

/// Which licence each crate names, and then each text once, with the crates that have it.
pub(super) fn collect(root: &Path, crates: &Crates) -> Result<String> {
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut report = String::from("What is linked into coswitch, and its licences.\n\n");
    for (key, one) in crates.all.iter().filter(|(_, one)| one.is_foreign()) {
        let found = licenses_in(&one.sources)?;
        let note = if found.is_empty() { " (its sources hold no text of it)" } else { "" };
        let license = one.license.as_deref().unwrap_or("see below");
        writeln!(report, "{key}: {license}{note}")?;
        for text in found {
            texts.entry(text).or_default().push(key.clone());
        }
    }
    for text in licenses_in(&root.join(VENDOR))? {
        texts.entry(text).or_default().push("scripts of the pages".to_owned());
    }
    for (text, names) in texts {
        write!(report, "\n{}\n{}\n\n{}\n", "-".repeat(78), names.join(", "), text.trim_end())?;
    }
    Ok(report)
}

/// Those of a crate, and of the C sources that it may bring along in directories of their own.
fn licenses_in(sources: &Path) -> Result<Vec<String>> {
    let listed = files(sources).context("cannot read the sources of a dependency")?;
    let texts = listed.into_iter().filter(|file| is_license(file)).map(|file| {
        let bytes =
            fs::read(sources.join(&file)).with_context(|| format!("cannot read {}", file.display()))?;
        Ok(String::from_utf8_lossy(&bytes).replace("\r\n", "\n"))
    });
    texts.collect()
}

fn is_license(file: &Path) -> bool {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_uppercase();
    let is_code = [".RS", ".C", ".H", ".PY", ".JS"].iter().any(|ending| name.ends_with(ending));
    !is_code && (NAMES.iter().any(|begin| name.starts_with(begin)) || name.ends_with(".LICENSE"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licences_are_known_by_their_names_wherever_they_lie() {
        for name in ["LICENSE", "LICENSE-MIT", "license.txt", "jemalloc/COPYING", "d3.LICENSE", "NOTICE.md"] {
            assert!(is_license(Path::new(name)), "{name}");
        }
        for name in ["src/license.rs", "README.md", "copyright.h"] {
            assert!(!is_license(Path::new(name)), "{name}");
        }
    }
}
