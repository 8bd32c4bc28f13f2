//! The command line: chooses tests, runs each of them three times, keeps the results, writes the page.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use clap::Parser;

use crate::{
    coswitch::{self, Place},
    list::{self, Test},
    mpiexec, page,
    results::{Results, TestResult},
    run_file::Sharing,
    verdict::Verdict,
};

/// Memory that no node of the suite's runs has.
const TOO_MUCH_GIB: f64 = 2.0;

/// Run MPICH's own test suite over tcp and under coswitch, and write docs/conformance.md.
#[derive(Parser)]
#[command(name = "cargo xtask conformance", max_term_width = 110)]
struct Arguments {
    /// Only this directory of the suite; may be given several times.
    #[arg(long, value_name = "DIR")]
    only: Vec<String>,
    /// Only every Nth test.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    sample: u32,
    /// Leave out the tests that draw their data from the pool of datatypes: most of the lists' lines.
    #[arg(long)]
    without_pool: bool,
    /// Tests that run together under coswitch.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=200))]
    batch: u32,
    /// Time for one test, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 180, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    /// Write the page of the results so far, and run nothing.
    #[arg(long)]
    page_only: bool,
    /// Where the results are kept.
    #[arg(long, value_name = "DIR", default_value = "target/conformance")]
    results: PathBuf,
    /// The page.
    #[arg(long, value_name = "FILE", default_value = "docs/conformance.md")]
    page: PathBuf,
}

/// Exits with 1 where a test that passes over tcp does not pass under coswitch.
#[must_use]
pub fn conformance() -> ExitCode {
    match carry_out(&Arguments::parse()) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(differences) => {
            eprintln!("{differences} tests pass over tcp and not under coswitch");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn carry_out(arguments: &Arguments) -> Result<usize> {
    fs::create_dir_all(&arguments.results)?;
    let file = std::path::absolute(arguments.results.join("results.json"))?;
    let mut results = Results::load(&file)?;
    if !arguments.page_only {
        let suite = crate::suite(&crate::prefix());
        ensure!(suite.is_dir(), "{} is missing: start this by `cargo xtask conformance`", suite.display());
        for group in groups(&arguments.only)? {
            run_group(arguments, &suite, group, &mut results, &file)?;
        }
    }
    fs::write(&arguments.page, page::write(&results))
        .with_context(|| format!("cannot write {}", arguments.page.display()))?;
    Ok(results.tests.values().filter(|test| test.passed_over_tcp() && !test.passed_under_coswitch()).count())
}

fn groups(only: &[String]) -> Result<Vec<&'static str>> {
    let known = list::DIRECTORIES;
    for name in only {
        ensure!(
            known.contains(&name.as_str()),
            "there is no directory {name}: use one of {}",
            known.join(", ")
        );
    }
    let chosen = |name: &&str| only.is_empty() || only.iter().any(|only| only == name);
    Ok(known.into_iter().filter(chosen).collect())
}

fn run_group(
    arguments: &Arguments,
    suite: &Path,
    group: &str,
    results: &mut Results,
    file: &Path,
) -> Result<()> {
    let all = list::read(suite, group).with_context(|| format!("cannot read the lists of {group}"))?;
    let all = all.into_iter().filter(|test| !(arguments.without_pool && test.of_pool));
    let tests: Vec<Test> =
        all.step_by(arguments.sample as usize).map(|test| with_reasons(test, suite)).collect();
    results.forget(group);
    for test in &tests {
        results.tests.insert(test.to_string(), TestResult::of(test));
    }
    let mut tests: Vec<&Test> = tests.iter().filter(|test| test.left_out.is_none()).collect();
    // A line that is there twice is one test.
    tests.dedup_by_key(|test| test.to_string());
    eprintln!("{group}: {} tests", tests.len());
    let (limit, coswitch) = (Duration::from_secs(arguments.limit), beside_this_program()?);
    let work = tempfile::tempdir()?;
    for test in &tests {
        let dir = work.path().join("tcp");
        fs::create_dir_all(&dir)?;
        let (verdict, took) = mpiexec::run(test, suite, &dir, limit)?;
        fs::remove_dir_all(&dir)?;
        tell("tcp", test, &verdict, &format!("{:.1} s", took.as_secs_f64()));
        results.tests.entry(test.to_string()).and_modify(|result| result.tcp = Some(verdict));
    }
    results.store(file)?;
    let place = Place { coswitch: &coswitch, suite, work: &file.with_file_name("runs") };
    for sharing in [Sharing::Alone, Sharing::Together] {
        for batch in tests.chunks(arguments.batch as usize) {
            let done = coswitch::run(&place, batch, sharing, limit)?;
            for (test, outcome) in batch.iter().zip(done.outcomes) {
                let Some(outcome) = outcome else { continue };
                let how = if sharing == Sharing::Alone { "alone" } else { "together" };
                tell(how, test, &outcome.verdict, &format!("restored {} times", outcome.restores));
                results.tests.entry(test.to_string()).and_modify(|result| match sharing {
                    Sharing::Alone => result.alone = Some(outcome.verdict),
                    Sharing::Together => {
                        result.together = Some(outcome.verdict);
                        result.restores = outcome.restores;
                    }
                });
            }
            if !done.broken.is_empty() {
                done.broken.iter().for_each(|broken| eprintln!("  a run ended early: {broken}"));
                results.broken.entry(group.into()).or_default().extend(done.broken);
            }
            results.store(file)?;
        }
    }
    Ok(())
}

/// What cannot be run here.
fn with_reasons(mut test: Test, suite: &Path) -> Test {
    if test.left_out.is_some() {
        return test;
    }
    if let Some(memory) = test.memory.filter(|memory| *memory > TOO_MUCH_GIB) {
        test.left_out = Some(format!("needs {memory} GiB"));
    } else if !test.path(suite).is_file() {
        test.left_out = Some("does not compile or link with MPICH 4.2.3".into());
    }
    test
}

fn beside_this_program() -> Result<PathBuf> {
    let program = std::env::current_exe()?.with_file_name("coswitch");
    ensure!(program.is_file(), "{} is missing", program.display());
    Ok(program)
}

fn tell(how: &str, test: &Test, verdict: &Verdict, more: &str) {
    match verdict {
        Verdict::Passed => eprintln!("  {how:8}  passed  {test} ({more})"),
        Verdict::Failed(why) => eprintln!("  {how:8}  FAILED  {test} ({more}): {why}"),
    }
}

impl TestResult {
    fn of(test: &Test) -> Self {
        Self {
            group: test.group().into(),
            of_pool: test.of_pool,
            left_out: test.left_out.clone(),
            tcp: None,
            alone: None,
            together: None,
            restores: 0,
        }
    }
}
