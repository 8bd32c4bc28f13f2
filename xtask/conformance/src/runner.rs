//! The command line: chooses tests, runs each of them three times, keeps the results, writes the page.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use clap::Parser;

use crate::{
    coswitch::{self, Outcome, Place},
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
    #[arg(long, value_name = "N", default_value_t = 16)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=200))]
    batch: u32,
    /// Keep the results so far, and run only what has not passed: to go on, or to try again.
    #[arg(long)]
    again: bool,
    /// Time for one test, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 180)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
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
        let work = file.with_file_name("runs");
        Run { arguments, suite: &suite, coswitch: &beside_this_program()?, work: &work, file: &file }
            .all(&mut results)?;
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

/// How a test is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Under(Sharing),
    OverTcp,
}

impl Phase {
    /// First what may be wrong; what ranks that poll take hours for, on a machine with few cores, comes last.
    const ALL: [Self; 3] = [Self::Under(Sharing::Alone), Self::Under(Sharing::Together), Self::OverTcp];

    const fn name(self) -> &'static str {
        match self {
            Self::Under(Sharing::Alone) => "alone",
            Self::Under(Sharing::Together) => "together",
            Self::OverTcp => "tcp",
        }
    }

    fn verdict(self, result: &mut TestResult) -> &mut Option<Verdict> {
        match self {
            Self::Under(Sharing::Alone) => &mut result.alone,
            Self::Under(Sharing::Together) => &mut result.together,
            Self::OverTcp => &mut result.tcp,
        }
    }
}

struct Run<'a> {
    arguments: &'a Arguments,
    suite: &'a Path,
    coswitch: &'a Path,
    work: &'a Path,
    file: &'a Path,
}

impl Run<'_> {
    fn all(&self, results: &mut Results) -> Result<()> {
        let mut plan = Vec::new();
        for group in groups(&self.arguments.only)? {
            plan.push((group, self.tests(group, results)?));
        }
        for phase in Phase::ALL {
            for (group, tests) in &plan {
                let is_due = |test: &&Test| {
                    let result = results.tests.get_mut(&test.to_string()).expect("each test has an entry");
                    !phase.verdict(result).as_ref().is_some_and(Verdict::is_passed)
                };
                let mut tests: Vec<&Test> = tests.iter().filter(is_due).collect();
                // What has never run first: trying again may take the limit each time.
                tests.sort_by_key(|test| {
                    let result = results.tests.get_mut(&test.to_string()).expect("each test has an entry");
                    phase.verdict(result).is_some()
                });
                eprintln!("{group}, {}: {} tests", phase.name(), tests.len());
                for batch in tests.chunks(self.arguments.batch as usize) {
                    self.batch(phase, group, batch, results)?;
                    results.store(self.file)?;
                }
            }
        }
        Ok(())
    }

    /// The tests of a directory that are run, each of which has an entry in the results then.
    fn tests(&self, group: &str, results: &mut Results) -> Result<Vec<Test>> {
        let arguments = self.arguments;
        let all =
            list::read(self.suite, group).with_context(|| format!("cannot read the lists of {group}"))?;
        let all = all.into_iter().filter(|test| !(arguments.without_pool && test.of_pool));
        let mut tests: Vec<Test> =
            all.step_by(arguments.sample as usize).map(|test| with_reasons(test, self.suite)).collect();
        if !arguments.again {
            results.forget(group);
        }
        for test in &tests {
            results.tests.entry(test.to_string()).or_insert_with(|| TestResult::of(test));
        }
        tests.retain(|test| test.left_out.is_none());
        // A line that is there twice is one test.
        let mut seen = BTreeSet::new();
        tests.retain(|test| seen.insert(test.to_string()));
        Ok(tests)
    }

    fn batch(&self, phase: Phase, group: &str, tests: &[&Test], results: &mut Results) -> Result<()> {
        let limit = Duration::from_secs(self.arguments.limit);
        let Phase::Under(sharing) = phase else {
            return tests.iter().try_for_each(|test| {
                let dir = tempfile::tempdir()?;
                let (verdict, took) = mpiexec::run(test, self.suite, dir.path(), limit)?;
                tell(phase, test, &verdict, &format!("{:.1} s", took.as_secs_f64()));
                results.set(test, |result| *phase.verdict(result) = Some(verdict));
                Ok(())
            });
        };
        let place = Place { coswitch: self.coswitch, suite: self.suite, work: self.work };
        let done = coswitch::run(&place, tests, sharing, limit)?;
        for (test, outcome) in tests.iter().zip(done.outcomes) {
            let Some(Outcome { verdict, restores }) = outcome else { continue };
            tell(phase, test, &verdict, &format!("restored {restores} times"));
            results.set(test, |result| {
                *phase.verdict(result) = Some(verdict);
                result.restores += restores;
            });
        }
        done.broken.iter().for_each(|broken| eprintln!("  a run ended early: {broken}"));
        results.broken.entry(group.into()).or_default().extend(done.broken);
        Ok(())
    }
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

fn tell(phase: Phase, test: &Test, verdict: &Verdict, more: &str) {
    let how = phase.name();
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
