//! Judges what a test wrote and how it ended, by the rules of MPICH's own `runtests`.

use serde::{Deserialize, Serialize};

use crate::list::Expected;

/// How a test ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// All ranks exited; one code other than 0, if there is any.
    Exit(i32),
    /// A signal or the launcher ended it.
    Otherwise(String),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    Passed,
    Failed(String),
}

impl Verdict {
    #[must_use]
    pub const fn is_passed(&self) -> bool {
        matches!(self, Self::Passed)
    }
}

/// Judges the text of all ranks and their ending.
#[must_use]
pub fn judge(expected: Expected, text: &str, ending: &Ending) -> Verdict {
    let code = match ending {
        Ending::Exit(code) => *code,
        // The death of a rank is a status other than 0 as well.
        Ending::Otherwise(_) if expected == Expected::Failure => return Verdict::Passed,
        Ending::Otherwise(why) => return failed(why, text),
    };
    let says_no_errors = text.lines().any(is_no_errors);
    let other = text.lines().find(|line| !is_no_errors(line) && !is_harmless(line));
    match (expected, says_no_errors, other) {
        (Expected::Failure, _, _) if code == 0 => Verdict::Failed("exit code 0".into()),
        (Expected::Failure, _, _) => Verdict::Passed,
        (_, _, Some(other)) => failed(other, ""),
        (_, false, None) => Verdict::Failed(format!("said nothing; exit code {code}")),
        (Expected::NoErrors, true, None) if code != 0 => Verdict::Failed(format!("exit code {code}")),
        (Expected::NoErrorsAndFailure, true, None) if code == 0 => Verdict::Failed("exit code 0".into()),
        (_, true, None) => Verdict::Passed,
    }
}

fn failed(why: &str, text: &str) -> Verdict {
    let mut all = vec![why];
    all.extend(text.lines().find(|line| !is_no_errors(line) && !is_harmless(line)));
    Verdict::Failed(all.join(": ").chars().take(300).collect())
}

fn is_no_errors(line: &str) -> bool {
    matches!(line.trim(), "No Errors" | "No errors")
}

fn is_harmless(line: &str) -> bool {
    line.trim().is_empty() || line.trim() == "Test Passed" || line.contains("FORTRAN STOP")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_passes_with_no_errors_and_nothing_else() {
        let passes = |text: &str, code| judge(Expected::NoErrors, text, &Ending::Exit(code)).is_passed();
        assert!(passes(" No Errors\n", 0) && passes("Test Passed\n No errors\n", 0));
        assert!(!passes(" No Errors\nFound 3\n", 0) && !passes("", 0) && !passes(" No Errors\n", 1));
    }

    #[test]
    fn some_tests_have_to_fail() {
        assert!(judge(Expected::Failure, "abort\n", &Ending::Exit(7)).is_passed());
        assert!(judge(Expected::Failure, "", &Ending::Otherwise("signal 6".into())).is_passed());
        assert!(!judge(Expected::Failure, " No Errors\n", &Ending::Exit(0)).is_passed());
        assert!(judge(Expected::NoErrorsAndFailure, " No Errors\n", &Ending::Exit(1)).is_passed());
    }
}
