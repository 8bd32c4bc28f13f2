//! Puts tests into one run file, and reads from the run's directory what each of them wrote.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::{
    list::Test,
    verdict::{Ending, Verdict, judge},
};

const NODES: u32 = 2;
/// Memory of a node in the runs of tests that take turns.
const NODE_MIB: u32 = 2048;
/// Declared for each rank, in MiB: many times what MPI, rings and a small test hold, so that a set has eight
/// ranks.
const RANK_MIB: u32 = 512;
/// Jobs leave memory at the end of each turn, although they would have room.
const TURNS: &str = "{policy: hybrid, quantum: 400ms, residency: none, needs: declared}";

/// How the tests of a run share the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// One after the other.
    Alone,
    /// All together, in sets that are switched every 400 ms.
    Together,
}

/// The text of a run file. Each test has a directory of its own below `work`, for the files that it makes.
///
/// # Errors
/// Where a directory cannot be made.
pub fn write(
    tests: &[&Test],
    suite: &Path,
    work: &Path,
    store: &Path,
    sharing: Sharing,
) -> std::io::Result<String> {
    let (memory, scheduler) = match sharing {
        Sharing::Alone => (2 * NODE_MIB, "{policy: batch}"),
        Sharing::Together => (NODE_MIB, TURNS),
    };
    let mut text = format!(
        "cluster: {{nodes: {NODES}, memory: {memory}MiB, store: {}}}\nscheduler: {scheduler}\njobs:\n",
        json!(store)
    );
    for (index, test) in tests.iter().enumerate() {
        let cwd = work.join(name(index));
        fs::create_dir_all(&cwd)?;
        let mut command = vec![test.path(suite).display().to_string()];
        command.extend(test.arguments.iter().cloned());
        // JSON is YAML.
        let job = json!({
            "name": name(index), "command": command, "ranks": test.ranks, "cwd": cwd, "env": test.env,
            "memory": format!("{}MiB", memory_of_rank(test)),
        });
        writeln!(text, "  - {job}").expect("a string takes any text");
    }
    Ok(text)
}

/// Tests with very many ranks fill a node, and those whose list names their memory: what it says is too
/// little.
fn memory_of_rank(test: &Test) -> u32 {
    let node = NODE_MIB / test.ranks.div_ceil(NODES);
    if test.memory.is_some() { node } else { RANK_MIB.min(node) }
}

/// The name of a test's job.
#[must_use]
pub fn name(index: usize) -> String {
    format!("t{index}")
}

/// The verdict on a test and how often it was restored, by the report of its run; `None` where it did not
/// end.
#[must_use]
pub fn result(test: &Test, index: usize, report: &Value, out: &Path) -> Option<(Verdict, u64)> {
    let jobs = report["jobs"].as_array()?;
    let job = jobs.iter().find(|job| job["name"] == name(index).as_str())?;
    let ending = ending(&job["outcome"])?;
    let verdict = judge(test.expected, &text(&out.join(name(index))), &ending);
    Some((verdict, job["restores"].as_u64().unwrap_or_default()))
}

fn ending(outcome: &Value) -> Option<Ending> {
    let (kind, value) = outcome.as_object()?.iter().next()?;
    Some(match (kind.as_str(), value.as_i64()) {
        ("exit", Some(code)) => Ending::Exit(i32::try_from(code).unwrap_or(i32::MAX)),
        _ => Ending::Otherwise(format!("{kind}: {}", value.to_string().trim_matches('"'))),
    })
}

/// What all ranks wrote, rank by rank.
fn text(directory: &Path) -> String {
    let mut files: Vec<PathBuf> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("rank-")))
        .collect();
    files.sort();
    files
        .iter()
        .map(|file| String::from_utf8_lossy(&fs::read(file).unwrap_or_default()).into_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_with_the_ranks_output() {
        let out = tempfile::tempdir().unwrap();
        fs::create_dir(out.path().join("t1")).unwrap();
        fs::write(out.path().join("t1/rank-0.out"), " No Errors\n").unwrap();
        let test = crate::list::parse("coll", "allred 4").unwrap();
        let report = json!({"jobs": [{"name": "t0"}, {"name": "t1", "outcome": {"exit": 0}, "restores": 3}]});
        assert_eq!(result(&test, 1, &report, out.path()), Some((Verdict::Passed, 3)));
        assert_eq!(result(&test, 0, &report, out.path()), None, "it did not end");
        let killed = json!({"jobs": [{"name": "t1", "outcome": {"signal": 9}}]});
        let (verdict, _) = result(&test, 1, &killed, out.path()).unwrap();
        assert_eq!(verdict, Verdict::Failed("signal: 9".into()));
    }
}
