//! References: links of Markdown files, numbers of papers, and none to a document outside of the repository.

use super::Finding;
use super::tree::Text;
use std::collections::BTreeSet;
use std::path::Path;

/// Anchors `paper-000` and so on: what "paper 000" in code and docs refers to.
const BIBLIOGRAPHY: &str = "docs/bibliography.md";
/// A document that is not in the repository. In two pieces, so that this line is no reference to it.
const ABSENT: &str = concat!("DES", "IGN");

/// Checks all texts; `root` is where their paths begin.
pub(super) fn check(root: &Path, texts: &[Text]) -> Vec<Finding> {
    let bibliography = texts.iter().find(|text| text.path == Path::new(BIBLIOGRAPHY));
    let papers = bibliography.map(|text| anchors(&text.text)).unwrap_or_default();
    let mut findings = Vec::new();
    for text in texts {
        for (index, line) in text.text.lines().enumerate() {
            let in_line = |problem: String| Finding::in_line(&text.path, index, problem);
            if line.contains(ABSENT) {
                findings.push(in_line(format!("{ABSENT} is not in this repository")));
            }
            let unknown = paper_numbers(line).filter(|number| !papers.contains(number));
            findings.extend(unknown.map(|number| in_line(format!("{BIBLIOGRAPHY} has no paper {number}"))));
        }
        if text.has_ending("md") {
            findings.extend(broken_links(root, text));
        }
    }
    findings
}

fn anchors(bibliography: &str) -> BTreeSet<&str> {
    let after = bibliography.split("id=\"paper-").skip(1);
    after.filter_map(|text| text.split_once('"')).map(|(number, _)| number).collect()
}

/// The numbers of three digits behind "paper ".
fn paper_numbers(line: &str) -> impl Iterator<Item = &str> {
    let after = line.match_indices("paper ").map(|(at, word)| &line[at + word.len()..]);
    after.filter_map(|text| {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        (end == 3).then(|| &text[..end])
    })
}

fn broken_links<'a>(root: &'a Path, text: &'a Text) -> impl Iterator<Item = Finding> + 'a {
    let directory = root.join(text.path.parent().unwrap_or(Path::new("")));
    links(&text.text).filter_map(move |(index, target)| {
        let file = target.split('#').next().unwrap_or_default();
        let is_there = file.is_empty() || directory.join(file).exists();
        (!is_there).then(|| Finding::in_line(&text.path, index, format!("broken link: {target}")))
    })
}

/// The relative targets of `[text](target)` with the indices of their lines; fenced blocks are no links.
fn links(markdown: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_fenced = false;
    let prose = markdown.lines().enumerate().filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        !is_fenced && !is_fence
    });
    let targets = prose.flat_map(|(index, line)| {
        let after = line.match_indices("](").map(|(at, mark)| &line[at + mark.len()..]);
        after.filter_map(move |text| Some((index, text.split_once(')')?.0)))
    });
    targets.filter(|(_, target)| !target.contains("://") && !target.starts_with("mailto:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(name: &str, text: &str) -> Vec<String> {
        let bibliography = "- <a id=\"paper-003\"></a>**003**: on grids\n";
        let texts = [
            Text { path: BIBLIOGRAPHY.into(), text: bibliography.to_owned() },
            Text { path: name.into(), text: text.to_owned() },
        ];
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        check(root, &texts).into_iter().map(|finding| finding.to_string()).collect()
    }

    #[test]
    fn the_absent_design_document_must_not_be_referred_to() {
        let expected = format!("a.rs:1: {ABSENT} is not in this repository");
        assert_eq!(findings("a.rs", &format!("//! The cut ({ABSENT} §5).\n")), [expected]);
        assert_eq!(findings("a.rs", "//! A design of ours.\n"), [""; 0]);
    }

    #[test]
    fn papers_must_be_in_the_bibliography() {
        let unknown = format!("//! See paper {}, §1, and paper 003.\n", "007");
        assert_eq!(findings("a.rs", &unknown), [format!("a.rs:1: {BIBLIOGRAPHY} has no paper {}", "007")]);
        assert_eq!(findings("a.rs", "//! The paper 2 lines below, on paper.\n"), [""; 0]);
    }

    #[test]
    fn links_to_files_must_lead_somewhere() {
        let text = "[a](../README.md#try-it) and [b](gone.md)\n[c](https://example.org/gone) [d](#here)\n";
        assert_eq!(findings("docs/a.md", text), ["docs/a.md:1: broken link: gone.md"]);
    }

    #[test]
    fn code_blocks_hold_no_links() {
        assert_eq!(findings("a.md", "```c\nhandlers[i](gone);\n```\n"), [""; 0]);
    }
}
