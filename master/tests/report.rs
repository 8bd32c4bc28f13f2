//! `coswitch report` refuses paths that do not lead to a run.

use std::{fs, process::Command};

#[test]
fn a_path_without_a_run_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (name, contents) in [("empty", ""), ("line", "no journal\n"), ("lines", "a: 1\nb: 2\n")] {
        fs::write(dir.path().join(name), contents).unwrap();
    }
    for (run, problem) in [
        ("empty", "does not begin as the journal of a run"),
        ("line", "does not begin as the journal of a run"),
        ("lines", "line 1 of journal"),
        ("missing", "No such file"),
        (".", "journal.jsonl: No such file"),
    ] {
        let path = dir.path().join(run);
        let output = Command::new(env!("CARGO_BIN_EXE_coswitch")).arg("report").arg(&path).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.starts_with("nothing is reported: ") && error.contains(problem), "{run}: {error}");
        assert!(output.stdout.is_empty() && output.status.code() == Some(2), "{run}: {output:?}");
    }
}
