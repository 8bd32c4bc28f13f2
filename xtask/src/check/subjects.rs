//! Subjects of commits: at most 72 characters, for logs and mails to show them whole.

use super::Finding;
use crate::command;
use anyhow::Result;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const MAX: usize = 72;
/// The last commit before the rule began; older subjects are longer.
const BASE: &str = "2cfc06128ac24036921c0550479937603bbb642a";
const LIMIT: Duration = Duration::from_secs(60);

/// Checks the commits since the rule began. Where a shallow clone does not reach back that far: the last
/// commit.
pub(super) fn check(root: &Path) -> Result<Vec<Finding>> {
    if git(root, &["rev-parse", "--verify", "HEAD"]).is_err() {
        eprintln!("commit subjects are not checked: {} is no git repository", root.display());
        return Ok(Vec::new());
    }
    let range = format!("{BASE}..HEAD");
    let log =
        |arguments: &[&str]| git(root, &[&["log", "--no-merges", "--format=%h %s"], arguments].concat());
    let reaches_base = git(root, &["merge-base", "--is-ancestor", BASE, "HEAD"]).is_ok();
    let commits = if reaches_base { log(&[&range])? } else { log(&["-1"])? };
    Ok(too_long(&commits))
}

/// `commits` has a line for each: an abbreviated hash and the subject.
fn too_long(commits: &str) -> Vec<Finding> {
    let commits = commits.lines().filter_map(|line| line.split_once(' '));
    let long = commits.filter(|(_, subject)| subject.chars().count() > MAX);
    let finding = |(hash, subject): (&str, &str)| Finding {
        place: format!("commit {hash}"),
        problem: format!("a subject of {} characters; at most {MAX}: {subject}", subject.chars().count()),
    };
    long.map(finding).collect()
}

/// The tree may belong to another user than the one who checks it.
fn git(root: &Path, arguments: &[&str]) -> Result<String> {
    let mut git = Command::new("git");
    command::run(git.current_dir(root).args(["-c", "safe.directory=*"]).args(arguments), LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_may_have_72_characters() {
        let (longest, too_wide) = ("x".repeat(MAX), "ü".repeat(MAX + 1));
        let found = too_long(&format!("1234567 {longest}\n89abcde {too_wide}\n"));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].place, "commit 89abcde");
        assert!(found[0].problem.starts_with("a subject of 73 characters"), "{}", found[0]);
    }

    #[test]
    fn a_commit_without_a_subject_is_short_enough() {
        assert_eq!(too_long("1234567 \n89abcde\n"), []);
    }
}
