//! MPICH's lists of tests: a program, its number of ranks and its options on each line.

use std::{
    collections::BTreeMap,
    fmt, fs, io,
    path::{Path, PathBuf},
};

/// The lists of a directory: the tests proper, and the same programs with the datatypes of a pool.
const LISTS: [&str; 2] = ["testlist", "testlist.dtp"];

/// Directories of the suite, with their subdirectories.
pub const DIRECTORIES: [&str; 21] = [
    "attr", "coll", "comm", "datatype", "errhan", "errors", "f08", "f77", "f90", "group", "impls", "info",
    "init", "io", "mpi_t", "part", "pt2pt", "rma", "threads", "topo", "basic",
];

/// Directories that are left out, and why.
pub const LEFT_OUT: [(&str, &str); 6] = [
    (
        "spawn",
        "start processes while they run (`MPI_Comm_spawn`, `MPI_Comm_connect`), which coswitch has not",
    ),
    ("cxx", "C++; its binding left the standard with MPI 3"),
    ("ckpoint", "for a launcher that makes checkpoints itself"),
    ("ft", "for a launcher that survives the death of a rank; MPICH does not run them by default"),
    (
        "perf",
        "bounds on time, for an idle machine with a core for each rank; MPICH does not run them by default",
    ),
    ("manual", "have to be watched by a person"),
];

/// One line of a list.
#[derive(Clone, Debug, PartialEq)]
pub struct Test {
    /// From the root of the suite.
    pub directory: String,
    pub program: String,
    pub ranks: u32,
    pub arguments: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub expected: Expected,
    /// Why it is not run.
    pub left_out: Option<String>,
    /// What it needs in all, in GiB, where the list says so.
    pub memory: Option<f64>,
    /// Whether its data comes from the pool of datatypes.
    pub of_pool: bool,
}

/// What a test has to say and to exit with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expected {
    /// ` No Errors`, and nothing else; code 0.
    #[default]
    NoErrors,
    /// The same with another code than 0.
    NoErrorsAndFailure,
    /// Another code than 0.
    Failure,
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} {}", self.directory, self.program, self.ranks)?;
        self.env.iter().try_for_each(|(name, value)| write!(f, " {name}={value}"))?;
        self.arguments.iter().try_for_each(|argument| write!(f, " {argument}"))
    }
}

impl Test {
    /// The first directory, by which the table is ordered.
    #[must_use]
    pub fn group(&self) -> &str {
        self.directory.split('/').next().unwrap_or(&self.directory)
    }

    #[must_use]
    pub fn path(&self, suite: &Path) -> PathBuf {
        suite.join(&self.directory).join(&self.program)
    }
}

/// Reads the lists of a directory of the suite and of its subdirectories.
///
/// # Errors
/// Where a list cannot be read.
pub fn read(suite: &Path, directory: &str) -> io::Result<Vec<Test>> {
    let mut tests = Vec::new();
    for list in LISTS {
        let path = suite.join(directory).join(list);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            text => text?,
        };
        for line in text.lines() {
            let name = line.split('#').next().unwrap_or_default().trim();
            let below = format!("{directory}/{name}");
            if !name.is_empty() && suite.join(&below).is_dir() {
                tests.extend(read(suite, &below)?);
            } else if let Some(test) = parse(directory, line) {
                tests.push(Test { of_pool: list != LISTS[0], ..test });
            }
        }
    }
    Ok(tests)
}

/// Reads a line; `None` where it has no test.
#[must_use]
pub fn parse(directory: &str, line: &str) -> Option<Test> {
    let mut words = line.split('#').next()?.split_whitespace();
    let program = words.next().filter(|word| !word.starts_with('!'))?;
    // A line may name a program of a directory below.
    let whole = format!("{directory}/{program}");
    let (directory, program) = whole.rsplit_once('/')?;
    let mut test = Test {
        directory: directory.into(),
        program: program.into(),
        // MPICH's own default.
        ranks: 2,
        arguments: Vec::new(),
        env: BTreeMap::new(),
        expected: Expected::NoErrors,
        left_out: None,
        memory: None,
        of_pool: false,
    };
    for word in words {
        match word.split_once('=') {
            None => test.ranks = word.parse().unwrap_or(test.ranks),
            Some(("arg", value)) => test.arguments.push(value.into()),
            Some(("env", value)) => {
                let (name, value) = value.split_once('=')?;
                test.env.insert(name.into(), value.into());
            }
            Some(("resultTest", "TestErrFatal")) if line.contains("timeLimit=") => {
                test.left_out = Some("waits for its launcher to end it after a time".into());
            }
            Some(("resultTest", "TestStatusNoErrors")) => test.expected = Expected::NoErrorsAndFailure,
            Some(("resultTest", _)) => test.expected = Expected::Failure,
            Some(("mem", value)) => test.memory = value.parse().ok(),
            Some(("xfail", ticket)) => {
                test.left_out.get_or_insert(format!("fails by MPICH's own list ({ticket})"));
            }
            Some(("mpiexecarg", value)) => test.left_out = Some(format!("is for an mpiexec with {value}")),
            // How long it may take, and what kind of MPI library it is for.
            Some(_) => {}
        }
    }
    Some(test)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_mpich_reads_it() {
        let line = "allred 4 arg=-n arg=3 env=MPIR_CVAR_X=a=b timeLimit=600 mem=1.5 # comment";
        let test = parse("coll", line).unwrap();
        assert_eq!(
            (test.to_string().as_str(), test.memory),
            ("coll/allred 4 MPIR_CVAR_X=a=b -n 3", Some(1.5))
        );
        assert_eq!(parse("init", "exitst1 2 resultTest=TestStatus").unwrap().expected, Expected::Failure);
        assert_eq!(parse("pt2pt", "sub/many").unwrap().path(Path::new("/s")), Path::new("/s/pt2pt/sub/many"));
        for line in ["scancel 2 xfail=ticket2266", "timeout 2 resultTest=TestErrFatal timeLimit=10"] {
            assert!(parse("pt2pt", line).unwrap().left_out.is_some(), "{line}");
        }
    }

    #[test]
    fn comments_and_orders_to_build_are_no_tests() {
        for line in ["", "  # nothing", "!impls/mpich:all"] {
            assert_eq!(parse("pt2pt", line), None, "{line}");
        }
    }
}
