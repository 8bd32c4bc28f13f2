//! The page docs/conformance.md: a table by directory, each difference with its cause, and what is left out.

use std::{collections::BTreeMap, fmt::Write as _};

use crate::{
    list::{DIRECTORIES, LEFT_OUT},
    results::{Results, TestResult},
    verdict::Verdict,
};

const HEAD: &str = "\
# MPICH's own tests

Written by `cargo xtask conformance`, which fetches MPICH's test suite (4.0.2, from Debian's source
package), builds what a C and a Fortran compiler can with the wrappers of the set-up (MPICH 4.2.3), and runs
each test with its ranks and arguments three times: over libfabric's tcp provider by `mpiexec`; under
coswitch alone (`policy: batch`, two nodes); and under coswitch together with others (`policy: hybrid`,
`quantum: 400ms`, `residency: none`), where sets of eight ranks take turns and jobs are dumped and restored
wherever they happen to be. A test passes by the rules of the suite: it says ` No Errors` and nothing else,
and exits with 0, or as its list says.

No test that passes over tcp may fail, hang or take the run down under coswitch; the command exits with 1
otherwise. `--only DIR` runs one directory, `--sample N` every Nth test. `cargo xtask test` runs a few
dozen.
";

/// Causes of differences that have been found, by the beginning of the test's name.
const CAUSES: [(&str, &str); 0] = [];

/// What a test says that did not end in time.
const TOOK_TOO_LONG: &str = "did not end within";
const POLLING: &str = "over tcp its ranks poll, and hold the processors that the others need";

#[derive(Default)]
struct Row {
    run: u32,
    both: u32,
    tcp_only: u32,
    coswitch_only: u32,
    /// Passed under coswitch; over tcp not run yet.
    tcp_to_come: u32,
    neither: u32,
    left_out: u32,
    restores: u64,
    restored: u32,
}

pub(crate) fn write(results: &Results) -> String {
    let mut text = HEAD.to_owned();
    table(&mut text, results);
    differences(&mut text, results);
    failing_everywhere(&mut text, results);
    broken(&mut text, results);
    left_out(&mut text, results);
    text
}

fn table(text: &mut String, results: &Results) {
    line(text, "\n## By directory\n");
    line(
        text,
        "*Restores* are those of the runs together with others, and the tests that had at least one.\n",
    );
    line(
        text,
        "| directory | run | passed on both | on tcp only | under coswitch only | under coswitch, not run \
         over tcp yet | on neither | left out | restores |",
    );
    line(text, "| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    let mut total = Row::default();
    for group in DIRECTORIES {
        let row = Row::of(results.tests.values().filter(|test| test.group == group));
        if row.run + row.left_out > 0 {
            line(text, &row.show(group));
            total.add(&row);
        }
    }
    line(text, &total.show("all"));
}

impl Row {
    fn of<'a>(tests: impl Iterator<Item = &'a TestResult>) -> Self {
        let mut row = Self::default();
        for test in tests {
            if test.left_out.is_some() {
                row.left_out += 1;
                continue;
            }
            row.run += 1;
            row.restores += test.restores;
            row.restored += u32::from(test.restores > 0);
            match (test.passed_over_tcp(), test.passed_under_coswitch()) {
                (false, true) if test.tcp.is_none() => row.tcp_to_come += 1,
                (true, true) => row.both += 1,
                (true, false) => row.tcp_only += 1,
                (false, true) => row.coswitch_only += 1,
                (false, false) => row.neither += 1,
            }
        }
        row
    }

    fn add(&mut self, other: &Self) {
        self.run += other.run;
        self.both += other.both;
        self.tcp_only += other.tcp_only;
        self.coswitch_only += other.coswitch_only;
        self.tcp_to_come += other.tcp_to_come;
        self.neither += other.neither;
        self.left_out += other.left_out;
        self.restores += other.restores;
        self.restored += other.restored;
    }

    fn show(&self, name: &str) -> String {
        let Row { run, both, tcp_only, coswitch_only, tcp_to_come, neither, left_out, .. } = self;
        let Row { restores, restored, .. } = self;
        format!(
            "| {name} | {run} | {both} | {tcp_only} | {coswitch_only} | {tcp_to_come} | {neither} | \
             {left_out} | {restores} of {restored} |"
        )
    }
}

fn differences(text: &mut String, results: &Results) {
    line(text, "\n## Differences\n");
    let differ = |test: &&TestResult| {
        let ran = test.left_out.is_none() && test.tcp.is_some();
        ran && test.passed_over_tcp() != test.passed_under_coswitch()
    };
    let found: Vec<_> = results.tests.iter().filter(|(_, test)| differ(test)).collect();
    if found.is_empty() {
        line(text, "None.");
        return;
    }
    line(text, "| test | over tcp | alone | together | cause |");
    line(text, "| --- | --- | --- | --- | --- |");
    for (name, test) in found {
        let cause = CAUSES.iter().find(|(beginning, _)| name.starts_with(beginning));
        let polls = matches!(&test.tcp, Some(Verdict::Failed(why)) if why.starts_with(TOOK_TOO_LONG));
        let unknown = if polls { POLLING } else { "not found yet" };
        let cause = cause.map_or(unknown, |(_, cause)| cause);
        let [tcp, alone, together] = [&test.tcp, &test.alone, &test.together].map(short);
        line(text, &format!("| `{name}` | {tcp} | {alone} | {together} | {cause} |"));
    }
}

fn failing_everywhere(text: &mut String, results: &Results) {
    line(text, "\n## Passed neither over tcp nor under coswitch\n");
    line(text, "| test | over tcp | under coswitch, alone |");
    line(text, "| --- | --- | --- |");
    for (name, test) in &results.tests {
        if test.left_out.is_none() && !test.passed_over_tcp() && !test.passed_under_coswitch() {
            line(text, &format!("| `{name}` | {} | {} |", short(&test.tcp), short(&test.alone)));
        }
    }
}

fn broken(text: &mut String, results: &Results) {
    line(text, "\n## Runs that ended early\n");
    line(text, "Their tests ran again, by halves; the table has the last result.\n");
    if results.broken.values().all(Vec::is_empty) {
        line(text, "None.");
    }
    for (group, said) in &results.broken {
        said.iter().for_each(|said| line(text, &format!("- {group}: {}", cell(said))));
    }
}

fn left_out(text: &mut String, results: &Results) {
    line(text, "\n## Left out\n");
    line(text, "| tests | reason |");
    line(text, "| --- | --- |");
    LEFT_OUT.iter().for_each(|(name, why)| line(text, &format!("| `{name}/*` | {why} |")));
    let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, test) in &results.tests {
        if let Some(why) = &test.left_out {
            by_reason.entry(why).or_default().push(name);
        }
    }
    for (why, names) in by_reason {
        line(
            text,
            &format!("| {} | {why} |", names.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ")),
        );
    }
}

fn short(verdict: &Option<Verdict>) -> String {
    match verdict {
        None => "not run".into(),
        Some(Verdict::Passed) => "passed".into(),
        // What follows is the launcher's banner.
        Some(Verdict::Failed(why)) if why.starts_with(TOOK_TOO_LONG) => {
            cell(why.split(": ==").next().unwrap_or_default())
        }
        Some(Verdict::Failed(why)) => cell(why).chars().take(90).collect(),
    }
}

/// Text for a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace(['\n', '\t'], " ").trim().to_owned()
}

fn line(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("a string takes any text");
}
