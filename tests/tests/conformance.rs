//! A few dozen of MPICH's own tests take turns, are dumped and restored wherever they are, and pass.

use std::time::Duration;

use coswitch_conformance::{
    list::{self, Test},
    prefix,
    run_file::{self, Sharing},
    suite,
};
use coswitch_tests::{cluster::RUN_LIMIT, master::Master};

const TESTS: &str = include_str!("conformance.txt");
/// Tests of one run.
const TOGETHER: usize = 18;

/// Tests with the directory that each line begins with.
fn tests() -> Vec<Test> {
    let read = |line: &str| {
        let (directory, rest) = line.split_once('/')?;
        list::parse(directory, rest)
    };
    TESTS.lines().filter_map(read).collect()
}

#[test]
fn tests_of_mpich_pass_while_they_are_switched() {
    let suite = suite(&prefix());
    let mut restores = 0;
    let mut failed = Vec::new();
    for batch in tests().chunks(TOGETHER) {
        let work = tempfile::tempdir().unwrap();
        let batch: Vec<&Test> = batch.iter().collect();
        for test in &batch {
            let path = test.path(&suite);
            assert!(path.is_file(), "{} is missing: `cargo xtask test` builds it", path.display());
        }
        let text =
            run_file::write(&batch, &suite, work.path(), "{store}".as_ref(), Sharing::Together).unwrap();
        let master = Master::run(&text);
        let out = master.out();
        let ended = master.end(2 * RUN_LIMIT, Duration::ZERO);
        let report = ended.report.as_ref().unwrap_or_else(|| panic!("no report: {ended:?}"));
        for (index, test) in batch.iter().enumerate() {
            match run_file::result(test, index, report, &out) {
                Some((verdict, count)) if verdict.is_passed() => restores += count,
                other => failed.push(format!("{test}: {other:?}")),
            }
        }
    }
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n"));
    assert!(restores > 0, "no test was ever switched");
}
