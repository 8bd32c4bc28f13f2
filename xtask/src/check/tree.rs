//! The text files of the source tree, without what builds and runs leave in it.

use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// Endings of the files in which the checks look for references.
const ENDINGS: [&str; 7] = ["rs", "md", "toml", "yaml", "c", "h", "py"];
/// Directories of a run, and of other people's files.
const SKIPPED: [&str; 3] = ["coswitch-runs", "vendor", "testdata"];

/// A file of the tree.
pub(super) struct Text {
    /// Relative to the root.
    pub(super) path: PathBuf,
    pub(super) text: String,
}

impl Text {
    pub(super) fn has_ending(&self, ending: &str) -> bool {
        self.path.extension().is_some_and(|extension| extension == ending)
    }
}

/// Reads all text files below `root`, in the order of their paths.
pub(super) fn texts(root: &Path) -> Result<Vec<Text>> {
    let mut texts = Vec::new();
    collect(root, Path::new(""), &mut texts)?;
    texts.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(texts)
}

fn collect(root: &Path, directory: &Path, texts: &mut Vec<Text>) -> Result<()> {
    let entries = fs::read_dir(root.join(directory));
    for entry in entries.with_context(|| format!("cannot list {}", root.join(directory).display()))? {
        let entry = entry?;
        let (name, path) = (entry.file_name(), directory.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            if !is_skipped(&entry.path(), &name.to_string_lossy()) {
                collect(root, &path, texts)?;
            }
        } else if path.extension().is_some_and(|ending| ENDINGS.iter().any(|known| ending == *known)) {
            let text = fs::read_to_string(entry.path());
            let text = text.with_context(|| format!("cannot read {}", entry.path().display()))?;
            texts.push(Text { path, text });
        }
    }
    Ok(())
}

/// cargo marks its target directory by `CACHEDIR.TAG`, whatever its name.
fn is_skipped(path: &Path, name: &str) -> bool {
    name.starts_with('.') || SKIPPED.contains(&name) || path.join("CACHEDIR.TAG").exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_read_and_build_directories_are_not() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let paths: Vec<PathBuf> = texts(root).unwrap().into_iter().map(|text| text.path).collect();
        for wanted in ["README.md", "Cargo.toml", "xtask/src/check/tree.rs"] {
            assert!(paths.contains(&wanted.into()), "{wanted}");
        }
        assert!(!paths.iter().any(|path| path.starts_with("target") || path.starts_with(".git")));
    }
}
