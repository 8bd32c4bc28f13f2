//! `coswitch report`: what is no run is a mistake of the command line, not a report of nothing.

use std::{fs, process::Command};

#[test]
fn what_is_no_run_is_refused_with_its_path() {
    let dir = tempfile::tempdir().unwrap();
    for (name, contents) in [("empty", ""), ("line", "no journal\n"), ("lines", "a: 1\nb: 2\n")] {
        fs::write(dir.path().join(name), contents).unwrap();
    }
    for (run, why) in [
        ("empty", "does not begin as the journal of a run"),
        ("line", "does not begin as the journal of a run"),
        ("lines", "line 1 of journal"),
        ("missing", "No such file"),
        (".", "journal.jsonl: No such file"),
    ] {
        let path = dir.path().join(run);
        let output = Command::new(env!("CARGO_BIN_EXE_coswitch")).arg("report").arg(&path).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.starts_with("nothing is reported: ") && said.contains(why), "{run}: {said}");
        assert!(output.stdout.is_empty() && output.status.code() == Some(2), "{run}: {output:?}");
    }
}
