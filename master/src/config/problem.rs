//! The problems of a run file: position, message and help.
//!
//! Problems are collected, so that one reading of a file reports all of them.

use std::path::{Path, PathBuf};

use coswitch_report::words::plural;
use miette::{Diagnostic, LabeledSpan, NamedSource, SourceSpan};
use serde::Serialize;
use thiserror::Error;

/// A problem at one position of a run file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field}: {message}")]
pub struct Problem {
    /// The path of the field, such as `jobs[0].memory`.
    pub field: String,
    /// In bytes of the text.
    pub span: SourceSpan,
    pub message: String,
    /// How to correct it.
    pub help: Option<String>,
}

impl Problem {
    pub fn new(field: impl Into<String>, span: SourceSpan, message: impl Into<String>) -> Self {
        Self { field: field.into(), span, message: message.into(), help: None }
    }

    /// Adds help.
    #[must_use]
    pub fn help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }
}

impl Diagnostic for Problem {
    fn help<'a>(&'a self) -> Option<Box<dyn std::fmt::Display + 'a>> {
        self.help.as_ref().map(|help| Box::new(help) as Box<dyn std::fmt::Display>)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        Some(Box::new(std::iter::once(LabeledSpan::at(self.span, "here"))))
    }
}

/// All problems of one run file.
#[derive(Debug, Error, Diagnostic)]
#[error("{} cannot be run: {}", .path.display(), plural(.problems.len(), "problem"))]
pub struct Refused {
    pub path: PathBuf,
    #[source_code]
    text: NamedSource<String>,
    /// In the order of the text.
    #[related]
    pub problems: Vec<Problem>,
}

impl Refused {
    pub fn new(path: &Path, text: &str, mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|problem| problem.span.offset());
        Self {
            path: path.to_path_buf(),
            text: NamedSource::new(path.display().to_string(), text.to_owned()),
            problems,
        }
    }

    /// The problems with line and column, for `--output json`.
    pub fn located(&self) -> Vec<Located<'_>> {
        let text = self.text.inner();
        self.problems.iter().map(|problem| Located::of(problem, &self.path, text)).collect()
    }
}

/// A problem with line and column, for `--output json`.
#[derive(Debug, Serialize)]
pub struct Located<'a> {
    file: &'a Path,
    line: usize,
    column: usize,
    field: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    help: Option<&'a str>,
}

impl<'a> Located<'a> {
    fn of(problem: &'a Problem, file: &'a Path, text: &str) -> Self {
        let (line, column) = line_column(text, problem.span.offset());
        let Problem { field, message, help, .. } = problem;
        Self { file, line, column, field, message, help: help.as_deref() }
    }
}

/// Line and column, counted from one, of a byte of a text.
pub fn line_column(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (line, column)
}

/// The byte at a line and column, counted from one; the last byte where the text is shorter.
pub fn byte_of(text: &str, [line, column]: [usize; 2]) -> usize {
    let begin: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    let rest = text.get(begin..).unwrap_or_default();
    let offset = rest.char_indices().nth(column.saturating_sub(1)).map_or(rest.len(), |(offset, _)| offset);
    (begin + offset).min(text.len().saturating_sub(1))
}

/// The known name that `wrong` most likely means.
pub fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(&wrong.to_lowercase(), name), name))
        .filter(|(distance, name)| *distance <= name.len().div_ceil(2).min(3))
        .min()
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_similar_name_is_proposed() {
        assert_eq!(nearest("comand", ["command", "count", "name"]), Some("command"));
        assert_eq!(nearest("Memory", ["memory", "ranks"]), Some("memory"));
        assert_eq!(nearest("zebra", ["memory", "ranks"]), None);
    }

    #[test]
    fn lines_and_columns_count_from_one() {
        assert_eq!(line_column("ab\ncd", 0), (1, 1));
        assert_eq!(line_column("ab\ncd", 4), (2, 2));
        assert_eq!(line_column("ä\nö!", 5), (2, 2));
        assert_eq!(byte_of("ä\nö!", [2, 2]), 5);
        assert_eq!(byte_of("ab", [7, 7]), 1);
    }
}
